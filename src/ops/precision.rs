//! How exactly matrices are multiplied.

use std::cell::Cell;

/// What products of `f32` matrices, by [`matmul`](crate::Tensor::matmul) and [`linear`](crate::Tensor::linear), may be
/// computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// `f32` throughout.
    #[default]
    Full,
    /// The operands may be rounded to `bf16`, with 8 significant bits, where the CPU multiplies these faster; the
    /// sums are of `f32`. Elsewhere the same as [`Full`](MatmulPrecision::Full).
    Bf16,
    /// The operands may be rounded to TF32, with 11 significant bits, which a GPU multiplies faster; the sums are of `f32`.
    /// Elsewhere the same as [`Full`](MatmulPrecision::Full).
    Tf32,
}

thread_local! {
    static PRECISION: Cell<MatmulPrecision> = const { Cell::new(MatmulPrecision::Full) };
}

/// The precision on this thread.
pub fn matmul_precision() -> MatmulPrecision {
    PRECISION.get()
}

/// Runs `f` with matrix products on this thread in `precision`. The backward pass of what `f` records uses it too, wherever
/// it runs. Parameters, gradients and everything but the factors of the products stay in `f32`.
///
/// ```
/// use cotangent::{MatmulPrecision, Tensor, with_matmul_precision};
/// let x = Tensor::full([64, 64], 0.1)?;
/// let y = with_matmul_precision(MatmulPrecision::Bf16, || x.matmul(&x))?;
/// assert!(y.allclose(&x.matmul(&x)?, 1e-2, 0.0)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
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
