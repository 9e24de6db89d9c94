//! Counts of elements by value.

use crate::error::bail;
use crate::layout::check_shape;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};

options! {
    /// The options of [`Tensor::bincount_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::BincountOptions};
    /// let counts = tensor!([1, 1])?.bincount_with(BincountOptions::new().minlength(3_usize))?;
    /// assert_eq!(counts.to_vec::<i64>()?, [0, 2, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BincountOptions<'a> {
        /// The weight of each element.
        weights: Option<&'a Tensor> = None,
        /// The minimum number of counts.
        minlength: usize = 0,
    }
}

options! {
    /// The options of [`Tensor::histc_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::HistcOptions};
    /// let x = tensor!([1.0, 2.0, 1.0])?;
    /// let counts = x.histc_with(HistcOptions::new().bins(4_usize).min(0.0).max(3.0))?;
    /// assert_eq!(counts.to_vec::<f32>()?, [0.0, 2.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HistcOptions {
        /// The number of bins.
        bins: usize = 100,
        /// The lower edge of the first bin.
        min: f64 = 0.0,
        /// The upper edge of the last bin. If it equals `min`, the bins go from the smallest element to the largest.
        max: f64 = 0.0,
    }
}

options! {
    /// The options of [`Tensor::histogram_with`] and [`Tensor::histogramdd_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::HistogramOptions};
    /// let x = tensor!([1.0, 2.0, 1.0])?;
    /// let (density, _) = x.histogram_with(2, HistogramOptions::new().range(vec![0.0, 4.0]).density(true))?;
    /// assert_eq!(density.to_vec::<f32>()?, [1.0 / 3.0, 1.0 / 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HistogramOptions<'a> {
        /// The lower edge of the first bin and the upper edge of the last, for each dimension; by default the smallest and the
        /// largest element.
        range: Option<Vec<f64>> = None,
        /// The weight of each element.
        weight: Option<&'a Tensor> = None,
        /// Whether counts are divided by their sum and by the bin widths.
        density: bool = false,
    }
}

impl<'a> HistogramOptions<'a> {
    /// The range of one dimension.
    fn range_of(&self, op: &'static str, dim: usize, dims: usize) -> Result<Option<[f64; 2]>> {
        match &self.range {
            None => Ok(None),
            Some(range) if range.len() == 2 * dims => Ok(Some([range[2 * dim], range[2 * dim + 1]])),
            Some(range) => bail!(Value, op, "range must have {} numbers, got {}", 2 * dims, range.len()),
        }
    }
}

/// The smallest and the largest element; 0 and 1 if there are none.
fn extent(x: &Tensor) -> Result<[f64; 2]> {
    if x.numel() == 0 {
        return Ok([0.0, 1.0]);
    }
    let (min, max) = x.aminmax(crate::layout::Dims::ALL)?;
    Ok([min.to_dtype(DType::F64)?.item()?, max.to_dtype(DType::F64)?.item()?])
}

/// The edges of `bins` bins of equal width.
fn even_edges(op: &'static str, x: &Tensor, bins: usize, range: Option<[f64; 2]>) -> Result<Tensor> {
    check_shape(op, &[bins])?;
    let [mut low, mut high] = match range {
        Some(range) => range,
        None => extent(x)?,
    };
    if bins == 0 {
        bail!(Value, op, "bins must be positive, got 0");
    }
    if !(low.is_finite() && high.is_finite() && low <= high) {
        bail!(Value, op, "the range of bins must be finite and ascending, got {low} to {high}");
    }
    if low == high {
        (low, high) = (low - 0.5, high + 0.5);
    }
    let Some(count) = bins.checked_add(1) else { bail!(Value, op, "bins must be less than {bins}") };
    Tensor::linspace_with(low, high, count, (x.dtype(), x.device()))
}

/// The index of the bin of each element; the number of bins for elements outside.
fn bins_of(x: &Tensor, edges: &Tensor) -> Result<Tensor> {
    let last = edges.numel() - 2;
    let right = crate::options::SearchsortedOptions::new().right(true);
    // The last bin includes both edges.
    let bins = edges.searchsorted_with(x, right)?.sub(1)?.minimum(last)?;
    let inside = x.ge(edges.select(0, 0)?)?.bitwise_and(x.le(edges.select(0, -1)?)?)?;
    inside.where_(&bins, last + 1)
}

