//! Schedules, averaged models and the gradient scaler, against PyTorch's.

use crate::checks::both;
use crate::json;

use cotangent::io::StateDict;
use cotangent::nn::{BatchNorm1d, Forward, Linear, Module, Parameter, Sequential};
use cotangent::optim::{
    AdamW, AnnealStrategy, AveragedModel, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR,
    CyclicMode, ExponentialLR, GradScaler, GradScalerOptions, Lamb, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR,
    OneCycleLR, Optimizer, PerGroup, PlateauMode, PolynomialLR, ReduceLROnPlateau, Schedule, Scheduler, Sgd, StepLR,
    SwaLR, ThresholdMode, clip_grad_norm, update_bn,
};
use cotangent::{DType, Generator, Result, Tensor, tensor};
use json::{float, list, parse, text};
use serde_json::Value;

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

fn per_group(value: &Value) -> PerGroup {
    value
        .as_array()
        .map_or_else(|| PerGroup::from(float(value)), |all| all.iter().map(float).collect::<Vec<_>>().into())
}

/// Sets those options that the case has.
macro_rules! set {
    ($schedule:expr, $options:ident $(; floats $($float:ident),*)? $(; counts $($count:ident = $key:literal),*)? $(; groups $($group:ident),*)? $(; flags $($flag:ident),*)?) => {{
        let schedule = $schedule;
        $($(let schedule = if $options[stringify!($float)].is_null() { schedule } else { schedule.$float(float(&$options[stringify!($float)])) };)*)?
        $($(let schedule = if $options[$key].is_null() { schedule } else { schedule.$count(float(&$options[$key]) as u64) };)*)?
        $($(let schedule = if $options[stringify!($group)].is_null() { schedule } else { schedule.$group(per_group(&$options[stringify!($group)])) };)*)?
        $($(let schedule = if $options[stringify!($flag)].is_null() { schedule } else { schedule.$flag($options[stringify!($flag)] == true) };)*)?
        schedule
    }};
}

fn schedule(case: &Value) -> Box<dyn Schedule> {
    let options = &case["options"];
    let count = |name: &str| float(&options[name]) as u64;
    let strategy = if options["anneal_strategy"] == "linear" { AnnealStrategy::Linear } else { AnnealStrategy::Cos };
    match text(&case["kind"]) {
        "ConstantLR" => Box::new(set!(ConstantLR::new(), options; floats factor; counts total_iters = "total_iters")),
        "LinearLR" => Box::new(
            set!(LinearLR::new(), options; floats start_factor, end_factor; counts total_iters = "total_iters"),
        ),
        "StepLR" => Box::new(set!(StepLR::new(count("step_size")), options; floats gamma)),
        "MultiStepLR" => {
            let milestones: Vec<u64> = list(&options["milestones"]).iter().map(|at| float(at) as u64).collect();
            Box::new(set!(MultiStepLR::new(milestones), options; floats gamma))
        }
        "ExponentialLR" => Box::new(ExponentialLR::new(float(&options["gamma"]))),
        "PolynomialLR" => {
            Box::new(set!(PolynomialLR::new(), options; floats power; counts total_iters = "total_iters"))
        }
        "CosineAnnealingLR" => Box::new(set!(CosineAnnealingLR::new(count("T_max")), options; floats eta_min)),
        "CosineAnnealingWarmRestarts" => Box::new(
            set!(CosineAnnealingWarmRestarts::new(count("T_0")), options; floats eta_min; counts t_mult = "T_mult"),
        ),
        "OneCycleLR" => Box::new(
            set!(OneCycleLR::new(per_group(&options["max_lr"]), count("total_steps")), options;
                floats pct_start, div_factor, final_div_factor; groups base_momentum, max_momentum;
                flags cycle_momentum, three_phase)
            .anneal_strategy(strategy),
        ),
        "CyclicLR" => {
            let own = set!(CyclicLR::new(per_group(&options["base_lr"]), per_group(&options["max_lr"])), options;
                floats gamma; counts step_size_up = "step_size_up"; groups base_momentum, max_momentum; flags cycle_momentum);
            let own =
                if options["step_size_down"].is_null() { own } else { own.step_size_down(count("step_size_down")) };
            Box::new(match &options["mode"] {
                mode if mode == "triangular2" => own.mode(CyclicMode::Triangular2),
                mode if mode == "exp_range" => own.mode(CyclicMode::ExpRange),
                _ => own,
            })
        }
        "SWALR" => Box::new(
            set!(SwaLR::new(per_group(&options["swa_lr"])), options; counts anneal_epochs = "anneal_epochs")
                .anneal_strategy(strategy),
        ),
        "LambdaLR" => Box::new(LambdaLR::new(|step| 1.0 / (1.0 + step as f64))),
        "MultiplicativeLR" => Box::new(MultiplicativeLR::new(|step| 1.0 - 0.01 * step as f64)),
        "warmup_cosine" => Box::new(LinearLR::warmup(4).then(4, CosineAnnealingLR::new(20))),
        "three_in_a_row" => Box::new(
            ConstantLR::new()
                .factor(0.1)
                .total_iters(5)
                .then(3, ExponentialLR::new(0.8))
                .then(10, StepLR::new(2).gamma(0.5)),
        ),
        "chained" => Box::new(ConstantLR::new().factor(0.1).total_iters(5).chain(ExponentialLR::new(0.9))),
        "chained_cosine" => {
            Box::new(LinearLR::new().start_factor(0.5).end_factor(1.0).total_iters(6).chain(CosineAnnealingLR::new(40)))
        }
        other => unreachable!("{other}"),
    }
}

