//! Visiting the parts of a module, each with its name.

use super::module::Module;
use super::parameter::{Buffer, Parameter};
use crate::Result;
use crate::error::bail;
use crate::quantized::QuantizedTensor;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// A part of a module, as a visitor sees it.
///
/// ```
/// use cotangent::nn::{Linear, Part, Visit, Visitor};
/// let (model, mut count) = (Linear::new(3, 2)?, 0);
/// model.visit(&mut Visitor::new(&mut |_, part| {
///     if let Part::Param(parameter) = part {
///         count += parameter.numel();
///     }
/// }));
/// assert_eq!(count, 8);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Part<'a> {
    /// The start of a module, with the name of its type. Parts under its name belong to it.
    Module(&'static str),
    /// A trainable tensor.
    Param(&'a Parameter),
    /// A tensor that belongs to the module's state but is not trained, such as a running mean.
    Buffer(&'a Buffer),
    /// The training flag of a module that behaves differently in training.
    Training(bool),
    /// The parameter that follows is the weight of a product, or a table, with which the module also computes when it is
    /// [quantised](super::quantize()). It is `[outputs, inputs]`, or `[inputs, outputs]` if `transposed`.
    Quantizable {
        /// Whether a dense weight is `[inputs, outputs]`. A quantised one never is.
        transposed: bool,
    },
}

/// A part of a module that may be changed.
///
/// ```
/// use cotangent::nn::{Linear, PartMut, Visit, Visitor};
/// let mut model = Linear::new(3, 2)?;
/// let mut names = Vec::new();
/// model.visit_mut(&mut Visitor::new(&mut |name, part| {
///     if let PartMut::Param(_) = part {
///         names.push(name.to_string());
///     }
/// }));
/// assert_eq!(names, ["weight", "bias"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum PartMut<'a> {
    /// The start of a module, with the name of its type.
    Module(&'static str),
    /// A trainable tensor.
    Param(&'a mut Parameter),
    /// A tensor that belongs to the state but is not trained.
    Buffer(&'a mut Buffer),
    /// The training flag of the module.
    Training(&'a mut bool),
}

/// Walks through a module, keeps track of the path, and calls a function for every part.
///
/// ```
/// use cotangent::nn::{Linear, Part, Sequential, Visit, Visitor};
/// let model = Sequential::new().add(Linear::new(3, 2)?);
/// let mut kinds = Vec::new();
/// model.visit(&mut Visitor::new(&mut |name, part| {
///     if let Part::Module(kind) = part {
///         kinds.push(format!("{name}: {kind}"));
///     }
/// }));
/// assert_eq!(kinds, [": Sequential", "0: Linear"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Visitor<'v, P> {
    path: String,
    see: &'v mut dyn FnMut(&str, P),
}

impl<'v, P> Visitor<'v, P> {
    /// A visitor that calls `see` for every part, with its full name.
    pub fn new(see: &'v mut dyn FnMut(&str, P)) -> Self {
        Visitor { path: String::new(), see }
    }

    /// Calls `f` with `name` appended to the path.
    pub fn child(&mut self, name: impl std::fmt::Display, f: impl FnOnce(&mut Self)) {
        let here = self.path.len();
        descend(&mut self.path, &name);
        f(self);
        self.path.truncate(here);
    }

    pub(crate) fn show(&mut self, part: P) {
        (self.see)(&self.path, part);
    }
}

/// Appends a name to a path. Not generic, so that it is compiled once.
fn descend(path: &mut String, name: &dyn std::fmt::Display) {
    let dot = if path.is_empty() { "" } else { "." };
    // Writing to a string cannot fail.
    let _ = write!(path, "{dot}{name}");
}

impl<'a> Visitor<'_, Part<'a>> {
    /// A module of the named type begins here.
    pub fn enter(&mut self, kind: &'static str) {
        self.show(Part::Module(kind));
    }

    /// Visits the module, parameter or buffer in a field.
    pub fn module<M: Visit + ?Sized>(&mut self, name: &str, module: &'a M) {
        self.child(name, |visitor| module.visit(visitor));
    }

    /// Visits a weight of shape `[outputs, inputs]` that [`quantize`](super::quantize()) may replace by a quantised one. The
    /// derive macro calls it for a field with `#[module(quantizable)]`.
    pub fn quantizable(&mut self, name: &str, weight: &'a Parameter) {
        self.weight(name, weight, false);
    }

    /// As [`quantizable`](Self::quantizable), for a weight that is `[inputs, outputs]` if `transposed`.
    pub(crate) fn weight(&mut self, name: &str, weight: &'a Parameter, transposed: bool) {
        self.child(name, |visitor| {
            visitor.show(Part::Quantizable { transposed });
            weight.visit(visitor);
        });
    }
}

impl<'a> Visitor<'_, PartMut<'a>> {
    /// A module of the named type begins here.
    pub fn enter(&mut self, kind: &'static str) {
        self.show(PartMut::Module(kind));
    }

    /// Visits the module, parameter or buffer in a field.
    pub fn module<M: Visit + ?Sized>(&mut self, name: &str, module: &'a mut M) {
        self.child(name, |visitor| module.visit_mut(visitor));
    }

    /// Visits a weight that [`quantize`](super::quantize()) may replace by a quantised one.
    pub fn quantizable(&mut self, name: &str, weight: &'a mut Parameter) {
        self.module(name, weight);
    }
}

/// The parameters of a module that were already cloned, so that tied parameters stay tied in a
/// [deep clone](Module::deep_clone).
///
/// ```
/// use cotangent::nn::{Embedding, Linear, Module};
/// #[derive(Module)]
/// struct Model {
///     embedding: Embedding,
///     head: Linear,
/// }
/// let embedding = Embedding::new(10, 4)?;
/// let mut head = Linear::new(4, 10)?;
/// head.weight = embedding.weight.tie();
/// let copy = Model { embedding, head }.deep_clone()?;
/// assert!(copy.head.weight.is_tied_to(&copy.embedding.weight));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Ties(HashMap<usize, Parameter>);

impl Ties {
    pub(crate) fn clone_of(&mut self, parameter: &Parameter) -> Result<Parameter> {
        if let Some(known) = self.0.get(&parameter.id()) {
            return Ok(known.tie());
        }
        let values = parameter.detach().deep_clone()?;
        let clone = match parameter.quantized() {
            Some(weight) => Parameter::from_quantized(QuantizedTensor::from_blocks(&values, weight.format())?),
            None => {
                let mut clone = Parameter::new(values)?;
                clone.set_requires_grad(parameter.requires_grad())?;
                clone
            }
        };
        self.0.insert(parameter.id(), clone.tie());
        Ok(clone)
    }
}

/// What a field of a module can hold: a [`Parameter`], a [`Buffer`], a [`Module`], or an `Option`, `Box`, `Vec`, array or
/// `BTreeMap<String, _>` of these. `#[derive(Module)]` implements it.
///
/// ```
/// use cotangent::nn::{Linear, Module, Part, PartMut, Visit, Visitor};
///
/// /// What `#[derive(Module)]` writes for a struct with one field.
/// struct Head {
///     fc: Linear,
/// }
///
/// impl Visit for Head {
///     fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
///         visitor.enter("Head");
///         visitor.module("fc", &self.fc);
///     }
///     fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
///         visitor.enter("Head");
///         visitor.module("fc", &mut self.fc);
///     }
/// }
///
/// impl Module for Head {}
///
/// assert_eq!(Head { fc: Linear::new(3, 2)? }.named_parameters()[0].0, "fc.weight");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a module",
    note = "a tensor in a module is a `Parameter` if it is trained, a `Buffer` if it belongs to the state",
    note = "a constant tensor, and plain data, is marked `#[module(skip)]`",
    note = "a module in a module needs `#[derive(Module)]` on its type"
)]
pub trait Visit {
    /// Shows every part to the visitor. The derive macro writes this.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>);

