//! Sums, means and variances over some or all dimensions.

use super::formula::Real;
use super::map::map;
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::cpu::elementwise::map::{Floats, Formula, Tile};
use crate::backend::cpu::reduce::{CenteredReduce, Reduce};
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::{self, View};
use crate::error::bail;
use crate::layout::{reduced_dims, resolve_dims};
use crate::{DType, Dims, Result, Shape, Tensor};
use smallvec::{SmallVec, smallvec};

/// Dimensions that a reduction takes away, and the shapes before and after.
#[derive(Clone, Debug)]
pub(super) struct ReducePlan {
    pub dims: SmallVec<[usize; 5]>,
    /// The shape of the input.
    pub from: Shape,
    /// The same with size 1 where a dimension goes away.
    pub kept: Shape,
    /// The shape of the result.
    pub to: Shape,
}

impl ReducePlan {
    pub fn new(op: &'static str, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<ReducePlan> {
        // As in PyTorch, to name no dimension is to name all.
        let dims = match dims {
            Dims::Some(named) if named.is_empty() => &Dims::All,
            dims => dims,
        };
        let dims = resolve_dims(op, dims, x.rank())?;
        let from = x.layout().shape().clone();
        let kept: Shape = from.iter().enumerate().map(|(d, &size)| if dims.contains(&d) { 1 } else { size }).collect();
        let to = if keepdim {
            kept.clone()
        } else {
            from.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &size)| size).collect()
        };
        Ok(ReducePlan { dims, from, kept, to })
    }

    /// How many elements go into each of the result.
    pub fn count(&self) -> usize {
        self.dims.iter().map(|&d| self.from[d]).product()
    }

    /// The reduction itself, outside the graph.
    pub fn reduce(&self, op: &'static str, by: Reduce, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let mut out = Tensor::empty(op, self.to.clone(), dtype, x.device())?;
        let mut to = out.as_view_mut(op)?;
        let pending = View { storage: x.storage(), layout: x.layout(), dtype: x.dtype() };
        if !x.is_pending() || !backend::reduce_deferred(by, pending, &self.dims, &mut to)? {
            backend::reduce(op, by, x.as_view()?, &self.dims, &mut to)?;
        }
        Ok(out)
    }

    /// As [`reduce`](Self::reduce), of an input that the rule of its gradient will read again.
    pub fn reduce_and_save(&self, op: &'static str, by: Reduce, x: &Tensor, dtype: DType) -> Result<Tensor> {
        if is_grad_enabled() && x.requires_grad() {
            x.mark_needed();
        }
        self.reduce(op, by, x, dtype)
    }

    /// A reduction with a number for each result, which is of the compute dtype; outside the graph.
    pub fn reduce_centered(&self, op: &'static str, by: CenteredReduce, x: &Tensor, own: &Tensor) -> Result<Tensor> {
        let mut out = Tensor::empty(op, self.to.clone(), x.dtype(), x.device())?;
        backend::reduce_centered(op, by, x.as_view()?, &self.dims, own.as_view()?, &mut out.as_view_mut(op)?)?;
        Ok(out)
    }

    /// A function of each element and of two numbers that belong to its result; outside the graph.
    pub fn map<F>(&self, op: &'static str, f: F, x: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor>
    where
        F: Tile<3> + Send + 'static,
    {
        let (a, b) = (self.spread(&a.detach())?, self.spread(&b.detach())?);
        map(op, f, x.dtype(), [x, &a, &b], &self.from, x.dtype())
    }

    #[track_caller]
    pub fn sum(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        let out = self.reduce(op, Reduce::Sum, x, x.dtype().to_sum())?;
        out.record(op, &[x], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.spread(g)?)])
        })
    }

    #[track_caller]
    pub fn mean(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        self.reduce(op, Reduce::Mean, x, x.dtype())?.record(op, &[x], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.spread(&g.div(plan.count() as f64)?)?)])
        })
    }

    /// The opposite of a sum: every element of a tensor of the result's shape, again and again, in the input's shape.
    #[track_caller]
    pub fn spread(&self, g: &Tensor) -> Result<Tensor> {
        let Some(kept) = g.layout().reshape(&self.kept) else {
            bail!(Shape, "expand", "cannot read {:?} as {:?}", g.shape(), self.kept);
        };
        g.with_layout(kept.broadcast_to(&self.from)).record("expand", &[g], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.sum("sum_dim", g)?)])
        })
    }
}

#[track_caller]
fn sum(op: &'static str, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<Tensor> {
    ReducePlan::new(op, x, dims, keepdim)?.sum(op, x)
}

#[track_caller]
fn mean(op: &'static str, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<Tensor> {
    float_only(op, x)?;
    ReducePlan::new(op, x, dims, keepdim)?.mean(op, x)
}

