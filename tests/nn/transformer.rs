//! Layers with several inputs against PyTorch: attention with masks, decoders, a whole transformer. The cases are made by
//! `tools/fixtures.py`.

#[allow(dead_code)]
use crate::checks::both;
use crate::json;

use cotangent::autograd::BackwardOptions;
use cotangent::io::StateDict;
use cotangent::nn::*;
use cotangent::{DType, Tensor, tensor};
use json::{compare, list, parse, tensor as read, text};
use serde_json::Value;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn size(value: &Value) -> Option<usize> {
    value.as_u64().map(|size| size as usize)
}

fn layer_options(args: &Value) -> TransformerLayerOptions {
    let activation =
        if args["activation"] == "gelu" { TransformerActivation::Gelu } else { TransformerActivation::Relu };
    TransformerLayerOptions::new()
        .dim_feedforward(size(&args["dim_feedforward"]).unwrap_or(2048))
        .dropout(args["dropout"].as_f64().unwrap_or(0.1))
        .activation(activation)
        .norm_first(args["norm_first"] == true)
        .batch_first(args["batch_first"] == true)
}

fn with_weights<M: Module>(mut layer: M, case: &Value) -> Outcome<M> {
    let mut dict = StateDict::new();
    for (name, value) in case["state"].as_object().ok_or("a state")? {
        dict.insert(name, read(value)?);
    }
    layer.to_dtype(DType::F64)?;
    layer.load_state_dict(&dict)?;
    Ok(layer)
}

