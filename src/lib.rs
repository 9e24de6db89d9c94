//! Cotangent: tensors with reverse-mode automatic differentiation.
//!
//! A [`Tensor`] is a value: cheap to clone, and never changed by what is done to another tensor. Operations on tensors that
//! require a gradient are recorded, and [`Tensor::backward`] walks the record.
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
//! [`Tensor`] has all operations as methods; [`ops`] has a table of them. [`nn`] has layers and the [`nn::Module`] trait,
//! [`optim`] the optimisers, [`data`] datasets and loaders, [`autograd`] the graph and its transforms, [`io`] files,
//! [`memory`] the allocator's figures, [`train`] what goes around a training step, [`mod@profile`] where its time goes.
//!
//! # The rules of the API
//! Names are PyTorch's. The following rules hold for all of them.
//!
//! ## Reductions
//! Every reduction has one name, and takes the dimensions it goes over: one, several, or all (`..`). They go away, or stay
//! with size 1 by [`keepdim`]. Negative dimensions count from the last.
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
//! A function `f` takes what must be given. What has a default is an option of `f_with`, whose last argument is a struct named
//! `…Options` with a setter for each option. Where one option is given most of the time, its value can stand for the struct.
//! The fields of the structs are private, so that a new option breaks no program.
//!
//! ```
//! use cotangent::{CrossEntropyOptions, Reduction, Tensor, tensor};
//! let (logits, classes) = (Tensor::zeros([4, 10])?, tensor!([1, 2, 3, 4])?);
//! let mean = logits.cross_entropy(&classes)?;
//! let sum = logits.cross_entropy_with(&classes, Reduction::Sum)?;
//! let smooth = logits.cross_entropy_with(&classes, CrossEntropyOptions::new().label_smoothing(0.1).ignore_index(4))?;
//! # assert_eq!((mean.rank(), sum.rank(), smooth.rank()), (0, 0, 0));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! ## Indexing
//! [`Tensor::index`] reads a part of a tensor, [`Tensor::set`] assigns to one. Both name the part as Python does between
//! brackets; [`s!`] writes it. Integers, ranges, `None` and `...` give a view; integer tensors and masks a copy.
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
//! Constructors make `f32` on the CPU, and `i64` from integers. Their `_with` forms take a dtype, a device, or both: see
//! [`TensorOptions`]. [`tensor!`] gives literals the same defaults; [`Tensor::new`], [`Tensor::from_vec`] and
//! [`Tensor::from_slice`] keep the types that the values have in Rust, in which `1.0` is an `f64` and `1` an `i32`.
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
//! A number can stand on either side of `+ - * /`. The result has the tensor's dtype, unless the number is of a higher kind:
//! a float beside integers gives `f32`. Dtypes of two tensors are [promoted](DType::promote). A quotient is a float.
//! [`Tensor::item`] and [`Tensor::to_vec`] read into every type that holds all values of the dtype; others need a cast.
//! The operators panic with the message that the method's error has; on the left stand `f64` and `i64` alone.
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
//! What changes a tensor takes `&mut self` and ends in `_`, or is an operator such as `+=`, or [`Tensor::set`]. Clones and
//! views never see the change: bytes that are shared are copied first. Where a gradient is required the change is recorded.
//! It is an error to change a view, since nobody would see it; a leaf that requires a gradient, outside of
//! [`no_grad`](autograd::no_grad); and to change dtype or shape.
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
//! What can fail returns a [`Result`]. An [`Error`] has a [kind](Error::kind), the [operation](Error::op) that was called, the
//! [place](Error::place) of the call in the program, and a message with the values that did not fit. A call that fails
//! changes nothing.
//!
//! ```
//! use cotangent::{ErrorKind, Tensor};
//! let error = Tensor::zeros([2, 3])?.add(&Tensor::zeros([4])?).err().ok_or("it should fail")?;
//! assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, "add"));
//! assert_eq!(error.to_string(), "add: shapes [2, 3] and [4] do not broadcast: sizes 3 and 4 differ");
//! println!("{error:?}"); // with the place, as `fn main() -> cotangent::Result<()>` prints it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The compiler looks for cycles of calls to an eighth of this depth before it inlines: here four calls deep. At the usual 128 that
// is a twentieth of the build, and the library is no faster.
#![recursion_limit = "39"]
// Without the feature nobody calls the functions that make samples. Lints are for builds with it.
#![cfg_attr(not(feature = "samples"), allow(dead_code, unused_imports))]

// The derive macro names this crate `cotangent`, also in here.
extern crate self as cotangent;

mod autocast;
pub mod autograd;
mod backend;
mod complex;
#[cfg(feature = "cuda")]
mod cuda_graph;
pub mod data;
mod device;
mod dtype;
mod error;
mod hooks;
pub mod interrupt;
pub mod io;
mod json;
mod layout;
pub mod memory;
pub mod models;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
pub mod ops;
pub mod optim;
mod options;
mod order;
mod place;
pub mod prelude;
pub mod profile;
mod random;
mod scalar;
mod storage;
#[cfg(feature = "cuda")]
mod stream;
mod tensor;
pub mod train;
#[cfg(feature = "samples")]
#[doc(hidden)]
pub mod unit_tests;
mod vmap;
mod zip;

pub use autocast::{
    AutocastLists, AutocastMode, AutocastOptions, autocast, autocast_dtype, autocast_with, no_autocast,
};
pub use backend::DeviceProperties;
pub use backend::cpu::runtime::threads::{num_threads, set_num_threads, with_num_threads};
pub use backend::deterministic::{deterministic_algorithms, with_deterministic_algorithms};
pub use complex::Complex;
#[cfg(feature = "cuda")]
pub use cuda_graph::CudaGraph;
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, OutOfMemory, Result};
pub use layout::{At, Dim, Dims, ReduceDims, Sections, Shape, Sizes, Slice, keepdim};
pub use ops::signatures::*;
pub use ops::{MatmulPrecision, matmul_precision, with_matmul_precision};
pub use place::{Name, Place, with_place};
pub use profile::profile;
pub use random::{Generator, manual_seed, rng_state, set_rng_state, with_generator};
pub use scalar::Scalar;
#[cfg(feature = "cuda")]
pub use stream::Stream;
pub use tensor::{CloseOptions, Ellipsis, Index, IndexItem, NdArray, Operand, Tensor, TensorOptions};
pub use vmap::{VmapFallback, VmapOptions, VmapRandomness, vmap, vmap_all, vmap_with};

/// An [`Index`] as Python writes it between brackets: integers, ranges with negative ends and, after a semicolon, a step,
/// `..` for a whole dimension, `...` for as many as it takes, `None` for a new one, integer tensors and masks.
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
/// `i32` of them; a float among integers makes all of them floats. Beside a variable, or a literal with a type, they get
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
