//! Models against their references on random weights: results and gradients in f64. The cases are made by
//! `tools/model_fixtures.py` from the published implementations.

#[allow(dead_code)]
use crate::json;

use crate::decoders::{LLAMAS, difference, llama};
use cotangent::autograd::BackwardOptions;
use cotangent::io::StateDict;
use cotangent::models::*;
use cotangent::nn::{self, Forward, Module};
use cotangent::{DType, Tensor, tensor};
use json::{compare, parse, tensor as read};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) fn case(name: &str) -> Outcome<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/models/{name}.json"));
    Ok(parse(&std::fs::read_to_string(path)?))
}

/// A temporary file, which is removed at the end of the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("cotangent-models-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

pub(crate) fn config_file(name: &str, case: &Value) -> Outcome<Scratch> {
    let file = Scratch::new(&format!("{name}.json"));
    std::fs::write(&file.0, case["config"].to_string())?;
    Ok(file)
}

/// The weights of the case as a file, under the names that they are published with.
fn weights_file(name: &str, case: &Value) -> Outcome<Scratch> {
    let mut dict = StateDict::new();
    for (name, value) in case["state"].as_object().ok_or("a state")? {
        dict.insert(name, read(value)?);
    }
    let file = Scratch::new(&format!("{name}.safetensors"));
    cotangent::io::safetensors::save(&file.0, &dict)?;
    Ok(file)
}

fn option_of(config: &Value, name: &str) -> Option<usize> {
    config[name].as_u64().map(|size| size as usize)
}

fn size(config: &Value, name: &str) -> Outcome<usize> {
    option_of(config, name).ok_or_else(|| format!("{name} in {config}").into())
}

pub(crate) fn prepare<M: Published>(name: &str, mut model: M, case: &Value) -> Outcome<M> {
    model.to_dtype(DType::F64)?;
    if case["buffers"].is_null() {
        model.eval();
    }
    load_weights(&mut model, &weights_file(name, case)?.0)?;
    Ok(model)
}

/// Results, gradients and buffers are the reference's. What the reference computes without a graph has no gradient; `full` gives the published name of a parameter.
pub(crate) fn check(
    model: &impl Module,
    results: &[(&str, Tensor)],
    case: &Value,
    full: impl Fn(&str) -> String,
) -> Outcome {
    for (name, result) in results {
        compare(result, &case["results"][name], case).map_err(|fault| format!("{name}: {fault}"))?;
        let options = BackwardOptions::new().retain_graph(true);
        if !result.requires_grad() {
            continue;
        }
        result.backward_with(options.gradient(&read(&case["cotangents"][name])?))?;
    }
    for (name, parameter) in model.named_parameters() {
        let grad = parameter.grad().ok_or_else(|| format!("{name} has no gradient"))?;
        compare(&grad, &case["grads"][&full(&name)], case).map_err(|fault| format!("{name}: {fault}"))?;
    }
    if !case["buffers"].is_null() {
        for (name, buffer) in model.named_buffers().into_iter().filter(|(_, buffer)| buffer.get().dtype().is_float()) {
            compare(&buffer.get(), &case["buffers"][&name], case).map_err(|fault| format!("{name}: {fault}"))?;
        }
    }
    Ok(())
}

#[test]
fn gpt2_is_the_published_one() -> Outcome {
    let case = case("gpt2")?;
    let config = Gpt2Config::from_file(&config_file("gpt2", &case)?.0)?;
    let model = prepare("gpt2", Gpt2::new(&config)?, &case)?;
    let logits = model.forward(&read(&case["inputs"]["tokens"])?)?;
    check(&model, &[("logits", logits)], &case, |name| format!("transformer.{name}"))
}

#[test]
fn bert_is_the_published_one() -> Outcome {
    let case = case("bert")?;
    let config = BertConfig::from_file(&config_file("bert", &case)?.0)?;
    let model = prepare("bert", Bert::new(&config)?, &case)?;
    let [tokens, mask, types] = ["tokens", "mask", "types"].map(|name| read(&case["inputs"][name]));
    let (tokens, mask, types) = (tokens?, mask?, types?);
    let output = model.forward(&tokens, Some(&mask), Some(&types))?;
    let hidden = output.last_hidden_state.mul(&mask.unsqueeze(-1)?)?;
    check(&model, &[("hidden", hidden), ("pooled", output.pooler_output)], &case, str::to_owned)
}

