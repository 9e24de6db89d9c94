//! Differences, integrals and derivatives of samples.

use crate::error::bail;
use crate::layout::{Dim, Dims};
use crate::layout::{resolve_dim, resolve_dims};
use crate::ops::elementwise::call::common_dtype;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::{Arg, ArgKind, FromArg, ops};
use crate::options::options;
use crate::{DType, Result, Tensor};

options! {
    /// The options of [`Tensor::diff_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::DiffOptions};
    /// let x = tensor!([1, 4, 9])?;
    /// assert_eq!(x.diff_with(DiffOptions::new().n(2_usize))?.to_vec::<i64>()?, [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct DiffOptions<'a> {
        /// The order of the differences.
        n: usize = 1,
        /// The dimension.
        dim: Dim = Dim(-1),
        /// Elements to put before the tensor.
        prepend: Option<&'a Tensor> = None,
        /// Elements to put after the tensor.
        append: Option<&'a Tensor> = None,
    }
}

options! {
    /// The options of [`Tensor::trapezoid_with`] and [`Tensor::cumulative_trapezoid_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::TrapezoidOptions};
    /// let y = tensor!([1.0, 3.0, 5.0])?;
    /// assert_eq!(y.trapezoid_with(TrapezoidOptions::new().dx(0.5))?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct TrapezoidOptions<'a> {
        /// The coordinates of the samples: a vector, or a tensor with one for each sample.
        x: Option<&'a Tensor> = None,
        /// The distance between samples if `x` is not given.
        dx: f64 = 1.0,
        /// The dimension.
        dim: Dim = Dim(-1),
    }
}

/// The distances between samples along each dimension.
///
/// ```
/// use cotangent::{tensor, options::GradientOptions};
/// let (y, x) = (tensor!([1.0, 4.0, 9.0])?, tensor!([1.0, 2.0, 3.0])?);
/// assert!(y.gradient_with(GradientOptions::new().spacing(&x))?[0].equal(&y.gradient()?[0])?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Spacing<'a> {
    /// One distance for all dimensions.
    Step(f64),
    /// A distance for each dimension.
    Steps(Vec<f64>),
    /// The coordinates of the samples for each dimension.
    Coordinates(Vec<&'a Tensor>),
}

impl From<f64> for Spacing<'_> {
    fn from(step: f64) -> Self {
        Spacing::Step(step)
    }
}

impl From<Vec<f64>> for Spacing<'_> {
    fn from(steps: Vec<f64>) -> Self {
        Spacing::Steps(steps)
    }
}

impl<const N: usize> From<[f64; N]> for Spacing<'_> {
    fn from(steps: [f64; N]) -> Self {
        Spacing::Steps(steps.to_vec())
    }
}

impl<'a> From<&'a Tensor> for Spacing<'a> {
    fn from(positions: &'a Tensor) -> Self {
        Spacing::Coordinates(vec![positions])
    }
}

impl<'a> From<Vec<&'a Tensor>> for Spacing<'a> {
    fn from(positions: Vec<&'a Tensor>) -> Self {
        Spacing::Coordinates(positions)
    }
}

impl From<Spacing<'_>> for Arg {
    fn from(spacing: Spacing<'_>) -> Arg {
        match spacing {
            Spacing::Step(step) => Arg::from(step),
            Spacing::Steps(steps) => Arg::from(steps),
            Spacing::Coordinates(positions) => Arg::Tensors(positions.into_iter().cloned().collect()),
        }
    }
}

impl<'a> FromArg<'a> for Spacing<'a> {
    const KIND: ArgKind = ArgKind::Floats;

    fn from_arg(arg: &'a Arg) -> Option<Self> {
        match arg {
            Arg::Tensor(positions) => Some(Spacing::Coordinates(vec![positions])),
            Arg::Tensors(positions) => Some(Spacing::Coordinates(positions.iter().collect())),
            Arg::Scalar(_) => f64::from_arg(arg).map(Spacing::Step),
            other => Vec::<f64>::from_arg(other).map(Spacing::Steps),
        }
    }
}

