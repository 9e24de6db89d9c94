//! `vmap` against a loop over the examples: values and derivatives of every operation.

mod every_operation;
mod rules;

use cotangent::autograd::{GradOptions, grad_with, hessian, jacobian, jvp, value_and_grad};
use cotangent::{
    DType, Generator, Result, Tensor, keepdim, tensor, vmap,
    vmap::{VmapFallback, VmapOptions, VmapRandomness, vmap_with},
    with_generator,
};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

#[test]
fn functions_nest() -> Outcome {
    let (x, y) = (Tensor::randn_with([2, 3], DType::F64)?, Tensor::randn_with([4, 3], DType::F64)?);
    // All pairs of rows.
    let products = vmap(|a| vmap(|b| a[0].dot(&b[0]), &[&y]), &[&x])?;
    assert!(products.allclose(&x.matmul(&y.t()?)?)?);
    // The inner function over another dimension than the outer.
    let z = Tensor::randn_with([2, 3, 4], DType::F64)?;
    let columns = VmapOptions::new().in_dims([Some(1)]).out_dim(1);
    let sorted = vmap(|z| vmap_with(|column| Ok(column[0].sort(0)?.0), &[&z[0]], columns), &[&z])?;
    assert!(sorted.allclose(&z.sort(1)?.0)?);
    Ok(())
}

#[test]
fn derivatives_of_single_examples() -> Outcome {
    let x = Tensor::randn_with([5, 3], DType::F64)?;
    let w = Tensor::randn_with([3, 3], DType::F64)?;
    let f = |w: &Tensor, x: &Tensor| w.matmul(x)?.tanh()?.square()?.sum(..);
    // With respect to a shared tensor, which has one gradient for each example.
    let found = vmap(|x| Ok(value_and_grad(|w| f(&w[0], &x[0]), &[&w])?.1.swap_remove(0)), &[&x])?;
    for at in 0..5 {
        let want = value_and_grad(|w| f(&w[0], &x.select(0, at)?), &[&w])?.1.swap_remove(0);
        assert!(found.select(0, at)?.allclose(&want)?);
    }
    // The same with a leaf from outside.
    let leaf = w.clone().requires_grad_(true)?;
    let inside = vmap(
        |x| Ok(grad_with(&f(&leaf, &x[0])?, &[&leaf], GradOptions::new())?.swap_remove(0).unwrap_or(w.zeros_like()?)),
        &[&x],
    )?;
    assert!(inside.allclose(&found)?);
    // After it the gradient of the sum.
    vmap(|x| f(&leaf, &x[0]), &[&x])?.sum(..)?.backward()?;
    assert!(leaf.grad().ok_or("there is one")?.allclose(&found.sum(0)?)?);
    // Inside, a leaf cannot store a gradient for each example.
    let error = vmap(
        |x| {
            f(&leaf, &x[0])?.backward()?;
            Ok(x[0].clone())
        },
        &[&x],
    )
    .err()
    .ok_or("it is refused")?;
    assert!(error.to_string().contains("each example"), "{error}");
    let hessians = vmap(|x| hessian(|w| f(w, &x[0]), &w), &[&x])?;
    let jacobians = vmap(|x| jacobian(|x| w.matmul(x)?.tanh(), &x[0]), &[&x])?;
    let tangents = vmap(|x| Ok(jvp(|x| w.matmul(&x[0])?.tanh(), &[&x[0]], &[&x[0]])?.1), &[&x])?;
    for at in 0..5 {
        let x = x.select(0, at)?;
        assert!(hessians.select(0, at)?.allclose(&hessian(|w| f(w, &x), &w)?)?);
        assert!(jacobians.select(0, at)?.allclose(&jacobian(|x| w.matmul(x)?.tanh(), &x)?)?);
        assert!(tangents.select(0, at)?.allclose(&jvp(|x| w.matmul(&x[0])?.tanh(), &[&x], &[&x])?.1)?);
    }
    // And a derivative of a whole vmap.
    let outer = jacobian(|w| vmap(|x| f(w, &x[0]), &[&x]), &w)?;
    assert!(outer.allclose(&found)?);
    Ok(())
}

