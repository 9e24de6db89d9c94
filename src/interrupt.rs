//! Interruption of long operations: at a [deadline](with_deadline), at the [request](Interrupt) of another thread, or when a
//! [callback](set_poll) of a front end in another language says so, as the Python package does at Ctrl-C.
//!
//! ```
//! use cotangent::{ErrorKind, Tensor, interrupt};
//! use std::time::Duration;
//! let endless = Tensor::ones(())?.expand([1_i64 << 40])?;
//! let sum = interrupt::with_deadline(Duration::from_millis(50), || endless.sum(..));
//! assert!(sum.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
//! assert_eq!(Tensor::ones([3])?.sum(..)?.item::<f32>()?, 3.0);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! An operation on the CPU is done in pieces. The calling thread checks before each piece, and the workers of the thread pool
//! stop after their current piece. The operation then returns an error of [`ErrorKind::Interrupted`]. Its inputs are unchanged,
//! and what was deferred is still pending. A change in place is never left half done: assignments, in-place arithmetic and
//! optimiser steps are completed, and the next operation is interrupted. Work that was submitted to a GPU continues. Programs
//! that are built with `panic = "abort"` are not interrupted.
//!
//! [`ErrorKind::Interrupted`]: crate::ErrorKind::Interrupted
#![forbid(unsafe_code)]

use crate::Result;
use crate::error::err;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two calls of the poll callback.
const POLL_TIME: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether anything may interrupt the operations of this thread.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is in a kernel that may be interrupted.
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch { deadline: None, request: None, poll: None, job: None }) };
}

/// What may interrupt an operation of this thread.
struct Watch {
    deadline: Option<Instant>,
    request: Option<Arc<AtomicBool>>,
    poll: Option<(fn() -> bool, Instant)>,
    /// For a worker of the thread pool: whether the job's caller has stopped.
    job: Option<&'static AtomicBool>,
}

impl Watch {
    fn is_empty(&self) -> bool {
        self.deadline.is_none() && self.request.is_none() && self.poll.is_none() && self.job.is_none()
    }
}

/// The panic payload of an interrupted kernel, which only [`caught`] sees.
struct Interrupted(&'static str);

/// Runs `f` on this thread. Each operation that is not done after `limit` returns an error of
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted). In nested calls the earliest deadline applies. Threads that `f`
/// starts have no deadline.
///
/// ```
/// use cotangent::{Tensor, interrupt};
/// use std::time::Duration;
/// let sum = interrupt::with_deadline(Duration::from_secs(60), || Tensor::ones([4])?.sum(..)?.item::<f32>())?;
/// assert_eq!(sum, 4.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn with_deadline<R>(limit: Duration, f: impl FnOnce() -> R) -> R {
    // A deadline beyond the range of the clock never comes.
    let Some(end) = Instant::now().checked_add(limit) else { return f() };
    let _until = Changed::new(|watch| {
        let before = watch.deadline;
        watch.deadline = Some(before.map_or(end, |before| before.min(end)));
        Box::new(move |watch| watch.deadline = before)
    });
    f()
}

/// A request to interrupt operations, which another thread can make. Ctrl-C does not make it:
/// [`train::Interrupt`](crate::train::Interrupt) is a flag that Ctrl-C sets.
///
/// ```
/// use cotangent::{ErrorKind, Tensor, interrupt::Interrupt};
/// let (stop, endless) = (Interrupt::new(), Tensor::ones(())?.expand([1_i64 << 40])?);
/// let other = stop.clone();
/// let thread = std::thread::spawn(move || other.run(|| endless.sum(..)));
/// stop.request();
/// assert!(thread.join().is_ok_and(|sum| sum.is_err_and(|error| error.kind() == ErrorKind::Interrupted)));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A handle without a request.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Requests that operations within [`run`](Self::run) are interrupted, now and later.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether interruption was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs `f` on this thread. After a request its operations return errors of
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted). In nested calls only the innermost request applies.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let request = self.0.clone();
        let _until = Changed::new(move |watch| {
            let before = watch.request.replace(request);
            Box::new(move |watch| watch.request = before)
        });
        f()
    }
}

