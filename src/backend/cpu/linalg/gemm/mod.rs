//! Matrix products of floats, in tiles.
//!
//! A product is cut into blocks of the inner dimension. For each block, the parts of `b` that a tile reads are copied to
//! contiguous memory ("packed"), as are those of `a` if they are strided. Then tiles are computed, in an order in which a panel
//! of `a` stays in the L1 cache and a block of `b` in the L2 cache. Small products are not packed.
//!
//! Threads compute parts of the result, and share no packed operands: fetching one from another core's cache took a tenth of the
//! time. A bias is the initial value of the sums, not a separate pass.
//!
//! Every element is a sum over blocks of in-order sums over a block, whatever the tile or thread that computes it, so that
//! results do not depend on the number of threads.

mod kernel;
mod line;
mod pack;
mod vector;

use crate::backend::cpu::runtime::threads::{num_threads, try_parallel};
use crate::storage::Storage;
use crate::{Device, Element, Result};
use kernel::{Ahead, Kernels, Tile};
use smallvec::SmallVec;
use std::ops::Range;

pub(crate) use kernel::Start;
pub(super) use kernel::{MIRRORED, Mirrored};
pub(crate) use pack::transposed as pack_transposed;
pub(crate) use vector::Vector;

/// Elements of the inner dimension in a block: a panel of `a` takes a quarter of the L1 cache.
const BLOCK: usize = 512;
/// Columns of `b` that are packed at a time.
const COLUMNS: usize = 3072;
/// Rows of `a` that are packed at a time.
const ROWS: usize = 4096;
/// Columns that are multiplied by all rows before the next: their part of a block of `b` takes less than half of the L2 cache.
const NEAR: usize = 384;
/// Multiplications that outweigh a fork and join. Small in debug builds, so that tests split products, too.
pub(crate) const GRAIN: usize = if cfg!(debug_assertions) { 1 << 14 } else { 1 << 18 };
/// Multiplications from which on a product may have more parts than threads. Each part begins with cold caches, which is
/// noticeable in parts of less than about a tenth of a millisecond.
const LARGE_PART: usize = if cfg!(debug_assertions) { 1 << 15 } else { 1 << 23 };
/// Rows of `a` up to which `b` is not packed, as each of its elements is read only a few times.
const FEW: usize = 64;

/// Rows up to which the transpose is computed, to avoid packing a matrix.
const FEW_TRANSPOSED: usize = 16;

/// Panels that are packed together: a row of the operand is read contiguously.
const TOGETHER: usize = 8;

/// Multiplications that take as long as it takes to pack an element.
const PACKING: usize = 48;

/// A matrix to read: its first element, and the strides of rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub ptr: *const T,
    pub row: isize,
    pub col: isize,
}

impl<T> Matrix<T> {
    /// The address of an element, which is valid if the matrix has it.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize, j: usize) -> *const T {
        self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col)
    }

    /// The submatrix from an element on.
    pub(crate) fn from(self, i: usize, j: usize) -> Matrix<T> {
        Matrix { ptr: self.at(i, j), ..self }
    }

    pub(crate) fn t(self) -> Matrix<T> {
        Matrix { ptr: self.ptr, row: self.col, col: self.row }
    }
}

/// `out (m x n, row-major, rows `width` apart) = start + a (m x k) · b (k x n)`; none of the sizes is 0. The elements of
/// `out` may be of another type than those of the operands.
#[derive(Clone, Copy)]
pub(crate) struct Product<T, O = T> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Matrix<T>,
    pub b: Matrix<T>,
    pub out: *mut O,
    pub width: usize,
    pub start: Start<O>,
}

// SAFETY: pointers are only numbers; the threads that share a product write to disjoint parts of `out`.
unsafe impl<T, O> Sync for Product<T, O> {}
// SAFETY: as above; a matrix, and a row to start from, are only read.
unsafe impl<T> Sync for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Start<T> {}

impl<T, O> Product<T, O> {
    pub(crate) fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }
}

