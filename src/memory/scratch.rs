//! Scratch memory whose size depends on shapes. A small tensor can be expanded to any shape, so the allocation may fail.
#![forbid(unsafe_code)]

use crate::error::OutOfMemory;
use crate::{Error, Result};

/// A vector of `len` copies of a value.
///
/// # Errors
/// If memory runs out.
pub(crate) fn filled<T: Clone>(op: &'static str, value: T, len: usize) -> Result<Vec<T>> {
    let mut vector = with_room(op, len)?;
    vector.resize(len, value);
    Ok(vector)
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// If memory runs out.
pub(crate) fn with_room<T>(op: &'static str, len: usize) -> Result<Vec<T>> {
    check_free(op, len.saturating_mul(size_of::<T>()))?;
    let mut vector = Vec::new();
    match vector.try_reserve_exact(len) {
        Ok(()) => Ok(vector),
        Err(_) => Err(refused(op, len.saturating_mul(size_of::<T>()))),
    }
}

/// Linux overcommits, and kills the process when it uses the memory: large requests are compared with the free memory.
fn check_free(op: &'static str, bytes: usize) -> Result<()> {
    let free = if bytes < 1 << 24 { None } else { crate::memory::free_bytes() };
    if free.is_some_and(|free| bytes > free) { Err(refused(op, bytes)) } else { Ok(()) }
}

/// Checks that there is memory for `len` elements, which every thread will allocate.
///
/// # Errors
/// If there is not.
pub(crate) fn check_room<T>(op: &'static str, len: usize) -> Result<()> {
    // Small sizes are not worth the check.
    if len < 1 << 20 { Ok(()) } else { with_room::<T>(op, len).map(drop) }
}

/// A vector for `count` tensor handles. Each also allocates memory for the tensor.
///
/// # Errors
/// If memory runs out.
pub(crate) fn for_handles<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
    // The least memory of a tensor and its node.
    const EACH: usize = 256;
    check_free(op, count.saturating_mul(EACH))?;
    with_room(op, count)
}

fn refused(op: &'static str, requested: usize) -> Error {
    let stats = crate::memory::cpu_stats();
    let free = crate::memory::free_bytes();
    Error::out_of_memory(op, OutOfMemory { requested, held: stats.held(), cached: stats.cached(), free })
}
