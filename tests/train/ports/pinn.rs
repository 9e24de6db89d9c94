use cotangent::autograd::{GradOptions, derivative_with};
use cotangent::prelude::*;
use cotangent::{nn, optim};
use std::f64::consts::PI;

fn gradient(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    derivative_with(&y.sum(..)?, x, GradOptions::new().create_graph(true))
}

fn at(model: &nn::Sequential, t: &Tensor, x: &Tensor) -> Result<Tensor> {
    model.forward(&Tensor::cat(&[t, x], 1)?)
}

pub fn train(steps: usize) -> Result<f64> {
    cotangent::manual_seed(0);
    let model = nn::Sequential::new().add(nn::Linear::new(2, 32)?).add(nn::Tanh).add(nn::Linear::new(32, 32)?);
    let mut model = model.add(nn::Tanh).add(nn::Linear::new(32, 1)?);
    let mut optimizer = optim::Adam::new(5e-3);
    let (zero, one) = (Tensor::zeros([128, 1])?, Tensor::ones([128, 1])?);
    for _ in 0..steps {
        let t = Tensor::rand([128, 1])?.requires_grad_(true)?;
        let x = Tensor::rand([128, 1])?.requires_grad_(true)?;
        let u = at(&model, &t, &x)?;
        let residual = gradient(&u, &t)? - gradient(&gradient(&u, &x)?, &x)? * 0.1;
        let start = at(&model, &zero, &x)? - (&x * PI).sin()?;
        let (left, right) = (at(&model, &t, &zero)?, at(&model, &t, &one)?);
        let mean = |part: &Tensor| part.square()?.mean(..);
        let loss = mean(&residual)? + mean(&start)? + mean(&left)? + mean(&right)?;
        model.zero_grad();
        loss.backward()?;
        optimizer.step(&mut model)?;
    }
    let (t, x) = (Tensor::rand([1000, 1])?, Tensor::rand([1000, 1])?);
    let exact = (&t * (-0.1 * PI * PI)).exp()? * (&x * PI).sin()?;
    let error = no_grad(|| at(&model, &t, &x))? - &exact;
    (error.norm(..)? / exact.norm(..)?).item()
}
