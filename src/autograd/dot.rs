//! The graph as a drawing, in the DOT language of Graphviz, and its size.

use super::backward::root;
use super::node::{Edges, NodeKind, NodeRef};
use crate::error::named;
use crate::{Result, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The size of the graph behind a tensor.
///
/// ```
/// use cotangent::{autograd::graph_stats, tensor};
/// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
/// let stats = graph_stats(&x.exp()?.sum(..)?);
/// assert_eq!((stats.nodes, stats.leaves), (3, 1));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStats {
    /// Operations and leaves.
    pub nodes: usize,
    /// Uses of one node's result by another.
    pub edges: usize,
    /// Leaves: the tensors on which `requires_grad_` was called.
    pub leaves: usize,
    /// Bytes that the operations keep for the backward pass. A tensor kept by two of them counts twice.
    pub saved_bytes: usize,
}

/// The size of the graph behind a tensor; all zero if it has none.
///
/// ```
/// use cotangent::{autograd::graph_stats, tensor};
/// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
/// let stats = graph_stats(&x.mul(&x)?);
/// assert_eq!((stats.nodes, stats.edges, stats.leaves, stats.saved_bytes), (2, 2, 1, 16));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn graph_stats(tensor: &Tensor) -> GraphStats {
    let mut stats = GraphStats::default();
    for (node, edges) in tensor.grad_node().map(reachable).unwrap_or_default().values() {
        stats.nodes += 1;
        stats.edges += edges.iter().flatten().count();
        stats.leaves += usize::from(node.kind == NodeKind::Leaf);
        stats.saved_bytes += if is_freed(node, edges) { 0 } else { node.saved_bytes };
    }
    stats
}

/// The graph behind a tensor in the DOT language: `dot -Tsvg` draws it.
///
/// Every operation is a node with its name, the shape and dtype of its result and the bytes it keeps; leaves are filled
/// boxes. Arrows lead from inputs to results, numbered if an operation has several inputs. Nodes are numbered in creation
/// order, so the same program gives the same text.
///
/// ```
/// use cotangent::{autograd::to_dot, tensor};
/// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
/// assert!(to_dot(&x.exp()?)?.contains("n0 -> n1"));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the tensor has no graph.
#[track_caller]
pub fn to_dot(tensor: &Tensor) -> Result<String> {
    let root = named("to_dot", root("to_dot", tensor))?;
    let nodes = reachable(root);
    let number: HashMap<u64, usize> = nodes.keys().enumerate().map(|(number, &seq)| (seq, number)).collect();
    let mut dot =
        String::from("digraph cotangent {\n  rankdir=TB;\n  node [shape=ellipse, fontname=\"sans-serif\"];\n");
    for (at, (node, edges)) in nodes.values().enumerate() {
        let mut label = format!("{}\\n{:?} {}", escaped(&node.name), node.shape, node.dtype);
        if is_freed(node, edges) {
            label.push_str("\\nfreed");
        } else if node.saved_bytes > 0 {
            let _ = write!(label, "\\nsaves {} B", node.saved_bytes);
        }
        let style = match node.kind {
            NodeKind::Leaf => ", shape=box, style=filled, fillcolor=lightblue",
            _ if node.seq == root.seq => ", peripheries=2",
            _ => "",
        };
        let _ = writeln!(dot, "  n{at} [label=\"{label}\"{style}];");
    }
    for (at, (_, edges)) in nodes.values().enumerate() {
        for (position, edge) in edges.iter().enumerate() {
            let Some(from) = edge.as_ref().and_then(|edge| number.get(&edge.seq)) else { continue };
            let label = if edges.len() > 1 { format!(" [label=\"{position}\"]") } else { String::new() };
            let _ = writeln!(dot, "  n{from} -> n{at}{label};");
        }
    }
    dot.push_str("}\n");
    Ok(dot)
}

/// A node of a drawing, and the positions of its inputs among the nodes before it.
pub(crate) struct DrawnNode {
    pub seq: u64,
    pub name: String,
    pub shape: Vec<usize>,
    /// Dtype, shape, saved bytes and source line, as text.
    pub detail: String,
    pub is_leaf: bool,
    pub inputs: Vec<usize>,
}

/// The graph behind a tensor, oldest node first.
///
/// # Errors
/// If there is none, or it was freed.
pub(crate) fn drawn(op: &'static str, tensor: &Tensor) -> Result<Vec<DrawnNode>> {
    let root = root(op, tensor)?;
    let nodes = reachable(root);
    if let Some((node, _)) = nodes.values().find(|(node, edges)| is_freed(node, edges)) {
        return Err(node.freed(op));
    }
    let number: HashMap<u64, usize> = nodes.keys().enumerate().map(|(number, &seq)| (seq, number)).collect();
    let place = |edge: &Option<NodeRef>| edge.as_ref().and_then(|edge| number.get(&edge.seq)).copied();
    let draw = |(node, edges): &(NodeRef, Edges)| DrawnNode {
        seq: node.seq,
        name: node.name.to_string(),
        shape: node.shape.to_vec(),
        detail: format!("{} {:?}, saves {} B, {}", node.dtype, node.shape, node.saved_bytes, node.location),
        is_leaf: node.kind == NodeKind::Leaf,
        inputs: edges.iter().filter_map(place).collect(),
    };
    Ok(nodes.values().map(draw).collect())
}

/// A node and everything behind it, oldest first, each with its edges.
fn reachable(root: &NodeRef) -> BTreeMap<u64, (NodeRef, Edges)> {
    let mut seen = BTreeMap::new();
    let mut stack = vec![root.clone()];
    while let Some(node) = stack.pop() {
        if seen.contains_key(&node.seq) {
            continue;
        }
        let edges = node.edges();
        stack.extend(edges.iter().flatten().cloned());
        seen.insert(node.seq, (node, edges));
    }
    seen
}

/// An operation has an edge to at least one input until a backward pass or a tape frees it.
fn is_freed(node: &NodeRef, edges: &Edges) -> bool {
    node.kind == NodeKind::Op && edges.is_empty()
}

/// A name inside a quoted DOT string.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
