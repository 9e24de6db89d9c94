//! Products of vectors, diagonals, and Vandermonde matrices.

// PyTorch calls a parameter of `vander` N.
#![allow(non_snake_case)]

use crate::error::bail;
use crate::layout::Dim;
use crate::layout::{broadcast, resolve_dim};
use crate::ops::linalg::common::{sizes, with};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The options of [`linalg::diagonal_with`](crate::linalg::diagonal_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LinalgDiagonalOptions, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// let above = linalg::diagonal_with(&x, LinalgDiagonalOptions::new().offset(1_isize))?;
    /// assert_eq!(above.to_vec::<i64>()?, [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LinalgDiagonalOptions {
        /// The offset from the main diagonal: above it if positive, below it if negative.
        offset: isize = 0,
        /// The dimension of the rows.
        dim1: isize = -2,
        /// The dimension of the columns.
        dim2: isize = -1,
    }
}

/// # Vector products
#[ops]
impl Tensor {
    /// The cross product of vectors along a dimension of size 3. The other dimensions broadcast.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let z = linalg::cross(&tensor!([1.0, 0.0, 0.0])?, &tensor!([0.0, 1.0, 0.0])?, -1)?;
    /// assert_eq!(z.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers of dimensions differ, there is no such dimension, its size is not 3, or the others do not broadcast.
    #[op(function = linalg, samples = cross_samples, errors = cross_errors, aliases = ["cross"])]
    pub fn linalg_cross(&self, other: &Tensor, #[default(-1)] dim: impl Into<Dim>) -> Result<Tensor> {
        const OP: &str = "linalg_cross";
        let (a, b) = (self.shape(), other.shape());
        if a.len() != b.len() {
            bail!(Shape, OP, "inputs must have the same number of dimensions, got shapes {a:?} and {b:?}");
        }
        let dim = resolve_dim(OP, dim.0, self.rank())?;
        if a[dim] != 3 || b[dim] != 3 {
            bail!(Shape, OP, "dimension {dim} must have size 3, got shapes {a:?} and {b:?}");
        }
        let shape = broadcast(OP, &[self.layout().shape(), other.layout().shape()])?;
        let (a, b) = (self.expand(&shape[..])?, other.expand(&shape[..])?);
        let minor = |i: isize, j: isize| {
            let product = |i: isize, j: isize| a.narrow(dim, i, 1)?.mul(&b.narrow(dim, j, 1)?);
            product(i, j)?.sub(&product(j, i)?)
        };
        Tensor::cat(&[minor(1, 2)?, minor(2, 0)?, minor(0, 1)?], dim)
    }

    /// The dot product along a dimension, with the first tensor conjugated. The other dimensions broadcast.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(linalg::vecdot(&x, &x, -1)?.to_vec::<f32>()?, [5.0, 25.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, there is no such dimension, or sizes along it differ.
    #[op(function = linalg, autocast = lower, samples = vecdot_samples, errors = vecdot_errors, aliases = ["vecdot"])]
    pub fn linalg_vecdot(&self, y: &Tensor, #[default(-1)] dim: impl Into<Dim>) -> Result<Tensor> {
        const OP: &str = "linalg_vecdot";
        let shape = broadcast(OP, &[self.layout().shape(), y.layout().shape()])?;
        let dim = resolve_dim(OP, dim.0, shape.len())?;
        let size = |x: &Tensor| (dim + x.rank()).checked_sub(shape.len()).map_or(1, |d| x.shape()[d]);
        if size(self) != size(y) {
            let (a, b) = (self.shape(), y.shape());
            bail!(
                Shape,
                OP,
                "sizes {} and {} of dimension {dim} differ in shapes {a:?} and {b:?}",
                size(self),
                size(y)
            );
        }
        self.conj()?.mul(y)?.sum(dim)
    }

