//! A profiler: where the time and the memory of a program's operations go.
//!
//! ```
//! use cotangent::nn::{Forward, Linear};
//! use cotangent::{Tensor, profile};
//! let (model, x) = (Linear::new(64, 10)?, Tensor::randn([32, 64])?);
//! let (loss, profile) = profile(|| {
//!     let loss = model.forward(&x)?.square()?.mean(..)?;
//!     loss.backward()?;
//!     loss.item::<f64>()
//! })?;
//! println!("{loss}\n{profile}");
//! assert!(profile.rows().iter().any(|row| row.name() == "grad of mean"));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! Every row of the table is an operation, in the forward or the backward pass. *Self* is what it takes apart from the
//! operations it is made of, so that the selves add up.
//!
//! Elementwise operations on large tensors, and all of them on a GPU, are deferred: the call notes what is to be done, and a
//! whole chain of them is computed when something needs the values. The row of such an operation says `deferred`, with the time of
//! the note alone; the time of the work is in the row of the chain, `fused(mul, add, tanh)`, in the pass that needed it.
//!
//! The time on a GPU is measured there, by events before the first and after the last work of an operation. Asking for it does
//! not wait for the GPU; [`profile`](profile()) does at its end.
//!
//! While nothing is profiled this costs nothing that could be measured: operations look at one byte, which they look at anyway.
#![forbid(unsafe_code)]

mod rows;
mod trace;

pub(crate) use rows::bytes;
pub use rows::{Pass, Row};

use crate::error::{bail, named};
use crate::place::Name;
use crate::{Device, Result, hooks, memory};
use rows::Totals;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "cuda")]
use crate::backend::cuda::runtime::{
    gpu::{Gpu, gpu, in_use},
    timing::TimedEvent,
};

/// What an event is an event of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An operation.
    Op,
    /// The rule of an operation's gradient.
    Rule,
    /// A chain of deferred operations that is computed.
    Chain,
    /// A whole backward pass, or a part of one that belongs to no operation.
    Pass,
    /// A part of the program, by [`scope`].
    Scope,
}

/// Something that took time.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    name: Cow<'static, str>,
    kind: Kind,
    backward: bool,
    /// The event it is a part of.
    parent: Option<usize>,
    thread: usize,
    /// Since the profile began.
    start: Duration,
    /// `None` until it ends.
    time: Option<Duration>,
    /// In bytes, of the CPU and of the first GPU that is used: how much more is in use afterwards, and the most meanwhile.
    grown: [i64; 2],
    peak: [usize; 2],
    in_use: [usize; 2],
    /// How many chains were begun or made longer.
    deferred: usize,
    /// Which GPU it has used, and when.
    gpu: Option<(usize, Duration, Duration)>,
}

/// A profile that is being made.
struct Session {
    number: u64,
    start: Instant,
    events: Vec<Event>,
    threads: Vec<(std::thread::ThreadId, String)>,
    #[cfg(feature = "cuda")]
    gpus: Vec<UsedGpu>,
    /// Bytes that were in use at the start, by the numbers of GPUs.
    #[cfg(feature = "cuda")]
    before: Vec<(usize, usize)>,
}

/// A GPU that work was asked of while a profile is made.
#[cfg(feature = "cuda")]
struct UsedGpu {
    gpu: &'static Gpu,
    /// A place in its stream, and when that was.
    base: TimedEvent,
    at: Duration,
    /// Bytes in use when the profile began, and their peak until the GPU was first seen.
    in_use: usize,
    peak: usize,
    /// Places before and after the work of events.
    marks: Vec<(usize, TimedEvent, Option<TimedEvent>)>,
}

