//! Functions and methods for the operations of the list: made when the module is imported, so that there is one list.
//!
//! Each is a built-in function of Python's own kind, with a docstring and a signature. What it is called with arrives at one
//! function for all of them, `call`, with the operation's number in the list.

use crate::args::{self, Fault};
use crate::error::{self, OrRaise};
use crate::tensor::{self, PyTensor, SMALL};
use crate::views::Step;
use cotangent::ops::{self, Arg, ArgKind, Op};
use cotangent::{DType, Generator, Scalar, Tensor};
use pyo3::Borrowed;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// What is known of an operation beyond its entry in the list.
pub struct Entry {
    pub op: &'static Op,
    params: Vec<Param>,
    /// Whether a result may share the memory of the first argument, as a view that is seen through.
    shows: bool,
    /// The name of its in-place form, if it has one.
    in_place: Option<&'static str>,
    /// The class of several results.
    class: PyOnceLock<Py<PyAny>>,
}

struct Param {
    name: &'static str,
    kind: ArgKind,
    default: Option<fn() -> Arg>,
    /// Whether its items may be given one by one, as in `x.reshape(2, 3)`.
    spread: bool,
}

/// Operations that give their argument itself, or a view of it, where that is possible.
const SOMETIMES_VIEWS: [&str; 7] =
    ["reshape", "reshape_as", "flatten", "contiguous", "to_dtype", "to_device", "positive"];

/// Operations with an in-place form, `add_` of `add`: those that PyTorch has one of.
const IN_PLACE: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "baddbmm",
    "bernoulli",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cauchy",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "deg2rad",
    "digamma",
    "div",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "exponential",
    "fill",
    "float_power",
    "floor",
    "floor_divide",
    "fmod",
    "frac",
    "gcd",
    "geometric",
    "heaviside",
    "hypot",
    "i0",
    "igamma",
    "igammac",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "lcm",
    "ldexp",
    "lerp",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_normal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "masked_fill",
    "masked_scatter",
    "mul",
    "mvlgamma",
    "nan_to_num",
    "neg",
    "nextafter",
    "normal",
    "polygamma",
    "pow",
    "put",
    "rad2deg",
    "reciprocal",
    "relu",
    "remainder",
    "renorm",
    "round",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "tril",
    "triu",
    "trunc",
    "uniform",
    "xlogy",
];

/// The other names under which some parameters are known.
const ALSO: [(&str, &[&str]); 14] = [
    ("axis", &["dim", "dims"]),
    ("axes", &["dims", "dim"]),
    ("keepdims", &["keepdim"]),
    ("input", &["self"]),
    ("x", &["self"]),
    ("shape", &["size"]),
    ("size", &["shape"]),
    ("dims", &["dim", "size", "shape"]),
    ("dim", &["dims"]),
    ("k", &["diagonal"]),
    ("shift", &["shifts"]),
    ("stop", &["end"]),
    ("condition", &["self"]),
    ("sorted_sequence", &["self"]),
];

/// Functions that are the array API standard's as they are, and show its names of parameters.
const STANDARD: [&str; 43] = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "fft",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "linalg_cross",
    "linalg_vecdot",
    "linalg_vector_norm",
    "max",
    "mean",
    "min",
    "rfft",
    "rfftn",
    "roll",
    "stack",
    "std",
    "tril",
    "triu",
    "var",
    "linalg_cholesky",
    "linalg_eigh",
    "linalg_svd",
    "linalg_qr",
    "matmul",
    "where",
    "clamp",
    "isin",
    "zeros",
    "ones",
    "full",
    "expand",
    "permute",
];

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| ops::list().iter().map(|op| Entry::new(op)).collect());

/// The operation of this number in the list.
#[inline]
pub fn entry(number: usize) -> &'static Entry {
    &ENTRIES[number]
}

