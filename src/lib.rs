//! Cotangent: tensors with reverse-mode automatic differentiation.
//!
//! A [`Tensor`] is a value: cheap to clone, never changed behind one's back. Operations on tensors that require a
//! gradient are recorded, and [`Tensor::backward`] walks the record.
//!
//! ```
//! use cotangent::Tensor;
//! let w = Tensor::new([0.5, -1.0])?.requires_grad_(true)?;
//! let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
//! let loss = x.mul(&w)?.tanh()?.sum()?;
//! loss.backward()?;
//! println!("{}", w.grad().ok_or("no gradient")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What can fail returns a [`Result`]; the operators `+ - * /` are sugar that panics with the same message.

// The derive macro names this crate `cotangent`, also in here.
extern crate self as cotangent;

pub mod autograd;
mod backend;
#[cfg(feature = "cuda")]
mod cuda_graph;
pub mod data;
mod device;
mod dtype;
mod error;
pub mod io;
mod layout;
pub mod memory;
pub mod nn;
pub mod ops;
pub mod optim;
mod random;
mod storage;
mod tensor;

pub use backend::DeviceProperties;
pub use backend::cpu::runtime::threads::{num_threads, set_num_threads, with_num_threads};
#[cfg(feature = "cuda")]
pub use cuda_graph::CudaGraph;
pub use device::Device;
pub use dtype::{DType, Element, Scalar};
pub use error::{Error, Result};
pub use layout::{Dims, Shape, Sizes, Slice};
pub use ops::{Attention, CrossEntropy, Gelu, MatmulPrecision, Reduction};
pub use ops::{matmul_precision, with_matmul_precision};
pub use random::{Generator, manual_seed, rng_state, set_rng_state, with_generator};
pub use tensor::{NdArray, Operand, Tensor, TensorOptions};

/// The README's example is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
