//! Which tensors of a file are loaded, under which names and in which dtype.
#![forbid(unsafe_code)]

use crate::error::{bail, err};
use crate::{DType, Device, Result, Tensor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// The options of loading named tensors. By default everything is loaded unchanged to the CPU.
///
/// Tensors are selected by their names in the file and renamed afterwards. A dtype or a device converts to these options.
///
/// ```
/// use cotangent::io::{LoadOptions, StateDict, safetensors};
/// use cotangent::{DType, Tensor};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-load-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.safetensors");
/// let published = [("model.fc.weight", Tensor::ones_with([2], DType::BF16)?), ("model.steps", Tensor::arange(0, 3)?)];
/// safetensors::save(&path, &StateDict::from_iter(published))?;
/// let options = LoadOptions::new()
///     .dtype(DType::F32)
///     .only(|name| name.ends_with("weight"))
///     .rename(|name| name.trim_start_matches("model.").to_string());
/// let dict = safetensors::load_with(&path, options)?;
/// assert_eq!(dict.iter().map(|(name, x)| (name, x.dtype())).collect::<Vec<_>>(), [("fc.weight", DType::F32)]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct LoadOptions {
    dtype: Option<DType>,
    device: Device,
    names: Option<Vec<String>>,
    only: Option<Arc<dyn Fn(&str) -> bool + Send + Sync>>,
    rename: Option<Arc<dyn Fn(&str) -> String + Send + Sync>>,
}

impl LoadOptions {
    /// Loads everything unchanged.
    pub fn new() -> LoadOptions {
        LoadOptions::default()
    }

    /// Casts floating-point tensors one at a time, so that there is no second copy of the whole. Others are unchanged.
    pub fn dtype(mut self, dtype: DType) -> LoadOptions {
        self.dtype = Some(dtype);
        self
    }

    /// Moves each tensor to a device as soon as it is read.
    pub fn device(mut self, device: Device) -> LoadOptions {
        self.device = device;
        self
    }

    /// Loads these names only. It is an error if one of them is not in the file.
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> LoadOptions {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Loads only the names for which `rule` returns true.
    pub fn only(mut self, rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> LoadOptions {
        self.only = Some(Arc::new(rule));
        self
    }

    /// Renames the loaded tensors by `rule`. It is an error if two get the same name.
    pub fn rename(mut self, rule: impl Fn(&str) -> String + Send + Sync + 'static) -> LoadOptions {
        self.rename = Some(Arc::new(rule));
        self
    }

    /// Refuses invalid options.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        match self.dtype {
            Some(dtype) if !dtype.is_float() => {
                bail!(DType, op, "dtype must be floating point, got {dtype}")
            }
            _ => Ok(()),
        }
    }

    /// The names to load with their new names, in the order of the file.
    pub(super) fn choose<'n>(
        &self,
        op: &'static str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<(&'n str, String)>> {
        self.check(op)?;
        let mut wanted: Option<HashSet<&str>> =
            self.names.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let mut chosen = Vec::new();
        let mut taken: HashMap<String, &str> = HashMap::new();
        for name in names {
            let named = wanted.as_mut().is_none_or(|wanted| wanted.remove(name));
            if !named || !self.only.as_ref().is_none_or(|rule| rule(name)) {
                continue;
            }
            let new = self.rename.as_ref().map_or_else(|| name.to_string(), |rule| rule(name));
            if let Some(other) = taken.insert(new.clone(), name) {
                bail!(Value, op, "{} and {} would both become {}", printable(other), printable(name), printable(&new));
            }
            chosen.push((name, new));
        }
        let mut absent: Vec<&str> = wanted.into_iter().flatten().collect();
        absent.sort_unstable();
        if !absent.is_empty() {
            return Err(err!(Value, op, "names not found in the file: {}", absent.join(", ")));
        }
        Ok(chosen)
    }

    /// Casts and moves a loaded tensor.
    pub(super) fn finish(&self, tensor: Tensor) -> Result<Tensor> {
        let tensor = match self.dtype {
            Some(dtype) if tensor.dtype().is_float() && tensor.dtype() != dtype => {
                let cast = tensor.to_dtype(dtype)?;
                // At once, so that the bytes of the file are freed before the next tensor is read.
                cast.compute()?;
                cast
            }
            _ => tensor,
        };
        if tensor.device() == self.device { Ok(tensor) } else { tensor.to_device(self.device) }
    }

    /// Whether tensors are loaded unchanged.
    pub(super) fn keeps_bytes(&self, dtype: DType) -> bool {
        self.device == Device::Cpu && (!dtype.is_float() || self.dtype.is_none_or(|wanted| wanted == dtype))
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = |given: bool| if given { ".." } else { "none" };
        f.debug_struct("LoadOptions")
            .field("dtype", &self.dtype)
            .field("device", &self.device)
            .field("names", &self.names)
            .field("only", &rule(self.only.is_some()))
            .field("rename", &rule(self.rename.is_some()))
            .finish()
    }
}

impl From<DType> for LoadOptions {
    fn from(dtype: DType) -> LoadOptions {
        LoadOptions::new().dtype(dtype)
    }
}

impl From<Device> for LoadOptions {
    fn from(device: Device) -> LoadOptions {
        LoadOptions::new().device(device)
    }
}

impl From<&LoadOptions> for LoadOptions {
    fn from(options: &LoadOptions) -> LoadOptions {
        options.clone()
    }
}

/// A name for a message: shortened, with control characters escaped, as files are not trusted.
pub(super) fn printable(name: &str) -> String {
    const LONGEST: usize = 200;
    let more = if name.chars().nth(LONGEST).is_some() { "…" } else { "" };
    let name: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    name + more
}
