//! Adaptive pooling: the windows follow from the output size.

use crate::backend::spec::Windows;
use crate::error::bail;
use crate::layout::Sizes;
use crate::ops::nn::conv::spatial;
use crate::ops::nn::pool::{Pool, check_rank, divided, image};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::{DType, Result, Tensor};

/// # Adaptive pooling
#[ops]
impl Tensor {
    /// The maxima of `output_size` windows of about equal size over a signal `[batch, channels, length]`. -1 keeps the
    /// size.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1.0, 5.0, 2.0, 4.0, 3.0]])?;
    /// assert_eq!(x.adaptive_max_pool1d(2)?.to_vec::<f32>()?, [5.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank or no elements, or a size is below -1.
    #[op(samples = || adaptive_samples(1), errors = || adaptive_errors(1))]
    pub fn adaptive_max_pool1d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive("adaptive_max_pool1d", 1, self, &output_size)?.values(self)
    }

    /// [`adaptive_max_pool1d`](Self::adaptive_max_pool1d) for an image `[batch, channels, height, width]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 5, 7])?.adaptive_max_pool2d([2, -1])?.shape(), [1, 2, 2, 7]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_max_pool1d`](Self::adaptive_max_pool1d).
    #[op(samples = || adaptive_samples(2), errors = || adaptive_errors(2))]
    pub fn adaptive_max_pool2d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive("adaptive_max_pool2d", 2, self, &output_size)?.values(self)
    }

    /// [`adaptive_max_pool1d`](Self::adaptive_max_pool1d) for a volume `[batch, channels, depth, height, width]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 5, 7, 3])?.adaptive_max_pool3d(2)?.shape(), [1, 2, 2, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_max_pool1d`](Self::adaptive_max_pool1d).
    #[op(autocast_cpu = f32, samples = || adaptive_samples(3), errors = || adaptive_errors(3))]
    pub fn adaptive_max_pool3d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive("adaptive_max_pool3d", 3, self, &output_size)?.values(self)
    }

    /// As [`adaptive_max_pool1d`](Self::adaptive_max_pool1d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (_, indices) = tensor!([[1.0, 5.0, 2.0, 4.0, 3.0]])?.adaptive_max_pool1d_with_indices(2)?;
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_max_pool1d`](Self::adaptive_max_pool1d).
    #[op(samples = || adaptive_samples(1), errors = || adaptive_errors(1), outputs = [values, indices])]
    pub fn adaptive_max_pool1d_with_indices(&self, output_size: impl Into<Sizes>) -> Result<(Tensor, Tensor)> {
        adaptive("adaptive_max_pool1d_with_indices", 1, self, &output_size)?.both(self)
    }

    /// As [`adaptive_max_pool2d`](Self::adaptive_max_pool2d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (_, indices) = tensor!([[[1.0, 5.0], [2.0, 4.0]]])?.adaptive_max_pool2d_with_indices(1)?;
    /// assert_eq!(indices.to_vec::<i64>()?, [1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_max_pool1d`](Self::adaptive_max_pool1d).
    #[op(samples = || adaptive_samples(2), errors = || adaptive_errors(2), outputs = [values, indices])]
    pub fn adaptive_max_pool2d_with_indices(&self, output_size: impl Into<Sizes>) -> Result<(Tensor, Tensor)> {
        adaptive("adaptive_max_pool2d_with_indices", 2, self, &output_size)?.both(self)
    }

    /// As [`adaptive_max_pool3d`](Self::adaptive_max_pool3d), with the place of each largest element in its channel.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (_, indices) = Tensor::ones([1, 2, 2, 2])?.adaptive_max_pool3d_with_indices(1)?;
    /// assert_eq!(indices.to_vec::<i64>()?, [0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_max_pool1d`](Self::adaptive_max_pool1d).
    #[op(autocast_cpu = f32, samples = || adaptive_samples(3), errors = || adaptive_errors(3), outputs = [values, indices])]
    pub fn adaptive_max_pool3d_with_indices(&self, output_size: impl Into<Sizes>) -> Result<(Tensor, Tensor)> {
        adaptive("adaptive_max_pool3d_with_indices", 3, self, &output_size)?.both(self)
    }

    /// The means of `output_size` windows of about equal size over a signal `[batch, channels, length]`. -1 keeps the
    /// size.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1.0, 5.0, 2.0, 4.0]])?;
    /// assert_eq!(x.adaptive_avg_pool1d(2)?.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank, no elements or is not floating point, or a size is below -1.
    #[op(samples = || adaptive_samples(1), errors = || adaptive_avg_errors(1))]
    pub fn adaptive_avg_pool1d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive_average("adaptive_avg_pool1d", 1, self, &output_size)
    }

    /// As [`adaptive_avg_pool1d`](Self::adaptive_avg_pool1d), of an image `[batch, channels, height, width]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 5, 7])?.adaptive_avg_pool2d(1)?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_avg_pool1d`](Self::adaptive_avg_pool1d).
    #[op(samples = || adaptive_samples(2), errors = || adaptive_avg_errors(2))]
    pub fn adaptive_avg_pool2d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive_average("adaptive_avg_pool2d", 2, self, &output_size)
    }

    /// As [`adaptive_avg_pool1d`](Self::adaptive_avg_pool1d), of a volume `[batch, channels, depth, height, width]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([1, 2, 5, 7, 3])?.adaptive_avg_pool3d(2)?.shape(), [1, 2, 2, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`adaptive_avg_pool1d`](Self::adaptive_avg_pool1d).
    #[op(autocast_cpu = f32, samples = || adaptive_samples(3), errors = || adaptive_avg_errors(3))]
    pub fn adaptive_avg_pool3d(&self, output_size: impl Into<Sizes>) -> Result<Tensor> {
        adaptive_average("adaptive_avg_pool3d", 3, self, &output_size)
    }
}

