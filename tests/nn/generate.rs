//! Text generation: texts and probabilities of transformers, written by `tools/generate_fixtures.py`, and what holds for every
//! text.

use crate::json;

use cotangent::io::StateDict;
use cotangent::models::*;
use cotangent::options::BincountOptions;
use cotangent::{DType, Generator, Result, Tensor, manual_seed, tensor, with_generator};
use json::{float, integer, list, parse, tensor as read};
use serde_json::Value;
use std::path::Path;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn case(name: &str) -> Outcome<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/models/{name}.json"));
    Ok(parse(&std::fs::read_to_string(path)?))
}

/// A model with the weights of a case, in f64.
fn prepare<M: Published>(case: &Value, make: impl FnOnce(&Path) -> Result<M>) -> Outcome<M> {
    let file = std::env::temp_dir().join(format!(
        "cotangent-generate-{}-{:?}.json",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, case["config"].to_string())?;
    let model = make(&file);
    std::fs::remove_file(&file).ok();
    let mut model = model?;
    model.to_dtype(DType::F64)?;
    model.eval();
    let mut dict = StateDict::new();
    for (name, value) in case["state"].as_object().ok_or("a state")? {
        dict.insert(name, read(value)?);
    }
    model.load_state_dict(&model.own_names(&dict)?)?;
    Ok(model)
}

fn llama() -> Outcome<Llama> {
    prepare(&case("llama")?, |file| Llama::new(&LlamaConfig::from_file(file)?))
}

fn gpt2() -> Outcome<Gpt2> {
    prepare(&case("gpt2")?, |file| Gpt2::new(&Gpt2Config::from_file(file)?))
}

fn lstm() -> Outcome<LstmLm> {
    let config = LstmLmConfig { vocab_size: 7, embedding_size: 3, hidden_size: 4, ..LstmLmConfig::default() };
    prepare(&case("lstm_lm")?, |_| LstmLm::new(&config))
}

fn rows(value: &Value) -> Vec<Vec<i64>> {
    list(value).iter().map(|row| list(row).iter().map(|token| integer(token) as i64).collect()).collect()
}

fn matrix(rows: &[Vec<i64>]) -> Result<Tensor> {
    Tensor::from_vec(rows.concat(), [rows.len(), rows[0].len()])
}

fn rows_of(tokens: &Tensor) -> Result<Vec<Vec<i64>>> {
    let all = tokens.to_vec::<i64>()?;
    Ok(all.chunks(tokens.shape()[1]).map(<[i64]>::to_vec).collect())
}

/// The same logits for each token, whatever was before.
struct Fixed(Tensor);

impl Fixed {
    fn new(logits: &[f64]) -> Result<Fixed> {
        Ok(Fixed(Tensor::from_vec(logits.to_vec(), [logits.len()])?))
    }
}

impl CausalModel for Fixed {
    fn forward_cached(&self, tokens: &Tensor, _: &mut KeyValueCache) -> Result<Tensor> {
        let &[batch, steps] = tokens.shape() else { return tokens.deep_clone() };
        self.0.expand([batch, steps, self.0.shape()[0]])
    }
}

/// Always the next number, up to 9 and again from 0.
struct Counting;

impl CausalModel for Counting {
    fn forward_cached(&self, tokens: &Tensor, _: &mut KeyValueCache) -> Result<Tensor> {
        let next = tokens.add(1)?.remainder(10)?.unsqueeze(-1)?;
        Tensor::arange(0, 10)?.eq(&next)?.to_dtype(DType::F32)
    }
}

fn message<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

#[test]
fn texts_are_those_of_transformers() -> Outcome {
    let (gpt2, llama) = (gpt2()?, llama()?);
    let cases = case("generate_texts")?;
    for case in list(&cases) {
        let own = &case["options"];
        let number = |name: &str, default: f64| own[name].as_f64().unwrap_or(default);
        let end: Vec<i64> = own["eos_token_id"].as_array().into_iter().flatten().map(|x| integer(x) as i64).collect();
        let beams = number("num_beams", 1.0) as usize;
        let options = GenerateOptions::new()
            .repetition_penalty(number("repetition_penalty", 1.0))
            .length_penalty(number("length_penalty", 1.0))
            .beams(beams)
            .padding(json::sizes(&case["padding"]))
            .end(end.clone());
        let (prompt, expected, count) = (rows(&case["tokens"]), rows(&case["text"]), integer(&case["count"]) as usize);
        let tokens = matrix(&prompt)?;
        let model: &dyn CausalModel = if case["model"] == "gpt2" { &gpt2 } else { &llama };
        let generated = generate_scored(model, &tokens, count, options)?;
        let steps = prompt[0].len();
        // After the end of a sequence the reference has another token.
        let own_part = |row: &[i64]| {
            let last = row[steps..].iter().position(|token| end.contains(token));
            last.map_or(row.len(), |at| steps + at + 1)
        };
        let found = rows_of(&generated.tokens)?;
        assert_eq!(found[0].len(), expected[0].len(), "{own}");
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let length = own_part(expected);
            assert_eq!(found[..length], expected[..length], "{own}: row {at}");
            assert!(found[length..].iter().all(|token| *token == expected[length - 1]), "{own}: row {at}");
            let log_probs = generated.log_probs.select(0, at as isize)?;
            assert!(log_probs.narrow(0, (length - steps) as isize, found.len() - length)?.eq(0.0)?.all(..)?.item()?);
            if beams == 1 {
                // The reference has its logits in f32.
                let log_probs = log_probs.narrow(0, 0, length - steps)?;
                let want = read(&case["log_probs"])?.select(0, at as isize)?.narrow(0, 0, length - steps)?;
                let difference = log_probs.sub(&want)?.abs()?.max(..)?.item::<f64>()?;
                assert!(difference < 1e-5, "{own}: row {at}: {difference}");
            } else if own["repetition_penalty"].is_null() {
                let lengthy = ((length - steps) as f64).powf(number("length_penalty", 1.0));
                let (score, want) = (log_probs.sum(..)?.item::<f64>()? / lengthy, float(&case["scores"][at]));
                assert!((score - want).abs() < 1e-5 * want.abs().max(1.0), "{own}: row {at}: {score} and {want}");
            }
        }
    }
    Ok(())
}

