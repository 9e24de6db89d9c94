//! The indices of the true elements of a mask.

use crate::backend::cpu::runtime::threads::{Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, checked_bytes};
use crate::memory::scratch::filled;
use crate::storage::Storage;
use crate::{DType, Device, Result, Shape};

/// Elements per block, which is counted and then written by one thread.
const BLOCK: usize = 1 << 14;
/// Elements that are filtered before their indices are written.
const TILE: usize = 256;

/// The indices of the true elements of a contiguous mask in row-major order, as a tensor of shape `(count, dimensions)`, and
/// the count. `shape` has as many elements as the mask, and may differ from its shape.
pub(crate) fn nonzero(op: &'static str, mask: View<'_>, shape: &Shape) -> Result<(Storage, usize)> {
    // The mask is read twice, and the output has room for the first count only.
    if mask.storage.is_foreign() {
        bail!(Backend, op, "a mask in shared memory must be copied first");
    }
    let Some(mask) = mask.as_slice::<bool>().filter(|mask| mask.len() == shape.numel()) else {
        bail!(
            Backend,
            op,
            "mask must be contiguous bools with the elements of shape {shape:?}, got {}",
            mask.layout.numel()
        );
    };
    // The number of true elements before each block.
    let mut starts = filled(op, 0_usize, mask.len().div_ceil(BLOCK))?;
    let block = |at: usize| &mask[at * BLOCK..mask.len().min((at + 1) * BLOCK)];
    let counts = Ptr::new(starts.as_mut_ptr());
    parallel(starts.len(), 1, |blocks| {
        for at in blocks {
            let count = block(at).iter().map(|&yes| u32::from(yes)).sum::<u32>() as usize;
            // SAFETY: there is a count for each block, and each belongs to one thread.
            unsafe { counts.get().add(at).write(count) };
        }
    });
    let mut total = 0;
    for start in &mut starts {
        (total, *start) = (total + *start, total);
    }
    let columns = shape.len();
    let layout = Layout::contiguous([total, columns].into());
    let mut storage = Storage::new(op, Device::Cpu, checked_bytes(op, layout.shape(), DType::I64.size())?)?;
    if layout.numel() == 0 {
        return Ok((storage, total));
    }
    let out = Ptr::new(ViewMut::new(op, &mut storage, &layout, DType::I64)?.first().cast::<i64>());
    parallel(starts.len(), 1, |blocks| {
        for at in blocks {
            // SAFETY: the block's own rows begin there, and there is room for all of its true elements.
            let mut to = unsafe { out.get().add(starts[at] * columns) };
            let block = block(at);
            for start in (0..block.len()).step_by(TILE) {
                let (tile, first) = (&block[start..block.len().min(start + TILE)], at * BLOCK + start);
                let mut found = [0_i64; TILE];
                let mut n = 0;
                // Every position is written, and kept if the element is true: a branch would be mispredicted.
                for (i, &yes) in tile.iter().enumerate() {
                    found[n] = (first + i) as i64;
                    n += usize::from(yes);
                }
                // SAFETY: as above; there are `n` true elements in this tile.
                to = unsafe { write(&found[..n], shape, to) };
            }
        }
    });
    Ok((storage, total))
}

/// Writes the indices of flat positions, and returns the position of the next row.
///
/// # Safety
/// There is room for `positions.len()` rows of indices.
#[inline]
unsafe fn write(positions: &[i64], shape: &[usize], mut to: *mut i64) -> *mut i64 {
    let columns = shape.len();
    if columns == 1 {
        // SAFETY: the contract.
        return unsafe {
            to.copy_from_nonoverlapping(positions.as_ptr(), positions.len());
            to.add(positions.len())
        };
    }
    for &position in positions {
        let mut rest = position as usize;
        for (column, &size) in shape.iter().enumerate().rev() {
            let next = rest / size;
            // SAFETY: the contract; a column of the row.
            unsafe { to.add(column).write((rest - next * size) as i64) };
            rest = next;
        }
        // SAFETY: the contract; the next row, or the end.
        to = unsafe { to.add(columns) };
    }
    to
}
