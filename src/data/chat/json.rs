//! JSON as Python's `json.dumps` writes it.

use crate::Result;
use crate::error::{bail, err};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// The value of a JSON text. Objects keep the order of their keys.
pub(super) fn parse(op: &'static str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| err!(Format, op, "not JSON: {error}"))
}

/// As [`parse`], of a list.
pub(super) fn parse_list(op: &'static str, text: &str) -> Result<Value> {
    let value = parse(op, text)?;
    if !is_list(&value) {
        bail!(Format, op, "expected a JSON list, got a {}", value.kind());
    }
    Ok(value)
}

pub(super) fn is_list(value: &Value) -> bool {
    value.kind() == ValueKind::Seq
}

/// The keys and values of an object.
pub(super) fn entries(value: &Value) -> Option<Vec<(String, Value)>> {
    if value.kind() != ValueKind::Map {
        return None;
    }
    let keys = value.try_iter().ok()?;
    keys.map(|key| Some((key.as_str()?.to_string(), value.get_item(&key).ok()?))).collect()
}

/// The filter `tojson`, with the arguments of Python's function.
pub(super) fn tojson(value: &Value, arguments: &Kwargs) -> std::result::Result<String, Error> {
    let indent = match arguments.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) => Some(text.to_string()),
            (None, Some(count)) if count <= 64 => Some(" ".repeat(count)),
            _ => return Err(refused(format!("indent of tojson must be a text or at most 64, got {indent}"))),
        },
    };
    let separators = match arguments.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => {
            let parts: Vec<Value> = pair.try_iter()?.collect();
            match parts.iter().map(Value::as_str).collect::<Vec<_>>()[..] {
                [Some(item), Some(key)] => Some((item.to_string(), key.to_string())),
                _ => return Err(refused(format!("separators of tojson must be two texts, got {pair}"))),
            }
        }
        _ => None,
    };
    let default = || ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string());
    let (item, key) = separators.unwrap_or_else(default);
    let mut writer = Writer {
        out: String::new(),
        item,
        key,
        is_ascii: arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        is_sorted: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
    };
    arguments.assert_all_used()?;
    check_size(value)?;
    writer.write(value, 0)?;
    Ok(writer.out)
}

fn refused(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Fails for values that are nested too deeply, because they contain themselves for example, or too large.
pub(super) fn check_size(value: &Value) -> std::result::Result<(), Error> {
    const DEEPEST: usize = 1000;
    const MOST: usize = 1_000_000;
    let (mut left, mut count) = (vec![(value.clone(), 0)], 0);
    while let Some((value, depth)) = left.pop() {
        // Other iterators may give their items once.
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
            continue;
        }
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            count += 1;
            if depth >= DEEPEST || count > MOST {
                let limits = format!("at most {DEEPEST} levels and {MOST} items");
                return Err(refused(format!("a value must have {limits} to be written, got more")));
            }
            left.push((if is_map { value.get_item(&item)? } else { item }, depth + 1));
        }
    }
    Ok(())
}

struct Writer {
    out: String,
    indent: Option<String>,
    item: String,
    key: String,
    is_ascii: bool,
    is_sorted: bool,
}

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> std::result::Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list('[', ']', depth, &items, |writer, item| writer.write(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let entry = value.get_item(&key)?;
                    entries.push((name(&key)?, entry));
                }
                if self.is_sorted {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.list('{', '}', depth, &entries, |writer, (key, entry)| {
                    writer.text(key);
                    let separator = writer.key.clone();
                    writer.out.push_str(&separator);
                    writer.write(entry, depth + 1)
                })?;
            }
            other => return Err(refused(format!("tojson must get a value of JSON, got {other}"))),
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: &[T],
        mut write: impl FnMut(&mut Writer, &T) -> std::result::Result<(), Error>,
    ) -> std::result::Result<(), Error> {
        self.out.push(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                let separator = self.item.clone();
                self.out.push_str(&separator);
            }
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.is_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A key of an object. Python turns numbers and constants into texts.
fn name(key: &Value) -> std::result::Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(float(f64::try_from(key.clone())?)),
        other => Err(refused(format!("keys of JSON must be texts or numbers, got a {other}"))),
    }
}

/// A float as Python prints it.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_string();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
        }
        _ => format!("{x:?}"),
    }
}
