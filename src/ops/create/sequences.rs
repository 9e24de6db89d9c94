//! Logarithmic ranges, triangular indices, one-hot vectors and Vandermonde matrices.
// PyTorch's parameter of `vander` is a capital letter.
#![allow(non_snake_case)]

use crate::error::{bail, err};
use crate::ops::create::constants::{even_steps, numbers, of_options, where_and_what};
use crate::ops::index::gather::index_vector;
use crate::ops::linalg::vectors::powers;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Result, Scalar, Tensor};

options! {
    /// The options of [`Tensor::logspace_with`].
    ///
    /// ```
    /// use cotangent::{DType, Tensor, options::LogspaceOptions};
    /// let options = LogspaceOptions::new().base(2.0).dtype(DType::F64);
    /// assert_eq!(Tensor::logspace_with(0.0, 2.0, 3, options)?.to_vec::<f64>()?, [1.0, 2.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LogspaceOptions {
        /// The base of the powers.
        base: f64 = 10.0,
        /// The dtype: by default `f32`.
        dtype: Option<DType> = None,
        /// The device: by default the CPU.
        device: Option<Device> = None,
    }
}
where_and_what!(LogspaceOptions);

options! {
    /// The options of [`Tensor::tril_indices_with`] and [`Tensor::triu_indices_with`].
    ///
    /// ```
    /// use cotangent::{DType, Tensor, options::TriangleIndicesOptions};
    /// let options = TriangleIndicesOptions::new().offset(1_isize).dtype(DType::I32);
    /// assert_eq!(Tensor::triu_indices_with(2, 2, options)?.to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct TriangleIndicesOptions {
        /// The offset of the triangle's diagonal from the main diagonal, to the right.
        offset: isize = 0,
        /// The dtype: by default `i64`.
        dtype: Option<DType> = None,
        /// The device: by default the CPU.
        device: Option<Device> = None,
    }
}
where_and_what!(TriangleIndicesOptions);

/// The rows and columns of a triangle's elements, in row-major order, as the two rows of a matrix.
fn triangle_indices(
    op: &'static str,
    (row, col): (usize, usize),
    options: &TriangleIndicesOptions,
    upper: bool,
) -> Result<Tensor> {
    let (dtype, device) = of_options(options.dtype, options.device).or(DType::I64);
    if !dtype.is_int() {
        bail!(DType, op, "dtype must be an integer type, got {dtype}");
    }
    let too_many = || err!(Shape, op, "a matrix of {row} rows and {col} columns has too many elements");
    row.checked_mul(col).ok_or_else(too_many)?;
    // The lower triangle has the columns of row r before `edge(r)`, the upper one those from it on.
    let (rows, width, diagonal) = (row as i128, col as i128, options.offset as i128 + i128::from(!upper));
    let edge = |r: i128| (r + diagonal).clamp(0, width);
    // Between these rows the edge moves by one column per row. Before them it is 0, after them it is the width.
    let (moves, stops) = ((-diagonal).clamp(0, rows), (width - diagonal).clamp(0, rows));
    let before_edge = (stops - moves) * (edge(moves) + edge(stops - 1)) / 2 + (rows - stops) * width;
    let count = if upper { rows * width - before_edge } else { before_edge };
    let count = usize::try_from(count).ok().filter(|count| count.checked_mul(2).is_some()).ok_or_else(too_many)?;
    // Rows without elements are skipped: there may be any number of them.
    let some = if upper { 0..stops as usize } else { moves as usize..row };
    let columns = |r: usize| if upper { edge(r as i128) as usize..col } else { 0..edge(r as i128) as usize };
    let some = if count == 0 { 0..0 } else { some };
    let rows = some.clone().flat_map(|r| std::iter::repeat_n(r, columns(r).len()));
    let indices = index_vector(op, 2 * count, rows.chain(some.flat_map(columns)))?;
    indices.reshape([2, count])?.to_dtype(dtype)?.to_device(device)
}

/// # Ranges and sequences
#[ops]
impl Tensor {
    /// `steps` powers of a base, 10 by default, with evenly spaced exponents from `start` to `end`, both included,
    /// `f32`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::logspace(0.0, 2.0, 3)?.to_vec::<f32>()?, [1.0, 10.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![0.0, 2.0, 3], sample![-1.0, 1.0, 4; base = 2.0, dtype = DType::F64], sample![1.0, 2.0, 1], sample![1.0, 2.0, 0]]), derivative = none)]
    pub fn logspace(start: f64, end: f64, steps: usize, options: impl Into<LogspaceOptions>) -> Result<Tensor> {
        let LogspaceOptions { base, dtype, device } = options;
        let of = of_options(dtype, device).or(DType::F32);
        let exponent = even_steps(start, end, steps, of.0);
        let made = numbers("logspace", steps, of, |i| base.powf(exponent(i)))?;
        // With a negative base the signs alternate: all numbers have to be checked, not only the ends.
        if base < 0.0 && of.0.is_int() {
            (0..steps).try_for_each(|i| Scalar::F64(base.powf(exponent(i))).check_element("logspace", of.0))?;
        }
        Ok(made)
    }

    /// The indices of the lower triangle of a matrix: row indices in the first row, column indices in the second,
    /// `i64`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::tril_indices(2, 2)?.to_vec::<i64>()?, [0, 1, 1, 0, 0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are too many, or the dtype is not of integers.
    #[op(samples = triangle_samples, errors = triangle_errors, derivative = none)]
    pub fn tril_indices(row: usize, col: usize, options: impl Into<TriangleIndicesOptions>) -> Result<Tensor> {
        triangle_indices("tril_indices", (row, col), &options, false)
    }

