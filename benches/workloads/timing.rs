//! The timing loop and the line of JSON it ends in, the same for this library and for the Rust libraries it is compared
//! with, which include this file. `peers/torch.py` follows the same rule.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Before anything is measured: at least this often and this long, but no longer than the limit.
const WARM_UP: Effort = Effort { runs: 3, time: Duration::from_millis(300), limit: Duration::from_secs(3) };
const MEASURED: Effort = Effort { runs: 10, time: Duration::from_millis(1500), limit: Duration::from_secs(12) };

struct Effort {
    runs: usize,
    time: Duration,
    limit: Duration,
}

/// Who is measured, and on how many threads.
pub struct Timer {
    peer: &'static str,
    threads: usize,
}

impl Timer {
    /// The number of threads is that of the environment variable `variable`, or that of the processors.
    pub fn new(peer: &'static str, variable: &str) -> Timer {
        let set = std::env::var(variable).ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let threads = set.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Timer { peer, threads }
    }

    /// Runs `step` until there are enough times of it. What it returns is dropped within the time taken.
    pub fn time<T, E>(&self, workload: &str, mut step: impl FnMut() -> Result<T, E>) -> Result<Row, E> {
        WARM_UP.run(&mut step)?;
        let mut times = MEASURED.run(&mut step)?;
        times.sort_by(f64::total_cmp);
        let median = quantile(&times, 0.5);
        let mut json = format!(
            r#"{{"peer": "{}", "workload": "{workload}", "threads": {}, "reps": {}"#,
            self.peer,
            self.threads,
            times.len()
        );
        let lowest = times.first().copied().unwrap_or(f64::NAN);
        for (name, seconds) in
            [("median", median), ("p10", quantile(&times, 0.1)), ("p90", quantile(&times, 0.9)), ("min", lowest)]
        {
            // Writing to a string cannot fail.
            let _ = write!(json, r#", "{name}_ms": {:.5}"#, seconds * 1e3);
        }
        Ok(Row { json, median })
    }
}

impl Effort {
    /// The seconds each run took.
    fn run<T, E>(&self, step: &mut impl FnMut() -> Result<T, E>) -> Result<Vec<f64>, E> {
        let start = Instant::now();
        let mut times = Vec::new();
        loop {
            let one = Instant::now();
            drop(black_box(step()?));
            times.push(one.elapsed().as_secs_f64());
            let spent = start.elapsed();
            let enough = times.len() >= self.runs && spent >= self.time;
            if enough || (spent >= self.limit && 2 * times.len() >= self.runs) {
                return Ok(times);
            }
        }
    }
}

/// The value a fraction of the sorted `times` lies below, between two of them where it falls there.
fn quantile(times: &[f64], fraction: f64) -> f64 {
    let at = fraction * times.len().saturating_sub(1) as f64;
    let of = |i: f64| times.get(i as usize).copied().unwrap_or(f64::NAN);
    of(at.floor()) + (of(at.ceil()) - of(at.floor())) * at.fract()
}

/// One workload's result: the times, and what follows from their median.
pub struct Row {
    json: String,
    median: f64,
}

impl Row {
    /// A further value.
    #[must_use]
    pub fn value(mut self, name: &str, value: f64) -> Row {
        if value.is_finite() {
            // Writing to a string cannot fail.
            let _ = write!(self.json, r#", "{name}": {value:.3}"#);
        }
        self
    }

    /// `amount` of something in a second.
    #[must_use]
    pub fn per_second(self, name: &str, amount: f64) -> Row {
        let rate = amount / self.median;
        self.value(name, rate)
    }

    /// `amount` of something in a nanosecond: billions in a second.
    #[must_use]
    pub fn per_ns(self, name: &str, amount: f64) -> Row {
        let rate = amount / self.median / 1e9;
        self.value(name, rate)
    }

    /// The nanoseconds each of `count` things took.
    #[must_use]
    pub fn ns_each(self, name: &str, count: f64) -> Row {
        let each = self.median / count * 1e9;
        self.value(name, each)
    }

    /// The most memory the process has held, and what it held before its model was made.
    #[must_use]
    pub fn memory(self, before_mib: f64) -> Row {
        self.value("peak_rss_mib", memory_mib("VmHWM")).value("rss_before_model_mib", before_mib)
    }

    /// Ends and prints the line.
    pub fn print(self) {
        println!("{}}}", self.json);
    }
}

/// What Linux says of this process's memory: `VmRSS`, held now, or `VmHWM`, held at most. Elsewhere not a number.
pub fn memory_mib(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

/// Runs the workloads the command line names, or all. Cargo's own arguments, which begin with `--`, are passed over.
pub fn run<C, E: std::fmt::Display>(
    context: &C,
    workloads: &[(&str, impl Fn(&C) -> Result<(), E>)],
) -> std::process::ExitCode {
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let mut code = std::process::ExitCode::SUCCESS;
    for name in names.iter().filter(|name| workloads.iter().all(|(known, _)| known != name)) {
        eprintln!("{name}: no such workload");
        code = std::process::ExitCode::FAILURE;
    }
    for (name, workload) in workloads {
        let wanted = names.is_empty() || names.iter().any(|wanted| wanted == name);
        if wanted && let Err(error) = workload(context) {
            eprintln!("{name}: {error}");
            code = std::process::ExitCode::FAILURE;
        }
    }
    code
}
