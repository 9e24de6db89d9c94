//! Activation checkpointing: a segment is computed twice, so that its intermediate values need not be kept.
//!
//! The whole segment is one node of the graph. Its rule calls the function again, with recording, and runs a backward pass
//! through what was recorded. The function may capture tensors, such as parameters. They are found among what its first,
//! recorded run depends on, and become inputs of the node.

use super::backward::PassMode;
use super::mode::{self, is_grad_enabled};
use super::node::{self, Grads, NodeRef};
use super::rule::BackwardContext;
use super::segment::{Extent, entry};
use super::{anomaly, autocast, tape};
use crate::error::{bail, placed};
use crate::random::{self, with_generator};
use crate::{Error, Generator, Result, Tensor};
use std::collections::HashSet;

/// `f(inputs)` with activation checkpointing: only the inputs are saved, and the backward pass recomputes the intermediate
/// values. This trades the time of a second forward pass for the memory of the saved values.
///
/// Gradients are those of `f`, also with respect to tensors that it captured, and to any order. `f` must be deterministic:
/// called again with the same tensors it must compute the same. Random numbers are allowed: both runs draw the same ones,
/// from a seed that is taken from the current generator.
///
/// The first run is recorded in full until it ends, so the memory needed is that of the largest segment.
///
/// ```
/// use cotangent::{autograd::checkpoint, tensor};
/// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
/// let w = tensor!(3.0)?.requires_grad_(true)?;
/// let captured = w.clone();
/// let y = checkpoint(move |x| x[0].mul(&captured)?.exp()?.log(), &[&x])?;
/// y.sum(..)?.backward()?;
/// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![3.0, 3.0]));
/// assert_eq!(w.grad().map(|g| g.item::<f32>()).transpose()?, Some(3.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of `f`. The backward pass fails if the second run of `f` returns another shape or dtype, or uses other tensors that
/// require a gradient.
#[track_caller]
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    placed(run_segment(f, inputs))
}

#[track_caller]
fn run_segment(f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static, inputs: &[&Tensor]) -> Result<Tensor> {
    let seed = own_seed();
    // The second run casts as the first did, although a backward pass has autocast off.
    let cast = autocast::State::current();
    let f = move |inputs: &[Tensor]| cast.resume(|| f(inputs));
    let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !is_grad_enabled() {
        return with_generator(&mut Generator::seed(seed), || f(&inputs));
    }
    let (output, sources) = {
        let run = SegmentRun::new(&f, &inputs, seed)?;
        if run.root.is_none() {
            return Ok(run.output);
        }
        (run.output.detach(), run.sources())
    };
    // Recording uses only the nodes of its inputs, so any values will do for those that `f` captured.
    let carriers: Vec<Tensor> = sources.iter().map(|source| output.clone().with_node(source.node(&inputs))).collect();
    let carriers: Vec<&Tensor> = carriers.iter().collect();
    let (shape, dtype) = (output.layout().shape().clone(), output.dtype());
    output.record("checkpoint", &carriers, move |save| {
        let inputs: Vec<Tensor> = inputs.iter().map(|input| save.save(input)).collect();
        move |ctx: &BackwardContext, g: &Tensor| {
            let run = mode::recomputing(|| anomaly::resumed(|| SegmentRun::new(&f, &inputs, seed)))
                .map_err(Error::inside)?;
            if *run.output.layout().shape() != shape || run.output.dtype() != dtype {
                bail!(
                    Graph,
                    "checkpoint",
                    "the function returned {} of shape {shape:?} in the forward pass, but {} of shape {:?} in the backward pass",
                    dtype,
                    run.output.dtype(),
                    run.output.shape()
                );
            }
            if run.sources() != sources {
                bail!(
                    Graph,
                    "checkpoint",
                    "the function must use the same tensors that require a gradient in the forward and in the backward pass"
                );
            }
            anomaly::resumed(|| run.pull(ctx, g, &sources))
        }
    })
}

