//! Splitting work over threads. The bounds of pieces depend only on the amount of work, so results do not depend on the number of
//! threads.

use crate::Result;
use crate::backend::cpu::runtime::thread_pool::POOL;
use crate::error::bail;
use crate::interrupt;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of elements below which fork and join do not pay off. Small in debug builds, so that tests split work, too.
pub(crate) const GRAIN: usize = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 15 };

/// The value of [`set_num_threads`]; 0 before it is known.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The value of [`with_num_threads`] on this thread; 0 if there is none.
    static LOCAL_COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The number of threads that an operation may use, set by [`with_num_threads`] or [`set_num_threads`]. The default is the
/// environment variable `COTANGENT_NUM_THREADS`, or else the number of CPUs.
///
/// ```
/// assert!(cotangent::settings::num_threads() > 0);
/// ```
#[doc(alias = "get_num_threads")]
#[inline]
pub fn num_threads() -> usize {
    match (LOCAL_COUNT.get(), COUNT.load(Ordering::Relaxed)) {
        (0, 0) => by_default(),
        (0, count) => count,
        (here, _) => here,
    }
}

#[cold]
fn by_default() -> usize {
    let said = std::env::var("COTANGENT_NUM_THREADS").ok().and_then(|text| text.trim().parse().ok());
    let count = said.filter(|&count| count > 0 && count <= MOST);
    let count = count.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST));
    // If another thread has set it meanwhile, that value is kept.
    let _ = COUNT.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

/// The maximum number of threads.
const MOST: usize = 1024;

/// Sets the number of threads that an operation may use, for the whole program. Results do not depend on it.
///
/// ```
/// cotangent::settings::set_num_threads(2)?;
/// assert_eq!(cotangent::settings::num_threads(), 2);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `count` is 0 or more than 1024.
pub fn set_num_threads(count: usize) -> Result<()> {
    check("set_num_threads", count)?;
    COUNT.store(count, Ordering::Relaxed);
    Ok(())
}

/// Runs `f` with operations that use up to `count` threads. Results do not depend on it.
///
/// ```
/// use cotangent::{Tensor, settings::with_num_threads};
/// let x = with_num_threads(1, || Tensor::ones([1000])?.sum(..))??;
/// assert_eq!(x.item::<f32>()?, 1000.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `count` is 0 or more than 1024.
pub fn with_num_threads<R>(count: usize, f: impl FnOnce() -> R) -> Result<R> {
    check("with_num_threads", count)?;
    let _until = ThreadCountGuard::set(count);
    Ok(f())
}

fn check(op: &'static str, count: usize) -> Result<()> {
    if count == 0 || count > MOST {
        bail!(Value, op, "count must be from 1 to {MOST}, got {count}");
    }
    Ok(())
}

/// Work that is split into pieces. A custom trait and not `dyn Fn`, whose vtable also has functions that take the closure by value:
/// unused copies of each kernel.
trait Pieces: Sync {
    fn run(&self, range: Range<usize>);
}

impl<F: Fn(Range<usize>) + Sync> Pieces for F {
    fn run(&self, range: Range<usize>) {
        self(range);
    }
}

/// Calls `f` for the pieces of `0..n`, each of `grain` (the last may be shorter), on several threads if there are
/// several pieces.
#[inline]
pub(crate) fn parallel(n: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    share_out(n, grain, &f);
}

/// Compiled once, with dynamic dispatch, so that kernels are not compiled once for each way of splitting.
#[inline(never)]
fn share_out(n: usize, grain: usize, work: &dyn Pieces) {
    interrupt::poll();
    if n > grain && fork(n, grain, work) {
        return;
    }
    if n > grain && interrupt::is_watched() {
        // Long enough to make the check of the clock negligible, and short enough to respond.
        let some = grain.saturating_mul(16);
        (0..n).step_by(some).for_each(|start| {
            interrupt::poll();
            work.run(start..n.min(start.saturating_add(some)));
        });
        return;
    }
    if cfg!(debug_assertions) && n > grain && num_threads() > 1 {
        // The pool is busy. Tests still check that results do not depend on the bounds or the order of pieces.
        (0..n).step_by(grain).rev().for_each(|start| work.run(start..n.min(start + grain)));
    } else if n > 0 {
        // One thread may take all pieces at once: results must not depend on where they are split.
        work.run(0..n);
    }
}

