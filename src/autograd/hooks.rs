//! What may hang on a node: the stored gradient, and functions that see cotangents as they pass.

use super::node::{Grads, Node, NodeRef};
use crate::error::bail;
use crate::{Result, Tensor};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type GradHook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;
type NodeHook = Arc<dyn Fn(&NodeEvent) + Send + Sync>;

/// The rarely used part of a node, made when first asked for.
#[derive(Default)]
pub(crate) struct Extras {
    grad: Mutex<Option<Tensor>>,
    retain_grad: AtomicBool,
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

    pub fn retains_grad(&self) -> bool {
        self.retain_grad.load(Ordering::Relaxed)
    }

    pub fn set_retain_grad(&self) {
        self.retain_grad.store(true, Ordering::Relaxed);
    }

    /// The cotangent after all hooks on it, in the order of their registration.
    pub fn run_hooks(&self, node: &Node, mut cotangent: Tensor) -> Result<Tensor> {
        // Cloned so that a hook may register or remove hooks.
        let hooks: Vec<GradHook> = lock(&self.grad_hooks).iter().map(|(_, hook)| hook.clone()).collect();
        for hook in hooks {
            if let Some(changed) = hook(&cotangent)? {
                if changed.shape() != cotangent.shape() || changed.dtype() != cotangent.dtype() {
                    bail!(
                        Graph,
                        "register_hook",
                        "a hook on the result of {} turned a gradient of shape {:?}, {} into one of shape {:?}, {}",
                        node.name,
                        cotangent.shape(),
                        cotangent.dtype(),
                        changed.shape(),
                        changed.dtype()
                    );
                }
                cotangent = changed;
            }
        }
        Ok(cotangent)
    }

    pub fn notify(&self, node: &Node, cotangent: &Tensor, grads: &Grads) {
        let hooks: Vec<NodeHook> = lock(&self.node_hooks).iter().map(|(_, hook)| hook.clone()).collect();
        for hook in hooks {
            hook(&NodeEvent { name: node.name, output: cotangent, inputs: grads });
        }
    }
}

/// What a node hook sees, after the node's rule has run.
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeEvent<'a> {
    /// The operation.
    pub name: &'static str,
    /// The cotangent of its result.
    pub output: &'a Tensor,
    /// The cotangents of its inputs, before they are summed back to the inputs' shapes.
    pub inputs: &'a [Option<Tensor>],
}

/// Names a registered hook, to remove it. Dropping it leaves the hook in place.
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
    /// Takes the hook off; doing it twice is harmless.
    pub fn remove(&self) {
        match &self.list {
            HookList::Grad(list) => drop(list.upgrade().map(|list| lock(&list).retain(|(id, _)| *id != self.id))),
            HookList::Node(list) => drop(list.upgrade().map(|list| lock(&list).retain(|(id, _)| *id != self.id))),
        }
    }
}

static NEXT_HOOK: AtomicU64 = AtomicU64::new(0);

fn register<H>(list: &Hooks<H>, hook: H) -> (u64, Weak<Mutex<Vec<(u64, H)>>>) {
    let id = NEXT_HOOK.fetch_add(1, Ordering::Relaxed);
    lock(list).push((id, hook));
    (id, Arc::downgrade(list))
}

impl Tensor {
    /// Calls `hook` with this tensor's complete gradient in every backward pass that reaches it. What it returns, if
    /// anything, takes the gradient's place for everything behind.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::ones([2])?.requires_grad_(true)?;
    /// x.register_hook(|g| g.mul(10.0).map(Some))?;
    /// x.sum()?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![10.0, 10.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor does not require a gradient.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        let node = self.hooked("register_hook")?;
        let (id, list) = register(&node.extras().grad_hooks, Arc::new(hook));
        Ok(HookHandle { id, list: HookList::Grad(list) })
    }

    /// Calls `hook` after the rule of the operation that made this tensor has run, with the cotangents on both sides.
    ///
    /// # Errors
    /// If the tensor is not the result of a recorded operation.
    pub fn register_node_hook(&self, hook: impl Fn(&NodeEvent) + Send + Sync + 'static) -> Result<HookHandle> {
        let node = self.hooked("register_node_hook")?;
        if self.is_leaf() {
            bail!(Graph, "register_node_hook", "a leaf has no operation behind it: use register_hook");
        }
        let (id, list) = register(&node.extras().node_hooks, Arc::new(hook));
        Ok(HookHandle { id, list: HookList::Node(list) })
    }

    /// Keeps this result's gradient in [`grad`](Self::grad), as is done for leaves anyway.
    ///
    /// # Errors
    /// If the tensor does not require a gradient.
    pub fn retain_grad(&self) -> Result<()> {
        self.hooked("retain_grad")?.extras().set_retain_grad();
        Ok(())
    }

    fn hooked(&self, op: &'static str) -> Result<&NodeRef> {
        match self.grad_node() {
            Some(node) => Ok(node),
            None => bail!(Graph, op, "the tensor of shape {:?} does not require a gradient", self.shape()),
        }
    }
}