    /// Shows every part to the visitor, to be changed. The derive macro writes this.
    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>);

    /// A copy for [`deep_clone`](Self::deep_clone). The derive macro writes this.
    ///
    /// # Errors
    /// If memory runs out, or a part of the module cannot be copied.
    #[doc(hidden)]
    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Self>
    where
        Self: Sized,
    {
        let _ = ties;
        bail!(
            Value,
            "deep_clone",
            "cannot clone {}: derive Module for it, or implement deep_clone_in",
            std::any::type_name::<Self>()
        )
    }
}

impl<M: Visit> Visit for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        (**self).visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        (**self).visit_mut(visitor);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Box<M>> {
        (**self).deep_clone_in(ties).map(Box::new)
    }
}

impl<M: Visit> Module for Box<M> {}

impl<M: Visit> Visit for Option<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self.iter().for_each(|module| module.visit(visitor));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self.iter_mut().for_each(|module| module.visit_mut(visitor));
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Option<M>> {
        self.as_ref().map(|module| module.deep_clone_in(ties)).transpose()
    }
}

impl<M: Visit> Module for Option<M> {}

/// The modules are named by their position.
impl<M: Visit> Visit for [M] {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        for (at, module) in self.iter().enumerate() {
            visitor.child(at, |visitor| module.visit(visitor));
        }
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        for (at, module) in self.iter_mut().enumerate() {
            visitor.child(at, |visitor| module.visit_mut(visitor));
        }
    }
}

impl<M: Visit> Module for [M] {}

impl<M: Visit> Visit for Vec<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self[..].visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self[..].visit_mut(visitor);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Vec<M>> {
        self.iter().map(|module| module.deep_clone_in(ties)).collect()
    }
}

impl<M: Visit> Module for Vec<M> {}

impl<M: Visit, const N: usize> Visit for [M; N] {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self[..].visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self[..].visit_mut(visitor);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<[M; N]> {
        let all = self.iter().map(|module| module.deep_clone_in(ties)).collect::<Result<Vec<M>>>()?;
        all.try_into()
            .map_err(|all: Vec<M>| crate::error::err!(Value, "deep_clone", "expected {N} modules, got {}", all.len()))
    }
}

impl<M: Visit, const N: usize> Module for [M; N] {}

/// The modules are named by their keys.
impl<M: Visit> Visit for BTreeMap<String, M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self.iter().for_each(|(name, module)| visitor.module(name, module));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self.iter_mut().for_each(|(name, module)| visitor.module(name, module));
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<BTreeMap<String, M>> {
        self.iter().map(|(name, module)| Ok((name.clone(), module.deep_clone_in(ties)?))).collect()
    }
}

impl<M: Visit> Module for BTreeMap<String, M> {}
