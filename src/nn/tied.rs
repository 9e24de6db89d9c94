//! One parameter under several names.
//!
//! Two fields that hold clones of one leaf are the same parameter: one gradient, one update. As tensors are values, the
//! clones would part at the first write; whoever changes parameters goes through [`groups`], which keeps them together.

use super::{Module, PartMut, Visitor};
use crate::{Result, Tensor};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What makes two tensors the same parameter: the leaf of the graph, or, where no gradient is required, the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leaf {
    Node(u64),
    Bytes(usize, usize),
}

impl Leaf {
    /// `None` for a tensor without elements and gradient, which is nobody's equal.
    pub fn of(tensor: &Tensor) -> Option<Leaf> {
        match tensor.grad_node() {
            Some(node) => Some(Leaf::Node(node.seq)),
            None if tensor.numel() == 0 => None,
            None => Some(Leaf::Bytes(tensor.storage().id(), tensor.offset())),
        }
    }
}

/// A parameter to be changed, with all the places that hold it.
///
/// As long as the group lives, its tensor is the module's only handle to the parameter's bytes, so that it can be
/// changed where it lies. The other places get the new values when the group is dropped.
pub(crate) struct Group<'a> {
    /// The first of the parameter's names.
    pub name: String,
    pub tensor: &'a mut Tensor,
    others: Vec<&'a mut Tensor>,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for other in &mut self.others {
            **other = self.tensor.clone();
        }
    }
}

/// The parameters of a module, each once, in the order of their first names.
///
/// # Errors
/// If memory runs out.
pub(crate) fn groups<M: Module + ?Sized>(module: &mut M) -> Result<Vec<Group<'_>>> {
    let (mut groups, mut known): (Vec<Group<'_>>, HashMap<Leaf, usize>) = (Vec::new(), HashMap::new());
    module.visit_mut(&mut Visitor::new(&mut |name, part| {
        let PartMut::Param(tensor) = part else { return };
        if let Some(leaf) = Leaf::of(tensor) {
            match known.entry(leaf) {
                Entry::Occupied(at) => return groups[*at.get()].others.push(tensor),
                Entry::Vacant(at) => at.insert(groups.len()),
            };
        }
        groups.push(Group { name: name.to_string(), tensor, others: Vec::new() });
    }));
    let mut others = groups.iter_mut().flat_map(|group| &mut group.others).peekable();
    if others.peek().is_some() {
        let nothing = Tensor::zeros(())?;
        others.for_each(|other| **other = nothing.clone());
    }
    Ok(groups)
}
