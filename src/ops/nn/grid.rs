//! Sampling of images at arbitrary coordinates.

use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::nn::interpolate::cubic_weights;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Result, Shape, Tensor};

choices! {
    /// The interpolation of [`Tensor::grid_sample`].
    ///
    /// ```
    /// assert_eq!(cotangent::options::GridMode::Bicubic.name(), "bicubic");
    /// ```
    pub enum GridMode {
        /// Linear interpolation along all dimensions.
        #[default]
        Bilinear = "bilinear",
        /// The nearest element.
        Nearest = "nearest",
        /// Cubic interpolation, for images only.
        Bicubic = "bicubic",
    }
}

choices! {
    /// The values that [`Tensor::grid_sample`] reads outside of an image.
    ///
    /// ```
    /// assert_eq!(cotangent::options::GridPadding::default().name(), "zeros");
    /// ```
    pub enum GridPadding {
        /// Zeros.
        #[default]
        Zeros = "zeros",
        /// The nearest border element.
        Border = "border",
        /// The image reflected at its borders, repeatedly.
        Reflection = "reflection",
    }
}

options! {
    /// The options of [`Tensor::grid_sample_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::{GridMode, GridPadding, GridSampleOptions}};
    /// let options = GridSampleOptions::new().mode(GridMode::Nearest).padding_mode(GridPadding::Border);
    /// let (x, far) = (tensor!([[[[1.0, 2.0]]]])?, tensor!([[[[9.0, 0.0]]]])?);
    /// assert_eq!(x.grid_sample_with(&far, options)?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GridSampleOptions {
        /// The interpolation.
        mode: GridMode = GridMode::Bilinear,
        /// The values outside of the image.
        padding_mode: GridPadding = GridPadding::Zeros,
        /// Whether -1 and 1 are the centres of the border elements, instead of their outer edges.
        align_corners: bool = false,
    }
}

options! {
    /// The options of [`Tensor::affine_grid_with`]. A bool stands for `align_corners`.
    ///
    /// ```
    /// use cotangent::{tensor, options::AffineGridOptions};
    /// let theta = tensor!([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])?;
    /// let grid = theta.affine_grid_with([1, 1, 1, 2], AffineGridOptions::new().align_corners(true))?;
    /// assert_eq!(grid.to_vec::<f32>()?, [-1.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AffineGridOptions {
        /// Whether -1 and 1 are the centres of the border elements, instead of their outer edges.
        align_corners: bool = false,
    }
}

impl From<bool> for AffineGridOptions {
    fn from(align_corners: bool) -> AffineGridOptions {
        AffineGridOptions::new().align_corners(align_corners)
    }
}

/// One dimension of an image.
struct Side {
    size: usize,
    padding: GridPadding,
    align: bool,
}

/// An interpolation term in one dimension: its index, whether it is inside if that matters, and its weight unless it is
/// 1.
struct Tap {
    at: Tensor,
    inside: Option<Tensor>,
    weight: Option<Tensor>,
}

impl Side {
    /// Converts coordinates from -1 to 1 to element positions.
    fn position(&self, x: &Tensor) -> Result<Tensor> {
        let size = self.size as f64;
        if self.align { x.add(1.0)?.mul((size - 1.0) / 2.0) } else { x.add(1.0)?.mul(size)?.sub(1.0)?.div(2.0) }
    }

    /// Clamps positions to the image. The derivative is 0 at the ends and beyond.
    fn clipped(&self, x: &Tensor) -> Result<Tensor> {
        let last = self.size as f64 - 1.0;
        let outside = x.gt(0.0)?.logical_and(&x.lt(last)?)?.logical_not()?;
        outside.where_(&x.detach().clamp(0.0, last)?, x)
    }

