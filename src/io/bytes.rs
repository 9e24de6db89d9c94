//! Elements as bytes, for files. All dtypes are stored as in memory, little-endian.

use crate::backend::View;
use crate::error::bail;
use crate::layout::{Layout, checked_bytes};
use crate::storage::Storage;
use crate::{DType, Device, Result, Shape, Tensor};
use memmap2::Mmap;
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("big-endian targets are not supported: files hold little-endian numbers");

/// The bytes of contiguous elements.
pub(crate) fn as_bytes(view: View<'_>) -> Option<&[u8]> {
    if !view.layout.is_contiguous() {
        return None;
    }
    let bytes = view.layout.numel() * view.dtype.size();
    if bytes == 0 {
        return Some(&[]);
    }
    // SAFETY: a contiguous layout takes `numel` positions from its offset on, all inside the storage (L2), and they are
    // written before a tensor is seen; shared storage is not written while a handle to it is borrowed.
    Some(unsafe { std::slice::from_raw_parts(view.first(), bytes) })
}

/// A tensor whose bytes `fill` writes.
///
/// # Errors
/// Those of `fill`; also if a byte of a bool is neither 0 nor 1.
pub(crate) fn from_bytes(
    op: &'static str,
    shape: Shape,
    dtype: DType,
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Tensor> {
    let bytes = checked_bytes(op, &shape, dtype.size())?;
    let mut storage = Storage::zeroed(op, Device::Cpu, bytes)?;
    if let Some(start) = storage.get_mut() {
        // SAFETY: the storage is valid for reads and writes of `bytes` bytes while it is borrowed, they are initialised,
        // and `get_mut` answers for the sole handle only.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
        fill(bytes)?;
        check_bools(op, dtype, bytes)?;
    }
    Ok(Tensor::from_parts(storage, Layout::contiguous(shape), dtype))
}

/// A tensor that reads its elements from a mapped file, from byte `at` on; `None` if they are not aligned.
///
/// # Errors
/// If the file is too short, or a byte of a bool is neither 0 nor 1.
///
/// # Safety
/// The file must not be changed or truncated as long as the tensor, or one that shares its memory, lives.
pub(crate) unsafe fn from_mapping(
    op: &'static str,
    map: &Arc<Mmap>,
    at: usize,
    shape: Shape,
    dtype: DType,
) -> Result<Option<Tensor>> {
    let bytes = checked_bytes(op, &shape, dtype.size())?;
    let Some(part) = at.checked_add(bytes).and_then(|end| map.get(at..end)) else {
        bail!(Format, op, "{bytes} bytes at offset {at} are out of range for a file of {} bytes", map.len());
    };
    check_bools(op, dtype, part)?;
    if part.as_ptr().addr() % dtype.size() != 0 {
        return Ok(None);
    }
    // SAFETY: the mapping is the owner, so the bytes stay mapped; they are initialised, and the caller promises that
    // they are not changed. They are aligned for the elements, and bools were checked.
    let storage = unsafe { Storage::foreign(map.clone(), part.as_ptr(), bytes, crate::Device::Cpu) };
    Ok(Some(Tensor::from_parts(storage, Layout::contiguous(shape), dtype)))
}

fn check_bools(op: &'static str, dtype: DType, bytes: &[u8]) -> Result<()> {
    if dtype != DType::Bool {
        return Ok(());
    }
    match bytes.iter().find(|byte| **byte > 1) {
        Some(byte) => bail!(Format, op, "a bool must be 0 or 1, got {byte}"),
        None => Ok(()),
    }
}
