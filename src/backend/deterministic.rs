//! Whether the operations of a thread must be deterministic.

use std::cell::Cell;

thread_local! {
    static DETERMINISTIC: Cell<bool> = const { Cell::new(true) };
}

/// Whether the operations of this thread are deterministic, which is the default: they give the same bits every time.
///
/// ```
/// use cotangent::settings::{deterministic_algorithms, with_deterministic_algorithms};
/// assert!(deterministic_algorithms());
/// with_deterministic_algorithms(false, || assert!(!deterministic_algorithms()));
/// ```
#[doc(alias = "are_deterministic_algorithms_enabled")]
pub fn deterministic_algorithms() -> bool {
    DETERMINISTIC.get()
}

/// Runs `f` on this thread with deterministic operations, or with faster nondeterministic ones: on a GPU, sums of floats by index,
/// such as those of [`scatter_add`](crate::Tensor::scatter_add), [`index_add`](crate::Tensor::index_add) and the gradient of an
/// embedding, are then accumulated in any order. A backward pass uses the setting of the thread where it runs.
///
/// ```
/// use cotangent::{Tensor, tensor, settings::with_deterministic_algorithms};
/// let sums = with_deterministic_algorithms(false, || {
///     Tensor::zeros([2])?.scatter_add(0, &tensor!([0, 1, 0])?, &tensor!([1.0, 2.0, 3.0])?)
/// })?;
/// assert_eq!(sums.to_vec::<f32>()?, [4.0, 2.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "use_deterministic_algorithms")]
pub fn with_deterministic_algorithms<R>(deterministic: bool, f: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            DETERMINISTIC.set(self.0);
        }
    }
    let _back = Back(DETERMINISTIC.replace(deterministic));
    f()
}
