//! A neural ordinary differential equation: a network learns the field y' = f(y) from a solution, which is a spiral, at
//! discrete times. `cargo run --release --example neural_ode [-- --quick]`.
//!
//! The gradient is computed by the adjoint method (Chen et al., 2018): a second equation, for the derivative of the
//! loss with respect to the state, is solved backwards in time with vector-Jacobian products of f. Memory does not grow
//! with the number of solver steps. First, the gradient is compared with that of backpropagation through the solver.

use cotangent::autograd::{GradOptions, grad_with, no_grad};
use cotangent::nn::{Forward, Linear, Module, Sequential, SiLU};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::train::Progress;
use cotangent::{Generator, Result, Tensor, s, tensor};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The field of the network. It depends on the cubes of the state, as the true field does.
fn field(model: &Sequential, y: &Tensor) -> Result<Tensor> {
    model.forward(&y.pow(3)?)
}

/// A step of the classical Runge-Kutta method for several tensors.
fn runge_kutta(f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>, y: &[Tensor], h: f64) -> Result<Vec<Tensor>> {
    let moved = |k: &[Tensor], by: f64| -> Result<Vec<Tensor>> {
        y.iter().zip(k).map(|(y, k)| y.add(&k.mul(by * h)?)).collect()
    };
    let k1 = f(y)?;
    let k2 = f(&moved(&k1, 0.5)?)?;
    let k3 = f(&moved(&k2, 0.5)?)?;
    let k4 = f(&moved(&k3, 1.0)?)?;
    let mean = |i: usize| (&k1[i] + &(&k2[i] + &k3[i]) * 2.0 + &k4[i]) * (h / 6.0);
    y.iter().enumerate().map(|(i, y)| y.add(mean(i))).collect()
}

/// The initial state and the states after `times` steps of size `h`: `[batch, 2]` each.
fn solve(f: impl Fn(&Tensor) -> Result<Tensor>, start: &Tensor, times: usize, h: f64) -> Result<Vec<Tensor>> {
    let mut states = vec![start.clone()];
    for _ in 0..times {
        let next = runge_kutta(|y| Ok(vec![f(&y[0])?]), &states[states.len() - 1..], h)?;
        states.extend(next);
    }
    Ok(states)
}

/// The mean absolute difference from the observations, `[times, batch, 2]`.
fn distance(states: &[Tensor], seen: &Tensor) -> Result<Tensor> {
    Tensor::stack(&states[1..], 0)?.sub(seen)?.abs()?.mean(..)
}

/// The time derivatives of the adjoint equation: of the state, the cotangent (-a ∂f/∂y) and the gradients (-a ∂f/∂θ).
fn backwards(model: &Sequential, parts: &[Tensor]) -> Result<Vec<Tensor>> {
    let (y, a) = (parts[0].detach().requires_grad_(true)?, &parts[1]);
    let f = field(model, &y)?;
    let parameters = model.parameters();
    let mut inputs: Vec<&Tensor> = vec![&y];
    inputs.extend(parameters.iter().map(|parameter| &***parameter));
    let found = grad_with(&f, &inputs, GradOptions::new().gradient(a))?;
    let mut all = vec![f.detach()];
    for (found, input) in found.into_iter().zip(&inputs) {
        all.push(found.map_or_else(|| input.detach().zeros_like(), |g| g.neg())?);
    }
    Ok(all)
}

