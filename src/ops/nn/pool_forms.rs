//! Power-average pooling, fractional max pooling and max unpooling.

use crate::error::bail;
use crate::layout::Sizes;
use crate::ops::nn::conv::{each, spatial};
use crate::ops::nn::pool::{Frame, check_rank, image};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::AvgPoolOptions;
use crate::options::options;
use crate::{DType, Result, Shape, Tensor};

options! {
    /// The options of power-average pooling, such as [`Tensor::lp_pool2d_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::LpPoolOptions};
    /// let x = Tensor::ones([1, 2, 7, 7])?;
    /// assert_eq!(x.lp_pool2d_with(2.0, 3, LpPoolOptions::new().stride(2))?.shape(), [1, 2, 3, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LpPoolOptions {
        /// The stride of the windows; by default their size.
        stride: Sizes = Sizes::from(()),
        /// Whether the last window may extend beyond the input.
        ceil_mode: bool = false,
    }
}

options! {
    /// The options of fractional max pooling, such as [`Tensor::fractional_max_pool2d_with`]. Either `output_size` or
    /// `output_ratio` must be given.
    ///
    /// ```
    /// use cotangent::{Tensor, options::FractionalMaxPoolOptions};
    /// let x = Tensor::ones([1, 2, 9, 9])?;
    /// let y = x.fractional_max_pool2d_with(2, FractionalMaxPoolOptions::new().output_ratio([0.7, 0.5]))?;
    /// assert_eq!(y.shape(), [1, 2, 6, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[allow(clippy::used_underscore_binding)]
    pub struct FractionalMaxPoolOptions<'a> {
        /// The output size.
        output_size: Sizes = Sizes::from(()),
        /// The ratio of the output size to the input size, between 0 and 1.
        output_ratio: Vec<f64> = Vec::new(),
        /// Numbers between 0 and 1 of shape `[batch, channels, dimensions]` that place the windows; random by default.
        _random_samples: Option<&'a Tensor> = None,
    }
}

options! {
    /// The options of max unpooling, such as [`Tensor::max_unpool2d_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::MaxUnpoolOptions};
    /// let (values, indices) = Tensor::ones([1, 1, 5, 5])?.max_pool2d_with_indices(2)?;
    /// let x = values.max_unpool2d_with(&indices, 2, MaxUnpoolOptions::new().output_size([5, 5]))?;
    /// assert_eq!(x.shape(), [1, 1, 5, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MaxUnpoolOptions {
        /// The stride of the windows; by default their size.
        stride: Sizes = Sizes::from(()),
        /// The padding of the pooling.
        padding: Sizes = Sizes::from(0),
        /// The output size, where the windows leave it ambiguous.
        output_size: Sizes = Sizes::from(()),
    }
}

/// # Power-average, unpooling and fractional pooling
#[ops]
impl Tensor {
    /// The power mean of each window without the division, `(Σ xᵖ)^(1/p)`, of a signal `[batch, channels, length]`.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[3.0, 4.0, 6.0, 8.0]])?.lp_pool1d(2.0, 2)?.to_vec::<f32>()?, [5.0, 10.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank or is not floating point, or no window fits.
    #[op(autocast_cuda = f32, samples = || lp_samples(1), errors = || lp_errors(1))]
    pub fn lp_pool1d(
        &self,
        norm_type: f64,
        kernel_size: impl Into<Sizes>,
        options: impl Into<LpPoolOptions>,
    ) -> Result<Tensor> {
        powers("lp_pool1d", 1, self, norm_type, &kernel_size, &options)
    }

    /// [`lp_pool1d`](Self::lp_pool1d) for an image `[batch, channels, height, width]`.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[[1.0, 1.0], [3.0, 5.0]]])?.lp_pool2d(2.0, 2)?.to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lp_pool1d`](Self::lp_pool1d).
    #[op(autocast_cuda = f32, samples = || lp_samples(2), errors = || lp_errors(2))]
    pub fn lp_pool2d(
        &self,
        norm_type: f64,
        kernel_size: impl Into<Sizes>,
        options: impl Into<LpPoolOptions>,
    ) -> Result<Tensor> {
        powers("lp_pool2d", 2, self, norm_type, &kernel_size, &options)
    }

