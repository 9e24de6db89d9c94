//! A profile as a file of trace events, which Perfetto and Chrome open.

use super::Profile;
use crate::backend::events::{Event, Kind};
use crate::json::object;
use crate::{Error, Result, io};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The tracks of GPUs come after those of threads.
const FIRST_GPU: usize = 1_000_000;

pub(super) fn save(profile: &Profile, path: &Path) -> Result<()> {
    let events = events(profile);
    io::replace_file(path, |file| {
        writeln!(file, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        for (at, event) in events.iter().enumerate() {
            let comma = if at + 1 < events.len() { "," } else { "" };
            writeln!(file, "{event}{comma}")?;
        }
        writeln!(file, "]}}")
    })
    .map_err(|error| Error::io("Profile::save_trace", path, error))
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The name of a track.
fn track(kind: &str, thread: usize, name: &str) -> Value {
    object! {"ph": "M", "name": kind, "pid": 1, "tid": thread, "args": object! {"name": name}}
}

fn events(profile: &Profile) -> Vec<Value> {
    let mut all = vec![track("process_name", 0, "cotangent")];
    all.extend(profile.0.threads.iter().enumerate().map(|(at, name)| track("thread_name", at, name)));
    let gpus: BTreeSet<usize> = profile.0.events.iter().filter_map(|event| Some(event.gpu?.0)).collect();
    all.extend(gpus.iter().map(|gpu| track("thread_name", FIRST_GPU + gpu, &format!("cuda:{gpu}"))));
    for event in &profile.0.events {
        let Some(time) = event.time else { continue };
        all.push(bar(event, event.thread, event.start, time));
        if let Some((gpu, from, to)) = event.gpu {
            all.push(bar(event, FIRST_GPU + gpu, from, to.saturating_sub(from)));
        }
        let [cpu, on_gpus] = event.in_use;
        let mut args = object! {"CPU": cpu};
        if !gpus.is_empty() {
            args["GPU"] = json!(on_gpus);
        }
        all.push(
            object! {"ph": "C", "name": "bytes in use", "pid": 1, "ts": microseconds(event.start + time), "args": args},
        );
    }
    all
}

fn bar(event: &Event, track: usize, start: Duration, time: Duration) -> Value {
    let kind = match event.kind {
        Kind::Op => "op",
        Kind::Rule => "gradient",
        Kind::Chain => "fused",
        Kind::Pass => "pass",
        Kind::Scope => "scope",
    };
    let pass = if event.backward { "backward" } else { "forward" };
    object! {
        "ph": "X",
        "name": event.name,
        "cat": kind,
        "pid": 1,
        "tid": track,
        "ts": microseconds(start),
        "dur": microseconds(time),
        "args": object! {
            "pass": pass,
            "memory": event.grown.iter().sum::<i64>(),
            "peak": event.peak.iter().sum::<usize>(),
            "deferred": event.deferred,
        },
    }
}
