//! Mixed precision: a scope in which each operation computes in the precision that fits it.
#![forbid(unsafe_code)]

use crate::autograd::is_grad_enabled;
use crate::error::{bail, named};
use crate::ops::{Arg, AutocastPolicy, Op};
use crate::options::options;
use crate::{DType, Device, Result, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` with mixed precision: matrix products, convolutions, attention and recurrent cells compute in `dtype`, `f16` or `bf16`,
/// and operations that need the range of `f32`, such as losses, compute in it. Which operations these are is PyTorch's
/// choice, by device: [`Op::autocast_cpu`](crate::ops::Op::autocast_cpu) and
/// [`Op::autocast_cuda`](crate::ops::Op::autocast_cuda). All others take what they are given. Tensors of `f64` are never cast.
///
/// The model's parameters stay in `f32`, and so do their gradients. A parameter that is used several times is cast once. Call `backward` and the
/// optimiser outside: a backward pass computes in the dtypes of the forward pass wherever it is called. `f16` needs a
/// [`GradScaler`](crate::optim::GradScaler).
///
/// The scope is one of this thread, and ends with `f`, however `f` ends. Other threads begin without one, also those that `f`
/// starts: call it there. Scopes can be nested; [`no_autocast`] is one in which nothing is cast.
///
/// ```
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::{DType, Tensor, autocast};
/// let (model, x, y) = (Linear::new(8, 4)?, Tensor::ones([2, 8])?, Tensor::zeros([2, 4])?);
/// let loss = autocast(DType::BF16, || {
///     let out = model.forward(&x)?;
///     assert_eq!(out.dtype(), DType::BF16);
///     out.mse_loss(&y)
/// })?;
/// loss.backward()?;
/// assert_eq!(loss.dtype(), DType::F32);
/// assert_eq!(model.weight.grad().map(|g| g.dtype()), Some(DType::F32));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As those of `f`; also if `dtype` is not `f16` or `bf16`.
#[track_caller]
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> Result<T>) -> Result<T> {
    autocast_with(dtype, AutocastOptions::new(), f)
}

options! {
    /// The options of [`autocast_with`]. A bool stands for whether it is on at all.
    ///
    /// ```
    /// use cotangent::{AutocastOptions, DType, Tensor, autocast_with};
    /// let x = Tensor::ones([2, 2])?;
    /// let options = AutocastOptions::new().cache_enabled(false);
    /// assert_eq!(autocast_with(DType::F16, options, || x.matmul(&x))?.dtype(), DType::F16);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AutocastOptions {
        /// Whether anything is cast.
        enabled: bool = true,
        /// Whether the casts of parameters are kept until the outermost scope ends.
        cache_enabled: bool = true,
        /// Whose lists of operations hold.
        lists: AutocastLists = AutocastLists::ByDevice,
    }
}

impl From<bool> for AutocastOptions {
    fn from(enabled: bool) -> AutocastOptions {
        AutocastOptions::new().enabled(enabled)
    }
}

crate::ops::choices! {
    /// Whose lists of operations an [`autocast`] goes by. Those of the CPU are shorter: `softmax`, `layer_norm` and sums, for
    /// example, stay in half precision there, as in PyTorch.
    ///
    /// ```
    /// use cotangent::{AutocastLists, AutocastOptions, DType, Tensor, autocast_with};
    /// let x = Tensor::ones([4])?.to_dtype(DType::BF16)?;
    /// let dtype = |lists| autocast_with(DType::BF16, AutocastOptions::new().lists(lists), || Ok(x.exp()?.dtype()));
    /// assert_eq!((dtype(AutocastLists::ByDevice)?, dtype(AutocastLists::Cuda)?), (DType::BF16, DType::F32));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum AutocastLists {
        /// Those of the device that the tensors are on.
        #[default]
        ByDevice = "by_device",
        /// Those of the CPU, on all devices.
        Cpu = "cpu",
        /// Those of GPUs, on all devices.
        Cuda = "cuda",
    }
}

