//! An open file, or the open shards of a model. Tensors are read on request.

use super::header::{Entry, Header, failed, malformed, within};
use super::{LOAD, Metadata};
use crate::error::{bail, err, named};
use crate::io::bytes;
use crate::io::load_options::printable;
use crate::io::{LoadOptions, StateDict};
use crate::memory::scratch;
use crate::{DType, Result, Tensor};
use memmap2::Mmap;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Hugging Face's names for the files of a model.
pub(super) const WHOLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Opens a file, an index of several, or the folder of a model, and reads the headers. Tensors are read on request.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-open-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::ones([2, 3])?), ("y", Tensor::zeros([4])?)]))?;
/// let file = safetensors::open(&path)?;
/// assert_eq!(file.shape("x"), Some(&[2, 3][..]));
/// assert_eq!(file.tensor("y")?.numel(), 4);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a file cannot be read or is not of this format, or if an index does not fit its files.
#[doc(alias = "safe_open")]
#[track_caller]
pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
    named("safetensors::open", Reader::new(path.as_ref()))
}

/// One or several open files, returned by [`open`]. Tensors are read on request. Nothing is mapped: a file that is changed
/// meanwhile gives other values or an error.
///
/// ```
/// use cotangent::{DType, io::safetensors};
/// # let path = "tests/fixtures/io/peft_llama";
/// let file = safetensors::open(path)?;
/// for name in file.names() {
///     println!("{name}: {:?} of {:?}", file.dtype(name), file.shape(name));
/// }
/// assert_eq!(file.metadata().get("format").map(String::as_str), Some("pt"));
/// assert_eq!(file.tensor("model.norm.weight")?.shape(), [8]);
/// assert_eq!(file.load(DType::F64)?.len(), file.names().count());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    shards: Vec<Shard>,
    /// All tensors, shard by shard, in the order of their bytes.
    entries: Vec<(usize, Entry)>,
    positions: HashMap<String, usize>,
    metadata: Metadata,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: Mutex<File>,
    /// The start of the bytes of the tensors.
    bytes: usize,
}

impl Reader {
    pub(super) fn new(path: &Path) -> Result<Reader> {
        let mut reader =
            Reader { shards: Vec::new(), entries: Vec::new(), positions: HashMap::new(), metadata: Metadata::new() };
        if path.is_dir() {
            let (whole, index) = (path.join(WHOLE), path.join(INDEX));
            match (whole.is_file(), index.is_file()) {
                (true, _) => reader.add(whole)?,
                (_, true) => reader.add_index(&index)?,
                _ => bail!(Format, LOAD, "{}: folder has neither {WHOLE} nor {INDEX}", path.display()),
            }
        } else if path.extension().is_some_and(|ending| ending == "json") {
            reader.add_index(path)?;
        } else {
            reader.add(path.to_path_buf())?;
        }
        Ok(reader)
    }

    /// Adds all tensors of a file.
    fn add(&mut self, path: PathBuf) -> Result<()> {
        let mut file = File::open(&path).map_err(|source| failed(LOAD, &path, source))?;
        let header = Header::read(&mut file, &path)?;
        for entry in header.entries {
            if let Some(other) = self.positions.insert(entry.name.clone(), self.entries.len()) {
                let first = self.shards[self.entries[other].0].path.display().to_string();
                return Err(within(err!(Format, LOAD, "tensor is also in {first}"), &path, &entry.name));
            }
            self.entries.push((self.shards.len(), entry));
        }
        for (name, text) in header.metadata {
            self.metadata.entry(name).or_insert(text);
        }
        self.shards.push(Shard { path, file: Mutex::new(file), bytes: header.bytes });
        Ok(())
    }

