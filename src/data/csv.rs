//! Tables of comma-separated values.

use super::files;
use crate::error::{bail, err};
use crate::{Error, Result, Tensor};
use cotangent_macros::named;
use std::fmt::{self, Display};
use std::path::Path;
use std::str::FromStr;

const OP: &str = "Csv::open";

/// The options of [`Csv::open_with`] and [`Csv::parse`].
///
/// ```
/// use cotangent::data::{Csv, CsvOptions};
/// let table = Csv::parse("1;2\n3;?\n", CsvOptions::new().delimiter(b';').header(false).missing(["?"]))?;
/// let x = table.numbers([0, 1])?.to_vec::<f32>()?;
/// assert!(x[..3] == [1.0, 2.0, 3.0] && x[3].is_nan());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CsvOptions {
    delimiter: u8,
    header: bool,
    comment: Option<u8>,
    missing: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        CsvOptions { delimiter: b',', header: true, comment: None, missing: Vec::new() }
    }
}

impl CsvOptions {
    /// All options at their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The separator of cells. Unless set: `b','`.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Whether the first line has the names of the columns. Unless set: `true`.
    pub fn header(mut self, header: bool) -> Self {
        self.header = header;
        self
    }

    /// The first byte of comment lines, which are skipped. Unless set: no comments.
    pub fn comment(mut self, comment: impl Into<Option<u8>>) -> Self {
        self.comment = comment.into();
        self
    }

    /// Cells that mark a missing number: they become NaN in [`Csv::numbers`]. Unless set, they are errors.
    pub fn missing(mut self, missing: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.missing = missing.into_iter().map(Into::into).collect();
        self
    }
}

/// A table from a CSV file, whose columns convert to tensors:
///
/// ```
/// use cotangent::data::{Csv, CsvOptions, DataLoader};
/// let text = "length,width,kind\n5.1,3.5,setosa\n6.2,2.9,virginica\n4.9,3.0,setosa\n";
/// let table = Csv::parse(text, CsvOptions::new())?;
/// let (kinds, names) = table.categories("kind")?;
/// assert_eq!((names, kinds.to_vec::<i64>()?), (vec!["setosa".to_string(), "virginica".to_string()], vec![0, 1, 0]));
/// let loader = DataLoader::new((table.numbers(["length", "width"])?, kinds), 2)?;
/// # assert_eq!(loader.len(), Some(2));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Csv {
    from: String,
    names: Vec<String>,
    missing: Vec<String>,
    /// The rows with their line numbers.
    rows: Vec<(usize, csv::StringRecord)>,
    columns: usize,
}

/// A column, by name or by index from 0.
///
/// ```
/// use cotangent::data::CsvColumn;
/// assert_eq!(CsvColumn::from("age").to_string(), "column \"age\"");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvColumn<'a> {
    /// The column of this name in the header.
    Name(&'a str),
    /// The column at this index.
    Number(usize),
}

impl<'a> From<&'a str> for CsvColumn<'a> {
    fn from(name: &'a str) -> Self {
        CsvColumn::Name(name)
    }
}

impl<'a> From<&'a String> for CsvColumn<'a> {
    fn from(name: &'a String) -> Self {
        CsvColumn::Name(name)
    }
}

impl From<usize> for CsvColumn<'_> {
    fn from(number: usize) -> Self {
        CsvColumn::Number(number)
    }
}

impl Display for CsvColumn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CsvColumn::Name(name) => write!(f, "column {name:?}"),
            CsvColumn::Number(number) => write!(f, "column {number}"),
        }
    }
}

impl Csv {
    /// Reads a file, gzipped or not, whose first line has the names of the columns.
    ///
    /// # Errors
    /// If the file cannot be read, or a line has more or fewer cells than the first; the error says which.
    #[named("Csv::open")]
    pub fn open(path: impl AsRef<Path>) -> Result<Csv> {
        Csv::open_with(path, CsvOptions::new())
    }

