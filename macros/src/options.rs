//! Setters of options.

use proc_macro2::TokenStream as Tokens;
use quote::ToTokens;
use syn::{FnArg, GenericArgument, ItemFn, PathArguments, Type, TypeParamBound};

/// Replaces `impl Into<usize>` in a signature by `usize`, and likewise for all integers.
pub fn setter(mut function: ItemFn) -> Tokens {
    let mut changed = false;
    for arg in &mut function.sig.inputs {
        if let FnArg::Typed(typed) = arg
            && let Some(integer) = integer_in(&typed.ty)
        {
            *typed.ty = integer;
            changed = true;
        }
    }
    if changed {
        function.attrs.push(syn::parse_quote!(#[allow(clippy::useless_conversion)]));
    }
    function.into_token_stream()
}

/// The `T` of `impl Into<T>`, if it is an integer.
fn integer_in(ty: &Type) -> Option<Type> {
    let Type::ImplTrait(bounds) = ty else { return None };
    let Some(TypeParamBound::Trait(bound)) = bounds.bounds.first() else { return None };
    let segment = bound.path.segments.last().filter(|segment| segment.ident == "Into")?;
    let PathArguments::AngleBracketed(args) = &segment.arguments else { return None };
    let Some(GenericArgument::Type(inner)) = args.args.first() else { return None };
    let mut inner = inner;
    // Tokens from another macro are in a group.
    while let Type::Group(group) = inner {
        inner = &group.elem;
    }
    let Type::Path(path) = inner else { return None };
    let is_integer = ["usize", "isize", "i64", "u64", "i32", "u32"].iter().any(|name| path.path.is_ident(name));
    is_integer.then(|| inner.clone())
}
