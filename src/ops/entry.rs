//! The list's entries: what an operation is, as data, and how it is called with arguments that are data, too.

use super::sample::{ErrorCase, Sample};
use crate::error::{bail, err};
use crate::layout::Ints;
use crate::tensor::Index;
use crate::{
    At, DType, Device, Dim, Dims, Operand, ReduceDims, Result, Scalar, Sections, Shape, Sizes, Slice, Tensor,
    TensorOptions,
};
use std::fmt;

/// An entry of the [list of operations](super::list). It is made from the signature of the method.
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
    /// The name: of the method, in messages and in drawings.
    pub name: &'static str,
    /// Other names that it is known by.
    pub aliases: &'static [&'static str],
    /// The documentation, in Markdown.
    pub docs: &'static str,
    pub(crate) params: &'static [ParamSpec],
    /// The names of its results. `tensors` stands for any number of them.
    pub outputs: &'static [&'static str],
    /// What kind of derivative it has.
    pub derivative: Derivative,
    /// Whether its result shares the memory of its first argument.
    pub view: bool,
    /// Whether it draws random numbers.
    pub random: bool,
    /// Whether it is about how the elements lie in memory, so that strided arguments change its result.
    pub reads_layout: bool,
    /// Whether its result is of `f64` whatever the dtype of its arguments.
    pub in_f64: bool,
    /// Whether it takes floats of `f32` and `f64` alone, and refuses half precision.
    pub full_precision: bool,
    /// How many times as large as usual its rounding errors may be.
    pub tolerance: f64,
    pub(crate) samples: fn() -> Result<Vec<Sample>>,
    pub(crate) error_cases: fn() -> Result<Vec<ErrorCase>>,
    pub(crate) call: fn(&[Arg]) -> Result<Vec<Tensor>>,
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
    /// None: to ask for one is an error.
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
    /// What is given for it.
    pub kind: ArgKind,
    /// What it is if nothing is given; `None` if something must be given.
    pub default: Option<fn() -> Arg>,
}

/// One parameter, or several that are one argument in Rust.
#[derive(Debug)]
pub(crate) enum ParamSpec {
    One(Param),
    Group(&'static [Param]),
}

/// What can be given for a parameter.
///
/// ```
/// use cotangent::ops::ArgKind;
/// assert_eq!(ArgKind::Dims.to_string(), "dims");
/// assert_eq!(ArgKind::Choice(&["mean", "sum"]).to_string(), "choice(mean|sum)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ArgKind {
    Tensor,
    Tensors,
    /// A tensor or a number.
    Operand,
    Scalar,
    Int,
    Float,
    Bool,
    Dim,
    Dims,
    Sizes,
    Ints,
    /// Several numbers, or one.
    Floats,
    Slice,
    Index,
    DType,
    Device,
    /// One of these words.
    Choice(&'static [&'static str]),
    Text,
}

impl fmt::Display for ArgKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ArgKind::Choice(words) = self {
            return write!(f, "choice({})", words.join("|"));
        }
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// An argument of an operation, as data.
///
/// ```
/// use cotangent::{DType, Tensor, ops::Arg};
/// let args = [Arg::from(&Tensor::zeros([2])?), Arg::from(1.5), Arg::from([0, -1]), Arg::from("mean"), Arg::from(DType::F32)];
/// assert_eq!(args.map(|arg| arg.to_string()), ["f32[2]", "1.5", "[0, -1]", "\"mean\"", "f32"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Arg {
    /// Nothing: the parameter's default, or all dimensions.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// Several tensors.
    Tensors(Vec<Tensor>),
    /// A number, or a bool.
    Scalar(Scalar),
    /// Dimensions, sizes, strides.
    Ints(Vec<isize>),
    /// Numbers.
    Floats(Vec<f64>),
    /// A range of a dimension.
    Slice(Slice),
    /// What stands between brackets in Python.
    Index(Index),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A word, such as the name of a reduction, or any other text.
    Text(String),
}

