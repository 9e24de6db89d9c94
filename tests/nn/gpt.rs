//! The model of the `char_gpt` example.

#[path = "../../examples/char_gpt/model.rs"]
mod model;

use cotangent::nn::Module;
use cotangent::optim::{AdamW, Optimizer};
use cotangent::{Generator, Result, Tensor, with_generator};
use model::{Config, Gpt};

const SMALL: Config = Config { vocabulary: 64, width: 64, heads: 4, layers: 2, feed_forward: 256 };

/// A model with the same parameters, whatever other tests draw at the same time.
fn seeded(seed: u64, config: &Config) -> Result<Gpt> {
    with_generator(&mut Generator::seed(seed), || Gpt::new(config))
}

#[test]
fn the_parameters_are_counted_exactly() -> Result<()> {
    assert_eq!(Gpt::new(&SMALL)?.num_parameters(), 103_680);
    Ok(())
}

/// A change of a later character must not change what is predicted before it.
#[test]
fn no_position_looks_into_the_future() -> Result<()> {
    let model = seeded(5, &SMALL)?;
    let text = Generator::seed(8).randint(0, 64, [1, 12])?;
    let mut changed = text.to_vec::<i64>()?;
    changed[8] = (changed[8] + 1) % 64;
    let (a, b) = (model.forward(&text)?, model.forward(&Tensor::from_vec(changed, [1, 12])?)?);
    assert!(a.narrow(1, 0, 8)?.equal(&b.narrow(1, 0, 8)?)?);
    assert!(!a.narrow(1, 8, 4)?.equal(&b.narrow(1, 8, 4)?)?);
    Ok(())
}

/// Rotary positions: the same characters in another order give other predictions, even for the last one alone.
#[test]
fn order_matters() -> Result<()> {
    let model = seeded(5, &SMALL)?;
    let last = |text: &[i64]| model.forward(&Tensor::from_slice(text, [1, 4])?)?.select(1, -1);
    assert!(!last(&[1, 2, 3, 4])?.allclose_with(&last(&[3, 1, 2, 4])?, (1e-6, 1e-6))?);
    Ok(())
}

#[test]
fn it_learns_a_short_text_by_heart() -> Result<()> {
    let mut model = seeded(6, &Config { vocabulary: 16, width: 16, heads: 2, layers: 1, feed_forward: 32 })?;
    let mut optimizer = AdamW::new(1e-2);
    let text = Generator::seed(9).randint(0, 16, [2, 9])?;
    let (seen, next) = (text.narrow(1, 0, 8)?, text.narrow(1, 1, 8)?.flatten(0, -1)?);
    let mut losses = Vec::new();
    for _ in 0..120 {
        let loss = model.forward(&seen)?.reshape([16, 16])?.cross_entropy(&next)?;
        model.zero_grad();
        loss.backward()?;
        optimizer.step(&mut model)?;
        losses.push(loss.item::<f32>()?);
    }
    assert!((losses[0] - 16_f32.ln()).abs() < 0.3, "the first loss {} should be that of guessing", losses[0]);
    assert!(losses[losses.len() - 1] < 0.05, "the last loss is {}", losses[losses.len() - 1]);
    assert!(model.parameters().iter().all(|p| p.grad().is_some()), "every parameter has a gradient");
    Ok(())
}
