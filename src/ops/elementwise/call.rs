//! The parts that all elementwise operations share: compute dtypes, broadcasting and derivatives.

use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend::spec::{ComplexFormula, Cotangent, Formula, MOST_INPUTS, Params, Sym};
use crate::error::bail;
use crate::layout::broadcast;
use crate::location::Name;
use crate::ops::elementwise::map::{map, map_alike};
use crate::tensor::Operand;
use crate::zip::zip;
use crate::{DType, Result, Scalar, Shape, Tensor};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The dtypes that an operation accepts, and the dtypes of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Functions of real numbers: integers and bools become floats first.
    Float,
    /// Integers and floats.
    Number,
    /// Bools, integers and floats.
    Any,
    /// As `Any`; the result is bool and has no derivative.
    Compare,
    /// Bools and integers; there is no derivative.
    Bits,
}

/// An elementwise operation, as formulas.
pub(crate) struct Elementwise {
    pub name: &'static str,
    domain: Domain,
    inputs: usize,
    params: usize,
    value: fn(&[Sym], &[Sym]) -> Sym,
    gradient: Option<Gradient>,
    formula: OnceLock<Formula>,
    cotangents: OnceLock<Vec<Option<Cotangent>>>,
}

/// The cotangents of the inputs from the result's, the inputs, the result and the parameters; `None` where it is zero.
pub(crate) type Gradient = fn(Sym, &[Sym], Sym, &[Sym]) -> Vec<Option<Sym>>;

impl Elementwise {
    /// A function of `inputs` tensors and `params` numbers, differentiated by the rules of the functions in its formula.
    pub const fn new(
        name: &'static str,
        domain: Domain,
        inputs: usize,
        params: usize,
        value: fn(&[Sym], &[Sym]) -> Sym,
    ) -> Elementwise {
        Elementwise {
            name,
            domain,
            inputs,
            params,
            value,
            gradient: None,
            formula: OnceLock::new(),
            cotangents: OnceLock::new(),
        }
    }

    /// Sets explicit cotangents: to use the result, or for better accuracy than the rules give.
    pub const fn with_gradient(mut self, gradient: Gradient) -> Elementwise {
        self.gradient = Some(gradient);
        self
    }