/// Runs the pieces on the thread pool. Returns false if no workers are available.
#[inline(never)]
fn fork(n: usize, grain: usize, work: &dyn Pieces) -> bool {
    let pieces = n.div_ceil(grain);
    let helpers = num_threads().min(pieces) - 1;
    helpers > 0 && POOL.run(pieces, helpers, &|at| work.run(at * grain..n.min((at + 1) * grain)))
}

/// Sets the number of threads for operations of this thread until it is dropped.
pub(super) struct ThreadCountGuard(usize);

impl ThreadCountGuard {
    pub(super) fn set(count: usize) -> ThreadCountGuard {
        ThreadCountGuard(LOCAL_COUNT.replace(count))
    }
}

impl Drop for ThreadCountGuard {
    fn drop(&mut self) {
        LOCAL_COUNT.set(self.0);
    }
}

/// As [`parallel`], for pieces that can fail. Returns one of the errors, if any. The other pieces are still run.
pub(crate) fn try_parallel(n: usize, grain: usize, f: impl Fn(Range<usize>) -> Result<()> + Sync) -> Result<()> {
    try_share_out(n, grain, &f)
}

/// As [`Pieces`], for work that can fail.
trait TryPieces: Sync {
    fn run(&self, range: Range<usize>) -> Result<()>;
}

impl<F: Fn(Range<usize>) -> Result<()> + Sync> TryPieces for F {
    fn run(&self, range: Range<usize>) -> Result<()> {
        self(range)
    }
}

