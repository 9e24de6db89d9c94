//! Bessel and Airy functions, and orthogonal polynomials.

use crate::backend::spec::{Ordered, Real, Sym, select};
use crate::ops::elementwise::binary::pair_errors;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, infinity, zero};
use crate::ops::elementwise::unary::unary;
use crate::ops::ops;
use crate::ops::sample::{Sample, ints, sample, spread};
use crate::tensor::Operand;
use crate::{Result, Tensor};

/// A polynomial of degree `n`. A derivative by the degree is an error, not 0.
#[track_caller]
fn of_degree(op: &'static Elementwise, x: &Tensor, n: &Operand<'_>) -> Result<Tensor> {
    let n = n.resolve(op.number_dtype(x.dtype()), x.device())?;
    if n.requires_grad() {
        return Ok(op.call(&[&x.detach(), &n.detach()], &[])?.record_barrier(op.name, &[x, &n]));
    }
    op.call(&[x, &n], &[])
}

/// Maps [0, 1] to [-1, 1].
fn shifted(x: Sym) -> Sym {
    2.0 * x - 1.0
}

fn third(x: Sym, n: Sym) -> Sym {
    x.chebyshev_u(n) - x.chebyshev_u(n.floor() - 1.0)
}

fn fourth(x: Sym, n: Sym) -> Sym {
    x.chebyshev_u(n) + x.chebyshev_u(n.floor() - 1.0)
}

/// # Bessel functions and polynomials
#[ops]
impl Tensor {
    /// The Bessel function of the first kind of order 0.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::bessel_j0(&tensor!([0.0])?)?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-4.0, 4.1), aliases = ["special_bessel_j0"])]
    pub fn bessel_j0(&self) -> Result<Tensor> {
        elementwise!(Float bessel_j0(self) |x| x.bessel_j0())
    }

    /// The Bessel function of the first kind of order 1.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::bessel_j1(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-4.0, 4.1), aliases = ["special_bessel_j1"])]
    pub fn bessel_j1(&self) -> Result<Tensor> {
        elementwise!(Float bessel_j1(self) |x| x.bessel_j1())
    }

    /// The Bessel function of the second kind of order 0; NaN for negative elements.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::bessel_y0(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_bessel_y0"])]
    pub fn bessel_y0(&self) -> Result<Tensor> {
        elementwise!(Float bessel_y0(self) |x| x.bessel_y0())
    }

    /// The Bessel function of the second kind of order 1; NaN for negative elements.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::bessel_y1(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_bessel_y1"])]
    pub fn bessel_y1(&self) -> Result<Tensor> {
        elementwise!(Float bessel_y1(self) |x| x.bessel_y1())
    }

    /// The modified Bessel function of the second kind of order 0; NaN for negative elements.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::modified_bessel_k0(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_modified_bessel_k0"])]
    pub fn modified_bessel_k0(&self) -> Result<Tensor> {
        elementwise!(Float modified_bessel_k0(self) |x| x.k0())
    }

    /// The modified Bessel function of the second kind of order 1; NaN for negative elements.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::modified_bessel_k1(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_modified_bessel_k1"])]
    pub fn modified_bessel_k1(&self) -> Result<Tensor> {
        elementwise!(Float modified_bessel_k1(self) |x| x.k1())
    }

