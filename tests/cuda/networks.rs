//! Convolutions, pools and norms of channels, at sizes and in layouts that the samples do not have.

use super::{GPU, alone, beside_others, gpu, random};
use crate::checks::both;
use cotangent::autograd;
use cotangent::nn::{BatchNorm2d, Conv2d, Forward, Module, Sequential};
use cotangent::{
    CudaGraph, DType, Device, Result, Tensor,
    options::{AvgPoolOptions, BatchNormOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions, RecurrentOptions},
    settings::{MatmulPrecision, with_matmul_precision},
};

/// The dtypes, and the tolerances relative to the norm of the f64 results.
const FLOATS: [(DType, f64); 4] = [(DType::F64, 1e-12), (DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 1.5e-2)];

/// The distance of what a GPU has computed from what the CPU has in f64, as a part of the latter.
fn distance(gpu: &Tensor, cpu: &Tensor) -> Result<f64> {
    assert_eq!((gpu.device(), gpu.shape()), (GPU, cpu.shape()));
    let gpu = gpu.to_device(Device::Cpu)?.to_dtype(DType::F64)?;
    let norm = |x: &Tensor| -> Result<f64> { Ok(x.square()?.sum(..)?.item::<f64>()?.sqrt()) };
    Ok(norm(&gpu.sub(cpu)?)? / norm(cpu)?.max(1e-300))
}

/// Numbers that are exact in every dtype.
fn exact(shape: &[usize], seed: u64) -> Result<Tensor> {
    random(shape, seed, DType::BF16)?.to_dtype(DType::F64)
}

/// The same numbers on the GPU, with the channels last.
fn channels_last(x: &Tensor) -> Result<Tensor> {
    x.movedim(1, -1)?.contiguous()?.movedim(-1, 1)
}

/// The gradients of a number by all of these tensors.
fn grad(y: &Tensor, by: &[&Tensor]) -> Result<Vec<Tensor>> {
    let all: Vec<Tensor> = autograd::grad(y, by)?.into_iter().flatten().collect();
    assert_eq!(all.len(), by.len(), "all are used");
    Ok(all)
}

