//! Which backward passes have failed: a pass that does not retain the graph has used it up by then, and a second one can
//! say why it is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

static NEXT: AtomicU64 = AtomicU64::new(1);
/// The last failures; older ones are told as ordinary passes.
static FAILED: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
const MOST: usize = 64;

/// The number of a new pass.
pub(super) fn next_pass() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Remembers that a pass has failed.
pub(super) fn note(pass: u64, error: &crate::Error) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.len() == MOST {
        failed.remove(0);
    }
    failed.push((pass, error.to_string()));
}

/// What a pass has failed with.
pub(super) fn of(pass: u64) -> Option<String> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    failed.iter().find(|(number, _)| *number == pass).map(|(_, error)| error.clone())
}
