//! Recorded steps that a GPU replays with one call: CUDA graphs.

use crate::autograd::Extras;
use crate::autograd::recording::{CHANGED, LEAVES};
use crate::backend::cuda::runtime::capture::{Recorded, record};
use crate::error::bail;
use crate::{Device, Result, Tensor};
use cotangent_macros::named;
use std::sync::Arc;

/// A step whose work on a GPU was recorded once and can be replayed with one call. In a step of small operations the GPU
/// otherwise waits for the CPU to launch them.
///
/// The same kernels run with the same memory, so sizes cannot change, and nothing may depend on values: reading a tensor,
/// copying one to the GPU or drawing random numbers inside the step is an error. Parameters are changed in place. This is the
/// only way in which a tensor changes behind its handle, so a replay is an error if a parameter has another handle or was
/// replaced since the recording, or if another tensor that the step reads was dropped. Each replay sets the gradients that the
/// step leaves with its parameters, whatever happened to earlier ones, so `unscale`, clipping or an optimiser step may follow a
/// replay. A step that would add to gradients from before it is an error. The memory of a recorded step is not part of
/// [`memory::stats`](crate::memory::stats).
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
    /// Tensors from before the recording that a replay changes: parameters and optimiser state.
    changed: Vec<Tensor>,
    /// Gradients that the step leaves with leaves.
    gradients: Vec<Gradient>,
}

/// A gradient in memory of the recording, which every replay writes to, and its leaf.
struct Gradient {
    leaf: Arc<Extras>,
    values: Tensor,
}

/// Runs `step`. Returns its results and the gradients that it leaves.
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
    /// Refuses to write to a gradient that is also held elsewhere, or for a parameter that the step does not read any more.
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
                "the gradient of shape {:?} left by the step is also held elsewhere: drop or copy that handle",
                self.values.shape()
            );
        }
        Ok(())
    }

    /// Sets the gradient of the leaf.
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
    /// Runs `step` on the inputs, which must be on one GPU, then calls it once more to record it without running it. Returns the
    /// recorded step and the results of the run.
    ///
    /// # Errors
    /// If the inputs are not on one GPU, or `step` fails or does something that cannot be recorded.
    #[track_caller]
    pub fn record(
        inputs: &[&Tensor],
        step: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(CudaGraph, Vec<Tensor>)> {
        // An error of the step keeps its name and line.
        crate::error::placed(CudaGraph::recorded(inputs, step))
    }

    fn recorded(
        inputs: &[&Tensor],
        mut step: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(CudaGraph, Vec<Tensor>)> {
        let device = inputs.first().map_or(Device::Cpu, |x| x.device());
        let Device::Cuda(ordinal) = device else {
            bail!(Device, RECORD, "inputs must be on a GPU, got {device}");
        };
        if let Some(other) = inputs.iter().find(|x| x.device() != device) {
            bail!(Device, RECORD, "inputs must be on one device, got {device} and {}", other.device());
        }
        // Copies of the inputs, which every replay writes to. The run compiles all kernels and creates all optimiser state.
        let own = inputs.iter().map(|x| x.detach().copied(RECORD)).collect::<Result<Vec<_>>>()?;
        let (results, first) = with_gradients(|| step(&own))?;
        CHANGED.take();
        let recorded =
            record(RECORD, ordinal, || with_gradients(|| Ok(step(&own)?.iter().map(Tensor::detach).collect())));
        // The recording has replaced them by gradients that are not computed yet.
        first.iter().for_each(Gradient::restore);
        let changed = CHANGED.take();
        let (mut recorded, (outputs, gradients)) = recorded?;
        // What only the step held is dropped with it, and cannot change any more.
        drop(step);
        recorded.settle();
        Ok((CudaGraph { recorded, inputs: own, outputs, changed, gradients }, results))
    }

    /// Replays the step on other inputs, with the shapes and dtypes it was recorded with, on any device, and returns copies of
    /// its results. Call [`advance`](crate::optim::Optimizer::advance) before, for optimisers that count their steps.
    ///
    /// # Errors
    /// If the inputs do not match those recorded, a parameter that the step changes was replaced or has another handle, a tensor
    /// that it reads was dropped, or a gradient that it left is also held elsewhere.
    #[named("CudaGraph::replay")]
    pub fn replay(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let kinds = |x: &Tensor| (x.shape().to_vec(), x.dtype());
        if inputs.len() != self.inputs.len() {
            bail!(Value, REPLAY, "expected {} inputs, got {}", self.inputs.len(), inputs.len());
        }
        for (at, (new, own)) in inputs.iter().zip(&self.inputs).enumerate() {
            if kinds(new) != kinds(own) {
                let ((new, dtype), (own, own_dtype)) = (kinds(new), kinds(own));
                bail!(Shape, REPLAY, "input {at} must be {own_dtype} of shape {own:?}, got {dtype} of shape {new:?}");
            }
            if !own.storage().is_unique() {
                bail!(
                    Backend,
                    REPLAY,
                    "input {at} of the recorded step is also held elsewhere: results must not keep it"
                );
            }
        }
        // One handle is in the model, one here.
        match self.changed.iter().map(Tensor::handles).find(|&handles| handles != (2, 1)) {
            Some((1, _)) => {
                bail!(Backend, REPLAY, "a parameter was replaced since the step was recorded: record the step again")
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
