//! A training run in one file, from which it continues exactly.
#![forbid(unsafe_code)]

use super::safetensors::{self, Metadata};
use super::{State, StateDict, Stateful, Value};
use crate::error::{bail, err, named};
use crate::order::map_of;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The metadata entry that marks a file as a checkpoint and describes its contents.
const KEY: &str = "cotangent.checkpoint";
/// The version of the format. Files of other versions are refused.
const VERSION: u64 = 1;

/// The named states of the parts of a training run, with user-defined values.
///
/// The file is a safetensors file, which other programs can read: the tensors of a part called `model` have names that begin
/// with `model.`. Saving is atomic: the checkpoint is written to a temporary file, synced to the disk and renamed.
///
/// ```
/// use cotangent::io::{Checkpoint, DefaultGenerator};
/// use cotangent::nn::Linear;
/// use cotangent::optim::AdamW;
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-checkpoint-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("run.ckpt");
/// let (mut model, mut optimizer) = (Linear::new(3, 2)?, AdamW::new(1e-3));
/// let mut checkpoint = Checkpoint::new();
/// checkpoint.add("model", &model)?;
/// checkpoint.add("optimizer", &optimizer)?;
/// checkpoint.add("random", &DefaultGenerator)?;
/// checkpoint.set("epoch", 3);
/// checkpoint.save(&path)?;
///
/// let checkpoint = Checkpoint::load(&path)?;
/// checkpoint.restore(&mut [
///     ("model", &mut model),
///     ("optimizer", &mut optimizer),
///     ("random", &mut DefaultGenerator),
/// ])?;
/// assert_eq!(checkpoint.values().u64("epoch")?, 3);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    parts: BTreeMap<String, State>,
    values: State,
}

impl Checkpoint {
    /// An empty checkpoint.
    ///
    /// ```
    /// assert_eq!(cotangent::io::Checkpoint::new().names().count(), 0);
    /// ```
    pub fn new() -> Checkpoint {
        Checkpoint::default()
    }

    /// Adds the current state of a part under a name. Later changes of the part are not included.
    ///
    /// ```
    /// use cotangent::{io::Checkpoint, nn::Linear};
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.add("model", &Linear::new(3, 2)?)?;
    /// assert!(checkpoint.add("model", &Linear::new(3, 2)?).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is a part of that name already, or the name is empty or has a dot in it.
    #[track_caller]
    pub fn add(&mut self, name: &str, part: &(impl Stateful + ?Sized)) -> Result<()> {
        const OP: &str = "Checkpoint::add";
        let mut add = || {
            if name.is_empty() || name.contains('.') {
                bail!(Value, OP, "name must not be empty or contain a dot, got {name:?}");
            }
            if self.parts.contains_key(name) {
                bail!(Value, OP, "part {name} is already in the checkpoint");
            }
            let state = part.save_state().map_err(|error| error.context(name))?;
            self.parts.insert(name.to_string(), state);
            Ok(())
        };
        named(OP, add())
    }