/// The windows for an output size.
fn adaptive_windows(op: &'static str, rank: usize, x: &Tensor, sizes: &Sizes) -> Result<[Windows; 3]> {
    check_rank(op, x, rank)?;
    let input = spatial(x.shape(), rank);
    let asked = &sizes.0[..];
    if asked.len() != 1 && asked.len() != rank {
        bail!(Value, op, "output_size must be a number or a list of {rank}, got {asked:?}");
    }
    let mut all = [Windows::single(); 3];
    for dim in 0..rank {
        let at = 3 - rank + dim;
        let count = match asked[if asked.len() == 1 { 0 } else { dim }] {
            -1 => input[at],
            count if count >= 0 => count as usize,
            count => bail!(Value, op, "output_size must be ≥ 0, or -1 to keep the size, got {count}"),
        };
        if input[at] == 0 && count > 0 {
            bail!(Shape, op, "input sizes must be positive for {count} windows, got shape {:?}", x.shape());
        }
        if count.checked_mul(input[at]).is_none_or(|product| product > isize::MAX as usize / 4) {
            bail!(
                Shape,
                op,
                "output_size {count} is too large for dimension {} of shape {:?}",
                x.rank() + at - 3,
                x.shape()
            );
        }
        all[at] = Windows::adaptive(input[at], count);
    }
    Ok(all)
}

fn adaptive(op: &'static str, rank: usize, x: &Tensor, sizes: &Sizes) -> Result<Pool> {
    Ok(Pool { op, rank, windows: adaptive_windows(op, rank, x, sizes)? })
}

#[track_caller]
fn adaptive_average(op: &'static str, rank: usize, x: &Tensor, sizes: &Sizes) -> Result<Tensor> {
    float_only(op, x)?;
    let windows = adaptive_windows(op, rank, x, sizes)?;
    divided(op, rank, x, &windows, |dim, o| windows[dim].at(o).1)
}

fn adaptive_samples(rank: usize) -> Result<Vec<Sample>> {
    Ok(vec![
        sample![image(2, 2, rank)?, 1],
        sample![image(1, 2, rank)?.select(0, 0)?, 2],
        sample![image(2, 1, rank)?, 3],
        sample![image(1, 1, rank)?, vec![-1; rank]],
        sample![image(1, 1, rank)?, 6],
        sample![image(0, 2, rank)?, 2],
        sample![image(1, 2, rank)?, 0],
    ])
}

fn adaptive_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let x = image(1, 2, rank)?;
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, 2]],
        error!["a negative size", "output_size", "-2"; sample![&x, -2]],
        error!["too many numbers", "[1, 1, 1, 1]"; sample![&x, vec![1; 4]]],
        error!["nothing to choose from", "must be positive"; sample![x.narrow(2, 0, 0)?, 2]],
        error!["too many windows", "too large"; sample![&x, isize::MAX]],
    ])
}

fn adaptive_avg_errors(rank: usize) -> Result<Vec<ErrorCase>> {
    let mut all = adaptive_errors(rank)?;
    all.push(error!["integers", "i64"; sample![image(1, 2, rank)?.to_dtype(DType::I64)?, 2]]);
    Ok(all)
}
