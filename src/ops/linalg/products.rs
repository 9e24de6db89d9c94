//! Products of vectors, matrices and batches of matrices, with fixed ranks.

use crate::error::bail;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::linalg::common::count;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, normal, sample};
use crate::options::options;
use crate::{DType, Result, Scalar, Tensor};

options! {
    /// The options of [`Tensor::addmm_with`] and of related operations.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::AddProductOptions};
    /// let (x, a) = (tensor!([[1.0]])?, tensor!([[2.0]])?);
    /// let y = x.addmm_with(&a, &a, AddProductOptions::new().beta(10).alpha(0.5))?;
    /// assert_eq!(y.item::<f32>()?, 12.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AddProductOptions {
        /// The factor of the tensor. With 0 its elements are ignored, even NaN.
        beta: Scalar = Scalar::I64(1),
        /// The factor of the product.
        alpha: Scalar = Scalar::I64(1),
    }
}

/// Checks the number of dimensions of each operand.
fn ranks(op: &'static str, operands: &[(&Tensor, usize)]) -> Result<()> {
    let Some((x, rank)) = operands.iter().find(|(x, rank)| x.rank() != *rank) else { return Ok(()) };
    let noun = ["a 0-D tensor", "a vector", "a matrix", "a 3-D batch of matrices"][*rank];
    bail!(Shape, op, "expected {noun}, got shape {:?}", x.shape())
}

/// Refuses sizes that differ.
fn fits(op: &'static str, a: &Tensor, b: &Tensor, inner: (usize, usize)) -> Result<()> {
    if inner.0 != inner.1 {
        let (a, b) = (a.shape(), b.shape());
        bail!(Shape, op, "cannot multiply {a:?} by {b:?}: sizes {} and {} differ", inner.0, inner.1);
    }
    Ok(())
}

fn batches(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    ranks(op, &[(a, 3), (b, 3)])?;
    fits(op, a, b, (a.shape()[0], b.shape()[0]))?;
    fits(op, a, b, (a.shape()[2], b.shape()[1]))
}

/// `beta · x + alpha · product`, of the product's shape.
#[track_caller]
fn added(op: &'static str, x: &Tensor, product: &Tensor, options: &AddProductOptions) -> Result<Tensor> {
    let AddProductOptions { beta, alpha } = *options;
    let dtype = common_dtype(op, x.dtype(), product.dtype())?;
    for (name, number) in [("beta", beta), ("alpha", alpha)] {
        if !dtype.is_float() && !dtype.is_complex() && matches!(number, Scalar::F64(_)) {
            bail!(DType, op, "{name} must be an integer for elements of {dtype}, got {}", number.to_f64());
        }
    }
    let scaled = |x: &Tensor, by: Scalar| if by.to_f64() == 1.0 { Ok(x.clone()) } else { x.mul(by) };
    let x = x.expand(product.shape())?;
    let x = if beta.to_f64() == 0.0 {
        let everywhere = Tensor::ones_with((), (DType::Bool, x.device()))?;
        x.masked_fill(&everywhere, 0)?
    } else {
        scaled(&x, beta)?
    };
    x.add(&scaled(product, alpha)?)
}

