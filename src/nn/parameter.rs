//! The state of a module: parameters, which are trained, and buffers, which the module updates itself.
//!
//! A tensor is a value; parameters and buffers are variables that hold one. Having two types prevents a weight that is not
//! trained by mistake, or a running mean that is.

use super::{Part, PartMut, Visit, Visitor};
use crate::autograd::{is_recomputing, no_grad};
use crate::backend;
use crate::error::{bail, err, named, placed};
use crate::quantized::{QuantFormat, QuantizedTensor};
use crate::tensor::Operand;
use crate::{DType, Result, Tensor};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A trainable tensor of a module: a leaf of the graph that requires a gradient, unless it is
/// [frozen](Parameter::set_requires_grad).
///
/// It can be used wherever a `&Tensor` can. A clone of that tensor keeps the old values after the parameter has changed, by an
/// optimiser or by hand, and differentiating through the clone is then an error.
///
/// ```
/// use cotangent::{Tensor, nn::Parameter};
/// let weight = Parameter::new(Tensor::ones([2, 3])?)?;
/// let y = Tensor::ones([4, 2])?.matmul(&weight)?;
/// assert!(weight.requires_grad() && y.requires_grad());
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Parameter {
    tensor: Tensor,
    /// The identity that all handles of a parameter share. It also counts them.
    id: Arc<()>,
    /// The format of a quantised weight, whose blocks are the tensor.
    format: Option<QuantFormat>,
}

impl Parameter {
    /// A parameter with the values of a tensor, detached from its graph.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// let weight = Parameter::new(Tensor::zeros([2, 3])?)?;
    /// assert!(weight.requires_grad());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not floating point.
    // By value: callers pass a tensor that was made for this.
    #[allow(clippy::needless_pass_by_value)]
    #[track_caller]
    pub fn new(values: Tensor) -> Result<Parameter> {
        let leaf = named("Parameter::new", values.detach().into_leaf("Parameter::new", None))?;
        Ok(Parameter { tensor: leaf, id: Arc::new(()), format: None })
    }

    /// A frozen parameter with a quantised weight. The parameter's tensor has the bytes of the blocks. The name of the format
    /// is the last part of its name in a state dictionary: `fc.weight.Q8_0`.
    ///
    /// [`Linear`](super::Linear), [`LoraLinear`](super::LoraLinear) and [`Embedding`](super::Embedding) compute with it.
    /// [`quantize`](super::quantize()) makes these parameters in a model.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Linear, Module, Parameter, QuantFormat, QuantizedTensor}};
    /// let mut layer = Linear::new(64, 2)?;
    /// layer.weight = Parameter::from_quantized(QuantizedTensor::quantize(&layer.weight, QuantFormat::Q8_0)?);
    /// assert_eq!(layer.forward(&Tensor::ones([5, 64])?)?.shape(), [5, 2]);
    /// assert_eq!(layer.state_dict().names().collect::<Vec<_>>(), ["weight.Q8_0", "bias"]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    // By value: callers pass a weight that was made for this.
    #[allow(clippy::needless_pass_by_value)]
    pub fn from_quantized(weight: QuantizedTensor) -> Parameter {
        Parameter { tensor: weight.blocks().clone(), id: Arc::new(()), format: Some(weight.format()) }
    }