    /// The Kronecker product, for any number of dimensions.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let y = tensor!([[1, 10]])?.kron(&tensor!([[1, 2], [3, 4]])?)?;
    /// assert_eq!((y.shape(), y.to_vec::<i64>()?), (&[2, 4][..], vec![1, 2, 10, 20, 3, 4, 30, 40]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the result is too large.
    #[op(samples = kron_samples)]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let padded = |x: &Tensor| -> Vec<usize> { with(&vec![1; rank - x.rank()], x.shape()).to_vec() };
        let (a, b) = (padded(self), padded(other));
        let outer: Vec<usize> = a.iter().flat_map(|&size| [size, 1]).collect();
        let inner: Vec<usize> = b.iter().flat_map(|&size| [1, size]).collect();
        let product = self.reshape(&outer[..])?.mul(&other.reshape(&inner[..])?)?;
        let sizes: Vec<usize> = a.iter().zip(&b).map(|(a, b)| a.saturating_mul(*b)).collect();
        product.reshape(&sizes[..])
    }

    /// The sum of the main diagonal of a matrix.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.trace()?.item::<i64>()?, 5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a matrix.
    #[op(autocast_cpu = f32, samples = trace_samples, errors = trace_errors)]
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            bail!(Shape, "trace", "input must be a matrix, got shape {:?}", self.shape());
        }
        self.diagonal(0, 0, 1)?.sum(..)
    }

    /// A view of a diagonal of matrices, as a new last dimension.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// assert_eq!(linalg::diagonal(&tensor!([[1, 2], [3, 4]])?)?.to_vec::<i64>()?, [1, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no such dimensions, or both are the same.
    #[op(function = linalg, samples = diagonal_samples, errors = diagonal_errors, view)]
    pub fn linalg_diagonal(&self, options: impl Into<LinalgDiagonalOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_diagonal";
        let LinalgDiagonalOptions { offset, dim1, dim2 } = options;
        sizes(OP, self)?;
        let (a, b) = (resolve_dim(OP, dim1, self.rank())?, resolve_dim(OP, dim2, self.rank())?);
        if a == b {
            bail!(Index, OP, "dim1 and dim2 must be different dimensions, got {a} twice");
        }
        self.diagonal(offset, a, b)
    }

    /// The Vandermonde matrix of a vector: row i holds the powers 0 to `N - 1` of element i. By default `N` is the
    /// length of the vector. Integers become `i64`.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let y = linalg::vander(&tensor!([2.0, 3.0])?, Some(3))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 4.0, 1.0, 3.0, 9.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `N` is less than 2.
    #[op(function = linalg, samples = vander_samples, errors = vander_errors)]
    pub fn linalg_vander(&self, N: Option<usize>) -> Result<Tensor> {
        const OP: &str = "linalg_vander";
        let n = N.unwrap_or(self.shape().last().copied().unwrap_or(1));
        if n < 2 {
            bail!(Value, OP, "N must be at least 2, got {n}");
        }
        let x = if self.rank() == 0 { self.unsqueeze(0)? } else { self.clone() };
        powers(OP, &x, n)
    }
}

/// The powers of each element from 0 on, `n` of them, in a new last dimension. Integers become `i64`.
#[track_caller]
pub(in crate::ops) fn powers(op: &'static str, x: &Tensor, n: usize) -> Result<Tensor> {
    let x = x.to_dtype(x.dtype().to_sum())?.unsqueeze(-1)?;
    // Fails before anything is computed if memory does not suffice.
    Tensor::empty(op, x.layout().shape().with(x.rank() - 1, n), x.dtype(), x.device())?;
    // Doubles the number of powers in each step.
    let (mut powers, mut next) = (x.ones_like()?, x);
    while powers.shape()[powers.rank() - 1] < n {
        let known = powers.shape()[powers.rank() - 1];
        let more = powers.narrow(-1, 0, known.min(n - known))?.mul(&next)?;
        powers = Tensor::cat(&[&powers, &more], -1)?;
        if powers.shape()[powers.rank() - 1] < n {
            next = next.mul(&next)?;
        }
    }
    Ok(powers)
}