/// Compares a function of these tensors, and its gradients, with the CPU's.
fn check(what: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let here = inputs.iter().map(|x| x.detach().requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    let y = f(&here)?;
    let g = exact(y.shape(), 99)?;
    let wanted = grad(&y.mul(&g)?.sum(..)?, &here.iter().collect::<Vec<_>>())?;
    for (dtype, tolerance) in FLOATS {
        for last in [false, true] {
            let there = |x: &Tensor| -> Result<Tensor> {
                let x = x.detach().to_dtype(dtype)?.to_device(GPU)?;
                if last && x.rank() > 2 { channels_last(&x) } else { Ok(x) }
            };
            let leaves = inputs.iter().map(|x| there(x)?.requires_grad_(true)).collect::<Result<Vec<_>>>()?;
            let result = f(&leaves)?;
            assert_eq!(result.dtype(), dtype);
            let apart = distance(&result, &y)?;
            assert!(apart < tolerance, "{what} in {dtype}, channels last: {last}: {apart:.2e}");
            let found = grad(&result.mul(&there(&g)?)?.sum(..)?, &leaves.iter().collect::<Vec<_>>())?;
            for (at, (found, wanted)) in both(found.iter(), &wanted).enumerate() {
                let apart = distance(found, wanted)?;
                assert!(
                    apart < 4.0 * tolerance,
                    "{what} in {dtype}, channels last: {last}, gradient {at}: {apart:.2e}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn convolutions_of_all_kinds() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    // Input, weight, stride, padding, dilation, groups.
    let all: [(&[usize], &[usize], isize, isize, isize, usize); 11] = [
        (&[4, 16, 17, 13], &[32, 16, 3, 3], 1, 1, 1, 1),
        (&[4, 16, 17, 13], &[24, 16, 3, 3], 2, 1, 1, 1),
        (&[3, 3, 33, 33], &[16, 3, 7, 7], 2, 3, 1, 1),
        (&[4, 64, 9, 9], &[128, 64, 1, 1], 1, 0, 1, 1),
        (&[4, 64, 9, 9], &[128, 64, 1, 1], 2, 0, 1, 1),
        (&[2, 32, 12, 12], &[32, 1, 3, 3], 1, 1, 1, 32),
        (&[2, 32, 12, 12], &[64, 8, 3, 3], 1, 2, 2, 4),
        (&[2, 5, 11, 7], &[7, 5, 3, 2], 1, 0, 1, 1),
        (&[3, 16, 100], &[32, 16, 5], 2, 2, 1, 1),
        (&[2, 8, 6, 7, 8], &[16, 8, 3, 3, 3], 1, 1, 1, 1),
        (&[2, 8, 9, 7, 8], &[16, 4, 2, 3, 3], 2, 1, 2, 2),
    ];
    for (x, w, stride, padding, dilation, groups) in all {
        let rank = x.len() - 2;
        let inputs = [exact(x, 1)?, exact(w, 2)?, exact(&[w[0]], 3)?];
        check(&format!("convolution of {x:?} by {w:?}"), &inputs, |t| {
            let options =
                ConvOptions::new().bias(&t[2]).stride(stride).padding(padding).dilation(dilation).groups(groups);
            match rank {
                1 => t[0].conv1d_with(&t[1], options),
                2 => t[0].conv2d_with(&t[1], options),
                _ => t[0].conv3d_with(&t[1], options),
            }
        })?;
        let inputs = [exact(&[&[x[0], w[0]], &x[2..]].concat(), 1)?, exact(w, 2)?, exact(&[w[1] * groups], 3)?];
        let output_padding = isize::from(stride > 1);
        check(&format!("transposed convolution of {x:?} by {w:?}"), &inputs, |t| {
            let options = ConvTransposeOptions::new().bias(&t[2]).stride(stride).padding(padding).dilation(dilation);
            let options = options.groups(groups).output_padding(output_padding);
            match rank {
                1 => t[0].conv_transpose1d_with(&t[1], options),
                2 => t[0].conv_transpose2d_with(&t[1], options),
                _ => t[0].conv_transpose3d_with(&t[1], options),
            }
        })?;
    }
    Ok(())
}

#[test]
fn tf32_is_used_where_it_is_allowed_and_only_there() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let (x, w) = (random(&[8, 64, 28, 28], 1, DType::F32)?, random(&[64, 64, 3, 3], 2, DType::F32)?);
    let conv = |x: &Tensor, w: &Tensor| x.conv2d_with(w, ConvOptions::new().padding(1));
    let exact = conv(&x.to_dtype(DType::F64)?, &w.to_dtype(DType::F64)?)?;
    let (x, w) = (x.to_device(GPU)?, w.to_device(GPU)?);
    let full = distance(&conv(&x, &w)?, &exact)?;
    assert!(full < 1e-6, "{full:.1e}");
    let rounded = distance(&with_matmul_precision(MatmulPrecision::Tf32, || conv(&x, &w))?, &exact)?;
    assert!(rounded < 2e-3, "{rounded:.1e}");
    Ok(())
}

#[test]
fn pools_in_every_order() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for shape in [&[3, 16, 15, 14][..], &[2, 5, 9, 8], &[2, 8, 7, 6, 9], &[3, 8, 31]] {
        let x = [exact(shape, 1)?];
        let max = || MaxPoolOptions::new().stride(2).padding(1);
        check(&format!("max_pool of {shape:?}"), &x, |t| match shape.len() {
            3 => t[0].max_pool1d_with(3, max()),
            4 => t[0].max_pool2d_with(3, max()),
            _ => t[0].max_pool3d_with(3, max()),
        })?;
        let average = || AvgPoolOptions::new().stride(2).padding(1);
        check(&format!("avg_pool of {shape:?}"), &x, |t| match shape.len() {
            3 => t[0].avg_pool1d_with(3, average()),
            4 => t[0].avg_pool2d_with(3, average()),
            _ => t[0].avg_pool3d_with(3, average()),
        })?;
        if shape.len() == 4 {
            check(&format!("adaptive_avg_pool of {shape:?}"), &x, |t| t[0].adaptive_avg_pool2d(1))?;
            let there = channels_last(&x[0].to_device(GPU)?)?;
            let (values, at) = there.max_pool2d_with_indices(2)?;
            let (wanted, places) = x[0].max_pool2d_with_indices(2)?;
            assert!(values.to_device(Device::Cpu)?.equal(&wanted)? && at.to_device(Device::Cpu)?.equal(&places)?);
        }
    }
    Ok(())
}

#[test]
fn norms_of_channels_in_every_order() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for shape in [&[7, 16, 13, 11][..], &[300, 24], &[5, 3, 257], &[2, 8, 5, 6, 7], &[64, 130, 9, 9]] {
        let c = shape[1];
        let inputs = [exact(shape, 1)?, exact(&[c], 2)?, exact(&[c], 3)?];
        check(&format!("batch_norm of {shape:?}"), &inputs, |t| {
            t[0].batch_norm_with(BatchNormOptions::new().training(true).weight(&t[1]).bias(&t[2]))
        })?;
        check(&format!("plain batch_norm of {shape:?}"), &inputs[..1], |t| {
            t[0].batch_norm_with(BatchNormOptions::new().training(true))
        })?;
        if shape.len() > 2 {
            check(&format!("instance_norm of {shape:?}"), &inputs[..1], |t| t[0].instance_norm())?;
            check(&format!("group_norm of {shape:?}"), &inputs[..1], |t| t[0].group_norm(1))?;
        }
    }
    // Far from 0 a variance from the mean of squares would cancel.
    let x = random(&[64, 8, 30, 30], 1, DType::F32)?.add(4096.0)?;
    let y = |x: &Tensor| x.batch_norm_with(BatchNormOptions::new().training(true));
    let apart = distance(&y(&x.to_device(GPU)?)?, &y(&x.to_dtype(DType::F64)?)?)?;
    assert!(apart < 2e-3, "{apart:.1e}");
    Ok(())
}

/// Small states have the product in the kernel of a step, large ones not.
#[test]
fn lstms_of_all_sizes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (steps, batch, size, bidirectional) in
        [(5, 37, 70, true), (1, 1, 3, false), (9, 64, 64, false), (3, 33, 129, true), (2, 40, 460, false)]
    {
        let runs = 1 + usize::from(bidirectional);
        let mut inputs =
            vec![exact(&[steps, batch, 6], 1)?, exact(&[runs, batch, size], 2)?, exact(&[runs, batch, size], 3)?];
        for run in 0..runs as u64 {
            for shape in [&[4 * size, 6][..], &[4 * size, size], &[4 * size], &[4 * size]] {
                inputs.push(exact(shape, 10 * run + inputs.len() as u64)?.mul(0.125)?);
            }
        }
        check(&format!("an lstm of {size} on {steps} steps of {batch}"), &inputs, |t| {
            let options = RecurrentOptions::new().bidirectional(bidirectional);
            let (output, hidden, cell) = t[0].lstm_with(&t[1..3], &t[3..], options)?;
            let flat = [&output, &hidden, &cell].map(|x| x.reshape([x.numel()]));
            let [output, hidden, cell] = flat;
            Tensor::cat(&[&output?, &hidden?, &cell?], 0)
        })?;
    }
    Ok(())
}

fn network(dtype: DType) -> Result<Sequential> {
    let mut model = Sequential::new();
    model.push(Conv2d::new(3, 16, 3)?);
    model.push(BatchNorm2d::new(16)?);
    model.push(Conv2d::new(16, 8, 3)?);
    model.to_dtype(dtype)?;
    model.to_device(GPU)?;
    Ok(model)
}

#[test]
fn a_network_gives_the_same_bits_every_time() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::BF16] {
        let model = network(dtype)?;
        let x = random(&[32, 3, 40, 40], 1, dtype)?.to_device(GPU)?.requires_grad_(true)?;
        let run = || -> Result<Vec<Tensor>> {
            let y = model.forward(&x)?.relu()?;
            let parameters: Vec<Tensor> = model.named_parameters().iter().map(|(_, p)| (**p).clone()).collect();
            let all: Vec<&Tensor> = std::iter::once(&x).chain(&parameters).collect();
            let mut found = grad(&y.square()?.sum(..)?, &all)?;
            found.push(y);
            Ok(found)
        };
        let first = run()?;
        for _ in 0..3 {
            for (a, b) in both(run()?.iter(), &first) {
                assert!(a.equal(b)?, "{dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn convolutions_are_recorded_and_replayed() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    for dtype in [DType::F32, DType::BF16] {
        let w = random(&[16, 8, 3, 3], 2, dtype)?.to_device(GPU)?;
        let step = |x: &Tensor| x.conv2d_with(&w, ConvOptions::new().padding(1))?.relu();
        let x = random(&[4, 8, 12, 12], 1, dtype)?.to_device(GPU)?;
        let (mut graph, first) = CudaGraph::record(&[&x], |inputs| Ok(vec![step(&inputs[0])?]))?;
        assert!(first[0].equal(&step(&x)?)?, "{dtype}");
        let other = random(&[4, 8, 12, 12], 5, dtype)?.to_device(GPU)?;
        let replayed = graph.replay(&[&other])?;
        assert!(replayed[0].equal(&step(&other)?)?, "{dtype}");
    }
    Ok(())
}
