//! Every optimiser, step by step as PyTorch's, with its options, groups, half precision, and saved and loaded in between.

use crate::checks::both;
use crate::json;

use cotangent::io::safetensors;
use cotangent::nn::{Forward, Linear, Module, Parameter};
use cotangent::optim::{
    Adadelta, Adafactor, AdafactorOptions, Adagrad, Adam, AdamW, Adamax, AdjustLr, Lamb, Lbfgs, LineSearch, Lion, Muon,
    NAdam, Optimizer, RAdam, RMSprop, Rprop, Sgd,
};
use cotangent::{DType, Generator, Result, Tensor, optim};
use json::{float, list, parse, text};
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Module)]
struct Part {
    weight: Parameter,
    bias: Option<Parameter>,
}

#[derive(Module)]
struct Model {
    a: Part,
    b: Part,
    c: Option<Part>,
}

fn tensor(values: &Value, shape: &Value) -> Result<Tensor> {
    let shape: Vec<usize> = list(shape).iter().map(|size| float(size) as usize).collect();
    Tensor::from_vec(list(values).iter().map(float).collect::<Vec<f64>>(), shape)
}

impl Model {
    fn of(case: &Value, dtype: DType) -> Result<Model> {
        let one = |name: &str| -> Result<Option<Parameter>> {
            let values = &case["initial"][name];
            if values.is_null() {
                return Ok(None);
            }
            Ok(Some(Parameter::new(tensor(values, &case["shapes"][name])?.to_dtype(dtype)?)?))
        };
        let part = |name: &str| -> Result<Option<Part>> {
            let Some(weight) = one(&format!("{name}.weight"))? else { return Ok(None) };
            Ok(Some(Part { weight, bias: one(&format!("{name}.bias"))? }))
        };
        let absent = || cotangent::Error::new(cotangent::ErrorKind::Value, "test", "there is no such part");
        Ok(Model { a: part("a")?.ok_or_else(absent)?, b: part("b")?.ok_or_else(absent)?, c: part("c")? })
    }

    fn set_grads(&self, case: &Value, step: &Value) -> Result<()> {
        self.zero_grad();
        for (name, parameter) in self.named_parameters() {
            let grad = &step["grads"][&name];
            if !grad.is_null() {
                parameter.set_grad(&tensor(grad, &case["shapes"][&name])?.to_dtype(parameter.dtype())?)?;
            }
        }
        Ok(())
    }
}

/// Sets those options that the case has.
macro_rules! built {
    ($case:ident, $name:ident $(, $option:ident)* $(; flags $($flag:ident),*)? $(; then |$own:ident| $more:expr)?) => {{
        let options = &$case["options"];
        let optimizer = $name::new(float(&options["lr"]));
        $(let optimizer = match &options[stringify!($option)] {
            Value::Null => optimizer,
            value => optimizer.$option(float(value)),
        };)*
        $($(let optimizer = optimizer.$flag(match &options[stringify!($flag)] {
            Value::Null => continue_default(stringify!($name), stringify!($flag)),
            value => value == true,
        });)*)?
        $(let $own = optimizer; let optimizer = $more;)?
        optimizer
    }};
}

/// The flags that are on unless they are set.
fn continue_default(name: &str, flag: &str) -> bool {
    matches!((name, flag), ("Muon", "nesterov") | ("Lamb", "bias_correction"))
}

macro_rules! grouped {
    ($case:ident, $optimizer:expr) => {{
        let (group, optimizer) = ($case["group"].clone(), $optimizer);
        if group["lr"].is_null() {
            Box::new(optimizer) as Box<dyn Optimizer>
        } else {
            let (lr, decay) = (float(&group["lr"]), float(&group["weight_decay"]));
            Box::new(optimizer.group(|name| name.starts_with("b."), move |own| own.lr(lr).weight_decay(decay)))
        }
    }};
}

