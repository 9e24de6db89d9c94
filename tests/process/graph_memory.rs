//! What the graph keeps alive, and for how long.

use crate::alone;
use cotangent::autograd::{BackwardOptions, GradOptions, checkpoint, grad_with, graph_stats, no_grad};
use cotangent::{DType, Device, Generator, Result, Tensor, memory};

fn in_use() -> Result<usize> {
    Ok(memory::stats(Device::Cpu)?.current())
}

/// The peak memory of `f`, beyond what was in use before.
fn peak<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, usize)> {
    let before = in_use()?;
    memory::reset_peak(Device::Cpu)?;
    let result = f()?;
    Ok((result, memory::stats(Device::Cpu)?.peak() - before))
}

const SIDE: usize = 512;
/// The bytes of a tensor of this file: a multiple of the allocator's sizes, so that counts are exact.
const MIB: usize = SIDE * SIDE * 4;

fn matrix(seed: u64) -> Result<Tensor> {
    Generator::seed(seed).randn_with([SIDE, SIDE], DType::F32)
}

#[test]
fn operations_keep_exactly_what_their_gradients_need() -> Result<()> {
    let _alone = alone();
    let (x, w, c) = (matrix(1)?.requires_grad_(true)?, matrix(2)?.requires_grad_(true)?, matrix(3)?);
    type Case<'a> = (&'a str, Box<dyn Fn() -> Result<Tensor> + 'a>, usize);
    // What is saved in addition to the leaves, the constant and the result: (x + x) makes a new tensor.
    let h = || x.add(&x);
    let cases: Vec<Case> = vec![
        ("add", Box::new(|| h()?.add(&w)), 0),
        ("sub", Box::new(|| h()?.sub(&c)), 0),
        ("neg", Box::new(|| h()?.neg()), 0),
        ("scale", Box::new(|| h()?.mul(2.0)), 0),
        ("mul by a constant", Box::new(|| h()?.mul(&c)), 0),
        ("mul", Box::new(|| h()?.mul(&w)), MIB),
        ("mul, constant first", Box::new(|| c.mul(&h()?)), 0),
        ("relu", Box::new(|| h()?.relu()), 0),
        ("exp", Box::new(|| h()?.exp()), 0),
        ("tanh", Box::new(|| h()?.tanh()), 0),
        ("log", Box::new(|| h()?.log()), MIB),
        ("square", Box::new(|| h()?.square()), MIB),
        ("transpose", Box::new(|| h()?.t()), 0),
        ("matmul", Box::new(|| h()?.matmul(&w)), MIB),
        ("matmul by a constant", Box::new(|| h()?.matmul(&c)), 0),
        ("constant matmul", Box::new(|| c.matmul(&h()?)), 0),
    ];
    for (name, case, kept) in cases {
        let before = in_use()?;
        let result = case()?;
        assert!(result.requires_grad());
        result.compute()?;
        // Numbers given as operands are tensors of one element.
        let beyond = in_use()? - before - MIB;
        assert!((kept..kept + 256).contains(&beyond), "{name} keeps {beyond} bytes, not {kept}");
    }
    // Of what a rule keeps, the result is shared: relu has one tensor, and it is the output's.
    assert_eq!(graph_stats(&x.relu()?).saved_bytes, MIB);
    assert_eq!(graph_stats(&x.add(&w)?).saved_bytes, 0);
    assert_eq!(graph_stats(&x.matmul(&w)?).saved_bytes, 2 * MIB);
    assert_eq!(graph_stats(&x.matmul(&c)?).saved_bytes, MIB);
    assert_eq!(graph_stats(&c.matmul(&c)?).saved_bytes, 0);
    Ok(())
}

#[test]
fn without_gradients_nothing_is_kept() -> Result<()> {
    let _alone = alone();
    let (x, w) = (matrix(1)?, matrix(2)?.requires_grad_(true)?);
    let deep = |mut y: Tensor| -> Result<Tensor> {
        for _ in 0..10 {
            y = y.mul(w.detach())?;
            y = y.exp()?;
            y = y.log()?;
        }
        Ok(y)
    };
    let computed = |y: Tensor| y.compute().map(|()| y);
    let (result, most) = peak(|| computed(deep(x.clone())?))?;
    assert!(!result.requires_grad());
    // A worker that has not computed a chain before takes its registers, a few dozen KiB.
    let scratch = MIB / 8;
    assert!((MIB..=2 * MIB + scratch).contains(&most), "at most an operation's input and its result, not {most} bytes");
    let (_, most) = peak(|| no_grad(|| computed(deep(w.mul(1.0)?)?)))?;
    assert!((MIB..=2 * MIB + scratch).contains(&most), "{most}");
    Ok(())
}