impl<T: Copy, O: Copy> Product<T, O> {
    /// The product for some of the rows of `out`.
    pub(crate) fn rows(&self, start: usize, end: usize) -> Product<T, O> {
        Product { m: end - start, a: self.a.from(start, 0), out: self.out.wrapping_add(start * self.width), ..*self }
    }

    /// The product for some of the columns of `out`.
    pub(crate) fn columns(&self, from: usize, end: usize) -> Product<T, O> {
        let start = match self.start {
            Start::Row(row) => Start::Row(row.wrapping_add(from)),
            start => start,
        };
        Product { n: end - from, b: self.b.from(0, from), out: self.out.wrapping_add(from), start, ..*self }
    }
}

/// A type that matrix products are computed in.
pub(crate) trait Number: Element + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    const ZERO: Self;

    /// The kernels for this CPU.
    fn kernels() -> &'static Kernels<Self>;

    /// Transposes a square of [`pack::SIDE`], if there is a faster way than element by element.
    fn turn() -> Option<unsafe fn(*const Self, isize, *mut Self, usize)>;
}

macro_rules! numbers {
    ($($t:ident $avx512:ident $avx2:ident $plain:ident),+) => {$(
        impl Number for $t {
            const ZERO: $t = 0.0;

            #[inline]
            fn kernels() -> &'static Kernels<$t> {
                #[cfg(target_arch = "x86_64")]
                {
                    if std::arch::is_x86_feature_detected!("avx512f") {
                        return &kernel::x86::$avx512::KERNELS;
                    }
                    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                        return &kernel::x86::$avx2::KERNELS;
                    }
                }
                &kernel::$plain::KERNELS
            }

            fn turn() -> Option<unsafe fn(*const $t, isize, *mut $t, usize)> {
                numbers!(@turn $t)
            }
        }
    )+};
    (@turn f32) => {{
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f") {
            return Some(pack::turn16);
        }
        None
    }};
    (@turn f64) => { None };
}
numbers!(f32 avx512_f32 avx2_f32 plain_f32, f64 avx512_f64 avx2_f64 plain_f64);

/// Runs the kernel for columns of a symmetric matrix.
///
/// # Safety
/// All that `of` points at is there, and nothing else uses the sums.
pub(super) unsafe fn mirrored<T: Number>(of: &Mirrored<T>) {
    // SAFETY: the caller's promise; the kernels are for this CPU.
    unsafe { (T::kernels().mirrored)(of) };
}

/// # Errors
/// If there is no memory for the packed operands.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nothing else uses `out` meanwhile.
pub(crate) unsafe fn gemm<T: Number>(op: &'static str, product: &Product<T>) -> Result<()> {
    let Product { m, a, b, .. } = *product;
    // SAFETY: the caller's promise.
    unsafe {
        if line::product(op, product)? {
            Ok(())
        } else if m <= FEW_TRANSPOSED && b.col != 1 && b.row == 1 && a.col == 1 {
            transposed(op, product)
        } else {
            shared(op, product)
        }
    }
}

/// Splits a product among the threads, into parts that share only what they read: packed operands of another thread would have to
/// be fetched from the other core's cache.
///
/// # Safety
/// As [`gemm`].
unsafe fn shared<T: Number>(op: &'static str, product: &Product<T>) -> Result<()> {
    let kernels = T::kernels();
    let plan = GemmPlan::new(kernels, product);
    let most = product.work() / GRAIN;
    if num_threads() == 1 || most < 2 {
        // SAFETY: the caller's promise.
        return unsafe { plan.run(op) };
    }
    let (by_columns, part) = plan.parts(most);
    let len = if by_columns { product.n } else { product.m };
    try_parallel(len.div_ceil(part), 1, |range| {
        // All parts at once, if there is only one thread.
        let (start, end) = (range.start * part, len.min(range.end * part));
        let part = if by_columns { product.columns(start, end) } else { product.rows(start, end) };
        // SAFETY: the caller's promise; the parts of `out` are disjoint.
        unsafe { plan.for_part(&part).run(op) }
    })
}