/// Each token is drawn as often as its probability in the reference says, and never if that is 0.
#[test]
fn draws_have_the_probabilities_of_transformers() -> Outcome {
    const DRAWS: usize = 100_000;
    let file = case("generate_draws")?;
    let model = Fixed(read(&file["logits"])?);
    let tokens = matrix(&rows(&file["tokens"]))?.expand([DRAWS as isize, -1])?.contiguous()?;
    for (seed, case) in list(&file["cases"]).iter().enumerate() {
        let own = &case["options"];
        let number = |name: &str| own[name].as_f64();
        let options = GenerateOptions::new()
            .repetition_penalty(number("repetition_penalty").unwrap_or(1.0))
            .temperature(number("temperature").unwrap_or(1.0))
            .top_k(number("top_k").map(|k| k as usize))
            .top_p(number("top_p"))
            .min_p(number("min_p"))
            .seed(seed as u64);
        let text = generate_with(&model, &tokens, 1, options)?;
        let counts = text.select(1, -1)?.bincount_with(BincountOptions::new().minlength(8))?.to_vec::<i64>()?;
        for (token, (&count, want)) in counts.iter().zip(list(&case["probabilities"])).enumerate() {
            let (found, want) = (count as f64 / DRAWS as f64, float(want));
            // Four standard deviations.
            let tolerance = 4.0 * (want * (1.0 - want) / DRAWS as f64).sqrt();
            assert!((found - want).abs() <= tolerance, "{own}: token {token}: {found} and {want}");
        }
    }
    Ok(())
}

