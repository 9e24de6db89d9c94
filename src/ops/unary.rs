//! Elementwise functions of one tensor.

mod gelu;

pub use gelu::Gelu;

use super::formula::{Expr, Num, Real, Wrapping};
use super::map::map_alike;
use super::sample::{Op, Sample, unary_samples};
use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::code::Code;
use crate::backend::cpu::elementwise::map::{Floats, Formula, Numbers, Tile};
use crate::error::bail;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

/// What an operation keeps for its derivative.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    Input,
    Output,
}

/// An elementwise operation on one tensor.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    const NAME: &'static str;
    const KEEP: Keep;
    /// Whether integers are turned into floats first.
    const REAL: bool;

    /// The kernel.
    fn tile(self) -> impl Tile<1> + Send + 'static;

    /// The input's cotangent from the result's and what was kept.
    fn grad<T: Real>(self, g: T, kept: T) -> T;
}

/// The fused kernel of a [`Unary`] operation's derivative.
#[derive(Clone, Copy)]
struct Grad<U>(U);

impl<U: Unary, T: Real> Formula<T, 2> for Grad<U> {
    #[inline(always)]
    fn at(&self, [g, kept]: [T; 2]) -> T {
        self.0.grad(g, kept)
    }
}

#[track_caller]
fn apply<U: Unary>(unary: U, x: &Tensor) -> Result<Tensor> {
    let dtype = if U::REAL { x.dtype().to_float() } else { x.dtype() };
    if dtype == DType::Bool {
        bail!(DType, U::NAME, "a bool is not a number: cast with to_dtype first");
    }
    let y = map_alike(U::NAME, unary.tile(), dtype, [x], dtype)?;
    y.record(U::NAME, &[x], |save| {
        let kept = match U::KEEP {
            Keep::Nothing => None,
            Keep::Input => Some(save.save(x)),
            Keep::Output => Some(save.save_output()),
        };
        move |ctx: &BackwardContext, g: &Tensor| {
            let kept = match (&kept, U::KEEP) {
                (Some(y), Keep::Output) => ctx.output(y),
                (Some(x), _) => x.clone(),
                // The formula does not look at it.
                (None, _) => g.clone(),
            };
            Ok(smallvec![Some(unary_grad(unary, g, &kept)?)])
        }
    })
}

fn unary_grad<U: Unary>(unary: U, g: &Tensor, kept: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() {
        return unary.grad(Expr::from(g), Expr::from(kept)).finish(g);
    }
    map_alike(U::NAME, Floats(Grad(unary)), g.dtype(), [g, kept], g.dtype())
}

/// Defines elementwise operations. Each block gives the domain (`Real`: floats, integers are cast first; `Num`: integers
/// too), what is kept (`Nothing`, `Input`, `Output`), the value of one element, the cotangent from the result's
/// cotangent and the kept element, and samples. It expands to a kernel type, the method on `Tensor`, and the entry of
/// the list of operations, in capitals.
macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $domain:ident $entry:ident $name:ident($($p:ident: $pt:ty),*) keeps $keep:ident {
            value: |$x:ident| $value:expr,
            grad: |$g:ident, $kept:ident| $grad:expr,
            samples: ($low:expr, $high:expr) $(, $arg:expr)* $(,)? $(; $declared:ident)?
        }
    )+) => {$(
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types)]
        struct $name { $($p: $pt),* }

        impl $name {
            #[inline(always)]
            fn value<T: $domain>(self, $x: T) -> T {
                let $name { $($p),* } = self;
                $value
            }
        }

        unary!(@formula $domain $name);

        impl Unary for $name {
            const NAME: &'static str = stringify!($name);
            const KEEP: Keep = Keep::$keep;
            const REAL: bool = unary!(@real $domain);

            #[inline]
            fn tile(self) -> impl Tile<1> + Send + 'static {
                unary!(@tile $domain self)
            }

            #[inline(always)]
            fn grad<T: Real>(self, $g: T, $kept: T) -> T {
                let $name { $($p),* } = self;
                $grad
            }
        }

        impl Tensor {
            $(#[$doc])*
            ///
            /// # Errors
            /// If the tensor is of a dtype that the function is not defined for.
            #[track_caller]
            pub fn $name(&self $(, $p: $pt)*) -> Result<Tensor> {
                apply($name { $($p),* }, self)
            }
        }

        static $entry: Op = Op {
            name: stringify!($name),
            samples: || {
                let samples = unary_samples(stringify!($name), $low, $high, |x| x.$name($($arg),*))?;
                Ok(samples.into_iter()$(.map(Sample::$declared))?.collect())
            },
            error_cases: || Ok(Vec::new()),
        };
    )+};
    (@real Real) => { true };
    (@real Num) => { false };
    (@tile Real $op:expr) => { Floats($op) };
    (@tile Num $op:expr) => { Numbers($op) };
    (@formula Real $name:ident) => {
        impl<T: Real> Formula<T, 1> for $name {
            #[inline(always)]
            fn at(&self, [x]: [T; 1]) -> T { self.value(x) }
        }
    };
    (@formula Num $name:ident) => {
        impl Formula<f32, 1> for $name {
            #[inline(always)]
            fn at(&self, [x]: [f32; 1]) -> f32 { self.value(x) }
        }
        impl Formula<f64, 1> for $name {
            #[inline(always)]
            fn at(&self, [x]: [f64; 1]) -> f64 { self.value(x) }
        }
        impl Formula<i64, 1> for $name {
            #[inline(always)]
            fn at(&self, [x]: [i64; 1]) -> i64 { self.value(Wrapping(x)).0 }
        }
        impl Formula<u64, 1> for $name {
            #[inline(always)]
            fn at(&self, [x]: [u64; 1]) -> u64 { self.value(Wrapping(x)).0 }
        }
        impl Formula<Code, 1> for $name {
            fn at(&self, [x]: [Code; 1]) -> Code { self.value(x) }
        }
    };
}

