//! The three convolution kernels, their derivatives in terms of each other, and their batching rules for `vmap`.

use super::taps;
use crate::autograd::{BackwardContext, Grads};
use crate::backend::kernel;
use crate::backend::spec::Conv;
use crate::layout::Dims;
use crate::layout::Layout;
use crate::tensor::batch::{Level, behind, innermost};
use crate::{Device, Result, Shape, Tensor, backend};
use smallvec::{SmallVec, smallvec};

/// A layout of two to five dimensions, extended to five.
pub(in crate::ops) fn five(op: &'static str, layout: &Layout) -> Result<Layout> {
    (layout.rank()..5).try_fold(layout.clone(), |layout, _| layout.unsqueeze(op, 2))
}

pub(super) fn shape(first: [usize; 2], sizes: [usize; 3], rank: usize) -> Shape {
    first.into_iter().chain(sizes[3 - rank..].iter().copied()).collect()
}

/// All dimensions but the channels.
fn but_channels(rank: usize) -> Dims {
    let all: SmallVec<[isize; 5]> = (0..rank as isize + 2).filter(|&dim| dim != 1).collect();
    Dims::from(&all[..])
}

/// A kernel's bias, in the compute dtype.
fn wide_bias(bias: Option<&Tensor>) -> Result<Option<Tensor>> {
    bias.map(|bias| bias.detach().to_dtype(bias.dtype().compute_dtype())?.contiguous()).transpose()
}

/// The bias that the device's kernels add, and the one that is added to their result, detached; at most one is `Some`.
/// A bias that is added afterwards is part of the deferred elementwise chain that follows.
fn bias_of(device: Device, bias: Option<&Tensor>) -> (Option<&Tensor>, Option<Tensor>) {
    if backend::conv_leaves_bias(device) { (None, bias.map(Tensor::detach)) } else { (bias, None) }
}

/// The operand, on the CPU with contiguous rows, which its kernels read fastest.
fn in_rows(x: &Tensor) -> Result<Tensor> {
    let x = x.detach();
    if x.device() != Device::Cpu || x.strides().last() == Some(&1) { Ok(x) } else { x.contiguous() }
}

/// `[batch, groups · c_out, output..]` from `[batch, groups · c_in, input..]` and a weight.
#[track_caller]
pub(super) fn forward(op: &'static str, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), Some(w), bias].into_iter().flatten().collect();
    if let Some(level) = innermost(inputs.iter().copied()) {
        let y = Examples::new(level, conv, [x, w])?.forward(op)?;
        return with_bias(y, bias);
    }
    let (rank, conv) = (x.rank() - 2, *conv);
    let to = shape([conv.batch, conv.groups * conv.c_out], conv.output, rank);
    let (rows, weight) = (in_rows(x)?, w.detach().contiguous()?);
    let (inside, behind) = bias_of(x.device(), bias);
    let wide = wide_bias(inside)?;
    // The memory order for which the device's kernels are fast.
    let last = backend::conv_channels_last(x.device(), x.dtype());
    let y = Tensor::build_ordered(op, to, last, x.dtype(), x.device(), |out| {
        let [lx, lw, ly] = [rows.layout(), weight.layout(), out.layout].map(|layout| five(op, layout));
        let (lx, lw, ly) = (lx?, lw?, ly?);
        let (x, w, bias) =
            (rows.as_view_with(&lx)?, weight.as_view_with(&lw)?, wide.as_ref().map(Tensor::as_view).transpose()?);
        let mut out = out.part(&ly);
        kernel!("convolution" on [x, w, out]: nn::conv::forward(x, w, bias, &conv, &mut out))
    })?;
    with_bias(y, behind.as_ref())?.record(op, &inputs, |save| {
        let (x, w, biased) = (save.save_for(1, x), save.save_for(0, w), bias.is_some());
        move |ctx: &BackwardContext, g: &Tensor| {
            let mut grads: Grads = smallvec![
                ctx.want(0, || input_gradient(op, g, w.get()?, None, &conv))?,
                ctx.want(1, || weight_gradient(op, x.get()?, g, &conv))?
            ];
            if biased {
                grads.push(ctx.want(2, || g.sum(but_channels(rank)))?);
            }
            Ok(grads)
        }
    })
}

