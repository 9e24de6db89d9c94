//! Generation of text, and the kernels of its steps.

use super::{GPU, alone, beside_others, close, gpu, random};
use cotangent::autograd::{grad, no_grad};
use cotangent::io::StateDict;
use cotangent::models::{
    CausalModel, GenerateOptions, Generation, Gpt2, Gpt2Config, KeyValueCache, LayerType, Llama, LlamaConfig,
    LlamaFamily, generate_scored,
};
use cotangent::nn::Module;
use cotangent::{DType, Device, Generator, Result, Tensor, memory, options::AttentionOptions, tensor};

/// The sums have other orders.
const DTYPES: [(DType, f64); 3] = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];

#[test]
fn few_queries_attend_to_many_keys() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in DTYPES {
        for (queries, keys, size) in [(1, 4096, 64), (1, 1000, 128), (3, 777, 32), (7, 300, 256), (8, 9, 8), (1, 2, 16)]
        {
            let lead = [2, 3];
            let of = |rows: usize, seed| random(&[lead[0], lead[1], rows, size], seed, dtype);
            let (query, key, value) = (of(queries, 1)?, of(keys, 2)?, of(keys, 3)?);
            let there = [&query, &key, &value].map(|x| x.to_device(GPU));
            let [q, k, v] = there;
            let (q, k, v) = (q?, k?, v?);
            let options = || AttentionOptions::new().scale(0.3);
            let want = query.scaled_dot_product_attention_with(&key, &value, options())?;
            let got = q.scaled_dot_product_attention_with(&k, &v, options())?;
            assert!(close(&got, &want, tolerance)?, "{queries} over {keys} of {size}, {dtype}");
            let again = q.scaled_dot_product_attention_with(&k, &v, options())?;
            assert!(got.equal(&again)?, "the same bits every time");
            // Heads interleaved in memory, as after a projection.
            let interleaved = |x: &Tensor| x.transpose(1, 2)?.contiguous()?.transpose(1, 2);
            let got =
                interleaved(&q)?.scaled_dot_product_attention_with(&interleaved(&k)?, &interleaved(&v)?, options())?;
            assert!(got.equal(&again)?, "strided {queries} over {keys} of {size}, {dtype}");
        }
    }
    Ok(())
}

