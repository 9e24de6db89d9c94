//! Convolutions against their definition, in sizes beyond one block of every kind.

use crate::checks::both;
use cotangent::autograd::grad_with;
use cotangent::{
    DType, Generator, Result, Tensor,
    options::{ConvOptions, ConvTransposeOptions},
    settings::with_num_threads,
};

fn normal(shape: impl Into<cotangent::Shape>, seed: u64) -> Result<Tensor> {
    Generator::seed(seed).randn_with(shape, DType::F64)
}

/// `y` and what `g` at it means for `x` and `w`, straight from the definition: of `[n, c, h, w]` with a square kernel.
fn reference([x, w, g]: [&Tensor; 3], groups: usize, [stride, pad, dilation]: [usize; 3]) -> Result<[Vec<f64>; 3]> {
    let values = |t: &Tensor| t.to_dtype(DType::F64)?.to_vec::<f64>();
    let (xs, ws, gs) = (values(x)?, values(w)?, values(g)?);
    let (&[n, c, height, width], &[out, own, k, _], &[_, _, oh, ow]) = (x.shape(), w.shape(), g.shape()) else {
        panic!("these are images");
    };
    let (mut y, mut gx, mut gw) = (vec![0.0; gs.len()], vec![0.0; xs.len()], vec![0.0; ws.len()]);
    for at in 0..gs.len() {
        let (b, o, i, j) = (at / (out * oh * ow), at / (oh * ow) % out, at / ow % oh, at % ow);
        for ci in 0..own {
            for ki in 0..k {
                for kj in 0..k {
                    let (z, t) = (i * stride + ki * dilation, j * stride + kj * dilation);
                    if z < pad || t < pad || z - pad >= height || t - pad >= width {
                        continue;
                    }
                    let channel = o / (out / groups) * own + ci;
                    let from = ((b * c + channel) * height + z - pad) * width + t - pad;
                    let by = ((o * own + ci) * k + ki) * k + kj;
                    y[at] += xs[from] * ws[by];
                    gx[from] += gs[at] * ws[by];
                    gw[by] += gs[at] * xs[from];
                }
            }
        }
    }
    debug_assert!(n * c * height * width == xs.len());
    Ok([y, gx, gw])
}

/// Sizes beyond one block, one panel and one box, of all three kernels.
#[test]
fn every_path_gives_the_sums_of_the_definition() -> Result<()> {
    let problems: [([usize; 4], [usize; 3], usize, [usize; 3]); 16] = [
        ([2, 70, 7, 6], [70, 70, 3], 1, [1, 1, 1]),
        ([3, 9, 12, 40], [20, 9, 3], 1, [1, 1, 1]),
        ([1, 40, 5, 5], [130, 20, 3], 2, [2, 1, 1]),
        ([2, 16, 11, 13], [32, 16, 1], 1, [1, 0, 1]),
        ([2, 16, 11, 13], [32, 8, 1], 2, [3, 0, 1]),
        ([2, 12, 19, 35], [12, 1, 3], 12, [1, 1, 1]),
        ([2, 6, 19, 35], [12, 1, 5], 6, [2, 2, 2]),
        ([1, 3, 20, 20], [10, 3, 2], 1, [5, 1, 3]),
        ([2, 1, 9, 9], [33, 1, 4], 1, [3, 2, 1]),
        ([4, 65, 2, 2], [17, 65, 3], 1, [1, 1, 1]),
        // Taps further apart than a box is wide, with lanes of channels and with lanes of neighbours.
        ([2, 9, 60, 70], [10, 9, 2], 1, [1, 3, 50]),
        ([2, 9, 60, 70], [10, 9, 3], 1, [2, 0, 29]),
        ([2, 4, 60, 70], [4, 1, 2], 4, [1, 20, 55]),
        ([1, 4, 60, 70], [4, 1, 2], 4, [3, 31, 50]),
        ([3, 12, 8, 8], [33, 12, 1], 1, [2, 0, 1]),
        ([1, 3, 9, 150], [2, 3, 2], 1, [1, 1, 7]),
    ];
    for (shape, [out, own, k], groups, [stride, pad, dilation]) in problems {
        for dtype in [DType::F32, DType::F64] {
            let x = Generator::seed(1).randn_with(shape, dtype)?.requires_grad_(true)?;
            let w = Generator::seed(2).randn_with([out, own, k, k], dtype)?.requires_grad_(true)?;
            let options = || ConvOptions::new().stride(stride).padding(pad).dilation(dilation).groups(groups);
            let run = |threads: usize| -> Result<[Tensor; 3]> {
                with_num_threads(threads, || {
                    let y = x.conv2d_with(&w, options())?;
                    let g = Generator::seed(3).randn_with(y.shape(), dtype)?;
                    let grads = grad_with(&y, &[&x, &w], &g)?;
                    match &grads[..] {
                        [Some(gx), Some(gw)] => Ok([y.detach(), gx.clone(), gw.clone()]),
                        _ => panic!("there are two gradients"),
                    }
                })?
            };
            let found = run(1)?;
            let g = Generator::seed(3).randn_with(found[0].shape(), dtype)?;
            let wanted = reference([&x, &w, &g], groups, [stride, pad, dilation])?;
            let tolerance = if dtype == DType::F32 { 2e-5 } else { 1e-12 };
            for (kind, (found, wanted)) in both(["y", "x", "w"].iter(), found.iter().zip(&wanted)) {
                for (i, (a, b)) in both(found.to_dtype(DType::F64)?.to_vec::<f64>()?.iter(), wanted).enumerate() {
                    let scale = 10.0 + b.abs();
                    assert!(
                        (a - b).abs() <= tolerance * scale,
                        "{shape:?} {out} {k} {dtype}: {kind} {i}: {a}, not {b}"
                    );
                }
            }
            for threads in [2, 5] {
                for (a, b) in both(run(threads)?.iter(), &found) {
                    assert!(a.equal(b)?, "{threads} threads change {shape:?}");
                }
            }
        }
    }
    Ok(())
}

