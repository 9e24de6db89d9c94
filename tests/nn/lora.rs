//! Adapters of low rank against PEFT's: the fixtures, models in shards with adapters, were written by transformers and PEFT
//! (`tools/io_fixtures.py`).

use cotangent::io::{npz, safetensors};
use cotangent::models::*;
use cotangent::nn::{Forward, Linear, LoraLinear, Module};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::{DType, Result, Tensor, tensor};
use std::fs;
use std::path::{Path, PathBuf};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-lora-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/io/peft_{name}"))
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

fn gpt2() -> Result<Gpt2> {
    let mut model = Gpt2::new(&Gpt2Config::from_file(fixture("gpt2").join("config.json"))?)?;
    load_weights(&mut model, fixture("gpt2"))?;
    model.eval();
    Ok(model)
}

fn llama() -> Result<Llama> {
    let mut model = Llama::new(&LlamaConfig::from_file(fixture("llama").join("config.json"))?)?;
    load_weights(&mut model, fixture("llama"))?;
    Ok(model)
}

fn close(a: &Tensor, b: &Tensor) -> Result<bool> {
    a.detach().allclose_with(b, (1e-4, 1e-5))
}

fn compare<M: Adaptable + CausalModel>(name: &str, new: impl Fn() -> Result<M>) -> Outcome {
    let expected = npz::load(fixture(name).join("expected.npz"))?;
    let get = |name: &str| expected.get(name).cloned().ok_or(name.to_string());
    let logits = |model: &M| {
        model.forward_cached(&get("tokens")?, &mut KeyValueCache::new()).map_err(Box::<dyn std::error::Error>::from)
    };
    let mut model = new()?;
    let plain = logits(&model)?;
    assert!(!close(&plain, &get("logits")?)?, "the adapters change something");
    let config = load_lora(&mut model, fixture(name))?;
    assert_eq!((config.r, config.lora_alpha), (2, 6.0));
    let out = logits(&model)?;
    assert!(close(&out, &get("logits")?)?, "{name}: {out} is not {}", get("logits")?);
    out.square()?.sum(..)?.backward()?;
    let mut trained = 0;
    for (own, parameter) in model.named_parameters() {
        let published = format!("base_model.model.{}{own}", model.prefix());
        match (parameter.grad(), expected.get(&published)) {
            (Some(gradient), Some(wanted)) => {
                assert!(gradient.allclose_with(wanted, (1e-3, 1e-4))?, "{own}: {gradient} is not {wanted}");
                trained += 1;
            }
            (None, None) => assert!(!parameter.requires_grad(), "{own}"),
            _ => return Err(format!("{own} has a gradient on one side only").into()),
        }
    }
    assert_eq!(trained, expected.len() - 2);

    // What is saved is PEFT's file again.
    let folder = Folder::new(name)?;
    save_lora(&model, &config, &folder.0)?;
    let (own, theirs) = (
        safetensors::load(folder.0.join("adapter_model.safetensors"))?,
        safetensors::load(fixture(name).join("adapter_model.safetensors"))?,
    );
    assert_eq!(own.len(), theirs.len());
    for (name, x) in theirs.iter() {
        assert!(own.get(name).ok_or(name)?.equal(x)?, "{name}");
    }
    let read = |path: PathBuf| -> Outcome<serde_json::Value> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    let (own, theirs) = (read(folder.0.join("adapter_config.json"))?, read(fixture(name).join("adapter_config.json"))?);
    for field in ["peft_type", "r", "lora_dropout", "fan_in_fan_out", "bias", "use_dora", "target_modules"] {
        assert_eq!(
            own[field].as_f64().map_or(own[field].clone(), Into::into),
            theirs[field].as_f64().map_or(theirs[field].clone(), Into::into),
            "{field}"
        );
    }
    if let Ok(python) = std::env::var("COTANGENT_TEST_PYTHON") {
        let program = r#"
import sys, numpy as np, torch, transformers, peft
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
model = peft.PeftModel.from_pretrained(model, sys.argv[2])
expected = np.load(sys.argv[1] + "/expected.npz")
logits = model(torch.tensor(expected["tokens"])).logits.detach().numpy()
assert np.allclose(logits, expected["logits"], 1e-4, 1e-5)
print("read by PEFT")
"#;
        let output =
            std::process::Command::new(python).arg("-c").arg(program).arg(fixture(name)).arg(&folder.0).output()?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("read by PEFT") || told.contains("No module named 'peft'"), "{told}");
    }

    let mut again = new()?;
    load_lora(&mut again, &folder.0)?;
    assert!(logits(&again)?.equal(&out)?);
    let copy = again.deep_clone()?;
    merge_lora(&mut again)?;
    assert!(close(&logits(&again)?, &out)?);
    assert_eq!(again.named_parameters().len(), new()?.named_parameters().len());
    assert!(again.parameters().iter().all(|parameter| parameter.requires_grad()));
    assert!(logits(&copy)?.equal(&out)?, "a clone has adapters of its own");
    Ok(())
}

#[test]
fn models_with_adapters_are_those_of_peft() -> Outcome {
    compare("gpt2", gpt2)?;
    compare("llama", llama)
}

