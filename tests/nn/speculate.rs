//! Several samples of a prompt, and speculative decoding.

use cotangent::models::*;
use cotangent::nn::Module;
use cotangent::{DType, Generator, Result, Tensor, tensor, with_generator};
use std::cell::RefCell;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn llama(seed: u64, layers: usize) -> Result<Llama> {
    let config = LlamaConfig {
        vocab_size: 13,
        hidden_size: 8,
        intermediate_size: 16,
        num_hidden_layers: layers,
        num_attention_heads: 2,
        num_key_value_heads: Some(1),
        ..LlamaConfig::default()
    };
    with_generator(&mut Generator::seed(seed), || {
        let mut model = Llama::new(&config)?;
        model.to_dtype(DType::F64)?;
        // Logits that differ.
        for mut parameter in model.parameters_mut() {
            parameter.update(|values| values.mul_(if values.rank() > 1 { 20.0 } else { 1.0 }))?;
        }
        Ok(model)
    })
}

fn lstm() -> Result<LstmLm> {
    let config = LstmLmConfig { vocab_size: 13, embedding_size: 3, hidden_size: 4, ..LstmLmConfig::default() };
    let mut model = with_generator(&mut Generator::seed(2), || LstmLm::new(&config))?;
    model.eval();
    Ok(model)
}

fn message<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

/// Records the shapes of the tokens that a model is given.
struct Counted<M>(M, RefCell<Vec<Vec<usize>>>);

impl<M: CausalModel> CausalModel for Counted<M> {
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.1.borrow_mut().push(tokens.shape().to_vec());
        self.0.forward_cached(tokens, cache)
    }
}

/// The logits of the next token are a row of a table, that of the last token.
struct Markov(Tensor);

impl Markov {
    fn new(seed: u64, tokens: usize) -> Result<Markov> {
        let table = with_generator(&mut Generator::seed(seed), || Tensor::randn([tokens, tokens]))?;
        Ok(Markov(table.to_dtype(DType::F64)?.mul(1.5)?))
    }
}

impl CausalModel for Markov {
    fn forward_cached(&self, tokens: &Tensor, _: &mut KeyValueCache) -> Result<Tensor> {
        tokens.embedding(&self.0)
    }
}

/// The samples have the draws of a batch of equal prompts, and the prompt is computed once.
#[test]
fn samples_are_a_batch_of_equal_prompts() -> Outcome {
    fn check<M: CausalModel>(model: M, padding: &[usize]) -> Outcome {
        let model = Counted(model, RefCell::new(Vec::new()));
        let prompts = tensor!([[1, 2, 5], [3, 4, 0]])?;
        let options = GenerateOptions::new().temperature(0.9).repetition_penalty(1.3).end(6).seed(5);
        let twice: Vec<usize> = padding.iter().flat_map(|&count| [count; 3]).collect();
        let equal = prompts.repeat_interleave(3, 0)?;
        let expected = generate_scored(&model, &equal, 9, options.clone().padding(twice))?;
        model.1.borrow_mut().clear();
        let found = generate_scored(&model, &prompts, 9, options.clone().padding(padding).samples(3))?;
        assert_eq!(found.tokens.shape()[0], 6);
        assert!(found.tokens.equal(&expected.tokens)?);
        assert!(found.log_probs.sub(&expected.log_probs)?.abs()?.max(..)?.item::<f64>()? < 1e-6);
        assert_eq!(model.1.borrow()[..2], [vec![2, 3], vec![6, 1]]);
        // Not all are equal.
        let rows = found.tokens.to_vec::<i64>()?;
        let size = found.tokens.shape()[1];
        assert!(rows[..size] != rows[size..2 * size] || rows[..size] != rows[2 * size..3 * size]);
        // A conversation goes on with all of them.
        let mut first = Generation::new(&model, &prompts, options.clone().padding(padding).samples(3))?;
        first.by_ref().take(3).try_for_each(|step| step.map(drop))?;
        let (text, cache) = (first.tokens()?, first.into_cache());
        assert_eq!((text.shape(), cache.len()), (&[6, 6][..], 5));
        let mut second = Generation::with_cache(&model, cache, &text, GenerateOptions::new())?;
        second.by_ref().take(2).try_for_each(|step| step.map(drop))?;
        Ok(())
    }
    check(llama(1, 2)?, &[])?;
    check(llama(1, 2)?, &[1, 0])?;
    check(lstm()?, &[])?;
    let (model, prompt, new) = (llama(1, 1)?, tensor!([[1]])?, GenerateOptions::new);
    let error = message(generate_with(&model, &prompt, 2, new().samples(3)));
    assert_eq!(error, "generate: temperature must be > 0 with samples, got 0: all would be equal");
    assert_eq!(message(generate_with(&model, &prompt, 2, new().samples(0))), "generate: samples must be ≥ 1, got 0");
    let many = new().temperature(1.0).samples(usize::MAX);
    assert!(message(generate_with(&model, &tensor!([[1], [2]])?, 2, many)).contains("samples must be fewer"));
    Ok(())
}

