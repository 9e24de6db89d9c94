//! The graph as an explicit value: a tape that can be marked and rewound.

use super::backward::first_cotangent;
use super::engine::Pass;
use super::node::{Edges, NodeKind, NodeRef};
use crate::error::{bail, named};
use crate::location::Name;
use crate::options::options;
use crate::{Result, Tensor};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static NEXT_TAPE: AtomicU64 = AtomicU64::new(1);

/// An explicit record of operations, instead of the implicit graph.
///
/// Variables are registered with [`variable`](Self::variable); operations on them are recorded here with consecutive numbers.
/// [`backward`](Self::backward) returns the gradients as a map and changes nothing else. A [`mark`](Self::mark) is a point to
/// rewind to: [`pop_to`](Self::pop_to) frees what was recorded since at once, even if tensors of it are still alive.
///
/// ```
/// use cotangent::{autograd::Tape, tensor};
/// let tape = Tape::new();
/// let w = tape.variable(&tensor!([1.0, 2.0])?)?;
/// let mark = tape.mark();
/// for _ in 0..3 {
///     let loss = w.mul(&w)?.sum(..)?;
///     let grads = tape.backward(&loss)?;
///     assert_eq!(grads.get(&w)?.map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0]));
///     tape.pop_to(mark)?;
/// }
/// assert_eq!(tape.len(), 1);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Tape {
    core: Arc<Core>,
}

#[derive(Debug)]
pub(crate) struct Core {
    id: u64,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    nodes: Vec<NodeRef>,
    backward_time: Duration,
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Core {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of a node on a tape.
pub(crate) struct TapeEntry {
    core: Arc<Core>,
    /// The index on the tape plus one; 0 before it is pushed, or one of the two constants below.
    position: AtomicUsize,
    /// The sequence number of the first node in this position, if this node has replaced it. Marks compare that number.
    first: Option<u64>,
}

/// The position of nodes that `pop_to` has removed from the tape.
const RELEASED: usize = usize::MAX;
/// The position of nodes that belong to a tape but were never pushed.
const SCRATCH: usize = usize::MAX - 1;

thread_local! {
    static SCRATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with operations on a tape's variables recorded, but not pushed on the tape: for what a checkpoint computes and
/// discards.
pub(crate) fn off_tape<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCRATCHING.set(self.0);
        }
    }
    let _restore = Restore(SCRATCHING.replace(true));
    f()
}

impl TapeEntry {
    fn new(core: &Arc<Core>) -> TapeEntry {
        let position = AtomicUsize::new(if SCRATCHING.get() { SCRATCH } else { 0 });
        TapeEntry { core: core.clone(), position, first: None }
    }

    /// The entry of a node that replaces `old`, whose entry this is.
    pub fn heir(&self, old: &NodeRef) -> TapeEntry {
        let position = AtomicUsize::new(self.position.load(Ordering::Acquire));
        TapeEntry { core: self.core.clone(), position, first: self.first.or(Some(old.seq)) }
    }

    /// An entry on the same tape.
    pub fn new_entry(&self) -> TapeEntry {
        TapeEntry::new(&self.core)
    }

    /// The entry of an operation on nodes of one tape; `None` if no node is on a tape.
    #[inline]
    pub fn of_inputs(op: &Name, edges: &Edges) -> Result<Option<TapeEntry>> {
        match edges.iter().flatten().find_map(|edge| edge.tape.as_ref()) {
            Some(first) => first.beside_inputs(op, edges).map(Some),
            None => Ok(None),
        }
    }

    /// The entry of an operation of which this is the first input on a tape.
    #[inline(never)]
    fn beside_inputs(&self, op: &Name, edges: &Edges) -> Result<TapeEntry> {
        for edge in edges.iter().flatten() {
            match &edge.tape {
                Some(entry) if entry.core.id != self.core.id => {
                    bail!(
                        Graph,
                        op,
                        "operands must be on one tape, got tape {} and tape {}",
                        self.core.id,
                        entry.core.id
                    )
                }
                Some(entry) => entry.check(op.clone())?,
                None => bail!(
                    Graph,
                    op,
                    "cannot mix a variable of tape {} with a tensor outside it that requires a gradient: register that with variable(), or call detach() on it",
                    self.core.id
                ),
            }
        }
        Ok(self.new_entry())
    }

