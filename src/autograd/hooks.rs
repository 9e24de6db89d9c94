//! The optional parts of a node: the stored gradient, and hooks.

use super::node::{Grads, Node, NodeRef};
use crate::error::{bail, named};
use crate::{Error, Result, Tensor};
#[cfg(feature = "cuda")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type GradHook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;
type NodeHook = Arc<dyn Fn(&NodeEvent) + Send + Sync>;

/// The rarely used part of a node, allocated at first use.
#[derive(Default)]
pub(crate) struct Extras {
    grad: Mutex<Option<Tensor>>,
    retain_grad: AtomicBool,
    /// The present address of the values of a leaf on a GPU, if they were changed. A recorded step reads the old address.
    #[cfg(feature = "cuda")]
    values: AtomicUsize,
    grad_hooks: Hooks<GradHook>,
    node_hooks: Hooks<NodeHook>,
}

type Hooks<H> = Arc<Mutex<Vec<(u64, H)>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Extras {
    pub fn grad(&self) -> MutexGuard<'_, Option<Tensor>> {
        lock(&self.grad)
    }

    #[cfg(feature = "cuda")]
    pub fn set_values(&self, address: usize) {
        self.values.store(address, Ordering::Relaxed);
    }

    /// The address of the leaf's values since their last change; `None` if they were never changed.
    #[cfg(feature = "cuda")]
    pub fn values(&self) -> Option<usize> {
        Some(self.values.load(Ordering::Relaxed)).filter(|&address| address != 0)
    }

    pub fn retains_grad(&self) -> bool {
        self.retain_grad.load(Ordering::Relaxed)
    }

    pub fn set_retain_grad(&self) {
        self.retain_grad.store(true, Ordering::Relaxed);
    }

    /// Runs all hooks on the cotangent, in the order of their registration.
    pub fn run_hooks(&self, node: &Node, mut cotangent: Tensor) -> Result<Tensor> {
        // Cloned so that a hook may register or remove hooks.
        let hooks: Vec<GradHook> = lock(&self.grad_hooks).iter().map(|(_, hook)| hook.clone()).collect();
        for hook in hooks {
            let failed =
                |error: Error| error.inside().context(format_args!("in a hook on the result of {}", node.name));
            if let Some(changed) = hook(&cotangent).map_err(failed)? {
                if changed.shape() != cotangent.shape() || changed.dtype() != cotangent.dtype() {
                    bail!(
                        Graph,
                        "register_hook",
                        "a hook on the result of {} must return {} of shape {:?}, got {} of shape {:?}",
                        node.name,
                        cotangent.dtype(),
                        cotangent.shape(),
                        changed.dtype(),
                        changed.shape()
                    );
                }
                cotangent = changed;
            }
        }
        Ok(cotangent)
    }

    pub fn notify(&self, node: &Node, cotangents: &[Option<Tensor>], grads: &Grads) {
        let hooks: Vec<NodeHook> = lock(&self.node_hooks).iter().map(|(_, hook)| hook.clone()).collect();
        for hook in hooks {
            hook(&NodeEvent { name: &node.name, outputs: cotangents, inputs: grads });
        }
    }
}

/// The argument of a node hook, which is called after the node's rule.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::ones([2])?.requires_grad_(true)?;
/// let y = x.mul(3.0)?;
/// y.register_node_hook(|event| println!("{}: {:?} -> {:?}", event.name, event.outputs, event.inputs))?;
/// y.sum(..)?.backward()?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeEvent<'a> {
    /// The operation.
    pub name: &'a str,
    /// The cotangents of its results; `None` for unused ones among several.
    pub outputs: &'a [Option<Tensor>],
    /// The cotangents of its inputs, before they are summed back to the inputs' shapes.
    pub inputs: &'a [Option<Tensor>],
}

/// A handle to remove a registered hook. Dropping the handle leaves the hook in place.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::ones([2])?.requires_grad_(true)?;
/// let handle = x.register_hook(|g| g.mul(10.0).map(Some))?;
/// handle.remove();
/// x.sum(..)?.backward()?;
/// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0, 1.0]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "RemovableHandle")]
#[derive(Debug, Clone)]
pub struct HookHandle {
    id: u64,
    list: HookList,
}