/// Five dimensions, as of grouped heads: with gradients, masks and without.
#[test]
fn attention_of_many_dimensions_is_that_of_the_cpu() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let leaf = |x: &Tensor, device: Device| x.to_device(device)?.requires_grad_(true);
    for (dtype, tolerance) in DTYPES {
        let (query, key, value) = (
            random(&[2, 3, 4, 33, 64], 1, dtype)?,
            random(&[2, 3, 1, 50, 64], 2, dtype)?,
            random(&[2, 3, 1, 50, 64], 3, dtype)?,
        );
        let masks = [
            None,
            Some(random(&[33, 50], 4, DType::F32)?.gt(-0.5)?),
            Some(random(&[2, 1, 1, 33, 50], 5, DType::F32)?.gt(-0.5)?),
        ];
        for mask in &masks {
            let run = |device: Device| -> Result<Vec<Option<Tensor>>> {
                let (q, k, v) = (leaf(&query, device)?, leaf(&key, device)?, leaf(&value, device)?);
                let mask = mask.as_ref().map(|mask| mask.to_device(device)).transpose()?;
                let mut options = AttentionOptions::new();
                if let Some(mask) = &mask {
                    options = options.attn_mask(mask);
                }
                let y = q.scaled_dot_product_attention_with(&k, &v, options)?;
                let mut all = grad(&y.to_dtype(DType::F32)?.sin()?.sum(..)?, &[&q, &k, &v])?;
                all.push(Some(y.detach()));
                Ok(all)
            };
            for (at, (got, want)) in run(GPU)?.iter().zip(run(Device::Cpu)?).enumerate() {
                // The gradients of keys are sums over the queries of four heads.
                let (Some(got), Some(want)) = (got, want) else { panic!("result {at} is missing") };
                assert!(close(got, &want, tolerance * 8.0)?, "{dtype}, result {at}, mask {}", mask.is_some());
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_few_rows_are_those_of_the_cpu() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in DTYPES {
        for rows in 1..=9 {
            for (n, k) in [(1, 8), (7, 264), (513, 2048), (4096, 72), (8199, 136)] {
                let x = random(&[rows, k], 1, dtype)?;
                let (w, bias) = (random(&[n, k], 2, dtype)?, random(&[n], 3, dtype)?);
                let (there, at, start) = (x.to_device(GPU)?, w.to_device(GPU)?, bias.to_device(GPU)?);
                let tolerance = tolerance * (k as f64).sqrt();
                let what = format!("{rows} x {n} x {k} of {dtype}");
                let got = there.linear(&at, Some(&start))?;
                assert!(close(&got, &x.linear(&w, Some(&bias))?, tolerance)?, "{what}");
                assert!(close(&there.matmul(&at.t()?)?, &x.matmul(&w.t()?)?, tolerance)?, "{what}");
                // A part of the columns of a matrix is not contiguous, and one that is not aligned is multiplied otherwise.
                let part = |x: &Tensor, w: &Tensor| x.narrow(1, 1, k - 1)?.matmul(&w.narrow(1, 1, k - 1)?.t()?);
                assert!(close(&part(&there, &at)?, &part(&x, &w)?, tolerance)?, "{what}, not aligned");
                let batch = |x: &Tensor, w: &Tensor| x.reshape([rows, 1, k])?.linear(w, None);
                assert!(batch(&there, &at)?.flatten(0, 1)?.equal(&there.linear(&at, None)?)?, "{what}, a batch");
            }
        }
    }
    Ok(())
}

/// A model with random weights that are large enough for clear choices.
fn prepared<M: Module>(mut model: M) -> Result<M> {
    let mut generator = Generator::seed(3);
    let mut dict = StateDict::new();
    for (name, value) in model.state_dict().iter() {
        let (scale, center) = if value.rank() > 1 { (0.5, 0.0) } else { (0.2, 1.0) };
        dict.insert(name, generator.randn(value.shape())?.mul(scale)?.add(center)?);
    }
    model.load_state_dict(&dict)?;
    model.eval();
    Ok(model)
}

fn llama(model_type: LlamaFamily) -> Result<Llama> {
    let mut config = LlamaConfig {
        model_type,
        vocab_size: 97,
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(16),
        ..LlamaConfig::default()
    };
    if model_type == LlamaFamily::Gemma2 {
        (config.attn_logit_softcapping, config.final_logit_softcapping) = (Some(5.0), Some(9.0));
        config.query_pre_attn_scalar = Some(20.0);
    }
    if matches!(model_type, LlamaFamily::Gemma2 | LlamaFamily::Mistral) {
        (config.sliding_window, config.layer_types) =
            (Some(7), Some(vec![LayerType::SlidingAttention, LayerType::FullAttention, LayerType::SlidingAttention]));
    }
    prepared(Llama::new(&config)?)
}

fn gpt2() -> Result<Gpt2> {
    prepared(Gpt2::new(&Gpt2Config {
        vocab_size: 97,
        n_positions: 80,
        n_embd: 64,
        n_layer: 2,
        n_head: 2,
        ..Gpt2Config::default()
    })?)
}

/// Recorded steps give the tokens and the log-probabilities of the CPU, whatever the length: with padding, windows, bounded
/// scores, and beyond the first memory of the cache.
fn gives_the_cpus_text<M: CausalModel + Module>(mut model: M) -> Result<()> {
    let tokens = tensor!([[5, 6, 7, 8, 9], [1, 2, 3, 4, 11]])?;
    for padding in [vec![], vec![0, 3]] {
        let options = GenerateOptions::new().padding(padding.clone()).repetition_penalty(1.1);
        model.to_device(Device::Cpu)?;
        let want = generate_scored(&model, &tokens, 70, options.clone())?;
        model.to_device(GPU)?;
        let got = generate_scored(&model, &tokens.to_device(GPU)?, 70, options.clone())?;
        assert_eq!(got.tokens.to_vec::<i64>()?, want.tokens.to_vec::<i64>()?, "padding {padding:?}");
        assert!(close(&got.log_probs, &want.log_probs, 1e-3)?, "padding {padding:?}");
        // The cache grows: it has memory for 64 tokens first.
        let mut stream = Generation::new(&model, &tokens.to_device(GPU)?, options)?;
        for step in stream.by_ref().take(70) {
            step?;
        }
        assert!(stream.tokens()?.equal(&got.tokens)?);
        // The cache of recorded steps is that of others.
        let (text, mut cache) = (stream.tokens()?, stream.into_cache());
        let last = no_grad(|| model.forward_cached(&text.narrow(1, -1, 1)?, &mut cache))?;
        let whole = KeyValueCache::new().with_padding(&padding)?;
        let whole = no_grad(|| model.forward_cached(&text, &mut { whole }))?.narrow(1, -1, 1)?;
        assert!(last.allclose_with(&whole, (1e-3, 1e-3))?);
    }
    Ok(())
}

#[test]
fn recorded_steps_give_the_cpus_text() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    for family in [LlamaFamily::Llama, LlamaFamily::Qwen3, LlamaFamily::Mistral, LlamaFamily::Gemma2] {
        gives_the_cpus_text(llama(family)?)?;
    }
    gives_the_cpus_text(gpt2()?)
}

/// With few rows the layers of a block are joined: with norms and biases, gates and residuals, of few and of many outputs.
#[test]
fn joined_layers_are_those_of_the_cpu() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for family in [LlamaFamily::Llama, LlamaFamily::Qwen2, LlamaFamily::Gemma2] {
        for intermediate_size in [96, 8200] {
            let config = LlamaConfig {
                model_type: family,
                vocab_size: 97,
                hidden_size: 64,
                intermediate_size,
                num_hidden_layers: 1,
                num_attention_heads: 4,
                num_key_value_heads: Some(2),
                head_dim: Some(16),
                mlp_bias: family == LlamaFamily::Llama,
                ..LlamaConfig::default()
            };
            let mut model = prepared(Llama::new(&config)?)?;
            for (dtype, tolerance) in DTYPES {
                for batch in 1..=5 {
                    let what = format!("{family:?}, {intermediate_size}, {batch} x {dtype}");
                    let tokens = Tensor::arange(3, 3 + batch)?.reshape([batch, 1])?;
                    model.to_device(Device::Cpu)?;
                    model.to_dtype(DType::F32)?;
                    model.to_dtype(dtype)?;
                    let want = no_grad(|| model.forward(&tokens))?;
                    model.to_device(GPU)?;
                    let tokens = tokens.to_device(GPU)?;
                    let got = no_grad(|| model.forward(&tokens))?;
                    let scale = want.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>()?;
                    assert!(close(&got, &want, tolerance * 4.0 * scale)?, "{what}");
                    // Nothing is joined where derivatives are recorded, and the operations one by one round elsewhere.
                    let recorded = model.forward(&tokens)?;
                    assert!(close(&recorded.detach(), &want, tolerance * 4.0 * scale)?, "{what}");
                    recorded.to_dtype(DType::F32)?.sum(..)?.backward()?;
                    assert!(model.parameters().iter().all(|parameter| parameter.grad().is_some()), "{what}");
                    model.zero_grad();
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_limits_of_a_model_and_a_cache_hold_for_recorded_steps() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let mut model = gpt2()?;
    model.to_device(GPU)?;
    let tokens = tensor!([[5, 6, 7]])?.to_device(GPU)?;
    let failed = |generation: Generation<'_, Gpt2>| {
        let mut count = 0;
        for step in generation {
            match step {
                Ok(_) => count += 1,
                Err(error) => return (count, error.to_string()),
            }
        }
        (count, String::new())
    };
    let (count, error) = failed(Generation::new(&model, &tokens, GenerateOptions::new())?);
    assert!(count == 78 && error.contains("at most 80 tokens"), "{count} {error}");
    let cache = KeyValueCache::with_capacity(10);
    let (count, error) = failed(Generation::with_cache(&model, cache, &tokens, GenerateOptions::new())?);
    assert!(count == 8 && error.contains("capacity of the cache must be at least 11"), "{count} {error}");
    // In training mode dropout draws numbers, which a replay would repeat: steps are not recorded then.
    model.train();
    let steps: Result<Vec<_>> = Generation::new(&model, &tokens, GenerateOptions::new())?.take(5).collect();
    assert_eq!(steps?.len(), 5);
    // Nothing of a recorded step stays.
    drop(model);
    let _ = memory::empty_cache(GPU);
    Ok(())
}