fn cross_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3], 1)?, normal([3], 2)?],
        sample![normal([2, 3], 1)?, normal([1, 3], 2)?],
        sample![normal([3, 2], 1)?, normal([3, 2], 2)?, 0],
        sample![normal([0, 3], 1)?, normal([0, 3], 2)?, -1],
    ])
}

fn cross_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a size", "[2]", "size 3"; sample![normal([2], 1)?, normal([2], 2)?]],
        error!["dimensions", "[3]", "[2, 3]"; sample![normal([3], 1)?, normal([2, 3], 2)?]],
        error!["no such dimension", "1", "rank 1"; sample![normal([3], 1)?, normal([3], 2)?, 1]],
        error!["no broadcast", "[2, 3]", "[4, 3]"; sample![normal([2, 3], 1)?, normal([4, 3], 2)?]],
    ])
}

fn vecdot_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3], 1)?, normal([3], 2)?],
        sample![normal([2, 3], 1)?, normal([3], 2)?],
        sample![normal([2, 3], 1)?, normal([2, 1], 2)?, 0],
        sample![normal([2, 0], 1)?, normal([2, 0], 2)?, -1].zero_derivative(),
        sample![ints(&[1, 2, 3], [3])?, ints(&[4, 5, 6], [3])?],
    ])
}

fn vecdot_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["sizes", "[2]", "[3]"; sample![normal([2], 1)?, normal([3], 2)?]],
        error!["no broadcast here", "[2, 3]", "[2, 1]", "3 and 1"; sample![normal([2, 3], 1)?, normal([2, 1], 2)?]],
        error!["no such dimension", "2"; sample![normal([2, 3], 1)?, normal([2, 3], 2)?, 2]],
    ])
}

fn kron_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize]); 6] =
        [(&[2, 3], &[2, 2]), (&[2], &[3]), (&[2], &[2, 3, 1]), (&[], &[2, 2]), (&[2, 2, 2], &[2]), (&[0, 2], &[2, 2])];
    shapes.iter().map(|&(a, b)| Ok(sample![normal(a, 1)?, normal(b, 2)?])).collect()
}

fn trace_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3, 3], 1)?],
        sample![normal([2, 4], 1)?],
        sample![normal([4, 1], 1)?],
        sample![normal([0, 3], 1)?].zero_derivative(),
        sample![ints(&[1, 2, 3, 4], [2, 2])?],
    ])
}

fn trace_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["a batch", "[2, 2, 2]"; sample![normal([2, 2, 2], 1)?]],
    ])
}

fn diagonal_samples() -> Result<Vec<Sample>> {
    let x = normal([2, 3, 4], 1)?;
    Ok(vec![
        sample![&x],
        sample![&x; offset = 2],
        sample![&x; offset = -1],
        sample![&x; offset = 1, dim1 = 2, dim2 = 0],
        sample![&x; offset = 7].zero_derivative(),
        sample![normal([0, 3], 1)?],
    ])
}

fn diagonal_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["one dimension", "got 1 twice"; sample![normal([2, 3], 1)?; dim1 = 1]],
        error!["no such dimension", "2"; sample![normal([2, 3], 1)?; dim1 = 2]],
    ])
}

fn vander_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3], 1)?],
        sample![normal([2, 2], 1)?, 5],
        sample![normal([1], 1)?, 6],
        sample![normal([2, 0], 1)?, 3],
        sample![ints(&[1, 2, 3], [3])?],
        sample![normal([], 1)?, 3],
    ])
}

fn vander_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a number, once", "got 1"; sample![normal([], 1)?]],
        error!["one power", "got 1"; sample![normal([3], 1)?, 1]],
        error!["one element", "got 1"; sample![normal([1], 1)?]],
    ])
}
