//! What a module is made of, and everything that follows from being able to visit it.

use super::state;
use super::summary;
use super::tied::Leaf;
use crate::io::StateDict;
use crate::{DType, Device, Result, Tensor};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

/// A piece of a module, as a visit comes by it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Part<'a> {
    /// A module begins: the name of its type. What comes under its name and further down belongs to it.
    Module(&'static str),
    /// A tensor that is trained.
    Param(&'a Tensor),
    /// A tensor that belongs to the module's state but is not trained, such as a running mean.
    Buffer(&'a Tensor),
    /// Whether a module that behaves differently in training is in training.
    Training(bool),
}

/// A piece of a module that may be changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartMut<'a> {
    /// A module begins.
    Module(&'static str),
    /// A tensor that is trained.
    Param(&'a mut Tensor),
    /// A tensor that belongs to the state but is not trained.
    Buffer(&'a mut Tensor),
    /// Whether the module is in training.
    Training(&'a mut bool),
}

/// Walks through a module, keeps the path to where it is, and shows every part to a function.
pub struct Visitor<'v, P> {
    path: String,
    see: &'v mut dyn FnMut(&str, P),
}

impl<'v, P> Visitor<'v, P> {
    /// A visitor that shows every part, with its full name, to `see`.
    pub fn new(see: &'v mut dyn FnMut(&str, P)) -> Self {
        Visitor { path: String::new(), see }
    }

    /// Does `f` one step further down, under `name`.
    pub fn child(&mut self, name: impl std::fmt::Display, f: impl FnOnce(&mut Self)) {
        let here = self.path.len();
        let dot = if here == 0 { "" } else { "." };
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{dot}{name}");
        f(self);
        self.path.truncate(here);
    }

    fn show(&mut self, part: P) {
        (self.see)(&self.path, part);
    }
}

impl<'a> Visitor<'_, Part<'a>> {
    /// A module of the named type begins here.
    pub fn enter(&mut self, kind: &'static str) {
        self.show(Part::Module(kind));
    }

    /// Visits the module in a field.
    pub fn module<M: Module + ?Sized>(&mut self, name: &str, module: &'a M) {
        self.child(name, |visitor| module.visit(visitor));
    }

    /// Visits the parameters in a field.
    pub fn param<T: Tensors + ?Sized>(&mut self, name: &str, tensors: &'a T) {
        self.child(name, |visitor| tensors.visit(visitor, Part::Param));
    }

    /// Visits the buffers in a field.
    pub fn buffer<T: Tensors + ?Sized>(&mut self, name: &str, tensors: &'a T) {
        self.child(name, |visitor| tensors.visit(visitor, Part::Buffer));
    }
}

impl<'a> Visitor<'_, PartMut<'a>> {
    /// A module of the named type begins here.
    pub fn enter(&mut self, kind: &'static str) {
        self.show(PartMut::Module(kind));
    }

    /// Visits the module in a field.
    pub fn module<M: Module + ?Sized>(&mut self, name: &str, module: &'a mut M) {
        self.child(name, |visitor| module.visit_mut(visitor));
    }

    /// Visits the parameters in a field.
    pub fn param<T: Tensors + ?Sized>(&mut self, name: &str, tensors: &'a mut T) {
        self.child(name, |visitor| tensors.visit_mut(visitor, PartMut::Param));
    }

    /// Visits the buffers in a field.
    pub fn buffer<T: Tensors + ?Sized>(&mut self, name: &str, tensors: &'a mut T) {
        self.child(name, |visitor| tensors.visit_mut(visitor, PartMut::Buffer));
    }
}

/// What a field marked `#[module(param)]` or `#[module(buffer)]` may hold: a [`Tensor`], an `Option` of one, or a `Vec`,
/// whose tensors are then named `field.0`, `field.1`, ….
#[diagnostic::on_unimplemented(
    message = "a field marked `param` or `buffer` cannot hold `{Self}`",
    note = "it holds a `Tensor`, an `Option<Tensor>` or a `Vec<Tensor>`; a module needs no mark"
)]
pub trait Tensors {
    /// Shows each tensor as the part that `wrap` makes of it.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>, wrap: fn(&'a Tensor) -> Part<'a>);
    /// As [`visit`](Self::visit), to change them.
    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>, wrap: fn(&'a mut Tensor) -> PartMut<'a>);
}

