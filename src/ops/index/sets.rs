//! Tensors as sets: distinct elements, and membership.

use crate::backend::order_rows;
use crate::backend::sort_integers;
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::resolve_dim;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::tensor::where_true;
use crate::{DType, Device, Result, Tensor};

options! {
    /// The options of [`Tensor::unique_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::UniqueOptions};
    /// let rows = tensor!([[1, 2], [0, 1], [1, 2]])?.unique_with(UniqueOptions::new().dim(Some(0.into())))?;
    /// assert_eq!(rows.to_vec::<i64>()?, [0, 1, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UniqueOptions {
        /// Whether the values must be in ascending order. They always are.
        sorted: bool = true,
        /// The dimension whose slices are compared; `None` compares elements.
        dim: Option<Dim> = None,
    }
}

options! {
    /// The options of [`Tensor::unique_all_with`] and similar methods. A dimension can be given in their place.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let (rows, counts) = tensor!([[1, 2], [0, 1], [1, 2]])?.unique_counts_with(0)?;
    /// assert_eq!((rows.to_vec::<i64>()?, counts.to_vec::<i64>()?), (vec![0, 1, 1, 2], vec![1, 2]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UniqueDimOptions {
        /// The dimension whose slices are compared; `None` compares elements.
        dim: Option<Dim> = None,
    }
}

impl From<i32> for UniqueDimOptions {
    fn from(dim: i32) -> UniqueDimOptions {
        UniqueDimOptions::new().dim(Some(Dim::from(dim)))
    }
}

options! {
    /// The options of [`Tensor::unique_outputs_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::UniqueOutputsOptions};
    /// let options = UniqueOutputsOptions::new().return_inverse(true);
    /// assert_eq!(tensor!([3, 1, 3])?.unique_outputs_with(options)?[1].to_vec::<i64>()?, [1, 0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UniqueOutputsOptions {
        /// Whether the values must be in ascending order. They always are.
        sorted: bool = true,
        /// Whether to return, for each element, the index of its value.
        return_inverse: bool = false,
        /// Whether to return the count of each value.
        return_counts: bool = false,
        /// The dimension whose slices are compared; `None` compares elements.
        dim: Option<Dim> = None,
    }
}

options! {
    /// The options of [`Tensor::unique_consecutive_outputs_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::UniqueConsecutiveOptions};
    /// let options = UniqueConsecutiveOptions::new().return_counts(true);
    /// assert_eq!(tensor!([3, 3, 1])?.unique_consecutive_outputs_with(options)?[1].to_vec::<i64>()?, [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UniqueConsecutiveOptions {
        /// Whether to return, for each element, the index of its run.
        return_inverse: bool = false,
        /// Whether to return the length of each run.
        return_counts: bool = false,
        /// The dimension whose slices are compared; `None` compares elements.
        dim: Option<Dim> = None,
    }
}

options! {
    /// The options of [`Tensor::isin_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::IsinOptions};
    /// let x = tensor!([1, 2, 3])?.isin_with(&tensor!([2])?, IsinOptions::new().invert(true))?;
    /// assert_eq!(x.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct IsinOptions {
        /// Whether both tensors have distinct elements. It has no effect.
        assume_unique: bool = false,
        /// Whether to return the negation.
        invert: bool = false,
    }
}

/// Elements, or slices along a dimension, grouped into runs of equal ones.
struct Groups {
    /// The elements or slices, in grouped order.
    parts: Tensor,
    dim: usize,
    /// For each part, whether it differs from its predecessor: a vector.
    new: Tensor,
    /// The original index of each part; `None` if the order is unchanged.
    order: Option<Tensor>,
}

impl Groups {
    /// Groups of equal parts in ascending order if `sorted`, else runs of equal neighbours in the given order.
    fn new(op: &'static str, x: &Tensor, dim: Option<Dim>, sorted: bool) -> Result<Groups> {
        let x = x.private()?.detach();
        let Some(dim) = dim else {
            let flat = x.flatten(0, -1)?;
            let (parts, order) = if sorted {
                let (values, order) = flat.sort(0)?;
                (values, Some(order))
            } else {
                (flat, None)
            };
            let new = different(&parts.reshape([-1, 1])?)?;
            return Ok(Groups { parts, dim: 0, new, order });
        };
        // Running out of memory is reported before anything is compared.
        let (dim, x) = (resolve_dim(op, dim.0, x.rank())?, x.contiguous()?);
        let n = x.shape()[dim];
        if x.shape().iter().enumerate().any(|(d, &size)| d != dim && size == 0) {
            bail!(Shape, op, "slices along dimension {dim} must not be empty, got shape {:?}", x.shape());
        }
        let rows = x.transpose(0, dim)?.reshape([n, x.numel().checked_div(n).unwrap_or(0)])?;
        if !sorted {
            return Ok(Groups { new: different(&rows)?, parts: x, dim, order: None });
        }
        let order = Tensor::build(op, [n].into(), DType::I64, x.device(), |out| order_rows(op, rows.as_view()?, out))?;
        let new = different(&rows.index_select(0, &order)?)?;
        Ok(Groups { parts: x.index_select(dim, &order)?, dim, new, order: Some(order) })
    }

