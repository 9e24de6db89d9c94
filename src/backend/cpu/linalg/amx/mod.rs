//! Products of matrices of bf16, summed in f32, on the tile unit of x86 processors (AMX).
//!
//! Large products are cut into chunks whose packed operands fit into the workspace. For each chunk both operands are packed
//! ([`pack`]), and then tasks, each with some panels of rows and some of columns, compute their parts of the result
//! ([`kernel`]). A task's rows stay in the L2 cache, and each panel of columns is read once, in blocks of the inner dimension.
//! The sums between blocks are kept in a buffer, so that the result itself is accessed once for each chunk.
//!
//! The blocks of the inner dimension, and the order in which an element's products are summed, depend only on the sizes, so
//! that results are the same for any number of threads.

mod kernel;
mod pack;
#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;

use crate::backend::cpu::linalg::gemm::{Product, Start};
use crate::backend::cpu::runtime::threads::{Ptr, num_threads, parallel};
pub(crate) use kernel::available;
use kernel::{PANEL_STEP, SIDE, STEP, Square, Tiles};
use pack::Lines;
pub(crate) use pack::PackElement;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Steps of the inner dimension in a block. Between 8 and 64 it matters little (within a tenth): with more, panels come from the
/// L2 cache; with fewer, the sums are loaded and stored more often.
const BLOCK: usize = 32;
/// Steps of the inner dimension in a chunk.
const CHUNK_STEPS: usize = 64;
/// Panels of rows, and of columns, in a chunk: with [`CHUNK_STEPS`] this limits the workspace to 32 MiB.
const CHUNK_PANELS: usize = 128;
/// The most panels of rows in a task.
const TASK_ROWS: usize = 16;
/// The most steps, over all its panels of rows, in a task: 1 MiB, half of the L2 cache.
const TASK_ROW_STEPS: usize = 512;
/// The most panels of columns in a task.
const TASK_COLUMNS: usize = 16;
/// Work, in steps of panels times panels, below which a task is not split for more threads: a few microseconds.
const TASK_WORK: usize = 128;

/// The workspace of [`multiply`], in elements of 16 bits.
pub(crate) fn workspace<S>(product: &Product<S, f32>) -> usize {
    let panels = |n: usize| part(n.div_ceil(SIDE), CHUNK_PANELS);
    (panels(product.m) + panels(product.n)) * part(product.k.div_ceil(STEP), CHUNK_STEPS) * PANEL_STEP
}

/// The size of the largest of the equal parts, each of at most `most`, that `n` is cut into.
fn part(n: usize, most: usize) -> usize {
    n.div_ceil(n.div_ceil(most).max(1))
}

/// The parts of `0..n` of at most `most`. There is at least one, which may be empty.
fn parts(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let size = part(n, most);
    (0..n.div_ceil(most).max(1)).map(move |at| (at * size).min(n)..((at + 1) * size).min(n))
}

/// # Safety
/// [`available`] has answered yes. The operands have the elements that their sizes and steps say, `out` has `m` rows of `n`
/// elements that nothing else uses, a row to start from has `n`, and `workspace` has [`workspace`] elements, aligned
/// to 64 bytes, that nothing else uses.
pub(crate) unsafe fn multiply<S: PackElement>(product: &Product<S, f32>, workspace: *mut u16) {
    if product.m == 0 || product.n == 0 {
        return;
    }
    let panels = |n: usize| parts(n.div_ceil(SIDE), CHUNK_PANELS);
    for steps in parts(product.k.div_ceil(STEP), CHUNK_STEPS) {
        for columns in panels(product.n) {
            for (at, rows) in panels(product.m).enumerate() {
                let right = workspace.wrapping_add(rows_room(product, steps.len()));
                let chunk = Chunk {
                    product,
                    rows,
                    columns: columns.clone(),
                    steps: steps.clone(),
                    left: Ptr::new(workspace),
                    right: Ptr::new(right),
                };
                // SAFETY: the caller's promise. The columns are packed once for all chunks of rows.
                unsafe { chunk.compute(at == 0) };
            }
        }
    }
}

/// The part of the workspace for packed rows, in elements.
fn rows_room<S>(product: &Product<S, f32>, steps: usize) -> usize {
    part(product.m.div_ceil(SIDE), CHUNK_PANELS) * steps * PANEL_STEP
}

/// A part of a product: ranges of panels and steps, and the addresses of the packed operands.
struct Chunk<'a, S> {
    product: &'a Product<S, f32>,
    rows: Range<usize>,
    columns: Range<usize>,
    steps: Range<usize>,
    left: Ptr<u16>,
    right: Ptr<u16>,
}

