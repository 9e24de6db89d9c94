//! A call of an operation as data: its arguments can be laid out, cast or moved before it is made.

use cotangent::autograd::{GradOptions, grad_with};
use cotangent::ops::{Arg, ArgKind, Op, Sample};
use cotangent::{DType, Device, Generator, Result, Tensor, arguments::Slice, with_generator};

/// An operation with all its arguments. A tensor that is passed twice stays one tensor in every variant of the call.
#[derive(Clone)]
pub struct Call {
    pub op: &'static Op,
    pub args: Vec<Arg>,
}

impl Call {
    /// The call of a sample, on a device.
    pub fn new(op: &'static Op, sample: &Sample, device: Device) -> Result<Call> {
        let mut call = Call { op, args: sample.bind(op)? }.map(|x| x.to_device(device))?;
        for (param, arg) in op.params().zip(&mut call.args) {
            if param.kind == ArgKind::Device && device != Device::Cpu {
                *arg = Arg::Device(device);
            }
        }
        Ok(call)
    }

    /// All results. Random numbers are the same at every call.
    pub fn run(&self) -> Result<Vec<Tensor>> {
        with_generator(&mut Generator::seed(11), || self.op.call(&self.args))
    }

    /// The tensors among the arguments, each once.
    pub fn tensors(&self) -> Vec<&Tensor> {
        let mut all: Vec<&Tensor> = Vec::new();
        for x in self.args.iter().flat_map(Arg::tensors) {
            if !all.iter().any(|known| known.is_same(x)) {
                all.push(x);
            }
        }
        all
    }

    /// The same call with other tensors, in the order of [`tensors`](Self::tensors).
    pub fn with(&self, others: &[Tensor]) -> Result<Call> {
        let known: Vec<Tensor> = self.tensors().into_iter().cloned().collect();
        let other = |x: &Tensor| {
            let at = known.iter().position(|known| known.is_same(x)).unwrap_or(0);
            Ok(others[at].clone())
        };
        let args = self.args.iter().map(|arg| arg.map_tensors(other)).collect::<Result<_>>()?;
        Ok(Call { op: self.op, args })
    }

