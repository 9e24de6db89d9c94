//! `#[ops]` on an `impl Tensor` block: from the signature of each method marked `#[op(..)]` come
//!
//! - the public method, which puts its name and the caller's line on errors. Arguments of type `impl Into<T>` arrive in the
//!   body as `T`, and those of type `&[impl AsRef<Tensor>]` as `&[&Tensor]`, so that bodies are compiled once,
//!   with this crate;
//! - where the last argument is called `options`, two of them: `name`, with the defaults, and `name_with`, whose documentation
//!   has those examples of `name` that call it;
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
//! `#[op(..)]` knows `name` (where the method's is not the operation's), `samples` and `errors` (functions), `derivative = rule |
//! zero | none`, `outputs = [values, indices]`, `aliases = ["amax"]`, `tolerance = 10.0` (times the usual one) and the flags
//! `view`, `random`, `reads_layout`, `full_precision` (half precision is refused), `in_f64` (the result is of f64 whatever the
//! dtype), `widens` (the result of half precision is of f32) and `batch` (dimensions in front of those that it is told of are treated alike: its rule inside of a `vmap`).
//! `autocast = lower | f32 | widest | own | refused` says what becomes of its floats inside of an `autocast`; `autocast_cpu` and
//! `autocast_cuda` say it for one kind of device.
//!
//! `#[layer]` does the same for the function `new` of a layer.

use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, GenericArgument, Ident, ImplItem, ImplItemFn, ItemImpl, Lifetime, Lit, LitStr, Meta,
    Pat, PathArguments, Result, Token, Type, TypeParamBound,
};