    /// Maps positions outside of the image inside, as the padding requires.
    fn padded(&self, x: &Tensor) -> Result<Tensor> {
        match self.padding {
            GridPadding::Zeros => Ok(x.clone()),
            GridPadding::Border => self.clipped(x),
            GridPadding::Reflection => {
                let (low, span) = if self.align { (0.0, self.size as f64 - 1.0) } else { (-0.5, self.size as f64) };
                if span == 0.0 {
                    return x.mul(0.0);
                }
                let distance = x.sub(low)?.abs()?;
                let turns = distance.detach().div(span)?.floor()?;
                let rest = distance.sub(&turns.mul(span)?)?;
                let even = turns.remainder(2.0)?.eq(0.0)?;
                self.clipped(&even.where_(&rest, rest.rsub(span)?)?.add(low)?)
            }
        }
    }

    fn tap(&self, at: &Tensor, weight: Option<Tensor>) -> Result<Tap> {
        let at = at.detach();
        let last = self.size as f64 - 1.0;
        let outside = self.padding == GridPadding::Zeros;
        let inside = outside.then(|| at.ge(0.0)?.logical_and(&at.le(last)?)).transpose()?;
        Ok(Tap { at: at.clamp(0.0, last)?.to_dtype(DType::I64)?, inside, weight })
    }

    fn taps(&self, x: &Tensor, mode: GridMode) -> Result<Vec<Tap>> {
        let position = self.position(x)?;
        match mode {
            GridMode::Nearest => Ok(vec![self.tap(&self.padded(&position)?.round()?, None)?]),
            GridMode::Bilinear => {
                let position = self.padded(&position)?;
                let first = position.detach().floor()?;
                let share = position.sub(&first)?;
                Ok(vec![self.tap(&first, Some(share.rsub(1.0)?))?, self.tap(&first.add(1.0)?, Some(share))?])
            }
            GridMode::Bicubic => {
                let first = position.detach().floor()?;
                let weights = cubic_weights(&position.sub(&first)?)?;
                let taps = weights.into_iter().zip([-1.0, 0.0, 1.0, 2.0]);
                taps.map(|(weight, by)| self.tap(&self.padded(&first.add(by)?)?.round()?, Some(weight))).collect()
            }
        }
    }
}

/// Combines two optional tensors. If only one is given, returns it.
fn both(
    a: Option<&Tensor>,
    b: Option<&Tensor>,
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => f(a, b).map(Some),
        (a, b) => Ok(a.or(b).cloned()),
    }
}