#[test]
fn only_adapters_are_trained() -> Outcome {
    let mut model = llama()?;
    let before = model.state_dict();
    let tokens = tensor!([[1, 5, 9, 2]])?;
    let plain = model.forward(&tokens)?;
    let config =
        LoraConfig { r: 3, lora_dropout: 0.1, ..LoraConfig::new(["self_attn.q_proj", "model.layers.1.mlp.up_proj"]) };
    assert_eq!(add_lora(&mut model, &config)?, 3);
    assert!(model.forward(&tokens)?.equal(&plain)?, "new adapters change nothing");
    let mut optimizer = AdamW::new(0.05);
    for _ in 0..5 {
        model.zero_grad();
        model.forward(&tokens)?.square()?.mean(..)?.backward()?;
        optimizer.step(&mut model)?;
    }
    let after = model.state_dict();
    for (name, x) in before.iter() {
        assert!(after.get(name).ok_or(name)?.equal(x)?, "{name} was trained");
    }
    assert_eq!(after.len(), before.len() + 6);
    for (name, x) in after.iter().filter(|(name, _)| name.ends_with("lora_B.weight")) {
        assert!(x.abs()?.sum(..)?.item::<f32>()? > 0.0, "{name} was not trained");
    }
    model.eval();
    assert!(!model.forward(&tokens)?.equal(&plain)?);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() -> Outcome {
    let mut model = gpt2()?;
    let names = |model: &Gpt2| {
        model.named_parameters().into_iter().map(|(name, p)| (name, p.requires_grad())).collect::<Vec<_>>()
    };
    let before = names(&model);
    for (config, part) in [
        (
            LoraConfig::new(["q_proj"]),
            "add_lora: target_modules must be names of layers, got q_proj: the model has c_attn, c_fc, c_proj",
        ),
        (LoraConfig::new(["attn"]), "must be names of layers, got attn"),
        (LoraConfig::new([""; 0]), "must name at least one layer"),
        (LoraConfig { r: 0, ..LoraConfig::new(["c_attn"]) }, "r 0"),
        (LoraConfig { lora_dropout: 1.0, ..LoraConfig::new(["c_attn"]) }, "lora_dropout 1"),
        (LoraConfig { lora_alpha: f64::NAN, ..LoraConfig::new(["c_attn"]) }, "lora_alpha NaN"),
    ] {
        let refused = message(add_lora(&mut model, &config));
        assert!(refused.starts_with("add_lora: ") && refused.contains(part), "{refused}");
        assert_eq!(names(&model), before);
    }
    assert!(message(save_lora(&model, &LoraConfig::new(["c_attn"]), std::env::temp_dir())).contains("has no adapters"));
    let refused = message(load_lora(&mut model, fixture("llama")));
    assert!(
        refused.starts_with("load_lora: ") && refused.contains("unexpected base_model.model.model.layers.0."),
        "{refused}"
    );
    assert_eq!(names(&model), before);

    let folder = Folder::new("refused")?;
    fs::copy(fixture("gpt2").join("adapter_model.safetensors"), folder.0.join("adapter_model.safetensors"))?;
    let config = fs::read_to_string(fixture("gpt2").join("adapter_config.json"))?;
    for (from, to, part) in [
        (r#""use_dora": false"#, r#""use_dora": true"#, "use_dora must be false"),
        (r#""rank_pattern": {}"#, r#""rank_pattern": {"c_fc": 4}"#, "rank_pattern is not supported"),
        (r#""r": 2"#, r#""r": 4"#, "lora_A.weight must be float of shape [4, 8], got f32 of shape [2, 8]"),
        (r#""LORA""#, r#""LOHA""#, "peft_type must be absent or one of [\"LORA\"], got \"LOHA\""),
        (r#""c_fc""#, r#""c_proj""#, "missing base_model.model.transformer.h.0.attn.c_proj.lora_A.weight"),
    ] {
        assert!(config.contains(from), "{from}");
        fs::write(folder.0.join("adapter_config.json"), config.replace(from, to))?;
        let refused = message(load_lora(&mut model, &folder.0));
        assert!(refused.starts_with("load_lora: ") && refused.contains(part), "{refused}");
        assert_eq!(names(&model), before);
    }
    load_lora(&mut model, fixture("gpt2"))?;
    assert!(message(load_lora(&mut model, fixture("gpt2"))).contains("already has an adapter"));
    let wrong = LoraConfig { r: 5, ..LoraConfig::new(["c_attn"]) };
    assert!(message(save_lora(&model, &wrong, &folder.0)).contains("must have rank 5, as in the configuration, got 2"));
    Ok(())
}

#[test]
fn a_layer_by_itself() -> Outcome {
    let mut layer = LoraLinear::from_linear(Linear::new(4, 3)?);
    layer.to_dtype(DType::F64)?;
    layer.attach(2, 1.0, 0.5)?;
    assert_eq!(layer.adapter().map(|(a, b)| (a.shape().to_vec(), b.dtype())), Some((vec![2, 4], DType::F64)));
    assert!(message(layer.attach(2, 1.0, 0.0)).contains("already"));
    assert!(layer.summary().contains("LoraLinear"));
    // Dropout is for the adapter alone, and for training.
    let x = Tensor::ones_with([2, 4], DType::F64)?;
    layer.eval();
    assert!(layer.forward(&x)?.equal(&layer.forward(&x)?)?);
    layer.merge()?;
    layer.merge()?;
    assert!(layer.weight.requires_grad() && !layer.is_adapted());
    for (rank, alpha, dropout) in [(0, 1.0, 0.0), (1, f64::INFINITY, 0.0), (1, 1.0, 2.0)] {
        assert!(layer.attach(rank, alpha, dropout).is_err());
        assert!(layer.weight.requires_grad() && !layer.is_adapted());
    }
    Ok(())
}