macro_rules! arg_from {
    ($($ty:ty: |$x:ident| $make:expr;)+) => {$(
        impl From<$ty> for Arg {
            fn from($x: $ty) -> Arg { $make }
        }
    )+};
}
arg_from! {
    Tensor: |x| Arg::Tensor(x);
    &Tensor: |x| Arg::Tensor(x.clone());
    Vec<Tensor>: |x| Arg::Tensors(x);
    Scalar: |x| Arg::Scalar(x);
    f64: |x| Arg::Scalar(x.into());
    i64: |x| Arg::Scalar(x.into());
    i32: |x| Arg::Scalar(x.into());
    isize: |x| Arg::Scalar(x.into());
    usize: |x| Arg::Scalar(x.into());
    u64: |x| Arg::Scalar(x.into());
    bool: |x| Arg::Scalar(x.into());
    Vec<isize>: |x| Arg::Ints(x);
    Vec<f64>: |x| Arg::Floats(x);
    &[isize]: |x| Arg::Ints(x.to_vec());
    &[usize]: |x| Arg::Ints(x.iter().map(|&i| i as isize).collect());
    Dim: |x| Arg::from(x.0);
    At: |x| Arg::from(x.0);
    Dims: |x| x.named.map_or(Arg::None, |dims| Arg::Ints(dims.to_vec()));
    Sizes: |x| Arg::Ints(x.0.to_vec());
    Shape: |x| Arg::from(&x[..]);
    Slice: |x| Arg::Slice(x);
    Index: |x| Arg::Index(x);
    DType: |x| Arg::DType(x);
    Device: |x| Arg::Device(x);
    &str: |x| Arg::Text(x.to_string());
    (): |_x| Arg::None;
}

impl<const N: usize> From<[isize; N]> for Arg {
    fn from(ints: [isize; N]) -> Arg {
        Arg::Ints(ints.to_vec())
    }
}

impl<T: Into<Arg>> From<Option<T>> for Arg {
    fn from(arg: Option<T>) -> Arg {
        arg.map_or(Arg::None, Into::into)
    }
}

/// A type of parameters, made from an [`Arg`].
///
/// ```
/// use cotangent::ops::{Arg, ArgKind, FromArg};
/// assert_eq!(<f64 as FromArg>::KIND, ArgKind::Float);
/// assert_eq!(f64::from_arg(&Arg::from(2)), Some(2.0));
/// assert_eq!(bool::from_arg(&Arg::from(2)), None);
/// ```
pub trait FromArg<'a>: Sized {
    /// What is given for it.
    const KIND: ArgKind;
    /// What it is if nothing is given.
    const DEFAULT: Option<fn() -> Arg> = None;

    /// The argument as this type, if it is one.
    fn from_arg(arg: &'a Arg) -> Option<Self>;
}

/// A number, which may be a tensor of one without a gradient.
fn number(arg: &Arg) -> Option<Scalar> {
    match arg {
        Arg::Scalar(number) => Some(*number),
        Arg::Tensor(x) if x.rank() == 0 && !x.requires_grad() => match x.dtype() {
            DType::Bool => x.item::<bool>().ok().map(Scalar::Bool),
            dtype if dtype.is_int() => x.to_dtype(DType::I64).ok()?.item::<i64>().ok().map(Scalar::I64),
            dtype if dtype.is_float() => x.to_dtype(DType::F64).ok()?.item::<f64>().ok().map(Scalar::F64),
            _ => None,
        },
        _ => None,
    }
}

fn int(arg: &Arg) -> Option<i64> {
    match number(arg)? {
        Scalar::I64(x) => Some(x),
        Scalar::U64(x) => i64::try_from(x).ok(),
        _ => None,
    }
}

fn ints(arg: &Arg) -> Option<Ints> {
    match arg {
        Arg::Ints(ints) => Some(Ints::from_slice(ints)),
        other => Some(Ints::from_elem(isize::try_from(int(other)?).ok()?, 1)),
    }
}