#[track_caller]
fn variance(op: &'static str, x: &Tensor, dims: &Dims, correction: usize, keepdim: bool) -> Result<Tensor> {
    float_only(op, x)?;
    let plan = ReducePlan::new(op, x, dims, keepdim)?;
    // Where nothing is left to divide by, the result is NaN or infinite.
    let freedom = plan.count().saturating_sub(correction) as f64;
    // In two passes: the difference of the mean square and the squared mean would cancel where the mean is large. Half
    // precision has neither the bits for the mean nor the range for the squares.
    x.mark_needed();
    let mean = plan.reduce(op, Reduce::Mean, x, compute_dtype(x.dtype()))?;
    plan.reduce_centered(op, CenteredReduce::Deviation(freedom), x, &mean)?.record(op, &[x], |save| {
        let (x, mean) = (save.save(x), save.save(&mean));
        move |_: &BackwardContext, g: &Tensor| {
            if !is_grad_enabled() {
                let slope = Floats(VarianceSlope(2.0 / freedom));
                return Ok(smallvec![Some(plan.map(op, slope, &x, &mean, g)?)]);
            }
            let deviation = x.sub(&plan.spread(&plan.mean(op, &x)?)?)?;
            Ok(smallvec![Some(plan.spread(&g.mul(2.0 / freedom)?)?.mul(&deviation)?)])
        }
    })
}

/// The derivative of the variance, from an element, the mean and the cotangent.
struct VarianceSlope(f64);

impl<T: Real> Formula<T, 3> for VarianceSlope {
    #[inline(always)]
    fn at(&self, [x, mean, g]: [T; 3]) -> T {
        g * T::lit(self.0) * (x - mean)
    }
}

/// Refuses what has no mean in its own dtype.
pub(super) fn float_only(op: &'static str, x: &Tensor) -> Result<()> {
    if !x.dtype().is_float() {
        bail!(DType, op, "not defined for {}: cast to a float with to_dtype first", x.dtype());
    }
    Ok(())
}

impl Tensor {
    /// The sum of all elements. Integers and bools are added up in `i64`, `u64` in `u64`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([[1.0, 2.0], [3.0, 4.0]])?.sum()?.item::<f32>()?, 10.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        sum("sum", self, &Dims::All, false)
    }

    /// The sum over some dimensions, which go away or, with `keepdim`, stay with size 1. To name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.sum_dim(0, false)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum_dim(-1, true)?.shape(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[track_caller]
    pub fn sum_dim(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        sum("sum_dim", self, &dims.into(), keepdim)
    }

    /// The mean of all elements; NaN if there are none.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([[1.0, 2.0], [3.0, 4.0]])?.mean()?.item::<f32>()?, 2.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats.
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        mean("mean", self, &Dims::All, false)
    }

    /// The mean over some dimensions, which go away or, with `keepdim`, stay with size 1. To name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.mean_dim(0, false)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[track_caller]
    pub fn mean_dim(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        mean("mean_dim", self, &dims.into(), keepdim)
    }

    /// The variance of all elements: the sum of their squared distances from the mean, divided by their number less
    /// `correction` (1 for an estimate from a sample, 0 for a whole population). NaN if there are none.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.0, 2.0, 3.0])?.var(1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats.
    #[track_caller]
    pub fn var(&self, correction: usize) -> Result<Tensor> {
        variance("var", self, &Dims::All, correction, false)
    }

    /// The variance over some dimensions, as [`var`](Self::var) over all; they go away or, with `keepdim`, stay with
    /// size 1. To name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])?;
    /// assert_eq!(x.var_dim(1, 1, false)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[track_caller]
    pub fn var_dim(&self, dims: impl Into<Dims>, correction: usize, keepdim: bool) -> Result<Tensor> {
        variance("var_dim", self, &dims.into(), correction, keepdim)
    }

    /// The sum that undoes a broadcast from `shape`: leading dimensions go away, widened ones get size 1 again.
    #[track_caller]
    pub(crate) fn sum_to(&self, op: &'static str, shape: &Shape) -> Result<Tensor> {
        let from = self.layout().shape();
        let Some(dims) = reduced_dims(from, shape) else {
            bail!(Shape, op, "a tensor of shape {from:?} is no broadcast from {shape:?}");
        };
        if dims.is_empty() {
            return Ok(self.clone());
        }
        let kept = (0..from.len()).map(|d| if dims.contains(&(d as isize)) { 1 } else { from[d] }).collect();
        let dims = dims.iter().map(|&d| d as usize).collect();
        ReducePlan { dims, from: from.clone(), kept, to: shape.clone() }.sum("sum_dim", self)
    }
}

pub(super) type OverAll = fn(&Tensor) -> Result<Tensor>;
pub(super) type OverDims = fn(&Tensor, Dims, bool) -> Result<Tensor>;