#[test]
fn presence_and_frequency_penalties_count_generated_tokens() -> Outcome {
    let model = Fixed::new(&[3.0, 2.5, 1.25, 0.0])?;
    // The prompt does not count.
    let prompt = tensor!([[0, 0, 1]])?;
    for (options, expected) in [
        // 3, 2.5, 1.25 → 2, 2.5 → 2, 1.5 → 1, 1.5 → 1, 0.5, 1.25 → 1, 0.5, 0.25
        (GenerateOptions::new().frequency_penalty(1.0), [0, 1, 0, 1, 2, 0]),
        // 3, 2.5 → 2, 2.5, 1.25 → 2, 1.5, 1.25
        (GenerateOptions::new().presence_penalty(1.0), [0, 1, 0, 0, 0, 0]),
        // 3, 2.5 → 2, 2.5 → 2, 1.5, 1.25 → 1.5, 1.5, 1.25 → 1, 1.5, 1.25 → 1, 1, 1.25
        (GenerateOptions::new().presence_penalty(0.5).frequency_penalty(0.5), [0, 1, 0, 0, 1, 2]),
        (GenerateOptions::new().presence_penalty(-1.0), [0; 6]),
    ] {
        let generated = generate_scored(&model, &prompt, 6, options.clone())?;
        let text = generated.tokens.to_vec::<i64>()?;
        assert_eq!(text[3..], expected, "{options:?}");
        // The log-probabilities are those of the model.
        let own = model.0.log_softmax(-1)?.to_vec::<f64>()?;
        let log_probs = generated.log_probs.to_vec::<f64>()?;
        assert!(log_probs.iter().zip(&expected).all(|(found, &token)| (found - own[token as usize]).abs() < 1e-12));
    }
    // In a beam search, too: of the sums the best is 0, 1, 0, 2 or another order of it.
    let options = GenerateOptions::new().presence_penalty(5.0).beams(4);
    let mut text = generate_with(&model, &prompt, 4, options)?.to_vec::<i64>()?.split_off(3);
    text.sort_unstable();
    assert_eq!(text, [0, 1, 2, 3]);
    Ok(())
}

/// Each of them alone gives the same, also if it repeats the token that pads others.
#[test]
fn rows_with_padding_are_those_of_separate_runs() -> Outcome {
    let model = llama()?;
    let prompts = [vec![5], vec![1, 2, 6, 4], vec![3, 2, 0]];
    let padding: Vec<usize> = prompts.iter().map(|prompt| 4 - prompt.len()).collect();
    let together: Vec<Vec<i64>> =
        prompts.iter().map(|prompt| [vec![0; 4 - prompt.len()], prompt.clone()].concat()).collect();
    for options in [
        GenerateOptions::new(),
        GenerateOptions::new().repetition_penalty(4.0),
        GenerateOptions::new().beams(3).end(6),
        GenerateOptions::new().beams(2).repetition_penalty(2.0),
    ] {
        let all = generate_scored(&model, &matrix(&together)?, 7, options.clone().padding(padding.clone()))?;
        for (at, prompt) in prompts.iter().enumerate() {
            let alone = generate_scored(&model, &matrix(std::slice::from_ref(prompt))?, 7, options.clone())?;
            let text = alone.tokens.to_vec::<i64>()?.split_off(prompt.len());
            let row = rows_of(&all.tokens)?[at].split_off(4);
            assert_eq!(row[..text.len()], text, "{options:?}: row {at}");
            let log_probs = all.log_probs.select(0, at as isize)?.narrow(0, 0, text.len())?;
            assert!(log_probs.sub(&alone.log_probs.select(0, 0)?)?.abs()?.max(..)?.item::<f64>()? < 1e-9);
        }
    }
    Ok(())
}

#[test]
fn a_stream_has_the_steps_of_the_whole() -> Outcome {
    let model = llama()?;
    let tokens = tensor!([[1, 2, 5], [3, 4, 0]])?;
    let options = GenerateOptions::new().temperature(0.9).top_p(0.9).repetition_penalty(1.2).seed(5);
    let whole = generate_scored(&model, &tokens, 6, &options)?;
    let mut stream = Generation::new(&model, &tokens, &options)?;
    assert!(stream.tokens()?.equal(&tokens)? && stream.log_probs()?.shape() == [2, 0]);
    for at in 0..6 {
        let step = stream.next().ok_or("a step")??;
        assert!(step.tokens.equal(&whole.tokens.select(1, 3 + at)?)?);
        assert!(step.log_probs.equal(&whole.log_probs.select(1, at)?)?);
        assert!(!step.log_probs.requires_grad());
    }
    assert!(stream.tokens()?.equal(&whole.tokens)? && stream.log_probs()?.equal(&whole.log_probs)?);
    // The log-probabilities are those of the model for this text.
    let all = model.forward(&whole.tokens)?.log_softmax(-1)?.narrow(1, 2, 6)?;
    let own = all.gather(2, &whole.tokens.narrow(1, 3, 6)?.unsqueeze(2)?)?.squeeze(2)?;
    assert!(own.sub(&whole.log_probs)?.abs()?.max(..)?.item::<f64>()? < 1e-9);
    assert_eq!(generate_scored(&model, &tokens, 0, options)?.tokens.shape(), [2, 3]);
    Ok(())
}

