//! Decoders of the Llama, Qwen, Mistral, Phi-3 and Gemma families.

use crate::json::tensor as read;
use crate::models::{Outcome, Scratch, case, check, config_file, prepare};
use cotangent::io::StateDict;
use cotangent::models::*;
use cotangent::nn::Module;
use cotangent::{DType, Tensor, tensor};
use serde_json::Value;

/// The cases of decoders in the style of Llama.
pub(crate) const LLAMAS: [&str; 10] =
    ["llama", "llama_tied", "llama3", "llama_linear", "qwen2", "qwen3", "mistral", "phi3", "gemma", "gemma2"];

fn llama_config(name: &str, case: &Value) -> Outcome<LlamaConfig> {
    Ok(LlamaConfig::from_file(&config_file(name, case)?.0)?)
}

/// The model of a case under a name that no other test uses.
pub(crate) fn llama(name: &str, scratch: &str) -> Outcome<(Llama, Tensor)> {
    let (case, scratch) = (case(name)?, format!("{scratch}-{name}"));
    let config = llama_config(&scratch, &case)?;
    Ok((prepare(&scratch, Llama::new(&config)?, &case)?, read(&case["inputs"]["tokens"])?))
}

pub(crate) fn difference(a: &Tensor, b: &Tensor) -> Outcome<f64> {
    Ok(a.detach().sub(b.detach())?.abs()?.max(..)?.item::<f64>()?)
}

