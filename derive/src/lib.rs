//! The derive macro behind `#[derive(Module)]` of the crate `cotangent`, which re-exports and documents it.
//!
//! For every field the macro writes one line into each of the trait's two visits:
//!
//! ```text
//! #[derive(Module)]
//! struct Classifier {
//!     hidden: Linear,          // visitor.module("hidden", &self.hidden);
//!     #[module(param)]
//!     scale: Tensor,           // visitor.param("scale", &self.scale);
//!     #[module(buffer)]
//!     mean: Tensor,            // visitor.buffer("mean", &self.mean);
//!     classes: usize,          // nothing: plain data
//!     #[module(skip)]
//!     vocabulary: Vocabulary,  // nothing
//! }
//! ```

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Member, Result, Type, parse_macro_input};

/// Implements `cotangent::nn::Module` for a struct; the trait's documentation says what the fields may be.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "Module can be derived for structs only"));
    };
    if let Some(attribute) = input.attrs.iter().find(|a| a.path().is_ident("module")) {
        return Err(Error::new(attribute.span(), "#[module(..)] belongs on a field"));
    }
    let (mut visits, mut visits_mut) = (Vec::new(), Vec::new());
    for (member, field) in data.fields.members().zip(&data.fields) {
        let method = match Role::of(field)? {
            Role::Skip => continue,
            Role::Module => "module",
            Role::Param => "param",
            Role::Buffer => "buffer",
        };
        let name = match &member {
            Member::Named(ident) => ident.unraw().to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        };
        // At the field's type, so that a type that does not fit is reported there.
        let (span, method) = (field.ty.span(), format_ident!("{method}"));
        visits.push(quote_spanned!(span=> visitor.#method(#name, &self.#member);));
        visits_mut.push(quote_spanned!(span=> visitor.#method(#name, &mut self.#member);));
    }
    let (ident, kind) = (&input.ident, input.ident.unraw().to_string());
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::cotangent::nn::Module for #ident #type_generics #where_clause {
            fn visit<'visited>(&'visited self, visitor: &mut ::cotangent::nn::Visitor<'_, ::cotangent::nn::Part<'visited>>) {
                visitor.enter(#kind);
                #(#visits)*
            }

            fn visit_mut<'visited>(&'visited mut self, visitor: &mut ::cotangent::nn::Visitor<'_, ::cotangent::nn::PartMut<'visited>>) {
                visitor.enter(#kind);
                #(#visits_mut)*
            }
        }
    })
}

enum Role {
    Module,
    Param,
    Buffer,
    Skip,
}

impl Role {
    /// What the field's attribute says; without one, plain data is skipped and everything else must be a module.
    fn of(field: &Field) -> Result<Role> {
        let mut role = None;
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
            let said = Role::parse(attribute)?;
            if role.replace(said).is_some() {
                return Err(Error::new(attribute.span(), "a field has one role: param, buffer or skip"));
            }
        }
        Ok(role.unwrap_or(if is_plain(&field.ty) { Role::Skip } else { Role::Module }))
    }

    fn parse(attribute: &Attribute) -> Result<Role> {
        let mut role = None;
        attribute.parse_nested_meta(|meta| {
            let said = match meta.path.get_ident() {
                Some(ident) if ident == "param" => Role::Param,
                Some(ident) if ident == "buffer" => Role::Buffer,
                Some(ident) if ident == "skip" => Role::Skip,
                _ => return Err(meta.error("expected param, buffer or skip")),
            };
            match role.replace(said) {
                None => Ok(()),
                Some(_) => Err(meta.error("a field has one role: param, buffer or skip")),
            }
        })?;
        role.ok_or_else(|| Error::new(attribute.span(), "expected param, buffer or skip"))
    }
}

/// Whether a type is plain data by its name: numbers, text and the like, and the usual containers of them.
fn is_plain(ty: &Type) -> bool {
    const PLAIN: [&str; 23] = [
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "usize",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "isize",
        "f32",
        "f64",
        "bool",
        "char",
        "str",
        "String",
        "PathBuf",
        "PhantomData",
        "DType",
        "Shape",
        "Device",
    ];
    const CONTAINERS: [&str; 3] = ["Option", "Vec", "Box"];
    match ty {
        Type::Array(array) => is_plain(&array.elem),
        Type::Slice(slice) => is_plain(&slice.elem),
        Type::Reference(reference) => is_plain(&reference.elem),
        Type::Paren(inner) => is_plain(&inner.elem),
        Type::Group(inner) => is_plain(&inner.elem),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            PLAIN.contains(&name.as_str())
                || (CONTAINERS.contains(&name.as_str()) && arguments(last).is_some_and(is_plain))
        }),
        _ => false,
    }
}

/// The only type argument of a path segment.
fn arguments(segment: &syn::PathSegment) -> Option<&Type> {
    match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(syn::GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty),
            _ => None,
        },
        _ => None,
    }
}