    /// Pushes a new node on its tape, at the end or in the position of the node that it replaces.
    pub fn push(&self, node: &NodeRef) -> Result<()> {
        // Dropped when the lock is free again.
        let _old;
        match self.position.load(Ordering::Acquire) {
            SCRATCH | RELEASED => {}
            0 => {
                let mut entries = self.core.entries();
                entries.nodes.push(node.clone());
                self.position.store(entries.nodes.len(), Ordering::Release);
            }
            position => match self.core.entries().nodes.get_mut(position - 1) {
                Some(slot) => _old = std::mem::replace(slot, node.clone()),
                None => self.position.store(RELEASED, Ordering::Release),
            },
        }
        Ok(())
    }

    fn check(&self, op: impl Into<Name>) -> Result<()> {
        if self.position.load(Ordering::Acquire) == RELEASED {
            bail!(Graph, op, "a variable of tape {} was used after pop_to released it", self.core.id);
        }
        Ok(())
    }
}

/// A point on a tape to rewind to.
///
/// ```
/// use cotangent::{autograd::Tape, tensor};
/// let tape = Tape::new();
/// let w = tape.variable(&tensor!(2.0)?)?;
/// let mark = tape.mark();
/// for _ in 0..3 {
///     let _loss = w.square()?;
///     tape.pop_to(mark)?;
/// }
/// assert_eq!(tape.len(), 1);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    tape: u64,
    len: usize,
    /// The sequence number of the first node in the last position before the mark; 0 if there is none. If it has changed, the
    /// mark is not valid any more.
    last: u64,
}

options! {
    /// The options of [`Tape::backward_with`]. A cotangent alone converts into them.
    pub struct TapeBackwardOptions<'a> {
        /// The cotangent of the output, with its shape, dtype and device. For a scalar it defaults to 1.
        gradient: Option<&'a Tensor> = None,
    }
}

impl<'a> From<&'a Tensor> for TapeBackwardOptions<'a> {
    fn from(gradient: &'a Tensor) -> Self {
        TapeBackwardOptions::new().gradient(gradient)
    }
}

impl Tape {
    /// An empty tape.
    ///
    /// ```
    /// use cotangent::autograd::Tape;
    /// assert!(Tape::new().is_empty());
    /// ```
    #[allow(clippy::new_without_default)]
    pub fn new() -> Tape {
        let id = NEXT_TAPE.fetch_add(1, Ordering::Relaxed);
        Tape { core: Arc::new(Core { id, entries: Mutex::default() }) }
    }

    /// Registers a tensor's values as a leaf of this tape.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!([1.0, 2.0])?)?;
    /// assert!(w.requires_grad() && w.is_leaf());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not floating point or complex.
    #[track_caller]
    pub fn variable(&self, value: &Tensor) -> Result<Tensor> {
        named("variable", value.detach().into_leaf("variable", Some(TapeEntry::new(&self.core))))
    }

    /// The number of a tensor on this tape, counted from 0 in the order of recording.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(2.0)?)?;
    /// assert_eq!((tape.id(&w)?, tape.id(&w.exp()?)?), (0, 1));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not on this tape, or was popped.
    #[track_caller]
    pub fn id(&self, variable: &Tensor) -> Result<usize> {
        let node = named("id", self.own("id", variable))?;
        // `own` has checked that it is on this tape.
        Ok(node.tape.as_ref().map_or(0, |entry| entry.position.load(Ordering::Acquire) - 1))
    }

