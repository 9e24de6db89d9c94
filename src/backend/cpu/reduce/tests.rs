//! Compares the kernels with folds index by index, and with themselves on other numbers of threads.

use super::*;
use crate::Shape;
use crate::backend::deferred::Step;
use crate::backend::spec::Kernel;
use crate::layout::Sizes;
use crate::{Device, Generator, Scalar, Tensor};

/// Every combination of dimensions.
fn subsets(rank: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1_u32 << rank).map(move |bits| (0..rank).filter(|d| bits >> d & 1 == 1).collect())
}

/// The specification: visits every index, in order, and folds in f64.
fn reference(by: Reduce, x: &Tensor, dims: &[usize]) -> Result<Vec<f64>> {
    let shape = x.shape();
    let kept: Vec<usize> = (0..x.rank()).filter(|d| !dims.contains(d)).collect();
    let start = match by {
        Reduce::Sum | Reduce::Mean => 0.0,
        Reduce::Prod => 1.0,
        Reduce::Max => f64::NEG_INFINITY,
        Reduce::Min => f64::INFINITY,
    };
    let mut out = vec![start; kept.iter().map(|&d| shape[d]).product()];
    let numel: usize = shape.iter().product();
    for flat in 0..numel {
        let (mut index, mut rest) = (vec![0; x.rank()], flat);
        for d in (0..x.rank()).rev() {
            (index[d], rest) = ((rest % shape[d]) as isize, rest / shape[d]);
        }
        let value = x.at(&index)?.to_f64();
        let position = &mut out[kept.iter().fold(0, |at, &d| at * shape[d] + index[d] as usize)];
        *position = match by {
            Reduce::Sum | Reduce::Mean => *position + value,
            Reduce::Prod => *position * value,
            Reduce::Max => {
                if value > *position || value.is_nan() {
                    value
                } else {
                    *position
                }
            }
            Reduce::Min => {
                if value < *position || value.is_nan() {
                    value
                } else {
                    *position
                }
            }
        };
    }
    let count: usize = dims.iter().map(|&d| shape[d]).product();
    if by == Reduce::Mean {
        out.iter_mut().for_each(|x| *x /= count as f64);
    }
    Ok(out)
}

fn run(by: Reduce, x: &Tensor, dims: &[usize], dtype: DType) -> Result<Tensor> {
    let shape: Shape = (0..x.rank()).filter(|d| !dims.contains(d)).map(|d| x.shape()[d]).collect();
    let mut out = Tensor::empty("reduce", shape, dtype, x.device())?;
    reduce("reduce", by, x.as_view()?, dims, &mut out.as_view_mut("reduce")?)?;
    Ok(out)
}

/// The tensor, and equal tensors with all kinds of memory layouts.
pub(in crate::backend::cpu) fn arrangements(x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
    let (layout, rank) = (x.layout(), x.rank());
    let mut all = vec![("plain", x.clone())];
    let reversed: Vec<isize> = (0..rank as isize).rev().collect();
    all.push(("transposed", x.with_layout(layout.permute("t", &reversed)?)));
    all.push(("flipped", x.with_layout(layout.flip("t", &(0..rank).collect::<Vec<_>>())?)));
    if rank > 0 {
        let stepped = layout.slice("t", -1, &crate::layout::Slice::from(..).step(2))?;
        all.push(("stepped", x.with_layout(stepped.clone())));
        all.push(("stepped and transposed", x.with_layout(stepped.permute("t", &reversed)?)));
        all.push(("sliced", x.with_layout(layout.slice("t", 0, &(1..).into())?)));
        let mut wide: Vec<isize> = x.shape().iter().map(|&s| s as isize).collect();
        wide.insert(1, 3);
        all.push(("repeated", x.with_layout(layout.unsqueeze("t", 1)?.expand("t", &Sizes::from(&wide[..]))?)));
    }
    Ok(all)
}

fn close(got: f64, want: f64, tolerance: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance * want.abs().max(1.0)
}