/// A chain of which every link keeps its result.
fn chain(x: &Tensor, length: usize) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..length {
        y = y.tanh()?;
    }
    y.compute()?;
    Ok(y)
}

#[test]
fn everything_is_given_back() -> Result<()> {
    let _alone = alone();
    let x = matrix(1)?.requires_grad_(true)?;
    let cotangent = matrix(2)?;
    let before = in_use()?;
    let y = chain(&x, 10)?;
    assert_eq!(in_use()?, before + 10 * MIB);
    y.backward_with(&cotangent)?;
    assert_eq!(in_use()?, before + 2 * MIB, "the result and the gradient are left, not the saved values");
    drop(y);
    x.zero_grad();
    assert_eq!(in_use()?, before);
    // Retained, dropped without a pass, and with a recorded pass.
    let y = chain(&x, 10)?;
    y.backward_with(BackwardOptions::new().gradient(&cotangent).retain_graph(true))?;
    assert_eq!(in_use()?, before + 11 * MIB);
    drop(y);
    x.zero_grad();
    drop(chain(&x, 10)?);
    assert_eq!(in_use()?, before);
    let y = chain(&x, 3)?;
    let grads = grad_with(&y, &[&x], GradOptions::new().gradient(&cotangent).create_graph(true))?;
    assert!(grads[0].as_ref().is_some_and(Tensor::requires_grad));
    drop((y, grads));
    assert_eq!(in_use()?, before, "a recorded pass makes a cycle");
    Ok(())
}

#[test]
fn all_parts_of_a_tensor_are_put_into_one_cotangent() -> Result<()> {
    let _alone = alone();
    let x = matrix(1)?.requires_grad_(true)?;
    let cotangent = matrix(2)?;
    for n in [1, 4, 64] {
        let parts = x.chunk(n, 1)?;
        let joined = Tensor::cat(&parts.iter().rev().collect::<Vec<_>>(), 1)?;
        let (_, most) = peak(|| joined.backward_with(&cotangent))?;
        // With a second one, each part would be one addition of the whole.
        assert!((MIB..MIB + 256).contains(&most), "{n} parts took {most} bytes, not {MIB}");
        x.zero_grad();
    }
    Ok(())
}

#[test]
fn cotangents_and_saved_values_go_during_the_pass() -> Result<()> {
    let _alone = alone();
    let x = matrix(1)?.requires_grad_(true)?;
    let cotangent = matrix(2)?;
    let y = chain(&x, 20)?;
    // A cotangent and the one made from it; the saved values only shrink.
    let ((), most) = peak(|| y.backward_with(&cotangent))?;
    assert!(most <= 2 * MIB, "{} MiB at the peak", most as f64 / MIB as f64);
    x.zero_grad();
    // Retained, the saved values stay, but cotangents still go.
    let y = chain(&x, 20)?;
    let ((), most) = peak(|| y.backward_with(BackwardOptions::new().gradient(&cotangent).retain_graph(true)))?;
    assert!(most <= 2 * MIB, "{} MiB at the peak", most as f64 / MIB as f64);
    x.zero_grad();
    // A wide graph: twenty contributions to one leaf are added as they come.
    let mut sum = x.mul(2.0)?;
    for _ in 0..20 {
        sum = sum.add(&x.mul(2.0)?)?;
    }
    sum.compute()?;
    let ((), most) = peak(|| sum.backward_with(&cotangent))?;
    assert!(most <= 3 * MIB, "{} MiB at the peak", most as f64 / MIB as f64);
    Ok(())
}