/// The transpose of a convolution: `⟨g, conv(x)⟩ = ⟨conv_transpose(g), x⟩`.
#[test]
fn the_transpose_is_the_transpose() -> Result<()> {
    let (x, w) = (normal([2, 9, 10, 11], 1)?, normal([17, 9, 3, 2], 2)?);
    let y = x.conv2d_with(&w, ConvOptions::new().stride([2, 3]).padding(1))?;
    let g = normal(y.shape(), 3)?;
    let options = ConvTransposeOptions::new().stride([2, 3]).padding(1).output_padding([1, 2]);
    let back = g.conv_transpose2d_with(&w, options)?;
    assert_eq!(back.shape(), x.shape());
    let product = |a: &Tensor, b: &Tensor| a.mul(b)?.sum(..)?.item::<f64>();
    let (a, b) = (product(&g, &y)?, product(&back, &x)?);
    assert!((a - b).abs() < 1e-9 * a.abs(), "{a} is not {b}");
    Ok(())
}

/// An infinite weight only affects the results that depend on it: it is not multiplied by zeros of the padding.
#[test]
fn an_infinite_weight_of_a_transposed_convolution_stays_within_its_reach() -> Result<()> {
    let settings = [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (1, 2, 0, 2, 2), (3, 1, 2, 1, 2), (2, 5, 1, 3, 1)];
    for (stride, padding, output_padding, dilation, groups) in settings {
        let options = || {
            let some = ConvTransposeOptions::new().stride(stride).padding(padding).output_padding(output_padding);
            some.dilation(dilation).groups(groups)
        };
        let (x, w) = (normal([2, 4, 5, 6], 1)?, normal([4, 3, 3, 2], 2)?);
        let bias = normal([3 * groups], 3)?;
        let finite = x.conv_transpose2d_with(&w, options().bias(&bias))?;
        for at in 0..4 * 3 * 3 * 2 {
            let mut one = Tensor::zeros_with([4 * 3 * 3 * 2], DType::F64)?;
            one.set(at, 1)?;
            let one = one.reshape([4, 3, 3, 2])?;
            let touched = x.ones_like()?.conv_transpose2d_with(&one, options())?.ne(0)?;
            let infinite = w.masked_fill(&one.ne(0)?, f64::INFINITY)?;
            let y = x.conv_transpose2d_with(&infinite, options().bias(&bias))?;
            assert!(y.isinf()?.equal(&touched)?, "the infinite weight {at}: {y:?}, reached {touched:?}");
            let kept = finite.masked_fill(&touched, 0)?.allclose(&y.masked_fill(&touched, 0)?)?;
            assert!(kept, "the infinite weight {at} changes other results");
        }
    }
    // In one and three dimensions, and as the gradient of an input, in half precision, too.
    let mut w = Tensor::ones_with([1, 1, 3], DType::F16)?;
    w.set(cotangent::s![0, 0, 2], f64::INFINITY)?;
    let x = Tensor::ones_with([1, 1, 4], DType::F16)?.requires_grad_(true)?;
    x.conv1d(&w)?.sum(..)?.backward()?;
    let inf = f32::INFINITY;
    assert_eq!(x.grad().map(|g| g.to_dtype(DType::F32)?.to_vec::<f32>()).transpose()?, Some(vec![1.0, 2.0, inf, inf]));
    let y = Tensor::ones([1, 1, 1, 1, 2])?.conv_transpose3d(&w.to_dtype(DType::F32)?.reshape([1, 1, 1, 1, 3])?)?;
    assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, inf, inf]);
    Ok(())
}
