//! Pooling: one number for each window of an image.
//!
//! The maximum and the sum of windows are kernels; all other pooling operations use them.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::backend::spec::Windows;
use crate::error::bail;
use crate::layout::Layout;
use crate::layout::Sizes;
use crate::ops::nn::conv::{each, five, spatial};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::batch::innermost;
use crate::{DType, Device, Result, Shape, Tensor};
use smallvec::smallvec;

options! {
    /// The options of max pooling, such as [`Tensor::max_pool2d_with`]. One number applies to all dimensions.
    ///
    /// ```
    /// use cotangent::{Tensor, options::MaxPoolOptions};
    /// let x = Tensor::ones([1, 2, 7, 7])?;
    /// assert_eq!(x.max_pool2d_with(3, MaxPoolOptions::new().stride(2).padding(1))?.shape(), [1, 2, 4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MaxPoolOptions {
        /// The stride of the windows; by default their size.
        stride: Sizes = Sizes::from(()),
        /// The padding on both sides, at most half of the window size.
        padding: Sizes = Sizes::from(0),
        /// The spacing between the elements of a window.
        dilation: Sizes = Sizes::from(1),
        /// Whether the last window may extend beyond the padding.
        ceil_mode: bool = false,
    }
}

options! {
    /// The options of average pooling, such as [`Tensor::avg_pool2d_with`]. One number applies to all dimensions.
    ///
    /// ```
    /// use cotangent::{Tensor, options::AvgPoolOptions};
    /// let x = Tensor::ones([1, 2, 7, 7])?;
    /// let options = AvgPoolOptions::new().stride(2).padding(1).count_include_pad(false);
    /// assert_eq!(x.avg_pool2d_with(3, options)?.to_vec::<f32>()?, [1.0; 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AvgPoolOptions {
        /// The stride of the windows; by default their size.
        stride: Sizes = Sizes::from(()),
        /// The zero padding on both sides, at most half of the window size.
        padding: Sizes = Sizes::from(0),
        /// Whether the last window may extend beyond the padding.
        ceil_mode: bool = false,
        /// Whether the padding counts in the number of elements.
        count_include_pad: bool = true,
        /// The divisor of the sums, instead of the number of elements.
        divisor_override: Option<i64> = None,
    }
}

/// # Pooling
#[ops]
impl Tensor {
    /// The maximum of each window of a signal `[batch, channels, length]`. The batch dimension may be missing.
    ///
    /// ```
    /// # use cotangent::{tensor, options::MaxPoolOptions};
    /// let x = tensor!([[1.0, 5.0, 2.0, 4.0, 3.0]])?;
    /// assert_eq!(x.max_pool1d(2)?.to_vec::<f32>()?, [5.0, 4.0]);
    /// assert_eq!(x.max_pool1d_with(2, MaxPoolOptions::new().ceil_mode(true))?.to_vec::<f32>()?, [5.0, 4.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank, no window fits, or the padding exceeds half of the window.
    #[op(samples = || max_samples(1), errors = || pool_errors(1))]
    pub fn max_pool1d(&self, kernel_size: impl Into<Sizes>, options: impl Into<MaxPoolOptions>) -> Result<Tensor> {
        Pool::max("max_pool1d", 1, self, &kernel_size, &options)?.values(self)
    }

    /// The maximum of each window of an image `[batch, channels, height, width]`. The batch dimension may be missing.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[[1.0, 2.0], [4.0, 3.0]]])?;
    /// assert_eq!(x.max_pool2d(2)?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_pool1d`](Self::max_pool1d).
    #[op(samples = || max_samples(2), errors = || pool_errors(2))]
    pub fn max_pool2d(&self, kernel_size: impl Into<Sizes>, options: impl Into<MaxPoolOptions>) -> Result<Tensor> {
        Pool::max("max_pool2d", 2, self, &kernel_size, &options)?.values(self)
    }

