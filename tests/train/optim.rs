//! Optimisers and clipping: PyTorch's values step by step, in place, saved and loaded.

use crate::checks::both;
use crate::json;

use cotangent::io::{StateDict, safetensors};
use cotangent::nn::{Forward, Linear, LinearOptions, Module, Parameter, ReLU, Sequential, Tanh};
use cotangent::optim::{
    Adam, AdamW, ClipGradNormOptions, Optimizer, Sgd, clip_grad_norm, clip_grad_norm_with, clip_grad_value,
};
use cotangent::{DType, Device, Error, ErrorKind, Generator, Result, Tensor, memory, s, tensor, with_generator};
use json::{float, list, parse, tensor, text};
use serde_json::Value;
use std::path::PathBuf;

/// Parameters without a network.
#[derive(Module)]
struct Bag {
    params: Vec<Parameter>,
}

impl Bag {
    fn of(values: &Value) -> Result<Bag> {
        let params = list(values).iter().map(|value| Parameter::new(tensor(value)?)).collect::<Result<_>>()?;
        Ok(Bag { params })
    }

    /// Sets gradients; null means no gradient.
    fn set_grads(&self, grads: &Value) -> Result<()> {
        for (param, grad) in both(self.params.iter(), list(grads)) {
            param.zero_grad();
            if !grad.is_null() {
                param.set_grad(&tensor(grad)?)?;
            }
        }
        Ok(())
    }
}

fn fixtures() -> Value {
    parse(include_str!("../fixtures/train.json"))
}

fn optimizer(case: &Value) -> Box<dyn Optimizer> {
    let option = |name: &str| float(&case["options"][name]);
    let beta = |at: usize| float(&case["options"]["betas"][at]);
    match text(&case["kind"]) {
        "SGD" => Box::new(
            Sgd::new(option("lr"))
                .momentum(option("momentum"))
                .dampening(option("dampening"))
                .weight_decay(option("weight_decay"))
                .nesterov(case["options"]["nesterov"] == true),
        ),
        "Adam" => Box::new(
            Adam::new(option("lr")).betas(beta(0), beta(1)).eps(option("eps")).weight_decay(option("weight_decay")),
        ),
        _ => Box::new(
            AdamW::new(option("lr")).betas(beta(0), beta(1)).eps(option("eps")).weight_decay(option("weight_decay")),
        ),
    }
}

fn assert_close(got: &Tensor, want: &Value, what: &str) -> Result<()> {
    let want = tensor(want)?;
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    for (got, want) in both(got.to_vec::<f64>()?, want.to_vec::<f64>()?) {
        assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "{what}: {got} and not {want}");
    }
    Ok(())
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

fn bits(model: &dyn Module) -> Result<Vec<Vec<u32>>> {
    let values = model.parameters().into_iter().map(|t| t.to_vec::<f32>());
    Ok(values.collect::<Result<Vec<_>>>()?.into_iter().map(|v| v.into_iter().map(f32::to_bits).collect()).collect())
}

