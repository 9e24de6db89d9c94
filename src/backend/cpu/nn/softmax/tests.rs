//! Compares the kernels with the formulas, and with themselves for different numbers of threads.

use super::*;
use crate::backend::cpu::reduce::tests::{arrangements, on_threads};
use crate::{Generator, Tensor};

fn run(kind: SoftmaxKind, inputs: &[&Tensor], dim: Option<usize>) -> Result<Tensor> {
    let mut out = Tensor::empty("softmax", inputs[0].layout().shape().clone(), inputs[0].dtype(), inputs[0].device())?;
    let mut to = out.as_view_mut("softmax")?;
    match inputs {
        [x] => softmax("softmax", kind, [x.as_view()?], dim, &mut to)?,
        [g, y, ..] => softmax("softmax", kind, [g.as_view()?, y.as_view()?], dim, &mut to)?,
        [] => {}
    }
    Ok(out)
}

/// The specification: the formulas, row by row and index by index, in f64.
fn reference(kind: SoftmaxKind, inputs: &[&Tensor], dim: Option<usize>) -> Result<Vec<f64>> {
    let x = inputs[0];
    let read = |t: &Tensor| -> Result<Vec<f64>> { t.to_dtype(DType::F64)?.to_vec::<f64>() };
    let (a, b) = (read(x)?, read(inputs[inputs.len() - 1])?);
    let length = dim.map_or(1, |d| x.shape()[d]);
    let after: usize = dim.map_or(1, |d| x.shape()[d + 1..].iter().product());
    let mut out = vec![0.0; a.len()];
    for first in (0..a.len()).filter(|i| length > 0 && (i / after).is_multiple_of(length)) {
        let all = || (0..length).map(|i| first + i * after);
        let max = all().fold(f64::NEG_INFINITY, |m, i| if a[i] > m || a[i].is_nan() { a[i] } else { m });
        let exps: f64 = all().map(|i| (a[i] - max).exp()).sum();
        let (sum, dot): (f64, f64) = (all().map(|i| a[i]).sum(), all().map(|i| a[i] * b[i]).sum());
        for i in all() {
            out[i] = match kind {
                SoftmaxKind::Softmax => (a[i] - max).exp() / exps,
                SoftmaxKind::LogSoftmax => a[i] - max - exps.ln(),
                SoftmaxKind::SoftmaxGrad => b[i] * (a[i] - dot),
                SoftmaxKind::LogSoftmaxGrad => a[i] - b[i].exp() * sum,
            };
        }
    }
    Ok(out)
}

const ALL: [SoftmaxKind; 4] =
    [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax, SoftmaxKind::SoftmaxGrad, SoftmaxKind::LogSoftmaxGrad];

