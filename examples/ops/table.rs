//! Generates the table of all operations in the documentation of `cotangent::ops`. A test compares the file with the
//! output.

use cotangent::ops::{self, Derivative, Op, Param};

/// The contents of `src/ops/TABLE.md`.
pub fn markdown() -> String {
    let mut all: Vec<&Op> = ops::list().to_vec();
    all.sort_by_key(|op| op.name);
    let mut text =
        format!("| {} operations | parameters | results | derivative |\n| --- | --- | --- | --- |\n", all.len());
    for op in all {
        let params: Vec<String> = op.params().map(param).collect();
        text += &format!("| {} | {} | {} | {} |\n", name(op), params.join(", "), results(op), derivative(op));
    }
    text
}

/// The name, with a link to the method, and the aliases.
fn name(op: &Op) -> String {
    let mut text = format!("[`{}`](crate::{})", op.name, op.path);
    if !op.aliases.is_empty() {
        text += &format!(" (`{}`)", op.aliases.join("`, `"));
    }
    text
}

/// A parameter, with its default in Python's syntax.
fn param(param: &Param) -> String {
    match param.default {
        Some(default) => format!("`{}={}`", param.name, default()),
        None => format!("`{}`", param.name),
    }
}

fn results(op: &Op) -> String {
    match op.outputs {
        ["result"] if op.view => "view".to_string(),
        ["result"] => "tensor".to_string(),
        ["tensors"] if op.view => "views".to_string(),
        ["tensors"] => "tensors".to_string(),
        names => names.join(", "),
    }
}

fn derivative(op: &Op) -> &'static str {
    match op.derivative {
        Derivative::Rule => "rule",
        Derivative::Zero => "zero",
        Derivative::None => "none",
    }
}