options! {
    /// The options of [`Tensor::gradient_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::GradientOptions};
    /// let y = tensor!([1.0, 4.0, 9.0])?;
    /// let slopes = y.gradient_with(GradientOptions::new().spacing(0.5).edge_order(2_usize))?;
    /// assert_eq!(slopes[0].to_vec::<f32>()?, [4.0, 8.0, 12.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GradientOptions<'a> {
        /// The distances between samples.
        spacing: Spacing<'a> = Spacing::Step(1.0),
        /// The dimensions; by default all.
        dim: Dims = Dims::ALL,
        /// The order of the one-sided differences at the edges: 1 or 2.
        edge_order: usize = 1,
    }
}

/// Neighbours along a dimension, which must exist: all elements but the last, and all but the first.
fn neighbours(x: &Tensor, dim: usize) -> Result<(Tensor, Tensor)> {
    let n = x.shape()[dim].saturating_sub(1);
    Ok((x.narrow(dim, 0, n)?, x.narrow(dim, x.shape()[dim] - n, n)?))
}

/// The distances between samples at coordinates `x`, aligned with the dimensions of `y`.
fn distances(op: &'static str, y: &Tensor, x: &Tensor, dim: usize) -> Result<Tensor> {
    let mut sizes = vec![1; y.rank()];
    if x.rank() == 1 {
        if x.numel() != y.shape()[dim] {
            bail!(Shape, op, "expected {} coordinates for dimension {dim}, got {}", y.shape()[dim], x.numel());
        }
        sizes[dim] = x.numel();
    } else if x.rank() <= y.rank() {
        sizes[y.rank() - x.rank()..].copy_from_slice(x.shape());
    } else {
        bail!(Shape, op, "coordinates must broadcast to {:?}, got shape {:?}", y.shape(), x.shape());
    }
    let (left, right) = neighbours(&x.reshape(&sizes)?, dim)?;
    right.sub(&left)
}

/// The samples in the compute dtype, their dimension, and the dtype of the result.
fn samples_along(op: &'static str, y: &Tensor, options: &TrapezoidOptions<'_>) -> Result<(Tensor, usize, DType)> {
    let dim = resolve_dim(op, options.dim.0, y.rank())?;
    if y.dtype() == DType::Bool {
        bail!(DType, op, "input must be numeric, got bool: cast with to_dtype first");
    }
    let dtype = match options.x {
        Some(x) => common_dtype(op, y.dtype(), x.dtype())?.to_float(),
        None => y.dtype().to_float(),
    };
    Ok((y.to_dtype(dtype)?.to_dtype(dtype.compute_dtype())?, dim, dtype))
}

/// The slopes of samples along a dimension, with equal or given distances.
fn slopes(x: &Tensor, dim: usize, spacing: &Distance, edge_order: usize) -> Result<Tensor> {
    let n = x.shape()[dim];
    let part = |x: &Tensor, start: usize, len: usize| x.narrow(dim, start, len);
    let at = |start: usize| part(x, start, 1);
    let (first, second, inner) = match spacing {
        Distance::Step(h) => {
            let inner = part(x, 2, n - 2)?.sub(part(x, 0, n - 2)?)?.div(2.0 * h)?;
            let side = |edge: usize, next: usize, third: usize, sign: f64| {
                if edge_order == 1 {
                    return at(next)?.sub(at(edge)?)?.div(sign * h);
                }
                let sum = at(next)?.mul(4.0)?.sub(at(edge)?.mul(3.0)?)?.sub(at(third)?)?;
                sum.div(2.0 * sign * h)
            };
            (side(0, 1, 2.min(n - 1), 1.0)?, side(n - 1, n - 2, n.saturating_sub(3), -1.0)?, inner)
        }
        Distance::Between(gaps) => {
            let (d1, d2) = (part(gaps, 0, n - 2)?, part(gaps, 1, n - 2)?);
            let both = d1.add(&d2)?;
            let left = part(x, 1, n - 2)?.sub(part(x, 0, n - 2)?)?.div(&d1)?;
            let right = part(x, 2, n - 2)?.sub(part(x, 1, n - 2)?)?.div(&d2)?;
            // The slope of the parabola through three neighbours.
            let inner = left.mul(d2.div(&both)?)?.add(right.mul(d1.div(&both)?)?)?;
            let side = |edge: usize, next: usize, near: usize, far: usize| {
                let slope = |a: usize, b: usize, d: usize| at(b)?.sub(at(a)?)?.div(part(gaps, d, 1)?);
                let here = if edge < next { slope(edge, next, near)? } else { slope(next, edge, near)? };
                if edge_order == 1 {
                    return Ok(here);
                }
                let third = if edge < next { next + 1 } else { next - 1 };
                let there = if edge < next { slope(next, third, far)? } else { slope(third, next, far)? };
                let (d1, d2) = (part(gaps, near, 1)?, part(gaps, far, 1)?);
                // The slope at the edge of the parabola through three samples.
                here.add(here.sub(there)?.mul(d1.div(d1.add(&d2)?)?)?)
            };
            let last = n - 2;
            (side(0, 1, 0, 1.min(last))?, side(n - 1, n - 2, last, last.saturating_sub(1))?, inner)
        }
    };
    Tensor::cat(&[&first, &inner, &second], dim)
}