macro_rules! from_arg {
    ($([$($generics:tt)*] $ty:ty: $kind:expr, |$arg:ident| $make:expr;)+) => {$(
        impl<'a, $($generics)*> FromArg<'a> for $ty {
            const KIND: ArgKind = $kind;
            fn from_arg($arg: &'a Arg) -> Option<Self> { $make }
        }
    )+};
}
from_arg! {
    [] &'a Tensor: ArgKind::Tensor, |arg| if let Arg::Tensor(x) = arg { Some(x) } else { None };
    [] Tensor: ArgKind::Tensor, |arg| if let Arg::Tensor(x) = arg { Some(x.clone()) } else { None };
    [] Vec<&'a Tensor>: ArgKind::Tensors, |arg| if let Arg::Tensors(all) = arg { Some(all.iter().collect()) } else { None };
    [] &'a [&'a Tensor]: ArgKind::Tensors, |_arg| None;
    [] Operand<'a>: ArgKind::Operand, |arg| match arg {
        Arg::Tensor(x) => Some(Operand::Borrowed(x)),
        Arg::Scalar(x) => Some(Operand::Scalar(*x)),
        _ => None,
    };
    [] Scalar: ArgKind::Scalar, |arg| number(arg);
    [] f64: ArgKind::Float, |arg| match number(arg)? {
        Scalar::Bool(_) => None,
        x => Some(x.to_f64()),
    };
    [] i64: ArgKind::Int, |arg| int(arg);
    [] isize: ArgKind::Int, |arg| int(arg)?.try_into().ok();
    [] usize: ArgKind::Int, |arg| int(arg)?.try_into().ok();
    [] u64: ArgKind::Int, |arg| int(arg)?.try_into().ok();
    [] bool: ArgKind::Bool, |arg| if let Arg::Scalar(Scalar::Bool(x)) = arg { Some(*x) } else { None };
    [] Dim: ArgKind::Dim, |arg| Some(Dim(int(arg)?.try_into().ok()?));
    [] At: ArgKind::Int, |arg| Some(At(int(arg)?.try_into().ok()?));
    [] Dims: ArgKind::Dims, |arg| match arg {
        Arg::None => Some(Dims::ALL),
        other => Some(Dims { named: Some(ints(other)?) }),
    };
    [] Sizes: ArgKind::Sizes, |arg| ints(arg).map(Sizes);
    [] Shape: ArgKind::Sizes, |arg| {
        let sizes = ints(arg)?;
        sizes.iter().all(|&size| size >= 0).then(|| sizes.iter().map(|&size| size as usize).collect())
    };
    [] Sections: ArgKind::Ints, |arg| match arg {
        Arg::Ints(at) => Some(Sections::from(at)),
        Arg::Tensor(at) if at.rank() == 1 && at.dtype().is_int() => {
            Some(Sections::from(&at.to_dtype(DType::I64).ok()?.to_vec::<i64>().ok()?[..]))
        }
        parts => Some(Sections::from(int(parts)?)),
    };
    [] Vec<isize>: ArgKind::Ints, |arg| ints(arg).map(|ints| ints.to_vec());
    [] Vec<f64>: ArgKind::Floats, |arg| match arg {
        Arg::Floats(numbers) => Some(numbers.clone()),
        Arg::Ints(ints) => Some(ints.iter().map(|&x| x as f64).collect()),
        other => Some(vec![f64::from_arg(other)?]),
    };
    [] &'a [isize]: ArgKind::Ints, |arg| if let Arg::Ints(ints) = arg { Some(ints) } else { None };
    [] Slice: ArgKind::Slice, |arg| if let Arg::Slice(slice) = arg { Some(slice.clone()) } else { None };
    [] Index: ArgKind::Index, |arg| match arg {
        Arg::Index(index) => Some(index.clone()),
        Arg::Tensor(x) => Some(Index::from(x)),
        Arg::Slice(slice) => Some(Index::from(slice.clone())),
        Arg::Tensors(all) => Some(Index::new(all.iter().map(Into::into).collect())),
        other => Some(Index::from(int(other)? as isize)),
    };
    [] DType: ArgKind::DType, |arg| if let Arg::DType(x) = arg { Some(*x) } else { None };
    [] Device: ArgKind::Device, |arg| if let Arg::Device(x) = arg { Some(*x) } else { None };
    [] &'a str: ArgKind::Text, |arg| if let Arg::Text(x) = arg { Some(x) } else { None };
}

impl<'a, T: FromArg<'a>> FromArg<'a> for Option<T> {
    const KIND: ArgKind = T::KIND;
    const DEFAULT: Option<fn() -> Arg> = Some(|| Arg::None);

    fn from_arg(arg: &'a Arg) -> Option<Self> {
        if let Arg::None = arg { Some(None) } else { T::from_arg(arg).map(Some) }
    }
}