unary! {
    /// The negative of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, -2])?.neg()?.to_vec::<i64>()?, [-1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Num NEG neg() keeps Nothing {
        value: |x| -x,
        grad: |g, _kept| -g,
        samples: (-2.0, 2.0),
    }

    /// The absolute value of each element; the gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.5, 2.0])?.abs()?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Num ABS abs() keeps Input {
        // 0 - x and not -x, so that -0 becomes 0.
        value: |x| x.clone().if_above(0.0, x.clone(), T::lit(0.0) - x),
        grad: |g, x| x.clone().if_above(0.0, g.clone(), x.if_below(0.0, -g, T::lit(0.0))),
        samples: (-2.0, 2.1),
    }

    /// -1, 0 or 1 by the sign of each element; 0 for a NaN.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.5, 0.0, 2.0])?.sign()?.to_vec::<f32>()?, [-1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Num SIGN sign() keeps Nothing {
        value: |x| x.clone().if_above(0.0, T::lit(1.0), x.if_below(0.0, -T::lit(1.0), T::lit(0.0))),
        grad: |g, _kept| g * T::lit(0.0),
        samples: (-2.0, 2.1); with_zero_derivative
    }

    /// The square of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.5, -2.0])?.square()?.to_vec::<f32>()?, [2.25, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Num SQUARE square() keeps Input {
        value: |x| x.clone() * x,
        grad: |g, x| g * (x.clone() + x),
        samples: (-2.0, 2.1),
    }

    /// One over each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([2.0, -4.0])?.reciprocal()?.to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real RECIPROCAL reciprocal() keeps Output {
        value: |x| T::lit(1.0) / x,
        grad: |g, y| -g * (y.clone() * y),
        samples: (0.5, 3.0),
    }

    /// The exponential of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, f64::NEG_INFINITY])?.exp()?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real EXP exp() keeps Output {
        value: |x| x.exp(),
        grad: |g, y| g * y,
        samples: (-2.0, 2.0),
    }

    /// The exponential of each element, minus 1, exact near 0.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1e-10])?.expm1()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real EXPM1 expm1() keeps Output {
        value: |x| x.expm1(),
        grad: |g, y| g * (y + T::lit(1.0)),
        samples: (-2.0, 2.0),
    }

    /// The natural logarithm of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.0, 0.0])?.log()?.to_vec::<f32>()?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real LOG log() keeps Input {
        value: |x| x.ln(),
        grad: |g, x| g / x,
        samples: (0.3, 3.0),
    }

    /// The natural logarithm of 1 plus each element, exact near 0.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1e-10])?.log1p()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real LOG1P log1p() keeps Input {
        value: |x| x.log1p(),
        grad: |g, x| g / (x + T::lit(1.0)),
        samples: (-0.5, 3.0),
    }

    /// The square root of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([4.0, 2.25])?.sqrt()?.to_vec::<f32>()?, [2.0, 1.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real SQRT sqrt() keeps Output {
        value: |x| x.sqrt(),
        grad: |g, y| g / (y.clone() + y),
        samples: (0.3, 3.0),
    }

    /// The hyperbolic tangent of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, 100.0])?.tanh()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real TANH tanh() keeps Output {
        value: |x| x.tanh(),
        grad: |g, y| g * (T::lit(1.0) - y.clone() * y),
        samples: (-2.0, 2.0),
    }

    /// The logistic function `1 / (1 + exp(-x))` of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, 100.0])?.sigmoid()?.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real SIGMOID sigmoid() keeps Output {
        value: |x| x.sigmoid(),
        grad: |g, y| g * (y.clone() * (T::lit(1.0) - y)),
        samples: (-3.0, 3.0),
    }

    /// The sine of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0])?.sin()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real SIN sin() keeps Input {
        value: |x| x.sin(),
        grad: |g, x| g * x.cos(),
        samples: (-3.0, 3.1),
    }

    /// The cosine of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0])?.cos()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real COS cos() keeps Input {
        value: |x| x.cos(),
        grad: |g, x| -g * x.sin(),
        samples: (-3.0, 3.1),
    }

    /// The error function of each element.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, 10.0])?.erf()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real ERF erf() keeps Input {
        value: |x| x.erf(),
        grad: |g, x| g * T::lit(std::f64::consts::FRAC_2_SQRT_PI) * (-(x.clone() * x)).exp(),
        samples: (-2.0, 2.1),
    }

    /// Each element where it is positive, else 0; the gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.0, 2.0])?.relu()?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Num RELU relu() keeps Output {
        // This way round a NaN stays one.
        value: |x| x.clone().if_below(0.0, T::lit(0.0), x),
        grad: |g, y| y.if_above(0.0, g, T::lit(0.0)),
        samples: (-2.0, 2.1),
    }

    /// Each element where it is positive, else `negative_slope` times it.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.0, 2.0])?.leaky_relu(0.5)?.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real LEAKY_RELU leaky_relu(negative_slope: f64) keeps Input {
        value: |x| x.clone().if_above(0.0, x.clone(), x * T::lit(negative_slope)),
        grad: |g, x| x.if_above(0.0, g.clone(), g * T::lit(negative_slope)),
        samples: (-2.0, 2.1), 0.1
    }

    /// Each element where it is positive, else `alpha · (exp(x) - 1)`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-100.0, 2.0])?.elu(1.5)?.to_vec::<f32>()?, [-1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real ELU elu(alpha: f64) keeps Input {
        value: |x| x.clone().if_above(0.0, x.clone(), x.expm1() * T::lit(alpha)),
        grad: |g, x| x.clone().if_above(0.0, g.clone(), g * (x.exp() * T::lit(alpha))),
        samples: (-2.0, 2.1), 1.3
    }

    /// `x · sigmoid(x)` of each element, also called swish.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, 100.0])?.silu()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real SILU silu() keeps Input {
        value: |x| x.clone() * x.sigmoid(),
        grad: |g, x| {
            let s = x.clone().sigmoid();
            g * (s.clone() * (T::lit(1.0) + x * (T::lit(1.0) - s)))
        },
        samples: (-3.0, 3.1),
    }

    /// `log(1 + exp(beta · x)) / beta` of each element: a smooth relu. Where `beta · x` exceeds `threshold` it is `x`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([0.0, 100.0])?.softplus(1.0, 20.0)?.to_vec::<f32>()?, [0.6931472, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real SOFTPLUS softplus(beta: f64, threshold: f64) keeps Input {
        value: |x| {
            let z = x.clone() * T::lit(beta);
            z.clone().if_above(threshold, x, z.exp().log1p() / T::lit(beta))
        },
        grad: |g, x| {
            let z = x * T::lit(beta);
            z.clone().if_above(threshold, g.clone(), g * z.sigmoid())
        },
        samples: (-3.0, 3.0), 1.5, 3.5
    }

    /// Each element, but at least `min` and at most `max`; `None` leaves the side open. The gradient passes where the
    /// element lies between the bounds, these excluded.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.0, 0.5, 2.0])?.clamp(Some(0.0), Some(1.0))?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Real CLAMP clamp(min: Option<f64>, max: Option<f64>) keeps Input {
        value: |x| {
            let x = min.map_or(x.clone(), |low| x.clone().if_below(low, T::lit(low), x));
            max.map_or(x.clone(), |high| x.clone().if_above(high, T::lit(high), x))
        },
        grad: |g, x| {
            let g = min.map_or(g.clone(), |low| x.clone().if_above(low, g, T::lit(0.0)));
            max.map_or(g.clone(), |high| x.if_below(high, g, T::lit(0.0)))
        },
        samples: (-2.0, 2.1), Some(-0.7), Some(1.1)
    }
}

pub(crate) static OPS: &[&Op] = &[
    &NEG,
    &ABS,
    &SIGN,
    &SQUARE,
    &RECIPROCAL,
    &EXP,
    &EXPM1,
    &LOG,
    &LOG1P,
    &SQRT,
    &TANH,
    &SIGMOID,
    &SIN,
    &COS,
    &ERF,
    &RELU,
    &LEAKY_RELU,
    &ELU,
    &SILU,
    &SOFTPLUS,
    &CLAMP,
    &gelu::GELU,
];
