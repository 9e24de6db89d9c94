//! PyTorch's `.pt` and `.pth` files: dictionaries of tensors.
//!
//! No code in the file is run. It may hold tensors, parameters, dictionaries, lists and plain values. Other names in its
//! pickle, such as the class of a whole model, are an error with that name. Files of PyTorch before 1.6 are refused.
//!
//! [`Module::load_state_dict`](crate::nn::Module::load_state_dict) loads the dictionary into a model: see
//! [the example](super#from-a-file-into-a-model). [`load_with`] can rename its tensors.
//!
//! ```
//! use cotangent::{io::{StateDict, pytorch}, tensor};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-pt-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("model.pt");
//! // In Python: torch.load("model.pt", weights_only=True)
//! pytorch::save(&path, &StateDict::from_iter([("fc.weight", tensor!([[1.0, 2.0]])?)]))?;
//! assert_eq!(pytorch::load(&path)?.names().collect::<Vec<_>>(), ["fc.weight"]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod pickle;
mod storages;
mod writer;

use super::load_options::printable;
use super::zip::Archive;
use super::{LoadOptions, State, StateDict, Value};
use crate::error::{bail, err, named};
use crate::order::map_of;
use crate::{Error, Result};
use pickle::{Item, Object, Pickle, TensorSpec};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use storages::Storages;
pub use writer::save;

const LOAD: &str = "pytorch::load";
/// The longest pickle that is read. It holds the names of tensors, not their elements.
const LONGEST_PICKLE: u64 = 1 << 26;
/// The deepest nesting of dictionaries and lists.
const DEEPEST: usize = 64;

/// Loads all tensors of a file. Names of nested dictionaries, and positions in lists, are joined by dots:
/// `{"model": {"fc.weight": x}}` gives `model.fc.weight`. The name of a single tensor is `tensor`. Tied parameters are
/// loaded as separate copies.
///
/// ```
/// use cotangent::io::pytorch;
/// # let path = "tests/fixtures/io/training.pt";
/// let dict = pytorch::load(path)?;
/// assert_eq!(dict.get("model.weight").map(|x| x.shape().to_vec()), Some(vec![3, 2]));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is broken, or holds anything but tensors, containers and plain values.
#[doc(alias = "torch.load")]
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    named(LOAD, read(path.as_ref(), &LoadOptions::new()).map(|state| state.tensors))
}

