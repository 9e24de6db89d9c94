//! What factorizations are made of: steps on columns, triangular systems, and products of blocks. Matrices lie column by
//! column.

use super::general;
use crate::backend::cpu::linalg::gemm::{Matrix, Number, Product, Start, gemm};
use crate::backend::cpu::runtime::scratch::{filled, with_room};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::{Complex, Element, Result};
use smallvec::SmallVec;
use std::ops::{Add, Div, Mul, Neg, Range, Sub};

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

    /// Adds to `sums` what some columns of the lower triangle of a Hermitian matrix, and the rows that mirror them, add to its
    /// product with `v`.
    ///
    /// # Safety
    /// The matrix has as many rows as `v` has elements, all of them inside the buffer, and nobody writes it.
    unsafe fn hermitian_product(a: Columns<Self>, columns: Range<usize>, v: &[Self], sums: &mut [Self]) {
        for j in columns {
            // SAFETY: the caller's promise.
            let column = unsafe { a.column(j, j, v.len() - j) };
            sums[j] = sums[j] + Self::from_real(column[0].re()) * v[j] + dot(&column[1..], &v[j + 1..]);
            axpy(v[j], &column[1..], &mut sums[j + 1..]);
        }
    }
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
                unsafe { general::real_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<$t>, _conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { gemm(op, product) }
            }
            unsafe fn hermitian_product(a: Columns<$t>, columns: Range<usize>, v: &[$t], sums: &mut [$t]) {
                dispatch(SymmetricProduct { a, columns, v, sums });
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
                unsafe { general::complex_schur(op, h, n, z) }
            }
            unsafe fn product(op: &'static str, product: &Product<Complex<$t>>, conjugate_b: bool) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { complex_product(op, product, conjugate_b) }
            }
        }
    )+};
}
// Squares of f32 neither overflow in f64 nor are they rounded.
scalars!(f32 1e-12 |a, b| (f64::from(a) * f64::from(a) + f64::from(b) * f64::from(b)).sqrt() as f32, f64 1e-100 f64::hypot);

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

/// Rows that rotations are applied to at a time: those of all columns stay in the second cache, and those of the columns that
/// a wave of sweeps is at in the first.
const ROTATED_ROWS: usize = 128;

/// Sweeps that follow each other over the columns.
const SWEEPS: usize = 16;

/// A rotation of two columns: `x, y = c · x + s · y, c · y - s · x`.
#[derive(Clone, Copy)]
struct Rotation<T> {
    x: usize,
    y: usize,
    c: T,
    s: T,
}

/// A matrix, and rotations of its columns that are yet to be applied: many of them, to few rows at a time.
pub(super) struct Rotated<T> {
    /// Strips of [`ROTATED_ROWS`] rows one after the other, each by columns: with whole columns far apart, those of one wave
    /// would compete for the same places in the cache.
    z: Vec<T>,
    rows: usize,
    columns: usize,
    pending: Vec<Rotation<T>>,
}

impl<T: Real> Rotated<T> {
    /// The parts of `columns` columns that lie one after the other, or nothing at all.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new<S: Scalar<Real = T>>(op: &'static str, columns: usize, from: &mut [S]) -> Result<Rotated<T>> {
        let from = parts(from);
        let (mut z, rows) = (with_room(op, from.len())?, from.len() / columns.max(1));
        for start in (0..rows).step_by(ROTATED_ROWS) {
            let strip = start..rows.min(start + ROTATED_ROWS);
            from.chunks_exact(rows).for_each(|column| z.extend_from_slice(&column[strip.clone()]));
        }
        Ok(Rotated { z, rows, columns, pending: Vec::new() })
    }

    /// Rotates columns `x` and `y`.
    pub fn rotate(&mut self, x: usize, y: usize, c: T, s: T) {
        if self.z.is_empty() {
            return;
        }
        self.pending.push(Rotation { x, y, c, s });
        if self.pending.len() >= 16 * self.columns {
            self.apply();
        }
    }

    fn apply(&mut self) {
        let (rows, columns, list) = (self.rows, self.columns, &in_waves(&self.pending)[..]);
        let z = Ptr::new(self.z.as_mut_ptr());
        let grain = (4 * GRAIN / (ROTATED_ROWS * list.len().max(1))).max(1);
        parallel(rows.div_ceil(ROTATED_ROWS), grain, |range| {
            for chunk in range {
                let start = chunk * ROTATED_ROWS;
                let rows = ROTATED_ROWS.min(rows - start);
                let z = Columns { ptr: z.get().wrapping_add(start * columns), ld: rows };
                dispatch(Rotations { list, z, rows });
            }
        });
        self.pending.clear();
    }

    /// Writes the columns, with all rotations applied, to where they came from.
    pub fn finish<S: Scalar<Real = T>>(mut self, to: &mut [S]) {
        self.apply();
        let (rows, to) = (self.rows, parts(to));
        if self.z.is_empty() {
            return;
        }
        for (start, strip) in (0..rows).step_by(ROTATED_ROWS).zip(self.z.chunks(ROTATED_ROWS * self.columns)) {
            let len = ROTATED_ROWS.min(rows - start);
            for (to, from) in to.chunks_exact_mut(rows).zip(strip.chunks_exact(len)) {
                to[start..start + len].copy_from_slice(from);
            }
        }
    }
}