    /// Sets a user-defined value under a name: an epoch, a step, a metric, settings.
    ///
    /// ```
    /// use cotangent::io::{Checkpoint, Value};
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.set("losses", vec![0.5, 0.25]);
    /// assert_eq!(checkpoint.values().get("losses"), Some(&Value::from(vec![0.5, 0.25])));
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.values.set(name, value);
    }

    /// The user-defined values.
    ///
    /// ```
    /// use cotangent::io::Checkpoint;
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.set("epoch", 3);
    /// assert_eq!(checkpoint.values().u64("epoch")?, 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn values(&self) -> &State {
        &self.values
    }

    /// The names of the parts.
    ///
    /// ```
    /// use cotangent::{io::Checkpoint, nn::Linear};
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.add("model", &Linear::new(3, 2)?)?;
    /// assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["model"]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// The state of a part.
    ///
    /// ```
    /// use cotangent::{io::Checkpoint, nn::Linear};
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.add("model", &Linear::new(3, 2)?)?;
    /// assert_eq!(checkpoint.part("model").map(|state| state.tensors.len()), Some(2));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn part(&self, name: &str) -> Option<&State> {
        self.parts.get(name)
    }

    /// Restores the states of parts: all of them, or none on an error. Other parts of the checkpoint are ignored.
    ///
    /// ```
    /// use cotangent::io::Checkpoint;
    /// use cotangent::{Generator, nn::{Linear, Module}};
    /// let (trained, mut random) = (Linear::new(3, 2)?, Generator::seed(1));
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.add("model", &trained)?;
    /// checkpoint.add("random", &random)?;
    ///
    /// let mut model = Linear::new(3, 2)?;
    /// checkpoint.restore(&mut [("model", &mut model), ("random", &mut random)])?;
    /// assert!(model.weight.equal(&trained.weight)?);
    ///
    /// let mut other = Linear::new(4, 2)?;
    /// let error = checkpoint.restore(&mut [("random", &mut random), ("model", &mut other)]).err().ok_or("it should fail")?;
    /// assert!(error.message().contains("model: nothing was loaded:\n  weight must have shape [2, 4], got [2, 3]"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the checkpoint lacks a part, or a state does not fit: the message says which and why, and all parts are unchanged.
    #[track_caller]
    pub fn restore(&self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<()> {
        named("Checkpoint::restore", self.restore_all(parts))
    }

    fn restore_all(&self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<()> {
        const OP: &str = "Checkpoint::restore";
        let absent: Vec<&str> = parts.iter().map(|(name, _)| *name).filter(|name| self.part(name).is_none()).collect();
        if !absent.is_empty() {
            let own: Vec<&str> = self.names().collect();
            bail!(Format, OP, "no part named {}: the checkpoint has {}", absent.join(", "), listed(&own));
        }
        let before = parts.iter().map(|(_, part)| part.save_state()).collect::<Result<Vec<_>>>()?;
        for at in 0..parts.len() {
            let (name, part) = &mut parts[at];
            let Some(state) = self.part(name) else { continue };
            let Err(error) = part.load_state(state) else { continue };
            let mut error = error.context(*name);
            // The parts before it have changed already.
            for ((name, part), before) in parts[..at].iter_mut().zip(&before) {
                if let Err(second) = part.load_state(before) {
                    error = error.context(format_args!("{name} could not be restored to its state before ({second})"));
                }
            }
            return Err(error);
        }
        Ok(())
    }

    /// Saves the checkpoint atomically: see [`Checkpoint`] for an example.
    ///
    /// # Errors
    /// If the file cannot be written; the old file is then unchanged.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        named("Checkpoint::save", self.write(path.as_ref()))
    }

    fn write(&self, path: &Path) -> Result<()> {
        let mut dict = StateDict::new();
        let mut values = BTreeMap::new();
        for (part, state) in &self.parts {
            for (name, tensor) in state.tensors.iter() {
                dict.insert(format!("{part}.{name}"), tensor.clone());
            }
            values.insert(part.clone(), state.values.clone());
        }
        let about = Value::from_iter([
            ("version", VERSION.into()),
            ("parts", Value::Map(values)),
            ("values", self.values.values.clone()),
        ]);
        let metadata = map_of([(KEY.to_string(), about.to_string())]);
        safetensors::save_with_metadata(path, &dict, &metadata)
    }

    /// Loads a checkpoint. The tensors are on the CPU; restoring moves them to the devices of the parts. See [`Checkpoint`]
    /// for an example.
    ///
    /// # Errors
    /// If the file cannot be read, is broken, or is not a checkpoint.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint> {
        const OP: &str = "Checkpoint::load";
        let path = path.as_ref();
        let read = || {
            let (dict, metadata) = safetensors::load_with_metadata(path)?;
            sort(dict, &metadata).map_err(|error| error.context(path.display()))
        };
        named(OP, read())
    }

    /// Reads the user-defined values of a file without its tensors.
    pub(super) fn peek(path: &Path) -> Result<State> {
        let metadata = safetensors::open(path)?.metadata().clone();
        about(&metadata).map(|(_, values)| values).map_err(|error| error.context(path.display()))
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}

fn malformed(what: impl std::fmt::Display) -> Error {
    err!(Format, "Checkpoint::load", "{what}")
}

/// The parts and the user-defined values in the metadata.
fn about(metadata: &Metadata) -> Result<(BTreeMap<String, Value>, State)> {
    let Some(text) = metadata.get(KEY) else {
        return Err(malformed("not a checkpoint: its metadata has no cotangent.checkpoint"));
    };
    let json = serde_json::from_str(text).map_err(|error| malformed(format_args!("metadata {KEY}: {error}")))?;
    let about = Value::from_json(&json);
    match about.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(other) => {
            return Err(malformed(format_args!("checkpoint version must be {VERSION}, got {other}")));
        }
        None => return Err(malformed(format_args!("metadata {KEY} has no version"))),
    }
    let Some(parts) = about.get("parts").and_then(Value::as_map) else {
        return Err(malformed(format_args!("metadata {KEY} has no parts")));
    };
    let values = about.get("values").cloned().unwrap_or_default();
    Ok((parts.clone(), State { tensors: StateDict::new(), values }))
}

/// Assigns the tensors to their parts.
fn sort(dict: StateDict, metadata: &Metadata) -> Result<Checkpoint> {
    let (parts, values) = about(metadata)?;
    let empty = |(name, values)| (name, State { tensors: StateDict::new(), values });
    let mut parts: BTreeMap<String, State> = map_of(parts.into_iter().map(empty));
    for (name, tensor) in dict {
        let position = name.split_once('.').and_then(|(part, name)| Some((parts.get_mut(part)?, name)));
        let Some((part, name)) = position else {
            return Err(malformed(format_args!("tensor {name} belongs to no part")));
        };
        part.tensors.insert(name, tensor);
    }
    Ok(Checkpoint { parts, values })
}