#[test]
fn every_step_is_the_one_that_pytorch_makes() -> Result<()> {
    let fixtures = fixtures();
    let cases = list(&fixtures["optimizers"]);
    assert!(cases.len() >= 16);
    for case in cases {
        let (mut model, mut optimizer) = (Bag::of(&case["initial"])?, optimizer(case));
        for (at, step) in list(&case["steps"]).iter().enumerate() {
            if let Some(lr) = case["lr"].get(at) {
                optimizer.set_lr(float(lr));
                assert_eq!(optimizer.lr(), float(lr));
            }
            model.set_grads(&step["grads"])?;
            optimizer.step(&mut model)?;
            for (param, want) in both(model.params.iter(), list(&step["params"])) {
                assert_close(param, want, &format!("{} after step {}", text(&case["name"]), at + 1))?;
                assert!(param.requires_grad() && param.is_leaf());
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_are_clipped_as_pytorch_does() -> Result<()> {
    let fixtures = fixtures();
    for case in list(&fixtures["clip"]) {
        let zeros = |g: &Value| if g.is_null() { Tensor::zeros_with((), DType::F64) } else { tensor(g)?.zeros_like() };
        let params = list(&case["grads"]).iter().map(|g| Parameter::new(zeros(g)?)).collect::<Result<_>>()?;
        let model = Bag { params };
        model.set_grads(&case["grads"])?;
        if case["kind"] == "norm" {
            let (most, p) = (float(&case["max_norm"]), float(&case["norm_type"]));
            let total = if p == 2.0 { clip_grad_norm(&model, most)? } else { clip_grad_norm_with(&model, most, p)? };
            assert_close(&Tensor::from_vec(vec![total], ())?, &case["total_norm"], "the norm")?;
        } else {
            clip_grad_value(&model, float(&case["clip_value"]))?;
        }
        for (param, want) in both(model.params.iter(), list(&case["clipped"])) {
            match param.grad() {
                Some(grad) => assert_close(&grad, want, "a clipped gradient")?,
                None => assert!(want.is_null()),
            }
        }
    }
    Ok(())
}

#[test]
fn clipping_refuses_what_is_no_bound_and_sees_long_gradients_whole() -> Result<()> {
    let model = Bag { params: vec![Parameter::new(Tensor::zeros([3, 50_000])?)?] };
    let grad = Generator::seed(1).randn([3, 50_000])?;
    let held = grad.clone();
    model.params[0].set_grad(&grad)?;
    for (refused, part) in [
        (clip_grad_norm(&model, -1.0), "max_norm must be ≥ 0, got -1"),
        (clip_grad_norm_with(&model, 1.0, 0.0), "norm_type must be > 0, got 0"),
    ] {
        assert!(message(refused).contains(part));
    }
    assert!(message(clip_grad_value(&model, f64::NAN)).contains("got NaN"));
    let values: Vec<f64> = held.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let expected = values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let total = clip_grad_norm(&model, 1.0)?;
    assert!((total / expected - 1.0).abs() < 1e-12, "{total} and not {expected}");
    assert!((clip_grad_norm(&model, 10.0)? - 1.0).abs() < 1e-5);
    assert!(held.to_vec::<f32>()?[0] == values[0] as f32, "another handle to the gradient keeps its values");
    // A NaN norm is not taken for one within the bound.
    let mut with_nan = held.deep_clone()?;
    with_nan.set(s![0, 0], f32::NAN)?;
    model.params[0].set_grad(&with_nan)?;
    assert!(clip_grad_norm(&model, 1.0)?.is_nan());
    let clipped = model.params[0].grad().map(|g| g.isnan()?.all(..)?.item::<bool>()).transpose()?;
    assert_eq!(clipped, Some(true));
    model.params[0].set_grad(&Tensor::full([3, 50_000], f32::INFINITY)?)?;
    let options = ClipGradNormOptions::new().error_if_nonfinite(true);
    assert!(
        message(clip_grad_norm_with(&model, 1.0, options))
            .contains("the gradient norm of order 2 must be finite, got inf")
    );
    // Half precision is summed in f32 and wider.
    let half = Bag { params: vec![Parameter::new(Tensor::zeros_with([4], DType::BF16)?)?] };
    half.params[0].set_grad(&Tensor::full_with([4], 3.0, DType::BF16)?)?;
    assert_eq!(clip_grad_norm(&half, 100.0)?, 6.0);
    Ok(())
}

#[derive(Module)]
struct Mlp {
    layers: Vec<Linear>,
    activation: String,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (at, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x)?;
            if at + 1 < self.layers.len() {
                x = match self.activation.as_str() {
                    "relu" => x.relu()?,
                    "tanh" => x.tanh()?,
                    _ => x.gelu()?,
                };
            }
        }
        Ok(x)
    }
}

#[test]
fn a_network_is_trained_as_pytorch_trains_it() -> Result<()> {
    let fixtures = fixtures();
    for case in list(&fixtures["mlp"]) {
        let layer = |two: &[Value]| -> Result<Linear> {
            Ok(Linear { weight: Parameter::new(tensor(&two[0])?)?, bias: Some(Parameter::new(tensor(&two[1])?)?) })
        };
        let layers = list(&case["initial"]).chunks(2).map(layer).collect::<Result<_>>()?;
        let mut model = Mlp { layers, activation: text(&case["activation"]).to_string() };
        let (mut optimizer, x, target) = (optimizer(case), tensor(&case["x"])?, tensor(&case["target"])?);
        for (at, step) in list(&case["steps"]).iter().enumerate() {
            let out = model.forward(&x)?;
            let loss =
                if case["loss"] == "cross_entropy" { out.cross_entropy(&target)? } else { out.mse_loss(&target)? };
            let (got, want) = (loss.item::<f64>()?, float(&step["loss"]));
            assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "the loss of step {at} is {got} and not {want}");
            optimizer.zero_grad(&model);
            loss.backward()?;
            optimizer.step(&mut model)?;
            for (param, want) in both(model.parameters(), list(&step["params"])) {
                assert_close(param, want, &format!("{} after step {}", text(&case["name"]), at + 1))?;
            }
        }
    }
    Ok(())
}

/// A model, and the gradients of one batch in it.
fn small() -> Result<(Sequential, Tensor, Tensor)> {
    with_generator(&mut Generator::seed(5), || {
        let model = Sequential::new()
            .add(Linear::new(6, 16)?)
            .add(Tanh)
            .add(Linear::new(16, 16)?)
            .add(ReLU)
            .add(Linear::new(16, 2)?);
        Ok((model, Tensor::randn([24, 6])?, Tensor::randn([24, 2])?))
    })
}

fn train(model: &mut Sequential, optimizer: &mut dyn Optimizer, x: &Tensor, y: &Tensor, steps: usize) -> Result<f64> {
    let mut last = 0.0;
    for _ in 0..steps {
        let loss = model.forward(x)?.mse_loss(y)?;
        model.zero_grad();
        loss.backward()?;
        clip_grad_norm(model, 1.0)?;
        optimizer.step(model)?;
        last = f64::from(loss.item::<f32>()?);
    }
    Ok(last)
}

fn all_kinds() -> [Box<dyn Optimizer>; 4] {
    [
        Box::new(Sgd::new(0.1)),
        Box::new(Sgd::new(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)),
        Box::new(Adam::new(0.01).weight_decay(0.01)),
        Box::new(AdamW::new(0.01)),
    ]
}

#[test]
fn every_optimiser_learns() -> Result<()> {
    for mut optimizer in all_kinds() {
        let (mut model, x, y) = small()?;
        let before = train(&mut model, &mut *optimizer, &x, &y, 1)?;
        let after = train(&mut model, &mut *optimizer, &x, &y, 300)?;
        assert!(after < 0.5 * before, "{after} after {before}");
    }
    Ok(())
}

#[test]
fn training_goes_on_bit_for_bit_after_saving_and_loading() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("cotangent-optim-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = |name: &str| -> PathBuf { folder.join(name) };
    // The second set has other settings, which loading replaces.
    let others: [Box<dyn Optimizer>; 4] =
        [Box::new(Sgd::new(9.0)), Box::new(Sgd::new(9.0)), Box::new(Adam::new(9.0)), Box::new(AdamW::new(9.0))];
    for (mut optimizer, mut resumed) in both(all_kinds(), others) {
        let (mut model, x, y) = small()?;
        train(&mut model, &mut *optimizer, &x, &y, 7)?;
        optimizer.set_lr(0.03);
        cotangent::nn::save(&model, path("model"))?;
        safetensors::save(path("optimizer"), &optimizer.state_dict()?)?;
        train(&mut model, &mut *optimizer, &x, &y, 5)?;

        let (mut again, ..) = small()?;
        cotangent::nn::load(&mut again, path("model"))?;
        resumed.load_state_dict(&safetensors::load(path("optimizer"))?)?;
        assert_eq!(resumed.lr(), 0.03);
        train(&mut again, &mut *resumed, &x, &y, 5)?;
        assert_eq!(bits(&model)?, bits(&again)?);
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() -> Result<()> {
    let (mut model, x, y) = small()?;
    let mut adam = AdamW::new(0.01);
    train(&mut model, &mut adam, &x, &y, 2)?;
    let good = adam.state_dict()?;

    let mut bad = good.clone();
    bad.remove("lr");
    bad.remove("0.bias.step");
    bad.remove("0.weight.exp_avg");
    bad.insert("0.weight.momentum_buffer", Tensor::zeros([1])?);
    let refused = message(adam.load_state_dict(&bad));
    for part in [
        "load_state_dict: AdamW: nothing was loaded",
        "missing lr",
        "missing 0.bias.step",
        "unexpected 0.weight.momentum_buffer",
        "0.weight must have the first 2 or more of exp_avg, exp_avg_sq, max_exp_avg_sq",
    ] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    assert!(message(adam.load_state_dict(&StateDict::new())).contains("missing lr"), "an empty state is no state");
    assert!(message(Sgd::new(0.1).load_state_dict(&good)).contains("unexpected beta1"));
    assert_eq!(adam.state_dict()?.names().collect::<Vec<_>>(), good.names().collect::<Vec<_>>());

    // A state for other parameters is seen in the next step, before anything is changed.
    let mut stranger = Sequential::new().add(Linear::new(6, 2)?);
    let mut loaded = AdamW::new(0.01);
    loaded.load_state_dict(&good)?;
    let before = bits(&stranger)?;
    stranger.forward(&x)?.mse_loss(&y)?.backward()?;
    assert!(message(loaded.step(&mut stranger)).contains("the model has no parameter 2.bias"));
    let mut wide =
        Sequential::new().add(Linear::new(6, 8)?).add(Tanh).add(Linear::new(8, 16)?).add(ReLU).add(Linear::new(16, 2)?);
    wide.forward(&x)?.mse_loss(&y)?.backward()?;
    let refused = message(loaded.step(&mut wide));
    assert!(
        refused.contains("the state of 0.weight must be f32 of shape [8, 6], got f32 of shape [16, 6]"),
        "{refused}"
    );
    assert_eq!(bits(&stranger)?, before);
    Ok(())
}

#[test]
fn settings_out_of_their_domain_are_refused() -> Result<()> {
    let (mut model, x, y) = small()?;
    model.forward(&x)?.mse_loss(&y)?.backward()?;
    let before = bits(&model)?;
    let wrong: [(Box<dyn Optimizer>, &str); 8] = [
        (Box::new(Sgd::new(-1.0)), "step: Sgd: lr must be ≥ 0, got -1"),
        (Box::new(Sgd::new(f64::NAN)), "lr must be ≥ 0, got NaN"),
        (Box::new(Sgd::new(0.1).momentum(-0.1)), "momentum must be ≥ 0, got -0.1"),
        (Box::new(Sgd::new(0.1).nesterov(true)), "nesterov requires momentum > 0 and dampening 0, got 0 and 0"),
        (Box::new(Sgd::new(0.1).weight_decay(-1.0)), "weight_decay must be ≥ 0, got -1"),
        (Box::new(Adam::new(0.1).betas(0.9, 1.0)), "step: Adam: beta1 and beta2 must be in [0, 1), got 1"),
        (Box::new(AdamW::new(0.1).eps(-1.0)), "step: AdamW: eps must be ≥ 0, got -1"),
        (Box::new(AdamW::new(0.1).weight_decay(f64::NAN)), "weight_decay must be ≥ 0, got NaN"),
    ];
    for (mut optimizer, part) in wrong {
        let refused = message(optimizer.step(&mut model));
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(bits(&model)?, before);
    Ok(())
}

#[test]
fn parameters_without_a_gradient_and_those_spared_do_not_decay() -> Result<()> {
    let mut model = Sequential::new().add(Linear::new(2, 2)?).add(Linear::new(2, 2)?);
    let mut optimizer = AdamW::new(0.1).weight_decay(0.5).no_decay(|name| name.ends_with("bias"));
    // With zero gradients only the decay is left.
    for name in ["0.weight", "0.bias"] {
        let (_, tensor) = model.named_parameters().into_iter().find(|(n, _)| n == name).ok_or_else(absent)?;
        tensor.set_grad(&tensor.zeros_like()?)?;
    }
    let before: Vec<Vec<f32>> = model.parameters().iter().map(|t| t.to_vec::<f32>()).collect::<Result<_>>()?;
    optimizer.step(&mut model)?;
    let after: Vec<Vec<f32>> = model.parameters().iter().map(|t| t.to_vec::<f32>()).collect::<Result<_>>()?;
    assert!(before[0].iter().zip(&after[0]).all(|(b, a)| (a - b * 0.95).abs() < 1e-6 && a != b));
    assert_eq!(before[1..], after[1..]);
    Ok(())
}

#[test]
fn a_parameter_is_always_a_leaf() -> Result<()> {
    let (mut model, mut optimizer) = (Linear::new(2, 2)?, Sgd::new(0.1));
    // The result of an operation comes without its graph.
    let first = model.weight.clone();
    model.weight = Parameter::new(model.weight.mul(2.0)?)?;
    assert!(model.weight.is_leaf() && model.weight.requires_grad());
    let before = model.weight.to_vec::<f32>()?;
    model.forward(&Tensor::ones([1, 2])?)?.sum(..)?.backward()?;
    optimizer.step(&mut model)?;
    assert!(first.grad().is_none(), "the graph ends at the parameter");
    let after = model.weight.to_vec::<f32>()?;
    assert!(before.iter().zip(&after).all(|(b, a)| (a - (b - 0.1)).abs() < 1e-6), "{before:?} and {after:?}");
    model.load_state_dict(&Linear::new(2, 2)?.state_dict())?;
    // Nor does an update make it one, or give it another form.
    let factor = Tensor::ones([2, 2])?.requires_grad_(true)?;
    model.weight.update(|w| {
        *w = w.mul(&factor)?;
        Ok(())
    })?;
    assert!(model.weight.is_leaf() && model.weight.requires_grad());
    let recorded = model.weight.update(|w| {
        *w = cotangent::autograd::enable_grad(|| w.mul(&factor))?;
        Ok(())
    });
    assert_eq!(
        message(recorded),
        "update: the new value must be f32 of shape [2, 2] on cpu, got the result of mul with its graph: call detach() first"
    );
    assert!(model.weight.is_leaf() && model.weight.requires_grad());
    let wide = model.weight.update(|w| {
        *w = Tensor::zeros([3, 3])?;
        Ok(())
    });
    assert_eq!(
        message(wide),
        "update: the new value must be f32 of shape [2, 2] on cpu, got f32 of shape [3, 3] on cpu"
    );
    Ok(())
}

/// The gradient 1 for everything, so that a step of plain SGD shows the learning rate.
fn rates(optimizer: &mut dyn Optimizer, model: &mut Linear) -> Result<[f32; 2]> {
    model.zero_grad();
    for parameter in model.parameters() {
        parameter.set_grad(&parameter.detach().ones_like()?)?;
    }
    let first = |model: &Linear| -> Result<[f32; 2]> {
        let bias = model.bias.as_ref().ok_or_else(absent)?;
        Ok([model.weight.index(0)?.index(0)?.item::<f32>()?, bias.index(0)?.item::<f32>()?])
    };
    let before = first(model)?;
    optimizer.step(model)?;
    let after = first(model)?;
    Ok([before[0] - after[0], before[1] - after[1]])
}

#[test]
fn groups_keep_their_ratio_and_follow_what_is_set_later() -> Result<()> {
    let near = |got: [f32; 2], want: [f32; 2]| got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6);
    let mut model = Linear::new(2, 2)?;
    let mut sgd = Sgd::new(0.1).group(|name| name.ends_with("bias"), |options| options.lr(0.2));
    assert!(near(rates(&mut sgd, &mut model)?, [0.1, 0.2]));
    // A schedule that begins or ends at 0.
    sgd.set_lr(0.0);
    assert!(near(rates(&mut sgd, &mut model)?, [0.0, 0.0]));
    sgd.set_lr(0.05);
    assert!(near(rates(&mut sgd, &mut model)?, [0.05, 0.1]));
    sgd.set_lr(0.0);
    let saved = sgd.state_dict()?;
    let mut again = Sgd::new(0.1).group(|name| name.ends_with("bias"), |options| options.lr(0.2));
    again.load_state_dict(&saved)?;
    again.set_lr(0.3);
    assert!(near(rates(&mut again, &mut model)?, [0.3, 0.6]));
    // A setting given after the group holds for it, too, unless the group has its own.
    let before = model.bias.as_ref().ok_or_else(absent)?.index(0)?.item::<f32>()?;
    let mut decaying = Sgd::new(0.1).group(|name| name.ends_with("bias"), |options| options.lr(0.2)).weight_decay(0.5);
    let step = rates(&mut decaying, &mut model)?;
    assert!((step[1] - 0.2 * (1.0 + 0.5 * before)).abs() < 1e-6, "{step:?}");
    let before = model.bias.as_ref().ok_or_else(absent)?.index(0)?.item::<f32>()?;
    let mut exempt = Sgd::new(0.1).no_decay(|name| name.ends_with("bias")).weight_decay(0.5);
    assert!((rates(&mut exempt, &mut model)?[1] - 0.1).abs() < 1e-6, "{before}");
    Ok(())
}

fn absent() -> Error {
    Error::new(ErrorKind::Value, "test", "there is no such parameter")
}

#[test]
fn half_precision_parameters_are_updated_through_f32() -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let start = Generator::seed(2).randn([100])?.to_dtype(dtype)?;
        let mut half = Bag { params: vec![Parameter::new(start.clone())?] };
        let mut wide = Bag { params: vec![Parameter::new(start.to_dtype(DType::F32)?)?] };
        let grad = Generator::seed(3).randn([100])?.to_dtype(dtype)?;
        half.params[0].set_grad(&grad)?;
        wide.params[0].set_grad(&grad.to_dtype(DType::F32)?)?;
        AdamW::new(0.1).step(&mut half)?;
        AdamW::new(0.1).step(&mut wide)?;
        assert_eq!(half.params[0].dtype(), dtype);
        assert!(half.params[0].equal(&wide.params[0].detach().to_dtype(dtype)?)?, "the f32 result, rounded once");
    }
    Ok(())
}

#[test]
fn strided_parameters_and_gradients_are_updated_rightly() -> Result<()> {
    let values = Generator::seed(4).randn([5, 7])?;
    let mut model = Bag { params: vec![Parameter::new(values.t()?)?] };
    let grad = tensor!([[2.0], [1.0], [0.0], [-1.0], [0.5], [3.0], [4.0]])?.expand([7, 5])?;
    model.params[0].set_grad(&grad)?;
    Sgd::new(0.5).step(&mut model)?;
    let expected = values.t()?.sub(grad.mul(0.5)?)?;
    assert!(model.params[0].equal(&expected)?);
    Ok(())
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads_or_on_the_path() -> Result<()> {
    // Large enough for several pieces; the same numbers in small parameters take one thread.
    let n = 3 * 32_768 + 17;
    let (start, grad) = (Generator::seed(6).randn([n])?, Generator::seed(7).randn([n])?);
    let mut whole = Bag { params: vec![Parameter::new(start.clone())?] };
    let pieces = start.split(1000, 0)?.into_iter().map(|p| Parameter::new(p.contiguous()?)).collect::<Result<_>>()?;
    let mut parts = Bag { params: pieces };
    whole.params[0].set_grad(&grad)?;
    for (param, grad) in both(parts.params.iter(), grad.split(1000, 0)?) {
        param.set_grad(&grad)?;
    }
    let (mut one, mut many) = (AdamW::new(0.1), AdamW::new(0.1));
    for _ in 0..3 {
        one.step(&mut whole)?;
        many.step(&mut parts)?;
    }
    let joined: Vec<u32> = bits(&parts)?.concat();
    assert_eq!(bits(&whole)?[0], joined);
    Ok(())
}

#[test]
fn parameters_of_all_sizes_are_updated_together_the_same_on_any_number_of_threads() -> Result<()> {
    let sizes = [3, 70_000, 1, 1000, 0, 33_000, 17];
    let trained = |kind: usize| -> Result<Vec<Vec<u32>>> {
        let mut optimizer = all_kinds().into_iter().nth(kind).ok_or_else(absent)?;
        let mut params = Vec::new();
        for (at, n) in sizes.into_iter().enumerate() {
            let param = Parameter::new(Generator::seed(at as u64).randn([n])?)?;
            param.set_grad(&Generator::seed(at as u64 + 50).randn([n])?)?;
            params.push(param);
        }
        // One in double and one in half precision, which are computed apart, and one without a gradient.
        for (dtype, graded) in [(DType::F64, true), (DType::BF16, true), (DType::F32, false)] {
            let param = Parameter::new(Generator::seed(8).randn([9000])?.to_dtype(dtype)?)?;
            if graded {
                param.set_grad(&Generator::seed(9).randn([9000])?.to_dtype(dtype)?)?;
            }
            params.push(param);
        }
        let mut model = Bag { params };
        for _ in 0..3 {
            optimizer.step(&mut model)?;
        }
        let values = model.params.iter().map(|p| p.to_dtype(DType::F32)?.to_vec::<f32>());
        Ok(values.collect::<Result<Vec<_>>>()?.into_iter().map(|v| v.into_iter().map(f32::to_bits).collect()).collect())
    };
    let on_threads = |threads: usize, kind: usize| -> Result<Vec<Vec<u32>>> {
        cotangent::settings::with_num_threads(threads, || trained(kind))?
    };
    for kind in 0..all_kinds().len() {
        let one = on_threads(1, kind)?;
        for (at, n) in sizes.into_iter().enumerate().filter(|&(_, n)| n > 0) {
            let before: Vec<u32> =
                Generator::seed(at as u64).randn([n])?.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect();
            assert!(before.iter().zip(&one[at]).all(|(a, b)| a != b), "parameter {at} has changed everywhere");
        }
        for threads in [2, 5] {
            assert_eq!(on_threads(threads, kind)?, one, "{threads} threads");
        }
    }
    Ok(())
}

/// Runs a test that reads process-wide statistics in a separate process, since other tests run concurrently.
fn alone(name: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
    const ALONE: &str = "COTANGENT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some_and(|value| value == name) {
        return test();
    }
    let io = |source: std::io::Error| Error::new(ErrorKind::Io, "test", source.to_string());
    let output = std::process::Command::new(std::env::current_exe().map_err(io)?)
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(ALONE, name)
        .output()
        .map_err(io)?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn parameters_are_updated_where_they_lie() -> Result<()> {
    alone("optim::parameters_are_updated_where_they_lie", || {
        const BYTES: usize = 4 << 20;
        let mut model = Linear::new_with(1024, 1024, LinearOptions::new().bias(false))?;
        let x = Tensor::ones([1, 1024])?;
        let mut optimizer = Sgd::new(0.1);
        let mut step = |model: &mut Linear, keep: Option<&mut Vec<Tensor>>| -> Result<usize> {
            let loss = model.forward(&x)?.square()?.mean(..)?;
            model.zero_grad();
            loss.backward()?;
            keep.into_iter().for_each(|kept| kept.push(model.weight.detach()));
            memory::reset_peak(Device::Cpu)?;
            let before = memory::stats(Device::Cpu)?;
            optimizer.step(model)?;
            Ok(memory::stats(Device::Cpu)?.peak() - before.current())
        };
        for _ in 0..3 {
            let taken = step(&mut model, None)?;
            assert!(taken < BYTES / 8, "{taken} bytes were taken for an update in place");
        }
        // The measurement works: shared memory is copied.
        let mut kept = Vec::new();
        let taken = step(&mut model, Some(&mut kept))?;
        assert!(taken >= BYTES, "only {taken} bytes were taken");
        assert!(!kept[0].equal(&model.weight.detach())?, "and the holder keeps the old values");
        Ok(())
    })
}

#[test]
fn a_thousand_steps_take_nothing_from_the_system() -> Result<()> {
    alone("optim::a_thousand_steps_take_nothing_from_the_system", || {
        for mut optimizer in all_kinds() {
            let (mut model, x, y) = small()?;
            train(&mut model, &mut *optimizer, &x, &y, 5)?;
            let warm = memory::stats(Device::Cpu)?;
            train(&mut model, &mut *optimizer, &x, &y, 1000)?;
            let after = memory::stats(Device::Cpu)?;
            assert_eq!((after.system_allocations(), after.current()), (warm.system_allocations(), warm.current()));
        }
        Ok(())
    })
}
