//! Deep Q-learning: balances a pole on a cart. `cargo run --release --example dqn [-- --quick]`.
//!
//! The environment is CartPole with the dynamics of Barto, Sutton and Anderson (1983), as in Gymnasium's `CartPole-v1`:
//! a reward of 1 for each step until the pole falls, the cart leaves the track, or 500 steps are done. The network is
//! trained by double Q-learning, with a replay buffer and a target network.

use cotangent::autograd::no_grad;
use cotangent::nn::{Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{AdamW, AveragedModel, Optimizer, clip_grad_value};
use cotangent::train::{Progress, in_eval};
use cotangent::{Generator, Result, Tensor};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
type Observation = [f32; 4];

/// A cart on a track with a pole on it: position, velocity, angle and angular velocity.
struct CartPole {
    state: [f64; 4],
    steps: usize,
}

/// The result of an action.
struct Step {
    observation: Observation,
    reward: f32,
    /// Whether the pole has fallen or the cart is off the track.
    terminated: bool,
    /// Whether the time limit is reached.
    truncated: bool,
}

const LIMIT: usize = 500;

impl CartPole {
    fn reset(random: &mut Generator) -> Result<(CartPole, Observation)> {
        let drawn = random.rand([4])?.to_vec::<f32>()?;
        let state = [0, 1, 2, 3].map(|i| f64::from(drawn[i]) * 0.1 - 0.05);
        Ok((CartPole { state, steps: 0 }, state.map(|x| x as f32)))
    }

    /// Pushes the cart to the left (0) or to the right (1) for 0.02 s: a step of Euler's method.
    fn step(&mut self, action: usize) -> Step {
        const GRAVITY: f64 = 9.8;
        const POLE: f64 = 0.1;
        const TOTAL: f64 = 1.0 + POLE;
        /// Half the length of the pole.
        const HALF: f64 = 0.5;
        const TAU: f64 = 0.02;
        let [x, x_dot, theta, theta_dot] = self.state;
        let force = if action == 1 { 10.0 } else { -10.0 };
        let (sin, cos) = theta.sin_cos();
        let push = (force + POLE * HALF * theta_dot * theta_dot * sin) / TOTAL;
        let theta_acc = (GRAVITY * sin - cos * push) / (HALF * (4.0 / 3.0 - POLE * cos * cos / TOTAL));
        let x_acc = push - POLE * HALF * theta_acc * cos / TOTAL;
        self.state = [x + TAU * x_dot, x_dot + TAU * x_acc, theta + TAU * theta_dot, theta_dot + TAU * theta_acc];
        self.steps += 1;
        let terminated = self.state[0].abs() > 2.4 || self.state[2].abs() > 12_f64.to_radians();
        let observation = self.state.map(|x| x as f32);
        Step { observation, reward: 1.0, terminated, truncated: self.steps >= LIMIT }
    }
}

/// A replay buffer of the last transitions; new ones replace the oldest.
struct Replay {
    seen: Vec<(Observation, usize, f32, Observation, bool)>,
    next: usize,
    capacity: usize,
}

/// A batch of transitions: observations, actions, rewards, next observations, and 0 for the last of an episode.
struct Batch {
    observations: Tensor,
    actions: Tensor,
    rewards: Tensor,
    following: Tensor,
    goes_on: Tensor,
}

impl Replay {
    fn new(capacity: usize) -> Replay {
        Replay { seen: Vec::new(), next: 0, capacity }
    }

    fn push(&mut self, from: Observation, action: usize, step: &Step) {
        let entry = (from, action, step.reward, step.observation, step.terminated);
        if self.seen.len() < self.capacity {
            self.seen.push(entry);
        } else {
            self.seen[self.next] = entry;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    fn sample(&self, size: usize, random: &mut Generator) -> Result<Batch> {
        let at = random.randint(0, self.seen.len() as i64, [size])?.to_vec::<i64>()?;
        let picked: Vec<_> = at.iter().map(|&at| &self.seen[at as usize]).collect();
        Ok(Batch {
            observations: Tensor::from_vec(picked.iter().flat_map(|seen| seen.0).collect(), [size, 4])?,
            actions: Tensor::from_vec(picked.iter().map(|seen| seen.1 as i64).collect(), [size, 1])?,
            rewards: Tensor::from_vec(picked.iter().map(|seen| seen.2).collect(), [size])?,
            following: Tensor::from_vec(picked.iter().flat_map(|seen| seen.3).collect(), [size, 4])?,
            goes_on: Tensor::from_vec(picked.iter().map(|seen| f32::from(u8::from(!seen.4))).collect(), [size])?,
        })
    }
}

const GAMMA: f64 = 0.99;

/// The loss of double Q-learning: values are compared with the reward plus the target network's discounted value of the
/// action that the network would take next.
fn loss(model: &Sequential, target: &Sequential, batch: &Batch) -> Result<Tensor> {
    let values = model.forward(&batch.observations)?.gather(1, &batch.actions)?.squeeze(1)?;
    let expected = no_grad(|| {
        let best = model.forward(&batch.following)?.argmax(1)?.unsqueeze(1)?;
        let future = target.forward(&batch.following)?.gather(1, &best)?.squeeze(1)?;
        batch.rewards.add(&future.mul(&batch.goes_on)?.mul(GAMMA)?)
    })?;
    values.smooth_l1_loss(&expected)
}

fn best_action(model: &Sequential, observation: Observation) -> Result<usize> {
    let values = no_grad(|| model.forward(&Tensor::from_vec(observation.to_vec(), [1, 4])?))?.to_vec::<f32>()?;
    Ok(usize::from(values[1] > values[0]))
}

/// The mean return of `episodes` episodes without exploration.
fn evaluate(model: &mut Sequential, episodes: usize, seed: u64) -> Result<f64> {
    let mut random = Generator::seed(seed);
    in_eval(model, |model| {
        let mut total = 0;
        for _ in 0..episodes {
            let (mut environment, mut observation) = CartPole::reset(&mut random)?;
            loop {
                let step = environment.step(best_action(model, observation)?);
                total += 1;
                if step.terminated || step.truncated {
                    break;
                }
                observation = step.observation;
            }
        }
        Ok(f64::from(total) / episodes as f64)
    })
}

fn main() -> Outcome {
    let quick = std::env::args().any(|word| word == "--quick");
    let (steps, promised) = if quick { (2_000, 0.0) } else { (40_000, 450.0) };
    cotangent::manual_seed(1);
    let mut random = Generator::seed(7);
    let mut model = Sequential::new()
        .add(Linear::new(4, 64)?)
        .add(ReLU)
        .add(Linear::new(64, 64)?)
        .add(ReLU)
        .add(Linear::new(64, 2)?);
    // The target network: its parameters are a moving average of the network's.
    let mut target = AveragedModel::ema(&model, 0.995)?;
    let (mut optimizer, mut replay, mut bar) = (AdamW::new(1e-3), Replay::new(20_000), Progress::new(steps));
    let (mut environment, mut observation) = CartPole::reset(&mut random)?;
    let (mut returns, mut best, mut kept) = (Vec::new(), 0.0, None);
    for step in 0..steps {
        let done = step as f64 / steps as f64;
        let explore = (1.0 - 4.0 * done).max(0.02);
        let drawn = random.rand([2])?.to_vec::<f32>()?;
        let action = match f64::from(drawn[0]) < explore {
            true => usize::from(drawn[1] < 0.5),
            false => best_action(&model, observation)?,
        };
        let seen = environment.step(action);
        replay.push(observation, action, &seen);
        observation = seen.observation;
        if seen.terminated || seen.truncated {
            returns.push(environment.steps as f64);
            (environment, observation) = CartPole::reset(&mut random)?;
        }
        if step >= 500 {
            let value = loss(&model, &target, &replay.sample(64, &mut random)?)?;
            model.zero_grad();
            value.backward()?;
            clip_grad_value(&model, 10.0)?;
            optimizer.set_lr(1e-3 * (1.0 - done).max(0.1));
            optimizer.step(&mut model)?;
            target.update(&model)?;
        }
        if (step + 1).is_multiple_of(steps / 10) {
            let recent = &returns[returns.len().saturating_sub(20)..];
            let mean = recent.iter().sum::<f64>() / recent.len().max(1) as f64;
            let greedy = evaluate(&mut target, 5, 100)?;
            bar.update(step + 1, &[("return", greedy)]);
            println!(
                "step {:>6}  explored {explore:.2}  mean of 20 episodes {mean:>6.1}  greedy {greedy:>6.1}",
                step + 1
            );
            if greedy > best || kept.is_none() {
                (best, kept) = (greedy, Some(target.module().deep_clone()?));
            }
        }
    }
    bar.clear();
    let mut kept = kept.ok_or("there must be an evaluation")?;
    // On other episodes than those for selecting the model.
    let episodes = if quick { 5 } else { 50 };
    let mean = evaluate(&mut kept, episodes, 200)?;
    println!("average return: {mean:.1} of {LIMIT} over {episodes} new episodes");
    if mean < promised {
        return Err(format!("the average return must be at least {promised}, got {mean:.1}").into());
    }
    Ok(())
}
