//! The backward passes that failed. Such a pass has freed the graph if it does not retain it; the error of a second pass then
//! gives the reason.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

static NEXT: AtomicU64 = AtomicU64::new(1);
/// The last failures. Older ones are reported like passes that succeeded.
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

/// The error of a failed pass.
pub(super) fn of(pass: u64) -> Option<String> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    failed.iter().find(|(number, _)| *number == pass).map(|(_, error)| error.clone())
}