/// The output is PyTorch's, and so are the gradients of inputs and parameters.
fn check(layer: &impl Module, inputs: &[Tensor], output: &Tensor, case: &Value) -> Outcome {
    compare(output, &case["output"], case)?;
    output.backward_with(BackwardOptions::new().gradient(&read(&case["cotangent"])?))?;
    for (input, want) in both(inputs.iter(), list(&case["input_grads"])) {
        compare(&input.grad().ok_or("no gradient")?, want, case)?;
    }
    for (name, parameter) in layer.named_parameters() {
        let grad = parameter.grad().ok_or_else(|| format!("{name} has no gradient"))?;
        compare(&grad, &case["grads"][&name], case).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

fn run(case: &Value) -> Outcome {
    let (args, masks) = (&case["args"], &case["masks"]);
    let inputs = list(&case["inputs"]).iter().map(|x| read(x)?.requires_grad_(true)).collect::<Result<Vec<_>, _>>()?;
    let mask = |name: &str| masks.get(name).filter(|mask| mask.is_object()).map(read).transpose();
    let number = |name: &str| size(&args[name]).ok_or_else(|| format!("no {name}"));
    match text(&case["layer"]) {
        "MultiheadAttention" => {
            let options = MultiheadAttentionOptions::new()
                .kdim(size(&args["kdim"]))
                .vdim(size(&args["vdim"]))
                .add_bias_kv(args["add_bias_kv"] == true)
                .add_zero_attn(args["add_zero_attn"] == true)
                .batch_first(args["batch_first"] == true);
            let layer = MultiheadAttention::new_with(number("embed_dim")?, number("num_heads")?, options)?;
            let layer = with_weights(layer, case)?;
            let (padding, attn) = (mask("key_padding_mask")?, mask("attn_mask")?);
            let options = AttendOptions::new().key_padding_mask(padding.as_ref()).attn_mask(attn.as_ref());
            let [q, k, v] = &inputs[..] else { return Err("three inputs".into()) };
            // Once by the kernel, once with the weights.
            let (fast, _) = layer.attend_with(q, k, v, options.clone())?;
            compare(&fast, &case["output"], case)?;
            let average = masks["average_attn_weights"] != false;
            let options = options.need_weights(true).average_attn_weights(average);
            let (output, weights) = layer.attend_with(q, k, v, options)?;
            compare(&weights.ok_or("weights")?, &case["weights"], case)?;
            check(&layer, &inputs, &output, case)
        }
        "TransformerDecoderLayer" => {
            let layer = TransformerDecoderLayer::new_with(number("d_model")?, number("nhead")?, layer_options(args))?;
            let layer = with_weights(layer, case)?;
            let (own, other) = (mask("tgt_mask")?, mask("memory_mask")?);
            let own = AttendOptions::new().attn_mask(own.as_ref());
            let other = AttendOptions::new().attn_mask(other.as_ref());
            let output = layer.forward_with(&inputs[0], &inputs[1], own, other)?;
            check(&layer, &inputs, &output, case)
        }
        "Transformer" => {
            let layers = [number("num_encoder_layers")?, number("num_decoder_layers")?];
            let model =
                Transformer::new_with(number("d_model")?, number("nhead")?, layers[0], layers[1], layer_options(args))?;
            let model = with_weights(model, case)?;
            let output = model.forward(&inputs[0], &inputs[1])?;
            check(&model, &inputs, &output, case)
        }
        other => Err(format!("no layer {other}").into()),
    }
}

#[test]
fn layers_with_several_inputs_agree_with_pytorch() -> Outcome {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/transformer.json");
    let file = parse(&std::fs::read_to_string(path)?);
    let mut faults = Vec::new();
    for (number, case) in list(&file["cases"]).iter().enumerate() {
        if let Err(fault) = run(case) {
            faults.push(format!("#{number} {} {}: {fault}", case["layer"], case["args"]));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

#[test]
fn a_query_that_sees_nothing_gets_zeros_and_a_nan_stays_one() -> Outcome {
    let mut layer = MultiheadAttention::new(4, 2)?;
    layer.eval();
    let x = Tensor::randn([2, 1, 4])?;
    let nothing = tensor!([[true, true]])?;
    for need_weights in [false, true] {
        let options = AttendOptions::new().key_padding_mask(&nothing).need_weights(need_weights);
        let y = layer.attend_with(&x, &x, &x, options)?.0;
        let bias = layer.out_proj.bias.as_deref().ok_or("a bias")?;
        assert!(y.sub(bias)?.abs()?.max(..)?.item::<f32>()? == 0.0);
        let bad = x.mul(f64::NAN)?;
        let y = layer.attend_with(&bad, &bad, &bad, AttendOptions::new().need_weights(need_weights))?.0;
        assert!(y.to_vec::<f32>()?.iter().all(|y| y.is_nan()));
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_value() -> Outcome {
    let says = |result: cotangent::Result<MultiheadAttention>| result.map_or_else(|e| e.to_string(), |_| String::new());
    assert!(says(MultiheadAttention::new(6, 4)).contains("got embed_dim 6 and num_heads 4"));
    assert!(says(MultiheadAttention::new(6, 0)).contains("num_heads 0"));
    let (layer, x) = (MultiheadAttention::new(4, 2)?, Tensor::randn([3, 2, 4])?);
    let mask = Tensor::zeros([2, 2])?;
    let error =
        layer.attend_with(&x, &x, &x, AttendOptions::new().attn_mask(&mask)).err().ok_or("refused")?.to_string();
    assert!(error.starts_with("MultiheadAttention") && error.contains("[2, 2]"), "{error}");
    let mask = Tensor::zeros([4, 2, 3])?;
    let error =
        layer.attend_with(&x, &x, &x, AttendOptions::new().attn_mask(&mask)).err().ok_or("refused")?.to_string();
    assert!(error.starts_with("MultiheadAttention") && error.contains("[4, 2, 3]"), "{error}");
    let mixed = MultiheadAttention::new_with(4, 2, MultiheadAttentionOptions::new().vdim(6))?;
    assert_eq!(mixed.attend(&x, &x, &Tensor::randn([3, 2, 6])?)?.shape(), [3, 2, 4]);
    for (layers, size, dropout) in [(0, 4, 0.0), (1, 0, 0.0), (1, 4, 0.5), (2, 4, 1.5)] {
        let options = LSTMOptions::new().num_layers(layers).dropout(dropout);
        assert!(LSTM::new_with(3, size, options).is_err(), "{layers} {size} {dropout}");
    }
    assert!(LSTM::new_with(3, 4, LSTMOptions::new().proj_size(4)).is_err());
    Ok(())
}
