//! The thread pool of the process, which takes one job at a time.
//!
//! Workers spin briefly before they sleep, since in training the next large operation is microseconds away, and waking a thread
//! takes longer than many operations. If two threads submit a job at the same time, or a job submits another, one of them is
//! refused and runs on its thread alone. So there is only one pool of workers, however many threads the program has.

use crate::backend::cpu::runtime::threads::ThreadCountGuard;
use crate::interrupt::{self, Helping};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a worker spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(150);

/// The bit `OPEN` of [`ThreadPool::state`]: workers may join the job. The bits below it count those that have joined.
const OPEN: usize = 1 << 16;
/// The unit of the job number, in the bits above `OPEN`.
const JOB: usize = 1 << 17;

pub(super) struct ThreadPool {
    /// The number of the job, whether it may be joined, and how many workers have joined. One word, so that a worker joins the job
    /// it has seen or none.
    state: AtomicUsize,
    /// Held by the thread that submitted the current job.
    busy: Mutex<()>,
    job: Mutex<Option<PoolJob>>,
    next: AtomicUsize,
    sleep: Mutex<usize>,
    wake: Condvar,
    /// The number of sleeping workers, readable without the lock.
    sleepers: AtomicUsize,
    workers: Mutex<usize>,
    /// Whether the caller has abandoned the job.
    stopped: AtomicBool,
    /// The payload of a panic in a worker's piece, for the caller.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A job. The reference is borrowed from the caller, which does not return before every worker has left the job.
#[derive(Clone, Copy)]
struct PoolJob {
    piece: &'static (dyn Fn(usize) + Sync),
    pieces: usize,
    helpers: usize,
    /// Whether the caller may be [interrupted](interrupt).
    watched: bool,
}

pub(super) static POOL: ThreadPool = ThreadPool {
    state: AtomicUsize::new(0),
    busy: Mutex::new(()),
    job: Mutex::new(None),
    next: AtomicUsize::new(0),
    sleep: Mutex::new(0),
    wake: Condvar::new(),
    sleepers: AtomicUsize::new(0),
    workers: Mutex::new(0),
    stopped: AtomicBool::new(false),
    panic: Mutex::new(None),
};

/// Poisoning is ignored: no code here panics while it holds one of these locks, and the data would still be valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadPool {
    /// Calls `piece` for all of `0..pieces`, with up to `helpers` workers. Returns false without any effect if the pool is busy.
    pub(super) fn run(&'static self, pieces: usize, helpers: usize, piece: &(dyn Fn(usize) + Sync)) -> bool {
        let _busy = match self.busy.try_lock() {
            Ok(busy) => busy,
            // A piece has panicked, but the job was ended properly.
            Err(TryLockError::Poisoned(busy)) => busy.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.grow(helpers);
        // SAFETY: only the lifetime changes. The reference is used by workers that have joined the job, and `Done` waits until all
        // of them have left, also if `piece` panics here, before this function returns or unwinds.
        let piece = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(piece) };
        let job = PoolJob { piece, pieces, helpers, watched: interrupt::is_watched() };
        *lock(&self.job) = Some(job);
        // It may be left from a job in which the caller's piece panicked, too.
        *lock(&self.panic) = None;
        self.next.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        // Publishes the job: workers read it after they have seen the new state.
        self.state.fetch_add(JOB + OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
        {
            let mut done = Done { pool: self, whole: false };
            self.work(&job);
            self.watch(&job);
            done.whole = true;
        }
        if let Some(panic) = lock(&self.panic).take() {
            resume_unwind(panic);
        }
        true
    }

    fn work(&self, job: &PoolJob) {
        // Operations inside of a piece must not try to use the pool.
        let _alone = ThreadCountGuard::set(1);
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= job.pieces {
                return;
            }
            interrupt::poll();
            (job.piece)(at);
        }
    }

    /// Waits for the workers, if the caller may be interrupted meanwhile.
    fn watch(&self, job: &PoolJob) {
        let mut looks = 0_u32;
        while job.watched && !self.state.load(Ordering::Acquire).is_multiple_of(OPEN) {
            looks += 1;
            if looks.is_multiple_of(1 << 12) {
                interrupt::poll();
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Starts workers until there are `helpers`. If a thread cannot be started, there are fewer.
    fn grow(&'static self, helpers: usize) {
        let mut workers = lock(&self.workers);
        while *workers < helpers {
            let name = format!("cotangent-{workers}");
            if std::thread::Builder::new().name(name).spawn(|| self.worker()).is_err() {
                return;
            }
            *workers += 1;
        }
    }

    /// The main loop of a worker.
    fn worker(&'static self) {
        let mut seen = 0;
        loop {
            let state = self.await_job(seen);
            seen = state / JOB;
            if !self.join(seen) {
                continue;
            }
            let job = *lock(&self.job);
            let work = |job: &PoolJob| {
                let _helping = Helping::new(job.watched, &self.stopped);
                self.work(job);
            };
            if let Some(job) = job
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&job)))
            {
                *lock(&self.panic) = Some(panic);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a job other than number `seen`, and returns the state.
    fn await_job(&self, seen: usize) -> usize {
        let news = |state: usize| state / JOB != seen;
        let start = Instant::now();
        while start.elapsed() < SPIN_TIME {
            for _ in 0..64 {
                let state = self.state.load(Ordering::Acquire);
                if news(state) {
                    return state;
                }
                std::hint::spin_loop();
            }
        }
        let mut count = lock(&self.sleep);
        *count += 1;
        self.sleepers.store(*count, Ordering::SeqCst);
        let state = loop {
            // Read after the count of sleepers is written, while the caller reads the count after it has written the state: at
            // least one of the two sees the other.
            let state = self.state.load(Ordering::SeqCst);
            if news(state) {
                break state;
            }
            count = self.wake.wait(count).unwrap_or_else(PoisonError::into_inner);
        };
        *count -= 1;
        self.sleepers.store(*count, Ordering::SeqCst);
        state
    }

    /// Joins job number `number`, if it is still open and has room.
    fn join(&self, number: usize) -> bool {
        let room = lock(&self.job).map_or(0, |job| job.helpers);
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                let open = state / JOB == number && state & OPEN != 0 && state % OPEN < room;
                open.then_some(state + 1)
            })
            .is_ok()
    }
}

/// Closes a job, and waits until all workers that have joined it have left.
struct Done {
    pool: &'static ThreadPool,
    /// Whether all pieces were done. If not, the caller is unwinding, and the other pieces are abandoned.
    whole: bool,
}

impl Drop for Done {
    fn drop(&mut self) {
        let state = &self.pool.state;
        if !self.whole {
            self.pool.stopped.store(true, Ordering::Relaxed);
            self.pool.next.store(usize::MAX / 2, Ordering::Relaxed);
        }
        state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0_u32;
        while !state.load(Ordering::Acquire).is_multiple_of(OPEN) {
            looks += 1;
            // A worker that was preempted may need this CPU.
            if looks.is_multiple_of(1 << 12) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}