#[cfg(feature = "cuda")]
impl Drop for UsedGpu {
    fn drop(&mut self) {
        memory::end_peak(Device::Cuda(self.gpu.ordinal), self.peak);
    }
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event of this thread that has not ended.
struct Open {
    session: u64,
    id: usize,
    backward: bool,
    start: Instant,
    memory: [(usize, usize); 2],
    deferred: usize,
    /// Whether work was asked of a GPU.
    #[cfg(feature = "cuda")]
    gpu: Option<usize>,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` and measures its operations, on all threads: how long each took, on the CPU and on GPUs, and what memory it took.
/// Gives what `f` gives, and the profile.
///
/// The first step of a program compiles kernels and fills caches; profile a later one.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let x = Tensor::randn([256, 256])?;
/// let (y, profile) = profile(|| x.matmul(&x))?;
/// let row = profile.rows().into_iter().find(|row| row.name() == "matmul").ok_or("it was called")?;
/// assert!(row.calls() == 1 && row.self_time() <= profile.wall_time());
/// # assert_eq!(y.shape(), [256, 256]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As `f`'s; also if a profile is being made already.
#[track_caller]
pub fn profile<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    /// Ends the session if `f` panics.
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            end();
        }
    }
    let start = named("profile", begin())?;
    let ending = Ending;
    let done = f();
    std::mem::forget(ending);
    let taken = end();
    let done = done?;
    Ok((done, named("profile", finish(taken, start))?))
}

/// Ends the session, and gives what was noted.
fn end() -> Option<Session> {
    let mut session = session();
    hooks::clear(hooks::PROFILE);
    OPEN.with_borrow_mut(Vec::clear);
    session.take()
}

fn begin() -> Result<Instant> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let mut session = session();
    if session.is_some() {
        bail!(Value, "profile", "a profile is being made already: there can be one at a time");
    }
    let start = Instant::now();
    *session = Some(Session {
        number: NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        start,
        events: Vec::new(),
        threads: Vec::new(),
        #[cfg(feature = "cuda")]
        gpus: Vec::new(),
        #[cfg(feature = "cuda")]
        before: in_use().map(|gpu| (gpu.ordinal, gpu.arena.counter.current())).collect(),
    });
    hooks::set(hooks::PROFILE);
    Ok(start)
}

/// Waits for the GPUs that were used, and asks when they did what.
fn finish(taken: Option<Session>, start: Instant) -> Result<Profile> {
    let Some(session) = taken else { bail!(Value, "profile", "the profile was ended by another thread") };
    #[cfg(feature = "cuda")]
    let mut session = session;
    #[cfg(feature = "cuda")]
    for used in std::mem::take(&mut session.gpus) {
        used.gpu.synchronize_all("profile")?;
        for (id, from, to) in &used.marks {
            let to = to.as_ref().and_then(|to| to.since(&used.base));
            if let (Some(event), Some(from), Some(to)) = (session.events.get_mut(*id), from.since(&used.base), to) {
                event.gpu = Some((used.gpu.ordinal, used.at + from, used.at + to));
            }
        }
    }
    let wall = start.elapsed();
    let threads = session.threads.into_iter().map(|(_, name)| name).collect();
    Ok(Profile { events: session.events, threads, wall })
}

/// Runs `f` as a part of the program with a name of its own, which is a row of the table and a bar in the trace.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let (_, profile) = profile(|| profile::scope("preparation", || Tensor::ones([4])?.add(1)))?;
/// assert!(profile.rows().iter().any(|row| row.name() == "preparation"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "record_function")]
pub fn scope<R>(name: impl Into<Name>, f: impl FnOnce() -> R) -> R {
    if !hooks::has(hooks::PROFILE) {
        return f();
    }
    let scope = open(Cow::Owned(name.into().to_string()), Kind::Scope, false);
    let done = f();
    leave(scope);
    done
}

/// An operation begins. What this gives goes to [`leave`].
#[inline]
pub(crate) fn enter(name: &'static str) -> u32 {
    if hooks::has(hooks::PROFILE) { open(Cow::Borrowed(name), Kind::Op, false) } else { 0 }
}

/// The rule of an operation's gradient begins.
#[inline]
pub(crate) fn enter_rule(name: &Name) -> u32 {
    if hooks::has(hooks::PROFILE) { open(Cow::Owned(format!("grad of {name}")), Kind::Rule, true) } else { 0 }
}

/// A backward pass begins, or a part of one.
#[inline]
pub(crate) fn enter_pass(name: &'static str) -> u32 {
    if hooks::has(hooks::PROFILE) { open(Cow::Borrowed(name), Kind::Pass, true) } else { 0 }
}

/// A chain of deferred operations is computed.
#[inline]
pub(crate) fn enter_chain(ops: impl FnOnce() -> Vec<&'static str>) -> u32 {
    if hooks::has(hooks::PROFILE) { open(Cow::Owned(chain_name(&ops())), Kind::Chain, false) } else { 0 }
}

/// An operation of this thread's is deferred.
#[inline]
pub(crate) fn note_deferred() {
    if hooks::has(hooks::PROFILE) {
        OPEN.with_borrow_mut(|open| open.last_mut().into_iter().for_each(|open| open.deferred += 1));
    }
}

/// What began as `scope` ends.
#[inline(always)]
pub(crate) fn leave(scope: u32) {
    if scope != 0 {
        close(scope);
    }
}

/// `fused(mul, add ×2, tanh)`, of the operations in their order.
fn chain_name(ops: &[&'static str]) -> String {
    const SHOWN: usize = 6;
    let runs: Vec<(&str, usize)> = ops.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
    let text = |&(name, times): &(&str, usize)| match times {
        1 => name.to_string(),
        _ => format!("{name} ×{times}"),
    };
    let mut shown: Vec<String> = runs.iter().take(SHOWN).map(text).collect();
    if runs.len() > SHOWN {
        shown.push(format!("{} more", runs[SHOWN..].iter().map(|(_, times)| times).sum::<usize>()));
    }
    format!("fused({})", shown.join(", "))
}

#[cold]
#[inline(never)]
fn open(name: Cow<'static, str>, kind: Kind, backward: bool) -> u32 {
    // An operation that runs while a thread ends has nothing to be noted in.
    let opened = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        let mut session = session();
        let session = session.as_mut()?;
        open.retain(|open| open.session == session.number);
        let backward = backward || open.last().is_some_and(|outer| outer.backward);
        let parent = open.last().map(|outer| outer.id);
        let thread = session.thread();
        let memory = session.begin_memory();
        let start = Instant::now();
        session.events.push(Event {
            name,
            kind,
            backward,
            parent,
            thread,
            start: start - session.start,
            time: None,
            grown: [0; 2],
            peak: [0; 2],
            in_use: [0; 2],
            deferred: 0,
            gpu: None,
        });
        open.push(Open {
            session: session.number,
            id: session.events.len() - 1,
            backward,
            start,
            memory,
            deferred: 0,
            #[cfg(feature = "cuda")]
            gpu: None,
        });
        u32::try_from(open.len()).ok()
    });
    opened.ok().flatten().unwrap_or(0)
}

#[cold]
#[inline(never)]
fn close(scope: u32) {
    let end = Instant::now();
    let _ = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        // What lies above was left open by a panic.
        open.truncate(scope as usize);
        let closed = open.pop()?;
        let mut session = session();
        let session = session.as_mut().filter(|session| session.number == closed.session)?;
        session.end(&closed, end);
        Some(())
    });
}

impl Session {
    /// The number of the calling thread.
    fn thread(&mut self) -> usize {
        let current = std::thread::current();
        let known = self.threads.iter().position(|(id, _)| *id == current.id());
        known.unwrap_or_else(|| {
            let name = current.name().map_or_else(|| format!("thread {}", self.threads.len()), str::to_string);
            self.threads.push((current.id(), name));
            self.threads.len() - 1
        })
    }

    /// For the CPU and for the first GPU that is used: what is in use, and the peak before.
    fn begin_memory(&self) -> [(usize, usize); 2] {
        let cpu = memory::begin_peak(Device::Cpu);
        #[cfg(feature = "cuda")]
        if let Some(used) = self.gpus.first() {
            let (current, peak) = memory::begin_peak(Device::Cuda(used.gpu.ordinal));
            return [cpu, (current.saturating_sub(used.in_use), peak)];
        }
        [cpu, (0, 0)]
    }

    fn end(&mut self, closed: &Open, end: Instant) {
        let [cpu, gpu] = closed.memory;
        #[cfg_attr(not(feature = "cuda"), allow(unused_mut))]
        let mut memory = [(cpu.0, memory::end_peak(Device::Cpu, cpu.1)), (gpu.0, (gpu.0, gpu.0))];
        #[cfg(feature = "cuda")]
        if let Some(used) = self.gpus.first() {
            let (current, peak) = memory::end_peak(Device::Cuda(used.gpu.ordinal), gpu.1);
            memory[1].1 = (current.saturating_sub(used.in_use), peak.saturating_sub(used.in_use));
        }
        #[cfg(feature = "cuda")]
        if let Some(used) = closed.gpu.and_then(|at| self.gpus.get_mut(at))
            && let Some(mark) = used.marks.iter_mut().rev().find(|(id, ..)| *id == closed.id)
        {
            mark.2 = TimedEvent::now(used.gpu);
        }
        let Some(event) = self.events.get_mut(closed.id) else { return };
        event.time = Some(end.saturating_duration_since(closed.start));
        event.deferred = closed.deferred;
        event.grown = memory.map(|(before, (after, _))| after as i64 - before as i64);
        event.peak = memory.map(|(before, (_, peak))| peak.saturating_sub(before));
        event.in_use = memory.map(|(_, (after, _))| after);
    }
}

/// Work is about to be asked of a GPU by this thread: the time there begins for all events that are open.
#[cfg(feature = "cuda")]
pub(crate) fn note_gpu(ordinal: usize) {
    if !hooks::has(hooks::PROFILE) {
        return;
    }
    let _ = OPEN.try_with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        if open.last()?.gpu.is_some() {
            return None;
        }
        let mut session = session();
        let session = session.as_mut()?;
        let gpu = gpu("profile", ordinal).ok()?;
        let at = session.used_gpu(gpu)?;
        for open in open.iter_mut().filter(|open| open.gpu.is_none() && open.session == session.number) {
            session.gpus[at].marks.push((open.id, TimedEvent::now(gpu)?, None));
            open.gpu = Some(at);
        }
        Some(())
    });
}

#[cfg(feature = "cuda")]
impl Session {
    fn used_gpu(&mut self, gpu: &'static Gpu) -> Option<usize> {
        if let Some(at) = self.gpus.iter().position(|used| used.gpu.ordinal == gpu.ordinal) {
            return Some(at);
        }
        // Both clocks are read at a place where the GPU has nothing to do.
        gpu.synchronize_all("profile").ok()?;
        let base = TimedEvent::now(gpu)?;
        gpu.synchronize_all("profile").ok()?;
        let at = self.start.elapsed();
        // What the first operation took before it asked for work is its own.
        let in_use = self.before.iter().find(|(ordinal, _)| *ordinal == gpu.ordinal).map_or(0, |(_, bytes)| *bytes);
        let (_, peak) = memory::begin_peak(Device::Cuda(gpu.ordinal));
        self.gpus.push(UsedGpu { gpu, base, at, in_use, peak, marks: Vec::new() });
        Some(self.gpus.len() - 1)
    }
}

/// What [`profile`](profile()) has measured. Printed, it is a table.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let x = Tensor::randn([64, 64])?;
/// let (_, profile) = profile(|| x.matmul(&x)?.exp()?.sum(..))?;
/// println!("{profile}");
/// for row in profile.rows() {
///     println!("{} took {:?}", row.name(), row.total_time());
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    events: Vec<Event>,
    threads: Vec<String>,
    wall: Duration,
}

impl Profile {
    /// The time from the beginning to the end, that of waiting for GPUs included.
    pub fn wall_time(&self) -> Duration {
        self.wall
    }

    /// A row for each operation in each pass, the one with the largest self time first.
    pub fn rows(&self) -> Vec<Row> {
        Totals::of(&self.events).rows()
    }

    /// Writes a trace that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open: every operation as a bar, by thread
    /// and GPU, and the memory in use as a curve.
    ///
    /// ```
    /// use cotangent::{Tensor, profile};
    /// # let folder = std::env::temp_dir().join(format!("cotangent-doc-trace-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let (_, profile) = profile(|| Tensor::ones([8, 8])?.sum(..))?;
    /// profile.save_trace(folder.join("trace.json"))?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    #[doc(alias = "export_chrome_trace")]
    #[track_caller]
    pub fn save_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        named("Profile::save_trace", trace::save(self, path.as_ref()))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rows::table(&self.rows(), self.wall))
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::chain_name;

    #[test]
    fn names_of_chains_are_short() {
        assert_eq!(chain_name(&["mul", "add", "add"]), "fused(mul, add ×2)");
        let long = ["a", "b", "c", "d", "e", "f", "g", "h", "h"];
        assert_eq!(chain_name(&long), "fused(a, b, c, d, e, f, 3 more)");
    }
}