    /// As [`open`](Self::open), with options: another delimiter, no header and others.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[named("Csv::open")]
    pub fn open_with(path: impl AsRef<Path>, options: impl Into<CsvOptions>) -> Result<Csv> {
        let path = path.as_ref();
        read(&files::read_all(OP, path)?, &options.into(), path.display().to_string())
    }

    /// Parses a table from text.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[named("Csv::parse")]
    pub fn parse(text: &str, options: impl Into<CsvOptions>) -> Result<Csv> {
        read(text.as_bytes(), &options.into(), "the text".to_string())
    }

    /// The names of the columns, empty without a header.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of rows, without the header.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A column with each cell parsed as a `T`.
    ///
    /// ```
    /// use cotangent::data::{Csv, CsvOptions};
    /// let table = Csv::parse("name,age\nAda,36\nAlan,41\n", CsvOptions::new())?;
    /// assert_eq!(table.column::<u32>("age")?, [36, 41]);
    /// assert_eq!(table.column::<String>(0)?, ["Ada", "Alan"]);
    /// let error = table.column::<u32>("name").err().map(|e| e.message());
    /// assert_eq!(error.as_deref(), Some("the text, line 2, column \"name\": \"Ada\": invalid digit found in string"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such column, or a cell does not parse; the error names the line.
    #[named("Csv::column")]
    pub fn column<'a, T: FromStr<Err: Display>>(&self, column: impl Into<CsvColumn<'a>>) -> Result<Vec<T>> {
        let column = column.into();
        let at = self.find(column)?;
        let cells = self.rows.iter().map(|(line, row)| {
            let cell = row.get(at).unwrap_or("");
            cell.parse().map_err(|e| self.wrong(*line, column, cell, &e))
        });
        cells.collect()
    }

    /// A column of integers: `[rows]`, as `i64`.
    ///
    /// # Errors
    /// As [`column`](Self::column).
    #[named("Csv::integers")]
    pub fn integers<'a>(&self, column: impl Into<CsvColumn<'a>>) -> Result<Tensor> {
        let column = column.into();
        let at = self.find(column)?;
        let cells = self.rows.iter().map(|(line, row)| {
            let cell = row.get(at).unwrap_or("");
            cell.trim().parse().map_err(|e| self.wrong(*line, column, cell, &e))
        });
        Tensor::from_vec(cells.collect::<Result<Vec<i64>>>()?, [self.len()])
    }

    /// Columns of numbers: `[rows, columns]`, as `f32`.
    ///
    /// # Errors
    /// As [`column`](Self::column). Declare cells that mark missing numbers with [`CsvOptions::missing`].
    #[named("Csv::numbers")]
    pub fn numbers<'a>(&self, columns: impl IntoIterator<Item = impl Into<CsvColumn<'a>>>) -> Result<Tensor> {
        let columns = columns.into_iter().map(Into::into).map(|column| Ok((column, self.find(column)?)));
        let columns: Vec<(CsvColumn, usize)> = columns.collect::<Result<_>>()?;
        let mut numbers = Vec::with_capacity(self.len() * columns.len());
        for (line, row) in &self.rows {
            for &(column, at) in &columns {
                numbers.push(self.number(*line, column, row.get(at).unwrap_or(""))?);
            }
        }
        Tensor::from_vec(numbers, [self.len(), columns.len()])
    }

    fn number(&self, line: usize, column: CsvColumn<'_>, cell: &str) -> Result<f32> {
        let cell = cell.trim();
        if self.missing.iter().any(|missing| missing == cell) {
            return Ok(f32::NAN);
        }
        cell.parse().map_err(|e| self.wrong(line, column, cell, &e))
    }

    /// A column of categories: the category index of each row, `[rows]` as `i64`, and the sorted category names.
    ///
    /// # Errors
    /// If there is no such column.
    #[named("Csv::categories")]
    pub fn categories<'a>(&self, column: impl Into<CsvColumn<'a>>) -> Result<(Tensor, Vec<String>)> {
        let at = self.find(column.into())?;
        let cells = || self.rows.iter().map(|(_, row)| row.get(at).unwrap_or(""));
        let mut words: Vec<&str> = cells().collect();
        words.sort_unstable();
        words.dedup();
        let numbers: Vec<i64> = cells().map(|cell| words.partition_point(|&word| word < cell) as i64).collect();
        Ok((Tensor::from_vec(numbers, [self.len()])?, words.into_iter().map(str::to_string).collect()))
    }

    fn find(&self, column: CsvColumn<'_>) -> Result<usize> {
        match column {
            CsvColumn::Number(number) if number < self.columns => Ok(number),
            CsvColumn::Number(number) => {
                bail!(Index, "Csv", "{}: column {number} is out of range for {} columns", self.from, self.columns)
            }
            CsvColumn::Name(name) => {
                let mut found = (0..self.names.len()).filter(|&at| self.names[at] == name);
                match (found.next(), found.next()) {
                    (Some(at), None) => Ok(at),
                    (Some(at), Some(_)) => {
                        bail!(
                            Value,
                            "Csv",
                            "{}: several columns are named {name:?}: use its number, the first is {at}",
                            self.from
                        )
                    }
                    (None, _) => bail!(
                        Value,
                        "Csv",
                        "{}: no column is named {name:?}, the names are {:?}",
                        self.from,
                        self.names
                    ),
                }
            }
        }
    }

    fn wrong(&self, line: usize, column: CsvColumn<'_>, cell: &str, why: &dyn Display) -> Error {
        err!(Format, "Csv", "{}, line {line}, {column}: {cell:?}: {why}", self.from)
    }
}

