//! The gradient of a convolution's input, one element of the kernel at a time.
//!
//! The fast kernel pads `g` with zeros, and 0 · ∞ is NaN: an infinite weight would reach results that do not depend on it. Here
//! each element of the kernel is a product of matrices over the positions that it reaches, without padding.

use super::kernels::{input_gradient, shape};
use crate::backend::spec::Conv;
use crate::layout::Slice;
use crate::tensor::Index;
use crate::{Device, Result, Tensor};
use std::ops::Range;

/// Whether the fast kernel would multiply its padding with an infinite or NaN weight.
pub(super) fn needed(w: &Tensor, conv: &Conv) -> Result<bool> {
    if w.device() != Device::Cpu || conv.kernel == [1; 3] {
        return Ok(false);
    }
    // The sum is fast, and finite only if every weight is. If it is not finite, each weight is checked.
    let w = w.detach();
    let sum = w.sum(..)?.to_dtype(crate::DType::F64)?.item::<f64>()?;
    Ok(!sum.is_finite() && !w.isfinite()?.all(..)?.item::<bool>()?)
}

/// The outputs that an element of the kernel connects to inputs, and the first of these inputs.
fn reached(conv: &Conv, dim: usize, k: usize) -> (Range<usize>, usize) {
    let (stride, to) = (conv.stride[dim], k * conv.dilation[dim]);
    let first = conv.pad[dim].saturating_sub(to).div_ceil(stride);
    let end = (conv.input[dim] + conv.pad[dim]).saturating_sub(to).div_ceil(stride).min(conv.output[dim]);
    // An element that reaches no input has an empty range, and its first input is not used.
    (first..end.max(first), (first * stride + to).saturating_sub(conv.pad[dim]))
}

/// The gradient without a bias, not recorded in the graph.
#[track_caller]
pub(super) fn input_gradient_by_taps(op: &'static str, g: &Tensor, w: &Tensor, conv: &Conv) -> Result<Tensor> {
    let rank = g.rank() - 2;
    let dtype = g.dtype().compute_dtype();
    let (wide_g, wide_w) = (g.detach().to_dtype(dtype)?, w.detach().to_dtype(dtype)?);
    let all = shape([conv.batch, conv.groups * conv.c_in], conv.input, rank);
    let mut x = Tensor::zeros_with(&all, (dtype, Device::Cpu))?;
    for tap in 0..conv.kernel.iter().product::<usize>() {
        let at = [tap / conv.kernel[2] / conv.kernel[1], tap / conv.kernel[2] % conv.kernel[1], tap % conv.kernel[2]];
        let (mut part, mut one, mut index, mut sizes) =
            (wide_g.clone(), wide_w.clone(), vec![Slice::from(..).into(); 2], [1; 3]);
        for dim in 3 - rank..3 {
            let (outputs, first) = reached(conv, dim, at[dim]);
            let position = (dim + rank) as isize - 1;
            sizes[dim] = outputs.len();
            part = part.slice(position, outputs.clone())?;
            one = one.narrow(position, at[dim] as isize, 1)?;
            let end = first + outputs.len().saturating_sub(1) * conv.stride[dim] + 1;
            index.push(Slice::new(first as isize, end as isize).step(conv.stride[dim] as isize).into());
        }
        if sizes.contains(&0) {
            continue;
        }
        let pointwise = Conv {
            input: sizes,
            output: sizes,
            kernel: [1; 3],
            stride: [1; 3],
            pad: [0; 3],
            dilation: [1; 3],
            ..*conv
        };
        let product = input_gradient(op, &part, &one, None, &pointwise)?;
        let index = Index::new(index);
        let sum = x.index(index.clone())?.add(&product)?;
        x.set(index, &sum)?;
    }
    x.to_dtype(g.dtype())
}
