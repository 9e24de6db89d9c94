//! Generation step by step, and beam searches.

use super::cache::{Kept, PyCache, Taken};
use super::options::{Options, refused};
use super::{Given, PyCausalLm, Shell, Stamp, Valued, check_tokens, lock, rows};
use crate::error;
use crate::tensor::PyTensor;
use cotangent::models::{
    GenerateOptions, Generated, Generation, GenerationStep, KeyValueCache, Speculation, generate_scored,
};
use cotangent::{DType, Error, ErrorKind, Result, Tensor};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, Weak};

/// The name of errors.
pub const OP: &str = "generate";

/// An error of generation, which names it. Those of the system keep their names.
pub fn raise(error: Error) -> PyErr {
    let own = error.op() == OP;
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::Io | ErrorKind::Interrupted => error::raise(error),
        _ if own => error::raise(error),
        kind => error::raise(Error::new(kind, OP, format!("{}: {}", error.op(), error.message()))),
    }
}

enum Steps {
    Alone(Box<Generation<'static, Valued>>),
    Drafted(Box<Speculation<'static, Valued, Valued>>),
}

impl Steps {
    fn next(&mut self) -> Option<Result<GenerationStep>> {
        match self {
            Steps::Alone(generation) => generation.next(),
            Steps::Drafted(speculation) => speculation.next(),
        }
    }
}

/// A generation that has not ended, the tokens of its sequences, and the cache that it gives back to.
struct Running {
    steps: Steps,
    rows: Vec<Vec<i64>>,
    cache: Option<(Py<PyCache>, Weak<Shell>, Stamp)>,
}

/// A token of each sequence, and its log-probability.
type Step = (Vec<i64>, Vec<f64>);

impl Running {
    fn step(&mut self) -> Result<Option<Step>> {
        let Some(step) = self.steps.next().transpose()? else { return Ok(None) };
        let tokens = step.tokens.to_vec::<i64>()?;
        let log_probs = step.log_probs.to_dtype(DType::F64)?.to_vec::<f64>()?;
        if log_probs.iter().any(|log_prob| log_prob.is_nan()) {
            // On a GPU the crate does not wait for them.
            let text = "logits must be finite or −∞, and not all −∞, got others";
            return Err(Error::new(ErrorKind::Value, OP, text));
        }
        if self.cache.is_some() {
            self.rows.iter_mut().zip(&tokens).for_each(|(row, &token)| row.push(token));
        }
        Ok(Some((tokens, log_probs)))
    }

    fn end(self, has_failed: bool) {
        let (Steps::Alone(generation), Some((of, model, stamp))) = (self.steps, self.cache) else { return };
        let cache = generation.into_cache();
        let mut kept = Kept { rows: self.rows, model, stamp, cache };
        let len = kept.cache.len();
        kept.rows.iter_mut().for_each(|row| row.truncate(len));
        if has_failed {
            kept.repair();
        }
        *lock(&of.get().kept) = Some(kept);
    }
}

/// A generation step by step. It gives its cache back when it is closed or dropped.
#[pyclass(name = "_Generation", module = "cotangent.models", frozen)]
struct PyGeneration {
    running: Mutex<Option<Running>>,
    /// The tokens that end a sequence.
    #[pyo3(get)]
    end_tokens: Vec<i64>,
}

#[pymethods]
impl PyGeneration {
    #[new]
    fn new(
        py: Python<'_>,
        model: Given<'_>,
        tokens: &Bound<'_, PyTensor>,
        options: Options,
        cache: Option<&Bound<'_, PyCache>>,
        draft: Option<(Given<'_>, usize, usize)>,
    ) -> PyResult<PyGeneration> {
        let tokens = tokens.get().get()?.detach();
        check_tokens(OP, &tokens)?;
        let options = options.over(model.0.get().published()?)?;
        if options.num_beams() > 1 {
            return Err(refused("num_beams must be 1 for tokens one by one"));
        }
        let end_tokens = options.end_tokens().tokens().to_vec();
        let model = Valued::new(py, OP, &model)?;
        let (steps, rows, cache) = if let Some((draft, lookahead, count)) = draft {
            let draft = Valued::new(py, OP, &draft)?;
            let begin = || Speculation::with_shared(model, draft, &tokens, count, options)?.lookahead(lookahead);
            (Steps::Drafted(Box::new(py.detach(begin).map_err(raise)?)), Vec::new(), None)
        } else if let Some(cache) = cache {
            let mut taken = Taken::from(cache, OP, &model)?;
            let stamp = model.stamp.clone();
            let (steps, rows) = py.detach(|| continued(model, &mut taken.kept, &tokens, options)).map_err(raise)?;
            // It is in use until the generation ends.
            taken.gives_back = false;
            (steps, rows, Some((taken.of.clone_ref(py), taken.kept.model.clone(), stamp)))
        } else {
            let begin = || Generation::with_shared(model, KeyValueCache::new(), &tokens, options);
            (Steps::Alone(Box::new(py.detach(begin).map_err(raise)?)), Vec::new(), None)
        };
        Ok(PyGeneration { running: Mutex::new(Some(Running { steps, rows, cache })), end_tokens })
    }

    /// The next token of each sequence and its log-probability, or None at the end.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let Some(mut running) = lock(&self.running).take() else { return Ok(None) };
        let stepped = py.detach(|| running.step());
        match stepped {
            Ok(step) => {
                *lock(&self.running) = Some(running);
                Ok(step)
            }
            Err(error) => {
                running.end(true);
                Err(raise(error))
            }
        }
    }

    /// Ends the generation.
    fn close(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.end(false);
        }
    }
}

impl Drop for PyGeneration {
    fn drop(&mut self) {
        self.close();
    }
}

/// A generation after the tokens that the prompt shares with the cache. After an error the cache is as before.
fn continued(
    model: Arc<Valued>,
    kept: &mut Kept,
    tokens: &Tensor,
    options: GenerateOptions,
) -> Result<(Steps, Vec<Vec<i64>>)> {
    let rows = rows(tokens)?;
    // Keys of other values are not used.
    let is_of = kept.is_of(&model);
    if is_of && !kept.rows.is_empty() && kept.rows.len() != rows.len() {
        let (own, given) = (kept.rows.len(), rows.len());
        let text = format!("the prompt must have as many sequences as the cache, {own}, got {given}");
        return Err(Error::new(ErrorKind::Value, OP, text));
    }
    let shared = |(own, given): (&Vec<i64>, &Vec<i64>)| own.iter().zip(given).take_while(|(a, b)| a == b).count();
    // At least one token is computed.
    let most = tokens.shape()[1].saturating_sub(1);
    let common = kept.rows.iter().zip(&rows).map(shared).min().unwrap_or(0).min(if is_of { most } else { 0 });
    let mut cache = kept.cache.clone();
    if common == 0 && !cache.is_empty() {
        cache = Kept::empty(cache.capacity()).cache;
    } else {
        cache.truncate(common)?;
    }
    let generation = Generation::with_shared(model, cache, tokens, options)?;
    Ok((Steps::Alone(Box::new(generation)), rows))
}

/// The best continuation of each prompt by a beam search, its log-probabilities, and the tokens that end it.
#[pyfunction]
fn _search(
    py: Python<'_>,
    model: Given<'_>,
    tokens: &Bound<'_, PyTensor>,
    count: usize,
    options: Options,
) -> PyResult<(Vec<Vec<i64>>, Vec<Vec<f64>>, Vec<i64>)> {
    let tokens = tokens.get().get()?.detach();
    check_tokens(OP, &tokens)?;
    let options = options.over(model.0.get().published()?)?;
    let end_tokens = options.end_tokens().tokens().to_vec();
    let model = Valued::new(py, OP, &model)?;
    let search = || -> Result<(Vec<Vec<i64>>, Vec<Vec<f64>>)> {
        let Generated { tokens: all, log_probs } = generate_scored(&*model, &tokens, count, options)?;
        let (batch, steps) = (all.shape()[0], tokens.shape()[1]);
        let new = all.shape()[1] - steps;
        let log_probs = log_probs.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let scores = (0..batch).map(|row| log_probs[row * new..(row + 1) * new].to_vec()).collect();
        Ok((rows(&all)?.into_iter().map(|row| row[steps..].to_vec()).collect(), scores))
    };
    let (tokens, log_probs) = py.detach(search).map_err(raise)?;
    Ok((tokens, log_probs, end_tokens))
}

/// The number of beams: the given one, or the published one.
#[pyfunction]
fn _num_beams(model: &Bound<'_, PyCausalLm>, given: Option<usize>) -> PyResult<usize> {
    match given {
        Some(beams) => Ok(beams),
        None => Ok(model.get().published()?.num_beams()),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGeneration>()?;
    module.add_function(wrap_pyfunction!(_search, module)?)?;
    module.add_function(wrap_pyfunction!(_num_beams, module)?)
}
