//! Steps that are recorded and replayed.

use super::training::Mlp;
use super::{GPU, alone, gpu, random};
use crate::checks::both;
use cotangent::nn::{Forward, Module};
use cotangent::optim::{AdamW, GradScaler, Optimizer, Sgd, clip_grad_norm};
use cotangent::{CudaGraph, DType, Device, Generator, Result, Tensor, autocast, memory};

fn batch(seed: u64) -> Result<[Tensor; 2]> {
    let target = Generator::seed(seed).randint(0, 7, [64])?;
    Ok([random(&[64, 20], seed, DType::F32)?.to_device(GPU)?, target.to_device(GPU)?])
}

fn step(model: &mut Mlp, optimizer: &mut dyn Optimizer, [x, y]: [&Tensor; 2]) -> Result<Tensor> {
    model.zero_grad();
    let loss = model.forward(x)?.cross_entropy(y)?;
    loss.backward()?;
    optimizer.step(model)?;
    Ok(loss.detach())
}

fn message<T>(result: Result<T>) -> String {
    result.map(|_| String::new()).unwrap_or_else(|e| e.to_string())
}

#[test]
fn replays_train_bit_for_bit_as_steps_do() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let all: [(&str, fn() -> Box<dyn Optimizer>); 3] = [
        ("sgd", || Box::new(Sgd::new(0.1))),
        ("momentum", || Box::new(Sgd::new(0.1).momentum(0.9))),
        ("adamw", || Box::new(AdamW::new(1e-2))),
    ];
    for (name, make) in all {
        for dtype in [DType::F32, DType::BF16] {
            let (mut plain, mut recorded) = (Mlp::new(GPU, dtype)?, Mlp::new(GPU, dtype)?);
            let (mut optimizer, mut other) = (make(), make());
            let inputs = |seed| -> Result<[Tensor; 2]> {
                let [x, y] = batch(seed)?;
                Ok([x.to_dtype(dtype)?, y])
            };
            let [x, y] = inputs(0)?;
            let expected = step(&mut plain, &mut *optimizer, [&x, &y])?;
            let (mut graph, first) =
                CudaGraph::record(&[&x, &y], |x| Ok(vec![step(&mut recorded, &mut *other, [&x[0], &x[1]])?]))?;
            assert!(first[0].equal(&expected)?, "{name} {dtype}: the first loss");
            for seed in 1..20 {
                if seed == 10 {
                    optimizer.set_lr(1e-3);
                    other.set_lr(1e-3);
                }
                let [x, y] = inputs(seed)?;
                let expected = step(&mut plain, &mut *optimizer, [&x, &y])?;
                other.advance()?;
                // Other work in between must not get memory of the graph.
                let noise = random(&[300, 300], seed, DType::F32)?.to_device(GPU)?;
                let loss = graph.replay(&[&x, &y])?;
                assert!(noise.matmul(&noise)?.sum(..)?.item::<f32>()?.is_finite());
                assert!(loss[0].equal(&expected)?, "{name} {dtype} step {seed}: {} and {expected}", loss[0]);
            }
            for (a, b) in both(recorded.parameters().iter(), plain.parameters()) {
                assert!(a.detach().equal(&b.detach())?, "{name} {dtype}: a parameter");
            }
        }
    }
    Ok(())
}