/// The distances between samples along one dimension.
enum Distance {
    Step(f64),
    /// The distances of neighbours, aligned with the samples.
    Between(Tensor),
}

/// # Differences and integrals
#[ops]
impl Tensor {
    /// The differences of neighbours along a dimension, the last by default. For bools, whether neighbours differ.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::DiffOptions};
    /// let x = tensor!([1, 4, 9])?;
    /// assert_eq!(x.diff()?.to_vec::<i64>()?, [3, 5]);
    /// let zero = tensor!([0])?;
    /// assert_eq!(x.diff_with(DiffOptions::new().prepend(&zero))?.to_vec::<i64>()?, [1, 3, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the shape of `prepend` or `append` does not fit.
    #[op(samples = diff_samples, errors = diff_errors)]
    pub fn diff<'a>(&self, options: impl Into<DiffOptions<'a>>) -> Result<Tensor> {
        let DiffOptions { n, dim, prepend, append } = options;
        let dim = resolve_dim("diff", dim.0, self.rank())?;
        if n == 0 {
            return Ok(self.clone());
        }
        let parts: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
        if let Some(other) = parts.iter().find(|part| part.rank() != self.rank()) {
            let (a, b) = (self.shape(), other.shape());
            bail!(Shape, "diff", "prepend and append must have as many dimensions as {a:?}, got shape {b:?}");
        }
        let mut x = if parts.len() == 1 { self.clone() } else { Tensor::cat(&parts, dim)? };
        // With an order of at least the number of elements, none is left.
        if n >= x.shape()[dim] {
            return x.narrow(dim, 0, 0);
        }
        for _ in 0..n {
            let (left, right) = neighbours(&x, dim)?;
            x = if x.dtype() == DType::Bool { right.ne(&left)? } else { right.sub(&left)? };
        }
        Ok(x)
    }

    /// The integral along a dimension, the last by default, by the trapezoidal rule. The spacing is 1, unless the
    /// options say otherwise.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::TrapezoidOptions};
    /// let y = tensor!([1.0, 3.0, 5.0])?;
    /// assert_eq!(y.trapezoid()?.item::<f32>()?, 6.0);
    /// let x = tensor!([0.0, 1.0, 3.0])?;
    /// assert_eq!(y.trapezoid_with(TrapezoidOptions::new().x(&x))?.item::<f32>()?, 10.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, the elements are bools, or the coordinates do not fit the samples.
    #[doc(alias = "trapz")]
    #[op(autocast_cuda = f32, samples = trapezoid_samples, errors = trapezoid_errors, aliases = ["trapz"])]
    pub fn trapezoid<'a>(&self, options: impl Into<TrapezoidOptions<'a>>) -> Result<Tensor> {
        let (y, dim, dtype) = samples_along("trapezoid", self, &options)?;
        let pieces = match options.x {
            Some(x) if y.shape()[dim] > 0 => {
                let (left, right) = neighbours(&y, dim)?;
                left.add(&right)?.mul(distances("trapezoid", &y, &x.to_dtype(y.dtype())?, dim)?)?.mul(0.5)?
            }
            _ => {
                let (left, right) = neighbours(&y, dim)?;
                left.add(&right)?.mul(0.5 * options.dx)?
            }
        };
        pieces.sum(dim)?.to_dtype(dtype)
    }

    /// The cumulative integral along a dimension by the trapezoidal rule. See [`trapezoid`](Self::trapezoid).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::TrapezoidOptions};
    /// let y = tensor!([1.0, 3.0, 5.0])?;
    /// assert_eq!(y.cumulative_trapezoid()?.to_vec::<f32>()?, [2.0, 6.0]);
    /// let finer = TrapezoidOptions::new().dx(0.5);
    /// assert_eq!(y.cumulative_trapezoid_with(finer)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`trapezoid`](Self::trapezoid).
    #[op(autocast_cuda = f32, samples = cumulative_trapezoid_samples, errors = trapezoid_errors)]
    pub fn cumulative_trapezoid<'a>(&self, options: impl Into<TrapezoidOptions<'a>>) -> Result<Tensor> {
        let (y, dim, dtype) = samples_along("cumulative_trapezoid", self, &options)?;
        let (left, right) = neighbours(&y, dim)?;
        let means = left.add(&right)?.mul(0.5)?;
        let pieces = match options.x {
            Some(x) if y.shape()[dim] > 0 => {
                means.mul(distances("cumulative_trapezoid", &y, &x.to_dtype(y.dtype())?, dim)?)?
            }
            _ => means.mul(options.dx)?,
        };
        pieces.cumsum(dim)?.to_dtype(dtype)
    }

    /// The numerical gradient along all dimensions, or the given ones: central differences inside, one-sided
    /// differences at the edges. The spacing is 1, unless the options say otherwise.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::GradientOptions};
    /// let y = tensor!([1.0, 4.0, 9.0, 16.0])?;
    /// assert_eq!(y.gradient()?[0].to_vec::<f32>()?, [3.0, 4.0, 6.0, 7.0]);
    /// let x = tensor!([2.0, 4.0, 6.0, 8.0])?;
    /// let slopes = y.gradient_with(GradientOptions::new().spacing(&x))?;
    /// assert_eq!(slopes[0].to_vec::<f32>()?, [1.5, 2.0, 3.0, 3.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, `edge_order` is neither 1 nor 2, there are too few samples for it,
    /// or the spacing does not fit.
    #[op(samples = gradient_samples, errors = gradient_errors, outputs = [tensors])]
    pub fn gradient<'a>(&self, options: impl Into<GradientOptions<'a>>) -> Result<Vec<Tensor>> {
        let GradientOptions { spacing, dim, edge_order } = options;
        let dims = resolve_dims("gradient", &dim, self.rank())?;
        if !(1..=2).contains(&edge_order) {
            bail!(Value, "gradient", "edge_order must be 1 or 2, got {edge_order}");
        }
        let given = match &spacing {
            Spacing::Step(_) => dims.len(),
            Spacing::Steps(steps) => steps.len(),
            Spacing::Coordinates(positions) => positions.len(),
        };
        if given != dims.len() {
            bail!(Value, "gradient", "spacing must have {} entries, got {given}", dims.len());
        }
        let dtype = self.dtype().to_float();
        let x = self.to_dtype(dtype)?.to_dtype(dtype.compute_dtype())?;
        let mut all = Vec::with_capacity(dims.len());
        for (at, &dim) in dims.iter().enumerate() {
            if self.shape()[dim] <= edge_order {
                let (n, needed) = (self.shape()[dim], edge_order + 1);
                bail!(
                    Shape,
                    "gradient",
                    "dimension {dim} must have at least {needed} samples, got {n} in shape {:?}",
                    self.shape()
                );
            }
            let distance = match &spacing {
                Spacing::Step(step) => Distance::Step(*step),
                Spacing::Steps(steps) => Distance::Step(steps[at]),
                Spacing::Coordinates(positions) if positions[at].rank() == 1 => {
                    Distance::Between(distances("gradient", &x, &positions[at].to_dtype(x.dtype())?, dim)?)
                }
                Spacing::Coordinates(positions) => {
                    bail!(Shape, "gradient", "coordinates must be a vector, got shape {:?}", positions[at].shape())
                }
            };
            all.push(slopes(&x, dim, &distance, edge_order)?.to_dtype(dtype)?);
        }
        Ok(all)
    }
}