    /// `exp(x)` times [`modified_bessel_k0`](crate::special::modified_bessel_k0).
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::scaled_modified_bessel_k0(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_scaled_modified_bessel_k0"])]
    pub fn scaled_modified_bessel_k0(&self) -> Result<Tensor> {
        elementwise!(Float scaled_modified_bessel_k0(self) |x| x.k0e())
    }

    /// `exp(x)` times [`modified_bessel_k1`](crate::special::modified_bessel_k1).
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::scaled_modified_bessel_k1(&tensor!([0.0])?)?.to_vec::<f32>()?, [f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.4, 4.0), aliases = ["special_scaled_modified_bessel_k1"])]
    pub fn scaled_modified_bessel_k1(&self) -> Result<Tensor> {
        elementwise!(Float scaled_modified_bessel_k1(self) |x| x.k1e())
    }

    /// The Airy function Ai.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::airy_ai(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.35502806]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-4.0, 4.1), aliases = ["special_airy_ai"])]
    pub fn airy_ai(&self) -> Result<Tensor> {
        elementwise!(Float airy_ai(self) |x| x.airy_ai())
    }

    /// The spherical Bessel function of the first kind of order 0: `sin(x) / x`, and 1 at 0.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// assert_eq!(special::spherical_bessel_j0(&tensor!([0.0])?)?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-4.0, 4.1), aliases = ["special_spherical_bessel_j0"])]
    pub fn spherical_bessel_j0(&self) -> Result<Tensor> {
        elementwise!(Float spherical_bessel_j0(self) |x| spherical(x), |g, y| [g * spherical_slope(x, y)])
    }

    /// The Chebyshev polynomial of the first kind of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::chebyshev_polynomial_t(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.5, -0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = high_degrees, errors = pair_errors, aliases = ["special_chebyshev_polynomial_t"], tolerance = 10.0)]
    pub fn chebyshev_polynomial_t<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("chebyshev_polynomial_t", |x, _| x[0].chebyshev_t(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the second kind of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::chebyshev_polynomial_u(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = high_degrees, errors = pair_errors, aliases = ["special_chebyshev_polynomial_u"], tolerance = 10.0)]
    pub fn chebyshev_polynomial_u<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("chebyshev_polynomial_u", |x, _| x[0].chebyshev_u(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the third kind of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::chebyshev_polynomial_v(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = high_degrees, errors = pair_errors, aliases = ["special_chebyshev_polynomial_v"], tolerance = 10.0)]
    pub fn chebyshev_polynomial_v<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("chebyshev_polynomial_v", |x, _| third(x[0], x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the fourth kind of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::chebyshev_polynomial_w(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = high_degrees, errors = pair_errors, aliases = ["special_chebyshev_polynomial_w"], tolerance = 10.0)]
    pub fn chebyshev_polynomial_w<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("chebyshev_polynomial_w", |x, _| fourth(x[0], x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the first kind, shifted from [-1, 1] to [0, 1], of degree `n`, a number or a tensor;
    /// 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::shifted_chebyshev_polynomial_t(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_shifted_chebyshev_polynomial_t"], tolerance = 10.0)]
    pub fn shifted_chebyshev_polynomial_t<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("shifted_chebyshev_polynomial_t", |x, _| shifted(x[0]).chebyshev_t(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the second kind, shifted from [-1, 1] to [0, 1], of degree `n`, a number or a
    /// tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::shifted_chebyshev_polynomial_u(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_shifted_chebyshev_polynomial_u"], tolerance = 10.0)]
    pub fn shifted_chebyshev_polynomial_u<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("shifted_chebyshev_polynomial_u", |x, _| shifted(x[0]).chebyshev_u(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the third kind, shifted from [-1, 1] to [0, 1], of degree `n`, a number or a tensor;
    /// 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::shifted_chebyshev_polynomial_v(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, -1.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_shifted_chebyshev_polynomial_v"], tolerance = 10.0)]
    pub fn shifted_chebyshev_polynomial_v<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("shifted_chebyshev_polynomial_v", |x, _| third(shifted(x[0]), x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Chebyshev polynomial of the fourth kind, shifted from [-1, 1] to [0, 1], of degree `n`, a number or a
    /// tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::shifted_chebyshev_polynomial_w(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_shifted_chebyshev_polynomial_w"], tolerance = 10.0)]
    pub fn shifted_chebyshev_polynomial_w<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("shifted_chebyshev_polynomial_w", |x, _| fourth(shifted(x[0]), x[1]));
        of_degree(&OP, self, &n)
    }

    /// The physicist's Hermite polynomial of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::hermite_polynomial_h(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_hermite_polynomial_h"], tolerance = 10.0)]
    pub fn hermite_polynomial_h<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("hermite_polynomial_h", |x, _| x[0].hermite_h(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The probabilist's Hermite polynomial of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::hermite_polynomial_he(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.5, -0.75]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_hermite_polynomial_he"], tolerance = 10.0)]
    pub fn hermite_polynomial_he<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("hermite_polynomial_he", |x, _| x[0].hermite_he(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Laguerre polynomial of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::laguerre_polynomial_l(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.5, 0.125]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = polynomials, errors = pair_errors, aliases = ["special_laguerre_polynomial_l"], tolerance = 10.0)]
    pub fn laguerre_polynomial_l<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("laguerre_polynomial_l", |x, _| x[0].laguerre_l(x[1]));
        of_degree(&OP, self, &n)
    }

    /// The Legendre polynomial of degree `n`, a number or a tensor; 0 for negative degrees.
    ///
    /// ```
    /// # use cotangent::{special, tensor};
    /// let x = special::legendre_polynomial_p(&tensor!([0.5, 0.5, 0.5])?, &tensor!([0, 1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.5, -0.125]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the derivative by the degree is requested.
    #[op(function = special, numbers = floats, samples = high_degrees, errors = pair_errors, aliases = ["special_legendre_polynomial_p"], tolerance = 10.0)]
    pub fn legendre_polynomial_p<'a>(&self, n: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OP: Elementwise = polynomial("legendre_polynomial_p", |x, _| x[0].legendre_p(x[1]));
        of_degree(&OP, self, &n)
    }
}

const fn polynomial(name: &'static str, value: fn(&[Sym], &[Sym]) -> Sym) -> Elementwise {
    Elementwise::new(name, Domain::Float, 2, 0, value)
}

/// sin(x) / x, with the limits at 0 and at infinity.
fn spherical(x: Sym) -> Sym {
    select(x.eq(zero()), zero() + 1.0, select(x.abs().eq(infinity()), zero(), x.sin() / x))
}

/// Its derivative: a series near 0, where the quotient is inaccurate.
fn spherical_slope(x: Sym, _y: Sym) -> Sym {
    let square = x * x;
    let near = x * (-1.0 / 3.0 + square * (1.0 / 30.0 + square * (-1.0 / 840.0 + square * (1.0 / 45_360.0))));
    select(square.lt(zero() + 0.01), near, (x.cos() - x.sin() / x) / x)
}

fn polynomials() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -0.95, 1.6);
    Ok(vec![
        sample![x(&[2, 3])?, ints(&[1, 2, 3, 4, 5, 7], [2, 3])?],
        sample![x(&[2, 1])?, ints(&[0, 3, 6], [3])?],
        sample![x(&[4])?, 3],
        sample![x(&[])?, ints(&[2], [])?],
        sample![x(&[0, 2])?, 2],
    ])
}

/// Arguments where the values stay small for any degree.
fn high_degrees() -> Result<Vec<Sample>> {
    let mut all = polynomials()?;
    all.push(sample![spread([3], -0.9, 0.9)?, ints(&[33, 40, 35], [3])?]);
    Ok(all)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::autograd::{GradOptions, derivative, grad_with};

    /// Arguments where the general formulas divide 0 by 0. The expected values come from the explicit polynomials.
    #[test]
    fn derivatives_at_the_ends_and_at_zero() -> Result<()> {
        type Polynomial = fn(&Tensor, i32) -> Result<Tensor>;
        let cases: [(Polynomial, i32, f64, f64, f64); 7] = [
            (|x, n| x.chebyshev_polynomial_t(n), 3, 1.0, 9.0, 24.0),
            (|x, n| x.chebyshev_polynomial_u(n), 3, 1.0, 20.0, 48.0),
            (|x, n| x.chebyshev_polynomial_u(n), 3, -1.0, 20.0, -48.0),
            (|x, n| x.chebyshev_polynomial_u(n), 2, -1.0, -8.0, 8.0),
            (|x, n| x.legendre_polynomial_p(n), 3, -1.0, 6.0, -15.0),
            (|x, n| x.legendre_polynomial_p(n), 2, -1.0, -3.0, 3.0),
            (|x, n| x.laguerre_polynomial_l(n), 3, 0.0, -3.0, 3.0),
        ];
        for (at, (f, n, x, first, second)) in cases.into_iter().enumerate() {
            let x = Tensor::from_vec(vec![x], [])?.requires_grad_(true)?;
            let found = grad_with(&f(&x, n)?, &[&x], GradOptions::new().create_graph(true))?.pop().flatten();
            let found = found.ok_or_else(|| crate::error::err!(Graph, "test", "no gradient"))?;
            assert_eq!(found.item::<f64>()?, first, "case {at}");
            assert_eq!(derivative(&found, &x)?.item::<f64>()?, second, "case {at}");
        }
        Ok(())
    }
}
