//! A physics-informed network: solves Burgers' equation u_t + u u_x = ν u_xx with the residual of the equation as loss.
//! `cargo run --release --example pinn [-- --quick]`.
//!
//! The derivatives of the network with respect to its inputs are computed with `create_graph`, so that the loss can be
//! differentiated with respect to the parameters. Only the initial and boundary values of the solution are given. The
//! error is computed from the closed form of Cole and Hopf, which is not used in training.

use cotangent::autograd::{GradOptions, grad_with, no_grad};
use cotangent::nn::{Forward, Linear, Module, Sequential, Tanh};
use cotangent::optim::{Adam, Lbfgs, LbfgsOptions, LineSearch, Optimizer};
use cotangent::train::Progress;
use cotangent::{Generator, Result, Tensor};
use std::f64::consts::PI;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The viscosity.
const NU: f64 = 0.1;

/// The gradient of the sum of `y` with respect to `x`, with a graph.
fn gradient(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut found = grad_with(&y.sum(..)?, &[x], GradOptions::new().create_graph(true))?;
    found.pop().flatten().map_or_else(|| x.zeros_like(), Ok)
}

/// Points in the domain, 0 ≤ t ≤ 1 and -1 ≤ x ≤ 1.
struct Points {
    /// Interior points, where the equation holds: columns t and x.
    t: Tensor,
    x: Tensor,
    /// Initial and boundary points, with their values.
    edge: Tensor,
    u: Tensor,
}

fn points(inside: usize, edge: usize, random: &mut Generator) -> Result<Points> {
    let t = random.rand([inside, 1])?;
    let x = random.rand([inside, 1])?.mul(2)?.sub(1)?;
    let start = random.rand([edge, 1])?.mul(2)?.sub(1)?;
    let times = random.rand([edge, 1])?;
    let side = random.randint(0, 2, [edge, 1])?.mul(2)?.sub(1)?;
    let at_start = Tensor::cat(&[&start.zeros_like()?, &start], 1)?;
    let at_sides = Tensor::cat(&[&times, &side.to_dtype(times.dtype())?], 1)?;
    let u = Tensor::cat(&[start.mul(PI)?.sin()?.neg()?, times.zeros_like()?], 0)?;
    Ok(Points { t, x, edge: Tensor::cat(&[&at_start, &at_sides], 0)?, u })
}

/// The mean squared residual of the equation, plus that of the initial and boundary values.
fn loss(model: &Sequential, points: &Points) -> Result<Tensor> {
    let (t, x) = (points.t.detach().requires_grad_(true)?, points.x.detach().requires_grad_(true)?);
    let u = model.forward(&Tensor::cat(&[&t, &x], 1)?)?;
    let (u_t, u_x) = (gradient(&u, &t)?, gradient(&u, &x)?);
    let u_xx = gradient(&u_x, &x)?;
    let residual = &u_t + &u * &u_x - u_xx * NU;
    let edge = model.forward(&points.edge)?.mse_loss(&points.u)?;
    residual.square()?.mean(..)?.add(edge)
}

/// The closed form of Cole and Hopf: a ratio of two integrals over a normal distribution, computed by the trapezoidal
/// rule.
fn exact(t: f64, x: f64) -> f64 {
    if t == 0.0 {
        return -(PI * x).sin();
    }
    let (mut above, mut below) = (0.0, 0.0);
    for i in -400..=400 {
        let z = f64::from(i) * 0.02;
        let y = x - z * (2.0 * NU * t).sqrt();
        // Subtracts the largest exponent, to avoid overflow.
        let weight = (-(PI * y).cos() / (2.0 * PI * NU) - z * z / 2.0 - 1.0 / (2.0 * PI * NU)).exp();
        above += (PI * y).sin() * weight;
        below += weight;
    }
    -above / below
}

/// The relative L2 error on a grid.
fn error(model: &Sequential) -> Result<f64> {
    let grid: Vec<(f64, f64)> =
        (0..=20).flat_map(|i| (0..=40).map(move |j| (f64::from(i) / 20.0, f64::from(j) / 20.0 - 1.0))).collect();
    let inputs: Vec<f32> = grid.iter().flat_map(|&(t, x)| [t as f32, x as f32]).collect();
    let guess = no_grad(|| model.forward(&Tensor::from_vec(inputs, [grid.len(), 2])?))?.to_vec::<f32>()?;
    let (mut off, mut all) = (0.0, 0.0);
    for (&(t, x), guess) in grid.iter().zip(guess) {
        let u = exact(t, x);
        off += (f64::from(guess) - u).powi(2);
        all += u * u;
    }
    Ok((off / all).sqrt())
}

fn main() -> Outcome {
    let quick = std::env::args().any(|word| word == "--quick");
    let (adam, lbfgs, width, inside) = if quick { (60, 3, 16, 256) } else { (1500, 60, 32, 1024) };
    cotangent::manual_seed(1);
    let mut model = Sequential::new()
        .add(Linear::new(2, width)?)
        .add(Tanh)
        .add(Linear::new(width, width)?)
        .add(Tanh)
        .add(Linear::new(width, width)?)
        .add(Tanh)
        .add(Linear::new(width, 1)?);
    println!("u_t + u u_x = {NU} u_xx,  u(0, x) = -sin πx,  u(t, ±1) = 0");
    println!("a network of {} parameters, {inside} points inside", model.num_parameters());
    let before = error(&model)?;

    let mut random = Generator::seed(2);
    let (mut optimizer, mut bar) = (Adam::new(3e-3), Progress::new(adam + lbfgs));
    for step in 0..adam {
        // New points in each step, to avoid overfitting.
        let value = loss(&model, &points(inside, 128, &mut random)?)?;
        model.zero_grad();
        value.backward()?;
        optimizer.set_lr(3e-3 * (1.0 - step as f64 / adam as f64).max(0.05));
        optimizer.step(&mut model)?;
        bar.update(step + 1, &[("loss", value.item()?)]);
    }
    let first = error(&model)?;
    // Continue with a second-order method, which needs the same points in each step.
    let fixed = points(2 * inside, 256, &mut random)?;
    let mut optimizer = Lbfgs::new_with(LbfgsOptions::new().max_iter(10).line_search_fn(LineSearch::StrongWolfe));
    for step in 0..lbfgs {
        let value = optimizer.step_with(&mut model, |model| {
            let value = loss(model, &fixed)?;
            value.backward()?;
            Ok(value)
        })?;
        bar.update(adam + step + 1, &[("loss", value.item()?)]);
    }
    bar.finish();

    let last = error(&model)?;
    println!(
        "relative error: {before:.4} untrained, {first:.4} after {adam} steps of Adam, {last:.4} after {lbfgs} of L-BFGS"
    );
    println!("\n    x     u(½, x)  network");
    for x in [-0.75, -0.5, -0.25, 0.25, 0.5, 0.75] {
        let guess = no_grad(|| model.forward(&Tensor::from_vec(vec![0.5_f32, x as f32], [1, 2])?))?.item::<f64>()?;
        println!("{x:>7.2}  {:>8.4}  {guess:>8.4}", exact(0.5, x));
    }
    let most = if quick { before } else { 0.02 };
    if last.is_nan() || last > most {
        return Err(format!("the relative error must be at most {most:.4}, got {last:.4}").into());
    }
    Ok(())
}
