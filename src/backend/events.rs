//! The recorder of a profile: events of operations, rules, chains and backward passes, with their time and memory.
//!
//! The other layers call [`enter`] and [`leave`]; what they record is read by [`profile`](crate::profile).
#![forbid(unsafe_code)]

use crate::error::bail;
use crate::location::Name;
use crate::{Device, Result, flags, memory};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "cuda")]
use crate::backend::cuda::runtime::{
    gpu::{Gpu, gpu, in_use},
    timing::TimedEvent,
};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An operation.
    Op,
    /// The rule of an operation's gradient.
    Rule,
    /// The computation of a chain of deferred operations.
    Chain,
    /// A backward pass, or a part of one that does not belong to an operation.
    Pass,
    /// A part of the program, by [`scope`](crate::profile::scope).
    Scope,
}

/// A timed event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub backward: bool,
    /// The event it is a part of.
    pub parent: Option<usize>,
    pub thread: usize,
    /// Since the profile began.
    pub start: Duration,
    /// `None` until it ends.
    pub time: Option<Duration>,
    /// The change of the bytes in use and their peak, on the CPU and on the first GPU that is used.
    pub grown: [i64; 2],
    pub peak: [usize; 2],
    pub in_use: [usize; 2],
    /// The number of operations that were deferred.
    pub deferred: usize,
    /// The GPU that it used, and when.
    pub gpu: Option<(usize, Duration, Duration)>,
}

/// A running profile.
pub(crate) struct Session {
    number: u64,
    start: Instant,
    events: Vec<Event>,
    threads: Vec<(std::thread::ThreadId, String)>,
    #[cfg(feature = "cuda")]
    gpus: Vec<UsedGpu>,
    /// The bytes in use at the start, by GPU ordinal.
    #[cfg(feature = "cuda")]
    before: Vec<(usize, usize)>,
}

/// A GPU that is used while a profile runs.
#[cfg(feature = "cuda")]
struct UsedGpu {
    gpu: &'static Gpu,
    /// A reference event in its stream, and its time.
    base: TimedEvent,
    at: Duration,
    /// Bytes in use when the profile began, and their peak until the GPU was first seen.
    in_use: usize,
    peak: usize,
    /// GPU events before and after the work of events.
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
    /// The GPU that was used, if any.
    #[cfg(feature = "cuda")]
    gpu: Option<usize>,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}
/// Ends the session, and returns it.
pub(crate) fn end() -> Option<Session> {
    let mut session = session();
    flags::clear(flags::PROFILE);
    OPEN.with_borrow_mut(Vec::clear);
    session.take()
}

pub(crate) fn begin() -> Result<Instant> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let mut session = session();
    if session.is_some() {
        bail!(Value, "profile", "a profile is running already: there can be only one at a time");
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
    flags::set(flags::PROFILE);
    Ok(start)
}

/// Waits for the GPUs that were used, and reads the times of their work.
pub(crate) fn finish(taken: Option<Session>, start: Instant) -> Result<Finished> {
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
    Ok(Finished { events: session.events, threads, wall })
}

/// The events of a finished profile.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub events: Vec<Event>,
    /// The names of the threads, by their numbers.
    pub threads: Vec<String>,
    pub wall: Duration,
}

/// Begins an operation. Pass the result to [`leave`].
#[inline]
pub(crate) fn enter(name: &'static str) -> u32 {
    if flags::has(flags::PROFILE) { open(Cow::Borrowed(name), Kind::Op, false) } else { 0 }
}

/// Begins the backward rule of an operation.
#[inline]
pub(crate) fn enter_rule(name: &Name) -> u32 {
    if flags::has(flags::PROFILE) { open(Cow::Owned(format!("grad of {name}")), Kind::Rule, true) } else { 0 }
}

/// Begins a backward pass, or a part of one.
#[inline]
pub(crate) fn enter_pass(name: &'static str) -> u32 {
    if flags::has(flags::PROFILE) { open(Cow::Borrowed(name), Kind::Pass, true) } else { 0 }
}

/// Begins the computation of a chain of deferred operations.
#[inline]
pub(crate) fn enter_chain(ops: impl FnOnce() -> Vec<&'static str>) -> u32 {
    if flags::has(flags::PROFILE) { open(Cow::Owned(chain_name(&ops())), Kind::Chain, false) } else { 0 }
}

/// Notes that an operation of this thread is deferred.
#[inline]
pub(crate) fn note_deferred() {
    if flags::has(flags::PROFILE) {
        OPEN.with_borrow_mut(|open| open.last_mut().into_iter().for_each(|open| open.deferred += 1));
    }
}

/// Ends the event that began as `scope`.
#[inline(always)]
pub(crate) fn leave(scope: u32) {
    if scope != 0 {
        close(scope);
    }
}

/// The name of a chain, such as `fused(mul, add ×2, tanh)`, with the operations in their order.
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
pub(crate) fn open(name: Cow<'static, str>, kind: Kind, backward: bool) -> u32 {
    // The thread-local may be gone while the thread ends.
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
        // Events above it were left open by a panic.
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

/// Notes that this thread is about to submit work to a GPU: the GPU time of all open events begins.
#[cfg(feature = "cuda")]
pub(crate) fn note_gpu(ordinal: usize) {
    if !flags::has(flags::PROFILE) {
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
        // Both clocks are read while the GPU is idle.
        gpu.synchronize_all("profile").ok()?;
        let base = TimedEvent::now(gpu)?;
        gpu.synchronize_all("profile").ok()?;
        let at = self.start.elapsed();
        // Memory that the first operation allocated before it submitted work is its own.
        let in_use = self.before.iter().find(|(ordinal, _)| *ordinal == gpu.ordinal).map_or(0, |(_, bytes)| *bytes);
        let (_, peak) = memory::begin_peak(Device::Cuda(gpu.ordinal));
        self.gpus.push(UsedGpu { gpu, base, at, in_use, peak, marks: Vec::new() });
        Some(self.gpus.len() - 1)
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
