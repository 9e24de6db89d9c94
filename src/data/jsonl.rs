//! JSON Lines files.

use super::{Dataset, Items, files};
use crate::error::err;
use crate::{Error, Result};
use cotangent_macros::named;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::BufRead;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

const OP: &str = "Jsonl::open";

/// A file with a JSON value on each line, gzipped or not. The text is held in memory, and a line is parsed when it is read.
/// Empty lines are skipped. The items are JSON values, or of any type that serde deserializes.
///
/// ```
/// use cotangent::data::{Dataset, Jsonl};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-jsonl-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("texts.jsonl");
/// std::fs::write(&path, "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\", \"label\": 0}\n")?;
/// let reviews: Jsonl = Jsonl::open(&path)?;
/// assert_eq!((reviews.len(), reviews.get_item(1)?["text"].as_str()), (2, Some("bad")));
/// let typed: Jsonl<std::collections::HashMap<String, serde_json::Value>> = Jsonl::open(&path)?;
/// assert_eq!(typed.get_item(0)?["label"], 1);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Jsonl<T = Value> {
    path: PathBuf,
    text: Vec<u8>,
    /// The line number (from 1), start and end of each value.
    lines: Vec<(usize, usize, usize)>,
    item: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Jsonl<T> {
    /// Reads a file. Its lines are parsed later, when items are read.
    ///
    /// # Errors
    /// If the file cannot be read.
    #[named("Jsonl::open")]
    pub fn open(path: impl AsRef<Path>) -> Result<Jsonl<T>> {
        let path = path.as_ref().to_path_buf();
        let text = files::read_all(OP, &path)?;
        let mut lines = Vec::new();
        let mut start = 0;
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                lines.push((number + 1, start, start + line.len()));
            }
            start += line.len() + 1;
        }
        Ok(Jsonl { path, text, lines, item: PhantomData })
    }

    /// Streams the values of a file that is too large for memory: an [`IterableDataset`](super::IterableDataset).
    ///
    /// ```no_run
    /// use cotangent::data::{DataLoader, IterableDataset, Jsonl};
    /// let lines = Jsonl::<serde_json::Value>::stream("crawl.jsonl.gz").shuffle_buffer(10_000);
    /// let loader = DataLoader::iterable(lines, 32)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn stream(path: impl Into<PathBuf>) -> JsonlStream<T> {
        JsonlStream { path: path.into(), item: PhantomData }
    }
}

fn parse<T: DeserializeOwned>(path: &Path, line: usize, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|e| err!(Format, "Jsonl", "{}, line {line}: {e}", path.display()))
}

impl<T: DeserializeOwned> Dataset for Jsonl<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.lines.len()
    }

    fn get_item(&self, index: usize) -> Result<T> {
        let out = || err!(Index, "get_item", "index {index} is out of range for {} items", self.lines.len());
        let &(line, start, end) = self.lines.get(index).ok_or_else(out)?;
        parse(&self.path, line, &self.text[start..end])
    }
}

/// The dataset returned by [`Jsonl::stream`].
#[derive(Clone, Debug)]
pub struct JsonlStream<T = Value> {
    path: PathBuf,
    item: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + 'static> super::IterableDataset for JsonlStream<T> {
    type Item = T;

    fn iter(&self) -> Result<Items<T>> {
        let path = self.path.clone();
        let mut reader = files::open("Jsonl::stream", &path)?.reader;
        let (mut text, mut line) = (Vec::new(), 0);
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                text.clear();
                line += 1;
                match reader.read_until(b'\n', &mut text) {
                    Ok(0) => return None,
                    Ok(_) if text.trim_ascii().is_empty() => {}
                    Ok(_) => return Some(parse(&path, line, &text)),
                    Err(e) => return Some(Err(Error::io("Jsonl::stream", &path, e))),
                }
            }
        })))
    }
}
