//! A function of one example, for a whole batch of them at once.
#![forbid(unsafe_code)]

mod batch;
mod call;

pub(crate) use batch::{BatchDims, Level, behind, innermost};
pub(crate) use call::{check_own_generator, intercept, rule_by_example};

use crate::error::{bail, named};
use crate::layout::resolve_dim;
use crate::{Result, Tensor, hooks};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether random draws inside [`vmap`](crate::vmap) are the same for all examples.
///
/// ```
/// use cotangent::{Tensor, VmapRandomness, vmap_with};
/// # cotangent::manual_seed(0);
/// let noisy = |x: &[Tensor]| x[0].add(Tensor::rand([])?);
/// let x = Tensor::zeros([3])?;
/// assert!(vmap_with(noisy, &[&x], VmapRandomness::Refuse).is_err());
/// let y = vmap_with(noisy, &[&x], VmapRandomness::Same)?.to_vec::<f32>()?;
/// assert!(y[0] == y[1] && y[1] == y[2]);
/// let y = vmap_with(noisy, &[&x], VmapRandomness::Different)?.to_vec::<f32>()?;
/// assert!(y[0] != y[1] && y[1] != y[2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VmapRandomness {
    /// They are refused.
    #[default]
    Refuse,
    /// Every example gets the same numbers.
    Same,
    /// Every example gets numbers of its own.
    Different,
}

/// What [`vmap`](crate::vmap) does with an operation that has no batching rule.
///
/// ```
/// use cotangent::{Tensor, VmapFallback, vmap_with};
/// let x = Tensor::randn([3, 4])?;
/// let error = vmap_with(|x| x[0].histc(), &[&x], VmapFallback::Refuse).err().ok_or("it is refused")?;
/// assert!(error.to_string().starts_with("histc") && error.to_string().contains("batching rule"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VmapFallback {
    /// It is called for one example after the other.
    #[default]
    Loop,
    /// The same, and says so on the standard error stream, once for each operation.
    Warn,
    /// It is refused.
    Refuse,
}

/// The options of [`vmap_with`](crate::vmap_with). One of them can stand for the struct.
///
/// ```
/// use cotangent::{Tensor, VmapOptions, vmap_with};
/// let (x, w) = (Tensor::randn([4, 3])?, Tensor::randn([4])?);
/// // The columns of a matrix, each with the same vector.
/// let options = VmapOptions::new().in_dims([Some(1), None]);
/// assert_eq!(vmap_with(|a| a[0].dot(&a[1]), &[&x, &w], options)?.shape(), [3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct VmapOptions {
    in_dims: Option<Vec<Option<isize>>>,
    out_dim: isize,
    randomness: VmapRandomness,
    fallback: VmapFallback,
}

impl VmapOptions {
    /// All options at their defaults.
    pub fn new() -> VmapOptions {
        VmapOptions::default()
    }

    /// For each input the dimension of the examples, or `None` if it is the same for all of them. Unless set, the first
    /// of each.
    pub fn in_dims(mut self, dims: impl Into<Vec<Option<isize>>>) -> VmapOptions {
        self.in_dims = Some(dims.into());
        self
    }

    /// Where the examples are in the results. Unless set: 0.
    pub fn out_dim(mut self, dim: isize) -> VmapOptions {
        self.out_dim = dim;
        self
    }

    /// What random draws do. Unless set they are refused.
    pub fn randomness(mut self, randomness: VmapRandomness) -> VmapOptions {
        self.randomness = randomness;
        self
    }

    /// What happens to operations without a batching rule. Unless set: a loop.
    pub fn fallback(mut self, fallback: VmapFallback) -> VmapOptions {
        self.fallback = fallback;
        self
    }
}

impl From<VmapRandomness> for VmapOptions {
    fn from(randomness: VmapRandomness) -> VmapOptions {
        VmapOptions::new().randomness(randomness)
    }
}

impl From<VmapFallback> for VmapOptions {
    fn from(fallback: VmapFallback) -> VmapOptions {
        VmapOptions::new().fallback(fallback)
    }
}