#[cotangent_macros::unit_test]
fn every_layout_and_dtype_agrees_with_the_reference() -> Result<()> {
    let shapes: [&[usize]; 9] =
        [&[], &[5], &[3, 4], &[2, 3, 40], &[40, 3, 2], &[300, 20], &[700, 3], &[4, 70, 2, 3], &[2, 0, 3]];
    for shape in shapes {
        let x = Generator::seed(3).randn_with(shape, DType::F64)?.add(0.3)?;
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I8, DType::U64, DType::Bool] {
            let x = if dtype.is_float() { x.clone() } else { x.mul(2.5)?.abs()? }.to_dtype(dtype)?;
            for (name, x) in arrangements(&x)? {
                for dims in subsets(x.rank()) {
                    for by in [Reduce::Sum, Reduce::Mean, Reduce::Prod, Reduce::Max, Reduce::Min] {
                        let count: usize = dims.iter().map(|&d| x.shape()[d]).product();
                        let extreme = matches!(by, Reduce::Max | Reduce::Min);
                        // Products of many numbers leave every range; those of integers wrap, which f64 does not.
                        let skipped = (extreme && x.numel() == 0)
                            || (by == Reduce::Mean && !dtype.is_float())
                            || (by == Reduce::Prod && count > 24);
                        if skipped {
                            continue;
                        }
                        let to = if extreme { dtype } else { dtype.to_sum() };
                        let got = run(by, &x, &dims, to)?.to_dtype(DType::F64)?.to_vec::<f64>()?;
                        let want = reference(by, &x, &dims)?;
                        let tolerance = match to {
                            DType::F64 => 1e-12,
                            DType::F32 => 2e-5,
                            DType::F16 => 2e-3,
                            DType::BF16 => 1e-2,
                            _ => 0.0,
                        };
                        assert_eq!(got.len(), want.len());
                        for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
                            let what = format!("{by:?} of {dtype} {:?} {name} over {dims:?} at {i}", x.shape());
                            assert!(close(got, want, tolerance), "{what}: {got} for {want}");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn run_centered(by: CenteredReduce, x: &Tensor, dims: &[usize], center: &Tensor) -> Result<Tensor> {
    let shape: crate::Shape = (0..x.rank()).filter(|d| !dims.contains(d)).map(|d| x.shape()[d]).collect();
    let mut out = Tensor::empty("reduce", shape, x.dtype(), x.device())?;
    reduce_centered("reduce", by, x.as_view()?, dims, center.as_view()?, &mut out.as_view_mut("reduce")?)?;
    Ok(out)
}

/// What `reduce_centered` computes, element by element: the differences first, then a sum.
fn centered_reference(by: CenteredReduce, x: &Tensor, dims: &[usize], center: &Tensor) -> Result<Vec<f64>> {
    let kept: Vec<isize> =
        x.shape().iter().enumerate().map(|(d, &n)| if dims.contains(&d) { 1 } else { n as isize }).collect();
    let center = center.to_dtype(DType::F64)?;
    let difference = x.to_dtype(DType::F64)?.sub(&center.reshape(&kept[..])?)?;
    let terms = match by {
        CenteredReduce::Deviation(_) => difference.square()?,
        CenteredReduce::Mean(_) => difference,
        CenteredReduce::LogSumExp => difference.exp()?,
    };
    let sums = reference(Reduce::Sum, &terms, dims)?.into_iter().zip(center.to_vec::<f64>()?);
    Ok(sums
        .map(|(sum, center)| match by {
            CenteredReduce::Deviation(n) | CenteredReduce::Mean(n) => sum / n,
            CenteredReduce::LogSumExp => sum.ln() + center,
        })
        .collect())
}

#[cotangent_macros::unit_test]
fn every_result_is_folded_with_its_own_number() -> Result<()> {
    let shapes: [&[usize]; 7] = [&[], &[5], &[3, 4], &[2, 3, 40], &[300, 20], &[700, 3], &[4, 70, 2, 3]];
    for shape in shapes {
        let x = Generator::seed(3).randn_with(shape, DType::F64)?.add(0.3)?;
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::BF16, 1e-2)] {
            for (name, x) in arrangements(&x.to_dtype(dtype)?)? {
                for dims in subsets(x.rank()) {
                    let center = run(Reduce::Max, &x, &dims, dtype.compute_dtype())?;
                    for by in [CenteredReduce::Deviation(7.0), CenteredReduce::LogSumExp] {
                        let got = run_centered(by, &x, &dims, &center)?.to_dtype(DType::F64)?.to_vec::<f64>()?;
                        for (i, (&got, want)) in got.iter().zip(centered_reference(by, &x, &dims, &center)?).enumerate()
                        {
                            let what = format!("{by:?} of {dtype} {:?} {name} over {dims:?} at {i}", x.shape());
                            assert!(close(got, want, tolerance), "{what}: {got} for {want}");
                        }
                    }
                }
            }
        }
    }
    let (x, center) = (Tensor::zeros([2, 3])?, Tensor::zeros([3])?);
    assert!(
        run_centered(CenteredReduce::LogSumExp, &x, &[1], &center)
            .is_err_and(|e| e.to_string().contains("got 3 of f32"))
    );
    Ok(())
}

#[cotangent_macros::unit_test]
fn long_sums_are_accurate_and_nan_wins() -> Result<()> {
    // A sequential sum in f32 would stop growing at 2^24 sixteenths.
    let n = (1 << 22) + 77;
    let x = Tensor::full_with([n], 0.1, DType::F32)?;
    let (sum, want) = (run(Reduce::Sum, &x, &[0], DType::F32)?.item::<f32>()?, n as f64 * f64::from(0.1_f32));
    assert!(close(f64::from(sum), want, 6e-7), "{sum} for {want}");
    let rows = x.with_layout(
        x.layout().narrow("t", 0, 0, 1 << 22)?.reshape(&[1 << 16, 64].into()).unwrap_or_else(|| x.layout().clone()),
    );
    for sum in run(Reduce::Sum, &rows, &[0], DType::F32)?.to_vec::<f32>()? {
        let want = f64::from(0.1_f32) * f64::from(1 << 16);
        assert!(close(f64::from(sum), want, 6e-7), "column: {sum} for {want}");
    }
    for at in [0, 1, 40, 69] {
        let mut values = vec![1.0_f32; 70];
        values[at] = f32::NAN;
        let x = Tensor::from_vec(values, [70])?;
        assert!(run(Reduce::Max, &x, &[0], DType::F32)?.item::<f32>()?.is_nan());
        assert!(run(Reduce::Min, &x, &[0], DType::F32)?.item::<f32>()?.is_nan());
    }
    Ok(())
}

/// Runs `f` on `threads` threads.
pub(in crate::backend::cpu) fn on_threads<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
    crate::backend::with_num_threads(threads, f).unwrap_or_else(|error| unreachable!("no threads: {error}"))
}

#[cotangent_macros::unit_test]
fn bits_do_not_depend_on_the_number_of_threads() -> Result<()> {
    for (shape, dims) in [
        (vec![300_001], vec![0]),
        (vec![3, 90_000], vec![1]),
        (vec![2000, 70], vec![0]),
        (vec![60_000, 3], vec![0]),
        (vec![70, 2000], vec![1]),
        (vec![70, 30, 70], vec![0, 2]),
    ] {
        let x = Generator::seed(5).randn_with(&shape[..], DType::F32)?;
        for (name, x) in arrangements(&x)? {
            let dims = if x.rank() == shape.len() { dims.clone() } else { vec![0, 1] };
            let mean = run(Reduce::Mean, &x, &dims, DType::F32)?;
            let bits = |threads| {
                on_threads(threads, || -> Result<Vec<f32>> {
                    let deviation = run_centered(CenteredReduce::Deviation(1.0), &x, &dims, &mean)?.to_vec::<f32>()?;
                    Ok([run(Reduce::Sum, &x, &dims, DType::F32)?.to_vec::<f32>()?, deviation].concat())
                })
            };
            let one: Vec<u32> = bits(1)?.iter().map(|x| x.to_bits()).collect();
            for threads in [2, 5] {
                let more: Vec<u32> = bits(threads)?.iter().map(|x| x.to_bits()).collect();
                assert_eq!(one, more, "{shape:?} {name} over {dims:?} on {threads} threads");
            }
        }
    }
    Ok(())
}

/// Whether the result of a chain can be folded in order: the reduced dimensions are the first or the last ones, except for those
/// of size 1, and there are elements to fold.
fn folds_as_it_comes(shape: &[usize], dims: &[usize]) -> bool {
    let gone: Vec<bool> = (0..shape.len()).filter(|&d| shape[d] != 1).map(|d| dims.contains(&d)).collect();
    gone.contains(&true) && gone.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 1
}

#[cotangent_macros::unit_test]
fn what_is_pending_is_folded_to_the_same_bits() -> Result<()> {
    let shapes: [&[usize]; 13] = [
        &[17],
        &[5000],
        &[2 * PIECE + 1300],
        &[3, PIECE + 5],
        &[1000, 3],
        &[6000, 32],
        &[37, 200],
        &[700, 33],
        &[300, 128],
        &[550, 129],
        &[260, 600],
        &[9, 1, 1030],
        &[3, 50, 7],
    ];
    for shape in shapes {
        for dtype in [DType::F32, DType::F64] {
            let x = Generator::seed(3).randn_with(shape, dtype)?;
            for (dims, threads) in subsets(shape.len()).flat_map(|dims| [(dims.clone(), 1), (dims, 3)]) {
                for by in [Reduce::Sum, Reduce::Mean, Reduce::Prod, Reduce::Max, Reduce::Min] {
                    crate::backend::with_num_threads(threads, || compare_pending(by, &x, &dims))??;
                }
            }
        }
    }
    Ok(())
}

fn pending_view(x: &Tensor) -> View<'_> {
    View { storage: x.storage(), layout: x.layout(), dtype: x.dtype() }
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect())
}