/// # Grid sampling
#[ops]
impl Tensor {
    /// Samples an image `[batch, channels, height, width]` at the coordinates of a grid `[batch, h, w, 2]`, which range
    /// from -1 to 1 over width and height; the result is `[batch, channels, h, w]`. A volume and its grid have one more
    /// dimension.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (x, grid) = (tensor!([[[[1.0, 2.0], [3.0, 6.0]]]])?, Tensor::zeros([1, 1, 1, 2])?);
    /// assert_eq!(x.grid_sample(&grid)?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, the image is empty, the mode does not support volumes, or the elements are not
    /// floats.
    #[op(autocast_cpu = f32, autocast_cuda = widest, samples = grid_samples, errors = grid_errors)]
    pub fn grid_sample(&self, grid: &Tensor, options: impl Into<GridSampleOptions>) -> Result<Tensor> {
        const OP: &str = "grid_sample";
        let GridSampleOptions { mode, padding_mode, align_corners } = options;
        float_only(OP, self)?;
        float_only(OP, grid)?;
        let dims = self.rank().saturating_sub(2);
        let fits = matches!(dims, 2 | 3)
            && grid.rank() == self.rank()
            && grid.shape()[0] == self.shape()[0]
            && grid.shape()[dims + 1] == dims;
        if !fits {
            bail!(
                Shape,
                OP,
                "grid must be [n, .., 2] for input [n, c, h, w] or [n, .., 3] for [n, c, d, h, w], got input {:?} and grid {:?}",
                self.shape(),
                grid.shape()
            );
        }
        let sides = &self.shape()[2..];
        if sides.contains(&0) {
            bail!(Shape, OP, "input sizes must be positive, got shape {:?}", self.shape());
        }
        if dims == 3 && mode == GridMode::Bicubic {
            bail!(Value, OP, "mode bicubic is not supported for 5-D input");
        }
        let dtype = common_dtype(OP, self.dtype(), grid.dtype())?;
        let wide = dtype.compute_dtype();
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let out: Shape = [n, c].into_iter().chain(grid.shape()[1..=dims].iter().copied()).collect();
        let positions = grid.shape()[1..=dims].iter().product::<usize>();
        let grid = grid.to_dtype(wide)?.reshape([n, positions, dims])?;
        // Coordinates are ordered from the last dimension to the first.
        let taps = |d: usize| {
            let side = Side { size: sides[d], padding: padding_mode, align: align_corners };
            side.taps(&grid.select(2, dims - 1 - d)?, mode)
        };
        let mut all = taps(0)?;
        for (d, &side) in sides.iter().enumerate().skip(1) {
            let (next, mut joined) = (taps(d)?, Vec::new());
            for a in &all {
                for b in &next {
                    joined.push(Tap {
                        at: a.at.mul(side)?.add(&b.at)?,
                        inside: both(a.inside.as_ref(), b.inside.as_ref(), |a, b| a.logical_and(b))?,
                        weight: both(a.weight.as_ref(), b.weight.as_ref(), |a, b| a.mul(b))?,
                    });
                }
            }
            all = joined;
        }
        let x = self.to_dtype(wide)?.reshape([n, c, sides.iter().product::<usize>()])?;
        let mut sum: Option<Tensor> = None;
        for Tap { at, inside, weight } in all {
            let mut part = x.gather(2, &at.unsqueeze(1)?.expand([n, c, positions])?)?;
            if let Some(weight) = weight {
                part = part.mul(&weight.unsqueeze(1)?)?;
            }
            if let Some(inside) = inside {
                part = inside.unsqueeze(1)?.where_(&part, 0.0)?;
            }
            sum = Some(if let Some(sum) = sum { sum.add(&part)? } else { part });
        }
        let sum = sum.map_or_else(|| Tensor::zeros_with([n, c, positions], (wide, self.device())), Ok)?;
        // With mode nearest the gradient of the grid is zero, but it exists.
        let sum = if mode == GridMode::Nearest && grid.requires_grad() {
            let nowhere = Tensor::full_with((), false, (DType::Bool, self.device()))?;
            nowhere.where_(&grid.sum(2)?.unsqueeze(1)?, &sum)?
        } else {
            sum
        };
        sum.reshape(&out)?.to_dtype(dtype)
    }

    /// The grid for [`grid_sample`](Self::grid_sample) of affine maps `[batch, 2, 3]` with the result size `[batch,
    /// channels, height, width]`, or `[batch, 3, 4]` and the size of a volume.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let theta = tensor!([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])?;
    /// assert_eq!(theta.affine_grid([1, 1, 1, 2])?.to_vec::<f32>()?, [-0.5, 0.0, 0.5, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a size is 0, or the maps are not floats.
    #[op(autocast_cpu = lower, samples = affine_samples, errors = affine_errors)]
    pub fn affine_grid(&self, size: impl Into<Shape>, options: impl Into<AffineGridOptions>) -> Result<Tensor> {
        const OP: &str = "affine_grid";
        float_only(OP, self)?;
        let dims = size.len().saturating_sub(2);
        let fits = matches!(dims, 2 | 3) && self.shape() == [size[0], dims, dims + 1];
        if !fits || size.contains(&0) {
            bail!(
                Shape,
                OP,
                "theta must be [n, 2, 3] for size [n, c, h, w] or [n, 3, 4] for [n, c, d, h, w] ≥ 1, got {:?} and {size:?}",
                self.shape()
            );
        }
        let theta = self.to_dtype(self.dtype().compute_dtype())?;
        // Σ theta[k] · position[k] + theta[last], with one position per dimension.
        let spread = |k: usize| {
            let shape: Shape = [size[0]].into_iter().chain(vec![1; dims]).chain([dims]).collect();
            theta.select(2, k)?.reshape(&shape)
        };
        let mut grid = spread(dims)?;
        for k in 0..dims {
            // The first coordinate is that of the last dimension.
            let d = dims - 1 - k;
            let n = size[d + 2];
            let edge = if n == 1 {
                0.0
            } else if options.align_corners {
                1.0
            } else {
                (n - 1) as f64 / n as f64
            };
            let step = if n == 1 { 0.0 } else { 2.0 * edge / (n - 1) as f64 };
            let numbers = Tensor::arange_with(0, n, (DType::F64, self.device()))?.mul(step)?.sub(edge)?;
            let mut shape = vec![1; dims + 2];
            shape[d + 1] = n;
            grid = grid.add(&spread(k)?.mul(&numbers.to_dtype(theta.dtype())?.reshape(Shape::from(shape))?)?)?;
        }
        grid.to_dtype(self.dtype())
    }
}

