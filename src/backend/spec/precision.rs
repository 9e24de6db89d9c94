//! The precision of matrix products.

/// The precision of products of `f32` matrices, by [`matmul`](crate::Tensor::matmul) and [`linear`](crate::Tensor::linear), and
/// of convolutions on a GPU.
///
/// ```
/// use cotangent::settings::{MatmulPrecision, matmul_precision, with_matmul_precision};
/// with_matmul_precision(MatmulPrecision::Tf32, || assert_eq!(matmul_precision(), MatmulPrecision::Tf32));
/// assert_eq!(matmul_precision(), MatmulPrecision::Full);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// `f32` throughout.
    #[default]
    Full,
    /// The operands may be rounded to `bf16`, with 8 significant bits, if the CPU multiplies these faster. Sums are in `f32`.
    /// Otherwise the same as [`Full`](MatmulPrecision::Full).
    Bf16,
    /// The operands may be rounded to TF32, with 11 significant bits, which a GPU multiplies faster. Sums are in `f32`. On the
    /// CPU the same as [`Full`](MatmulPrecision::Full).
    Tf32,
}