/// Also for a recurrent model, and with penalties, which need the tokens that are in the cache.
#[test]
fn a_continued_cache_is_a_run_in_one_go() -> Outcome {
    fn check<M: CausalModel>(model: &M, padding: &[usize]) -> Outcome {
        let tokens = tensor!([[0, 5], [3, 4]])?;
        let options = GenerateOptions::new().repetition_penalty(1.7).padding(padding);
        let whole = generate_with(model, &tokens, 9, &options)?;
        let mut first = Generation::with_cache(model, KeyValueCache::with_capacity(11), &tokens, &options)?;
        for step in first.by_ref().take(4) {
            step?;
        }
        let (text, cache) = (first.tokens()?, first.into_cache());
        assert_eq!((text.shape(), cache.len()), (&[2, 6][..], 5));
        // The cache knows its padding.
        for options in [options, GenerateOptions::new().repetition_penalty(1.7)] {
            let mut second = Generation::with_cache(model, cache.clone(), &text, options)?;
            for step in second.by_ref().take(5) {
                step?;
            }
            assert!(second.tokens()?.equal(&whole)?);
            assert_eq!(second.into_cache().len(), 10);
        }
        let error =
            message(Generation::with_cache(model, cache.clone(), &text.narrow(1, 0, 5)?, GenerateOptions::new()));
        assert_eq!(error, "generate: tokens must have more steps than the cache, whose 5 they include, got 5");
        // The second sequence is another one.
        let others = text.add(&tensor!([[0], [1]])?)?;
        let error = message(Generation::with_cache(model, cache.clone(), &others, GenerateOptions::new()));
        assert_eq!(error, "generate: tokens must start with the 5 tokens in the cache, got others");
        let other = GenerateOptions::new().padding([0, 2]);
        let error = message(Generation::with_cache(model, cache, &text, other));
        let own = if padding.is_empty() { "which has none".to_owned() } else { format!("{padding:?}") };
        assert_eq!(error, format!("generate: padding must be that of the cache, {own}, got [0, 2]"));
        Ok(())
    }
    let model = llama()?;
    check(&model, &[])?;
    check(&model, &[1, 0])?;
    check(&lstm()?, &[])
}

#[test]
fn sequences_end_with_a_token_or_several() -> Outcome {
    let prompt = tensor!([[2, 1], [2, 3], [2, 8]])?;
    let text = |options: GenerateOptions| -> Outcome<Vec<Vec<i64>>> {
        let text = rows_of(&generate_with(&Counting, &prompt, 6, &options)?)?;
        // The stream ends where the text does.
        let steps = Generation::new(&Counting, &prompt, &options)?.take(6).collect::<Result<Vec<_>>>()?;
        assert_eq!(steps.len(), text[0].len() - 2);
        Ok(text.into_iter().map(|row| row[2..].to_vec()).collect())
    };
    let new = GenerateOptions::new;
    assert_eq!(text(new().end(5))?, [[2, 3, 4, 5, 5, 5], [4, 5, 5, 5, 5, 5], [9, 0, 1, 2, 3, 4]]);
    // Fewer steps, since all have ended.
    assert_eq!(text(new().end([3, 5, 0]))?, [[2, 3], [4, 5], [9, 0]]);
    assert_eq!(text(new().stop([vec![4, 5], vec![9]]))?, [[2, 3, 4, 5], [4, 5, 5, 5], [9, 9, 9, 9]]);
    // The 3 belongs to the prompt of the second row: the prompt is not searched.
    assert_eq!(text(new().stop([vec![3, 4]]).end(9))?, [[2, 3, 4, 4, 4, 4], [4, 5, 6, 7, 8, 9], [9, 9, 9, 9, 9, 9]]);
    // A sequence that is longer than the text, and no end at all.
    assert_eq!(text(new().stop([vec![1, 2, 3, 4, 5, 6, 7]]))?[2], [9, 0, 1, 2, 3, 4]);
    assert_eq!(text(new().end([]))?[0], [2, 3, 4, 5, 6, 7]);
    let scores = generate_scored(&Counting, &prompt, 3, new().end([3, 9]))?.log_probs.to_vec::<f32>()?;
    assert_eq!(scores.iter().map(|&score| score == 0.0).collect::<Vec<_>>()[..3], [false, false, true]);
    // A beam search ends there, too.
    let beams = generate_with(&Counting, &tensor!([[1]])?, 6, new().beams(2).stop([vec![3, 4]]).length_penalty(0.0))?;
    assert!(beams.to_vec::<i64>()?.ends_with(&[3, 4]), "{beams}");
    Ok(())
}

