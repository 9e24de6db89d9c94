//! Times a fixed set of workloads, and prints a line of JSON for each.
//!
//! `cargo bench --bench workloads -- [names]`; `COTANGENT_NUM_THREADS` sets the number of threads. `benches/README.md`
//! describes the workloads; `benches/compare.py` also runs them in other libraries.

mod breadth;
mod gpt;
mod networks;
mod operations;
mod text;
mod timing;
mod training;

use cotangent::{Device, Result};
use std::process::ExitCode;
use timing::Timer;

const WORKLOADS: &[(&str, fn(&Timer) -> Result<()>)] = &[
    ("overhead", operations::overhead),
    ("overhead_fwd_nograd", operations::overhead_fwd_nograd),
    ("mlp_small", training::mlp_small),
    ("mlp_large", training::mlp_large),
    ("mlp_large_bf16", training::mlp_large_bf16),
    ("matmul_64", |timer| operations::matmul(timer, "matmul_64", 64, 200)),
    ("matmul_256", |timer| operations::matmul(timer, "matmul_256", 256, 10)),
    ("matmul_1024", |timer| operations::matmul(timer, "matmul_1024", 1024, 1)),
    ("matmul_2048", |timer| operations::matmul(timer, "matmul_2048", 2048, 1)),
    ("matmul_1024_fb", operations::matmul_fb),
    ("elementwise", operations::elementwise),
    ("bias_add", operations::bias_add),
    ("xent", operations::xent),
    ("layernorm", operations::layernorm),
    ("attention", operations::attention),
    ("gpt_tiny", training::gpt_tiny),
    ("gpt_tiny_bf16", training::gpt_tiny_bf16),
    ("cnn_step", training::cnn_step),
    ("resnet18_step", training::resnet18_step),
    ("adamw", training::adamw),
    ("gpt2", text::gpt2),
    ("gpt2_bf16", text::gpt2_bf16),
    ("llama_05b", text::llama),
    ("llama_05b_bf16", text::llama_bf16),
    ("llama_05b_q8_0", text::llama_q8_0),
    ("llama_05b_q4_k", text::llama_q4_k),
    ("gguf", text::gguf),
    ("limits", operations::limits),
];

fn main() -> ExitCode {
    type Workload = Box<dyn Fn(&Timer) -> Result<()>>;
    let mut all: Vec<(&str, Workload)> = Vec::new();
    all.extend(WORKLOADS.iter().map(|&(name, run)| (name, Box::new(run) as Workload)));
    all.extend(
        breadth::ROWS
            .iter()
            .chain(networks::ROWS)
            .map(|row| (row.name, Box::new(|timer: &Timer| one_operation(timer, row)) as Workload)),
    );
    timing::run(&Timer::new("cotangent", "COTANGENT_NUM_THREADS"), &all)
}

fn one_operation(timer: &Timer, row: &breadth::Row) -> Result<()> {
    let timed = timer.time(row.name, (row.make)(Device::Cpu)?)?;
    let timed = match row.work {
        breadth::Work::Bytes(bytes) => timed.per_ns("gb_per_s", bytes),
        breadth::Work::Flops(flops) => timed.per_ns("gflops", flops),
    };
    timed.print();
    Ok(())
}
