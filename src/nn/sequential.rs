//! Layers applied in sequence.

use super::{Forward, Module, Part, PartMut, Ties, Visit, Visitor};
use crate::{Result, Tensor};
use std::fmt;

/// What a [`Sequential`] can hold: every module that maps one tensor to one tensor.
///
/// ```
/// use cotangent::nn::{Forward, Layer, Linear, ReLU};
/// use cotangent::Tensor;
/// let layers: Vec<Box<dyn Layer>> = vec![Box::new(Linear::new(3, 2)?), Box::new(ReLU)];
/// let y = layers[1].forward(&layers[0].forward(&Tensor::ones([1, 3])?)?)?;
/// assert_eq!(y.shape(), [1, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Layer: Module + Forward + Send + Sync {
    /// A copy, for [`Module::deep_clone`].
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    fn boxed_clone(&self, ties: &mut Ties) -> Result<Box<dyn Layer>>;
}

impl<T: Module + Forward + Send + Sync + 'static> Layer for T {
    fn boxed_clone(&self, ties: &mut Ties) -> Result<Box<dyn Layer>> {
        Ok(Box::new(self.deep_clone_in(ties)?))
    }
}

impl Visit for Box<dyn Layer> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        (**self).visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        (**self).visit_mut(visitor);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Box<dyn Layer>> {
        (**self).boxed_clone(ties)
    }
}

impl Module for Box<dyn Layer> {}

/// A closure as a layer without parameters; made by [`Sequential::add_fn`], or by `Lambda(|x: &Tensor| ..)`.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Lambda}};
/// let double = Lambda(|x: &Tensor| x.mul(2));
/// assert_eq!(double.forward(&Tensor::ones([1])?)?.item::<f32>()?, 2.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Lambda<F>(pub F);

impl<F: Fn(&Tensor) -> Result<Tensor>> Forward for Lambda<F> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (self.0)(x)
    }
}

impl<F: Clone> Visit for Lambda<F> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter("Lambda");
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter("Lambda");
    }

    fn deep_clone_in(&self, _: &mut Ties) -> Result<Lambda<F>> {
        Ok(self.clone())
    }
}

impl<F: Clone> Module for Lambda<F> {}

impl<F> fmt::Debug for Lambda<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lambda")
    }
}

/// A sequence of layers, each applied to the output of the one before. They are named `0`, `1`, ….
///
/// ```
/// use cotangent::nn::{Dropout, Forward, Linear, Module, ReLU, Sequential};
/// use cotangent::Tensor;
/// let model = Sequential::new()
///     .add(Linear::new(4, 8)?)
///     .add(ReLU)
///     .add(Dropout::new(0.1)?)
///     .add_fn(|x| x.mul(0.5))
///     .add(Linear::new(8, 3)?);
/// assert_eq!(model.forward(&Tensor::ones([2, 4])?)?.shape(), [2, 3]);
/// assert_eq!(model.named_parameters()[2].0, "4.weight");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// An empty sequence, which is the identity.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Sequential}};
    /// let x = Tensor::ones([2])?;
    /// assert!(Sequential::new().forward(&x)?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer, and returns the sequence.
    ///
    /// ```
    /// use cotangent::nn::{Linear, ReLU, Sequential};
    /// let model = Sequential::new().add(Linear::new(4, 8)?).add(ReLU);
    /// assert_eq!(model.layers().len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "append")]
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.push(layer);
        self
    }

    /// Appends a closure as a layer, and returns the sequence.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Sequential}};
    /// let model = Sequential::new().add_fn(|x| x.square());
    /// assert_eq!(model.forward(&Tensor::full([1], 3.0)?)?.item::<f32>()?, 9.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn add_fn<F>(self, layer: F) -> Sequential
    where
        F: Fn(&Tensor) -> Result<Tensor> + Clone + Send + Sync + 'static,
    {
        self.add(Lambda(layer))
    }

    /// Appends a layer.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Sequential};
    /// let mut model = Sequential::new();
    /// for size in [16, 8, 4] {
    ///     model.push(Linear::new(size, size / 2)?);
    /// }
    /// assert_eq!(model.layers().len(), 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "append")]
    pub fn push(&mut self, layer: impl Layer + 'static) {
        self.layers.push(Box::new(layer));
    }

    /// The layers.
    ///
    /// ```
    /// use cotangent::nn::{ReLU, Sequential};
    /// assert_eq!(Sequential::new().add(ReLU).layers().len(), 1);
    /// ```
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }
}

// Written by hand, because derived names would begin with the field's name.
impl Visit for Sequential {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter("Sequential");
        self.layers.visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter("Sequential");
        self.layers.visit_mut(visitor);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<Sequential> {
        Ok(Sequential { layers: self.layers.deep_clone_in(ties)? })
    }
}

impl Module for Sequential {}

impl Forward for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut layers = self.layers.iter();
        let Some(first) = layers.next() else { return Ok(x.clone()) };
        layers.try_fold(first.forward(x)?, |x, layer| layer.forward(&x))
    }
}

/// The kinds of the layers, without their values.
impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds = Vec::new();
        self.layers.visit(&mut Visitor::new(&mut |name, part| {
            if let Part::Module(kind) = part
                && !name.contains('.')
            {
                kinds.push(kind);
            }
        }));
        write!(f, "Sequential({})", kinds.join(", "))
    }
}