    /// [`lp_pool1d`](Self::lp_pool1d) for a volume `[batch, channels, depth, height, width]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 2, 2, 2])?.lp_pool3d(1.0, 2)?.to_vec::<f32>()?, [8.0, 8.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lp_pool1d`](Self::lp_pool1d).
    #[op(autocast = f32, samples = || lp_samples(3), errors = || lp_errors(3))]
    pub fn lp_pool3d(
        &self,
        norm_type: f64,
        kernel_size: impl Into<Sizes>,
        options: impl Into<LpPoolOptions>,
    ) -> Result<Tensor> {
        powers("lp_pool3d", 3, self, norm_type, &kernel_size, &options)
    }

    /// Fractional max pooling: the maxima of windows at random positions of an image `[batch, channels, height,
    /// width]`.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::FractionalMaxPoolOptions};
    /// let x = Tensor::ones([1, 2, 9, 9])?;
    /// let y = x.fractional_max_pool2d_with(2, FractionalMaxPoolOptions::new().output_size(5))?;
    /// assert_eq!(y.shape(), [1, 2, 5, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank, not exactly one of size and ratio is given, or no window fits.
    #[op(autocast_cpu = f32, samples = || fractional_samples(2), errors = || fractional_errors(2), random)]
    pub fn fractional_max_pool2d<'a>(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<FractionalMaxPoolOptions<'a>>,
    ) -> Result<Tensor> {
        Ok(fractional("fractional_max_pool2d", 2, self, &kernel_size, &options)?.0)
    }

    /// [`fractional_max_pool2d`](Self::fractional_max_pool2d) for a volume `[batch, channels, depth, height, width]`.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::FractionalMaxPoolOptions};
    /// let x = Tensor::ones([1, 2, 5, 5, 5])?;
    /// let y = x.fractional_max_pool3d_with(2, FractionalMaxPoolOptions::new().output_size(3))?;
    /// assert_eq!(y.shape(), [1, 2, 3, 3, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fractional_max_pool2d`](Self::fractional_max_pool2d).
    #[op(autocast_cpu = f32, samples = || fractional_samples(3), errors = || fractional_errors(3), random)]
    pub fn fractional_max_pool3d<'a>(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<FractionalMaxPoolOptions<'a>>,
    ) -> Result<Tensor> {
        Ok(fractional("fractional_max_pool3d", 3, self, &kernel_size, &options)?.0)
    }

    /// As [`fractional_max_pool2d`](Self::fractional_max_pool2d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::FractionalMaxPoolOptions};
    /// let x = Tensor::ones([1, 1, 2, 2])?;
    /// let options = FractionalMaxPoolOptions::new().output_size(1);
    /// assert_eq!(x.fractional_max_pool2d_with_indices_with(2, options)?.1.to_vec::<i64>()?, [0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fractional_max_pool2d`](Self::fractional_max_pool2d).
    #[op(autocast_cpu = f32, samples = || fractional_samples(2), errors = || fractional_errors(2), random, outputs = [values, indices])]
    pub fn fractional_max_pool2d_with_indices<'a>(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<FractionalMaxPoolOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        fractional("fractional_max_pool2d_with_indices", 2, self, &kernel_size, &options)
    }

    /// As [`fractional_max_pool3d`](Self::fractional_max_pool3d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::FractionalMaxPoolOptions};
    /// let x = Tensor::ones([1, 1, 2, 2, 2])?;
    /// let options = FractionalMaxPoolOptions::new().output_size(1);
    /// assert_eq!(x.fractional_max_pool3d_with_indices_with(2, options)?.1.to_vec::<i64>()?, [0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fractional_max_pool2d`](Self::fractional_max_pool2d).
    #[op(autocast_cpu = f32, samples = || fractional_samples(3), errors = || fractional_errors(3), random, outputs = [values, indices])]
    pub fn fractional_max_pool3d_with_indices<'a>(
        &self,
        kernel_size: impl Into<Sizes>,
        options: impl Into<FractionalMaxPoolOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        fractional("fractional_max_pool3d_with_indices", 3, self, &kernel_size, &options)
    }

    /// The inverse of [`max_pool1d_with_indices`](Self::max_pool1d_with_indices): places the elements at their indices,
    /// with zeros elsewhere. If an index repeats, which element is kept is unspecified.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (values, indices) = tensor!([[1.0, 5.0, 2.0, 4.0]])?.max_pool1d_with_indices(2)?;
    /// assert_eq!(values.max_unpool1d(&indices, 2)?.to_vec::<f32>()?, [0.0, 5.0, 0.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the indices have the wrong shape or are out of range, or the windows cannot give the output size.
    #[op(autocast_cpu = f32, samples = || unpool_samples(1), errors = || unpool_errors(1))]
    pub fn max_unpool1d(
        &self,
        indices: &Tensor,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxUnpoolOptions>,
    ) -> Result<Tensor> {
        unpool("max_unpool1d", 1, self, indices, &kernel_size, &options)
    }

    /// The inverse of [`max_pool2d_with_indices`](Self::max_pool2d_with_indices): places the elements at their indices,
    /// with zeros elsewhere.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (values, indices) = tensor!([[[1.0, 5.0], [2.0, 4.0]]])?.max_pool2d_with_indices(2)?;
    /// assert_eq!(values.max_unpool2d(&indices, 2)?.to_vec::<f32>()?, [0.0, 5.0, 0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_unpool1d`](Self::max_unpool1d).
    #[op(autocast_cpu = f32, samples = || unpool_samples(2), errors = || unpool_errors(2))]
    pub fn max_unpool2d(
        &self,
        indices: &Tensor,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxUnpoolOptions>,
    ) -> Result<Tensor> {
        unpool("max_unpool2d", 2, self, indices, &kernel_size, &options)
    }

    /// The inverse of [`max_pool3d_with_indices`](Self::max_pool3d_with_indices): places the elements at their indices,
    /// with zeros elsewhere.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (values, indices) = Tensor::ones([1, 1, 2, 2, 2])?.max_pool3d_with_indices(2)?;
    /// assert_eq!(values.max_unpool3d(&indices, 2)?.sum(..)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`max_unpool1d`](Self::max_unpool1d).
    #[op(autocast_cpu = f32, samples = || unpool_samples(3), errors = || unpool_errors(3))]
    pub fn max_unpool3d(
        &self,
        indices: &Tensor,
        kernel_size: impl Into<Sizes>,
        options: impl Into<MaxUnpoolOptions>,
    ) -> Result<Tensor> {
        unpool("max_unpool3d", 3, self, indices, &kernel_size, &options)
    }
}

