//! Work on several streams gives the same results as on one.

use super::{GPU, alone, beside_others, gpu, random};
use crate::checks::both;
use cotangent::{CudaGraph, DType, Device, Result, Stream, Tensor, memory};
use std::time::Instant;

/// A result that takes the GPU a while: everything is 1.
fn slow(seed: f64) -> Result<Tensor> {
    let n = 4096;
    let mut x = Tensor::full_with([n, n], seed / n as f64, (DType::F32, GPU))?;
    let ones = Tensor::full_with([n, n], 1.0 / n as f64, (DType::F32, GPU))?;
    for _ in 0..10 {
        x = x.matmul(&ones)?;
    }
    x.mul(n as f64 / seed)
}

#[test]
fn a_stream_waits_for_what_another_writes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let second = Stream::new(GPU)?;
    for round in 1..20 {
        // Written by the first, read by the second; then the other way round.
        let x = slow(f64::from(round))?;
        x.compute()?;
        let y = second.run(|| x.narrow(0, 4000, 96)?.add(1)?.contiguous())?;
        let there = second.run(|| y.to_vec::<f32>())?;
        assert!(there.iter().all(|v| (v - 2.0).abs() < 1e-3), "{round}: {:?}", &there[..4]);
        let z = second.run(|| slow(f64::from(round)).and_then(|z| z.compute().map(|()| z)))?;
        let here = z.narrow(0, 4000, 96)?.add(1)?.to_vec::<f32>()?;
        assert!(here.iter().all(|v| (v - 2.0).abs() < 1e-3), "{round}: {:?}", &here[..4]);
    }
    Ok(())
}

#[test]
fn memory_is_not_used_again_while_another_stream_reads_it() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let second = Stream::new(GPU)?;
    let n = 1 << 24;
    for round in 0..20 {
        let x = Tensor::full_with([n], round, (DType::F32, GPU))?;
        x.compute()?;
        // The second stream is kept busy first, so that it reads after the first has let go of the memory.
        let copy = second.run(|| -> Result<Tensor> {
            slow(1.0)?.compute()?;
            x.detach().add(0)?.deep_clone()
        })?;
        drop(x);
        let other = Tensor::full_with([n], -1.0, (DType::F32, GPU))?;
        other.compute()?;
        let values = copy.to_vec::<f32>()?;
        assert!(values.iter().all(|v| *v == round as f32), "{round}: {:?}", &values[..4]);
        // In place: a write waits for the readers.
        let mut x = Tensor::full_with([n], round, (DType::F32, GPU))?;
        let view = second.run(|| -> Result<Tensor> {
            slow(1.0)?.compute()?;
            let copy = x.detach().mul(1.0)?;
            copy.compute()?;
            Ok(copy)
        })?;
        x.fill_(-1.0)?;
        assert!(view.to_vec::<f32>()?.iter().all(|v| *v == round as f32), "{round}");
    }
    Ok(())
}

#[test]
fn threads_and_streams_train_the_same_numbers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let train = |seed: u64| -> Result<Vec<f32>> {
        let (x, w) =
            (random(&[64, 32], seed, DType::F32)?.to_device(GPU)?, random(&[32, 8], 5, DType::F32)?.to_device(GPU)?);
        let mut w = w.requires_grad_(true)?;
        for _ in 0..20 {
            let loss = x.matmul(&w)?.tanh()?.square()?.mean(..)?;
            loss.backward()?;
            let grad = w.take_grad().map_or_else(|| w.detach().zeros_like(), Ok)?;
            w = w.detach().sub(grad.mul(0.1)?)?.requires_grad_(true)?;
        }
        w.detach().to_vec::<f32>()
    };
    let expected: Vec<Vec<f32>> = (0..4).map(train).collect::<Result<_>>()?;
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| scope.spawn(move || Stream::new(GPU).and_then(|stream| stream.run(|| train(seed)))))
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for (found, expected) in both(found, expected) {
        assert!(matches!(found, Ok(Ok(values)) if values == expected));
    }
    Ok(())
}

#[test]
fn a_replay_is_in_order_with_other_streams() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let second = Stream::new(GPU)?;
    let x = Tensor::ones_with([1 << 20], (DType::F32, GPU))?;
    let (mut graph, _) = CudaGraph::record(&[&x], |x| Ok(vec![x[0].add(1)?]))?;
    for round in 0..10 {
        let input = second.run(|| slow(1.0)?.narrow(0, 0, 256)?.contiguous()?.reshape([1 << 20])?.mul(round))?;
        let result = graph.replay(&[&input])?;
        let seen = second.run(|| result[0].mul(2)?.to_vec::<f32>())?;
        assert!(seen.iter().all(|v| (v - 2.0 * (round as f32 + 1.0)).abs() < 0.05), "{round}: {:?}", &seen[..4]);
    }
    Ok(())
}

#[test]
fn streams_are_counted_and_given_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let all: Vec<Stream> = (0..15).map(|_| Stream::new(GPU)).collect::<Result<_>>()?;
    let refused = Stream::new(GPU).map_err(|error| error.to_string());
    assert!(matches!(&refused, Err(text) if text.contains("15 streams of cuda:0 are in use")), "{refused:?}");
    drop(all);
    for _ in 0..100 {
        let stream = Stream::new(GPU)?;
        stream.run(|| Tensor::ones_with([1 << 20], (DType::F32, GPU))?.add(1)?.compute())?;
    }
    GPU.synchronize()?;
    memory::empty_cache(GPU)?;
    let stats = memory::stats(GPU)?;
    assert!(stats.held() < 1 << 30, "{stats}");
    let refused = Stream::new(Device::Cpu).map_err(|error| error.to_string());
    assert_eq!(refused.map(|_| ()), Err("Stream::new: device must be a GPU, got cpu".to_string()));
    Ok(())
}

/// Prints the cost of a copy that overlaps with computation. It is not checked.
#[test]
fn a_copy_runs_beside_computation() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let copies = Stream::new(GPU)?;
    let batch = Tensor::ones([1 << 27])?.pin_memory()?;
    let timed = |f: &dyn Fn() -> Result<()>| -> Result<f64> {
        f()?;
        GPU.synchronize()?;
        let start = Instant::now();
        f()?;
        GPU.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let copy = timed(&|| copies.run(|| batch.to_device(GPU)).map(drop))?;
    let compute = timed(&|| slow(1.0)?.compute())?;
    let both = timed(&|| {
        let there = copies.run(|| batch.to_device(GPU))?;
        slow(1.0)?.compute()?;
        drop(there);
        Ok(())
    })?;
    println!("copy {copy:.2} ms, compute {compute:.2} ms, both on two streams {both:.2} ms");
    assert!(both < 0.9 * (copy + compute), "copy {copy:.2} ms, compute {compute:.2} ms, both {both:.2} ms");
    Ok(())
}
