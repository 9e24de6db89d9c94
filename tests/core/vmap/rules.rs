//! Operations with non-trivial batching rules: indices, classification losses, attention. All with loops refused.

use super::Outcome;
use crate::checks::both;
use cotangent::autograd::{
    ForwardContext, Function, FunctionContext, GradOptions, apply, grad_with, jvp, value_and_grad,
};
use cotangent::{
    DType, Reduction, Result, Tensor,
    error::Name,
    linalg,
    options::{AttentionOptions, CrossEntropyOptions, EmbeddingOptions, NllLossOptions},
    s, tensor, vmap,
    vmap::{VmapFallback, VmapOptions, vmap_all, vmap_with},
};

/// `vmap` without loops.
fn batched(f: impl FnOnce(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<Tensor> {
    vmap_with(f, inputs, VmapFallback::Refuse)
}

/// The same function in a loop.
fn looped(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<Tensor> {
    let each = (0..inputs[0].shape()[0]).map(|at| {
        let example: Vec<Tensor> = inputs.iter().map(|x| x.select(0, at)).collect::<Result<_>>()?;
        f(&example)
    });
    Tensor::stack(&each.collect::<Result<Vec<_>>>()?, 0)
}

/// Equal except for rounding errors, or both NaN.
fn close(a: &Tensor, b: &Tensor) -> Result<bool> {
    let (x, y) = (a.to_dtype(DType::F64)?.to_vec::<f64>()?, b.to_dtype(DType::F64)?.to_vec::<f64>()?);
    let alike = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * (1.0 + y.abs()) || x == y || x.is_nan() && y.is_nan();
    Ok(a.shape() == b.shape() && x.iter().zip(&y).all(alike))
}

fn normal<const N: usize>(shape: [usize; N]) -> Result<Tensor> {
    Tensor::randn_with(shape, DType::F64)
}

/// Words in batches of examples, and a class for each example.
fn words() -> Result<(Tensor, Tensor)> {
    let words = tensor!([[1, 4, 4, 0], [2, 2, 2, 2], [5, 0, 3, 1], [0, 0, 5, 5], [3, 1, 4, 2]])?;
    Ok((words, tensor!([2, 0, 1, 2, 1])?))
}

#[test]
fn gradients_of_a_classifier_for_each_example() -> Outcome {
    cotangent::manual_seed(1);
    let (words, classes) = words()?;
    let parameters = [normal([6, 3])?, normal([4, 3])?, normal([4])?];
    let refs: Vec<&Tensor> = parameters.iter().collect();
    let loss = |p: &[Tensor], words: &Tensor, class: &Tensor| {
        let options = EmbeddingOptions::new().padding_idx(0).scale_grad_by_freq(true);
        let mean = words.embedding_with(&p[0], options)?.tanh()?.mean(0)?;
        mean.linear(&p[1], Some(&p[2]))?.cross_entropy(class)
    };
    let grads = |x: &[Tensor]| Ok(value_and_grad(|p| loss(p, &x[0], &x[1]), &refs)?.1);
    let found = vmap_all(grads, &[&words, &classes], VmapFallback::Refuse)?;
    for (k, found) in found.iter().enumerate() {
        let want = looped(|x| Ok(grads(x)?.swap_remove(k)), &[&words, &classes])?;
        assert!(close(found, &want)?, "gradient {k}");
        assert!(want.abs()?.max(..)?.item::<f64>()? > 0.01);
    }
    // Their sum is the gradient of the sum, taken from outside.
    let leaves: Vec<Tensor> = parameters.iter().map(|p| p.clone().requires_grad_(true)).collect::<Result<_>>()?;
    let total = batched(|x| loss(&leaves, &x[0], &x[1]), &[&words, &classes])?.sum(..)?;
    let outside = grad_with(&total, &leaves.iter().collect::<Vec<_>>(), GradOptions::new())?;
    for (found, outside) in both(found.iter(), outside) {
        assert!(close(&outside.ok_or("a gradient")?, &found.sum(0)?)?);
    }
    // An ensemble: parameters of each model outside, examples inside.
    let models: Vec<Tensor> =
        parameters.iter().map(|p| Tensor::stack(&[p.clone(), p.mul(0.5)?], 0)).collect::<Result<_>>()?;
    let losses =
        batched(|p| batched(|x| loss(p, &x[0], &x[1]), &[&words, &classes]), &models.iter().collect::<Vec<_>>())?;
    for at in 0..2 {
        let own: Vec<Tensor> = models.iter().map(|p| p.select(0, at)).collect::<Result<_>>()?;
        let want = looped(|x| loss(&own, &x[0], &x[1]), &[&words, &classes])?;
        assert!(close(&losses.select(0, at)?, &want)?);
    }
    // Forward derivatives.
    let tangent = |x: &[Tensor]| Ok(jvp(|p| loss(p, &x[0], &x[1]), &refs, &refs)?.1);
    assert!(close(&batched(tangent, &[&words, &classes])?, &looped(tangent, &[&words, &classes])?)?);
    Ok(())
}

#[test]
fn every_example_has_its_own_mean_of_losses() -> Outcome {
    cotangent::manual_seed(2);
    let (logits, weight) = (normal([3, 4, 3])?, tensor!([0.5_f64, 2.0, 3.0])?);
    // A different number of rows is counted in each example, and none in the last.
    let target = tensor!([[0, 2, 1, 1], [1, -7, -7, 2], [-7, -7, -7, -7]])?;
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        for weight in [None, Some(&weight)] {
            for smoothing in [0.0, 0.3] {
                let options = || {
                    let all =
                        CrossEntropyOptions::new().ignore_index(-7).reduction(reduction).label_smoothing(smoothing);
                    if let Some(weight) = weight { all.weight(weight) } else { all }
                };
                let loss = |x: &Tensor, t: &Tensor| x.cross_entropy_with(t, options());
                let f = |x: &[Tensor]| loss(&x[0], &x[1]);
                assert!(close(&batched(f, &[&logits, &target])?, &looped(f, &[&logits, &target])?)?);
                // Shared logits, and batched targets.
                let shared = |x: &[Tensor]| loss(&logits.select(0, 0)?, &x[0]);
                assert!(close(&batched(shared, &[&target])?, &looped(shared, &[&target])?)?);
                // With dimensions behind the classes.
                let f = |x: &[Tensor]| loss(&x[0].reshape([2, 2, 3])?.movedim(2, 1)?, &x[1].reshape([2, 2])?);
                assert!(close(&batched(f, &[&logits, &target])?, &looped(f, &[&logits, &target])?)?);
                let slope = |x: &[Tensor]| {
                    let of_loss = |p: &[Tensor]| f(&[p[0].clone(), x[1].clone()])?.sum(..);
                    Ok(value_and_grad(of_loss, &[&x[0]])?.1.swap_remove(0))
                };
                assert!(close(&batched(slope, &[&logits, &target])?, &looped(slope, &[&logits, &target])?)?);
            }
            let f = |x: &[Tensor]| {
                let options = NllLossOptions::new().ignore_index(-7).reduction(reduction);
                let options = if let Some(weight) = weight { options.weight(weight) } else { options };
                x[0].log_softmax(1)?.nll_loss_with(&x[1], options)
            };
            assert!(close(&batched(f, &[&logits, &target])?, &looped(f, &[&logits, &target])?)?);
        }
    }
    // No examples, and examples without rows.
    let none =
        batched(|x| x[0].cross_entropy(&x[1]), &[&normal([0, 4, 3])?, &Tensor::zeros_with([0, 4], DType::I64)?])?;
    assert_eq!(none.shape(), [0]);
    let empty = batched(
        |x| x[0].cross_entropy_with(&x[1], Reduction::Sum),
        &[&normal([2, 0, 3])?, &Tensor::zeros_with([2, 0], DType::I64)?],
    )?;
    assert_eq!(empty.to_vec::<f64>()?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn indices_count_from_the_end() -> Outcome {
    cotangent::manual_seed(3);
    let x = normal([3, 4, 5])?;
    let (i, j) = (tensor!([[0, -1], [-4, 3], [2, -2]])?, tensor!([[-5], [4], [-1]])?);
    let values = normal([3, 2, 5])?;
    type F<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;
    let all: [F<'_>; 8] = [
        &|x| x[0].index(s![&x[1]]),
        &|x| x[0].index(s![&x[1], &x[2]]),
        &|x| x[0].index(s![.., &x[2], None]),
        &|x| x[0].index(s![1.., &x[1]]),
        &|x| x[0].take(&x[1]),
        &|x| x[0].index_put(s![&x[1]], &x[3]),
        &|x| x[0].index_put_with(s![&x[1], &x[2]], &x[3].index(s![.., 0])?, true),
        &|x| x[0].index_fill(0, &x[1], 7.5),
    ];
    for (k, f) in all.iter().enumerate() {
        let inputs = [&x, &i, &j, &values];
        assert!(close(&batched(f, &inputs)?, &looped(f, &inputs)?)?, "{k}");
        // Batched indices with a shared tensor, and a shared index with batched tensors.
        let one = [x.select(0, 0)?, i.select(0, 0)?, j.select(0, 0)?, values.select(0, 0)?];
        let indices = |y: &[Tensor]| f(&[one[0].clone(), y[0].clone(), y[1].clone(), one[3].clone()]);
        assert!(close(&batched(indices, &[&i, &j])?, &looped(indices, &[&i, &j])?)?, "{k} by index");
        let tensors = |y: &[Tensor]| f(&[y[0].clone(), one[1].clone(), one[2].clone(), one[3].clone()]);
        assert!(close(&batched(tensors, &[&x])?, &looped(tensors, &[&x])?)?, "{k} by tensor");
        // Tensors outside, indices inside.
        let both = batched(
            |y| batched(|i| f(&[y[0].clone(), i[0].clone(), i[1].clone(), y[1].clone()]), &[&i, &j]),
            &[&x, &values],
        )?;
        for at in 0..3 {
            let own = |i: &[Tensor]| f(&[x.select(0, at)?, i[0].clone(), i[1].clone(), values.select(0, at)?]);
            assert!(close(&both.select(0, at)?, &looped(own, &[&i, &j])?)?, "{k} nested");
        }
        // Empty tensors.
        let none: Vec<Tensor> = inputs.iter().map(|x| x.narrow(0, 0, 0)).collect::<Result<_>>()?;
        let shape = f(&one)?.shape().to_vec();
        let found = batched(f, &none.iter().collect::<Vec<_>>())?;
        assert_eq!((found.shape()[0], &found.shape()[1..]), (0, &shape[..]), "{k}");
    }
    Ok(())
}

#[test]
fn an_index_out_of_range_is_refused_as_without_vmap() -> Outcome {
    let x = normal([2, 4, 3])?;
    let bad = tensor!([[0, 1], [2, 4]])?;
    let target = tensor!([[0, 1, 2, 0], [0, 1, 3, 0]])?;
    type F<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;
    let all: [(F<'_>, &[&str]); 7] = [
        (&|x| x[0].index(s![&x[1]]), &["index: index 4 at", "dimension 0 of shape [4, 3]"]),
        (&|x| x[0].index_select(0, &x[1]), &["index_select: index 4 at", "size 4"]),
        (&|x| x[0].gather(0, &x[1].unsqueeze(1)?), &["gather: index 4 at", "size 4"]),
        (&|x| x[1].embedding(&x[0]), &["embedding: index 4 at", "size 4"]),
        (&|x| x[0].index_add(0, &x[1], &x[0].narrow(0, 0, 2)?), &["index_add: index 4 at", "size 4"]),
        (&|x| x[0].scatter(0, &x[1].unsqueeze(1)?, 1.0), &["scatter: index 4 at", "size 4"]),
        (&|x| x[0].cross_entropy(&x[2]), &["cross_entropy: class 3 at position", "3 classes"]),
    ];
    for (f, words) in all {
        let inputs = [&x, &bad, &target];
        for error in [batched(f, &inputs).err(), looped(f, &inputs).err()] {
            let error = error.ok_or("it is refused")?.to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error} has not all of {words:?}");
        }
    }
    // Shapes are those of one example.
    let error = batched(|x| x[0].gather(1, &x[1].reshape([2, 1, 1])?), &[&x, &bad]).err().ok_or("it is refused")?;
    assert!(["shape [4, 3]", "got shape [2, 1, 1]"].iter().all(|part| error.to_string().contains(part)), "{error}");
    Ok(())
}

#[test]
fn attention_with_masks_of_all_sorts() -> Outcome {
    cotangent::manual_seed(4);
    let (q, k, v) = (normal([3, 2, 4, 5])?, normal([3, 2, 6, 5])?, normal([3, 2, 6, 3])?);
    let seen = normal([3, 4, 6])?.gt(-0.5)?;
    let bias = normal([3, 2, 4, 6])?;
    type F<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;
    let all: [F<'_>; 5] = [
        &|x| x[0].scaled_dot_product_attention(&x[1], &x[2]),
        &|x| x[0].scaled_dot_product_attention_with(&x[1], &x[2], AttentionOptions::new().attn_mask(&x[3])),
        &|x| x[0].scaled_dot_product_attention_with(&x[1], &x[2], AttentionOptions::new().attn_mask(&x[4])),
        &|x| {
            let mask = seen.select(0, 0)?;
            x[0].scaled_dot_product_attention_with(&x[1], &x[2], AttentionOptions::new().attn_mask(&mask))
        },
        &|x| {
            x[0].select(0, 0)?.scaled_dot_product_attention_with(
                &x[1].select(0, 0)?,
                &x[2].select(0, 0)?,
                AttentionOptions::new().is_causal(true),
            )
        },
    ];
    for (k_th, f) in all.iter().enumerate() {
        let inputs = [&q, &k, &v, &seen, &bias];
        assert!(close(&batched(f, &inputs)?, &looped(f, &inputs)?)?, "{k_th}");
        let slope = |x: &[Tensor]| {
            let of = |p: &[Tensor]| {
                f(&[p[0].clone(), p[1].clone(), p[2].clone(), x[3].clone(), x[4].clone()])?.sin()?.sum(..)
            };
            let grads = value_and_grad(of, &[&x[0], &x[1], &x[2]])?.1;
            Tensor::cat(&grads.iter().map(|g| g.flatten(0, -1)).collect::<Result<Vec<_>>>()?, 0)
        };
        assert!(close(&batched(slope, &inputs)?, &looped(slope, &inputs)?)?, "the derivative of {k_th}");
    }
    Ok(())
}

#[test]
fn systems_with_vectors_and_shared_matrices() -> Outcome {
    cotangent::manual_seed(5);
    let a = normal([3, 4, 4])?.add(Tensor::eye_with(4, DType::F64)?.mul(5.0)?)?;
    let (b, many) = (normal([3, 4])?, normal([3, 2, 4, 2])?);
    let f = |x: &[Tensor]| linalg::solve(&x[0], &x[1]);
    for right in [&b, &many] {
        assert!(close(&batched(f, &[&a, right])?, &looped(f, &[&a, right])?)?);
        let shared = |x: &[Tensor]| linalg::solve(&a.select(0, 1)?, &x[0]);
        assert!(close(&batched(shared, &[right])?, &looped(shared, &[right])?)?);
    }
    let triangle = |x: &[Tensor]| linalg::solve_triangular(&x[0], &x[1].unsqueeze(1)?, true);
    assert!(close(&batched(triangle, &[&a, &b])?, &looped(triangle, &[&a, &b])?)?);
    let zeros = Tensor::zeros_with([3, 4, 4], DType::F64)?;
    let error = batched(f, &[&zeros, &b]).err().ok_or("it is refused")?;
    assert!(error.to_string().contains("singular"), "{error}");
    Ok(())
}

#[test]
fn several_results_of_which_one_is_shared_count_once() -> Outcome {
    // The running mean differs between examples, the normalised elements do not.
    let (x, mean) = (normal([4, 2])?.requires_grad_(true)?, normal([3, 2])?);
    let var = Tensor::ones_with([2], DType::F64)?;
    let sum = |x: &Tensor, mean: &Tensor| {
        let (y, mean, _) = x.batch_norm_with_update(mean, &var)?;
        y.pow(3.0)?.sum(..)?.add(&mean.square()?.sum(..)?)
    };
    let found = grad_with(&batched(|m| sum(&x, &m[0]), &[&mean])?.sum(..)?, &[&x], GradOptions::new())?;
    let want = grad_with(&looped(|m| sum(&x, &m[0]), &[&mean])?.sum(..)?, &[&x], GradOptions::new())?;
    let (found, want) = (found[0].clone().ok_or("a gradient")?, want[0].clone().ok_or("a gradient")?);
    assert!(close(&found, &want)?, "{found} {want}");
    Ok(())
}

#[test]
fn a_jacobian_row_by_row() -> Outcome {
    // The graph is recorded once, outside; its cotangents are batched.
    let x = normal([4])?.requires_grad_(true)?;
    let y = x.softmax(0)?.mul(&x)?.cumsum(0)?;
    let row = |v: &[Tensor]| {
        let options = GradOptions::new().gradient(&v[0]).retain_graph(true);
        Ok(grad_with(&y, &[&x], options)?.swap_remove(0).unwrap_or(x.zeros_like()?))
    };
    let eye = Tensor::eye_with(4, DType::F64)?;
    assert!(close(&vmap(row, &[&eye])?, &looped(row, &[&eye])?)?);
    let options = VmapOptions::new().fallback(VmapFallback::Refuse);
    assert!(vmap_with(row, &[&eye], options).is_ok());
    Ok(())
}

/// Three times its input, with a rule that reads the values of the cotangent, which is not possible for a batched tensor.
struct ReadsItsCotangent {
    saves: bool,
}

impl Function for ReadsItsCotangent {
    fn name(&self) -> Name {
        "reads".into()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save(&inputs[0]);
        Ok(vec![inputs[0].mul(3.0)?])
    }

    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let g = Tensor::from_vec(cotangents[0].to_vec::<f64>()?, cotangents[0].shape())?.mul(3.0)?;
        Ok(vec![Some(if self.saves { g.add(&ctx.saved(0)?.mul(0.0)?)? } else { g })])
    }
}

#[test]
fn a_rule_that_reads_values_runs_for_each_cotangent_by_itself() -> Outcome {
    let x = normal([3, 2])?;
    let slope = |saves: bool| {
        move |x: &[Tensor]| {
            let f = |x: &[Tensor]| apply(ReadsItsCotangent { saves }, &[&x[0]])?.square()?.sum(..);
            Ok(value_and_grad(f, &[&x[0]])?.1.swap_remove(0))
        }
    };
    assert!(close(&vmap(slope(false), &[&x])?, &x.mul(18.0)?)?);
    assert!(batched(slope(false), &[&x]).is_err_and(|error| error.to_string().contains("no batching rule")));
    // With a saved value of all examples it would not be the gradient of one.
    let error = vmap(slope(true), &[&x]).err().ok_or("it is refused")?;
    assert!(error.to_string().contains("cannot be read inside vmap"), "{error}");
    Ok(())
}