#[test]
fn a_seed_has_its_own_draws() -> Outcome {
    let model = Fixed::new(&[0.0; 50])?;
    let prompt = tensor!([[1], [2]])?;
    let draw = |seed: Option<u64>| {
        generate_with(&model, &prompt, 12, GenerateOptions::new().temperature(1.0).seed(seed))?.to_vec::<i64>()
    };
    let first = draw(Some(3))?;
    // Other draws change nothing, and are not changed.
    let mut generator = Generator::seed(0);
    with_generator(&mut generator, || -> Outcome {
        Tensor::rand([5])?;
        assert_eq!(draw(Some(3))?, first);
        assert_ne!(draw(Some(4))?, first);
        let mut stream = Generation::new(&model, &prompt, GenerateOptions::new().temperature(1.0).seed(3))?;
        for _ in 0..12 {
            Tensor::rand([3])?;
            stream.next().ok_or("a step")??;
        }
        assert_eq!(stream.tokens()?.to_vec::<i64>()?, first);
        Ok(())
    })?;
    let mut expected = Generator::seed(0);
    expected.rand([5])?;
    (0..12).try_for_each(|_| expected.rand([3]).map(drop))?;
    assert_eq!(generator, expected);
    // Without a seed the current generator decides.
    let current = |seed| {
        with_generator(&mut Generator::seed(seed), || {
            manual_seed(seed);
            draw(None)
        })
    };
    assert_eq!(current(1)?, current(1)?);
    assert_ne!(current(1)?, current(2)?);
    // The rows of a batch differ.
    assert_ne!(first[1..13], first[14..]);
    Ok(())
}

/// A temperature so low that the quotient is infinite is that of the most probable token.
#[test]
fn small_temperatures_and_large_logits_draw_the_most_probable() -> Outcome {
    for logits in [[3.0, 8.0, 7.9], [3e4, 8e4, 7e4], [-3e38, 3e38, 0.0], [f64::NEG_INFINITY, -5.0, f64::NEG_INFINITY]] {
        for (temperature, dtype) in
            [(1e-3, DType::F32), (1e-30, DType::F32), (1e-300, DType::F32), (1e-300, DType::F64)]
        {
            let model = Fixed(Fixed::new(&logits)?.0.to_dtype(dtype)?);
            let options = GenerateOptions::new().temperature(temperature);
            let text = generate_with(&model, &tensor!([[0]])?, 9, options)?;
            assert_eq!(text.to_vec::<i64>()?[1..], [1; 9], "{logits:?} at {temperature}");
        }
    }
    Ok(())
}