fn optimizer(case: &Value) -> Box<dyn Optimizer> {
    let options = &case["options"];
    let two = |name: &str| (!options[name].is_null()).then(|| (&options[name][0], &options[name][1]));
    macro_rules! betas {
        ($own:ident) => {
            match two("betas") {
                Some((a, b)) => $own.betas(float(a), float(b)),
                None => $own,
            }
        };
    }
    match text(&case["kind"]) {
        "SGD" => grouped!(case, built!(case, Sgd, momentum, dampening, weight_decay; flags nesterov, maximize)),
        "Adam" => grouped!(
            case,
            built!(case, Adam, eps, weight_decay; flags amsgrad, maximize, decoupled_weight_decay; then |o| betas!(o))
        ),
        "AdamW" => grouped!(case, built!(case, AdamW, eps, weight_decay; flags amsgrad, maximize; then |o| betas!(o))),
        "Adamax" => grouped!(case, built!(case, Adamax, eps, weight_decay; flags maximize; then |o| betas!(o))),
        "NAdam" => grouped!(
            case,
            built!(case, NAdam, eps, weight_decay, momentum_decay; flags maximize, decoupled_weight_decay; then |o| betas!(o))
        ),
        "RAdam" => grouped!(
            case,
            built!(case, RAdam, eps, weight_decay; flags maximize, decoupled_weight_decay; then |o| betas!(o))
        ),
        "RMSprop" => {
            grouped!(case, built!(case, RMSprop, alpha, eps, weight_decay, momentum; flags centered, maximize))
        }
        "Adagrad" => grouped!(
            case,
            built!(case, Adagrad, lr_decay, weight_decay, initial_accumulator_value, eps; flags maximize)
        ),
        "Adadelta" => grouped!(case, built!(case, Adadelta, rho, eps, weight_decay; flags maximize)),
        "Lion" => grouped!(case, built!(case, Lion, weight_decay; flags maximize; then |o| betas!(o))),
        "LAMB" => grouped!(
            case,
            built!(case, Lamb, eps, weight_decay; flags bias_correction, trust_clip, maximize; then |o| betas!(o))
        ),
        "Adafactor" => grouped!(case, {
            let mut own = AdafactorOptions::new().lr(float(&options["lr"]));
            if let Some((eps1, eps2)) = two("eps") {
                own = own.eps1((!eps1.is_null()).then(|| float(eps1))).eps2(float(eps2));
            }
            let optimizer = Adafactor::new_with(own);
            let optimizer = if options["d"].is_null() { optimizer } else { optimizer.d(float(&options["d"])) };
            let decay = &options["beta2_decay"];
            let optimizer = if decay.is_null() { optimizer } else { optimizer.beta2_decay(float(decay)) };
            let decay = &options["weight_decay"];
            let optimizer = if decay.is_null() { optimizer } else { optimizer.weight_decay(float(decay)) };
            optimizer.maximize(options["maximize"] == true)
        }),
        "Muon" => grouped!(case, {
            let optimizer = built!(case, Muon, momentum, weight_decay, eps; flags nesterov);
            let optimizer = match &options["adjust_lr_fn"] {
                Value::Null => optimizer,
                word if word == "match_rms_adamw" => optimizer.adjust_lr(AdjustLr::MatchRmsAdamW),
                _ => optimizer.adjust_lr(AdjustLr::SpectralUnclamped),
            };
            let steps = &options["ns_steps"];
            let optimizer = if steps.is_null() { optimizer } else { optimizer.ns_steps(float(steps) as usize) };
            match &options["ns_coefficients"] {
                Value::Null => optimizer,
                all => optimizer.ns_coefficients(list(all).iter().map(float).collect()),
            }
        }),
        "Rprop" => {
            let optimizer = built!(case, Rprop; flags maximize);
            let optimizer = match two("etas") {
                Some((a, b)) => optimizer.etas(float(a), float(b)),
                None => optimizer,
            };
            let optimizer = match two("step_sizes") {
                Some((a, b)) => optimizer.step_sizes(float(a), float(b)),
                None => optimizer,
            };
            match &case["group"]["lr"] {
                Value::Null => Box::new(optimizer),
                lr => {
                    let lr = float(lr);
                    Box::new(optimizer.group(|name| name.starts_with("b."), move |own| own.lr(lr)))
                }
            }
        }
        other => unreachable!("{other}"),
    }
}

fn cases() -> Value {
    parse(include_str!("../fixtures/optim/steps.json"))
}

