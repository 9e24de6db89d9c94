//! Shared parts of the products: panels of columns, workspace, and tiles.

use super::Float;
use super::kernel::{Kernels, ROWS, Tile};
use crate::backend::cpu::linalg::gemm::Start;
use crate::storage::Storage;
use crate::zip::zip;
use crate::{Device, Result};
use std::ops::Range;

/// The positions of a box, relative to its first.
pub(super) fn each_place([n, d, h, w]: &[Range<usize>; 4]) -> impl Iterator<Item = [usize; 4]> {
    let [n, d, h, w] = [n.len(), d.len(), h.len(), w.len()];
    (0..n * d * h * w).map(move |i| [i / w / h / d, i / w / h % d, i / w % h, i % w])
}

/// Columns split into panels of vectors, as evenly as possible.
pub(super) struct Panels {
    pub(super) lanes: usize,
    pub(super) vectors: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl Panels {
    pub(super) fn new<T>(kernels: &Kernels<T>, columns: usize) -> Panels {
        let (lanes, vectors) = (kernels.lanes, columns.div_ceil(kernels.lanes));
        Panels { lanes, vectors, count: vectors.div_ceil(kernels.vectors()), width: vectors * lanes }
    }

    /// The first column of a panel, and its number of vectors.
    pub(super) fn at(&self, panel: usize) -> (usize, usize) {
        let first = |at: usize| at * self.vectors / self.count;
        (first(panel) * self.lanes, first(panel + 1) - first(panel))
    }

    /// The columns of some panels, without padding.
    pub(super) fn columns(&self, panels: Range<usize>, columns: usize) -> Range<usize> {
        let first = |at: usize| at * self.vectors / self.count * self.lanes;
        first(panels.start)..first(panels.end).min(columns)
    }
}

/// The workspace of a computation.
pub(super) struct Space<T> {
    storage: Storage,
    starts: [usize; 3],
    _elements: std::marker::PhantomData<T>,
}

impl<T> Space<T> {
    /// Up to three parts of the given sizes in elements.
    pub(super) fn new(op: &'static str, sizes: &[usize]) -> Result<Space<T>> {
        let (mut starts, mut all) = ([0; 3], 0_usize);
        for (start, size) in zip(&mut starts[..], sizes) {
            *start = all;
            // Whole cache lines.
            all = all.saturating_add(size.saturating_add(15) / 16 * 16);
        }
        let storage = Storage::new(op, Device::Cpu, all.saturating_mul(size_of::<T>()).min(isize::MAX as usize))?;
        Ok(Space { storage, starts, _elements: std::marker::PhantomData })
    }

    pub(super) fn part(&mut self, at: usize) -> *mut T {
        let first = self.storage.get_mut().unwrap_or(std::ptr::null_mut()).cast::<T>();
        first.wrapping_add(self.starts[at])
    }
}

/// Tiles of `out[i][j] = start + Σ_p source[rows[i] + inner[p]] · b[p][j]`, for one panel of columns.
pub(super) struct Tiles<'a, T: 'static> {
    pub(super) kernels: &'static Kernels<T>,
    pub(super) source: *const T,
    pub(super) rows: &'a [isize],
    pub(super) inner: &'a [isize],
    pub(super) b: *const T,
    pub(super) vectors: usize,
    pub(super) out: *mut T,
    pub(super) width: usize,
}

impl<T: Float> Tiles<'_, T> {
    /// # Safety
    /// The source has these elements, `b` has a row for each of `inner`, and `out` one for each of `rows`.
    pub(super) unsafe fn run(&self, start: Start<T>) {
        let count = self.rows.len();
        let height = count.div_ceil(count.div_ceil(ROWS).max(1)).max(1);
        for first in (0..count).step_by(height) {
            let rows = &self.rows[first..count.min(first + height)];
            let mut a = [self.source; ROWS];
            for (a, &row) in zip(&mut a[..], rows) {
                *a = self.source.wrapping_offset(row);
            }
            let tile = Tile {
                k: self.inner.len(),
                a,
                offsets: self.inner.as_ptr(),
                b: self.b,
                b_row: self.vectors * self.kernels.lanes,
                out: self.out.wrapping_add(first * self.width),
                width: self.width,
                start,
            };
            // SAFETY: the caller's promise; the kernels are for this CPU.
            unsafe { self.kernels.tiles[rows.len() - 1][self.vectors - 1](&tile) };
        }
    }
}