/// The sums of the weights of elements for each number below `count`. Elements with the number `count` are ignored.
fn counted(numbers: &Tensor, count: usize, weights: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
    let numbers = numbers.flatten(0, -1)?;
    let Some(room) = count.checked_add(1) else { bail!(Value, "histogram", "bins must be less than {count}") };
    let zeros = |dtype: DType| Tensor::zeros_with([room], (dtype, numbers.device()));
    let sums = match weights {
        Some(weights) => zeros(dtype)?.scatter_add(0, &numbers, &weights.flatten(0, -1)?.to_dtype(dtype)?)?,
        None => zeros(DType::I64)?.scatter_add(0, &numbers, &numbers.ones_like()?)?,
    };
    sums.narrow(0, 0, count)?.to_dtype(dtype)
}

/// Checks that edges are a vector in ascending order.
fn checked_edges<'t>(op: &'static str, edges: &'t Tensor, x: &Tensor) -> Result<&'t Tensor> {
    if edges.rank() != 1 || edges.numel() < 2 || edges.dtype() != x.dtype() {
        let (dtype, shape) = (edges.dtype(), edges.shape());
        bail!(Shape, op, "bin edges must be a vector of at least 2 {}, got {dtype} of shape {shape:?}", x.dtype());
    }
    let (own, n) = (edges.detach(), edges.numel());
    if !own.is_batched() && !own.narrow(0, 1, n - 1)?.ge(&own.narrow(0, 0, n - 1)?)?.all(..)?.item::<bool>()? {
        bail!(Value, op, "bin edges must be ascending, got {own}");
    }
    Ok(edges)
}

