//! Padding and cropping at both ends of dimensions.

use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::index::gather::index_vector;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::options;
use crate::tensor::batch::behind;
use crate::{Complex, Element, Result, Scalar, Shape, Tensor, backend};
use smallvec::smallvec;

choices! {
    /// How [`Tensor::pad`] fills the padding.
    ///
    /// ```
    /// use cotangent::{Tensor, options::PadMode};
    /// let x = Tensor::arange(0, 4)?;
    /// assert_eq!(x.pad_with(&[2, 1], PadMode::Reflect)?.to_vec::<i64>()?, [2, 1, 0, 1, 2, 3, 2]);
    /// assert_eq!(x.pad_with(&[2, 1], PadMode::Replicate)?.to_vec::<i64>()?, [0, 0, 0, 1, 2, 3, 3]);
    /// assert_eq!(x.pad_with(&[2, 1], PadMode::Circular)?.to_vec::<i64>()?, [2, 3, 0, 1, 2, 3, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum PadMode {
        /// A constant.
        #[default]
        Constant = "constant",
        /// The elements reflected at the edge elements, which are not repeated.
        Reflect = "reflect",
        /// The edge elements repeated.
        Replicate = "replicate",
        /// The elements of the opposite end.
        Circular = "circular",
    }
}

options! {
    /// The options of [`Tensor::pad_with`]. A [`PadMode`] or a number can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, options::PadOptions};
    /// let x = Tensor::ones([2])?.pad_with(&[1, 0], PadOptions::new().value(-1.0))?;
    /// assert_eq!(x.to_vec::<f32>()?, [-1.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PadOptions {
        /// How the padding is filled.
        mode: PadMode = PadMode::Constant,
        /// The fill value for the mode `Constant`.
        value: Scalar = Scalar::I64(0),
    }
}

impl From<PadMode> for PadOptions {
    fn from(mode: PadMode) -> PadOptions {
        PadOptions::new().mode(mode)
    }
}

impl From<f64> for PadOptions {
    fn from(value: f64) -> PadOptions {
        PadOptions::new().value(value)
    }
}

impl PadMode {
    /// The index of the element at `position`, relative to the first of `size` elements.
    fn source(self, position: isize, size: isize) -> isize {
        match self {
            // One reflection is enough: the padding is shorter than the dimension.
            PadMode::Reflect if position < 0 => -position,
            PadMode::Reflect if position >= size => 2 * (size - 1) - position,
            PadMode::Circular => position.rem_euclid(size),
            _ => position.clamp(0, size - 1),
        }
    }

    /// The longest padding at one end of `size` elements.
    fn longest(self, size: isize) -> isize {
        match self {
            PadMode::Reflect => size - 1,
            PadMode::Circular => size,
            PadMode::Replicate if size > 0 => isize::MAX,
            PadMode::Constant => isize::MAX,
            PadMode::Replicate => 0,
        }
    }
}

/// How one dimension changes.
#[derive(Clone, Copy)]
struct Ends {
    dim: usize,
    before: isize,
    after: isize,
    /// The size afterwards.
    size: usize,
}

impl Ends {
    /// The start and the length of the elements that are kept of a dimension of `size`.
    fn kept(&self, size: usize) -> (usize, usize) {
        let start = self.before.min(0).unsigned_abs();
        (start, size - start - self.after.min(0).unsigned_abs())
    }
}

