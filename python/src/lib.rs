//! Cotangent for Python: the extension module that the package `cotangent` is built on.
//!
//! - `tensor`: the class `Tensor`, a variable that holds a tensor of the crate; `attributes` and `operators`: more of its
//!   methods; `views`: views of it.
//! - `ops`: functions and methods, made from the list of operations when the module is imported.
//! - `args`: conversion of arguments; `index`: indexing with brackets; `data`: nested sequences.
//! - `autograd`: modes, passes, transforms, hooks and custom functions.
//! - `nn`: the layers of the list; `variables`: Python variables as parameters of the crate; `optim`: optimisers, clipping and
//!   mixed precision; `schedule`: learning rates.
//! - `tokenizers`, `models`: texts as tokens, and language models.
//! - `dlpack`: memory shared with other libraries; `io`: files; `loader`: batches; `train`: metrics and logs.
//!
//! Code that need not be fast is written in Python, in `cotangent/`.

mod args;
mod attributes;
mod autograd;
mod convert;
mod data;
mod dlpack;
mod dtype;
mod error;
mod index;
mod io;
mod loader;
mod models;
mod nn;
mod number;
mod operators;
mod ops;
mod optim;
mod schedule;
mod tensor;
#[cfg(feature = "tokenizers")]
mod tokenizers;
mod train;
mod variables;
mod views;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _cotangent(module: &Bound<'_, PyModule>) -> PyResult<()> {
    dtype::register(module)?;
    module.add_class::<tensor::PyTensor>()?;
    ops::register(module)?;
    data::register(module)?;
    autograd::register(module)?;
    dlpack::register(module)?;
    nn::register(module)?;
    optim::register(module)?;
    schedule::register(module)?;
    io::register(module)?;
    loader::register(module)?;
    train::register(module)?;
    models::register(module)?;
    #[cfg(feature = "tokenizers")]
    tokenizers::register(module)?;
    error::heed_signals(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
