//! NumPy's `.npz` files: named arrays in a zip archive.
//!
//! ```
//! use cotangent::{io::{StateDict, npz}, tensor};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-npz-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("data.npz");
//! npz::save(&path, &StateDict::from_iter([("x", tensor!([1.0, 2.0])?), ("y", tensor!([3, 4])?)]))?;
//! assert_eq!(npz::load(&path)?.names().collect::<Vec<_>>(), ["x", "y"]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

use super::load_options::printable;
use super::npy;
use super::replace::replace;
use super::zip::{Archive, Writer};
use super::{LoadOptions, StateDict};
use crate::error::{bail, named};
use crate::{Error, Result};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

const LOAD: &str = "npz::load";
/// The suffix of names in the archive.
const ENDING: &str = ".npy";

/// Loads all arrays of a file, compressed or not.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, npz}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npz-load-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("data.npz");
/// npz::save_compressed(&path, &StateDict::from_iter([("x", Tensor::zeros([1000])?)]))?;
/// assert_eq!(npz::load(&path)?.get("x").map(|x| x.numel()), Some(1000));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is broken, or has an array that holds no numbers: its name is in the message.
#[doc(alias = "np.load")]
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    named(LOAD, read(path.as_ref(), &LoadOptions::new()))
}

/// As [`load`], with options: only some names, other names, another dtype, another device.
///
/// ```
/// use cotangent::{DType, Tensor, io::{LoadOptions, StateDict, npz}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npz-with-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("data.npz");
/// npz::save(&path, &StateDict::from_iter([("x", Tensor::zeros([3])?), ("y", Tensor::zeros([4])?)]))?;
/// let dict = npz::load_with(&path, LoadOptions::new().names(["y"]).dtype(DType::F64))?;
/// assert_eq!(dict.iter().map(|(name, y)| (name, y.dtype())).collect::<Vec<_>>(), [("y", DType::F64)]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`]; also if a requested name is missing, or renaming gives two tensors one name.
#[track_caller]
pub fn load_with(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<StateDict> {
    named("npz::load_with", read(path.as_ref(), &options.into()))
}

fn read(path: &Path, options: &LoadOptions) -> Result<StateDict> {
    let file = File::open(path).map_err(|source| Error::io(LOAD, path, source))?;
    let load = || {
        let mut archive = Archive::open(LOAD, BufReader::new(file))?;
        let entries = archive.entries.clone();
        let names = entries.iter().map(|entry| entry.name.strip_suffix(ENDING).unwrap_or(&entry.name));
        let mut dict = StateDict::new();
        for (name, new) in options.choose(LOAD, names)? {
            let entry = archive.find(&format!("{name}{ENDING}")).or_else(|| archive.find(name)).cloned();
            let Some(entry) = entry else { continue };
            let array = archive.read(LOAD, &entry, true, |bytes| npy::read_array(LOAD, bytes, entry.size));
            let finished = array.and_then(|array| options.finish(array));
            dict.insert(new, finished.map_err(|error| error.context(printable(name)))?);
        }
        Ok(dict)
    };
    load().map_err(|error: Error| error.context(path.display()))
}

/// Saves tensors as arrays. The file at `path` is replaced atomically.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, npz}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npz-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// // In Python: np.load("data.npz")["x"]
/// npz::save(folder.join("data.npz"), &StateDict::from_iter([("x", Tensor::zeros([3])?)]))?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a tensor is of `bf16`, which NumPy lacks, or the file cannot be written; the old file is then unchanged.
#[doc(alias = "np.savez")]
#[track_caller]
pub fn save(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    named("npz::save", write(path.as_ref(), dict, false))
}

/// As [`save`], compressed by deflate.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, npz}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npz-compressed-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("data.npz");
/// npz::save_compressed(&path, &StateDict::from_iter([("x", Tensor::zeros([1_000_000])?)]))?;
/// assert!(std::fs::metadata(&path)?.len() < 10_000);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`save`].
#[doc(alias = "np.savez_compressed")]
#[track_caller]
pub fn save_compressed(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    named("npz::save_compressed", write(path.as_ref(), dict, true))
}

fn write(path: &Path, dict: &StateDict, deflate: bool) -> Result<()> {
    const OP: &str = "npz::save";
    let mut arrays = Vec::new();
    for (name, tensor) in dict.iter() {
        let within = |error: Error| error.context(format_args!("{}: {}", path.display(), printable(name)));
        // NumPy does not distinguish `x` from `x.npy`.
        if name.ends_with(ENDING) && dict.get(&name[..name.len() - ENDING.len()]).is_some() {
            bail!(
                Format,
                OP,
                "{}: name {} is also given without {ENDING}, which NumPy takes for the same",
                path.display(),
                printable(name)
            );
        }
        let (header, tensor) = npy::prepare(OP, tensor).map_err(within)?;
        arrays.push((format!("{name}{ENDING}"), header, tensor));
    }
    let views = arrays.iter().map(|(_, _, tensor)| tensor.as_raw_view()).collect::<Result<Vec<_>>>()?;
    replace(path, |file| {
        let mut archive = Writer::new(file, 64);
        for ((name, header, _), view) in arrays.iter().zip(views) {
            let bytes = super::bytes::as_bytes(view).unwrap_or_default();
            archive.add(name, &[header, bytes], deflate)?;
        }
        archive.finish()
    })
    .map_err(|source| Error::io(OP, path, source))
}