    /// The maximum of each window of a volume `[batch, channels, depth, height, width]`. The batch dimension may be
    /// missing.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 4, 4, 4])?.max_pool3d(2)?.shape(), [1, 2, 2, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_pool1d`](Self::max_pool1d).
    #[op(autocast_cpu = f32, samples = || max_samples(3), errors = || pool_errors(3))]
    pub fn max_pool3d(&self, kernel_size: impl Into<Sizes>, options: impl Into<MaxPoolOptions>) -> Result<Tensor> {
        Pool::max("max_pool3d", 3, self, &kernel_size, &options)?.values(self)
    }

    /// As [`max_pool1d`](Self::max_pool1d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (values, indices) = tensor!([[1.0, 5.0, 2.0, 4.0]])?.max_pool1d_with_indices(2)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![5.0, 4.0], vec![1, 3]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_pool1d`](Self::max_pool1d).
    #[op(samples = || max_samples(1), errors = || pool_errors(1), outputs = [values, indices])]
    pub fn max_pool1d_with_indices(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxPoolOptions>,
    ) -> Result<(Tensor, Tensor)> {
        Pool::max("max_pool1d_with_indices", 1, self, &kernel_size, &options)?.both(self)
    }

    /// As [`max_pool2d`](Self::max_pool2d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (values, indices) = tensor!([[[1.0, 2.0], [4.0, 3.0]]])?.max_pool2d_with_indices(2)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![4.0], vec![2]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_pool1d`](Self::max_pool1d).
    #[op(samples = || max_samples(2), errors = || pool_errors(2), outputs = [values, indices])]
    pub fn max_pool2d_with_indices(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxPoolOptions>,
    ) -> Result<(Tensor, Tensor)> {
        Pool::max("max_pool2d_with_indices", 2, self, &kernel_size, &options)?.both(self)
    }

    /// As [`max_pool3d`](Self::max_pool3d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (_, indices) = Tensor::ones([1, 1, 2, 2, 2])?.max_pool3d_with_indices(2)?;
    /// assert_eq!(indices.to_vec::<i64>()?, [0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_pool1d`](Self::max_pool1d).
    #[op(samples = || max_samples(3), errors = || pool_errors(3), outputs = [values, indices])]
    pub fn max_pool3d_with_indices(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxPoolOptions>,
    ) -> Result<(Tensor, Tensor)> {
        Pool::max("max_pool3d_with_indices", 3, self, &kernel_size, &options)?.both(self)
    }

    /// The mean of each window of a signal `[batch, channels, length]`. The batch dimension may be missing.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1.0, 5.0, 2.0, 4.0]])?.avg_pool1d(2)?.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank or dtype, no window fits, or the padding exceeds half of the window.
    #[op(samples = || avg_samples(1), errors = || avg_errors(1))]
    pub fn avg_pool1d(&self, kernel_size: impl Into<Sizes>, options: impl Into<AvgPoolOptions>) -> Result<Tensor> {
        average("avg_pool1d", 1, self, &kernel_size, &options)
    }

    /// The mean of each window of an image `[batch, channels, height, width]`. The batch dimension may be missing.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[[1.0, 2.0], [4.0, 3.0]]])?.avg_pool2d(2)?.to_vec::<f32>()?, [2.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`avg_pool1d`](Self::avg_pool1d).
    #[op(samples = || avg_samples(2), errors = || avg_errors(2))]
    pub fn avg_pool2d(&self, kernel_size: impl Into<Sizes>, options: impl Into<AvgPoolOptions>) -> Result<Tensor> {
        average("avg_pool2d", 2, self, &kernel_size, &options)
    }

    /// The mean of each window of a volume `[batch, channels, depth, height, width]`. The batch dimension may be
    /// missing.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 4, 4, 4])?.avg_pool3d(2)?.to_vec::<f32>()?, [1.0; 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`avg_pool1d`](Self::avg_pool1d).
    #[op(autocast_cpu = f32, samples = || avg_samples(3), errors = || avg_errors(3))]
    pub fn avg_pool3d(&self, kernel_size: impl Into<Sizes>, options: impl Into<AvgPoolOptions>) -> Result<Tensor> {
        average("avg_pool3d", 3, self, &kernel_size, &options)
    }
}

