//! Repetition and rolling.

use crate::error::{bail, err};
use crate::layout::resolve_dim;
use crate::layout::{Dims, Sizes};
use crate::ops::index::gather::index_vector;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::shape::views::samples;
use crate::options::options;
use crate::tensor::Operand;
use crate::{Result, Scalar, Shape, Tensor};

options! {
    /// The options of [`Tensor::repeat_interleave_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::InterleaveOptions};
    /// let x = tensor!([1, 2])?.repeat_interleave_with(2, 0, InterleaveOptions::new().output_size(4))?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 1, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct InterleaveOptions {
        /// The size of the dimension in the result, if known. A different size is an error.
        output_size: Option<usize> = None,
    }
}

/// Repeats the tensor along each dimension; `repeats` has at least as many numbers as the tensor has dimensions.
fn repeated(op: &'static str, x: &Tensor, repeats: &[usize]) -> Result<Tensor> {
    let lead = repeats.len() - x.rank();
    let (mut apart, mut wide, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for (dim, &times) in repeats.iter().enumerate() {
        let size = if dim < lead { 1 } else { x.shape()[dim - lead] };
        let Some(length) = size.checked_mul(times) else {
            bail!(Shape, op, "cannot repeat shape {:?} {repeats:?} times: the result is too large", x.shape());
        };
        apart.extend([1, size]);
        wide.extend([times, size]);
        whole.push(length);
    }
    x.reshape(apart)?.expand(wide)?.reshape(whole)
}

/// The single dimension, or `None` if all are meant.
pub(in crate::ops) fn one_dim(op: &'static str, dims: &Dims, rank: usize) -> Result<Option<usize>> {
    match dims.named.as_deref() {
        None => Ok(None),
        Some(&[dim]) => resolve_dim(op, dim, rank).map(Some),
        Some(dims) => bail!(Value, op, "dim must be a single dimension, got {dims:?}"),
    }
}

/// # Repeating and tiling
#[ops]
impl Tensor {
    /// Repeats the tensor along each dimension. Extra numbers create new leading dimensions.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([1, 2])?;
    /// assert_eq!(x.repeat([2])?.to_vec::<i64>()?, [1, 2, 1, 2]);
    /// assert_eq!(x.repeat([3, 2])?.shape(), [3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer numbers than dimensions, or the result is too large.
    #[op(samples = repeat_samples, errors = repeat_errors)]
    pub fn repeat(&self, repeats: impl Into<Shape>) -> Result<Tensor> {
        if repeats.len() < self.rank() {
            let (shape, rank) = (self.shape(), self.rank());
            bail!(Shape, "repeat", "repeats must have at least {rank} numbers for shape {shape:?}, got {repeats:?}");
        }
        repeated("repeat", self, &repeats)
    }

    /// [`repeat`](Self::repeat), where missing leading numbers are 1.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.tile([2])?.shape(), [2, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the result is too large.
    #[op(samples = tile_samples, errors = || Ok(vec![error!["too large", "[2, 3]"; sample![normal([2, 3], 1)?, [1, isize::MAX]]]]))]
    pub fn tile(&self, dims: impl Into<Shape>) -> Result<Tensor> {
        let missing = self.rank().saturating_sub(dims.len());
        let repeats: Vec<usize> = std::iter::repeat_n(1, missing).chain(dims.iter().copied()).collect();
        repeated("tile", self, &repeats)
    }

    /// Repeats each element along a dimension; without a dimension (`..`), of the flattened tensor. The number of
    /// repeats is one for all, or a vector with one for each.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.repeat_interleave(2, ..)?.to_vec::<i64>()?, [1, 1, 2, 2, 3, 3, 4, 4]);
    /// assert_eq!(x.repeat_interleave(&tensor!([2, 1])?, 0)?.to_vec::<i64>()?, [1, 2, 1, 2, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, a number is negative or not an integer, or `repeats` has neither 1 element nor one for
    /// each index of the dimension.
    #[op(samples = interleave_samples, errors = interleave_errors)]
    pub fn repeat_interleave<'a>(
        &self,
        repeats: impl Into<Operand<'a>>,
        #[default(..)] dim: impl Into<Dims>,
        options: impl Into<InterleaveOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "repeat_interleave";
        if let Some(size) = options.output_size {
            let out = self.repeat_interleave(repeats, dim.clone())?;
            let found = one_dim(OP, &dim, self.rank())?.map_or(out.numel(), |dim| out.shape()[dim]);
            if found != size {
                bail!(Shape, OP, "output_size must be {found}, got {size}");
            }
            return Ok(out);
        }
        let Some(dim) = one_dim(OP, &dim, self.rank())? else {
            return self.flatten(0, -1)?.repeat_interleave(repeats, 0);
        };
        let each = match &repeats {
            Operand::Scalar(number) => {
                let times = match *number {
                    Scalar::I64(times) => usize::try_from(times).ok(),
                    Scalar::U64(times) => usize::try_from(times).ok(),
                    _ => None,
                };
                let times = times.ok_or_else(|| err!(Value, OP, "repeats must be an integer ≥ 0, got {number}"))?;
                let mut wide = self.layout().shape().clone();
                wide.insert(dim + 1, times);
                return self.unsqueeze(dim + 1)?.expand(&wide)?.flatten(dim, dim + 1);
            }
            Operand::Borrowed(each) => each,
            Operand::Owned(each) => each,
        };
        let size = self.shape()[dim];
        if !each.dtype().is_int() {
            bail!(DType, OP, "repeats must be integers, got {}", each.dtype());
        }
        if each.rank() > 1 || (each.numel() != 1 && each.numel() != size) {
            bail!(
                Shape,
                OP,
                "repeats must have 1 or {size} elements for dimension {dim}, got shape {:?}",
                each.shape()
            );
        }
        let each = each.detach().to_dtype(crate::DType::I64)?.to_vec::<i64>()?;
        if let Some(times) = each.iter().find(|&&times| times < 0) {
            bail!(Value, OP, "repeats must be ≥ 0, got {times}");
        }
        if let ([times], true) = (&each[..], size != 1) {
            return self.repeat_interleave(*times, dim);
        }
        let total = each.iter().fold(0_usize, |sum, &times| sum.saturating_add(times as usize));
        let positions = each.iter().enumerate().flat_map(|(at, &times)| std::iter::repeat_n(at, times as usize));
        self.index_select(dim, &index_vector(OP, total, positions)?.to_device(self.device())?)
    }

    /// Shifts elements along dimensions. Elements shifted beyond the end reappear at the start. Without dimensions
    /// (`..`) the flattened tensor is shifted, and keeps its shape.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2, 3])?.roll(1, 0)?.to_vec::<i64>()?, [3, 1, 2]);
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.roll(-1, ..)?.to_vec::<i64>()?, [2, 3, 4, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist, or `shifts` and `dims` differ in length.
    #[op(samples = roll_samples, errors = roll_errors, batch)]
    pub fn roll(&self, shifts: impl Into<Sizes>, #[default(..)] dims: impl Into<Dims>) -> Result<Tensor> {
        let shifts = shifts.0;
        let Some(dims) = dims.named else {
            if shifts.len() != 1 {
                bail!(Shape, "roll", "shifts must be a single number without dims, got {} numbers", shifts.len());
            }
            return self.flatten(0, -1)?.roll(shifts[0], 0)?.reshape(self.shape());
        };
        if shifts.len() != dims.len() {
            bail!(Shape, "roll", "shifts and dims must have the same length, got {} and {}", shifts.len(), dims.len());
        }
        let mut rolled = self.clone();
        for (&shift, &dim) in shifts.iter().zip(&dims) {
            let dim = resolve_dim("roll", dim, self.rank())?;
            let size = self.shape()[dim];
            let positions = shift.checked_rem_euclid(size as isize).unwrap_or(0) as usize;
            if positions != 0 && self.numel() != 0 {
                let first = rolled.narrow(dim, size - positions, positions)?;
                rolled = Tensor::cat(&[first, rolled.narrow(dim, 0, size - positions)?], dim)?;
            }
        }
        Ok(rolled)
    }
}

fn repeat_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[3], &[], &[2, 0]], |x| sample![x, [2, 3]])?;
    all.extend(samples(&[&[2, 3]], |x| sample![x, [2, 1, 3]])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, [1, 1]])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, [0, 2]].zero_derivative())?);
    Ok(all)
}

