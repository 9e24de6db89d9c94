//! Logs as JSON Lines files.

use super::Log;
use super::csv::check_names;
use crate::{Error, Result};
use cotangent_macros::named;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file with a JSON object on each line: `{"step":3,"loss":0.5}`. Numbers that are not finite are the strings `"NaN"`,
/// `"Infinity"` and `"-Infinity"`.
///
/// ```
/// use cotangent::train::{JsonlLog, Log};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-jsonl-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("log.jsonl");
/// let mut log = JsonlLog::create(&path)?;
/// log.log(1, &[("loss", 0.5), ("accuracy", f64::NAN)])?;
/// log.flush()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "{\"step\":1,\"loss\":0.5,\"accuracy\":\"NaN\"}\n");
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonlLog {
    path: PathBuf,
    file: BufWriter<File>,
}

impl JsonlLog {
    /// Creates a file, and replaces an existing one.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("JsonlLog::create")]
    pub fn create(path: impl AsRef<Path>) -> Result<JsonlLog> {
        let path = path.as_ref().to_path_buf();
        let file = File::create(&path).map_err(|error| Error::io("JsonlLog::create", &path, error))?;
        Ok(JsonlLog { path, file: BufWriter::new(file) })
    }

    /// Opens the file of an earlier run to append to it, or creates one.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("JsonlLog::append")]
    pub fn append(path: impl AsRef<Path>) -> Result<JsonlLog> {
        let path = path.as_ref().to_path_buf();
        let open = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
            let mut last = [b'\n'];
            if file.seek(SeekFrom::End(0))? > 0 {
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
            }
            if last != [b'\n'] {
                // The incomplete last line of a run that was killed.
                file.write_all(b"\n")?;
            }
            Ok(file)
        };
        let file = open().map_err(|error| Error::io("JsonlLog::append", &path, error))?;
        Ok(JsonlLog { path, file: BufWriter::new(file) })
    }
}

impl Log for JsonlLog {
    #[named("JsonlLog::log")]
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        const OP: &str = "JsonlLog::log";
        check_names(OP, values, &["step"])?;
        let mut line = format!("{{\"step\":{step}");
        for (name, value) in values {
            line.push(',');
            line.push_str(&string(name));
            line.push(':');
            line.push_str(&number(*value));
        }
        line.push_str("}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| Error::io(OP, &self.path, error))
    }

    #[named("JsonlLog::flush")]
    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| Error::io("JsonlLog::flush", &self.path, error))
    }
}

/// A JSON string.
pub(crate) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "\"NaN\"".into(),
        f64::INFINITY => "\"Infinity\"".into(),
        f64::NEG_INFINITY => "\"-Infinity\"".into(),
        _ => format!("{value:?}"),
    }
}
