//! Rotary position embeddings.

use crate::autograd::is_grad_enabled;
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Result, Tensor, backend};

options! {
    /// The options of [`Tensor::rope_with`]. A bool stands for `interleaved`.
    ///
    /// ```
    /// use cotangent::{tensor, options::RopeOptions};
    /// let (cos, sin) = (tensor!([[0.0, 1.0]])?, tensor!([[1.0, 0.0]])?);
    /// let x = tensor!([[1.0, 2.0, 3.0, 4.0]])?;
    /// let y = x.rope_with(&cos, &sin, RopeOptions::new().interleaved(true))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-2.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RopeOptions {
        /// Whether a pair is two neighbouring elements, instead of one element of each half.
        interleaved: bool = false,
    }
}

impl From<bool> for RopeOptions {
    fn from(interleaved: bool) -> RopeOptions {
        RopeOptions::new().interleaved(interleaved)
    }
}

options! {
    /// The options of [`Tensor::rope_cos_sin_with`]. A number stands for the base.
    ///
    /// ```
    /// use cotangent::{Tensor, options::RopeCosSinOptions};
    /// let (cos, _) = Tensor::arange(0, 3)?.rope_cos_sin_with(4, RopeCosSinOptions::new().base(500_000.0))?;
    /// assert_eq!(cos.shape(), [3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RopeCosSinOptions {
        /// The base of the wavelengths, which grow geometrically from 2π towards `2π · base`.
        base: f64 = 10_000.0,
    }
}

impl From<f64> for RopeCosSinOptions {
    fn from(base: f64) -> RopeCosSinOptions {
        RopeCosSinOptions::new().base(base)
    }
}

/// # Rotary position embeddings
#[ops]
impl Tensor {
    /// Rotary position embeddings: rotates pairs of elements of the last dimension by angles, given as cosines and
    /// sines of shape `[.., size / 2]`, which broadcast. A pair has one element of each half or, as an option, two
    /// neighbours. If there are fewer angles, the last elements are unchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0, 4.0]])?;
    /// let (cos, sin) = (tensor!([[0.0, 1.0]])?, tensor!([[1.0, 0.0]])?);
    /// assert_eq!(x.rope(&cos, &sin)?.to_vec::<f32>()?, [-3.0, 2.0, 1.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, or the elements are not floats.
    #[op(samples = rope_samples, errors = rope_errors)]
    pub fn rope(&self, cos: &Tensor, sin: &Tensor, options: impl Into<RopeOptions>) -> Result<Tensor> {
        const OP: &str = "rope";
        for x in [self, cos, sin] {
            float_only(OP, x)?;
        }
        let (Some(&size), Some(&pairs)) = (self.shape().last(), cos.shape().last()) else {
            bail!(
                Shape,
                OP,
                "input and cos must have at least 1 dimension, got shapes {:?} and {:?}",
                self.shape(),
                cos.shape()
            );
        };
        if cos.shape() != sin.shape() || 2 * pairs > size {
            let (x, c, s) = (self.shape(), cos.shape(), sin.shape());
            bail!(
                Shape,
                OP,
                "cos and sin must have the same shape and at most {} angles, got {c:?} and {s:?} for input {x:?}",
                size / 2
            );
        }
        if 2 * pairs == size
            && !options.interleaved
            && is_forward_alone(&[self, cos, sin])
            && cos.dtype() == sin.dtype()
        {
            return rotated(self, cos, sin);
        }
        let wide = self.dtype().compute_dtype();
        let x = self.to_dtype(wide)?;
        let turned = x.narrow(-1, 0, 2 * pairs)?;
        let (cos, sin) = (cos.to_dtype(wide)?, sin.to_dtype(wide)?);
        let (a, b, joined) = if options.interleaved {
            let both = turned.unflatten(-1, [pairs, 2])?;
            (both.select(-1, 0)?, both.select(-1, 1)?, true)
        } else {
            (turned.narrow(-1, 0, pairs)?, turned.narrow(-1, pairs, pairs)?, false)
        };
        let first = a.mul(&cos)?.sub(&b.mul(&sin)?)?;
        let second = b.mul(&cos)?.add(&a.mul(&sin)?)?;
        if first.shape() != a.shape() {
            bail!(Shape, OP, "cos and sin must broadcast to shape {:?}, got {:?}", a.shape(), cos.shape());
        }
        let mut parts =
            if joined { vec![Tensor::stack(&[&first, &second], -1)?.flatten(-2, -1)?] } else { vec![first, second] };
        if 2 * pairs < size {
            parts.push(x.narrow(-1, 2 * pairs, size - 2 * pairs)?);
        }
        Tensor::cat(&parts, -1)?.to_dtype(self.dtype())
    }