/// Checks that `x` has channels and `rank` spatial dimensions, with or without a batch.
pub(in crate::ops) fn check_rank(op: &'static str, x: &Tensor, rank: usize) -> Result<()> {
    if x.rank() != rank + 1 && x.rank() != rank + 2 {
        let shape = x.shape();
        bail!(
            Shape,
            op,
            "input must have {} dimensions, or {} without a batch, got shape {shape:?}",
            rank + 2,
            rank + 1
        );
    }
    Ok(())
}

/// The sizes, strides, padding and dilation of windows, for each of three dimensions.
pub(in crate::ops) struct Frame {
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub pad: [usize; 3],
    pub dilation: [usize; 3],
}

impl Frame {
    pub fn new(
        op: &'static str,
        rank: usize,
        kernel: &Sizes,
        stride: &Sizes,
        pad: &Sizes,
        dilation: &Sizes,
    ) -> Result<Frame> {
        let kernel = each(op, "kernel_size", &kernel.0, rank, 1, 1)?;
        let stride = if stride.0.is_empty() { kernel } else { each(op, "stride", &stride.0, rank, 1, 1)? };
        let pad = each(op, "padding", &pad.0, rank, 0, 0)?;
        let dilation = each(op, "dilation", &dilation.0, rank, 1, 1)?;
        Ok(Frame { kernel, stride, pad, dilation })
    }

    /// The windows of an input.
    fn windows(&self, op: &'static str, rank: usize, x: &Tensor, ceil: bool) -> Result<[Windows; 3]> {
        let size = spatial(x.shape(), rank);
        let mut all = [Windows::single(); 3];
        for dim in 3 - rank..3 {
            let Frame { kernel, stride, pad, dilation } = self;
            let (kernel, stride, pad, dilation) = (kernel[dim], stride[dim], pad[dim], dilation[dim]);
            let wide = |x: usize| x as i128;
            let span = (wide(kernel) - 1) * wide(dilation) + 1;
            if 2 * wide(pad) > span {
                bail!(Value, op, "padding must be at most half of the kernel span {span}, got {pad}");
            }
            let padded = wide(size[dim]) + 2 * wide(pad);
            let more = if ceil { wide(stride) - 1 } else { 0 };
            let mut count = if padded - span + more < 0 { 0 } else { (padded - span + more) / wide(stride) + 1 };
            // The last window begins inside the input or the padding before it.
            if ceil && (count - 1) * wide(stride) >= wide(size[dim]) + wide(pad) {
                count -= 1;
            }
            if count < 1 || padded + span + wide(stride) > isize::MAX as i128 {
                bail!(
                    Shape,
                    op,
                    "a kernel that spans {span} elements does not fit dimension {} of shape {:?}",
                    x.rank() + dim - 3,
                    x.shape()
                );
            }
            all[dim] = Windows::regular(size[dim], count as usize, kernel, stride, pad, dilation);
        }
        Ok(all)
    }
}

/// The layout of an image, with or without a batch, extended to five dimensions.
fn planes(op: &'static str, layout: &Layout, rank: usize) -> Result<Layout> {
    if layout.rank() == rank + 1 { five(op, &layout.unsqueeze(op, 0)?) } else { five(op, layout) }
}

/// The operand of a kernel: in the compute dtype on the CPU, in its own dtype on a GPU.
fn operand(x: &Tensor) -> Result<Tensor> {
    if x.device() == Device::Cpu { x.detach().to_dtype(x.dtype().compute_dtype()) } else { Ok(x.detach()) }
}

/// Whether results keep the channels last in memory, as the image does.
fn channels_last(x: &Tensor, rank: usize) -> bool {
    x.rank() == rank + 2 && x.keeps_channels_last()
}

fn with_windows(shape: &[usize], windows: &[Windows; 3], rank: usize) -> Shape {
    let lead = shape[..shape.len() - rank].iter().copied();
    lead.chain(windows[3 - rank..].iter().map(|windows| windows.count)).collect()
}

/// Max pooling over given windows.
pub(in crate::ops) struct Pool {
    pub op: &'static str,
    pub rank: usize,
    pub windows: [Windows; 3],
}

