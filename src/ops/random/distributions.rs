//! Random numbers from many distributions. All use the counter-based draws of the generator, so that a seed gives the same
//! numbers on every device.

use crate::backend::{self, Draw};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::create::constants::{Distribution, alike, random_tensor};
use crate::ops::elementwise::call::common_dtype;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::options::{Rounding, SortOptions};
use crate::tensor::Operand;
use crate::{DType, Device, Result, Shape, Tensor, TensorOptions, random};
use std::f64::consts::PI;

options! {
    /// The options of [`Tensor::bernoulli_with`]. A number is taken as `p`.
    ///
    /// ```
    /// use cotangent::{Tensor, options::BernoulliOptions};
    /// let x = Tensor::zeros([4])?.bernoulli_with(BernoulliOptions::new().p(1.0))?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0; 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BernoulliOptions {
        /// One probability for all elements, instead of those in the tensor.
        p: Option<f64> = None,
    }
}

impl From<f64> for BernoulliOptions {
    fn from(p: f64) -> BernoulliOptions {
        BernoulliOptions::new().p(p)
    }
}

/// Uniform `f64` numbers in (0, 1], with the shape and device of this tensor.
fn above_zero(op: &'static str, x: &Tensor) -> Result<Tensor> {
    uniform_like(op, x.layout().shape(), x.device())?.neg()?.add(1.0)
}

/// Uniform `f64` numbers in [0, 1).
fn uniform_like(op: &'static str, shape: &Shape, device: Device) -> Result<Tensor> {
    let options = TensorOptions::new().dtype(DType::F64).device(device);
    random_tensor(op, shape.clone(), options, Distribution::Uniform, random::next_range)
}

/// Refuses elements outside of `[least, most]`. Only on the CPU: on a GPU a check would synchronize.
fn check_all(op: &'static str, what: &str, x: &Tensor, least: f64, most: f64) -> Result<()> {
    if x.numel() == 0 || x.device() != Device::Cpu {
        return Ok(());
    }
    let x = x.detach().to_dtype(DType::F64)?;
    let (low, high) = (x.min(..)?.item::<f64>()?, x.max(..)?.item::<f64>()?);
    if low.is_nan() || low < least || high > most {
        bail!(Value, op, "{what} must be in [{least}, {most}], got values from {low} to {high}");
    }
    Ok(())
}

/// The largest integer up to which a dtype represents all integers.
fn greatest_integer(dtype: DType) -> u64 {
    match dtype {
        DType::Bool => 1,
        DType::U8 => u8::MAX.into(),
        DType::I8 => i8::MAX as u64,
        DType::U16 => u16::MAX.into(),
        DType::I16 => i16::MAX as u64,
        DType::U32 => u32::MAX.into(),
        DType::I32 => i32::MAX as u64,
        DType::F16 => 1 << 11,
        DType::BF16 => 1 << 8,
        DType::F32 => 1 << 24,
        DType::F64 => 1 << 53,
        _ => i64::MAX as u64,
    }
}

/// # Random numbers
///
/// [`manual_seed`](crate::manual_seed) seeds all random numbers: see [`random`](crate::random). [`rand`](Self::rand),
/// [`randn`](Self::randn) and [`randint`](Self::randint) are with [creation](#creation).
#[ops]
impl Tensor {
    /// Random zeros and ones. Each element is the probability of a one; an option gives one probability for all.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 1.0])?.bernoulli()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// let x = Tensor::zeros([100])?.bernoulli_with(0.5)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|&x| x == 0.0 || x == 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a probability is not in [0, 1], or the tensor is not floating point and no `p` is given.
    #[op(in_place_by_hand, samples = bernoulli_samples, errors = bernoulli_errors, derivative = none, random)]
    pub fn bernoulli(&self, options: impl Into<BernoulliOptions>) -> Result<Tensor> {
        const OP: &str = "bernoulli";
        if let Some(p) = options.p {
            if !(0.0..=1.0).contains(&p) {
                bail!(Value, OP, "p must be in [0, 1], got {p}");
            }
            let mut yes = Tensor::empty(OP, self.layout().shape().clone(), DType::Bool, self.device())?;
            let range = random::next_range(random::counters(self.numel() as u64, random::PER_COUNTER_32));
            backend::draw(OP, Draw::Booleans(random::greatest_yes(p)), range, &mut yes.as_view_mut(OP)?)?;
            return Ok(yes.to_dtype(self.dtype())?.record_barrier(OP, &[self]));
        }
        float_only(OP, self)?;
        let drawn = uniform_like(OP, self.layout().shape(), self.device())?;
        check_all(OP, "probabilities", self, 0.0, 1.0)?;
        let yes = drawn.lt(&self.detach().to_dtype(DType::F64)?)?;
        Ok(yes.to_dtype(self.dtype())?.record_barrier(OP, &[self]))
    }

