//! The macros of the crate `cotangent`, which re-exports and documents them.

use proc_macro::TokenStream;
use syn::parse_macro_input;

mod index;
mod module;
mod ops;
mod options;
mod tensor;
mod unit_tests;

// Documented where `cotangent::nn` re-exports it.
#[allow(missing_docs)]
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    module::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Declares the methods of an `impl Tensor` that are marked `#[op(..)]` as operations; for use inside `cotangent` only.
#[proc_macro_attribute]
pub fn ops(list: TokenStream, block: TokenStream) -> TokenStream {
    let list = parse_macro_input!(list as Option<syn::Ident>);
    let block = parse_macro_input!(block as syn::ItemImpl);
    ops::expand(list, block).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Puts the name of a public function, or the one given, and its caller's line on its errors; for use inside `cotangent` only.
#[proc_macro_attribute]
pub fn named(name: TokenStream, function: TokenStream) -> TokenStream {
    let name = parse_macro_input!(name as Option<syn::LitStr>);
    let syn::ItemFn { attrs, vis, sig, block } = parse_macro_input!(function as syn::ItemFn);
    let name = name.map_or_else(|| sig.ident.to_string(), |name| name.value());
    quote::quote! {
        #(#attrs)*
        #[track_caller]
        #vis #sig {
            crate::error::named(#name, (move || #block)())
        }
    }
    .into()
}

/// For the setter of an option: a setter of an integer takes exactly its type, since the literal `2` converts only from `i32`; for use
/// inside `cotangent` only.
#[proc_macro_attribute]
pub fn setter(_: TokenStream, function: TokenStream) -> TokenStream {
    let function = syn::parse_macro_input!(function as syn::ItemFn);
    options::setter(function).into()
}

/// Declares the `new` of an `impl` block as that of a layer; for use inside `cotangent` only.
#[proc_macro_attribute]
pub fn layer(_: TokenStream, block: TokenStream) -> TokenStream {
    let block = parse_macro_input!(block as syn::ItemImpl);
    ops::expand_layer(block).unwrap_or_else(|error| error.to_compile_error()).into()
}

// Documented where `cotangent` re-exports it: there, rustdoc appends what is written here.
#[allow(missing_docs)]
#[proc_macro]
pub fn s(input: TokenStream) -> TokenStream {
    let items = parse_macro_input!(input as index::Items);
    index::expand(&items).into()
}

// Documented where `cotangent` re-exports it.
#[allow(missing_docs)]
#[proc_macro]
pub fn tensor(input: TokenStream) -> TokenStream {
    let mut literal = parse_macro_input!(input as tensor::Literal);
    tensor::expand(&mut literal).into()
}

/// Declares the functions of a module that are marked `#[test]` as unit tests: see [`unit_test`].
#[proc_macro_attribute]
pub fn unit_tests(_: TokenStream, module: TokenStream) -> TokenStream {
    let module = parse_macro_input!(module as syn::ItemMod);
    unit_tests::expand_module(module).into()
}

/// Declares a function as a unit test, which `tests/internals` runs; for use inside `cotangent` only.
#[proc_macro_attribute]
pub fn unit_test(_: TokenStream, function: TokenStream) -> TokenStream {
    let function = parse_macro_input!(function as syn::ItemFn);
    unit_tests::expand(&function).into()
}
