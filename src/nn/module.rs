//! The `Module` trait: all that can be done by visiting the parts of a module.

use super::parameter::{Buffer, Parameter};
use super::state;
use super::summary;
use super::tied::{ParameterMut, check_whole, parameters_mut};
use super::visit::{Part, PartMut, Ties, Visit, Visitor};
use crate::error::named;
use crate::io::StateDict;
use crate::{DType, Device, Result, Tensor};
use std::collections::{HashMap, HashSet};

/// A part of a network, with named parameters, buffers and submodules.
///
/// Derive it for structs and enums. A field holds
/// - a [`Parameter`], a [`Buffer`], a module, or an `Option`, `Box`, `Vec`, array or `BTreeMap<String, _>` of these;
/// - plain data, which is not part of the state. Numbers, strings, shapes, and `Option`s, `Vec`s, arrays and tuples of
///   them need no attribute; anything else, also a constant tensor, needs `#[module(skip)]`.
///
/// The names are PyTorch's: fields joined by dots, with positions in a `Vec`: `blocks.0.fc1.weight`. A field can have
/// another name: `#[module(rename = "self_attn")]`. An enum's variant with one unnamed field is that field.
///
/// The forward pass is not part of this trait, as it may take several inputs: write a method `forward`, or implement
/// [`Forward`](super::Forward) to use the module in a [`Sequential`](super::Sequential).
///
/// Modules are not `Clone`, because a clone would separate tied parameters. [`deep_clone`](Self::deep_clone) copies a module,
/// [`state_dict`](Self::state_dict) its values.
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
/// A plain tensor in a field does not compile: make it a parameter or a buffer, or mark a constant `#[module(skip)]`.
///
/// ```compile_fail
/// use cotangent::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Scale {
///     factor: Tensor,
/// }
/// ```
#[doc(alias = "ModuleList")]
#[doc(alias = "ModuleDict")]
#[doc(alias = "ParameterList")]
#[doc(alias = "ParameterDict")]
#[diagnostic::on_unimplemented(message = "`{Self}` is not a module", note = "modules are made by `#[derive(Module)]`")]
pub trait Module: Visit {
    /// A copy with its own parameters and buffers. Parameters that are tied in the module are tied in the copy. Gradients
    /// and hooks are not copied.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let model = Linear::new(3, 2)?;
    /// let mut copy = model.deep_clone()?;
    /// copy.weight.update(|w| w.zero_())?;
    /// assert!(!copy.weight.equal(&model.weight)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out, or the module holds data that cannot be cloned.
    #[doc(alias = "deepcopy")]
    #[doc(alias = "clone")]
    #[track_caller]
    fn deep_clone(&self) -> Result<Self>
    where
        Self: Sized,
    {
        named("deep_clone", self.deep_clone_in(&mut Ties::default()))
    }

