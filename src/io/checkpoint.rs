//! A training run in one file, from which it goes on as if it had never been interrupted.
#![forbid(unsafe_code)]

use super::safetensors::{self, Metadata};
use super::{State, StateDict, Stateful, Value};
use crate::error::{bail, err, named};
use crate::order::map_of;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the metadata under which a file says that it is a checkpoint, and what is in it.
const KEY: &str = "cotangent.checkpoint";
/// The form of the file. Another number means that this version cannot read it.
const VERSION: u64 = 1;

/// The states of the parts of a training run, each under a name, and values of one's own beside them.
///
/// The file is a safetensors file, which other programs can read: the tensors of a part called `model` have names that begin
/// with `model.`. It is written to a temporary file, brought to the disk and renamed, so that the file at its path is whole at
/// any time, whatever happens to the process.
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
    /// An empty one.
    ///
    /// ```
    /// assert_eq!(cotangent::io::Checkpoint::new().names().count(), 0);
    /// ```
    pub fn new() -> Checkpoint {
        Checkpoint::default()
    }

    /// Takes the state of a part under a name. Later changes of the part are not seen.
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
                bail!(Value, OP, "a part cannot have the name {name:?}: it must not be empty or have a dot in it");
            }
            if self.parts.contains_key(name) {
                bail!(Value, OP, "there is a part {name} already");
            }
            let state = part.save_state().map_err(|error| error.context(name))?;
            self.parts.insert(name.to_string(), state);
            Ok(())
        };
        named(OP, add())
    }

    /// Puts a value of one's own under a name: an epoch, a step, a metric, settings.
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

    /// The values of one's own.
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

    /// Lets parts take over their states: all of them, or none. Parts of the checkpoint that are not named here are left out.
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
    /// assert!(error.message().contains("model: nothing was loaded:\n  weight has shape [2, 3], the module's has [2, 4]"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the checkpoint has no part of a name, or its state is one of something else: the message says which and why, and
    /// all parts are as they were.
    #[track_caller]
    pub fn restore(&self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<()> {
        named("Checkpoint::restore", self.restore_all(parts))
    }

    fn restore_all(&self, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<()> {
        const OP: &str = "Checkpoint::restore";
        let absent: Vec<&str> = parts.iter().map(|(name, _)| *name).filter(|name| self.part(name).is_none()).collect();
        if !absent.is_empty() {
            let own: Vec<&str> = self.names().collect();
            bail!(Format, OP, "there is no {}; the checkpoint has {}", absent.join(", "), listed(&own));
        }
        let before = parts.iter().map(|(_, part)| part.save_state()).collect::<Result<Vec<_>>>()?;
        for at in 0..parts.len() {
            let (name, part) = &mut parts[at];
            let Some(state) = self.part(name) else { continue };
            let Err(error) = part.load_state(state) else { continue };
            let mut error = error.context(*name);
            // Those before it have changed already.
            for ((name, part), before) in parts[..at].iter_mut().zip(&before) {
                if let Err(second) = part.load_state(before) {
                    error = error.context(format_args!("{name} could not be put back ({second})"));
                }
            }
            return Err(error);
        }
        Ok(())
    }

    /// Saves the checkpoint, so that the file at `path` is at any time the old or the new one: see [`Checkpoint`] for an
    /// example.
    ///
    /// # Errors
    /// If the file cannot be written; the old one is then as it was.
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

    /// Loads a checkpoint. The tensors are on the CPU; restoring brings them to where those of the parts are. See [`Checkpoint`]
    /// for an example.
    ///
    /// # Errors
    /// If the file cannot be read, is broken, or is no checkpoint.
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

    /// The values of one's own in a file, without its tensors: whether to load it can be decided by them.
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

/// What the metadata says of the parts, and the values of one's own.
fn about(metadata: &Metadata) -> Result<(BTreeMap<String, Value>, State)> {
    let Some(text) = metadata.get(KEY) else {
        return Err(malformed("this is no checkpoint: its metadata does not say so"));
    };
    let json = serde_json::from_str(text).map_err(|error| malformed(format_args!("metadata {KEY}: {error}")))?;
    let about = Value::from_json(&json);
    match about.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(other) => {
            return Err(malformed(format_args!("version {other} of checkpoints, and only {VERSION} can be read")));
        }
        None => return Err(malformed(format_args!("metadata {KEY} has no version"))),
    }
    let Some(parts) = about.get("parts").and_then(Value::as_map) else {
        return Err(malformed(format_args!("metadata {KEY} has no parts")));
    };
    let values = about.get("values").cloned().unwrap_or_default();
    Ok((parts.clone(), State { tensors: StateDict::new(), values }))
}

/// Gives every part its tensors.
fn sort(dict: StateDict, metadata: &Metadata) -> Result<Checkpoint> {
    let (parts, values) = about(metadata)?;
    let empty = |(name, values)| (name, State { tensors: StateDict::new(), values });
    let mut parts: BTreeMap<String, State> = map_of(parts.into_iter().map(empty));
    for (name, tensor) in dict {
        let place = name.split_once('.').and_then(|(part, name)| Some((parts.get_mut(part)?, name)));
        let Some((part, name)) = place else {
            return Err(malformed(format_args!("{name} belongs to no part")));
        };
        part.tensors.insert(name, tensor);
    }
    Ok(Checkpoint { parts, values })
}