/// # Dot and batched matrix products
#[ops]
impl Tensor {
    /// The dot product of two vectors.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.0, 2.0])?.dot(&tensor!([10.0, 1.0])?)?.item::<f32>()?, 12.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is not a vector, or their sizes differ.
    #[op(autocast_cuda = widest, samples = dot_samples, errors = dot_errors)]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        ranks("dot", &[(self, 1), (other, 1)])?;
        fits("dot", self, other, (self.shape()[0], other.shape()[0]))?;
        self.matmul(other)
    }

    /// The dot product of two vectors, with the first one conjugated.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.0, 2.0])?.vdot(&tensor!([10.0, 1.0])?)?.item::<f32>()?, 12.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is not a vector, or their sizes differ.
    #[op(autocast_cuda = widest, samples = dot_samples, errors = dot_errors)]
    pub fn vdot(&self, other: &Tensor) -> Result<Tensor> {
        self.conj()?.dot(other)
    }

    /// The inner products along the last dimensions, for all pairs of the other dimensions. With a 0-dimensional
    /// tensor, the product.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([10.0, 1.0])?);
    /// assert_eq!(a.inner(&b)?.to_vec::<f32>()?, [12.0, 34.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the last sizes differ.
    #[op(autocast_cuda = widest, samples = inner_samples, errors = inner_errors)]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        let ([lead @ .., a], [others @ .., b]) = (self.shape(), other.shape()) else { return self.mul(other) };
        fits("inner", self, other, (*a, *b))?;
        let shape: Vec<usize> = lead.iter().chain(others).copied().collect();
        let (rows, columns) = (count(lead), count(others));
        self.reshape([rows, *a])?.matmul(&other.reshape([columns, *b])?.t()?)?.reshape(&shape[..])
    }

    /// The outer product of two vectors, as a matrix.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let y = tensor!([1, 2])?.outer(&tensor!([10, 20, 30])?)?;
    /// assert_eq!((y.shape(), y.to_vec::<i64>()?), (&[2, 3][..], vec![10, 20, 30, 20, 40, 60]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is not a vector.
    #[doc(alias = "ger")]
    #[op(samples = outer_samples, errors = vector_errors, aliases = ["ger"])]
    pub fn outer(&self, vec2: &Tensor) -> Result<Tensor> {
        ranks("outer", &[(self, 1), (vec2, 1)])?;
        self.unsqueeze(1)?.mul(vec2)
    }

    /// The product of a matrix and a vector.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let a = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(a.mv(&tensor!([10.0, 1.0])?)?.to_vec::<f32>()?, [12.0, 34.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If they are not a matrix and a vector, or the sizes do not fit.
    #[op(autocast_cuda = lower, samples = mv_samples, errors = mv_errors)]
    pub fn mv(&self, vec: &Tensor) -> Result<Tensor> {
        ranks("mv", &[(self, 2), (vec, 1)])?;
        fits("mv", self, vec, (self.shape()[1], vec.shape()[0]))?;
        self.matmul(vec)
    }

    /// The product of two matrices. [`matmul`](Self::matmul) also takes vectors and batches.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let a = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(a.mm(&a)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is not a matrix, or the inner sizes differ.
    #[op(autocast = lower, samples = mm_samples, errors = mm_errors)]
    pub fn mm(&self, mat2: &Tensor) -> Result<Tensor> {
        ranks("mm", &[(self, 2), (mat2, 2)])?;
        fits("mm", self, mat2, (self.shape()[1], mat2.shape()[0]))?;
        self.matmul(mat2)
    }

    /// The batched product of matrices. Both batches have the same size.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (a, b) = (Tensor::ones([3, 2, 4])?, Tensor::ones([3, 4, 5])?);
    /// assert_eq!(a.bmm(&b)?.shape(), [3, 2, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of them is not a batch of matrices, or sizes differ: batches do not broadcast here.
    #[op(autocast = lower, samples = bmm_samples, errors = bmm_errors)]
    pub fn bmm(&self, mat2: &Tensor) -> Result<Tensor> {
        batches("bmm", self, mat2)?;
        self.matmul(mat2)
    }

    /// `beta · self + alpha · mat1 · mat2`. `self` broadcasts to the shape of the product.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let a = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(tensor!([100.0, 0.0])?.addmm(&a, &a)?.to_vec::<f32>()?, [107.0, 10.0, 115.0, 22.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, or `beta` or `alpha` is not an integer for integer elements.
    #[op(in_place, autocast = lower, samples = addmm_samples, errors = addmm_errors)]
    pub fn addmm(&self, mat1: &Tensor, mat2: &Tensor, options: impl Into<AddProductOptions>) -> Result<Tensor> {
        added("addmm", self, &mat1.mm(mat2)?, &options)
    }

    /// `beta · self + alpha · mat · vec`. `self` broadcasts to the shape of the product.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (a, x) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([10.0, 1.0])?);
    /// assert_eq!(tensor!([0.5, 0.0])?.addmv(&a, &x)?.to_vec::<f32>()?, [12.5, 34.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`addmm`](Self::addmm).
    #[op(in_place, autocast_cuda = lower, samples = addmv_samples, errors = addmv_errors)]
    pub fn addmv(&self, mat: &Tensor, vec: &Tensor, options: impl Into<AddProductOptions>) -> Result<Tensor> {
        added("addmv", self, &mat.mv(vec)?, &options)
    }

    /// `beta · self + alpha · vec1 ⊗ vec2`, with the [outer](Self::outer) product.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (x, a) = (tensor!([[1.0, 1.0]])?, tensor!([2.0, 3.0])?);
    /// assert_eq!(x.addr(&a, &a)?.to_vec::<f32>()?, [5.0, 7.0, 7.0, 10.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`addmm`](Self::addmm).
    #[op(in_place, autocast_cuda = lower, samples = addr_samples, errors = addr_errors)]
    pub fn addr(&self, vec1: &Tensor, vec2: &Tensor, options: impl Into<AddProductOptions>) -> Result<Tensor> {
        added("addr", self, &vec1.outer(vec2)?, &options)
    }

    /// `beta · self + alpha · Σ batch1 · batch2`, summed over the batch.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (x, a) = (Tensor::zeros([2, 2])?, Tensor::ones([3, 2, 2])?);
    /// assert_eq!(x.addbmm(&a, &a)?.to_vec::<f32>()?, [6.0; 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`addmm`](Self::addmm).
    #[op(in_place, autocast = lower, samples = addbmm_samples, errors = addbmm_errors)]
    pub fn addbmm(&self, batch1: &Tensor, batch2: &Tensor, options: impl Into<AddProductOptions>) -> Result<Tensor> {
        batches("addbmm", batch1, batch2)?;
        // A sum of products is one product of longer rows and columns.
        let (b, m, k, n) = (batch1.shape()[0], batch1.shape()[1], batch1.shape()[2], batch2.shape()[2]);
        let inner = count(&[b, k]);
        let product = batch1.permute([1, 0, 2])?.reshape([m, inner])?.matmul(&batch2.reshape([inner, n])?)?;
        added("addbmm", self, &product, &options)
    }

    /// `beta · self + alpha · batch1 · batch2` for batches of matrices.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (x, a) = (Tensor::ones([2])?, Tensor::ones([3, 2, 2])?);
    /// assert_eq!(x.baddbmm(&a, &a)?.to_vec::<f32>()?, [3.0; 12]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`addmm`](Self::addmm).
    #[op(in_place, autocast = lower, samples = baddbmm_samples, errors = baddbmm_errors)]
    pub fn baddbmm(&self, batch1: &Tensor, batch2: &Tensor, options: impl Into<AddProductOptions>) -> Result<Tensor> {
        added("baddbmm", self, &batch1.bmm(batch2)?, &options)
    }
}