    #[inline]
    pub fn formula(&'static self) -> &'static Formula {
        self.formula.get_or_init(|| Formula::new(self.name, self.inputs, self.params, self.value))
    }

    #[inline]
    fn cotangents(&'static self) -> &'static [Option<Cotangent>] {
        match self.gradient {
            Some(gradient) => {
                self.cotangents.get_or_init(|| Cotangent::given(self.name, self.inputs, self.params, gradient))
            }
            None => self.formula().cotangents(),
        }
    }

    /// The compute dtype and the dtype of the result.
    #[inline]
    pub fn dtypes(&self, inputs: &[&Tensor]) -> Result<(DType, DType)> {
        let mut dtype = inputs[0].dtype();
        for input in &inputs[1..] {
            if input.dtype() != dtype {
                dtype = common_dtype(self.name, dtype, input.dtype())?;
            }
        }
        match self.domain {
            Domain::Any => Ok((dtype, dtype)),
            Domain::Float => Ok((dtype.to_float(), dtype.to_float())),
            Domain::Compare => Ok((dtype, DType::Bool)),
            Domain::Number if dtype == DType::Bool => {
                bail!(DType, self.name, "not defined for bool: cast with to_dtype first")
            }
            Domain::Bits if dtype.is_differentiable() => {
                bail!(DType, self.name, "inputs must be integers or bools, got {dtype}")
            }
            Domain::Number | Domain::Bits => Ok((dtype, dtype)),
        }
    }

    /// The dtype of a number combined with a tensor of this dtype. Where integers become floats, so does the number, because
    /// the integer dtype may not represent it: a `u8` divided by 256 is not a `u8` divided by 0.
    #[inline]
    pub fn number_dtype(&self, dtype: DType) -> DType {
        if matches!(self.domain, Domain::Float) { dtype.to_float() } else { dtype }
    }

    /// The other operand of a tensor, for operations where a number outside of the integer dtype must not wrap around.
    #[inline]
    pub fn operand<'a>(&self, other: &'a Operand<'_>, x: &Tensor) -> Result<Cow<'a, Tensor>> {
        let (dtype, device) = (self.number_dtype(x.dtype()), x.device());
        match self.domain {
            Domain::Float | Domain::Bits => other.resolve(dtype, device),
            Domain::Compare => other.compared(dtype, device),
            Domain::Any | Domain::Number => other.element(self.name, dtype, device),
        }
    }

    /// The operation on tensors that broadcast, with its derivative.
    #[track_caller]
    pub fn call(&'static self, inputs: &[&Tensor], params: &[Scalar]) -> Result<Tensor> {
        let (compute, dtype) = self.dtypes(inputs)?;
        for number in params {
            number.check_element(self.name, compute)?;
        }
        self.call_as(inputs, params, compute, dtype)
    }

    /// The operation on complex numbers, by formulas of their real and imaginary parts.
    #[track_caller]
    #[inline(never)]
    fn call_complex(
        &'static self,
        inputs: &[&Tensor],
        params: &[Scalar],
        compute: DType,
        dtype: DType,
    ) -> Result<Tensor> {
        let as_computed = |x: &&Tensor| match x.dtype() {
            DType::Bool => Ok((*x).clone()),
            own => x.to_dtype(if own.is_complex() { compute } else { compute.to_real() }),
        };
        let inputs = inputs.iter().map(as_computed).collect::<Result<SmallVec<[Tensor; 3]>>>()?;
        let inputs: &[&Tensor] = &inputs.iter().collect::<SmallVec<[&Tensor; 3]>>();
        let complex = which_are_complex(inputs);
        let formula = match ComplexFormula::of(self.formula(), &complex) {
            Ok(formula) if 2 * inputs.len() <= MOST_INPUTS => formula,
            _ => bail!(DType, self.name, "not defined for {compute}"),
        };
        if dtype.is_complex() {
            if !self.cotangents().iter().flatten().all(|cotangent| cotangent.takes(&complex)) {
                bail!(DType, self.name, "not defined for {compute}: the derivative is known for real numbers only");
            }
            let out = complex_values(self.name, (formula, params), compute, inputs)?;
            return record(out, self.name.into(), self.cotangents(), inputs, params);
        }
        if dtype.is_float() {
            bail!(DType, self.name, "not defined for {compute} with a result of {dtype}");
        }
        let parts = parts_of(inputs)?;
        let parts: SmallVec<[&Tensor; 6]> = parts.iter().collect();
        let out = broadcasting(self.name, (formula.re, params), compute.to_real(), &parts, dtype)?;
        Ok(out.record_barrier(self.name, inputs))
    }

    /// As [`call`](Self::call), in a compute dtype and with a result that the caller has chosen.
    #[track_caller]
    pub fn call_as(
        &'static self,
        inputs: &[&Tensor],
        params: &[Scalar],
        compute: DType,
        dtype: DType,
    ) -> Result<Tensor> {
        if compute.is_complex() {
            return self.call_complex(inputs, params, compute, dtype);
        }
        let out = broadcasting(self.name, (self.formula(), params), compute, inputs, dtype)?;
        if !dtype.is_float() {
            return Ok(out.record_barrier(self.name, inputs));
        }
        if inputs.iter().all(|input| input.node().is_none()) {
            // Without a graph the derivatives are not looked up; anomaly mode checks the result.
            return out.record(self.name, inputs, |_| |_: &BackwardContext, _: &Tensor| Ok(Grads::new()));
        }
        record(out, self.name.into(), self.cotangents(), inputs, params)
    }
}

impl Elementwise {
    /// The cotangent of one input from that of the result, for hand-written rules; recorded if the backward pass is. All
    /// tensors have one shape, and the operation has no parameters and no explicit cotangents.
    #[track_caller]
    pub fn cotangent(&'static self, at: usize, g: &Tensor, inputs: &[&Tensor]) -> Result<Tensor> {
        let Some(cotangent) = &self.formula().cotangents()[at] else {
            return Tensor::zeros_like(g);
        };
        if cotangent.passes_on {
            return Ok(g.clone());
        }
        let operand = |&k: &usize| if k == 0 { g } else { inputs[k - 1] };
        cotangent.apply(g.dtype(), &cotangent.operands.iter().map(operand).collect::<SmallVec<[&Tensor; 6]>>(), &[])
    }
}

/// Evaluates a formula on inputs that broadcast against each other, outside the graph.
pub(crate) fn broadcasting(
    op: &'static str,
    call: crate::ops::elementwise::map::FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    dtype: DType,
) -> Result<Tensor> {
    if let Some(number) = call.1.iter().find(|number| matches!(number, Scalar::C128(_))) {
        bail!(DType, op, "parameters must be real, got {number}");
    }
    let first = inputs[0].layout().shape();
    if inputs[1..].iter().all(|input| input.layout().shape() == first) {
        return map_alike(op, call, compute, inputs, dtype);
    }
    let shapes: SmallVec<[&Shape; 3]> = inputs.iter().map(|input| input.layout().shape()).collect();
    map(op, call, compute, inputs, &broadcast(op, &shapes)?, dtype)
}

fn which_are_complex(inputs: &[&Tensor]) -> SmallVec<[bool; 3]> {
    inputs.iter().map(|x| x.dtype().is_complex()).collect()
}

/// The inputs of a formula of parts: both parts of each complex input.
fn parts_of(inputs: &[&Tensor]) -> Result<SmallVec<[Tensor; 6]>> {
    let mut parts = SmallVec::new();
    for input in inputs {
        if input.dtype().is_complex() {
            parts.push(input.real()?);
            parts.push(input.imag()?);
        } else {
            parts.push((*input).clone());
        }
    }
    Ok(parts)
}

/// Evaluates a formula of complex numbers, outside the graph.
#[track_caller]
fn complex_values(
    op: &'static str,
    (formula, params): (ComplexFormula, &[Scalar]),
    compute: DType,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    let inputs: SmallVec<[Tensor; 4]> = inputs.iter().map(|x| x.detach()).collect();
    let parts = parts_of(&inputs.iter().collect::<SmallVec<[&Tensor; 4]>>())?;
    let parts: SmallVec<[&Tensor; 6]> = parts.iter().collect();
    let part = |formula| broadcasting(op, (formula, params), compute.to_real(), &parts, compute.to_real());
    part(formula.re)?.with_imaginary(&part(formula.im)?)
}

/// Records an elementwise operation in the graph.
#[track_caller]
fn record(
    out: Tensor,
    name: Name,
    cotangents: &'static [Option<Cotangent>],
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<Tensor> {
    if out.dtype().is_complex() {
        return record_many(out, name, cotangents, inputs, params);
    }
    if inputs.len() <= 2 && params.is_empty() && cotangents.iter().all(Option::is_some) {
        record_few(out, name, cotangents, inputs)
    } else {
        record_many(out, name, cotangents, inputs, params)
    }
}

/// One or two inputs without parameters, each with a derivative: residuals are stored in a fixed array, so that recording is
/// fast for small tensors.
#[track_caller]
fn record_few(out: Tensor, name: Name, cotangents: &'static [Option<Cotangent>], inputs: &[&Tensor]) -> Result<Tensor> {
    out.record(name, inputs, |save| {
        let reads = |k: usize| match cotangents.get(k) {
            Some(Some(cotangent)) if save.needs(k) => cotangent.reads,
            _ => 0,
        };
        let reads = reads(0) | reads(1);
        let mut saved: [Option<Tensor>; 2] = [None, None];
        for (k, input) in inputs.iter().enumerate() {
            if reads & (2 << k) != 0 {
                saved[k] = Some(save.save(input));
            }
        }
        let result = (reads & (2 << inputs.len()) != 0).then(|| save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            let mut grads = Grads::new();
            for (k, cotangent) in cotangents.iter().enumerate() {
                grads.push(match cotangent {
                    Some(cotangent) if ctx.needs(k) => {
                        Some(cotangent.of(ctx, g, &saved[..cotangents.len()], result.as_ref(), &[])?)
                    }
                    _ => None,
                });
            }
            Ok(grads)
        }
    })
}

/// Any number of inputs and parameters, and complex numbers.
///
/// A holomorphic function of complex numbers has the derivative `d` that its formula has for real ones, and the cotangent of
/// its input is `g · conj(d)`: the rule applied to `conj(g)`, conjugated. Rules for the parts would be wrong where their
/// formulas branch, such as at an imaginary part of 0.
#[track_caller]
#[inline(never)]
fn record_many(
    out: Tensor,
    name: Name,
    cotangents: &'static [Option<Cotangent>],
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<Tensor> {
    out.record(name, inputs, |save| {
        let needed = |k: usize| if save.needs(k) { cotangents[k].as_ref() } else { None };
        // A bit per operand, the inputs and the result: whether a rule reads it.
        let reads = (0..inputs.len()).filter_map(needed).fold(0, |set, cotangent| set | cotangent.reads);
        let mut saved: SmallVec<[Option<Tensor>; 3]> = SmallVec::new();
        for (k, input) in inputs.iter().enumerate() {
            saved.push((reads & (2 << k) != 0).then(|| save.save(input)));
        }
        let result = (reads & (2 << inputs.len()) != 0).then(|| save.save_output());
        // Where the derivative is zero, only the shape of the input is kept.
        let zeros: SmallVec<[Option<Shape>; 1]> = (0..inputs.len())
            .filter(|&k| cotangents[k].is_none())
            .map(|k| save.needs(k).then(|| inputs[k].layout().shape().clone()))
            .collect();
        let params = Params::from_slice(params);
        let is_complex = which_are_complex(inputs);
        move |ctx: &BackwardContext, g: &Tensor| {
            let mut grads = Grads::new();
            let mut zeros = zeros.iter();
            let conjugate = if g.dtype().is_complex() { Some(g.conj()?) } else { None };
            let of = |cotangent: &'static Cotangent, k: usize| -> Result<Tensor> {
                let Some(g) = &conjugate else { return cotangent.of(ctx, g, &saved, result.as_ref(), &params) };
                let grad = cotangent.of(ctx, g, &saved, result.as_ref(), &params)?.conj()?;
                if is_complex[k] { Ok(grad) } else { grad.real() }
            };
            for (k, cotangent) in cotangents.iter().enumerate().take(saved.len()) {
                let grad = match cotangent {
                    Some(cotangent) if ctx.needs(k) => Some(of(cotangent, k)?),
                    Some(_) => None,
                    None => match zeros.next() {
                        Some(Some(shape)) => {
                            let dtype = if is_complex[k] { g.dtype() } else { g.dtype().to_real() };
                            Some(Tensor::zeros_with(shape, (dtype, g.device()))?)
                        }
                        _ => None,
                    },
                };
                grads.push(grad);
            }
            Ok(grads)
        }
    })
}

impl Cotangent {
    /// The cotangent, from that of the result and the residuals; recorded if the backward pass is.
    fn of(
        &'static self,
        ctx: &BackwardContext,
        g: &Tensor,
        saved: &[Option<Tensor>],
        result: Option<&Tensor>,
        params: &[Scalar],
    ) -> Result<Tensor> {
        if self.passes_on {
            return Ok(g.clone());
        }
        if self.operands.len() > MOST_INPUTS {
            let name = &self.formula.name;
            bail!(Graph, "backward", "{name}: derivatives of more than {MOST_INPUTS} tensors are not supported");
        }
        let output = if self.reads & (2 << saved.len()) != 0 { result.map(|y| ctx.output(y)) } else { None };
        // At most the cotangent of the result, the inputs and the result.
        let mut operands = [g; MOST_INPUTS + 2];
        for (position, &operand) in zip(&mut operands, &self.operands[..]) {
            let found = match operand {
                0 => Some(g),
                k if k <= saved.len() => saved[k - 1].as_ref(),
                _ => output.as_ref(),
            };
            let Some(found) = found else {
                bail!(Graph, "backward", "a value was not saved: its gradient was not requested");
            };
            *position = found;
        }
        self.apply(g.dtype(), &operands[..self.operands.len()], params)
    }

    /// Whether it can be evaluated for complex numbers, given which inputs are complex.
    fn takes(&'static self, complex: &[bool]) -> bool {
        let of = |&k: &usize| k == 0 || complex.get(k - 1).copied().unwrap_or(true);
        let operands: SmallVec<[bool; 4]> = self.operands.iter().map(of).collect();
        2 * operands.len() <= MOST_INPUTS && ComplexFormula::of(&self.formula, &operands).is_ok()
    }

    /// Evaluates the formula on the operands that it reads; recorded if the backward pass is.
    fn apply(&'static self, dtype: DType, operands: &[&Tensor], params: &[Scalar]) -> Result<Tensor> {
        let out = if dtype.is_complex() {
            let complex = which_are_complex(operands);
            let parts = operands.len() + complex.iter().filter(|&&complex| complex).count();
            let formula = match ComplexFormula::of(&self.formula, &complex) {
                Ok(formula) if parts <= MOST_INPUTS => formula,
                _ => {
                    let name = &self.formula.name;
                    bail!(Graph, "backward", "{name}: no derivative of this order for complex numbers")
                }
            };
            complex_values("backward", (formula, params), dtype, operands)?
        } else {
            broadcasting("backward", (&self.formula, params), dtype, operands, dtype)?
        };
        if !is_grad_enabled() || operands.iter().all(|operand| operand.node().is_none()) {
            return Ok(out);
        }
        record(out, self.formula.name.clone(), self.formula.cotangents(), operands, params)
    }
}

/// The promoted dtype. An error has the name of the operation.
#[inline]
pub(crate) fn common_dtype(op: &'static str, a: DType, b: DType) -> Result<DType> {
    if a == b {
        return Ok(a);
    }
    match a.promote(b) {
        Ok(dtype) => Ok(dtype),
        Err(_) => bail!(DType, op, "{a} and {b} have no common type: cast one of them first"),
    }
}

/// The body of an elementwise operation: its domain, name, tensors and numbers; the formula over symbols for these; and
/// optionally explicit cotangents of the tensors, from the cotangent `g` of the result `y`.
///
/// ```text
/// elementwise!(Float hypot(self, other) |a, b| a.hypot(b))
/// elementwise!(Float tanh(self) |x| x.tanh(), |g, y| [tanh_grad(g, y)])
/// elementwise!(Float leaky_relu(self; negative_slope) |x; slope| select(x.gt(zero()), x, x * slope))
/// ```
macro_rules! elementwise {
    ($domain:ident $name:ident($this:ident $(, $other:ident)* $(; $($number:ident),+)?)
        |$($x:ident),+ $(; $($param:ident),+)?| $value:expr) => {{
        static OP: $crate::ops::elementwise::call::Elementwise =
            $crate::ops::elementwise::call::elementwise!(@new $domain $name [$($x)+] [$($($param)+)?] $value);
        $(let $other = OP.operand(&$other, $this)?;)*
        OP.call(&[$this $(, &*$other)*], &[$($($crate::Scalar::from($number)),+)?])
    }};
    ($domain:ident $name:ident($this:ident $(, $other:ident)* $(; $($number:ident),+)?)
        |$($x:ident),+ $(; $($param:ident),+)?| $value:expr, |$g:ident, $y:ident| [$($grad:expr),+]) => {{
        static OP: $crate::ops::elementwise::call::Elementwise =
            $crate::ops::elementwise::call::elementwise!(@new $domain $name [$($x)+] [$($($param)+)?] $value).with_gradient(
                |$g, inputs, $y, params| {
                    let ([$($x),+], [$($($param),+)?]) = (inputs, params) else { return Vec::new() };
                    #[allow(unused_variables)]
                    let ($($x,)+) = ($(*$x,)+);
                    $(
                        #[allow(unused_variables)]
                        let ($($param,)+) = ($(*$param,)+);
                    )?
                    vec![$(Some($grad)),+]
                },
            );
        $(let $other = OP.operand(&$other, $this)?;)*
        OP.call(&[$this $(, &*$other)*], &[$($($crate::Scalar::from($number)),+)?])
    }};
    (@new $domain:ident $name:ident [$($x:ident)+] [$($param:ident)*] $value:expr) => {
        $crate::ops::elementwise::call::Elementwise::new(
            stringify!($name),
            $crate::ops::elementwise::call::Domain::$domain,
            [$(stringify!($x)),+].len(),
            { const PARAMS: &[&str] = &[$(stringify!($param)),*]; PARAMS.len() },
            |inputs, params| {
                let ([$($x),+], [$($param),*]) = (inputs, params) else { return inputs[0] };
                let ($($x,)+) = ($(*$x,)+);
                let ($($param,)*) = ($(*$param,)*);
                $value
            },
        )
    };
}
pub(crate) use elementwise;

/// The constant 0 of a formula.
pub(crate) fn zero() -> Sym {
    <Sym as crate::backend::spec::Arithmetic>::constant(0.0)
}

/// The constant ∞ of a formula of floats.
pub(crate) fn infinity() -> Sym {
    <Sym as crate::backend::spec::Arithmetic>::constant(f64::INFINITY)
}
