//! What a generation is asked for.

use super::generation::OP;
use cotangent::models::GenerateOptions;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The options of a generation, which Python has checked for their types. Those that are None are the published ones.
#[derive(FromPyObject)]
pub struct Options {
    #[pyo3(item)]
    temperature: Option<f64>,
    #[pyo3(item)]
    top_k: Option<usize>,
    #[pyo3(item)]
    top_p: Option<f64>,
    #[pyo3(item)]
    min_p: Option<f64>,
    #[pyo3(item)]
    repetition_penalty: Option<f64>,
    #[pyo3(item)]
    presence_penalty: Option<f64>,
    #[pyo3(item)]
    frequency_penalty: Option<f64>,
    #[pyo3(item)]
    length_penalty: Option<f64>,
    #[pyo3(item)]
    eos_token_id: Option<Vec<i64>>,
    /// A token that ends a turn of a chat, in addition to those of `generation_config.json`.
    #[pyo3(item)]
    end_of_turn: Option<i64>,
    #[pyo3(item)]
    stop_tokens: Vec<Vec<i64>>,
    #[pyo3(item)]
    seed: Option<u64>,
    #[pyo3(item)]
    num_beams: Option<usize>,
    #[pyo3(item)]
    n: usize,
}

impl Options {
    pub fn over(self, mut options: GenerateOptions) -> PyResult<GenerateOptions> {
        if let Some(temperature) = self.temperature {
            options = options.temperature(temperature);
            if temperature == 0.0 {
                // The published ones are for draws.
                options = options.top_k(None::<usize>).top_p(None::<f64>).min_p(None::<f64>);
            }
        }
        // 0 and 1 turn them off.
        if let Some(k) = self.top_k {
            options = options.top_k((k > 0).then_some(k));
        }
        if let Some(p) = self.top_p {
            options = options.top_p((p != 1.0).then_some(p));
        }
        if let Some(p) = self.min_p {
            options = options.min_p((p != 0.0).then_some(p));
        }
        if let Some(penalty) = self.repetition_penalty {
            options = options.repetition_penalty(penalty);
        }
        if let Some(penalty) = self.presence_penalty {
            options = options.presence_penalty(penalty);
        }
        if let Some(penalty) = self.frequency_penalty {
            options = options.frequency_penalty(penalty);
        }
        match self.eos_token_id {
            Some(end) => options = options.end(end),
            None => {
                let mut end = options.end_tokens().tokens().to_vec();
                end.extend(self.end_of_turn.filter(|token| !end.contains(token)));
                options = options.end(end);
            }
        }
        if let Some(beams) = self.num_beams {
            if beams <= 1 {
                options = options.length_penalty(1.0);
            }
            options = options.beams(beams);
        }
        if let Some(penalty) = self.length_penalty {
            if options.num_beams() == 1 && penalty != 1.0 {
                return Err(refused(&format!(
                    "length_penalty must be 1 with num_beams=1, got {penalty}: it would have no effect"
                )));
            }
            options = options.length_penalty(penalty);
        }
        let n = self.n;
        if n > 1 && !options.is_sampling() {
            return Err(refused(&format!("temperature must be > 0 with n={n}, got 0: all texts would be equal")));
        }
        if options.num_beams() > 1 && options.is_sampling() {
            let beams = options.num_beams();
            return Err(refused(&format!("temperature must be 0 with num_beams={beams}: a beam search draws nothing")));
        }
        Ok(options.stop(self.stop_tokens).seed(self.seed).samples(n))
    }
}

pub fn refused(what: &str) -> PyErr {
    PyValueError::new_err(format!("{OP}: {what}"))
}