#[test]
fn every_step_is_the_one_that_pytorch_makes_saved_and_loaded_in_between() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("cotangent-optim-steps-{}", std::process::id()));
    let mut kinds = BTreeSet::new();
    let fixtures = cases();
    for case in list(&fixtures) {
        kinds.insert(text(&case["kind"]).to_string());
        // PyTorch keeps the product of NAdam's momenta in f32.
        let tolerance = if case["kind"] == "NAdam" { 1e-6 } else { 1e-9 };
        let (mut model, mut own) = (Model::of(case, DType::F64)?, optimizer(case));
        for (at, step) in list(&case["steps"]).iter().enumerate() {
            if at == 4 {
                safetensors::save(&path, &own.state_dict()?)?;
                own = optimizer(case);
                own.load_state_dict(&safetensors::load(&path)?)?;
            }
            model.set_grads(case, step)?;
            own.step(&mut model)?;
            for (name, parameter) in model.named_parameters() {
                let want = list(&step["params"][&name]).iter().map(float);
                for (got, want) in both(parameter.to_vec::<f64>()?, want) {
                    let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
                    assert!(
                        near,
                        "{} {} {} after step {}: {got}, not {want}",
                        case["kind"],
                        case["options"],
                        name,
                        at + 1
                    );
                }
            }
        }
    }
    std::fs::remove_file(path)?;
    // It evaluates the loss, and has separate fixtures.
    assert!(!list(&parse(include_str!("../fixtures/optim/lbfgs.json"))).is_empty());
    let tested: BTreeSet<String> = kinds.iter().map(|kind| kind.to_lowercase()).chain(["lbfgs".to_string()]).collect();
    let listed: BTreeSet<String> = optim::list().iter().map(|entry| entry.name.to_lowercase()).collect();
    assert_eq!(tested, listed, "the fixtures have every optimiser of the list");
    Ok(())
}