/// Sets a callback that long operations of this thread call about fifty times a second, and that returns whether to interrupt
/// them. For front ends in other languages, which must poll for signals. It is called between two pieces of work.
///
/// ```
/// use cotangent::interrupt;
/// interrupt::set_poll(Some(|| false));
/// assert_eq!(cotangent::Tensor::ones([3])?.sum(..)?.item::<f32>()?, 3.0);
/// interrupt::set_poll(None);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn set_poll(poll: Option<fn() -> bool>) {
    change(|watch| watch.poll = poll.map(|poll| (poll, Instant::now())));
}

fn change<R>(f: impl FnOnce(&mut Watch) -> R) -> R {
    WATCH.with_borrow_mut(|watch| {
        let result = f(watch);
        WATCHED.set(!watch.is_empty() && !cfg!(panic = "abort"));
        result
    })
}

type Undo = Box<dyn FnOnce(&mut Watch)>;

/// Restores the previous state when it is dropped.
struct Changed(Option<Undo>);

impl Changed {
    fn new(f: impl FnOnce(&mut Watch) -> Undo) -> Changed {
        Changed(Some(change(f)))
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            change(undo);
        }
    }
}

/// Whether the current kernel of this thread may be interrupted.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    ACTIVE.get()
}

/// Interrupts the current operation of this thread, if requested: the kernel unwinds to [`caught`].
#[inline(always)]
pub(crate) fn poll() {
    if is_watched() {
        look();
    }
}

#[cold]
#[inline(never)]
fn look() {
    if let Some(why) = reason() {
        resume_unwind(Box::new(Interrupted(why)));
    }
}

fn reason() -> Option<&'static str> {
    // The callback is called after the cell is released: it may end up here again.
    let poll = WATCH.with_borrow_mut(|watch| {
        if watch.job.is_some_and(|job| job.load(Ordering::Relaxed)) {
            return Err("the operation it is part of was interrupted");
        }
        if watch.request.as_ref().is_some_and(|request| request.load(Ordering::Relaxed)) {
            return Err("on request");
        }
        if watch.deadline.is_none() && watch.poll.is_none() {
            return Ok(None);
        }
        let now = Instant::now();
        if watch.deadline.is_some_and(|deadline| now >= deadline) {
            return Err("the deadline has passed");
        }
        Ok(watch.poll.as_mut().filter(|(_, last)| now.duration_since(*last) >= POLL_TIME).map(|(poll, last)| {
            *last = now;
            *poll
        }))
    });
    match poll {
        Err(why) => Some(why),
        Ok(poll) => poll.filter(|poll| poll()).map(|_| "on request"),
    }
}

/// Runs a kernel; returns an error if it was interrupted.
#[inline(always)]
pub(crate) fn caught<T>(op: &'static str, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
    if WATCHED.get() { catch(op, kernel) } else { kernel() }
}

/// Runs `f` without interruption: for what must not be left half done, such as a change in place.
pub(crate) fn whole<R>(f: impl FnOnce() -> R) -> R {
    let _watched = Put(&WATCHED, WATCHED.replace(false));
    let _active = Put(&ACTIVE, ACTIVE.replace(false));
    f()
}

/// Restores a flag of the thread when it is dropped, also by unwinding.
struct Put(&'static std::thread::LocalKey<Cell<bool>>, bool);

impl Drop for Put {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// An interrupted kernel does not return. All that it has made is dropped by unwinding, so no partial result is visible.
#[inline(never)]
fn catch<T>(op: &'static str, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
    let kernel = || {
        let _active = Put(&ACTIVE, ACTIVE.replace(true));
        kernel()
    };
    match catch_unwind(AssertUnwindSafe(kernel)) {
        Ok(result) => result,
        Err(panic) => match panic.downcast_ref::<Interrupted>() {
            Some(Interrupted(why)) => Err(err!(Interrupted, op, "interrupted: {why}")),
            None => resume_unwind(panic),
        },
    }
}

/// Marks a worker of the thread pool as working for a caller that may be interrupted, until it is dropped.
pub(crate) struct Helping {
    _watch: Option<(Changed, Put)>,
}

impl Helping {
    pub fn new(watched: bool, stopped: &'static AtomicBool) -> Helping {
        let watch = || {
            let changed = Changed::new(|watch| {
                let before = watch.job.replace(stopped);
                Box::new(move |watch| watch.job = before)
            });
            (changed, Put(&ACTIVE, ACTIVE.replace(true)))
        };
        Helping { _watch: watched.then(watch) }
    }
}
