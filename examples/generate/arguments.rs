//! The command line.

use crate::Outcome;
use cotangent::io::LoadOptions;
use cotangent::models::GenerateOptions;
use cotangent::{DType, Device};
use std::path::PathBuf;
use std::str::FromStr;

pub const USAGE: &str = "\
usage: generate FOLDER [PROMPT] [options]
  --chat              apply the chat template; without a prompt, talk in turns
  --system TEXT       the system message of a chat
  --max-tokens N      the most tokens of an answer (256)
  --temperature T     0 takes the most probable token; the default is the model's
  --top-k K, --top-p P, --min-p P, --repetition-penalty R, --seed N
  --stop TEXT         end before this text; may be repeated
  --dtype D           bf16, f16, f32 or f64; the default is that of the file
  --device cuda       use the first GPU; cuda:1 is the second
  --draft FOLDER      a smaller model with the same tokens, which proposes them";

/// How to get a folder, for a call without one.
pub const FOLDER: &str = "\
The first argument must be the folder of a model, for example of one that this command downloads:
  huggingface-cli download Qwen/Qwen2.5-0.5B-Instruct --local-dir qwen && cargo run --release --example generate --features tokenizers -- qwen --chat";

#[derive(Default)]
pub struct Arguments {
    pub folder: PathBuf,
    pub prompt: Option<String>,
    pub is_chat: bool,
    pub system: Option<String>,
    pub max_tokens: usize,
    pub stop: Vec<String>,
    pub draft: Option<PathBuf>,
    pub device: Device,
    dtype: Option<DType>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    seed: Option<u64>,
}

fn parsed<T: FromStr>(option: &str, text: &str, what: &str) -> Outcome<T> {
    text.parse().map_err(|_| format!("{option} must be {what}, got {text}").into())
}

impl Arguments {
    pub fn read() -> Outcome<Arguments> {
        let mut given = Arguments { max_tokens: 256, ..Arguments::default() };
        let mut plain = Vec::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} must have a value, got none"));
            match word.as_str() {
                "--help" | "-h" => {
                    println!("{USAGE}");
                    std::process::exit(0);
                }
                "--chat" => given.is_chat = true,
                "--system" => given.system = Some(value()?),
                "--max-tokens" => given.max_tokens = parsed(&word, &value()?, "a number of tokens")?,
                "--temperature" => given.temperature = Some(parsed(&word, &value()?, "a number")?),
                "--top-k" => given.top_k = Some(parsed(&word, &value()?, "a number of tokens")?),
                "--top-p" => given.top_p = Some(parsed(&word, &value()?, "a number")?),
                "--min-p" => given.min_p = Some(parsed(&word, &value()?, "a number")?),
                "--repetition-penalty" => given.repetition_penalty = Some(parsed(&word, &value()?, "a number")?),
                "--seed" => given.seed = Some(parsed(&word, &value()?, "an integer")?),
                "--stop" => given.stop.push(value()?),
                "--draft" => given.draft = Some(value()?.into()),
                "--dtype" => given.dtype = Some(dtype(&value()?)?),
                "--device" => given.device = device(&value()?)?,
                _ if word.starts_with("--") => return Err(format!("unknown option {word}\n{USAGE}").into()),
                _ => plain.push(word),
            }
        }
        let mut plain = plain.into_iter();
        given.folder = plain.next().ok_or(FOLDER)?.into();
        given.prompt = plain.next();
        if let Some(more) = plain.next() {
            return Err(format!("there must be one prompt, in quotes, got also {more:?}").into());
        }
        if given.system.is_some() && !given.is_chat {
            return Err("--system must come with --chat".into());
        }
        if given.prompt.is_none() && !given.is_chat {
            return Err("there must be a prompt, or --chat".into());
        }
        if given.draft.is_some() && given.prompt.is_none() {
            return Err("--draft must come with a prompt: turns use the cache of the model alone".into());
        }
        Ok(given)
    }

    pub fn load_options(&self) -> LoadOptions {
        let options = LoadOptions::new().device(self.device);
        self.dtype.map_or(options.clone(), |dtype| options.dtype(dtype))
    }

    /// The options that are published with the model, and those of the command line.
    pub fn generate_options(&self) -> Outcome<GenerateOptions> {
        let mut options = GenerateOptions::from_folder(&self.folder)?;
        if let Some(temperature) = self.temperature {
            options = options.temperature(temperature);
            if temperature == 0.0 {
                options = options.top_k(None::<usize>).top_p(None::<f64>).min_p(None::<f64>);
            }
        }
        if self.top_k.is_some() {
            options = options.top_k(self.top_k);
        }
        if self.top_p.is_some() {
            options = options.top_p(self.top_p);
        }
        if self.min_p.is_some() {
            options = options.min_p(self.min_p);
        }
        if let Some(penalty) = self.repetition_penalty {
            options = options.repetition_penalty(penalty);
        }
        Ok(options.seed(self.seed))
    }
}

fn dtype(name: &str) -> Outcome<DType> {
    let known = [DType::BF16, DType::F16, DType::F32, DType::F64];
    let found = known.into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| format!("--dtype must be bf16, f16, f32 or f64, got {name}").into())
}

fn device(name: &str) -> Outcome<Device> {
    let gpu = name
        .strip_prefix("cuda")
        .map(|rest| rest.strip_prefix(':').unwrap_or(if rest.is_empty() { "0" } else { rest }));
    let device = match (name, gpu) {
        ("cpu", _) => Device::Cpu,
        (_, Some(at)) => Device::cuda(parsed("--device", at, "cpu, cuda or cuda:N")?),
        _ => return Err(format!("--device must be cpu, cuda or cuda:N, got {name}").into()),
    };
    if !device.is_available() {
        let hint = "there must be an NVIDIA GPU and its driver, and the feature cuda: --features tokenizers,cuda";
        return Err(format!("--device {name} is not available: {hint}").into());
    }
    Ok(device)
}