    /// Samples `num_samples` indices of a vector, or of each row of a matrix, with probabilities proportional to the
    /// elements; without replacement by default.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let weights = tensor!([0.0, 3.0, 0.0, 1.0])?;
    /// let mut both = weights.multinomial(2, false)?.to_vec::<i64>()?;
    /// both.sort();
    /// assert_eq!(both, [1, 3]);
    /// assert_eq!(weights.multinomial(100, true)?.shape(), [100]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a weight is negative or not finite, fewer weights are positive than samples are drawn, `num_samples` is 0, or the
    /// tensor is neither a vector nor a matrix of floats.
    #[op(samples = multinomial_samples, errors = multinomial_errors, derivative = none, random)]
    pub fn multinomial(&self, num_samples: usize, #[default(false)] replacement: bool) -> Result<Tensor> {
        const OP: &str = "multinomial";
        float_only(OP, self)?;
        if !matches!(self.rank(), 1 | 2) {
            bail!(Shape, OP, "input must be a vector or a matrix, got shape {:?}", self.shape());
        }
        if num_samples == 0 {
            bail!(Shape, OP, "num_samples must be positive, got 0");
        }
        let weights = self.private()?.detach().to_dtype(DType::F64)?.contiguous()?;
        let categories = self.shape()[self.rank() - 1];
        let rows: Shape = self.shape()[..self.rank() - 1].into();
        let positive = if self.numel() == 0 { 0 } else { weights.gt(0.0)?.sum(-1)?.min(..)?.item::<i64>()? as usize };
        if rows.numel() > 0 && positive < if replacement { 1 } else { num_samples } {
            bail!(Value, OP, "cannot draw {num_samples} samples: only {positive} of {categories} weights are positive");
        }
        if self.numel() > 0 {
            let (low, high) = (weights.min(..)?.item::<f64>()?, weights.max(..)?.item::<f64>()?);
            if low.is_nan() || low < 0.0 || !high.is_finite() {
                bail!(Value, OP, "weights must be finite and ≥ 0, got values from {low} to {high}");
            }
        }
        let indices = if replacement {
            let mut shape = rows;
            shape.insert(self.rank() - 1, num_samples);
            let sums = weights.cumsum(-1)?;
            let drawn = uniform_like(OP, &shape, self.device())?.mul(&sums.narrow(-1, -1, 1)?)?;
            // The number of cumulative sums that are at most the number drawn.
            sums.unsqueeze(-2)?.le(&drawn.unsqueeze(-1)?)?.sum(-1)?
        } else {
            // The first arrivals of Poisson processes with these rates: the largest `rate / exponential`.
            let times = above_zero(OP, &weights)?.log()?.neg()?;
            let (_, order) = weights.div(&times)?.sort_with(-1, SortOptions::new().descending(true))?;
            order.narrow(-1, 0, num_samples)?.contiguous()?
        };
        Ok(indices.record_barrier(OP, &[self]))
    }

    /// A random permutation of the integers from 0 to `n - 1`, `i64`.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// let mut order = Tensor::randperm(5)?.to_vec::<i64>()?;
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// assert_eq!(Tensor::randperm_with(5, DType::U8)?.dtype(), DType::U8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype cannot represent all of them, or memory runs out.
    #[op(samples = || Ok(vec![sample![7], sample![0], sample![5; dtype = DType::U8]]), errors = randperm_errors, derivative = none, random)]
    pub fn randperm(n: usize, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let (dtype, device) = options.or(DType::I64);
        if (n as u64).saturating_sub(1) > greatest_integer(dtype) {
            bail!(DType, "randperm", "dtype must represent all integers below {n}, got {dtype}");
        }
        let keys = Distribution::Integers(i64::MIN, i64::MAX);
        let keys = random_tensor("randperm", n.into(), device.into(), keys, random::next_range)?;
        let (_, order) = keys.sort(0)?;
        order.to_dtype(dtype)
    }

