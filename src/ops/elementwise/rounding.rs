//! Rounding.

use crate::backend::spec::{Ordered, Real, select};
use crate::ops::elementwise::call::{elementwise, infinity};
use crate::ops::elementwise::unary::{no_bools, unary};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, sample, spread};
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The options of [`Tensor::round_with`]. A number is taken as `decimals`.
    ///
    /// ```
    /// use cotangent::{tensor, options::RoundOptions};
    /// let x = tensor!([1234.5])?;
    /// assert_eq!(x.round_with(RoundOptions::new().decimals(-2))?.item::<f32>()?, 1200.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RoundOptions {
        /// The number of decimal places.
        decimals: i64 = 0,
    }
}

impl From<i64> for RoundOptions {
    fn from(decimals: i64) -> RoundOptions {
        RoundOptions::new().decimals(decimals)
    }
}

options! {
    /// The options of [`Tensor::nan_to_num_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::NanToNumOptions};
    /// let options = NanToNumOptions::new().nan(1.0).neginf(-2.0);
    /// assert_eq!(tensor!([f32::NAN, f32::NEG_INFINITY])?.nan_to_num_with(options)?.to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct NanToNumOptions {
        /// The replacement of NaN.
        nan: f64 = 0.0,
        /// The replacement of infinity; `None` is the largest finite value of the dtype.
        posinf: Option<f64> = None,
        /// The replacement of minus infinity; `None` is the lowest finite value of the dtype.
        neginf: Option<f64> = None,
    }
}

/// # Rounding
#[ops]
impl Tensor {
    /// Rounds towards minus infinity. Integers are unchanged. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 1.5])?.floor()?.to_vec::<f32>()?, [-2.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.2, 2.3), errors = no_bools, derivative = zero)]
    pub fn floor(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Ok(self.clone());
        }
        elementwise!(Number floor(self) |x| x.floor())
    }

    /// Rounds towards plus infinity. Integers are unchanged. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 1.5])?.ceil()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.2, 2.3), errors = no_bools, derivative = zero)]
    pub fn ceil(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Ok(self.clone());
        }
        elementwise!(Number ceil(self) |x| x.ceil())
    }

    /// Rounds towards 0. Integers are unchanged. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 1.5])?.trunc()?.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.2, 2.3), errors = no_bools, derivative = zero, aliases = ["fix"])]
    #[doc(alias = "fix")]
    pub fn trunc(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Ok(self.clone());
        }
        elementwise!(Number trunc(self) |x| x.trunc())
    }

    /// Rounds to the nearest integer, halves to even, or to `decimals` decimal places. Negative `decimals` round to
    /// tens, hundreds and so on. Integers are unchanged. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.5, 1.5, -0.7])?.round()?.to_vec::<f32>()?, [0.0, 2.0, -1.0]);
    /// assert_eq!(tensor!([0.126, 1234.5])?.round_with(2)?.to_vec::<f32>()?, [0.13, 1234.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools, or integers are to be rounded to decimals.
    #[op(in_place, samples = round_samples, errors = round_errors, derivative = zero, aliases = ["special_round"])]
    pub fn round(&self, options: impl Into<RoundOptions>) -> Result<Tensor> {
        let decimals = options.decimals;
        if self.dtype().is_int() && decimals == 0 {
            return Ok(self.clone());
        }
        if decimals != 0 {
            float_only("round", self)?;
        }
        let scale = 10_f64.powi(i32::try_from(decimals.unsigned_abs()).unwrap_or(i32::MAX));
        match decimals {
            0 => elementwise!(Number round(self) |x| x.rint()),
            1.. => elementwise!(Number round(self; scale) |x; scale| (x * scale).rint() / scale),
            _ => elementwise!(Number round(self; scale) |x; scale| (x / scale).rint() * scale),
        }
    }

    /// The fractional part, `x - trunc(x)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 2.25])?.frac()?.to_vec::<f32>()?, [-0.5, 0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats.
    #[op(in_place, samples = || unary(-2.2, 2.3), errors = no_ints)]
    pub fn frac(&self) -> Result<Tensor> {
        float_only("frac", self)?;
        elementwise!(Float frac(self) |x| x - x.trunc())
    }

    /// Replaces NaN with `nan`, by default 0, and infinities with `posinf` and `neginf`, by default the largest and the
    /// smallest finite value of the dtype. The derivative there is 0. Integers are unchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::NanToNumOptions};
    /// let x = tensor!([f32::NAN, f32::INFINITY, 1.0])?;
    /// assert_eq!(x.nan_to_num()?.to_vec::<f32>()?, [0.0, f32::MAX, 1.0]);
    /// assert_eq!(x.nan_to_num_with(NanToNumOptions::new().posinf(9.0))?.to_vec::<f32>()?, [0.0, 9.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.1))]
    pub fn nan_to_num(&self, options: impl Into<NanToNumOptions>) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.by_parts(|part| part.nan_to_num_with(options.clone()));
        }
        if !self.dtype().is_float() {
            return Ok(self.clone());
        }
        let largest = self.dtype().largest();
        let (nan, high, low) = (options.nan, options.posinf.unwrap_or(largest), options.neginf.unwrap_or(-largest));
        elementwise!(Float nan_to_num(self; nan, high, low)
            |x; nan, high, low| select(x.ne(x), nan, select(x.eq(infinity()), high, select(x.eq(-infinity()), low, x))))
    }
}

fn round_samples() -> Result<Vec<Sample>> {
    let mut all = unary(-2.2, 2.3)?;
    all.push(sample![spread([7], -2.0, 2.0)?; decimals = 1]);
    all.push(sample![spread([7], -200.0, 200.0)?; decimals = -1]);
    Ok(all)
}

fn round_errors() -> Result<Vec<ErrorCase>> {
    let mut all = no_bools()?;
    all.push(error!["decimals of integers", "i64"; sample![ints(&[1, 2], [2])?; decimals = 1]]);
    Ok(all)
}

fn no_ints() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?]]])
}