/// A `vmap` whose function is running.
#[derive(Clone, Copy)]
struct Running {
    level: Level,
    randomness: VmapRandomness,
    fallback: VmapFallback,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The numbers of all that are running. A derivative inside of one may be taken on another thread.
static ACTIVE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// Those whose function was called by this thread, from the outermost to the innermost.
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// Whether there has been any. Until then operations need not look for batched tensors.
#[inline(always)]
pub(crate) fn is_used() -> bool {
    hooks::has(hooks::VMAP)
}

/// Whether the function of a `vmap` is running on this thread.
pub(crate) fn is_running() -> bool {
    is_used() && running().is_some()
}

/// Whether the function of this `vmap` is running.
fn is_active(level: Level) -> bool {
    active().contains(&level.number)
}

fn active() -> MutexGuard<'static, BTreeSet<u64>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The innermost `vmap` on this thread.
fn running() -> Option<Running> {
    RUNNING.with_borrow(|running| running.last().copied())
}

/// Begins a `vmap`, and ends it when it is dropped, however its function ends.
struct Scope(Level);

impl Scope {
    fn new(running: Running) -> Scope {
        active().insert(running.level.number);
        RUNNING.with_borrow_mut(|all| all.push(running));
        Scope(running.level)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
        active().remove(&self.0.number);
    }
}

/// The results of a function of one example, for all examples of a batch. Inside the function every tensor has the shape of
/// one example; the operations run once for all of them. It can be nested, and derivatives inside of it
/// ([`value_and_grad`](crate::autograd::value_and_grad), [`jvp`](crate::autograd::jvp),
/// [`jacobian`](crate::autograd::jacobian), ..) are those of single examples.
///
/// What is the same for all examples can be used from outside, or be an input without a dimension of examples:
/// [`VmapOptions::in_dims`]. The values of a tensor cannot be read inside, since there is one for each example.
///
/// ```
/// use cotangent::{Tensor, autograd::value_and_grad, tensor, vmap};
/// let (x, w) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([10.0, 1.0])?);
/// assert_eq!(vmap(|x| x[0].dot(&w), &[&x])?.to_vec::<f32>()?, [12.0, 34.0]);
/// // The gradient of each example by itself.
/// let grads = vmap(|x| Ok(value_and_grad(|w| w[0].dot(&x[0])?.square(), &[&w])?.1.swap_remove(0)), &[&x])?;
/// assert_eq!(grads.to_vec::<f32>()?, [24.0, 48.0, 204.0, 272.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As the function's; if there is no example dimension, or the sizes of several differ; if the function reads values, changes
/// a batched tensor in place, or draws random numbers ([`VmapRandomness`]).
#[track_caller]
pub fn vmap(f: impl FnOnce(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<Tensor> {
    vmap_with(f, inputs, VmapOptions::new())
}

/// As [`vmap`](crate::vmap), with options: see [`VmapOptions`].
///
/// ```
/// use cotangent::{Tensor, VmapOptions, vmap_with};
/// let x = Tensor::randn([2, 3, 4])?;
/// let y = vmap_with(|x| x[0].t(), &[&x], VmapOptions::new().in_dims([Some(-1)]).out_dim(-1))?;
/// assert_eq!(y.shape(), [3, 2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`vmap`](crate::vmap); also if an option does not fit.
#[track_caller]
pub fn vmap_with(
    f: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    options: impl Into<VmapOptions>,
) -> Result<Tensor> {
    let mut results = vmap_all(|x| Ok(vec![f(x)?]), inputs, options)?;
    Ok(results.swap_remove(0))
}

/// As [`vmap_with`](crate::vmap_with), of a function with several results.
///
/// ```
/// use cotangent::{Tensor, VmapOptions, tensor, vmap_all};
/// let x = tensor!([[3.0, 1.0], [2.0, 5.0]])?;
/// let sorted = vmap_all(|x| x[0].sort(0).map(|(values, order)| vec![values, order]), &[&x], VmapOptions::new())?;
/// assert_eq!(sorted[0].to_vec::<f32>()?, [1.0, 3.0, 2.0, 5.0]);
/// assert_eq!(sorted[1].to_vec::<i64>()?, [1, 0, 0, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`vmap_with`](crate::vmap_with).
#[track_caller]
pub fn vmap_all(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[&Tensor],
    options: impl Into<VmapOptions>,
) -> Result<Vec<Tensor>> {
    let options = options.into();
    hooks::set(hooks::VMAP);
    let (entries, level) = named("vmap", entries(inputs, &options))?;
    let VmapOptions { randomness, fallback, .. } = options;
    let results = {
        let _scope = Scope::new(Running { level, randomness, fallback });
        f(&entries)?
    };
    let out = |result: &Tensor| {
        let all = result.unbatch(level)?;
        let dim = resolve_dim("vmap", options.out_dim, all.rank())?;
        if dim == 0 { Ok(all) } else { all.movedim(0, dim) }
    };
    named("vmap", results.iter().map(out).collect())
}

/// The inputs as the function sees them.
fn entries(inputs: &[&Tensor], options: &VmapOptions) -> Result<(Vec<Tensor>, Level)> {
    let everywhere = vec![Some(0); inputs.len()];
    let dims = options.in_dims.as_ref().unwrap_or(&everywhere);
    if dims.len() != inputs.len() {
        bail!(Value, "vmap", "in_dims {dims:?} for {} inputs", inputs.len());
    }
    let mut size = None;
    for (x, dim) in inputs.iter().zip(dims) {
        let Some(dim) = dim else { continue };
        let own = x.shape()[resolve_dim("vmap", *dim, x.rank())?];
        if *size.get_or_insert(own) != own {
            let shapes: Vec<&[usize]> = inputs.iter().map(|x| x.shape()).collect();
            bail!(
                Shape,
                "vmap",
                "inputs of shapes {shapes:?} have not the same number of examples in dimensions {dims:?}"
            );
        }
    }
    let Some(size) = size else { bail!(Value, "vmap", "none of {} inputs has a dimension of examples", inputs.len()) };
    let level = Level { number: NEXT.fetch_add(1, Ordering::Relaxed), size };
    let entry = |(x, dim): (&&Tensor, &Option<isize>)| match dim {
        Some(dim) => x.movedim(*dim, 0)?.batch(level),
        None => Ok((*x).clone()),
    };
    Ok((inputs.iter().zip(dims).map(entry).collect::<Result<_>>()?, level))
}
