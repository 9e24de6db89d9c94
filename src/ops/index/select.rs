//! Reading and writing elements by flat index, by mask, or by an index of several tensors.

use crate::backend::spec::IndexFold;
use crate::error::bail;
use crate::layout::Dims;
use crate::layout::broadcast;
use crate::ops::index::gather::{as_indices, gather};
use crate::ops::index::scatter::fold_at;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::shape::repeat::one_dim;
use crate::options::PadOptions;
use crate::options::options;
use crate::tensor::{Index, integers, put_index, true_indices};
use crate::{DType, Result, Shape, Tensor};

options! {
    /// The options of [`Tensor::put_with`] and [`Tensor::index_put_with`]. A bool is taken as `accumulate`.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::PutOptions};
    /// let (x, index) = (Tensor::ones([2])?, tensor!([1, 1])?);
    /// let y = x.put_with(&index, &tensor!([2.0, 3.0])?, PutOptions::new().accumulate(true))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PutOptions {
        /// Whether the new elements are added to the existing ones instead of replacing them.
        accumulate: bool = false,
    }
}

impl From<bool> for PutOptions {
    fn from(accumulate: bool) -> PutOptions {
        PutOptions::new().accumulate(accumulate)
    }
}

impl PutOptions {
    fn fold(&self) -> IndexFold {
        if self.accumulate { IndexFold::Add } else { IndexFold::Replace }
    }
}

/// A tensor and its mask, broadcast to one shape.
fn with_mask(op: &'static str, x: &Tensor, mask: &Tensor) -> Result<(Tensor, Tensor)> {
    if mask.dtype() != DType::Bool {
        bail!(DType, op, "mask must be bool, got {}", mask.dtype());
    }
    crate::backend::common_device(op, x.device(), [mask.device()])?;
    let shape = broadcast(op, &[x.layout().shape(), mask.layout().shape()])?;
    Ok((x.expand(&shape)?, mask.expand(&shape)?))
}

/// The flat indices of the true elements of a mask.
fn true_numbers(op: &'static str, mask: &Tensor) -> Result<Tensor> {
    let numbers = true_indices(op, mask, &mask.numel().into())?;
    numbers.reshape([numbers.numel()])
}