/// As [`autocast()`], with options: see [`AutocastOptions`].
///
/// ```
/// use cotangent::{DType, Tensor, autocast_with};
/// let (x, mixed) = (Tensor::ones([2, 2])?, false);
/// assert_eq!(autocast_with(DType::BF16, mixed, || x.matmul(&x))?.dtype(), DType::F32);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`autocast()`].
#[track_caller]
pub fn autocast_with<T>(dtype: DType, options: impl Into<AutocastOptions>, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _scope = AutocastMode::new(dtype, options)?;
    f()
}

/// An [`autocast()`] of this thread that ends when it is dropped; guards end in the reverse order of their making. For callers
/// that cannot hand over a closure.
///
/// ```
/// use cotangent::{AutocastMode, AutocastOptions, DType, Tensor};
/// let x = Tensor::ones([2, 2])?;
/// let scope = AutocastMode::new(DType::BF16, AutocastOptions::new())?;
/// assert_eq!(x.matmul(&x)?.dtype(), DType::BF16);
/// drop(scope);
/// assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[must_use = "the mode goes back when the guard is dropped"]
pub struct AutocastMode {
    _scope: Scope,
    // The scope belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl AutocastMode {
    /// Begins a scope.
    ///
    /// # Errors
    /// If `dtype` is not `f16` or `bf16`.
    #[track_caller]
    pub fn new(dtype: DType, options: impl Into<AutocastOptions>) -> Result<AutocastMode> {
        let AutocastOptions { enabled, cache_enabled, lists } = options.into();
        named("autocast", check(dtype))?;
        let scope = enabled.then_some(Settings { dtype, cache_enabled, lists });
        Ok(AutocastMode { _scope: Scope::enter(scope), _not_send: PhantomData })
    }
}

impl std::fmt::Debug for AutocastMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AutocastMode({:?})", autocast_dtype())
    }
}

fn check(dtype: DType) -> Result<()> {
    if !matches!(dtype, DType::F16 | DType::BF16) {
        bail!(DType, "autocast", "it computes in f16 or bf16, not in {dtype}");
    }
    Ok(())
}

/// Runs `f` without [`autocast()`], also inside of one: tensors of half precision that come from outside stay so, and are cast by
/// hand where that is wanted.
///
/// ```
/// use cotangent::{DType, Tensor, autocast, no_autocast};
/// let x = Tensor::ones([2, 2])?;
/// let y = autocast(DType::BF16, || no_autocast(|| x.matmul(&x)))?;
/// assert_eq!(y.dtype(), DType::F32);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn no_autocast<T>(f: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(None);
    f()
}

/// The dtype of the [`autocast()`] that this thread is in.
///
/// ```
/// use cotangent::{DType, autocast, autocast_dtype, no_autocast};
/// assert_eq!(autocast_dtype(), None);
/// assert_eq!(autocast(DType::F16, || Ok(autocast_dtype()))?, Some(DType::F16));
/// assert_eq!(autocast(DType::F16, || Ok(no_autocast(autocast_dtype)))?, None);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "is_autocast_enabled")]
#[doc(alias = "get_autocast_dtype")]
pub fn autocast_dtype() -> Option<DType> {
    SETTINGS.get().map(|settings| settings.dtype)
}

#[derive(Clone, Copy)]
struct Settings {
    dtype: DType,
    cache_enabled: bool,
    lists: AutocastLists,
}

/// Casts of leaves, by the number of the leaf's node and the dtype.
type Casts = HashMap<(u64, DType), Tensor>;

