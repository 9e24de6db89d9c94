//! `s![1..-1, .., 0, ..;2, None, &mask]`: each item becomes an `IndexItem`. Ranges are parsed here, so that a range with a negative
//! end is never a Rust range, which `clippy` would report as empty.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprRange, RangeLimits, Result, Token};

pub struct Items(Punctuated<Item, Token![,]>);

/// An expression, with an optional step for a range: `1..5;2`.
struct Item {
    at: Expr,
    step: Option<Expr>,
}

impl Parse for Items {
    fn parse(input: ParseStream<'_>) -> Result<Items> {
        Punctuated::parse_terminated(input).map(Items)
    }
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Item> {
        // Three dots are not a Rust expression.
        if input.peek(Token![...]) {
            input.parse::<Token![...]>()?;
            return Ok(Item { at: syn::parse_quote!(::cotangent::arguments::Ellipsis), step: None });
        }
        let at: Expr = input.parse()?;
        let step = if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            if !matches!(at, Expr::Range(_)) {
                return Err(syn::Error::new_spanned(&at, "only a range can have a step"));
            }
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Item { at, step })
    }
}

pub fn expand(Items(items): &Items) -> Tokens {
    let items = items.iter().map(|Item { at, step }| match at {
        Expr::Range(range) => slice(range, step.as_ref()),
        Expr::Path(path) if path.path.is_ident("None") => quote!(::cotangent::arguments::IndexItem::NewDim),
        other => quote!(::cotangent::arguments::IndexItem::from(#other)),
    });
    quote!(::cotangent::arguments::Index::new(::std::vec![#(#items),*]))
}

fn slice(range: &ExprRange, step: Option<&Expr>) -> Tokens {
    let end = |end: &Option<Box<Expr>>| match end {
        Some(end) => quote!(::core::option::Option::Some((#end) as isize)),
        None => quote!(::core::option::Option::None),
    };
    let (from, to) = (end(&range.start), end(&range.end));
    let slice = match range.limits {
        RangeLimits::HalfOpen(_) => quote!(::cotangent::arguments::Slice::new(#from, #to)),
        RangeLimits::Closed(_) => quote!(::cotangent::arguments::Slice::inclusive(#from, #to)),
    };
    let step = step.map(|step| quote!(.step((#step) as isize)));
    quote!(::cotangent::arguments::IndexItem::Slice(#slice #step))
}
