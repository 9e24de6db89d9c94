//! The methods that are generated for an operation.

use super::types::{is_group, last_segment};
use super::{Op, Param, Passing, documentation};
use proc_macro2::{Group, Span, TokenStream as Tokens, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::{Ident, Type};

/// The generated code of an operation: its public methods, and the functions behind them.
pub(super) struct Parts {
    pub public: Tokens,
    /// In place of public methods, for an operation that is a function of a namespace.
    pub functions: Tokens,
    pub bodies: Tokens,
}

impl Op {
    /// The parts of a layer, all of which are methods of its type.
    pub(super) fn layer_methods(&self) -> Tokens {
        let Parts { public, bodies, .. } = self.parts(None);
        quote!(#public #bodies)
    }

    /// The parts of an operation, which has index `at` in the list.
    ///
    /// The bodies are functions of their module, not methods: the compiler puts the methods of a type into one codegen unit, and a
    /// change of one operation would recompile all of them.
    pub(super) fn op_parts(&self, list: &Ident, at: usize) -> Parts {
        self.parts(Some((list, at)))
    }

    fn parts(&self, entry: Option<(&Ident, usize)>) -> Parts {
        let sig = &self.method.sig;
        let (ident, inner, name) = (&sig.ident, self.inner_name(), self.name());
        let (generics, output, vis) = (&sig.generics, &sig.output, &self.method.vis);
        let block = &self.method.block;
        let block = if entry.is_some() { with_this(quote!(#block)) } else { quote!(#block) };
        let home = entry.is_none().then(|| quote!(Self::));
        let docs = &self.docs;
        let others: Vec<_> = self.method.attrs.iter().filter(|attr| !attr.path().is_ident("doc")).collect();
        let receiver = self.receiver.then(|| quote!(&self,));
        let own_receiver = match entry {
            Some(_) => self.this().map(|this| quote!(#this: &crate::Tensor,)),
            None => receiver.clone(),
        };
        let from_public = self.receiver.then(|| quote!(self,));
        let this = match entry {
            Some(_) => self.this().map(|this| quote!(#this,)),
            None => from_public.clone(),
        };
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
        let intercepted_by = format_ident!("__{}_intercepted", sig.ident);
        let intercepted = entry.map(|_| {
            let by = |module: Tokens| {
                quote! {
                    if let Some(done) = #home #intercepted_by(#this #(&#names,)* crate::ops::#module::intercept) {
                        return crate::ops::typed(done);
                    }
                }
            };
            let (cast, batched) = (by(quote!(autocast)), by(quote!(batched)));
            let has_policy = self.settings.autocast_cpu.is_some() || self.settings.autocast_cuda.is_some();
            // The operations that the body calls are part of it, and are not cast.
            let cast = has_policy.then(|| {
                quote! {
                    let _inside = if crate::autograd::autocast::is_on() {
                        #cast
                        ::core::option::Option::Some(crate::autograd::autocast::off())
                    } else {
                        ::core::option::Option::None
                    };
                }
            });
            quote! {
                #cast
                if crate::tensor::batch::is_used() {
                    #batched
                }
                let __scope = crate::backend::events::enter(#name);
            }
        });
        let finished = match entry {
            Some(_) => quote! {
                let __done = crate::error::named(#name, #home #inner(#this #(#names),*));
                crate::backend::events::leave(__scope);
                __done
            },
            None => quote!(crate::error::named(#name, #home #inner(#this #(#names),*))),
        };
        let body_params: Vec<_> = self.params.iter().map(|Param { name, inner, .. }| quote!(#name: #inner)).collect();
        // The call with converted arguments: the interceptors, then the body, which is compiled once for this and for calls from the
        // list.
        let begun = format_ident!("__{}_begun", sig.ident);
        let own = if self.settings.flags.iter().any(|flag| flag == "rounds") {
            let wide = format_ident!("__{}_wide", sig.ident);
            let dtypes = self.dtypes();
            quote! {
                #[track_caller]
                #[inline(never)]
                #[allow(clippy::needless_pass_by_value, non_snake_case)]
                fn #wide #generics (#own_receiver #(#body_params),*) #output #block

                #[track_caller]
                #[allow(clippy::needless_pass_by_value, non_snake_case)]
                fn #inner #generics (#own_receiver #(#body_params),*) #output {
                    let __half = crate::ops::loss::cross_entropy::half_of(&[#(#dtypes),*]);
                    crate::ops::loss::cross_entropy::rounded(#home #wide(#this #(#names),*), __half)
                }
            }
        } else {
            quote! {
                #[track_caller]
                #[inline(never)]
                #[allow(clippy::needless_pass_by_value, non_snake_case)]
                fn #inner #generics (#own_receiver #(#body_params),*) #output #block
            }
        };
        let body = quote! {
            #own

            #[track_caller]
            #[allow(clippy::needless_pass_by_value, non_snake_case)]
            fn #begun #generics (#own_receiver #(#body_params),*) #output {
                #intercepted
                #finished
            }
        };
        let intercept = entry.map(|entry| self.intercept(&intercepted_by, entry));
        let bodies = quote!(#body #intercept);
        let is_function = self.is_function();
        // Only the conversion of arguments is compiled at the call site.
        let public = |ident: &Ident, docs: &Tokens, generics: &Tokens, declared: &[Tokens], passed: &[Tokens]| {
            // The crate itself goes on calling methods.
            let (docs, vis) = match is_function {
                true => (quote!(#[allow(dead_code)]), quote!(pub(crate))),
                false => (docs.clone(), quote!(#vis)),
            };
            quote! {
                #docs
                #(#others)*
                #[track_caller]
                #[inline]
                #vis fn #ident #generics (#receiver #(#declared),*) #output {
                    #(#passed)*
                    #home #begun(#from_public #(#names),*)
                }
            }
        };
        let function = |ident: &Ident, docs: &Tokens, generics: &Tokens, declared: &[Tokens], passed: &[Tokens]| {
            let input = self.receiver.then(|| quote!(input: &crate::Tensor,));
            let from_input = self.receiver.then(|| quote!(input,));
            quote! {
                #docs
                #(#others)*
                #[track_caller]
                #[inline]
                #vis fn #ident #generics (#input #(#declared),*) #output {
                    #(#passed)*
                    #begun(#from_input #(#names),*)
                }
            }
        };
        let short_name = self.function_name();
        let in_place = self.in_place();
        let all = quote!(#generics);
        match self.params.split_last() {
            Some((options, required)) if options.name == "options" => {
                let with = format_ident!("{ident}_with");
                // Without the options, their lifetime may be unused.
                let short = short_generics(&sig.generics, required);
                let mut passed_short = passed(required);
                passed_short.push(quote!(let options = ::core::default::Default::default();));
                let kind = last_segment(&options.inner).map(|segment| segment.ident.to_string()).unwrap_or_default();
                let (called, called_with) =
                    if is_function { (&short_name, format_ident!("{short_name}_with")) } else { (ident, with.clone()) };
                let link = if is_function {
                    format!("[`{called}`]({called}())")
                } else {
                    format!("[`{called}`](Self::{called})")
                };
                let doc = format!("As {link}, with options: see [`{kind}`].");
                let example = examples(&documentation(docs), &format!("{called_with}("));
                let errors = format!("As {link}; also if an option does not fit.");
                let docs = quote!(#(#docs)*);
                let docs_with = quote!(#[doc = #doc] #[doc = #example] #[doc = "# Errors"] #[doc = #errors]);
                let (required, params) = (declared(required), declared(&self.params));
                let passed = passed(&self.params);
                let first = public(ident, &docs, &short, &required, &passed_short);
                let second = public(&with, &docs_with, &all, &params, &passed);
                let functions = is_function.then(|| {
                    let first = function(called, &docs, &short, &required, &passed_short);
                    let second = function(&called_with, &docs_with, &all, &params, &passed);
                    quote!(#first #second)
                });
                Parts { public: quote!(#first #second #in_place), functions: quote!(#functions), bodies }
            }
            _ => {
                let (docs, params, passed) = (quote!(#(#docs)*), declared(&self.params), passed(&self.params));
                let public = public(ident, &docs, &all, &params, &passed);
                let functions = is_function.then(|| function(&short_name, &docs, &all, &params, &passed));
                Parts { public: quote!(#public #in_place), functions: quote!(#functions), bodies }
            }
        }
    }

    /// The method that changes the tensor.
    fn in_place(&self) -> Option<Tokens> {
        let flag = |name: &str| self.settings.flags.iter().any(|flag| flag == name);
        if !flag("in_place") {
            return None;
        }
        let ident = &self.method.sig.ident;
        let required = match self.params.split_last() {
            Some((options, required)) if options.name == "options" => required,
            _ => &self.params[..],
        };
        let generics = short_generics(&self.method.sig.generics, required);
        let declared = required.iter().map(|Param { name, public, .. }| quote!(#name: #public));
        let names = required.iter().map(|param| &param.name);
        let changed = format_ident!("{ident}_");
        let name = changed.to_string();
        // Numbers that are drawn do not depend on those that were there.
        let by = if flag("random") { quote!(become_numbers) } else { quote!(become_result) };
        let doc = format!("[`{ident}`](Self::{ident}) in place, as [`add_`](Self::add_) adds.");
        let errors = format!("As [`{ident}`](Self::{ident}) and [`add_`](Self::add_).");
        Some(quote! {
            #[doc = #doc]
            ///
            /// # Errors
            #[doc = #errors]
            #[track_caller]
            pub fn #changed #generics (&mut self, #(#declared),*) -> crate::Result<()> {
                crate::error::named(#name, self.#by(#name, |x| x.#ident(#(#names),*)))
            }
        })
    }

    /// The path that the operation is called by in Rust.
    pub(super) fn path(&self) -> String {
        let module = self.settings.function.as_ref().map(ToString::to_string);
        let module = module.map_or_else(|| "Tensor".to_string(), |module| module.replace('_', "::"));
        format!("{module}::{}", if module == "Tensor" { self.method.sig.ident.clone() } else { self.function_name() })
    }

    /// The name of the operation in its namespace.
    fn function_name(&self) -> Ident {
        let name = self.method.sig.ident.to_string();
        let short = ["linalg_", "signal_windows_"].iter().find_map(|prefix| name.strip_prefix(prefix));
        Ident::new(short.unwrap_or(&name), self.method.sig.ident.span())
    }

    /// The name of the receiver in a free function.
    fn this(&self) -> Option<Ident> {
        self.method.sig.receiver().map(|receiver| this_at(receiver.self_token.span))
    }

    /// The dtypes of the tensors among the arguments of the body.
    fn dtypes(&self) -> Vec<Tokens> {
        let this = self.this().map(|this| quote!(#this.dtype()));
        let of = |Param { name, inner, .. }: &Param| match inner {
            Type::Reference(reference) if last_segment(&reference.elem).is_some_and(|last| last.ident == "Tensor") => {
                Some(quote!(#name.dtype()))
            }
            ty if last_segment(ty).is_some_and(|last| last.ident == "Operand") => {
                Some(quote!(crate::ops::loss::cross_entropy::operand_dtype(&#name)))
            }
            _ => None,
        };
        this.into_iter().chain(self.params.iter().filter_map(of)).collect()
    }

    /// The call as data, for `vmap` or `autocast`: its results, where one of them has another way to them.
    fn intercept(&self, ident: &Ident, (list, at): (&Ident, usize)) -> Tokens {
        let generics = &self.method.sig.generics.params;
        let receiver = self.this().map(|this| quote!(#this: &crate::Tensor,));
        let this = self.this().map(|this| quote!(args.push(crate::ops::Arg::from(#this));));
        let params = self.params.iter().map(|Param { name, inner, .. }| quote!(#name: &#inner,));
        let args = self.params.iter().map(|Param { name, inner, .. }| {
            if is_group(inner) {
                return quote!(args.extend(crate::ops::ParamGroup::to_args(#name)););
            }
            quote!(args.push(crate::ops::Arg::from(::core::clone::Clone::clone(#name)));)
        });
        quote! {
            #[cold]
            #[inline(never)]
            #[track_caller]
            #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, clippy::ptr_arg, non_snake_case, unused_mut)]
            fn #ident <#generics> (#receiver #(#params)* by: crate::ops::Intercept) -> crate::ops::Intercepted {
                let mut args = ::std::vec::Vec::new();
                #this
                #(#args)*
                crate::ops::intercepted(#list, #at, &args, by)
            }
        }
    }
}

fn this_at(span: Span) -> Ident {
    Ident::new("__this", span)
}

/// The body of a method as that of a free function: `self` becomes an ordinary argument, and `Self` becomes `Tensor`.
fn with_this(body: Tokens) -> Tokens {
    let mut tokens = body.into_iter().peekable();
    let mut out = Tokens::new();
    while let Some(token) = tokens.next() {
        let token = match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), with_this(group.stream()));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            // `self::` begins a path.
            TokenTree::Ident(ident)
                if ident == "self"
                    && !matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':') =>
            {
                TokenTree::Ident(this_at(ident.span()))
            }
            TokenTree::Ident(ident) if ident == "Self" => {
                out.extend(quote_spanned!(ident.span() => crate::Tensor));
                continue;
            }
            other => other,
        };
        out.extend([token]);
    }
    out
}

/// The lifetimes that the given parameters use.
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

/// The examples in a documentation that contain this text, as paragraphs.
fn examples(docs: &str, text: &str) -> String {
    let blocks = docs.split("```").skip(1).step_by(2).filter(|block| block.contains(text));
    let paragraph = |block: &str| format!("\n```{block}```\n");
    blocks.map(paragraph).collect::<String>() + "\n"
}
