//! Resizing of signals, images and volumes.

use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::order::sort_by;
use crate::{DType, Device, Result, Shape, Tensor, keepdim};

choices! {
    /// The interpolation of [`Tensor::interpolate`].
    ///
    /// ```
    /// use cotangent::{Shape, tensor, options::{InterpolateMode, InterpolateOptions}};
    /// let x = tensor!([[[0.0, 4.0]]])?;
    /// let options = InterpolateOptions::new().size(Shape::from(4)).mode(InterpolateMode::Linear);
    /// assert_eq!(x.interpolate_with(options)?.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum InterpolateMode {
        /// The element at the source position, rounded down.
        #[default]
        Nearest = "nearest",
        /// Linear interpolation along one dimension.
        Linear = "linear",
        /// Linear interpolation along two dimensions.
        Bilinear = "bilinear",
        /// Cubic interpolation along two dimensions.
        Bicubic = "bicubic",
        /// Linear interpolation along three dimensions.
        Trilinear = "trilinear",
        /// The mean of the source elements in the area of the output element.
        Area = "area",
        /// The nearest element.
        NearestExact = "nearest-exact",
    }
}

options! {
    /// The options of [`Tensor::interpolate_with`]. Either `size` or `scale_factor` must be given.
    ///
    /// ```
    /// use cotangent::{tensor, options::InterpolateOptions};
    /// let x = tensor!([[[1, 2]]])?.interpolate_with(InterpolateOptions::new().scale_factor(vec![2.0]))?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 1, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct InterpolateOptions {
        /// The output sizes of the spatial dimensions: one for all, or one for each.
        size: Option<Shape> = None,
        /// The factors of the spatial sizes: one for all, or one for each.
        scale_factor: Option<Vec<f64>> = None,
        /// The interpolation.
        mode: InterpolateMode = InterpolateMode::Nearest,
        /// Whether the centres of the corner elements are aligned, instead of their outer edges.
        align_corners: Option<bool> = None,
        /// Whether the factor is recomputed from the rounded output sizes.
        recompute_scale_factor: Option<bool> = None,
        /// Whether downsampling is antialiased, for bilinear and bicubic only.
        antialias: bool = false,
    }
}

impl InterpolateMode {
    /// The number of spatial dimensions that the mode requires; `None` for any from one to three.
    const fn dims(self) -> Option<usize> {
        match self {
            InterpolateMode::Linear => Some(1),
            InterpolateMode::Bilinear | InterpolateMode::Bicubic => Some(2),
            InterpolateMode::Trilinear => Some(3),
            InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => None,
        }
    }
}

/// The resizing of one dimension.
struct Resize {
    from: usize,
    to: usize,
    /// The distance between output elements, in input elements.
    step: f64,
    align: bool,
}

/// The input elements summed for each output element, `[terms, output size]`, and their weights; `None` for one of
/// weight 1.
struct Terms {
    index: Tensor,
    weights: Option<Tensor>,
    /// Whether terms of weight 0 are padding, which is ignored even if the element is infinite or NaN.
    padded: bool,
}

/// Keys' cubic kernel for a distance up to 1, and for one up to 2.
fn cubic(x: &Tensor, a: f64) -> Result<[Tensor; 2]> {
    let near = x.mul(a + 2.0)?.sub(a + 3.0)?.mul(x)?.mul(x)?.add(1.0)?;
    let far = x.mul(a)?.sub(5.0 * a)?.mul(x)?.add(8.0 * a)?.mul(x)?.sub(4.0 * a)?;
    Ok([near, far])
}

/// The weights of four elements for a position `t` behind the second one.
pub(in crate::ops) fn cubic_weights(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    let rest = t.rsub(1.0)?;
    let ([second, _], [third, _]) = (cubic(t, A)?, cubic(&rest, A)?);
    let ([_, first], [_, fourth]) = (cubic(&t.add(1.0)?, A)?, cubic(&rest.add(1.0)?, A)?);
    Ok([first, second, third, fourth])
}

impl Resize {
    /// The indices of the output elements.
    fn numbers(&self, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::arange_with(0, self.to, (dtype, device))
    }

    fn bounded(&self, index: &Tensor) -> Result<Tensor> {
        index.clamp(0.0, self.from as f64 - 1.0)?.to_dtype(DType::I64)
    }