#[test]
fn bad_calls_are_refused() -> Outcome {
    let x = Tensor::randn([2, 3])?;
    let refused = |result: Result<Tensor>, words: &[&str]| {
        let error = result.map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(words.iter().all(|word| error.contains(word)), "{error:?} has not all of {words:?}");
    };
    refused(
        vmap(
            |x| {
                x[0].sum(..)?.item::<f32>()?;
                Ok(x[0].clone())
            },
            &[&x],
        ),
        &["item", "vmap"],
    );
    refused(
        vmap(
            |x| {
                x[0].to_vec::<f32>()?;
                Ok(x[0].clone())
            },
            &[&x],
        ),
        &["to_vec", "vmap"],
    );
    refused(vmap(|x| Ok(x[0].clone()), &[&x, &Tensor::zeros([4])?]), &["vmap", "[2, 3]", "[4]"]);
    refused(vmap(|x| Ok(x[0].clone()), &[&tensor!(1.0)?]), &["vmap", "rank 0"]);
    refused(
        vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().in_dims([None])),
        &["vmap", "dimension of examples"],
    );
    refused(
        vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().in_dims([Some(0), None])),
        &["vmap", "expected 1 in_dims"],
    );
    refused(vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().out_dim(2)), &["vmap", "2"]);
    refused(vmap(|x| x[0].cumsum(1), &[&x]), &["cumsum", "1", "rank 1"]);
    refused(vmap(|x| x[0].cumsum(-2), &[&x]), &["cumsum", "-2", "rank 1"]);
    refused(vmap(|x| x[0].nonzero(), &[&tensor!([[1.0, 0.0], [1.0, 1.0]])?]), &["nonzero", "shapes"]);
    refused(vmap(|x| x[0].as_strided([2], &[1], 0), &[&x]), &["as_strided", "storage"]);
    refused(vmap(|x| x[0].dropout(0.5), &[&x]), &["dropout", "random"]);
    refused(vmap_with(|x| x[0].histc(), &[&x], VmapFallback::Refuse), &["histc", "batching rule"]);
    // The values of a batched tensor that was leaked cannot be read outside either.
    let mut kept = None;
    vmap(
        |x| {
            kept = Some(x[0].clone());
            Ok(x[0].clone())
        },
        &[&x],
    )?;
    let kept = kept.ok_or("it was kept")?;
    assert!(kept.to_vec::<f32>().is_err() && kept.exp()?.to_vec::<f32>().is_err());
    let printed = format!("{kept:?} {kept}");
    assert!(printed.contains("vmap"), "{printed}");
    Ok(())
}

#[test]
fn random_numbers_as_asked_for() -> Outcome {
    let x = Tensor::ones([4, 50])?;
    let rows = |randomness| vmap_with(|x| x[0].dropout(0.5), &[&x], randomness)?.chunk(4, 0);
    let same = rows(VmapRandomness::Same)?;
    assert!(same.iter().all(|row| row.equal(&same[0]).unwrap_or(false)) && same[0].max(..)?.item::<f32>()? == 2.0);
    let different = rows(VmapRandomness::Different)?;
    assert!(!different[0].equal(&different[1])? && !different[1].equal(&different[2])?);
    // The same numbers as in a loop.
    let drawn = with_generator(&mut Generator::seed(3), || {
        vmap_with(|x| x[0].add(Tensor::randn([50])?), &[&x], VmapRandomness::Different)
    })?;
    let loops = with_generator(&mut Generator::seed(3), || {
        (0..4).map(|_| Tensor::randn([50])).collect::<Result<Vec<Tensor>>>()
    })?;
    assert!(drawn.equal(&Tensor::stack(&loops, 0)?.add(1.0)?)?);
    Ok(())
}

#[test]
fn nothing_and_one_example() -> Outcome {
    let none = vmap(|x| x[0].tanh()?.sum(..), &[&Tensor::zeros([0, 3])?])?;
    assert_eq!(none.shape(), [0]);
    let x = Tensor::randn([1, 3])?;
    assert!(vmap(|x| x[0].softmax(0), &[&x])?.allclose(&x.softmax(1)?)?);
    // A result that does not depend on the examples is repeated.
    assert_eq!(vmap(|_| Tensor::ones([2]), &[&Tensor::zeros([3, 1])?])?.shape(), [3, 2]);
    let means = vmap(|x| x[0].mean(keepdim(..)), &[&Tensor::ones([3, 2, 2])?])?;
    assert_eq!((means.shape(), means.to_vec::<f32>()?), (&[3, 1, 1][..], vec![1.0; 3]));
    Ok(())
}

#[test]
fn sizes_are_checked_with_the_examples() -> Outcome {
    let x = Tensor::ones([1])?.expand([1_usize << 20])?;
    let y = Tensor::ones([1])?.expand([1_usize << 56])?;
    for result in [
        vmap(|x| x[0].add(&y), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56])?.exp(), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56])?.sum(..), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56]), &[&x]),
    ] {
        let error = result.err().ok_or("it is refused")?.to_string();
        assert!(error.contains("addressed"), "{error}");
    }
    Ok(())
}

#[test]
fn a_derivative_on_another_thread_is_that_of_single_examples() -> Outcome {
    let (x, w) = (Tensor::arange_with(1, 4, DType::F64)?, tensor!(2.0_f64)?.requires_grad_(true)?);
    let slopes = vmap(
        |x| {
            let y = w.mul(&x[0])?;
            let grads = std::thread::scope(|scope| scope.spawn(|| grad_with(&y, &[&w], GradOptions::new())).join());
            Ok(grads.map_err(|_| "no panic").expect("no panic")?.swap_remove(0).unwrap_or(y))
        },
        &[&x],
    )?;
    assert_eq!(slopes.to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn a_generator_of_ones_own_draws_as_asked_for() -> Outcome {
    let x = Tensor::zeros([3])?;
    let drawn = |randomness| vmap_with(|x| x[0].add(Generator::seed(1).randn([])?), &[&x], randomness);
    assert!(drawn(VmapRandomness::Refuse).is_err() && drawn(VmapRandomness::Different).is_err());
    let same = drawn(VmapRandomness::Same)?.to_vec::<f32>()?;
    assert!(same[0] == same[1] && same[1] == same[2]);
    Ok(())
}
