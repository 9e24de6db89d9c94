//! The entries of the lists of operations and of layers.

use super::settings::Settings;
use super::types::{is_group, with_static};
use super::{Op, Param, Passing, documentation};
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Error, Ident, Type};

impl Op {
    /// The parameters, as data.
    fn specs(&self) -> Tokens {
        let this = self.receiver.then(|| {
            quote!(crate::ops::ParamSpec::One(crate::ops::Param {
                name: "self",
                kind: crate::ops::ArgKind::Tensor,
                default: None
            }),)
        });
        let specs = self.params.iter().map(|param| {
            let (name, ty) = (param.name.to_string(), with_static(&param.inner));
            if is_group(&param.inner) {
                return quote!(crate::ops::ParamSpec::Group(<#ty as crate::ops::ParamGroup<'static>>::PARAMS));
            }
            let default = match &param.default {
                Some(value) if param.how == Passing::Into => {
                    quote!(Some(|| crate::ops::Arg::from(<#ty as ::core::convert::From<_>>::from(#value))))
                }
                Some(value) => quote!(Some(|| crate::ops::Arg::from(#value as #ty))),
                None => quote!(<#ty as crate::ops::FromArg<'static>>::DEFAULT),
            };
            quote!(crate::ops::ParamSpec::One(crate::ops::Param {
                name: #name,
                kind: <#ty as crate::ops::FromArg<'static>>::KIND,
                default: #default,
            }))
        });
        quote!(&[#this #(#specs),*])
    }

    /// A call of the body, at path `home`, with arguments from the list `args`.
    fn dynamic_call(&self, home: &Tokens) -> Tokens {
        let (name, inner) = (self.name(), self.inner_name());
        let taken = self.params.iter().map(|Param { name, inner, how, .. }| {
            let text = name.to_string();
            match inner {
                _ if is_group(inner) => quote!(let #name = args.group()?;),
                Type::Reference(reference) if matches!(&*reference.elem, Type::Slice(_)) && *how == Passing::AsIs => {
                    let Type::Slice(slice) = &*reference.elem else { return quote!() };
                    let elem = &slice.elem;
                    quote!(let #name: ::std::vec::Vec<#elem> = args.next(#text)?; let #name = &#name[..];)
                }
                _ if *how == Passing::Tensors => {
                    quote!(let #name: ::std::vec::Vec<&crate::Tensor> = args.next(#text)?; let #name = &#name[..];)
                }
                _ => quote!(let #name = args.next(#text)?;),
            }
        });
        let receiver = self.receiver.then(|| quote!(let this: &crate::Tensor = args.next("self")?;));
        let this_passed = self.receiver.then(|| quote!(this,));
        let passed = self.params.iter().map(|Param { name, .. }| quote!(#name));
        quote! {
            #[allow(unused_mut)]
            let mut args = crate::ops::Args::new(#name, args);
            #receiver
            #(#taken)*
            let result = crate::error::named(#name, #home #inner(#this_passed #(#passed),*));
        }
    }

    pub(super) fn layer(&self, own: &Type) -> Tokens {
        let (name, docs, specs, call) =
            (self.name(), documentation(&self.docs), self.specs(), self.dynamic_call(&quote!(<#own>::)));
        quote! {
            pub(crate) const LAYER: crate::nn::LayerEntry = crate::nn::LayerEntry {
                name: #name,
                docs: #docs,
                params: #specs,
                build: |args| {
                    #call
                    Ok(::std::boxed::Box::new(result?))
                },
            };
        }
    }

    pub(super) fn entry(&self) -> Tokens {
        let Settings {
            samples,
            errors,
            derivative,
            outputs,
            aliases,
            tolerance,
            autocast_cpu,
            autocast_cuda,
            numbers,
            flags,
            ..
        } = &self.settings;
        let (name, docs, specs, call) =
            (self.name(), documentation(&self.docs), self.specs(), self.dynamic_call(&Tokens::new()));
        let path = self.path();
        let samples = samples.as_ref().map_or_else(|| quote!(|| Ok(::std::vec::Vec::new())), |expr| quote!(#expr));
        let errors = errors.as_ref().map_or_else(|| quote!(|| Ok(::std::vec::Vec::new())), |expr| quote!(#expr));
        let derivative = match derivative.as_ref().map(ToString::to_string).as_deref() {
            Some("zero") => quote!(Zero),
            Some("none") => quote!(None),
            _ => quote!(Rule),
        };
        let outputs: Vec<String> = if outputs.is_empty() {
            vec!["result".to_string()]
        } else {
            outputs.iter().map(ToString::to_string).collect()
        };
        let tolerance = tolerance.as_ref().map_or_else(|| quote!(1.0), |lit| quote!(#lit));
        let flag = |name: &str| flags.iter().any(|flag| flag == name);
        let (view, random, reads_layout) = (flag("view"), flag("random"), flag("reads_layout"));
        let in_place = flag("in_place") || flag("in_place_by_hand");
        let (full_precision, in_f64, batch) = (flag("full_precision"), flag("in_f64"), flag("batch"));
        let (autocast_cpu, autocast_cuda) = (policy(autocast_cpu.as_ref()), policy(autocast_cuda.as_ref()));
        let numbers = numbers_rule(numbers.as_ref());
        quote! {
            crate::ops::Op {
                name: #name,
                path: #path,
                aliases: &[#(#aliases),*],
                docs: #docs,
                params: #specs,
                outputs: &[#(#outputs),*],
                derivative: crate::ops::Derivative::#derivative,
                view: #view,
                random: #random,
                in_place: #in_place,
                reads_layout: #reads_layout,
                in_f64: #in_f64,
                numbers: #numbers,
                batch: #batch,
                full_precision: #full_precision,
                autocast_cpu: #autocast_cpu,
                autocast_cuda: #autocast_cuda,
                tolerance: #tolerance,
                #[cfg(feature = "samples")]
                samples: #samples,
                #[cfg(feature = "samples")]
                error_cases: #errors,
                call: |args| {
                    #call
                    crate::ops::Outputs::into_tensors(result)
                },
            }
        }
    }
}

/// The rule for numbers with integer tensors, by its keyword.
fn numbers_rule(word: Option<&Ident>) -> Tokens {
    let Some(word) = word else { return quote!(crate::ops::Numbers::Elements) };
    match word.to_string().as_str() {
        "wrapped" => quote!(crate::ops::Numbers::Wrapped),
        "floats" => quote!(crate::ops::Numbers::Floats),
        _ => Error::new(word.span(), "numbers must be wrapped or floats").to_compile_error(),
    }
}

/// A policy of `autocast`, by its keyword.
fn policy(word: Option<&Ident>) -> Tokens {
    let Some(word) = word else { return quote!(::core::option::Option::None) };
    let variant = match word.to_string().as_str() {
        "lower" => quote!(Lower),
        "f32" => quote!(F32),
        "widest" => quote!(Widest),
        "own" => quote!(Own),
        "refused" => quote!(Refused),
        _ => return Error::new(word.span(), "autocast must be lower, f32, widest, own or refused").to_compile_error(),
    };
    quote!(::core::option::Option::Some(crate::ops::AutocastPolicy::#variant))
}
