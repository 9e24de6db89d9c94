//! Elementwise operations: each element of the result is a function of the elements at its place.
//!
//! - `unary`, `exponential`, `rounding`, `trigonometry`: functions of one tensor.
//! - `binary`, `arithmetic`, `bits`: functions of two and three tensors, which broadcast.
//! - `compare`, `classify`, `clamp`: comparisons, logic and bounds.
//! - `complex`: parts, conjugates and angles. `complex_forms`: functions with separate code for complex numbers.
//! - `call`: dtypes, broadcasting and derivatives of all of them, from a formula.
//! - `map`: evaluates a formula to a tensor, now or deferred.
//!
//! Special functions are in [`special`](super::special), activation functions in [`nn`](super::nn).

pub(crate) mod call;
pub(in crate::ops) mod complex_forms;
pub(crate) mod map;

files! { arithmetic binary bits clamp classify compare complex exponential rounding trigonometry unary }
