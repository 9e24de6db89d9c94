//! The types that matrices are factored in.

use super::columns::{Columns, axpy, dot};
use super::schur;
use super::tridiagonal::symmetric_product;
use crate::backend::cpu::linalg::gemm::{Matrix, Number, Product, Start, gemm};
use crate::memory::scratch::filled;
use crate::{Complex, Element, Result};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A type that matrices are factored in: real or complex numbers.
pub(crate) trait Scalar:
    Element
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The type of absolute values.
    type Real: Real;
    /// The type of eigenvalues.
    type Complex: Scalar<Real = Self::Real>;

    const ZERO: Self;
    const ONE: Self;

    fn from_real(x: Self::Real) -> Self;
    fn from_parts(re: Self::Real, im: Self::Real) -> Self::Complex;
    /// The same number, if this type has all complex numbers.
    fn from_complex(x: Self::Complex) -> Option<Self>;
    fn re(self) -> Self::Real;
    fn im(self) -> Self::Real;
    /// The complex conjugate; a real number is its own conjugate.
    fn conj(self) -> Self;
    fn abs(self) -> Self::Real;
    /// The sum of the parts' absolute values, by which LAPACK chooses pivots.
    fn size(self) -> Self::Real;
    fn is_finite(self) -> bool;
    /// `self * b + c`, rounded once if `FMA`.
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self;

    /// Makes a Hessenberg matrix triangular; a real one keeps blocks of size 2 with complex eigenvalues. `z` is multiplied by
    /// the same rotations from the right; without it only the eigenvalues are valid.
    ///
    /// # Errors
    /// If it does not converge.
    ///
    /// # Safety
    /// Both matrices are `n` by `n`, and nothing else uses them.
    unsafe fn schur(op: &'static str, h: Columns<Self>, n: usize, z: Option<Columns<Self>>) -> Result<()>;

    /// A product, optionally with the conjugate of `b`.
    ///
    /// # Errors
    /// If memory runs out.
    ///
    /// # Safety
    /// As [`gemm`].
    unsafe fn product(op: &'static str, product: &Product<Self>, conjugate_b: bool) -> Result<()>;

    /// Adds to `sums` the part of the product of a Hermitian matrix and `v` that comes from the first columns of the lower
    /// triangle and the rows that mirror them. Tiles on the diagonal may be read as a whole.
    ///
    /// # Safety
    /// The matrix has as many rows as `v` has elements, all of them inside the buffer, and nothing writes it. Both are multiples
    /// of [`TILE`](super::columns::TILE), as is the number of columns.
    unsafe fn hermitian_product(a: Columns<Self>, columns: usize, v: &[Self], sums: &mut [Self]) {
        for j in 0..columns {
            // SAFETY: the caller's promise.
            let column = unsafe { a.column(j, j, v.len() - j) };
            sums[j] = sums[j] + Self::from_real(column[0].re()) * v[j] + dot(&column[1..], &v[j + 1..]);
            axpy(v[j], &column[1..], &mut sums[j + 1..]);
        }
    }
}

/// The real types.
pub(crate) trait Real: Scalar<Real = Self> + PartialOrd {
    const EPSILON: Self;
    /// Matrices are scaled unless their largest elements lie between this and its inverse.
    const SMALLEST: Self;

    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn sqrt(self) -> Self;
    fn hypot(self, other: Self) -> Self;
}

macro_rules! scalars {
    ($($t:ident $smallest:literal $hypot:expr),+) => {$(
        impl Scalar for $t {
            type Real = $t;
            type Complex = Complex<$t>;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;

            #[inline(always)]
            fn from_real(x: $t) -> $t {
                x
            }
            #[inline(always)]
            fn from_parts(re: $t, im: $t) -> Complex<$t> {
                Complex::new(re, im)
            }
            fn from_complex(_: Complex<$t>) -> Option<$t> {
                None
            }
            #[inline(always)]
            fn re(self) -> $t {
                self
            }
            #[inline(always)]
            fn im(self) -> $t {
                0.0
            }
            #[inline(always)]
            fn conj(self) -> $t {
                self
            }
            #[inline(always)]
            fn abs(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn size(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, b: $t, c: $t) -> $t {
                if FMA { $t::mul_add(self, b, c) } else { self * b + c }
            }
            unsafe fn schur(op: &'static str, h: Columns<$t>, n: usize, z: Option<Columns<$t>>) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { schur::real_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<$t>, _conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { gemm(op, product) }
            }
            unsafe fn hermitian_product(a: Columns<$t>, columns: usize, v: &[$t], sums: &mut [$t]) {
                // SAFETY: the caller's promise.
                unsafe { symmetric_product(a, columns, v, sums) };
            }
        }

        impl Real for $t {
            const EPSILON: $t = $t::EPSILON;
            const SMALLEST: $t = $smallest;

            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn hypot(self, other: $t) -> $t {
                let hypot: fn($t, $t) -> $t = $hypot;
                hypot(self, other)
            }
        }

        impl Scalar for Complex<$t> {
            type Real = $t;
            type Complex = Complex<$t>;
            const ZERO: Complex<$t> = Complex::new(0.0, 0.0);
            const ONE: Complex<$t> = Complex::new(1.0, 0.0);

            #[inline(always)]
            fn from_real(x: $t) -> Complex<$t> {
                Complex::new(x, 0.0)
            }
            #[inline(always)]
            fn from_parts(re: $t, im: $t) -> Complex<$t> {
                Complex::new(re, im)
            }
            fn from_complex(x: Complex<$t>) -> Option<Complex<$t>> {
                Some(x)
            }
            #[inline(always)]
            fn re(self) -> $t {
                self.re
            }
            #[inline(always)]
            fn im(self) -> $t {
                self.im
            }
            #[inline(always)]
            fn conj(self) -> Complex<$t> {
                Complex::new(self.re, -self.im)
            }
            fn abs(self) -> $t {
                self.re.hypot(self.im)
            }
            #[inline(always)]
            fn size(self) -> $t {
                self.re.abs() + self.im.abs()
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.re.is_finite() && self.im.is_finite()
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, b: Complex<$t>, c: Complex<$t>) -> Complex<$t> {
                let add = |a, b, c| Scalar::mul_add::<FMA>(a, b, c);
                let (re, im) = (add(self.re, b.re, c.re), add(self.re, b.im, c.im));
                Complex::new(add(-self.im, b.im, re), add(self.im, b.re, im))
            }
            unsafe fn schur(
                op: &'static str,
                h: Columns<Complex<$t>>,
                n: usize,
                z: Option<Columns<Complex<$t>>>,
            ) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { schur::complex_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<Complex<$t>>, conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { complex_product(op, product, conjugate_b) }
            }
        }
    )+};
}
// In f64, squares of f32 do not overflow and are exact.
scalars!(f32 1e-12 |a, b| (f64::from(a) * f64::from(a) + f64::from(b) * f64::from(b)).sqrt() as f32, f64 1e-100 fast_hypot);

/// `hypot` where no square overflows or underflows, in a third of the time of the library function.
fn fast_hypot(a: f64, b: f64) -> f64 {
    let squares = a * a + b * b;
    if squares > 1e-280 && squares < 1e280 { squares.sqrt() } else { a.hypot(b) }
}

/// A product of complex matrices, from those of their parts. The parts of a matrix are matrices with twice its strides.
///
/// # Safety
/// As [`gemm`].
unsafe fn complex_product<T: Real + Number>(
    op: &'static str,
    product: &Product<Complex<T>>,
    conjugate_b: bool,
) -> Result<()> {
    let &Product { m, n, k, a, b, out, width, start } = product;
    let part = |x: Matrix<Complex<T>>, which: usize| Matrix {
        ptr: x.ptr.cast::<T>().wrapping_add(which),
        row: 2 * x.row,
        col: 2 * x.col,
    };
    let multiply = |of_a: usize, of_b: usize| -> Result<Vec<T>> {
        let mut sums = filled(op, <T as Scalar>::ZERO, m * n)?;
        let (a, b, out) = (part(a, of_a), part(b, of_b), sums.as_mut_ptr());
        // SAFETY: the caller's promise; there is room for the sums.
        unsafe { gemm(op, &Product { m, n, k, a, b, out, width: n, start: Start::Zero })? };
        Ok(sums)
    };
    let (real, crossed) = ((multiply(0, 0)?, multiply(1, 1)?), (multiply(0, 1)?, multiply(1, 0)?));
    for i in 0..m {
        for j in 0..n {
            let at = i * n + j;
            let sum = match conjugate_b {
                false => Complex::new(real.0[at] - real.1[at], crossed.1[at] + crossed.0[at]),
                true => Complex::new(real.0[at] + real.1[at], crossed.1[at] - crossed.0[at]),
            };
            // SAFETY: the caller's promise.
            unsafe {
                let to = out.add(i * width + j);
                let known = match start {
                    Start::Zero => None,
                    Start::Out => Some(to.read()),
                    Start::Row(row) => Some(row.add(j).read()),
                };
                to.write(known.map_or(sum, |known| Complex::new(known.re + sum.re, known.im + sum.im)));
            }
        }
    }
    Ok(())
}
