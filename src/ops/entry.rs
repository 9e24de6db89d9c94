//! The entries of the list of operations: descriptions of operations, and calls with arguments as data.

use super::arg::{Arg, ArgKind, FromArg};
use super::sample::{ErrorCase, Sample};
use crate::error::{bail, err, named};
use crate::layout::ReduceDims;
use crate::{Result, Tensor, TensorOptions};

/// An entry of the [list of operations](super::list), generated from the signature of the method.
///
/// ```
/// use cotangent::ops::{self, Derivative};
/// let sort = ops::find("sort").ok_or("there is a sort")?;
/// assert_eq!((sort.outputs, sort.derivative), (&["values", "indices"][..], Derivative::Rule));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Op {
    /// The name, as in error messages and drawings of graphs.
    pub name: &'static str,
    /// The path that it is called by in Rust, in the crate: `Tensor::add`, `linalg::solve`.
    pub path: &'static str,
    /// Other names of the operation.
    pub aliases: &'static [&'static str],
    /// The documentation, in Markdown.
    pub docs: &'static str,
    pub(crate) params: &'static [ParamSpec],
    /// The names of the results. `tensors` stands for any number of results.
    pub outputs: &'static [&'static str],
    /// The kind of derivative.
    pub derivative: Derivative,
    /// Whether the result shares the memory of the first argument.
    pub view: bool,
    /// Whether it draws random numbers.
    pub random: bool,
    /// Whether there is a form that changes the tensor: `add_` of `add`.
    pub in_place: bool,
    /// Whether the result depends on the memory layout of the arguments.
    pub reads_layout: bool,
    /// Whether the result is `f64` for arguments of every dtype.
    pub in_f64: bool,
    /// How a number is treated that the dtype of an integer tensor cannot represent.
    pub numbers: Numbers,
    /// Whether it accepts only `f32` and `f64`, and refuses half precision.
    pub full_precision: bool,
    /// Whether it treats all other dimensions as batch dimensions, so that every tensor can have an extra leading dimension.
    pub batch: bool,
    /// The policy inside of an [`autocast`](crate::autocast()) on the CPU.
    pub autocast_cpu: Option<AutocastPolicy>,
    /// The policy inside of an [`autocast`](crate::autocast()) on GPUs.
    pub autocast_cuda: Option<AutocastPolicy>,
    /// A factor for the tolerance of its tests.
    pub tolerance: f64,
    #[cfg(feature = "samples")]
    pub(crate) samples: fn() -> Result<Vec<Sample>>,
    #[cfg(feature = "samples")]
    pub(crate) error_cases: fn() -> Result<Vec<ErrorCase>>,
    pub(crate) call: fn(&[Arg]) -> Result<Vec<Tensor>>,
}

/// How [`autocast`](crate::autocast()) casts the floats of an operation. `f64` is never cast.
///
/// ```
/// use cotangent::ops::{self, AutocastPolicy};
/// let matmul = ops::find("matmul").ok_or("there is a matmul")?;
/// assert_eq!(matmul.autocast_cuda, Some(AutocastPolicy::Lower));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutocastPolicy {
    /// They are cast to the dtype of the scope.
    Lower,
    /// Those of half precision are cast to `f32`.
    F32,
    /// They are cast to the widest dtype among them.
    Widest,
    /// They are not cast, nor are those of the operations that it calls.
    Own,
    /// The operation is refused, because its gradient is unsafe in half precision.
    Refused,
}

/// How a number is treated that the dtype of an integer tensor cannot represent, such as 300 with `u8`.
///
/// ```
/// use cotangent::ops::{self, Numbers};
/// let of = |name: &str| ops::find(name).map(|op| op.numbers);
/// assert_eq!((of("add"), of("div")), (Some(Numbers::Wrapped), Some(Numbers::Floats)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// It is refused.
    Elements,
    /// It wraps around, as results of arithmetic do.
    Wrapped,
    /// It becomes a float, as do the integers.
    Floats,
}

/// What kind of derivative an operation has.
///
/// ```
/// use cotangent::ops::{self, Derivative};
/// let kind = |name: &str| ops::find(name).map(|op| op.derivative);
/// assert_eq!((kind("exp"), kind("argmax")), (Some(Derivative::Rule), Some(Derivative::None)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivative {
    /// A rule.
    Rule,
    /// It is zero wherever it exists.
    Zero,
    /// None: requesting it is an error.
    None,
}

