//! Writes files that `torch.load` reads, also with `weights_only=True`.
#![forbid(unsafe_code)]

use super::pickle::DTYPES;
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::io::bytes;
use crate::io::replace::replace;
use crate::io::zip::Writer;
use crate::{Device, Error, Result, Tensor};
use std::path::Path;

const SAVE: &str = "pytorch::save";

/// Saves tensors as a dictionary that `torch.load` reads. The file at `path` is replaced atomically. Names are kept: dots do
/// not make nested dictionaries.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, pytorch}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-pt-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// // In Python: model.load_state_dict(torch.load("model.pt"))
/// pytorch::save(folder.join("model.pt"), &StateDict::from_iter([("fc.weight", Tensor::zeros([3, 2])?)]))?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be written; the old file is then unchanged.
#[doc(alias = "torch.save")]
#[track_caller]
pub fn save(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    named(SAVE, write(path.as_ref(), dict))
}

fn write(path: &Path, dict: &StateDict) -> Result<()> {
    let tensors = dict
        .iter()
        .map(|(name, tensor)| Ok((name, tensor.detach().contiguous()?.to_device(Device::Cpu)?)))
        .collect::<Result<Vec<_>>>()?;
    let mut pickle = PickleWriter(b"\x80\x02".to_vec());
    pickle.global("collections", "OrderedDict");
    pickle.0.extend(b")R(");
    for (at, (name, tensor)) in tensors.iter().enumerate() {
        if u32::try_from(name.len()).is_err() {
            bail!(Format, SAVE, "{}: names must have fewer than 2^32 bytes, got {}", path.display(), name.len());
        }
        pickle.text(name);
        pickle.tensor(tensor, &at.to_string());
    }
    pickle.0.extend(b"u.");
    let views = tensors.iter().map(|(_, tensor)| tensor.as_raw_view()).collect::<Result<Vec<_>>>()?;
    replace(path, |file| {
        let mut archive = Writer::new(file, 64);
        archive.add("archive/data.pkl", &[&pickle.0], false)?;
        archive.add("archive/byteorder", &[b"little"], false)?;
        for (at, view) in views.iter().enumerate() {
            archive.add(&format!("archive/data/{at}"), &[bytes::as_bytes(*view).unwrap_or_default()], false)?;
        }
        archive.add("archive/version", &[b"3\n"], false)?;
        archive.finish()
    })
    .map_err(|source| Error::io(SAVE, path, source))
}

/// Instructions of a pickle of protocol 2.
struct PickleWriter(Vec<u8>);

impl PickleWriter {
    fn global(&mut self, module: &str, name: &str) {
        self.0.push(b'c');
        self.0.extend(module.as_bytes());
        self.0.push(b'\n');
        self.0.extend(name.as_bytes());
        self.0.push(b'\n');
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn int(&mut self, value: usize) {
        match i32::try_from(value) {
            Ok(value) => {
                self.0.push(b'J');
                self.0.extend(value.to_le_bytes());
            }
            Err(_) => {
                // Nine bytes, so that the sign bit is 0.
                self.0.extend([0x8a, 9]);
                self.0.extend((value as u64).to_le_bytes());
                self.0.push(0);
            }
        }
    }

    fn sizes(&mut self, sizes: impl IntoIterator<Item = usize>) {
        self.0.push(b'(');
        sizes.into_iter().for_each(|size| self.int(size));
        self.0.push(b't');
    }

    fn tensor(&mut self, tensor: &Tensor, key: &str) {
        let known = DTYPES.iter().find(|(dtype, ..)| *dtype == tensor.dtype());
        let (name, storage) = known.map_or(("", None), |(_, name, storage)| (*name, *storage));
        // Dtypes without a typed storage use the form of tensors that names the dtype.
        self.global("torch._utils", if storage.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" });
        self.0.extend(b"((");
        self.text("storage");
        match storage {
            Some(storage) => self.global("torch", storage),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(key);
        self.text("cpu");
        self.int(if storage.is_some() { tensor.numel() } else { tensor.numel() * tensor.dtype().size() });
        self.0.extend(b"tQ");
        self.int(0);
        self.sizes(tensor.shape().iter().copied());
        self.sizes(tensor.strides().iter().map(|stride| stride.unsigned_abs()));
        // No gradient, no hooks.
        self.0.push(0x89);
        self.global("collections", "OrderedDict");
        self.0.extend(b")R");
        if storage.is_none() {
            self.global("torch", name);
        }
        self.0.extend(b"tR");
    }
}