/// # Searching and selecting
#[ops]
impl Tensor {
    /// The elements at the given flat indices, in row-major order, with the shape of the index. Negative indices count
    /// from the end. [`index_select`](Self::index_select), which the array API calls `take`, selects along a dimension.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.take(&tensor!([3, 0, -2])?)?.to_vec::<i64>()?, [4, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range or not an integer.
    #[op(samples = take_samples, errors = take_errors)]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let index = &as_indices("take", index)?;
        let flat = self.flatten(0, -1)?;
        let index = integers("take", &flat, 0, index)?.swap_remove(0);
        let numbers = index.flatten(0, -1)?;
        gather("take", &flat, 0, &numbers, numbers.layout().shape())?.reshape(index.shape())
    }

    /// [`gather`](Self::gather) with broadcasting in the other dimensions, and negative indices that count from the
    /// end. Without a dimension (`..`), as [`take`](Self::take). It applies the indices of a sort.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[3, 1, 2], [4, 6, 5]])?;
    /// let (_, order) = x.sort(1)?;
    /// assert_eq!(x.take_along_dim(&order, 1)?.to_vec::<i64>()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range, not an integer, or the shapes do not broadcast.
    #[op(samples = take_along_samples, errors = take_along_errors)]
    pub fn take_along_dim(&self, indices: &Tensor, #[default(..)] dim: impl Into<Dims>) -> Result<Tensor> {
        const OP: &str = "take_along_dim";
        if dim.named.is_none() {
            return self.take(&indices.flatten(0, -1)?);
        }
        if self.rank() != indices.rank() {
            bail!(Shape, OP, "indices must have the rank of shape {:?}, got shape {:?}", self.shape(), indices.shape());
        }
        let Some(dim) = one_dim(OP, &dim, self.rank())? else { return Ok(self.clone()) };
        let (own, other) = (self.layout().shape(), indices.layout().shape());
        let common = broadcast(OP, &[&own.with(dim, 1), &other.with(dim, 1)])?;
        let index = as_indices(OP, indices)?.expand(common.with(dim, other[dim]))?;
        let index = index.lt(0)?.where_(index.add(own[dim])?, &index)?;
        self.expand(common.with(dim, own[dim]))?.gather(dim, &index)
    }

    /// A copy of this tensor with the elements of `source` at the given flat indices, in row-major order. Negative
    /// indices count from the end. If an index repeats, the last element wins, or all are added up with the option.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.put(&tensor!([3, 0])?, &tensor!([1.0, 2.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range or not an integer, or `source` does not have as many elements as `index`.
    #[op(in_place, samples = put_samples, errors = put_errors)]
    pub fn put(&self, index: &Tensor, source: &Tensor, options: impl Into<PutOptions>) -> Result<Tensor> {
        let index = &as_indices("put", index)?;
        if index.numel() != source.numel() {
            bail!(
                Shape,
                "put",
                "source must have as many elements as index, got {} and {}",
                source.numel(),
                index.numel()
            );
        }
        let flat = self.flatten(0, -1)?;
        let numbers = integers("put", &flat, 0, &index.flatten(0, -1)?)?.swap_remove(0);
        fold_at("put", options.fold(), &flat, 0, &numbers, &source.flatten(0, -1)?)?.reshape(self.shape())
    }

    /// A copy of this tensor with `values`, which broadcast, in the part that an [`index`](Self::index) selects. If an
    /// element is selected more than once, the last value wins, or all are added up with the option.
    ///
    /// ```
    /// # use cotangent::{Tensor, s, tensor};
    /// let (rows, columns) = (tensor!([0, 1, 1])?, tensor!([2, 0, 0])?);
    /// let x = Tensor::zeros([2, 3])?.index_put_with(s![&rows, &columns], &tensor!([1.0, 2.0, 3.0])?, true)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 1.0, 5.0, 0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the index does not fit the tensor, the values do not broadcast to the part, or the dtypes differ.
    #[op(in_place, samples = index_put_samples, errors = index_put_errors)]
    pub fn index_put(
        &self,
        indices: impl Into<Index>,
        values: &Tensor,
        options: impl Into<PutOptions>,
    ) -> Result<Tensor> {
        if values.dtype() != self.dtype() {
            let (a, b) = (values.dtype(), self.dtype());
            bail!(DType, "index_put", "cannot write {a} into {b}: cast one of them first");
        }
        put_index("index_put", self, &indices, values, options.fold())
    }

    /// The elements where a mask is true, as a vector in row-major order. The two broadcast.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1, 5], [6, 2]])?;
    /// assert_eq!(x.masked_select(&x.gt(3)?)?.to_vec::<i64>()?, [5, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the mask is not a bool tensor, or the shapes do not broadcast.
    #[op(samples = masked_select_samples, errors = mask_errors)]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let (x, mask) = with_mask("masked_select", self, mask)?;
        let numbers = true_numbers("masked_select", &mask)?;
        gather("masked_select", &x.flatten(0, -1)?, 0, &numbers, numbers.layout().shape())
    }

    /// A copy of this tensor with the elements of `source`, in row-major order, where a mask is true. Tensor and mask
    /// broadcast.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (x, mask) = (tensor!([1, 2, 3])?, tensor!([true, false, true])?);
    /// assert_eq!(x.masked_scatter(&mask, &tensor!([7, 8, 9])?)?.to_vec::<i64>()?, [7, 2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the mask is not a bool tensor, the shapes do not broadcast, or the source has another dtype or too few elements.
    #[op(in_place, samples = masked_scatter_samples, errors = masked_scatter_errors)]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        const OP: &str = "masked_scatter";
        let (x, mask) = with_mask(OP, self, mask)?;
        let numbers = true_numbers(OP, &mask)?;
        if source.numel() < numbers.numel() {
            bail!(Shape, OP, "source must have at least {} elements, got {}", numbers.numel(), source.numel());
        }
        let used = source.flatten(0, -1)?.narrow(0, 0, numbers.numel())?;
        fold_at(OP, IndexFold::Replace, &x.flatten(0, -1)?, 0, &numbers, &used)?.reshape(x.shape())
    }

    /// The indices of all nonzero elements, one per row, in row-major order. On a GPU this synchronizes, to learn the
    /// count.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[0, 7], [8, 0]])?;
    /// assert_eq!(x.nonzero()?.to_vec::<i64>()?, [0, 1, 1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[doc(alias = "argwhere")]
    #[op(samples = nonzero_samples, derivative = none, aliases = ["argwhere"])]
    pub fn nonzero(&self) -> Result<Tensor> {
        let x = self.detach();
        let mask = if x.dtype() == DType::Bool { x } else { x.ne(0)? };
        Ok(true_indices("nonzero", &mask, self.layout().shape())?.record_barrier("nonzero", &[self]))
    }

    /// Converts flat indices, in row-major order, into one index tensor per dimension of a shape.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let places = tensor!([5, 2])?.unravel_index([2, 3])?;
    /// assert_eq!(places[0].to_vec::<i64>()?, [1, 0]);
    /// assert_eq!(places[1].to_vec::<i64>()?, [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not integers, or a size is 0.
    #[op(samples = unravel_samples, errors = unravel_errors, outputs = [tensors], derivative = none)]
    pub fn unravel_index(&self, shape: impl Into<Shape>) -> Result<Vec<Tensor>> {
        let mut numbers = as_indices("unravel_index", self)?;
        let mut positions = Vec::with_capacity(shape.len());
        for &size in shape.iter().rev() {
            let Some(size) = i64::try_from(size).ok().filter(|&size| size > 0) else {
                bail!(Shape, "unravel_index", "shape must have positive sizes, got {shape:?}");
            };
            let quotient = numbers.div_with(size, crate::options::Rounding::Floor)?;
            positions.push(numbers.sub(&quotient.mul(size)?)?);
            numbers = quotient;
        }
        positions.reverse();
        Ok(positions)
    }

    /// [`nonzero`](Self::nonzero) with a fixed number of rows: excess rows are dropped, missing ones are filled with a
    /// value.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([0, 5, 6])?.nonzero_static(3, -1)?.to_vec::<i64>()?, [1, 2, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = nonzero_static_samples, errors = nonzero_static_errors, derivative = none)]
    pub fn nonzero_static(&self, size: usize, #[default(-1)] fill_value: i64) -> Result<Tensor> {
        let found = self.nonzero()?;
        let n = found.shape()[0];
        if n >= size {
            return found.narrow(0, 0, size);
        }
        let Ok(missing) = isize::try_from(size - n) else {
            bail!(Shape, "nonzero_static", "size is too large, got {size}");
        };
        found.pad_with(&[0, 0, 0, missing], PadOptions::new().value(fill_value))
    }
}

