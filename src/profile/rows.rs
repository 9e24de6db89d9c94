//! The rows of a profile.

use crate::backend::events::{Event, Kind};
use crate::order::sort_by_key;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// The pass in which an operation ran.
///
/// ```
/// use cotangent::{profile::{self, Pass}, tensor};
/// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
/// let (_, profile) = cotangent::profile(|| x.exp()?.sum(..)?.backward())?;
/// assert!(profile.rows().iter().any(|row| row.pass() == Pass::Backward));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pass {
    /// Outside of a backward pass.
    Forward,
    /// In a backward pass.
    Backward,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
        })
    }
}

/// All calls of an operation in one pass.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let (_, profile) = profile(|| Tensor::ones([4])?.sum(..))?;
/// for row in profile.rows() {
///     println!("{} ×{}: {:?}, {} bytes", row.name(), row.calls(), row.self_time(), row.memory());
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Row {
    name: String,
    pass: Pass,
    calls: usize,
    deferred: usize,
    total: Duration,
    own: Duration,
    gpu: Option<Duration>,
    grown: [i64; 2],
    peak: [usize; 2],
}

impl Row {
    /// The operation; `grad of ..` for its gradient rule, `fused(..)` for a computed chain of deferred operations.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pass.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// The number of calls.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The number of deferred calls, whose work is in the row of a chain.
    pub fn deferred(&self) -> usize {
        self.deferred
    }

    /// The time of all calls on the CPU, including the operations inside.
    pub fn total_time(&self) -> Duration {
        self.total
    }

    /// The time of all calls on the CPU without the operations inside. These times add up.
    pub fn self_time(&self) -> Duration {
        self.own
    }

    /// The time on GPUs, without the operations inside; `None` if none was used.
    pub fn gpu_time(&self) -> Option<Duration> {
        self.gpu
    }

    /// The growth of the memory in use in bytes, on the CPU and on the first GPU that is used, without the operations inside.
    /// If several threads run at once it counts the memory of all.
    pub fn memory(&self) -> i64 {
        self.grown.iter().sum()
    }

    /// The peak of the memory in use during a call, in bytes above that before it.
    pub fn peak_memory(&self) -> usize {
        self.peak.iter().sum()
    }
}

/// The events' times and memory without the events inside.
pub(super) struct Totals<'a> {
    events: &'a [Event],
    own: Vec<Duration>,
    gpu: Vec<Option<Duration>>,
    grown: Vec<[i64; 2]>,
}

impl<'a> Totals<'a> {
    pub fn of(events: &'a [Event]) -> Totals<'a> {
        let on_gpu = |event: &Event| event.gpu.map(|(_, from, to)| to.saturating_sub(from));
        let mut own: Vec<Duration> = events.iter().map(|event| event.time.unwrap_or_default()).collect();
        let mut gpu: Vec<Option<Duration>> = events.iter().map(on_gpu).collect();
        let mut grown: Vec<[i64; 2]> = events.iter().map(|event| event.grown).collect();
        for event in events {
            let Some(parent) = event.parent else { continue };
            own[parent] = own[parent].saturating_sub(event.time.unwrap_or_default());
            if let (Some(all), Some(inside)) = (gpu[parent], on_gpu(event)) {
                gpu[parent] = Some(all.saturating_sub(inside));
            }
            for (all, inside) in grown[parent].iter_mut().zip(event.grown) {
                *all -= inside;
            }
        }
        Totals { events, own, gpu, grown }
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut positions: HashMap<(&str, Kind, bool), usize> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            let Some(time) = event.time else { continue };
            let position = *positions.entry((&event.name, event.kind, event.backward)).or_insert_with(|| {
                let pass = if event.backward { Pass::Backward } else { Pass::Forward };
                rows.push(Row {
                    name: event.name.to_string(),
                    pass,
                    calls: 0,
                    deferred: 0,
                    total: Duration::ZERO,
                    own: Duration::ZERO,
                    gpu: None,
                    grown: [0; 2],
                    peak: [0; 2],
                });
                rows.len() - 1
            });
            let row = &mut rows[position];
            row.calls += 1;
            row.deferred += event.deferred;
            // A call inside of one of the same name is included there.
            if !self.is_inside_its_own(event) {
                row.total += time;
            }
            row.own += self.own[at];
            if let Some(gpu) = self.gpu[at] {
                *row.gpu.get_or_insert_default() += gpu;
            }
            for k in 0..2 {
                row.grown[k] += self.grown[at][k];
                row.peak[k] = row.peak[k].max(event.peak[k]);
            }
        }
        sort_by_key(&mut rows, |row| std::cmp::Reverse(row.own + row.gpu.unwrap_or_default()));
        rows
    }

