//! What this library takes for a fixed set of workloads, as JSON, a line each.
//!
//! `cargo bench --bench workloads -- [names]`, `COTANGENT_NUM_THREADS` for the threads. `benches/README.md` says what each
//! workload is; `benches/compare.py` runs the same ones in other libraries.

mod gpt;
mod operations;
mod timing;
mod training;

use cotangent::Result;
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
    ("adamw", training::adamw),
    ("limits", operations::limits),
];

fn main() -> ExitCode {
    timing::run(&Timer::new("cotangent", "COTANGENT_NUM_THREADS"), WORKLOADS)
}
