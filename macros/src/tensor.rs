//! `tensor!([[1.0, 2.0], [3.0, 4.0]])`: untyped literals get PyTorch's default types, `f32` and `i64`, instead of Rust's.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Lit, LitFloat, LitInt, Result, Token};

pub struct Literal {
    values: Expr,
    options: Option<Expr>,
}

impl Parse for Literal {
    fn parse(input: ParseStream<'_>) -> Result<Literal> {
        let values = input.parse()?;
        let mut options = None;
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                options = Some(input.parse()?);
                input.parse::<Option<Token![,]>>()?;
            }
        }
        Ok(Literal { values, options })
    }
}

pub fn expand(literal: &mut Literal) -> Tokens {
    // With a variable or a typed literal, Rust infers the type of the others.
    let untyped = is_untyped(&literal.values);
    // One float makes all literals floats, as in Python.
    let floats = untyped && has_float(&literal.values);
    // If a dtype may follow, the literals are f64, so that no digits are lost.
    let float = if literal.options.is_some() { "f64" } else { "f32" };
    if untyped {
        give_types(&mut literal.values, floats.then_some(float), float);
    }
    let values = &literal.values;
    match &literal.options {
        Some(options) if floats => quote! {
            ::cotangent::Tensor::new_with(#values, ::cotangent::TensorOptions::from(#options).or_dtype(::cotangent::DType::F32))
        },
        Some(options) => quote!(::cotangent::Tensor::new_with(#values, #options)),
        None => quote!(::cotangent::Tensor::new(#values)),
    }
}

/// Whether all elements are literals without a type.
fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Float(float) => float.suffix().is_empty(),
            Lit::Int(int) => int.suffix().is_empty(),
            _ => false,
        },
        Expr::Array(array) => array.elems.iter().all(is_untyped),
        Expr::Unary(unary) => is_untyped(&unary.expr),
        Expr::Paren(inner) => is_untyped(&inner.expr),
        Expr::Repeat(repeat) => is_untyped(&repeat.expr),
        _ => false,
    }
}

fn has_float(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(literal) => matches!(&literal.lit, Lit::Float(float) if float.suffix().is_empty()),
        Expr::Array(array) => array.elems.iter().any(has_float),
        Expr::Unary(unary) => has_float(&unary.expr),
        Expr::Paren(inner) => has_float(&inner.expr),
        Expr::Repeat(repeat) => has_float(&repeat.expr),
        _ => false,
    }
}

/// Adds type suffixes to untyped literals. Integers become floats of the type `ints`, if given.
fn give_types(expr: &mut Expr, ints: Option<&str>, float_type: &str) {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Float(float) if float.suffix().is_empty() => {
                let text = float.base10_digits();
                literal.lit = Lit::Float(LitFloat::new(&format!("{text}{float_type}"), float.span()));
            }
            Lit::Int(int) if int.suffix().is_empty() => {
                let (text, span) = (int.base10_digits(), int.span());
                literal.lit = match ints {
                    Some(float) => Lit::Float(LitFloat::new(&format!("{text}{float}"), span)),
                    None => Lit::Int(LitInt::new(&format!("{text}i64"), span)),
                };
            }
            _ => {}
        },
        Expr::Array(array) => array.elems.iter_mut().for_each(|expr| give_types(expr, ints, float_type)),
        Expr::Unary(unary) => give_types(&mut unary.expr, ints, float_type),
        Expr::Paren(inner) => give_types(&mut inner.expr, ints, float_type),
        // The length keeps its type.
        Expr::Repeat(repeat) => give_types(&mut repeat.expr, ints, float_type),
        _ => {}
    }
}