#[test]
fn llamas_are_the_published_ones() -> Outcome {
    for name in LLAMAS {
        let case = case(name)?;
        let (model, tokens) = llama(name, "published")?;
        let logits = model.forward(&tokens)?;
        check(&model, &[("logits", logits)], &case, str::to_owned).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

/// So the cases above would find a setting that is ignored.
#[test]
fn every_setting_of_the_llamas_changes_the_logits() -> Outcome {
    type Change = fn(&mut LlamaConfig);
    let changes: [(&str, Change); 15] = [
        ("llama3", |config| config.rope_scaling = None),
        ("llama3", |config| config.rope_scaling = Some(RopeScaling::Linear { factor: 8.0 })),
        ("llama_linear", |config| config.rope_scaling = None),
        ("llama_linear", |config| config.rope_theta = 10_000.0),
        ("qwen2", |config| config.layer_types = None),
        ("qwen2", |config| config.layer_types = Some(vec![LayerType::FullAttention; 2])),
        ("qwen3", |config| config.sliding_window = Some(2)),
        ("mistral", |config| config.sliding_window = None),
        ("mistral", |config| config.sliding_window = Some(4)),
        ("phi3", |config| config.sliding_window = Some(2)),
        ("gemma2", |config| config.layer_types = Some(vec![LayerType::SlidingAttention; 2])),
        ("gemma2", |config| config.query_pre_attn_scalar = None),
        ("gemma2", |config| config.attn_logit_softcapping = None),
        ("gemma2", |config| config.final_logit_softcapping = None),
        ("gemma2", |config| config.rms_norm_eps = 0.1),
    ];
    for (at, (name, change)) in changes.into_iter().enumerate() {
        let (case, scratch) = (case(name)?, format!("settings-{at}"));
        let mut config = llama_config(&scratch, &case)?;
        let before = config.clone();
        change(&mut config);
        assert_ne!(config, before, "{name}: change {at}");
        let tokens = read(&case["inputs"]["tokens"])?;
        let logits = prepare(&scratch, Llama::new(&config)?, &case)?.forward(&tokens)?;
        let change = difference(&logits, &read(&case["results"]["logits"])?)?;
        assert!(change > 1e-4, "{name}: change {at} is {change}");
    }
    Ok(())
}

/// A sequence after padding has the logits that it has alone, also where padding and the window overlap.
#[test]
fn llamas_see_no_padding() -> Outcome {
    for name in LLAMAS {
        let (model, tokens) = llama(name, "padding")?;
        let mut cache = KeyValueCache::new().with_padding(&[0, 3])?;
        let start = tokens.narrow(1, 0, 4)?;
        let mut both = vec![model.forward_cached(&start, &mut cache)?];
        both.push(model.forward_cached(&tokens.narrow(1, 4, 1)?, &mut cache)?);
        let both = Tensor::cat(&both, 1)?;
        let full = model.forward(&tokens.narrow(0, 0, 1)?)?;
        let short = model.forward(&tokens.narrow(0, 1, 1)?.narrow(1, 3, 2)?)?;
        let change = difference(&both.narrow(0, 0, 1)?, &full)?
            .max(difference(&both.narrow(0, 1, 1)?.narrow(1, 3, 2)?, &short)?);
        // Integer positions, which padded sequences have, give f32.
        assert!(change < 1e-6, "{name}: {change}");
    }
    Ok(())
}

#[test]
fn llamas_work_in_half_precision() -> Outcome {
    for name in LLAMAS {
        let (mut model, tokens) = llama(name, "half")?;
        let expected = model.forward(&tokens)?;
        model.to_dtype(DType::BF16)?;
        let mut cache = KeyValueCache::new().with_padding(&[0, 0])?;
        let logits = model.forward_cached(&tokens, &mut cache)?;
        assert_eq!(logits.dtype(), DType::BF16);
        // The reference's own error is a tenth for Gemma 2, whose random weights give large scores.
        let (change, most) = (difference(&logits.to_dtype(DType::F64)?, &expected)?, expected.abs()?.max(..)?);
        assert!(change < 0.15 * most.item::<f64>()?, "{name}: {change}");
    }
    Ok(())
}

/// New adapters change nothing, and only they are trained; merged ones give the same logits.
#[test]
fn llamas_carry_adapters() -> Outcome {
    for name in LLAMAS {
        let (mut model, tokens) = llama(name, "adapters")?;
        let before = model.forward(&tokens)?;
        let config = LoraConfig {
            r: 2,
            ..LoraConfig::new(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
        };
        assert_eq!(add_lora(&mut model, &config)?, 14, "{name}");
        assert!(difference(&model.forward(&tokens)?, &before)? < 1e-12, "{name}");
        model.forward(&tokens)?.square()?.sum(..)?.backward()?;
        assert!(
            model.named_parameters().iter().all(|(name, p)| p.grad().is_some() == name.contains("lora_")),
            "{name}"
        );
        for (_, layer) in model.linear_layers() {
            layer.weight.set(&layer.weight.detach().mul(0.5)?)?;
        }
        let adapted = model.forward(&tokens)?;
        merge_lora(&mut model)?;
        assert!(difference(&model.forward(&tokens)?, &adapted)? < 1e-12, "{name}");
    }
    Ok(())
}

#[test]
fn joint_matrices_that_do_not_fit_are_refused() -> Outcome {
    let case = case("phi3")?;
    let mut model = Llama::new(&llama_config("joint", &case)?)?;
    let file = Scratch::new("joint.safetensors");
    let mut published = StateDict::new();
    for (name, value) in case["state"].as_object().ok_or("a state")? {
        published.insert(name, read(value)?);
    }
    let joint = "model.layers.0.self_attn.qkv_proj.weight";
    for (name, value, word) in [
        (joint, Tensor::zeros([15, 8])?, "[16, ..]"),
        (joint, Tensor::zeros([16, 7])?, "q_proj"),
        ("model.layers.0.self_attn.q_proj.weight", Tensor::zeros([8, 8])?, "either alone"),
    ] {
        let mut dict = published.clone();
        dict.insert(name, value);
        cotangent::io::safetensors::save(&file.0, &dict)?;
        let error = load_weights(&mut model, &file.0).err().ok_or("refused")?.to_string();
        assert!(error.contains(word), "{error}");
    }
    // What the model itself has saved is loaded, too.
    cotangent::io::safetensors::save(&file.0, &model.state_dict())?;
    load_weights(&mut model, &file.0)?;
    Ok(())
}

/// What files leave out, have as null, or have in an old form.
#[test]
fn configurations_of_llamas_have_the_defaults_of_their_family() -> Outcome {
    let file = Scratch::new("defaults.json");
    let parsed = |text: &str| -> Outcome<LlamaConfig> {
        std::fs::write(&file.0, text)?;
        Ok(LlamaConfig::from_file(&file.0)?)
    };
    assert_eq!(parsed("{}")?, LlamaConfig::default());
    for (name, family) in [
        ("llama", LlamaFamily::Llama),
        ("qwen2", LlamaFamily::Qwen2),
        ("qwen3", LlamaFamily::Qwen3),
        ("mistral", LlamaFamily::Mistral),
        ("phi3", LlamaFamily::Phi3),
        ("gemma", LlamaFamily::Gemma),
        ("gemma2", LlamaFamily::Gemma2),
    ] {
        assert_eq!(parsed(&format!(r#"{{"model_type": "{name}"}}"#))?, LlamaConfig::new(family));
    }
    let config = parsed(r#"{"model_type": "mistral", "sliding_window": null, "num_key_value_heads": null}"#)?;
    assert_eq!((config.sliding_window, config.num_key_value_heads), (None, None));
    let config = parsed(r#"{"model_type": "gemma2", "attn_logit_softcapping": null, "query_pre_attn_scalar": 144}"#)?;
    assert_eq!((config.attn_logit_softcapping, config.query_pre_attn_scalar), (None, Some(144.0)));
    assert_eq!(config.final_logit_softcapping, Some(30.0));
    // A window that is not used.
    let config = parsed(
        r#"{"model_type": "qwen2", "sliding_window": 32768, "max_window_layers": 24, "use_sliding_window": false, "use_mrope": false}"#,
    )?;
    assert_eq!((config.sliding_window, config.layer_types), (None, None));
    let config = parsed(
        r#"{"model_type": "qwen3", "num_hidden_layers": 2, "max_window_layers": 1, "use_sliding_window": true}"#,
    )?;
    let types = vec![LayerType::FullAttention, LayerType::SlidingAttention];
    assert_eq!((config.sliding_window, config.layer_types), (Some(4096), Some(types)));
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let values = r#""factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3""#;
    for text in [
        format!(r#"{{"rope_theta": 500000.0, "rope_scaling": {{{values}}}}}"#),
        format!(r#"{{"rope_parameters": {{{values}, "rope_theta": 500000.0}}, "rope_scaling": null}}"#),
    ] {
        let config = parsed(&text)?;
        assert_eq!((config.rope_theta, config.rope_scaling), (500_000.0, Some(scaling)));
    }
    Ok(())
}

#[test]
fn llamas_that_cannot_be_are_refused() -> Outcome {
    let small = LlamaConfig {
        vocab_size: 5,
        hidden_size: 8,
        intermediate_size: 4,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        ..LlamaConfig::default()
    };
    let slides = Some(vec![LayerType::SlidingAttention; 2]);
    let llama3 = |low_freq_factor, original_max_position_embeddings| {
        let (factor, high_freq_factor) = (8.0, 4.0);
        Some(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings })
    };
    for (config, word) in [
        (LlamaConfig { sliding_window: Some(0), ..small.clone() }, "sliding_window must be ≥ 1"),
        (LlamaConfig { layer_types: slides, ..small.clone() }, "sliding_window must be set"),
        (LlamaConfig { layer_types: Some(vec![LayerType::FullAttention]), ..small.clone() }, "2 entries"),
        (LlamaConfig { rope_scaling: Some(RopeScaling::Linear { factor: 0.0 }), ..small.clone() }, "factor"),
        (LlamaConfig { rope_scaling: llama3(4.0, 64), ..small.clone() }, "got 4 and 4"),
        (LlamaConfig { rope_scaling: llama3(1.0, 0), ..small.clone() }, "original_max_position_embeddings"),
        (LlamaConfig { rope_theta: -1.0, ..small.clone() }, "rope_theta"),
        (LlamaConfig { final_logit_softcapping: Some(0.0), ..small.clone() }, "final_logit_softcapping"),
        (LlamaConfig { head_dim: Some(3), ..small.clone() }, "head_dim"),
        (LlamaConfig { num_key_value_heads: Some(3), ..small.clone() }, "num_key_value_heads"),
    ] {
        let error = Llama::new(&config).err().ok_or("refused")?.to_string();
        assert!(error.starts_with("Llama") && error.contains(word), "{error}");
    }
    Llama::new(&LlamaConfig { sliding_window: Some(usize::MAX), ..small })?.forward(&tensor!([[1, 2]])?)?;
    Ok(())
}