    fn terms(&self, mode: InterpolateMode, antialias: bool, device: Device) -> Result<Terms> {
        let numbers = self.numbers(DType::F64, device)?;
        let position = || {
            if self.align { numbers.mul(self.step) } else { numbers.add(0.5)?.mul(self.step)?.sub(0.5) }
        };
        match mode {
            // In f32, so that the same elements are chosen as in PyTorch.
            InterpolateMode::Nearest | InterpolateMode::NearestExact => {
                let numbers = self.numbers(DType::F32, device)?;
                let numbers = if mode == InterpolateMode::Nearest { numbers } else { numbers.add(0.5)? };
                let index = numbers.mul(self.step)?.floor()?;
                Ok(Terms { index: self.bounded(&index)?.unsqueeze(0)?, weights: None, padded: false })
            }
            InterpolateMode::Area => {
                let (from, to) = (self.from as f64, self.to as f64);
                let start = numbers.mul(from)?.div(to)?.floor()?;
                let end = numbers.add(1.0)?.mul(from)?.div(to)?.ceil()?;
                self.window(&start, &end, self.from.div_ceil(self.to) + 1, |_| Ok(None))
            }
            _ if antialias => {
                let (reach, a) = if mode == InterpolateMode::Bicubic { (2.0, -0.5) } else { (1.0, 0.0) };
                let wide = self.step.max(1.0);
                let reach = reach * wide;
                let centre = numbers.add(0.5)?.mul(self.step)?;
                let start = centre.sub(reach)?.add(0.5)?.floor()?.maximum(0.0)?;
                let end = centre.add(reach)?.add(0.5)?.floor()?.minimum(self.from as f64)?;
                // At most the number of elements, whatever the factor.
                let most = if reach < self.from as f64 { 2 * reach.ceil() as usize + 1 } else { self.from };
                self.window(&start, &end, most, |at| {
                    let distance = at.sub(&centre)?.add(0.5)?.div(wide)?.abs()?;
                    if mode == InterpolateMode::Bicubic {
                        let [near, far] = cubic(&distance, a)?;
                        let far = distance.lt(2.0)?.where_(&far, 0.0)?;
                        return distance.lt(1.0)?.where_(&near, &far).map(Some);
                    }
                    distance.rsub(1.0)?.maximum(0.0).map(Some)
                })
            }
            InterpolateMode::Bicubic => {
                let position = position()?;
                let first = position.floor()?;
                let weights = cubic_weights(&position.sub(&first)?)?;
                let index = |by: f64| self.bounded(&first.add(by)?);
                let indices = [index(-1.0)?, index(0.0)?, index(1.0)?, index(2.0)?];
                Terms::of(&indices, &weights.each_ref())
            }
            _ => {
                let position = position()?.maximum(0.0)?;
                let first = position.floor()?.minimum(self.from as f64 - 1.0)?;
                let share = position.sub(&first)?.clamp(0.0, 1.0)?;
                let indices = [self.bounded(&first)?, self.bounded(&first.add(1.0)?)?];
                Terms::of(&indices, &[&share.rsub(1.0)?, &share])
            }
        }
    }

    /// The elements from `start` up to `end`, at most `most`, with weights normalised to sum to 1: those that `weights`
    /// gives for their indices, or equal ones.
    fn window(
        &self,
        start: &Tensor,
        end: &Tensor,
        most: usize,
        weights: impl Fn(&Tensor) -> Result<Option<Tensor>>,
    ) -> Result<Terms> {
        let most = most.min(self.from);
        let at = Tensor::arange_with(0, most, (DType::F64, start.device()))?.unsqueeze(1)?.add(start)?;
        let inside = at.lt(end)?;
        let given = weights(&at)?.map_or_else(|| inside.to_dtype(DType::F64), |given| inside.where_(&given, 0.0))?;
        let given = given.div(&given.sum(keepdim(0))?)?;
        Ok(Terms { index: self.bounded(&at)?, weights: Some(given), padded: true })
    }
}

impl Terms {
    fn of(indices: &[Tensor], weights: &[&Tensor]) -> Result<Terms> {
        Ok(Terms { index: Tensor::stack(indices, 0)?, weights: Some(Tensor::stack(weights, 0)?), padded: false })
    }
}

