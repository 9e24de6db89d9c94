//! A segment of the graph: what was recorded from some node on, and what it depends on.
//!
//! Transforms and checkpoints run a user-defined function and differentiate it with respect to its arguments, but the
//! function may use any other tensor. Both need to tell the two apart.

use super::engine::Pass;
use super::mode::is_grad_enabled;
use super::node::{NodeKind, NodeRef};
use super::rule::BackwardContext;
use crate::{Result, Tensor};
use smallvec::{SmallVec, smallvec};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A tensor's values with a new node, so that a derivative with respect to this use of it can be taken. The result depends
/// on `x` if `x` requires a gradient; otherwise it is a new leaf.
#[track_caller]
pub(crate) fn entry(op: &'static str, x: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() && x.requires_grad() {
        return x.detach().record(op, &[x], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]));
    }
    x.detach().into_leaf(op, None)
}

/// The nodes between a result and the beginning of its segment.
pub(crate) struct Extent {
    /// The nodes recorded since the beginning, each with the sequence numbers of its inputs.
    inside: BTreeMap<u64, SmallVec<[u64; 2]>>,
    /// What they depend on: older nodes, and the entries.
    pub boundary: BTreeMap<u64, NodeRef>,
}

impl Extent {
    /// What was recorded from the sequence number `start` on and leads to `root`. Nodes in `entries` count as boundary.
    pub fn of(op: &'static str, root: &NodeRef, start: u64, entries: &HashSet<u64>) -> Result<Extent> {
        let mut extent = Extent { inside: BTreeMap::new(), boundary: BTreeMap::new() };
        let mut stack = vec![root.clone()];
        while let Some(node) = stack.pop() {
            if node.seq < start || entries.contains(&node.seq) {
                extent.boundary.insert(node.seq, node);
            } else if let Entry::Vacant(position) = extent.inside.entry(node.seq) {
                let edges = node.edges();
                if node.kind == NodeKind::Op && edges.is_empty() {
                    return Err(node.freed(op));
                }
                position.insert(edges.iter().flatten().map(|edge| edge.seq).collect());
                stack.extend(edges.into_iter().flatten());
            }
        }
        Ok(extent)
    }

    /// Propagates a cotangent from `root` to `targets`, which lie on the boundary, and no further. A target behind another one
    /// gets only what reaches it directly. Hooks on targets are left to the pass that continues from there.
    pub fn pull(
        &self,
        pass: &Pass<'_>,
        root: &NodeRef,
        cotangent: Tensor,
        targets: &HashSet<u64>,
    ) -> Result<HashMap<u64, Tensor>> {
        let mut wanted = targets.clone();
        // In creation order: the inputs of a node come before it.
        for (&seq, behind) in &self.inside {
            if behind.iter().any(|b| wanted.contains(b)) {
                wanted.insert(seq);
            }
        }
        let mut found = HashMap::new();
        if wanted.contains(&root.seq) {
            Pass { wanted: Some(&wanted), foreign: Some(targets), ..*pass }.run(
                vec![(root.clone(), cotangent)],
                |node, cotangent| {
                    let arrived = targets.contains(&node.seq);
                    if arrived {
                        found.insert(node.seq, cotangent.clone());
                    }
                    Ok(!arrived)
                },
            )?;
        }
        Ok(found)
    }
}