#[derive(Clone)]
enum HookList {
    Grad(Weak<Mutex<Vec<(u64, GradHook)>>>),
    Node(Weak<Mutex<Vec<(u64, NodeHook)>>>),
}

impl std::fmt::Debug for HookList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HookList::Grad(_) => "gradient hook",
            HookList::Node(_) => "node hook",
        })
    }
}

impl HookHandle {
    /// Removes the hook. A second call does nothing.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::ones([2])?.requires_grad_(true)?;
    /// let handle = x.register_hook(|_| Ok(None))?;
    /// handle.remove();
    /// handle.remove();
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn remove(&self) {
        match &self.list {
            HookList::Grad(list) => remove(list, self.id),
            HookList::Node(list) => remove(list, self.id),
        }
    }
}

fn remove<H>(list: &Weak<Mutex<Vec<(u64, H)>>>, id: u64) {
    let Some(list) = list.upgrade() else { return };
    let hook = {
        let mut hooks = lock(&list);
        hooks.iter().position(|(other, _)| *other == id).map(|at| hooks.remove(at))
    };
    // Dropped after the lock is released: dropping the hook may remove another hook of this list.
    drop(hook);
}

static NEXT_HOOK: AtomicU64 = AtomicU64::new(0);

fn register<H>(list: &Hooks<H>, hook: H) -> (u64, Weak<Mutex<Vec<(u64, H)>>>) {
    let id = NEXT_HOOK.fetch_add(1, Ordering::Relaxed);
    lock(list).push((id, hook));
    (id, Arc::downgrade(list))
}

/// # Hooks
impl Tensor {
    /// Calls `hook` with this tensor's complete gradient in every backward pass that reaches it. If the hook returns a tensor,
    /// that replaces the gradient.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::ones([2])?.requires_grad_(true)?;
    /// x.register_hook(|g| g.mul(10.0).map(Some))?;
    /// x.sum(..)?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![10.0, 10.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor does not require a gradient.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        let node = named("register_hook", self.hooked("register_hook"))?;
        let (id, list) = register(&node.extras().grad_hooks, Arc::new(hook));
        Ok(HookHandle { id, list: HookList::Grad(list) })
    }

    /// Calls `hook` after the rule of the operation that made this tensor has run, with the cotangents on both sides.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// static CALLS: AtomicUsize = AtomicUsize::new(0);
    /// let x = Tensor::ones([2])?.requires_grad_(true)?;
    /// let y = x.exp()?;
    /// y.register_node_hook(|event| {
    ///     assert_eq!(event.name, "exp");
    ///     CALLS.fetch_add(1, Ordering::Relaxed);
    /// })?;
    /// y.sum(..)?.backward()?;
    /// assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not the result of a recorded operation.
    #[track_caller]
    pub fn register_node_hook(&self, hook: impl Fn(&NodeEvent) + Send + Sync + 'static) -> Result<HookHandle> {
        let node = named("register_node_hook", self.node_hooked())?;
        // With several results, their joint node has the rule.
        let joint = node.output_index().and_then(|_| node.edges().into_iter().flatten().next());
        let node = joint.as_ref().unwrap_or(node);
        let (id, list) = register(&node.extras().node_hooks, Arc::new(hook));
        Ok(HookHandle { id, list: HookList::Node(list) })
    }

    /// Keeps the gradient of this result in [`grad`](Self::grad), as for leaves.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(2.0)?.requires_grad_(true)?;
    /// let y = x.square()?;
    /// y.retain_grad()?;
    /// y.mul(3.0)?.backward()?;
    /// assert_eq!(y.grad().map(|g| g.item::<f32>()).transpose()?, Some(3.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor does not require a gradient.
    #[track_caller]
    pub fn retain_grad(&self) -> Result<()> {
        named("retain_grad", self.hooked("retain_grad"))?.extras().set_retain_grad();
        Ok(())
    }

    fn node_hooked(&self) -> Result<&NodeRef> {
        let node = self.hooked("register_node_hook")?;
        if self.is_leaf() {
            bail!(Graph, "register_node_hook", "a leaf is not the result of an operation: use register_hook");
        }
        Ok(node)
    }

    fn hooked(&self, op: &'static str) -> Result<&NodeRef> {
        match self.grad_node() {
            Some(node) => Ok(node),
            None => bail!(Graph, op, "the tensor of shape {:?} does not require a gradient", self.shape()),
        }
    }
}
