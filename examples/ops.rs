//! Prints a list of all operations, layers and optimisers, the list as JSON, the table of operations in the
//! documentation, or the documentation of one operation.
//!
//! ```text
//! cargo run --release --example ops
//! cargo run --release --example ops -- --json
//! cargo run --release --example ops -- --markdown > src/ops/TABLE.md
//! cargo run --release --example ops -- cumsum
//! ```

#[path = "ops/table.rs"]
mod table;

use cotangent::ops::{Derivative, Op, Param};
use cotangent::{nn, ops, optim};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let text = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => overview(),
        ["--json"] => format!("{:#}\n", list()),
        ["--markdown"] => table::markdown(),
        [name] if !name.starts_with('-') => match ops::find(name) {
            Some(op) => describe(op),
            None => {
                eprintln!("unknown operation: {name}{}", similar(name));
                return ExitCode::FAILURE;
            }
        },
        _ => {
            eprintln!("usage: ops [--json | --markdown | NAME]");
            return ExitCode::FAILURE;
        }
    };
    // A closed pipe, as with `head`, is not an error.
    let _ = write!(std::io::stdout(), "{text}");
    ExitCode::SUCCESS
}

/// A hint with operations whose names are similar.
fn similar(name: &str) -> String {
    let alike = |known: &&str| known.contains(name) || (known.len() > 2 && name.contains(*known));
    let found: Vec<&str> = ops::list().iter().map(|op| op.name).filter(alike).collect();
    if found.is_empty() { String::new() } else { format!("; similar names: {}", found.join(", ")) }
}

fn derivative(op: &Op) -> &'static str {
    match op.derivative {
        Derivative::Rule => "rule",
        Derivative::Zero => "zero",
        Derivative::None => "none",
    }
}

fn list() -> Value {
    let params = |params: &mut dyn Iterator<Item = &'static Param>| -> Vec<Value> {
        params.map(|p| json!({"name": p.name, "type": p.kind.to_string(), "default": default(p)})).collect()
    };
    let op = |op: &&Op| {
        json!({
            "name": op.name,
            "aliases": op.aliases,
            "params": params(&mut op.params()),
            "outputs": op.outputs,
            "derivative": derivative(op),
            "devices": op.devices(),
        })
    };
    let layer = |layer: &nn::LayerEntry| json!({"name": layer.name, "params": params(&mut layer.params())});
    let optimizer =
        |entry: &optim::OptimizerEntry| json!({"name": entry.name, "params": params(&mut entry.params.iter())});
    json!({
        "ops": ops::list().iter().map(op).collect::<Vec<_>>(),
        "layers": nn::list().iter().map(layer).collect::<Vec<_>>(),
        "optimizers": optim::list().iter().map(optimizer).collect::<Vec<_>>(),
    })
}

/// The default in Python's syntax; `None` if the parameter is required.
fn default(param: &Param) -> Option<String> {
    param.default.map(|default| default().to_string())
}

/// A signature in Python's syntax.
fn signature(name: &str, params: impl Iterator<Item = &'static Param>) -> String {
    let one = |param: &Param| match default(param) {
        Some(default) => format!("{}={default}", param.name),
        None => param.name.to_string(),
    };
    format!("{name}({})", params.map(one).collect::<Vec<_>>().join(", "))
}

/// The first sentence of a text.
fn first_sentence(docs: &str) -> String {
    let paragraph = docs.trim().split("\n\n").next().unwrap_or_default().replace('\n', " ");
    match paragraph.find(". ") {
        Some(end) => paragraph[..=end].to_string(),
        None => paragraph,
    }
}

fn overview() -> String {
    let mut text = format!("{} operations\n\n", ops::list().len());
    for op in ops::list() {
        text += &format!("{}\n    {}\n", signature(op.name, op.params()), first_sentence(op.docs));
    }
    text += &format!("\n{} layers\n\n", nn::list().len());
    for layer in nn::list() {
        text += &format!("{}\n", signature(layer.name, layer.params()));
    }
    text += &format!("\n{} optimisers\n\n", optim::list().len());
    for entry in optim::list() {
        text += &format!("{}\n", signature(entry.name, entry.params.iter()));
    }
    text
}

fn describe(op: &Op) -> String {
    let mut text = signature(op.name, op.params());
    if !op.aliases.is_empty() {
        text += &format!("\nalso known as {}", op.aliases.join(", "));
    }
    text += "\n\n";
    for param in op.params() {
        text += &format!("    {}: {}\n", param.name, param.kind);
    }
    text += &format!("    -> {}; derivative: {}\n\n", op.outputs.join(", "), derivative(op));
    text + op.docs.trim() + "\n"
}