fn grid_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
        for mode in [GridMode::Bilinear, GridMode::Bicubic, GridMode::Nearest] {
            for align in [false, true] {
                let sample = sample![normal([2, 2, 3, 4], 1)?, spread([2, 2, 3, 2], -1.63, 1.71)?; mode = mode];
                all.push(sample.with("padding_mode", padding).with("align_corners", align));
            }
        }
        let sample = sample![normal([1, 2, 2, 3, 2], 1)?, spread([1, 1, 2, 2, 3], -1.47, 1.31)?];
        all.push(sample.with("padding_mode", padding));
    }
    all.push(sample![normal([1, 1, 2, 2, 2], 1)?, spread([1, 1, 2, 1, 3], -1.1, 1.2)?; mode = GridMode::Nearest]);
    all.push(sample![normal([1, 1, 1, 1], 1)?, spread([1, 1, 2, 2], -1.1, 1.2)?; align_corners = true, padding_mode = GridPadding::Border]);
    Ok(all)
}

fn grid_errors() -> Result<Vec<ErrorCase>> {
    let (x, grid) = (normal([1, 2, 3, 4], 1)?, normal([1, 2, 2, 2], 1)?);
    let volume = (normal([1, 1, 2, 2, 2], 1)?, normal([1, 1, 1, 1, 3], 1)?);
    Ok(vec![
        error!["three dimensions", "[2, 3, 4]"; sample![normal([2, 3, 4], 1)?, &grid]],
        error!["another batch", "[2, 2, 2, 2]"; sample![&x, normal([2, 2, 2, 2], 1)?]],
        error!["three numbers", "[1, 2, 2, 3]"; sample![&x, normal([1, 2, 2, 3], 1)?]],
        error!["no elements", "[1, 2, 0, 4]"; sample![normal([1, 2, 0, 4], 1)?, &grid]],
        error!["cubes", "bicubic"; sample![volume.0, volume.1; mode = GridMode::Bicubic]],
        error!["integers", "i64"; sample![ints(&[1], [1, 1, 1, 1])?, &grid]],
    ])
}

fn affine_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for align in [false, true] {
        all.push(sample![normal([2, 2, 3], 1)?, [2, 1, 3, 4]; align_corners = align]);
        all.push(sample![normal([1, 3, 4], 1)?, [1, 2, 2, 1, 3]; align_corners = align]);
    }
    Ok(all)
}

fn affine_errors() -> Result<Vec<ErrorCase>> {
    let theta = normal([2, 2, 3], 1)?;
    Ok(vec![
        error!["another batch", "[2, 2, 3]", "[1, 1, 2, 2]"; sample![&theta, [1, 1, 2, 2]]],
        error!["a volume", "[2, 2, 3]"; sample![&theta, [2, 1, 2, 2, 2]]],
        error!["a size of 0", "[2, 1, 0, 2]"; sample![&theta, [2, 1, 0, 2]]],
        error!["integers", "i64"; sample![ints(&[1, 0, 0, 0, 1, 0], [1, 2, 3])?, [1, 1, 2, 2]]],
    ])
}