    /// The parameters with their names, in the order of the fields. A parameter with several names is listed once, under
    /// the first.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let model = Linear::new(3, 2)?;
    /// for (name, parameter) in model.named_parameters() {
    ///     println!("{name}: {:?}", parameter.shape());
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn named_parameters(&self) -> Vec<(String, &Parameter)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        self.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Param(parameter) = part
                && seen.insert(parameter.id())
            {
                found.push((name.to_string(), parameter));
            }
        }));
        found
    }

    /// The parameters, each once.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// assert_eq!(Linear::new(3, 2)?.parameters().len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn parameters(&self) -> Vec<&Parameter> {
        self.named_parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }

    /// The parameters, each once, to be changed. Handles that are tied to one get its values when the [`ParameterMut`] is dropped.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let mut model = Linear::new(3, 2)?;
    /// for mut parameter in model.parameters_mut() {
    ///     parameter.update(|values| values.mul_(0.5))?;
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn parameters_mut(&mut self) -> Vec<ParameterMut<'_>> {
        parameters_mut(self)
    }

    /// The buffers with their names, in the order of the fields.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Buffer, Module}};
    /// #[derive(Module)]
    /// struct Running {
    ///     mean: Buffer,
    /// }
    /// let model = Running { mean: Buffer::new(Tensor::zeros([3])?) };
    /// assert_eq!(model.named_buffers()[0].0, "mean");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "buffers")]
    fn named_buffers(&self) -> Vec<(String, &Buffer)> {
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Buffer(buffer) = part {
                found.push((name.to_string(), buffer));
            }
        }));
        found
    }

    /// The number of elements of all parameters, each counted once.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// assert_eq!(Linear::new(3, 2)?.num_parameters(), 8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn num_parameters(&self) -> usize {
        self.parameters().into_iter().map(summary::elements).sum()
    }

    /// Removes the gradients of all parameters.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Linear, Module}};
    /// let model = Linear::new(3, 2)?;
    /// model.forward(&Tensor::ones([1, 3])?)?.sum(..)?.backward()?;
    /// assert!(model.weight.grad().is_some());
    /// model.zero_grad();
    /// assert!(model.weight.grad().is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn zero_grad(&self) {
        self.visit(&mut Visitor::new(&mut |_, part| {
            if let Part::Param(parameter) = part {
                parameter.zero_grad();
            }
        }));
    }

    /// Sets the module and all its submodules to training mode.
    ///
    /// ```
    /// use cotangent::nn::{Dropout, Module};
    /// let mut model = Dropout::new(0.1)?;
    /// model.eval();
    /// model.train();
    /// assert!(model.is_training());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn train(&mut self) {
        set_training(self, true);
    }

    /// Sets the module and all its submodules to evaluation mode, in which dropout is the identity.
    ///
    /// ```
    /// use cotangent::nn::{Dropout, Module};
    /// let mut model = Dropout::new(0.1)?;
    /// model.eval();
    /// assert!(!model.is_training());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn eval(&mut self) {
        set_training(self, false);
    }

    /// Whether any part of the module is in training mode.
    ///
    /// ```
    /// use cotangent::nn::{Dropout, Module};
    /// assert!(Dropout::new(0.1)?.is_training());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "training")]
    fn is_training(&self) -> bool {
        let mut any = false;
        self.visit(&mut Visitor::new(&mut |_, part| any |= matches!(part, Part::Training(true))));
        any
    }

    /// The values of all parameters and buffers by name, detached from the graph. A parameter with several names appears
    /// under each of them, as in PyTorch. The memory is shared until one side changes it.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let dict = Linear::new(3, 2)?.state_dict();
    /// assert_eq!(dict.names().collect::<Vec<_>>(), ["weight", "bias"]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn state_dict(&self) -> StateDict {
        let mut dict = StateDict::new();
        self.visit(&mut Visitor::new(&mut |name, part| match part {
            Part::Param(parameter) => drop(dict.insert(name, parameter.detach())),
            Part::Buffer(buffer) => drop(dict.insert(name, buffer.get())),
            _ => {}
        }));
        dict
    }

    /// Loads the values of all parameters and buffers. The parameters keep their identity, gradients and hooks.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let (trained, mut model) = (Linear::new(3, 2)?, Linear::new(3, 2)?);
    /// model.load_state_dict(&trained.state_dict())?;
    /// assert!(model.weight.equal(&trained.weight)?);
    /// assert!(model.load_state_dict(&Linear::new(4, 2)?.state_dict()).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape or dtype differs: the message lists them all, and nothing is changed.
    /// For a parameter with several names one of them is enough.
    #[track_caller]
    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", state::take_over(self, dict, state::RequiredNames::Exact).map(drop))
    }

    /// Loads the values of those parameters and buffers that the dictionary has, and reports the names that were found on
    /// one side only.
    ///
    /// ```
    /// use cotangent::nn::{Linear, LinearOptions, Module};
    /// let without_bias = Linear::new_with(3, 2, LinearOptions::new().bias(false))?;
    /// let report = Linear::new(3, 2)?.load_matching(&without_bias.state_dict())?;
    /// assert_eq!((report.loaded, report.missing), (1, vec!["bias".to_string()]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no name matches, or a shape or dtype differs; nothing is changed then.
    #[doc(alias = "strict")]
    #[track_caller]
    fn load_matching(&mut self, dict: &StateDict) -> Result<state::LoadReport> {
        named("load_matching", state::take_over(self, dict, state::RequiredNames::Common))
    }

    /// Makes all parameters trainable, or freezes them, as [`Parameter::set_requires_grad`] does.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module};
    /// let mut model = Linear::new(3, 2)?;
    /// model.requires_grad_(false)?;
    /// assert!(!model.weight.requires_grad());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    fn requires_grad_(&mut self, requires_grad: bool) -> Result<()> {
        let set = |mut parameter: ParameterMut<'_>| parameter.set_requires_grad(requires_grad);
        named("requires_grad_", self.parameters_mut().into_iter().try_for_each(set))
    }

    /// Casts all floating-point parameters and buffers. Gradients are dropped.
    ///
    /// ```
    /// use cotangent::{DType, nn::{Linear, Module}};
    /// let mut model = Linear::new(3, 2)?;
    /// model.to_dtype(DType::BF16)?;
    /// assert_eq!(model.weight.dtype(), DType::BF16);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not floating point, or memory runs out; nothing is changed then.
    #[doc(alias = "to")]
    #[doc(alias = "float")]
    #[doc(alias = "double")]
    #[doc(alias = "half")]
    #[doc(alias = "bfloat16")]
    #[track_caller]
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            let refused = crate::error::err!(DType, "to_dtype", "dtype must be floating point, got {dtype}");
            return named("to_dtype", Err(refused));
        }
        let cast =
            |values: &Tensor| if values.dtype().is_float() { values.to_dtype(dtype) } else { Ok(values.clone()) };
        named("to_dtype", replace("to_dtype", self, cast))
    }

    /// Moves all parameters and buffers to a device. Gradients are dropped.
    ///
    /// ```
    /// use cotangent::{Device, nn::{Linear, Module}};
    /// let mut model = Linear::new(3, 2)?;
    /// model.to_device(if Device::cuda(0).is_available() { Device::cuda(0) } else { Device::Cpu })?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such device, or its memory runs out; nothing is changed then.
    #[doc(alias = "to")]
    #[doc(alias = "cpu")]
    #[doc(alias = "cuda")]
    #[track_caller]
    fn to_device(&mut self, device: Device) -> Result<()> {
        named("to_device", replace("to_device", self, |values| values.to_device(device)))
    }

    /// A table of the modules, parameters and buffers with their shapes and sizes, to be printed.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module, ReLU, Sequential};
    /// let model = Sequential::new().add(Linear::new(4, 8)?).add(ReLU).add(Linear::new(8, 3)?);
    /// println!("{}", model.summary());
    /// assert!(model.summary().contains("67 parameters"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
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