#[test]
fn a_draft_changes_no_text_without_sampling() -> Outcome {
    let (model, prompt) = (llama(1, 2)?, tensor!([[1, 2, 5]])?);
    let new = GenerateOptions::new;
    let (mut kept, mut refused) = (0, 0);
    for (draft, is_same) in [(llama(1, 2)?, true), (llama(1, 1)?, false), (llama(7, 1)?, false)] {
        for options in [
            new(),
            new().repetition_penalty(1.4),
            new().presence_penalty(3.0).frequency_penalty(1.0),
            new().end([3, 8]),
            new().end([]).stop([vec![4, 4], vec![1, 9], vec![11]]),
        ] {
            for (lookahead, count) in [(1, 12), (2, 12), (4, 12), (5, 1), (7, 23), (30, 12), (3, 0)] {
                let expected = generate_scored(&model, &prompt, count, &options)?;
                let mut text = Speculation::new(&model, &draft, &prompt, count, &options)?.lookahead(lookahead)?;
                let steps = text.by_ref().collect::<Result<Vec<_>>>()?;
                assert!(text.tokens()?.equal(&expected.tokens)?, "{options:?} {lookahead} {count}");
                assert_eq!(steps.len(), expected.log_probs.shape()[1]);
                for (at, step) in steps.iter().enumerate() {
                    let log_prob = expected.log_probs.select(1, at as isize)?;
                    assert!(step.log_probs.sub(&log_prob)?.abs()?.item::<f64>()? < 1e-9);
                }
                assert!(text.next().is_none());
                kept += text.accepted();
                refused += text.proposed() - text.accepted();
                if is_same && !options.end_tokens().tokens().contains(&3) && format!("{options:?}").contains("stop: []")
                {
                    assert_eq!(text.accepted(), text.proposed());
                }
            }
        }
        let whole = speculate(&model, &draft, &prompt, 9, new())?;
        let expected = generate_scored(&model, &prompt, 9, new())?;
        assert!(whole.tokens.equal(&expected.tokens)?);
        assert_eq!(whole.log_probs.shape(), [1, 9]);
    }
    assert!(kept > 100 && refused > 100, "{kept} {refused}");
    Ok(())
}

/// The model computes several tokens in one pass.
#[test]
fn a_draft_saves_passes() -> Outcome {
    let model = Counted(llama(1, 2)?, RefCell::new(Vec::new()));
    let draft = Counted(llama(1, 2)?, RefCell::new(Vec::new()));
    let mut text =
        Speculation::new(&model, &draft, &tensor!([[1, 2, 5]])?, 20, GenerateOptions::new())?.lookahead(4)?;
    text.by_ref().try_for_each(|step| step.map(drop))?;
    // 3 tokens of the prompt and 4 of the draft, then its own token and 4 of the draft.
    assert_eq!(*model.1.borrow(), [vec![1, 7], vec![1, 5], vec![1, 5], vec![1, 5]]);
    // The last proposed token and the one after it are new to the draft.
    assert_eq!(draft.1.borrow()[..6], [vec![1, 3], vec![1, 1], vec![1, 1], vec![1, 1], vec![1, 2], vec![1, 1]]);
    assert_eq!((text.accepted(), text.proposed()), (16, 16));
    Ok(())
}

/// The probability of each text of three tokens, in the order of numbers with these digits.
fn probabilities(model: &Markov, first: i64, options: &GenerateOptions) -> Outcome<Vec<f64>> {
    let size = model.0.shape()[0];
    // The probabilities that a plain generation draws with, from many draws of it.
    const DRAWS: usize = 400_000;
    let mut rows = Vec::new();
    for token in 0..size as i64 {
        let prompt = Tensor::full_with([1, 1], token, DType::I64)?;
        let text = generate_with(model, &prompt, 1, options.clone().samples(DRAWS).seed(99))?;
        let counts = text.select(1, -1)?.bincount_with(cotangent::options::BincountOptions::new().minlength(size))?;
        rows.push(counts.to_vec::<i64>()?.into_iter().map(|count| count as f64 / DRAWS as f64).collect::<Vec<f64>>());
    }
    let mut all = Vec::new();
    for a in 0..size {
        for b in 0..size {
            all.extend((0..size).map(|c| rows[first as usize][a] * rows[a][b] * rows[b][c]));
        }
    }
    Ok(all)
}

