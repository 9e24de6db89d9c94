//! Pixel shuffle, pixel unshuffle and channel shuffle.

use crate::error::bail;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::{Result, Tensor};

/// `[batch, channels, height, width]`, with all leading dimensions merged into the batch.
fn planes(op: &'static str, x: &Tensor) -> Result<[usize; 4]> {
    let [lead @ .., c, h, w] = x.shape() else {
        bail!(Shape, op, "input must have at least 3 dimensions, got shape {:?}", x.shape());
    };
    Ok([lead.iter().product(), *c, *h, *w])
}

/// # Pixel and channel shuffling
#[ops]
impl Tensor {
    /// Rearranges `[.., C · r², H, W]` into `[.., C, H · r, W · r]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 8, 2, 3])?.pixel_shuffle(2)?.shape(), [1, 2, 4, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or the channels are not a multiple of `r²`.
    #[op(samples = shuffle_samples, errors = shuffle_errors)]
    pub fn pixel_shuffle(&self, upscale_factor: usize) -> Result<Tensor> {
        const OP: &str = "pixel_shuffle";
        let ([n, c, h, w], r) = (planes(OP, self)?, upscale_factor);
        let square = r.saturating_mul(r);
        if square == 0 || c % square != 0 {
            bail!(
                Shape,
                OP,
                "channels must be divisible by upscale_factor², got {c} channels in shape {:?} and upscale_factor {r}",
                self.shape()
            );
        }
        let mut shape = self.shape().to_vec();
        let at = shape.len() - 3;
        shape[at..].copy_from_slice(&[c / square, h.saturating_mul(r), w.saturating_mul(r)]);
        self.reshape([n, c / square, r, r, h, w])?.permute([0, 1, 4, 2, 5, 3])?.reshape(&shape)
    }

    /// The inverse of [`pixel_shuffle`](Self::pixel_shuffle).
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 2, 4, 6])?.pixel_unshuffle(2)?.shape(), [1, 8, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or height and width are not multiples of `r`.
    #[op(samples = unshuffle_samples, errors = unshuffle_errors)]
    pub fn pixel_unshuffle(&self, downscale_factor: usize) -> Result<Tensor> {
        const OP: &str = "pixel_unshuffle";
        let ([n, c, h, w], r) = (planes(OP, self)?, downscale_factor);
        if r == 0 || h % r != 0 || w % r != 0 {
            bail!(
                Shape,
                OP,
                "height and width must be divisible by downscale_factor {r}, got shape {:?}",
                self.shape()
            );
        }
        let mut shape = self.shape().to_vec();
        let at = shape.len() - 3;
        shape[at..].copy_from_slice(&[c.saturating_mul(r).saturating_mul(r), h / r, w / r]);
        self.reshape([n, c, h / r, r, w / r, r])?.permute([0, 1, 3, 5, 2, 4])?.reshape(&shape)
    }

    /// Divides the channels, the second dimension, into groups and interleaves them.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 4)?.reshape([1, 4, 1])?.channel_shuffle(2)?;
    /// assert_eq!(x.to_vec::<i64>()?, [0, 2, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or the channels are not a multiple of the groups.
    #[op(samples = channel_samples, errors = channel_errors)]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        const OP: &str = "channel_shuffle";
        if self.rank() < 3 {
            bail!(Shape, OP, "input must have at least 3 dimensions, got shape {:?}", self.shape());
        }
        let c = self.shape()[1];
        if groups == 0 || !c.is_multiple_of(groups) {
            bail!(
                Shape,
                OP,
                "channels must be divisible by groups {groups}, got {c} channels in shape {:?}",
                self.shape()
            );
        }
        self.unflatten(1, [groups, c / groups])?.transpose(1, 2)?.reshape(self.shape())
    }
}

fn shuffle_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 4, 2, 3], -2.0, 2.0)?, 2],
        sample![spread([9, 1, 2], -2.0, 2.0)?, 3],
        sample![spread([0, 4, 2, 2], 0.0, 1.0)?, 2],
    ])
}

fn shuffle_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["too few dimensions", "[2, 3]"; sample![normal([2, 3], 1)?, 1]],
        error!["too few channels", "3", "2"; sample![normal([3, 2, 2], 1)?, 2]],
        error!["no factor", "0"; sample![normal([3, 2, 2], 1)?, 0]],
    ])
}

fn unshuffle_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 1, 4, 6], -2.0, 2.0)?, 2], sample![spread([2, 3, 3], -2.0, 2.0)?, 3]])
}

fn unshuffle_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no multiple", "[3, 2, 3]", "2"; sample![normal([3, 2, 3], 1)?, 2]]])
}

fn channel_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 4, 2], -2.0, 2.0)?, 2], sample![spread([1, 6, 2, 1], -2.0, 2.0)?, 3]])
}

fn channel_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no multiple", "[2, 4, 2]", "3"; sample![normal([2, 4, 2], 1)?, 3]],
        error!["too few dimensions", "[2, 4]"; sample![normal([2, 4], 1)?, 2]],
    ])
}