/// Forward pass, scaled loss and backward pass are recorded; what depends on values follows each replay, with the gradients that
/// the replay left, or with those that it returned.
#[test]
fn half_precision_with_a_scaler_is_recorded() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let pass = |model: &mut Mlp, scaler: &mut GradScaler, [x, y]: [&Tensor; 2]| -> Result<Vec<Tensor>> {
        model.zero_grad();
        let loss = autocast(DType::F16, || model.forward(x)?.cross_entropy(y))?;
        scaler.scale(&loss)?.backward()?;
        Ok(vec![loss.detach()])
    };
    let with_grads = |model: &mut Mlp, scaler: &mut GradScaler, inputs: [&Tensor; 2]| -> Result<Vec<Tensor>> {
        let mut all = pass(model, scaler, inputs)?;
        all.extend(model.parameters().iter().filter_map(|parameter| parameter.take_grad()));
        Ok(all)
    };
    let finish = |model: &mut Mlp, scaler: &mut GradScaler, optimizer: &mut Sgd| -> Result<()> {
        scaler.unscale(model)?;
        clip_grad_norm(model, 0.5)?;
        scaler.step(optimizer, model)?;
        scaler.update()
    };
    let new = || -> Result<_> { Ok((Mlp::new(GPU, DType::F32)?, GradScaler::new(), Sgd::new(0.1).momentum(0.9))) };
    let ((mut plain, mut scaler, mut optimizer), mut left, mut given) = (new()?, new()?, new()?);
    let [x, y] = batch(0)?;
    let (mut graph, _) = CudaGraph::record(&[&x, &y], |x| pass(&mut left.0, &mut left.1, [&x[0], &x[1]]))?;
    let (mut other, _) = CudaGraph::record(&[&x, &y], |x| with_grads(&mut given.0, &mut given.1, [&x[0], &x[1]]))?;
    for seed in 0..10 {
        let [x, y] = batch(seed)?;
        let expected = pass(&mut plain, &mut scaler, [&x, &y])?;
        let loss = graph.replay(&[&x, &y])?;
        let results = other.replay(&[&x, &y])?;
        assert!(loss[0].equal(&expected[0])? && results[0].equal(&expected[0])?, "step {seed}");
        for (at, parameter) in plain.parameters().iter().enumerate() {
            let [expected, left] = [parameter.grad(), left.0.parameters()[at].grad()].map(Option::unwrap);
            assert!(left.equal(&expected)?, "step {seed}, gradient {at} left: {left} and {expected}");
            let given = &results[1 + at];
            assert!(given.equal(&expected)?, "step {seed}, gradient {at} given: {given} and {expected}");
        }
        for (parameter, grad) in both(given.0.parameters().iter(), &results[1..]) {
            parameter.set_grad(grad)?;
        }
        for (model, scaler, optimizer) in [
            (&mut plain, &mut scaler, &mut optimizer),
            (&mut left.0, &mut left.1, &mut left.2),
            (&mut given.0, &mut given.1, &mut given.2),
        ] {
            finish(model, scaler, optimizer)?;
        }
    }
    Ok(())
}

/// A replay that would use old values, or write to memory that is held elsewhere, is refused.
#[test]
fn stale_values_are_refused() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let mut model = Mlp::new(GPU, DType::F32)?;
    let [x, y] = batch(1)?;
    let pass = |model: &Mlp, x: &[Tensor]| -> Result<Vec<Tensor>> {
        let loss = model.forward(&x[0])?.cross_entropy(&x[1])?;
        loss.backward()?;
        Ok(vec![loss.detach()])
    };
    // The first run leaves gradients, to which the recorded one would add.
    assert!(message(CudaGraph::record(&[&x, &y], |x| pass(&model, x))).contains("zero_grad within the step"));
    let twice = |x: &[Tensor]| {
        model.zero_grad();
        pass(&model, x)?;
        pass(&model, x)
    };
    let (mut graph, _) = CudaGraph::record(&[&x, &y], twice)?;
    let grad = |model: &Mlp| model.first.weight.grad().unwrap();
    // The gradients of the first run are in place, and not memory that no replay has written to.
    let expected = grad(&model).deep_clone()?;
    model.zero_grad();
    pass(&model, &[x.clone(), y.clone()])?;
    assert!(expected.equal(&grad(&model).mul(2.0)?)?, "two passes add up");
    // Two passes within the step accumulate, but replays do not.
    for _ in 0..3 {
        graph.replay(&[&x, &y])?;
        assert!(grad(&model).equal(&expected)?);
    }
    model.zero_grad();
    graph.replay(&[&x, &y])?;
    assert!(grad(&model).equal(&expected)?, "they are there again");
    let held = grad(&model);
    assert!(message(graph.replay(&[&x, &y])).contains("held elsewhere"));
    assert!(held.equal(&expected)?);
    drop(held);
    graph.replay(&[&x, &y])?;

    // A step gives parameters that are also held elsewhere new memory.
    let mut optimizer = Sgd::new(0.1);
    let old = model.first.weight.detach();
    optimizer.step(&mut model)?;
    assert!(message(graph.replay(&[&x, &y])).contains("new memory"));
    drop(old);
    assert!(message(graph.replay(&[&x, &y])).contains("new memory"));

    // A model that was loaded.
    let (mut graph, _) = CudaGraph::record(&[&x, &y], |x| Ok(vec![model.forward(&x[0])?.detach()]))?;
    graph.replay(&[&x, &y])?;
    optimizer.step(&mut model)?;
    assert!(graph.replay(&[&x, &y])?[0].equal(&model.forward(&x)?)?, "changed where it lies");
    model.load_state_dict(&Mlp::new(GPU, DType::F32)?.state_dict())?;
    assert!(message(graph.replay(&[&x, &y])).contains("dropped or replaced"));

    // What only the step held may be dropped.
    let mask = x.gt(0.0)?.to_dtype(DType::F32)?;
    let expected = x.mul(&mask)?;
    let (mut graph, _) = CudaGraph::record(&[&x], move |x| Ok(vec![x[0].mul(&mask)?]))?;
    assert!(graph.replay(&[&x])?[0].equal(&expected)?);
    Ok(())
}