/// A parameter of an operation.
///
/// ```
/// use cotangent::ops;
/// let sum = ops::find("sum").ok_or("there is a sum")?;
/// let keepdim = sum.params().find(|param| param.name == "keepdim").ok_or("it has this parameter")?;
/// assert_eq!(keepdim.kind.to_string(), "bool");
/// assert_eq!(keepdim.default.map(|default| default().to_string()).as_deref(), Some("False"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name.
    pub name: &'static str,
    /// The kind of argument.
    pub kind: ArgKind,
    /// The default value; `None` if the argument is required.
    pub default: Option<fn() -> Arg>,
}

/// One parameter, or a group of parameters that is one argument in Rust.
#[derive(Debug)]
pub(crate) enum ParamSpec {
    One(Param),
    Group(&'static [Param]),
}

/// A group of parameters that is one argument in Rust.
///
/// ```
/// use cotangent::{ops::ParamGroup, arguments::ReduceDims};
/// let names: Vec<&str> = ReduceDims::PARAMS.iter().map(|param| param.name).collect();
/// assert_eq!(names, ["dim", "keepdim"]);
/// ```
pub trait ParamGroup<'a>: Sized {
    /// The parameters.
    const PARAMS: &'static [Param];

    /// Converts one argument per parameter, in order.
    ///
    /// # Errors
    /// If one of them is of the wrong kind.
    fn from_args(op: &'static str, args: &'a [Arg]) -> Result<Self>;

    /// The arguments of the individual parameters.
    fn to_args(&self) -> Vec<Arg>;
}

impl<'a> ParamGroup<'a> for ReduceDims {
    const PARAMS: &'static [Param] = &[
        Param { name: "dim", kind: ArgKind::Dims, default: Some(|| Arg::None) },
        Param { name: "keepdim", kind: ArgKind::Bool, default: Some(|| Arg::from(false)) },
    ];

    fn from_args(op: &'static str, args: &'a [Arg]) -> Result<ReduceDims> {
        Ok(ReduceDims { dims: one(op, Self::PARAMS, args, 0)?, keepdim: one(op, Self::PARAMS, args, 1)? })
    }

    fn to_args(&self) -> Vec<Arg> {
        vec![Arg::from(self.dims.clone()), Arg::from(self.keepdim)]
    }
}

impl<'a> ParamGroup<'a> for TensorOptions {
    const PARAMS: &'static [Param] = &[
        Param { name: "dtype", kind: ArgKind::DType, default: Some(|| Arg::None) },
        Param { name: "device", kind: ArgKind::Device, default: Some(|| Arg::None) },
    ];

    fn from_args(op: &'static str, args: &'a [Arg]) -> Result<TensorOptions> {
        Ok(TensorOptions { dtype: one(op, Self::PARAMS, args, 0)?, device: one(op, Self::PARAMS, args, 1)? })
    }

    fn to_args(&self) -> Vec<Arg> {
        vec![Arg::from(self.dtype), Arg::from(self.device)]
    }
}

/// One argument of a group.
pub(crate) fn one<'a, T: FromArg<'a>>(op: &'static str, params: &[Param], args: &'a [Arg], at: usize) -> Result<T> {
    let (param, arg) = both(op, params, args, at)?;
    T::from_arg(arg).ok_or_else(|| wrong(op, param.name, T::KIND, arg))
}

fn both<'p, 'a>(op: &'static str, params: &'p [Param], args: &'a [Arg], at: usize) -> Result<(&'p Param, &'a Arg)> {
    match (params.get(at), args.get(at)) {
        (Some(param), Some(arg)) => Ok((param, arg)),
        _ => bail!(Value, op, "expected {} arguments, got {}", params.len(), args.len()),
    }
}

fn wrong(op: &'static str, name: &str, kind: ArgKind, arg: &Arg) -> crate::Error {
    let given = match arg {
        Arg::Tensor(x) => format!("a tensor of shape {:?}", x.shape()),
        Arg::Tensors(all) => format!("{} tensors", all.len()),
        other => format!("{other:?}"),
    };
    err!(Value, op, "{name} must be of kind {kind}, got {given}")
}

/// The arguments of a call, converted sequentially.
pub(crate) struct Args<'a> {
    op: &'static str,
    args: &'a [Arg],
}