#[test]
fn options_that_mean_nothing_are_refused() -> Outcome {
    let (model, tokens, new) = (Counting, tensor!([[1, 2], [3, 4]])?, GenerateOptions::new);
    let drawn = || new().temperature(1.0);
    for (options, expected) in [
        (new().temperature(-1.0), "temperature must be finite and ≥ 0, got -1"),
        (new().temperature(f64::NAN), "temperature must be finite and ≥ 0, got NaN"),
        (new().temperature(f64::INFINITY), "temperature must be finite and ≥ 0, got inf"),
        (drawn().top_k(0), "top_k must be ≥ 1, got 0"),
        (drawn().top_p(0.0), "top_p must be > 0 and ≤ 1, got 0"),
        (drawn().top_p(1.5), "top_p must be > 0 and ≤ 1, got 1.5"),
        (drawn().top_p(f64::NAN), "top_p must be > 0 and ≤ 1, got NaN"),
        (drawn().min_p(-0.1), "min_p must be ≥ 0 and ≤ 1, got -0.1"),
        (drawn().min_p(1.1), "min_p must be ≥ 0 and ≤ 1, got 1.1"),
        (drawn().min_p(f64::NAN), "min_p must be ≥ 0 and ≤ 1, got NaN"),
        (new().repetition_penalty(0.0), "repetition_penalty must be finite and > 0, got 0"),
        (new().repetition_penalty(-2.0), "repetition_penalty must be finite and > 0, got -2"),
        (new().repetition_penalty(f64::NAN), "repetition_penalty must be finite and > 0, got NaN"),
        (new().presence_penalty(f64::NAN), "presence_penalty must be finite, got NaN"),
        (new().frequency_penalty(f64::INFINITY), "frequency_penalty must be finite, got inf"),
        (new().beams(2).length_penalty(f64::NAN), "length_penalty must be finite, got NaN"),
        (new().stop([vec![1], vec![]]), "sequences in stop must have at least one token, got an empty one"),
        (new().beams(0), "beams must be ≥ 1, got 0"),
        (drawn().beams(2), "temperature must be 0 with beams, got 1: a beam search draws nothing"),
        (new().length_penalty(2.0), "length_penalty must be 1 without beams, got 2: it would have no effect"),
        (new().top_k(3), "temperature must be > 0 with top_k, got 0: top_k would have no effect"),
        (new().top_p(0.5), "temperature must be > 0 with top_p, got 0: top_p would have no effect"),
        (new().min_p(0.5), "temperature must be > 0 with min_p, got 0: min_p would have no effect"),
        (new().seed(1), "temperature must be > 0 with seed, got 0: seed would have no effect"),
        (new().padding([1]), "padding must have one number for each of 2 sequences, got 1"),
        (new().padding([0, 2]), "padding must leave at least one of 2 tokens, got 2"),
        (new().beams(2).padding([0, 2]), "padding must leave at least one of 2 tokens, got 2"),
    ] {
        let expected = format!("generate: {expected}");
        assert_eq!(message(generate_with(&model, &tokens, 3, options.clone())), expected);
        let error = message(Generation::new(&model, &tokens, options));
        assert!(error == expected || error.contains("beams must be 1 for a Generation"), "{error}");
    }
    let error = message(Generation::new(&model, &tokens, new().beams(2)));
    assert_eq!(error, "generate: beams must be 1 for a Generation, got 2: use generate_with");
    for options in [new(), new().beams(2)] {
        for (tokens, expected) in [
            (tensor!([1, 2])?, "tokens must have shape [batch, steps], got [2]"),
            (Tensor::zeros_with([1, 0], DType::I64)?, "tokens must have at least one step, got shape [1, 0]"),
            (tensor!([[1.0]])?, "tokens must be integers, got f32"),
        ] {
            assert_eq!(message(generate_with(&model, &tokens, 3, options.clone())), format!("generate: {expected}"));
        }
        for logits in [[0.0, f64::NAN], [f64::INFINITY, 0.0], [f64::NEG_INFINITY; 2]] {
            let error = message(generate_with(&Fixed::new(&logits)?, &tensor!([[1]])?, 3, options.clone()));
            assert_eq!(error, "generate: logits must be finite or −∞, and not all −∞, got others", "{logits:?}");
        }
    }
    // A recurrent model cannot skip tokens. After an error the stream ends.
    let lstm = lstm()?;
    let mut stream = Generation::new(&lstm, &tokens, new().padding([0, 1]))?;
    assert!(stream.next().is_some_and(|step| message(step).contains("padding")));
    assert!(stream.next().is_none());
    Ok(())
}