#[test]
fn what_cannot_be_replayed_is_refused() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let x = random(&[4, 4], 1, DType::F32)?.to_device(GPU)?;
    type Step = fn(&[Tensor]) -> Result<Vec<Tensor>>;
    let steps: [(&str, Step); 4] = [
        ("item", |x| Ok(vec![x[0].mul(f64::from(x[0].sum(..)?.item::<f32>()?))?])),
        ("to_device", |x| Ok(vec![x[0].add(&Tensor::ones([4])?.to_device(GPU)?)?])),
        ("dropout", |x| Ok(vec![x[0].dropout(0.5)?])),
        ("rand", |x| Ok(vec![x[0].add(&x[0].rand_like()?)?])),
    ];
    for (name, step) in steps {
        let refused = message(CudaGraph::record(&[&x], step));
        assert!(refused.contains(name) && refused.contains("recorded"), "{name}: {refused}");
        assert_eq!(x.mul(0.0)?.sum(..)?.item::<f32>()?, 0.0, "work goes on after {name}");
    }
    assert!(message(CudaGraph::record(&[&x.to_device(Device::Cpu)?], |x| Ok(x.to_vec()))).contains("cpu"));

    let (mut graph, _) = CudaGraph::record(&[&x], |x| Ok(vec![x[0].matmul(&x[0])?]))?;
    let half = x.to_dtype(DType::F16)?;
    assert!(message(graph.replay(&[&half])).contains("f16"));
    assert!(message(graph.replay(&[&x.narrow(0, 0, 2)?])).contains("[2, 4]"));
    assert!(message(graph.replay(&[])).contains("got 0"));
    assert!(graph.replay(&[&x.to_device(Device::Cpu)?])?[0].equal(&x.matmul(&x)?)?);
    Ok(())
}

#[test]
fn a_parameter_does_not_change_behind_a_handle() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let mut model = Mlp::new(GPU, DType::F32)?;
    let mut optimizer = Sgd::new(0.1);
    let [x, y] = batch(1)?;
    let (mut graph, _) = CudaGraph::record(&[&x, &y], |x| Ok(vec![step(&mut model, &mut optimizer, [&x[0], &x[1]])?]))?;
    graph.replay(&[&x, &y])?;
    let held = model.first.weight.detach();
    let before = held.to_vec::<f32>()?;
    assert!(message(graph.replay(&[&x, &y])).contains("held elsewhere"));
    assert_eq!(held.to_vec::<f32>()?, before);
    drop(held);
    graph.replay(&[&x, &y])?;
    // A step outside of the graph gives the parameters new memory.
    step(&mut model, &mut optimizer, [&x, &y])?;
    assert!(message(graph.replay(&[&x, &y])).contains("replaced"));
    Ok(())
}

#[test]
fn a_graph_gives_its_memory_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let x = random(&[256, 256], 1, DType::F32)?.to_device(GPU)?;
    // The first product allocates the workspace of cuBLASLt.
    x.matmul(&x)?;
    let before = memory::stats(GPU)?.current();
    for _ in 0..3 {
        let (mut graph, first) = CudaGraph::record(&[&x], |x| Ok(vec![x[0].matmul(&x[0])?.exp()?.sum(..)?]))?;
        drop(first);
        let after = memory::stats(GPU)?.current();
        for _ in 0..200 {
            graph.replay(&[&x])?;
        }
        assert_eq!(memory::stats(GPU)?.current(), after, "replays take nothing");
    }
    assert_eq!(memory::stats(GPU)?.current(), before);
    Ok(())
}