fn two_groups() -> Sgd {
    Sgd::new(0.1).momentum(0.9).group(|name| name.starts_with("b."), |own| own.lr(0.3))
}

fn number(dict: &StateDict, name: &str) -> Result<f64> {
    dict.get(name).map_or(Ok(f64::NAN), |x| x.item())
}

#[test]
fn rates_and_momenta_are_pytorchs_saved_and_loaded_in_between() -> Result<()> {
    let fixtures = parse(include_str!("../fixtures/optim/schedules.json"));
    assert!(list(&fixtures).len() > 25);
    for case in list(&fixtures) {
        let mut optimizer = two_groups();
        let mut scheduler = Scheduler::new(&mut optimizer, schedule(case))?;
        for (at, row) in list(&case["steps"]).iter().enumerate() {
            let dict = optimizer.state_dict()?;
            let momenta = [number(&dict, "momentum")?, number(&dict, "group.0.momentum")?];
            let got = optimizer.lrs().into_iter().chain(momenta);
            for (got, want) in both(got, list(&row[0]).iter().chain(list(&row[1])).map(float)) {
                let near = (got - want).abs() <= 1e-10 * want.abs().max(1.0);
                assert!(near, "{} {} in step {at}: {got}, not {want}", case["kind"], case["options"]);
            }
            if at == 10 {
                let (of_scheduler, of_optimizer) = (scheduler.state_dict()?, optimizer.state_dict()?);
                optimizer = two_groups();
                scheduler = Scheduler::new(&mut optimizer, schedule(case))?;
                scheduler.load_state_dict(&of_scheduler)?;
                optimizer.load_state_dict(&of_optimizer)?;
            }
            scheduler.step(&mut optimizer)?;
        }
    }
    Ok(())
}

