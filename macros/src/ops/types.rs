//! The types of arguments.

use super::Passing;
use proc_macro2::Span;
use syn::{GenericArgument, Lifetime, PathArguments, Type, TypeParamBound};

/// The type that the body gets for a declared one.
pub(super) fn inner_type(declared: &Type) -> (Type, Passing) {
    match declared {
        Type::ImplTrait(bounds) => {
            if let Some(TypeParamBound::Trait(bound)) = bounds.bounds.first()
                && let Some(last) = bound.path.segments.last()
                && last.ident == "Into"
                && let PathArguments::AngleBracketed(arguments) = &last.arguments
                && let Some(GenericArgument::Type(ty)) = arguments.args.first()
            {
                return (ty.clone(), Passing::Into);
            }
            (declared.clone(), Passing::AsIs)
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(slice) if matches!(&*slice.elem, Type::ImplTrait(_)) => {
                (syn::parse_quote!(&[&crate::Tensor]), Passing::Tensors)
            }
            _ => (declared.clone(), Passing::AsIs),
        },
        _ => (declared.clone(), Passing::AsIs),
    }
}

/// Whether an argument of this type is several parameters.
pub(super) fn is_group(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|last| last.ident == "ReduceDims" || last.ident.to_string().ends_with("Options"))
}

pub(super) fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// A type with all its lifetimes `'static`, to access its constants.
pub(super) fn with_static(ty: &Type) -> Type {
    let mut ty = ty.clone();
    make_static(&mut ty);
    ty
}

fn make_static(ty: &mut Type) {
    let forever = || Lifetime::new("'static", Span::call_site());
    match ty {
        Type::Reference(reference) => {
            reference.lifetime = Some(forever());
            make_static(&mut reference.elem);
        }
        Type::Slice(slice) => make_static(&mut slice.elem),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { continue };
                for argument in &mut arguments.args {
                    match argument {
                        GenericArgument::Lifetime(lifetime) => *lifetime = forever(),
                        GenericArgument::Type(ty) => make_static(ty),
                        _ => {}
                    }
                }
            }
        }
        _ => {}
    }
}