#[test]
fn a_checkpoint_keeps_its_input_only() -> Result<()> {
    let _alone = alone();
    let x = matrix(1)?.requires_grad_(true)?;
    let cotangent = matrix(2)?;
    let before = in_use()?;
    let mut y = x.clone();
    let ((), forward) = peak(|| {
        for _ in 0..4 {
            y = checkpoint(|x| chain(&x[0], 10), &[&y])?;
        }
        Ok(())
    })?;
    // Four results, where the plain chain keeps forty.
    assert_eq!(in_use()?, before + 4 * MIB);
    assert!(forward <= 14 * MIB, "{} MiB at the peak", forward as f64 / MIB as f64);
    let ((), backward) = peak(|| y.backward_with(&cotangent))?;
    assert!(backward <= 13 * MIB, "{} MiB at the peak", backward as f64 / MIB as f64);
    drop(y);
    let checkpointed = x.take_grad();
    chain(&x, 40)?.backward_with(&cotangent)?;
    let same = checkpointed.zip(x.grad()).map(|(a, b)| a.equal(&b)).transpose()?;
    assert_eq!(same, Some(true));
    Ok(())
}

#[test]
fn ten_thousand_training_steps_in_flat_memory() -> Result<()> {
    let _alone = alone();
    let mut generator = Generator::seed(1);
    let (x, target) = (generator.randn([16, 8])?, generator.randn([16, 4])?);
    let mut parameters = Vec::new();
    for shape in [&[8, 16][..], &[16], &[16, 4], &[4]] {
        parameters.push(generator.randn(shape)?.mul(0.3)?.requires_grad_(true)?);
    }
    let mut step = || -> Result<f32> {
        let h = x.matmul(&parameters[0])?.add(&parameters[1])?.tanh()?;
        let y = h.matmul(&parameters[2])?.add(&parameters[3])?;
        let loss = y.sub(&target)?.square()?.mean(..)?;
        loss.backward()?;
        for parameter in &mut parameters {
            let change = parameter.take_grad().map_or_else(|| parameter.zeros_like(), |g| g.mul(0.05))?;
            no_grad(|| parameter.sub_(&change))?;
        }
        loss.item::<f32>()
    };
    let first = step()?;
    for _ in 0..9 {
        step()?;
    }
    let warm = memory::stats(Device::Cpu)?;
    memory::reset_peak(Device::Cpu)?;
    step()?;
    let peak_of_one = memory::stats(Device::Cpu)?.peak();
    let mut last = first;
    for _ in 0..10_000 {
        last = step()?;
    }
    let after = memory::stats(Device::Cpu)?;
    assert_eq!(after.current(), warm.current(), "memory in use has grown");
    assert_eq!(after.peak(), peak_of_one, "the peak has grown");
    assert_eq!(after.system_allocations(), warm.system_allocations(), "memory was taken from the system");
    assert!(last < first * 0.8, "the loss went from {first} to {last} only");
    Ok(())
}

#[test]
fn the_gradient_of_logits_takes_their_place() -> Result<()> {
    let _alone = alone();
    // Small buffers are cached by their thread, and would be counted in other tests until it ends.
    std::thread::spawn(gradients_of_logits).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn gradients_of_logits() -> Result<()> {
    let x = Generator::seed(1).randn([SIDE, 64])?.requires_grad_(true)?;
    let w = Generator::seed(2).randn([64, SIDE])?.requires_grad_(true)?;
    let target = Generator::seed(3).randint(0, SIDE as i64, [SIDE])?;
    let loss = |logits: &Tensor| logits.cross_entropy(&target);
    let once = loss(&x.matmul(&w)?)?;
    let ((), taken) = peak(|| once.backward())?;
    // The gradients of x and w take MIB / 8 each. Each thread of a product packs its own blocks, so the rest depends on the
    // scheduler. A second tensor of the logits' size would be a MIB on top.
    assert!((MIB / 4..MIB).contains(&taken), "{taken} bytes besides the logits");
    // But not if they are needed again, or held elsewhere.
    let again = loss(&x.matmul(&w)?)?;
    let (_, taken) = peak(|| grad_with(&again, &[&x], GradOptions::new().retain_graph(true)))?;
    assert!(taken >= MIB);
    let logits = x.matmul(&w)?;
    let held = loss(&logits)?;
    let (_, taken) = peak(|| held.backward())?;
    assert!(taken >= MIB);
    Ok(())
}