/// # Padding
#[ops]
impl Tensor {
    /// Pads dimensions at both ends. `pad` has two numbers per dimension, before and after, beginning with the last
    /// dimension; negative numbers remove elements. The default is zeros; another value and the modes reflect,
    /// replicate and circular are options.
    ///
    /// ```
    /// # use cotangent::{tensor, options::PadMode};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.pad(&[1, 0])?.to_vec::<i64>()?, [0, 1, 2, 0, 3, 4]);
    /// assert_eq!(x.pad(&[0, -1, 0, 1])?.to_vec::<i64>()?, [1, 3, 0]);
    /// assert_eq!(x.pad_with(&[0, 1], PadMode::Replicate)?.to_vec::<i64>()?, [1, 2, 2, 3, 4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `pad` has an odd length or more than two numbers per dimension, more elements are removed than there are, or there
    /// are too few elements for the mode.
    #[op(samples = pad_samples, errors = pad_errors)]
    pub fn pad(&self, pad: &[isize], options: impl Into<PadOptions>) -> Result<Tensor> {
        let PadOptions { mode, value } = options;
        if !pad.len().is_multiple_of(2) || pad.len() / 2 > self.rank() {
            let (shape, most) = (self.shape(), 2 * self.rank());
            bail!(Shape, "pad", "pad must have an even length of at most {most} for shape {shape:?}, got {pad:?}");
        }
        let mut ends = Vec::new();
        for (at, pair) in pad.chunks_exact(2).enumerate().filter(|(_, pair)| *pair != [0, 0]) {
            let (dim, before, after) = (self.rank() - 1 - at, pair[0], pair[1]);
            let old = self.shape()[dim] as isize;
            let size = before.checked_add(after).and_then(|more| more.checked_add(old)).unwrap_or(-1);
            let cut = before.min(0).checked_add(after.min(0)).and_then(isize::checked_neg);
            if size < 0 || cut.is_none_or(|cut| cut > old) || before.max(after) > mode.longest(old) {
                let (shape, mode) = (self.shape(), mode.name());
                bail!(
                    Shape,
                    "pad",
                    "cannot pad dimension {dim} of size {old} of shape {shape:?} by {pair:?} in mode {mode}"
                );
            }
            ends.push(Ends { dim, before, after, size: size as usize });
        }
        if mode == PadMode::Constant {
            return padded(self, &ends, value);
        }
        let mut out = self.clone();
        for end in ends {
            let Ends { dim, mut before, size, .. } = end;
            if mode == PadMode::Circular && (before < 0 || end.after < 0) {
                // Elements that are cropped do not wrap around.
                let (start, len) = end.kept(self.shape()[dim]);
                if before.max(end.after).max(0) as usize > len {
                    bail!(
                        Shape,
                        "pad",
                        "cannot pad dimension {dim} by {pad:?} in mode circular: cropping leaves only {len} elements"
                    );
                }
                (out, before) = (out.narrow(dim, start, len)?, before.max(0));
            }
            let old = out.shape()[dim] as isize;
            let positions = (0..size as isize).map(|position| mode.source(position - before, old) as usize);
            out = out.index_select(dim, &index_vector("pad", size, positions)?.to_device(self.device())?)?;
        }
        Ok(out)
    }

    /// [`pad`](Self::pad) with a constant.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2])?.constant_pad_nd(&[1, 0], 7)?.to_vec::<i64>()?, [7, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`pad`](Self::pad).
    #[op(samples = constant_pad_samples, errors = constant_pad_errors)]
    pub fn constant_pad_nd(&self, pad: &[isize], #[default(0)] value: impl Into<Scalar>) -> Result<Tensor> {
        self.pad_with(pad, PadOptions::new().value(value))
    }
}

/// Constant padding. Cropping comes first.
#[track_caller]
fn padded(x: &Tensor, ends: &[Ends], value: Scalar) -> Result<Tensor> {
    value.check_put("pad", x.dtype())?;
    let mut kept = x.clone();
    let mut shape = x.layout().shape().clone();
    for end in ends {
        let (start, len) = end.kept(x.shape()[end.dim]);
        kept = kept.narrow(end.dim, start, len)?;
        shape = shape.with(end.dim, end.size);
    }
    let longer: Vec<Ends> = ends.iter().copied().filter(|end| end.before > 0 || end.after > 0).collect();
    if longer.is_empty() {
        return Ok(kept);
    }
    if x.dtype().is_complex() {
        let z = <Complex<f64> as Element>::from_scalar(value);
        let part = |x: &Tensor, value: f64| padded(x, ends, value.into());
        return part(&x.real()?, z.re)?.with_imaginary(&part(&x.imag()?, z.im)?);
    }
    let small = kept.layout().shape().clone();
    surrounded(&kept, &longer, shape, value)?.record("pad", &[&kept], |_| {
        move |_: &BackwardContext, g: &Tensor| {
            let part = longer.iter().try_fold(g.clone(), |g, end| g.narrow(end.dim, end.before.max(0), small[end.dim]));
            Ok(smallvec![Some(part?)])
        }
    })
}