impl Pool {
    fn max(op: &'static str, rank: usize, x: &Tensor, kernel: &Sizes, options: &MaxPoolOptions) -> Result<Pool> {
        check_rank(op, x, rank)?;
        let frame = Frame::new(op, rank, kernel, &options.stride, &options.padding, &options.dilation)?;
        Ok(Pool { op, rank, windows: frame.windows(op, rank, x, options.ceil_mode)? })
    }

    #[track_caller]
    pub fn values(&self, x: &Tensor) -> Result<Tensor> {
        if !x.requires_grad() {
            return self.compute(x, false).map(|(values, _)| values);
        }
        self.both(x).map(|(values, _)| values)
    }

    /// The kernel's results, not recorded in the graph. Without `indexed` the indices are empty.
    fn compute(&self, x: &Tensor, indexed: bool) -> Result<(Tensor, Tensor)> {
        let Pool { op, rank, windows } = *self;
        if x.dtype() == DType::Bool {
            bail!(DType, op, "not defined for bool");
        }
        if windows.iter().any(Windows::may_be_empty) {
            bail!(
                Shape,
                op,
                "every window must contain an element, got an empty window for input shape {:?}",
                x.shape()
            );
        }
        if let Some(level) = innermost([x]) {
            // The examples are merged into the first dimension, which is the batch or the channels.
            let (values, indices) = self.compute(&x.leading_batch(level)?.flatten(0, 1)?, indexed)?;
            let own = |y: &Tensor| y.unflatten(0, [level.size, x.shape()[0]])?.batched(level);
            return Ok((own(&values)?, if indexed { own(&indices)? } else { indices }));
        }
        let wide = operand(x)?;
        let (shape, last) = (with_windows(x.shape(), &windows, rank), channels_last(x, rank));
        let at = if indexed { shape.clone() } else { [0].into() };
        let mut indices = Tensor::build_ordered(op, at, last && indexed, DType::I64, x.device(), |_| Ok(()))?;
        let values = Tensor::build_ordered(op, shape, last, wide.dtype(), x.device(), |out| {
            let (lx, ly) = (planes(op, wide.layout(), rank)?, planes(op, out.layout, rank)?);
            let (x, mut at) = (wide.as_view_with(&lx)?, indices.as_view_mut(op)?);
            let mut out = out.part(&ly);
            let at = indexed.then_some(&mut at);
            kernel!("max_pool" on [x, out]: nn::pool::max(x, &windows, &mut out, at))
        })?;
        Ok((values.to_dtype(x.dtype())?, indices))
    }

    #[track_caller]
    pub fn both(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let (values, indices) = self.compute(x, true)?;
        let (at, to) = (indices.clone(), (x.layout().shape().clone(), channels_last(x, self.rank)));
        let Pool { op, rank, windows } = *self;
        let [values, indices] = Tensor::record_joint([values, indices], op, &[x], |save| {
            let at = save.save(&at);
            move |_: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let Some(Some(g)) = cotangents.first() else { return Ok(smallvec![None]) };
                Ok(smallvec![Some(at_largest(op, rank, g, &at, &to, &windows)?)])
            }
        })?;
        Ok((values, indices))
    }
}

/// Adds the elements of `g` at their indices into zeros of the given shape, with the channels last in memory or not.
#[track_caller]
fn at_largest(
    op: &'static str,
    rank: usize,
    g: &Tensor,
    indices: &Tensor,
    (shape, last): &(Shape, bool),
    windows: &[Windows; 3],
) -> Result<Tensor> {
    let lead = shape.len() - rank;
    if g.is_batched() || indices.is_batched() {
        let flat: Shape = shape[..lead].iter().copied().chain([shape[lead..].iter().product()]).collect();
        let zeros = Tensor::zeros_with(&flat, (g.dtype(), g.device()))?;
        return zeros.scatter_add(-1, &indices.flatten(lead, -1)?, &g.flatten(lead, -1)?)?.reshape(shape);
    }
    let wide = if g.device() == Device::Cpu { operand(g)?.contiguous()? } else { operand(g)? };
    let to = indices.clone();
    let windows = windows.map(|windows| windows.inverse());
    let x = Tensor::build_ordered(op, shape.clone(), *last, wide.dtype(), g.device(), |out| {
        let [lg, li, lx] = [wide.layout(), indices.layout(), out.layout].map(|layout| planes(op, layout, rank));
        let (lg, li, lx) = (lg?, li?, lx?);
        let (g, indices) = (wide.as_view_with(&lg)?, indices.as_view_with(&li)?);
        let mut out = out.part(&lx);
        kernel!("max_pool" on [g, indices, out]: nn::pool::max_gradient(g, indices, &windows, &mut out))
    })?;
    x.to_dtype(g.dtype())?.record(op, &[g], |save| {
        let (to, shape) = (save.save(&to), g.layout().shape().clone());
        move |_: &BackwardContext, gx: &Tensor| {
            let flat = gx.flatten(lead, -1)?.gather(-1, &to.flatten(lead, -1)?)?;
            Ok(smallvec![Some(flat.reshape(&shape)?)])
        }
    })
}

