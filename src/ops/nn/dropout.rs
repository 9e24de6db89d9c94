//! Dropout of elements and of channels, and alpha dropout.

use crate::backend::spec::{Draw, Ordered, Sym, select};
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, zero};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::{DType, Result, Scalar, Shape, Tensor, backend, random};

options! {
    /// The options of [`Tensor::alpha_dropout_with`]. A bool stands for `training`.
    ///
    /// ```
    /// use cotangent::{Tensor, options::AlphaDropoutOptions};
    /// let x = Tensor::ones([3])?;
    /// assert!(x.alpha_dropout_with(0.5, AlphaDropoutOptions::new().training(false))?.is_same(&x));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AlphaDropoutOptions {
        /// Whether dropout is applied.
        training: bool = false,
    }
}

impl From<bool> for AlphaDropoutOptions {
    fn from(training: bool) -> AlphaDropoutOptions {
        AlphaDropoutOptions::new().training(training)
    }
}

fn probability(op: &'static str, p: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&p) {
        bail!(Value, op, "dropout probability p must be in [0, 1], got {p}");
    }
    Ok(())
}

/// Drops whole channels of `[batch, channels, ..]`, or of `[channels, ..]` with one dimension less.
#[track_caller]
fn channel_dropout(op: &'static str, x: &Tensor, p: f64, training: bool, ranks: [usize; 2]) -> Result<Tensor> {
    probability(op, p)?;
    float_only(op, x)?;
    if !ranks.contains(&x.rank()) {
        let [a, b] = ranks;
        bail!(Shape, op, "input must have {a} or {b} dimensions, got shape {:?}", x.shape());
    }
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    let channels = if x.rank() == ranks[0] { 1 } else { 2 };
    x.mul(&noise(x, channels)?.dropout(p)?)
}

/// Ones in the shape of `x`, with size 1 in all but the first `dims` dimensions.
fn noise(x: &Tensor, dims: usize) -> Result<Tensor> {
    let shape: Shape = x.shape().iter().enumerate().map(|(d, &size)| if d < dims { size } else { 1 }).collect();
    Tensor::ones_with(shape, (x.dtype(), x.device()))
}

/// Sets dropped elements to the limit of SELU at minus infinity, then scales and shifts all to preserve mean and
/// variance.
#[track_caller]
fn alpha_dropout(op: &'static str, x: &Tensor, p: f64, training: bool, dims: usize) -> Result<Tensor> {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    probability(op, p)?;
    float_only(op, x)?;
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    if p == 1.0 {
        return x.mul(0.0);
    }
    let wide = x.dtype().compute_dtype();
    let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let kept = noise(x, dims)?.dropout(p)?.gt(0.0)?.to_dtype(wide)?;
    let shift = kept.sub(1.0)?.add(p)?.mul(ALPHA * scale)?;
    x.to_dtype(wide)?.mul(&kept.mul(scale)?)?.add(&shift)?.to_dtype(x.dtype())
}

options! {
    /// The options of [`Tensor::dropout_with`]. A bool stands for `training`.
    ///
    /// ```
    /// use cotangent::{Tensor, options::DropoutOptions};
    /// let x = Tensor::ones([3])?.dropout_with(0.5, DropoutOptions::new().training(false))?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct DropoutOptions {
        /// Whether dropout is applied.
        training: bool = true,
    }
}

impl From<bool> for DropoutOptions {
    fn from(training: bool) -> DropoutOptions {
        DropoutOptions::new().training(training)
    }
}

/// `x · scale` where the mask is true, and 0 elsewhere even if `x` is infinite or NaN. The gradient has the same form.
static MASKED: Elementwise = Elementwise::new("dropout", Domain::Float, 2, 1, |x, p| kept(x[0], x[1], p[0]))
    .with_gradient(|g, x, _, p| vec![Some(kept(g, x[1], p[0])), None]);

fn kept(x: Sym, mask: Sym, scale: Sym) -> Sym {
    select(mask.ne(zero()), x * scale, zero())
}

