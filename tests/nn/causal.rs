//! Models of a folder, of any family.

use cotangent::io::{StateDict, safetensors};
use cotangent::models::*;
use cotangent::nn::Module;
use cotangent::{DType, Generator, Result, Tensor, no_grad, tensor, with_generator};
use serde_json::{Value, json};
use std::path::PathBuf;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, Value)]) -> Outcome<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-causal-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        for (file, value) in files {
            std::fs::write(path.join(file), value.to_string())?;
        }
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn message<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

fn config(model_type: &str) -> Value {
    if model_type == "gpt2" {
        return json!({"model_type": "gpt2", "vocab_size": 11, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2});
    }
    json!({"model_type": model_type, "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "head_dim": 4,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
        "tie_word_embeddings": model_type == "qwen3", "eos_token_id": [3, 4]})
}

/// The values of a new model in a dtype, and its folder.
fn published(model_type: &str, dtype: DType) -> Outcome<(Folder, StateDict)> {
    let folder = Folder::new(&format!("{model_type}-{dtype}"), &[("config.json", config(model_type))])?;
    let file = folder.0.join("config.json");
    let dict = with_generator(&mut Generator::seed(3), || -> Result<StateDict> {
        if model_type == "gpt2" {
            let mut model = Gpt2::new(&Gpt2Config::from_file(&file)?)?;
            model.to_dtype(dtype)?;
            return Ok(model.state_dict());
        }
        let mut model = Llama::new(&LlamaConfig::from_file(&file)?)?;
        model.to_dtype(dtype)?;
        Ok(model.state_dict())
    })?;
    safetensors::save_sharded(&folder.0, &dict, 700)?;
    Ok((folder, dict))
}

#[test]
fn every_family_is_loaded_from_a_folder_in_the_dtype_of_its_file() -> Outcome {
    let tokens = tensor!([[1, 2, 5, 3]])?;
    for family in ["gpt2", "llama", "qwen2", "qwen3", "mistral", "phi3", "gemma", "gemma2"] {
        for dtype in [DType::F32, DType::BF16] {
            let (folder, dict) = published(family, dtype)?;
            // Nothing is drawn, so other numbers stay the same.
            let mut generator = Generator::seed(9);
            let model = with_generator(&mut generator, || CausalLm::load(&folder.0))?;
            assert_eq!(generator, Generator::seed(9));
            assert_eq!((model.model_type(), model.dtype()), (family, dtype));
            let own = model.state_dict();
            assert_eq!(own.names().collect::<Vec<_>>(), dict.names().collect::<Vec<_>>());
            for (name, value) in own.iter() {
                let expected = dict.get(name).ok_or("a value")?;
                assert!(value.dtype() == dtype && value.equal(expected)?, "{family}: {name}");
            }
            assert!(model.parameters().iter().all(|parameter| parameter.requires_grad()));
            // The logits are those of a model that was made with this dtype, and are not widened.
            let file = folder.0.join("config.json");
            let expected = no_grad(|| -> Result<Tensor> {
                if family == "gpt2" {
                    let mut plain = Gpt2::new(&Gpt2Config::from_file(&file)?)?;
                    plain.to_dtype(dtype)?;
                    plain.eval();
                    plain.load_state_dict(&dict)?;
                    return plain.forward(&tokens);
                }
                let mut plain = Llama::new(&LlamaConfig::from_file(&file)?)?;
                plain.to_dtype(dtype)?;
                plain.load_state_dict(&dict)?;
                plain.forward(&tokens)
            })?;
            let found = no_grad(|| model.forward_cached(&tokens, &mut KeyValueCache::new()))?;
            assert_eq!(found.dtype(), dtype, "{family}");
            assert!(found.equal(&expected)?, "{family}");
            // In another dtype.
            let other = if dtype == DType::F32 { DType::BF16 } else { DType::F64 };
            let cast = CausalLm::load_with(&folder.0, other)?;
            for (name, value) in cast.state_dict().iter() {
                let expected = dict.get(name).ok_or("a value")?.to_dtype(other)?;
                assert!(value.dtype() == other && value.equal(&expected)?, "{family}: {name}");
            }
        }
    }
    Ok(())
}