#[test]
fn schedules_refuse_what_does_not_fit_and_change_nothing() -> Result<()> {
    let mut sgd = two_groups();
    let refused = [
        (message(Scheduler::new(&mut sgd, StepLR::new(0))), "StepLR: step_size must be ≥ 1, got 0"),
        (message(Scheduler::new(&mut sgd, ConstantLR::new().factor(1.5))), "factor must be in [0, 1], got 1.5"),
        (message(Scheduler::new(&mut sgd, CosineAnnealingLR::new(0))), "t_max must be ≥ 1, got 0"),
        (
            message(Scheduler::new(&mut sgd, OneCycleLR::new([0.1, 0.2, 0.3], 10))),
            "max_lr must have 1 value, or one for each of 2 groups, got 3 values",
        ),
        (
            message(Scheduler::new(&mut sgd, OneCycleLR::new(0.1, 10).pct_start(2.0))),
            "pct_start must be in [0, 1], got 2",
        ),
        (
            message(Scheduler::new(&mut Sgd::new(0.1).weight_decay(0.0), CyclicLR::new(0.1, f64::NAN))),
            "max_lr must be ≥ 0, got NaN",
        ),
        (
            message(Scheduler::new(&mut Lamb::new(0.1), StepLR::new(3).then(5, StepLR::new(0)))),
            "step_size must be ≥ 1, got 0",
        ),
        (
            message(Scheduler::new(&mut cotangent::optim::Adagrad::new(0.1), OneCycleLR::new(0.1, 10))),
            "Adagrad has neither momentum nor beta1",
        ),
    ];
    for (refused, part) in refused {
        assert!(refused.starts_with("Scheduler: ") && refused.contains(part), "{refused}");
    }
    assert_eq!(sgd.lrs(), [0.1, 0.3]);

    let mut scheduler = Scheduler::new(&mut sgd, OneCycleLR::new(0.1, 3))?;
    scheduler.step(&mut sgd)?;
    scheduler.step(&mut sgd)?;
    let before = sgd.lrs();
    // After each of three batches.
    scheduler.step(&mut sgd)?;
    assert!(message(scheduler.step(&mut sgd)).contains("step must be ≤ total_steps 3, got 4"));
    assert_eq!((sgd.lrs(), scheduler.steps()), (before, 3));
    let other = message(scheduler.step(&mut Sgd::new(0.1)));
    assert!(other.contains("the optimiser must have 2 groups, as when the scheduler was made, got 1"), "{other}");

    let mut bad = scheduler.state_dict()?;
    bad.insert("base_lrs", tensor!([0.1], DType::F64)?);
    bad.insert("more", tensor!(1)?);
    bad.insert("step", tensor!(-1)?);
    let refused = message(scheduler.load_state_dict(&bad));
    for part in
        ["base_lrs must be f64 of shape [2], got f64 of shape [1]", "unexpected more", "step must be ≥ 0, got -1"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(scheduler.steps(), 3);
    Ok(())
}

#[test]
fn rates_fall_on_plateaus_where_pytorchs_do() -> Result<()> {
    let fixtures = parse(include_str!("../fixtures/optim/plateau.json"));
    for case in list(&fixtures) {
        let options = &case["options"];
        let make = || {
            let own = set!(ReduceLROnPlateau::new(), options; floats factor, threshold, eps;
                counts patience = "patience", cooldown = "cooldown"; groups min_lr);
            let own = if options["mode"] == "max" { own.mode(PlateauMode::Max) } else { own };
            if options["threshold_mode"] == "abs" { own.threshold_mode(ThresholdMode::Abs) } else { own }
        };
        let (mut optimizer, mut scheduler) = (two_groups(), make());
        for (at, (metric, row)) in both(list(&case["metrics"]).iter(), list(&case["steps"])).enumerate() {
            scheduler.step(&mut optimizer, float(metric))?;
            let mut resumed = make();
            resumed.load_state_dict(&scheduler.state_dict()?)?;
            scheduler = resumed;
            for (got, want) in both(optimizer.lrs(), list(row).iter().map(float)) {
                assert!((got - want).abs() < 1e-12, "{options} after metric {at}: {got}, not {want}");
            }
        }
    }
    assert!(
        message(ReduceLROnPlateau::new().factor(1.0).step(&mut Sgd::new(0.1), 1.0))
            .contains("factor must be in [0, 1), got 1")
    );
    Ok(())
}

fn vector(value: &Value) -> Result<Tensor> {
    Tensor::from_vec(list(value).iter().map(float).collect::<Vec<f64>>(), list(value).len())
}

#[test]
fn averages_are_pytorchs_buffers_included() -> Result<()> {
    let fixtures = parse(include_str!("../fixtures/optim/averaged.json"));
    for case in list(&fixtures) {
        let mut model = BatchNorm1d::new(2)?;
        model.to_dtype(DType::F64)?;
        let made = |model: &BatchNorm1d| {
            if case["kind"] == "ema" { AveragedModel::ema(model, 0.9) } else { AveragedModel::swa(model) }
        };
        let mut averaged = made(&model)?.use_buffers(case["use_buffers"] == true);
        for (at, step) in list(&case["steps"]).iter().enumerate() {
            let x = at as f64;
            let mut dict = model.state_dict();
            dict.insert("weight", tensor!([x + 1.0, x * x - 2.0], DType::F64)?);
            dict.insert("bias", tensor!([0.5 * x, -x], DType::F64)?);
            dict.insert("running_mean", tensor!([3.0 * x, 1.0 / (x + 1.0)], DType::F64)?);
            model.load_state_dict(&dict)?;
            averaged.update(&model)?;
            let mut resumed = made(&model)?.use_buffers(case["use_buffers"] == true);
            resumed.load_state_dict(&averaged.state_dict()?)?;
            averaged = resumed;
            let state = averaged.module().state_dict();
            for name in ["weight", "bias", "running_mean"] {
                let got = state.get(name).map_or_else(|| tensor!([0.0]), |x| Ok(x.clone()))?;
                assert!(got.allclose(&vector(&step[name])?)?, "{case} {name} after {at}: {got}");
            }
        }
        assert_eq!(averaged.n_averaged(), 4);
    }
    Ok(())
}

#[test]
fn averages_of_half_precision_lose_nothing_of_small_changes() -> Result<()> {
    let mut model = Linear::new(2, 1)?;
    model.weight.update(|w| w.fill_(1.0))?;
    model.to_dtype(DType::BF16)?;
    let mut ema = AveragedModel::ema(&model, 0.999)?;
    ema.update(&model)?;
    model.weight.update(|w| w.fill_(2.0))?;
    for _ in 0..700 {
        ema.update(&model)?;
    }
    // 1 + (1 - 0.999^700): in bf16 alone each change would be rounded away.
    let got = ema.weight.to_dtype(DType::F32)?.to_vec::<f32>()?[0];
    assert!((got - 1.5036).abs() < 0.01, "{got}");
    let mut resumed = AveragedModel::ema(&model, 0.5)?;
    resumed.load_state_dict(&ema.state_dict()?)?;
    for _ in 0..100 {
        resumed.update(&model)?;
        ema.update(&model)?;
    }
    assert!(resumed.weight.equal(&ema.weight)?);
    let mut bad = ema.state_dict()?;
    bad.insert("wide.other", tensor!([1.0])?);
    bad.remove("n_averaged");
    let refused = message(ema.load_state_dict(&bad));
    assert!(refused.contains("unexpected wide.other") && refused.contains("missing n_averaged"), "{refused}");
    Ok(())
}

#[test]
fn statistics_of_batch_norms_are_recomputed() -> Result<()> {
    let mut model = Sequential::new().add(Linear::new(2, 3)?).add(BatchNorm1d::new(3)?);
    model.eval();
    let batches: Vec<Tensor> = (0..3).map(|seed| Generator::seed(seed).randn([8, 2])).collect::<Result<_>>()?;
    let before = model.state_dict();
    let failed = update_bn(&mut model, |model| {
        model.forward(&batches[0])?;
        model.forward(&Tensor::ones([1, 9])?).map(drop)
    });
    assert!(failed.is_err() && !model.is_training());
    for (name, tensor) in model.state_dict().iter() {
        assert!(before.get(name).is_some_and(|old| old.equal(tensor).unwrap_or(false)), "{name} has changed");
    }
    update_bn(&mut model, |model| batches.iter().try_for_each(|batch| model.forward(batch).map(drop)))?;
    assert!(!model.is_training());
    let dict = model.state_dict();
    let get = |name: &str| dict.get(name).map_or_else(|| tensor!([0.0]), |x| Ok(x.clone()));
    let (weight, bias) = (get("0.weight")?, get("0.bias")?);
    let outs = batches.iter().map(|x| x.linear(&weight, Some(&bias))).collect::<Result<Vec<_>>>()?;
    let means = outs.iter().map(|y| y.mean(0)).collect::<Result<Vec<_>>>()?;
    let vars = outs.iter().map(|y| y.var(0)).collect::<Result<Vec<_>>>()?;
    assert!(get("1.running_mean")?.allclose(&Tensor::stack(&means, 0)?.mean(0)?)?);
    assert!(get("1.running_var")?.allclose(&Tensor::stack(&vars, 0)?.mean(0)?)?);
    assert_eq!(get("1.num_batches_tracked")?.item::<i64>()?, 3);
    Ok(())
}

#[derive(Module)]
struct One {
    x: Parameter,
}

#[test]
fn the_scale_grows_and_falls_as_pytorchs_and_steps_are_left_out() -> Result<()> {
    let fixtures = parse(include_str!("../fixtures/optim/scaler.json"));
    let case = &list(&fixtures)[0];
    let options = GradScalerOptions::new().init_scale(8.0).growth_interval(3);
    let (mut model, mut optimizer) = (One { x: Parameter::new(Tensor::ones([1])?)? }, Sgd::new(0.1));
    let mut scaler = GradScaler::new_with(&options);
    for row in list(&case["steps"]) {
        model.zero_grad();
        let loss = model.x.mul(float(&row[0]))?.sum(..)?;
        scaler.scale(&loss)?.backward()?;
        let finite = float(&row[0]).is_finite();
        assert_eq!(scaler.step(&mut optimizer, &mut model)?, finite);
        scaler.update()?;
        assert_eq!(scaler.get_scale(), float(&row[1]), "{row}");
        assert!((model.x.item::<f64>()? - float(&row[2])).abs() < 1e-6, "{row}");
        let mut resumed = GradScaler::new();
        resumed.load_state_dict(&scaler.state_dict()?)?;
        scaler = resumed;
    }
    Ok(())
}

#[test]
fn a_scaler_works_with_clipping_groups_and_several_optimisers_and_refuses_mistakes() -> Result<()> {
    let (x, y) = (Generator::seed(1).randn([8, 3])?, Tensor::zeros([8, 2])?);
    let mut plain = Linear::new(3, 2)?;
    let mut scaled = plain.deep_clone()?;
    let (mut own, mut head) =
        (AdamW::new(0.1).only(|name| name == "weight"), Sgd::new(0.1).only(|name| name == "bias"));
    let (mut own2, mut head2) =
        (AdamW::new(0.1).only(|name| name == "weight"), Sgd::new(0.1).only(|name| name == "bias"));
    let mut scaler = GradScaler::new_with(GradScalerOptions::new().init_scale(1024.0).growth_interval(2));
    for _ in 0..5 {
        plain.zero_grad();
        plain.forward(&x)?.mse_loss(&y)?.backward()?;
        clip_grad_norm(&plain, 0.1)?;
        own.step(&mut plain)?;
        head.step(&mut plain)?;

        scaled.zero_grad();
        scaler.scale(&scaled.forward(&x)?.mse_loss(&y)?)?.backward()?;
        scaler.unscale(&scaled)?;
        assert!(message(scaler.unscale(&scaled)).contains("unscaled since the last update"));
        clip_grad_norm(&scaled, 0.1)?;
        assert!(scaler.step(&mut own2, &mut scaled)? && scaler.step(&mut head2, &mut scaled)?);
        scaler.update()?;
    }
    assert_eq!(scaler.get_scale(), 4096.0);
    assert!(plain.weight.allclose_with(&scaled.weight, (1e-5, 1e-6))?);
    assert!(message(scaler.update()).contains("no gradients were unscaled since the last update"));

    let mut half = Linear::new(3, 2)?;
    half.to_dtype(DType::F16)?;
    scaler.scale(&half.forward(&x.to_dtype(DType::F16)?)?.sum(..)?)?.backward()?;
    let refused = message(scaler.step(&mut Sgd::new(0.1), &mut half));
    assert!(refused.contains("gradients must not be f16"), "{refused}");

    let mut bad = GradScaler::new_with(GradScalerOptions::new().backoff_factor(2.0));
    assert!(message(bad.scale(&Tensor::full((), 1.0)?)).contains("backoff_factor must be in (0, 1), got 2"));
    let mut bad = GradScaler::new_with(GradScalerOptions::new().growth_factor(1.0));
    assert!(message(bad.scale(&Tensor::full((), 1.0)?)).contains("growth_factor must be > 1, got 1"));
    let mut dict = scaler.state_dict()?;
    dict.insert("scale", Tensor::full_with((), f64::INFINITY, DType::F64)?);
    assert!(message(scaler.load_state_dict(&dict)).contains("the scale must be finite and > 0, got inf"));
    assert_eq!(scaler.get_scale(), 4096.0);

    let mut off = GradScaler::new_with(GradScalerOptions::new().enabled(false));
    let loss = Tensor::full((), 2.0)?;
    assert_eq!((off.scale(&loss)?.item::<f32>()?, off.get_scale()), (2.0, 1.0));
    off.update()?;
    // Half precision would not hold the scaled loss.
    let loss = GradScaler::new().scale(&Tensor::full_with((), 2.0, DType::F16)?)?;
    assert_eq!((loss.dtype(), loss.item::<f32>()?), (DType::F32, 131_072.0));
    Ok(())
}
