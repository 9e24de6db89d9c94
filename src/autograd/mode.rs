//! Whether operations are recorded, for each thread.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static IN_PASS: Cell<bool> = const { Cell::new(false) };
    static RECOMPUTING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a backward pass is running on this thread.
pub(crate) fn in_pass() -> bool {
    IN_PASS.get()
}

/// Whether a checkpoint is recomputing its function on this thread.
pub(crate) fn is_recomputing() -> bool {
    RECOMPUTING.get()
}

/// Runs `f` as the recomputation of a checkpoint.
pub(crate) fn recomputing<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECOMPUTING.set(self.0);
        }
    }
    let _restore = Restore(RECOMPUTING.replace(true));
    f()
}

/// Whether operations on this thread are recorded.
///
/// ```
/// use cotangent::autograd::{is_grad_enabled, no_grad};
/// assert!(is_grad_enabled());
/// assert!(!no_grad(is_grad_enabled));
/// ```
#[inline]
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` without recording: its results require no gradient, and nothing is saved for a backward pass.
/// [`Tensor::detach`](crate::Tensor::detach) takes a single tensor out of the graph.
///
/// ```
/// use cotangent::{Tensor, autograd::no_grad};
/// let w = Tensor::ones([2])?.requires_grad_(true)?;
/// let y = no_grad(|| w.mul(2.0))?;
/// assert!(!y.requires_grad());
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let _guard = GradMode::disable();
    f()
}

/// Runs `f` with recording on, also inside [`no_grad`].
///
/// ```
/// use cotangent::{Tensor, autograd::{enable_grad, no_grad}};
/// let w = Tensor::ones([2])?.requires_grad_(true)?;
/// let y = no_grad(|| enable_grad(|| w.mul(2.0)))?;
/// assert!(y.requires_grad());
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    let _guard = GradMode::enable();
    f()
}

/// Sets the mode of this thread until it is dropped. Drop guards in the reverse order of their creation.
///
/// ```
/// use cotangent::autograd::{GradMode, is_grad_enabled};
/// let guard = GradMode::disable();
/// assert!(!is_grad_enabled());
/// drop(guard);
/// assert!(is_grad_enabled());
/// ```
#[doc(alias = "set_grad_enabled")]
#[must_use = "the mode is restored when the guard is dropped"]
#[derive(Debug)]
pub struct GradMode {
    before: bool,
    before_pass: bool,
    // The mode belongs to the thread that set it.
    _not_send: PhantomData<*const ()>,
}

impl GradMode {
    /// Stops recording.
    ///
    /// ```
    /// use cotangent::{Tensor, autograd::GradMode};
    /// let w = Tensor::ones([2])?.requires_grad_(true)?;
    /// let _guard = GradMode::disable();
    /// assert!(!w.mul(2.0)?.requires_grad());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn disable() -> GradMode {
        GradMode::set(false)
    }

    /// Starts recording.
    ///
    /// ```
    /// use cotangent::autograd::{GradMode, is_grad_enabled, no_grad};
    /// no_grad(|| {
    ///     let _guard = GradMode::enable();
    ///     assert!(is_grad_enabled());
    /// });
    /// ```
    pub fn enable() -> GradMode {
        GradMode::set(true)
    }

    pub(crate) fn set(enabled: bool) -> GradMode {
        GradMode { before: ENABLED.replace(enabled), before_pass: IN_PASS.get(), _not_send: PhantomData }
    }

    /// The mode of a backward pass, which is recorded or not.
    pub(crate) fn pass(recorded: bool) -> GradMode {
        let guard = GradMode::set(recorded);
        IN_PASS.set(true);
        guard
    }
}

impl Drop for GradMode {
    fn drop(&mut self) {
        ENABLED.set(self.before);
        IN_PASS.set(self.before_pass);
    }
}
