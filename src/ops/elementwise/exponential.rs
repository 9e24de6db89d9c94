//! Exponentials and logarithms.

use crate::backend::spec::Real;
use crate::ops::elementwise::call::elementwise;
use crate::ops::elementwise::unary::unary;
use crate::ops::ops;
use crate::{Result, Tensor};

/// # Exponentials and logarithms
#[ops]
impl Tensor {
    /// The exponential.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, -1000.0])?.exp()?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-2.0, 2.0))]
    pub fn exp(&self) -> Result<Tensor> {
        elementwise!(Float exp(self) |x| x.exp(), |g, y| [g * y])
    }

    /// `exp(x) - 1`, accurate near 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1e-10])?.expm1()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-2.0, 2.0), aliases = ["special_expm1"])]
    pub fn expm1(&self) -> Result<Tensor> {
        elementwise!(Float expm1(self) |x| x.expm1(), |g, y| [g * (y + 1.0)])
    }

    /// `2^x`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0, -1.0])?.exp2()?.to_vec::<f32>()?, [8.0, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.1), aliases = ["special_exp2"])]
    pub fn exp2(&self) -> Result<Tensor> {
        elementwise!(Float exp2(self) |x| x.exp2())
    }

    /// The natural logarithm.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 0.0])?.log()?.to_vec::<f32>()?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(0.3, 3.0))]
    pub fn log(&self) -> Result<Tensor> {
        elementwise!(Float log(self) |x| x.ln(), |g, _y| [g / x])
    }

    /// `log(1 + x)`, accurate near 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1e-10])?.log1p()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-0.5, 3.0), aliases = ["special_log1p"])]
    pub fn log1p(&self) -> Result<Tensor> {
        elementwise!(Float log1p(self) |x| x.log1p(), |g, _y| [g / (x + 1.0)])
    }

    /// The logarithm to base 2.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([8.0])?.log2()?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(0.3, 3.0))]
    pub fn log2(&self) -> Result<Tensor> {
        elementwise!(Float log2(self) |x| x.log2())
    }

    /// The logarithm to base 10.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([100.0])?.log10()?.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(0.3, 3.0))]
    pub fn log10(&self) -> Result<Tensor> {
        elementwise!(Float log10(self) |x| x.log10())
    }
}