    /// The quantised weight, if the parameter holds one.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// assert!(Parameter::new(Tensor::zeros([2, 3])?)?.quantized().is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn quantized(&self) -> Option<QuantizedTensor> {
        // The blocks were checked when the parameter was made, and their shape never changes.
        self.format.and_then(|format| QuantizedTensor::from_blocks(&self.tensor, format).ok())
    }

    /// The shape of the weight, not of the blocks of a quantised one.
    pub(crate) fn logical_shape(&self) -> crate::Shape {
        self.quantized().map_or_else(|| self.tensor.layout().shape().clone(), |weight| weight.shape().into())
    }

    /// Another handle of the same parameter, to share it between parts of a model: one gradient, one update, and one entry in
    /// lists of parameters.
    ///
    /// ```
    /// use cotangent::nn::{Embedding, Linear};
    /// let embedding = Embedding::new(100, 16)?;
    /// let mut head = Linear::new(16, 100)?;
    /// head.weight = embedding.weight.tie();
    /// assert!(head.weight.is_tied_to(&embedding.weight));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn tie(&self) -> Parameter {
        Parameter { tensor: self.tensor.clone(), id: self.id.clone(), format: self.format }
    }

    /// Whether two handles are the same parameter.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// let (a, b) = (Parameter::new(Tensor::zeros([2])?)?, Parameter::new(Tensor::zeros([2])?)?);
    /// assert!(a.is_tied_to(&a.tie()) && !a.is_tied_to(&b));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_tied_to(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.id, &other.id)
    }

    /// Freezes the parameter, so that it gets no gradient, or makes it trainable again.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// let mut weight = Parameter::new(Tensor::zeros([2])?)?;
    /// weight.set_requires_grad(false)?;
    /// assert!(!weight.exp()?.requires_grad());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is [tied](Self::tie): [`Module::parameters_mut`](super::Module::parameters_mut) changes all handles together.
    #[track_caller]
    pub fn set_requires_grad(&mut self, requires_grad: bool) -> Result<()> {
        let op = "set_requires_grad";
        named(op, self.check_untied(op).and_then(|()| self.mark(requires_grad)))
    }

    pub(super) fn mark(&mut self, requires_grad: bool) -> Result<()> {
        if let (true, Some(format)) = (requires_grad, self.format) {
            bail!(Value, "set_requires_grad", "a quantized weight cannot be trained, got one of {format}");
        }
        if requires_grad != self.tensor.requires_grad() {
            let values = self.tensor.detach();
            self.tensor = if requires_grad { values.into_leaf("set_requires_grad", None)? } else { values };
        }
        Ok(())
    }

    /// Changes the values, outside the graph: `weight.update(|w| w.mul_(0.5))`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// let mut weight = Parameter::new(Tensor::ones([2])?)?;
    /// weight.update(|w| w.mul_(0.5))?;
    /// assert_eq!(weight.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `f` fails, changes the shape, dtype or device, or replaces the tensor by the result of a recorded operation; or if
    /// the parameter is [tied](Self::tie). The old values stay then.
    #[track_caller]
    pub fn update(&mut self, f: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
        placed(self.check_untied("update").and_then(|()| self.change(f)))
    }

    pub(super) fn change(&mut self, f: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
        let (node, shape, dtype, device) =
            (self.tensor.node().cloned(), self.tensor.shape().to_vec(), self.tensor.dtype(), self.tensor.device());
        let mut changed = self.tensor.detach();
        if backend::is_recording(device) {
            // A recorded step must change the memory in place, which requires the only handle to it. Otherwise the first
            // write makes a copy, and the old values stay in case of an error.
            self.tensor = Tensor::zeros(())?;
        }
        let mut done = no_grad(|| f(&mut changed));
        let alike = changed.shape() == shape && changed.dtype() == dtype && changed.device() == device;
        if done.is_ok() && !(alike && changed.grad_fn().is_none()) {
            let got = match changed.grad_fn() {
                Some(op) => format!("the result of {op} with its graph: call detach() first"),
                None => format!("{} of shape {:?} on {}", changed.dtype(), changed.shape(), changed.device()),
            };
            let what = format!("the new value must be {dtype} of shape {shape:?} on {device}, got {got}");
            done = Err(err!(Shape, "update", "{what}"));
        }
        if done.is_ok() || backend::is_recording(device) {
            self.tensor = changed.with_node(node);
            self.tensor.renew_leaf();
        }
        done
    }

    /// Replaces the values. Gradient and hooks stay.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Parameter};
    /// let mut weight = Parameter::new(Tensor::zeros([2])?)?;
    /// weight.set(&Tensor::ones([2])?)?;
    /// assert_eq!(weight.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(weight.set(&Tensor::ones([3])?).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If their shape, dtype or device is not the parameter's, or it is [tied](Self::tie).
    #[track_caller]
    pub fn set(&mut self, values: &Tensor) -> Result<()> {
        named("set", self.check_untied("set").and_then(|()| self.put(values)))
    }

    pub(super) fn put(&mut self, values: &Tensor) -> Result<()> {
        let (new, own) = (values, &self.tensor);
        if new.shape() != own.shape() || new.dtype() != own.dtype() || new.device() != own.device() {
            bail!(
                Shape,
                "set",
                "values must be {} of shape {:?} on {}, got {} of shape {:?} on {}",
                own.dtype(),
                own.shape(),
                own.device(),
                new.dtype(),
                new.shape(),
                new.device()
            );
        }
        self.tensor = values.detach().contiguous()?.with_node(own.node().cloned());
        self.tensor.renew_leaf();
        Ok(())
    }

    /// Replaces the tensor that the parameter holds, together with its node in the graph, and returns the old one. For front
    /// ends whose variables own the values: a leaf there is the same leaf here, with the same gradient. Other handles of the
    /// parameter keep the old tensor, and graphs made from it stay valid.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Linear}};
    /// let variable = Tensor::ones([2, 3])?.requires_grad_(true)?;
    /// let mut layer = Linear::new(3, 2)?;
    /// layer.weight.swap_tensor(variable.clone());
    /// layer.forward(&Tensor::ones([1, 3])?)?.sum(..)?.backward()?;
    /// assert!(variable.grad().is_some());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn swap_tensor(&mut self, tensor: Tensor) -> Tensor {
        if tensor.dtype() != DType::U8 || tensor.shape() != self.tensor.shape() {
            self.format = None;
        }
        std::mem::replace(&mut self.tensor, tensor)
    }

    /// The same parameter with values of another dtype or on another device. Its gradient is dropped.
    pub(crate) fn replaced(&self, values: &Tensor) -> Result<Parameter> {
        let values = values.detach();
        let tensor = if self.tensor.requires_grad() { values.into_leaf("Parameter", None)? } else { values };
        Ok(Parameter { tensor, id: self.id.clone(), format: self.format })
    }

    /// A number that identifies the parameter.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.id).addr()
    }

    /// How many handles of the parameter there are.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.id)
    }

    /// Fails if there are other handles, which would keep the old value.
    fn check_untied(&self, op: &'static str) -> Result<()> {
        if self.handles() > 1 {
            bail!(
                Value,
                op,
                "the parameter of shape {:?} is tied to {} other handles, which would keep the old value: change it through \
                 parameters_mut() of the module that holds all of them",
                self.tensor.shape(),
                self.handles() - 1
            );
        }
        Ok(())
    }

    /// The tensor, for an optimiser, which calls [`changed`](Self::changed) after it has changed it.
    pub(crate) fn tensor_mut(&mut self) -> &mut Tensor {
        &mut self.tensor
    }

    /// Records that the values were changed: graphs and clones made before refer to the old ones.
    pub(crate) fn changed(&mut self) {
        self.tensor.renew_leaf();
    }

    /// Marks graphs and clones made from this parameter as stale, before it is replaced.
    pub(crate) fn retire(&mut self) {
        self.tensor.renew_leaf();
        // No address: a step that was recorded with it must be recorded again.
        #[cfg(feature = "cuda")]
        if let Some(node) = self.tensor.grad_node() {
            node.extras().set_values(usize::MAX);
        }
    }
}