fn take_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3], -2.0, 2.0)?, ints(&[5, 0, 0, -1], [2, 2])?],
        sample![spread([4], -2.0, 2.0)?, ints(&[2], [])?.to_dtype(DType::I32)?],
        sample![spread([], -2.0, 2.0)?, ints(&[0, -1], [2])?],
        sample![spread([2, 3], -2.0, 2.0)?, ints(&[], [0, 2])?].zero_derivative(),
    ])
}

fn take_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["an index too large", "6"; sample![x()?, ints(&[0, 6], [2])?]],
        error!["an index too small", "-7"; sample![x()?, ints(&[-7], [1])?]],
        error!["indices of floats", "integers", "f64"; sample![x()?, normal([2], 1)?]],
        error!["bools", "integers", "bool"; sample![x()?, normal([2], 1)?.gt(0.0)?]],
    ])
}

fn take_along_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3], -2.0, 2.0)?, ints(&[2, 0, 1, 1], [2, 2])?, 1],
        sample![spread([2, 3], -2.0, 2.0)?, ints(&[1, 0, 1], [3, 1])?, -2],
        sample![spread([1, 3], -2.0, 2.0)?, ints(&[2, 0], [2, 1])?, 1],
        sample![spread([2, 3], -2.0, 2.0)?, ints(&[5, 0, 3, 3], [2, 2])?],
        sample![spread([3], -2.0, 2.0)?, ints(&[], [0])?, 0].zero_derivative(),
    ])
}