/// The sums of windows, divided by a number. The gradient is the sum over the inverse windows: for each input element,
/// the windows that contain it.
#[track_caller]
pub(in crate::ops) fn window_sums(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    windows: &[Windows; 3],
    divisor: f64,
) -> Result<Tensor> {
    sums_in_order(op, rank, x, windows, divisor, channels_last(x, rank))
}

/// As [`window_sums`], with the channels of the result last or not.
#[track_caller]
fn sums_in_order(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    windows: &[Windows; 3],
    divisor: f64,
    last: bool,
) -> Result<Tensor> {
    if x.is_batched() {
        // All leading dimensions are treated alike, so they are flattened into one.
        let shape = with_windows(x.shape(), windows, rank);
        let lead = x.rank() - rank;
        let flat = x.flatten(0, lead - 1)?;
        let done = flat.with_examples(|all| {
            let y = window_sums(op, rank, &all.flatten(0, 1)?, windows, divisor)?;
            y.unflatten(0, [all.shape()[0], all.shape()[1]])
        });
        if let Some(y) = done {
            return y?.reshape(&shape);
        }
    }
    let wide = operand(x)?;
    let y = Tensor::build_ordered(op, with_windows(x.shape(), windows, rank), last, wide.dtype(), x.device(), |out| {
        let (lx, ly) = (planes(op, wide.layout(), rank)?, planes(op, out.layout, rank)?);
        let x = wide.as_view_with(&lx)?;
        let mut out = out.part(&ly);
        kernel!("avg_pool" on [x, out]: nn::pool::sum(x, windows, divisor, &mut out))
    })?;
    let (inverse, last) = (windows.map(|windows| windows.inverse()), channels_last(x, rank));
    y.to_dtype(x.dtype())?.record(op, &[x], |_| {
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(sums_in_order(op, rank, g, &inverse, divisor, last)?)])
    })
}

/// The sums of windows, each divided by the product of its lengths in all dimensions.
#[track_caller]
pub(in crate::ops) fn divided(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    windows: &[Windows; 3],
    length: impl Fn(usize, usize) -> usize,
) -> Result<Tensor> {
    if windows.iter().any(|windows| windows.count > 1 << 20) {
        // Refuses a result that does not fit in memory before looping over all windows.
        Tensor::empty(op, with_windows(x.shape(), windows, rank), x.dtype(), x.device())?;
    }
    let same = |dim: usize| (1..windows[dim].count).all(|o| length(dim, o) == length(dim, 0));
    if x.numel() == 0 || windows.iter().any(|windows| windows.count == 0) {
        return window_sums(op, rank, x, windows, 1.0);
    }
    if (3 - rank..3).all(same) {
        let divisor: f64 = (3 - rank..3).map(|dim| length(dim, 0) as f64).product();
        return window_sums(op, rank, x, windows, divisor);
    }
    let mut lengths = Tensor::ones_with((), DType::F64)?;
    for (dim, windows) in windows.iter().enumerate().skip(3 - rank) {
        let own: Vec<f64> = (0..windows.count).map(|o| length(dim, o) as f64).collect();
        lengths = lengths.unsqueeze(-1)?.mul(&Tensor::from_vec(own, [windows.count])?)?;
    }
    let divisors = lengths.to_dtype(x.dtype())?.to_device(x.device())?;
    window_sums(op, rank, x, windows, 1.0)?.div(&divisors)
}

