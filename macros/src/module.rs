//! `#[derive(Module)]`. For every field that is not plain data the macro generates one line in each method of `Visit`:
//!
//! ```text
//! #[derive(Module)]
//! struct Classifier {
//!     hidden: Linear,          // visitor.module("hidden", &self.hidden);
//!     scale: Parameter,        // visitor.module("scale", &self.scale);
//!     #[module(rename = "running_mean")]
//!     mean: Buffer,            // visitor.module("running_mean", &self.mean);
//!     #[module(quantizable)]
//!     table: Parameter,        // visitor.quantizable("table", &self.table);
//!     classes: usize,          // nothing: plain data
//!     #[module(skip)]
//!     vocabulary: Vocabulary,  // nothing
//! }
//! ```
//!
//! For an enum it does so for the fields of each variant. A variant with one unnamed field is treated as that field.

use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Member, Result, Type};

pub fn expand(input: &DeriveInput) -> Result<Tokens> {
    if let Some(attribute) = input.attrs.iter().find(|a| a.path().is_ident("module")) {
        return Err(Error::new(attribute.span(), "#[module(..)] is only allowed on a field"));
    }
    let kind = input.ident.unraw().to_string();
    let arms: Vec<Arm> = match &input.data {
        Data::Struct(data) => vec![Arm::new(&kind, quote!(Self), &data.fields, false)?],
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let ident = &variant.ident;
                Arm::new(&kind, quote!(Self::#ident), &variant.fields, true)
            })
            .collect::<Result<_>>()?,
        Data::Union(_) => return Err(Error::new(input.ident.span(), "a union cannot be a module")),
    };
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let visits = arms.iter().map(Arm::visit);
    let visits_mut = arms.iter().map(Arm::visit_mut);
    let clones = arms.iter().map(Arm::clone);
    // An enum without variants has no values.
    let nothing = arms.is_empty().then(|| quote!(_ => ::core::unreachable!()));
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #impl_generics ::cotangent::nn::Visit for #ident #type_generics #where_clause {
            fn visit<'visited>(&'visited self, visitor: &mut ::cotangent::nn::Visitor<'_, ::cotangent::nn::Part<'visited>>) {
                match self { #(#visits)* #nothing }
            }

            fn visit_mut<'visited>(&'visited mut self, visitor: &mut ::cotangent::nn::Visitor<'_, ::cotangent::nn::PartMut<'visited>>) {
                match self { #(#visits_mut)* #nothing }
            }

            fn deep_clone_in(&self, ties: &mut ::cotangent::nn::Ties) -> ::cotangent::Result<Self> {
                #[allow(unused_imports)]
                use ::cotangent::nn::private::{Cloned as _, NotCloned as _};
                ::core::result::Result::Ok(match self { #(#clones)* #nothing })
            }
        }

        #[automatically_derived]
        impl #impl_generics ::cotangent::nn::Module for #ident #type_generics #where_clause {}
    })
}

/// A struct, or a variant of an enum.
struct Arm {
    kind: String,
    path: Tokens,
    fields: Vec<Bound>,
    /// Whether it is treated as its only field.
    transparent: bool,
}

/// A field and the variable that a pattern binds it to.
struct Bound {
    member: Member,
    variable: Ident,
    name: String,
    ty: Type,
    role: Role,
}

impl Arm {
    fn new(kind: &str, path: Tokens, fields: &Fields, variant: bool) -> Result<Arm> {
        let bound = |(member, field): (Member, &Field)| {
            let (role, rename) = role_of(field)?;
            let own = match &member {
                Member::Named(ident) => ident.unraw().to_string(),
                Member::Unnamed(index) => index.index.to_string(),
            };
            Ok(Bound {
                variable: format_ident!("field_{own}"),
                name: rename.map_or(own, |name| name.value()),
                member,
                ty: field.ty.clone(),
                role,
            })
        };
        let transparent = variant && matches!(fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1);
        let fields = fields.members().zip(fields).map(bound).collect::<Result<Vec<_>>>()?;
        Ok(Arm { kind: kind.to_string(), path, fields, transparent })
    }