/// The product of few rows and a column-major matrix, as in a layer's `x · weightᵀ`: the transpose of `weight · xᵀ`, in which the
/// large matrix is read without packing.
///
/// # Safety
/// As [`gemm`].
unsafe fn transposed<T: Number>(op: &'static str, product: &Product<T>) -> Result<()> {
    let &Product { m, n, a, b, out, width, start, .. } = product;
    let mut space = Storage::new(op, Device::Cpu, n * m * size_of::<T>())?;
    let space = space.get_mut().unwrap_or(std::ptr::null_mut()).cast::<T>();
    let other = Product { m: n, n: m, a: b.t(), b: a.t(), out: space, width: m, start: Start::Zero, ..*product };
    // SAFETY: the caller's promise; the space has the result's elements.
    unsafe {
        shared(op, &other)?;
        for i in 0..m {
            for j in 0..n {
                let (to, sum) = (out.add(i * width + j), space.add(j * m + i).read());
                to.write(match start {
                    Start::Zero => sum,
                    Start::Out => to.read() + sum,
                    Start::Row(row) => row.add(j).read() + sum,
                });
            }
        }
    }
    Ok(())
}

/// The size of the largest part when `n` is split as evenly as possible into the fewest parts of at most `most`.
fn even(n: usize, most: usize) -> usize {
    n.div_ceil(n.div_ceil(most))
}

/// The plan of a product.
struct GemmPlan<'a, T: Number> {
    product: &'a Product<T>,
    kernels: &'static Kernels<T>,
    pack_a: bool,
    pack_b: bool,
    /// The sizes of blocks.
    block: usize,
    columns: usize,
    rows: usize,
}

/// The part of a product that one packing serves: a block of the inner dimension, of rows and of columns.
struct GemmPart<T> {
    k: Range<usize>,
    i: Range<usize>,
    j: Range<usize>,
    /// The number of rows of a panel of `a`, and the numbers of panels of `a` and of `b`.
    height: usize,
    high: usize,
    wide: usize,
    packed_a: *mut T,
    packed_b: *mut T,
}

