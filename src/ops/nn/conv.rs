//! Convolutions and their transposes.
//!
//! There are three kernels: forward (`y` from `x` and the weight), the gradient of the input (from that of `y` and the
//! weight; it is also the transposed convolution) and the gradient of the weight. Each is linear in both of its
//! operands, and the other two are its derivatives.

mod kernels;
mod taps;

use crate::backend::spec::Conv;
use crate::error::bail;
use crate::layout::Sizes;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::linalg::precision::{MatmulPrecision, matmul_precision};
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::ops::{Arg, ArgKind, FromArg, ops};
use crate::options::options;
use crate::{DType, Result, Tensor, backend};
pub(in crate::ops) use kernels::five;
use kernels::{forward, input_gradient, shape};

/// The zero padding of a convolution, on both sides of each dimension.
///
/// ```
/// use cotangent::{Tensor, options::{ConvOptions, ConvPadding}};
/// let (x, weight) = (Tensor::ones([1, 1, 5])?, Tensor::ones([1, 1, 3])?);
/// assert_eq!(x.conv1d(&weight)?.shape(), [1, 1, 3]);
/// assert_eq!(x.conv1d_with(&weight, ConvOptions::new().padding(2))?.shape(), [1, 1, 7]);
/// assert_eq!(x.conv1d_with(&weight, ConvOptions::new().padding(ConvPadding::Same))?.shape(), [1, 1, 5]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvPadding {
    /// No padding: windows stay inside the input.
    Valid,
    /// Padding that gives the output the size of the input; if the total is odd, one more at the end.
    Same,
    /// One number for each dimension, or one for all.
    Zeros(Sizes),
}

impl<T: Into<Sizes>> From<T> for ConvPadding {
    fn from(sizes: T) -> ConvPadding {
        ConvPadding::Zeros(sizes.into())
    }
}

impl<'a> FromArg<'a> for ConvPadding {
    const KIND: ArgKind = ArgKind::Sizes;

    fn from_arg(arg: &'a Arg) -> Option<ConvPadding> {
        match arg {
            Arg::Text(word) if word == "same" => Some(ConvPadding::Same),
            Arg::Text(word) if word == "valid" => Some(ConvPadding::Valid),
            other => Sizes::from_arg(other).map(ConvPadding::Zeros),
        }
    }
}

impl From<ConvPadding> for Arg {
    fn from(padding: ConvPadding) -> Arg {
        match padding {
            ConvPadding::Valid => Arg::from("valid"),
            ConvPadding::Same => Arg::from("same"),
            ConvPadding::Zeros(sizes) => Arg::from(sizes),
        }
    }
}

options! {
    /// The options of [`Tensor::conv1d_with`], [`Tensor::conv2d_with`] and [`Tensor::conv3d_with`]. One number applies
    /// to all dimensions.
    ///
    /// ```
    /// use cotangent::{Tensor, options::ConvOptions};
    /// let (x, weight) = (Tensor::ones([1, 2, 9, 9])?, Tensor::ones([4, 1, 3, 3])?);
    /// let y = x.conv2d_with(&weight, ConvOptions::new().stride(2).padding([1, 0]).groups(2_usize))?;
    /// assert_eq!(y.shape(), [1, 4, 5, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ConvOptions<'a> {
        /// Added to each output channel.
        bias: Option<&'a Tensor> = None,
        /// The stride of the windows.
        stride: Sizes = Sizes::from(1),
        /// The zero padding.
        padding: ConvPadding = ConvPadding::from(0),
        /// The spacing between the elements of a window.
        dilation: Sizes = Sizes::from(1),
        /// The number of groups of channels, each convolved independently.
        groups: usize = 1,
    }
}