/// The numbers themselves, or the real and the imaginary part of each.
fn parts<T: Scalar>(x: &mut [T]) -> &mut [T::Real] {
    let len = size_of_val(x) / size_of::<T::Real>();
    // SAFETY: a scalar is one real number, or two side by side.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), len) }
}

/// Rotations in another order with the same result, in which those of the same columns are close together. A method's sweep
/// rotates neighbouring columns, one pair after the other; the next sweep can follow a column behind it.
fn in_waves<T: Real>(list: &[Rotation<T>]) -> Vec<Rotation<T>> {
    // 1 or -1 for neighbours. The place of a rotation in a sweep falls by 1 from one to the next.
    let direction = |r: &Rotation<T>| r.y as isize - r.x as isize;
    let place = |r: &Rotation<T>| -direction(r) * r.x as isize;
    let (mut waves, mut start) = (Vec::with_capacity(list.len()), 0);
    while start < list.len() {
        let along = direction(&list[start]);
        // Where each sweep goes on, and where it ends.
        let mut sweeps: SmallVec<[(usize, usize); SWEEPS]> = SmallVec::new();
        while sweeps.len() < SWEEPS && start < list.len() && direction(&list[start]) == along {
            let follows = |pair: &[Rotation<T>]| direction(&pair[1]) == along && pair[1].x == pair[0].y;
            let len = 1 + list[start..].windows(2).take_while(|pair| along.abs() == 1 && follows(pair)).count();
            sweeps.push((start, start + len));
            start += len;
            if along.abs() != 1 {
                break;
            }
        }
        // A rotation has columns in common with those of the sweep before it up to a place below its own: these come first.
        let ahead =
            |(lag, &(next, end)): (usize, &(usize, usize))| (next < end).then(|| place(&list[next]) - lag as isize);
        while let Some(first) = sweeps.iter().enumerate().filter_map(ahead).max() {
            for (lag, sweep) in sweeps.iter_mut().enumerate() {
                if ahead((lag, sweep)) == Some(first) {
                    waves.push(list[sweep.0]);
                    sweep.0 += 1;
                }
            }
        }
    }
    waves
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
            // SAFETY: two columns of a strip that `Rotated` has, which is this thread's.
            let (x, y) = unsafe { (self.z.column(x, 0, self.rows), self.z.column(y, 0, self.rows)) };
            for (x, y) in x.iter_mut().zip(y) {
                (*x, *y) = (c.mul_add::<FMA>(*x, s * *y), c.mul_add::<FMA>(*y, -(s * *x)));
            }
        }
    }
}

/// As [`Scalar::hermitian_product`] of real numbers, several columns at a time.
struct SymmetricProduct<'a, T> {
    a: Columns<T>,
    columns: Range<usize>,
    v: &'a [T],
    sums: &'a mut [T],
}

