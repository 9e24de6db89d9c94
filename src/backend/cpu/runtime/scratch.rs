//! Scratch memory of kernels, whose size depends on shapes: a tensor of few bytes can be expanded to any shape, so that the
//! system may not have as much.
#![forbid(unsafe_code)]

use crate::{Error, OutOfMemory, Result};

/// A vector of `len` copies of a value.
///
/// # Errors
/// If the system does not have the memory.
pub(crate) fn filled<T: Clone>(op: &'static str, value: T, len: usize) -> Result<Vec<T>> {
    let mut vector = with_room(op, len)?;
    vector.resize(len, value);
    Ok(vector)
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// If the system does not have the memory.
pub(crate) fn with_room<T>(op: &'static str, len: usize) -> Result<Vec<T>> {
    check_free(op, len.saturating_mul(size_of::<T>()))?;
    let mut vector = Vec::new();
    match vector.try_reserve_exact(len) {
        Ok(()) => Ok(vector),
        Err(_) => Err(refused(op, len.saturating_mul(size_of::<T>()))),
    }
}

/// Linux may grant more than it has, and kill the process when it uses it: large requests are compared with what is free.
fn check_free(op: &'static str, bytes: usize) -> Result<()> {
    let free = if bytes < 1 << 24 { None } else { crate::memory::free_bytes() };
    if free.is_some_and(|free| bytes > free) { Err(refused(op, bytes)) } else { Ok(()) }
}

/// Refuses to go on where every thread will need room for `len` elements that the system does not have.
///
/// # Errors
/// If it does not.
pub(crate) fn check_room<T>(op: &'static str, len: usize) -> Result<()> {
    // What is small is not worth the call.
    if len < 1 << 20 { Ok(()) } else { with_room::<T>(op, len).map(drop) }
}

/// A vector for handles to so many tensors, each of which takes memory of its own besides.
///
/// # Errors
/// If the system does not have the memory.
pub(crate) fn for_handles<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
    // The values of a tensor and its node, at least.
    const EACH: usize = 256;
    check_free(op, count.saturating_mul(EACH))?;
    with_room(op, count)
}

fn refused(op: &'static str, requested: usize) -> Error {
    let stats = crate::memory::cpu_stats();
    let free = crate::memory::free_bytes();
    Error::out_of_memory(op, OutOfMemory { requested, held: stats.held(), cached: stats.cached(), free })
}
