//! Logs as CSV files.

use super::Log;
use crate::error::bail;
use crate::{Error, Result};
use cotangent_macros::named;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A CSV file with a row for each logged step and a column for each name, the first of them `step`. Later names get new
/// columns, which are empty in the rows before.
///
/// ```
/// use cotangent::train::{CsvLog, Log};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-csv-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("log.csv");
/// let mut log = CsvLog::create(&path)?;
/// log.log(1, &[("loss", 0.5)])?;
/// log.log(2, &[("loss", 0.25), ("accuracy", 0.9)])?;
/// log.flush()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "step,loss,accuracy\n1,0.5,\n2,0.25,0.9\n");
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: BufWriter<File>,
    columns: Vec<String>,
}

const FIRST: &str = "step";

impl CsvLog {
    /// Creates a file, and replaces an existing one.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("CsvLog::create")]
    pub fn create(path: impl AsRef<Path>) -> Result<CsvLog> {
        const OP: &str = "CsvLog::create";
        let path = path.as_ref().to_path_buf();
        let file = File::create(&path).map_err(|error| Error::io(OP, &path, error))?;
        let mut log = CsvLog { path, file: BufWriter::new(file), columns: vec![FIRST.into()] };
        log.write_head().map_err(|error| Error::io(OP, &log.path, error))?;
        Ok(log)
    }

    /// Opens the file of an earlier run to append to it, or creates one.
    ///
    /// # Errors
    /// If it cannot be read or written, or is not such a log.
    #[named("CsvLog::append")]
    pub fn append(path: impl AsRef<Path>) -> Result<CsvLog> {
        const OP: &str = "CsvLog::append";
        let path = path.as_ref();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return CsvLog::create(path),
            Err(error) => return Err(Error::io(OP, path, error)),
        };
        let columns = first_record(&text).unwrap_or_default();
        if columns.first().map(String::as_str) != Some(FIRST) {
            bail!(Format, OP, "{}: first column must be `{FIRST}`", path.display());
        }
        let open = || OpenOptions::new().append(true).open(path);
        let mut file = BufWriter::new(open().map_err(|error| Error::io(OP, path, error))?);
        if !text.ends_with('\n') {
            // The incomplete last row of a run that was killed.
            file.write_all(b"\n").map_err(|error| Error::io(OP, path, error))?;
        }
        Ok(CsvLog { path: path.to_path_buf(), file, columns })
    }

    fn write_head(&mut self) -> std::io::Result<()> {
        let head: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        writeln!(self.file, "{}", head.join(","))?;
        self.file.flush()
    }

    /// Adds columns to the file, with empty fields in the existing rows.
    fn widen(&mut self, more: &[&str]) -> std::io::Result<()> {
        self.file.flush()?;
        let text = fs::read_to_string(&self.path)?;
        let rows = text.get(first_record_end(&text)..).unwrap_or_default();
        self.columns.extend(more.iter().map(|name| (*name).to_string()));
        let head: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        let empty = ",".repeat(more.len());
        crate::io::replace_file(&self.path, |file| {
            writeln!(file, "{}", head.join(","))?;
            rows.lines().filter(|row| !row.is_empty()).try_for_each(|row| writeln!(file, "{row}{empty}"))
        })?;
        self.file = BufWriter::new(OpenOptions::new().append(true).open(&self.path)?);
        Ok(())
    }

    fn write(&mut self, step: u64, values: &[(&str, f64)]) -> std::io::Result<()> {
        let new: Vec<&str> =
            values.iter().map(|(name, _)| *name).filter(|name| !self.columns.iter().any(|old| old == name)).collect();
        if !new.is_empty() {
            self.widen(&new)?;
        }
        write!(self.file, "{step}")?;
        for column in &self.columns[1..] {
            match values.iter().find(|(name, _)| name == column) {
                Some((_, value)) => write!(self.file, ",{}", number(*value))?,
                None => write!(self.file, ",")?,
            }
        }
        writeln!(self.file)
    }
}

impl Log for CsvLog {
    #[named("CsvLog::log")]
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        const OP: &str = "CsvLog::log";
        check_names(OP, values, &[FIRST])?;
        self.write(step, values).map_err(|error| Error::io(OP, &self.path, error))
    }

    #[named("CsvLog::flush")]
    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| Error::io("CsvLog::flush", &self.path, error))
    }
}

/// Refuses repeated, reserved, empty and multi-line names.
pub(super) fn check_names(op: &'static str, values: &[(&str, f64)], reserved: &[&str]) -> Result<()> {
    for (at, (name, _)) in values.iter().enumerate() {
        if reserved.contains(name) {
            bail!(Value, op, "name `{name}` is reserved for the number of the step");
        }
        if name.is_empty() || name.contains(['\n', '\r']) {
            bail!(Value, op, "names must not be empty or contain line breaks, got {name:?}");
        }
        if values[..at].iter().any(|(other, _)| other == name) {
            bail!(Value, op, "names must be unique in a step, got `{name}` twice");
        }
    }
    Ok(())
}

/// The shortest text that reads back as the same number.
fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "nan".into(),
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        _ => format!("{value:?}"),
    }
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_string() }
}

/// The end of the first line: names have no line breaks.
fn first_record_end(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

fn first_record(text: &str) -> Option<Vec<String>> {
    let line = text[..first_record_end(text)].trim_end_matches(['\n', '\r']);
    let (mut fields, mut field, mut inside) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if inside && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => inside = !inside,
            ',' if !inside => fields.push(std::mem::take(&mut field)),
            letter => field.push(letter),
        }
    }
    fields.push(field);
    (!inside).then_some(fields)
}
