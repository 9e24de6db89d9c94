//! What factorizations are made of: steps on columns, triangular systems, and products of blocks. Matrices lie column by
//! column.

use super::general;
use crate::backend::cpu::linalg::gemm::{Matrix, Number, Product, Start, gemm};
use crate::backend::cpu::runtime::scratch::{filled, with_room};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::{Complex, Element, Result};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The largest triangle that is solved without products of blocks.
const SMALL: usize = 32;

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
    /// The complex conjugate: of real numbers they themselves.
    fn conj(self) -> Self;
    fn abs(self) -> Self::Real;
    /// The sum of the parts' absolute values, by which LAPACK chooses pivots.
    fn size(self) -> Self::Real;
    fn is_finite(self) -> bool;
    /// `self * b + c`, rounded once if `FMA`.
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self;

    /// Makes a Hessenberg matrix triangular or, if it is real, triangular but for blocks of size 2 with complex eigenvalues.
    /// `z` is multiplied by the same rotations from the right; without it only the eigenvalues are right.
    ///
    /// # Errors
    /// If it does not converge.
    ///
    /// # Safety
    /// Both matrices are `n` by `n`, and nobody else uses them.
    unsafe fn schur(op: &'static str, h: Columns<Self>, n: usize, z: Option<Columns<Self>>) -> Result<()>;

    /// A product, with the conjugate of `b` if so wanted.
    ///
    /// # Errors
    /// If memory runs out.
    ///
    /// # Safety
    /// As [`gemm`].
    unsafe fn product(op: &'static str, product: &Product<Self>, conjugate_b: bool) -> Result<()>;
}

/// The real ones of these types.
pub(crate) trait Real: Scalar<Real = Self> + PartialOrd {
    const EPSILON: Self;
    /// Matrices are scaled unless their largest elements lie between this and its inverse.
    const SMALLEST: Self;

    fn from_f64(x: f64) -> Self;
    fn sqrt(self) -> Self;
    fn hypot(self, other: Self) -> Self;
}

macro_rules! scalars {
    ($($t:ident $smallest:literal),+) => {$(
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
                unsafe { general::real_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<$t>, _conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { gemm(op, product) }
            }
        }

        impl Real for $t {
            const EPSILON: $t = $t::EPSILON;
            const SMALLEST: $t = $smallest;

            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            fn hypot(self, other: $t) -> $t {
                $t::hypot(self, other)
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
                unsafe { general::complex_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<Complex<$t>>, conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { complex_product(op, product, conjugate_b) }
            }
        }
    )+};
}
scalars!(f32 1e-12, f64 1e-100);

/// A product of complex matrices, from those of their parts. The parts of a matrix are matrices of twice its steps.
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

/// A matrix in memory: its first element, and the step from one column to the next.
#[derive(Clone, Copy)]
pub(crate) struct Columns<T> {
    pub ptr: *mut T,
    pub ld: usize,
}

impl<T: Scalar> Columns<T> {
    pub fn at(&self, i: usize, j: usize) -> *mut T {
        self.ptr.wrapping_add(i + j * self.ld)
    }

    /// The part from an element on.
    pub fn from(&self, i: usize, j: usize) -> Columns<T> {
        Columns { ptr: self.at(i, j), ld: self.ld }
    }

    /// `len` elements of column `j` from row `i` on.
    ///
    /// # Safety
    /// They are inside the buffer, and nobody else uses them as long as the slice lives.
    pub unsafe fn column<'a>(&self, j: usize, i: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(i, j), len) }
    }

    /// # Safety
    /// The element is inside the buffer.
    pub unsafe fn get(&self, i: usize, j: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.at(i, j).read() }
    }

    /// # Safety
    /// The element is inside the buffer, and nobody else uses it.
    pub unsafe fn set(&self, i: usize, j: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.at(i, j).write(value) };
    }

    pub fn matrix(&self) -> Matrix<T> {
        Matrix { ptr: self.ptr, row: 1, col: self.ld as isize }
    }
}

struct Axpy<'a, T> {
    a: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Scalar> Job for Axpy<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = self.a.mul_add::<FMA>(x, *y);
        }
    }
}

/// `y += a · x`.
pub(super) fn axpy<T: Scalar>(a: T, x: &[T], y: &mut [T]) {
    dispatch(Axpy { a, x, y });
}

struct Axpy2<'a, T> {
    a: T,
    x: &'a [T],
    b: T,
    z: &'a [T],
    y: &'a mut [T],
}

impl<T: Scalar> Job for Axpy2<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((y, &x), &z) in self.y.iter_mut().zip(self.x).zip(self.z) {
            *y = self.a.mul_add::<FMA>(x, self.b.mul_add::<FMA>(z, *y));
        }
    }
}

/// `y += a · x + b · z`.
pub(super) fn axpy2<T: Scalar>(a: T, x: &[T], b: T, z: &[T], y: &mut [T]) {
    dispatch(Axpy2 { a, x, b, z, y });
}