    /// Random numbers from normal distributions with the given means and standard deviations, tensors or numbers. They
    /// broadcast, together with `size`. Dtype and device are those of the tensors, unless the options say otherwise.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor, tensor};
    /// assert_eq!(Tensor::normal(0.0, 2.0, [3, 4])?.shape(), [3, 4]);
    /// assert_eq!(Tensor::normal_with(0.0, 2.0, [3], DType::F64)?.dtype(), DType::F64);
    /// assert_eq!(Tensor::normal(&tensor!([1.0, 2.0])?, 0.0, ())?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a standard deviation is negative, the shapes do not broadcast, or a tensor is not floating point.
    #[op(in_place_by_hand, samples = normal_samples, errors = normal_errors, derivative = none, random)]
    pub fn normal<'a>(
        mean: impl Into<Operand<'a>>,
        std: impl Into<Operand<'a>>,
        #[default(())] size: impl Into<Shape>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "normal";
        let given: Vec<&Tensor> = [&mean, &std].into_iter().filter_map(as_tensor).collect();
        let mut common = None;
        for x in &given {
            float_only(OP, x)?;
            common = Some(common.map_or(Ok(x.dtype()), |dtype| common_dtype(OP, dtype, x.dtype()))?);
        }
        let device = options.device.or(given.first().map(|x| x.device()));
        let (dtype, device) = options.device(device).or(common.unwrap_or(DType::F32));
        let (mean, std) = (mean.resolve(dtype, device)?, std.resolve(dtype, device)?);
        let shape = broadcast(OP, &[mean.layout().shape(), std.layout().shape(), &size])?;
        let options = TensorOptions::new().dtype(dtype).device(device);
        let drawn = random_tensor(OP, shape, options, Distribution::Normal, random::next_range)?;
        check_all(OP, "std", &std, 0.0, f64::INFINITY)?;
        Ok(drawn.mul(std.detach())?.add(mean.detach())?.to_dtype(dtype)?.record_barrier(OP, &given))
    }

    /// Uniform random numbers from `from` (included) to `to` (excluded) with the shape, dtype and device of this
    /// tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([100])?.uniform(-1.0, 2.0)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (-1.0..2.0).contains(x)));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `to` is below `from`, one is not finite, or the tensor is not floating point.
    #[doc(alias = "uniform_")]
    #[op(in_place, samples = || like_samples(|x| sample![x, -1.0, 3.0]), errors = uniform_errors, derivative = none, random)]
    pub fn uniform(&self, #[default(0.0)] from: f64, #[default(1.0)] to: f64) -> Result<Tensor> {
        const OP: &str = "uniform";
        float_only(OP, self)?;
        if !(from <= to && (to - from).is_finite()) {
            bail!(Value, OP, "from and to must be finite with from ≤ to, got {from} and {to}");
        }
        let shape = self.layout().shape().clone();
        let options = alike(self, TensorOptions::new());
        let drawn = random_tensor(OP, shape, options, Distribution::Uniform, random::next_range)?;
        let moved = drawn.mul(to - from)?.add(from)?;
        // Rounding can give `to` itself.
        Ok(moved.masked_fill(&moved.ge(to)?, from)?.record_barrier(OP, &[self]))
    }

    /// Random numbers from the exponential distribution with the rate `lambd`, with the shape, dtype and device of this
    /// tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert!(Tensor::zeros([100])?.exponential(2.0)?.to_vec::<f32>()?.iter().all(|&x| x >= 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the rate is not positive, or the tensor is not floating point.
    #[doc(alias = "exponential_")]
    #[op(in_place, samples = || like_samples(|x| sample![x, 0.5]), errors = exponential_errors, derivative = none, random)]
    pub fn exponential(&self, #[default(1.0)] lambd: f64) -> Result<Tensor> {
        float_only("exponential", self)?;
        if lambd.is_nan() || lambd <= 0.0 {
            bail!(Value, "exponential", "lambd must be positive, got {lambd}");
        }
        let drawn = above_zero("exponential", self)?.log()?.div(-lambd)?;
        Ok(drawn.to_dtype(self.dtype())?.record_barrier("exponential", &[self]))
    }

    /// Random numbers from the geometric distribution: the number of trials until the first success, which has
    /// probability `p`. Shape, dtype and device are those of this tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert!(Tensor::zeros([100])?.geometric(0.5)?.to_vec::<f32>()?.iter().all(|&x| x >= 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not in (0, 1), or the tensor is bool.
    #[doc(alias = "geometric_")]
    #[op(in_place, samples = || like_samples(|x| sample![x, 0.3]), errors = geometric_errors, derivative = none, random)]
    pub fn geometric(&self, p: f64) -> Result<Tensor> {
        if p.is_nan() || p <= 0.0 || p >= 1.0 {
            bail!(Value, "geometric", "p must be in (0, 1), got {p}");
        }
        if self.dtype() == DType::Bool {
            bail!(DType, "geometric", "not defined for bool: cast with to_dtype first");
        }
        let drawn = above_zero("geometric", self)?.log()?.div_with((-p).ln_1p(), Rounding::Floor)?.add(1.0)?;
        Ok(drawn.to_dtype(self.dtype())?.record_barrier("geometric", &[self]))
    }

    /// Random numbers from the Cauchy distribution with the median `median` and the scale `sigma`, with the shape,
    /// dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([100])?.cauchy(0.0, 1.0)?.shape(), [100]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `sigma` is not positive, or the tensor is not floating point.
    #[doc(alias = "cauchy_")]
    #[op(in_place, samples = || like_samples(|x| sample![x, 1.0, 2.0]), errors = cauchy_errors, derivative = none, random)]
    pub fn cauchy(&self, #[default(0.0)] median: f64, #[default(1.0)] sigma: f64) -> Result<Tensor> {
        float_only("cauchy", self)?;
        if sigma.is_nan() || sigma <= 0.0 {
            bail!(Value, "cauchy", "sigma must be positive, got {sigma}");
        }
        let angle = uniform_like("cauchy", self.layout().shape(), self.device())?.sub(0.5)?.mul(PI)?;
        let drawn = angle.sin()?.div(&angle.cos()?)?.mul(sigma)?.add(median)?;
        Ok(drawn.to_dtype(self.dtype())?.record_barrier("cauchy", &[self]))
    }

    /// Random numbers whose logarithms are normally distributed with the given mean and standard deviation, with the
    /// shape, dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert!(Tensor::zeros([100])?.log_normal(1.0, 2.0)?.to_vec::<f32>()?.iter().all(|&x| x > 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the standard deviation is not positive, or the tensor is not floating point.
    #[doc(alias = "log_normal_")]
    #[op(in_place, samples = || like_samples(|x| sample![x, 0.5, 0.25]), errors = log_normal_errors, derivative = none, random)]
    pub fn log_normal(&self, #[default(1.0)] mean: f64, #[default(2.0)] std: f64) -> Result<Tensor> {
        const OP: &str = "log_normal";
        float_only(OP, self)?;
        if std.is_nan() || std <= 0.0 {
            bail!(Value, OP, "std must be positive, got {std}");
        }
        let options = TensorOptions::new().dtype(DType::F64).device(self.device());
        let shape = self.layout().shape().clone();
        let drawn = random_tensor(OP, shape, options, Distribution::Normal, random::next_range)?;
        let drawn = drawn.mul(std)?.add(mean)?.exp()?;
        Ok(drawn.to_dtype(self.dtype())?.record_barrier(OP, &[self]))
    }
}