    /// The indices of the upper triangle of a matrix: row indices in the first row, column indices in the second,
    /// `i64`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::triu_indices(2, 2)?.to_vec::<i64>()?, [0, 0, 1, 0, 1, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are too many, or the dtype is not of integers.
    #[op(samples = triangle_samples, errors = triangle_errors, derivative = none)]
    pub fn triu_indices(row: usize, col: usize, options: impl Into<TriangleIndicesOptions>) -> Result<Tensor> {
        triangle_indices("triu_indices", (row, col), &options, true)
    }

    /// One-hot vectors along a new last dimension, `i64`: 1 at the index that the integer names, 0 elsewhere.
    /// `num_classes` is the length of the vectors; -1 means the largest integer plus 1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([2, 0])?.one_hot(-1)?.to_vec::<i64>()?, [0, 0, 1, 1, 0, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an integer is negative or not less than `num_classes`, or the elements are not integers.
    #[op(samples = one_hot_samples, errors = one_hot_errors, derivative = none)]
    pub fn one_hot(&self, #[default(-1)] num_classes: isize) -> Result<Tensor> {
        if !self.dtype().is_int() {
            bail!(DType, "one_hot", "input must be integers, got {}", self.dtype());
        }
        let wide = self.private()?.to_dtype(DType::I64)?.contiguous()?;
        let mut classes = num_classes;
        if self.numel() == 0 {
            if num_classes <= 0 {
                bail!(Value, "one_hot", "num_classes must be positive for an empty input, got {num_classes}");
            }
        } else {
            let (least, most) = (wide.min(..)?.item::<i64>()?, wide.max(..)?.item::<i64>()?);
            if least < 0 || (num_classes != -1 && most as isize >= num_classes) {
                if least < 0 {
                    bail!(Index, "one_hot", "classes must be ≥ 0, got {least}");
                }
                bail!(Index, "one_hot", "classes must be less than num_classes = {num_classes}, got {most}");
            }
            classes = if num_classes == -1 { (most as isize).saturating_add(1) } else { num_classes };
        }
        let all = Tensor::arange(0, classes)?.to_device(self.device())?;
        wide.unsqueeze(-1)?.eq(&all)?.to_dtype(DType::I64)
    }

    /// The Vandermonde matrix of a vector: its columns are powers with decreasing exponents, or increasing ones with
    /// `increasing`. `N` is the number of columns, by default the number of rows. Integers become `i64`.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([2, 3])?;
    /// assert_eq!(x.vander(3_usize, false)?.to_vec::<i64>()?, [4, 2, 1, 9, 3, 1]);
    /// assert_eq!(x.vander(None, true)?.to_vec::<i64>()?, [1, 2, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a vector, or memory does not suffice for that many columns.
    #[op(samples = vander_samples, errors = vander_errors)]
    pub fn vander(&self, N: impl Into<Option<usize>>, #[default(false)] increasing: bool) -> Result<Tensor> {
        if self.rank() != 1 {
            bail!(Shape, "vander", "input must be a vector, got shape {:?}", self.shape());
        }
        let count = N.unwrap_or(self.numel());
        if count == 0 {
            return self.to_dtype(self.dtype().to_sum())?.unsqueeze(1)?.narrow(1, 0, 0);
        }
        let powers = powers("vander", self, count)?;
        if increasing { Ok(powers) } else { powers.flip(1) }
    }
}

fn triangle_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![3, 3],
        sample![2, 4, 1],
        sample![4, 2, -2],
        sample![3, 3, -5],
        sample![3, 3, 7],
        sample![0, 3],
        sample![3, 0],
        sample![2, 2; dtype = DType::I32],
    ])
}

fn triangle_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["floats", "f32"; sample![2, 2; dtype = DType::F32]],
        error!["too many elements", "rows"; sample![(1_u64 << 40) as usize, (1_u64 << 40) as usize]],
        error!["a negative number of rows", "row"; sample![-1, 2]],
    ])
}

fn one_hot_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![ints(&[2, 0, 1], [3])?],
        sample![ints(&[2, 0, 1, 1], [2, 2])?, 5],
        sample![ints(&[1], [])?.to_dtype(DType::U8)?],
        sample![ints(&[], [0])?, 3],
    ])
}

fn one_hot_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a negative class", "-1"; sample![ints(&[0, -1], [2])?]],
        error!["a class too large", "3"; sample![ints(&[0, 3], [2])?, 3]],
        error!["floats", "f64"; sample![normal([2], 1)?]],
        error!["nothing to tell from", "-1"; sample![ints(&[], [0])?]],
    ])
}

fn vander_samples() -> Result<Vec<Sample>> {
    let x = || spread([3], 0.5, 2.0);
    Ok(vec![
        sample![x()?],
        sample![x()?, 4],
        sample![x()?, 2, true],
        sample![x()?; increasing = true],
        sample![spread([0], 0.5, 2.0)?, 2],
        sample![x()?, 0].zero_derivative(),
    ])
}

fn vander_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a matrix", "[2, 2]"; sample![normal([2, 2], 1)?]],
        error!["more columns than memory holds", "can be addressed"; sample![normal([2], 1)?, isize::MAX]],
    ])
}