#[test]
fn parameters_of_half_precision_follow_those_of_f32() -> Result<()> {
    let fixtures = cases();
    for case in list(&fixtures) {
        for dtype in [DType::BF16, DType::F16] {
            let (mut half, mut wide) = (Model::of(case, dtype)?, Model::of(case, dtype)?);
            wide.to_dtype(DType::F32)?;
            let (mut of_half, mut of_wide) = (optimizer(case), optimizer(case));
            for step in list(&case["steps"]) {
                half.set_grads(case, step)?;
                for ((_, own), (_, of_half)) in both(wide.named_parameters(), half.named_parameters()) {
                    own.zero_grad();
                    if let Some(grad) = of_half.grad() {
                        own.set_grad(&grad.to_dtype(DType::F32)?)?;
                    }
                }
                of_half.step(&mut half)?;
                of_wide.step(&mut wide)?;
            }
            for ((name, half), (_, wide)) in both(half.named_parameters(), wide.named_parameters()) {
                assert_eq!(half.dtype(), dtype);
                let rounded = wide.detach().to_dtype(dtype)?;
                assert!(
                    half.detach().allclose_with(&rounded, (1e-2, 1e-3))?,
                    "{} {} {name}: {} and {rounded}",
                    case["kind"],
                    case["options"],
                    half.detach()
                );
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_chosen_is_still_chosen_after_loading() -> Result<()> {
    let mut model = Linear::new(2, 2)?;
    let mut sgd = Sgd::new(0.1).only(|name| name == "weight");
    sgd.load_state_dict(&Sgd::new(0.5).state_dict()?)?;
    model.forward(&Tensor::ones([1, 2])?)?.sum(..)?.backward()?;
    let before = model.state_dict();
    sgd.step(&mut model)?;
    let after = model.state_dict();
    let same = |name: &str| -> Result<bool> {
        match (before.get(name), after.get(name)) {
            (Some(a), Some(b)) => a.equal(b),
            _ => Ok(false),
        }
    };
    assert!(same("bias")? && !same("weight")?);
    Ok(())
}

#[test]
fn a_loaded_setting_out_of_its_domain_is_refused() -> Result<()> {
    let mut dict = NAdam::new(0.1).state_dict()?;
    dict.insert("beta1", Tensor::full_with((), 2.0, DType::F64)?);
    let mut nadam = NAdam::new(0.3);
    let refused = nadam.load_state_dict(&dict).map_or_else(|error| error.to_string(), |()| String::new());
    assert_eq!(refused, "load_state_dict: NAdam: beta1 and beta2 must be in [0, 1), got 2");
    assert_eq!(nadam.lr(), 0.3);
    Ok(())
}

/// Rosenbrock's valley.
#[derive(Module)]
struct Valley {
    x: Parameter,
}

impl Valley {
    fn loss(&self, sign: f64) -> Result<Tensor> {
        let n = self.x.numel();
        let (head, tail) = (self.x.narrow(0, 0, n - 1)?, self.x.narrow(0, 1, n - 1)?);
        let steep = tail.sub(&head.square()?)?.square()?.mul(100.0)?;
        steep.add(&head.neg()?.add(1.0)?.square()?)?.sum(..)?.mul(sign)
    }
}

fn lbfgs(options: &Value) -> Lbfgs {
    let mut own = Lbfgs::new(float(&options["lr"])).maximize(options["maximize"] == true);
    if options["line_search_fn"] == "strong_wolfe" {
        own = own.line_search_fn(LineSearch::StrongWolfe);
    }
    for (name, set) in [
        ("max_iter", Lbfgs::max_iter as fn(Lbfgs, usize) -> Lbfgs),
        ("max_eval", Lbfgs::max_eval),
        ("history_size", Lbfgs::history_size),
    ] {
        if !options[name].is_null() {
            own = set(own, float(&options[name]) as usize);
        }
    }
    own
}

#[test]
fn lbfgs_goes_pytorchs_way_saved_and_loaded_in_between() -> Result<()> {
    let fixtures = parse(include_str!("../fixtures/optim/lbfgs.json"));
    for case in list(&fixtures) {
        let start: Vec<f64> = list(&case["initial"]).iter().map(float).collect();
        let mut model = Valley { x: Parameter::new(Tensor::from_vec(start, 4)?)? };
        let mut own = lbfgs(&case["options"]);
        for (at, step) in list(&case["steps"]).iter().enumerate() {
            let loss = own.step_with(&mut model, |model| {
                let loss = model.loss(float(&case["sign"]))?;
                loss.backward()?;
                Ok(loss)
            })?;
            let want = list(&step["x"]).iter().map(float).chain([float(&step["loss"])]);
            for (got, want) in both(model.x.to_vec::<f64>()?.into_iter().chain([loss.item()?]), want) {
                let near = (got - want).abs() <= 1e-6 * want.abs().max(1.0);
                assert!(near, "{} after step {}: {got}, not {want}", case["options"], at + 1);
            }
            let mut again = lbfgs(&case["options"]);
            let mut bad = own.state_dict()?;
            if bad.get("old_dirs").is_some() {
                bad.insert("old_dirs", Tensor::zeros_with([1, 9], DType::F64)?);
                let refused = again.load_state_dict(&bad).map_or_else(|error| error.to_string(), |()| String::new());
                assert!(refused.contains("got f64 of shape [1, 9]"), "{refused}");
            }
            again.load_state_dict(&own.state_dict()?)?;
            own = again;
        }
    }
    Ok(())
}

#[test]
fn lbfgs_that_fails_leaves_the_parameters_and_says_how_it_is_called() -> Result<()> {
    let mut model = Linear::new(2, 1)?;
    let before = model.state_dict();
    let mut own = Lbfgs::new(1.0).line_search_fn(LineSearch::StrongWolfe);
    let refused = own.step(&mut model).map_or_else(|error| error.to_string(), |()| String::new());
    assert!(refused.starts_with("step: Lbfgs: a step evaluates the loss several times: call step_with"), "{refused}");
    let (x, mut calls) = (Generator::seed(1).randn([5, 2])?, 0);
    let failed = own.step_with(&mut model, |model| {
        calls += 1;
        if calls == 3 {
            return model.forward(&Tensor::ones([3, 3])?);
        }
        let loss = model.forward(&x)?.sub(7.0)?.square()?.mean(..)?;
        loss.backward()?;
        Ok(loss)
    });
    assert!(failed.is_err() && calls == 3);
    for (name, tensor) in model.state_dict().iter() {
        assert!(before.get(name).is_some_and(|old| old.equal(tensor).unwrap_or(false)), "{name} has changed");
    }
    assert!(own.state_dict()?.get("d").is_none());
    Ok(())
}