pub fn expand(list: Option<Ident>, mut block: ItemImpl) -> Result<Tokens> {
    let list = list.unwrap_or_else(|| Ident::new("OPS", Span::call_site()));
    let own = block.self_ty.clone();
    let (mut items, mut entries) = (Vec::new(), Vec::new());
    for item in std::mem::take(&mut block.items) {
        match item {
            ImplItem::Fn(method) if method.attrs.iter().any(|attr| attr.path().is_ident("op")) => {
                let op = Op::parse(method)?;
                items.extend(op.methods(Some((&list, entries.len()))));
                entries.push(op.entry(&own));
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

        pub(crate) static #list: &[crate::ops::Op] = &[#(#entries),*];
    })
}

/// `#[layer]` on an `impl` block: its `new` gets what an operation gets, and the block the constant `LAYER`, an entry of the
/// list of layers.
pub fn expand_layer(mut block: ItemImpl) -> Result<Tokens> {
    let own = block.self_ty.clone();
    let Some(kind) = last_segment(&own).map(|segment| segment.ident.to_string()) else {
        return Err(Error::new(own.span(), "a layer is a type with a name"));
    };
    let mut items = Vec::new();
    for item in std::mem::take(&mut block.items) {
        match item {
            ImplItem::Fn(method) if method.sig.ident == "new" => {
                let mut op = Op::parse(method)?;
                op.settings.name = Some(LitStr::new(&kind, own.span()));
                items.extend(op.methods(None));
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

/// What stands in `#[op(..)]`.
#[derive(Default)]
struct Settings {
    name: Option<LitStr>,
    samples: Option<Expr>,
    errors: Option<Expr>,
    derivative: Option<Ident>,
    outputs: Vec<Ident>,
    aliases: Vec<LitStr>,
    tolerance: Option<Lit>,
    autocast_cpu: Option<Ident>,
    autocast_cuda: Option<Ident>,
    flags: Vec<Ident>,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Settings> {
        let mut settings = Settings::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "view" | "random" | "reads_layout" | "batch" | "full_precision" | "in_f64" | "widens" => {
                    settings.flags.push(key);
                }
                name => {
                    input.parse::<Token![=]>()?;
                    match name {
                        "name" => settings.name = Some(input.parse()?),
                        "samples" => settings.samples = Some(input.parse()?),
                        "errors" => settings.errors = Some(input.parse()?),
                        "derivative" => settings.derivative = Some(input.parse()?),
                        "tolerance" => settings.tolerance = Some(input.parse()?),
                        "autocast" => {
                            let policy: Ident = input.parse()?;
                            settings.autocast_cpu = Some(policy.clone());
                            settings.autocast_cuda = Some(policy);
                        }
                        "autocast_cpu" => settings.autocast_cpu = Some(input.parse()?),
                        "autocast_cuda" => settings.autocast_cuda = Some(input.parse()?),
                        "outputs" => {
                            let inner;
                            syn::bracketed!(inner in input);
                            settings.outputs =
                                Punctuated::<Ident, Token![,]>::parse_terminated(&inner)?.into_iter().collect();
                        }
                        "aliases" => {
                            let inner;
                            syn::bracketed!(inner in input);
                            settings.aliases =
                                Punctuated::<LitStr, Token![,]>::parse_terminated(&inner)?.into_iter().collect();
                        }
                        _ => return Err(Error::new(key.span(), "no such setting of an operation")),
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(settings)
    }
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

/// How an argument comes from the caller into the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passing {
    AsIs,
    /// By `into()`.
    Into,
    /// A slice of what can be seen as tensors, as a slice of references.
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
                        return Err(Error::new(typed.pat.span(), "an argument of an operation has a name"));
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

    fn inner_name(&self) -> Ident {
        format_ident!("__{}", self.method.sig.ident)
    }

    /// The public method or methods, and the body. `entry` is the place of the operation in the list.
    fn methods(&self, entry: Option<(&Ident, usize)>) -> Vec<Tokens> {
        let sig = &self.method.sig;
        let (ident, inner, name) = (&sig.ident, self.inner_name(), self.name());
        let (generics, output, vis, block) = (&sig.generics, &sig.output, &self.method.vis, &self.method.block);
        let docs = &self.docs;
        let others: Vec<_> = self.method.attrs.iter().filter(|attr| !attr.path().is_ident("doc")).collect();
        let receiver = self.receiver.then(|| quote!(&self,));
        let this = self.receiver.then(|| quote!(self,));
        let declared = |params: &[Param]| -> Vec<Tokens> {
            params.iter().map(|Param { name, public, .. }| quote!(#name: #public)).collect()
        };
        let passed = |params: &[Param]| -> Vec<Tokens> {
            let pass = |Param { name, how, .. }: &Param| match how {
                Passing::AsIs => quote!(),
                Passing::Into => quote!(let #name = #name.into();),
                Passing::Tensors => {
                    quote!(let #name = &#name.iter().map(::core::convert::AsRef::as_ref).collect::<::std::vec::Vec<&crate::Tensor>>()[..];)
                }
            };
            params.iter().map(pass).collect()
        };
        let names: Vec<&Ident> = self.params.iter().map(|param| &param.name).collect();
        let as_data = format_ident!("__{}_args", sig.ident);
        let intercepted = entry.map(|(list, at)| {
            let by = |module: Tokens| {
                quote! {
                    if let Some(done) =
                        crate::#module::intercept(&#list[#at], &Self::#as_data(#this #(&#names),*))
                    {
                        return crate::error::named(#name, crate::ops::typed(done));
                    }
                }
            };
            let (cast, batched) = (by(quote!(autocast)), by(quote!(vmap)));
            let has_policy = self.settings.autocast_cpu.is_some() || self.settings.autocast_cuda.is_some();
            // What the body calls is part of the operation: nothing of it is cast.
            let cast = has_policy.then(|| {
                quote! {
                    let _inside = if crate::autocast::is_on() {
                        #cast
                        ::core::option::Option::Some(crate::autocast::off())
                    } else {
                        ::core::option::Option::None
                    };
                }
            });
            quote! {
                #cast
                let mut __scope = 0;
                if crate::hooks::any() {
                    if crate::vmap::is_used() {
                        #batched
                    }
                    __scope = crate::profile::enter(#name);
                }
            }
        });
        let finished = match entry {
            Some(_) => quote! {
                let __done = crate::error::named(#name, Self::#inner(#this #(#names),*));
                crate::profile::leave(__scope);
                __done
            },
            None => quote!(crate::error::named(#name, Self::#inner(#this #(#names),*))),
        };
        let body_params: Vec<_> = self.params.iter().map(|Param { name, inner, .. }| quote!(#name: #inner)).collect();
        // The call with its arguments converted: what intercepts it, then the body.
        let begun = format_ident!("__{}_begun", sig.ident);
        let body = quote! {
            #[track_caller]
            #[allow(clippy::needless_pass_by_value, non_snake_case)]
            fn #inner #generics (#receiver #(#body_params),*) #output #block

            #[track_caller]
            #[allow(clippy::needless_pass_by_value, non_snake_case)]
            fn #begun #generics (#receiver #(#body_params),*) #output {
                #intercepted
                #finished
            }
        };
        let intercept = entry.map(|_| self.args_as_data(&as_data));
        // Only what turns arguments into those of the body is compiled where the operation is called.
        let public = |ident: &Ident, docs: Tokens, generics: Tokens, declared: &[Tokens], passed: &[Tokens]| {
            quote! {
                #docs
                #(#others)*
                #[track_caller]
                #[inline]
                #vis fn #ident #generics (#receiver #(#declared),*) #output {
                    #(#passed)*
                    Self::#begun(#this #(#names),*)
                }
            }
        };
        let all = quote!(#generics);
        match self.params.split_last() {
            Some((options, required)) if options.name == "options" => {
                let with = format_ident!("{ident}_with");
                // Without the options their lifetime may be nobody's.
                let short = short_generics(&sig.generics, required);
                let mut passed_short = passed(required);
                passed_short.push(quote!(let options = ::core::default::Default::default();));
                let kind = last_segment(&options.inner).map(|segment| segment.ident.to_string()).unwrap_or_default();
                let doc = format!("As [`{ident}`](Self::{ident}), with options: see [`{kind}`].");
                let example = examples(&documentation(docs), &format!("{with}("));
                let errors = format!("As [`{ident}`](Self::{ident}); also if an option does not fit.");
                vec![
                    public(ident, quote!(#(#docs)*), short, &declared(required), &passed_short),
                    public(
                        &with,
                        quote!(#[doc = #doc] #[doc = #example] #[doc = "# Errors"] #[doc = #errors]),
                        all,
                        &declared(&self.params),
                        &passed(&self.params),
                    ),
                    body,
                    quote!(#intercept),
                ]
            }
            _ => vec![
                public(ident, quote!(#(#docs)*), all, &declared(&self.params), &passed(&self.params)),
                body,
                quote!(#intercept),
            ],
        }
    }

    /// The arguments of a call as data, for `vmap` and `autocast`.
    fn args_as_data(&self, as_data: &Ident) -> Tokens {
        let generics = &self.method.sig.generics;
        let receiver = self.receiver.then(|| quote!(&self,));
        let this = self.receiver.then(|| quote!(args.push(crate::ops::Arg::from(self));));
        let params = self.params.iter().map(|Param { name, inner, .. }| quote!(#name: &#inner));
        let args = self.params.iter().map(|Param { name, inner, .. }| {
            if is_group(inner) {
                return quote!(args.extend(crate::ops::ParamGroup::to_args(#name)););
            }
            quote!(args.push(crate::ops::Arg::from(::core::clone::Clone::clone(#name)));)
        });
        quote! {
            #[cold]
            #[inline(never)]
            #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, clippy::ptr_arg, non_snake_case, unused_mut)]
            fn #as_data #generics (#receiver #(#params),*) -> ::std::vec::Vec<crate::ops::Arg> {
                let mut args = ::std::vec::Vec::new();
                #this
                #(#args)*
                args
            }
        }
    }

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

    /// A call of the body with arguments that are data, called `args`.
    fn dynamic_call(&self, own: &Type) -> Tokens {
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
            let result = crate::error::named(#name, <#own>::#inner(#this_passed #(#passed),*));
        }
    }

    fn layer(&self, own: &Type) -> Tokens {
        let (name, docs, specs, call) = (self.name(), documentation(&self.docs), self.specs(), self.dynamic_call(own));
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

    fn entry(&self, own: &Type) -> Tokens {
        let Settings {
            samples,
            errors,
            derivative,
            outputs,
            aliases,
            tolerance,
            autocast_cpu,
            autocast_cuda,
            flags,
            ..
        } = &self.settings;
        let (name, docs, specs, call) = (self.name(), documentation(&self.docs), self.specs(), self.dynamic_call(own));
        let method = self.method.sig.ident.to_string();
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
        let (full_precision, in_f64, batch) = (flag("full_precision"), flag("in_f64"), flag("batch"));
        let widens = flag("widens");
        let (autocast_cpu, autocast_cuda) = (policy(autocast_cpu.as_ref()), policy(autocast_cuda.as_ref()));
        quote! {
            crate::ops::Op {
                name: #name,
                method: #method,
                aliases: &[#(#aliases),*],
                docs: #docs,
                params: #specs,
                outputs: &[#(#outputs),*],
                derivative: crate::ops::Derivative::#derivative,
                view: #view,
                random: #random,
                reads_layout: #reads_layout,
                in_f64: #in_f64,
                widens: #widens,
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

/// A policy of `autocast` by its word.
fn policy(word: Option<&Ident>) -> Tokens {
    let Some(word) = word else { return quote!(::core::option::Option::None) };
    let variant = match word.to_string().as_str() {
        "lower" => quote!(Lower),
        "f32" => quote!(F32),
        "widest" => quote!(Widest),
        "own" => quote!(Own),
        "refused" => quote!(Refused),
        _ => return Error::new(word.span(), "no such policy: lower, f32, widest, own or refused").to_compile_error(),
    };
    quote!(::core::option::Option::Some(crate::ops::AutocastPolicy::#variant))
}

/// The type that the body gets for a declared one.
fn inner_type(declared: &Type) -> (Type, Passing) {
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

/// Whether a type stands for several parameters.
fn is_group(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|last| last.ident == "ReduceDims" || last.ident.to_string().ends_with("Options"))
}

fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// A type with all its lifetimes `'static`, to ask for its constants.
fn with_static(ty: &Type) -> Type {
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

/// The generics that some of the parameters still use.
fn short_generics(generics: &syn::Generics, params: &[Param]) -> Tokens {
    let text: String = params
        .iter()
        .map(|param| {
            let ty = &param.public;
            quote!(#ty).to_string()
        })
        .collect();
    let used = generics.lifetimes().filter(|lifetime| text.contains(&lifetime.lifetime.to_string()));
    let used: Vec<_> = used.collect();
    if used.is_empty() { quote!() } else { quote!(<#(#used),*>) }
}

/// The examples of a documentation that have this text in them, as paragraphs.
fn examples(docs: &str, text: &str) -> String {
    let blocks = docs.split("```").skip(1).step_by(2).filter(|block| block.contains(text));
    let paragraph = |block: &str| format!("\n```{block}```\n");
    blocks.map(paragraph).collect::<String>() + "\n"
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