options! {
    /// The options of [`Tensor::conv_transpose1d_with`], [`Tensor::conv_transpose2d_with`] and
    /// [`Tensor::conv_transpose3d_with`]. One number applies to all dimensions.
    ///
    /// ```
    /// use cotangent::{Tensor, options::ConvTransposeOptions};
    /// let (x, weight) = (Tensor::ones([1, 2, 4, 4])?, Tensor::ones([2, 3, 3, 3])?);
    /// let y = x.conv_transpose2d_with(&weight, ConvTransposeOptions::new().stride(2).padding(1).output_padding(1))?;
    /// assert_eq!(y.shape(), [1, 3, 8, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ConvTransposeOptions<'a> {
        /// Added to each output channel.
        bias: Option<&'a Tensor> = None,
        /// The stride of the windows.
        stride: Sizes = Sizes::from(1),
        /// The number of elements removed from both sides of the result.
        padding: Sizes = Sizes::from(0),
        /// The additional size at the end of the result, as several sizes match the same input.
        output_padding: Sizes = Sizes::from(0),
        /// The number of groups of channels, each convolved independently.
        groups: usize = 1,
        /// The spacing between the elements of a window.
        dilation: Sizes = Sizes::from(1),
    }
}

impl<'a> From<&'a Tensor> for ConvOptions<'a> {
    fn from(bias: &'a Tensor) -> ConvOptions<'a> {
        ConvOptions::new().bias(bias)
    }
}

impl<'a> From<&'a Tensor> for ConvTransposeOptions<'a> {
    fn from(bias: &'a Tensor) -> ConvTransposeOptions<'a> {
        ConvTransposeOptions::new().bias(bias)
    }
}

