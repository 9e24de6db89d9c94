//! A module as a table.

use super::{Module, Parameter, Part, Visitor};
use std::collections::HashSet;

/// Rows of name, kind, shape and number of parameters, and the totals.
pub(crate) fn rows<M: Module + ?Sized>(module: &M) -> (Vec<[String; 4]>, String) {
    let (mut rows, mut totals, mut seen) = (Vec::new(), Totals::default(), HashSet::new());
    module.visit(&mut Visitor::new(&mut |name, part| {
        let row = match part {
            Part::Module(kind) => [name.to_string(), kind.to_string(), String::new(), String::new()],
            Part::Param(tensor) if seen.insert(tensor.id()) => {
                let kind = totals.count(tensor);
                [name.to_string(), kind.to_string(), format!("{:?}", tensor.logical_shape()), grouped(elements(tensor))]
            }
            Part::Param(tensor) => {
                [name.to_string(), "tied".into(), format!("{:?}", tensor.logical_shape()), String::new()]
            }
            Part::Buffer(buffer) => {
                [name.to_string(), "buffer".into(), format!("{:?}", buffer.get().shape()), String::new()]
            }
            Part::Training(_) | Part::Quantizable { .. } => return,
        };
        rows.push(row);
    }));
    (rows, totals.text())
}

/// The same as text, with a head and rules.
pub(crate) fn table<M: Module + ?Sized>(module: &M) -> String {
    let (rows, totals) = rows(module);
    let head = ["name", "kind", "shape", "parameters"].map(str::to_string);
    let widths: [usize; 4] =
        std::array::from_fn(|k| rows.iter().chain([&head]).map(|row| row[k].chars().count()).max().unwrap_or(0));
    let line = |[name, kind, shape, count]: &[String; 4]| {
        let [a, b, c, d] = widths;
        format!("{name:a$}  {kind:b$}  {shape:c$}  {count:>d$}").trim_end().to_string()
    };
    let rule = "-".repeat(widths.iter().sum::<usize>() + 6);
    let mut lines = vec![line(&head), rule.clone()];
    lines.extend(rows.iter().map(line));
    lines.extend([rule, totals]);
    lines.join("\n")
}

/// The number of elements, not of the bytes of a quantised weight.
pub(crate) fn elements(parameter: &Parameter) -> usize {
    parameter.quantized().map_or_else(|| parameter.numel(), |weight| weight.numel())
}

#[derive(Default)]
struct Totals {
    trained: usize,
    frozen: usize,
    bytes: usize,
}

impl Totals {
    /// Counts a parameter, and says of which kind it is.
    fn count(&mut self, tensor: &Parameter) -> &'static str {
        self.bytes += tensor.numel() * tensor.dtype().size();
        if tensor.requires_grad() {
            self.trained += elements(tensor);
            "parameter"
        } else {
            self.frozen += elements(tensor);
            if tensor.quantized().is_some() { "quantized" } else { "frozen" }
        }
    }

    fn text(&self) -> String {
        let frozen =
            if self.frozen == 0 { String::new() } else { format!(", {} of them frozen", grouped(self.frozen)) };
        let mib = self.bytes as f64 / f64::from(1 << 20);
        format!("{} parameters{frozen}, {mib:.2} MiB", grouped(self.trained + self.frozen))
    }
}

/// Digits in groups of three: `103 680`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