impl Entry {
    fn new(op: &'static Op) -> Entry {
        let given: Vec<_> = op.params().collect();
        let takes_ints = |kind: ArgKind| {
            matches!(
                kind,
                ArgKind::Int
                    | ArgKind::Dim
                    | ArgKind::Dims
                    | ArgKind::Sizes
                    | ArgKind::Ints
                    | ArgKind::Scalar
                    | ArgKind::Float
                    | ArgKind::Floats
                    | ArgKind::Operand
            )
        };
        let params = given.iter().enumerate().map(|(at, param)| {
            let last_ints = !given[at + 1..].iter().any(|later| takes_ints(later.kind));
            let list = matches!(param.kind, ArgKind::Sizes | ArgKind::Ints | ArgKind::Dims) && param.default.is_none();
            let spread = (list && last_ints) || param.kind == ArgKind::Tensors;
            Param { name: param.name, kind: param.kind, default: param.default, spread }
        });
        let shows = op.view || SOMETIMES_VIEWS.contains(&op.name);
        let in_place = IN_PLACE.contains(&op.name).then(|| &*format!("{}_", op.name).leak());
        Entry { op, params: params.collect(), shows, in_place, class: PyOnceLock::new() }
    }

    /// Whether it is a method of tensors.
    fn is_method(&self) -> bool {
        self.params.first().is_some_and(|param| param.name == "self")
    }

    fn position(&self, name: &str) -> Option<usize> {
        let at = |name: &str| self.params.iter().position(|param| param.name == name);
        at(name).or_else(|| {
            let (_, others) = ALSO.iter().find(|(other, _)| *other == name)?;
            others.iter().find_map(|name| at(name))
        })
    }

    /// The names and defaults as Python writes them, of a method or of a function.
    fn signature(&self, method: bool) -> String {
        let standard = !method && STANDARD.contains(&self.op.name);
        let one = |param: &Param| {
            let name = match param.name {
                "dim" if standard && (self.op.name.ends_with("fftn") || self.op.name.contains("shift")) => "axes",
                "dim" if standard => "axis",
                "dims" if standard && (self.op.name == "permute" || self.op.name.contains("shift")) => "axes",
                "dims" if standard => "axis",
                "keepdim" if standard => "keepdims",
                "shifts" if standard => "shift",
                "diagonal" if standard => "k",
                "self" if method => "$self",
                "self" if self.op.name == "where" => "condition",
                "self" if self.op.name == "searchsorted" => "sorted_sequence",
                "size" if standard => "shape",
                "self" => "input",
                // Words of Python's.
                "from" => "from_",
                "lambda" => "lambda_",
                name => name,
            };
            match param.default {
                None => name.to_string(),
                Some(default) => format!("{name}={}", python(&default())),
            }
        };
        let params: Vec<String> = self.params.iter().map(one).collect();
        format!("({})", params.join(", "))
    }

    fn docs(&self) -> String {
        crate::ops::docs(self.op.docs)
    }
}

/// A default as Python writes it.
pub fn python(arg: &Arg) -> String {
    match arg {
        Arg::Scalar(Scalar::F64(x)) if x.is_infinite() => (if *x > 0.0 { "1e999" } else { "-1e999" }).to_string(),
        Arg::Tensor(_) | Arg::Tensors(_) | Arg::DType(_) | Arg::Device(_) => "None".to_string(),
        Arg::Ints(ints) => {
            let all: Vec<String> = ints.iter().map(ToString::to_string).collect();
            format!("({}{})", all.join(", "), if all.len() == 1 { "," } else { "" })
        }
        other => other.to_string(),
    }
}

/// The part of a documentation that is not about Rust: its examples are, and how it fails.
pub fn docs(text: &str) -> String {
    let mut lines = Vec::new();
    let mut code = false;
    for line in text.lines() {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if line.starts_with("# Errors") {
            break;
        } else if !code {
            lines.push(plain(line));
        }
    }
    let mut text = lines.join("\n");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text.trim().to_string()
}

/// A line without the targets of its links.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let Some(end) = rest[at..].find(')') else { break };
        out += &rest[..at].replacen('[', "", 1);
        rest = &rest[at + end + 1..];
    }
    (out + rest).replace("[`", "`").replace("`]", "`")
}

/// What Python passes to a built-in function: arguments by position, and then those by name.
struct Given<'a> {
    own: Option<*mut ffi::PyObject>,
    args: &'a [*mut ffi::PyObject],
    named: &'a [*mut ffi::PyObject],
    names: *mut ffi::PyObject,
}