/// # Convolutions
#[ops]
impl Tensor {
    /// The 1-dimensional convolution (cross-correlation) of an input `[batch, in channels, length]` with a weight `[out
    /// channels, in channels / groups, size]`. The batch dimension may be missing. The bias, stride, padding, dilation
    /// and groups are options.
    ///
    /// ```
    /// # use cotangent::{tensor, options::ConvOptions};
    /// let (x, weight) = (tensor!([[1.0, 2.0, 3.0, 4.0]])?, tensor!([[[1.0, 10.0]]])?);
    /// assert_eq!(x.conv1d(&weight)?.to_vec::<f32>()?, [21.0, 32.0, 43.0]);
    /// let y = x.conv1d_with(&weight, ConvOptions::new().stride(2).padding(1))?;
    /// assert_eq!(y.to_vec::<f32>()?, [10.0, 32.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a window is larger than the padded input, or the tensors are neither floating point
    /// nor complex.
    #[op(autocast = lower, samples = || conv_samples(1), errors = || conv_errors(1))]
    pub fn conv1d<'a>(&self, weight: &Tensor, options: impl Into<ConvOptions<'a>>) -> Result<Tensor> {
        convolution("conv1d", 1, self, weight, &options)
    }

    /// The 2-dimensional convolution (cross-correlation) of an input `[batch, in channels, height, width]` with a
    /// weight `[out channels, in channels / groups, height, width]`. The batch dimension may be missing. The bias,
    /// stride, padding, dilation and groups are options.
    ///
    /// On a GPU, half-precision results may be stored with the channels last, which is faster. Then
    /// [`is_contiguous`](Self::is_contiguous) is false, and [`view`](Self::view) may fail where
    /// [`reshape`](Self::reshape) and [`flatten`](Self::flatten) work.
    /// [`MatmulPrecision::Tf32`](crate::settings::MatmulPrecision::Tf32) also applies to convolutions of `f32`.
    ///
    /// ```
    /// # use cotangent::{Tensor, s, options::ConvOptions};
    /// let (x, weight) = (Tensor::ones([8, 3, 32, 32])?, Tensor::ones([16, 3, 3, 3])?);
    /// assert_eq!(x.conv2d(&weight)?.shape(), [8, 16, 30, 30]);
    /// let y = x.conv2d_with(&weight, ConvOptions::new().stride(2).padding(1))?;
    /// assert_eq!((y.shape(), y.index(s![0, 0, 1, 1])?.item::<f32>()?), (&[8, 16, 16, 16][..], 27.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`conv1d`](Self::conv1d).
    #[op(autocast = lower, samples = || conv_samples(2), errors = || conv_errors(2))]
    pub fn conv2d<'a>(&self, weight: &Tensor, options: impl Into<ConvOptions<'a>>) -> Result<Tensor> {
        convolution("conv2d", 2, self, weight, &options)
    }

    /// The 3-dimensional convolution (cross-correlation) of an input `[batch, in channels, depth, height, width]` with
    /// a weight `[out channels, in channels / groups, depth, height, width]`. The batch dimension may be missing. The
    /// bias, stride, padding, dilation and groups are options.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (x, weight) = (Tensor::ones([2, 3, 8, 8, 8])?, Tensor::ones([4, 3, 3, 3, 3])?);
    /// assert_eq!(x.conv3d(&weight)?.shape(), [2, 4, 6, 6, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`conv1d`](Self::conv1d).
    #[op(autocast = lower, samples = || conv_samples(3), errors = || conv_errors(3))]
    pub fn conv3d<'a>(&self, weight: &Tensor, options: impl Into<ConvOptions<'a>>) -> Result<Tensor> {
        convolution("conv3d", 3, self, weight, &options)
    }

    /// The transposed convolution, the gradient of [`conv1d`](Self::conv1d) with respect to its input: an input
    /// `[batch, in channels, length]` with a weight `[in channels, out channels / groups, size]`.
    ///
    /// ```
    /// # use cotangent::{tensor, options::ConvTransposeOptions};
    /// let (x, weight) = (tensor!([[1.0, 2.0, 3.0]])?, tensor!([[[1.0, 10.0]]])?);
    /// assert_eq!(x.conv_transpose1d(&weight)?.to_vec::<f32>()?, [1.0, 12.0, 23.0, 30.0]);
    /// let y = x.conv_transpose1d_with(&weight, ConvTransposeOptions::new().stride(2))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, the padding exceeds the result, `output_padding` is not smaller than the stride or
    /// the dilation, or the tensors are neither floating point nor complex.
    #[op(autocast = lower, samples = || transposed_samples(1), errors = || transposed_errors(1))]
    pub fn conv_transpose1d<'a>(
        &self,
        weight: &Tensor,
        options: impl Into<ConvTransposeOptions<'a>>,
    ) -> Result<Tensor> {
        transposed("conv_transpose1d", 1, self, weight, &options)
    }

    /// The transposed convolution, the gradient of [`conv2d`](Self::conv2d) with respect to its input.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::ConvTransposeOptions};
    /// let (x, weight) = (Tensor::ones([8, 16, 7, 7])?, Tensor::ones([16, 4, 2, 2])?);
    /// let y = x.conv_transpose2d_with(&weight, ConvTransposeOptions::new().stride(2))?;
    /// assert_eq!(y.shape(), [8, 4, 14, 14]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`conv_transpose1d`](Self::conv_transpose1d).
    #[op(autocast = lower, samples = || transposed_samples(2), errors = || transposed_errors(2))]
    pub fn conv_transpose2d<'a>(
        &self,
        weight: &Tensor,
        options: impl Into<ConvTransposeOptions<'a>>,
    ) -> Result<Tensor> {
        transposed("conv_transpose2d", 2, self, weight, &options)
    }

    /// The transposed convolution, the gradient of [`conv3d`](Self::conv3d) with respect to its input.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (x, weight) = (Tensor::ones([2, 3, 4, 4, 4])?, Tensor::ones([3, 5, 2, 2, 2])?);
    /// assert_eq!(x.conv_transpose3d(&weight)?.shape(), [2, 5, 5, 5, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`conv_transpose1d`](Self::conv_transpose1d).
    #[op(autocast = lower, samples = || transposed_samples(3), errors = || transposed_errors(3))]
    pub fn conv_transpose3d<'a>(
        &self,
        weight: &Tensor,
        options: impl Into<ConvTransposeOptions<'a>>,
    ) -> Result<Tensor> {
        transposed("conv_transpose3d", 3, self, weight, &options)
    }
}

/// Three numbers: `sizes` for the last `rank` dimensions, each at least `least`, and `other` for those before.
pub(crate) fn each(
    op: &'static str,
    name: &str,
    sizes: &[isize],
    rank: usize,
    least: usize,
    other: usize,
) -> Result<[usize; 3]> {
    if sizes.len() != 1 && sizes.len() != rank {
        bail!(Value, op, "{name} must be a number or a list of {rank}, got {sizes:?}");
    }
    let mut all = [other; 3];
    for dim in 0..rank {
        let size = sizes[if sizes.len() == 1 { 0 } else { dim }];
        match usize::try_from(size) {
            Ok(size) if size >= least => all[3 - rank + dim] = size,
            _ => bail!(Value, op, "{name} must be ≥ {least}, got {sizes:?}"),
        }
    }
    Ok(all)
}