impl Deref for Parameter {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<'a> From<&'a Parameter> for Operand<'a> {
    fn from(parameter: &'a Parameter) -> Operand<'a> {
        Operand::Borrowed(parameter)
    }
}

impl AsRef<Tensor> for Parameter {
    fn as_ref(&self) -> &Tensor {
        &self.tensor
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quantized() {
            None => write!(f, "Parameter({:?})", self.tensor),
            Some(weight) => write!(f, "Parameter({weight:?})"),
        }
    }
}

impl Visit for Parameter {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        match self.format {
            None => visitor.show(Part::Param(self)),
            Some(format) => visitor.child(format, |visitor| visitor.show(Part::Param(self))),
        }
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        match self.format {
            None => visitor.show(PartMut::Param(self)),
            Some(format) => visitor.child(format, |visitor| visitor.show(PartMut::Param(self))),
        }
    }

    fn deep_clone_in(&self, ties: &mut super::Ties) -> Result<Parameter> {
        ties.clone_of(self)
    }
}

/// A tensor of a module's state that is not trained, such as a running mean. It is saved, loaded and moved with the
/// parameters. `forward(&self)` can change it, also when several threads run the model at once.
///
/// ```
/// use cotangent::{Tensor, nn::Buffer};
/// let mean = Buffer::new(Tensor::zeros([3])?);
/// mean.update(|mean| mean.mul(0.9)?.add(&Tensor::ones([3])?.mul(0.1)?))?;
/// assert_eq!(mean.get().to_vec::<f32>()?, [0.1; 3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Buffer {
    tensor: Mutex<Tensor>,
}