#[track_caller]
fn powers(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    norm_type: f64,
    kernel: &Sizes,
    options: &LpPoolOptions,
) -> Result<Tensor> {
    check_rank(op, x, rank)?;
    float_only(op, x)?;
    if norm_type == 0.0 {
        bail!(Value, op, "norm_type must not be 0");
    }
    let size: usize = each(op, "kernel_size", &kernel.0, rank, 1, 1)?.into_iter().fold(1, usize::saturating_mul);
    let own = AvgPoolOptions::new().stride(options.stride.clone()).ceil_mode(options.ceil_mode);
    let raised = x.pow(norm_type)?;
    let means = match rank {
        1 => raised.avg_pool1d_with(kernel.clone(), own)?,
        2 => raised.avg_pool2d_with(kernel.clone(), own)?,
        _ => raised.avg_pool3d_with(kernel.clone(), own)?,
    };
    means.sign()?.mul(&means.abs()?.relu()?)?.mul(size as f64)?.pow(1.0 / norm_type)
}

#[track_caller]
fn fractional(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    kernel: &Sizes,
    options: &FractionalMaxPoolOptions<'_>,
) -> Result<(Tensor, Tensor)> {
    check_rank(op, x, rank)?;
    float_only(op, x)?;
    let unbatched = x.rank() == rank + 1;
    let image = if unbatched { x.unsqueeze(0)? } else { x.clone() };
    let kernel = each(op, "kernel_size", &kernel.0, rank, 1, 1)?;
    let input = spatial(x.shape(), rank);
    let (sizes, ratios) = (&options.output_size.0[..], &options.output_ratio[..]);
    let output = match (sizes.is_empty(), ratios.is_empty()) {
        (false, true) => each(op, "output_size", sizes, rank, 1, 1)?,
        (true, false) if ratios.len() == 1 || ratios.len() == rank => {
            let mut output = [1; 3];
            for dim in 0..rank {
                let ratio = ratios[if ratios.len() == 1 { 0 } else { dim }];
                let size = (input[3 - rank + dim] as f64 * ratio) as usize;
                if !(ratio > 0.0 && ratio < 1.0) || size == 0 {
                    bail!(
                        Value,
                        op,
                        "output_ratio must be between 0 and 1 with an output size ≥ 1 for shape {:?}, got {ratios:?}",
                        x.shape()
                    );
                }
                output[3 - rank + dim] = size;
            }
            output
        }
        _ => bail!(
            Value,
            op,
            "expected output_size or output_ratio for {rank} dimensions, got output_size {sizes:?} and output_ratio {ratios:?}"
        ),
    };
    if let Some(dim) =
        (3 - rank..3).find(|&dim| output[dim].checked_add(kernel[dim] - 1).is_none_or(|size| size > input[dim]))
    {
        let (kernel, output) = (kernel[dim], output[dim]);
        bail!(
            Shape,
            op,
            "output_size {output} with kernel_size {kernel} does not fit dimension {} of shape {:?}",
            x.rank() + dim - 3,
            x.shape()
        );
    }
    let (n, c) = (image.shape()[0], image.shape()[1]);
    // Given samples are used in the precision of the input, as in PyTorch; random ones are the same for all dtypes.
    let given = options._random_samples.is_some();
    let wide = if given && x.dtype() != DType::F64 { DType::F32 } else { DType::F64 };
    let samples = match options._random_samples {
        Some(given) => {
            if given.shape() != [n, c, rank] {
                bail!(Shape, op, "_random_samples must have shape {:?}, got {:?}", [n, c, rank], given.shape());
            }
            given.detach().to_dtype(wide)?
        }
        None => Tensor::rand_with([n, c, rank], (wide, x.device()))?,
    };
    // The flat indices of all window elements in their channel: [batch, channels, outputs.., window elements..].
    let mut positions = Tensor::zeros_with((), (DType::I64, x.device()))?;
    for dim in 3 - rank..3 {
        let at = dim + rank - 3;
        // PyTorch's samples for images are ordered width, height.
        let sample = samples.select(2, if rank == 2 { 1 - at } else { at })?.unsqueeze(-1)?;
        let (size, count, span) = (input[dim], output[dim], kernel[dim]);
        let last = Tensor::full_with([n, c, 1], (size - span) as i64, (DType::I64, x.device()))?;
        let starts = if count > 1 {
            let alpha = (size - span) as f64 / (count - 1) as f64;
            let steps = Tensor::arange_with(0, count as i64 - 1, (wide, x.device()))?;
            let whole = |x: &Tensor| x.mul(alpha)?.to_dtype(DType::I64);
            Tensor::cat(&[whole(&steps.add(&sample)?)?.sub(&whole(&sample)?)?, last], -1)?
        } else {
            last
        };
        let inside = Tensor::arange_with(0, span as i64, (DType::I64, x.device()))?;
        // This dimension's outputs and elements, broadcast over those of the other dimensions.
        let mut shape: Vec<isize> = vec![n as isize, c as isize];
        shape.extend((0..rank).map(|d| if d == at { count as isize } else { 1 }));
        shape.extend((0..rank).map(|d| if d == at { span as isize } else { 1 }));
        let own = starts.unsqueeze(-1)?.add(&inside)?.reshape(&shape[..])?;
        positions = positions.mul(size as i64)?.add(&own)?;
    }
    let positions = positions.flatten(2 + rank, -1)?;
    let shape: Shape = positions.shape()[..2 + rank].into();
    let elements = image.flatten(2, -1)?.gather(-1, &positions.flatten(2, -1)?)?.reshape(positions.shape())?;
    let largest = elements.detach().argmax(crate::keepdim(-1))?;
    let done = |x: &Tensor| -> Result<Tensor> {
        let y = x.gather(-1, &largest)?.reshape(&shape)?;
        if unbatched { y.squeeze(0) } else { Ok(y) }
    };
    Ok((done(&elements)?, done(&positions)?))
}

