//! Ending operations that take too long: at a [deadline](with_deadline), at the [request](Interrupt) of another thread, or when
//! a front in another language [says so](set_poll), as the Python package does at Ctrl-C.
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
//! An operation on the CPU is done in pieces. The thread that has called it looks up before each, and the threads of the pool
//! that help it stop after the one they are at. The operation is then an error of [`ErrorKind::Interrupted`], and its result is
//! dropped. What it was called on is unchanged, and what was deferred is still pending. A change in place is never left half done:
//! assignments, in-place arithmetic and the steps of optimisers end before the next operation is refused. Work that a GPU has been
//! given goes on, and no program that is built with `panic = "abort"` is interrupted.
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

/// How often a front is asked.
const POLL_TIME: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether something may end the operations of this thread.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is within a kernel that may be left.
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch { deadline: None, request: None, poll: None, job: None }) };
}

/// What may end an operation of this thread.
struct Watch {
    deadline: Option<Instant>,
    request: Option<Arc<AtomicBool>>,
    poll: Option<(fn() -> bool, Instant)>,
    /// Of a thread of the pool: the job's caller has stopped.
    job: Option<&'static AtomicBool>,
}

impl Watch {
    fn is_empty(&self) -> bool {
        self.deadline.is_none() && self.request.is_none() && self.poll.is_none() && self.job.is_none()
    }
}

/// What a kernel unwinds with. Nobody but [`caught`] sees it.
struct Interrupted(&'static str);

/// Runs `f` on this thread, in which each operation that is not done when the time is over is an error of
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted). Within another call the earlier deadline counts. Threads that `f`
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
    // One that no clock can show never comes.
    let Some(end) = Instant::now().checked_add(limit) else { return f() };
    let _until = Changed::new(|watch| {
        let before = watch.deadline;
        watch.deadline = Some(before.map_or(end, |before| before.min(end)));
        Box::new(move |watch| watch.deadline = before)
    });
    f()
}

/// A request that operations end, which another thread can make.
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
    /// No request so far.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Asks that operations within [`run`](Self::run) end, now and later.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs `f` on this thread. Once there is a request, operations in it are errors of
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted). Within another call of this function its request alone counts.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let request = self.0.clone();
        let _until = Changed::new(move |watch| {
            let before = watch.request.replace(request);
            Box::new(move |watch| watch.request = before)
        });
        f()
    }
}

/// Sets what long operations of this thread ask some fifty times a second: whether they should end. For fronts in other
/// languages, whose signals come to a thread that has to look for them. The function is called between two pieces of work.
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

/// Puts back what it was before.
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

/// Whether something may end the kernel that this thread is at.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    ACTIVE.get()
}

/// Ends the operation that this thread is at, if that is asked for: what is at work unwinds to [`caught`].
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
    // Nothing of another language's is called while the cell is borrowed: it may come here again.
    let poll = WATCH.with_borrow_mut(|watch| {
        if watch.job.is_some_and(|job| job.load(Ordering::Relaxed)) {
            return Err("the operation that it is a part of was");
        }
        if watch.request.as_ref().is_some_and(|request| request.load(Ordering::Relaxed)) {
            return Err("that was requested");
        }
        if watch.deadline.is_none() && watch.poll.is_none() {
            return Ok(None);
        }
        let now = Instant::now();
        if watch.deadline.is_some_and(|deadline| now >= deadline) {
            return Err("its deadline has passed");
        }
        Ok(watch.poll.as_mut().filter(|(_, last)| now.duration_since(*last) >= POLL_TIME).map(|(poll, last)| {
            *last = now;
            *poll
        }))
    });
    match poll {
        Err(why) => Some(why),
        Ok(poll) => poll.filter(|poll| poll()).map(|_| "that was requested"),
    }
}

/// What a kernel gives, or an error where it was interrupted.
#[inline(always)]
pub(crate) fn caught<T>(op: &'static str, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
    if WATCHED.get() { catch(op, kernel) } else { kernel() }
}

/// Runs what must not end half done, such as a change of memory that somebody has.
pub(crate) fn whole<R>(f: impl FnOnce() -> R) -> R {
    let _watched = Put(&WATCHED, WATCHED.replace(false));
    let _active = Put(&ACTIVE, ACTIVE.replace(false));
    f()
}

/// Puts back what a flag of the thread was, also when it unwinds.
struct Put(&'static std::thread::LocalKey<Cell<bool>>, bool);

impl Drop for Put {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// The kernel does not return, and all that it has made is dropped on the way here, so that nobody sees half a result.
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

/// A thread of the pool that helps with a job of a watched caller, until it is dropped.
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
