//! What nearly every program needs: the tensor, the result, and the traits whose methods must be in scope. Layers, optimisers and
//! data are used with their modules' names, as in PyTorch.
//!
//! ```
//! use cotangent::prelude::*;
//! use cotangent::{nn, optim};
//!
//! let mut model = nn::Linear::new(3, 1)?;
//! let mut optimizer = optim::Sgd::new(0.1);
//! let loss = model.forward(&Tensor::ones([8, 3])?)?.square()?.mean(..)?;
//! model.zero_grad();
//! loss.backward()?;
//! optimizer.step(&mut model)?;
//! # Ok::<(), cotangent::Error>(())
//! ```

pub use crate::autograd::no_grad;
pub use crate::data::{Dataset, IterableDataset};
pub use crate::io::Stateful;
pub use crate::nn::{Forward, Module};
pub use crate::optim::{Optimizer, Schedule};
pub use crate::train::{Log, Metric};
pub use crate::{DType, Device, Generator, Reduction, Result, Tensor, keepdim, manual_seed, s, tensor};