/// # Dropout
#[ops]
impl Tensor {
    /// Sets each element to 0 with probability `p` and scales the others by `1 / (1 - p)`. Without training, returns
    /// the tensor unchanged. The random numbers come from [`manual_seed`](crate::manual_seed) or
    /// [`with_generator`](crate::with_generator).
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([100])?;
    /// assert!(x.dropout(0.5)?.to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
    /// assert!(x.dropout_with(0.5, false)?.is_same(&x));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or the tensor is not floating point.
    #[op(samples = dropout_samples, errors = dropout_errors, random)]
    pub fn dropout(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            bail!(Value, "dropout", "dropout probability p must be in [0, 1], got {p}");
        }
        float_only("dropout", self)?;
        if !options.training || p == 0.0 {
            return Ok(self.clone());
        }
        let mut mask = Tensor::empty("dropout", self.layout().shape().clone(), DType::Bool, self.device())?;
        let (seed, offset) = random::next_range(random::counters(self.numel() as u64, random::PER_COUNTER_32));
        let kept = Draw::Booleans(random::greatest_yes(1.0 - p));
        backend::draw("dropout", kept, (seed, offset), &mut mask.as_view_mut("dropout")?)?;
        MASKED.call_as(&[self, &mask], &[Scalar::F64(1.0 / (1.0 - p))], self.dtype(), self.dtype())
    }

    /// Sets whole channels of `[batch, channels, length]` or `[channels, length]` to 0 with probability `p`, and scales
    /// the others by `1 / (1 - p)`. Without training, returns the tensor unchanged.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([2, 3, 4])?.dropout1d(0.5)?;
    /// assert!(x.narrow(2, 0, 1)?.expand([2, 3, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, the input has the wrong rank, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2], &[3, 2]]), errors = channel_errors, random)]
    pub fn dropout1d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        channel_dropout("dropout1d", self, p, options.training, [2, 3])
    }

    /// [`dropout1d`](Self::dropout1d) for `[batch, channels, height, width]` or `[batch, channels, length]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([2, 3, 4, 4])?.dropout2d(0.5)?;
    /// assert!(x.narrow(3, 0, 1)?.expand([2, 3, 4, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, the input has the wrong rank, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2, 1], &[2, 3, 2]]), errors = channel_errors, random)]
    pub fn dropout2d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        // Three dimensions are a batch of sequences, as in PyTorch.
        let ranks = if self.rank() == 3 { [2, 3] } else { [3, 4] };
        channel_dropout("dropout2d", self, p, options.training, ranks)
    }

    /// [`dropout1d`](Self::dropout1d) for `[batch, channels, depth, height, width]`, or without the batch.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([2, 3, 4, 4, 4])?.dropout3d(0.5)?.shape(), [2, 3, 4, 4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, the input has the wrong rank, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2, 1, 2], &[3, 2, 1, 2]]), errors = channel_errors, random)]
    pub fn dropout3d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        channel_dropout("dropout3d", self, p, options.training, [4, 5])
    }

    /// Dropout for networks of [`selu`](Self::selu), which preserves mean 0 and variance 1: dropped elements get the
    /// saturation value of `selu`. Without training, returns the tensor unchanged.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::randn([100])?;
    /// assert!(x.alpha_dropout(0.5)?.is_same(&x));
    /// assert_eq!(x.alpha_dropout_with(0.5, true)?.shape(), [100]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or the elements are not floats.
    #[op(samples = alpha_samples, errors = alpha_errors, random)]
    pub fn alpha_dropout(&self, p: f64, options: impl Into<AlphaDropoutOptions>) -> Result<Tensor> {
        alpha_dropout("alpha_dropout", self, p, options.training, self.rank())
    }

    /// [`alpha_dropout`](Self::alpha_dropout) of whole channels, the second dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3, 4])?.feature_alpha_dropout_with(0.5, true)?;
    /// assert!(x.narrow(2, 0, 1)?.expand([2, 3, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, there are fewer than two dimensions, or the elements are not floats.
    #[op(samples = alpha_samples, errors = feature_errors, random)]
    pub fn feature_alpha_dropout(&self, p: f64, options: impl Into<AlphaDropoutOptions>) -> Result<Tensor> {
        const OP: &str = "feature_alpha_dropout";
        if self.rank() < 2 {
            bail!(Shape, OP, "input must have at least 2 dimensions, got shape {:?}", self.shape());
        }
        alpha_dropout(OP, self, p, options.training, 2)
    }
}

fn channel_samples(shapes: &[&[usize]]) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in shapes {
        all.push(sample![normal(*shape, 1)?, 0.4]);
        all.push(sample![normal(*shape, 1)?, 0.4; training = false]);
    }
    Ok(all)
}

fn channel_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3], 1)?;
    Ok(vec![error!["more than all", "1.5"; sample![&x, 1.5]], error!["one dimension", "[3]"; sample![&x, 0.5]]])
}

fn alpha_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([2, 3, 2], 1)?, 0.4; training = true],
        sample![normal([2, 3], 1)?, 0.4],
        sample![normal([2, 3], 1)?, 1.0; training = true].zero_derivative(),
    ])
}

fn alpha_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["more than all", "1.5"; sample![normal([2, 3], 1)?, 1.5]]])
}

fn feature_errors() -> Result<Vec<ErrorCase>> {
    let mut all = alpha_errors()?;
    all.push(error!["one dimension", "[3]"; sample![normal([3], 1)?, 0.5]]);
    Ok(all)
}

fn dropout_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([4, 5], 1)?, 0.5],
        sample![normal([2, 3, 4], 2)?, 0.1],
        sample![normal([3], 3)?, 0.0],
        sample![normal([3], 4)?, 1.0].zero_derivative(),
        sample![normal([0, 3], 5)?, 0.5],
        sample![normal([3], 6)?, 0.5; training = false],
    ])
}

fn dropout_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3], 1)?;
    Ok(vec![
        error!["more than all", "1.5"; sample![&x, 1.5]],
        error!["less than none", "-0.1"; sample![&x, -0.1; training = false]],
        error!["no number", "NaN"; sample![&x, f64::NAN]],
        error!["integers", "i64"; sample![Tensor::zeros_with([3], DType::I64)?, 0.5]],
    ])
}
