//! Triangles of matrices.

use std::ops::Range;

/// A triangle of a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triangle {
    pub upper: bool,
    /// The offset of its long side above the main diagonal.
    pub diagonal: isize,
}

impl Triangle {
    /// The columns of a row that belong to the triangle.
    pub fn columns(self, row: usize, columns: usize) -> Range<usize> {
        let after = |by: isize| (row as isize).saturating_add(by).clamp(0, columns as isize) as usize;
        if self.upper { after(self.diagonal)..columns } else { 0..after(self.diagonal.saturating_add(1)) }
    }
}
