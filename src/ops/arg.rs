//! Arguments of operations as data, for tests and bindings, and their conversion to Rust types.

use crate::layout::{At, Dim, Dims, Sections, Sizes, Slice};
use crate::layout::{Cuts, Ints};
use crate::tensor::Index;
use crate::tensor::Operand;
use crate::{Complex, DType, Device, Scalar, Shape, Tensor};
use std::fmt;

/// The kind of argument that a parameter takes.
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
    /// One or more numbers.
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
    /// An index, as written between brackets in Python.
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
    &[&Tensor]: |x| Arg::Tensors(x.iter().map(|&x| x.clone()).collect());
    &[Tensor]: |x| Arg::Tensors(x.to_vec());
    (): |_x| Arg::None;
}

impl From<Sections> for Arg {
    fn from(sections: Sections) -> Arg {
        match sections.0 {
            Cuts::Parts(parts) => Arg::from(parts),
            Cuts::At(at) => Arg::Ints(at.to_vec()),
        }
    }
}

impl From<Operand<'_>> for Arg {
    fn from(operand: Operand<'_>) -> Arg {
        match operand {
            Operand::Borrowed(x) => Arg::from(x),
            Operand::Owned(x) => Arg::Tensor(x),
            Operand::Scalar(x) => Arg::Scalar(x),
        }
    }
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

/// A parameter type that is converted from an [`Arg`].
///
/// ```
/// use cotangent::ops::{Arg, ArgKind, FromArg};
/// assert_eq!(<f64 as FromArg>::KIND, ArgKind::Float);
/// assert_eq!(f64::from_arg(&Arg::from(2)), Some(2.0));
/// assert_eq!(bool::from_arg(&Arg::from(2)), None);
/// ```
pub trait FromArg<'a>: Sized {
    /// The kind of argument it takes.
    const KIND: ArgKind;
    /// The default value, if there is one.
    const DEFAULT: Option<fn() -> Arg> = None;

    /// Converts the argument, or returns `None` if it is of another kind.
    fn from_arg(arg: &'a Arg) -> Option<Self>;
}

/// A number, or the value of a 0-dimensional tensor that does not require a gradient.
fn number(arg: &Arg) -> Option<Scalar> {
    match arg {
        Arg::Scalar(number) => Some(*number),
        Arg::Tensor(x) if x.rank() == 0 && !x.requires_grad() => match x.dtype() {
            DType::Bool => x.item::<bool>().ok().map(Scalar::Bool),
            DType::U64 => x.item::<u64>().ok().map(Scalar::U64),
            dtype if dtype.is_int() => x.to_dtype(DType::I64).ok()?.item::<i64>().ok().map(Scalar::I64),
            dtype if dtype.is_float() => x.to_dtype(DType::F64).ok()?.item::<f64>().ok().map(Scalar::F64),
            dtype if dtype.is_complex() => x.to_dtype(DType::C128).ok()?.item::<Complex<f64>>().ok().map(Scalar::C128),
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
        Scalar::Bool(_) | Scalar::C128(_) => None,
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

/// Python syntax.
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

/// Defines an enum whose variants have names as strings, for tests and bindings.
macro_rules! choices {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The name as a string.
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
                    // Python's `None`.
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
