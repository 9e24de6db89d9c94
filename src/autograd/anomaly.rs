//! Anomaly mode: the first NaN is reported where it was made.

use crate::error::bail;
use crate::{Result, Tensor};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    On,
    /// On, but not for the operations of a rule.
    Suspended,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
}

/// Runs `f` in anomaly mode: the first operation, forward or backward, that makes a NaN fails with an error that names
/// it and the source line that called it. Every result is looked through, so this is for debugging.
///
/// ```
/// use cotangent::{Tensor, autograd::detect_anomaly};
/// let x = Tensor::new([-1.0, 1.0])?.requires_grad_(true)?;
/// let failed = detect_anomaly(|| x.sqrt()?.sum()?.backward());
/// assert!(failed.is_err_and(|e| e.to_string().starts_with("sqrt: ")));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn detect_anomaly<R>(f: impl FnOnce() -> R) -> R {
    let _guard = AnomalyGuard::new();
    f()
}

/// Keeps this thread in anomaly mode until it is dropped.
#[must_use = "anomaly mode ends when the guard is dropped"]
#[derive(Debug)]
pub struct AnomalyGuard {
    before: Mode,
    _not_send: PhantomData<*const ()>,
}

impl AnomalyGuard {
    /// Turns anomaly mode on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> AnomalyGuard {
        AnomalyGuard::set(Mode::On)
    }

    fn set(mode: Mode) -> AnomalyGuard {
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
    MODE.get() == Mode::On
}

/// Runs `f`, a rule, without looking at the results of its operations.
pub(crate) fn suspended<R>(f: impl FnOnce() -> R) -> R {
    let _guard = enabled().then(|| AnomalyGuard::set(Mode::Suspended));
    f()
}

/// Runs `f`, a function of the user's that a rule calls again, as the rule's caller wanted it.
pub(crate) fn resumed<R>(f: impl FnOnce() -> R) -> R {
    let _guard = (MODE.get() == Mode::Suspended).then(AnomalyGuard::new);
    f()
}

/// The result of an operation that is not recorded, looked through as well.
#[track_caller]
pub(crate) fn check_forward(op: &'static str, result: Tensor) -> Result<Tensor> {
    check_values(op, "result", &result, Location::caller())?;
    Ok(result)
}

pub(crate) fn check_values(op: &'static str, what: &str, values: &Tensor, location: &Location<'_>) -> Result<()> {
    if values.has_nan()? {
        bail!(Value, op, "the {what} of shape {:?} holds a NaN (called at {location})", values.shape());
    }
    Ok(())
}
