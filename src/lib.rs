//! Cotangent: tensors with reverse-mode automatic differentiation.
//!
//! A [`Tensor`] is a value: it is cheap to clone, and a change of one tensor never changes another. Operations on tensors that
//! require a gradient are recorded in a graph, and [`Tensor::backward`] computes the gradients.
//!
//! ```
//! use cotangent::tensor;
//! let w = tensor!([0.5, -1.0])?.requires_grad_(true)?;
//! let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
//! let loss = x.mul(&w)?.tanh()?.sum(..)?;
//! loss.backward()?;
//! println!("{}", w.grad().ok_or("no gradient")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! | to | see |
//! | --- | --- |
//! | compute with tensors | the methods of [`Tensor`], [by subject](Tensor#methods-by-subject); the [table of all operations](ops) |
//! | compute with matrices, spectra, special functions and windows | [`linalg`], [`fft`], [`special`], [`signal::windows`] |
//! | compute on a GPU | [`Device`], [`Tensor::to_device`], [`Module::to_device`](nn::Module::to_device); needs the feature `cuda` |
//! | pass options | [`options`]; dimensions, sizes and indices are in [`arguments`] |
//! | differentiate | [`autograd`], [`vmap()`], [`no_grad`], [mixed precision](mod@autocast) |
//! | build a model | [`nn`]: layers, the trait [`nn::Module`], initialisers; [`models`]: known networks |
//! | train it | [`optim`]: optimisers, clipping, schedules; [`data`]; [mixed precision](mod@autocast); [`train`]: metrics, logs, reports, a trainer |
//! | save and load | [`io`]: safetensors, NumPy, PyTorch, GGUF, checkpoints |
//! | see time and memory | [`mod@profile`], [`memory`] |
//! | set threads, precision, seeds | [`settings`], [`manual_seed`], [`random`] |
//! | end a long operation | [`interrupt`] |
//!
//! [`prelude`] has what most programs import.
//!
//! # Features
//! `cuda` is for NVIDIA GPUs, `image` for image files as data, `tokenizers` for tokenizers and chat templates in Hugging Face's
//! format, `ndarray` for conversions from and to arrays of that crate: `cargo add cotangent --features cuda`.
//!
//! # The rules of the API
//! Names are PyTorch's. These rules hold for all of them.
//!
//! ## Reductions
//! A reduction takes the dimensions to reduce: one, several, or all (`..`). They are removed, or kept with size 1 by [`keepdim`].
//! Negative dimensions count from the last.
//!
//! ```
//! use cotangent::{Tensor, keepdim};
//! let x = Tensor::ones([2, 3, 4])?;
//! assert_eq!(x.sum(..)?.item::<f32>()?, 24.0);
//! assert_eq!(x.mean(-1)?.shape(), [2, 3]);
//! assert_eq!(x.max([0, 2])?.shape(), [3]);
//! assert_eq!(x.max(keepdim([0, 2]))?.shape(), [1, 3, 1]);
//! let (values, indices) = x.max_with_indices(1)?;
//! assert_eq!((values.shape(), indices.shape()), (&[2, 4][..], &[2, 4][..]));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Options
//! A function `f` takes the required arguments. Arguments with defaults are options of `f_with`, whose last argument is a struct named
//! `…Options`, in [`options`], with a setter for each option. The most frequent option can be passed in place of the struct.
//! The fields of the structs are private, so that new options break no programs.
//!
//! ```
//! use cotangent::{Reduction, Tensor, tensor, options::CrossEntropyOptions};
//! let (logits, classes) = (Tensor::zeros([4, 10])?, tensor!([1, 2, 3, 4])?);
//! let mean = logits.cross_entropy(&classes)?;
//! let sum = logits.cross_entropy_with(&classes, Reduction::Sum)?;
//! let smooth = logits.cross_entropy_with(&classes, CrossEntropyOptions::new().label_smoothing(0.1).ignore_index(4))?;
//! # assert_eq!((mean.rank(), sum.rank(), smooth.rank()), (0, 0, 0));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Indexing
//! [`Tensor::index`] reads a part of a tensor and [`Tensor::set`] assigns to it. The macro [`s!`] takes what Python has between
//! brackets. Integers, ranges, `None` and `...` give a view; integer tensors and masks give a copy.
//!
//! ```
//! use cotangent::{Tensor, s, tensor};
//! let mut x = Tensor::arange(0, 12)?.reshape([3, 4])?;
//! assert_eq!(x.index(-1)?.to_vec::<i64>()?, [8, 9, 10, 11]);
//! assert_eq!(x.index(s![1.., ..;2])?.to_vec::<i64>()?, [4, 6, 8, 10]);
//! assert_eq!(x.index(s![..., None])?.shape(), [3, 4, 1]);
//! assert_eq!(x.index(&x.gt(9)?)?.to_vec::<i64>()?, [10, 11]);
//! x.set(s![.., 0], -1)?;
//! x.set(s![0, 1..-1], &tensor!([20, 30])?)?;
//! assert_eq!(x.index(0)?.to_vec::<i64>()?, [-1, 20, 30, 3]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Creation
//! Constructors make `f32` tensors on the CPU, and `i64` from integers. Their `_with` forms take a dtype, a device, or both: see
//! [`TensorOptions`]. [`tensor!`] gives literals the same defaults. [`Tensor::new`], [`Tensor::from_vec`] and
//! [`Tensor::from_slice`] keep the Rust types of the values: `1.0` is an `f64` and `1` an `i32`.
//!
//! ```
//! use cotangent::{DType, Device, Tensor, tensor};
//! assert_eq!(Tensor::zeros([2, 3])?.dtype(), DType::F32);
//! assert_eq!(Tensor::zeros_with([2, 3], DType::BF16)?.dtype(), DType::BF16);
//! assert_eq!(Tensor::randn_with([2, 3], (DType::F64, Device::Cpu))?.dtype(), DType::F64);
//! assert_eq!((tensor!([1.0, 2.0])?.dtype(), tensor!([1, 2])?.dtype()), (DType::F32, DType::I64));
//! assert_eq!((Tensor::new([1.0, 2.0])?.dtype(), Tensor::new([1, 2])?.dtype()), (DType::F64, DType::I32));
//! assert_eq!(tensor!([1, 2], DType::U8)?.dtype(), DType::U8);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Numbers
//! A number can be on either side of `+ - * /`. The result has the tensor's dtype, unless the number is of a higher kind:
//! a float and an integer tensor give `f32`. Dtypes of two tensors are [promoted](DType::promote). A quotient is a float.
//! [`Tensor::item`] and [`Tensor::to_vec`] read into every type that holds all values of the dtype; other types need a cast.
//! The operators panic with the error message of the method. On the left, numbers must be `f64`, `i64` or `Complex<f64>`.
//!
//! ```
//! use cotangent::{DType, tensor};
//! let (mut x, n) = (tensor!([1.0, 2.0])?, tensor!([1, 2])?);
//! assert_eq!((&x * 2).dtype(), DType::F32);
//! assert_eq!((2.0 * &n).dtype(), DType::F32);
//! assert_eq!((1 - &n).to_vec::<i64>()?, [0, -1]);
//! assert_eq!((&n / 2).to_vec::<f32>()?, [0.5, 1.0]);
//! assert_eq!((&x + &n).dtype(), DType::F32);
//! x += 1;
//! assert_eq!(x.sum(..)?.item::<f64>()?, 5.0);
//! assert!(x.to_vec::<i64>().is_err() && x.to_dtype(DType::I64)?.to_vec::<i64>().is_ok());
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## In place
//! Methods that change a tensor take `&mut self` and end in `_`; operators such as `+=` and [`Tensor::set`] change it, too. Clones
//! and views never see the change: shared memory is copied first. If a gradient is required, the change is recorded. It is an error
//! to change a view, since the change would be lost; to change a leaf that requires a gradient, except in
//! [`no_grad`]; and to change the dtype or the shape.
//!
//! ```
//! use cotangent::{Tensor, s};
//! let mut x = Tensor::zeros([2, 2])?;
//! let before = x.clone();
//! x.add_(1)?;
//! assert_eq!(before.sum(..)?.item::<f32>()?, 0.0);
//! assert!(x.index(0)?.fill_(7).is_err());
//! x.set(0, 7)?;
//! assert_eq!(x.to_vec::<f32>()?, [7.0, 7.0, 1.0, 1.0]);
//! assert!(x.requires_grad_(true)?.add_(1).is_err());
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Errors
//! Fallible functions return a [`Result`]. An [`Error`] has a [kind](Error::kind), the [operation](Error::op) that was called, the
//! [location](Error::location) of the call in the program, and a message with the values that did not fit. A call that fails
//! changes nothing.
//!
//! ```
//! use cotangent::{ErrorKind, Tensor};
//! let error = Tensor::zeros([2, 3])?.add(&Tensor::zeros([4])?).err().ok_or("it should fail")?;
//! assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, "add"));
//! assert_eq!(error.to_string(), "add: shapes [2, 3] and [4] do not broadcast: sizes 3 and 4 differ");
//! println!("{error:?}"); // with the location, as `fn main() -> cotangent::Result<()>` prints it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The compiler looks for cycles of calls to an eighth of this depth before it inlines: here four calls deep. At the usual 128 that
// is a twentieth of the build, and the library is no faster.
#![recursion_limit = "39"]
// Without the feature nothing calls the functions that make samples. Lints are for builds with it.
#![cfg_attr(not(feature = "samples"), allow(dead_code, unused_imports))]