    /// One part of each group.
    fn values(&self) -> Result<Tensor> {
        self.parts.index_select(self.dim, &self.starts()?)
    }

    /// The distinct elements in ascending order, without inverse or counts.
    fn values_of(op: &'static str, x: &Tensor, dim: Option<Dim>) -> Result<Tensor> {
        if dim.is_some() || x.dtype() != DType::I64 || x.device() != Device::Cpu || u32::try_from(x.numel()).is_err() {
            return Groups::new(op, x, dim, true)?.values();
        }
        let flat = x.private()?.detach().flatten(0, -1)?.contiguous()?;
        let sorted = Tensor::build(op, flat.layout().shape().clone(), DType::I64, Device::Cpu, |out| {
            let x = flat.as_view()?;
            sort_integers(op, x, out)
        })?;
        Groups { new: different(&sorted.reshape([-1, 1])?)?, parts: sorted, dim: 0, order: None }.values()
    }

    /// The start index of each group.
    fn starts(&self) -> Result<Tensor> {
        let Some(positions) = where_true("unique", &self.new)?.pop() else {
            bail!(Backend, "unique", "expected at least 1 dimension, got shape {:?}", self.new.shape());
        };
        Ok(positions)
    }

    /// The number of parts in each group.
    fn counts(&self) -> Result<Tensor> {
        let end = Tensor::filled("unique", [1].into(), self.new.numel().into(), DType::I64, self.new.device())?;
        Tensor::cat(&[&self.starts()?, &end], 0)?.diff()
    }

    /// For each part, in the original order, the index of its group.
    fn inverse(&self) -> Result<Tensor> {
        let groups = self.new.cumsum(0)?.sub(1)?;
        match &self.order {
            None => Ok(groups),
            Some(order) => groups.zeros_like()?.scatter_add(0, order, &groups),
        }
    }

    /// For each group, the original index of its first part.
    fn first(&self) -> Result<Tensor> {
        let starts = self.starts()?;
        self.order.as_ref().map_or_else(|| Ok(starts.clone()), |order| order.index_select(0, &starts))
    }
}

/// Whether each row differs from its predecessor. NaN differs from itself.
fn different(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape()[0];
    if n == 0 {
        return rows.reshape([0, 0])?.any(1);
    }
    let changed = rows.narrow(0, 1, n - 1)?.ne(rows.narrow(0, 0, n - 1)?)?;
    let changed = if rows.shape()[1] == 1 { changed.squeeze(1)? } else { changed.any(1)? };
    let first = Tensor::filled("unique", [1].into(), true.into(), DType::Bool, rows.device())?;
    Tensor::cat(&[&first, &changed], 0)
}

/// The inverse, in the shape of the tensor if elements were compared.
fn shaped(inverse: &Tensor, x: &Tensor, dim: Option<Dim>) -> Result<Tensor> {
    if dim.is_none() { inverse.reshape(x.shape()) } else { Ok(inverse.clone()) }
}

/// The values, and the requested further results.
fn outputs(
    op: &'static str,
    x: &Tensor,
    dim: Option<Dim>,
    sorted: bool,
    inverse: bool,
    counts: bool,
) -> Result<Vec<Tensor>> {
    let groups = Groups::new(op, x, dim, sorted)?;
    let mut all = vec![groups.values()?.record_barrier(op, &[x])];
    if inverse {
        all.push(shaped(&groups.inverse()?, x, dim)?);
    }
    if counts {
        all.push(groups.counts()?);
    }
    Ok(all)
}

/// # Unique values and sets
#[ops]
impl Tensor {
    /// The distinct elements in ascending order or, with a dimension, the distinct slices along it in lexicographic
    /// order. NaNs are all distinct. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::UniqueOptions};
    /// let x = tensor!([[3, 1], [1, 3], [3, 1]])?;
    /// assert_eq!(x.unique()?.to_vec::<i64>()?, [1, 3]);
    /// assert_eq!(x.unique_with(UniqueOptions::new().dim(Some(0.into())))?.to_vec::<i64>()?, [1, 3, 3, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the slices along it are empty.
    #[doc(alias = "unique_values")]
    #[op(name = "unique_values", samples = unique_samples, errors = unique_errors, derivative = none)]
    pub fn unique(&self, options: impl Into<UniqueOptions>) -> Result<Tensor> {
        let values = Groups::values_of("unique_values", self, options.dim)?;
        Ok(values.record_barrier("unique_values", &[self]))
    }