/// The spatial sizes, extended to three dimensions.
pub(in crate::ops) fn spatial(shape: &[usize], rank: usize) -> [usize; 3] {
    let mut all = [1; 3];
    all[3 - rank..].copy_from_slice(&shape[shape.len() - rank..]);
    all
}

/// The operands of a convolution, after checks of ranks, dtypes and groups. An unbatched input gets a batch of one.
struct Operands {
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    unbatched: bool,
}

impl Operands {
    #[track_caller]
    fn new(
        op: &'static str,
        rank: usize,
        x: &Tensor,
        w: &Tensor,
        bias: Option<&Tensor>,
        groups: usize,
    ) -> Result<Self> {
        let unbatched = x.rank() == rank + 1;
        if !(unbatched || x.rank() == rank + 2) || w.rank() != rank + 2 {
            let (x, w, all) = (x.shape(), w.shape(), rank + 2);
            bail!(
                Shape,
                op,
                "input and weight must have {all} dimensions, or input {} without a batch, got shapes {x:?} and {w:?}",
                rank + 1
            );
        }
        if groups == 0 {
            bail!(Value, op, "groups must be positive, got 0");
        }
        let mut dtype = x.dtype();
        for t in [Some(x), Some(w), bias].into_iter().flatten() {
            float_only(op, t)?;
            backend::common_device(op, x.device(), [t.device()])?;
            dtype = common_dtype(op, dtype, t.dtype())?;
        }
        let x = if unbatched { x.unsqueeze(0)? } else { x.clone() };
        let bias = bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
        Ok(Operands { x: x.to_dtype(dtype)?, weight: w.to_dtype(dtype)?, bias, unbatched })
    }

    fn misfit<T>(&self, op: &'static str, groups: usize, must: &str) -> Result<T> {
        let (x, w) = (self.x.shape(), self.weight.shape());
        let bias = self.bias.as_ref().map_or_else(String::new, |bias| format!(", bias {:?}", bias.shape()));
        bail!(
            Shape,
            op,
            "input, weight and bias must be {must} with {groups} groups, got input {x:?}, weight {w:?}{bias}"
        )
    }

    fn finish(&self, y: Tensor) -> Result<Tensor> {
        if self.unbatched { y.squeeze(0) } else { Ok(y) }
    }
}

/// A complex operation that is linear in input and weight, by four real ones. `None` if all tensors are real.
#[track_caller]
fn of_complex(
    op: &'static str,
    [x, w]: [&Tensor; 2],
    bias: Option<&Tensor>,
    real: impl Fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    let tensors = || [Some(x), Some(w), bias].into_iter().flatten();
    if !tensors().any(|t| t.dtype().is_complex()) {
        return Ok(None);
    }
    let mut dtype = x.dtype();
    for t in tensors() {
        if !t.dtype().is_complex() {
            float_only(op, t)?;
        }
        dtype = common_dtype(op, dtype, t.dtype())?;
    }
    let parts = |t: &Tensor| {
        let t = t.to_dtype(dtype)?;
        Ok::<_, crate::Error>((t.real()?, t.imag()?))
    };
    let ((a, b), (c, d)) = (parts(x)?, parts(w)?);
    let (e, f) = bias.map(parts).transpose()?.unzip();
    let re = real(&a, &c, e.as_ref())?.sub(&real(&b, &d, None)?)?;
    let im = real(&a, &d, f.as_ref())?.add(&real(&b, &c, None)?)?;
    re.with_imaginary(&im).map(Some)
}