/// # Histograms
#[ops]
impl Tensor {
    /// The count of each integer 0, 1, … in this vector, or the sum of its weights.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::BincountOptions};
    /// let x = tensor!([1, 3, 1])?;
    /// assert_eq!(x.bincount()?.to_vec::<i64>()?, [0, 2, 0, 1]);
    /// let weights = tensor!([0.5, 1.0, 0.25])?;
    /// let sums = x.bincount_with(BincountOptions::new().weights(&weights))?;
    /// assert_eq!(sums.to_vec::<f32>()?, [0.0, 0.75, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a vector of integers, one is negative, or the weights do not fit.
    #[op(samples = bincount_samples, errors = bincount_errors)]
    pub fn bincount<'a>(&self, options: impl Into<BincountOptions<'a>>) -> Result<Tensor> {
        let BincountOptions { weights, minlength } = options;
        if self.rank() != 1 || !self.dtype().is_int() {
            bail!(
                Shape,
                "bincount",
                "input must be a vector of integers, got {} of shape {:?}",
                self.dtype(),
                self.shape()
            );
        }
        let (own, mut count) = (&*self.private()?, minlength);
        if self.numel() > 0 {
            let (min, max) = own.aminmax(crate::layout::Dims::ALL)?;
            let ends = [min.to_dtype(DType::I64)?.item::<i64>()?, max.to_dtype(DType::I64)?.item::<i64>()?];
            if ends[0] < 0 || ends[1] < 0 || ends[1] == i64::MAX {
                bail!(
                    Value,
                    "bincount",
                    "elements must be non-negative and less than i64::MAX, got {} to {}",
                    ends[0],
                    ends[1]
                );
            }
            count = count.max(ends[1] as usize + 1);
        }
        let Some(weights) = weights else {
            let zeros = Tensor::zeros_with([count], (DType::I64, self.device()))?;
            return zeros.scatter_add(0, own, &own.ones_like_with(DType::I64)?);
        };
        if weights.shape() != self.shape() {
            bail!(Shape, "bincount", "weights must have shape {:?}, got {:?}", self.shape(), weights.shape());
        }
        let dtype = if weights.dtype().is_float() { weights.dtype() } else { DType::F64 };
        Tensor::zeros_with([count], (dtype, self.device()))?.scatter_add(0, own, &weights.to_dtype(dtype)?)
    }

    /// The counts of elements in bins of equal width; by default 100 bins from the minimum to the maximum. Elements
    /// outside and NaN are ignored. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::HistcOptions};
    /// let x = tensor!([0.0, 1.0, 1.5, 4.0])?;
    /// assert_eq!(x.histc()?.sum(..)?.item::<f32>()?, 4.0);
    /// assert_eq!(x.histc_with(HistcOptions::new().bins(4_usize))?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, `bins` is 0, or the range is not finite or not ascending.
    #[op(samples = histc_samples, errors = histc_errors, derivative = none)]
    pub fn histc(&self, options: impl Into<HistcOptions>) -> Result<Tensor> {
        let HistcOptions { bins, min, max } = options;
        float_only("histc", self)?;
        // Before the elements are read.
        check_shape("histc", &[bins])?;
        let x = self.private()?.detach();
        let [mut low, mut high] = if min == max { extent(&x)? } else { [min, max] };
        if bins == 0 {
            bail!(Value, "histc", "bins must be positive, got 0");
        }
        if !(low.is_finite() && high.is_finite() && low <= high) {
            bail!(Value, "histc", "the range of bins must be finite and ascending, got {low} to {high}");
        }
        if min == max && self.numel() == 0 {
            (low, high) = (min, max);
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        let inside = x.ge(low)?.bitwise_and(x.le(high)?)?;
        let position = inside.where_(&x, low)?.sub(low)?.mul(bins as f64)?.div(high - low)?;
        // The values are not negative, so that a cast rounds down.
        let position = position.to_dtype(DType::I64)?.minimum(bins - 1)?;
        let counts = counted(&inside.where_(&position, bins)?, bins, None, self.dtype())?;
        Ok(counts.record_barrier("histc", &[self]))
    }

    /// The counts of elements in bins, or the sums of their weights, and the bin edges. `bins` is the number of bins of
    /// equal width, or a vector of edges. Each bin includes its lower edge, the last bin both. Elements outside and NaN
    /// are ignored. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::HistogramOptions};
    /// let x = tensor!([1.0, 2.0, 1.0, 5.0])?;
    /// let (counts, edges) = x.histogram(2)?;
    /// assert_eq!((counts.to_vec::<f32>()?, edges.to_vec::<f32>()?), (vec![3.0, 1.0], vec![1.0, 3.0, 5.0]));
    /// let (counts, _) = x.histogram(&tensor!([0.0, 2.0, 4.0])?)?;
    /// assert_eq!(counts.to_vec::<f32>()?, [2.0, 1.0]);
    /// let (counts, _) = x.histogram_with(2, HistogramOptions::new().range(vec![0.0, 2.0]))?;
    /// assert_eq!(counts.to_vec::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there are no bins, the range is not finite or not ascending, or edges or weights do not
    /// fit.
    #[op(samples = histogram_samples, errors = histogram_errors, derivative = none, outputs = [hist, bin_edges])]
    pub fn histogram<'a>(
        &self,
        bins: impl Into<Operand<'a>>,
        options: impl Into<HistogramOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        float_only("histogram", self)?;
        let x = self.private()?.detach();
        let range = options.range_of("histogram", 0, 1)?;
        let edges = match bins {
            Operand::Scalar(Scalar::I64(bins)) => {
                even_edges("histogram", &x, usize::try_from(bins).unwrap_or(0), range)?
            }
            Operand::Scalar(Scalar::U64(bins)) => {
                even_edges("histogram", &x, usize::try_from(bins).unwrap_or(usize::MAX), range)?
            }
            Operand::Scalar(other) => {
                bail!(Value, "histogram", "bins must be an integer or a tensor of edges, got {other}")
            }
            Operand::Borrowed(edges) => checked_edges("histogram", &*edges.private()?, &x)?.detach(),
            Operand::Owned(edges) => checked_edges("histogram", &*edges.private()?, &x)?.detach(),
        };
        let hist = counts_between("histogram", &[bins_of(&x, &edges)?], std::slice::from_ref(&edges), &x, &options)?;
        Ok((hist.record_barrier("histogram", &[self]), edges))
    }

    /// The counts of points in multidimensional bins, or the sums of their weights, and the bin edges of each
    /// dimension. The last dimension holds the coordinates of a point; `bins` has the number of bins for each, or one
    /// for all. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::HistogramOptions};
    /// let points = tensor!([[0.0, 0.0], [1.0, 1.0], [0.9, 0.2]])?;
    /// let all = points.histogramdd(&[2, 2])?;
    /// assert_eq!(all[0].to_vec::<f32>()?, [1.0, 0.0, 1.0, 1.0]);
    /// assert_eq!(all[1].to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// let density = points.histogramdd_with(&[1, 1], HistogramOptions::new().density(true))?;
    /// assert_eq!(density[0].to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions, the elements are not floats, or bins, range or weights do not fit.
    #[op(samples = histogramdd_samples, errors = histogramdd_errors, derivative = none, outputs = [tensors])]
    pub fn histogramdd<'a>(&self, bins: &[isize], options: impl Into<HistogramOptions<'a>>) -> Result<Vec<Tensor>> {
        float_only("histogramdd", self)?;
        let Some((&dims, _)) = self.shape().split_last().filter(|(_, outer)| !outer.is_empty()) else {
            bail!(Shape, "histogramdd", "input must have at least 2 dimensions, got shape {:?}", self.shape());
        };
        if dims == 0 {
            bail!(Value, "histogramdd", "points must have at least 1 coordinate, got shape {:?}", self.shape());
        }
        if bins.len() != dims && bins.len() != 1 {
            bail!(Value, "histogramdd", "bins must have 1 or {dims} entries, got {bins:?}");
        }
        let points = self.private()?.detach().reshape([self.numel() / dims, dims])?;
        let (mut numbers, mut edges) = (Vec::new(), Vec::new());
        for dim in 0..dims {
            let own = points.select(1, dim)?;
            let range = options.range_of("histogramdd", dim, dims)?;
            let count = usize::try_from(bins[dim.min(bins.len() - 1)]).unwrap_or(0);
            let between = even_edges("histogramdd", &own, count, range)?;
            numbers.push(bins_of(&own, &between)?);
            edges.push(between);
        }
        let hist = counts_between("histogramdd", &numbers, &edges, &points.select(1, 0)?, &options)?;
        edges.insert(0, hist.record_barrier("histogramdd", &[self]));
        Ok(edges)
    }
}