/// Resizes one dimension.
fn resized(x: &Tensor, dim: usize, Terms { index, weights, padded }: &Terms) -> Result<Tensor> {
    let all = x.index_select(dim, &index.flatten(0, -1)?)?;
    let Some(weights) = weights else { return Ok(all) };
    let (terms, to) = (index.shape()[0], index.shape()[1]);
    let mut shape = vec![1; x.rank() - dim + 1];
    (shape[0], shape[1]) = (terms, to);
    let weights = weights.to_dtype(x.dtype())?.reshape(Shape::from(shape))?;
    let parts = all.unflatten(dim, [terms, to])?.mul(&weights)?;
    if *padded { weights.ne(0.0)?.where_(&parts, 0.0)?.sum(dim) } else { parts.sum(dim) }
}

/// # Resizing
#[ops]
impl Tensor {
    /// Resizes a signal, image or volume `[batch, channels, ..]`. The options are the size or a factor, one or one per
    /// dimension, and the mode: nearest, nearest-exact and area for any rank, linear for one dimension, bilinear and
    /// bicubic for two, trilinear for three.
    ///
    /// ```
    /// # use cotangent::{Shape, tensor, options::{InterpolateMode, InterpolateOptions}};
    /// let x = tensor!([[[[1.0, 3.0], [5.0, 7.0]]]])?;
    /// let small = InterpolateOptions::new().size(Shape::from(1)).mode(InterpolateMode::Area);
    /// assert_eq!(x.interpolate_with(small)?.item::<f32>()?, 4.0);
    /// let wide = InterpolateOptions::new().size(Shape::from([2, 3])).mode(InterpolateMode::Bilinear).align_corners(true);
    /// assert_eq!(x.interpolate_with(wide)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If not exactly one of size and factor is given, they or the mode do not match the dimensions, a size is 0, or
    /// the elements are not floats and the mode is not nearest or nearest-exact.
    #[op(autocast_cuda = f32, samples = interpolate_samples, errors = interpolate_errors)]
    pub fn interpolate(&self, options: impl Into<InterpolateOptions>) -> Result<Tensor> {
        const OP: &str = "interpolate";
        let InterpolateOptions { mode, antialias, .. } = options;
        let Some(dims) = self.rank().checked_sub(2).filter(|dims| (1..=3).contains(dims)) else {
            bail!(Shape, OP, "input must have 3 to 5 dimensions, got shape {:?}", self.shape());
        };
        if mode.dims().is_some_and(|wanted| wanted != dims) {
            bail!(Shape, OP, "mode {mode} is not supported for {}-D input, got shape {:?}", self.rank(), self.shape());
        }
        let nearest = matches!(mode, InterpolateMode::Nearest | InterpolateMode::NearestExact);
        if mode.dims().is_none() && options.align_corners.is_some() {
            bail!(Value, OP, "align_corners is not supported for mode {mode}");
        }
        if antialias && !matches!(mode, InterpolateMode::Bilinear | InterpolateMode::Bicubic) {
            bail!(Value, OP, "antialias requires mode bilinear or bicubic, got {mode}");
        }
        if !nearest {
            float_only(OP, self)?;
        }
        let plan = sizes(OP, self, &options)?;
        let mut x = if nearest { self.clone() } else { self.to_dtype(self.dtype().compute_dtype())? };
        // Dimensions that shrink most come first, so that intermediate results are small; among equal ones the last.
        let mut order: Vec<usize> = (0..dims).rev().collect();
        sort_by(&mut order, |&a, &b| {
            let growth = |d: usize| plan[d].to as f64 / plan[d].from as f64;
            growth(a).total_cmp(&growth(b))
        });
        let linear = matches!(mode, InterpolateMode::Linear | InterpolateMode::Bilinear | InterpolateMode::Trilinear);
        for dim in order {
            if linear && !antialias && plan[dim].from == plan[dim].to {
                // Unchanged, whatever the factor.
                continue;
            }
            x = resized(&x, dim + 2, &plan[dim].terms(mode, antialias, self.device())?)?;
        }
        x.to_dtype(self.dtype())
    }
}