#[cotangent_macros::unit_test]
fn what_is_computed_in_another_type_is_not_folded_as_it_comes() -> Result<()> {
    for (compute, dtype) in [(DType::F64, DType::F32), (DType::F32, DType::F64)] {
        let (kernel, inputs) = (Kernel::Number(Scalar::F64(2.5)), SmallVec::new());
        let step = Step { op: "test", kernel, compute, dtype, device: Device::Cpu, numel: 2000, inputs };
        let y = Tensor::from_parts(step.defer()?, Layout::contiguous([50, 40].into()), dtype);
        let mut out = Tensor::zeros_with([1], dtype)?;
        let to = &mut out.as_view_mut("reduce")?;
        assert!(y.is_pending() && !reduce_deferred(Reduce::Sum, pending_view(&y), &[0, 1], to)?);
        assert_eq!(y.sum(..)?.to_dtype(DType::F64)?.item::<f64>()?, 5000.0);
    }
    Ok(())
}

/// Folds a pending result, one that is also written meanwhile, and one in memory.
fn compare_pending(by: Reduce, x: &Tensor, dims: &[usize]) -> Result<()> {
    let chain = || x.mul(1.5)?.add(0.25)?.mul(x);
    let what = format!("{by:?} of {:?} over {dims:?} in {}", x.shape(), x.dtype());
    let want = run(by, &chain()?, dims, x.dtype())?;
    for kept in [false, true] {
        let y = chain()?;
        if kept {
            y.mark_needed();
        }
        let mut out = Tensor::full_with(want.shape(), f64::NAN, DType::F64)?.to_dtype(x.dtype())?;
        let done = reduce_deferred(by, pending_view(&y), dims, &mut out.as_view_mut("reduce")?)?;
        assert_eq!(done, folds_as_it_comes(x.shape(), dims), "{what}");
        if done {
            assert_eq!(bits(&out)?, bits(&want)?, "{what}, kept: {kept}");
            assert_eq!(y.is_pending(), !kept, "{what}");
        }
        assert_eq!(bits(&y)?, bits(&chain()?)?, "{what}: the chain itself, kept: {kept}");
    }
    Ok(())
}
