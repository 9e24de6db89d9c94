//! Evaluation, and the size of a batch.

use super::metrics::Metric;
use crate::autograd::no_grad;
use crate::nn::{Module, Part, PartMut, Visitor};
use crate::{Result, Tensor};

/// A batch of a training step. Its number of examples weights the means over batches of different sizes. The trait of batches
/// that a loader can move to a device is another one, [`data::Batch`](crate::data::Batch).
///
/// ```
/// use cotangent::{Tensor, train::Batch};
///
/// /// A custom batch.
/// struct Sentences {
///     words: Tensor,
/// }
///
/// impl Batch for Sentences {
///     fn size(&self) -> usize {
///         self.words.shape()[0]
///     }
/// }
///
/// assert_eq!((Tensor::zeros([8, 3])?, Tensor::zeros([8])?).size(), 8);
/// assert_eq!(Sentences { words: Tensor::zeros([2, 5])? }.size(), 2);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Batch {
    /// The number of examples.
    fn size(&self) -> usize;
}

/// The size of the first dimension; a 0-d tensor is one example.
impl Batch for Tensor {
    fn size(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }
}

/// The size of the first element.
impl<A: Batch, B> Batch for (A, B) {
    fn size(&self) -> usize {
        self.0.size()
    }
}

/// The size of the first element.
impl<A: Batch, B, C> Batch for (A, B, C) {
    fn size(&self) -> usize {
        self.0.size()
    }
}

/// The size of the first element.
impl<A: Batch> Batch for Vec<A> {
    fn size(&self) -> usize {
        self.first().map_or(0, Batch::size)
    }
}

impl Batch for crate::data::Digits {
    fn size(&self) -> usize {
        self.len()
    }
}

/// Runs `f` with the model in evaluation mode and without recording a graph. Afterwards every part of the model is in its
/// previous mode.
///
/// ```
/// use cotangent::nn::{Dropout, Forward, Module};
/// use cotangent::{Tensor, train::in_eval};
/// let mut model = Dropout::new(0.5)?;
/// let y = in_eval(&mut model, |model| model.forward(&Tensor::ones([4])?))?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0; 4]);
/// assert!(model.is_training());
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// The errors of `f`.
pub fn in_eval<M: Module, R>(model: &mut M, f: impl FnOnce(&M) -> Result<R>) -> Result<R> {
    let mut modes = Vec::new();
    model.visit(&mut Visitor::new(&mut |_, part| {
        if let Part::Training(mode) = part {
            modes.push(mode);
        }
    }));
    model.eval();
    let done = no_grad(|| f(model));
    let mut modes = modes.into_iter();
    model.visit_mut(&mut Visitor::new(&mut |_, part| {
        if let PartMut::Training(mode) = part {
            *mode = modes.next().unwrap_or(*mode);
        }
    }));
    done
}

/// Resets metrics and updates them with all batches. `predict` returns the predictions and the targets of a batch; the model
/// is in evaluation mode.
///
/// ```
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::train::{Accuracy, evaluate};
/// use cotangent::{Tensor, tensor};
/// let mut model = Linear::new(3, 2)?;
/// let batches = [(Tensor::randn([4, 3])?, tensor!([0, 1, 0, 1])?), (Tensor::randn([1, 3])?, tensor!([1])?)];
/// let mut accuracy = Accuracy::new();
/// evaluate(&mut model, batches.into_iter().map(Ok), &mut [&mut accuracy], |model, (x, y)| Ok((model.forward(x)?, y.clone())))?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// The errors of the batches, of `predict`, and of the metrics.
pub fn evaluate<M: Module, B>(
    model: &mut M,
    batches: impl IntoIterator<Item = Result<B>>,
    metrics: &mut [&mut dyn Metric],
    mut predict: impl FnMut(&M, &B) -> Result<(Tensor, Tensor)>,
) -> Result<()> {
    for metric in metrics.iter_mut() {
        metric.reset();
    }
    in_eval(model, |model| {
        for batch in batches {
            let (prediction, target) = predict(model, &batch?)?;
            metrics.iter_mut().try_for_each(|metric| metric.update(&prediction, &target))?;
        }
        Ok(())
    })
}
