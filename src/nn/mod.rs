//! Modules: networks as structs whose parameters have names.
//!
//! A network is a struct with `#[derive(`[`Module`]`)]`. Its parameters are tensors, leaves of the graph that require a
//! gradient; the derive macro lets them be listed by PyTorch's names, saved, loaded, counted and updated.
//!
//! ```
//! use cotangent::nn::{Forward, Linear, Module, ReLU, Sequential};
//! use cotangent::optim::{AdamW, Optimizer};
//! use cotangent::{Reduction, Tensor};
//!
//! cotangent::manual_seed(0);
//! let mut model = Sequential::new().add(Linear::new(2, 16)?).add(ReLU).add(Linear::new(16, 1)?);
//! let mut optimizer = AdamW::new(0.01);
//! let x = Tensor::randn([32, 2])?;
//! let y = x.sum_dim(1, true)?;
//! for _ in 0..200 {
//!     let loss = model.forward(&x)?.mse_loss(&y, Reduction::Mean)?;
//!     model.zero_grad();
//!     loss.backward()?;
//!     optimizer.step(&mut model)?;
//! }
//! assert!(model.forward(&x)?.mse_loss(&y, Reduction::Mean)?.item::<f32>()? < 0.05);
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod activation;
pub mod init;
mod layers;
mod module;
mod sequential;
mod state;
mod summary;
pub(crate) mod tied;

pub use activation::{
    ELU, Flatten, GELU, Identity, LeakyReLU, LogSoftmax, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh,
};
pub use cotangent_derive::Module;
pub use layers::{Dropout, Embedding, LayerNorm, Linear};
pub use module::{Module, Part, PartMut, Tensors, Training, Visitor};
pub use sequential::{Layer, Sequential};
pub use state::{LoadReport, load, save};

use crate::{Result, Tensor};

/// A module with one tensor in and one out.
pub trait Forward {
    /// What comes out for `x`.
    ///
    /// # Errors
    /// If `x` does not fit.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

impl<T: Forward + ?Sized> Forward for Box<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
}