impl Buffer {
    /// A buffer with the values of a tensor, detached from its graph.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Buffer};
    /// let count = Buffer::new(Tensor::full((), 0)?);
    /// assert_eq!(count.get().item::<i64>()?, 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "register_buffer")]
    // By value: callers pass a tensor that was made for this.
    #[allow(clippy::needless_pass_by_value)]
    pub fn new(values: Tensor) -> Buffer {
        Buffer { tensor: Mutex::new(values.detach()) }
    }

    fn lock(&self) -> MutexGuard<'_, Tensor> {
        // The tensor is replaced as a whole, so it is valid even after a panic.
        self.tensor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current values. Later changes of the buffer do not affect them.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Buffer};
    /// let mean = Buffer::new(Tensor::zeros([3])?);
    /// let before = mean.get();
    /// mean.set(&Tensor::ones([3])?)?;
    /// assert_eq!(before.to_vec::<f32>()?, [0.0; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn get(&self) -> Tensor {
        self.lock().clone()
    }

    /// Replaces the values by others, detached from their graph.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Buffer};
    /// let mean = Buffer::new(Tensor::zeros([3])?);
    /// mean.set(&Tensor::ones([3])?)?;
    /// assert_eq!(mean.get().to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If their shape, dtype or device is not the buffer's.
    #[track_caller]
    pub fn set(&self, values: &Tensor) -> Result<()> {
        named("set", self.change(|_| Ok(values.clone())))
    }

    /// Replaces the values by the result of `f`, outside the graph. The buffer is locked meanwhile, so that no update is lost
    /// when several threads run the model; `f` must not access the same buffer, which would deadlock.
    ///
    /// A [checkpoint](crate::autograd::checkpoint) runs its part of the model twice; the second time this does nothing.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Buffer};
    /// let count = Buffer::new(Tensor::full((), 0)?);
    /// count.update(|count| count.add(1))?;
    /// assert_eq!(count.get().item::<i64>()?, 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `f` fails, or the shape, dtype or device of its result is not the buffer's. The old values stay then.
    #[track_caller]
    pub fn update(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        placed(self.change(f))
    }

    fn change(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        if is_recomputing() {
            return Ok(());
        }
        let mut tensor = self.lock();
        let new = no_grad(|| f(&tensor))?.detach();
        if new.shape() != tensor.shape() || new.dtype() != tensor.dtype() || new.device() != tensor.device() {
            let (a, b) = (&*tensor, &new);
            bail!(
                Shape,
                "update",
                "the new value must be {} of shape {:?} on {}, got {} of shape {:?} on {}",
                a.dtype(),
                a.shape(),
                a.device(),
                b.dtype(),
                b.shape(),
                b.device()
            );
        }
        // Replays of a recorded step use the same memory, so the buffer must be updated in place.
        #[cfg(feature = "cuda")]
        if crate::backend::is_recording(tensor.device()) {
            if !tensor.is_sole() {
                bail!(
                    Backend,
                    "update",
                    "the buffer is also held elsewhere, but a recorded step must change it in place: drop its clones first"
                );
            }
            let into = tensor.device();
            debug_assert_eq!(into, new.device());
            crate::backend::copy("update", new.as_view()?, &mut tensor.as_view_mut("update")?)?;
            return crate::autograd::recording::note_change("update", &tensor);
        }
        // Materialized now: a deferred value would keep the batch it is computed from alive.
        new.compute()?;
        *tensor = new;
        Ok(())
    }

    pub(crate) fn replace(&mut self, values: Tensor) {
        *self.tensor.get_mut().unwrap_or_else(PoisonError::into_inner) = values;
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?})", self.get())
    }
}

impl Visit for Buffer {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.show(Part::Buffer(self));
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.show(PartMut::Buffer(self));
    }

    fn deep_clone_in(&self, _: &mut super::Ties) -> Result<Buffer> {
        Ok(Buffer::new(self.get().deep_clone()?))
    }
}

// As those of tensors.
crate::ops::operators::operators!(&Parameter);
crate::ops::operators::numbers_on_the_left!(&Parameter);
