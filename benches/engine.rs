//! The engine's own cost: a chain of operations on one element, forward and backward.
//!
//! `cargo bench --bench engine`; criterion prints the time of the whole chain, 1000 operations: nanoseconds an
//! operation are its microseconds.

use cotangent::autograd::no_grad;
use cotangent::{Result, Tensor};
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

criterion_group!(benches, overhead);
criterion_main!(benches);
