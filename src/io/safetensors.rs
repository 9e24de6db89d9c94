//! The safetensors format: a header in JSON (name, dtype, shape and place of each tensor), then the bytes of the tensors.
//!
//! ```
//! use cotangent::io::{StateDict, safetensors};
//! use cotangent::tensor;
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("values.safetensors");
//! let dict: StateDict = [("x", tensor!([1.0, 2.0])?)].into_iter().collect();
//! safetensors::save(&path, &dict)?;
//! let loaded = safetensors::load(&path)?;
//! assert_eq!(loaded.get("x").map(|x| x.to_vec::<f32>()).transpose()?, Some(vec![1.0, 2.0]));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::StateDict;
use super::replace::replace;
use crate::backend::cpu::runtime::{bytes, scratch};
use crate::error::{bail, err, named};
use crate::layout::checked_bytes;
use crate::{DType, Device, Error, Result, Shape, Tensor};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

const SAVE: &str = "safetensors::save";
const LOAD: &str = "safetensors::load";

/// The name under which the format keeps its notes, and which is therefore no tensor's.
const NOTES: &str = "__metadata__";

/// The longest header that readers of the format take.
const LONGEST_HEADER: u64 = 100_000_000;

/// Text that is saved beside the tensors.
pub type Notes = BTreeMap<String, String>;

/// Saves tensors, so that the file at `path` is at any time the old or the new one: they are written to a temporary file
/// beside it, which takes its place when all of it is on the disk. A symbolic link stays and the file it leads to is
/// replaced. On Unix the new file has the mode of the old one.
///
/// The temporary file has the name `.cotangent-` and 16 random digits. If saving fails it is removed; if the process is
/// killed meanwhile it stays, and may be removed by hand.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// let dict = StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]);
/// safetensors::save(&path, &dict)?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a tensor has the name `__metadata__`, which the format keeps for itself, or the file cannot be written; the old one is
/// then as it was.
#[track_caller]
pub fn save(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    named(SAVE, write(path.as_ref(), dict, &Notes::new()))
}

/// As [`save`], with text beside the tensors (the format's `__metadata__`).
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-notes-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// let dict = StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]);
/// let notes = [("epoch".to_string(), "3".to_string())].into_iter().collect();
/// safetensors::save_with_notes(&path, &dict, &notes)?;
/// assert_eq!(safetensors::load_with_notes(&path)?.1, notes);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`save`].
#[track_caller]
pub fn save_with_notes(path: impl AsRef<Path>, dict: &StateDict, notes: &Notes) -> Result<()> {
    named("safetensors::save_with_notes", write(path.as_ref(), dict, notes))
}

fn write(path: &Path, dict: &StateDict, notes: &Notes) -> Result<()> {
    if dict.get(NOTES).is_some() {
        bail!(Format, SAVE, "{}: no tensor can have the name {NOTES}, which the format uses itself", path.display());
    }
    // Wide elements first, so that all of them lie aligned.
    let mut tensors = dict
        .iter()
        .map(|(name, tensor)| Ok((name, tensor.detach().contiguous()?.to_device(Device::Cpu)?)))
        .collect::<Result<Vec<_>>>()?;
    tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
    let mut end = 0;
    let place = |(name, tensor): &(&str, Tensor)| {
        let start = end;
        end += tensor.numel() * tensor.dtype().size();
        let Some(dtype) = to_file(tensor.dtype()) else {
            let error = err!(Format, SAVE, "the format has no {}: save the parts, or cast to c64", tensor.dtype());
            return Err(within(error, path, name));
        };
        Ok((name.to_string(), TensorInfo { dtype, shape: tensor.shape().to_vec(), data_offsets: (start, end) }))
    };
    let infos = tensors.iter().map(place).collect::<Result<_>>()?;
    let notes = (!notes.is_empty()).then(|| notes.clone().into_iter().collect());
    let header = Metadata::new(notes, infos).map_err(|error| malformed(SAVE, path, &error))?;
    let mut header = serde_json::to_vec(&header).map_err(|error| malformed(SAVE, path, &error))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = header.len() as u64;
    if length > LONGEST_HEADER {
        let path = path.display();
        bail!(
            Format,
            SAVE,
            "{path}: the names make a header of {length} bytes, and no more than {LONGEST_HEADER} can be read"
        );
    }
    let views = tensors.iter().map(|(_, tensor)| tensor.as_raw_view()).collect::<Result<Vec<_>>>()?;
    replace(path, |file| {
        file.write_all(&length.to_le_bytes())?;
        file.write_all(&header)?;
        views.iter().try_for_each(|&view| file.write_all(bytes::as_bytes(view).unwrap_or_default()))
    })
    .map_err(|source| failed(SAVE, path, source))
}