#[track_caller]
fn convolution(op: &'static str, rank: usize, x: &Tensor, w: &Tensor, options: &ConvOptions<'_>) -> Result<Tensor> {
    let parts = |x: &Tensor, w: &Tensor, bias: Option<&Tensor>| {
        convolution(op, rank, x, w, &ConvOptions { bias, ..options.clone() })
    };
    if let Some(y) = of_complex(op, [x, w], options.bias, parts)? {
        return Ok(y);
    }
    let groups = options.groups;
    let all = Operands::new(op, rank, x, w, options.bias, groups)?;
    let (xs, ws) = (all.x.shape(), all.weight.shape());
    let fits = ws[0].is_multiple_of(groups)
        && ws[1].checked_mul(groups) == Some(xs[1])
        && all.bias.as_ref().is_none_or(|bias| bias.shape() == [ws[0]]);
    if !fits {
        return all.misfit(op, groups, "[batch, in, ..], [out, in / groups, ..] and [out]");
    }
    let stride = each(op, "stride", &options.stride.0, rank, 1, 1)?;
    let dilation = each(op, "dilation", &options.dilation.0, rank, 1, 1)?;
    let (input, kernel) = (spatial(xs, rank), spatial(ws, rank));
    if kernel.contains(&0) {
        bail!(Shape, op, "kernel sizes must be positive, got weight of shape {ws:?}");
    }
    // The padding in front, and the total padding.
    let (pad, more) = match &options.padding {
        ConvPadding::Valid => ([0; 3], [0; 3]),
        ConvPadding::Same => {
            if stride != [1; 3] {
                bail!(Value, op, "padding 'same' requires stride 1, got {:?}", &options.stride.0[..]);
            }
            let span: [usize; 3] = std::array::from_fn(|dim| dilation[dim].saturating_mul(kernel[dim] - 1));
            (span.map(|span| span / 2), span)
        }
        ConvPadding::Zeros(sizes) => {
            let pad = each(op, "padding", &sizes.0, rank, 0, 0)?;
            (pad, pad.map(|pad| pad.saturating_mul(2)))
        }
    };
    let mut output = [0; 3];
    for dim in 0..3 {
        let span = dilation[dim].checked_mul(kernel[dim] - 1).and_then(|span| span.checked_add(1));
        let padded = input[dim].checked_add(more[dim]).filter(|&padded| isize::try_from(padded).is_ok());
        output[dim] = match (span, padded) {
            (Some(span), Some(padded)) if span <= padded => (padded - span) / stride[dim] + 1,
            _ => {
                let (kernel, dilation) = (&kernel[3 - rank..], &dilation[3 - rank..]);
                bail!(
                    Shape,
                    op,
                    "kernel {kernel:?} with dilation {dilation:?} must fit the padded input, got shape {xs:?} with total padding {:?}",
                    &more[3 - rank..]
                );
            }
        };
    }
    let conv = Conv {
        batch: xs[0],
        groups,
        c_in: ws[1],
        c_out: ws[0] / groups,
        input,
        output,
        kernel,
        stride,
        pad,
        dilation,
        tf32: matmul_precision() == MatmulPrecision::Tf32,
    };
    all.finish(forward(op, &all.x, &all.weight, all.bias.as_ref(), &conv)?)
}

