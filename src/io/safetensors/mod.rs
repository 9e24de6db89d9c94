//! The safetensors format: a header in JSON (name, dtype, shape and offsets of each tensor), then the bytes of the tensors.
//!
//! The loading functions take a file, the index of a sharded model (Hugging Face's `model.safetensors.index.json`), or the
//! folder of a model with `model.safetensors` or that index.
//!
//! They return a dictionary, which [`Module::load_state_dict`](crate::nn::Module::load_state_dict) loads into a model.
//! [`nn::save`](crate::nn::save) and [`nn::load`](crate::nn::load) do both steps.
//! [`models::load_weights`](crate::models::load_weights) loads published weights.
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

mod header;
mod reader;
mod shards;

pub use reader::{Reader, open};
pub use shards::save_sharded;

use super::replace::replace;
use super::{LoadOptions, StateDict};
use crate::error::{bail, err, named};
use crate::io::bytes;
use crate::order::sort_by_key;
use crate::{Device, Result, Tensor};
use header::{Entry, failed, to_file, within};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const SAVE: &str = "safetensors::save";
const LOAD: &str = "safetensors::load";

/// The format's name for its metadata, which no tensor can have.
const METADATA: &str = "__metadata__";

/// The longest header that readers of the format accept.
const LONGEST_HEADER: u64 = 100_000_000;

/// Named texts that are saved with the tensors.
pub type Metadata = BTreeMap<String, String>;

/// Saves tensors. The file at `path` is replaced atomically: the tensors are written to a temporary file in the same folder,
/// which is renamed when it is on the disk. A symbolic link stays and its target is replaced. On Unix the new file has the
/// mode of the old one.
///
/// The temporary file has a name `.cotangent-*.tmp`. If saving fails it is removed. If the process is killed it stays, until
/// a later process that saves to the folder removes it.
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
/// If a tensor has the name `__metadata__`, which the format reserves, or the file cannot be written; the old file is then
/// unchanged.
#[track_caller]
pub fn save(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    named(SAVE, write(path.as_ref(), dict, &Metadata::new()))
}

/// As [`save`], with metadata (the format's `__metadata__`).
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-metadata-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// let dict = StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]);
/// let metadata = [("epoch".to_string(), "3".to_string())].into_iter().collect();
/// safetensors::save_with_metadata(&path, &dict, &metadata)?;
/// assert_eq!(safetensors::load_with_metadata(&path)?.1, metadata);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`save`].
#[track_caller]
pub fn save_with_metadata(path: impl AsRef<Path>, dict: &StateDict, metadata: &Metadata) -> Result<()> {
    named("safetensors::save_with_metadata", write(path.as_ref(), dict, metadata))
}

fn write(path: &Path, dict: &StateDict, metadata: &Metadata) -> Result<()> {
    if dict.get(METADATA).is_some() {
        bail!(Format, SAVE, "{}: name {METADATA} is reserved by the format", path.display());
    }
    // Wide elements first, so that all are aligned.
    let mut tensors = dict
        .iter()
        .map(|(name, tensor)| Ok((name, tensor.detach().contiguous()?.to_device(Device::Cpu)?)))
        .collect::<Result<Vec<_>>>()?;
    sort_by_key(&mut tensors, |(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
    let mut end = 0;
    let position = |(name, tensor): &(&str, Tensor)| {
        let start = end;
        end += tensor.numel() * tensor.dtype().size();
        if to_file(tensor.dtype()).is_none() {
            let error = err!(
                Format,
                SAVE,
                "safetensors has no dtype {}: save the real and imaginary parts, or cast to c64",
                tensor.dtype()
            );
            return Err(within(error, path, name));
        }
        Ok(Entry { name: name.to_string(), shape: tensor.layout().shape().clone(), dtype: tensor.dtype(), start })
    };
    let entries = tensors.iter().map(position).collect::<Result<Vec<_>>>()?;
    let mut header = header::text(metadata, &entries).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = header.len() as u64;
    if length > LONGEST_HEADER {
        let path = path.display();
        bail!(Format, SAVE, "{path}: header must have at most {LONGEST_HEADER} bytes, got {length}: shorten the names");
    }
    let views = tensors.iter().map(|(_, tensor)| tensor.as_raw_view()).collect::<Result<Vec<_>>>()?;
    replace(path, |file| {
        file.write_all(&length.to_le_bytes())?;
        file.write_all(&header)?;
        views.iter().try_for_each(|&view| file.write_all(bytes::as_bytes(view).unwrap_or_default()))
    })
    .map_err(|source| failed(SAVE, path, source))
}

/// Loads all tensors of a file into memory, in the order of their bytes.
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
/// If a file cannot be read, is not of this format, or has an unsupported dtype.
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    named(LOAD, read(path.as_ref(), &LoadOptions::new()).map(|(dict, _)| dict))
}

/// As [`load`], with options: only some names, other names, another dtype, another device.
///
/// ```
/// use cotangent::{DType, Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-loadwith-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::zeros_with([2, 3], DType::F16)?)]))?;
/// let dict = safetensors::load_with(&path, DType::F32)?;
/// assert_eq!(dict.get("x").map(|x| x.dtype()), Some(DType::F32));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`]; also if a requested name is missing, or renaming gives two tensors one name.
#[track_caller]
pub fn load_with(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<StateDict> {
    named("safetensors::load_with", read(path.as_ref(), &options.into()).map(|(dict, _)| dict))
}

/// As [`load`], with the metadata.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-loadmetadata-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::zeros([2, 3])?)]))?;
/// let (dict, metadata) = safetensors::load_with_metadata(&path)?;
/// assert!(dict.len() == 1 && metadata.is_empty());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`].
#[track_caller]
pub fn load_with_metadata(path: impl AsRef<Path>) -> Result<(StateDict, Metadata)> {
    named("safetensors::load_with_metadata", read(path.as_ref(), &LoadOptions::new()))
}

fn read(path: &Path, options: &LoadOptions) -> Result<(StateDict, Metadata)> {
    let reader = Reader::new(path)?;
    Ok((reader.read(options)?, reader.metadata().clone()))
}

/// Loads the tensors of a file by mapping it into memory: pages are read on access. A tensor that is changed is copied first,
/// so the file is never written to. Elements that are not aligned in the file are copied.
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
/// The file must not be changed or truncated while one of the tensors, or one that shares its bytes, lives. Replacing the
/// file by renaming, as [`save`] does, is allowed.
#[track_caller]
pub unsafe fn load_mmap(path: impl AsRef<Path>) -> Result<StateDict> {
    // SAFETY: the caller's promise.
    named("safetensors::load_mmap", unsafe { reader::map(path.as_ref(), &LoadOptions::new()) })
}

/// As [`load_mmap`], with options. Tensors that are cast or moved to another device are copied.
///
/// ```
/// use cotangent::{Tensor, io::{LoadOptions, StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-mmap-with-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("values.safetensors");
/// safetensors::save(&path, &StateDict::from_iter([("x", Tensor::ones([2])?), ("y", Tensor::ones([3])?)]))?;
/// // SAFETY: nobody changes the file.
/// let dict = unsafe { safetensors::load_mmap_with(&path, LoadOptions::new().names(["y"]))? };
/// assert_eq!(dict.names().collect::<Vec<_>>(), ["y"]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load_with`].
///
/// # Safety
/// As [`load_mmap`].
#[track_caller]
pub unsafe fn load_mmap_with(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<StateDict> {
    // SAFETY: the caller's promise.
    named("safetensors::load_mmap_with", unsafe { reader::map(path.as_ref(), &options.into()) })
}
