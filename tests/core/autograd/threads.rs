//! Several threads, on separate graphs and on a shared one; and the same bits with any number of threads.

use super::{bits, leaf, normal};
use cotangent::autograd::{BackwardOptions, GradOptions, grad_with};
use cotangent::{DType, Generator, Result, Tensor, settings::with_num_threads};
use std::sync::Arc;

/// Something with shared values, broadcasts and large sums.
fn network(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let h = x.mul(w)?.tanh()?;
    let h = h.add(&x.mul(&h)?)?;
    h.exp()?.mean(0)?.mul(w)?.sum(..)
}

fn gradient(x: &Tensor, w: &Tensor) -> Result<Vec<u64>> {
    let grads = grad_with(&network(x, w)?, &[w, x], GradOptions::new())?;
    let mut all = Vec::new();
    for grad in grads.into_iter().flatten() {
        all.extend(bits(&grad)?);
    }
    Ok(all)
}

#[test]
fn threads_with_graphs_of_their_own() -> Result<()> {
    let x = normal(1, [50, 20])?.requires_grad_(true)?;
    let w = normal(2, [20])?.requires_grad_(true)?;
    let expected = gradient(&x, &w)?;
    assert_eq!(expected.len(), 20 + 1000);
    std::thread::scope(|scope| {
        let run = || (0..20).all(|_| gradient(&x, &w).is_ok_and(|got| got == expected));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok_and(|same| same)));
    });
    Ok(())
}

#[test]
fn threads_over_one_retained_graph() -> Result<()> {
    let x = normal(1, [50, 20])?.requires_grad_(true)?;
    let w = normal(2, [20])?.requires_grad_(true)?;
    let y = network(&x, &w)?;
    let pass = |how: GradOptions| grad_with(&y, &[&w], how)?.iter().flatten().map(bits).collect::<Result<Vec<_>>>();
    let expected = pass(GradOptions::new().retain_graph(true))?;
    std::thread::scope(|scope| {
        let run = |at: usize| {
            let even = at.is_multiple_of(2);
            let how = GradOptions::new().retain_graph(even).create_graph(!even);
            (0..20).all(|_| pass(how.clone()).is_ok_and(|got| got == expected))
        };
        let threads: Vec<_> = (0..4).map(|at| scope.spawn(move || run(at))).collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok_and(|same| same)));
    });
    // Into the leaf from all threads at once: integers, so that the order of the sums does not matter.
    let x = leaf([1.0, 2.0])?;
    let y = x.mul(3.0)?.sum(..)?;
    std::thread::scope(|scope| {
        let run = || (0..50).all(|_| y.backward_with(BackwardOptions::new().retain_graph(true)).is_ok());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok_and(|fine| fine)));
    });
    assert_eq!(super::grad_of(&x)?, [600.0, 600.0]);
    Ok(())
}

#[test]
fn of_two_passes_that_free_one_graph_one_is_refused() -> Result<()> {
    for _ in 0..50 {
        let x = leaf([1.0])?;
        let y = Arc::new(x.exp()?.exp()?.sum(..)?);
        let run = |y: Arc<Tensor>| std::thread::spawn(move || y.backward().is_ok());
        let threads = [run(y.clone()), run(y.clone())];
        let fine = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|&fine| fine).count();
        assert_eq!(
            fine,
            usize::from(x.grad().is_some()),
            "a pass that failed left a gradient, or one that did not left none"
        );
        assert!(fine <= 1);
    }
    Ok(())
}

/// Three steps of gradient descent on a network of two layers, with sizes that are split among threads.
fn training() -> Result<Vec<u64>> {
    let mut generator = Generator::seed(7);
    let (x, target) = (generator.randn([512, 64])?, generator.randn([512, 16])?);
    let mut weights = Vec::new();
    for shape in [[64, 128], [128, 16]] {
        weights.push(generator.randn(shape)?.mul(0.1)?.requires_grad_(true)?);
    }
    let mut bias = Tensor::zeros([128])?.requires_grad_(true)?;
    let mut trace = Vec::new();
    for _ in 0..3 {
        let h = x.matmul(&weights[0])?.add(&bias)?.tanh()?;
        let loss = h.matmul(&weights[1])?.sub(&target)?.square()?.mean(..)?;
        loss.backward()?;
        trace.extend(bits(&loss)?);
        for parameter in weights.iter_mut().chain([&mut bias]) {
            let step = parameter.take_grad().map_or_else(|| parameter.zeros_like(), |g| g.mul(0.5))?;
            cotangent::autograd::no_grad(|| parameter.sub_(&step))?;
            trace.extend(bits(parameter)?);
        }
    }
    Ok(trace)
}

#[test]
fn the_number_of_threads_changes_no_bit() -> Result<()> {
    let in_pool = |threads| with_num_threads(threads, training)?;
    let one = in_pool(1)?;
    assert!(one.len() > 3 * 64 * 128);
    assert!(one == in_pool(4)?, "four threads compute other bits than one");
    // A sum that is large enough to be split.
    let x = Generator::seed(3).randn_with([1 << 20], DType::F32)?;
    let total = |threads| with_num_threads(threads, || bits(&x.exp()?.sum(..)?))?;
    assert_eq!(total(1)?, total(4)?);
    Ok(())
}