thread_local! {
    static SETTINGS: Cell<Option<Settings>> = const { Cell::new(None) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CASTS: RefCell<Option<Casts>> = const { RefCell::new(None) };
}

/// Whether there has been any scope. Until then operations need not look at their thread's.
static USED: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub(crate) fn is_on() -> bool {
    USED.load(Ordering::Relaxed) && SETTINGS.get().is_some()
}

/// A scope that ends when it is dropped. The outermost one takes the casts of parameters with it.
struct Scope {
    before: Option<Settings>,
}

impl Scope {
    fn enter(settings: Option<Settings>) -> Scope {
        USED.store(true, Ordering::Relaxed);
        DEPTH.set(DEPTH.get() + 1);
        Scope { before: SETTINGS.replace(settings) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SETTINGS.set(self.before);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // Bound first: what is dropped may look at the casts.
            let casts = CASTS.take();
            drop(casts);
        }
    }
}

/// Nothing is cast until this is dropped.
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

/// The scope that a function was called in, to call it so again.
#[derive(Clone, Copy)]
pub(crate) struct State(Option<Settings>);

impl State {
    pub fn current() -> State {
        State(SETTINGS.get())
    }

    /// Runs `f` in that scope, with casts of its own: those made outside are not part of what `f` computes.
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

/// The results of an operation with its floats cast; `None` if there is nothing to cast.
pub(crate) fn intercept(op: &Op, args: &[Arg]) -> Option<Result<Vec<Tensor>>> {
    let settings = SETTINGS.get()?;
    let tensors: Vec<&Tensor> = args.iter().flat_map(Arg::tensors).collect();
    let on_gpu = match settings.lists {
        AutocastLists::ByDevice => tensors.iter().any(|x| x.device() != Device::Cpu),
        lists => lists == AutocastLists::Cuda,
    };
    let target = match if on_gpu { op.autocast_cuda } else { op.autocast_cpu }? {
        AutocastPolicy::Lower => settings.dtype,
        AutocastPolicy::F32 if asks_for_dtype(op, args) => return None,
        AutocastPolicy::F32 => DType::F32,
        AutocastPolicy::Widest => widest(&tensors)?,
        AutocastPolicy::Own => return None,
        AutocastPolicy::Refused => return Some(refused(op)),
    };
    if !tensors.iter().any(|x| is_cast(x, target)) {
        return None;
    }
    Some(call(op, args, target, settings))
}

fn call(op: &Op, args: &[Arg], target: DType, settings: Settings) -> Result<Vec<Tensor>> {
    let mut cast = Vec::with_capacity(args.len());
    for arg in args {
        cast.push(arg.map_tensors(|x| if is_cast(x, target) { cast_of(x, target, settings) } else { Ok(x.clone()) })?);
    }
    // What the operation is made of is part of it: nothing of that is cast.
    let _off = off();
    op.call(&cast)
}

/// Whether a tensor is cast: floats are, but for those of double precision.
fn is_cast(x: &Tensor, target: DType) -> bool {
    matches!(x.dtype(), DType::F16 | DType::BF16 | DType::F32) && x.dtype() != target
}

/// Whether the caller has chosen the dtype of the result.
fn asks_for_dtype(op: &Op, args: &[Arg]) -> bool {
    op.params().zip(args).any(|(param, arg)| param.name == "dtype" && !matches!(arg, Arg::None))
}

/// The one dtype of all floats, or `f32`: that of two halves is neither of them.
fn widest(tensors: &[&Tensor]) -> Option<DType> {
    let floats = tensors.iter().map(|x| x.dtype());
    floats
        .filter(|dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32))
        .reduce(|a, b| if a == b { a } else { DType::F32 })
}

fn refused(op: &Op) -> Result<Vec<Tensor>> {
    bail!(
        DType,
        op.name,
        "inside of autocast its gradient is not safe: use {}_with_logits on what comes before the sigmoid, or no_autocast",
        op.name
    )
}

/// A tensor in another dtype. That of a leaf, such as a parameter, is kept: all uses of it share one cast.
fn cast_of(x: &Tensor, target: DType, settings: Settings) -> Result<Tensor> {
    let _off = off();
    let leaf = x.grad_node().filter(|node| x.is_leaf() && node.tape.is_none()).map(|node| node.seq);
    let keep = settings.cache_enabled && target == settings.dtype && is_grad_enabled() && !crate::vmap::is_running();
    let Some(leaf) = leaf.filter(|_| keep) else { return x.to_dtype(target) };
    let known = CASTS.with_borrow(|casts| casts.as_ref().and_then(|casts| casts.get(&(leaf, target)).cloned()));
    // A backward pass inside of the scope has taken the graph of the cast away.
    if let Some(known) = known.filter(|known| known.grad_node().is_some_and(|node| node.has_body())) {
        return Ok(known);
    }
    let cast = x.to_dtype(target)?;
    CASTS.with_borrow_mut(|casts| casts.get_or_insert_default().insert((leaf, target), cast.clone()));
    Ok(cast)
}
