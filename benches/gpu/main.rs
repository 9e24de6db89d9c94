//! Times a fixed set of workloads on a GPU, and prints a line of JSON for each.
//!
//! `cargo bench --features cuda --bench gpu -- [names]`. `benches/gpu/torch_gpu.py` runs the same workloads in PyTorch.

#[path = "../workloads/breadth.rs"]
mod breadth;
mod gpt2;
#[path = "../workloads/networks.rs"]
mod networks;
mod text;
mod vision;

use cotangent::autograd::no_grad;
use cotangent::nn::{Forward, LayerNorm, Linear, Module};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{
    CudaGraph, DType, Device, Generator, Result, Tensor, memory,
    options::AttentionOptions,
    settings::{MatmulPrecision, with_matmul_precision},
};
use std::process::ExitCode;
use std::time::Instant;

const GPU: Device = Device::cuda(0);

const WORKLOADS: &[(&str, fn() -> Result<()>)] = &[
    ("copy_bw", copy_bandwidth),
    ("matmul", matmul),
    ("overhead", overhead),
    ("mlp_small", mlp_small),
    ("elementwise", elementwise),
    ("xent", cross_entropy),
    ("layernorm", layer_norm),
    ("attention", attention),
    ("gpt2", gpt2::train),
    ("llama", text::llama),
    ("resnet50", vision::resnet50),
    ("resnet18", vision::resnet18),
    ("lstm", vision::lstm),
    ("vision", vision::norms_and_pools),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    if !GPU.is_available() {
        println!("skipped: there is no GPU");
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    let mut run = |name: &str, workload: &dyn Fn() -> Result<()>| {
        let group = |rows: &[breadth::Row]| rows.iter().any(|row| row.name == name);
        let named = |wanted: &String| match wanted.as_str() {
            "breadth" => group(breadth::ROWS),
            "networks" => group(networks::ROWS),
            other => other == name,
        };
        if wanted.is_empty() || wanted.iter().any(named) {
            if let Err(error) = workload() {
                println!("{{\"workload\": \"{name}\", \"error\": {:?}}}", error.to_string());
                code = ExitCode::FAILURE;
            }
            let _ = memory::empty_cache(GPU);
        }
    };
    WORKLOADS.iter().for_each(|(name, workload)| run(name, workload));
    breadth::ROWS.iter().for_each(|row| run(row.name, &|| one_operation(row)));
    // PyTorch allows TF32 in convolutions by default.
    let tf32 = |row| with_matmul_precision(MatmulPrecision::Tf32, || one_operation(row));
    networks::ROWS.iter().for_each(|row| run(row.name, &|| tf32(row)));
    // Only on request: it prints tables.
    if wanted.iter().any(|name| name == "llama_profile") {
        run("llama_profile", &text::llama_profile);
    }
    code
}

fn one_operation(row: &breadth::Row) -> Result<()> {
    let ms = milliseconds(20, (row.make)(GPU)?)?;
    let (unit, rate) = match row.work {
        breadth::Work::Bytes(bytes) => ("GBps", bytes / ms / 1e6),
        breadth::Work::Flops(flops) => ("GFLOPs", flops / ms / 1e6),
    };
    report(row.name, &[("ms", ms), (unit, rate)]);
    Ok(())
}

/// The median milliseconds of `times` calls, including the GPU's work, after a second of warm-up: an idle processor
/// takes that long to reach its full speed.
fn milliseconds(times: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    let mut calls = 0;
    while calls < 5 || begin.elapsed().as_secs_f64() < 1.0 {
        call()?;
        GPU.synchronize()?;
        calls += 1;
    }
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        call()?;
        GPU.synchronize()?;
        all.push(start.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[times / 2])
}

fn report(workload: &str, figures: &[(&str, f64)]) {
    let figures: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\": {value:.5}")).collect();
    println!("{{\"workload\": \"{workload}\", {}}}", figures.join(", "));
}

fn normal(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    let x = Generator::seed(seed).randn_with(shape, (dtype, GPU))?;
    x.compute()?;
    Ok(x)
}

fn leaf(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    normal(shape, seed, dtype)?.requires_grad_(true)
}

fn copy_bandwidth() -> Result<()> {
    let (x, mut y) = (Tensor::zeros_with([1 << 30], GPU)?, Tensor::zeros_with([1 << 30], GPU)?);
    x.compute()?;
    let ms = milliseconds(20, || y.copy_(&x))?;
    report("copy_bw", &[("TBps", 8.0 * (1_u64 << 30) as f64 / ms / 1e9)]);
    Ok(())
}

fn matmul() -> Result<()> {
    let n = 8192;
    let all = [
        ("matmul_8192_bf16", DType::BF16, MatmulPrecision::Full),
        ("matmul_8192_f16", DType::F16, MatmulPrecision::Full),
        ("matmul_8192_f32", DType::F32, MatmulPrecision::Full),
        ("matmul_8192_tf32", DType::F32, MatmulPrecision::Tf32),
    ];
    for (name, dtype, precision) in all {
        let (a, b) = (normal(&[n, n], 1, dtype)?, normal(&[n, n], 2, dtype)?);
        let ms = with_matmul_precision(precision, || milliseconds(10, || a.matmul(&b).map(drop)))?;
        report(name, &[("TFLOPs", 2.0 * (n as f64).powi(3) / ms / 1e9)]);
    }
    Ok(())
}