/// Several parameters that are one argument in Rust.
///
/// ```
/// use cotangent::{ReduceDims, ops::ParamGroup};
/// let names: Vec<&str> = ReduceDims::PARAMS.iter().map(|param| param.name).collect();
/// assert_eq!(names, ["dim", "keepdim"]);
/// ```
pub trait ParamGroup<'a>: Sized {
    /// The parameters.
    const PARAMS: &'static [Param];

    /// The argument from as many arguments, in order.
    ///
    /// # Errors
    /// If one of them is of the wrong kind.
    fn from_args(op: &'static str, args: &'a [Arg]) -> Result<Self>;
}

impl<'a> ParamGroup<'a> for ReduceDims {
    const PARAMS: &'static [Param] = &[
        Param { name: "dim", kind: ArgKind::Dims, default: Some(|| Arg::None) },
        Param { name: "keepdim", kind: ArgKind::Bool, default: Some(|| Arg::from(false)) },
    ];

    fn from_args(op: &'static str, args: &'a [Arg]) -> Result<ReduceDims> {
        Ok(ReduceDims { dims: one(op, Self::PARAMS, args, 0)?, keepdim: one(op, Self::PARAMS, args, 1)? })
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
}

/// One argument of a group.
pub(crate) fn one<'a, T: FromArg<'a>>(op: &'static str, params: &[Param], args: &'a [Arg], at: usize) -> Result<T> {
    let (Some(param), Some(arg)) = (params.get(at), args.get(at)) else {
        bail!(Value, op, "an argument is missing");
    };
    T::from_arg(arg).ok_or_else(|| wrong(op, param.name, T::KIND, arg))
}

fn wrong(op: &'static str, name: &str, kind: ArgKind, arg: &Arg) -> crate::Error {
    let given = match arg {
        Arg::Tensor(x) => format!("a tensor of shape {:?}", x.shape()),
        Arg::Tensors(all) => format!("{} tensors", all.len()),
        other => format!("{other:?}"),
    };
    err!(Value, op, "the argument {name} should be of kind {kind}, not {given}")
}

/// The arguments of a call, taken one after the other.
pub(crate) struct Args<'a> {
    op: &'static str,
    args: &'a [Arg],
}

impl<'a> Args<'a> {
    pub fn new(op: &'static str, args: &'a [Arg]) -> Args<'a> {
        Args { op, args }
    }

    pub fn next<T: FromArg<'a>>(&mut self, name: &'static str) -> Result<T> {
        let Some((arg, others)) = self.args.split_first() else {
            bail!(Value, self.op, "the argument {name} is missing");
        };
        self.args = others;
        T::from_arg(arg).ok_or_else(|| wrong(self.op, name, T::KIND, arg))
    }

    pub fn group<T: ParamGroup<'a>>(&mut self) -> Result<T> {
        let Some((args, others)) = self.args.split_at_checked(T::PARAMS.len()) else {
            bail!(Value, self.op, "arguments are missing");
        };
        self.args = others;
        T::from_args(self.op, args)
    }
}

/// What an operation returns.
pub(crate) trait Outputs: Sized {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>>;
}

impl Outputs for Tensor {
    fn into_tensors(result: Result<Tensor>) -> Result<Vec<Tensor>> {
        result.map(|tensor| vec![tensor])
    }
}

impl Outputs for (Tensor, Tensor) {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result.map(|(a, b)| vec![a, b])
    }
}

impl Outputs for (Tensor, Tensor, Tensor) {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result.map(|(a, b, c)| vec![a, b, c])
    }
}

impl Outputs for (Tensor, Tensor, Tensor, Tensor) {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result.map(|(a, b, c, d)| vec![a, b, c, d])
    }
}

impl Outputs for Vec<Tensor> {
    fn into_tensors(result: Result<Self>) -> Result<Vec<Tensor>> {
        result
    }
}

impl ParamSpec {
    pub fn params(&self) -> &[Param] {
        match self {
            ParamSpec::One(param) => std::slice::from_ref(param),
            ParamSpec::Group(params) => params,
        }
    }
}

