//! Unit tests that are part of the library with the feature `samples`.
//!
//! For ordinary tests `cargo test` would compile the whole library a second time. Each function
//!
//! ```ignore
//! #[test]
//! fn name() -> Result<()> { .. }
//! ```
//!
//! is kept, and gets an entry in the list that `tests/internals` reads:
//!
//! ```ignore
//! inventory::submit!(UnitTest { name: "cotangent::module::tests::name", run: || Outcome::outcome(name()) });
//! ```
//!
//! With `cargo test --lib --features samples` they are ordinary tests, for sanitizers and Miri.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Item, ItemFn, ItemMod};

/// The function, and its entry in the list.
pub fn expand(function: &ItemFn) -> TokenStream {
    let name = &function.sig.ident;
    let text = name.to_string();
    quote! {
        #[cfg_attr(test, test)]
        #function
        #[cfg(not(test))]
        ::inventory::submit! {
            crate::unit_tests::UnitTest {
                name: concat!(module_path!(), "::", #text),
                run: || crate::unit_tests::Outcome::outcome(#name()),
            }
        }
    }
}

/// The module, with every function marked `#[test]` expanded.
pub fn expand_module(mut module: ItemMod) -> TokenStream {
    for item in module.content.iter_mut().flat_map(|(_, items)| items) {
        if let Item::Fn(function) = item {
            let before = function.attrs.len();
            function.attrs.retain(|attribute| !attribute.path().is_ident("test"));
            if function.attrs.len() < before {
                *item = Item::Verbatim(expand(function));
            }
        }
    }
    quote! {
        #[cfg(feature = "samples")]
        #[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
        #module
    }
}