/// The sums of the weights in each multidimensional bin, from the bin indices of all elements along each dimension.
fn counts_between(
    op: &'static str,
    numbers: &[Tensor],
    edges: &[Tensor],
    x: &Tensor,
    options: &HistogramOptions<'_>,
) -> Result<Tensor> {
    let weights = options.weight.map(Tensor::detach);
    if let Some(weights) = &weights
        && (weights.numel() != x.numel() || !weights.dtype().is_float())
    {
        let (dtype, shape) = (weights.dtype(), weights.shape());
        bail!(Shape, op, "weight must be floating point with {} elements, got {dtype} of shape {shape:?}", x.numel());
    }
    let sizes: Vec<usize> = edges.iter().map(|edges| edges.numel() - 1).collect();
    let Some(total) = sizes.iter().try_fold(1_usize, |total, &size| total.checked_mul(size)) else {
        bail!(Value, op, "the product of bins must fit in usize, got {sizes:?}");
    };
    // The row-major index of the bin, or the number of bins for points outside.
    let mut number = numbers[0].zeros_like()?;
    let mut inside = number.eq(0)?;
    for (own, &size) in numbers.iter().zip(&sizes) {
        number = number.mul(size)?.add(own)?;
        inside = inside.bitwise_and(own.lt(size)?)?;
    }
    let number = inside.where_(&number, total)?;
    let hist = counted(&number, total, weights.as_ref(), x.dtype())?.reshape(&sizes)?;
    if !options.density {
        return Ok(hist);
    }
    let mut density = hist.div(hist.sum(..)?)?;
    for (dim, edges) in edges.iter().enumerate() {
        let mut along = vec![1; sizes.len()];
        along[dim] = sizes[dim];
        density = density.div(edges.diff()?.reshape(&along)?)?;
    }
    Ok(density)
}

