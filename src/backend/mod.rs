//! Kernels over strided buffers. They know storage, layout and dtype, and neither gradients nor the names of operations.
//!
//! This module is the seam between tensors and devices: it takes [`View`]s and hands them to the device's kernels.

pub(crate) mod cpu;
pub(crate) mod late;
mod view;

pub(crate) use cpu::arg::arg;
pub(crate) use cpu::copy::{copy, fill, fill_parallel, read};
pub(crate) use cpu::index::{Indices, gather, index_add, rows_within};
pub(crate) use cpu::map::{map, zip_in_place};
pub(crate) use cpu::matmul::{has_bf16, matmul, matmul_bf16};
pub(crate) use cpu::reduce::{reduce, reduce_shifted};
pub(crate) use cpu::softmax::softmax;
pub(crate) use view::{View, ViewMut};
