//! Runs a language model from a folder with Hugging Face's files: Llama, Qwen, Mistral, Phi-3, Gemma or GPT-2.
//!
//! `cargo run --release --example generate --features tokenizers -- FOLDER "The meaning of life is"` continues a text, and
//! `-- FOLDER --chat` talks in turns. `--help` lists the options. The text goes to the standard output, the speed to the standard
//! error.

mod arguments;

use arguments::Arguments;
use cotangent::data::{ChatMessage, ChatTemplate, Tokenizer};
use cotangent::models::{CausalLm, GenerateOptions, Generation, GenerationStep, KeyValueCache, Speculation};
use cotangent::nn::Module;
use cotangent::{Result, Tensor};
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Runner {
    given: Arguments,
    model: CausalLm,
    tokenizer: Tokenizer,
    options: GenerateOptions,
}

/// What was generated, and how long it took.
struct Answer {
    text: String,
    tokens: usize,
    /// Until the first token.
    prompt_time: Duration,
    time: Duration,
}

impl Runner {
    fn new(given: Arguments, chat: Option<&ChatTemplate>) -> Outcome<Runner> {
        let start = Instant::now();
        let tokenizer = Tokenizer::open(given.folder.join("tokenizer.json"))?;
        let mut options = given.generate_options()?;
        // The end of a turn, which some folders name only here.
        let end = chat.and_then(|chat| chat.special_token("eos_token")).and_then(|token| tokenizer.token_id(token));
        let mut all = options.end_tokens().tokens().to_vec();
        all.extend(end.filter(|end| !all.contains(end)));
        options = options.end(all);
        let model = CausalLm::load_with(&given.folder, given.load_options())?;
        let (billions, seconds) = (model.num_parameters() as f64 / 1e9, start.elapsed().as_secs_f64());
        eprintln!("{}: {billions:.2} B parameters, {}, loaded in {seconds:.1} s", model.model_type(), model.dtype());
        Ok(Runner { given, model, tokenizer, options })
    }

    /// Prints the text of tokens as they come.
    fn print(&self, steps: impl Iterator<Item = Result<GenerationStep>>) -> Outcome<Answer> {
        let mut stream = self.tokenizer.decode_stream().stop(&self.given.stop)?;
        let (start, mut out) = (Instant::now(), std::io::stdout());
        let mut answer = Answer { text: String::new(), tokens: 0, prompt_time: Duration::ZERO, time: Duration::ZERO };
        let mut print = |piece: String, answer: &mut Answer| -> Outcome {
            out.write_all(piece.as_bytes())?;
            out.flush()?;
            answer.text.push_str(&piece);
            Ok(())
        };
        for step in steps {
            let token = step?.tokens.item::<i64>()?;
            answer.tokens += 1;
            if answer.tokens == 1 {
                answer.prompt_time = start.elapsed();
            }
            if self.options.end_tokens().tokens().contains(&token) {
                break;
            }
            print(stream.push(token)?, &mut answer)?;
            if stream.stopped_by().is_some() {
                break;
            }
        }
        answer.time = start.elapsed();
        print(stream.finish()? + "\n", &mut answer)?;
        answer.text.pop();
        Ok(answer)
    }

    fn prompt(&self, tokens: &Tensor) -> Outcome {
        let (count, length) = (self.given.max_tokens, tokens.numel());
        let Some(folder) = &self.given.draft else {
            let cache = KeyValueCache::with_capacity(length.saturating_add(count));
            let generation = Generation::with_cache(&self.model, cache, tokens, &self.options)?;
            report(length, &self.print(generation.take(count))?);
            return Ok(());
        };
        let draft = CausalLm::load_with(folder, self.given.load_options())?;
        let mut text = Speculation::new(&self.model, &draft, tokens, count, &self.options)?;
        report(length, &self.print(text.by_ref())?);
        eprintln!("{} of {} proposed tokens were kept", text.accepted(), text.proposed());
        Ok(())
    }

    /// Answers the lines of the standard input. What the model has seen of the conversation is not computed again.
    fn talk(&self, chat: &ChatTemplate, mut messages: Vec<ChatMessage>) -> Outcome {
        let (mut known, mut cache) = (Vec::<i64>::new(), KeyValueCache::new());
        let input = std::io::stdin();
        let prompt = || {
            if input.is_terminal() {
                eprint!("> ");
            }
        };
        prompt();
        for line in input.lock().lines() {
            let line = line?;
            if line.trim().is_empty() {
                prompt();
                continue;
            }
            messages.push(ChatMessage::user(line));
            let tokens = self.tokenizer.encode(&chat.render(&messages)?)?;
            let ids = tokens.to_vec::<i64>()?;
            // An answer may be split into other tokens than those that were generated. At least one is computed.
            let same = ids.iter().zip(&known).take_while(|(a, b)| a == b).count().min(ids.len().saturating_sub(1));
            cache.truncate(same)?;
            let tokens = self.placed(&tokens)?;
            let mut generation = Generation::with_cache(&self.model, cache, &tokens, &self.options)?;
            let answer = self.print(generation.by_ref().take(self.given.max_tokens))?;
            report(ids.len() - same, &answer);
            known = generation.tokens()?.flatten(0, -1)?.to_vec()?;
            cache = generation.into_cache();
            known.truncate(cache.len());
            messages.push(ChatMessage::assistant(answer.text));
            prompt();
        }
        Ok(())
    }

    /// Tokens as a batch of one, where the model is.
    fn placed(&self, tokens: &Tensor) -> Result<Tensor> {
        tokens.unsqueeze(0)?.to_device(self.given.device)
    }
}

fn report(prompt: usize, answer: &Answer) {
    let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let decode = rate(answer.tokens.saturating_sub(1), answer.time.saturating_sub(answer.prompt_time));
    eprintln!(
        "[prompt: {prompt} tokens, {:.1} tokens/s; answer: {} tokens, {decode:.1} tokens/s]",
        rate(prompt, answer.prompt_time),
        answer.tokens
    );
}

fn run() -> Outcome {
    let given = Arguments::read()?;
    let chat = given.is_chat.then(|| ChatTemplate::open(&given.folder)).transpose()?;
    let mut messages: Vec<ChatMessage> = given.system.iter().map(ChatMessage::system).collect();
    let prompt = given.prompt.clone();
    let runner = Runner::new(given, chat.as_ref())?;
    match (chat, prompt) {
        (Some(chat), None) => runner.talk(&chat, messages),
        (chat, Some(prompt)) => {
            let tokens = match chat {
                Some(chat) => {
                    messages.push(ChatMessage::user(prompt));
                    runner.tokenizer.encode(&chat.render(&messages)?)?
                }
                None => runner.tokenizer.encode_special(&prompt)?,
            };
            if tokens.numel() == 0 {
                return Err("the prompt must have at least one token, got none".into());
            }
            runner.prompt(&runner.placed(&tokens)?)
        }
        (None, None) => Err(arguments::USAGE.into()),
    }
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
