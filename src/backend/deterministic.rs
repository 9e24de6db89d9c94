//! Whether a thread's results have to be the same every time.

use std::cell::Cell;

thread_local! {
    static DETERMINISTIC: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations that this thread calls give the same bits every time, as they do unless told otherwise.
///
/// ```
/// use cotangent::{deterministic_algorithms, with_deterministic_algorithms};
/// assert!(deterministic_algorithms());
/// with_deterministic_algorithms(false, || assert!(!deterministic_algorithms()));
/// ```
#[doc(alias = "are_deterministic_algorithms_enabled")]
pub fn deterministic_algorithms() -> bool {
    DETERMINISTIC.get()
}

/// Runs `f` on this thread with operations that give the same bits every time, or with some that need not: sums of floats by index
/// on a GPU, such as those of [`scatter_add`](crate::Tensor::scatter_add), of [`index_add`](crate::Tensor::index_add) and of the
/// gradient of an embedding, are then added up in whatever order the GPU comes to them, which is faster. A backward pass takes what
/// holds where it runs.
///
/// ```
/// use cotangent::{Tensor, tensor, with_deterministic_algorithms};
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