// The derive macro names this crate `cotangent`, also in here.
extern crate self as cotangent;

pub mod autocast;
pub mod autograd;
mod backend;
mod complex;
#[cfg(feature = "cuda")]
mod cuda_graph;
pub mod data;
mod device;
mod dtype;
pub mod error;
mod flags;
pub mod interrupt;
pub mod io;
mod json;
mod layout;
mod location;
pub mod memory;
pub mod models;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod options;
mod order;
pub mod prelude;
pub mod profile;
mod quantized;
pub mod random;
mod scalar;
mod shared;
mod storage;
#[cfg(feature = "cuda")]
mod stream;
mod tensor;
pub mod train;
#[cfg(feature = "samples")]
#[doc(hidden)]
pub mod unit_tests;
pub mod vmap;
mod zip;

#[doc(inline)]
pub use autocast::{autocast, no_autocast};
#[doc(inline)]
pub use autograd::no_grad;
pub use backend::DeviceProperties;
pub use complex::Complex;
#[cfg(feature = "cuda")]
pub use cuda_graph::CudaGraph;
pub use device::Device;
pub use dtype::{DType, Element};
#[doc(inline)]
pub use error::{Error, ErrorKind, Result};
pub use layout::{Shape, keepdim};
pub use ops::signatures::Reduction;
#[doc(inline)]
pub use profile::profile;
#[doc(inline)]
pub use random::{Generator, manual_seed, with_generator};
pub use scalar::Scalar;
#[cfg(feature = "cuda")]
pub use stream::Stream;
pub use tensor::{Tensor, TensorOptions};
#[doc(inline)]
pub use vmap::vmap;

