//! Views: the same elements under another shape, without a copy.
//!
//! A view shares the storage of its tensor and has its own offset and strides; the layout module computes them. Views
//! are recorded and differentiated like other operations.

use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::layout::{Dim, Dims, Sizes};
use crate::layout::{Ints, Layout, resolve_dim, resolve_dim_or_scalar, resolve_dims};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::{Result, Tensor};
use smallvec::{SmallVec, smallvec};

/// A view of all elements in the same order; the cotangent is reshaped to the shape of the input.
#[track_caller]
fn reshaped(op: &'static str, x: &Tensor, layout: Layout) -> Result<Tensor> {
    x.with_layout(layout).record(op, &[x], |_| {
        let shape = x.layout().shape().clone();
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.reshape(&shape)?)])
    })
}

#[track_caller]
fn transposed(op: &'static str, x: &Tensor, dim0: isize, dim1: isize) -> Result<Tensor> {
    let layout = x.layout().transpose(op, dim0, dim1)?;
    x.with_layout(layout)
        .record(op, &[x], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.transpose(dim0, dim1)?)]))
}

/// # Permuting and expanding
#[ops]
impl Tensor {
    /// Permutes the dimensions.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3, 4])?;
    /// assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension is missing, named twice or does not exist.
    #[doc(alias = "permute_dims")]
    #[op(samples = permute_samples, errors = permute_errors, aliases = ["permute_copy", "permute_dims"], view)]
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims: Ints = dims.named.unwrap_or_else(|| (0..self.rank() as isize).collect());
        let layout = self.layout().permute("permute", &dims)?;
        let order = self.layout().permutation("permute", &dims)?;
        self.with_layout(layout).record("permute", &[self], |_| {
            let mut inverse = Ints::from_elem(0, order.len());
            for (to, &from) in order.iter().enumerate() {
                inverse[from] = to as isize;
            }
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.permute(&inverse[..])?)])
        })
    }

    /// Exchanges two dimensions. A 0-dimensional tensor is returned unchanged for the dimensions 0 and -1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.transpose(0, -1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of the dimensions does not exist.
    #[doc(alias = "swapaxes")]
    #[doc(alias = "swapdims")]
    #[op(samples = transpose_samples, errors = transpose_errors, aliases = ["transpose_copy", "swapaxes", "swapdims"], view)]
    pub fn transpose(&self, dim0: impl Into<Dim>, dim1: impl Into<Dim>) -> Result<Tensor> {
        if self.rank() == 0 {
            resolve_dim_or_scalar("transpose", dim0.0, 0)?;
            resolve_dim_or_scalar("transpose", dim1.0, 0)?;
            return Ok(self.clone());
        }
        transposed("transpose", self, dim0.0, dim1.0)
    }

    /// The transpose of a matrix; vectors and 0-dimensional tensors are unchanged.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.t()?.shape(), [3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more than two dimensions.
    #[doc(alias = "T")]
    #[op(samples = || samples(&[&[2, 3], &[0, 3], &[3], &[]], |x| sample![x]),
        errors = || Ok(vec![error!["three dimensions", "[2, 3, 4]", "transpose"; sample![normal([2, 3, 4], 1)?]]]), aliases = ["t_copy", "T"], view)]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => transposed("t", self, 0, 1),
            _ => bail!(Shape, "t", "input must have at most 2 dimensions, got shape {:?}: use transpose", self.shape()),
        }
    }

    /// The same elements with another shape, never a copy. One size may be -1, and is inferred.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 6)?;
    /// assert_eq!(x.view([2, -1])?.shape(), [2, 3]);
    /// assert!(x.view([2, 3])?.t()?.view([6]).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs, or no strides can express the shape; [`reshape`](Self::reshape) then makes a copy.
    #[op(samples = view_samples, errors = view_errors, view, reads_layout, aliases = ["view_copy"])]
    pub fn view(&self, shape: impl Into<Sizes>) -> Result<Tensor> {
        let shape = self.layout().resolve_sizes("view", &shape)?;
        let Some(layout) = self.layout().reshape(&shape) else {
            let (from, strides) = (self.shape(), self.strides());
            bail!(
                Shape,
                "view",
                "cannot view shape {from:?} with strides {strides:?} as {shape:?} without a copy: use reshape"
            );
        };
        reshaped("view", self, layout)
    }

    /// The same elements with another shape. One size may be -1, and is inferred. It is a copy only if no strides can
    /// express the shape.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.t()?.reshape(-1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs.
    #[op(samples = reshape_samples, errors = reshape_errors)]
    pub fn reshape(&self, shape: impl Into<Sizes>) -> Result<Tensor> {
        let shape = self.layout().resolve_sizes("reshape", &shape)?;
        if let Some(layout) = self.layout().reshape(&shape) {
            return reshaped("reshape", self, layout);
        }
        let copy = self.copied("reshape")?.with_layout(Layout::contiguous(shape));
        copy.record("reshape", &[self], |_| {
            let shape = self.layout().shape().clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.reshape(&shape)?)])
        })
    }

    /// Merges the dimensions from `start_dim` to `end_dim`, both included. It is a copy only if
    /// [`reshape`](Self::reshape) needs one. A 0-dimensional tensor becomes a vector.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4])?.flatten(1, -1)?.shape(), [2, 12]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of the dimensions does not exist, or `end_dim` comes before `start_dim`.
    #[doc(alias = "ravel")]
    #[op(samples = flatten_samples, errors = flatten_errors, aliases = ["ravel"])]
    pub fn flatten(
        &self,
        #[default(0)] start_dim: impl Into<Dim>,
        #[default(-1)] end_dim: impl Into<Dim>,
    ) -> Result<Tensor> {
        let (Dim(start), Dim(end)) = (start_dim, end_dim);
        let rank = self.rank().max(1);
        let (from, to) = (resolve_dim("flatten", start, rank)?, resolve_dim("flatten", end, rank)?);
        if from > to {
            bail!(
                Index,
                "flatten",
                "start_dim must not come after end_dim, got {start} and {end} for shape {:?}",
                self.shape()
            );
        }
        let shape = self.shape();
        let mut sizes: SmallVec<[usize; 5]> = SmallVec::from_slice(&shape[..from]);
        sizes.push(shape[from..shape.len().min(to + 1)].iter().product());
        sizes.extend_from_slice(shape.get(to + 1..).unwrap_or(&[]));
        self.reshape(&sizes[..])
    }

    /// Removes dimensions of size 1: all of them (`..`), or the given ones. Given dimensions of another size are kept.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([1, 3, 1])?;
    /// assert_eq!(x.squeeze(..)?.shape(), [3]);
    /// assert_eq!(x.squeeze(-1)?.shape(), [1, 3]);
    /// assert_eq!(x.squeeze([0, 1])?.shape(), [3, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist or is named twice.
    #[op(samples = squeeze_samples, errors = squeeze_errors, view, aliases = ["squeeze_copy"])]
    pub fn squeeze(&self, #[default(..)] dim: impl Into<Dims>) -> Result<Tensor> {
        let dims = resolve_dims("squeeze", &dim, self.rank())?;
        reshaped("squeeze", self, self.layout().squeeze(&dims))
    }

    /// Inserts a dimension of size 1 at `dim`, which may be one past the last.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.unsqueeze(-1)?.shape(), [2, 3, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `dim` is out of range.
    #[doc(alias = "expand_dims")]
    #[doc(alias = "newaxis")]
    #[op(samples = unsqueeze_samples, errors = unsqueeze_errors, aliases = ["unsqueeze_copy", "expand_dims"], view)]
    pub fn unsqueeze(&self, dim: impl Into<Dim>) -> Result<Tensor> {
        reshaped("unsqueeze", self, self.layout().unsqueeze("unsqueeze", dim.0)?)
    }

    /// Expands dimensions of size 1, and adds leading ones, without a copy. -1 keeps a size.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1], [2]])?;
    /// assert_eq!(x.expand([-1, 3])?.to_vec::<i64>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size other than 1 would change.
    #[doc(alias = "broadcast_to")]
    #[op(samples = expand_samples, errors = expand_errors, aliases = ["expand_copy", "broadcast_to"], view)]
    pub fn expand(&self, size: impl Into<Sizes>) -> Result<Tensor> {
        let layout = self.layout().expand("expand", &size)?;
        // The engine reduces a cotangent to the shape of its tensor.
        self.with_layout(layout)
            .record("expand", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }
}