fn bincount_samples() -> Result<Vec<Sample>> {
    let x = || ints(&[1, 3, 1, 0, 5], [5]);
    Ok(vec![
        sample![x()?, spread([5], 0.5, 2.0)?],
        sample![x()?, spread([5], 0.5, 2.0)?, 8],
        sample![x()?],
        sample![x()?.to_dtype(DType::U8)?; minlength = 8],
        sample![x()?, ints(&[1, 2, 3, 4, 5], [5])?],
        sample![ints(&[], [0])?; minlength = 2],
    ])
}

fn bincount_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a matrix", "[1, 2]"; sample![ints(&[1, 2], [1, 2])?]],
        error!["floats", "f64"; sample![normal([2], 1)?]],
        error!["a negative number", "-1"; sample![ints(&[1, -1], [2])?]],
        error!["too few weights", "[1]", "[2]"; sample![ints(&[1, 2], [2])?, normal([1], 1)?]],
    ])
}

fn histc_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[3, 4])?; bins = 4],
        sample![x(&[7])?; bins = 3, min = -1.0, max = 1.0],
        sample![x(&[])?; bins = 2],
        sample![x(&[0])?; bins = 2],
    ])
}

fn histc_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([4], 1);
    Ok(vec![
        error!["no bins", "bins", "got 0"; sample![x()?; bins = 0]],
        error!["an end before the beginning", "1", "-1"; sample![x()?; min = 1.0, max = -1.0]],
        error!["no number", "NaN"; sample![x()?; max = f64::NAN]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?]],
    ])
}

fn histogram_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    let edges = Tensor::from_vec(vec![-1.5, -0.25, 0.5, 1.25], [4])?;
    Ok(vec![
        sample![x(&[3, 4])?, 4],
        sample![x(&[7])?, 3; range = vec![-1.0, 1.0]],
        sample![x(&[7])?, 5; density = true],
        sample![x(&[7])?, &edges],
        sample![x(&[2, 3])?, &edges; weight = spread([2, 3], 0.5, 1.5)?, density = true],
        sample![x(&[])?, 2],
        sample![x(&[0])?, 2],
    ])
}

fn histogram_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([4], 1);
    Ok(vec![
        error!["no bins", "bins", "got 0"; sample![x()?, 0]],
        error!["half a bin", "0.5"; sample![x()?, 0.5]],
        error!["one edge", "[1]"; sample![x()?, normal([1], 1)?]],
        error!["falling edges", "ascend"; sample![x()?, Tensor::from_slice(&[0.0, 2.0, 1.0], 3)?]],
        error!["a range of three", "2 numbers", "got 3"; sample![x()?, 2; range = vec![0.0, 1.0, 2.0]]],
        error!["an infinite range", "inf"; sample![x()?, 2; range = vec![0.0, f64::INFINITY]]],
        error!["too few weights", "[2]", "4 elements"; sample![x()?, 2; weight = normal([2], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, 2]],
    ])
}

fn histogramdd_samples() -> Result<Vec<Sample>> {
    let x = || spread([7, 2], -2.0, 2.0);
    Ok(vec![
        sample![x()?, [3, 2]],
        sample![x()?, [2]; range = vec![-1.0, 1.0, -2.0, 0.5]],
        sample![x()?, [2, 2]; weight = spread([7], 0.5, 1.5)?, density = true],
        sample![spread([3, 1], -2.0, 2.0)?, [4]],
    ])
}

fn histogramdd_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([4, 2], 1);
    Ok(vec![
        error!["too many bins", "[2, 2, 2]", "2"; sample![x()?, [2, 2, 2]]],
        error!["no bins", "bins", "got 0"; sample![x()?, [2, 0]]],
        error!["a vector", "[4]"; sample![normal([4], 1)?, [2]]],
        error!["a short range", "4 numbers", "got 2"; sample![x()?, [2, 2]; range = vec![0.0, 1.0]]],
    ])
}
