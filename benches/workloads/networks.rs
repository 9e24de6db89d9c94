//! Convolutions, pooling, normalization and an LSTM, forward and backward, one row each, on any device.
//! `benches/peers/networks.py` has the same rows in PyTorch.

use crate::breadth::{Row, Step, Work};
use cotangent::nn::{BatchNorm2d, Forward, GroupNorm, LSTM, Module};
use cotangent::{
    Device, Generator, Result, Tensor,
    options::{ConvOptions, ConvTransposeOptions, MaxPoolOptions},
};

/// The multiplications and additions of a convolution, forward and backward.
const fn flops(batch: usize, c_in: usize, c_out: usize, output: usize, kernel: usize) -> Work {
    Work::Flops(6.0 * (batch * c_in * c_out * output * kernel) as f64)
}

/// A normalization reads its input and writes its result; its backward pass reads two arrays and writes a gradient.
const NORM: Work = Work::Bytes(4.0 * 5.0 * (32 * 64 * 56 * 56) as f64);

pub const ROWS: &[Row] = &[
    Row {
        name: "conv",
        work: flops(32, 64, 64, 32 * 32, 9),
        make: |on| {
            both(on, [&[32, 64, 32, 32], &[64, 64, 3, 3]], |x, w| x.conv2d_with(w, ConvOptions::new().padding(1)))
        },
    },
    Row {
        name: "conv_small_images",
        work: flops(32, 256, 256, 4 * 4, 9),
        make: |on| {
            both(on, [&[32, 256, 4, 4], &[256, 256, 3, 3]], |x, w| x.conv2d_with(w, ConvOptions::new().padding(1)))
        },
    },
    Row {
        name: "conv_stride2",
        work: flops(32, 64, 128, 16 * 16, 9),
        make: |on| {
            let options = || ConvOptions::new().padding(1).stride(2);
            both(on, [&[32, 64, 32, 32], &[128, 64, 3, 3]], move |x, w| x.conv2d_with(w, options()))
        },
    },
    Row {
        name: "conv_depthwise",
        work: flops(32, 1, 144, 28 * 28, 9),
        make: |on| {
            let options = || ConvOptions::new().padding(1).groups(144_usize);
            both(on, [&[32, 144, 28, 28], &[144, 1, 3, 3]], move |x, w| x.conv2d_with(w, options()))
        },
    },
    Row {
        name: "conv_1x1",
        work: flops(32, 64, 256, 28 * 28, 1),
        make: |on| both(on, [&[32, 64, 28, 28], &[256, 64, 1, 1]], |x, w| x.conv2d(w)),
    },
    Row {
        name: "conv_transpose",
        work: flops(32, 64, 32, 16 * 16, 16),
        make: |on| {
            let options = || ConvTransposeOptions::new().padding(1).stride(2);
            both(on, [&[32, 64, 16, 16], &[64, 32, 4, 4]], move |x, w| x.conv_transpose2d_with(w, options()))
        },
    },
    Row {
        name: "conv1d",
        work: flops(16, 64, 64, 4096, 5),
        make: |on| both(on, [&[16, 64, 4096], &[64, 64, 5]], |x, w| x.conv1d_with(w, ConvOptions::new().padding(2))),
    },
    Row {
        name: "max_pool",
        work: Work::Bytes(4.0 * 32.0 * 64.0 * 2.0 * (56.0 * 56.0 + 28.0 * 28.0)),
        make: |on| {
            let options = || MaxPoolOptions::new().padding(1).stride(2);
            one(on, &[32, 64, 56, 56], move |x| x.max_pool2d_with(3, options()))
        },
    },
    Row {
        name: "avg_pool",
        work: Work::Bytes(4.0 * 32.0 * 64.0 * 2.0 * (56.0 * 56.0 + 28.0 * 28.0)),
        make: |on| one(on, &[32, 64, 56, 56], |x| x.avg_pool2d(2)),
    },
    Row { name: "batch_norm", work: NORM, make: |on| layer(on, &[32, 64, 56, 56], BatchNorm2d::new(64)?) },
    Row { name: "group_norm", work: NORM, make: |on| layer(on, &[32, 64, 56, 56], GroupNorm::new(32, 64)?) },
    Row {
        name: "lstm",
        work: flops(64, 256 + 256, 4 * 256, 128, 1),
        make: |on| layer(on, &[128, 64, 256], LSTM::new(256, 256)?),
    },
];

fn leaf(on: Device, shape: &[usize], seed: u64) -> Result<Tensor> {
    Generator::seed(seed).randn(shape)?.to_device(on)?.requires_grad_(true)
}

/// The step that computes the sum of a function of two tensors, and both gradients.
fn both(on: Device, shapes: [&[usize]; 2], f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'static) -> Result<Step> {
    let (x, w) = (leaf(on, shapes[0], 1)?, leaf(on, shapes[1], 2)?);
    Ok(Box::new(move || {
        x.zero_grad();
        w.zero_grad();
        f(&x, &w)?.sum(..)?.backward()
    }))
}

fn one(on: Device, shape: &[usize], f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Result<Step> {
    let x = leaf(on, shape, 1)?;
    Ok(Box::new(move || {
        x.zero_grad();
        f(&x)?.sum(..)?.backward()
    }))
}

/// The step that computes the sum of a layer's output, and the gradients of its input and parameters.
fn layer(on: Device, shape: &[usize], mut layer: impl Module + Forward + 'static) -> Result<Step> {
    layer.to_device(on)?;
    let x = leaf(on, shape, 1)?;
    Ok(Box::new(move || {
        x.zero_grad();
        layer.zero_grad();
        layer.forward(&x)?.sum(..)?.backward()
    }))
}