#[test]
fn folders_that_do_not_fit_are_refused() -> Outcome {
    let folder = Folder::new("refused", &[("config.json", json!({"model_type": "mamba"}))])?;
    let error = message(CausalLm::load(&folder.0));
    assert!(error.starts_with("CausalLm::load: "), "{error}");
    assert!(
        error.ends_with(
            "config.json: model_type must be one of gpt2, llama, qwen2, qwen3, mistral, phi3, gemma, gemma2, got mamba"
        ),
        "{error}"
    );
    std::fs::write(folder.0.join("config.json"), "{}")?;
    assert!(message(CausalLm::load_with(&folder.0, DType::F32)).ends_with("gemma2, got none"));
    let error = message(CausalLm::load(folder.0.join("nothing")));
    assert!(error.contains("CausalLm::load: ") && error.contains("config.json"), "{error}");
    // No weights.
    std::fs::write(folder.0.join("config.json"), config("llama").to_string())?;
    let error = message(CausalLm::load(&folder.0));
    assert!(error.contains("model.safetensors"), "{error}");

    let (folder, mut dict) = published("llama", DType::BF16)?;
    std::fs::remove_dir_all(&folder.0)?;
    let write = |config: Value, dict: &StateDict| -> Outcome {
        std::fs::create_dir_all(&folder.0)?;
        std::fs::write(folder.0.join("config.json"), config.to_string())?;
        Ok(safetensors::save(folder.0.join("model.safetensors"), dict)?)
    };
    // Sizes of a hostile file, none of which is allocated.
    for (field, value) in [
        ("num_hidden_layers", json!(u64::MAX >> 1)),
        ("vocab_size", json!(1_u64 << 60)),
        ("hidden_size", json!(1_u64 << 50)),
        ("intermediate_size", json!(1_u64 << 55)),
        ("head_dim", json!(1_u64 << 62)),
    ] {
        let mut hostile = config("llama");
        hostile[field] = value;
        write(hostile, &dict)?;
        let error = message(CausalLm::load(&folder.0));
        assert!(error.starts_with("CausalLm::load: "), "{field}: {error}");
    }
    let mut fewer = config("llama");
    fewer["num_hidden_layers"] = json!(1);
    write(fewer, &dict)?;
    let error = message(CausalLm::load(&folder.0));
    assert!(error.contains("unexpected model.layers.1."), "{error}");
    // Two dtypes.
    let norm = dict.get("model.norm.weight").ok_or("a norm")?.to_dtype(DType::F32)?;
    dict.insert("model.norm.weight", norm);
    write(config("llama"), &dict)?;
    assert_eq!(
        message(CausalLm::load(&folder.0)),
        "CausalLm::load: weights must have one dtype, got bf16 and f32: choose one for all of them"
    );
    assert_eq!(CausalLm::load_with(&folder.0, DType::F16)?.dtype(), DType::F16);
    Ok(())
}

#[test]
fn published_options_are_defaults() -> Outcome {
    let read = |files: &[(&str, Value)]| -> Outcome<Result<GenerateOptions>> {
        let folder = Folder::new("options", files)?;
        Ok(GenerateOptions::from_folder(&folder.0))
    };
    let own = |value: Value| read(&[("generation_config.json", value), ("config.json", config("llama"))]);
    let same =
        |found: GenerateOptions, expected: GenerateOptions| assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    let new = GenerateOptions::new;
    same(read(&[])??, new());
    same(read(&[("config.json", config("llama"))])??, new().end([3, 4]));
    same(own(json!({"eos_token_id": 7, "max_length": 20, "temperature": 0.5}))??, new().end(7));
    same(
        own(json!({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 0}))??,
        new().temperature(0.6).top_p(0.9).end([3, 4]),
    );
    same(own(json!({"do_sample": true, "eos_token_id": [1]}))??, new().temperature(1.0).top_k(50).end(1));
    same(
        own(
            json!({"do_sample": true, "top_p": 1.0, "min_p": 0.1, "repetition_penalty": 1.05, "typical_p": 1.0, "suppress_tokens": []}),
        )??,
        new().temperature(1.0).top_k(50).min_p(0.1).repetition_penalty(1.05).end([3, 4]),
    );
    same(own(json!({"num_beams": 4, "length_penalty": 0.6}))??, new().beams(4).length_penalty(0.6).end([3, 4]));
    for (value, expected) in [
        (json!({"no_repeat_ngram_size": 3}), "no_repeat_ngram_size is not supported and must be absent"),
        (json!({"suppress_tokens": [1]}), "suppress_tokens is not supported and must be absent"),
        (json!({"eos_token_id": "x"}), "eos_token_id must be an integer or a list of integers, got \"x\""),
        (json!({"do_sample": true, "temperature": -1}), "temperature must be finite and ≥ 0, got -1"),
        (json!({"num_beams": 2, "do_sample": true}), "temperature must be 0 with beams"),
    ] {
        let error = message(own(value.clone())?);
        assert!(error.starts_with("GenerateOptions::from_folder: ") && error.contains(expected), "{value}: {error}");
    }
    Ok(())
}
