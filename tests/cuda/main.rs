//! Tensors on a GPU. Without a GPU every test prints so and passes.
#![cfg(feature = "cuda")]

#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;

mod graph;
mod kernels;
mod large;
mod linalg;
mod loader;
mod networks;
mod order;
mod streams;
mod text;
mod trainer;
mod training;

use cotangent::{DType, Device, Generator, Result, Tensor, arguments::Slice, memory, options::LayerNormOptions};

const GPU: Device = Device::cuda(0);

/// Prints a message and returns false if there is no GPU.
fn gpu() -> bool {
    checks::gpu().is_some()
}

/// Held by tests of the GPU's memory statistics, or of errors that are reported at synchronisation.
fn alone() -> std::sync::RwLockWriteGuard<'static, ()> {
    ORDER.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Held by all other tests.
fn beside_others() -> std::sync::RwLockReadGuard<'static, ()> {
    ORDER.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

static ORDER: std::sync::RwLock<()> = std::sync::RwLock::new(());

fn random(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    Generator::seed(seed).randn_with(shape, DType::F32)?.to_dtype(dtype)
}

/// Whether a tensor of the GPU has the values of one of the CPU, within some units of the last place.
fn close(gpu: &Tensor, cpu: &Tensor, tolerance: f64) -> Result<bool> {
    assert_eq!((gpu.device(), gpu.shape(), gpu.dtype()), (GPU, cpu.shape(), cpu.dtype()));
    gpu.to_device(Device::Cpu)?.allclose_with(cpu, (tolerance, tolerance))
}

#[test]
fn values_go_there_and_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::U8, DType::Bool] {
        for shape in [&[][..], &[0], &[3], &[17, 5], &[1000, 1000]] {
            let x = random(shape, 1, dtype)?;
            let there = x.to_device(GPU)?;
            assert_eq!(there.device(), GPU);
            assert!(there.to_device(Device::Cpu)?.equal(&x)?, "{dtype} {shape:?}");
        }
    }
    let x = random(&[4, 6], 1, DType::F32)?;
    assert!(x.t()?.to_device(GPU)?.to_device(Device::Cpu)?.equal(&x.t()?.contiguous()?)?);
    assert_eq!(format!("{}", x.to_device(GPU)?), format!("{x}"));
    assert_eq!(x.to_device(GPU)?.at(&[2, -1])?, x.at(&[2, -1])?);
    Ok(())
}