    /// The distinct elements, or slices, as [`unique`](Self::unique) gives them, and the count of each.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, counts) = tensor!([3, 1, 3])?.unique_counts()?;
    /// assert_eq!((values.to_vec::<i64>()?, counts.to_vec::<i64>()?), (vec![1, 3], vec![1, 2]));
    /// let (_, counts) = tensor!([[3, 1], [3, 1]])?.unique_counts_with(0)?;
    /// assert_eq!(counts.to_vec::<i64>()?, [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(samples = unique_samples, errors = unique_errors, derivative = none, outputs = [values, counts])]
    pub fn unique_counts(&self, options: impl Into<UniqueDimOptions>) -> Result<(Tensor, Tensor)> {
        let groups = Groups::new("unique_counts", self, options.dim, true)?;
        Ok((groups.values()?.record_barrier("unique_counts", &[self]), groups.counts()?))
    }

    /// The distinct elements, or slices, as [`unique`](Self::unique) gives them, and for each input element the index
    /// of its value among them.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, inverse) = tensor!([3, 1, 3])?.unique_inverse()?;
    /// assert_eq!((values.to_vec::<i64>()?, inverse.to_vec::<i64>()?), (vec![1, 3], vec![1, 0, 1]));
    /// let (_, inverse) = tensor!([[3, 1], [3, 1]])?.unique_inverse_with(0)?;
    /// assert_eq!(inverse.to_vec::<i64>()?, [0, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(samples = unique_samples, errors = unique_errors, derivative = none, outputs = [values, inverse_indices])]
    pub fn unique_inverse(&self, options: impl Into<UniqueDimOptions>) -> Result<(Tensor, Tensor)> {
        let groups = Groups::new("unique_inverse", self, options.dim, true)?;
        let inverse = shaped(&groups.inverse()?, self, options.dim)?;
        Ok((groups.values()?.record_barrier("unique_inverse", &[self]), inverse))
    }

    /// The distinct elements, or slices, as [`unique`](Self::unique) gives them; the index of the first occurrence of
    /// each; for each input element the index of its value among them; and the count of each.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices, inverse, counts) = tensor!([3, 1, 3])?.unique_all()?;
    /// assert_eq!((values.to_vec::<i64>()?, indices.to_vec::<i64>()?), (vec![1, 3], vec![1, 0]));
    /// assert_eq!((inverse.to_vec::<i64>()?, counts.to_vec::<i64>()?), (vec![1, 0, 1], vec![1, 2]));
    /// let (_, indices, _, _) = tensor!([[3, 1], [1, 3]])?.unique_all_with(1)?;
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(samples = unique_samples, errors = unique_errors, derivative = none,
        outputs = [values, indices, inverse_indices, counts])]
    pub fn unique_all(&self, options: impl Into<UniqueDimOptions>) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        let groups = Groups::new("unique_all", self, options.dim, true)?;
        let inverse = shaped(&groups.inverse()?, self, options.dim)?;
        let values = groups.values()?.record_barrier("unique_all", &[self]);
        Ok((values, groups.first()?, inverse, groups.counts()?))
    }

    /// Removes elements, or slices along a dimension, that equal their predecessor. Also returns, for each input
    /// element, the index of its run, and the length of each run.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, inverse, counts) = tensor!([1, 1, 3, 1])?.unique_consecutive()?;
    /// assert_eq!((values.to_vec::<i64>()?, counts.to_vec::<i64>()?), (vec![1, 3, 1], vec![2, 1, 1]));
    /// assert_eq!(inverse.to_vec::<i64>()?, [0, 0, 1, 2]);
    /// let (rows, _, _) = tensor!([[1, 2], [1, 2], [0, 2]])?.unique_consecutive_with(0)?;
    /// assert_eq!(rows.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(name = "unique_consecutive_all", samples = unique_samples, errors = unique_errors, derivative = none,
        outputs = [values, inverse_indices, counts])]
    pub fn unique_consecutive(&self, options: impl Into<UniqueDimOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        let groups = Groups::new("unique_consecutive_all", self, options.dim, false)?;
        let inverse = shaped(&groups.inverse()?, self, options.dim)?;
        let values = groups.values()?.record_barrier("unique_consecutive_all", &[self]);
        Ok((values, inverse, groups.counts()?))
    }

    /// True where an element occurs in `test_elements`. NaN never matches. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::IsinOptions};
    /// let x = tensor!([1, 2, 3])?;
    /// assert_eq!(x.isin(&tensor!([2, 5])?)?.to_vec::<bool>()?, [false, true, false]);
    /// assert_eq!(x.isin_with(2, IsinOptions::new().invert(true))?.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtypes have no common type.
    #[op(samples = isin_samples, errors = isin_errors, derivative = none)]
    pub fn isin<'a>(&self, test_elements: impl Into<Operand<'a>>, options: impl Into<IsinOptions>) -> Result<Tensor> {
        let tested = test_elements.compared(self.dtype(), self.device())?;
        let dtype = common_dtype("isin", self.dtype(), tested.dtype())?;
        let elements = self.detach().to_dtype(dtype)?;
        let Some(last) = tested.numel().checked_sub(1) else {
            let none = Tensor::scalar(options.invert.into(), DType::Bool, self.device())?;
            return Ok(none.expand(self.shape())?.contiguous()?.record_barrier("isin", &[self]));
        };
        let sorted = tested.detach().to_dtype(dtype)?.flatten(0, -1)?.sort(0)?.0;
        let positions = sorted.searchsorted(&elements)?.minimum(last)?;
        let nearest = sorted.index_select(0, &positions.flatten(0, -1)?)?.reshape(self.shape())?;
        let found = if options.invert { nearest.ne(&elements)? } else { nearest.eq(&elements)? };
        Ok(found.record_barrier("isin", &[self, &tested]))
    }

    /// The distinct elements, or slices, as [`unique`](Self::unique) gives them and, as options, for each input element
    /// the index of its value, and the count of each.
    ///
    /// ```
    /// # use cotangent::{tensor, options::UniqueOutputsOptions};
    /// let found = tensor!([3, 1, 3])?.unique_outputs_with(UniqueOutputsOptions::new().return_counts(true))?;
    /// assert_eq!((found[0].to_vec::<i64>()?, found[1].to_vec::<i64>()?), (vec![1, 3], vec![1, 2]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(name = "unique", samples = outputs_samples, errors = unique_errors, derivative = none, outputs = [tensors])]
    pub fn unique_outputs(&self, options: impl Into<UniqueOutputsOptions>) -> Result<Vec<Tensor>> {
        outputs("unique", self, options.dim, true, options.return_inverse, options.return_counts)
    }

    /// [`unique_outputs`](Self::unique_outputs) for runs of equal elements, or slices. The same value may appear again
    /// in a later run.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([3, 3, 1, 3])?.unique_consecutive_outputs()?[0].to_vec::<i64>()?, [3, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`unique`](Self::unique).
    #[op(name = "unique_consecutive", samples = outputs_samples, errors = unique_errors, derivative = none, outputs = [tensors])]
    pub fn unique_consecutive_outputs(&self, options: impl Into<UniqueConsecutiveOptions>) -> Result<Vec<Tensor>> {
        outputs("unique_consecutive", self, options.dim, false, options.return_inverse, options.return_counts)
    }
}

