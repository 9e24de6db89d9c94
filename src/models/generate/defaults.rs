//! The options of generation that are published with a model.

use super::options::GenerateOptions;
use crate::Result;
use crate::error::{bail, named};
use crate::models::config::ConfigFile;
use std::path::Path;

const OP: &str = "GenerateOptions::from_folder";

/// Fields that change the text and are not supported, with the values that change nothing.
const UNSUPPORTED: [(&str, &[f64]); 18] = [
    ("bad_words_ids", &[]),
    ("begin_suppress_tokens", &[]),
    ("diversity_penalty", &[0.0]),
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("encoder_repetition_penalty", &[1.0]),
    ("epsilon_cutoff", &[0.0]),
    ("eta_cutoff", &[0.0]),
    ("exponential_decay_length_penalty", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("guidance_scale", &[1.0]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("no_repeat_ngram_size", &[0.0]),
    ("num_beam_groups", &[1.0]),
    ("penalty_alpha", &[0.0]),
    ("suppress_tokens", &[]),
    ("typical_p", &[1.0]),
];

impl GenerateOptions {
    /// The options that are published with a model: those of `generation_config.json`, if the folder has it, and the end tokens of
    /// `config.json`, if it does not name any.
    ///
    /// As in Hugging Face's library, the temperature and what limits the tokens to draw from count only with `do_sample`, and then
    /// `top_k` is 50 unless the file says otherwise.
    ///
    /// ```
    /// use cotangent::models::{EndTokens, GenerateOptions};
    /// # let folder = std::env::temp_dir().join(format!("cotangent-doc-defaults-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let file = r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 7]}"#;
    /// std::fs::write(folder.join("generation_config.json"), file)?;
    /// let options = GenerateOptions::from_folder(&folder)?.seed(0);
    /// assert_eq!(options.end_tokens().tokens(), [2, 7]);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a file cannot be read, or has a field that changes the text and is not supported, such as `no_repeat_ngram_size`.
    #[track_caller]
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<GenerateOptions> {
        named(OP, read(folder.as_ref()))
    }
}

#[track_caller]
fn read(folder: &Path) -> Result<GenerateOptions> {
    let (own, model) = (folder.join("generation_config.json"), folder.join("config.json"));
    let mut options = GenerateOptions::new();
    if own.exists() {
        let file = ConfigFile::read(&own)?;
        options = options_of(&file).map_err(|error| error.context(own.display()))?;
        options = options.end(file.integers("eos_token_id")?);
    }
    if options.end_tokens().tokens().is_empty() && model.exists() {
        options = options.end(ConfigFile::read(&model)?.integers("eos_token_id")?);
    }
    options.check()?;
    Ok(options)
}

fn options_of(file: &ConfigFile) -> Result<GenerateOptions> {
    for (name, neutral) in UNSUPPORTED {
        let is_neutral = file.is_empty(name) || file.number(name, f64::NAN).is_ok_and(|value| neutral.contains(&value));
        if !is_neutral {
            bail!(Format, OP, "{name} is not supported and must be absent");
        }
    }
    let beams = file.size("num_beams", 1)?;
    let mut options = GenerateOptions::new().repetition_penalty(file.number("repetition_penalty", 1.0)?).beams(beams);
    if beams > 1 {
        options = options.length_penalty(file.number("length_penalty", 1.0)?);
    }
    if !file.flag("do_sample", false)? {
        return Ok(options);
    }
    let top_k = file.size("top_k", 50)?;
    Ok(options
        .temperature(file.number("temperature", 1.0)?)
        .top_k((top_k > 0).then_some(top_k))
        .top_p(file.number_or_null("top_p", None)?.filter(|&p| p < 1.0))
        .min_p(file.number_or_null("min_p", None)?))
}
