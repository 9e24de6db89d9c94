//! Dropping a graph without recursion: what is freed during another drop on the same thread goes into a queue, which the
//! outermost drop empties.

use super::hooks::Extras;
use super::node::Body;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The parts of a node that may lead to other nodes. They are only dropped, never read.
#[allow(dead_code)]
pub(super) enum Garbage {
    Body(Body),
    Extras(Arc<Extras>),
}

struct Queue {
    active: bool,
    waiting: Vec<Garbage>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = const { RefCell::new(Queue { active: false, waiting: Vec::new() }) };
}

/// Drops it now, or queues it if a drop is running on this thread.
pub(super) fn drop_flat(garbage: Garbage) {
    let mut garbage = Some(garbage);
    let outermost = QUEUE.try_with(|queue| {
        let mut queue = queue.borrow_mut();
        let outermost = !std::mem::replace(&mut queue.active, true);
        if !outermost {
            queue.waiting.extend(garbage.take());
        }
        outermost
    });
    match outermost {
        Ok(false) => {}
        Ok(true) => {
            let _active = Active;
            drop(garbage);
            // Popped outside the borrow: dropping it may push more.
            while let Some(next) = QUEUE.with(|queue| queue.borrow_mut().waiting.pop()) {
                drop(next);
            }
        }
        // The thread is ending and its queue is gone.
        Err(_) => drop_in_common(garbage),
    }
}

/// Marks the end of the running drop, also if a destructor in it panicked. What is still queued is dropped by the next one.
struct Active;

impl Drop for Active {
    fn drop(&mut self) {
        // The queue existed when the drop began. If it is gone since, so is what was queued.
        let _ = QUEUE.try_with(|queue| queue.borrow_mut().active = false);
    }
}

/// A common queue for threads that are ending. The thread that finds it idle empties it; what is dropped may push more.
fn drop_in_common(garbage: Option<Garbage>) {
    static WAITING: Mutex<Vec<Garbage>> = Mutex::new(Vec::new());
    static BUSY: AtomicBool = AtomicBool::new(false);
    struct Idle;
    impl Drop for Idle {
        fn drop(&mut self) {
            BUSY.store(false, Ordering::Release);
        }
    }
    let waiting = || WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting().extend(garbage);
    // In a loop, since another thread may push between the last check and the end of the work.
    while !waiting().is_empty() && !BUSY.swap(true, Ordering::Acquire) {
        let _idle = Idle;
        loop {
            let next = waiting().pop();
            if next.is_none() {
                break;
            }
            drop(next);
        }
    }
}