#[test]
fn resnets_are_the_published_ones() -> Outcome {
    for name in ["resnet_basic", "resnet_bottleneck"] {
        let case = case(name)?;
        let size = |name: &str, default: usize| option_of(&case["config"], name).unwrap_or(default);
        let layers: Vec<usize> = json::sizes(&case["config"]["layers"]);
        let config = ResNetConfig {
            block: if name == "resnet_basic" { ResNetBlock::Basic } else { ResNetBlock::Bottleneck },
            layers: layers.try_into().map_err(|_| "four stages")?,
            num_classes: size("num_classes", 1000),
            width: size("width", 64),
            groups: size("groups", 1),
            width_per_group: size("width_per_group", 64),
            ..ResNetConfig::default()
        };
        let model = prepare(name, ResNet::new(&config)?, &case)?;
        let logits = model.forward(&read(&case["inputs"]["images"])?)?;
        check(&model, &[("logits", logits)], &case, str::to_owned).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

/// With fewer channels: all except those of images and classes are divided by one factor.
#[test]
fn resnets_have_the_published_names_and_shapes() -> Outcome {
    let names = case("resnet_names")?;
    for (name, config, factor) in [
        ("resnet18", ResNetConfig::resnet18(), 16),
        ("resnet34", ResNetConfig::resnet34(), 16),
        ("resnet50", ResNetConfig::resnet50(), 16),
        ("resnet101", ResNetConfig::resnet101(), 16),
        ("resnext50_32x4d", ResNetConfig::resnext50_32x4d(), 4),
        ("wide_resnet50_2", ResNetConfig::wide_resnet50_2(), 16),
    ] {
        let dict = ResNet::new(&ResNetConfig { width: 64 / factor, ..config })?.state_dict();
        let expected = names[name].as_object().ok_or("names")?;
        assert_eq!(dict.len(), expected.len(), "{name}");
        for (key, shape) in expected {
            let value = dict.get(key).ok_or_else(|| format!("{name} has no {key}"))?;
            let mut shape = json::sizes(shape);
            let channels = shape.iter_mut().take(2).filter(|size| ![3, 1000].contains(*size));
            channels.for_each(|size| *size /= factor);
            assert_eq!(value.shape(), shape, "{name}: {key}");
        }
    }
    Ok(())
}

#[test]
fn resnets_that_cannot_be_are_refused() -> Outcome {
    let small = ResNetConfig { width: 2, ..ResNetConfig::resnet18() };
    for (config, word) in [
        (ResNetConfig { groups: 2, ..small.clone() }, "groups"),
        (ResNetConfig { width: 0, ..small.clone() }, "got 0"),
        (ResNetConfig { num_classes: usize::MAX, ..small.clone() }, "from 1 to"),
        (
            ResNetConfig { width: 3, block: ResNetBlock::Bottleneck, width_per_group: 32, ..small.clone() },
            "multiple of 64",
        ),
    ] {
        let error = ResNet::new(&config).err().ok_or("refused")?.to_string();
        assert!(error.starts_with("ResNet") && error.contains(word), "{error}");
    }
    let model = ResNet::new(&small)?;
    for shape in [&[3, 32, 32][..], &[2, 1, 32, 32]] {
        let error = model.forward(&Tensor::zeros(shape)?).err().ok_or("refused")?.to_string();
        assert!(error.contains("[batch, 3, height, width]"), "{error}");
    }
    Ok(())
}

#[test]
fn vit_is_the_published_one() -> Outcome {
    let case = case("vit")?;
    let config = ViTConfig::from_file(&config_file("vit", &case)?.0)?;
    assert_eq!(config.num_labels, 3);
    let model = prepare("vit", ViT::new(&config)?, &case)?;
    let images = read(&case["inputs"]["images"])?;
    let logits = model.forward(&images)?;
    let full = |name: &str| if name.starts_with("classifier") { name.to_owned() } else { format!("vit.{name}") };
    check(&model, &[("logits", logits)], &case, full)?;
    // Without the last layer it returns the input of that layer.
    let bare = prepare("vit-bare", ViT::new(&ViTConfig { num_labels: 0, ..config })?, &case)?;
    assert!(bare.forward(&images)?.equal(&model.hidden_state(&images)?.select(1, 0)?)?);
    let error = model.forward(&read(&case["inputs"]["images"])?.narrow(3, 0, 4)?).err().ok_or("refused")?.to_string();
    assert!(error.contains("[batch, 3, 6, 6]"), "{error}");
    Ok(())
}

fn unet_config(config: &Value) -> Outcome<UNetConfig> {
    Ok(UNetConfig {
        in_channels: size(config, "in_channels")?,
        out_channels: size(config, "out_channels")?,
        channels: json::sizes(&config["channels"]),
        norm: option_of(config, "groups").map_or(UNetNorm::Batch, UNetNorm::Group),
        time_size: option_of(config, "time_size"),
    })
}

#[test]
fn unet_is_the_reference() -> Outcome {
    let case = case("unet")?;
    let config = unet_config(&case["config"])?;
    let model = prepare("unet", UNet::new(&config)?, &case)?;
    let images = read(&case["inputs"]["images"])?;
    check(&model, &[("images", model.forward(&images)?)], &case, str::to_owned)?;
    let error = model.forward(&images.narrow(3, 0, 10)?).err().ok_or("refused")?.to_string();
    assert!(error.contains("multiples of 4"), "{error}");
    assert!(model.forward_at(&images, &tensor!([1, 2])?).is_err(), "there is no time");
    assert!(UNet::new(&UNetConfig { channels: Vec::new(), ..config.clone() }).is_err());
    assert!(UNet::new(&UNetConfig { channels: vec![1; 100], ..config.clone() }).is_err());
    assert!(UNet::new(&UNetConfig { norm: UNetNorm::Group(4), ..config.clone() }).is_err());
    assert!(UNet::new(&UNetConfig { time_size: Some(3), ..config }).is_err());
    Ok(())
}

#[test]
fn ddpm_is_the_reference() -> Outcome {
    for (name, schedule) in
        [("ddpm_linear", NoiseSchedule::Linear { first: 1e-4, last: 0.02 }), ("ddpm_cosine", NoiseSchedule::Cosine)]
    {
        let case = case(name)?;
        let own = &case["config"];
        let clip = own["clip"].as_bool().ok_or("a bool")?;
        let config = DdpmConfig { unet: unet_config(&own["unet"])?, steps: size(own, "steps")?, schedule, clip };
        let model = prepare(name, Ddpm::new(&config)?, &case)?;
        let [images, noise, t] = ["images", "noise", "t"].map(|name| read(&case["inputs"][name]));
        let (images, noise, t) = (images?, noise?, t?);
        let mut results = vec![("loss", model.loss_at(&images, &t, &noise)?)];
        for (name, at) in [("step_0", 0), ("step_5", 5), ("step_9", 9)] {
            results.push((name, model.step(&images, at, &noise)?));
        }
        check(&model, &results, &case, str::to_owned).map_err(|fault| format!("{name}: {fault}"))?;
        assert!(model.loss_at(&images, &tensor!([0, 4, 10])?, &noise).is_err(), "there are 10 steps");
        assert!(model.step(&images, 10, &noise).is_err());
        let samples = model.sample([2, 1, 4, 4])?;
        assert!(samples.isfinite()?.all(..)?.item::<bool>()? && samples.dtype() == DType::F64);
    }
    Ok(())
}

#[test]
fn vae_is_the_reference() -> Outcome {
    let case = case("vae")?;
    let [input_size, hidden_size, latent_size] =
        ["input_size", "hidden_size", "latent_size"].map(|name| size(&case["config"], name).unwrap_or(0));
    let model = prepare("vae", Vae::new(&VaeConfig { input_size, hidden_size, latent_size })?, &case)?;
    let x = read(&case["inputs"]["x"])?;
    let output = model.forward_noise(&x, &read(&case["inputs"]["noise"])?)?;
    let loss = output.loss(&x)?;
    check(&model, &[("logits", output.logits), ("loss", loss)], &case, str::to_owned)?;
    // The draws differ.
    assert!(!model.forward(&x)?.logits.equal(&model.forward(&x)?.logits)?);
    Ok(())
}

#[test]
fn lstm_lm_is_the_reference() -> Outcome {
    for name in ["lstm_lm", "lstm_lm_tied"] {
        let case = case(name)?;
        let own = &case["config"];
        let config = LstmLmConfig {
            vocab_size: size(own, "vocab_size")?,
            embedding_size: size(own, "embedding_size")?,
            hidden_size: size(own, "hidden_size")?,
            num_layers: size(own, "num_layers")?,
            tie_weights: own["tie_weights"] == true,
            ..LstmLmConfig::default()
        };
        let model = prepare(name, LstmLm::new(&config)?, &case)?;
        let [tokens, h, c] = ["tokens", "h", "c"].map(|name| read(&case["inputs"][name]));
        let tokens = tokens?;
        let (logits, (h, c)) = model.forward_state(&tokens, Some((&h?, &c?)))?;
        check(&model, &[("logits", logits), ("h", h), ("c", c)], &case, str::to_owned)
            .map_err(|fault| format!("{name}: {fault}"))?;
        assert!(model.forward(&tokens.flatten(0, 1)?).is_err(), "a sequence without a batch");
    }
    Ok(())
}

/// Token by token, with the keys and values of those before, gives what the whole sequence gives.
#[test]
fn a_cache_changes_nothing() -> Outcome {
    fn check(model: &impl CausalModel, tokens: &Tensor) -> Outcome {
        let mut whole = KeyValueCache::new();
        let expected = model.forward_cached(tokens, &mut whole)?;
        assert_eq!(whole.len(), 5);
        for lengths in [&[1, 1, 1, 1, 1][..], &[2, 3], &[4, 1]] {
            let (mut cache, mut first, mut parts) = (KeyValueCache::new(), 0, Vec::new());
            for &length in lengths {
                parts.push(model.forward_cached(&tokens.narrow(1, first, length)?, &mut cache)?);
                first += length;
            }
            let change = difference(&Tensor::cat(&parts, 1)?, &expected)?;
            if change >= 1e-12 {
                return Err(format!("{lengths:?}: {change}").into());
            }
        }
        Ok(())
    }
    let gpt = case("gpt2")?;
    let config = Gpt2Config::from_file(&config_file("cache-gpt2", &gpt)?.0)?;
    check(&prepare("cache-gpt2", Gpt2::new(&config)?, &gpt)?, &read(&gpt["inputs"]["tokens"])?)?;
    for name in LLAMAS {
        let (model, tokens) = llama(name, "cache")?;
        check(&model, &tokens).map_err(|fault| format!("{name}: {fault}"))?;
    }
    let config = LstmLmConfig { vocab_size: 7, embedding_size: 3, hidden_size: 4, ..LstmLmConfig::default() };
    let lstm = case("lstm_lm")?;
    check(&prepare("cache-lstm", LstmLm::new(&config)?, &lstm)?, &read(&lstm["inputs"]["tokens"])?)
}

#[test]
fn generation_takes_the_most_probable_or_draws() -> Outcome {
    let case = case("llama")?;
    let config = LlamaConfig::from_file(&config_file("generate", &case)?.0)?;
    let model = prepare("generate", Llama::new(&config)?, &case)?;
    let tokens = tensor!([[1, 2], [3, 4]])?;
    let text = generate(&model, &tokens, 4)?;
    let logits = model.forward(&text)?;
    let best = logits.argmax(-1)?.narrow(1, 1, 4)?;
    assert!(text.narrow(1, 2, 4)?.equal(&best)?);
    // With top_k = 1, the draw is the most probable token.
    let drawn = generate_with(&model, &tokens, 4, GenerateOptions::new().temperature(2.0).top_k(1))?;
    assert!(drawn.equal(&text)?);
    let end = text.to_vec::<i64>()?[2];
    let ended = generate_with(&model, &tokens, 4, GenerateOptions::new().end(end))?.select(0, 0)?.to_vec::<i64>()?;
    assert!(ended[2..].iter().all(|&token| token == end), "{ended:?}");
    for options in [GenerateOptions::new().temperature(-1.0), GenerateOptions::new().top_k(0).temperature(1.0)] {
        assert!(generate_with(&model, &tokens, 1, options).is_err());
    }
    assert!(generate(&model, &Tensor::zeros_with([1, 0], DType::I64)?, 1).is_err());
    Ok(())
}

#[test]
fn names_that_are_missing_or_extra_are_reported_and_nothing_changes() -> Outcome {
    let case = case("bert")?;
    let config = BertConfig::from_file(&config_file("names", &case)?.0)?;
    let mut model = Bert::new(&config)?;
    let before = model.state_dict();
    let mut dict = StateDict::new();
    for (name, value) in before.iter().filter(|(name, _)| *name != "pooler.dense.bias") {
        dict.insert(format!("bert.{name}"), value.add(1.0)?);
    }
    dict.insert("bert.other.weight", Tensor::ones([1])?);
    let file = Scratch::new("names.safetensors");
    cotangent::io::safetensors::save(&file.0, &dict)?;
    let error = load_weights(&mut model, &file.0).err().ok_or("refused")?.to_string();
    assert!(error.contains("missing pooler.dense.bias") && error.contains("unexpected other.weight"), "{error}");
    assert!(
        model
            .state_dict()
            .iter()
            .all(|(name, value)| before.get(name).is_some_and(|old| old.equal(value).is_ok_and(|x| x)))
    );
    Ok(())
}

/// Its logits would be those of another head.
#[test]
fn a_head_of_its_own_is_refused_where_the_model_has_none() -> Outcome {
    let config =
        Gpt2Config { vocab_size: 5, n_positions: 4, n_embd: 4, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
    let mut model = Gpt2::new(&config)?;
    let file = Scratch::new("head.safetensors");
    for (change, fits) in [(0.0, true), (1.0, false)] {
        let mut dict = model.state_dict();
        let table = dict.get("wte.weight").ok_or("a table")?.add(change)?;
        dict.insert("lm_head.weight", table);
        cotangent::io::safetensors::save(&file.0, &dict)?;
        let loaded = load_weights(&mut model, &file.0);
        assert_eq!(loaded.is_ok(), fits);
        assert!(fits || loaded.is_err_and(|error| error.to_string().contains("lm_head.weight")));
    }
    Ok(())
}

#[test]
fn configurations_that_ask_for_something_else_are_refused() -> Outcome {
    let file = Scratch::new("other.json");
    for (text, word) in [
        (r#"{"hidden_act": "relu"}"#, "relu"),
        (r#"{"model_type": "gemma", "hidden_act": "silu"}"#, "silu"),
        (r#"{"rope_scaling": {"type": "linear"}}"#, "factor must be a number"),
        (r#"{"rope_scaling": {"type": "dynamic", "factor": 2.0}}"#, "dynamic"),
        (r#"{"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}"#, "yarn"),
        (r#"{"rope_parameters": {"full_attention": {"rope_type": "default"}}}"#, "full_attention"),
        (r#"{"rope_parameters": {"factor": 2.0}}"#, "factor is not supported"),
        (r#"{"rope_scaling": "linear"}"#, "object"),
        (r#"{"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 5}}"#, "both"),
        (r#"{"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1]}}"#, "longrope"),
        (r#"{"model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2}}"#, "phi3"),
        (r#"{"model_type": "phi3", "partial_rotary_factor": 0.75}"#, "partial_rotary_factor"),
        (r#"{"model_type": "phi3", "rope_parameters": {"partial_rotary_factor": 0.5}}"#, "partial_rotary_factor"),
        (r#"{"model_type": "qwen2", "attention_bias": true}"#, "attention_bias"),
        (r#"{"model_type": "qwen2", "use_mrope": true}"#, "use_mrope"),
        (r#"{"model_type": "qwen3", "mlp_bias": true}"#, "mlp_bias"),
        (r#"{"model_type": "gemma2", "use_bidirectional_attention": true}"#, "use_bidirectional_attention"),
        (r#"{"model_type": "gemma2", "layer_types": ["chunked_attention"]}"#, "chunked_attention"),
        (r#"{"model_type": "mistral", "use_sliding_window": true}"#, "use_sliding_window"),
        (r#"{"model_type": "mistral", "layer_types": ["full_attention"]}"#, "layer_types"),
        (r#"{"attn_logit_softcapping": 50.0}"#, "attn_logit_softcapping"),
        (r#"{"sliding_window": 5}"#, "sliding_window"),
        (r#"{"attention_dropout": 0.1}"#, "attention_dropout"),
        (r#"{"quantization_config": {"bits": 4}}"#, "quantization_config"),
        (r#"{"model_type": "mixtral"}"#, "mixtral"),
        (r#"{"model_type": 3}"#, "model_type"),
        (r#"{"hidden_size": -3}"#, "-3"),
        ("[1]", "object"),
        ("{", "EOF"),
    ] {
        std::fs::write(&file.0, text)?;
        let error = LlamaConfig::from_file(&file.0).err().ok_or("refused")?.to_string();
        assert!(error.contains(word), "{error}");
    }
    nn::save(
        &Bert::new(&BertConfig {
            hidden_size: 4,
            num_attention_heads: 2,
            num_hidden_layers: 1,
            ..BertConfig::default()
        })?,
        &file.0,
    )?;
    assert!(BertConfig::from_file(&file.0).is_err(), "a file of weights is no configuration");
    Ok(())
}