/// Types that arguments are converted into: dimensions, sizes, indices and operands.
///
/// Few programs name them. A function that takes `impl Into<Dims>` can be called with `0`, `-1`, `[0, 2]` or `..`; the page of each
/// type lists what converts into it. See also [`s!`], for indices, and [`keepdim`].
pub mod arguments {
    pub use crate::layout::{At, Dim, Dims, ReduceDims, Sections, Sizes, Slice};
    pub use crate::tensor::{Ellipsis, Index, IndexItem, NdArray, Operand};
}

/// Linear algebra: decompositions, solvers, norms and pseudoinverses, as in `torch.linalg`.
///
/// Inverses and determinants are methods: [`Tensor::inverse`], [`Tensor::det`], [`Tensor::slogdet`], [`Tensor::logdet`]. So are
/// [`Tensor::matrix_power`], [`Tensor::matrix_exp`] and [`Tensor::matmul`].
///
/// ```
/// use cotangent::{linalg, tensor};
/// let (a, b) = (tensor!([[3.0, 1.0], [1.0, 2.0]])?, tensor!([9.0, 8.0])?);
/// assert_eq!(linalg::solve(&a, &b)?.to_vec::<f32>()?, [2.0, 3.0]);
/// assert!(a.inverse()?.matmul(&b)?.allclose(&tensor!([2.0, 3.0])?)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub mod linalg {
    pub use crate::ops::linalg::namespace::*;
}

