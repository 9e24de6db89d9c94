//! Trigonometric and hyperbolic functions.

use crate::backend::spec::{Ordered, Real, select, sinc, sinc_slope};
use crate::ops::elementwise::call::{elementwise, zero};
use crate::ops::elementwise::unary::unary;
use crate::ops::ops;
use crate::{Result, Tensor};
use std::f64::consts::PI;

/// # Trigonometric and hyperbolic functions
#[ops]
impl Tensor {
    /// The sine.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.sin()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    pub fn sin(&self) -> Result<Tensor> {
        elementwise!(Float sin(self) |x| x.sin())
    }

    /// The cosine.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.cos()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    pub fn cos(&self) -> Result<Tensor> {
        elementwise!(Float cos(self) |x| x.cos())
    }

    /// The hyperbolic tangent.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.tanh()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.0))]
    pub fn tanh(&self) -> Result<Tensor> {
        elementwise!(Float tanh(self) |x| x.tanh(), |g, y| [g.tanh_grad(y)])
    }

    /// The tangent.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.tan()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-1.2, 1.3))]
    pub fn tan(&self) -> Result<Tensor> {
        elementwise!(Float tan(self) |x| x.tan())
    }

    /// The inverse sine; NaN outside of [-1, 1].
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 1.0])?.asin()?.to_vec::<f32>()?, [0.0, std::f32::consts::FRAC_PI_2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-0.9, 0.91), aliases = ["arcsin"])]
    #[doc(alias = "arcsin")]
    pub fn asin(&self) -> Result<Tensor> {
        elementwise!(Float asin(self) |x| x.asin())
    }

    /// The inverse cosine; NaN outside of [-1, 1].
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 0.0])?.acos()?.to_vec::<f32>()?, [0.0, std::f32::consts::FRAC_PI_2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-0.9, 0.91), aliases = ["arccos"])]
    #[doc(alias = "arccos")]
    pub fn acos(&self) -> Result<Tensor> {
        elementwise!(Float acos(self) |x| x.acos())
    }

    /// The inverse tangent.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 1.0])?.atan()?.to_vec::<f32>()?, [0.0, std::f32::consts::FRAC_PI_4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1), aliases = ["arctan"])]
    #[doc(alias = "arctan")]
    pub fn atan(&self) -> Result<Tensor> {
        elementwise!(Float atan(self) |x| x.atan())
    }

    /// The hyperbolic sine.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.sinh()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-2.0, 2.1))]
    pub fn sinh(&self) -> Result<Tensor> {
        elementwise!(Float sinh(self) |x| x.sinh())
    }

    /// The hyperbolic cosine.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.cosh()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-2.0, 2.1))]
    pub fn cosh(&self) -> Result<Tensor> {
        elementwise!(Float cosh(self) |x| x.cosh())
    }

    /// The inverse hyperbolic sine.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.asinh()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.1), aliases = ["arcsinh"])]
    #[doc(alias = "arcsinh")]
    pub fn asinh(&self) -> Result<Tensor> {
        elementwise!(Float asinh(self) |x| x.asinh())
    }

    /// The inverse hyperbolic cosine; NaN below 1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0])?.acosh()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(1.2, 3.0), aliases = ["arccosh"])]
    #[doc(alias = "arccosh")]
    pub fn acosh(&self) -> Result<Tensor> {
        elementwise!(Float acosh(self) |x| x.acosh())
    }

    /// The inverse hyperbolic tangent; NaN outside of [-1, 1].
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 1.0])?.atanh()?.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-0.9, 0.91), aliases = ["arctanh"])]
    #[doc(alias = "arctanh")]
    pub fn atanh(&self) -> Result<Tensor> {
        elementwise!(Float atanh(self) |x| x.atanh())
    }

    /// The normalized sinc function, `sin(πx) / (πx)`, and 1 at 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.sinc()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.2, 2.3), aliases = ["special_sinc"])]
    pub fn sinc(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return elementwise!(Float sinc(self) |x| select(x.eq(zero()), zero() + 1.0, (PI * x).sin() / (PI * x)),
                |g, y| [g * select(x.eq(zero()), zero(), ((PI * x).cos() - y) / x)]);
        }
        elementwise!(Float sinc(self) |x| sinc(x), |g, _y| [g * sinc_slope(x)])
    }

    /// Converts degrees to radians.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([180.0])?.deg2rad()?.to_vec::<f32>()?, [std::f32::consts::PI]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-100.0, 100.0))]
    pub fn deg2rad(&self) -> Result<Tensor> {
        elementwise!(Float deg2rad(self) |x| x * (PI / 180.0))
    }

    /// Converts radians to degrees.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([std::f32::consts::PI])?.rad2deg()?.to_vec::<f32>()?, [180.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    pub fn rad2deg(&self) -> Result<Tensor> {
        elementwise!(Float rad2deg(self) |x| x * (180.0 / PI))
    }
}