/// Loads all tensors of a file into memory of their own, in the order in which they lie there.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-load-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]))?;
/// assert_eq!(safetensors::load(&path)?.names().collect::<Vec<_>>(), ["x"]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is not of this format, or holds a dtype that there is none of here.
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    named(LOAD, read(path.as_ref()).map(|(dict, _)| dict))
}

/// As [`load`], with the text beside the tensors.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-loadnotes-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]))?;
/// let (dict, notes) = safetensors::load_with_notes(&path)?;
/// assert!(dict.len() == 1 && notes.is_empty());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`].
#[track_caller]
pub fn load_with_notes(path: impl AsRef<Path>) -> Result<(StateDict, Notes)> {
    named("safetensors::load_with_notes", read(path.as_ref()))
}

fn read(path: &Path) -> Result<(StateDict, Notes)> {
    let mut file = File::open(path).map_err(|source| failed(LOAD, path, source))?;
    let header = Header::read(&mut file, path)?;
    let tensors = header.entries.into_iter().map(|Entry { name, shape, dtype, .. }| {
        // In the order of the file, without gaps: the header was checked for it.
        let read = |bytes: &mut [u8]| file.read_exact(bytes).map_err(|source| failed(LOAD, path, source));
        let tensor = bytes::from_bytes(LOAD, shape, dtype, read).map_err(|error| within(error, path, &name))?;
        Ok((name, tensor))
    });
    Ok((tensors.collect::<Result<_>>()?, header.notes))
}

/// Loads the tensors of a file without reading it: they share a mapping of it, and what is not looked at is never read.
/// A tensor that is changed gets memory of its own first, so the file is never written to. Elements that do not lie
/// aligned in the file are copied.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-mmap-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::ones([2, 3])?)]))?;
/// // SAFETY: nobody changes the file.
/// let dict = unsafe { safetensors::load_mmap(&path)? };
/// assert_eq!(dict.get("x").map(|x| x.to_vec::<f32>()).transpose()?, Some(vec![1.0; 6]));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`].
///
/// # Safety
/// Nobody may change or truncate the file as long as one of the tensors, or one that shares its bytes, lives. To put
/// another file in its place by renaming, as [`save`] does, is no change in this sense.
#[track_caller]
pub unsafe fn load_mmap(path: impl AsRef<Path>) -> Result<StateDict> {
    // SAFETY: the caller's promise.
    named("safetensors::load_mmap", unsafe { map(path.as_ref()) })
}

/// # Safety
/// As [`load_mmap`].
unsafe fn map(path: &Path) -> Result<StateDict> {
    let mut file = File::open(path).map_err(|source| failed(LOAD, path, source))?;
    let header = Header::read(&mut file, path)?;
    // SAFETY: nobody changes the file: the caller's promise.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| failed(LOAD, path, source))?;
    let map = Arc::new(map);
    let mut dict = StateDict::new();
    for Entry { name, shape, dtype, start } in header.entries {
        let at = header.bytes + start;
        // SAFETY: the caller's promise.
        let shared = unsafe { bytes::from_mapping(LOAD, &map, at, shape.clone(), dtype) };
        let tensor = match shared.map_err(|error| within(error, path, &name))? {
            Some(tensor) => tensor,
            None => bytes::from_bytes(LOAD, shape, dtype, |to| {
                to.copy_from_slice(&map[at..at + to.len()]);
                Ok(())
            })?,
        };
        dict.insert(name, tensor);
    }
    Ok(dict)
}

/// What the header says, checked.
struct Header {
    /// In the order in which their bytes lie, without gaps, up to the end of the file.
    entries: Vec<Entry>,
    notes: Notes,
    /// Where the bytes of the tensors begin.
    bytes: usize,
}

struct Entry {
    name: String,
    shape: Shape,
    dtype: DType,
    /// Counted from the end of the header.
    start: usize,
}

