//! Anomaly mode: the first NaN is reported at the operation that made it.

use crate::error::bail;
use crate::location::{Location, Name};
use crate::{Result, Tensor};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    On,
    /// On, but not for the operations of a rule.
    Suspended,
}

/// Whether any thread has ever turned the mode on. Each operation checks this several times, before its thread's own mode,
/// since an atomic load is faster than a thread-local one.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
}

/// Runs `f` in anomaly mode: the first operation, forward or backward, that makes a NaN fails with an error that names
/// it and the source line that called it. Every result is checked, which is slow: use it for debugging.
///
/// ```
/// use cotangent::{autograd::detect_anomaly, tensor};
/// let x = tensor!([-1.0, 1.0])?.requires_grad_(true)?;
/// let failed = detect_anomaly(|| x.sqrt()?.sum(..)?.backward());
/// assert!(failed.is_err_and(|e| e.to_string().starts_with("sqrt: ")));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "set_detect_anomaly")]
#[doc(alias = "enable_anomaly")]
pub fn detect_anomaly<R>(f: impl FnOnce() -> R) -> R {
    let _guard = AnomalyGuard::new();
    f()
}

/// Keeps this thread in anomaly mode until it is dropped.
///
/// ```
/// use cotangent::{autograd::AnomalyGuard, tensor};
/// let guard = AnomalyGuard::new();
/// assert!(tensor!([-1.0])?.log().is_err());
/// drop(guard);
/// assert!(tensor!([-1.0])?.log().is_ok());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[must_use = "anomaly mode ends when the guard is dropped"]
#[derive(Debug)]
pub struct AnomalyGuard {
    before: Mode,
    _not_send: PhantomData<*const ()>,
}

impl AnomalyGuard {
    /// Turns anomaly mode on.
    ///
    /// ```
    /// use cotangent::{autograd::AnomalyGuard, tensor};
    /// let _guard = AnomalyGuard::new();
    /// assert!(tensor!([-1.0])?.sqrt().is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[allow(clippy::new_without_default)]
    pub fn new() -> AnomalyGuard {
        AnomalyGuard::set(Mode::On)
    }

    fn set(mode: Mode) -> AnomalyGuard {
        EVER.store(true, Ordering::Relaxed);
        AnomalyGuard { before: MODE.replace(mode), _not_send: PhantomData }
    }
}

impl Drop for AnomalyGuard {
    fn drop(&mut self) {
        MODE.set(self.before);
    }
}

#[inline]
pub(crate) fn enabled() -> bool {
    EVER.load(Ordering::Relaxed) && MODE.get() == Mode::On
}

/// Runs `f`, a backward rule, without checking the results of its operations.
#[inline]
pub(crate) fn suspended<R>(f: impl FnOnce() -> R) -> R {
    let _guard = enabled().then(|| AnomalyGuard::set(Mode::Suspended));
    f()
}

/// Runs `f`, a user-defined function that a rule calls again, in the mode of the rule's caller.
pub(crate) fn resumed<R>(f: impl FnOnce() -> R) -> R {
    let _guard = (MODE.get() == Mode::Suspended).then(AnomalyGuard::new);
    f()
}

/// Checks the result of an operation that is not recorded.
#[track_caller]
pub(crate) fn check_forward(op: &Name, result: Tensor) -> Result<Tensor> {
    check_values(op, "result", &result, &Location::caller())?;
    Ok(result)
}

pub(crate) fn check_values(op: &Name, what: &str, values: &Tensor, location: &Location) -> Result<()> {
    if values.has_nan()? {
        bail!(Value, op, "the {what} of {op} of shape {:?} contains NaN (called at {location})", values.shape());
    }
    Ok(())
}