/// Discrete Fourier transforms, as in `torch.fft`. [`Tensor::stft`] and [`Tensor::istft`] are methods.
///
/// ```
/// use cotangent::{Tensor, fft};
/// let spectrum = fft::rfft(&Tensor::ones([4])?)?;
/// assert_eq!(spectrum.real()?.to_vec::<f32>()?, [4.0, 0.0, 0.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub mod fft {
    pub use crate::ops::fft::nd::namespace::*;
    pub use crate::ops::fft::transforms::namespace::*;
}

/// Special functions: Bessel functions, orthogonal polynomials and functions of the normal distribution, as in `torch.special`.
/// The more frequent ones, such as [`Tensor::erf`] and [`Tensor::lgamma`], are methods.
///
/// ```
/// use cotangent::{special, tensor};
/// assert_eq!(special::bessel_j0(&tensor!([0.0])?)?.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub mod special {
    pub use crate::ops::special::namespace::*;
}

/// Signal processing, as in `torch.signal`: [window functions](signal::windows).
///
/// ```
/// use cotangent::{Tensor, fft, signal::windows};
/// let x = Tensor::arange(0, 64)?.mul(0.5)?.sin()?;
/// let spectrum = fft::rfft(&x.mul(&windows::hann(64)?)?)?.abs()?;
/// assert_eq!(spectrum.shape(), [33]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub mod signal {
    /// Window functions, symmetric by default. The methods with other names, such as
    /// [`Tensor::hann_window`](crate::Tensor::hann_window), are periodic by default, for spectra.
    ///
    /// ```
    /// use cotangent::{options::SignalWindowOptions, signal::windows};
    /// assert_eq!(windows::hann(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// let periodic = windows::hann_with(4, SignalWindowOptions::new().sym(false))?;
    /// assert_eq!(periodic.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub mod windows {
        pub use crate::ops::fft::signal_windows::namespace::*;
    }
}

/// Settings of the program or the thread: threads, precision of matrix products, deterministic algorithms.
pub mod settings {
    pub use crate::backend::deterministic::{deterministic_algorithms, with_deterministic_algorithms};
    pub use crate::backend::{num_threads, set_num_threads, with_num_threads};
    pub use crate::ops::{MatmulPrecision, matmul_precision, with_matmul_precision};
}

/// An [`Index`](arguments::Index) as Python writes it between brackets: integers, ranges with negative ends and, after a semicolon, a step,
/// `..` for a whole dimension, `...` for all dimensions not named, `None` for a new one, integer tensors and masks.
///
/// ```
/// use cotangent::{Tensor, s, tensor};
/// let x = Tensor::arange(0, 24)?.reshape([2, 3, 4])?;
/// assert_eq!(x.index(s![-1, 0, 1..-1])?.to_vec::<i64>()?, [13, 14]);
/// assert_eq!(x.index(s![..., ..;-2])?.shape(), [2, 3, 2]);
/// assert_eq!(x.index(s![0, &tensor!([2, 0])?, None])?.shape(), [2, 1, 4]);
/// let mut y = x.clone();
/// y.set(s![.., 1, ..], 0)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
pub use cotangent_macros::s;

/// A tensor of literals. Those without a type of their own get PyTorch's, `f32` and `i64`, where Rust would make `f64` and
/// `i32` of them; a float among integers makes all of them floats. Next to a variable, or a literal with a type, they get
/// that type, as in any array. Dtype and device may follow.
///
/// ```
/// use cotangent::{DType, tensor};
/// assert_eq!(tensor!([[1.0, 2.0], [3.0, 4.0]])?.dtype(), DType::F32);
/// assert_eq!(tensor!([1, 2, 3])?.dtype(), DType::I64);
/// assert_eq!(tensor!([1.5, 2])?.to_vec::<f32>()?, [1.5, 2.0]);
/// assert_eq!(tensor!([1_u8, 2])?.dtype(), DType::U8);
/// let x = 0.5_f64;
/// assert_eq!(tensor!([x, 1.0])?.dtype(), DType::F64);
/// assert_eq!(tensor!([0.1, 0.2], DType::F64)?.dtype(), DType::F64);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub use cotangent_macros::tensor;

/// The README's example is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