fn two(shapes: &[(&[usize], &[usize])]) -> Result<Vec<Sample>> {
    let one = |(a, b): &(&[usize], &[usize])| {
        let sample = sample![normal(*a, 1)?, normal(*b, 2)?];
        let nothing_to_add = a.last() == Some(&0) && a.iter().product::<usize>() == 0;
        Ok(if nothing_to_add { sample.zero_derivative() } else { sample })
    };
    shapes.iter().map(one).collect()
}

fn three(shapes: &[[&[usize]; 3]]) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for &[x, a, b] in shapes {
        let (x, a, b) = (normal(x, 1)?, normal(a, 2)?, normal(b, 3)?);
        all.push(sample![&x, &a, &b]);
        all.push(sample![x, a, b; beta = 0.5, alpha = -2.0]);
    }
    Ok(all)
}

/// Calls of tensors with these shapes, which do not fit.
fn refused(label: &'static str, message: &[&'static str], shapes: &[&[usize]]) -> Result<ErrorCase> {
    let tensors = shapes.iter().enumerate().map(|(at, shape)| normal(*shape, at as u64).map(Into::into));
    Ok(ErrorCase::new(label, message, Sample::new(tensors.collect::<Result<Vec<_>>>()?)))
}

fn integers_scaled(shapes: &[&[usize]]) -> Result<ErrorCase> {
    let zeros = shapes.iter().map(|shape| Tensor::zeros_with(*shape, DType::I64).map(Into::into));
    let call = Sample::new(zeros.collect::<Result<Vec<_>>>()?).with("alpha", 0.5);
    Ok(ErrorCase::new("a fraction of integers", &["alpha must be an integer", "i64", "0.5"], call))
}

fn dot_samples() -> Result<Vec<Sample>> {
    two(&[(&[5], &[5]), (&[1], &[1]), (&[0], &[0])])
}

fn dot_errors() -> Result<Vec<ErrorCase>> {
    let mut all = vec![refused("sizes", &["[2]", "[3]"], &[&[2], &[3]])?];
    all.extend(vector_errors()?);
    Ok(all)
}

fn vector_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("a matrix", &["[2, 3]", "a vector"], &[&[2, 3], &[3]])?,
        refused("a number", &["[]", "a vector"], &[&[3], &[]])?,
    ])
}

fn inner_samples() -> Result<Vec<Sample>> {
    two(&[(&[3], &[3]), (&[2, 3], &[3]), (&[2, 3], &[2, 4, 3]), (&[], &[2, 3]), (&[2], &[]), (&[2, 0], &[3, 0])])
}

fn inner_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![refused("sizes", &["[2, 3]", "[2, 2]", "3 and 2"], &[&[2, 3], &[2, 2]])?])
}