fn diff_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[5])?],
        sample![x(&[3, 4])?; dim = 0],
        sample![x(&[2, 5, 3])?; n = 2, dim = 1],
        sample![x(&[3, 4])?; prepend = x(&[3, 1])?, append = x(&[3, 2])?],
        sample![x(&[4])?; n = 0],
        sample![x(&[3])?; n = 5].zero_derivative(),
        sample![x(&[2, 0])?],
        sample![ints(&[1, 4, 9, 16], [2, 2])?],
        sample![x(&[2, 4])?.gt(0.0)?],
    ])
}

fn diff_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?; dim = 2]],
        error!["a number", "rank 0"; sample![normal([], 1)?]],
        error!["something else before", "[3]", "[2, 3]"; sample![normal([2, 3], 1)?; prepend = normal([3], 1)?]],
        error!["something longer after", "[3, 1]", "[2, 3]"; sample![normal([2, 3], 1)?; append = normal([3, 1], 1)?]],
    ])
}

fn trapezoid_samples() -> Result<Vec<Sample>> {
    let mut all = cumulative_trapezoid_samples()?;
    all.push(sample![spread([1], 0.0, 1.0)?].zero_derivative());
    Ok(all)
}

fn cumulative_trapezoid_samples() -> Result<Vec<Sample>> {
    let y = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![y(&[5])?],
        sample![y(&[3, 4])?; dx = 0.3, dim = 0],
        sample![y(&[3, 4])?, spread([4], 0.0, 3.0)?.msort()?],
        sample![y(&[2, 3, 2])?; x = spread([3, 2], 0.0, 3.0)?, dim = 1],
        sample![y(&[2, 3])?; x = spread([2, 3], 0.0, 3.0)?, dim = -1],
        sample![y(&[2, 0])?],
        sample![ints(&[1, 4, 9, 16], [2, 2])?],
    ])
}

