//! Layers one after the other.

use super::{Forward, Module, Part, PartMut, Visitor};
use crate::{Result, Tensor};
use std::fmt;

/// What a [`Sequential`] can hold: every module with one tensor in and one out.
pub trait Layer: Module + Forward + Send + Sync {}

impl<T: Module + Forward + Send + Sync> Layer for T {}

/// Layers of which each takes what the one before gives. They are named `0`, `1`, ….
///
/// ```
/// use cotangent::nn::{Dropout, Forward, Linear, Module, ReLU, Sequential};
/// use cotangent::Tensor;
/// let model = Sequential::new().add(Linear::new(4, 8)?).add(ReLU).add(Dropout::new(0.1)?).add(Linear::new(8, 3)?);
/// assert_eq!(model.forward(&Tensor::ones([2, 4])?)?.shape(), [2, 3]);
/// assert_eq!(model.named_parameters()[2].0, "3.weight");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// Nothing yet: what comes in goes out.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// These layers and one more.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.push(layer);
        self
    }

    /// Puts one more layer at the end.
    pub fn push(&mut self, layer: impl Layer + 'static) {
        self.layers.push(Box::new(layer));
    }

    /// The layers.
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }
}

// By hand, as the derived names would begin with the field's.
impl Module for Sequential {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter("Sequential");
        self.layers.visit(visitor);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter("Sequential");
        self.layers.visit_mut(visitor);
    }
}

impl Forward for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut layers = self.layers.iter();
        let Some(first) = layers.next() else { return Ok(x.clone()) };
        layers.try_fold(first.forward(x)?, |x, layer| layer.forward(&x))
    }
}

/// The kinds of the layers; their values are in the layers.
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
