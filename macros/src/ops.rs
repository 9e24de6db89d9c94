//! `#[ops]` on an `impl Tensor` block: from the signature of each method marked `#[op(..)]` come
//!
//! - the public method, which puts its name and the caller's line on errors. Arguments of type `impl Into<T>` are passed to the
//!   body as `T`, and those of type `&[impl AsRef<Tensor>]` as `&[&Tensor]`, so that bodies are compiled once, with this crate;
//! - if the last argument is called `options`, two methods: `name`, with the defaults, and `name_with`, whose documentation has
//!   those examples of `name` that call it;
//! - the entry of the list of operations: documentation, parameters with their types and defaults (`#[default(0)]` before an
//!   argument), results, kind of derivative, samples and error cases, and a call from a list of arguments.
//!
//! ```text
//! #[ops]
//! impl Tensor {
//!     /// Running sums along a dimension.
//!     #[op(samples = scan_samples, errors = dim_errors)]
//!     pub fn cumsum(&self, dim: impl Into<Dim>) -> Result<Tensor> { .. }
//! }
//! ```
//!
//! `#[op(..)]` takes these settings:
//!
//! - `name`, if the operation's name is not the method's;
//! - `samples` and `errors`: functions;
//! - `derivative = rule | zero | none`;
//! - `outputs = [values, indices]`, `aliases = ["amax"]`;
//! - `tolerance = 10.0`: a factor of the usual tolerance of tests;
//! - `function = linalg | fft | special | signal_windows`: it is a function of this module, and not a public method of `Tensor`;
//! - `autocast = lower | f32 | widest | own | refused`: what its floats are cast to inside of an `autocast`; `autocast_cpu` and
//!   `autocast_cuda` for one kind of device;
//! - `numbers = wrapped | floats`: how to treat a number that is out of range for an integer tensor. Unless set it is refused.
//!
//! and these flags:
//!
//! - `in_place`: there is a method `name_` that changes the tensor, with the required arguments; `in_place_by_hand`: there is one,
//!   written in `tensor/`;
//! - `view`, `random`, `reads_layout`;
//! - `full_precision`: half precision is refused; `in_f64`: the result is `f64` for real inputs of every dtype; `rounds`: half
//!   precision is computed in `f32` and the result is rounded, except inside of an `autocast`;
//! - `batch`: other dimensions are batch dimensions, which is its rule inside of a `vmap`.
//!
//! `#[layer]` does the same for the function `new` of a layer.

mod entry;
mod methods;
mod settings;
mod types;

use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use settings::Settings;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, Lit, LitStr, Meta, Pat, Result, Type};
use types::{inner_type, last_segment};

