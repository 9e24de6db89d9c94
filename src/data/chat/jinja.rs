//! Templates as Hugging Face's library renders them.

use super::json::{check_size, tojson};
use super::time::strftime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::time::SystemTime;

/// The longest template. Those of published models have a few thousand bytes.
const MOST_BYTES: usize = 256 << 10;

/// The number of steps that a template may take. A conversation of a thousand messages needs some 100 000.
const MOST_STEPS: u64 = 2_000_000;

/// The stack of the thread that a template runs in: of it only what is used takes memory. Values and expressions that consist of
/// each other as deeply as the two limits above allow are processed recursively.
const STACK: usize = 512 << 20;

/// Fails if a source is not a template.
pub(super) fn check(source: &str) -> Result<(), String> {
    if source.len() > MOST_BYTES {
        return Err(format!("a chat template must have at most {MOST_BYTES} bytes, got {}", source.len()));
    }
    let source = without_generation_tags(source);
    apart(move || {
        environment(SystemTime::UNIX_EPOCH).template_from_str(&source).map(drop).map_err(|error| described(&error))
    })
}

/// The text of a template that [`check`] has accepted.
pub(super) fn render(source: &str, variables: Vec<(String, Value)>, time: SystemTime) -> Result<String, String> {
    let source = without_generation_tags(source);
    apart(move || {
        let rendered = environment(time).render_str(&source, Value::from_pairs(variables));
        rendered.map_err(|error| described(&error))
    })
}

/// Runs a function in a thread with a large stack.
fn apart<T: Send>(run: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the template engine failed".to_string()),
            Err(error) => Err(format!("a thread for the template could not be started: {error}")),
        }
    })
}

/// What an error says, with its line.
fn described(error: &Error) -> String {
    // What a macro or filter raised is the cause of the error around it.
    let mut inner: &Error = error;
    while let Some(source) = std::error::Error::source(inner).and_then(|source| source.downcast_ref::<Error>()) {
        inner = source;
    }
    let what = match (inner.kind(), inner.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("the template must take at most {MOST_STEPS} steps, got more"),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let line = inner.line().or(error.line());
    line.map_or_else(|| what.clone(), |line| format!("{what} (line {line} of the template)"))
}

fn environment(time: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    // The delimiters are the usual ones, which are valid.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, state, value| {
        check_size(value)?;
        escape_formatter(out, state, value)
    });
    environment.set_fuel(Some(MOST_STEPS));
    environment.set_unknown_method_callback(method);
    // To the crate none is iterable, too.
    environment.add_test("iterable", |value: &Value| value.try_iter().is_ok() && !value.is_none());
    environment.add_filter("tojson", |value: &Value, arguments: Kwargs| tojson(value, &arguments));
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| {
        strftime(time, &format).map_err(|what| Error::new(ErrorKind::InvalidOperation, what))
    });
    environment
}

/// Methods of Python's objects, with a few that the crate lacks.
fn method(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(text), "removeprefix") => {
            let (start,): (&str,) = from_args(arguments)?;
            Ok(Value::from(text.strip_prefix(start).unwrap_or(text)))
        }
        (Some(text), "removesuffix") => {
            let (end,): (&str,) = from_args(arguments)?;
            Ok(Value::from(text.strip_suffix(end).unwrap_or(text)))
        }
        _ => unknown_method_callback(state, value, method, arguments),
    }
}

/// The template with its `{% generation %}` blocks, which mark answers for training, as blocks that are always rendered.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let end = tag.find("%}").unwrap_or(tag.len());
        let (inside, after) = tag.split_at(end);
        let bare = inside.trim_matches(['-', '+']).trim();
        match bare {
            "generation" => out.push_str(&inside.replacen(bare, "if true", 1)),
            "endgeneration" => out.push_str(&inside.replacen(bare, "endif", 1)),
            _ => out.push_str(inside),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