/// All arguments for these parameters in order, from some by position and some by name; defaults fill the rest.
pub(crate) fn bind(op: &'static str, params: &[&Param], positional: &[Arg], named: &[(&str, Arg)]) -> Result<Vec<Arg>> {
    if positional.len() > params.len() {
        bail!(Value, op, "{} arguments for {} parameters", positional.len(), params.len());
    }
    let mut args: Vec<Option<Arg>> = positional.iter().cloned().map(Some).collect();
    args.resize(params.len(), None);
    for (name, arg) in named {
        let Some(at) = params.iter().position(|param| param.name == *name) else {
            let known: Vec<&str> = params.iter().map(|param| param.name).collect();
            bail!(Value, op, "there is no parameter {name}: there are {}", known.join(", "));
        };
        if args[at].replace(arg.clone()).is_some() {
            bail!(Value, op, "{name} is given twice");
        }
    }
    let fill = |(arg, param): (Option<Arg>, &&Param)| match (arg, param.default) {
        // As in Python, `None` is the default.
        (None | Some(Arg::None), Some(default)) => Ok(default()),
        (Some(arg), _) => Ok(arg),
        (None, None) => bail!(Value, op, "the argument {} is missing", param.name),
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

    /// The kinds of devices that have it. Every operation is tested on both.
    ///
    /// ```
    /// use cotangent::ops;
    /// assert!(ops::list().iter().all(|op| op.devices().contains(&"cpu")));
    /// ```
    #[allow(clippy::unused_self)]
    pub fn devices(&self) -> &'static [&'static str] {
        &["cpu", "cuda"]
    }

    /// Calls to be tested: their values, gradients, layouts and dtypes.
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
    pub fn samples(&self) -> Result<Vec<Sample>> {
        (self.samples)()
    }

    /// Calls that must fail.
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
    pub fn error_cases(&self) -> Result<Vec<ErrorCase>> {
        (self.error_cases)()
    }

    /// All arguments in order, from some by position and some by name; defaults fill the rest.
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
    /// If there are too many, a name is unknown or given twice, or something must be given and is not.
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
    /// As the operation's; also if an argument is of the wrong kind.
    #[track_caller]
    pub fn call(&self, args: &[Arg]) -> Result<Vec<Tensor>> {
        crate::error::named(self.name, (self.call)(args))
    }
}

/// As it is written in Python.
impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::None => f.write_str("None"),
            Arg::Tensor(x) => write!(f, "{}{:?}", x.dtype(), x.shape()),
            Arg::Tensors(all) => f.debug_list().entries(all.iter().map(Tensor::shape)).finish(),
            Arg::Scalar(Scalar::Bool(true)) => f.write_str("True"),
            Arg::Scalar(Scalar::Bool(false)) => f.write_str("False"),
            Arg::Scalar(Scalar::F64(x)) => write!(f, "{x:?}"),
            Arg::Scalar(x) => write!(f, "{x}"),
            Arg::Ints(ints) => write!(f, "{ints:?}"),
            Arg::Floats(numbers) => write!(f, "{numbers:?}"),
            Arg::Slice(slice) => write!(f, "{slice:?}"),
            Arg::Index(index) => write!(f, "{index:?}"),
            Arg::DType(dtype) => write!(f, "{dtype}"),
            Arg::Device(device) => write!(f, "{device}"),
            Arg::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Defines an enum of which each value is one of some words, in Rust and for callers from elsewhere.
macro_rules! choices {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The word for it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl<'a> crate::ops::FromArg<'a> for $name {
            const KIND: crate::ops::ArgKind = crate::ops::ArgKind::Choice(&[$($word),+]);
            fn from_arg(arg: &'a crate::ops::Arg) -> Option<Self> {
                match arg {
                    crate::ops::Arg::Text(word) => match word.as_str() { $($word => Some($name::$variant),)+ _ => None },
                    // What Python calls None.
                    crate::ops::Arg::None => match "none" { $($word => Some($name::$variant),)+ _ => None },
                    _ => None,
                }
            }
        }

        impl From<$name> for crate::ops::Arg {
            fn from(choice: $name) -> crate::ops::Arg { crate::ops::Arg::Text(choice.name().to_string()) }
        }
    };
}
pub(crate) use choices;