    fn pattern(&self) -> Tokens {
        let (path, fields) = (&self.path, &self.fields);
        let fields = fields.iter().map(|Bound { member, variable, .. }| quote!(#member: #variable));
        quote!(#path { #(#fields),* })
    }

    fn visit(&self) -> Tokens {
        self.visits(&format_ident!("visit"))
    }

    fn visit_mut(&self) -> Tokens {
        self.visits(&format_ident!("visit_mut"))
    }

    fn visits(&self, method: &Ident) -> Tokens {
        let (pattern, kind) = (self.pattern(), &self.kind);
        let parts = self.fields.iter().filter(|field| field.role != Role::Skip);
        let lines = parts.map(|Bound { variable, name, ty, role, .. }| {
            // With the span of the field's type, so that a wrong type is reported there.
            if self.transparent {
                return quote_spanned!(ty.span()=> ::cotangent::nn::Visit::#method(#variable, visitor););
            }
            match role {
                Role::Quantizable => quote_spanned!(ty.span()=> visitor.quantizable(#name, #variable);),
                _ => quote_spanned!(ty.span()=> visitor.module(#name, #variable);),
            }
        });
        let enter = if self.transparent { quote!() } else { quote!(visitor.enter(#kind);) };
        quote!(#pattern => { #enter #(#lines)* })
    }

    fn clone(&self) -> Tokens {
        let (pattern, path, kind) = (self.pattern(), &self.path, &self.kind);
        let fields = self.fields.iter().map(|Bound { member, variable, name, ty, role }| match role {
            Role::Module | Role::Quantizable => {
                quote_spanned!(ty.span()=> #member: ::cotangent::nn::Visit::deep_clone_in(#variable, ties)?)
            }
            Role::Skip => quote!(#member: (&::cotangent::nn::private::Field(#variable)).cloned(#kind, #name)?),
        });
        quote!(#pattern => #path { #(#fields),* },)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Module,
    /// A parameter that may be replaced by a quantised one.
    Quantizable,
    Skip,
}

/// What the attributes of a field say.
#[derive(Default)]
struct Marks {
    skip: bool,
    quantizable: bool,
    rename: Option<LitStr>,
}

/// What the field's attribute says; without one, plain data is skipped and everything else must be a module.
fn role_of(field: &Field) -> Result<(Role, Option<LitStr>)> {
    let mut marks = Marks::default();
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        marks.parse(attribute)?;
    }
    let Marks { skip, quantizable, rename } = marks;
    if let (true, Some(name)) = (skip, &rename) {
        return Err(Error::new(name.span(), "a skipped field cannot be renamed"));
    }
    if skip && quantizable {
        return Err(Error::new(field.span(), "a skipped field cannot be quantizable"));
    }
    let plain = rename.is_none() && !quantizable && is_plain(&field.ty);
    let role = match quantizable {
        true => Role::Quantizable,
        false if skip || plain => Role::Skip,
        false => Role::Module,
    };
    Ok((role, rename))
}

impl Marks {
    fn parse(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| match meta.path.get_ident() {
            Some(ident) if ident == "skip" => {
                self.skip = true;
                Ok(())
            }
            Some(ident) if ident == "quantizable" => {
                self.quantizable = true;
                Ok(())
            }
            Some(ident) if ident == "rename" => {
                self.rename = Some(meta.value()?.parse()?);
                Ok(())
            }
            Some(ident) if ident == "param" => {
                Err(meta.error("a parameter must be a field of type `Parameter`, without an attribute"))
            }
            Some(ident) if ident == "buffer" => {
                Err(meta.error("a buffer must be a field of type `Buffer`, without an attribute"))
            }
            _ => Err(meta.error("expected `skip`, `quantizable` or `rename = \"..\"`")),
        })
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