fn repeat_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["too few numbers", "[2]", "[2, 3]"; sample![&x, [2]]],
        error!["too large", "bytes"; sample![&x, [isize::MAX, 2]]],
        error!["a negative number", "repeats"; sample![&x, [-1, 2]]],
    ])
}

fn tile_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[3], &[]], |x| sample![x, [2]])?;
    all.extend(samples(&[&[3], &[2, 2]], |x| sample![x, [2, 3]])?);
    all.extend(samples(&[&[2, 2]], |x| sample![x, []])?);
    Ok(all)
}

fn interleave_samples() -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, 2],
        sample![x()?, 3, -1],
        sample![x()?, 0, 0].zero_derivative(),
        sample![x()?, ints(&[2, 0, 3], [3])?, 1],
        sample![x()?, ints(&[2], [])?, 0],
        sample![x()?, ints(&[2], [1])?],
        sample![spread([1, 2], -2.0, 2.0)?, ints(&[3], [1])?, 0],
        sample![spread([], -2.0, 2.0)?, 2],
        sample![spread([0, 2], -2.0, 2.0)?, 2, 0],
    ])
}

fn interleave_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["a negative number", "-1"; sample![x()?, -1, 0]],
        error!["half a time", "0.5"; sample![x()?, 0.5, 0]],
        error!["a negative number among others", "-2"; sample![x()?, ints(&[1, -2], [2])?, 0]],
        error!["too few numbers", "[2]", "3 elements"; sample![x()?, ints(&[1, 2], [2])?, 1]],
        error!["floats", "f64"; sample![x()?, normal([2], 1)?, 0]],
        error!["two dimensions", "[0, 1]"; sample![x()?, 2, [0, 1]]],
        error!["too long", "bytes"; sample![x()?, ints(&[i64::MAX, 1], [2])?, 0]],
    ])
}

fn roll_samples() -> Result<Vec<Sample>> {
    let x = || spread([3, 4], -2.0, 2.0);
    Ok(vec![
        sample![x()?, 1, 0],
        sample![x()?, -5, -1],
        sample![x()?, [1, 2], [0, 1]],
        sample![x()?, [1, 1], [0, 0]],
        sample![x()?, 5],
        sample![x()?, 0, 0],
        sample![spread([2, 0], -2.0, 2.0)?, 1, 1],
        sample![spread([], -2.0, 2.0)?, 1],
    ])
}

fn roll_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2"; sample![&x, 1, 2]],
        error!["more numbers than dimensions", "2", "1"; sample![&x, [1, 2], 0]],
        error!["several numbers for all", "2"; sample![&x, [1, 2]]],
    ])
}