fn unique_samples() -> Result<Vec<Sample>> {
    let rows = ints(&[1, 2, 0, 1, 1, 2, 0, 1], [4, 2])?;
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?],
        sample![spread([], -2.0, 2.0)?],
        sample![spread([0, 2], -2.0, 2.0)?],
        sample![ints(&[3, -1, 3, 3, -1, 0], [2, 3])?],
        sample![&rows; dim = 0],
        sample![&rows; dim = -1],
        sample![ints(&[1, 1, 0, 0, 1, 1, 0, 0], [2, 2, 2])?; dim = 1],
        sample![spread([0, 2], -2.0, 2.0)?; dim = 0],
        sample![spread([3, 4], -2.0, 2.0)?.gt(0.0)?],
    ])
}

fn outputs_samples() -> Result<Vec<Sample>> {
    let mut all = unique_samples()?;
    let x = || ints(&[3, 3, 1, 3, 1, 1], [2, 3]);
    all.push(sample![x()?; return_inverse = true]);
    all.push(sample![x()?; return_counts = true]);
    all.push(sample![x()?; return_inverse = true, return_counts = true, dim = 1]);
    Ok(all)
}

fn unique_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?; dim = 2]],
        error!["parts without elements", "[2, 0]"; sample![Tensor::zeros([2, 0])?; dim = 0]],
    ])
}

fn isin_samples() -> Result<Vec<Sample>> {
    let x = || ints(&[3, -1, 2, 3, 5, 0], [2, 3]);
    Ok(vec![
        sample![x()?, ints(&[3, 0, 7], [3])?],
        sample![x()?, ints(&[3, 0, 7, 5], [2, 2])?; invert = true],
        sample![x()?, 3],
        sample![spread([3, 4], -2.0, 2.0)?, spread([12], -2.0, 2.0)?.narrow(0, 0, 3)?],
        sample![x()?, ints(&[], [0])?],
        sample![spread([0], -2.0, 2.0)?, 1.0],
    ])
}

fn isin_errors() -> Result<Vec<ErrorCase>> {
    let wide = Tensor::zeros_with([2], DType::U64)?;
    Ok(vec![error!["no common type", "u64", "i64"; sample![ints(&[1, 2], [2])?, wide]]])
}