/// A seed for the segment's random numbers. It takes one counter from the current generator, so no two segments get the
/// same seed, and draws of other threads do not affect the second run.
fn own_seed() -> u64 {
    let (seed, offset) = random::next_range(1);
    // The mixing step of SplitMix64 (Steele, Lea and Flood, 2014).
    let z = seed ^ offset.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What the result of a segment depends on.
#[derive(Clone)]
enum SegmentSource {
    /// The input at this position.
    Input(usize),
    /// A tensor that the function captured.
    Captured(NodeRef),
}

impl SegmentSource {
    fn node(&self, inputs: &[Tensor]) -> Option<NodeRef> {
        match self {
            SegmentSource::Input(at) => inputs.get(*at).and_then(Tensor::grad_node).cloned(),
            SegmentSource::Captured(node) => Some(node.clone()),
        }
    }
}

impl PartialEq for SegmentSource {
    fn eq(&self, other: &SegmentSource) -> bool {
        match (self, other) {
            (SegmentSource::Input(a), SegmentSource::Input(b)) => a == b,
            (SegmentSource::Captured(a), SegmentSource::Captured(b)) => a.seq == b.seq,
            _ => false,
        }
    }
}

/// One recorded run of the function.
struct SegmentRun {
    /// The nodes of what the function was given; `None` where no gradient is required.
    entries: Vec<Option<NodeRef>>,
    output: Tensor,
    /// The node of the output and what leads to it, if a gradient is required.
    root: Option<(NodeRef, Extent)>,
}

impl SegmentRun {
    #[track_caller]
    fn new(f: &impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor], seed: u64) -> Result<SegmentRun> {
        let start = node::next_sequence();
        let given = |x: &Tensor| if x.requires_grad() { entry("checkpoint", x) } else { Ok(x.clone()) };
        let (entries, output) = mode::enable_grad(|| {
            tape::off_tape(|| {
                let entries = inputs.iter().map(given).collect::<Result<Vec<Tensor>>>()?;
                let output = with_generator(&mut Generator::seed(seed), || f(&entries))?;
                Ok((entries, output))
            })
        })?;
        let entries: Vec<Option<NodeRef>> = entries.iter().map(|entry| entry.grad_node().cloned()).collect();
        let seqs: HashSet<u64> = entries.iter().flatten().map(|node| node.seq).collect();
        let extent = |node: &NodeRef| Ok((node.clone(), Extent::of("checkpoint", node, start, &seqs)?));
        let root = output.grad_node().map(extent).transpose()?;
        Ok(SegmentRun { entries, output, root })
    }

    /// What the output depends on, oldest first. Leaves that the function itself makes are left out: their gradients are not
    /// accessible outside.
    fn sources(&self) -> Vec<SegmentSource> {
        let Some((_, extent)) = &self.root else { return Vec::new() };
        let position = |node: &NodeRef| {
            self.entries.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.seq == node.seq))
        };
        extent
            .boundary
            .values()
            .map(|node| position(node).map_or_else(|| SegmentSource::Captured(node.clone()), SegmentSource::Input))
            .collect()
    }

    fn pull(&self, ctx: &BackwardContext, cotangent: &Tensor, sources: &[SegmentSource]) -> Result<Grads> {
        let create_graph = is_grad_enabled();
        let how = PassMode { retain_graph: create_graph, create_graph };
        let seq = |source: &SegmentSource| match source {
            SegmentSource::Input(at) => self.entries.get(*at).and_then(Option::as_ref).map(|node| node.seq),
            SegmentSource::Captured(node) => Some(node.seq),
        };
        let needed = |at: usize, source: &SegmentSource| if ctx.needs(at) { seq(source) } else { None };
        let targets: HashSet<u64> = sources.iter().enumerate().filter_map(|(at, source)| needed(at, source)).collect();
        let mut found = match &self.root {
            Some((root, extent)) => extent.pull(&how.pass("checkpoint"), root, cotangent.clone(), &targets)?,
            None => Default::default(),
        };
        Ok(sources.iter().enumerate().map(|(at, source)| found.remove(&needed(at, source)?)).collect())
    }
}