pub fn expand(list: Option<Ident>, mut block: ItemImpl) -> Result<Tokens> {
    let list = list.unwrap_or_else(|| Ident::new("OPS", Span::call_site()));
    let own = block.self_ty.clone();
    let (mut items, mut bodies, mut entries, mut functions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut has_methods = false;
    for item in std::mem::take(&mut block.items) {
        match item {
            ImplItem::Fn(method) if method.attrs.iter().any(|attr| attr.path().is_ident("op")) => {
                let op = Op::parse(method)?;
                has_methods |= !op.is_function();
                let parts = op.op_parts(&list, entries.len());
                items.push(parts.public);
                bodies.push(parts.bodies);
                functions.push(parts.functions);
                entries.push(op.entry());
            }
            other => {
                has_methods = true;
                items.push(quote!(#other));
            }
        }
    }
    let ItemImpl { attrs, generics, .. } = &block;
    // The heading of methods, if there are any.
    let attrs = attrs.iter().filter(|attr| has_methods || !attr.path().is_ident("doc"));
    // Each file has one such list, and `files!` takes the functions of all files together.
    let functions = (list == "OPS").then(|| {
        quote! {
            #[allow(unused_imports)]
            pub(crate) mod namespace {
                use super::*;
                #(#functions)*
            }
        }
    });
    Ok(quote! {
        #(#attrs)*
        impl #generics #own {
            #(#items)*
        }

        #functions

        #(#bodies)*

        pub(crate) static #list: &[crate::ops::Op] = &[#(#entries),*];
    })
}

/// `#[layer]` on an `impl` block: its `new` is treated like an operation, and the block gets the constant `LAYER`, an entry of the
/// list of layers.
pub fn expand_layer(mut block: ItemImpl) -> Result<Tokens> {
    let own = block.self_ty.clone();
    let Some(kind) = last_segment(&own).map(|segment| segment.ident.to_string()) else {
        return Err(Error::new(own.span(), "a layer must be a named type"));
    };
    let mut items = Vec::new();
    for item in std::mem::take(&mut block.items) {
        match item {
            ImplItem::Fn(method) if method.sig.ident == "new" => {
                let mut op = Op::parse(method)?;
                op.settings.name = Some(LitStr::new(&kind, own.span()));
                items.push(op.layer_methods());
                items.push(op.layer(&own));
            }
            other => items.push(quote!(#other)),
        }
    }
    let ItemImpl { attrs, generics, .. } = &block;
    Ok(quote! {
        #(#attrs)*
        impl #generics #own {
            #(#items)*
        }
    })
}

/// An argument of a method.
struct Param {
    name: Ident,
    /// As declared.
    public: Type,
    /// As the body sees it.
    inner: Type,
    how: Passing,
    default: Option<Tokens>,
}

/// How an argument is passed to the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passing {
    AsIs,
    /// By `into()`.
    Into,
    /// A slice of `impl AsRef<Tensor>`, as a slice of references.
    Tensors,
}

struct Op {
    method: ImplItemFn,
    settings: Settings,
    docs: Vec<Attribute>,
    receiver: bool,
    params: Vec<Param>,
}

impl Op {
    fn parse(mut method: ImplItemFn) -> Result<Op> {
        let at = method.attrs.iter().position(|attr| attr.path().is_ident("op"));
        let marked = at.map(|at| method.attrs.remove(at));
        let settings = match marked.map(|attr| attr.meta) {
            Some(Meta::List(list)) => syn::parse2(list.tokens)?,
            _ => Settings::default(),
        };
        let docs = method.attrs.iter().filter(|attr| attr.path().is_ident("doc")).cloned().collect();
        let (mut receiver, mut params) = (false, Vec::new());
        for input in &method.sig.inputs {
            match input {
                FnArg::Receiver(_) => receiver = true,
                FnArg::Typed(typed) => {
                    let Pat::Ident(pat) = &*typed.pat else {
                        return Err(Error::new(typed.pat.span(), "an argument of an operation must be a plain name"));
                    };
                    let default = typed.attrs.iter().find(|attr| attr.path().is_ident("default"));
                    let default = default.map(|attr| attr.meta.require_list().map(|list| list.tokens.clone()));
                    let (inner, how) = inner_type(&typed.ty);
                    params.push(Param {
                        name: pat.ident.clone(),
                        public: (*typed.ty).clone(),
                        inner,
                        how,
                        default: default.transpose()?,
                    });
                }
            }
        }
        Ok(Op { method, settings, docs, receiver, params })
    }

    fn name(&self) -> String {
        self.settings.name.as_ref().map_or_else(|| self.method.sig.ident.to_string(), LitStr::value)
    }

    /// Whether it is a function of a namespace.
    fn is_function(&self) -> bool {
        self.settings.function.is_some()
    }

    fn inner_name(&self) -> Ident {
        format_ident!("__{}", self.method.sig.ident)
    }
}

fn documentation(docs: &[Attribute]) -> String {
    let line = |attr: &Attribute| match &attr.meta {
        Meta::NameValue(meta) => match &meta.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => text.value().strip_prefix(' ').map_or_else(|| text.value(), str::to_string),
                _ => String::new(),
            },
            _ => String::new(),
        },
        _ => String::new(),
    };
    docs.iter().map(line).collect::<Vec<_>>().join("\n")
}