    fn is_inside_its_own(&self, event: &Event) -> bool {
        let mut outer = event.parent;
        while let Some(parent) = outer.map(|at| &self.events[at]) {
            if parent.name == event.name && parent.kind == event.kind && parent.backward == event.backward {
                return true;
            }
            outer = parent.parent;
        }
        false
    }
}

/// Bytes in a readable unit.
pub(crate) fn bytes(count: i64) -> String {
    let size = count.unsigned_abs() as f64;
    let sign = if count < 0 { "-" } else { "" };
    match size {
        _ if size < 1024.0 => format!("{sign}{size} B"),
        _ if size < 1024.0 * 1024.0 => format!("{sign}{:.1} KiB", size / 1024.0),
        _ if size < 1024.0 * 1024.0 * 1024.0 => format!("{sign}{:.1} MiB", size / 1024.0 / 1024.0),
        _ => format!("{sign}{:.2} GiB", size / 1024.0 / 1024.0 / 1024.0),
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// The rows as a table, with a header and totals.
pub(super) fn table(rows: &[Row], wall: Duration) -> String {
    let on_gpus = rows.iter().any(|row| row.gpu.is_some());
    let own: Duration = rows.iter().map(|row| row.own).sum();
    let gpu: Duration = rows.iter().filter_map(|row| row.gpu).sum();
    let percent = |part: Duration| format!("{:.1}", 100.0 * part.as_secs_f64() / own.as_secs_f64().max(1e-12));
    let mut lines: Vec<Vec<String>> =
        vec![["operation", "pass", "calls", "self ms", "%", "total ms"].map(str::to_string).to_vec()];
    if on_gpus {
        lines[0].push("GPU ms".into());
    }
    lines[0].extend(["memory", "peak"].map(str::to_string));
    for row in rows {
        let note = if row.deferred > 0 { " (deferred)" } else { "" };
        let mut line = vec![
            format!("{}{note}", row.name),
            row.pass.to_string(),
            row.calls.to_string(),
            milliseconds(row.own),
            percent(row.own),
            milliseconds(row.total),
        ];
        if on_gpus {
            line.push(row.gpu.map_or_else(|| "–".into(), milliseconds));
        }
        line.extend([bytes(row.memory()), bytes(row.peak_memory() as i64)]);
        lines.push(line);
    }
    let columns = lines[0].len();
    let widths: Vec<usize> =
        (0..columns).map(|k| lines.iter().map(|line| line[k].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        for (k, field) in line.iter().enumerate() {
            let padding = " ".repeat(widths[k] - field.chars().count());
            let gap = if k == 0 { "" } else { "  " };
            // Names are aligned left, numbers right.
            text.push_str(&if k < 2 { format!("{gap}{field}{padding}") } else { format!("{gap}{padding}{field}") });
        }
        text.push('\n');
        if at == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)));
            text.push('\n');
        }
    }
    let on_gpu = if on_gpus { format!(", {} ms on GPUs", milliseconds(gpu)) } else { String::new() };
    let (own, all) = (milliseconds(own), milliseconds(wall));
    text.push_str(&format!("{own} ms in operations{on_gpu}, of {all} ms from beginning to end"));
    if rows.iter().any(|row| row.deferred > 0) {
        text.push_str(
            "\n(deferred): the call alone; its work is in a row fused(..), in the pass that needed the values",
        );
    }
    text
}
