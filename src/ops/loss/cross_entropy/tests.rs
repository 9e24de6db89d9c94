use super::*;
use crate::autograd::{GradOptions, grad_with};
use crate::error::err;
use crate::{Generator, tensor};

/// One row of the loss, from its definition.
fn row_loss(x: &[f64], class: usize, weight: &[f64], smoothing: f64) -> f64 {
    let lse = x.iter().map(|x| x.exp()).sum::<f64>().ln();
    let even: f64 = x.iter().zip(weight).map(|(x, w)| w * (lse - x)).sum();
    (1.0 - smoothing) * weight[class] * (lse - x[class]) + smoothing / x.len() as f64 * even
}

fn class_weights() -> Result<Tensor> {
    spread([37], 0.5, 2.0)
}

fn options(weights: &Tensor) -> Vec<CrossEntropyOptions<'_>> {
    let mut all = Vec::new();
    for reduction in REDUCTIONS {
        for label_smoothing in [0.0, 0.3] {
            for weight in [None, Some(weights)] {
                all.push(CrossEntropyOptions { weight, label_smoothing, reduction, ignore_index: 5 });
            }
        }
    }
    all
}

/// The gradient of one input.
fn gradient(y: &Tensor, x: &Tensor, options: GradOptions<'_>) -> Result<Tensor> {
    let found = grad_with(y, &[x], options)?.pop().flatten();
    found.ok_or_else(|| err!(Graph, "test", "there is no gradient"))
}

fn problem(rows: usize) -> Result<(Tensor, Tensor)> {
    Ok((normal([rows, 37], 1)?.mul(3.0)?.requires_grad_(true)?, Generator::seed(2).randint(0, 37, [rows])?))
}

#[cotangent_macros::unit_test]
fn cross_entropy_is_what_its_definition_says() -> Result<()> {
    let (x, target) = problem(100)?;
    let (xs, classes) = (x.to_vec::<f64>()?, target.to_vec::<i64>()?);
    assert!(classes.contains(&5), "a row that does not count");
    for options in options(&class_weights()?) {
        let weight = options.weight.map_or(Ok(vec![1.0; 37]), Tensor::to_vec::<f64>)?;
        let rows = xs.chunks(37).zip(&classes);
        let losses: Vec<f64> = rows
            .map(|(x, &c)| if c == 5 { 0.0 } else { row_loss(x, c as usize, &weight, options.label_smoothing) })
            .collect();
        let count: f64 = classes.iter().filter(|&&c| c != 5).map(|&c| weight[c as usize]).sum();
        let want = match options.reduction {
            Reduction::None => losses,
            Reduction::Sum => vec![losses.iter().sum()],
            Reduction::Mean => vec![losses.iter().sum::<f64>() / count],
        };
        let got = x.cross_entropy_with(&target, options.clone())?.to_vec::<f64>()?;
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-12 * (1.0 + want.abs()), "{options:?}: {got}, not {want}");
        }
    }
    Ok(())
}