    /// Adds the files of an index.
    fn add_index(&mut self, path: &Path) -> Result<()> {
        let weight_map = read_index(path)?;
        let mut files: Vec<&str> = weight_map.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        let folder = path.parent().unwrap_or(Path::new(""));
        for file in files {
            // An index must not lead to files elsewhere.
            let mut parts = Path::new(file).components();
            if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
                let file = printable(file);
                bail!(Format, LOAD, "{}: files must be in the folder of the index, got {file}", path.display());
            }
            self.add(folder.join(file))?;
        }
        for (name, file) in &weight_map {
            let shard = self.positions.get(name).map(|&position| &self.shards[self.entries[position].0]);
            if shard.and_then(|shard| shard.path.file_name()) != Some(file.as_ref()) {
                return Err(within(err!(Format, LOAD, "tensor is not in {}", printable(file)), path, name));
            }
        }
        Ok(())
    }

    /// The names, in the order of the tensors in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(_, entry)| entry.name.as_str())
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|(_, entry)| &entry.shape[..])
    }

    /// The dtype of a tensor in the file.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.entry(name).map(|(_, entry)| entry.dtype)
    }

    fn entry(&self, name: &str) -> Option<&(usize, Entry)> {
        self.positions.get(name).map(|&position| &self.entries[position])
    }

    /// Reads one tensor.
    ///
    /// # Errors
    /// If there is no tensor of that name, or the file cannot be read.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        const OP: &str = "Reader::tensor";
        let read = || match self.entry(name) {
            Some((shard, entry)) => self.read_entry(*shard, entry),
            None => Err(err!(Value, OP, "no tensor named {name}")),
        };
        named(OP, read())
    }

    /// Reads tensors sequentially.
    ///
    /// # Errors
    /// If a requested name is missing, renaming gives two tensors one name, or the file cannot be read.
    #[track_caller]
    pub fn load(&self, options: impl Into<LoadOptions>) -> Result<StateDict> {
        named("Reader::load", self.read(&options.into()))
    }

    pub(super) fn read(&self, options: &LoadOptions) -> Result<StateDict> {
        self.each(options, |shard, entry| self.read_entry(shard, entry))
    }

    fn each(&self, options: &LoadOptions, mut get: impl FnMut(usize, &Entry) -> Result<Tensor>) -> Result<StateDict> {
        let mut dict = StateDict::new();
        for (name, new) in options.choose(LOAD, self.names())? {
            let Some((shard, entry)) = self.entry(name) else { continue };
            let tensor = get(*shard, entry)?;
            let finished = options.finish(tensor);
            dict.insert(new, finished.map_err(|error| within(error, &self.shards[*shard].path, name))?);
        }
        Ok(dict)
    }

    fn read_entry(&self, shard: usize, entry: &Entry) -> Result<Tensor> {
        let Shard { path, file, bytes } = &self.shards[shard];
        // Every read seeks first, so the position after a panic does not matter.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |to: &mut [u8]| {
            let start = file.seek(SeekFrom::Start((bytes + entry.start) as u64));
            start.and_then(|_| file.read_exact(to)).map_err(|source| failed(LOAD, path, source))
        };
        bytes::from_bytes(LOAD, entry.shape.clone(), entry.dtype, read)
            .map_err(|error| within(error, path, &entry.name))
    }
}

/// The file of each tensor.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    /// The same limit as for a header.
    const LONGEST: u64 = super::LONGEST_HEADER;
    let io = |source| failed(LOAD, path, source);
    let mut file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    if length > LONGEST {
        bail!(Format, LOAD, "{}: index must have at most {LONGEST} bytes, got {length}", path.display());
    }
    let mut text = scratch::filled(LOAD, 0_u8, length as usize)?;
    file.read_exact(&mut text).map_err(io)?;
    let index: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&text).map_err(|error| malformed(LOAD, path, &error))?;
    let Some(serde_json::Value::Object(weight_map)) = index.get("weight_map") else {
        bail!(Format, LOAD, "{}: not an index: it has no weight_map", path.display());
    };
    let mut files = BTreeMap::new();
    for (name, file) in weight_map {
        let Some(file) = file.as_str() else {
            return Err(within(err!(Format, LOAD, "name of the file must be text"), path, name));
        };
        files.insert(name.clone(), file.to_string());
    }
    Ok(files)
}

/// # Safety
/// As [`load_mmap`](super::load_mmap).
pub(super) unsafe fn map(path: &Path, options: &LoadOptions) -> Result<StateDict> {
    let reader = Reader::new(path)?;
    let mut maps: Vec<Option<Arc<Mmap>>> = reader.shards.iter().map(|_| None).collect();
    reader.each(options, |shard, entry| {
        if !options.keeps_bytes(entry.dtype) {
            return reader.read_entry(shard, entry);
        }
        let Shard { path, file, bytes } = &reader.shards[shard];
        let map = match &maps[shard] {
            Some(map) => map.clone(),
            None => {
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: nobody changes the file: the caller's promise.
                let map = unsafe { Mmap::map(&*file) }.map_err(|source| failed(LOAD, path, source))?;
                maps[shard].insert(Arc::new(map)).clone()
            }
        };
        // SAFETY: the caller's promise.
        let shared = unsafe { bytes::from_mapping(LOAD, &map, bytes + entry.start, entry.shape.clone(), entry.dtype) };
        match shared.map_err(|error| within(error, path, &entry.name))? {
            Some(tensor) => Ok(tensor),
            // The elements are not aligned.
            None => reader.read_entry(shard, entry),
        }
    })
}