/// The numbers of panels of rows and of columns in a task.
#[derive(Clone, Copy)]
struct Task {
    rows: usize,
    columns: usize,
}

impl Task {
    /// Tasks as large as the caches allow, or smaller if there were too few of them.
    fn new(rows: usize, columns: usize, steps: usize) -> Self {
        let most = (TASK_ROW_STEPS / steps.max(1)).clamp(1, TASK_ROWS);
        let mut task = Task { rows: part(rows, most), columns: part(columns, TASK_COLUMNS) };
        let wanted = 4 * num_threads();
        while rows.div_ceil(task.rows) * columns.div_ceil(task.columns) < wanted
            && task.rows * task.columns * steps > TASK_WORK
        {
            // Columns first: they are packed for all tasks or by each task, rows only for all.
            if task.columns >= task.rows {
                task.columns = task.columns.div_ceil(2);
            } else {
                task.rows = task.rows.div_ceil(2);
            }
        }
        task
    }
}

impl<S: PackElement> Chunk<'_, S> {
    /// # Safety
    /// As [`multiply`].
    unsafe fn compute(&self, first_rows: bool) {
        let task = Task::new(self.rows.len(), self.columns.len(), self.steps.len());
        let (down, across) = (self.rows.len().div_ceil(task.rows), self.columns.len().div_ceil(task.columns));
        // A task that shares its columns with no other packs them block by block, so that they stay in the cache.
        let alone = down == 1 && self.rows.len() * SIDE >= self.product.m;
        // SAFETY: the caller's promise; tasks have different parts of the result.
        unsafe {
            self.pack(first_rows && !alone);
            parallel(down * across, 1, |tasks| {
                let tiles = Tiles::configure();
                for at in tasks {
                    let (i, j) = (at / across * task.rows, at % across * task.columns);
                    let rows = i..self.rows.len().min(i + task.rows);
                    let columns = j..self.columns.len().min(j + task.columns);
                    self.run(&tiles, rows, columns, alone);
                }
            });
        }
    }

    /// Packs the rows and, if `columns`, the columns.
    ///
    /// # Safety
    /// As [`multiply`].
    unsafe fn pack(&self, columns: bool) {
        // Several panels at a time, as neighbours may share cache lines and pages of the source.
        const TOGETHER: usize = 4;
        let rows = self.rows.len().div_ceil(TOGETHER);
        let all = rows + if columns { self.columns.len().div_ceil(TOGETHER) } else { 0 };
        parallel(all, 1.max(16 / self.steps.len().max(1)), |pieces| {
            for at in pieces {
                let all = |n: usize, at: usize| at * TOGETHER..n.min((at + 1) * TOGETHER);
                // SAFETY: the caller's promise; pieces have different panels.
                unsafe {
                    if at < rows {
                        self.pack_rows(all(self.rows.len(), at));
                    } else {
                        let panels = all(self.columns.len(), at - rows);
                        let to = self.right.get().add(panels.start * self.stride());
                        self.pack_columns(panels, 0..self.steps.len(), to);
                    }
                }
            }
        });
    }

    /// Elements of a packed panel.
    fn stride(&self) -> usize {
        self.steps.len() * PANEL_STEP
    }

    /// The elements of the inner dimension in some steps of the chunk.
    fn inner(&self, steps: Range<usize>) -> Range<usize> {
        let start = (self.steps.start + steps.start) * STEP;
        start..self.product.k.min((self.steps.start + steps.end) * STEP).max(start)
    }

    /// The rows of some of the chunk's panels.
    fn rows(&self, panels: Range<usize>) -> Range<usize> {
        (self.rows.start + panels.start) * SIDE..self.product.m.min((self.rows.start + panels.end) * SIDE)
    }

    /// The columns of some of the chunk's panels.
    fn columns(&self, panels: Range<usize>) -> Range<usize> {
        (self.columns.start + panels.start) * SIDE..self.product.n.min((self.columns.start + panels.end) * SIDE)
    }

    /// # Safety
    /// As [`multiply`]; nothing else uses the memory of these panels.
    unsafe fn pack_rows(&self, panels: Range<usize>) {
        let (k, rows) = (self.inner(0..self.steps.len()), self.rows(panels.clone()));
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.left.get().add(panels.start * self.stride());
            pack::panels(self.product.a.from(rows.start, k.start), rows.len(), k.len(), to, self.stride(), Lines::Rows);
        }
    }

    /// # Safety
    /// As [`multiply`]; `to` has room for these steps of the panels, and nothing else uses it.
    unsafe fn pack_columns(&self, panels: Range<usize>, steps: Range<usize>, to: *mut u16) {
        let (k, columns, stride) = (self.inner(steps.clone()), self.columns(panels), steps.len() * PANEL_STEP);
        let from = self.product.b.from(k.start, columns.start).t();
        // SAFETY: the caller's promise.
        unsafe { pack::panels(from, columns.len(), k.len(), to, stride, Lines::Pairs) };
    }

    /// Computes the result of a task.
    ///
    /// # Safety
    /// As [`multiply`]; the rows are packed, and so are the columns unless the task is `alone` with them.
    unsafe fn run(&self, tiles: &Tiles, rows: Range<usize>, columns: Range<usize>, alone: bool) {
        let mut packed = MaybeUninit::<Block>::uninit();
        let mut sums = MaybeUninit::<Sums>::uninit();
        let sums = sums.as_mut_ptr().cast::<f32>();
        for column in columns {
            // SAFETY: the caller's promise.
            let start = unsafe { self.start(column) };
            for block in parts(self.steps.len(), BLOCK) {
                // SAFETY: the caller's promise. `packed` has room for a block, `sums` for the squares of a task's rows.
                unsafe {
                    let b = if alone {
                        self.pack_columns(column..column + 1, block.clone(), packed.as_mut_ptr().cast());
                        packed.as_ptr().cast::<u16>()
                    } else {
                        self.right.get().add(column * self.stride() + block.start * PANEL_STEP)
                    };
                    for row in rows.clone() {
                        let near = Square { ptr: sums.add((row - rows.start) * SIDE * SIDE), bytes: 4 * SIDE as isize };
                        self.square(tiles, row, column, block.clone(), b, &start, near);
                    }
                }
            }
        }
    }

    /// The initial values of the sums of a panel of columns, if not the result itself.
    ///
    /// It is called once for a panel and not for each square, as loading a tile right after stores to the same bytes was
    /// measured to be slow.
    ///
    /// # Safety
    /// As [`multiply`].
    unsafe fn start(&self, column: usize) -> [f32; SIDE] {
        let (mut start, columns) = ([0.0; SIDE], self.columns(column..column + 1));
        if let Start::Row(row) = self.product.start {
            // SAFETY: the row has an element for each column.
            unsafe { copy(row.add(columns.start), 0, start.as_mut_ptr(), 0, 1, columns.len()) };
        }
        start
    }

    /// Adds a block's products to a square of the result, which stays in `near` between blocks.
    ///
    /// # Safety
    /// As [`Chunk::run`]; `b` is the packed panel of columns, from the block's first step on.
    unsafe fn square(
        &self,
        tiles: &Tiles,
        row: usize,
        column: usize,
        block: Range<usize>,
        b: *const u16,
        start: &[f32; SIDE],
        near: Square,
    ) {
        let (i, j) = (self.rows(row..row + 1), self.columns(column..column + 1));
        let (first, last) = (block.start == 0, block.end == self.steps.len());
        let full = i.len() == SIDE && j.len() == SIDE;
        let width = self.product.width;
        // SAFETY: the caller's promise. Of a square at an edge only the part that belongs to the result is read or written.
        unsafe {
            let out = self.product.out.add(i.start * width + j.start);
            let far = Square { ptr: out, bytes: 4 * width as isize };
            let from = if !first {
                near
            } else if self.steps.start > 0 || matches!(self.product.start, Start::Out) {
                if !full {
                    copy(out, width, near.ptr, SIDE, i.len(), j.len());
                }
                if full { far } else { near }
            } else {
                Square { ptr: start.as_ptr().cast_mut(), bytes: 0 }
            };
            let to = if last && full { far } else { near };
            let a = self.left.get().add(row * self.stride() + block.start * PANEL_STEP);
            kernel::sum(tiles, block.len(), a, b, from, to);
            if last && !full {
                copy(near.ptr, SIDE, out, width, i.len(), j.len());
            }
        }
    }
}

/// A packed block of a panel of columns.
#[repr(C, align(64))]
struct Block([u16; BLOCK * PANEL_STEP]);

/// The squares of a task's panels of rows.
#[repr(C, align(64))]
struct Sums([f32; TASK_ROWS * SIDE * SIDE]);

/// # Safety
/// Both places have `rows` rows of `columns` elements, at their widths, and do not overlap.
unsafe fn copy(from: *const f32, from_width: usize, to: *mut f32, to_width: usize, rows: usize, columns: usize) {
    for i in 0..rows {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from.add(i * from_width), to.add(i * to_width), columns) };
    }
}