fn as_tensor<'a>(operand: &'a Operand<'_>) -> Option<&'a Tensor> {
    match operand {
        Operand::Borrowed(x) => Some(x),
        Operand::Owned(x) => Some(x),
        Operand::Scalar(_) => None,
    }
}

/// Samples of functions that take their shape from a tensor.
fn like_samples(call: fn(Tensor) -> Sample) -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 3] = [&[2, 3], &[], &[0, 2]];
    shapes.into_iter().map(|shape| Ok(call(spread(shape, -1.0, 1.0)?))).collect()
}

fn bernoulli_samples() -> Result<Vec<Sample>> {
    let mut all = like_samples(|x| sample![x, 0.25])?;
    all.push(sample![spread([2, 3], 0.0, 1.0)?]);
    all.push(sample![ints(&[0; 4], [4])?, 0.5]);
    Ok(all)
}

fn bernoulli_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no probability", "1.5"; sample![normal([2], 1)?, 1.5]],
        error!["no probabilities", "2"; sample![spread([2], 2.0, 3.0)?]],
        error!["integers", "i64"; sample![ints(&[0, 1], [2])?]],
    ])
}

fn multinomial_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([5], 0.0, 1.0)?, 3],
        sample![spread([2, 5], 0.0, 1.0)?, 5],
        sample![spread([5], 0.0, 1.0)?, 9, true],
        sample![spread([3, 4], 0.0, 1.0)?, 6, true],
        sample![spread([0, 4], 0.0, 1.0)?, 2],
    ])
}