#[cotangent_macros::unit_test]
fn every_layout_and_dtype_agrees_with_the_reference() -> Result<()> {
    let shapes: [&[usize]; 8] = [&[], &[1], &[3, 7], &[2, 3, 40], &[40, 3, 2], &[5, 2000], &[1000, 9], &[2, 0, 3]];
    for shape in shapes {
        let x = Generator::seed(6).randn_with(shape, DType::F64)?.mul(2.0)?;
        // Small, so that the subtracted sums do not dominate.
        let other = Generator::seed(7).randn_with(shape, DType::F64)?.mul(0.02)?;
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::F16, 1e-2), (DType::BF16, 5e-2)] {
            let (x, other) = (x.to_dtype(dtype)?, other.to_dtype(dtype)?);
            for ((name, x), (_, other)) in arrangements(&x)?.into_iter().zip(arrangements(&other)?) {
                // The second input has a different memory layout.
                let other = if name == "flipped" { other.copied("test")? } else { other };
                let dims = (0..x.rank()).map(Some);
                for dim in dims.chain((x.rank() == 0).then_some(None)) {
                    for kind in ALL {
                        let two = matches!(kind, SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad);
                        let inputs = if two { vec![&x, &other] } else { vec![&x] };
                        let got = run(kind, &inputs, dim)?.to_dtype(DType::F64)?.to_vec::<f64>()?;
                        for (i, (got, want)) in got.iter().zip(reference(kind, &inputs, dim)?).enumerate() {
                            let what = format!("{kind:?} of {dtype} {:?} {name} along {dim:?} at {i}", x.shape());
                            assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{what}: {got} for {want}");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn rows_without_a_finite_maximum_are_nan_side_by_side_too() -> Result<()> {
    let inf = f64::INFINITY;
    let columns = [[-inf, -inf], [inf, 1.0], [f64::NAN, 1.0], [-inf, 2.0]].repeat(4);
    let x = Tensor::from_vec(columns.concat(), [16, 2])?;
    let side_by_side = x.with_layout(x.layout().transpose("t", 0, 1)?).copied("test")?;
    for (x, dim) in [(&x, 1), (&side_by_side, 0)] {
        for kind in [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax] {
            let (got, want) = (run(kind, &[x], Some(dim))?.to_vec::<f64>()?, reference(kind, &[x], Some(dim))?);
            assert_eq!(format!("{got:?}"), format!("{want:?}"), "{kind:?}");
            assert_eq!(got.iter().filter(|x| x.is_nan()).count(), 24);
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn bits_do_not_depend_on_the_number_of_threads() -> Result<()> {
    let x = Generator::seed(8).randn_with([3, 400, 211], DType::F32)?;
    let y = Generator::seed(9).randn_with([3, 400, 211], DType::F32)?;
    // Along the first dimension of the second pair a row has several pieces.
    let [tall, other] = [10, 11].map(|seed| Generator::seed(seed).randn_with([9000, 20], DType::F32));
    let (tall, other) = (tall?, other?);
    for (x, y, dim) in [(&x, &y, 0), (&x, &y, 1), (&x, &y, 2), (&tall, &other, 0)] {
        for kind in ALL {
            let inputs = if matches!(kind, SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad) {
                vec![x, y]
            } else {
                vec![x]
            };
            let bits = |threads| on_threads(threads, || run(kind, &inputs, Some(dim))?.to_vec::<f32>());
            let one: Vec<u32> = bits(1)?.iter().map(|x| x.to_bits()).collect();
            for threads in [2, 5] {
                let more: Vec<u32> = bits(threads)?.iter().map(|x| x.to_bits()).collect();
                assert!(one == more, "{kind:?} along {dim} on {threads} threads");
            }
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn long_rows_side_by_side_are_joined_from_their_pieces() -> Result<()> {
    // The greatest element of a column comes early or late; some columns start with -∞, and some are all -∞.
    let (length, n) = (9001, 20);
    let mut values = Generator::seed(12).randn_with([length, n], DType::F64)?.to_vec::<f64>()?;
    for i in 0..length {
        values[i * n + 1] += i as f64 * 0.01;
        values[i * n + 2] -= i as f64 * 0.01;
        for (column, until) in [(3, 5000), (4, 8999), (5, length)] {
            values[i * n + column] = if i < until { f64::NEG_INFINITY } else { values[i * n + column] };
        }
    }
    let x = Tensor::from_vec(values, [length, n])?;
    let y = Generator::seed(13).randn_with([length, n], DType::F64)?.mul(0.01)?;
    for kind in ALL {
        let grad = matches!(kind, SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad);
        let inputs = if grad { vec![&y, &y] } else { vec![&x] };
        let (got, want) = (run(kind, &inputs, Some(0))?.to_vec::<f64>()?, reference(kind, &inputs, Some(0))?);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let same = got == want || (got.is_nan() && want.is_nan());
            assert!(same || (got - want).abs() <= 1e-11 * want.abs().max(1e-3), "{kind:?} at {i}: {got} for {want}");
        }
        assert_eq!(got.iter().filter(|x| x.is_nan()).count(), if grad { 0 } else { length });
    }
    Ok(())
}