impl Tensors for Tensor {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>, wrap: fn(&'a Tensor) -> Part<'a>) {
        visitor.show(wrap(self));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>, wrap: fn(&'a mut Tensor) -> PartMut<'a>) {
        visitor.show(wrap(self));
    }
}

impl<T: Tensors> Tensors for Option<T> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>, wrap: fn(&'a Tensor) -> Part<'a>) {
        self.iter().for_each(|tensors| tensors.visit(visitor, wrap));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>, wrap: fn(&'a mut Tensor) -> PartMut<'a>) {
        self.iter_mut().for_each(|tensors| tensors.visit_mut(visitor, wrap));
    }
}

impl<T: Tensors> Tensors for Vec<T> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>, wrap: fn(&'a Tensor) -> Part<'a>) {
        for (at, tensors) in self.iter().enumerate() {
            visitor.child(at, |visitor| tensors.visit(visitor, wrap));
        }
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>, wrap: fn(&'a mut Tensor) -> PartMut<'a>) {
        for (at, tensors) in self.iter_mut().enumerate() {
            visitor.child(at, |visitor| tensors.visit_mut(visitor, wrap));
        }
    }
}

/// A part of a network: parameters, buffers and smaller modules, each under a name.
///
/// It is derived. A field holds
/// - a module, or an `Option`, `Box`, `Vec`, array or `BTreeMap<String, _>` of modules: no mark;
/// - a parameter: `#[module(param)]` on a `Tensor`, `Option<Tensor>` or `Vec<Tensor>`;
/// - a buffer, which is part of the state but is not trained: `#[module(buffer)]` on one of the same types;
/// - plain data, which is not part of the state: numbers, strings, shapes and `Option`s, `Vec`s, arrays and tuples of
///   them need no mark, anything else `#[module(skip)]`.
///
/// The names are PyTorch's: fields joined by dots, with positions in a `Vec`: `blocks.0.fc1.weight`.
///
/// What a module computes is not part of this trait, as it may take several inputs: write a method `forward`, or
/// implement [`Forward`](super::Forward) so that it fits into a [`Sequential`](super::Sequential).
///
/// Modules are not `Clone`: a clone of a parameter is the same parameter, so the copy would be trained together with
/// the original. A copy of the values is [`state_dict`](Self::state_dict).
///
/// ```
/// use cotangent::nn::{Forward, Linear, Module};
/// use cotangent::{Result, Tensor};
///
/// #[derive(Module)]
/// struct Mlp {
///     fc1: Linear,
///     fc2: Linear,
/// }
///
/// impl Forward for Mlp {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
///     }
/// }
///
/// let model = Mlp { fc1: Linear::new(4, 8)?, fc2: Linear::new(8, 3)? };
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
/// assert_eq!(model.num_parameters(), 4 * 8 + 8 + 8 * 3 + 3);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// A field whose role is not said is an error of compilation:
///
/// ```compile_fail
/// use cotangent::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Scale {
///     factor: Tensor,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    note = "a field of a module that holds a tensor is marked `#[module(param)]` or `#[module(buffer)]`",
    note = "one that holds plain data is marked `#[module(skip)]`",
    note = "one that holds a module needs `#[derive(Module)]` on the module's type"
)]
pub trait Module {
    /// Shows every part to the visitor. The derive macro writes this.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>);

    /// Shows every part to the visitor, to be changed. The derive macro writes this.
    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>);

    /// The parameters with their names, in the order of the fields. One that is reached under several names is listed
    /// once, under the first.
    fn named_parameters(&self) -> Vec<(String, &Tensor)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        self.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Param(tensor) = part
                && Leaf::of(tensor).is_none_or(|leaf| seen.insert(leaf))
            {
                found.push((name.to_string(), tensor));
            }
        }));
        found
    }

    /// The parameters, each once.
    fn parameters(&self) -> Vec<&Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// The buffers with their names, in the order of the fields.
    fn named_buffers(&self) -> Vec<(String, &Tensor)> {
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Buffer(tensor) = part {
                found.push((name.to_string(), tensor));
            }
        }));
        found
    }

    /// The number of elements of all parameters, each counted once.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(|tensor| tensor.numel()).sum()
    }

    /// Takes the gradients of all parameters away.
    fn zero_grad(&self) {
        self.visit(&mut Visitor::new(&mut |_, part| {
            if let Part::Param(tensor) = part {
                tensor.zero_grad();
            }
        }));
    }

    /// Puts the module and all modules in it into training, in which dropout drops.
    fn train(&mut self) {
        set_training(self, true);
    }

    /// Puts the module and all modules in it into evaluation, in which dropout does nothing.
    fn eval(&mut self) {
        set_training(self, false);
    }

    /// Whether a part of the module is in training.
    fn is_training(&self) -> bool {
        let mut any = false;
        self.visit(&mut Visitor::new(&mut |_, part| any |= matches!(part, Part::Training(true))));
        any
    }

    /// The values of all parameters and buffers under their names, apart from the graph. A parameter with several names
    /// appears under each of them, as in PyTorch. The bytes are shared until one side changes them.
    fn state_dict(&self) -> StateDict {
        let mut dict = StateDict::new();
        self.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Param(tensor) | Part::Buffer(tensor) = part {
                dict.insert(name, tensor.detach());
            }
        }));
        dict
    }

    /// Takes over the values of all parameters and buffers. Parameters stay the leaves they are.
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape or dtype differs: the message lists them all, and nothing is changed.
    /// For a parameter with several names one of them is enough.
    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        state::take_over(self, dict, state::Names::Exact).map(drop)
    }

    /// Takes over the values of those parameters and buffers that the dictionary has, and says which names were found
    /// on one side only.
    ///
    /// # Errors
    /// If no name fits, or a shape or dtype differs; nothing is changed then.
    fn load_matching(&mut self, dict: &StateDict) -> Result<state::LoadReport> {
        state::take_over(self, dict, state::Names::Common)
    }

    /// Makes all parameters leaves that require a gradient, or constants (frozen), as
    /// [`Tensor::requires_grad_`] does.
    ///
    /// # Errors
    /// If a parameter is not of floating point, or not a leaf; nothing is changed then.
    fn requires_grad_(&mut self, requires_grad: bool) -> Result<()> {
        replace(self, |part| match part {
            Part::Param(tensor) => tensor.clone().requires_grad_(requires_grad).map(Some),
            _ => Ok(None),
        })
    }

    /// Casts all parameters and buffers of floating point. Gradients are dropped.
    ///
    /// # Errors
    /// If the dtype is not of floating point, or memory runs out; nothing is changed then.
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        replace(self, |part| match part {
            Part::Param(tensor) => tensor.detach().to_dtype(dtype)?.requires_grad_(tensor.requires_grad()).map(Some),
            Part::Buffer(tensor) if tensor.dtype().is_float() => tensor.detach().to_dtype(dtype).map(Some),
            _ => Ok(None),
        })
    }

    /// Moves all parameters and buffers to a device. Gradients are dropped.
    ///
    /// # Errors
    /// If there is no such device, or its memory runs out; nothing is changed then.
    fn to_device(&mut self, device: Device) -> Result<()> {
        replace(self, |part| match part {
            Part::Param(tensor) => tensor.detach().to_device(device)?.requires_grad_(tensor.requires_grad()).map(Some),
            Part::Buffer(tensor) => tensor.detach().to_device(device).map(Some),
            _ => Ok(None),
        })
    }

    /// A table of the modules, parameters and buffers with their shapes and sizes, to be printed.
    fn summary(&self) -> String {
        summary::table(self)
    }
}