fn outer_samples() -> Result<Vec<Sample>> {
    two(&[(&[3], &[2]), (&[1], &[4]), (&[0], &[3])])
}

fn mv_samples() -> Result<Vec<Sample>> {
    two(&[(&[2, 3], &[3]), (&[1, 1], &[1]), (&[3, 0], &[0]), (&[0, 3], &[3])])
}

fn mv_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("sizes", &["[2, 3]", "[2]", "3 and 2"], &[&[2, 3], &[2]])?,
        refused("a matrix", &["[3, 2]", "a vector"], &[&[2, 3], &[3, 2]])?,
        refused("a vector", &["[3]", "a matrix"], &[&[3], &[3]])?,
    ])
}

fn mm_samples() -> Result<Vec<Sample>> {
    two(&[(&[2, 3], &[3, 4]), (&[9, 17], &[17, 5]), (&[2, 0], &[0, 3]), (&[0, 3], &[3, 2])])
}

fn mm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("sizes", &["[2, 3]", "[2, 3]", "3 and 2"], &[&[2, 3], &[2, 3]])?,
        refused("a vector", &["[3]", "a matrix"], &[&[2, 3], &[3]])?,
    ])
}

fn bmm_samples() -> Result<Vec<Sample>> {
    two(&[(&[2, 2, 3], &[2, 3, 4]), (&[1, 3, 1], &[1, 1, 2]), (&[0, 2, 3], &[0, 3, 2]), (&[2, 2, 0], &[2, 0, 3])])
}

fn bmm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("batches", &["1 and 2"], &[&[1, 2, 3], &[2, 3, 2]])?,
        refused("sizes", &["3 and 4"], &[&[2, 2, 3], &[2, 4, 2]])?,
        refused("a matrix", &["[3, 2]", "a 3-D batch"], &[&[2, 2, 3], &[3, 2]])?,
    ])
}

fn addmm_samples() -> Result<Vec<Sample>> {
    three(&[
        [&[2, 4], &[2, 3], &[3, 4]],
        [&[4], &[2, 3], &[3, 4]],
        [&[], &[2, 3], &[3, 4]],
        [&[2, 1], &[2, 0], &[0, 4]],
    ])
}

fn addmm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("sizes", &["3 and 2"], &[&[2, 2], &[2, 3], &[2, 2]])?,
        refused("the other tensor", &["[3]", "[2, 2]"], &[&[3], &[2, 3], &[3, 2]])?,
        integers_scaled(&[&[2, 2], &[2, 2], &[2, 2]])?,
    ])
}

fn addmv_samples() -> Result<Vec<Sample>> {
    three(&[[&[2], &[2, 3], &[3]], [&[], &[2, 3], &[3]], [&[1], &[2, 0], &[0]]])
}

fn addmv_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![refused("sizes", &["3 and 2"], &[&[2], &[2, 3], &[2]])?, integers_scaled(&[&[2], &[2, 2], &[2]])?])
}

fn addr_samples() -> Result<Vec<Sample>> {
    three(&[[&[2, 3], &[2], &[3]], [&[3], &[2], &[3]], [&[2, 0], &[2], &[0]]])
}

fn addr_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("a matrix", &["[2, 2]", "a vector"], &[&[2, 3], &[2, 2], &[3]])?,
        integers_scaled(&[&[2, 2], &[2], &[2]])?,
    ])
}

fn addbmm_samples() -> Result<Vec<Sample>> {
    three(&[[&[2, 4], &[3, 2, 3], &[3, 3, 4]], [&[4], &[2, 2, 3], &[2, 3, 4]], [&[2, 4], &[0, 2, 3], &[0, 3, 4]]])
}

fn addbmm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("batches", &["1 and 2"], &[&[2, 2], &[1, 2, 3], &[2, 3, 2]])?,
        integers_scaled(&[&[2, 2], &[2, 2, 2], &[2, 2, 2]])?,
    ])
}

fn baddbmm_samples() -> Result<Vec<Sample>> {
    three(&[[&[2, 2, 4], &[2, 2, 3], &[2, 3, 4]], [&[2, 1], &[2, 2, 3], &[2, 3, 4]], [&[4], &[2, 2, 0], &[2, 0, 4]]])
}

fn baddbmm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        refused("batches", &["1 and 2"], &[&[2, 2], &[1, 2, 3], &[2, 3, 2]])?,
        integers_scaled(&[&[2, 2, 2], &[2, 2, 2], &[2, 2, 2]])?,
    ])
}