#[track_caller]
fn transposed(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    w: &Tensor,
    options: &ConvTransposeOptions<'_>,
) -> Result<Tensor> {
    let parts = |x: &Tensor, w: &Tensor, bias: Option<&Tensor>| {
        transposed(op, rank, x, w, &ConvTransposeOptions { bias, ..options.clone() })
    };
    if let Some(y) = of_complex(op, [x, w], options.bias, parts)? {
        return Ok(y);
    }
    let groups = options.groups;
    let all = Operands::new(op, rank, x, w, options.bias, groups)?;
    let (xs, ws) = (all.x.shape(), all.weight.shape());
    let out = ws[1].checked_mul(groups);
    let fits = ws[0].is_multiple_of(groups)
        && ws[0] == xs[1]
        && out.is_some_and(|out| all.bias.as_ref().is_none_or(|bias| bias.shape() == [out]));
    if !fits {
        return all.misfit(op, groups, "[batch, in, ..], [in, out / groups, ..] and [out]");
    }
    let stride = each(op, "stride", &options.stride.0, rank, 1, 1)?;
    let dilation = each(op, "dilation", &options.dilation.0, rank, 1, 1)?;
    let pad = each(op, "padding", &options.padding.0, rank, 0, 0)?;
    let more = each(op, "output_padding", &options.output_padding.0, rank, 0, 0)?;
    let (output, kernel) = (spatial(xs, rank), spatial(ws, rank));
    if kernel.contains(&0) || output.contains(&0) {
        bail!(Shape, op, "input and kernel sizes must be positive, got input {xs:?} and weight {ws:?}");
    }
    if (0..3).any(|dim| more[dim] >= stride[dim].max(dilation[dim])) {
        let (more, stride, dilation) = (&more[3 - rank..], &stride[3 - rank..], &dilation[3 - rank..]);
        bail!(
            Value,
            op,
            "output_padding must be smaller than stride {stride:?} or dilation {dilation:?}, got {more:?}"
        );
    }
    let mut input = [1; 3];
    for dim in 0..3 {
        let wide = |x: usize| x as i128;
        let steps = (wide(output[dim]) - 1).checked_mul(wide(stride[dim]));
        let span = wide(dilation[dim]).checked_mul(wide(kernel[dim]) - 1);
        let size = steps.zip(span).map(|(steps, span)| steps + span + wide(more[dim]) + 1 - 2 * wide(pad[dim]));
        // The size before the padding is removed must fit in isize as well.
        let fits = |size: &i128| *size >= 0 && *size + 2 * wide(pad[dim]) <= isize::MAX as i128;
        match size.filter(fits) {
            Some(size) => input[dim] = size as usize,
            None => {
                let (pad, kernel, stride) = (&pad[3 - rank..], &kernel[3 - rank..], &stride[3 - rank..]);
                bail!(
                    Shape,
                    op,
                    "output size is negative or too large for input {xs:?}, kernel {kernel:?}, stride {stride:?} and padding {pad:?}"
                );
            }
        }
    }
    let conv = Conv {
        batch: xs[0],
        groups,
        c_in: ws[1],
        c_out: ws[0] / groups,
        input,
        output,
        kernel,
        stride,
        pad,
        dilation,
        tf32: matmul_precision() == MatmulPrecision::Tf32,
    };
    all.finish(input_gradient(op, &all.x, &all.weight, all.bias.as_ref(), &conv)?)
}

/// Samples for one rank.
fn conv_samples(rank: usize) -> Result<Vec<Sample>> {
    let dims = |n: usize, c: usize, sizes: [usize; 3]| shape([n, c], sizes, rank);
    let x = |n: usize, c: usize, sizes: [usize; 3]| normal(dims(n, c, sizes), 1);
    let w = |o: usize, c: usize, sizes: [usize; 3]| normal(dims(o, c, sizes), 2);
    let small = if rank == 3 { [3, 3, 4] } else { [3, 4, 5] };
    let mut all = vec![
        sample![x(2, 3, small)?, w(2, 3, [2, 2, 3])?],
        sample![x(1, 2, small)?, w(3, 2, [2, 3, 2])?, normal([3], 3)?; stride = 2, padding = 1],
        sample![x(2, 2, small)?, w(4, 1, [2, 2, 2])?; groups = 2, padding = vec![1; rank], dilation = 2],
        sample![x(2, 2, small)?.squeeze(0)?.select(0, 0)?, w(2, 2, [1, 1, 1])?, normal([2], 3)?],
        sample![x(1, 2, small)?, w(9, 2, [2, 2, 2])?; padding = "same"],
        sample![x(2, 9, [2, 2, 3])?, w(2, 9, [2, 2, 2])?; stride = 3, padding = 1],
        sample![x(2, 3, small)?, w(10, 3, [1, 1, 1])?, normal([10], 3)?],
        sample![x(0, 2, small)?, w(2, 2, [2, 2, 2])?],
        sample![x(2, 0, small)?, w(2, 0, [2, 2, 2])?, normal([2], 3)?],
    ];
    if rank == 1 {
        let complex = |x: Tensor| x.complex(&x.rsub(1.0)?);
        let (x, w, bias) = (complex(x(2, 2, small)?)?, complex(w(4, 1, [2, 2, 2])?)?, complex(normal([4], 3)?)?);
        all.push(sample![x, w, bias; groups = 2, stride = 2, padding = 1]);
    }
    if rank < 3 {
        all.push(sample![x(1, 3, [3, 5, 17])?, w(3, 1, [2, 3, 3])?; groups = 3, padding = 1, stride = vec![2; rank]]);
        all.push(
            sample![x(2, 2, [3, 5, 7])?, w(8, 1, [2, 3, 3])?, normal([8], 3)?; groups = 2, padding = 2, dilation = 2],
        );
        all.push(sample![x(1, 1, [3, 4, 9])?, w(8, 1, [2, 2, 2])?; stride = 4, padding = "valid"]);
    }
    Ok(all)
}

