//! Configurations from the JSON files that are published with weights.

use crate::Result;
use crate::error::{bail, err};
use serde_json::Value;
use std::path::Path;

/// The fields of a configuration, by name.
pub(super) struct ConfigFile {
    fields: Value,
}

/// The size limit, as a configuration is a small file.
const MOST_BYTES: u64 = 1 << 20;

impl ConfigFile {
    pub fn read(path: &Path) -> Result<ConfigFile> {
        const OP: &str = "from_file";
        let file = |error: std::io::Error| err!(Io, OP, "{}: {error}", path.display());
        let bytes = std::fs::metadata(path).map_err(file)?.len();
        if bytes > MOST_BYTES {
            bail!(Format, OP, "{}: a configuration must have at most {MOST_BYTES} bytes, got {bytes}", path.display());
        }
        let text = std::fs::read_to_string(path).map_err(file)?;
        match serde_json::from_str::<Value>(&text) {
            Ok(fields) if fields.is_object() => Ok(ConfigFile { fields }),
            Ok(_) => bail!(Format, OP, "{}: expected a JSON object", path.display()),
            Err(error) => bail!(Format, OP, "{}: {error}", path.display()),
        }
    }

    fn present(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A size that may be missing.
    pub fn size(&self, name: &str, default: usize) -> Result<usize> {
        match self.present(name) {
            None => Ok(default),
            Some(value) => match value.as_u64().map(usize::try_from) {
                Some(Ok(size)) => Ok(size),
                _ => bail!(Format, "from_file", "{name} must be a non-negative integer, got {value}"),
            },
        }
    }

    /// A size that may be missing, or null for none.
    pub fn size_or_null(&self, name: &str, default: Option<usize>) -> Result<Option<usize>> {
        if self.fields.get(name).is_some_and(Value::is_null) {
            return Ok(None);
        }
        self.present(name).map_or(Ok(default), |_| self.size(name, 0).map(Some))
    }

    /// A number that may be missing, or null for none.
    pub fn number_or_null(&self, name: &str, default: Option<f64>) -> Result<Option<f64>> {
        if self.fields.get(name).is_some_and(Value::is_null) {
            return Ok(None);
        }
        self.present(name).map_or(Ok(default), |_| self.number(name, 0.0).map(Some))
    }

    /// A number that must be there.
    pub fn required_number(&self, name: &str) -> Result<f64> {
        match self.present(name) {
            None => bail!(Format, "from_file", "{name} must be a number, but is missing"),
            Some(_) => self.number(name, 0.0),
        }
    }

    /// A number that may be missing.
    pub fn number(&self, name: &str, default: f64) -> Result<f64> {
        match self.present(name) {
            None => Ok(default),
            Some(value) => {
                value.as_f64().ok_or_else(|| err!(Format, "from_file", "{name} must be a number, got {value}"))
            }
        }
    }

    /// A flag that may be missing.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.present(name) {
            None => Ok(default),
            Some(value) => {
                value.as_bool().ok_or_else(|| err!(Format, "from_file", "{name} must be a bool, got {value}"))
            }
        }
    }

    /// Fails if a field is present and has none of the known values.
    pub fn expect(&self, name: &str, known: &[&str]) -> Result<()> {
        match self.present(name) {
            Some(value) if !known.iter().any(|&one| value.as_str() == Some(one)) => {
                if known.is_empty() {
                    bail!(Format, "from_file", "{name} is not supported and must be absent, got {value}")
                }
                bail!(Format, "from_file", "{name} must be absent or one of {known:?}, got {value}")
            }
            _ => Ok(()),
        }
    }

    /// Whether a field is missing, or an empty list or object.
    pub fn is_empty(&self, name: &str) -> bool {
        match self.present(name) {
            None => true,
            Some(Value::Array(values)) => values.is_empty(),
            Some(Value::Object(values)) => values.is_empty(),
            Some(_) => false,
        }
    }

    /// Whether a field is present and not null.
    pub fn has(&self, name: &str) -> bool {
        self.present(name).is_some()
    }

    /// A text that may be missing.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.present(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text)),
                None => bail!(Format, "from_file", "{name} must be a text, got {value}"),
            },
        }
    }

    /// An integer or a list of them. Empty if the field is missing.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let Some(value) = self.present(name) else { return Ok(Vec::new()) };
        let all = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        let numbers: Option<Vec<i64>> = all.iter().map(Value::as_i64).collect();
        numbers.ok_or_else(|| err!(Format, "from_file", "{name} must be an integer or a list of integers, got {value}"))
    }

    /// The name of a field that is none of the known ones.
    pub fn unknown(&self, known: &[&str]) -> Option<&str> {
        let names = self.fields.as_object()?.iter().filter(|(_, value)| !value.is_null());
        names.map(|(name, _)| name.as_str()).find(|name| !known.contains(name))
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        self.present(name)?.as_array()?.iter().map(|value| value.as_str().map(str::to_string)).collect()
    }

    /// How many entries a field has.
    pub fn entries(&self, name: &str) -> Option<usize> {
        self.present(name)?.as_object().map(serde_json::Map::len)
    }

    /// A field inside of another.
    pub fn inside(&self, name: &str) -> ConfigFile {
        ConfigFile { fields: self.present(name).cloned().unwrap_or(Value::Null) }
    }
}