struct Dot<'a, T> {
    x: &'a [T],
    y: &'a [T],
}

impl<T: Scalar> Job for Dot<'_, T> {
    type Output = T;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> T {
        const LANES: usize = 32;
        let n = self.x.len().min(self.y.len());
        let (x, y) = (&self.x[..n], &self.y[..n]);
        let mut sums = [T::ZERO; LANES];
        let whole = n - n % LANES;
        for (x, y) in x[..whole].chunks_exact(LANES).zip(y[..whole].chunks_exact(LANES)) {
            for lane in 0..LANES {
                sums[lane] = x[lane].conj().mul_add::<FMA>(y[lane], sums[lane]);
            }
        }
        for lane in 0..n - whole {
            sums[lane] = x[whole + lane].conj().mul_add::<FMA>(y[whole + lane], sums[lane]);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] = sums[lane] + sums[lane + width];
            }
            width /= 2;
        }
        sums[0]
    }
}

/// `Σ conj(x) · y`.
pub(super) fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    dispatch(Dot { x, y })
}

/// Rows that rotations are applied to at a time: those of all columns stay in the second cache.
const ROTATED_ROWS: usize = 64;

/// A rotation of two columns: `x, y = c · x + s · y, c · y - s · x`.
#[derive(Clone, Copy)]
struct Rotation<T> {
    x: usize,
    y: usize,
    c: T,
    s: T,
}

/// A square matrix by columns, and rotations of its columns that are yet to be applied: many of them, to few rows at a time.
pub(super) struct Rotated<T> {
    z: Vec<T>,
    n: usize,
    pending: Vec<Rotation<T>>,
}

impl<T: Real> Rotated<T> {
    /// The identity, or nothing at all if it is not wanted.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn identity(op: &'static str, n: usize, wanted: bool) -> Result<Rotated<T>> {
        let mut z = filled(op, T::ZERO, if wanted { n * n } else { 0 })?;
        (0..z.len()).step_by(n + 1).for_each(|at| z[at] = T::ONE);
        Ok(Rotated { z, n, pending: Vec::new() })
    }

    /// Rotates columns `x` and `y`.
    pub fn rotate(&mut self, x: usize, y: usize, c: T, s: T) {
        if self.z.is_empty() {
            return;
        }
        self.pending.push(Rotation { x, y, c, s });
        if self.pending.len() >= 16 * self.n {
            self.apply();
        }
    }

    fn apply(&mut self) {
        let (n, list) = (self.n, &self.pending[..]);
        let z = Ptr::new(self.z.as_mut_ptr());
        let grain = (4 * GRAIN / (ROTATED_ROWS * list.len().max(1))).max(1);
        parallel(n.div_ceil(ROTATED_ROWS), grain, |range| {
            for chunk in range {
                let start = chunk * ROTATED_ROWS;
                let z = Columns { ptr: z.get(), ld: n }.from(start, 0);
                dispatch(Rotations { list, z, rows: ROTATED_ROWS.min(n - start) });
            }
        });
        self.pending.clear();
    }

    /// The columns, with all rotations applied.
    pub fn finish(mut self) -> Vec<T> {
        self.apply();
        self.z
    }
}

struct Rotations<'a, T> {
    list: &'a [Rotation<T>],
    z: Columns<T>,
    rows: usize,
}

impl<T: Real> Job for Rotations<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for &Rotation { x, y, c, s } in self.list {
            // SAFETY: two columns of the square that `Rotated` has, whose rows are this thread's.
            let (x, y) = unsafe { (self.z.column(x, 0, self.rows), self.z.column(y, 0, self.rows)) };
            for (x, y) in x.iter_mut().zip(y) {
                (*x, *y) = (c.mul_add::<FMA>(*x, s * *y), c.mul_add::<FMA>(*y, -(s * *x)));
            }
        }
    }
}

pub(super) fn scale<T: Scalar>(x: &mut [T], by: T) {
    x.iter_mut().for_each(|x| *x = *x * by);
}

/// `out -= a · b`, where `out` (`m` by `n`) lies row by row, with the conjugate of `a` if so wanted.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, `out` overlaps neither `a` nor `b`, and nobody else uses it.
pub(super) unsafe fn subtract<T: Scalar>(
    op: &'static str,
    [m, n, k]: [usize; 3],
    (a, conjugate_a): (Matrix<T>, bool),
    b: Matrix<T>,
    out: *mut T,
    width: usize,
) -> Result<()> {
    if m == 0 || n == 0 || k == 0 {
        return Ok(());
    }
    // The copy lies as the matrix does, so that both are walked in order.
    let (lines, len, turned) = if a.row == 1 { (k, m, a.t()) } else { (m, k, a) };
    let negate = |x: T| if conjugate_a { -x.conj() } else { -x };
    let mut negated = with_room(op, m * k)?;
    for i in 0..lines {
        if turned.col == 1 {
            // SAFETY: the caller's promise, for a line of elements side by side.
            let line = unsafe { std::slice::from_raw_parts(turned.at(i, 0), len) };
            negated.extend(line.iter().map(|&x| negate(x)));
        } else {
            // SAFETY: the caller's promise.
            negated.extend((0..len).map(|j| negate(unsafe { turned.at(i, j).read() })));
        }
    }
    let copy = Matrix { ptr: negated.as_ptr(), row: len as isize, col: 1 };
    let a = if a.row == 1 { copy.t() } else { copy };
    // SAFETY: the caller's promise; the copy has as many elements.
    unsafe { T::product(op, &Product { m, n, k, a, b, out, width, start: Start::Out }, false) }
}