    /// The cosines and sines for [`rope`](Self::rope) with vectors of `size` elements at these positions: the angle of
    /// pair `k` is `position / base^(2k / size)`. The dtype is that of float positions, and `f32` otherwise.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (cos, sin) = Tensor::arange(0, 5)?.rope_cos_sin(8)?;
    /// assert_eq!(Tensor::randn([2, 5, 8])?.rope(&cos, &sin)?.shape(), [2, 5, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the size is odd, or the base is not positive.
    #[op(samples = angle_samples, errors = angle_errors, outputs = [cos, sin])]
    pub fn rope_cos_sin(&self, size: usize, options: impl Into<RopeCosSinOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "rope_cos_sin";
        let base = options.base;
        if !(size.is_multiple_of(2) && base.is_finite() && base > 0.0) {
            bail!(Value, OP, "size must be even, base finite and positive, got size = {size} and base = {base}");
        }
        if self.dtype().is_complex() {
            bail!(DType, OP, "not defined for {}", self.dtype());
        }
        let dtype = self.dtype().to_float();
        let rates = rotary_rates(size, base, self.device())?;
        let wide = if dtype == DType::F64 || !self.dtype().is_float() { DType::F64 } else { DType::F32 };
        let angles = self.to_dtype(wide)?.unsqueeze(-1)?.mul(&rates.to_dtype(wide)?)?;
        Ok((angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?))
    }
}

/// Whether nothing is recorded of a call, and the device has a kernel for its forward pass.
pub(crate) fn is_forward_alone(inputs: &[&Tensor]) -> bool {
    let (first, is_recorded) = (inputs[0], |x: &Tensor| x.is_batched() || (is_grad_enabled() && x.requires_grad()));
    backend::has_forward_kernels(first.device(), first.dtype())
        && inputs.iter().all(|x| x.device() == first.device() && x.dtype().is_float())
        && !inputs.iter().any(|x| is_recorded(x))
}

/// The halves of the last dimension, rotated by angles of as many pairs, in one kernel.
#[track_caller]
fn rotated(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    const OP: &str = "rope";
    let pairs = x.size(-1)? / 2;
    let first = x.detach().narrow(-1, 0, pairs)?;
    let half = x.layout().strides()[x.rank() - 1] * pairs as isize;
    if broadcast(OP, &[first.layout().shape().clone(), cos.layout().shape().clone()].each_ref())? != *first.shape() {
        bail!(Shape, OP, "cos and sin must broadcast to shape {:?}, got {:?}", first.shape(), cos.shape());
    }
    let (cos, sin) = (cos.detach().expand(first.shape())?, sin.detach().expand(first.shape())?);
    let (angles, first) = ([cos.as_view()?, sin.as_view()?], first.as_view()?);
    Tensor::build(OP, x.layout().shape().clone(), x.dtype(), x.device(), |out| {
        backend::rope(OP, first, half, angles, out)
    })
}

/// The angle of each pair per position, in f64: `base^(-2k / size)`.
pub(crate) fn rotary_rates(size: usize, base: f64, device: Device) -> Result<Tensor> {
    let numbers = Tensor::arange_with(0, size / 2, (DType::F64, device))?;
    // The exponents are negative: exp of a product needs no power.
    numbers.mul(-2.0 * base.ln() / size as f64)?.exp()
}

fn rope_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for interleaved in [false, true] {
        let sample = |x: &[usize], angles: &[usize]| -> Result<Sample> {
            Ok(sample![normal(x, 1)?, normal(angles, 2)?, normal(angles, 3)?; interleaved = interleaved])
        };
        all.push(sample(&[2, 3, 4], &[3, 2])?);
        all.push(sample(&[3, 7], &[1, 2])?);
        all.push(sample(&[6], &[3])?);
        all.push(sample(&[0, 4], &[2])?);
    }
    Ok(all)
}

fn rope_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3, 4], 1)?;
    Ok(vec![
        error!["too many angles", "[3, 3]", "[3, 4]"; sample![&x, normal([3, 3], 1)?, normal([3, 3], 1)?]],
        error!["other sines", "[3, 2]", "[3, 1]"; sample![&x, normal([3, 2], 1)?, normal([3, 1], 1)?]],
        error!["more positions", "[2, 3, 2]", "[3, 2]"; sample![&x, normal([2, 3, 2], 1)?, normal([2, 3, 2], 1)?]],
        error!["no dimension", "[]"; sample![normal([], 1)?, &x, &x]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, normal([1], 1)?, normal([1], 1)?]],
    ])
}

fn angle_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([5], 0.0, 4.0)?, 4],
        sample![spread([2, 3], -2.0, 4.0)?, 6; base = 50.0],
        sample![ints(&[0, 1, 2], [3])?, 2],
        sample![spread([], 1.0, 4.0)?, 2],
        sample![spread([3], 0.0, 4.0)?, 0],
    ])
}

fn angle_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3], 1)?;
    Ok(vec![
        error!["an odd size", "size = 3"; sample![&x, 3]],
        error!["no base", "base = 0"; sample![&x, 4; base = 0.0]],
    ])
}
