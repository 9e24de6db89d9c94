//! Local response normalization.

use crate::error::bail;
use crate::ops::nn::norm_channels::channels;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The options of [`Tensor::local_response_norm_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::LocalResponseNormOptions};
    /// let options = LocalResponseNormOptions::new().alpha(0.0).k(4.0).beta(0.5);
    /// assert_eq!(Tensor::ones([1, 1, 1])?.local_response_norm_with(1, options)?.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LocalResponseNormOptions {
        /// The factor of the mean square.
        alpha: f64 = 1e-4,
        /// The exponent.
        beta: f64 = 0.75,
        /// Added before the power is taken.
        k: f64 = 1.0,
    }
}

#[ops]
impl Tensor {
    /// Local response normalization: `x / (k + alpha · mean(x²))^beta`, with the mean over `size` neighbouring
    /// channels, the second dimension. Missing neighbours count as 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::LocalResponseNormOptions};
    /// let options = LocalResponseNormOptions::new().alpha(3.0).beta(1.0);
    /// let y = Tensor::ones([1, 3, 1])?.local_response_norm_with(3, options)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0 / 3.0, 0.25, 1.0 / 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, the size is 0, or the input is not floating point.
    #[op(autocast_cuda = f32, samples = response_samples, errors = response_errors)]
    pub fn local_response_norm(&self, size: usize, options: impl Into<LocalResponseNormOptions>) -> Result<Tensor> {
        const OP: &str = "local_response_norm";
        let LocalResponseNormOptions { alpha, beta, k } = options;
        channels(OP, self, 3)?;
        let (Ok(before), Ok(after)) = (isize::try_from(size / 2), isize::try_from(size.saturating_sub(1) / 2)) else {
            bail!(Value, OP, "size is too large, got {size}");
        };
        if size == 0 {
            bail!(Value, OP, "size must be positive, got 0");
        }
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        let x = self.to_dtype(self.dtype().compute_dtype())?;
        // Sums over neighbours: the channels are moved last, padded, and summed in windows.
        let squares = x.square()?.movedim(1, -1)?.pad(&[before, after])?;
        let sums = squares.unfold(-1, size, 1)?.sum(-1)?.movedim(-1, 1)?;
        x.div(&sums.mul(alpha / size as f64)?.add(k)?.pow(beta)?)?.to_dtype(self.dtype())
    }
}

fn response_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![normal([2, 4, 2, 2], 1)?, 2], sample![normal([0, 4, 2], 1)?, 2]];
    for size in [1, 3, 4] {
        all.push(sample![normal([2, 5, 3], 1)?, size; alpha = 0.5, beta = 0.6, k = 1.5]);
    }
    Ok(all)
}

fn response_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["two dimensions", "[2, 3]"; sample![normal([2, 3], 1)?, 2]],
        error!["no size", "0"; sample![normal([2, 3, 2], 1)?, 0]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 1, 2])?, 1]],
    ])
}