impl<T: Real> Job for SymmetricProduct<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const LANES: usize = 16;
        const TOGETHER: usize = 4;
        let SymmetricProduct { a, columns, v, sums } = self;
        let n = v.len();
        let mut first = columns.start;
        while first < columns.end {
            let count = TOGETHER.min(columns.end - first);
            // The columns' own triangle.
            for j in first..first + count {
                // SAFETY: columns of the matrix, which are only read.
                let column = unsafe { a.column(j, j, first + count - j) };
                sums[j] = column[0].mul_add::<FMA>(v[j], sums[j]);
                for (i, &x) in (j..).zip(&*column).skip(1) {
                    sums[i] = x.mul_add::<FMA>(v[j], sums[i]);
                    sums[j] = x.mul_add::<FMA>(v[i], sums[j]);
                }
            }
            let start = first + count;
            // Columns that are not there are read as others, and count nothing.
            // SAFETY: as above.
            let below: [&[T]; TOGETHER] =
                std::array::from_fn(|c| unsafe { &*a.column(first + c.min(count - 1), start, n - start) });
            let weights: [T; TOGETHER] = std::array::from_fn(|c| if c < count { v[first + c] } else { T::ZERO });
            let mut dots = [[T::ZERO; LANES]; TOGETHER];
            let whole = (n - start) / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                let (x, to) = (&v[start + at..][..LANES], &mut sums[start + at..][..LANES]);
                let parts: [&[T]; TOGETHER] = std::array::from_fn(|c| &below[c][at..][..LANES]);
                let mut sum = [T::ZERO; LANES];
                sum.copy_from_slice(to);
                for lane in 0..LANES {
                    for c in 0..TOGETHER {
                        sum[lane] = parts[c][lane].mul_add::<FMA>(weights[c], sum[lane]);
                        dots[c][lane] = parts[c][lane].mul_add::<FMA>(x[lane], dots[c][lane]);
                    }
                }
                to.copy_from_slice(&sum);
            }
            for at in whole..n - start {
                for c in 0..TOGETHER {
                    let x = below[c][at];
                    sums[start + at] = x.mul_add::<FMA>(weights[c], sums[start + at]);
                    dots[c][at - whole] = x.mul_add::<FMA>(v[start + at], dots[c][at - whole]);
                }
            }
            for (c, dots) in dots[..count].iter().enumerate() {
                sums[first + c] = dots.iter().fold(sums[first + c], |sum, &x| sum + x);
            }
            first += count;
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

/// `c -= Σ a · bᴴ` over pairs of `n` by `k` matrices, of which the lower triangle is needed.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`subtract`].
pub(super) unsafe fn subtract_lower<T: Scalar>(
    op: &'static str,
    c: Columns<T>,
    n: usize,
    pairs: &[(Matrix<T>, Matrix<T>)],
    k: usize,
) -> Result<()> {
    // The rows of the upper left part; the transposes of the parts lie row by row.
    let half = if n <= 128 { n } else { (n / 2).next_multiple_of(32) };
    let low = if half == n { 0 } else { half };
    // SAFETY: the caller's promise, for parts of the matrices.
    unsafe {
        for &(a, b) in pairs {
            subtract(op, [half, n - low, k], (b, true), a.from(low, 0).t(), c.at(low, 0), c.ld)?;
        }
        if half < n {
            let below: SmallVec<[_; 2]> = pairs.iter().map(|(a, b)| (a.from(half, 0), b.from(half, 0))).collect();
            subtract_lower(op, c, half, pairs, k)?;
            subtract_lower(op, c.from(half, half), n - half, &below, k)?;
        }
    }
    Ok(())
}

/// Columns of right-hand sides that a small triangle is solved for.
struct SmallSolve<'a, T> {
    /// By rows; the inverse of the diagonal in `inverses`.
    triangle: &'a [[T; SMALL]; SMALL],
    inverses: &'a [T; SMALL],
    n: usize,
    upper: bool,
    b: Columns<T>,
    count: usize,
}