/// Samples of a reduction of everything, on values between `low` and `high`.
pub(super) fn samples(label: &str, low: f64, high: f64, empty: bool, call: OverAll) -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 4] = [&[2, 3], &[7], &[], &[0, 3]];
    let shapes = shapes.iter().filter(|shape| empty || !shape.contains(&0));
    shapes.map(|&shape| Ok(Sample::new(label, vec![spread(shape, low, high)?], move |x| call(&x[0])))).collect()
}

/// Samples of a reduction of some dimensions, on values between `low` and `high`.
pub(super) fn dim_samples(label: &str, low: f64, high: f64, empty: bool, call: OverDims) -> Result<Vec<Sample>> {
    let cases: [(&[usize], Dims, bool); 9] = [
        (&[2, 3, 4], 0.into(), false),
        (&[2, 3, 4], 1.into(), true),
        (&[2, 3, 4], (-1).into(), false),
        (&[2, 3, 4], [0, -1].into(), true),
        (&[2, 3, 4], [-1, 1].into(), false),
        (&[2, 3], (..).into(), true),
        (&[], 0.into(), true),
        (&[0, 3], 1.into(), false),
        (&[2, 0], 1.into(), true),
    ];
    let cases = cases
        .into_iter()
        .filter(|(shape, dims, _)| empty || !(shape.contains(&0) && matches!(dims, Dims::Some(_)) && shape[1] == 0));
    cases
        .map(|(shape, dims, keepdim)| {
            let label = format!("{label} over {dims:?}, keepdim {keepdim}");
            Ok(Sample::new(&label, vec![spread(shape, low, high)?], move |x| call(&x[0], dims.clone(), keepdim)))
        })
        .collect()
}

/// Refusals that every reduction of some dimensions makes.
pub(super) fn dim_error_cases(name: &'static str, call: OverDims) -> Result<Vec<ErrorCase>> {
    let (x, y) = (normal([2, 3], 1)?, normal([2, 3], 2)?);
    Ok(vec![
        ErrorCase::new("no such dimension", &[name, "2", "rank 2"], move || call(&x, 2.into(), false)),
        ErrorCase::new("a dimension twice", &[name, "-2", "twice"], move || call(&y, [0, -2].into(), false)),
    ])
}

/// The error_case of integers.
pub(super) fn int_error_case(name: &'static str, call: OverAll) -> Result<ErrorCase> {
    let x = Tensor::from_slice(&[1_i64, 2], [2])?;
    Ok(ErrorCase::new("integers", &[name, "i64", "cast"], move || call(&x)))
}

static SUM: Op =
    Op { name: "sum", samples: || samples("sum", -2.0, 2.0, true, Tensor::sum), error_cases: || Ok(Vec::new()) };

static SUM_DIM: Op = Op {
    name: "sum_dim",
    samples: || dim_samples("sum_dim", -2.0, 2.0, true, Tensor::sum_dim),
    error_cases: || dim_error_cases("sum_dim", Tensor::sum_dim),
};

static MEAN: Op = Op {
    name: "mean",
    samples: || samples("mean", -2.0, 2.0, true, Tensor::mean),
    error_cases: || Ok(vec![int_error_case("mean", Tensor::mean)?]),
};

static MEAN_DIM: Op = Op {
    name: "mean_dim",
    samples: || dim_samples("mean_dim", -2.0, 2.0, true, Tensor::mean_dim),
    error_cases: || {
        let mut all = dim_error_cases("mean_dim", Tensor::mean_dim)?;
        all.push(int_error_case("mean_dim", |x| x.mean_dim(0, false))?);
        Ok(all)
    },
};

static VAR: Op = Op {
    name: "var",
    samples: || {
        // The variance of one element is 0 whatever it is.
        let flat = |s: Sample| if s.inputs()[0].rank() == 0 { s.with_zero_derivative() } else { s };
        Ok(samples("var", -2.0, 2.0, true, |x| x.var(0))?.into_iter().map(flat).collect())
    },
    error_cases: || Ok(vec![int_error_case("var", |x| x.var(1))?]),
};

static VAR_DIM: Op = Op {
    name: "var_dim",
    samples: || {
        let flat = |s: Sample| if s.inputs()[0].rank() == 0 { s.with_zero_derivative() } else { s };
        let population = dim_samples("var_dim", -2.0, 2.0, true, |x, dims, keepdim| x.var_dim(dims, 0, keepdim))?;
        let x = vec![spread([3, 4], -2.0, 2.0)?];
        let sample = Sample::new("var_dim with correction 1", x, |x| x[0].var_dim(1, 1, false));
        Ok(population.into_iter().map(flat).chain([sample]).collect())
    },
    error_cases: || {
        let mut all = dim_error_cases("var_dim", |x, dims, keepdim| x.var_dim(dims, 1, keepdim))?;
        all.push(int_error_case("var_dim", |x| x.var_dim(0, 1, false))?);
        Ok(all)
    },
};

pub(crate) static OPS: &[&Op] = &[&SUM, &SUM_DIM, &MEAN, &MEAN_DIM, &VAR, &VAR_DIM];
