//! Other forms of operations, as PyTorch has them.

use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::error::bail;
use crate::{IscloseOptions, Operand, PadOptions, Result, Scalar, Tensor};

/// Channels and the two dimensions after them, with what comes before as one.
fn planes(op: &'static str, x: &Tensor) -> Result<[usize; 4]> {
    let [lead @ .., c, h, w] = x.shape() else {
        bail!(Shape, op, "shape {:?} has no channels, rows and columns", x.shape());
    };
    Ok([lead.iter().product(), *c, *h, *w])
}

/// # Other forms
#[ops]
impl Tensor {
    /// Whether all elements are close to those of the other, as [`isclose`](Self::isclose) says, as a single bool.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert!(tensor!([1.0, 2.0])?.all_isclose(&tensor!([1.0, 2.000001])?)?.item::<bool>()?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`isclose`](Self::isclose).
    #[op(name = "allclose", samples = close_samples, errors = close_errors, derivative = none)]
    pub fn all_isclose<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<IscloseOptions>) -> Result<Tensor> {
        self.isclose_with(other, options)?.all(..)
    }

    /// A number, or a tensor of one, in this tensor's shape and dtype.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2])?.fill(7)?.to_vec::<i64>()?, [7, 7]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value is a tensor with dimensions, or a number that the dtype does not have.
    #[op(samples = fill_samples, errors = fill_errors)]
    pub fn fill<'a>(&self, value: impl Into<Operand<'a>>) -> Result<Tensor> {
        let value = match value {
            Operand::Scalar(value) => {
                value.check_put("fill", self.dtype())?;
                Tensor::scalar(value, self.dtype(), self.device())?
            }
            other => other.resolve(self.dtype(), self.device())?.to_dtype(self.dtype())?,
        };
        let everywhere = Tensor::full_with(self.shape(), true, (crate::DType::Bool, self.device()))?;
        self.masked_fill(&everywhere, &value)
    }

    /// As [`pad`](Self::pad) with a number.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2])?.constant_pad_nd(&[1, 0], 7)?.to_vec::<i64>()?, [7, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`pad`](Self::pad).
    #[op(samples = constant_pad_samples, errors = constant_pad_errors)]
    pub fn constant_pad_nd(&self, pad: &[isize], #[default(0)] value: impl Into<Scalar>) -> Result<Tensor> {
        self.pad_with(pad, PadOptions::new().value(value))
    }

    /// As [`nonzero`](Self::nonzero), with so many rows: of those that are too many the last are left out, and those that are
    /// too few are filled up with a number.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([0, 5, 6])?.nonzero_static(3, -1)?.to_vec::<i64>()?, [1, 2, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = nonzero_samples, errors = nonzero_errors, derivative = none)]
    pub fn nonzero_static(&self, size: usize, #[default(-1)] fill_value: i64) -> Result<Tensor> {
        let found = self.nonzero()?;
        let n = found.shape()[0];
        if n >= size {
            return found.narrow(0, 0, size);
        }
        let Ok(missing) = isize::try_from(size - n) else {
            bail!(Shape, "nonzero_static", "{size} rows are more than memory has bytes for");
        };
        found.pad_with(&[0, 0, 0, missing], PadOptions::new().value(fill_value))
    }

    /// Groups of `r²` channels made the pixels of one that is `r` times as high and wide.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 8, 2, 3])?.pixel_shuffle(2)?.shape(), [1, 2, 4, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or the channels are no multiple of `r²`.
    #[op(samples = shuffle_samples, errors = shuffle_errors)]
    pub fn pixel_shuffle(&self, upscale_factor: usize) -> Result<Tensor> {
        const OP: &str = "pixel_shuffle";
        let ([n, c, h, w], r) = (planes(OP, self)?, upscale_factor);
        let square = r.saturating_mul(r);
        if square == 0 || c % square != 0 {
            bail!(Shape, OP, "{c} channels of shape {:?} are no multiple of the square of {r}", self.shape());
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
    /// If there are fewer than three dimensions, or height and width are no multiples of `r`.
    #[op(samples = unshuffle_samples, errors = unshuffle_errors)]
    pub fn pixel_unshuffle(&self, downscale_factor: usize) -> Result<Tensor> {
        const OP: &str = "pixel_unshuffle";
        let ([n, c, h, w], r) = (planes(OP, self)?, downscale_factor);
        if r == 0 || h % r != 0 || w % r != 0 {
            bail!(Shape, OP, "height and width of shape {:?} are no multiples of {r}", self.shape());
        }
        let mut shape = self.shape().to_vec();
        let at = shape.len() - 3;
        shape[at..].copy_from_slice(&[c.saturating_mul(r).saturating_mul(r), h / r, w / r]);
        self.reshape([n, c, h / r, r, w / r, r])?.permute([0, 1, 3, 5, 2, 4])?.reshape(&shape)
    }

    /// The channels, which are the second dimension, in another order: the first of each group, then the second of each, and
    /// so on.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 4)?.reshape([1, 4, 1])?.channel_shuffle(2)?;
    /// assert_eq!(x.to_vec::<i64>()?, [0, 2, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or the channels are no multiple of the groups.
    #[op(samples = channel_samples, errors = channel_errors)]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        const OP: &str = "channel_shuffle";
        if self.rank() < 3 {
            bail!(Shape, OP, "shape {:?} has no channels and places", self.shape());
        }
        let c = self.shape()[1];
        if groups == 0 || !c.is_multiple_of(groups) {
            bail!(Shape, OP, "{c} channels of shape {:?} do not make {groups} groups", self.shape());
        }
        self.unflatten(1, [groups, c / groups])?.transpose(1, 2)?.reshape(self.shape())
    }
}

fn close_samples() -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, x()?],
        sample![x()?, x()?.add(0.1)?],
        sample![x()?, x()?.add(0.1)?; atol = 0.2],
        sample![ints(&[1, 2], [2])?, 1; rtol = 2.0],
        sample![spread([0], 0.0, 1.0)?, 1.0],
    ])
}

fn close_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a negative tolerance", "rtol", "-1"; sample![normal([2], 1)?, 1.0; rtol = -1.0]]])
}

fn fill_samples() -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, 1.5].zero_derivative(),
        sample![x()?, spread([], 1.0, 2.0)?],
        sample![ints(&[1, 2], [2])?, 7],
        sample![spread([0], 1.0, 2.0)?, 1.0],
    ])
}

fn fill_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a vector", "[2]"; sample![normal([2], 1)?, normal([2], 1)?]]])
}

fn constant_pad_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 3], -2.0, 2.0)?, [1, 2]], sample![spread([2, 3], -2.0, 2.0)?, [-1, 0, 0, 1], 1.5]])
}

fn constant_pad_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["one number", "[1]"; sample![normal([2], 1)?, [1]]]])
}

fn nonzero_samples() -> Result<Vec<Sample>> {
    let x = || ints(&[0, 5, 0, 6, 7, 0], [2, 3]);
    Ok(vec![sample![x()?, 2], sample![x()?, 5], sample![x()?, 4; fill_value = 9], sample![spread([3], 1.0, 2.0)?, 0]])
}

fn nonzero_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["too many rows", "nonzero_static"; sample![ints(&[0, 1], [2])?, isize::MAX as usize]]])
}

fn shuffle_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 4, 2, 3], -2.0, 2.0)?, 2], sample![spread([9, 1, 2], -2.0, 2.0)?, 3], sample![spread([0, 4, 2, 2], 0.0, 1.0)?, 2]])
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