fn read(text: &[u8], options: &CsvOptions, from: String) -> Result<Csv> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(options.delimiter)
        .has_headers(options.header)
        .comment(options.comment)
        .from_reader(text);
    let mut lines = Lines { text, comment: options.comment, at: 0, line: 1 };
    let mut names = Vec::new();
    if options.header {
        let header = reader.headers().map_err(|e| err!(Format, OP, "{from}: {}", said(&e, &mut lines)))?;
        names = header.iter().map(str::to_string).collect();
    }
    let mut rows = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|e| err!(Format, OP, "{from}: {}", said(&e, &mut lines)))?;
        rows.push((row.position().map_or(0, |position| lines.of(position)), row));
    }
    let columns = if options.header { names.len() } else { rows.first().map_or(0, |(_, row)| row.len()) };
    Ok(Csv { from, names, missing: options.missing.clone(), rows, columns })
}

/// The line numbers of rows, which must be queried in order. The reader's own position of a row lies before the empty lines
/// and comments that precede it.
struct Lines<'a> {
    text: &'a [u8],
    comment: Option<u8>,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, position: &csv::Position) -> usize {
        let mut start = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(self.text.len());
        while let Some(&byte) = self.text.get(start) {
            match byte {
                b'\n' | b'\r' => start += 1,
                _ if Some(byte) == self.comment => {
                    start +=
                        self.text[start..].iter().position(|&byte| byte == b'\n').unwrap_or(self.text.len() - start);
                }
                _ => break,
            }
        }
        self.line += self.text[self.at.min(start)..start].iter().filter(|&&byte| byte == b'\n').count();
        self.at = start;
        self.line
    }
}

/// An error of the reader, with the line first.
fn said(error: &csv::Error, lines: &mut Lines<'_>) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos: Some(pos), expected_len, len } => {
            format!("line {}: expected {expected_len} cells, as in the first line, got {len}", lines.of(pos))
        }
        csv::ErrorKind::Utf8 { pos: Some(pos), err } => {
            format!("line {}, column {}: {err}", lines.of(pos), err.field())
        }
        _ => error.to_string(),
    }
}
