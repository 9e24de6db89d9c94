//! Worker threads, which load batches ahead of time.

use super::draw::{self, Epoch, in_epoch};
use super::jobs::{Job, Jobs};
use super::loader::{Finish, OP};
use crate::backend::with_num_threads;
use crate::error::{bail, err};
use crate::{Error, Result};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The threads of one iterator. They end when it is dropped.
pub(super) struct Workers<B> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<B> {
    /// The remaining batches, and the number of the next one: under one lock, so that jobs are numbered in order.
    jobs: Mutex<(Box<dyn Jobs<B>>, usize)>,
    made: Mutex<Made<B>>,
    /// A batch was made, or a worker has ended.
    ready: Condvar,
    /// A batch was taken.
    room: Condvar,
    epoch: Epoch,
    finish: Option<Finish<B>>,
}

struct Made<B> {
    /// Finished batches, by number.
    batches: BTreeMap<usize, Result<B>>,
    /// The number of the batch to return next.
    next: usize,
    /// The number of batches in progress or finished, and its limit.
    under_way: usize,
    most: usize,
    workers: usize,
}

/// Ignores poisoning: the guarded state is consistent. The only user code under a lock is the iterator of a dataset, which is
/// not called again after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Send + 'static> Workers<B> {
    /// Starts `count` threads that make the batches of an epoch, up to `most` ahead.
    pub(super) fn start(
        jobs: Box<dyn Jobs<B>>,
        epoch: Epoch,
        finish: Option<Finish<B>>,
        count: usize,
        most: usize,
    ) -> Result<Workers<B>> {
        let made = Made { batches: BTreeMap::new(), next: 0, under_way: 0, most, workers: 0 };
        let (jobs, made) = (Mutex::new((jobs, 0)), Mutex::new(made));
        let shared = Arc::new(Shared { jobs, made, ready: Condvar::new(), room: Condvar::new(), epoch, finish });
        // If one cannot be started, the others end when this is dropped.
        let mut workers = Workers { shared, threads: Vec::with_capacity(count) };
        for number in 0..count {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("data-worker-{number}"));
            lock(&shared.made).workers += 1;
            match thread.spawn(move || shared.work()) {
                Ok(thread) => workers.threads.push(thread),
                Err(e) => bail!(Backend, OP, "worker {number} of {count} cannot be started: {e}"),
            }
        }
        Ok(workers)
    }
}

impl<B> Workers<B> {
    /// Waits for the next batch in order.
    pub(super) fn next(&mut self) -> Option<Result<B>> {
        let mut made = lock(&self.shared.made);
        loop {
            let number = made.next;
            if let Some(batch) = made.batches.remove(&number) {
                made.next += 1;
                made.under_way -= 1;
                self.shared.room.notify_one();
                return Some(batch);
            }
            if made.workers == 0 {
                return None;
            }
            made = self.shared.ready.wait(made).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        self.shared.epoch.stop.store(true, Ordering::Relaxed);
        // Under the lock, so that no worker is between checking the flag and waiting.
        drop(lock(&self.shared.made));
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // All panics were caught and returned as errors.
            let _ = thread.join();
        }
    }
}

impl<B> Shared<B> {
    fn work(&self) {
        /// Notes the end of the worker, also by a panic.
        struct Ended<'a, B>(&'a Shared<B>);
        impl<B> Drop for Ended<'_, B> {
            fn drop(&mut self) {
                lock(&self.0.made).workers -= 1;
                self.0.ready.notify_all();
            }
        }
        let _ended = Ended(self);
        // One thread for each worker: the kernels of the program's own threads have priority.
        let _ = with_num_threads(1, || while self.make_one() {});
    }

    /// Makes the next batch. False if there is none, or the iterator was dropped.
    fn make_one(&self) -> bool {
        let mut made = lock(&self.made);
        while made.under_way >= made.most && !self.stopped() {
            made = self.room.wait(made).unwrap_or_else(PoisonError::into_inner);
        }
        if self.stopped() {
            return false;
        }
        made.under_way += 1;
        drop(made);

        let Some((number, job)) = self.take_job() else {
            lock(&self.made).under_way -= 1;
            return false;
        };
        let batch = job.and_then(|job| self.run(job));
        lock(&self.made).batches.insert(number, batch);
        self.ready.notify_all();
        true
    }

    fn stopped(&self) -> bool {
        self.epoch.stop.load(Ordering::Relaxed)
    }

    fn take_job(&self) -> Option<(usize, Result<Job<B>>)> {
        let mut jobs = lock(&self.jobs);
        let (source, next) = &mut *jobs;
        // The items of an iterable dataset are read here.
        let job = catch_unwind(AssertUnwindSafe(|| source.next())).map_err(|panic| panicked(&*panic)).transpose()?;
        let number = *next;
        *next += 1;
        Some((number, job))
    }

    fn run(&self, job: Job<B>) -> Result<B> {
        let make = || in_epoch(&self.epoch, || self.finish.iter().try_fold(job()?, |batch, finish| finish(batch)));
        catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|panic| Err(panicked(&*panic)))
    }
}

/// The error for a panic of a worker.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let item = draw::last_item().map_or_else(String::new, |item| format!("item {item}: "));
    err!(Value, OP, "{item}a worker panicked: {said}")
}