/// `[batch, groups · c_in, input..]` from `[batch, groups · c_out, output..]` and a weight.
#[track_caller]
pub(super) fn input_gradient(
    op: &'static str,
    g: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    conv: &Conv,
) -> Result<Tensor> {
    let inputs: SmallVec<[&Tensor; 3]> = [Some(g), Some(w), bias].into_iter().flatten().collect();
    if let Some(level) = innermost(inputs.iter().copied()) {
        let x = Examples::new(level, conv, [g, w])?.input_gradient(op)?;
        return with_bias(x, bias);
    }
    let (rank, conv) = (g.rank() - 2, *conv);
    let (inside, behind) = bias_of(g.device(), bias);
    let (x, behind) = if taps::needed(w, &conv)? {
        (taps::input_gradient_by_taps(op, g, w, &conv)?, bias.map(Tensor::detach))
    } else {
        (padded_input_gradient(op, g, w, inside, &conv)?, behind)
    };
    with_bias(x, behind.as_ref())?.record(op, &inputs, |save| {
        let (g, w, biased) = (save.save_for(1, g), save.save_for(0, w), bias.is_some());
        move |ctx: &BackwardContext, gx: &Tensor| {
            let mut grads: Grads = smallvec![
                ctx.want(0, || forward(op, gx, w.get()?, None, &conv))?,
                ctx.want(1, || weight_gradient(op, gx, g.get()?, &conv))?
            ];
            if biased {
                grads.push(ctx.want(2, || gx.sum(but_channels(rank)))?);
            }
            Ok(grads)
        }
    })
}

/// The input gradient by the device's kernel, not recorded in the graph.
#[track_caller]
fn padded_input_gradient(
    op: &'static str,
    g: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    conv: &Conv,
) -> Result<Tensor> {
    let to = shape([conv.batch, conv.groups * conv.c_in], conv.input, g.rank() - 2);
    let (rows, weight) = (in_rows(g)?, w.detach().contiguous()?);
    let wide = wide_bias(bias)?;
    let last = backend::conv_channels_last(g.device(), g.dtype());
    Tensor::build_ordered(op, to, last, g.dtype(), g.device(), |out| {
        let [lg, lw, lx] = [rows.layout(), weight.layout(), out.layout].map(|layout| five(op, layout));
        let (lg, lw, lx) = (lg?, lw?, lx?);
        let (g, w, bias) =
            (rows.as_view_with(&lg)?, weight.as_view_with(&lw)?, wide.as_ref().map(Tensor::as_view).transpose()?);
        let mut out = out.part(&lx);
        kernel!("convolution" on [g, w, out]: nn::conv::input_gradient(g, w, bias, conv, &mut out))
    })
}

/// `[groups · c_out, c_in, kernel..]` from `[batch, groups · c_in, input..]` and `[batch, groups · c_out, output..]`.
#[track_caller]
pub(super) fn weight_gradient(op: &'static str, x: &Tensor, g: &Tensor, conv: &Conv) -> Result<Tensor> {
    if let Some(level) = innermost([x, g]) {
        return Examples::new(level, conv, [x, g])?.weight_gradient(op);
    }
    let (rank, conv) = (x.rank() - 2, *conv);
    let to = shape([conv.groups * conv.c_out, conv.c_in], conv.kernel, rank);
    let (x_rows, g_rows) = (in_rows(x)?, in_rows(g)?);
    let w = Tensor::build(op, to, x.dtype(), x.device(), |out| {
        let [lx, lg, lw] = [x_rows.layout(), g_rows.layout(), out.layout].map(|layout| five(op, layout));
        let (lx, lg, lw) = (lx?, lg?, lw?);
        let (x, g) = (x_rows.as_view_with(&lx)?, g_rows.as_view_with(&lg)?);
        let mut out = out.part(&lw);
        kernel!("convolution" on [x, g, out]: nn::conv::weight_gradient(x, g, &conv, &mut out))
    })?;
    w.record(op, &[x, g], |save| {
        let (x, g) = (save.save_for(1, x), save.save_for(0, g));
        move |ctx: &BackwardContext, gw: &Tensor| {
            Ok(smallvec![
                ctx.want(0, || input_gradient(op, g.get()?, gw, None, &conv))?,
                ctx.want(1, || forward(op, x.get()?, gw, None, &conv))?
            ])
        }
    })
}

