//! Dropping a graph without recursion: what dies while something else is being dropped on the same thread waits in a
//! queue for the outermost to drop it.

use super::hooks::Extras;
use super::node::Body;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a node leaves behind, and what may lead to other nodes. It is kept to be dropped, not to be read.
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

/// Drops it now, or leaves it to a drop that is under way.
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

/// Ends the drop that is under way, also if the destructor of something in it has panicked: what still waits is dropped by
/// the next.
struct Active;

impl Drop for Active {
    fn drop(&mut self) {
        // The queue was there when the drop began; if it has gone since, so has what waited in it.
        let _ = QUEUE.try_with(|queue| queue.borrow_mut().active = false);
    }
}

/// The queue of threads that are ending. Whoever finds it idle empties it; what it drops may push more.
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
    // Again, since another thread may have left something between the last look and the end of the work.
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
