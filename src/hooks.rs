//! What looks on while operations run: one byte that every operation reads, whoever that may be.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// There has been a `vmap`: operations look for batched tensors.
pub(crate) const VMAP: u8 = 1;
/// Operations are timed.
pub(crate) const PROFILE: u8 = 2;

static HOOKS: AtomicU8 = AtomicU8::new(0);

/// Whether this one looks on.
#[inline(always)]
pub(crate) fn has(hook: u8) -> bool {
    HOOKS.load(Ordering::Relaxed) & hook != 0
}

pub(crate) fn set(hook: u8) {
    HOOKS.fetch_or(hook, Ordering::Relaxed);
}

pub(crate) fn clear(hook: u8) {
    HOOKS.fetch_and(!hook, Ordering::Relaxed);
}