#[track_caller]
fn with_bias(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    let ones = std::iter::repeat_n(1, y.rank() - 2);
    let shape: Shape = std::iter::once(bias.shape()[0]).chain(ones).collect();
    y.add(&bias.reshape(shape)?)
}

/// The examples of a `vmap` as one convolution: merged into its batch if they share the weight, else into its groups.
struct Examples {
    level: Level,
    conv: Conv,
    operands: [Tensor; 2],
    /// Whether all examples share the second operand.
    shared: bool,
}

impl Examples {
    #[track_caller]
    fn new(level: Level, conv: &Conv, [a, b]: [&Tensor; 2]) -> Result<Examples> {
        let own = |x: &Tensor| x.batch_dims().is_some_and(|dims| dims.iter().any(|dim| dim.level == level.number));
        let shared = !own(b) && !b.requires_grad();
        let b = if shared { b.clone() } else { b.unbatch(level)? };
        Ok(Examples { level, conv: *conv, operands: [a.unbatch(level)?, b], shared })
    }

    /// The examples merged into the batch.
    fn in_batch(&self, x: &Tensor) -> Result<Tensor> {
        x.flatten(0, 1)
    }

    /// The examples merged into the groups: `[examples, batch, channels, ..]` as `[batch, examples · channels, ..]`.
    fn in_groups(&self, x: &Tensor) -> Result<Tensor> {
        x.movedim(0, 1)?.flatten(1, 2)
    }

    fn batches(&self) -> Conv {
        Conv { batch: self.conv.batch * self.level.size, ..self.conv }
    }

    fn groups(&self) -> Conv {
        Conv { groups: self.conv.groups * self.level.size, ..self.conv }
    }

    /// The examples of a result, the inverse of [`in_batch`](Self::in_batch).
    fn out_of_batch(&self, y: &Tensor) -> Result<Tensor> {
        y.unflatten(0, [self.level.size, self.conv.batch])?.batch(self.level)
    }

    /// The examples of a result, the inverse of [`in_groups`](Self::in_groups).
    fn out_of_groups(&self, y: &Tensor) -> Result<Tensor> {
        let channels = y.shape()[1] / self.level.size.max(1);
        y.unflatten(1, [self.level.size, channels])?.movedim(1, 0)?.batch(self.level)
    }

    /// The result for no examples: a convolution has at least one group.
    fn nothing(&self, first: [usize; 2], sizes: [usize; 3]) -> Result<Tensor> {
        let x = &self.operands[0];
        let shape = behind(0, &shape(first, sizes, x.rank() - 3))?;
        Tensor::zeros_with(&shape, (x.dtype(), x.device()))?.batch(self.level)
    }

    fn forward(&self, op: &'static str) -> Result<Tensor> {
        let ([x, w], conv) = (&self.operands, &self.conv);
        if self.level.size == 0 {
            return self.nothing([conv.batch, conv.groups * conv.c_out], conv.output);
        }
        if self.shared {
            return self.out_of_batch(&forward(op, &self.in_batch(x)?, w, None, &self.batches())?);
        }
        self.out_of_groups(&forward(op, &self.in_groups(x)?, &w.flatten(0, 1)?, None, &self.groups())?)
    }

    fn input_gradient(&self, op: &'static str) -> Result<Tensor> {
        let ([g, w], conv) = (&self.operands, &self.conv);
        if self.level.size == 0 {
            return self.nothing([conv.batch, conv.groups * conv.c_in], conv.input);
        }
        if self.shared {
            return self.out_of_batch(&input_gradient(op, &self.in_batch(g)?, w, None, &self.batches())?);
        }
        self.out_of_groups(&input_gradient(op, &self.in_groups(g)?, &w.flatten(0, 1)?, None, &self.groups())?)
    }

    fn weight_gradient(&self, op: &'static str) -> Result<Tensor> {
        let ([x, g], conv) = (&self.operands, &self.conv);
        if self.level.size == 0 {
            return self.nothing([conv.groups * conv.c_out, conv.c_in], conv.kernel);
        }
        let g = if self.shared { g.unbatch(self.level)? } else { g.clone() };
        let w = weight_gradient(op, &self.in_groups(x)?, &self.in_groups(&g)?, &self.groups())?;
        w.unflatten(0, [self.level.size, self.conv.groups * self.conv.c_out])?.batch(self.level)
    }
}
