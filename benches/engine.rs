//! What the machinery costs where the arithmetic is small: a chain of operations on one element, forward and backward,
//! and a training step of a small network.
//!
//! `cargo bench --bench engine`. Of the chain criterion prints the time of all 1000 operations: nanoseconds an
//! operation are its microseconds.

#![allow(clippy::expect_used)]

use cotangent::autograd::no_grad;
use cotangent::nn::{Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{CrossEntropy, Result, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};

/// `x = x * c + b`, 500 times: 1000 operations.
fn chain(x: &Tensor, c: &Tensor, b: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for _ in 0..500 {
        x = x.mul(c)?.add(b)?;
    }
    Ok(x)
}

fn overhead(criterion: &mut Criterion) {
    let make = || -> Result<_> {
        Ok((Tensor::ones([1])?.requires_grad_(true)?, Tensor::full([1], 0.999)?, Tensor::full([1], 0.001)?))
    };
    let (x, c, b) = make().expect("three tensors");
    criterion.bench_function("overhead: 1000 ops, forward and backward", |bench| {
        bench.iter(|| {
            x.zero_grad();
            chain(&x, &c, &b)?.backward()
        });
    });
    criterion.bench_function("overhead: 1000 ops, forward without gradient", |bench| {
        bench.iter(|| no_grad(|| chain(&x, &c, &b)));
    });
}

/// One training step of the MLP 784-128-64-10 with plain SGD, batch 32.
fn mlp_small(criterion: &mut Criterion) {
    let make = || -> Result<_> {
        let model = Sequential::new()
            .add(Linear::new(784, 128)?)
            .add(ReLU)
            .add(Linear::new(128, 64)?)
            .add(ReLU)
            .add(Linear::new(64, 10)?);
        Ok((model, Tensor::randn([32, 784])?, Tensor::randint(0, 10, [32])?))
    };
    let (mut model, x, y) = make().expect("a model and its data");
    let mut optimizer = Sgd::new(0.01);
    let options = CrossEntropy::default();
    criterion.bench_function("mlp_small: 784-128-64-10, batch 32, SGD step", |bench| {
        bench.iter(|| -> Result<()> {
            model.zero_grad();
            model.forward(&x)?.cross_entropy(&y, &options)?.backward()?;
            optimizer.step(&mut model)
        });
    });
}

criterion_group!(benches, overhead, mlp_small);
criterion_main!(benches);