fn trapezoid_errors() -> Result<Vec<ErrorCase>> {
    let y = || normal([2, 3], 1);
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![y()?; dim = 2]],
        error!["too few places", "3 coordinates", "got 2"; sample![y()?; x = normal([2], 1)?]],
        error!["places of more dimensions", "[1, 2, 3]", "[2, 3]"; sample![y()?; x = normal([1, 2, 3], 1)?]],
        error!["bools", "bool"; sample![y()?.gt(0.0)?]],
    ])
}

fn gradient_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    let positions = |n: usize| spread([n], 0.0, 3.0)?.msort();
    Ok(vec![
        sample![x(&[5])?],
        sample![x(&[2])?],
        sample![x(&[3, 4])?; spacing = 0.5],
        sample![x(&[3, 4])?; spacing = vec![0.5, 2.0], edge_order = 2],
        sample![x(&[3, 4])?; spacing = vec![positions(4)?], dim = 1],
        sample![x(&[3, 4])?; spacing = vec![positions(3)?, positions(4)?], edge_order = 2],
        sample![x(&[2, 3, 3])?; dim = [2, 1]],
        sample![x(&[2, 0])?; dim = 0],
        sample![ints(&[1, 4, 9, 16], [4])?],
    ])
}

fn gradient_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![x()?; dim = 2]],
        error!["an order of 3", "edge_order", "got 3"; sample![x()?; edge_order = 3]],
        error!["too few samples", "3 samples", "got 2"; sample![x()?; edge_order = 2]],
        error!["too few steps", "1", "2"; sample![x()?; spacing = vec![1.0]]],
        error!["coordinates that do not fit", "3 coordinates", "got 2"; sample![x()?; spacing = vec![normal([2], 1)?], dim = 1]],
    ])
}