fn transposed_samples(rank: usize) -> Result<Vec<Sample>> {
    let x = |n: usize, c: usize, sizes: [usize; 3]| normal(shape([n, c], sizes, rank), 1);
    let w = |o: usize, c: usize, sizes: [usize; 3]| normal(shape([o, c], sizes, rank), 2);
    let small = [2, 2, 3];
    let mut all = vec![
        sample![x(2, 2, small)?, w(2, 3, [2, 2, 3])?],
        sample![x(1, 2, small)?, w(2, 3, [2, 3, 2])?, normal([3], 3)?; stride = 2, padding = 1, output_padding = 1],
        sample![x(2, 2, small)?, w(2, 2, [2, 2, 2])?; groups = 2, dilation = 2],
        sample![x(1, 2, small)?.select(0, 0)?, w(2, 9, [1, 2, 2])?, normal([9], 3)?; stride = vec![3; rank]],
        sample![x(1, 9, small)?, w(9, 1, [1, 2, 2])?; groups = 9, stride = 2],
        sample![x(0, 2, small)?, w(2, 2, [2, 2, 2])?],
    ];
    if rank < 3 {
        all.push(sample![x(1, 3, [3, 3, 9])?, w(3, 8, [3, 3, 3])?; stride = 2, padding = 2, dilation = 2]);
    }
    Ok(all)
}

fn conv_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let cube = |a: usize, b: usize, size: usize| normal(shape([a, b], [size; 3], rank), 1);
    let (x, w) = (cube(1, 2, 4)?, cube(3, 2, 2)?);
    Ok(vec![
        error!["channels that differ", "2", "3", "groups"; sample![&x, cube(3, 3, 2)?]],
        error!["groups that do not fit", "4 groups"; sample![&x, &w; groups = 4]],
        error!["no groups", "groups", "0"; sample![&x, &w; groups = 0]],
        error!["a bias of another size", "[2]"; sample![&x, &w, normal([2], 1)?]],
        error!["a stride of 0", "stride", "[0]"; sample![&x, &w; stride = 0]],
        error!["a negative padding", "padding", "[-1]"; sample![&x, &w; padding = -1]],
        error!["too many numbers", "stride", "[1, 1, 1, 1]"; sample![&x, &w; stride = vec![1; 4]]],
        error!["windows that are too large", "dilation", "9"; sample![&x, &w; dilation = 9]],
        error!["a stride with `same`", "same", "[2]"; sample![&x, &w; stride = 2, padding = "same"]],
        error!["a weight of another rank", "dimensions"; sample![&x, normal([3], 1)?]],
        error!["an empty kernel", "must be positive"; sample![&x, cube(3, 2, 0)?]],
        error!["integers", "i64"; sample![x.to_dtype(DType::I64)?, w.to_dtype(DType::I64)?]],
        error!["a padding beyond all numbers", "padding"; sample![&x, &w; padding = isize::MAX]],
    ])
}

fn transposed_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let cube = |a: usize, b: usize, size: usize| normal(shape([a, b], [size; 3], rank), 1);
    let (x, w) = (cube(1, 2, 4)?, cube(2, 3, 2)?);
    Ok(vec![
        error!["channels that differ", "2", "3"; sample![&x, cube(3, 3, 2)?]],
        error!["groups that do not fit", "4 groups"; sample![&x, &w; groups = 4]],
        error!["a bias of another size", "[2]"; sample![&x, &w, normal([2], 1)?]],
        error!["an output padding as large as the stride", "output_padding", "2"; sample![&x, &w; stride = 2, output_padding = 2]],
        error!["nothing left", "padding"; sample![&x, &w; padding = 9]],
        error!["a result beyond all numbers", "[1, 2, 4"; sample![cube(1, 2, 4)?, &w; stride = isize::MAX]],
        error!["integers", "i64"; sample![x.to_dtype(DType::I64)?, w.to_dtype(DType::I64)?]],
    ])
}