impl Given<'static> {
    /// # Safety
    /// The arguments are those that the interpreter passes to a function with this convention, and it is used during the call
    /// alone.
    unsafe fn new(
        own: Option<*mut ffi::PyObject>,
        args: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Given<'static> {
        // SAFETY: what is not null is a tuple of names.
        let named = if names.is_null() { 0 } else { unsafe { ffi::PyTuple_Size(names) } };
        let (count, named) = (count.max(0).unsigned_abs(), named.max(0).unsigned_abs());
        let all: &'static [*mut ffi::PyObject] = if args.is_null() || count + named == 0 {
            &[]
        } else {
            // SAFETY: the interpreter passes an array of as many objects, which live as long as the call.
            unsafe { std::slice::from_raw_parts(args, count + named) }
        };
        let (args, named) = all.split_at(count.min(all.len()));
        Given { own, args, named, names }
    }
}

type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calls from Python end here: an error becomes an exception, and so does a panic.
unsafe fn enter(
    given: impl FnOnce() -> Given<'static>,
    f: impl FnOnce(Python<'_>, &Given<'_>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let error = match catch_unwind(AssertUnwindSafe(|| f(py, &given()))) {
            Ok(Ok(result)) => return result.into_ptr(),
            Ok(Err(error)) => error,
            Err(_) => PyRuntimeError::new_err("an internal error: this is a defect of cotangent"),
        };
        error.restore(py);
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn function<const N: usize>(
    _module: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter as the convention of the method says.
    unsafe { enter(|| Given::new(None, args, count, names), |py, given| call(py, N, given)) }
}

unsafe extern "C" fn method<const N: usize>(
    own: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { enter(|| Given::new(Some(own), args, count, names), |py, given| call(py, N, given)) }
}

unsafe extern "C" fn changing<const N: usize>(
    own: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { enter(|| Given::new(Some(own), args, count, names), |py, given| change(py, N, given)) }
}

/// Sixteen functions, each with its number.
macro_rules! sixteen {
    ($f:ident, $from:expr) => {
        [
            $f::<{ $from }>,
            $f::<{ $from + 1 }>,
            $f::<{ $from + 2 }>,
            $f::<{ $from + 3 }>,
            $f::<{ $from + 4 }>,
            $f::<{ $from + 5 }>,
            $f::<{ $from + 6 }>,
            $f::<{ $from + 7 }>,
            $f::<{ $from + 8 }>,
            $f::<{ $from + 9 }>,
            $f::<{ $from + 10 }>,
            $f::<{ $from + 11 }>,
            $f::<{ $from + 12 }>,
            $f::<{ $from + 13 }>,
            $f::<{ $from + 14 }>,
            $f::<{ $from + 15 }>,
        ]
    };
}

/// One function for each number below 1024: Python does not say which of them it calls.
macro_rules! numbered {
    ($f:ident) => {
        numbered!(@ $f 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $f:ident $($row:literal)+) => { [$(sixteen!($f, $row * 16)),+] };
}

static FUNCTIONS: [[Function; 16]; 64] = numbered!(function);
static METHODS: [[Function; 16]; 64] = numbered!(method);
static CHANGES: [[Function; 16]; 64] = numbered!(changing);

/// The arguments of a call in order, and the object that comes first.
struct Bindings<'py> {
    args: Vec<Arg>,
    first: Option<Bound<'py, PyTensor>>,
}

fn bind<'py>(py: Python<'py>, entry: &Entry, given: &Given<'_>) -> PyResult<Bindings<'py>> {
    let (op, params) = (entry.op.name, &entry.params);
    let mut args: Vec<Option<Arg>> = Vec::with_capacity(params.len());
    let mut first = None;
    // SAFETY: the interpreter's objects live as long as the call.
    let object = |pointer: *mut ffi::PyObject| unsafe { Borrowed::from_ptr(py, pointer) };
    let mut take = |param: &Param, at: usize, value: &Bound<'py, PyAny>| {
        if at == 0
            && let Ok(tensor) = value.cast::<PyTensor>()
        {
            first = Some(tensor.clone());
        }
        args::convert(op, shown(param.name), param.kind, value)
    };
    if let Some(own) = given.own {
        args.push(Some(take(&params[0], 0, &object(own))?));
    }
    let mut positional = given.args;
    while let Some((&pointer, others)) = positional.split_first() {
        let at = args.len();
        let Some(param) = params.get(at) else {
            let (most, count) = (params.len(), given.args.len() + usize::from(given.own.is_some()));
            return Err(PyTypeError::new_err(format!("{op}() takes at most {most} arguments, {count} were given")));
        };
        let value = object(pointer);
        if param.spread && (!others.is_empty() || param.kind == ArgKind::Tensors) {
            let count = positional.len();
            let single = |&pointer: &*mut ffi::PyObject| {
                let value = object(pointer);
                if param.kind == ArgKind::Tensors {
                    value.is_instance_of::<PyTensor>()
                } else {
                    args::integer(&value).is_ok_and(|x| x.is_some())
                }
            };
            let run = positional.iter().take_while(|&pointer| single(pointer)).count();
            if run > 1 || (run == 1 && param.kind == ArgKind::Tensors) {
                let all = PyTuple::new(py, positional[..run].iter().map(|&pointer| object(pointer)))?;
                args.push(Some(args::convert(op, param.name, param.kind, &all.into_any())?));
                positional = &positional[run.min(count)..];
                continue;
            }
        }
        args.push(Some(take(param, at, &value)?));
        positional = others;
    }
    args.resize(params.len(), None);
    let mut none_of_them = false;
    if !given.names.is_null() {
        let names = object(given.names);
        let names = names.cast::<PyTuple>()?;
        for (k, name) in names.iter().enumerate() {
            let pointer = given.named[k];
            let name: String = name.extract()?;
            let name = name.strip_suffix('_').unwrap_or(&name);
            let Some(at) = entry.position(name) else {
                let known: Vec<&str> = params.iter().map(|param| shown(param.name)).collect();
                return Err(PyTypeError::new_err(format!(
                    "{op}() has no parameter {name}: there are {}",
                    known.join(", ")
                )));
            };
            if args[at].is_some() {
                return Err(PyTypeError::new_err(format!("{op}() got {name} twice")));
            }
            let arg = take(&params[at], at, &object(pointer))?;
            none_of_them |= name == "axis" && matches!(&arg, Arg::Ints(ints) if ints.is_empty());
            args[at] = Some(arg);
        }
    }
    let fill = |(arg, param): (Option<Arg>, &Param)| match (arg, param.default) {
        (None | Some(Arg::None), Some(default)) => Ok(default()),
        (Some(Arg::None), None) if !matches!(param.kind, ArgKind::Dims) => {
            let none = py.None();
            let (name, wanted) = (shown(param.name), &args::wanted(param.kind));
            Err(Fault { op, name, wanted, given: none.bind(py) }.into())
        }
        (Some(arg), _) => Ok(arg),
        (None, None) => Err(PyTypeError::new_err(format!("{op}() misses the argument {}", shown(param.name)))),
    };
    let mut args = args.into_iter().zip(params).map(fill).collect::<PyResult<Vec<Arg>>>()?;
    // In the standard `axis=()` reduces no dimension; PyTorch's `dim=()` reduces all.
    if none_of_them
        && entry.position("keepdim").is_some()
        && let (Some(Arg::Tensor(x)), Some(at)) = (args.first(), entry.position("dim"))
    {
        args[0] = Arg::Tensor(x.unsqueeze(0).or_raise()?);
        args[at] = Arg::from(0_isize);
        if let Some(keep) = entry.position("keepdim") {
            args[keep] = Arg::from(false);
        }
    }
    Ok(Bindings { args: numbers_beside(entry, args)?, first })
}

fn shown(name: &'static str) -> &'static str {
    if name == "self" { "input" } else { name }
}

/// Numbers in the place of tensors, as in `add(1, x)`, become tensors beside the others.
fn numbers_beside(entry: &Entry, mut args: Vec<Arg>) -> PyResult<Vec<Arg>> {
    let is_number = |(arg, param): (&Arg, &Param)| param.kind == ArgKind::Tensor && matches!(arg, Arg::Scalar(_));
    if !args.iter().zip(&entry.params).any(is_number) {
        return Ok(args);
    }
    // A mask, as that of `where`, says nothing of the numbers' dtype if there is another tensor.
    let tensors = || args.iter().filter_map(|arg| if let Arg::Tensor(x) = arg { Some(x) } else { None });
    let Some(beside) = tensors().find(|x| x.dtype() != DType::Bool).or(tensors().next()).cloned() else {
        return Err(PyTypeError::new_err(format!("{}: none of the arguments is a Tensor", entry.op.name)));
    };
    for (arg, param) in args.iter_mut().zip(&entry.params) {
        if let (Arg::Scalar(number), ArgKind::Tensor) = (&*arg, param.kind) {
            *arg = Arg::Tensor(tensor::beside(*number, &beside).or_raise()?);
        }
    }
    Ok(args)
}

/// Whether a call may take long, so that other threads of Python's should run meanwhile.
fn is_long(args: &[Arg]) -> bool {
    let mut any = false;
    for arg in args {
        match arg {
            Arg::Tensor(x) if x.numel() > SMALL => return true,
            Arg::Tensors(all) if all.iter().any(|x| x.numel() > SMALL) => return true,
            Arg::Tensor(_) | Arg::Tensors(_) => any = true,
            _ => {}
        }
    }
    !any
}

fn run(py: Python<'_>, entry: &Entry, args: &[Arg]) -> PyResult<Vec<Tensor>> {
    let run = || if is_long(args) { py.detach(|| entry.op.call(args)) } else { entry.op.call(args) };
    error::placed(py, run).or_raise()
}

fn call(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    match extras(py, number, given)? {
        None => call_plain(py, number, given),
        Some(extras) => extras.run(py, given, |given| call_plain(py, number, given)),
    }
}

fn change(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    match extras(py, number, given)? {
        None => change_plain(py, number, given),
        Some(extras) => extras.run(py, given, |given| change_plain(py, number, given)),
    }
}

/// Arguments that PyTorch's functions take beside those of the operation.
struct Extras {
    /// What is left of the arguments by name.
    named: Vec<*mut ffi::PyObject>,
    names: Py<PyTuple>,
    requires_grad: bool,
    generator: Option<Py<PyAny>>,
}

/// The arguments `requires_grad` of functions that make tensors and `generator` of those that draw numbers, if there are any.
fn extras(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Option<Extras>> {
    if given.names.is_null() {
        return Ok(None);
    }
    let entry = entry(number);
    // SAFETY: the interpreter's objects live as long as the call.
    let object = |pointer: *mut ffi::PyObject| unsafe { Borrowed::from_ptr(py, pointer) };
    let makes = entry.position("dtype").is_some() && (!entry.is_method() || entry.op.name.ends_with("_like"));
    let is_extra = |name: &str| match name {
        "requires_grad" => makes,
        "generator" => entry.op.random,
        _ => false,
    };
    let names = object(given.names);
    let names = names.cast::<PyTuple>()?;
    let names = names.iter().map(|name| name.extract::<String>()).collect::<PyResult<Vec<_>>>()?;
    if !names.iter().any(|name| is_extra(name)) {
        return Ok(None);
    }
    let (mut requires_grad, mut generator, mut kept, mut named) = (false, None, Vec::new(), Vec::new());
    for (name, &pointer) in names.iter().zip(given.named) {
        match name.as_str() {
            "requires_grad" if makes => requires_grad = object(pointer).is_truthy()?,
            "generator" if is_extra(name) => {
                generator =
                    Some(object(pointer)).filter(|value| !value.is_none()).map(|value| value.to_owned().unbind());
            }
            _ => {
                kept.push(name.clone());
                named.push(pointer);
            }
        }
    }
    Ok(Some(Extras { named, names: PyTuple::new(py, kept)?.unbind(), requires_grad, generator }))
}

impl Extras {
    fn run(
        self,
        py: Python<'_>,
        given: &Given<'_>,
        f: impl FnOnce(&Given<'_>) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { own: given.own, args: given.args, named: &self.named, names: self.names.as_ptr() };
        let made = match &self.generator {
            None => f(&given)?,
            Some(object) => {
                let object = object.bind(py);
                let (seed, offset) = object.getattr("_state").and_then(|state| state.extract()).map_err(|_| {
                    PyTypeError::new_err(format!("generator should be a Generator, not {}", args::type_name(object)))
                })?;
                let mut generator = Generator::from_state(seed, offset);
                let made = cotangent::with_generator(&mut generator, || f(&given));
                object.setattr("_state", generator.state())?;
                made?
            }
        };
        if self.requires_grad {
            return made.bind(py).call_method0("requires_grad_").map(Bound::unbind);
        }
        Ok(made)
    }
}

fn call_plain(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    let entry = entry(number);
    let Bindings { mut args, first } = bind(py, entry, given)?;
    let mut results = run(py, entry, &args)?;
    let single = !matches!(entry.op.outputs, [name] if *name == "tensors") && entry.op.outputs.len() == 1;
    let base = first.filter(|_| entry.shows).zip(match args.first() {
        Some(Arg::Tensor(x)) => Some(x.clone()),
        _ => None,
    });
    if base.is_some() {
        args[0] = Arg::None;
    }
    let object = |output: usize, result: Tensor| match &base {
        Some((first, x)) if result.is_same(x) && result.is_contiguous() && entry.op.name == "contiguous" => {
            Ok(first.clone().unbind())
        }
        Some((first, x)) if result.shares_memory(x) => {
            PyTensor::view(first, result, Step::Op { number, args: args.clone(), output })
        }
        _ => PyTensor::object(py, result),
    };
    if single {
        let Some(result) = results.pop() else { return Ok(py.None()) };
        if entry.op.name == "allclose" {
            return Ok(result.item::<bool>().or_raise()?.into_pyobject(py)?.to_owned().into_any().unbind());
        }
        return Ok(object(0, result)?.into_any());
    }
    // PyTorch's `unique` gives one tensor unless more are asked for.
    let asked = entry.params.iter().any(|param| param.name == "return_inverse");
    if asked
        && results.len() == 1
        && let Some(only) = results.pop()
    {
        return Ok(object(0, only)?.into_any());
    }
    let objects = results.into_iter().enumerate().map(|(at, result)| object(at, result));
    let objects = PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)?;
    if entry.op.outputs == ["tensors"] {
        return Ok(objects.into_any().unbind());
    }
    let class = entry.class.get_or_try_init(py, || named_tuple(py, entry.op.name, entry.op.outputs))?;
    Ok(class.bind(py).call1(objects)?.unbind())
}

/// The class of several results, by their names.
pub fn named_tuple(py: Python<'_>, name: &str, fields: &[&str]) -> PyResult<Py<PyAny>> {
    let fields = PyList::new(py, fields)?;
    let options = PyDict::new(py);
    options.set_item("module", "cotangent")?;
    Ok(py.import("collections")?.getattr("namedtuple")?.call((name, fields), Some(&options))?.unbind())
}

fn change_plain(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    let entry = entry(number);
    let Bindings { mut args, first } = bind(py, entry, given)?;
    let (Some(first), Some(name)) = (first, entry.in_place) else {
        return Err(PyTypeError::new_err(format!("{} has no in-place form", entry.op.name)));
    };
    // Nothing but the variable may hold the value while it is changed.
    args[0] = Arg::None;
    let object = first.get();
    let change = |x: &mut Tensor| {
        x.change(name, |x| {
            args[0] = Arg::from(x);
            entry.op.call(&args).map(|mut results| results.swap_remove(0))
        })
    };
    py.detach(|| object.modify(change))?;
    Ok(first.into_any().unbind())
}

/// A definition of a built-in function, which lives as long as the process.
fn definition(name: &str, text: &str, function: Function) -> PyResult<*mut ffi::PyMethodDef> {
    let name = CString::new(name)?.into_raw();
    let text = CString::new(text.replace('\0', ""))?.into_raw();
    let meth = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function };
    let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    Ok(Box::into_raw(Box::new(ffi::PyMethodDef { ml_name: name, ml_meth: meth, ml_flags: flags, ml_doc: text })))
}

/// The names of an operation that Python can have.
fn names(op: &'static Op) -> impl Iterator<Item = &'static str> {
    std::iter::once(op.name).chain(op.aliases.iter().copied()).filter(|name| !name.starts_with("__"))
}

/// Attributes that the class has by itself: properties, and what differs from the operation.
const OWN: [&str; 4] = ["to", "T", "mH", "H"];

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = py.get_type::<PyTensor>();
    let functions = PyDict::new(py);
    if ENTRIES.len() > 1024 {
        return Err(PyRuntimeError::new_err("there are more operations than functions for them"));
    }
    for (number, entry) in ENTRIES.iter().enumerate() {
        let docs = entry.docs();
        let (row, column) = (number / 16, number % 16);
        for name in names(entry.op) {
            let text = format!("{name}{}\n--\n\n{docs}", entry.signature(false));
            let made = definition(name, &text, FUNCTIONS[row][column])?;
            // SAFETY: the definition lives as long as the process; the name of the module is kept by the function.
            let made = unsafe {
                let home = pyo3::types::PyString::new(py, "cotangent");
                Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(made, std::ptr::null_mut(), home.as_ptr()))?
            };
            functions.set_item(name, made)?;
            if !entry.is_method() || OWN.contains(&name) || class.hasattr(name)? {
                continue;
            }
            let text = format!("{name}{}\n--\n\n{docs}", entry.signature(true));
            add_method(&class, name, &text, METHODS[row][column])?;
            if entry.in_place.is_some() && !name.starts_with("special_") {
                let (own, docs) = (entry.signature(true), format!("`{name}` in place."));
                add_method(&class, &format!("{name}_"), &format!("{name}_{own}\n--\n\n{docs}"), CHANGES[row][column])?;
            }
        }
    }
    module.add("_functions", functions)?;
    module.add_function(wrap_pyfunction!(_ops, module)?)?;
    module.add_function(wrap_pyfunction!(_samples, module)?)
}

fn add_method(class: &Bound<'_, pyo3::types::PyType>, name: &str, text: &str, function: Function) -> PyResult<()> {
    let made = definition(name, text, function)?;
    // SAFETY: the definition lives as long as the process, and the class is a type object.
    let method =
        unsafe { Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), made))? };
    class.setattr(name, method)
}