fn overhead() -> Result<()> {
    let (c, b) = (Tensor::full_with([1], 0.999, GPU)?, Tensor::full_with([1], 1e-3, GPU)?);
    c.compute()?;
    b.compute()?;
    let ms = milliseconds(20, || {
        let x = Tensor::ones_with([1], GPU)?.requires_grad_(true)?;
        let mut z = x;
        for _ in 0..500 {
            z = z.mul(&c)?.add(&b)?;
        }
        z.sum(..)?.backward()
    })?;
    report("overhead", &[("ns_per_op", ms * 1e6 / 1000.0)]);
    Ok(())
}

#[derive(Module)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.layers[0].forward(x)?.relu()?;
        let x = self.layers[1].forward(&x)?.relu()?;
        self.layers[2].forward(&x)
    }
}

fn mlp_small() -> Result<()> {
    let mut model = Mlp { layers: vec![Linear::new(784, 128)?, Linear::new(128, 64)?, Linear::new(64, 10)?] };
    model.to_device(GPU)?;
    let mut optimizer = Sgd::new(0.01);
    let x = normal(&[32, 784], 1, DType::F32)?;
    let y = Generator::seed(2).randint(0, 10, [32])?.to_device(GPU)?;
    let ms = milliseconds(50, || {
        model.zero_grad();
        model.forward(&x)?.cross_entropy(&y)?.backward()?;
        optimizer.step(&mut model)
    })?;
    report("mlp_small", &[("us_per_step", ms * 1e3)]);
    let (mut step, _) = CudaGraph::record(&[&x, &y], |inputs| {
        model.zero_grad();
        let loss = model.forward(&inputs[0])?.cross_entropy(&inputs[1])?;
        loss.backward()?;
        optimizer.step(&mut model)?;
        Ok(vec![loss])
    })?;
    let ms = milliseconds(50, || {
        optimizer.advance()?;
        step.replay(&[&x, &y]).map(drop)
    })?;
    report("mlp_small_recorded", &[("us_per_step", ms * 1e3)]);
    Ok(())
}

fn elementwise() -> Result<()> {
    let [a, b, c] = [1, 2, 3].map(|seed| leaf(&[8192, 8192], seed, DType::F32));
    let (a, b, c) = (a?, b?, c?);
    let ms = milliseconds(20, || {
        [&a, &b, &c].iter().for_each(|t| t.zero_grad());
        a.mul(&b)?.add(&c)?.tanh()?.mul(&a)?.sum(..)?.backward()
    })?;
    report("elementwise_64M_f32", &[("ms", ms)]);
    Ok(())
}

fn cross_entropy() -> Result<()> {
    let logits = leaf(&[8192, 50257], 1, DType::BF16)?;
    let target = Generator::seed(2).randint(0, 50257, [8192])?.to_device(GPU)?;
    let ms = milliseconds(20, || {
        logits.zero_grad();
        logits.cross_entropy(&target)?.backward()
    })?;
    report("xent_8192x50257_bf16", &[("ms", ms)]);
    Ok(())
}

fn layer_norm() -> Result<()> {
    let mut norm = LayerNorm::new([768])?;
    norm.to_device(GPU)?;
    norm.to_dtype(DType::BF16)?;
    let (x, g) = (leaf(&[32768, 768], 1, DType::BF16)?, normal(&[32768, 768], 2, DType::BF16)?);
    let ms = milliseconds(20, || {
        x.zero_grad();
        norm.zero_grad();
        norm.forward(&x)?.backward_with(&g)
    })?;
    report("layernorm_32768x768_bf16", &[("ms", ms)]);
    Ok(())
}

fn attention() -> Result<()> {
    let attend = |q: &Tensor, k: &Tensor, v: &Tensor| {
        q.scaled_dot_product_attention_with(k, v, AttentionOptions::new().is_causal(true))
    };
    const SIZES: [([usize; 4], DType); 4] = [
        ([8, 12, 1024, 64], DType::BF16),
        ([4, 16, 4096, 64], DType::BF16),
        ([4, 16, 4096, 128], DType::BF16),
        ([4, 16, 2048, 64], DType::F32),
    ];
    for ([b, h, t, d], dtype) in SIZES {
        let [q, k, v] = [1, 2, 3].map(|seed| leaf(&[b, h, t, d], seed, dtype));
        let (q, k, v, g) = (q?, k?, v?, normal(&[b, h, t, d], 4, dtype)?);
        let both = milliseconds(20, || {
            [&q, &k, &v].iter().for_each(|t| t.zero_grad());
            attend(&q, &k, &v)?.backward_with(&g)
        })?;
        let forward = milliseconds(20, || no_grad(|| attend(&q, &k, &v)).map(drop))?;
        let flops = (4 * b * h * t * t * d / 2) as f64;
        report(
            &format!("attention_{b}x{h}x{t}x{d}_{dtype}_causal"),
            &[
                ("fwd_ms", forward),
                ("fwd_TFLOPs", flops / forward / 1e9),
                ("both_ms", both),
                ("fwdbwd_TFLOPs", 3.5 * flops / both / 1e9),
            ],
        );
    }
    Ok(())
}
