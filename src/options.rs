//! Options of operations: a struct of optional arguments for each, and the enums that they name.
//!
//! A function `f` takes the required arguments. Its form `f_with` also takes a struct named `…Options`, whose setters can be chained:
//! `x.cross_entropy_with(&y, CrossEntropyOptions::new().label_smoothing(0.1))`. The most frequent option can be passed in place of
//! the struct: `x.cross_entropy_with(&y, Reduction::Sum)`. The fields are private, so that new options break no programs.
//!
//! Options of layers are in [`nn`](crate::nn), those of optimisers in [`optim`](crate::optim).
#![forbid(unsafe_code)]

/// Defines a struct of optional arguments: each field with its type and default. It gets `new`, `Default`, a setter for every
/// field, which takes `impl Into` of the field's type, and its part of an operation's parameter list.
macro_rules! options {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)+
        }
    ) => {
        $crate::options::options!(@struct [$(#[$doc])*] $name [] [$($(#[$field_doc])* $field: $ty = $default,)+]);
        $crate::options::options!(@params $name ['arg] [] [$($field: $ty = $default,)+]);
    };
    (
        $(#[$doc:meta])*
        pub struct $name:ident<$lifetime:lifetime> {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)+
        }
    ) => {
        $crate::options::options!(@struct [$(#[$doc])*] $name [<$lifetime>] [$($(#[$field_doc])* $field: $ty = $default,)+]);
        $crate::options::options!(@params $name [$lifetime] [<$lifetime>] [$($field: $ty = $default,)+]);
    };
    (@struct [$(#[$doc:meta])*] $name:ident [$($generics:tt)*] [$($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)+]) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[must_use]
        pub struct $name $($generics)* {
            $(pub(crate) $field: $ty,)+
        }

        impl $($generics)* Default for $name $($generics)* {
            fn default() -> Self {
                $name { $($field: $default,)+ }
            }
        }

        impl $($generics)* From<&Self> for $name $($generics)* {
            fn from(options: &Self) -> Self {
                options.clone()
            }
        }

        impl $($generics)* $name $($generics)* {
            /// All options at their defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                $(#[$field_doc])*
                #[doc = concat!("\n\nUnless set: `", stringify!($default), "`.")]
                #[$crate::options::setter]
                pub fn $field(mut self, $field: impl Into<$ty>) -> Self {
                    self.$field = $field.into();
                    self
                }
            )+
        }
    };
    (@params $name:ident [$lifetime:lifetime] [$($generics:tt)*] [$($field:ident: $ty:ty = $default:expr,)+]) => {
        impl<$lifetime> $crate::ops::ParamGroup<$lifetime> for $name $($generics)* {
            const PARAMS: &'static [$crate::ops::Param] = &[$($crate::ops::Param {
                name: stringify!($field),
                kind: <$ty as $crate::ops::FromArg<$lifetime>>::KIND,
                default: Some(|| {
                    let default: $ty = $default;
                    $crate::ops::Arg::from(default)
                }),
            }),+];

            fn to_args(&self) -> Vec<$crate::ops::Arg> {
                vec![$($crate::ops::Arg::from(self.$field.clone())),+]
            }

            fn from_args(op: &'static str, args: &$lifetime [$crate::ops::Arg]) -> $crate::Result<Self> {
                #[allow(unused_assignments)]
                {
                    let mut at = 0;
                    $(
                        let $field = $crate::ops::one(op, Self::PARAMS, args, at)?;
                        at += 1;
                    )+
                    Ok($name { $($field,)+ })
                }
            }
        }
    };
}

pub(crate) use cotangent_macros::setter;
pub(crate) use options;

pub use crate::ops::signatures::*;
pub use crate::tensor::CloseOptions;
