use super::*;
use crate::autograd::{GradOptions, Tape, grad_with};
use crate::{Generator, manual_seed, with_generator};

fn leaf(shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
    normal(shape, seed)?.requires_grad_(true)
}

fn both<'a>(weight: &'a Tensor, bias: &'a Tensor) -> LayerNormOptions<'a> {
    LayerNormOptions::new().weight(weight).bias(bias)
}

fn found(grads: Vec<Option<Tensor>>) -> Vec<Tensor> {
    grads.into_iter().flatten().collect()
}

#[cotangent_macros::unit_test]
fn layer_norm_is_what_its_definition_says() -> Result<()> {
    for len in [1, 3, 17, 40, 3000] {
        let (x, w, b) = (normal([3, len], 1)?.add(5.0)?, normal([len], 2)?, normal([len], 3)?);
        let (weight, bias) = (w.to_vec::<f64>()?, b.to_vec::<f64>()?);
        for (with_w, with_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let (w, b) = (Some(&w).filter(|_| with_w), Some(&b).filter(|_| with_b));
            let options = LayerNormOptions::new().weight(w).bias(b).eps(1e-3);
            let got = x.layer_norm_with([len], options)?.to_vec::<f64>()?;
            for (row, got) in x.to_vec::<f64>()?.chunks(len).zip(got.chunks(len)) {
                let mean = row.iter().sum::<f64>() / len as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len as f64;
                for i in 0..len {
                    let mut want = (row[i] - mean) / (variance + 1e-3).sqrt();
                    want = if with_w { want * weight[i] } else { want };
                    want = if with_b { want + bias[i] } else { want };
                    assert!((got[i] - want).abs() < 1e-12, "{len}, {i}: {}, not {want}", got[i]);
                }
            }
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_fused_gradients_are_the_plain_ones() -> Result<()> {
    for (shape, normalized) in
        [(&[4, 6][..], &[6][..]), (&[700, 100], &[100]), (&[5, 3, 7], &[3, 7]), (&[8], &[8]), (&[0, 3], &[3])]
    {
        let (x, w, b) = (leaf(shape, 1)?, leaf(normalized, 2)?, leaf(normalized, 3)?);
        let y = x.layer_norm_with(normalized, both(&w, &b))?;
        let g = normal(shape, 4)?;
        let (retained, recorded) = (GradOptions::new().retain_graph(true), GradOptions::new().create_graph(true));
        let (retained, recorded) = (retained.gradient(&g), recorded.gradient(&g));
        let fused = found(grad_with(&y, &[&x, &w, &b], retained.clone())?);
        let plain = found(grad_with(&y, &[&x, &w, &b], recorded.clone())?);
        assert_eq!((fused.len(), plain.len()), (3, 3));
        for (fused, plain) in fused.iter().zip(&plain) {
            assert!(plain.requires_grad() || shape[0] == 0 || plain.shape() == normalized);
            assert!(fused.allclose_with(plain, (1e-12, 1e-12))?, "{shape:?}: {fused} is not {plain}");
        }
        let unweighted = x.layer_norm(normalized)?;
        let fused = found(grad_with(&unweighted, &[&x], retained)?);
        let plain = found(grad_with(&unweighted, &[&x], recorded)?);
        assert!(fused[0].allclose_with(&plain[0], (1e-12, 1e-12))?, "{shape:?}: {} is not {}", fused[0], plain[0]);
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn layer_norm_reads_any_strides() -> Result<()> {
    let x = normal([6, 4], 1)?.t()?;
    let (y, z) = (x.layer_norm([6])?, x.contiguous()?.layer_norm([6])?);
    assert!(y.equal(&z)?);
    Ok(())
}

#[cotangent_macros::unit_test]
fn layer_norm_of_half_precision_is_rounded_once() -> Result<()> {
    let (x, w) = (normal([5, 33], 1)?.add(3.0)?, normal([33], 2)?);
    for dtype in [DType::F16, DType::BF16] {
        let (x, w) = (x.to_dtype(dtype)?, w.to_dtype(dtype)?);
        let wide_w = w.to_dtype(DType::F32)?;
        let wide = x.to_dtype(DType::F32)?.layer_norm_with([33], LayerNormOptions::new().weight(&wide_w))?;
        let y = x.layer_norm_with([33], LayerNormOptions::new().weight(&w))?;
        assert!(y.dtype() == dtype && y.equal(&wide.to_dtype(dtype)?)?);
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn layer_norm_saves_only_what_is_needed() -> Result<()> {
    let tape = Tape::new();
    let (x, w, b) = (normal([4, 6], 1)?, tape.variable(&normal([6], 2)?)?, tape.variable(&normal([6], 3)?)?);
    let saved = |x: &Tensor, w: &Tensor, b: &Tensor| -> Result<usize> {
        let before = tape.saved_bytes();
        x.layer_norm_with([6], both(w, b))?;
        Ok(tape.saved_bytes() - before)
    };
    assert_eq!(saved(&x, &w.detach(), &b)?, 0, "a bias alone");
    assert_eq!(saved(&x, &w, &b)?, (24 + 8) * 8, "the input and two numbers a row");
    assert_eq!(saved(&tape.variable(&x)?, &w, &b)?, (24 + 8 + 6) * 8, "and the weight");
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
    let (x, w, b) = (leaf([3000, 130], 1)?, leaf([130], 2)?, leaf([130], 3)?);
    let run = |threads: usize| -> Result<Vec<Tensor>> {
        crate::backend::with_num_threads(threads, || {
            let y = x.layer_norm_with([130], both(&w, &b))?;
            let mut all = found(grad_with(&y, &[&x, &w, &b], &y.detach().square()?)?);
            all.push(y);
            all.push(with_generator(&mut Generator::seed(7), || x.dropout(0.3))?);
            Ok(all)
        })?
    };
    let one = run(1)?;
    for threads in [2, 5] {
        for (at, (a, b)) in run(threads)?.iter().zip(&one).enumerate() {
            assert!(a.equal(b)?, "tensor {at} on {threads} threads");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn dropout_drops_a_share_and_scales_the_rest() -> Result<()> {
    let x = Tensor::full_with([100_000], 3.0, DType::F64)?.requires_grad_(true)?;
    let y = with_generator(&mut Generator::seed(1), || x.dropout(0.25))?;
    let values = y.to_vec::<f64>()?;
    let dropped = values.iter().filter(|&&y| y == 0.0).count();
    assert!((24_500..25_500).contains(&dropped), "{dropped}");
    assert!(values.iter().all(|&y| y == 0.0 || y == 4.0));
    // What was dropped gets no gradient, the rest the scale.
    y.sum(..)?.backward()?;
    let grad = x.grad().map(|g| g.to_vec::<f64>()).transpose()?.unwrap_or_default();
    assert!(grad.iter().zip(&values).all(|(&g, &y)| g == if y == 0.0 { 0.0 } else { 1.0 / 0.75 }));
    Ok(())
}

#[cotangent_macros::unit_test]
fn dropout_draws_again_and_follows_the_seed() -> Result<()> {
    let x = Tensor::ones([1000])?;
    let draw = |seed: u64| {
        with_generator(&mut Generator::seed(seed), || {
            manual_seed(seed);
            Ok::<_, crate::Error>((x.dropout(0.5)?, x.dropout(0.5)?))
        })
    };
    let ((a, b), (c, d)) = (draw(1)?, draw(1)?);
    assert!(a.equal(&c)? && b.equal(&d)? && !a.equal(&b)?);
    assert!(!a.equal(&draw(2)?.0)?);
    Ok(())
}

#[cotangent_macros::unit_test]
fn dropout_at_the_ends() -> Result<()> {
    let x = Tensor::from_slice(&[1.0_f32, f32::INFINITY, f32::NAN], [3])?;
    assert!(x.dropout(0.0)?.is_same(&x) && x.dropout_with(1.0, false)?.is_same(&x));
    assert_eq!(x.dropout(1.0)?.to_vec::<f32>()?, [0.0; 3]);
    Ok(())
}

#[cotangent_macros::unit_test]
fn dropout_saves_a_byte_for_each_element() -> Result<()> {
    let tape = Tape::new();
    let x = tape.variable(&normal([50], 1)?)?;
    x.dropout(0.5)?;
    assert_eq!(tape.saved_bytes(), 50);
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
