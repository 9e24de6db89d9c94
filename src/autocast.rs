//! Mixed precision: a scope in which each operation computes in a suitable precision.
//!
//! [`autocast()`] computes matrix products and convolutions in half precision, and losses in `f32`. The parameters and their
//! gradients stay in `f32`.
//!
//! ```
//! use cotangent::nn::{Forward, Linear};
//! use cotangent::{DType, Tensor, autocast};
//! let (model, x, y) = (Linear::new(8, 4)?, Tensor::ones([2, 8])?, Tensor::zeros([2, 4])?);
//! let loss = autocast(DType::BF16, || {
//!     let out = model.forward(&x)?;
//!     assert_eq!(out.dtype(), DType::BF16);
//!     out.mse_loss(&y)
//! })?;
//! loss.backward()?;
//! assert_eq!(loss.dtype(), DType::F32);
//! assert_eq!(model.weight.grad().map(|g| g.dtype()), Some(DType::F32));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! Small gradients vanish in `f16`: use a [`GradScaler`](crate::optim::GradScaler) with it, which scales the loss. `bf16` needs none.
//! [`no_autocast`] turns casting off for a part of the scope.
#![forbid(unsafe_code)]

use crate::autograd::autocast::{Scope, Settings, settings};
use crate::error::{bail, named};
use crate::options::options;
use crate::{DType, Result};
use std::marker::PhantomData;

/// Runs `f` with mixed precision: matrix products, convolutions, attention and recurrent cells compute in `dtype`, `f16` or
/// `bf16`, and operations that need the range of `f32`, such as losses, compute in `f32`. The lists of operations are PyTorch's,
/// by device: [`Op::autocast_cpu`](crate::ops::Op::autocast_cpu) and [`Op::autocast_cuda`](crate::ops::Op::autocast_cuda). All
/// other operations use the dtypes of their inputs. Tensors of `f64` are never cast.
///
/// The model's parameters and their gradients stay in `f32`. A parameter that is used several times is cast once. Call `backward`
/// and the optimiser outside: a backward pass computes in the dtypes of the forward pass wherever it is called. `f16` needs a
/// [`GradScaler`](crate::optim::GradScaler).
///
/// The scope belongs to this thread and ends with `f`, also if `f` panics. Other threads, also those that `f` starts, have autocast
/// off: call it there. Scopes can be nested; [`no_autocast`] turns casting off.
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
/// Those of `f`; also if `dtype` is not `f16` or `bf16`.
#[track_caller]
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> Result<T>) -> Result<T> {
    autocast_with(dtype, AutocastOptions::new(), f)
}

options! {
    /// The options of [`autocast_with`]. A bool alone sets `enabled`.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, autocast::{AutocastOptions, autocast_with}};
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
        /// Which lists of operations apply.
        lists: AutocastLists = AutocastLists::ByDevice,
    }
}

impl From<bool> for AutocastOptions {
    fn from(enabled: bool) -> AutocastOptions {
        AutocastOptions::new().enabled(enabled)
    }
}

crate::ops::choices! {
    /// Which lists of operations an [`autocast`] uses. Those of the CPU are shorter: there, `softmax`, `layer_norm` and sums, for
    /// example, stay in half precision, as in PyTorch.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, autocast::{AutocastLists, AutocastOptions, autocast_with}};
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
/// use cotangent::{DType, Tensor, autocast::autocast_with};
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

/// An [`autocast()`] of this thread that ends when it is dropped, for callers that cannot pass a closure. Drop guards in the
/// reverse order of their creation.
///
/// ```
/// use cotangent::{DType, Tensor, autocast::{AutocastMode, AutocastOptions}};
/// let x = Tensor::ones([2, 2])?;
/// let scope = AutocastMode::new(DType::BF16, AutocastOptions::new())?;
/// assert_eq!(x.matmul(&x)?.dtype(), DType::BF16);
/// drop(scope);
/// assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[must_use = "the mode is restored when the guard is dropped"]
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
        let scope = enabled.then_some(Settings { dtype, cache_enabled, gpu_policies: lists.for_gpus() });
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
        bail!(DType, "autocast", "dtype must be f16 or bf16, got {dtype}");
    }
    Ok(())
}

/// Runs `f` with [`autocast()`] off, also inside of one. Tensors of half precision that were made before keep their dtype.
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

/// The dtype of the current [`autocast()`] of this thread; `None` if it is off.
///
/// ```
/// use cotangent::{DType, autocast, no_autocast, autocast::autocast_dtype};
/// assert_eq!(autocast_dtype(), None);
/// assert_eq!(autocast(DType::F16, || Ok(autocast_dtype()))?, Some(DType::F16));
/// assert_eq!(autocast(DType::F16, || Ok(no_autocast(autocast_dtype)))?, None);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "is_autocast_enabled")]
#[doc(alias = "get_autocast_dtype")]
pub fn autocast_dtype() -> Option<DType> {
    settings().map(|settings| settings.dtype)
}

impl AutocastLists {
    /// Whether the policies of GPUs apply; `None` if the device decides.
    fn for_gpus(self) -> Option<bool> {
        match self {
            AutocastLists::ByDevice => None,
            AutocastLists::Cpu => Some(false),
            AutocastLists::Cuda => Some(true),
        }
    }
}