fn try_share_out(n: usize, grain: usize, work: &dyn TryPieces) -> Result<()> {
    let failed = Mutex::new(None);
    parallel(n, grain, |range| {
        if let Err(error) = work.run(range) {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Calls `f` with every item, on several threads if there are several, and returns the results in order.
pub(crate) fn parallel_map<T: Send, R: Send>(items: Vec<T>, f: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() <= 1 || num_threads() == 1 {
        return items.into_iter().map(f).collect();
    }
    let slots: Vec<(Mutex<Option<T>>, Mutex<Option<R>>)> =
        items.into_iter().map(|item| (Mutex::new(Some(item)), Mutex::new(None))).collect();
    parallel(slots.len(), 1, |range| {
        for (item, result) in &slots[range] {
            // Only this piece takes the item, and no lock is held while `f` runs, so neither is poisoned.
            let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
            *result.lock().unwrap_or_else(PoisonError::into_inner) = item.map(&f);
        }
    });
    slots.into_iter().filter_map(|(_, result)| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// A pointer that can be sent to other threads. Its users must ensure that threads access disjoint elements.
#[derive(Clone, Copy)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Ptr<T> {
    pub fn new(ptr: *mut T) -> Ptr<T> {
        Ptr(ptr)
    }

    /// A method, so that closures capture the wrapper.
    #[inline]
    pub fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: sending a pointer is harmless; the code that reads or writes through it justifies the accesses.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    /// How often each index was visited.
    fn count(n: usize, grain: usize) -> Vec<usize> {
        let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
        parallel(n, grain, |range| {
            for at in range {
                seen[at].fetch_add(1, Ordering::Relaxed);
            }
        });
        seen.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_piece_is_done_once_with_any_number_of_threads() -> Result<()> {
        for threads in [1, 2, 3, 8] {
            for (n, grain) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999), (1000, 1000)] {
                for _ in 0..20 {
                    assert_eq!(with_num_threads(threads, || count(n, grain))?, vec![1; n], "{n} by {grain}, {threads}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_error_of_a_piece_reaches_the_caller() -> Result<()> {
        let run = |bad: usize| {
            with_num_threads(3, || {
                try_parallel(9, 1, |range| match range.contains(&bad) {
                    true => bail!(Value, "test", "piece {bad}"),
                    false => Ok(()),
                })
            })
        };
        for bad in 0..9 {
            assert!(run(bad)?.is_err_and(|error| error.to_string().contains(&format!("piece {bad}"))));
        }
        run(9)?
    }

    #[test]
    fn dealt_items_give_results_in_order() -> Result<()> {
        for threads in [1, 2, 5] {
            let squares = with_num_threads(threads, || parallel_map((0..500).collect(), |i: usize| i * i))?;
            assert!(squares.into_iter().eq((0..500).map(|i| i * i)), "{threads} threads");
        }
        Ok(())
    }

    #[test]
    fn the_pool_serves_several_threads_and_jobs_within_jobs() -> Result<()> {
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                for _ in 0..200 {
                    let total = AtomicUsize::new(0);
                    with_num_threads(4, || {
                        parallel(8, 1, |outer| {
                            for _ in outer {
                                total.fetch_add(count(50, 7).into_iter().sum(), Ordering::Relaxed);
                            }
                        });
                    })?;
                    assert_eq!(total.into_inner(), 400);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
        })
    }

    #[test]
    fn an_operation_within_a_piece_counts_on_no_other_thread() -> Result<()> {
        // Again until the pool is not busy with another test's job.
        let run = |piece: &(dyn Fn(usize) + Sync)| while !POOL.run(3, 2, piece) {};
        with_num_threads(3, || {
            run(&|_| assert_eq!(num_threads(), 1));
            assert_eq!(num_threads(), 3);
            assert!(std::panic::catch_unwind(|| run(&|at| assert_ne!(at, 1, "a piece that panics"))).is_err());
            assert_eq!(num_threads(), 3);
        })
    }

    #[test]
    fn several_threads_take_part() -> Result<()> {
        let names = Mutex::new(std::collections::HashSet::new());
        // The pool may be busy with another test's job; not always.
        for _ in 0..1000 {
            with_num_threads(3, || {
                parallel(3, 1, |_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    if let Ok(mut names) = names.lock() {
                        names.insert(std::thread::current().id());
                    }
                });
            })?;
            if names.lock().is_ok_and(|names| names.len() >= 3) {
                return Ok(());
            }
        }
        bail!(Backend, "test", "an error")
    }

    #[test]
    fn a_panic_in_a_piece_reaches_the_caller_and_the_pool_lives_on() -> Result<()> {
        for bad in [0, 3, 7] {
            let run = || {
                with_num_threads(4, || {
                    parallel(8, 1, |range| {
                        assert!(!range.contains(&bad), "piece {bad}");
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    });
                })
            };
            assert!(std::panic::catch_unwind(run).is_err(), "piece {bad} did not panic");
            assert_eq!(with_num_threads(4, || count(100, 1))?, vec![1; 100]);
        }
        // If the pieces of the caller and of workers panic, the caller gets one panic, and the next job none.
        let all_bad = |_| {
            std::thread::sleep(std::time::Duration::from_micros(200));
            panic!("every piece")
        };
        for _ in 0..20 {
            assert!(std::panic::catch_unwind(|| while !POOL.run(8, 3, &all_bad) {}).is_err());
            while !POOL.run(8, 3, &|_| ()) {}
        }
        Ok(())
    }

    #[test]
    fn no_threads_and_too_many_are_refused() {
        for count in [0, 1025] {
            let message = set_num_threads(count).map_or_else(|e| e.to_string(), |()| String::new());
            assert!(
                message.contains(&format!("set_num_threads: count must be from 1 to 1024, got {count}")),
                "{message}"
            );
            assert!(with_num_threads(count, || ()).is_err());
        }
    }
}
