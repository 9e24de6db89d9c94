use cotangent::prelude::*;
use cotangent::{nn, optim};
use std::collections::VecDeque;

struct CartPole {
    state: [f32; 4],
    steps: u32,
}

impl CartPole {
    fn new() -> Result<CartPole> {
        let random = Tensor::rand([4])?.to_vec::<f32>()?;
        Ok(CartPole { state: std::array::from_fn(|i| random[i] * 0.1 - 0.05), steps: 0 })
    }

    fn step(&mut self, action: i64) -> ([f32; 4], bool) {
        let [x, x_dot, theta, theta_dot] = self.state;
        let force = if action == 1 { 10.0 } else { -10.0 };
        let (sin, cos) = theta.sin_cos();
        let push = (force + 0.05 * theta_dot * theta_dot * sin) / 1.1;
        let theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
        let x_acc = push - 0.05 * theta_acc * cos / 1.1;
        self.state = [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc];
        self.steps += 1;
        let fallen = self.state[0].abs() > 2.4 || self.state[2].abs() > 12_f32.to_radians();
        (self.state, fallen)
    }
}

fn network() -> Result<nn::Sequential> {
    let first = nn::Sequential::new().add(nn::Linear::new(4, 64)?).add(nn::ReLU).add(nn::Linear::new(64, 64)?);
    Ok(first.add(nn::ReLU).add(nn::Linear::new(64, 2)?))
}

pub fn train(steps: usize) -> Result<f64> {
    cotangent::manual_seed(0);
    let (mut env, mut model, mut target) = (CartPole::new()?, network()?, network()?);
    let mut optimizer = optim::AdamW::new(1e-3);
    let (mut replay, mut returns) = (VecDeque::new(), Vec::new());
    for step in 0..steps {
        let (state, explore) = (env.state, (1.0 - 4.0 * step as f64 / steps as f64).max(0.05));
        let action = if Tensor::rand(())?.item::<f64>()? < explore {
            Tensor::randint(0, 2, ())?.item()?
        } else {
            no_grad(|| model.forward(&Tensor::new(state)?)?.argmax(0)?.item())?
        };
        let (following, fallen) = env.step(action);
        replay.truncate(9_999);
        replay.push_front((state, action, following, fallen));
        if fallen || env.steps == 500 {
            returns.push(f64::from(env.steps));
            env = CartPole::new()?;
        }
        if step.is_multiple_of(200) {
            target.load_state_dict(&model.state_dict())?;
        }
        let chosen = Tensor::randint(0, replay.len() as i64, [64])?.to_vec::<i64>()?;
        let column = |i: usize| replay[chosen[i] as usize];
        let states = Tensor::new(std::array::from_fn::<_, 64, _>(|i| column(i).0))?;
        let actions = Tensor::new(std::array::from_fn::<_, 64, _>(|i| column(i).1))?;
        let followings = Tensor::new(std::array::from_fn::<_, 64, _>(|i| column(i).2))?;
        let ends = Tensor::new(std::array::from_fn::<_, 64, _>(|i| column(i).3))?;
        let value = model.forward(&states)?.gather(1, &actions.unsqueeze(1)?)?.squeeze(1)?;
        let future = no_grad(|| target.forward(&followings)?.max(1))?;
        let expected = future.masked_fill(&ends, 0.0)? * 0.99 + 1;
        let loss = value.smooth_l1_loss(&expected)?;
        model.zero_grad();
        loss.backward()?;
        optimizer.step(&mut model)?;
    }
    let last = &returns[returns.len().saturating_sub(20)..];
    Ok(last.iter().sum::<f64>() / last.len() as f64)
}
