//! The precision of matrix products on a thread.

pub use crate::backend::spec::MatmulPrecision;
use std::cell::Cell;

thread_local! {
    static PRECISION: Cell<MatmulPrecision> = const { Cell::new(MatmulPrecision::Full) };
}

/// The precision of matrix products on this thread.
///
/// ```
/// use cotangent::settings::{MatmulPrecision, matmul_precision};
/// assert_eq!(matmul_precision(), MatmulPrecision::Full);
/// ```
#[doc(alias = "get_float32_matmul_precision")]
pub fn matmul_precision() -> MatmulPrecision {
    PRECISION.get()
}

/// Runs `f` with matrix products on this thread in `precision`. The backward pass of what `f` records uses it too, wherever
/// it runs. Parameters, gradients and everything but the factors of the products stay in `f32`.
///
/// ```
/// use cotangent::{Tensor, settings::{MatmulPrecision, with_matmul_precision}};
/// let x = Tensor::full([64, 64], 0.1)?;
/// let y = with_matmul_precision(MatmulPrecision::Bf16, || x.matmul(&x))?;
/// assert!(y.allclose_with(&x.matmul(&x)?, (1e-2, 0.0))?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "set_float32_matmul_precision")]
pub fn with_matmul_precision<R>(precision: MatmulPrecision, f: impl FnOnce() -> R) -> R {
    struct Back(MatmulPrecision);
    impl Drop for Back {
        fn drop(&mut self) {
            PRECISION.set(self.0);
        }
    }
    let _back = Back(PRECISION.replace(precision));
    f()
}