/// One sample per shape.
pub(in crate::ops) fn samples(shapes: &[&[usize]], call: fn(Tensor) -> Sample) -> Result<Vec<Sample>> {
    shapes.iter().map(|&shape| Ok(call(spread(shape, -2.0, 2.0)?))).collect()
}

fn permute_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4], &[2, 0, 3]], |x| sample![x, [2, 0, 1]])?;
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x, [-1, -2, 0]])?);
    all.extend(samples(&[&[], &[2, 3]], |x| sample![x, ()])?);
    Ok(all)
}

fn permute_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3, 4], 1)?;
    Ok(vec![
        error!["too few dimensions", "[0, 1]", "[2, 3, 4]"; sample![&x, [0, 1]]],
        error!["a dimension twice", "-2", "twice"; sample![&x, [0, 1, -2]]],
        error!["no such dimension", "3"; sample![&x, [0, 1, 3]]],
    ])
}

fn transpose_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4], &[2, 3, 0], &[3], &[]], |x| sample![x, 0, -1])?;
    all.extend(samples(&[&[2, 3]], |x| sample![x, 1, 1])?);
    Ok(all)
}

fn transpose_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 0, 2]],
        error!["no such dimension of a single number", "1", "rank 0"; sample![normal([], 1)?, 0, 1]],
    ])
}