impl<'a> Args<'a> {
    pub fn new(op: &'static str, args: &'a [Arg]) -> Args<'a> {
        Args { op, args }
    }

    pub fn next<T: FromArg<'a>>(&mut self, name: &'static str) -> Result<T> {
        let arg = self.first(name)?;
        T::from_arg(arg).ok_or_else(|| wrong(self.op, name, T::KIND, arg))
    }

    fn first(&mut self, name: &'static str) -> Result<&'a Arg> {
        let Some((arg, others)) = self.args.split_first() else {
            bail!(Value, self.op, "missing argument {name}");
        };
        self.args = others;
        Ok(arg)
    }

    pub fn group<T: ParamGroup<'a>>(&mut self) -> Result<T> {
        T::from_args(self.op, self.several(T::PARAMS.len())?)
    }

    fn several(&mut self, count: usize) -> Result<&'a [Arg]> {
        let Some((args, others)) = self.args.split_at_checked(count) else {
            bail!(Value, self.op, "expected {count} more arguments, got {}", self.args.len());
        };
        self.args = others;
        Ok(args)
    }
}

/// What an operation returns.
pub(crate) trait Outputs: Sized {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>>;

    /// `None` if the number of tensors does not match.
    fn from_tensors(tensors: Vec<Tensor>) -> Option<Self>;
}

impl Outputs for Vec<Tensor> {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result
    }

    fn from_tensors(tensors: Vec<Tensor>) -> Option<Self> {
        Some(tensors)
    }
}

/// The results of a call that an interceptor computed instead of the body of the operation.
pub(crate) type Intercepted = Option<Result<Vec<Tensor>>>;
/// An interceptor of calls: `vmap` or `autocast`.
pub(crate) type Intercept = fn(&Op, &[Arg]) -> Intercepted;

/// Offers a call of operation `at` of a list to an interceptor. Errors get the name of the operation.
#[track_caller]
pub(crate) fn intercepted(list: &[Op], at: usize, args: &[Arg], by: Intercept) -> Intercepted {
    let op = list.get(at)?;
    Some(named(op.name, by(op, args)?))
}

/// The results of an operation in the return type of its method.
pub(crate) fn typed<T: Outputs>(results: Result<Vec<Tensor>>) -> Result<T> {
    let results = results?;
    let count = results.len();
    T::from_tensors(results)
        .ok_or_else(|| err!(Value, "vmap", "number of results must match the operation, got {count}"))
}

impl Outputs for Tensor {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result.map(|tensor| vec![tensor])
    }

    fn from_tensors(mut tensors: Vec<Tensor>) -> Option<Self> {
        tensors.pop().filter(|_| tensors.is_empty())
    }
}

macro_rules! outputs {
    ($($ty:ty: $($name:ident)+;)+) => {$(
        impl Outputs for $ty {
            fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
                result.map(|($($name),+)| vec![$($name),+])
            }

            fn from_tensors(tensors: Vec<Tensor>) -> Option<Self> {
                let [$($name),+] = tensors.try_into().ok()?;
                Some(($($name),+))
            }
        }
    )+};
}
outputs! {
    (Tensor, Tensor): a b;
    (Tensor, Tensor, Tensor): a b c;
    (Tensor, Tensor, Tensor, Tensor): a b c d;
}

impl ParamSpec {
    pub fn params(&self) -> &[Param] {
        match self {
            ParamSpec::One(param) => std::slice::from_ref(param),
            ParamSpec::Group(params) => params,
        }
    }
}

/// All arguments for these parameters in order, from positional and named ones; defaults fill the rest.
pub(crate) fn bind(op: &'static str, params: &[&Param], positional: &[Arg], named: &[(&str, Arg)]) -> Result<Vec<Arg>> {
    if positional.len() > params.len() {
        bail!(Value, op, "expected at most {} arguments, got {}", params.len(), positional.len());
    }
    let mut args: Vec<Option<Arg>> = positional.iter().cloned().map(Some).collect();
    args.resize(params.len(), None);
    for (name, arg) in named {
        let Some(at) = params.iter().position(|param| param.name == *name) else {
            let known: Vec<&str> = params.iter().map(|param| param.name).collect();
            bail!(Value, op, "unknown parameter {name}: must be one of {}", known.join(", "));
        };
        if args[at].replace(arg.clone()).is_some() {
            bail!(Value, op, "{name} is given twice");
        }
    }
    let fill = |(arg, param): (Option<Arg>, &&Param)| match (arg, param.default) {
        // As in Python, `None` is the default.
        (None | Some(Arg::None), Some(default)) => Ok(default()),
        (Some(arg), _) => Ok(arg),
        (None, None) => bail!(Value, op, "missing argument {}", param.name),
    };
    args.into_iter().zip(params).map(fill).collect()
}