/// The list of operations: for stubs, tables and tests.
#[pyfunction]
fn _ops(py: Python<'_>) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for entry in ENTRIES.iter() {
        let op = PyDict::new(py);
        op.set_item("name", entry.op.name)?;
        op.set_item("aliases", entry.op.aliases)?;
        op.set_item("docs", entry.docs())?;
        op.set_item("outputs", entry.op.outputs)?;
        op.set_item("view", entry.op.view)?;
        op.set_item("random", entry.op.random)?;
        op.set_item("derivative", format!("{:?}", entry.op.derivative).to_lowercase())?;
        op.set_item("tolerance", entry.op.tolerance)?;
        op.set_item("in_place", entry.in_place.is_some())?;
        let params = PyList::empty(py);
        for param in &entry.params {
            let one = PyDict::new(py);
            one.set_item("name", param.name)?;
            one.set_item("kind", param.kind.to_string())?;
            one.set_item("annotation", args::annotation(param.kind))?;
            one.set_item("default", param.default.map(|default| python(&default())))?;
            one.set_item("spread", param.spread)?;
            params.append(one)?;
        }
        op.set_item("params", params)?;
        all.append(op)?;
    }
    Ok(all.unbind())
}

/// The calls that tests make of an operation: lists of arguments, in order.
#[pyfunction]
fn _samples(py: Python<'_>, name: &str) -> PyResult<Py<PyList>> {
    let op = ops::find(name).ok_or_else(|| PyTypeError::new_err(format!("there is no operation {name}")))?;
    let all = PyList::empty(py);
    for sample in op.samples().or_raise()? {
        let args = PyList::empty(py);
        for arg in sample.bind(op).or_raise()? {
            args.append(object(py, &arg)?)?;
        }
        all.append(args)?;
    }
    Ok(all.unbind())
}

/// An argument as an object of Python's; what has none is its text.
pub fn object(py: Python<'_>, arg: &Arg) -> PyResult<Py<PyAny>> {
    Ok(match arg {
        Arg::None => py.None(),
        Arg::Tensor(x) => PyTensor::object(py, x.clone())?.into_any(),
        Arg::Tensors(all) => {
            let all = all.iter().map(|x| PyTensor::object(py, x.clone())).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, all)?.into_any().unbind()
        }
        Arg::Scalar(number) => crate::number::object(py, *number)?,
        Arg::Ints(ints) => PyTuple::new(py, ints)?.into_any().unbind(),
        Arg::Floats(numbers) => PyTuple::new(py, numbers)?.into_any().unbind(),
        Arg::DType(dtype) => crate::dtype::object(py, *dtype)?.into_any(),
        Arg::Device(device) => Py::new(py, crate::dtype::PyDevice(*device))?.into_any(),
        Arg::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        other => format!("{other:?}").into_pyobject(py)?.into_any().unbind(),
    })
}