fn view_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4]], |x| sample![x, [4, -1]])?;
    all.extend(samples(&[&[2, 6]], |x| sample![x, [2, 3, -1, 1]])?);
    all.extend(samples(&[&[1, 1], &[]], |x| sample![x, []])?);
    all.extend(samples(&[&[2, 0]], |x| sample![x, [0, 7]])?);
    Ok(all)
}

fn view_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["strides that cannot say it", "[3, 2]", "[6]", "use reshape"; sample![x.t()?, [6]]],
        error!["another number of elements", "[2, 3]", "[7]"; sample![&x, [7]]],
    ])
}

fn reshape_samples() -> Result<Vec<Sample>> {
    let mut all = view_samples()?;
    // This one takes a copy.
    all.push(sample![spread([2, 3, 4], -2.0, 2.0)?.transpose(0, 1)?, [2, 12]]);
    Ok(all)
}

fn reshape_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another number of elements", "[2, 3]", "[-1, 4]", "6"; sample![&x, [-1, 4]]],
        error!["two open sizes", "[-1, -1]"; sample![&x, [-1, -1]]],
        error!["a negative size", "[-2, -3]"; sample![&x, [-2, -3]]],
    ])
}

fn flatten_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4], &[2, 0], &[3], &[]], |x| sample![x])?;
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x, -2, 2])?);
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x; start_dim = 1])?);
    // This one takes a copy.
    all.push(sample![spread([2, 3, 4], -2.0, 2.0)?.transpose(0, 1)?, 0, 1]);
    Ok(all)
}

fn flatten_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["end before start", "0", "1", "[2, 3]"; sample![&x, 1, 0]],
        error!["no such dimension", "2"; sample![&x, 0, 2]],
    ])
}

fn squeeze_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[1, 3, 1], &[2, 3], &[1], &[], &[1, 0]], |x| sample![x])?;
    all.extend(samples(&[&[1, 3, 1], &[2, 1, 3], &[2, 0], &[]], |x| sample![x, -1])?);
    all.extend(samples(&[&[1, 3, 1]], |x| sample![x, [0, 1, 2]])?);
    Ok(all)
}

fn squeeze_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2"; sample![&x, 2]],
        error!["a dimension twice", "-1", "twice"; sample![&x, [1, -1]]],
    ])
}

fn unsqueeze_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[3], &[], &[0]], |x| sample![x, -1])?;
    all.extend(samples(&[&[2, 3]], |x| sample![x, 1])?);
    Ok(all)
}

fn unsqueeze_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such place", "3", "[2, 3]"; sample![normal([2, 3], 1)?, 3]]])
}

fn expand_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 1], &[1, 3], &[3], &[1], &[]], |x| sample![x, [2, 3]])?;
    all.extend(samples(&[&[2, 1, 3]], |x| sample![x, [4, -1, 5, -1]])?);
    all.extend(samples(&[&[1, 3]], |x| sample![x, [0, 3]].zero_derivative())?);
    Ok(all)
}

fn expand_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another size", "[2, 3]", "[2, 4]"; sample![&x, [2, 4]]],
        error!["fewer dimensions", "[2, 3]", "[3]"; sample![&x, [3]]],
        error!["an open leading size", "[3]", "[-1, 3]"; sample![normal([3], 1)?, [-1, 3]]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_single_number_has_no_dimensions_to_exchange() -> Result<()> {
        let x = Tensor::from_vec(vec![3.0], ())?;
        assert!(x.transpose(0, -1)?.is_same(&x));
        let refused = x.transpose(-2, 0).map_err(|e| e.to_string());
        assert_eq!(refused.err().as_deref(), Some("transpose: dimension -2 is out of range for rank 0"));
        Ok(())
    }

    #[test]
    fn defaults_are_pytorchs() -> Result<()> {
        let x = Tensor::zeros([1, 2, 1, 3])?;
        for (name, shape) in [("squeeze", &[2, 3][..]), ("flatten", &[6])] {
            let op = OPS.iter().find(|op| op.name == name).ok_or_else(|| crate::error::err!(Value, name, "missing"))?;
            assert_eq!(op.call(&op.bind(&[(&x).into()], &[])?)?[0].shape(), shape, "{name}");
        }
        Ok(())
    }
}
