//! Runs the unit tests of the library, which are part of it with the feature `samples`, so that the library is compiled only once.
//!
//! It takes the arguments of other test programs: parts of names, `--exact`, `--skip NAME`, `--test-threads N`, `--list`.

use cotangent::unit_tests::{UnitTest, all};
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The arguments of the command line.
#[derive(Default)]
struct Arguments {
    names: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    threads: Option<usize>,
}

impl Arguments {
    fn read(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut read = Arguments::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, value) = argument.split_once('=').map_or((&*argument, None), |(n, v)| (n, Some(v.to_string())));
            let mut value = || value.clone().or_else(|| arguments.next()).ok_or(format!("{argument} needs a value"));
            match name {
                "--exact" => read.exact = true,
                "--list" => read.list = true,
                "--nocapture" | "--no-capture" | "-q" | "--quiet" | "--show-output" => {}
                "--skip" => read.skipped.push(value()?),
                "--test-threads" => read.threads = Some(value()?.parse().map_err(|e| format!("{argument}: {e}"))?),
                _ if name.starts_with('-') => return Err(format!("unknown argument {argument}")),
                _ => read.names.push(argument),
            }
        }
        Ok(read)
    }

    fn wants(&self, name: &str) -> bool {
        let matches = |part: &String| if self.exact { name == part } else { name.contains(part.as_str()) };
        (self.names.is_empty() || self.names.iter().any(matches)) && !self.skipped.iter().any(matches)
    }
}

fn name(test: &UnitTest) -> &str {
    test.name.trim_start_matches("cotangent::")
}

/// Runs one test in a thread with its name, and prints how it ended.
fn passes(test: &'static UnitTest) -> bool {
    let run = || catch_unwind(test.run).unwrap_or_else(|_| Err("it panicked".to_string()));
    let outcome = match thread::Builder::new().name(name(test).to_string()).spawn(run).map(thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("it panicked".to_string()),
        Err(error) => Err(format!("no thread: {error}")),
    };
    match &outcome {
        Ok(()) => println!("test {} ... ok", name(test)),
        Err(error) => println!("test {} ... FAILED: {error}", name(test)),
    }
    outcome.is_ok()
}

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let every: Vec<_> = all().collect();
    let mut wanted: Vec<_> = every.iter().copied().filter(|test| arguments.wants(name(test))).collect();
    wanted.sort_by_key(|test| test.name);
    if arguments.list {
        wanted.iter().for_each(|test| println!("{}: test", name(test)));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let (start, next, failed) = (Instant::now(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = arguments.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(test) = wanted.get(next.fetch_add(1, Relaxed)) {
                    if !passes(test) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(name(test));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.iter().for_each(|name| println!("failed: {name}"));
    let (word, passed) = (if failed.is_empty() { "ok" } else { "FAILED" }, wanted.len() - failed.len());
    let left = every.len() - wanted.len();
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {left} filtered out; finished in {:.2}s\n",
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
