//! Flags that every operation reads, as the bits of one byte: a single load tells that nothing special is on.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// There has been a `vmap`: operations look for batched tensors.
pub(crate) const VMAP: u8 = 1;
/// Operations are timed.
pub(crate) const PROFILE: u8 = 2;
/// There has been an `autocast`: operations look at the mode of their thread.
pub(crate) const AUTOCAST: u8 = 4;

static FLAGS: AtomicU8 = AtomicU8::new(0);

/// Whether this flag is set.
#[inline(always)]
pub(crate) fn has(flag: u8) -> bool {
    FLAGS.load(Ordering::Relaxed) & flag != 0
}

pub(crate) fn set(flag: u8) {
    FLAGS.fetch_or(flag, Ordering::Relaxed);
}

pub(crate) fn clear(flag: u8) {
    FLAGS.fetch_and(!flag, Ordering::Relaxed);
}
