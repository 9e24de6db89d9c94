//! Divide and conquer for the vectors of tridiagonal and bidiagonal matrices. Except for one row, the problem is a pair of smaller
//! ones; a [`secular`] equation and a matrix product join two solutions. Values that the join changes by no more than rounding
//! are kept ("deflation"), and take no part in the product.
//!
//! Values are `f64`, whatever the type of the vectors.

mod secular;
mod singular;
mod symmetric;

pub(super) use singular::bidiagonal;
pub(super) use symmetric::tridiagonal;

use super::columns::Columns;
use super::scalar::Real;
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Matrix, Product, Start};
use crate::backend::cpu::runtime::threads::{num_threads, try_parallel};
use crate::memory::scratch::with_room;
use crate::zip::zip;
use std::ops::Range;

/// The size from which on divide and conquer is faster than rotations.
pub(super) const LARGE: usize = 48;

/// The largest problem that is solved by rotations.
const LEAF: usize = 32;

/// Rows of the matrix that are a separate problem.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    len: usize,
    /// A bidiagonal matrix with one more column than rows.
    open: bool,
}

impl Part {
    /// Two halves, with `between` rows between them.
    fn halves(self, between: usize) -> [Part; 2] {
        let first = (self.len - between) / 2;
        let second = Part { start: self.start + first + between, len: self.len - first - between, open: self.open };
        [Part { start: self.start, len: first, open: between > 0 }, second]
    }
}

/// Splits a problem of `n` rows into small ones, with `between` rows between two of them, solves these, and joins them. The
/// problems of one size are independent.
fn conquer(
    n: usize,
    between: usize,
    leaf: impl Fn(Part) -> Result<()> + Sync,
    join: impl Fn(Part, [Part; 2]) -> Result<()> + Sync,
) -> Result<()> {
    let mut levels = vec![vec![Part { start: 0, len: n, open: false }]];
    let mut leaves = Vec::new();
    while let Some(level) = levels.last_mut() {
        leaves.extend(level.iter().filter(|part| part.len <= LEAF));
        level.retain(|part| part.len > LEAF);
        if level.is_empty() {
            break;
        }
        let next = level.iter().flat_map(|part| part.halves(between)).collect();
        levels.push(next);
    }
    try_parallel(leaves.len(), 1, |range| leaves[range].iter().try_for_each(|&part| leaf(part)))?;
    for level in levels.iter().rev() {
        // Few problems are joined one by one, each by all threads.
        let join = |range: Range<usize>| level[range].iter().try_for_each(|&part| join(part, part.halves(between)));
        match level.len() < num_threads() {
            true => join(0..level.len())?,
            false => try_parallel(level.len(), 1, join)?,
        }
    }
    Ok(())
}

/// Which of two parts of the rows has the nonzero elements of a column.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    First,
    Both,
    Second,
}

/// What a join does with each column.
struct Columnwise {
    /// The columns that are multiplied, in the order of [`Kind`], and the number of each kind.
    multiplied: Vec<usize>,
    counts: [usize; 3],
    /// The columns that are kept.
    kept: Vec<usize>,
}

impl Columnwise {
    fn new(all: &[usize], kinds: &[Kind], kept: Vec<usize>) -> Columnwise {
        let of = |kind: Kind| all.iter().copied().filter(move |&column| kinds[column] == kind);
        let counts = [Kind::First, Kind::Both, Kind::Second].map(|kind| of(kind).count());
        let multiplied = of(Kind::First).chain(of(Kind::Both)).chain(of(Kind::Second)).collect();
        Columnwise { multiplied, counts, kept }
    }

    /// Replaces the columns of `q` with their products by `weights`, followed by the columns that are kept. The columns of
    /// `weights` have `len` elements each: one for each column that is multiplied, and others, which are ignored. Columns of one
    /// kind have elements only in the first of two `parts` of the rows, those of another only in the second. Other rows do not
    /// change.
    ///
    /// # Errors
    /// If memory runs out.
    ///
    /// # Safety
    /// All elements of the matrix, which has as many `rows`, are inside its buffer, and nothing else uses it.
    unsafe fn multiply<T: Real>(
        &self,
        op: &'static str,
        q: Columns<T>,
        rows: usize,
        parts: &[Range<usize>; 2],
        (weights, len): (&[T], usize),
    ) -> Result<()> {
        let [first, both, second] = self.counts;
        let count = weights.len() / len.max(1);
        let copy = |columns: &[usize], rows: Range<usize>| -> Result<Vec<T>> {
            let mut copies = with_room(op, columns.len() * rows.len())?;
            for &column in columns {
                // SAFETY: the caller's promise.
                copies.extend_from_slice(unsafe { q.column(column, rows.start, rows.len()) });
            }
            Ok(copies)
        };
        let sides = [(0..first + both, &parts[0]), (first..first + both + second, &parts[1])];
        let [above, below] = &sides;
        let copies = [
            copy(&self.multiplied[above.0.clone()], above.1.clone())?,
            copy(&self.multiplied[below.0.clone()], below.1.clone())?,
        ];
        let kept = copy(&self.kept, 0..rows)?;
        for ((columns, part), copies) in zip(&sides[..], &copies) {
            if part.is_empty() {
                continue;
            }
            if columns.is_empty() {
                // SAFETY: the caller's promise.
                (0..count).for_each(|j| unsafe { q.column(j, part.start, part.len()) }.fill(T::ZERO));
                continue;
            }
            // The transpose, which is row-major.
            let product = Product {
                m: count,
                n: part.len(),
                k: columns.len(),
                a: Matrix { ptr: weights[columns.start..].as_ptr(), row: len as isize, col: 1 },
                b: Matrix { ptr: copies.as_ptr(), row: part.len() as isize, col: 1 },
                out: q.at(part.start, 0),
                width: q.ld,
                start: Start::Zero,
            };
            // SAFETY: the caller's promise; the operands are copies.
            unsafe { T::product(op, &product, false)? };
        }
        for (j, column) in kept.chunks_exact(rows.max(1)).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { q.column(count + j, 0, rows) }.copy_from_slice(column);
        }
        Ok(())
    }
}

/// `x, y = c · x + s · y, c · y - s · x`.
fn rotate<T: Real>(x: &mut [T], y: &mut [T], c: f64, s: f64) {
    let (c, s) = (T::from_f64(c), T::from_f64(s));
    for (x, y) in zip(&mut x[..], y) {
        (*x, *y) = (c * *x + s * *y, c * *y - s * *x);
    }
}

/// The indices of the values in ascending order, with NaN at an end. It is not generic, so that one sort is compiled.
pub(super) fn ascending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    order
}

fn largest(x: impl Iterator<Item = f64>) -> f64 {
    x.fold(0.0, |most, x| most.max(x.abs()))
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
