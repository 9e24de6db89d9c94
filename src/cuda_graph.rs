//! Training steps that a GPU repeats by itself.

use crate::autograd::{Extras, NodeRef};
use crate::backend;
use crate::backend::cuda::runtime::capture::{Recorded, record};
use crate::error::bail;
use crate::{Device, Result, Tensor};
use cotangent_macros::named;
use std::cell::RefCell;
use std::sync::Arc;

/// A step whose work on a GPU was recorded once and can be asked for again with one call: the GPU then waits for nobody, where
/// a step of small operations otherwise waits for the program.
///
/// The same kernels run with the same memory, so sizes cannot change, and nothing may depend on values: reading a tensor,
/// bringing one to the GPU or drawing random numbers inside the step is refused. Parameters are changed where they lie. That is
/// the one place where a tensor changes behind its handle, so a replay is refused if a parameter has another handle, or was
/// replaced meanwhile, or another tensor that the step reads was dropped. Gradients that the step leaves with its parameters are
/// put there anew by each replay, whatever became of those before (so `unscale`, clipping or a step of the optimiser may follow
/// a replay); a step that would add to gradients from before it is refused. The memory of a recorded step is its own, and not
/// part of [`memory::stats`](crate::memory::stats).
///
/// ```no_run
/// # use cotangent::nn::{Forward, Linear, Module};
/// # use cotangent::optim::{AdamW, Optimizer};
/// # use cotangent::{CudaGraph, Device, Generator, Result, Tensor};
/// # fn main() -> Result<()> {
/// let gpu = Device::cuda(0);
/// let mut model = Linear::new(784, 10)?;
/// model.to_device(gpu)?;
/// let mut optimizer = AdamW::new(1e-3);
/// let batch = |seed| -> Result<[Tensor; 2]> {
///     let mut generator = Generator::seed(seed);
///     Ok([generator.randn([32, 784])?.to_device(gpu)?, generator.randint(0, 10, [32])?.to_device(gpu)?])
/// };
/// let [x, y] = batch(0)?;
/// // Runs the step once, then records it.
/// let (mut step, _loss) = CudaGraph::record(&[&x, &y], |inputs| {
///     model.zero_grad();
///     let loss = model.forward(&inputs[0])?.cross_entropy(&inputs[1])?;
///     loss.backward()?;
///     optimizer.step(&mut model)?;
///     Ok(vec![loss])
/// })?;
/// for seed in 1..100 {
///     let [x, y] = batch(seed)?;
///     optimizer.advance()?;
///     let losses = step.replay(&[&x, &y])?;
///     println!("{}", losses[0]);
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "CUDAGraph")]
pub struct CudaGraph {
    recorded: Recorded,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// What was there before and is changed by a replay: parameters, and what an optimiser keeps of them.
    changed: Vec<Tensor>,
    /// Gradients that the step leaves with leaves.
    gradients: Vec<Gradient>,
}

/// A gradient in memory of the recording's, which every replay writes to, and the leaf that it belongs to.
struct Gradient {
    leaf: Arc<Extras>,
    values: Tensor,
}

thread_local! {
    /// What the step that this thread records changes.
    static CHANGED: RefCell<Vec<Tensor>> = const { RefCell::new(Vec::new()) };
    /// The leaves that the step gives gradients to, while this thread runs it first and then records it.
    static LEAVES: RefCell<Option<Vec<Arc<Extras>>>> = const { RefCell::new(None) };
}

/// Remembers that a step that is recorded changes a tensor, which is the only handle to its values.
///
/// # Errors
/// If the same step has changed it before: the handle that is kept here would then make it write to a copy.
pub(crate) fn note_change(op: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.handles() != (1, 1) {
        bail!(Backend, op, "a recorded step cannot change a parameter twice, or one that is also held elsewhere");
    }
    CHANGED.with_borrow_mut(|all| all.push(tensor.detach()));
    Ok(())
}

/// Remembers the leaves that a backward pass is about to give gradients to, if it is part of a step that is recorded. Gives the
/// place of one that has a gradient which is not the recorded step's.
pub(crate) fn note_gradients(leaves: &[NodeRef], has_gradient: impl Fn(usize) -> bool) -> Option<usize> {
    LEAVES.with_borrow_mut(|all| {
        let all = all.as_mut()?;
        for (at, leaf) in leaves.iter().enumerate() {
            if all.iter().any(|other| Arc::ptr_eq(other, leaf.extras())) {
                continue;
            }
            if has_gradient(at) && backend::is_recording(leaf.device) {
                return Some(at);
            }
            all.push(leaf.extras().clone());
        }
        None
    })
}

/// Runs `step`, and gives the gradients that it leaves behind beside its results.
fn with_gradients(step: impl FnOnce() -> Result<Vec<Tensor>>) -> Result<(Vec<Tensor>, Vec<Gradient>)> {
    LEAVES.set(Some(Vec::new()));
    let results = step();
    let leaves = LEAVES.take().unwrap_or_default();
    let results = results?;
    results.iter().try_for_each(Tensor::compute)?;
    let left = leaves.into_iter().filter_map(|leaf| {
        let values = leaf.grad().clone()?;
        Some(values.compute().map(|()| Gradient { leaf, values: values.detach() }))
    });
    Ok((results, left.collect::<Result<_>>()?))
}