impl Header {
    /// Reads the header and believes nothing of it: nothing is allocated for what the file is too short for.
    fn read(file: &mut File, path: &Path) -> Result<Header> {
        let io = |source| failed(LOAD, path, source);
        let length = file.metadata().map_err(io)?.len();
        if length < 8 {
            bail!(Format, LOAD, "{}: {length} bytes are too few for a safetensors file", path.display());
        }
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(io)?;
        let size = u64::from_le_bytes(size);
        if size > length - 8 {
            bail!(Format, LOAD, "{}: a header of {size} bytes does not fit into {length} bytes", path.display());
        }
        if size > LONGEST_HEADER {
            let path = path.display();
            bail!(
                Format,
                LOAD,
                "{path}: a header of {size} bytes is longer than the {LONGEST_HEADER} bytes it may have"
            );
        }
        let mut text = scratch::filled(LOAD, 0_u8, size as usize)?;
        file.read_exact(&mut text).map_err(io)?;
        let items = serde_json::from_slice(&text);
        let mut items: BTreeMap<String, &RawValue> = items.map_err(|error| malformed(LOAD, path, &error))?;
        let notes: Option<Notes> = match items.remove(NOTES) {
            Some(notes) => serde_json::from_str(notes.get()).map_err(|error| unreadable(path, NOTES, &error))?,
            None => None,
        };
        let entries = place(items, length - 8 - size, path)?;
        Ok(Header { entries, notes: notes.unwrap_or_default(), bytes: 8 + size as usize })
    }
}

/// The tensors in the order in which they lie in so many bytes, which they must fill, each with as many as its elements take.
fn place(items: BTreeMap<String, &RawValue>, bytes: u64, path: &Path) -> Result<Vec<Entry>> {
    let mut infos: Vec<(String, TensorInfo)> = Vec::new();
    for (name, text) in items {
        let info = serde_json::from_str(text.get()).map_err(|error| unreadable(path, &name, &error))?;
        infos.push((name, info));
    }
    infos.sort_by_key(|(_, info)| info.data_offsets);
    let (mut entries, mut end) = (Vec::new(), 0);
    for (name, info) in infos {
        let (shape, dtype) = check(&info, end, bytes).map_err(|error| within(error, path, &name))?;
        entries.push(Entry { name, shape, dtype, start: end });
        end = info.data_offsets.1;
    }
    if end as u64 != bytes {
        let path = path.display();
        bail!(Format, LOAD, "{path}: {bytes} bytes follow the header, which says what {end} of them are");
    }
    Ok(entries)
}

/// Checks one tensor of the header, whose bytes must begin where those of the others end.
fn check(info: &TensorInfo, others: usize, bytes: u64) -> Result<(Shape, DType)> {
    let (start, end) = info.data_offsets;
    let Some(dtype) = from_file(info.dtype) else {
        bail!(Format, LOAD, "there is no dtype {:?}", info.dtype);
    };
    if start != others {
        bail!(Format, LOAD, "its bytes begin at {start}, those before it end at {others}");
    }
    if end < start || end as u64 > bytes {
        bail!(Format, LOAD, "its bytes are said to be {start} to {end} of {bytes}");
    }
    let shape = Shape::from(&info.shape);
    let taken = checked_bytes(LOAD, &shape, dtype.size())?;
    if taken != end - start {
        bail!(Format, LOAD, "{shape:?} elements of {dtype} take {taken} bytes, and it has {}", end - start);
    }
    Ok((shape, dtype))
}

/// An item of the header that is not of the form it should have.
fn unreadable(path: &Path, name: &str, error: &serde_json::Error) -> Error {
    within(err!(Format, LOAD, "{error}"), path, name)
}

fn malformed(op: &'static str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    err!(Format, op, "{}: {error}", path.display())
}

/// Puts the file and the tensor into a message about its bytes. Whoever wrote the file chose the name: it may be long, or
/// hold what a terminal would obey.
fn within(error: Error, path: &Path, name: &str) -> Error {
    const LONGEST: usize = 200;
    let more = if name.chars().nth(LONGEST).is_some() { "…" } else { "" };
    let name: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    error.context(format_args!("{}: {name}{more}", path.display()))
}

fn failed(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::io(op, path, source)
}

/// The format's name of a dtype; it has none for `c128`.
fn to_file(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::C64 => Dtype::C64,
        DType::C128 => return None,
    })
}

fn from_file(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|own| to_file(*own) == Some(dtype))
}