impl<T: Scalar> Job for SmallSolve<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // So many columns side by side, in vectors.
        const TOGETHER: usize = 16;
        let SmallSolve { triangle, inverses, n, upper, b, count } = self;
        for first in (0..count).step_by(TOGETHER) {
            let mut x = [[T::ZERO; TOGETHER]; SMALL];
            // SAFETY: the promise of `solve`, which makes this.
            let columns = || (first..count).take(TOGETHER).map(|c| unsafe { b.column(c, 0, n) }).enumerate();
            for (c, column) in columns() {
                x.iter_mut().zip(&*column).for_each(|(x, &from)| x[c] = from);
            }
            for step in 0..n {
                let i = if upper { n - 1 - step } else { step };
                let mut sums = x[i];
                for j in if upper { i + 1..n } else { 0..i } {
                    let (t, known) = (-triangle[i][j], x[j]);
                    for c in 0..TOGETHER {
                        sums[c] = t.mul_add::<FMA>(known[c], sums[c]);
                    }
                }
                x[i] = sums.map(|sum| sum * inverses[i]);
            }
            for (c, column) in columns() {
                x.iter().zip(column).for_each(|(x, to)| *to = x[c]);
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
        let (mut triangle, mut inverses) = ([[T::ZERO; SMALL]; SMALL], [T::ONE; SMALL]);
        for j in 0..n {
            let rows = if upper { 0..j } else { j + 1..n };
            for i in rows {
                // SAFETY: the caller's promise.
                triangle[i][j] = unsafe { a.at(i, j).read() };
            }
            if !unit {
                // SAFETY: the caller's promise.
                inverses[j] = T::ONE / unsafe { a.at(j, j).read() };
            }
        }
        let (first, ld) = (Ptr::new(b.ptr), b.ld);
        parallel(count, 4 * GRAIN / (n * n), |range| {
            let b = Columns { ptr: first.get(), ld }.from(0, range.start);
            dispatch(SmallSolve { triangle: &triangle, inverses: &inverses, n, upper, b, count: range.len() });
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_in_waves_give_the_same_bits() {
        let n = 40;
        let mut list = Vec::new();
        let mut number = 0.3_f64;
        let mut rotation = |x, y| {
            number = (number * 997.0 + 0.123).fract();
            Rotation { x, y, c: number.cos(), s: number.sin() }
        };
        // Sweeps down and up, over all columns and parts of them, and single rotations of columns far apart.
        for round in 0..60 {
            let (low, high) = (round % 7, n - 1 - round % 11);
            match round / 20 {
                0 => list.extend((low..high).rev().map(|i| rotation(i + 1, i))),
                1 => list.extend((low..high).map(|i| rotation(i, i + 1))),
                _ if round % 3 == 0 => list.push(rotation(low, high)),
                _ if round % 2 == 0 => list.extend((low..high).map(|i| rotation(i, i + 1))),
                _ => list.extend((low..high).rev().map(|i| rotation(i + 1, i))),
            }
        }
        let apply = |list: &[Rotation<f64>]| {
            let mut z: Vec<f64> = (0..n * n).map(|i| i as f64).collect();
            Rotations { list, z: Columns { ptr: z.as_mut_ptr(), ld: n }, rows: n }.run::<false>();
            z
        };
        let waves = in_waves(&list);
        assert_eq!(waves.len(), list.len());
        assert!(waves.iter().zip(&list).any(|(a, b)| (a.x, a.y) != (b.x, b.y)));
        assert_eq!(apply(&waves), apply(&list));
    }

    fn product_of_lower_triangle<T: Scalar + std::fmt::Debug>(number: impl Fn(usize) -> T) {
        let not = T::from_real(T::Real::from_f64(f64::NAN));
        for n in [1, 3, 4, 7, 16, 21, 50] {
            let a: Vec<T> = (0..n * n).map(|at| if at % n >= at / n { number(at) } else { not }).collect();
            let v: Vec<T> = (0..n).map(|i| number(3 * i + 1)).collect();
            let at = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Less => a[i * n + j].conj(),
                std::cmp::Ordering::Equal => T::from_real(a[i * n + i].re()),
                std::cmp::Ordering::Greater => a[j * n + i],
            };
            let row = |i: usize| (0..n).fold(T::ZERO, |sum, j| sum + at(i, j) * v[j]);
            let mut sums = vec![T::ZERO; n];
            for columns in [0..n / 3, n / 3..n] {
                let a = Columns { ptr: a.as_ptr().cast_mut(), ld: n };
                // SAFETY: the matrix is `n` by `n`.
                unsafe { T::hermitian_product(a, columns, &v, &mut sums) };
            }
            assert_eq!(sums, (0..n).map(row).collect::<Vec<T>>(), "{n}");
        }
    }

    #[test]
    fn a_hermitian_product_reads_the_lower_triangle() {
        product_of_lower_triangle(|at| (at % 17) as f64 - 3.0);
        product_of_lower_triangle(|at| Complex::new((at % 17) as f64 - 3.0, (at % 13) as f64 - 5.0));
    }
}