#[track_caller]
fn average(op: &'static str, rank: usize, x: &Tensor, kernel: &Sizes, options: &AvgPoolOptions) -> Result<Tensor> {
    check_rank(op, x, rank)?;
    float_only(op, x)?;
    let frame = Frame::new(op, rank, kernel, &options.stride, &options.padding, &Sizes::from(1))?;
    if (3 - rank..3).any(|dim| frame.pad[dim] > frame.kernel[dim] / 2) {
        let (pad, kernel) = (&options.padding.0[..], &kernel.0[..]);
        bail!(Value, op, "padding must be at most half of kernel_size {kernel:?}, got {pad:?}");
    }
    let windows = frame.windows(op, rank, x, options.ceil_mode)?;
    if let Some(divisor) = options.divisor_override {
        if divisor == 0 {
            bail!(Value, op, "divisor_override must not be 0");
        }
        return window_sums(op, rank, x, &windows, divisor as f64);
    }
    divided(op, rank, x, &windows, |dim, o| {
        if !options.count_include_pad {
            return windows[dim].at(o).1;
        }
        // Elements in the padding count, elements beyond it do not.
        let end = (o * frame.stride[dim] + frame.kernel[dim]).min(windows[dim].size + 2 * frame.pad[dim]);
        end - o * frame.stride[dim]
    })
}

/// An image of this rank with distinct elements.
pub(in crate::ops) fn image(n: usize, c: usize, rank: usize) -> Result<Tensor> {
    let sizes = [4, 5, 7];
    let sizes = if rank == 3 { &[3, 4, 5][..] } else { &sizes[3 - rank..] };
    let shape: Shape = [n, c].iter().chain(sizes).copied().collect();
    spread(shape, -2.0, 2.0)
}

fn max_samples(rank: usize) -> Result<Vec<Sample>> {
    let three: [isize; 3] = [3, 2, 3];
    Ok(vec![
        sample![image(2, 2, rank)?, 2],
        sample![image(1, 2, rank)?.select(0, 0)?, &three[3 - rank..]],
        sample![image(2, 1, rank)?, 3; stride = 2, padding = 1],
        sample![image(1, 2, rank)?, 2; stride = 1, dilation = 2],
        sample![image(1, 1, rank)?, 3; stride = 2, padding = 1, ceil_mode = true],
        sample![image(0, 2, rank)?, 2],
        sample![
            ints(
                &[1, 5, 2, 9, 3, 4, 8, 7][..1 << rank],
                [1_usize, 1].iter().chain(&[2, 2, 2][3 - rank..]).copied().collect::<Shape>()
            )?,
            1
        ],
    ])
}

fn avg_samples(rank: usize) -> Result<Vec<Sample>> {
    Ok(vec![
        sample![image(2, 2, rank)?, 2],
        sample![image(1, 2, rank)?.select(0, 0)?, 3],
        sample![image(2, 1, rank)?, 3; stride = 2, padding = 1],
        sample![image(1, 2, rank)?, 2; stride = 2, padding = 1, count_include_pad = false],
        sample![image(1, 1, rank)?, 3; stride = 2, padding = 1, ceil_mode = true],
        sample![image(1, 1, rank)?, 2; divisor_override = 3],
        sample![image(0, 2, rank)?, 2],
    ])
}

fn pool_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let x = image(1, 2, rank)?;
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, 2]],
        error!["an empty window", "kernel_size", "[0]"; sample![&x, 0]],
        error!["windows larger than the input", "9", "[1, 2"; sample![&x, 9]],
        error!["too much padding", "padding"; sample![&x, 2; padding = 2]],
        error!["a stride of 0", "stride", "[0]"; sample![&x, 2; stride = 0]],
        error!["too many numbers", "[1, 1, 1, 1]"; sample![&x, vec![1; 4]]],
    ])
}

fn avg_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let mut all = pool_errors(rank)?;
    let x = image(1, 2, rank)?;
    all.push(error!["integers", "i64"; sample![x.to_dtype(DType::I64)?, 2]]);
    all.push(error!["a divisor of 0", "divisor_override"; sample![&x, 2; divisor_override = 0]]);
    Ok(all)
}