    /// The same call with its tensors changed, each once.
    pub fn map(&self, f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Call> {
        self.with(&self.tensors().into_iter().map(f).collect::<Result<Vec<_>>>()?)
    }

    /// With the floating point tensors cast.
    pub fn cast(&self, dtype: DType) -> Result<Call> {
        self.map(|x| match x.dtype() {
            float if float.is_float() => x.to_dtype(dtype),
            complex if complex.is_complex() => x.to_dtype(dtype.to_complex()),
            _ => Ok(x.clone()),
        })
    }

    /// The same call on complex numbers, whose real parts are those of the floating point tensors.
    pub fn made_complex(&self) -> Result<Call> {
        let mut shift = 0.0;
        self.map(|x| {
            if !x.dtype().is_float() {
                return Ok(x.clone());
            }
            shift += 0.17;
            // Neither small nor near the real axis.
            let imag = x.mul(0.3)?.sin()?.mul(0.5)?.add(0.4 + shift)?;
            x.complex(&imag)
        })
    }

    /// Whether no tensor has elements.
    pub fn is_empty(&self) -> bool {
        self.tensors().iter().all(|x| x.numel() == 0)
    }

    /// The dtype that the caller has set for the result.
    pub fn named_dtype(&self) -> Option<DType> {
        self.op
            .params()
            .zip(&self.args)
            .find_map(|(_, arg)| if let Arg::DType(dtype) = arg { Some(*dtype) } else { None })
    }

    /// The results, and the gradients of the floating point tensors for fixed cotangents of all results; `None` if no result has a
    /// derivative.
    pub fn gradients(&self) -> Result<(Vec<Tensor>, Option<Vec<Option<Tensor>>>)> {
        self.gradients_as(&[])
    }

    /// The same for cotangents that are rounded to the dtypes of these results first, where some are given.
    pub fn gradients_as(&self, rounded: &[Tensor]) -> Result<(Vec<Tensor>, Option<Vec<Option<Tensor>>>)> {
        let leaf = |x: &Tensor| if differentiable(x) { x.detach().requires_grad_(true) } else { Ok(x.clone()) };
        let call = self.map(leaf)?;
        let results = call.run()?;
        let values = results.iter().map(Tensor::detach).collect();
        let wanted: Vec<&Tensor> = call.tensors().into_iter().filter(|x| x.requires_grad()).collect();
        let mut total: Option<Vec<Option<Tensor>>> = None;
        for (at, y) in results.iter().enumerate().filter(|(_, y)| y.requires_grad() && differentiable(y)) {
            let draw = |seed: u64| Generator::seed(seed).randn_with(y.shape(), (DType::F64, y.device()));
            let mut cotangent = draw(99 + at as u64)?;
            if y.dtype().is_complex() {
                cotangent = cotangent.complex(&draw(199 + at as u64)?)?;
            }
            let cotangent = match rounded.get(at) {
                Some(like) => cotangent.to_dtype(like.dtype())?.to_dtype(y.dtype())?,
                None => cotangent.to_dtype(y.dtype())?,
            };
            let options = GradOptions::new().gradient(&cotangent).retain_graph(true);
            let grads = grad_with(y, &wanted, options)?;
            total = Some(match total {
                None => grads,
                Some(sums) => sums.into_iter().zip(grads).map(|(a, b)| add(a, b)).collect::<Result<_>>()?,
            });
        }
        Ok((values, total))
    }
}

fn add(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => a.add(&b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// Whether the elements can have a gradient.
pub fn differentiable(x: &Tensor) -> bool {
    x.dtype().is_float() || x.dtype().is_complex()
}

/// Complex numbers as real and imaginary parts.
pub fn parts(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

/// The number of layouts of [`relaid`].
pub const LAYOUTS: usize = 4;

/// The same values in other layouts: transposed, with an offset, with a step, reversed.
pub fn relaid(x: &Tensor, layout: usize) -> Result<Tensor> {
    let x = x.detach();
    if x.rank() == 0 {
        // A 0-d tensor can only be moved.
        return Tensor::stack(&[&x, &x, &x], 0)?.select(0, 1);
    }
    let last = x.rank() - 1;
    match layout {
        0 if x.rank() > 1 => x.transpose(0, last)?.contiguous()?.transpose(0, last),
        0 | 1 => Tensor::cat(&[&x, &x, &x], 0)?.narrow(0, x.shape()[0], x.shape()[0]),
        2 => {
            let doubled = Tensor::stack(&[&x, &x.zeros_like()?], last + 1)?;
            let mut shape = x.shape().to_vec();
            shape[last] *= 2;
            doubled.reshape(shape)?.slice(last, Slice::from(..).step(2))
        }
        _ => x.flip(..)?.contiguous()?.flip(..),
    }
}

/// Whether values agree to a tolerance; NaN and infinities must be equal.
pub fn close(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<bool> {
    let (a, b) = (a.detach(), b.detach().to_device(a.device())?);
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Ok(false);
    }
    let wide = |x: &Tensor| parts(&x.detach())?.to_device(Device::Cpu)?.to_dtype(DType::F64)?.to_vec::<f64>();
    let alike =
        |(a, b): (f64, f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance + tolerance * b.abs();
    Ok(wide(&a)?.into_iter().zip(wide(&b)?).all(alike))
}

/// The largest error of the elements, relative to the largest expected element. NaN and infinities must be equal, otherwise the
/// distance is infinite.
pub fn distance(found: &Tensor, wanted: &Tensor) -> Result<f64> {
    let wide = |x: &Tensor| parts(&x.detach())?.to_device(Device::Cpu)?.to_dtype(DType::F64)?.to_vec::<f64>();
    if found.shape() != wanted.shape() {
        return Ok(f64::INFINITY);
    }
    let (found, wanted) = (wide(found)?, wide(wanted)?);
    let scale = wanted.iter().filter(|x| x.is_finite()).fold(0.0_f64, |most, x| most.max(x.abs()));
    let off = |(a, b): (&f64, &f64)| match (a - b).abs() {
        _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        off if off.is_finite() => off / scale,
        _ => f64::INFINITY,
    };
    Ok(found.iter().zip(&wanted).map(off).fold(0.0, f64::max))
}