impl Gradient {
    /// Refuses to write to a gradient that someone looks at, or for a parameter that the step does not read any more.
    fn check(&self, recorded: &Recorded) -> Result<()> {
        if self.leaf.values().is_some_and(|address| !recorded.reads(address)) {
            bail!(
                Backend,
                REPLAY,
                "a parameter of shape {:?} has new memory since the step was recorded, because it was loaded or also held \
                 elsewhere when it was changed: record the step again",
                self.values.shape()
            );
        }
        let with_leaf = self.leaf.grad().as_ref().is_some_and(|grad| grad.is_same(&self.values));
        if self.values.handles() != (1 + usize::from(with_leaf), 1) {
            bail!(
                Backend,
                REPLAY,
                "the gradient of shape {:?} that the step left is also held elsewhere: drop or copy that handle",
                self.values.shape()
            );
        }
        Ok(())
    }

    /// Gives the leaf the gradient.
    fn restore(&self) {
        // The old one is dropped when the lock is free again.
        let old = self.leaf.grad().replace(self.values.clone());
        drop(old);
    }
}

impl std::fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shapes = |all: &[Tensor]| all.iter().map(|x| x.shape().to_vec()).collect::<Vec<_>>();
        let (inputs, outputs) = (shapes(&self.inputs), shapes(&self.outputs));
        write!(f, "CudaGraph({inputs:?} to {outputs:?}, {} bytes)", self.recorded.bytes())
    }
}

const RECORD: &str = "CudaGraph::record";
const REPLAY: &str = "CudaGraph::replay";

impl CudaGraph {
    /// Runs `step` on the inputs, which are on one GPU, then calls it once more to record it, without running it. Returns the
    /// results of the run.
    ///
    /// # Errors
    /// If the inputs are not on a GPU, `step` fails, or does what cannot be recorded.
    #[track_caller]
    pub fn record(
        inputs: &[&Tensor],
        step: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(CudaGraph, Vec<Tensor>)> {
        // An error of the step's keeps its own name and line.
        crate::error::placed(CudaGraph::recorded(inputs, step))
    }

    fn recorded(
        inputs: &[&Tensor],
        mut step: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(CudaGraph, Vec<Tensor>)> {
        let device = inputs.first().map_or(Device::Cpu, |x| x.device());
        let Device::Cuda(ordinal) = device else {
            bail!(Device, RECORD, "the inputs must be on a GPU, not on {device}");
        };
        if let Some(other) = inputs.iter().find(|x| x.device() != device) {
            bail!(Device, RECORD, "one input is on {device}, another on {}", other.device());
        }
        // Copies of its own, which every replay writes to. The run compiles all kernels and makes all state.
        let own = inputs.iter().map(|x| x.detach().copied(RECORD)).collect::<Result<Vec<_>>>()?;
        let (results, first) = with_gradients(|| step(&own))?;
        CHANGED.take();
        let recorded =
            record(RECORD, ordinal, || with_gradients(|| Ok(step(&own)?.iter().map(Tensor::detach).collect())));
        // The recording has put gradients in their place that nobody has computed yet.
        first.iter().for_each(Gradient::restore);
        let changed = CHANGED.take();
        let (mut recorded, (outputs, gradients)) = recorded?;
        // What only the step held is gone with it, and cannot change.
        drop(step);
        recorded.settle();
        Ok((CudaGraph { recorded, inputs: own, outputs, changed, gradients }, results))
    }

    /// Asks for the step on other inputs, of the shapes and dtypes it was recorded with, on any device, and gives copies of its
    /// results. Optimisers that count their steps are told of one more by
    /// [`advance`](crate::optim::Optimizer::advance) before.
    ///
    /// # Errors
    /// If the inputs are not like those recorded, a parameter that the step changes was replaced or has another handle, a tensor
    /// that it reads was dropped, or a gradient that it left is held elsewhere.
    #[named("CudaGraph::replay")]
    pub fn replay(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let kinds = |x: &Tensor| (x.shape().to_vec(), x.dtype());
        if inputs.len() != self.inputs.len() {
            bail!(Value, REPLAY, "{} inputs instead of {}", inputs.len(), self.inputs.len());
        }
        for (at, (new, own)) in inputs.iter().zip(&self.inputs).enumerate() {
            if kinds(new) != kinds(own) {
                let ((new, dtype), (own, own_dtype)) = (kinds(new), kinds(own));
                bail!(Shape, REPLAY, "input {at} is {dtype} of shape {new:?}, recorded was {own_dtype} of {own:?}");
            }
            if !own.storage().is_unique() {
                bail!(
                    Backend,
                    REPLAY,
                    "input {at} of the recorded step is still held by someone: results must not keep it"
                );
            }
        }
        // One handle is the model's, one is kept here.
        match self.changed.iter().map(Tensor::handles).find(|&handles| handles != (2, 1)) {
            Some((1, _)) => {
                bail!(Backend, REPLAY, "a parameter was replaced since the step was recorded: record it again")
            }
            Some(_) => bail!(
                Backend,
                REPLAY,
                "a parameter that the step changes is also held elsewhere: drop or copy that handle"
            ),
            None => {}
        }
        self.gradients.iter().try_for_each(|gradient| gradient.check(&self.recorded))?;
        for (own, new) in self.inputs.iter_mut().zip(inputs) {
            own.copy_(&new.detach())?;
        }
        self.recorded.replay(REPLAY)?;
        self.gradients.iter().for_each(Gradient::restore);
        self.outputs.iter().map(|y| y.copied(REPLAY)).collect()
    }
}