#[track_caller]
fn unpool(
    op: &'static str,
    rank: usize,
    x: &Tensor,
    indices: &Tensor,
    kernel: &Sizes,
    options: &MaxUnpoolOptions,
) -> Result<Tensor> {
    check_rank(op, x, rank)?;
    if indices.shape() != x.shape() || indices.dtype() != DType::I64 {
        let (shape, dtype) = (indices.shape(), indices.dtype());
        bail!(Shape, op, "indices must be i64 of shape {:?}, got {dtype} of shape {shape:?}", x.shape());
    }
    let frame = Frame::new(op, rank, kernel, &options.stride, &options.padding, &Sizes::from(1))?;
    let input = spatial(x.shape(), rank);
    let asked = &options.output_size.0[..];
    let asked = if asked.len() == rank + 2 { &asked[2..] } else { asked };
    if !asked.is_empty() && asked.len() != rank {
        bail!(Value, op, "output_size must have {rank} elements, got {asked:?}");
    }
    let lead = x.rank() - rank;
    let mut shape: Shape = x.shape()[..lead].into();
    for dim in 0..rank {
        let at = 3 - rank + dim;
        let wide = |x: usize| x as i128;
        let least = (wide(input[at]) - 1) * wide(frame.stride[at]) + wide(frame.kernel[at]) - 2 * wide(frame.pad[at]);
        let size = asked.get(dim).map_or(least, |&size| size as i128);
        let near = (size - least).abs() < wide(frame.stride[at]).max(1);
        if size < 1 || !near || size > isize::MAX as i128 {
            bail!(
                Shape,
                op,
                "output_size of dimension {} must be ≥ 1 and less than one stride from {least}, got {size} for shape {:?}",
                lead + dim,
                x.shape()
            );
        }
        shape.insert(lead + dim, size as usize);
    }
    let flat: Shape = shape[..lead]
        .iter()
        .copied()
        .chain([shape[lead..].iter().fold(1, |n: usize, &s| n.saturating_mul(s))])
        .collect();
    let zeros = Tensor::zeros_with(&flat, (x.dtype(), x.device()))?;
    zeros.scatter(-1, &indices.flatten(lead, -1)?, &x.flatten(lead, -1)?)?.reshape(&shape)
}