fn multinomial_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["too many samples", "3", "4"; sample![spread([3], 0.0, 1.0)?, 4]],
        error!["negative weights", "-"; sample![spread([3], -1.0, 1.0)?, 1, true]],
        error!["no positive weight", "0 of 3"; sample![spread([3], -1.0, 0.0)?, 1, true]],
        error!["no samples", "num_samples", "0"; sample![spread([3], 0.0, 1.0)?, 0]],
        error!["three dimensions", "[1, 1, 1]"; sample![spread([1, 1, 1], 0.0, 1.0)?, 1]],
        error!["integers", "i64"; sample![ints(&[1, 1], [2])?, 1]],
    ])
}

fn randperm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["more than the dtype has", "u8", "300"; sample![300; dtype = DType::U8]],
        error!["too long", "bytes"; sample![isize::MAX]],
    ])
}

fn normal_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![0.5, 2.0, [2, 3]],
        sample![0.5, 2.0, [4]; dtype = DType::F64],
        sample![spread([2, 3], -1.0, 1.0)?, spread([3], 0.5, 1.0)?],
        sample![spread([3], -1.0, 1.0)?, 0.5, [2, 3]],
        sample![1.0, spread([2, 1], 0.5, 1.0)?],
    ])
}

fn normal_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a negative deviation", "-1"; sample![0.0, -1.0, [2]]],
        error!["shapes that do not fit", "[2]", "[3]"; sample![spread([2], -1.0, 1.0)?, spread([3], 0.5, 1.0)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, 1.0]],
    ])
}

fn uniform_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["the wrong way", "2", "1"; sample![normal([2], 1)?, 2.0, 1.0]],
        error!["no end", "inf"; sample![normal([2], 1)?, 0.0, f64::INFINITY]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?]],
    ])
}

fn exponential_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no rate", "0"; sample![normal([2], 1)?, 0.0]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?]],
    ])
}

fn geometric_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["certainty", "1"; sample![normal([2], 1)?, 1.0]],
        error!["bools", "bool"; sample![normal([2], 1)?.gt(0.0)?, 0.5]],
    ])
}

fn cauchy_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no width", "-1"; sample![normal([2], 1)?, 0.0, -1.0]]])
}