/// Replaces the values of all parameters and buffers. A parameter with several names stays one. All new values are computed
/// before the first is stored.
fn replace<M: Module + ?Sized>(
    op: &'static str,
    module: &mut M,
    make: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    check_whole(op, module)?;
    let (mut parameters, mut buffers) = (HashMap::<usize, Parameter>::new(), HashMap::<String, Tensor>::new());
    let mut failed = Ok(());
    module.visit(&mut Visitor::new(&mut |name, part| {
        let made = match part {
            Part::Param(parameter) if !parameters.contains_key(&parameter.id()) => make(&parameter.detach())
                .and_then(|values| parameter.replaced(&values))
                .map(|new| drop(parameters.insert(parameter.id(), new))),
            Part::Buffer(buffer) => make(&buffer.get()).map(|values| drop(buffers.insert(name.to_string(), values))),
            _ => Ok(()),
        };
        if let (Err(error), true) = (made, failed.is_ok()) {
            failed = Err(error);
        }
    }));
    failed?;
    module.visit_mut(&mut Visitor::new(&mut |name, part| match part {
        PartMut::Param(parameter) => {
            if let Some(new) = parameters.get(&parameter.id()) {
                // Graphs made with the old one would lose their gradients: backward through them is now an error.
                parameter.retire();
                *parameter = new.tie();
            }
        }
        PartMut::Buffer(buffer) => {
            if let Some(values) = buffers.remove(name) {
                buffer.replace(values);
            }
        }
        _ => {}
    }));
    Ok(())
}

/// The training flag of a module, which [`train`](Module::train) and [`eval`](Module::eval) set. It starts in training mode. A
/// module that behaves differently in training has a field of this type.
///
/// ```
/// use cotangent::nn::{Forward, Module, Training};
/// use cotangent::{Result, Tensor};
///
/// /// Adds noise in training.
/// #[derive(Module)]
/// struct Noise {
///     std: f64,
///     training: Training,
/// }
///
/// impl Forward for Noise {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         if self.training.is_on() { x.add(&x.randn_like()?.mul(self.std)?) } else { Ok(x.clone()) }
///     }
/// }
///
/// let mut layer = Noise { std: 0.1, training: Training::default() };
/// layer.eval();
/// assert_eq!(layer.forward(&Tensor::ones([2])?)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training(bool);

impl Training {
    /// Whether the module is in training mode.
    ///
    /// ```
    /// use cotangent::nn::Training;
    /// assert!(Training::default().is_on());
    /// ```
    pub fn is_on(&self) -> bool {
        self.0
    }
}

impl Default for Training {
    fn default() -> Training {
        Training(true)
    }
}

impl Visit for Training {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.show(Part::Training(self.0));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.show(PartMut::Training(&mut self.0));
    }

    fn deep_clone_in(&self, _: &mut Ties) -> Result<Training> {
        Ok(*self)
    }
}
