//! The safetensors format: a header in JSON (name, dtype, shape and place of each tensor), then the bytes of the tensors.
//!
//! ```
//! use cotangent::io::{StateDict, safetensors};
//! use cotangent::Tensor;
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("values.safetensors");
//! let dict: StateDict = [("x", Tensor::new([1.0, 2.0])?)].into_iter().collect();
//! safetensors::save(&path, &dict)?;
//! let loaded = safetensors::load(&path)?;
//! assert_eq!(loaded.get("x").map(|x| x.to_vec::<f32>()).transpose()?, Some(vec![1.0, 2.0]));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::StateDict;
use crate::backend::cpu::runtime::bytes;
use crate::error::{bail, err};
use crate::{DType, Device, Error, Result, Shape};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SAVE: &str = "safetensors::save";
const LOAD: &str = "safetensors::load";

/// Text that is saved beside the tensors.
pub type Notes = BTreeMap<String, String>;

/// Saves tensors, so that the file at `path` is at any time the old or the new one: they are written to a temporary file
/// beside it, which takes its place when all of it is on the disk.
///
/// # Errors
/// If the file cannot be written; the old one is then as it was.
pub fn save(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    save_with_notes(path, dict, &Notes::new())
}

/// As [`save`], with text beside the tensors (the format's `__metadata__`).
///
/// # Errors
/// As [`save`].
pub fn save_with_notes(path: impl AsRef<Path>, dict: &StateDict, notes: &Notes) -> Result<()> {
    let path = path.as_ref();
    // Wide elements first, so that all of them lie aligned.
    let mut tensors = dict
        .iter()
        .map(|(name, tensor)| Ok((name, tensor.detach().contiguous()?.to_device(Device::Cpu)?)))
        .collect::<Result<Vec<_>>>()?;
    tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
    let mut end = 0;
    let place = |(name, tensor): &(&str, crate::Tensor)| {
        let start = end;
        end += tensor.numel() * tensor.dtype().size();
        (
            name.to_string(),
            TensorInfo { dtype: to_file(tensor.dtype()), shape: tensor.shape().to_vec(), data_offsets: (start, end) },
        )
    };
    let infos = tensors.iter().map(place).collect();
    let notes = (!notes.is_empty()).then(|| notes.clone().into_iter().collect());
    let header = Metadata::new(notes, infos).map_err(|error| malformed(SAVE, path, &error))?;
    let mut header = serde_json::to_vec(&header).map_err(|error| malformed(SAVE, path, &error))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let views = tensors.iter().map(|(_, tensor)| tensor.as_view()).collect::<Result<Vec<_>>>()?;
    write_whole(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        views.iter().try_for_each(|&view| file.write_all(bytes::as_bytes(view).unwrap_or_default()))
    })
    .map_err(|source| failed(SAVE, path, source))
}

/// Loads all tensors of a file into memory of their own, in the order in which they lie there.
///
/// # Errors
/// If the file cannot be read, is not of this format, or holds a dtype that there is none of here.
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    load_with_notes(path).map(|(dict, _)| dict)
}

/// As [`load`], with the text beside the tensors.
///
/// # Errors
/// As [`load`].
pub fn load_with_notes(path: impl AsRef<Path>) -> Result<(StateDict, Notes)> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|source| failed(LOAD, path, source))?;
    let header = Header::read(&mut file, path)?;
    let dict = header.tensors(path)?.into_iter().map(|(name, info, dtype)| {
        // In the order of the file, without gaps: the header was checked for it.
        let read = |bytes: &mut [u8]| file.read_exact(bytes).map_err(|source| failed(LOAD, path, source));
        let tensor =
            bytes::from_bytes(LOAD, Shape::from(&info.shape), dtype, read).map_err(|e| within(e, path, &name))?;
        Ok((name, tensor))
    });
    Ok((dict.collect::<Result<_>>()?, header.notes()))
}

/// Loads the tensors of a file without reading it: they share a mapping of it, and what is not looked at is never read.
/// A tensor that is changed gets memory of its own first, so the file is never written to. Elements that do not lie
/// aligned in the file are copied.
///
/// # Errors
/// As [`load`].
///
/// # Safety
/// Nobody may change or truncate the file as long as one of the tensors, or one that shares its bytes, lives. To put
/// another file in its place by renaming, as [`save`] does, is no change in this sense.
pub unsafe fn load_mmap(path: impl AsRef<Path>) -> Result<StateDict> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|source| failed(LOAD, path, source))?;
    let header = Header::read(&mut file, path)?;
    // SAFETY: nobody changes the file: the caller's promise.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| failed(LOAD, path, source))?;
    let map = Arc::new(map);
    let mut dict = StateDict::new();
    for (name, info, dtype) in header.tensors(path)? {
        let (shape, at) = (Shape::from(&info.shape), header.bytes + info.data_offsets.0);
        // SAFETY: the caller's promise.
        let shared = unsafe { bytes::from_mapping(LOAD, &map, at, shape.clone(), dtype) };
        let tensor = match shared.map_err(|e| within(e, path, &name))? {
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

/// The header, and where the bytes of the tensors begin.
struct Header {
    parsed: Metadata,
    bytes: usize,
}

impl Header {
    /// Reads the header and checks that the file is as long as it says.
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
        let mut text = vec![0; size as usize];
        file.read_exact(&mut text).map_err(io)?;
        let parsed: Metadata = serde_json::from_slice(&text).map_err(|error| malformed(LOAD, path, &error))?;
        let expected = 8 + size + parsed.data_len() as u64;
        if length != expected {
            bail!(Format, LOAD, "{}: {length} bytes, but its header says {expected}", path.display());
        }
        Ok(Header { parsed, bytes: 8 + size as usize })
    }

    /// The tensors in the order in which their bytes lie.
    fn tensors(&self, path: &Path) -> Result<Vec<(String, &TensorInfo, DType)>> {
        let names = self.parsed.offset_keys().into_iter();
        let found = names.filter_map(|name| self.parsed.info(&name).map(|info| (name, info)));
        found
            .map(|(name, info)| match from_file(info.dtype) {
                Some(dtype) => Ok((name, info, dtype)),
                None => bail!(Format, LOAD, "{}: {name}: there is no dtype {:?}", path.display(), info.dtype),
            })
            .collect()
    }

    fn notes(&self) -> Notes {
        self.parsed.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn malformed(op: &'static str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    err!(Format, op, "{}: {error}", path.display())
}

/// Puts the file and the tensor into a message about its bytes.
fn within(error: Error, path: &Path, name: &str) -> Error {
    match error {
        Error::Format { op, message } => err!(Format, op, "{}: {name}: {message}", path.display()),
        other => other,
    }
}

fn failed(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { op, path: path.to_path_buf(), source }
}

/// Writes a file whole or not at all.
fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    let temporary = temporary_beside(path)?;
    // Removed whatever fails; after the renaming it is no longer there.
    let cleared = RemoveOnDrop(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, &file);
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    // Before the renaming, which may otherwise reach the disk first.
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    std::mem::forget(cleared);
    sync_folder(path)
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        // The failure that leads here is the one to report.
        let _ = fs::remove_file(self.0);
    }
}

/// A name in the same folder, so that renaming does not copy, which no other call uses.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(hidden))
}

/// Brings the renaming itself to the disk.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
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
    }
}

fn from_file(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|own| to_file(*own) == dtype)
}