fn take_along_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["an index too large", "index 3", "size 3"; sample![x()?, ints(&[3, 0], [2, 1])?, 1]],
        error!["another rank", "[2]", "[2, 3]"; sample![x()?, ints(&[0, 1], [2])?, 1]],
        error!["shapes that do not broadcast", "2", "3"; sample![x()?, ints(&[0, 1, 0], [3, 1])?, 1]],
        error!["indices of floats", "integers", "f64"; sample![x()?, x()?, 1]],
    ])
}

fn put_samples() -> Result<Vec<Sample>> {
    let (x, src) = (|| spread([2, 3], -2.0, 2.0), || spread([4], 1.0, 2.0));
    Ok(vec![
        sample![x()?, ints(&[5, 0, 1, -2], [4])?, src()?],
        sample![x()?, ints(&[5, 0, 5, 5], [2, 2])?, src()?],
        sample![x()?, ints(&[5, 0, 5, 5], [4])?, src()?; accumulate = true],
        sample![spread([], -2.0, 2.0)?, ints(&[0], [1])?, spread([1], 1.0, 2.0)?],
        sample![x()?, ints(&[], [0])?, spread([0], 1.0, 2.0)?],
    ])
}

fn put_errors() -> Result<Vec<ErrorCase>> {
    let (x, src) = (|| normal([2, 3], 1), || normal([2], 1));
    Ok(vec![
        error!["an index too large", "6"; sample![x()?, ints(&[0, 6], [2])?, src()?]],
        error!["too few elements", "2", "3"; sample![x()?, ints(&[0, 1, 2], [3])?, src()?]],
        error!["indices of floats", "integers", "f64"; sample![x()?, src()?, src()?]],
        error!["another dtype", "f32", "f64"; sample![x()?, ints(&[0, 1], [2])?, src()?.to_dtype(DType::F32)?]],
    ])
}

fn index_put_samples() -> Result<Vec<Sample>> {
    use crate::s;
    let x = || spread([3, 4, 2], -2.0, 2.0);
    let (rows, columns) = (ints(&[2, 0, -1, 2], [4])?, ints(&[1, -4, 3, 1], [4])?);
    let values = |shape: &[usize]| spread(shape, 1.0, 2.0);
    let mask = spread([3, 4], -1.0, 1.0)?.gt(0.0)?;
    Ok(vec![
        sample![x()?, s![&rows, &columns], values(&[4, 2])?],
        sample![x()?, s![&rows, &columns], values(&[4, 2])?; accumulate = true],
        sample![x()?, s![&rows], values(&[4, 1])?; accumulate = true],
        sample![x()?, s![.., &columns], values(&[2])?; accumulate = true],
        sample![x()?, s![.., &columns, 1], values(&[3, 4])?],
        sample![x()?, s![&mask], values(&[])?],
        sample![x()?, s![1..], values(&[2, 4, 2])?],
        sample![x()?, s![&ints(&[], [0])?], values(&[0, 4, 2])?],
    ])
}

fn index_put_errors() -> Result<Vec<ErrorCase>> {
    use crate::s;
    let x = || normal([3, 4], 1);
    Ok(vec![
        error!["an index out of range", "3", "[3, 4]"; sample![x()?, s![&ints(&[0, 3], [2])?], normal([2, 4], 1)?]],
        error!["values of another shape", "[3]", "[2, 4]"; sample![x()?, s![&ints(&[0, 1], [2])?], normal([3], 1)?]],
        error!["another dtype", "i64", "f64"; sample![x()?, s![&ints(&[0, 1], [2])?], ints(&[1], [])?]],
    ])
}