    /// The number of variables and operations on the tape.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let y = tape.variable(&tensor!(2.0)?)?.exp()?;
    /// assert_eq!(tape.len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.core.entries().nodes.len()
    }

    /// Whether the tape is empty.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// assert!(tape.is_empty());
    /// let w = tape.variable(&tensor!(2.0)?)?;
    /// assert!(!tape.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the operations on the tape keep for the backward pass.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!([1.0, 2.0])?)?;
    /// let y = w.exp()?;
    /// assert_eq!(tape.saved_bytes(), 8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn saved_bytes(&self) -> usize {
        self.core.entries().nodes.iter().map(|node| node.saved_bytes).sum()
    }

    /// How long the last backward pass took.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(2.0)?)?;
    /// tape.backward(&w.square()?)?;
    /// println!("{:?}", tape.backward_time());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn backward_time(&self) -> Duration {
        self.core.entries().backward_time
    }

    /// The current end of the tape.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(2.0)?)?;
    /// let mark = tape.mark();
    /// let y = w.exp()?;
    /// tape.pop_to(mark)?;
    /// assert_eq!(tape.len(), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn mark(&self) -> Mark {
        let entries = self.core.entries();
        Mark { tape: self.core.id, len: entries.nodes.len(), last: entries.nodes.last().map_or(0, first_in_place) }
    }

    /// Frees everything recorded after the mark, at once. Tensors of it that are still alive keep only their values, and can no
    /// longer be used with the tape.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(2.0)?)?;
    /// let mark = tape.mark();
    /// let y = w.exp()?;
    /// tape.pop_to(mark)?;
    /// assert!(tape.backward(&y).is_err());
    /// assert!(tape.backward(&w.exp()?).is_ok());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the mark is of another tape, or the tape was rewound to an earlier mark since.
    #[track_caller]
    pub fn pop_to(&self, mark: Mark) -> Result<()> {
        named("pop_to", self.rewind(mark))
    }

    fn rewind(&self, mark: Mark) -> Result<()> {
        if mark.tape != self.core.id {
            bail!(Graph, "pop_to", "mark must be of tape {}, got one of tape {}", self.core.id, mark.tape);
        }
        let popped = {
            let mut entries = self.core.entries();
            let before = mark.len.checked_sub(1).map_or(Some(0), |last| entries.nodes.get(last).map(first_in_place));
            if before != Some(mark.last) {
                bail!(
                    Graph,
                    "pop_to",
                    "the mark at {} is not valid any more: the tape was rewound to an earlier mark",
                    mark.len
                );
            }
            entries.nodes.split_off(mark.len)
        };
        release(&popped);
        Ok(())
    }

    /// The gradients of a scalar on this tape with respect to every variable it depends on. The tape is not changed: a second
    /// call returns the same.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(3.0)?)?;
    /// let gradients = tape.backward(&w.square()?)?;
    /// assert_eq!(gradients.get(&w)?.map(|g| g.item::<f32>()).transpose()?, Some(6.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the loss is not a scalar, is not on this tape, or was popped.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<Gradients> {
        self.backward_with(loss, TapeBackwardOptions::new())
    }

    /// As [`backward`](Self::backward), with options: the cotangent to start from, for a result of any shape.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!([1.0, 2.0])?)?;
    /// let gradients = tape.backward_with(&w.square()?, &tensor!([1.0, 10.0])?)?;
    /// assert_eq!(gradients.get(&w)?.map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![2.0, 40.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`backward`](Self::backward); also if the cotangent's shape or dtype is not the output's.
    #[track_caller]
    pub fn backward_with<'a>(&self, output: &Tensor, options: impl Into<TapeBackwardOptions<'a>>) -> Result<Gradients> {
        named("backward", self.run_backward(output, options.into().gradient))
    }

    fn run_backward(&self, output: &Tensor, cotangent: Option<&Tensor>) -> Result<Gradients> {
        let node = self.own("backward", output)?;
        let cotangent = first_cotangent("backward", output, cotangent)?;
        let start = Instant::now();
        let mut by_variable = HashMap::new();
        let pass = Pass { op: "backward", retain_graph: true, create_graph: false, wanted: None, foreign: None };
        pass.run(vec![(node.clone(), cotangent)], |node, cotangent| {
            if node.kind == NodeKind::Leaf {
                by_variable.insert(node.seq, cotangent.clone().into_value());
            }
            Ok(true)
        })?;
        Tensor::materialize(by_variable.values())?;
        self.core.entries().backward_time = start.elapsed();
        Ok(Gradients { tape: self.core.id, by_variable })
    }

    fn own<'a>(&self, op: &'static str, tensor: &'a Tensor) -> Result<&'a NodeRef> {
        let node = tensor.grad_node();
        match node.and_then(|node| Some((node, node.tape.as_ref()?))) {
            Some((node, entry)) if entry.core.id == self.core.id => entry.check(op).map(|()| node),
            Some((_, entry)) => {
                bail!(Graph, op, "the tensor must be on tape {}, got one of tape {}", self.core.id, entry.core.id)
            }
            None => bail!(Graph, op, "the tensor of shape {:?} is not on tape {}", tensor.shape(), self.core.id),
        }
    }
}