/// The loss, and its gradient with respect to the parameters, by the adjoint method.
fn adjoint(model: &Sequential, start: &Tensor, seen: &Tensor, h: f64) -> Result<(f64, Vec<Tensor>)> {
    let times = seen.shape()[0];
    let states = no_grad(|| solve(|y| field(model, y), start, times, h))?;
    // The derivative of the loss with respect to each observed state.
    let leaves = states.iter().map(|y| y.detach().requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    let loss = distance(&leaves, seen)?;
    let jumps = grad_with(&loss, &leaves[1..].iter().collect::<Vec<_>>(), GradOptions::new())?;
    let mut parts = vec![states[times].clone(), start.zeros_like()?];
    parts.extend(
        model.parameters().iter().map(|parameter| parameter.detach().zeros_like()).collect::<Result<Vec<_>>>()?,
    );
    for at in (1..=times).rev() {
        parts[0] = states[at].clone();
        if let Some(jump) = &jumps[at - 1] {
            parts[1] = parts[1].add(jump)?;
        }
        parts = runge_kutta(|parts| backwards(model, parts), &parts, -h)?;
    }
    Ok((loss.item()?, parts.split_off(2)))
}

fn main() -> Outcome {
    let quick = std::env::args().any(|word| word == "--quick");
    let (steps, promised) = if quick { (30, f64::INFINITY) } else { (3000, 0.05) };
    let (points, h, times, batch) = (1000, 0.025, 10, 16);
    cotangent::manual_seed(1);
    // The spiral: y' = A y³ from (2, 0).
    let a = tensor!([[-0.1, 2.0], [-2.0, -0.1]])?;
    let truth = solve(|y| y.pow(3)?.matmul(&a), &tensor!([[2.0, 0.0]])?, points - 1, h)?;
    let truth = Tensor::cat(&truth, 0)?;

    let mut model = Sequential::new().add(Linear::new(2, 50)?).add(SiLU).add(Linear::new(50, 2)?);
    for mut parameter in model.parameters_mut() {
        // With small initial weights, solutions stay bounded.
        let small = parameter.detach().mul(0.3)?;
        parameter.set(&small)?;
    }
    // Pieces of the spiral from random positions.
    let mut random = Generator::seed(2);
    let mut pieces = || -> Result<(Tensor, Tensor)> {
        let starts = random.randint(0, (points - times) as i64, [batch])?;
        let seen = (1..=times).map(|t| truth.index_select(0, &starts.add(t as i64)?)).collect::<Result<Vec<_>>>()?;
        Ok((truth.index_select(0, &starts)?, Tensor::stack(&seen, 0)?))
    };

    let (start, seen) = pieces()?;
    let (_, by_adjoint) = adjoint(&model, &start, &seen, h)?;
    distance(&solve(|y| field(&model, y), &start, times, h)?, &seen)?.backward()?;
    let mut off: f64 = 0.0;
    for (parameter, adjoint) in model.parameters().iter().zip(&by_adjoint) {
        let through = parameter.grad().ok_or("every parameter has a gradient")?;
        off = off.max(through.sub(adjoint)?.norm(..)?.item::<f64>()? / through.norm(..)?.item::<f64>()?);
    }
    println!("relative difference of the adjoint gradient from that through the solver: {off:.1e}");
    if off.is_nan() || off > 1e-2 {
        return Err(format!("the relative difference of the gradients must be at most 0.01, got {off:.1e}").into());
    }

    let (mut optimizer, mut bar) = (AdamW::new(1e-2).weight_decay(0.0), Progress::new(steps));
    for step in 0..steps {
        let (start, seen) = pieces()?;
        let (loss, gradients) = adjoint(&model, &start, &seen, h)?;
        for (parameter, gradient) in model.parameters().iter().zip(&gradients) {
            parameter.set_grad(gradient)?;
        }
        optimizer.set_lr(1e-2 * (1.0 - step as f64 / steps as f64).max(0.01));
        optimizer.step(&mut model)?;
        bar.update(step + 1, &[("loss", loss)]);
    }
    bar.finish();

    // The whole spiral, from its first point.
    let whole = no_grad(|| solve(|y| field(&model, y), &truth.index(s![..1])?, points - 1, h))?;
    let whole = Tensor::cat(&whole, 0)?;
    let mean = whole.sub(&truth)?.abs()?.mean(..)?.item::<f64>()?;
    println!("\n   t    spiral            network");
    for at in (0..points).step_by(points / 8) {
        let row = |x: &Tensor| x.select(0, at as isize)?.to_vec::<f32>();
        let (y, guess) = (row(&truth)?, row(&whole)?);
        println!("{:>5.1}  {:>7.3} {:>7.3}   {:>7.3} {:>7.3}", at as f64 * h, y[0], y[1], guess[0], guess[1]);
    }
    println!("mean distance: {mean:.4}, over {points} points computed from the first");
    if (mean.is_nan() && !quick) || mean > promised {
        return Err(format!("the mean distance must be at most {promised}, got {mean:.4}").into());
    }
    Ok(())
}