impl<'a, T: Number> GemmPlan<'a, T> {
    fn new(kernels: &'static Kernels<T>, product: &'a Product<T>) -> GemmPlan<'a, T> {
        let &Product { m, n, k, a, b, .. } = product;
        let panel = kernels.vectors() * kernels.lanes;
        // An element of `b` is read once for each panel of rows, one of `a` once for each panel of columns. Contiguous rows
        // of `a` can be read without packing; columns have too large strides.
        let in_cache = k * n * size_of::<T>() <= 1 << 18;
        GemmPlan {
            product,
            kernels,
            pack_a: !matches!(a.col, 0 | 1) && n > 2 * panel && k > 16,
            pack_b: b.col != 1 || (m > FEW && !in_cache),
            block: even(k, BLOCK),
            columns: n.min(COLUMNS),
            rows: m.min(ROWS),
        }
    }

    /// The plan for a part of the product, with the packing of the whole.
    fn for_part<'p>(&self, product: &'p Product<T>) -> GemmPlan<'p, T> {
        let &GemmPlan { kernels, pack_a, pack_b, block, .. } = self;
        let (columns, rows) = (product.n.min(COLUMNS), product.m.min(ROWS));
        GemmPlan { product, kernels, pack_a, pack_b, block, columns, rows }
    }

    /// Whether the columns or the rows are split among threads, and the size of a part, of which there are at most about `most`.
    /// Operands that all parts read are packed by each of them.
    fn parts(&self, most: usize) -> (bool, usize) {
        let &Product { m, n, .. } = self.product;
        let (threads, lanes, high) = (num_threads(), self.kernels.lanes, self.kernels.rows());
        let panel = self.kernels.vectors() * lanes;
        // The time of the slowest thread, in multiplications.
        let time = |parts: usize, rows: usize, columns: usize| {
            let packing =
                if self.pack_a { PACKING * rows } else { 0 } + if self.pack_b { PACKING * columns } else { 0 };
            parts.div_ceil(threads) * (rows * columns + packing)
        };
        let mut best = (usize::MAX, false, 0);
        // More parts than threads are better if they are large and little is lost by it: a delayed thread then holds up less
        // work.
        let more = if self.product.work() >= 2 * threads * LARGE_PART { 2 * threads } else { threads };
        for (count, handicap) in [(more, 32), (threads, 33)] {
            let count = count.min(most);
            for by_columns in [true, false] {
                let (len, unit) =
                    if by_columns { (n, if n >= count * panel { panel } else { lanes }) } else { (m, high) };
                let part = len.div_ceil(count).next_multiple_of(unit);
                let parts = len.div_ceil(part);
                let (rows, columns) = if by_columns { (m, part) } else { (part, n.next_multiple_of(lanes)) };
                let time = time(parts, rows, columns).saturating_mul(handicap);
                if time < best.0 {
                    best = (time, by_columns, part);
                }
            }
        }
        (best.1, best.2)
    }

    /// # Safety
    /// As [`gemm`].
    unsafe fn run(&self, op: &'static str) -> Result<()> {
        let &Product { m, n, k, .. } = self.product;
        let panel = self.kernels.vectors() * self.kernels.lanes;
        let most_b = if self.pack_b { self.block * self.columns.next_multiple_of(self.kernels.lanes) } else { 0 };
        let most_a = if self.pack_a { self.block * self.rows } else { 0 };
        let mut space = Storage::new(op, Device::Cpu, (most_a + most_b) * size_of::<T>())?;
        let space = space.get_mut().unwrap_or(std::ptr::null_mut()).cast::<T>();
        let (packed_b, packed_a) = (space, space.wrapping_add(most_b));
        for j in (0..n).step_by(self.columns) {
            let j = j..n.min(j + self.columns);
            for p in (0..k).step_by(self.block) {
                for i in (0..m).step_by(self.rows) {
                    crate::interrupt::poll();
                    let i = i..m.min(i + self.rows);
                    let height = even(i.len(), self.kernels.rows());
                    let (high, wide) = (i.len().div_ceil(height), j.len().div_ceil(panel));
                    let k = p..k.min(p + self.block);
                    let part = GemmPart { k, i, j: j.clone(), height, high, wide, packed_a, packed_b };
                    // SAFETY: the caller's promise; the space has room for both packed operands of any part.
                    unsafe {
                        self.pack(&part);
                        self.multiply(&part);
                    }
                }
            }
        }
        Ok(())
    }

    /// The first column of a panel of `b`, its number of columns, and this number with padding. The numbers of vectors of panels
    /// differ by at most one: a last panel of the remainder would often be narrow, and narrow tiles are slow.
    #[inline(always)]
    fn panel(&self, part: &GemmPart<T>, at: usize) -> (usize, usize, usize) {
        let lanes = self.kernels.lanes;
        let vectors = part.j.len().div_ceil(lanes);
        let (first, end) = (at * vectors / part.wide * lanes, (at + 1) * vectors / part.wide * lanes);
        (part.j.start + first, end.min(part.j.len()) - first, end - first)
    }

    /// # Safety
    /// As [`gemm`]; the part's packed operands have room.
    unsafe fn pack(&self, part: &GemmPart<T>) {
        let GemmPart { k, i, height, .. } = part;
        // The panels of `b` are packed once for all rows.
        let panels_b = if self.pack_b && i.start == 0 { part.wide } else { 0 };
        let panels_a = if self.pack_a { part.high } else { 0 };
        let (a, b) = (self.product.a, self.product.b);
        // SAFETY: the caller's promise; the panels are parts of the operands, and each has its own memory.
        unsafe {
            for first in (0..panels_b).step_by(TOGETHER) {
                let panel = |at: usize| {
                    let (column, columns, width) = self.panel(part, first + at);
                    let to = part.packed_b.add((column - part.j.start) * k.len());
                    pack::Panel { from: b.from(k.start, column), len: columns, to, width }
                };
                let panels: SmallVec<[_; TOGETHER]> = (0..TOGETHER.min(panels_b - first)).map(panel).collect();
                pack::rows(&panels, k.len());
            }
            for first in (0..panels_a).step_by(TOGETHER) {
                let panel = |at: usize| {
                    let row = i.start + (first + at) * height;
                    let rows = (*height).min(i.end - row);
                    let to = part.packed_a.add((first + at) * height * k.len());
                    pack::Panel { from: a.from(row, k.start).t(), len: rows, to, width: rows }
                };
                let panels: SmallVec<[_; TOGETHER]> = (0..TOGETHER.min(panels_a - first)).map(panel).collect();
                pack::rows(&panels, k.len());
            }
        }
    }

    /// # Safety
    /// As [`gemm`]; the part's operands are packed.
    unsafe fn multiply(&self, part: &GemmPart<T>) {
        let width = part.j.len().div_ceil(part.wide);
        let wide = (NEAR / width).max(1);
        for first in (0..part.wide).step_by(wide) {
            for i in 0..part.high {
                let shares = wide.min(part.wide - first);
                for at in 0..shares {
                    let ahead = self.ahead(part, i + 1, at, shares);
                    // SAFETY: the caller's promise.
                    unsafe { self.tile(part, i, first + at, ahead) };
                }
            }
        }
    }

    /// The prefetch of share `at` of `shares` of a panel of `a`, which is in a slower cache than `b`. Without it, the first tile
    /// of the panel would wait for each of its lines.
    #[inline(always)]
    fn ahead(&self, part: &GemmPart<T>, i: usize, at: usize, shares: usize) -> Ahead<T> {
        let (a, k) = (self.product.a, part.k.len());
        let (first, end) = (at * part.height / shares, (at + 1) * part.height / shares);
        let rows = if self.pack_a || a.col == 1 { end - first } else { 0 };
        if self.pack_a {
            let panel = part.packed_a.wrapping_add(i * part.height * k).cast_const();
            return Ahead { ptr: panel.wrapping_add(first * k), row: k as isize, rows };
        }
        Ahead { ptr: a.at(part.i.start + i * part.height + first, part.k.start), row: a.row, rows }
    }

    /// Computes the tile of a panel of rows and a panel of columns.
    ///
    /// # Safety
    /// As [`GemmPlan::multiply`].
    #[inline(always)]
    unsafe fn tile(&self, part: &GemmPart<T>, i: usize, j: usize, ahead: Ahead<T>) {
        let Product { a, b, out, width, start, .. } = *self.product;
        let (row, k) = (part.i.start + i * part.height, part.k.len());
        let rows = part.height.min(part.i.end - row);
        let (column, columns, padded) = self.panel(part, j);
        let vectors = padded / self.kernels.lanes;
        let (a, a_row, a_col) = if self.pack_a {
            (part.packed_a.wrapping_add(i * part.height * k).cast_const(), 1, rows as isize)
        } else {
            (a.at(row, part.k.start), a.row, a.col)
        };
        let (b, b_row) = if self.pack_b {
            (part.packed_b.wrapping_add((column - part.j.start) * k).cast_const(), padded as isize)
        } else {
            (b.at(part.k.start, column), b.row)
        };
        let start = match start {
            _ if part.k.start > 0 => Start::Out,
            Start::Row(row) => Start::Row(row.wrapping_add(column)),
            start => start,
        };
        let last = columns - (vectors - 1) * self.kernels.lanes;
        let out = out.wrapping_add(row * width + column);
        // SAFETY: the caller's promise; the kernels are for this CPU.
        unsafe {
            self.kernels.tiles[rows - 1][vectors - 1](&Tile {
                k,
                a,
                a_row,
                a_col,
                b,
                b_row,
                out,
                width,
                last,
                start,
                ahead,
            });
        }
    }
}