impl Op {
    /// The parameters, in order.
    ///
    /// ```
    /// use cotangent::ops;
    /// let names: Vec<&str> = ops::find("gather").ok_or("there is one")?.params().map(|param| param.name).collect();
    /// assert_eq!(names, ["self", "dim", "index"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn params(&self) -> impl Iterator<Item = &'static Param> {
        self.params.iter().flat_map(ParamSpec::params)
    }

    /// The kinds of devices that support the operation. Every operation is tested on both.
    ///
    /// ```
    /// use cotangent::ops;
    /// assert!(ops::list().iter().all(|op| op.devices().contains(&"cpu")));
    /// ```
    #[allow(clippy::unused_self)]
    pub fn devices(&self) -> &'static [&'static str] {
        &["cpu", "cuda"]
    }

    /// Sample calls, of which tests check values, gradients, layouts and dtypes. Requires the feature `samples`.
    ///
    /// ```
    /// use cotangent::ops;
    /// for op in ops::list() {
    ///     let sample = &op.samples()?[0];
    ///     println!("{}{sample:?}", op.name);
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[cfg(feature = "samples")]
    pub fn samples(&self) -> Result<Vec<Sample>> {
        (self.samples)()
    }

    /// Calls that must fail. Requires the feature `samples`.
    ///
    /// ```
    /// use cotangent::ops;
    /// let matmul = ops::find("matmul").ok_or("there is one")?;
    /// for case in matmul.error_cases()? {
    ///     let error = case.call.bind(matmul).and_then(|args| matmul.call(&args)).err().ok_or("it should fail")?;
    ///     println!("{}: {error}", case.label);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[cfg(feature = "samples")]
    pub fn error_cases(&self) -> Result<Vec<ErrorCase>> {
        (self.error_cases)()
    }

    /// All arguments in order, from positional and named ones; defaults fill the rest.
    ///
    /// ```
    /// use cotangent::{Tensor, ops::{self, Arg}};
    /// let sum = ops::find("sum").ok_or("there is a sum")?;
    /// let x = Arg::from(Tensor::ones([2, 3])?);
    /// assert_eq!(sum.bind(&[x.clone()], &[("keepdim", true.into())])?.len(), 4);
    /// assert!(sum.bind(&[x], &[("keepdims", true.into())]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there are too many arguments, a name is unknown or given twice, or a required argument is missing.
    pub fn bind(&self, positional: &[Arg], named: &[(&str, Arg)]) -> Result<Vec<Arg>> {
        bind(self.name, &self.params().collect::<Vec<_>>(), positional, named)
    }

    /// Calls the operation with all arguments in order, as [`bind`](Self::bind) gives them.
    ///
    /// ```
    /// use cotangent::{Tensor, ops::{self, Arg}};
    /// let sum = ops::find("sum").ok_or("there is a sum")?;
    /// let x = Tensor::ones([2, 3])?;
    /// let args = sum.bind(&[Arg::from(&x)], &[("dim", 1.into()), ("keepdim", true.into())])?;
    /// assert_eq!(sum.call(&args)?[0].shape(), [2, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of the operation; also if an argument is of the wrong kind.
    #[track_caller]
    pub fn call(&self, args: &[Arg]) -> Result<Vec<Tensor>> {
        let mut _inside = None;
        if crate::autograd::autocast::is_on() && (self.autocast_cpu.is_some() || self.autocast_cuda.is_some()) {
            if let Some(done) = super::autocast::intercept(self, args) {
                return crate::error::named(self.name, done);
            }
            _inside = Some(crate::autograd::autocast::off());
        }
        if crate::tensor::batch::is_used()
            && let Some(done) = super::batched::intercept(self, args)
        {
            return done;
        }
        let scope = crate::backend::events::enter(self.name);
        let done = crate::error::named(self.name, (self.call)(args));
        crate::backend::events::leave(scope);
        done
    }
}
