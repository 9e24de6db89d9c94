//! The mode of [`autocast`](crate::autocast()) on each thread, and the casts of leaves that it keeps.
//!
//! A backward pass runs with the mode off. A checkpoint recomputes its function in the mode of the first run. The policy of each
//! operation is in its entry of the list: see `ops/autocast.rs`.
#![forbid(unsafe_code)]

use super::is_grad_enabled;
use crate::tensor::batch::is_running;
use crate::{DType, Result, Tensor, flags};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub dtype: DType,
    /// Whether casts of leaves are kept until the outermost scope ends.
    pub cache_enabled: bool,
    /// Which policies apply: those of GPUs, those of the CPU, or, if `None`, those of the device of the operands.
    pub gpu_policies: Option<bool>,
}

/// Casts of leaves, by the sequence number of the leaf's node and the dtype.
type Casts = HashMap<(u64, DType), Tensor>;

thread_local! {
    static SETTINGS: Cell<Option<Settings>> = const { Cell::new(None) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CASTS: RefCell<Option<Casts>> = const { RefCell::new(None) };
}

/// Whether operations on this thread are cast.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    flags::has(flags::AUTOCAST) && SETTINGS.get().is_some()
}

/// The settings of this thread.
pub(crate) fn settings() -> Option<Settings> {
    SETTINGS.get()
}

/// A scope that ends when it is dropped. The end of the outermost one frees the casts of parameters.
pub(crate) struct Scope {
    before: Option<Settings>,
}

impl Scope {
    pub fn enter(settings: Option<Settings>) -> Scope {
        flags::set(flags::AUTOCAST);
        DEPTH.set(DEPTH.get() + 1);
        Scope { before: SETTINGS.replace(settings) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SETTINGS.set(self.before);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // Bound to a variable: dropping the casts may access this cell.
            let casts = CASTS.take();
            drop(casts);
        }
    }
}

/// Autocast is off until this is dropped.
pub(crate) struct Off {
    before: Option<Settings>,
    // The scope belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

pub(crate) fn off() -> Off {
    Off { before: SETTINGS.replace(None), _not_send: PhantomData }
}

impl Drop for Off {
    fn drop(&mut self) {
        SETTINGS.set(self.before);
    }
}

/// The scope of a function call, to call the function again in it.
#[derive(Clone, Copy)]
pub(crate) struct State(Option<Settings>);

impl State {
    pub fn current() -> State {
        State(SETTINGS.get())
    }

    /// Runs `f` in that scope, with a new cache of casts: casts made outside are not part of what `f` computes.
    pub fn resume<T>(self, f: impl FnOnce() -> T) -> T {
        struct Restore(Option<Casts>);
        impl Drop for Restore {
            fn drop(&mut self) {
                let own = CASTS.replace(self.0.take());
                drop(own);
            }
        }
        if self.0.is_none() && SETTINGS.get().is_none() {
            return f();
        }
        let _restore = Restore(CASTS.take());
        let _scope = Scope::enter(self.0);
        f()
    }
}

/// Casts a tensor. The cast of a leaf, such as a parameter, is cached: all its uses share one cast.
pub(crate) fn cast_of(x: &Tensor, target: DType, settings: Settings) -> Result<Tensor> {
    let _off = off();
    let leaf = x.grad_node().filter(|node| x.is_leaf() && node.tape.is_none()).map(|node| node.seq);
    let keep = settings.cache_enabled && target == settings.dtype && is_grad_enabled() && !is_running();
    let Some(leaf) = leaf.filter(|_| keep) else { return x.to_dtype(target) };
    let known = CASTS.with_borrow(|casts| casts.as_ref().and_then(|casts| casts.get(&(leaf, target)).cloned()));
    // A backward pass inside the scope may have freed the graph of the cast.
    if let Some(known) = known.filter(|known| known.grad_node().is_some_and(|node| node.has_body())) {
        return Ok(known);
    }
    let cast = x.to_dtype(target)?;
    CASTS.with_borrow_mut(|casts| casts.get_or_insert_default().insert((leaf, target), cast.clone()));
    Ok(cast)
}