fn lp_samples(rank: usize) -> Result<Vec<Sample>> {
    let positive = |n: usize| image(n, 2, rank)?.add(3.0);
    Ok(vec![
        sample![positive(2)?, 2.0, 2],
        sample![positive(1)?.select(0, 0)?, 3.0, 3; stride = 1],
        sample![positive(1)?, 1.5, 2; ceil_mode = true],
        sample![positive(1)?, 1.0, 2],
    ])
}

fn lp_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let x = image(1, 2, rank)?;
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, 2.0, 2]],
        error!["no order", "norm_type"; sample![&x, 0.0, 2]],
        error!["windows larger than the input", "9"; sample![&x, 2.0, 9]],
        error!["integers", "i64"; sample![x.to_dtype(DType::I64)?, 2.0, 2]],
    ])
}

fn fractional_samples(rank: usize) -> Result<Vec<Sample>> {
    Ok(vec![
        sample![image(2, 2, rank)?, 2; output_size = 2],
        sample![image(1, 2, rank)?.select(0, 0)?, 1; output_size = 3],
        sample![image(1, 1, rank)?, 2; output_ratio = vec![0.5; rank]],
        sample![image(1, 1, rank)?, 2; output_size = 1],
    ])
}

fn fractional_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let x = image(1, 2, rank)?;
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, 2; output_size = 2]],
        error!["no size", "output_size []"; sample![&x, 2]],
        error!["both", "output_size [2]"; sample![&x, 2; output_size = 2, output_ratio = vec![0.5]]],
        error!["a ratio of 2", "2.0"; sample![&x, 2; output_ratio = vec![2.0]]],
        error!["windows that do not fit", "does not fit"; sample![&x, 3; output_size = 4]],
        error!["samples of another shape", "_random_samples", "[2]"; sample![&x, 2, 2, (), normal([2], 1)?]],
    ])
}

fn unpool_samples(rank: usize) -> Result<Vec<Sample>> {
    let pooled = |x: Tensor, kernel: isize| -> Result<(Tensor, Tensor)> {
        match rank {
            1 => x.max_pool1d_with_indices(kernel),
            2 => x.max_pool2d_with_indices(kernel),
            _ => x.max_pool3d_with_indices(kernel),
        }
    };
    let (values, indices) = pooled(image(2, 2, rank)?, 2)?;
    let (alone, at) = pooled(image(1, 2, rank)?.select(0, 0)?, 2)?;
    let size: Vec<isize> = image(2, 2, rank)?.shape()[2..].iter().map(|&size| size as isize).collect();
    Ok(vec![
        sample![&values, &indices, 2; output_size = size],
        sample![
            spread(alone.shape(), -1.0, 1.0)?,
            at.clamp(0, alone.shape()[1..].iter().product::<usize>() as i64 - 1)?,
            2
        ],
        sample![values.narrow(0, 0, 0)?, indices.narrow(0, 0, 0)?, 2],
    ])
}

fn unpool_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let x = image(1, 2, rank)?;
    let zeros = Tensor::zeros_with(x.shape(), DType::I64)?;
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, ints(&[0, 1, 2], [3])?, 2]],
        error!["indices of another shape", "[3]"; sample![&x, ints(&[0, 1, 2], [3])?, 2]],
        error!["indices that are not i64", "i32"; sample![&x, zeros.to_dtype(DType::I32)?, 2]],
        error!["a size that windows do not give", "99"; sample![&x, &zeros, 2; output_size = vec![99; rank]]],
        error!["an index that is none", "100000"; sample![&x, zeros.add(100_000)?, 2]],
    ])
}