fn log_normal_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a negative deviation", "-1"; sample![normal([2], 1)?, 0.0, -1.0]]])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::{Generator, with_generator};

    const N: usize = 20_000;

    fn drawn(seed: u64, draw: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
        let like = Tensor::zeros_with([N], DType::F64)?;
        with_generator(&mut Generator::seed(seed), || draw(&like))?.to_vec::<f64>()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n)
    }

    /// The Kolmogorov-Smirnov statistic: the largest distance between the empirical and the true distribution function.
    fn distance(mut values: Vec<f64>, below: impl Fn(f64) -> f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let at = |(i, &x): (usize, &f64)| (below(x) - i as f64 / n).abs().max((below(x) - (i + 1) as f64 / n).abs());
        values.iter().enumerate().map(at).fold(0.0, f64::max)
    }

    /// Exceeded with probability 0.001.
    fn limit() -> f64 {
        1.95 / (N as f64).sqrt()
    }

    #[test]
    fn continuous_distributions_are_what_they_say() -> Result<()> {
        let uniform = drawn(1, |x| x.uniform(-1.0, 3.0))?;
        assert!(distance(uniform, |x| (x + 1.0) / 4.0) < limit());
        let exponential = drawn(2, |x| x.exponential(0.5))?;
        let (mean, variance) = moments(&exponential);
        assert!((mean - 2.0).abs() < 0.06 && (variance - 4.0).abs() < 0.4, "{mean} {variance}");
        assert!(distance(exponential, |x| 1.0 - (-0.5 * x).exp()) < limit());
        let cauchy = drawn(3, |x| x.cauchy(1.0, 2.0))?;
        assert!(distance(cauchy, |x| 0.5 + ((x - 1.0) / 2.0).atan() / PI) < limit());
        let logs: Vec<f64> = drawn(4, |x| x.log_normal(0.5, 0.25))?.iter().map(|x| x.ln()).collect();
        let (mean, variance) = moments(&logs);
        assert!((mean - 0.5).abs() < 0.01 && (variance - 0.0625).abs() < 0.003, "{mean} {variance}");
        let normal = drawn(5, |x| Tensor::normal(x, 3.0, ()))?;
        let (mean, variance) = moments(&normal);
        assert!(mean.abs() < 0.1 && (variance - 9.0).abs() < 0.4, "{mean} {variance}");
        Ok(())
    }

    #[test]
    fn discrete_distributions_are_what_they_say() -> Result<()> {
        let p = 0.3;
        let trials = drawn(6, |x| x.geometric(p))?;
        assert!(trials.iter().all(|&x| x >= 1.0 && x.fract() == 0.0));
        let (mean, variance) = moments(&trials);
        assert!((mean - 1.0 / p).abs() < 0.1 && (variance - (1.0 - p) / (p * p)).abs() < 0.5, "{mean} {variance}");
        for yes in [drawn(7, |x| x.bernoulli_with(p))?, drawn(8, |x| x.add(p)?.bernoulli())?] {
            let (mean, _) = moments(&yes);
            assert!((mean - p).abs() < 0.015, "{mean}");
        }
        Ok(())
    }

    #[test]
    fn samples_come_in_proportion_to_the_weights() -> Result<()> {
        let weights = Tensor::from_vec(vec![1.0, 0.0, 2.0, 5.0], [4])?;
        let shares =
            |indices: &[i64]| [0, 1, 2, 3].map(|k| indices.iter().filter(|&&i| i == k).count() as f64 / N as f64);
        let near = |shares: [f64; 4]| shares.iter().zip([0.125, 0.0, 0.25, 0.625]).all(|(a, b)| (a - b).abs() < 0.015);
        let with = with_generator(&mut Generator::seed(9), || weights.multinomial(N, true))?.to_vec::<i64>()?;
        assert!(near(shares(&with)), "{:?}", shares(&with));
        // The first draws without replacement have the same shares.
        let rows = weights.expand([N, 4])?;
        let without = with_generator(&mut Generator::seed(10), || rows.multinomial(3, false))?;
        let first = without.select(1, 0)?.to_vec::<i64>()?;
        assert!(near(shares(&first)), "{:?}", shares(&first));
        for row in without.to_vec::<i64>()?.chunks(3) {
            assert!(row.iter().sum::<i64>() == 5 && !row.contains(&1), "{row:?}");
        }
        Ok(())
    }

    #[test]
    fn permutations_are_even() -> Result<()> {
        let mut counts = [0; 6];
        with_generator(&mut Generator::seed(11), || {
            for _ in 0..6000 {
                let order = Tensor::randperm(3)?.to_vec::<i64>()?;
                counts[(order[0] * 2 + i64::from(order[1] > order[2])) as usize] += 1;
            }
            Ok::<(), crate::Error>(())
        })?;
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        Ok(())
    }
}