/// Columns of right-hand sides that a small triangle is solved for.
struct SmallSolve<'a, T> {
    /// By columns, of `n` elements each; the inverse of the diagonal in `inverses`.
    triangle: &'a [T],
    inverses: &'a [T],
    n: usize,
    upper: bool,
    b: Columns<T>,
    count: usize,
}

impl<T: Scalar> Job for SmallSolve<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let SmallSolve { triangle, inverses, n, upper, b, count } = self;
        for c in 0..count {
            // SAFETY: the promise of `solve`, which makes this.
            let x = unsafe { b.column(c, 0, n) };
            for step in 0..n {
                let j = if upper { n - 1 - step } else { step };
                let xj = x[j] * inverses[j];
                x[j] = xj;
                let column = &triangle[j * n..(j + 1) * n];
                let rest = if upper { 0..j } else { j + 1..n };
                for (x, &t) in x[rest.clone()].iter_mut().zip(&column[rest]) {
                    *x = (-xj).mul_add::<FMA>(t, *x);
                }
            }
        }
    }
}

/// `b = a⁻¹ · b`, for a triangle `a` of size `n` and `count` columns `b`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, they do not overlap, and nobody else uses `b`.
pub(super) unsafe fn solve<T: Scalar>(
    op: &'static str,
    n: usize,
    a: Matrix<T>,
    upper: bool,
    unit: bool,
    b: Columns<T>,
    count: usize,
) -> Result<()> {
    if n == 0 || count == 0 {
        return Ok(());
    }
    if n <= SMALL {
        let (mut triangle, mut inverses) = ([T::ZERO; SMALL * SMALL], [T::ONE; SMALL]);
        for j in 0..n {
            let rows = if upper { 0..j } else { j + 1..n };
            for i in rows {
                // SAFETY: the caller's promise.
                triangle[j * n + i] = unsafe { a.at(i, j).read() };
            }
            if !unit {
                // SAFETY: the caller's promise.
                inverses[j] = T::ONE / unsafe { a.at(j, j).read() };
            }
        }
        let (triangle, inverses) = (&triangle[..n * n], &inverses[..n]);
        dispatch(SmallSolve { triangle, inverses, n, upper, b, count });
        return Ok(());
    }
    let half = (n / 2).next_multiple_of(SMALL);
    let (first, second) = (b, b.from(half, 0));
    // The transposes of `b`'s parts lie row by row.
    let across = |b: Columns<T>| Matrix { ptr: b.ptr, row: b.ld as isize, col: 1 };
    // SAFETY: the caller's promise, for parts of the matrices.
    unsafe {
        if upper {
            solve(op, n - half, a.from(half, half), true, unit, second, count)?;
            subtract(op, [count, half, n - half], (across(second), false), a.from(0, half).t(), first.ptr, b.ld)?;
            solve(op, half, a, true, unit, first, count)
        } else {
            solve(op, half, a, false, unit, first, count)?;
            subtract(op, [count, n - half, half], (across(first), false), a.from(half, 0).t(), second.ptr, b.ld)?;
            solve(op, n - half, a.from(half, half), false, unit, second, count)
        }
    }
}

/// `b = b · l⁻ᴴ`, for a lower triangle `l` of size `n` and `b` of `m` by `n`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`solve`].
pub(super) unsafe fn solve_right<T: Scalar>(
    op: &'static str,
    m: usize,
    n: usize,
    l: Columns<T>,
    b: Columns<T>,
) -> Result<()> {
    if m == 0 || n == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise, for columns and parts of the matrices.
    unsafe {
        if n <= SMALL {
            for j in 0..n {
                let column = b.column(j, 0, m);
                for k in 0..j {
                    axpy(-l.get(j, k).conj(), b.column(k, 0, m), column);
                }
                scale(column, T::ONE / l.get(j, j).conj());
            }
            return Ok(());
        }
        let half = (n / 2).next_multiple_of(SMALL);
        solve_right(op, m, half, l, b)?;
        let (rest, known) = (b.from(0, half), Matrix { ptr: b.ptr.cast_const(), row: b.ld as isize, col: 1 });
        subtract(op, [n - half, m, half], (l.from(half, 0).matrix(), true), known, rest.ptr, b.ld)?;
        solve_right(op, m, n - half, l.from(half, half), rest)
    }
}