/// The resizing of each spatial dimension.
fn sizes(op: &'static str, x: &Tensor, options: &InterpolateOptions) -> Result<Vec<Resize>> {
    let from = &x.shape()[2..];
    let all = |count: usize| count == 1 || count == from.len();
    let (sizes, factors): (Vec<usize>, Option<Vec<f64>>) = match (&options.size, &options.scale_factor) {
        (Some(size), None) => {
            if !all(size.len()) {
                bail!(Shape, op, "size must be a number or a list of {}, got {size:?}", from.len());
            }
            if options.recompute_scale_factor == Some(true) {
                bail!(Value, op, "recompute_scale_factor requires scale_factor, got size {size:?}");
            }
            ((0..from.len()).map(|d| size[d % size.len()]).collect(), None)
        }
        (None, Some(factor)) => {
            if !all(factor.len()) || factor.iter().any(|f| !(f.is_finite() && *f > 0.0)) {
                bail!(
                    Value,
                    op,
                    "scale_factor must be a positive finite number or a list of {}, got {factor:?}",
                    from.len()
                );
            }
            let factors: Vec<f64> = (0..from.len()).map(|d| factor[d % factor.len()]).collect();
            let sizes = from.iter().zip(&factors).map(|(&size, factor)| (size as f64 * factor) as usize).collect();
            let recompute = options.recompute_scale_factor == Some(true) || options.mode == InterpolateMode::Area;
            (sizes, (!recompute).then_some(factors))
        }
        (size, factor) => bail!(Value, op, "either size or scale_factor must be given, got {size:?} and {factor:?}"),
    };
    if from.contains(&0) || sizes.contains(&0) {
        bail!(Shape, op, "sizes must be positive, got input shape {:?} and output sizes {sizes:?}", x.shape());
    }
    let align = options.align_corners == Some(true);
    let resize = |d: usize| {
        let (from, to) = (from[d], sizes[d]);
        let step = match &factors {
            _ if align && to > 1 => (from - 1) as f64 / (to - 1) as f64,
            _ if align => 0.0,
            Some(factors) => 1.0 / factors[d],
            None => from as f64 / to as f64,
        };
        Resize { from, to, step, align }
    };
    Ok((0..from.len()).map(resize).collect())
}

fn interpolate_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    let shapes: [(&[usize], &[usize], &[InterpolateMode]); 3] = [
        (&[2, 2, 5], &[8], &[InterpolateMode::Linear]),
        (&[1, 2, 3, 4], &[5, 3], &[InterpolateMode::Bilinear, InterpolateMode::Bicubic]),
        (&[1, 1, 2, 3, 2], &[3, 2, 4], &[InterpolateMode::Trilinear]),
    ];
    for (shape, size, modes) in shapes {
        for mode in [InterpolateMode::Nearest, InterpolateMode::NearestExact, InterpolateMode::Area] {
            all.push(sample![normal(shape, 1)?; size = size, mode = mode]);
        }
        for mode in modes {
            for align in [false, true] {
                all.push(sample![normal(shape, 1)?; size = size, mode = *mode, align_corners = align]);
            }
            all.push(sample![normal(shape, 1)?; scale_factor = vec![1.7], mode = *mode]);
        }
    }
    for mode in [InterpolateMode::Bilinear, InterpolateMode::Bicubic] {
        all.push(sample![normal([1, 2, 7, 5], 1)?; size = [3, 4], mode = mode, antialias = true]);
        all.push(sample![normal([1, 1, 3, 3], 1)?; scale_factor = vec![2.0, 0.7], mode = mode, antialias = true]);
    }
    all.push(sample![ints(&[1, 2, 3], [1, 1, 3])?; size = [5]]);
    all.push(sample![normal([1, 1, 4], 1)?; scale_factor = vec![0.6], recompute_scale_factor = true]);
    Ok(all)
}

fn interpolate_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([1, 2, 3, 4], 1)?;
    let size = [2, 2];
    Ok(vec![
        error!["two dimensions", "[2, 3]"; sample![normal([2, 3], 1)?; size = size]],
        error!["no size", "must be given"; sample![&x]],
        error!["both", "must be given"; sample![&x; size = size, scale_factor = vec![2.0]]],
        error!["too many sizes", "[2, 2, 2]"; sample![&x; size = [2, 2, 2]]],
        error!["a size of 0", "[2, 0]"; sample![&x; size = [2, 0]]],
        error!["a negative factor", "-1"; sample![&x; scale_factor = vec![-1.0]]],
        error!["another mode", "linear", "[1, 2, 3, 4]"; sample![&x; size = size, mode = InterpolateMode::Linear]],
        error!["corners", "nearest"; sample![&x; size = size, align_corners = true]],
        error!["antialiasing", "nearest"; sample![&x; size = size, antialias = true]],
        error!["a factor of a size", "recompute"; sample![&x; size = size, recompute_scale_factor = true]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 1, 1, 2])?; size = size, mode = InterpolateMode::Bilinear]],
    ])
}
