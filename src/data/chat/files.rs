//! The files that have chat templates and special tokens.

use super::{DEFAULT, json};
use crate::Result;
use crate::error::{Error, bail};
use minijinja::Value;
use std::path::Path;

/// The largest file that is read: some tokenizers list thousands of added tokens.
const MOST_BYTES: u64 = 64 << 20;

/// The names and sources of templates, and the special tokens.
pub(super) type Contents = (Vec<(String, String)>, Vec<(String, Value)>);

pub(super) fn read(op: &'static str, folder: &Path) -> Result<Contents> {
    let config = folder.join("tokenizer_config.json");
    let (mut templates, mut tokens) = (Vec::new(), Vec::new());
    let has_config = config.exists();
    if has_config {
        let object = json::parse(op, &text(op, &config)?).map_err(|error| error.context(config.display()))?;
        let Some(fields) = json::entries(&object) else {
            bail!(Format, op, "{}: expected a JSON object, got a {}", config.display(), object.kind());
        };
        for (name, value) in fields {
            if name == "chat_template" {
                templates = named_templates(op, &value).map_err(|error| error.context(config.display()))?;
            } else if name.ends_with("_token") {
                // A text, or an object with it.
                let content = value.get_attr("content").ok().filter(|content| content.as_str().is_some());
                let token = if value.as_str().is_some() { Some(value) } else { content };
                tokens.extend(token.map(|token| (name, token)));
            }
        }
    }
    let own = folder.join("chat_template.jinja");
    if own.exists() {
        templates.retain(|(name, _)| name != DEFAULT);
        templates.push((DEFAULT.to_string(), text(op, &own)?));
    }
    let more = folder.join("additional_chat_templates");
    if more.is_dir() {
        let failed = |error| Error::io(op, &more, error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&more).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "jinja")) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            templates.retain(|(own, _)| *own != name);
            templates.push((name, text(op, path)?));
        }
    }
    if templates.is_empty() {
        let folder = folder.display();
        bail!(
            Format,
            op,
            "{folder}: there must be a chat_template in tokenizer_config.json or chat_template.jinja: the model may not be trained for chats"
        );
    }
    Ok((templates, tokens))
}

fn text(op: &'static str, path: &Path) -> Result<String> {
    let failed = |error| Error::io(op, path, error);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > MOST_BYTES {
        bail!(Format, op, "{}: a file must have at most {MOST_BYTES} bytes, got {bytes}", path.display());
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// A text, or a list of objects with a name and a template.
fn named_templates(op: &'static str, value: &Value) -> Result<Vec<(String, String)>> {
    if let Some(source) = value.as_str() {
        return Ok(vec![(DEFAULT.to_string(), source.to_string())]);
    }
    if value.is_none() {
        return Ok(Vec::new());
    }
    let mut templates = Vec::new();
    if json::is_list(value) {
        for item in value.try_iter().into_iter().flatten() {
            let field = |name| item.get_attr(name).ok().and_then(|field| field.as_str().map(str::to_string));
            let (Some(name), Some(source)) = (field("name"), field("template")) else {
                bail!(Format, op, "each chat_template must have a name and a template, got a {}", item.kind());
            };
            templates.push((name, source));
        }
        return Ok(templates);
    }
    bail!(Format, op, "chat_template must be a text or a list of named ones, got a {}", value.kind())
}