/// `x` padded with `value` to a tensor of `shape`, outside the graph.
fn surrounded(x: &Tensor, ends: &[Ends], shape: Shape, value: Scalar) -> Result<Tensor> {
    if x.is_batched() {
        return Tensor::over_batch(&[x], |level, all| {
            let ends: Vec<Ends> = ends.iter().map(|end| Ends { dim: end.dim + 1, ..*end }).collect();
            surrounded(all[0], &ends, behind(level.size, &shape)?, value)
        });
    }
    let mut out = Tensor::filled("pad", shape, value, x.dtype(), x.device())?;
    if x.numel() > 0 {
        let mut whole = out.as_view_mut("pad")?;
        let part = ends.iter().try_fold(whole.layout.clone(), |layout, end| {
            layout.narrow("pad", end.dim as isize, end.before.max(0), x.shape()[end.dim])
        })?;
        backend::copy("pad", x.as_view()?, &mut whole.part(&part))?;
    }
    Ok(out)
}

fn pad_samples() -> Result<Vec<Sample>> {
    let x = || spread([3, 4], -2.0, 2.0);
    let mut all = vec![
        sample![x()?, [1, 2]],
        sample![x()?, [0, 0, 2, 1]; value = 1.5],
        sample![x()?, [1, 0, 0, 2]],
        sample![x()?, [-1, 2, 1, -1]],
        sample![x()?, [-1, -2]],
        sample![x()?, []],
        sample![spread([2, 0], -2.0, 2.0)?, [1, 1]],
        sample![spread([2, 0], -2.0, 2.0)?, [0, 0, 1, 0]],
        sample![spread([], -2.0, 2.0)?, []],
        sample![spread([3], -2.0, 2.0)?, [-3, 0]].zero_derivative(),
    ];
    for mode in ["reflect", "replicate", "circular"] {
        all.push(sample![x()?, [1, 2]; mode = mode]);
        all.push(sample![spread([2, 3, 3], -2.0, 2.0)?, [2, 1, 1, 2]; mode = mode]);
        all.push(sample![x()?, [-1, 2]; mode = mode]);
    }
    all.push(sample![x()?, [5, 9]; mode = "replicate"]);
    Ok(all)
}

fn pad_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["an odd number", "[1, 2, 3]"; sample![&x, [1, 2, 3]]],
        error!["too many numbers", "[2, 3]"; sample![&x, [1, 1, 1, 1, 1, 1]]],
        error!["too much cut off", "[-2, -2]", "size 3"; sample![&x, [-2, -2]]],
        error!["cut off beyond the other end", "[-4, 9]", "size 3"; sample![&x, [-4, 9]]],
        error!["a reflection of more than there is", "reflect", "[3, 0]"; sample![&x, [3, 0]; mode = "reflect"]],
        error!["around more than once", "circular", "[4, 0]"; sample![&x, [4, 0]; mode = "circular"]],
        error!["nothing to repeat", "replicate", "size 0"; sample![normal([2, 0], 1)?, [1, 0]; mode = "replicate"]],
        error!["too long", "bytes"; sample![&x, [isize::MAX - 8, 0]]],
    ])
}

fn constant_pad_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 3], -2.0, 2.0)?, [1, 2]], sample![spread([2, 3], -2.0, 2.0)?, [-1, 0, 0, 1], 1.5]])
}

fn constant_pad_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["one number", "[1]"; sample![normal([2], 1)?, [1]]]])
}