/// Rows of several blocks: the maximum comes early or late, and the first blocks may have no finite element.
#[cotangent_macros::unit_test]
fn long_rows_are_what_the_definition_says() -> Result<()> {
    let (rows, classes) = (4, 5000);
    let mut values = normal([rows, classes], 1)?.to_vec::<f64>()?;
    for i in 0..classes {
        values[classes + i] += i as f64 * 0.05;
        values[2 * classes + i] -= i as f64 * 0.05;
        values[3 * classes + i] = if i < 3000 { f64::NEG_INFINITY } else { values[3 * classes + i] };
    }
    let target = Tensor::from_vec(vec![17_i64, 4999, 3, 4000], [rows])?;
    let x = Tensor::from_vec(values.clone(), [rows, classes])?.requires_grad_(true)?;
    let loss = x.cross_entropy_with(&target, Reduction::None)?;
    loss.backward_with(&Tensor::from_vec(vec![1.0; rows], [rows])?)?;
    let grads = x.grad().map(|g| g.to_vec::<f64>()).transpose()?.unwrap_or_default();
    assert_eq!(grads.len(), rows * classes);
    for (row, (&loss, &class)) in loss.to_vec::<f64>()?.iter().zip(&target.to_vec::<i64>()?).enumerate() {
        let x = &values[row * classes..][..classes];
        let want = x.iter().map(|x| x.exp()).sum::<f64>().ln() - x[class as usize];
        assert!((loss - want).abs() <= 1e-12 * want, "row {row}: {loss}, not {want}");
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        for (i, (x, got)) in x.iter().zip(&grads[row * classes..]).enumerate() {
            let want = x.exp() / sum - f64::from(u8::from(i == class as usize));
            assert!((got - want).abs() <= 1e-12 * want.abs(), "{row}, {i}: {got}, not {want}");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_fused_gradient_is_the_plain_one() -> Result<()> {
    let (x, target) = problem(100)?;
    for options in options(&class_weights()?) {
        let g = if options.reduction == Reduction::None { normal([100], 7)? } else { normal([], 7)? };
        let found = |create_graph: bool| {
            let loss = x.cross_entropy_with(&target, options.clone())?;
            gradient(&loss, &x, GradOptions::new().gradient(&g).create_graph(create_graph))
        };
        let (fused, plain) = (found(false)?, found(true)?);
        assert!(plain.requires_grad() && !fused.requires_grad());
        assert!(fused.allclose_with(&plain, (1e-12, 1e-13))?, "{options:?}");
    }
    Ok(())
}

/// The fused and the plain gradient agree with each other; a mistake in both is found only by this comparison.
#[cotangent_macros::unit_test]
fn cross_entropy_is_nll_loss_after_log_softmax() -> Result<()> {
    for (shape, target) in [(&[6, 4][..], &[6][..]), (&[3, 4, 2, 5], &[3, 2, 5]), (&[4], &[])] {
        let x = normal(shape, 1)?.requires_grad_(true)?;
        let target = Generator::seed(3).randint(0, 4, target)?;
        for reduction in REDUCTIONS {
            let weight = spread([4], 0.5, 2.0)?;
            let options = CrossEntropyOptions::new().weight(&weight).reduction(reduction).ignore_index(2);
            let fused = x.cross_entropy_with(&target, options)?;
            let options = NllLossOptions::new().weight(&weight).reduction(reduction).ignore_index(2);
            let plain = x.log_softmax(class_dim(&x))?.nll_loss_with(&target, options)?;
            assert!(fused.allclose_with(&plain, (1e-13, 1e-14))?, "{fused} is not {plain}");
            let g = normal(fused.shape(), 4)?;
            let (fused, plain) = (gradient(&fused, &x, (&g).into())?, gradient(&plain, &x, (&g).into())?);
            assert!(fused.allclose_with(&plain, (1e-12, 1e-13))?, "{fused} is not {plain}");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn certain_targets_are_class_targets() -> Result<()> {
    let x = normal([5, 3], 1)?;
    let target = Tensor::from_slice(&[0_i64, 2, 1, 1, 0], [5])?;
    let certain = target.unsqueeze(1)?.eq(&Tensor::arange(0, 3)?)?.to_dtype(DType::F64)?;
    let options = CrossEntropyOptions::new().label_smoothing(0.2);
    let (a, b) = (x.cross_entropy_with(&target, options.clone())?, x.cross_entropy_with(&certain, options)?);
    assert!(a.allclose_with(&b, (1e-14, 0.0))?, "{a} is not {b}");
    Ok(())
}

#[cotangent_macros::unit_test]
fn large_logits_keep_their_digits() -> Result<()> {
    let x = Tensor::from_slice(&[1e6_f32, 1e6 - 1.0, -1e6], [1, 3])?.requires_grad_(true)?;
    let loss = x.cross_entropy(&tensor!([1])?)?;
    assert!((loss.item::<f32>()? - 1.313_261_7).abs() < 1e-6, "{loss}");
    loss.backward()?;
    let grad = x.grad().map(|g| g.to_vec::<f32>()).transpose()?.unwrap_or_default();
    assert!((grad[0] - 0.731_058_6).abs() < 1e-6 && grad[2] == 0.0, "{grad:?}");
    Ok(())
}

#[cotangent_macros::unit_test]
fn nothing_but_ignored_classes_has_no_mean() -> Result<()> {
    let (x, target) = (normal([2, 3], 1)?.requires_grad_(true)?, Tensor::full([2], -100)?);
    let losses: [fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>; 2] = [
        |x, target, reduction| x.cross_entropy_with(target, reduction),
        |x, target, reduction| x.nll_loss_with(target, reduction),
    ];
    for loss in losses {
        assert!(loss(&x, &target, Reduction::Mean)?.item::<f64>()?.is_nan());
        let nothing = loss(&x, &target, Reduction::Sum)?;
        assert_eq!(nothing.item::<f64>()?, 0.0);
        assert_eq!(gradient(&nothing, &x, GradOptions::new())?.to_vec::<f64>()?, [0.0; 6]);
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn rows_that_do_not_count_may_hold_anything() -> Result<()> {
    let x = Tensor::from_slice(&[f64::NAN, f64::INFINITY, 0.0, 1.0], [2, 2])?.requires_grad_(true)?;
    let target = Tensor::from_slice(&[-100_i64, 1], [2])?;
    for create_graph in [false, true] {
        let loss = x.cross_entropy(&target)?;
        assert!(loss.item::<f64>()?.is_finite());
        let grad = gradient(&loss, &x, GradOptions::new().create_graph(create_graph))?.to_vec::<f64>()?;
        assert_eq!(grad[..2], [0.0, 0.0]);
        assert!(grad[2] > 0.2, "{grad:?}");
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn half_precision_is_computed_in_f32_and_rounded_once() -> Result<()> {
    let wide = Generator::seed(1).randn([64, 100])?;
    let target = Generator::seed(2).randint(0, 100, [64])?;
    for dtype in [DType::F16, DType::BF16] {
        let half = wide.to_dtype(dtype)?;
        let want = half.to_dtype(DType::F32)?.cross_entropy_with(&target, Reduction::Sum)?.to_dtype(dtype)?;
        let got = half.cross_entropy_with(&target, Reduction::Sum)?;
        assert!(got.dtype() == dtype && got.equal(&want)?, "{got} is not {want}");
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn a_gradient_written_over_the_logits_is_the_same() -> Result<()> {
    let (x, target) = problem(50)?;
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let x = x.detach().to_dtype(dtype)?.requires_grad_(true)?;
        for options in options(&class_weights()?) {
            let found = |retain_graph: bool, held: &mut Vec<Tensor>| -> Result<Tensor> {
                let logits = x.mul(2.0)?;
                let loss = logits.cross_entropy_with(&target, options.clone())?.sum(..)?;
                if retain_graph {
                    held.push(logits);
                } else {
                    drop(logits);
                }
                gradient(&loss, &x, GradOptions::new().retain_graph(retain_graph))
            };
            let mut held = Vec::new();
            let apart = found(true, &mut held)?;
            assert!(found(false, &mut held)?.equal(&apart)?, "{dtype} {options:?}");
            assert!(held[0].equal(&x.mul(2.0)?)?, "logits with another handle are not overwritten");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
    let (x, target) = problem(4000)?;
    for label_smoothing in [0.0, 0.1] {
        alike_on_any_number_of_threads(&x, &target, label_smoothing)?;
    }
    Ok(())
}

fn alike_on_any_number_of_threads(x: &Tensor, target: &Tensor, smoothing: f64) -> Result<()> {
    let run = |threads: usize| -> Result<(Tensor, Tensor)> {
        crate::backend::with_num_threads(threads, || {
            let loss = x.cross_entropy_with(target, CrossEntropyOptions::new().label_smoothing(smoothing))?;
            let grad = gradient(&loss, x, GradOptions::new())?;
            Ok((loss, grad))
        })?
    };
    let (loss, grad) = run(1)?;
    for threads in [2, 5] {
        let (other_loss, other_grad) = run(threads)?;
        assert!(other_loss.equal(&loss)? && other_grad.equal(&grad)?, "{threads} threads");
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn mse_loss_and_its_two_gradients() -> Result<()> {
    let x = Tensor::from_slice(&[1.0_f64, 5.0], [2])?.requires_grad_(true)?;
    let y = Tensor::from_slice(&[2.0_f64, 2.0], [2])?.requires_grad_(true)?;
    for create_graph in [false, true] {
        let loss = x.mse_loss(&y)?;
        assert_eq!((loss.item::<f64>()?, loss.grad_fn()), (5.0, Some("mse_loss")));
        let grads = grad_with(&loss, &[&x, &y], GradOptions::new().create_graph(create_graph))?;
        assert!(grads.iter().flatten().all(|grad| grad.requires_grad() == create_graph));
        let values: Vec<_> = grads.iter().flatten().map(Tensor::to_vec::<f64>).collect::<Result<_>>()?;
        assert_eq!(values, [[-1.0, 3.0], [1.0, -3.0]]);
    }
    assert_eq!(x.mse_loss_with(&y, Reduction::None)?.to_vec::<f64>()?, [1.0, 9.0]);
    assert_eq!(x.mse_loss_with(&y, Reduction::Sum)?.item::<f64>()?, 10.0);
    Ok(())
}

#[cotangent_macros::unit_test]
fn refusals_name_the_values() -> Result<()> {
    for op in OPS {
        for case in op.error_cases()? {
            let outcome = case.call.bind(op).and_then(|args| op.call(&args));
            let message = outcome.map_or_else(|e| e.to_string(), |y| format!("not refused: {y:?}"));
            let named = message.contains(op.name) && case.message.iter().all(|part| message.contains(part));
            assert!(named, "{case:?}: {message}");
        }
    }
    Ok(())
}