/// As [`load`], with options: only some names, other names, another dtype, another device.
///
/// ```
/// use cotangent::{io::{LoadOptions, StateDict, pytorch}, tensor};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-pt-with-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.pt");
/// pytorch::save(&path, &StateDict::from_iter([("state_dict.fc.weight", tensor!([[1.0, 2.0]])?)]))?;
/// let options = LoadOptions::new()
///     .only(|name| name.starts_with("state_dict."))
///     .rename(|name| name.trim_start_matches("state_dict.").to_string());
/// assert!(pytorch::load_with(&path, options)?.get("fc.weight").is_some());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`load`]; also if a requested name is missing, or renaming gives two tensors one name.
#[track_caller]
pub fn load_with(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<StateDict> {
    named("pytorch::load_with", read(path.as_ref(), &options.into()).map(|state| state.tensors))
}

/// As [`load_with`], with the numbers, texts and lists of the file: epochs, rates, settings of an optimiser.
///
/// ```
/// use cotangent::io::{LoadOptions, Value, pytorch};
/// # let path = "tests/fixtures/io/training.pt";
/// let state = pytorch::load_state(path, LoadOptions::new())?;
/// let groups = state.get("optimizer").and_then(|optimizer| optimizer.get("param_groups")?.as_list());
/// assert_eq!(groups.and_then(|groups| groups[0].get("lr")?.as_f64()), Some(0.01));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`load_with`].
#[track_caller]
pub fn load_state(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<State> {
    named("pytorch::load_state", read(path.as_ref(), &options.into()))
}

fn read(path: &Path, options: &LoadOptions) -> Result<State> {
    let mut file = File::open(path).map_err(|source| Error::io(LOAD, path, source))?;
    let load = || {
        refuse_old(&mut file)?;
        let mut archive = Archive::open(LOAD, file)?;
        // The name of the folder in the archive is arbitrary.
        let Some(pickle) = archive.entries.iter().find(|entry| entry.name.ends_with("/data.pkl")).cloned() else {
            bail!(Format, LOAD, "not a PyTorch file: no data.pkl in the archive");
        };
        let folder = pickle.name.trim_end_matches("data.pkl").to_string();
        let bytes = archive.bytes(LOAD, &pickle, LONGEST_PICKLE)?;
        let malformed = |what: String| err!(Format, LOAD, "data.pkl: {what}");
        let pickle = Pickle::read(&bytes).map_err(malformed)?;
        let (tensors, values) = flatten(&pickle, bytes.len()).map_err(malformed)?;
        let specs: BTreeMap<&str, &TensorSpec> = map_of(tensors.iter().map(|(name, spec)| (name.as_str(), spec)));
        let mut storages = Storages::new(archive, folder)?;
        let mut dict = StateDict::new();
        for (name, new) in options.choose(LOAD, tensors.iter().map(|(name, _)| name.as_str()))? {
            let Some(spec) = specs.get(name) else { continue };
            let tensor = storages.tensor(&pickle, spec).and_then(|tensor| options.finish(tensor));
            dict.insert(new, tensor.map_err(|error| error.context(printable(name)))?);
        }
        Ok(State { tensors: dict, values })
    };
    load().map_err(|error: Error| error.context(path.display()))
}

/// Refuses files of PyTorch before 1.6, which are not archives.
fn refuse_old(file: &mut File) -> Result<()> {
    const MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    let io = |source: std::io::Error| err!(Format, LOAD, "{source}");
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    if start == MAGIC {
        bail!(Format, LOAD, "files of PyTorch before 1.6 are not supported: load it with torch.load and save it again");
    }
    Ok(())
}

/// The named tensors of a pickle, and its other values.
fn flatten(pickle: &Pickle, length: usize) -> Result<(Vec<(String, TensorSpec)>, Value), String> {
    // A pickle can share objects that share others, which grow exponentially when expanded: the result is bounded.
    let budget = 16 * length + (1 << 16);
    let mut walk = Walk { pickle, tensors: Vec::new(), names: BTreeMap::new(), budget };
    let values = walk.visit(pickle.root, "", 0)?;
    Ok((walk.tensors, values.unwrap_or_default()))
}

struct Walk<'p> {
    pickle: &'p Pickle,
    tensors: Vec<(String, TensorSpec)>,
    names: BTreeMap<String, ()>,
    /// Bytes of names and texts that may still be added.
    budget: usize,
}

impl Walk<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err("shared objects would take far more memory than the file has bytes".to_string()),
        }
    }

    /// Collects the tensors of an item, and returns its other values if there are any.
    fn visit(&mut self, item: Item, path: &str, depth: usize) -> Result<Option<Value>, String> {
        if depth > DEEPEST {
            return Err(format!("dictionaries and lists must be nested at most {DEEPEST} deep"));
        }
        self.spend(1)?;
        let at = match item {
            Item::None => return Ok(Some(Value::Null)),
            Item::Bool(value) => return Ok(Some(value.into())),
            Item::Int(value) => return Ok(Some(value.into())),
            Item::Float(value) => return Ok(Some(value.into())),
            Item::Object(_) => item,
        };
        let pickle = self.pickle;
        match pickle.object(at) {
            Some(Object::Text(text)) => {
                self.spend(text.len())?;
                Ok(Some(text.as_str().into()))
            }
            Some(Object::Tensor(spec)) => {
                let name = if path.is_empty() { "tensor" } else { path };
                if self.names.insert(name.to_string(), ()).is_some() {
                    return Err(format!("two tensors are named {}", printable(name)));
                }
                self.tensors.push((name.to_string(), *spec));
                Ok(None)
            }
            Some(Object::Dict(items)) => {
                let mut values = BTreeMap::new();
                for (key, item) in items {
                    let name = match (key, pickle.object(*key)) {
                        (_, Some(Object::Text(name))) => name.clone(),
                        (Item::Int(number), _) => number.to_string(),
                        (Item::Bool(value), _) => value.to_string(),
                        _ => return Err("keys of dictionaries must be text or numbers".to_string()),
                    };
                    let path = self.below(path, &name)?;
                    if let Some(value) = self.visit(*item, &path, depth + 1)? {
                        values.insert(name, value);
                    }
                }
                Ok((items.is_empty() || !values.is_empty()).then_some(Value::Map(values)))
            }
            Some(Object::List(items) | Object::Tuple(items)) => {
                let mut values = Vec::new();
                let mut any = items.is_empty();
                for (at, item) in items.iter().enumerate() {
                    let path = self.below(path, &at.to_string())?;
                    let value = self.visit(*item, &path, depth + 1)?;
                    any |= value.is_some();
                    values.push(value.unwrap_or_default());
                }
                Ok(any.then_some(Value::List(values)))
            }
            Some(Object::Global(pickle::Global::DType(dtype))) => Ok(Some(dtype.to_string().into())),
            Some(Object::Large(value)) => Ok(Some(Value::Int(**value))),
            Some(Object::Bytes) => Ok(Some(Value::Null)),
            Some(Object::Global(_) | Object::Storage(_)) | None => {
                Err(format!("{} must be a tensor, a container or a plain value", printable(path)))
            }
        }
    }

    fn below(&mut self, path: &str, name: &str) -> Result<String, String> {
        self.spend(path.len() + name.len() + 1)?;
        Ok(if path.is_empty() { name.to_string() } else { format!("{path}.{name}") })
    }
}
