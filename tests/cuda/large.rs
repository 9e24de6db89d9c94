//! Tensors of more elements than 32 bits count.

use super::{GPU, alone, close, gpu, random};
use cotangent::autograd::grad_with;
use cotangent::{DType, Result, Tensor, keepdim, memory};

/// More than 2^31 elements.
const ZEROS: usize = 1 << 31;
/// Elements before and after them.
const START: usize = 16;
const END: usize = 1008;
/// Where those after them begin, and how many there are in all.
const AFTER: usize = START + ZEROS;
const ALL: usize = AFTER + END;

/// Prints a message and returns false if the GPU is too small.
fn roomy() -> Result<bool> {
    if !gpu() {
        return Ok(false);
    }
    memory::empty_cache(GPU)?;
    let needed = 40 << 30;
    let enough = GPU.properties()?.memory.is_some_and(|bytes| bytes > needed);
    if !enough {
        eprintln!("skipped: the GPU has not {} GiB", needed >> 30);
    }
    Ok(enough)
}

/// Numbers at both ends, the end on the CPU, too, and zeros between them.
fn long_row() -> Result<(Tensor, Tensor, Tensor)> {
    let (start, end) = (random(&[START], 1, DType::BF16)?, random(&[END], 2, DType::BF16)?.add(4.0)?);
    let zeros = Tensor::zeros_with([ZEROS], (DType::BF16, GPU))?;
    let x = Tensor::cat(&[&start.to_device(GPU)?, &zeros, &end.to_device(GPU)?], 0)?;
    Ok((x, start, end))
}

fn end_of(x: &Tensor) -> Result<Tensor> {
    x.narrow(0, AFTER as isize, END)
}

#[test]
fn elementwise_and_folds_count_in_64_bits() -> Result<()> {
    if !roomy()? {
        return Ok(());
    }
    let _alone = alone();
    let (x, start, end) = long_row()?;
    assert!(close(&end_of(&x)?, &end, 0.0)?, "cat");
    let chain = x.mul(2.0)?.add(1.0)?;
    chain.compute()?;
    assert!(close(&end_of(&chain)?, &end.mul(2.0)?.add(1.0)?, 0.0)?, "a chain");
    drop(chain);
    // In strided columns: neither the elements nor the strides fit into 31 bits.
    let transposed = x.reshape([4, -1])?.t()?.contiguous()?;
    assert!(close(&transposed.reshape([-1])?.narrow(0, -1, 1)?, &end.narrow(0, -1, 1)?, 0.0)?, "transposed");
    drop(transposed);
    let sum = start.to_dtype(DType::F32)?.sum(..)?.add(end.to_dtype(DType::F32)?.sum(..)?)?;
    assert!(close(&x.sum(..)?, &sum.to_dtype(DType::BF16)?, 1e-2)?, "sum");
    assert!(close(&x.max(0)?, &start.max(0)?.maximum(end.max(0)?)?, 0.0)?, "max");
    assert_eq!(x.argmax(..)?.item::<i64>()?, end.argmax(..)?.item::<i64>()? + AFTER as i64, "argmax");
    Ok(())
}

#[test]
fn places_beyond_32_bits_are_read_and_added_to() -> Result<()> {
    if !roomy()? {
        return Ok(());
    }
    let _alone = alone();
    let (x, start, end) = long_row()?;
    let places = Tensor::from_vec([ALL - 1, 3, AFTER].map(|at| at as i64).to_vec(), [3])?.to_device(GPU)?;
    let want = Tensor::cat(&[&end.narrow(0, -1, 1)?, &start.narrow(0, 3, 1)?, &end.narrow(0, 0, 1)?], 0)?;
    let given = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0], [3])?.to_dtype(DType::BF16)?;
    let x = x.requires_grad_(true)?;
    for (name, chosen) in [("index_select", x.index_select(0, &places)?), ("gather", x.gather(0, &places)?)] {
        assert!(close(&chosen.detach(), &want, 0.0)?, "{name}");
        let slopes = grad_with(&chosen, &[&x], &given.to_device(GPU)?)?;
        let Some(Some(slope)) = slopes.first() else { panic!("{name} has no gradient") };
        assert!(close(&slope.index_select(0, &places)?, &given, 0.0)?, "gradient of {name}");
        assert!(close(&slope.sum(..)?, &given.sum(..)?, 0.0)?, "gradient of {name}");
    }
    Ok(())
}

#[test]
fn rows_beyond_32_bits_are_normalised() -> Result<()> {
    if !roomy()? {
        return Ok(());
    }
    let _alone = alone();
    const ROWS: usize = (1 << 21) + 1;
    let end = random(&[1, 1024], 2, DType::BF16)?;
    let x = Tensor::cat(&[&Tensor::zeros_with([ROWS - 1, 1024], (DType::BF16, GPU))?, &end.to_device(GPU)?], 0)?;
    let calls: [(&str, fn(&Tensor) -> Result<Tensor>); 4] = [
        ("softmax", |x| x.softmax(1)),
        ("log_softmax", |x| x.log_softmax(1)),
        ("layer_norm", |x| x.layer_norm([1024])),
        ("logsumexp", |x| x.logsumexp(keepdim(1))),
    ];
    for (name, call) in calls {
        assert!(close(&call(&x)?.narrow(0, -1, 1)?, &call(&end)?, 1.6e-2)?, "{name}");
    }
    Ok(())
}
