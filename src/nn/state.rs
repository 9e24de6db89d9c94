//! Loading saved values. Everything is checked before anything is changed.

use super::tied::check_whole;
use super::{Module, Part, PartMut, Visitor};
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::{Result, Tensor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

/// Which names must be present.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredNames {
    /// All of the module's, and no others.
    Exact,
    /// Those that both sides have, at least one.
    Common,
}

/// What [`Module::load_matching`] found on one side only.
///
/// ```
/// use cotangent::nn::{Linear, LinearOptions, Module};
/// let without_bias = Linear::new_with(3, 2, LinearOptions::new().bias(false))?;
/// let report = Linear::new(3, 2)?.load_matching(&without_bias.state_dict())?;
/// assert_eq!(report.to_string(), "1 loaded, missing: bias; unexpected: none");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// How many of the module's names were loaded.
    pub loaded: usize,
    /// Names of the module that the dictionary lacks.
    pub missing: Vec<String>,
    /// Names of the dictionary that the module lacks.
    pub unexpected: Vec<String>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} loaded, missing: {}; unexpected: {}",
            self.loaded,
            listed(&self.missing),
            listed(&self.unexpected)
        )
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

pub(crate) fn take_over<M: Module + ?Sized>(
    module: &mut M,
    dict: &StateDict,
    names: RequiredNames,
) -> Result<LoadReport> {
    const OP: &str = "load_state_dict";
    check_whole(OP, module)?;
    let LoadPlan { values, report, mut faults } = plan(module, dict)?;
    if names == RequiredNames::Exact {
        faults.extend(report.missing.iter().map(|name| format!("missing {name}")));
        faults.extend(report.unexpected.iter().map(|name| format!("unexpected {name}")));
    }
    if !faults.is_empty() {
        bail!(Format, OP, "nothing was loaded:\n  {}", faults.join("\n  "));
    }
    if values.is_empty() && names == RequiredNames::Common {
        bail!(
            Format,
            OP,
            "no name matches: the module has {}; the dictionary has {}",
            listed(&report.missing),
            listed(&report.unexpected)
        );
    }
    let mut done = Ok(());
    module.visit_mut(&mut Visitor::new(&mut |name, part| {
        let Some(value) = values.get(name) else { return };
        // The memory is shared with the dictionary until one of the two is changed.
        let set = match part {
            PartMut::Param(parameter) => parameter.put(value),
            PartMut::Buffer(buffer) => {
                buffer.replace(value.clone());
                Ok(())
            }
            _ => Ok(()),
        };
        if done.is_ok() {
            done = set;
        }
    }));
    done?;
    tie_again(module);
    Ok(report)
}

/// Makes the handles of a parameter, which got equal values, share one tensor.
fn tie_again<M: Module + ?Sized>(module: &mut M) {
    drop(module.parameters_mut());
}

struct LoadPlan {
    /// The new value for each name of the module that gets one.
    values: HashMap<String, Tensor>,
    report: LoadReport,
    /// Errors that do not depend on which names must be present.
    faults: Vec<String>,
}

fn plan<M: Module + ?Sized>(module: &M, dict: &StateDict) -> Result<LoadPlan> {
    let (mut own, mut names) = (Vec::new(), HashMap::<usize, Vec<String>>::new());
    module.visit(&mut Visitor::new(&mut |name, part| match part {
        Part::Param(parameter) => {
            names.entry(parameter.id()).or_default().push(name.to_string());
            own.push((name.to_string(), parameter.detach(), Some(parameter.id())));
        }
        Part::Buffer(buffer) => own.push((name.to_string(), buffer.get(), None)),
        _ => {}
    }));
    let mut plan = LoadPlan { values: HashMap::new(), report: LoadReport::default(), faults: Vec::new() };
    for (name, tensor, id) in &own {
        // A parameter with several names is present if one of them is.
        let tied = id.and_then(|id| names.get(&id)).map_or(&[][..], Vec::as_slice);
        let given = dict.get(name).or_else(|| tied.iter().find_map(|name| dict.get(name)));
        let Some(value) = given else {
            plan.report.missing.push(name.clone());
            continue;
        };
        if value.shape() != tensor.shape() {
            plan.faults.push(format!("{name} must have shape {:?}, got {:?}", tensor.shape(), value.shape()));
        } else if value.dtype() != tensor.dtype() {
            plan.faults.push(format!("{name} must be {}, got {}", tensor.dtype(), value.dtype()));
        } else if let Some(other) = differing(dict, tied, value)? {
            plan.faults.push(format!("{name} and {other} are one parameter, but their values differ"));
        } else {
            plan.values.insert(name.clone(), value.detach().contiguous()?.to_device(tensor.device())?);
        }
    }
    plan.report.loaded = plan.values.len();
    let known: HashSet<&str> = own.iter().map(|(name, ..)| name.as_str()).collect();
    let unknown = dict.names().filter(|name| !known.contains(name));
    plan.report.unexpected = unknown.map(str::to_string).collect();
    Ok(plan)
}

/// The first of the names whose value is not this one.
fn differing<'n>(dict: &StateDict, names: &'n [String], value: &Tensor) -> Result<Option<&'n str>> {
    for name in names {
        if let Some(other) = dict.get(name)
            && !other.is_same(value)
            // Unlike `equal`, this treats NaN as equal to NaN.
            && !(other.shape() == value.shape() && other.allclose_with(value, (0.0, 0.0))?)
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Saves a module's parameters and buffers as a safetensors file. A temporary file is written first and renamed, so `path`
/// never holds an incomplete file.
///
/// ```
/// use cotangent::nn::{self, Linear};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-nn-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.safetensors");
/// let model = Linear::new(3, 2)?;
/// nn::save(&model, &path)?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be written.
#[track_caller]
pub fn save(module: &(impl Module + ?Sized), path: impl AsRef<Path>) -> Result<()> {
    named("save", crate::io::safetensors::save(path, &module.state_dict()))
}

/// Loads a module's parameters and buffers from a safetensors file, as [`Module::load_state_dict`] does.
///
/// ```
/// use cotangent::nn::{self, Linear};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-nn-load-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.safetensors");
/// let (trained, mut model) = (Linear::new(3, 2)?, Linear::new(3, 2)?);
/// nn::save(&trained, &path)?;
/// nn::load(&mut model, &path)?;
/// assert!(model.weight.equal(&trained.weight)?);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, or does not fit the module; nothing is changed then.
#[track_caller]
pub fn load(module: &mut (impl Module + ?Sized), path: impl AsRef<Path>) -> Result<()> {
    named("load", crate::io::safetensors::load(path).and_then(|dict| module.load_state_dict(&dict)))
}