/// A chi-squared test over all texts of three tokens.
#[test]
fn a_draft_changes_no_probability() -> Outcome {
    const SIZE: usize = 4;
    const RUNS: u64 = 4000;
    let (model, draft) = (Markov::new(1, SIZE)?, Markov::new(2, SIZE)?);
    let new = || GenerateOptions::new().temperature(1.0);
    for (at, options) in [new(), new().temperature(0.7).top_k(3), new().top_p(0.8), new().temperature(1.3).min_p(0.2)]
        .into_iter()
        .enumerate()
    {
        let expected = probabilities(&model, 2, &options)?;
        let mut counts = vec![0_u64; SIZE * SIZE * SIZE];
        let (mut kept, mut proposed) = (0, 0);
        for run in 0..RUNS {
            let options = options.clone().seed(run + RUNS * at as u64);
            let mut text =
                Speculation::new(&model, &draft, &tensor!([[2]])?, 3, options)?.lookahead(1 + run as usize % 3)?;
            let tokens = text.by_ref().map(|step| step?.tokens.item::<i64>()).collect::<Result<Vec<_>>>()?;
            counts[tokens.iter().fold(0, |number, &token| number * SIZE + token as usize)] += 1;
            kept += text.accepted();
            proposed += text.proposed();
        }
        // Texts that are expected less than five times count as one.
        let (mut sum, mut freedom, mut rest) = (0.0, -1.0, (0.0, 0.0));
        for (&count, &probability) in counts.iter().zip(&expected) {
            let (count, want) = (count as f64, probability * RUNS as f64);
            if want < 5.0 {
                rest = (rest.0 + count, rest.1 + want);
                assert!(want > 0.0 || count == 0.0, "{options:?}: a text that is impossible");
                continue;
            }
            sum += (count - want).powi(2) / want;
            freedom += 1.0;
        }
        if rest.1 > 0.0 {
            sum += (rest.0 - rest.1).powi(2) / rest.1;
            freedom += 1.0;
        }
        // Four standard deviations.
        let most = freedom + 4.0 * (2.0_f64 * freedom).sqrt();
        assert!(freedom > 5.0 && sum < most, "{options:?}: {sum} with {freedom} degrees of freedom");
        assert!(kept > 0 && kept < proposed, "{kept} of {proposed}");
    }
    Ok(())
}

#[test]
fn what_a_draft_does_not_fit_is_refused() -> Outcome {
    let (model, draft, prompt) = (llama(1, 1)?, llama(2, 1)?, tensor!([[1, 2]])?);
    let new = GenerateOptions::new;
    let start =
        |prompt: &Tensor, options: GenerateOptions| message(Speculation::new(&model, &draft, prompt, 5, options));
    assert_eq!(start(&tensor!([[1], [2]])?, new()), "generate: tokens must be one sequence with a draft, got 2");
    for options in [new().beams(2), new().temperature(1.0).samples(2), new().padding([1])] {
        assert_eq!(
            start(&prompt, options),
            "generate: beams and samples must be 1 and padding empty with a draft, got others"
        );
    }
    assert_eq!(
        start(&prompt, new().top_k(2)),
        "generate: temperature must be > 0 with top_k, got 0: top_k would have no effect"
    );
    let zero = Speculation::new(&model, &draft, &prompt, 5, new())?.lookahead(0);
    assert_eq!(message(zero), "generate: lookahead must be ≥ 1, got 0");
    let (small, large) = (Markov::new(1, 3)?, Markov::new(1, 5)?);
    for options in [new(), new().temperature(1.0).seed(1)] {
        let error = message(speculate(&large, &small, &tensor!([[1]])?, 9, options));
        assert_eq!(error, "generate: the draft must have the vocabulary of the model, 5 tokens, got 3");
    }
    // A recurrent model cannot forget single tokens.
    let other = llama(3, 1)?;
    let error = message(speculate(&lstm()?, &other, &tensor!([[1]])?, 30, new()));
    assert!(error.contains("cannot be truncated"), "{error}");
    let nan = Markov(Tensor::full_with([5, 5], f64::NAN, DType::F64)?);
    let error = message(speculate(&nan, &large, &tensor!([[1]])?, 3, new().temperature(1.0)));
    assert_eq!(error, "generate: logits must be finite or −∞, and not all −∞, got others");
    Ok(())
}