fn first_in_place(node: &NodeRef) -> u64 {
    node.tape.as_ref().and_then(|entry| entry.first).unwrap_or(node.seq)
}

/// Frees the bodies of nodes that were removed from their tape.
fn release(popped: &[NodeRef]) {
    // Youngest first, so that saved values are freed before the nodes they came from.
    for node in popped.iter().rev() {
        node.release();
        if let Some(entry) = &node.tape {
            entry.position.store(RELEASED, Ordering::Release);
        }
    }
}

// The tape owns its nodes, and they refer to the tape: the cycle is broken here.
impl Drop for Tape {
    fn drop(&mut self) {
        let popped = std::mem::take(&mut self.core.entries().nodes);
        release(&popped);
    }
}

/// The gradients that [`Tape::backward`] found, by variable.
///
/// ```
/// use cotangent::{autograd::Tape, tensor};
/// let tape = Tape::new();
/// let (a, b) = (tape.variable(&tensor!(2.0)?)?, tape.variable(&tensor!(5.0)?)?);
/// let gradients = tape.backward(&a.square()?)?;
/// assert!(gradients.get(&a)?.is_some() && gradients.get(&b)?.is_none());
/// assert_eq!(gradients.len(), 1);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Gradients {
    tape: u64,
    by_variable: HashMap<u64, Tensor>,
}

impl Gradients {
    /// The gradient of a variable; `None` if the loss does not depend on it.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(3.0)?)?;
    /// let gradients = tape.backward(&w.mul(5.0)?)?;
    /// assert_eq!(gradients.get(&w)?.map(|g| g.item::<f32>()).transpose()?, Some(5.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a variable of the tape of these gradients.
    #[track_caller]
    pub fn get(&self, variable: &Tensor) -> Result<Option<&Tensor>> {
        named("gradients", self.find(variable))
    }

    fn find(&self, variable: &Tensor) -> Result<Option<&Tensor>> {
        let node = variable.grad_node();
        match node.and_then(|node| Some((node, node.tape.as_ref()?))) {
            Some((node, entry)) if entry.core.id == self.tape && node.kind == NodeKind::Leaf => {
                Ok(self.by_variable.get(&node.seq))
            }
            Some((_, entry)) if entry.core.id != self.tape => {
                bail!(Graph, "gradients", "variable must be of tape {}, got one of tape {}", self.tape, entry.core.id)
            }
            _ => bail!(
                Graph,
                "gradients",
                "the tensor of shape {:?} is not a variable of tape {}",
                variable.shape(),
                self.tape
            ),
        }
    }

    /// The number of variables that have a gradient.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(3.0)?)?;
    /// assert_eq!(tape.backward(&w.mul(5.0)?)?.len(), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.by_variable.len()
    }

    /// Whether no variable has a gradient.
    ///
    /// ```
    /// use cotangent::{autograd::Tape, tensor};
    /// let tape = Tape::new();
    /// let w = tape.variable(&tensor!(3.0)?)?;
    /// assert!(!tape.backward(&w.mul(5.0)?)?.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.by_variable.is_empty()
    }
}
