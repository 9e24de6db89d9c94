//! The timing loop and its JSON output, for this library and for the Rust libraries it is compared with, which include
//! this file. `peers/torch.py` uses the same rule.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The warm-up before measuring: at least `runs` runs and `time`, but at most `limit`.
const WARM_UP: Effort = Effort { runs: 3, time: Duration::from_millis(300), limit: Duration::from_secs(3) };
const MEASURED: Effort = Effort { runs: 10, time: Duration::from_millis(1500), limit: Duration::from_secs(12) };

struct Effort {
    runs: usize,
    time: Duration,
    limit: Duration,
}

/// Times the workloads of a library on a number of threads.
pub struct Timer {
    peer: &'static str,
    threads: usize,
}

impl Timer {
    /// The number of threads is the value of the environment variable `variable`, or the number of processors.
    pub fn new(peer: &'static str, variable: &str) -> Timer {
        let set = std::env::var(variable).ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let threads = set.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Timer { peer, threads }
    }

    /// Runs `step` until there are enough measurements. The times include dropping its result.
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
    /// Runs `step` repeatedly, and returns the seconds of each run.
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

/// A quantile of the sorted `times`, linearly interpolated.
fn quantile(times: &[f64], fraction: f64) -> f64 {
    let at = fraction * times.len().saturating_sub(1) as f64;
    let of = |i: f64| times.get(i as usize).copied().unwrap_or(f64::NAN);
    of(at.floor()) + (of(at.ceil()) - of(at.floor())) * at.fract()
}

/// The result of a workload: its times, and figures derived from their median.
pub struct Row {
    json: String,
    median: f64,
}

impl Row {
    /// Adds a value.
    #[must_use]
    pub fn value(mut self, name: &str, value: f64) -> Row {
        if value.is_finite() {
            // Writing to a string cannot fail.
            let _ = write!(self.json, r#", "{name}": {value:.3}"#);
        }
        self
    }

    /// Adds a rate: `amount` per second.
    #[must_use]
    pub fn per_second(self, name: &str, amount: f64) -> Row {
        let rate = amount / self.median;
        self.value(name, rate)
    }

    /// Adds a rate: `amount` per nanosecond, that is, billions per second.
    #[must_use]
    pub fn per_ns(self, name: &str, amount: f64) -> Row {
        let rate = amount / self.median / 1e9;
        self.value(name, rate)
    }

    /// Adds the nanoseconds for each of `count` operations.
    #[must_use]
    pub fn ns_each(self, name: &str, count: f64) -> Row {
        let each = self.median / count * 1e9;
        self.value(name, each)
    }

    /// Adds the peak memory of the process, and its memory before the model was created.
    #[must_use]
    pub fn memory(self, before_mib: f64) -> Row {
        self.value("peak_rss_mib", memory_mib("VmHWM")).value("rss_before_model_mib", before_mib)
    }

    /// Prints the line.
    pub fn print(self) {
        println!("{}}}", self.json);
    }
}

/// The memory of this process on Linux: `VmRSS`, the current, or `VmHWM`, the peak. NaN on other systems.
pub fn memory_mib(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

/// Runs the workloads named on the command line, or all. Arguments from Cargo, which begin with `--`, are ignored.
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