fn masked_select_samples() -> Result<Vec<Sample>> {
    let mask = |shape: &[usize]| spread(shape, -1.0, 1.0)?.gt(0.0);
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, mask(&[3, 4])?],
        sample![spread([3, 4], -2.0, 2.0)?, mask(&[4])?],
        sample![spread([4], -2.0, 2.0)?, mask(&[3, 1])?],
        sample![spread([], -2.0, 2.0)?, ints(&[1], [])?.eq(1)?],
        sample![spread([3], -2.0, 2.0)?, ints(&[0, 0, 0], [3])?.eq(1)?].zero_derivative(),
        sample![spread([0], -2.0, 2.0)?, mask(&[0])?],
    ])
}

fn mask_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a mask of integers", "bool", "i64"; sample![normal([2], 1)?, ints(&[0, 1], [2])?]],
        error!["another shape", "[2]", "[3]"; sample![normal([2], 1)?, normal([3], 1)?.gt(0.0)?]],
    ])
}

fn masked_scatter_samples() -> Result<Vec<Sample>> {
    let mask = |shape: &[usize]| spread(shape, -1.0, 1.0)?.gt(0.0);
    let source = || spread([4, 3], 3.0, 4.0);
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, mask(&[3, 4])?, source()?],
        sample![spread([3, 4], -2.0, 2.0)?, mask(&[4])?, source()?],
        sample![spread([4], -2.0, 2.0)?, mask(&[3, 1])?, source()?],
        sample![spread([3], -2.0, 2.0)?, ints(&[0, 0, 0], [3])?.eq(1)?, source()?],
    ])
}

fn masked_scatter_errors() -> Result<Vec<ErrorCase>> {
    let mask = ints(&[1, 1, 0], [3])?.eq(1)?;
    Ok(vec![
        error!["a mask of integers", "bool", "i64"; sample![normal([3], 1)?, ints(&[0, 1, 1], [3])?, normal([3], 1)?]],
        error!["too few elements", "1", "2"; sample![normal([3], 1)?, &mask, normal([1], 1)?]],
        error!["another dtype", "f32", "f64"; sample![normal([3], 1)?, &mask, normal([3], 1)?.to_dtype(DType::F32)?]],
    ])
}

fn nonzero_samples() -> Result<Vec<Sample>> {
    let some = |shape: &[usize]| {
        let x = spread(shape, -1.0, 1.0)?;
        x.masked_fill(&x.lt(0.0)?, 0.0)
    };
    Ok(vec![
        sample![some(&[7])?],
        sample![some(&[3, 4])?],
        sample![some(&[2, 3, 2])?],
        sample![spread([], 1.0, 2.0)?],
        sample![some(&[0, 3])?],
        sample![ints(&[0, 3, 0, -1], [4])?],
        sample![ints(&[0, 3, 0, -1], [2, 2])?.ne(0)?],
    ])
}

fn unravel_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![ints(&[5, 0, 3], [3])?, [2, 3]],
        sample![ints(&[5, 11], [2, 1])?.to_dtype(DType::I32)?, [2, 3, 2]],
        sample![ints(&[3], [])?, 4],
    ])
}

fn unravel_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["floats", "integers", "f64"; sample![normal([2], 1)?, [2, 3]]],
        error!["no elements", "[2, 0]"; sample![ints(&[0], [1])?, [2, 0]]],
    ])
}

fn nonzero_static_samples() -> Result<Vec<Sample>> {
    let x = || ints(&[0, 5, 0, 6, 7, 0], [2, 3]);
    Ok(vec![sample![x()?, 2], sample![x()?, 5], sample![x()?, 4; fill_value = 9], sample![spread([3], 1.0, 2.0)?, 0]])
}

fn nonzero_static_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["too many rows", "nonzero_static"; sample![ints(&[0, 1], [2])?, isize::MAX as usize]]])
}
