//! The arguments of `#[op(..)]`; see the top of `ops.rs`.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Lit, LitStr, Result, Token};

/// The arguments of `#[op(..)]`.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) name: Option<LitStr>,
    pub(super) samples: Option<Expr>,
    pub(super) errors: Option<Expr>,
    pub(super) function: Option<Ident>,
    pub(super) derivative: Option<Ident>,
    pub(super) outputs: Vec<Ident>,
    pub(super) aliases: Vec<LitStr>,
    pub(super) tolerance: Option<Lit>,
    pub(super) autocast_cpu: Option<Ident>,
    pub(super) autocast_cuda: Option<Ident>,
    pub(super) numbers: Option<Ident>,
    pub(super) flags: Vec<Ident>,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Settings> {
        let mut settings = Settings::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "view" | "in_place" | "in_place_by_hand" | "random" | "reads_layout" | "batch" | "full_precision"
                | "in_f64" | "rounds" => {
                    settings.flags.push(key);
                }
                name => {
                    input.parse::<Token![=]>()?;
                    match name {
                        "name" => settings.name = Some(input.parse()?),
                        "samples" => settings.samples = Some(input.parse()?),
                        "errors" => settings.errors = Some(input.parse()?),
                        "function" => settings.function = Some(input.parse()?),
                        "derivative" => settings.derivative = Some(input.parse()?),
                        "tolerance" => settings.tolerance = Some(input.parse()?),
                        "autocast" => {
                            let policy: Ident = input.parse()?;
                            settings.autocast_cpu = Some(policy.clone());
                            settings.autocast_cuda = Some(policy);
                        }
                        "autocast_cpu" => settings.autocast_cpu = Some(input.parse()?),
                        "autocast_cuda" => settings.autocast_cuda = Some(input.parse()?),
                        "numbers" => settings.numbers = Some(input.parse()?),
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
                        _ => return Err(Error::new(key.span(), "unknown setting of an operation")),
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