type Formula = (&'static str, f64, fn(&Tensor, &Tensor) -> Result<Tensor>);

const FORMULAS: [Formula; 12] = [
    ("add", 0.0, |a, b| a.add(b)),
    ("chain", 1e-6, |a, b| a.mul(b)?.add(a)?.tanh()?.mul(b)),
    ("numbers", 1e-6, |a, _| a.mul(3.0)?.add(0.25)?.div(7.0)),
    ("functions", 1e-6, |a, b| a.exp()?.add(b.sigmoid()?)?.add(a.erf()?)?.sub(b.sin()?)),
    ("compare", 0.0, |a, b| a.gt(b)?.where_(a, b)),
    ("maximum", 0.0, |a, b| a.maximum(b)?.minimum(0.5)),
    ("pow", 1e-5, |a, b| a.abs()?.add(0.5)?.pow(b)),
    ("gelu", 1e-6, |a, _| a.gelu_with(cotangent::options::Gelu::Tanh)),
    ("a row", 0.0, |a, b| a.add(&b.select(0, 0)?)),
    ("a column", 0.0, |a, b| a.mul(&b.narrow(1, 1, 1)?)),
    ("transposed", 0.0, |a, b| a.t()?.sub(b.t()?)?.t()),
    ("stepped", 0.0, |a, b| a.slice(1, Slice::from(..).step(-2))?.add(b.slice(1, Slice::from(1..).step(2))?)),
];

#[test]
fn elementwise_chains_give_the_processors_values() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        // Even widths, so that "stepped" has two halves.
        for shape in [[3, 8], [129, 64], [1000, 1002]] {
            let (a, b) = (random(&shape, 1, dtype)?, random(&shape, 2, dtype)?);
            let (there_a, there_b) = (a.to_device(GPU)?, b.to_device(GPU)?);
            for (name, tolerance, formula) in FORMULAS {
                let tolerance: f64 = match dtype {
                    DType::F64 => tolerance * 1e-6,
                    DType::F32 => tolerance,
                    DType::F16 => f64::max(tolerance, 2e-3),
                    _ => f64::max(tolerance, 1.6e-2),
                };
                let (got, want) = (formula(&there_a, &there_b)?, formula(&a, &b)?);
                assert!(close(&got, &want, tolerance)?, "{name} of {shape:?} in {dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn memory_is_counted_and_comes_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let before = memory::stats(GPU)?.current();
    let x = Tensor::ones([1 << 20])?.to_device(GPU)?;
    assert_eq!(memory::stats(GPU)?.current(), before + (4 << 20));
    drop(x);
    assert_eq!(memory::stats(GPU)?.current(), before);
    Ok(())
}

#[test]
fn an_exhausted_gpu_is_an_error_and_the_next_smaller_request_succeeds() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let Some(all) = GPU.properties()?.memory else { return Ok(()) };
    // More than the GPU has.
    let refused = Tensor::ones_with([all], GPU).and_then(|x| x.compute()).map_err(|e| e.to_string());
    let message = refused.err().unwrap_or_default();
    for part in ["compute: out of memory", &(all * 4).to_string(), "held", "cached", "free"] {
        assert!(message.contains(part), "{message} does not say {part}");
    }
    assert_eq!(Tensor::ones_with([1000], GPU)?.sum(..)?.item::<f32>()?, 1000.0);
    // More than the limit, in the middle of a chain: the operands are unchanged.
    let held = memory::stats(GPU)?.held();
    memory::set_limit(GPU, Some(held + (64 << 20)))?;
    let x = Tensor::ones_with([12 << 20], GPU)?;
    x.compute()?;
    let y = x.add(1.0)?.mul(&x)?;
    let refused = y.compute().is_err();
    memory::set_limit(GPU, None)?;
    assert!(refused, "48 MiB after 48 MiB are more than 64");
    assert_eq!(y.sum(..)?.item::<f32>()?, (24 << 20) as f32, "what was deferred can still be computed");
    Ok(())
}

#[test]
fn tensors_of_two_devices_do_not_mix() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let (here, there) = (Tensor::ones([2, 2])?, Tensor::ones_with([2, 2], GPU)?);
    let calls: [(&str, Result<Tensor>); 5] = [
        ("add", here.add(&there)),
        ("matmul", there.matmul(&here)),
        ("cat", Tensor::cat(&[&here, &there], 0)),
        ("gather", there.gather(0, &Tensor::zeros_with([1, 2], DType::I64)?)),
        ("layer_norm", there.layer_norm_with([2], LayerNormOptions::new().weight(&Tensor::ones([2])?))),
    ];
    for (name, result) in calls {
        let message = result.map(|_| ()).map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(message.contains(name) && message.contains("cuda:0") && message.contains("cpu"), "{name}: {message}");
    }
    Ok(())
}

#[test]
fn a_wrong_index_is_reported_and_work_goes_on() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let x = random(&[5, 3], 1, DType::F32)?.to_device(GPU)?;
    for wrong in [-1_i64, 5, i64::MAX] {
        let index = Tensor::from_vec(vec![0, wrong], [2])?.to_device(GPU)?;
        let chosen = x.index_select(0, &index)?;
        let message = chosen.to_vec::<f32>().map(|_| ()).map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(
            message.contains("index_select") && message.contains(&wrong.to_string()) && message.contains('5'),
            "{message}"
        );
        assert_eq!(x.index_select(0, &Tensor::from_vec(vec![4_i64], [1])?.to_device(GPU)?)?.to_vec::<f32>()?.len(), 3);
    }
    let target = Tensor::from_vec(vec![0_i64, 3], [2])?.to_device(GPU)?;
    let loss = x.narrow(0, 0, 2)?.cross_entropy(&target)?;
    assert!(loss.item::<f32>().is_err_and(|e| e.to_string().contains("cross_entropy")));
    Ok(())
}

#[test]
fn a_missing_gpu_is_an_error_that_names_it() {
    for (device, op) in [(Device::cuda(15), "zeros"), (Device::cuda(usize::MAX), "ones")] {
        let refused = Tensor::ones([2]).and_then(|x| x.to_device(device)).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("to_device") && e.contains("cuda:")), "{op}");
    }
}

#[test]
fn pinned_memory_is_copied_from_while_the_program_goes_on() -> Result<()> {
    if !gpu() {
        let refused = Tensor::ones([2])?.pin_memory().map(|_| ()).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("pin_memory") && e.contains("cuda:0")));
        return Ok(());
    }
    let _others = beside_others();
    let mut there = Vec::new();
    let mut pinned = Tensor::zeros([1 << 20])?.pin_memory()?;
    for round in 0..50 {
        // Changed as soon as the copy is submitted.
        pinned.fill_(f64::from(round))?;
        there.push(pinned.to_device(GPU)?);
        if round % 3 == 0 {
            pinned = Tensor::zeros([1 << 20])?.pin_memory()?;
        }
    }
    for (round, x) in there.iter().enumerate() {
        let (low, high) = (x.min(..)?.item::<f32>()?, x.max(..)?.item::<f32>()?);
        assert!(low == round as f32 && high == low, "round {round}: {low} to {high}");
    }
    Ok(())
}
