//! Linear algebra.
//!
//! - `matmul`, `products`, `vectors`, `einsum`: products of matrices, vectors and tensors. `precision`: their precision.
//! - `cholesky`, `lu`, `ldl`, `qr`, `eig`, `spectral`, `lowrank`: decompositions. `spectral` is `eigh` and `svd`.
//! - `solve`, `det`, `pinv`, `norms`, `functions`: operations that use decompositions.
//! - `common`: checks of matrices, transposes and diagonals.

pub(in crate::ops) mod common;
pub(crate) mod precision;

files! { cholesky det eig einsum functions ldl lowrank lu matmul norms pinv products qr solve spectral vectors }
