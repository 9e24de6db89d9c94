//! Parameters that several parts of a module share.
//!
//! All handles of a parameter hold the same tensor: one gradient, one update. Tensors are values, so a write through one
//! handle would separate them. Code that changes parameters uses [`parameters_mut`], which updates all handles.

use super::{Module, Parameter, Part, PartMut, Visitor};
use crate::error::{bail, named, placed};
use crate::{Result, Tensor};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

/// A parameter of a module, to be changed. The other handles in the module get its values when this is dropped.
///
/// ```
/// use cotangent::nn::{Linear, Module};
/// let mut model = Linear::new(3, 2)?;
/// for mut parameter in model.parameters_mut() {
///     if parameter.name().ends_with("bias") {
///         parameter.update(|values| values.zero_())?;
///     }
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct ParameterMut<'a> {
    name: String,
    parameter: &'a mut Parameter,
    others: Vec<&'a mut Parameter>,
}

impl ParameterMut<'_> {
    /// The first of the parameter's names.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let mut model = Linear::new(3, 2)?;
    /// let names: Vec<String> = model.parameters_mut().iter().map(|parameter| parameter.name().to_string()).collect();
    /// assert_eq!(names, ["weight", "bias"]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`Parameter::set_requires_grad`], for all handles of the parameter.
    ///
    /// # Errors
    /// If there is a handle outside the module.
    #[track_caller]
    pub fn set_requires_grad(&mut self, requires_grad: bool) -> Result<()> {
        let op = "set_requires_grad";
        named(op, self.check_whole(op).and_then(|()| self.parameter.mark(requires_grad)))
    }

    /// As [`Parameter::update`], for all handles of the parameter.
    ///
    /// # Errors
    /// As there, and if there is a handle outside the module.
    #[track_caller]
    pub fn update(&mut self, f: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
        placed(self.check_whole("update").and_then(|()| self.parameter.change(f)))
    }

    /// As [`Parameter::set`], for all handles of the parameter.
    ///
    /// # Errors
    /// As there, and if there is a handle outside the module.
    #[track_caller]
    pub fn set(&mut self, values: &Tensor) -> Result<()> {
        named("set", self.check_whole("set").and_then(|()| self.parameter.put(values)))
    }

    /// Fails if there is a handle outside the module, which would keep the old value.
    pub(crate) fn check_whole(&self, op: &'static str) -> Result<()> {
        check_handles(op, &self.name, self.parameter, 1 + self.others.len())
    }

    /// Replaces the tensor in the other handles by a placeholder, so that it can be changed in place.
    pub(crate) fn release_others(&mut self) {
        let placeholder = Tensor::zeros(()).ok();
        for other in &mut self.others {
            if let Some(nothing) = &placeholder {
                *other.tensor_mut() = nothing.clone();
            }
        }
    }
}

impl Deref for ParameterMut<'_> {
    type Target = Parameter;

    fn deref(&self) -> &Parameter {
        self.parameter
    }
}

impl DerefMut for ParameterMut<'_> {
    fn deref_mut(&mut self) -> &mut Parameter {
        self.parameter
    }
}

impl Drop for ParameterMut<'_> {
    fn drop(&mut self) {
        for other in &mut self.others {
            **other = self.parameter.tie();
        }
    }
}

fn check_handles(op: &'static str, name: &str, parameter: &Parameter, inside: usize) -> Result<()> {
    if parameter.handles() > inside {
        bail!(
            Value,
            op,
            "{name} is tied to {} handles outside this module, which would keep the old value: change it through the module \
             that holds all of them",
            parameter.handles() - inside
        );
    }
    Ok(())
}

/// Fails if a parameter of the module has a handle outside it.
pub(crate) fn check_whole<M: Module + ?Sized>(op: &'static str, module: &M) -> Result<()> {
    let mut inside: HashMap<usize, (String, &Parameter, usize)> = HashMap::new();
    module.visit(&mut Visitor::new(&mut |name, part| {
        if let Part::Param(parameter) = part {
            inside.entry(parameter.id()).or_insert_with(|| (name.to_string(), parameter, 0)).2 += 1;
        }
    }));
    inside.values().try_for_each(|(name, parameter, count)| check_handles(op, name, parameter, *count))
}

/// The parameters of a module, each once, in the order of their first names.
pub(crate) fn parameters_mut<M: Module + ?Sized>(module: &mut M) -> Vec<ParameterMut<'_>> {
    let (mut all, mut known): (Vec<ParameterMut<'_>>, HashMap<usize, usize>) = (Vec::new(), HashMap::new());
    module.visit_mut(&mut Visitor::new(&mut |name, part| {
        let PartMut::Param(parameter) = part else { return };
        match known.get(&parameter.id()) {
            Some(&at) => all[at].others.push(parameter),
            None => {
                known.insert(parameter.id(), all.len());
                all.push(ParameterMut { name: name.to_string(), parameter, others: Vec::new() });
            }
        }
    }));
    all
}