fn set_training<M: Module + ?Sized>(module: &mut M, training: bool) {
    module.visit_mut(&mut Visitor::new(&mut |_, part| {
        if let PartMut::Training(flag) = part {
            *flag = training;
        }
    }));
}

/// Puts new tensors in the places of those for which `make` gives one. One parameter under several names stays one. All
/// new tensors are made before the first is put in place.
fn replace<M: Module + ?Sized>(module: &mut M, make: impl Fn(Part<'_>) -> Result<Option<Tensor>>) -> Result<()> {
    let mut made: HashMap<String, Tensor> = HashMap::new();
    let mut of_leaf: HashMap<Leaf, Tensor> = HashMap::new();
    let mut failed = None;
    module.visit(&mut Visitor::new(&mut |name, part| {
        let (Part::Param(tensor) | Part::Buffer(tensor)) = part else { return };
        let leaf = matches!(part, Part::Param(_)).then(|| Leaf::of(tensor)).flatten();
        let known = leaf.as_ref().and_then(|leaf| of_leaf.get(leaf)).cloned();
        match known.map_or_else(|| make(part), |known| Ok(Some(known))) {
            Ok(Some(new)) => {
                leaf.map(|leaf| of_leaf.insert(leaf, new.clone()));
                made.insert(name.to_string(), new);
            }
            Ok(None) => {}
            Err(error) => failed = failed.take().or(Some(error)),
        }
    }));
    if let Some(error) = failed {
        return Err(error);
    }
    module.visit_mut(&mut Visitor::new(&mut |name, part| {
        if let PartMut::Param(tensor) | PartMut::Buffer(tensor) = part
            && let Some(new) = made.remove(name)
        {
            *tensor = new;
        }
    }));
    Ok(())
}

/// A flag that [`train`](Module::train) and [`eval`](Module::eval) set; it begins in training. The field of a module that
/// behaves differently in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training(bool);

impl Training {
    /// Whether the module is in training.
    pub fn is_on(&self) -> bool {
        self.0
    }
}

impl Default for Training {
    fn default() -> Training {
        Training(true)
    }
}

impl Module for Training {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.show(Part::Training(self.0));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.show(PartMut::Training(&mut self.0));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        (**self).visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        (**self).visit_mut(visitor);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self.iter().for_each(|module| module.visit(visitor));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self.iter_mut().for_each(|module| module.visit_mut(visitor));
    }
}

/// The modules are named by their position.
impl<M: Module> Module for [M] {
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

impl<M: Module> Module for Vec<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self[..].visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self[..].visit_mut(visitor);
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self[..].visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self[..].visit_mut(visitor);
    }
}

/// The modules are named by their keys.
impl<M: Module> Module for BTreeMap<String, M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        self.iter().for_each(|(name, module)| visitor.module(name, module));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        self.iter_mut().for_each(|(name, module)| visitor.module(name, module));
    }
}
