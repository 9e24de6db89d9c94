//! The streams of a GPU, and the order between them.
//!
//! A thread's work goes to one stream: the GPU's first, unless [`Stream::run`](crate::Stream::run) says otherwise. Work of one
//! stream runs in the order of submission; streams run concurrently. Every buffer on a GPU knows which stream has written it and
//! which have read it since ([`Uses`]). Taking its address for work on another stream makes that stream wait for them, so no
//! program can read unwritten data. A block of memory belongs to the stream for which it was first allocated: free lists are per
//! stream, and a block is released after the stream was made to wait for all others that used it.
//!
//! As long as a program creates no second stream, the cost of this is one check of a counter.

use crate::Result;
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, Handle, MOST, failed, gpu};
use cudarc::driver::{result, sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The maximum number of streams of a GPU, including the first.
pub(crate) const STREAMS: usize = 16;

/// The number of additional streams on all GPUs.
static SECOND: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The current streams of this thread, by GPU.
    static CURRENT: Cell<[u8; MOST]> = const { Cell::new([0; MOST]) };
}

/// The streams of a GPU.
pub(crate) struct Streams {
    all: [OnceLock<Handle<sys::CUstream>>; STREAMS],
    /// Numbers that are not in use.
    free: Mutex<Vec<u8>>,
}

impl Streams {
    pub fn new(first: sys::CUstream) -> Streams {
        let all = [const { OnceLock::new() }; STREAMS];
        // The cell was just made.
        let _ = all[0].set(Handle(first));
        Streams { all, free: Mutex::new((1..STREAMS as u8).rev().collect()) }
    }

    fn get(&self, number: u8) -> Option<sys::CUstream> {
        self.all.get(number as usize)?.get().map(|handle| handle.0)
    }

    /// All streams that were ever used.
    pub fn open(&self) -> impl Iterator<Item = (u8, sys::CUstream)> {
        (0..STREAMS as u8).filter_map(|number| Some((number, self.get(number)?)))
    }
}

/// The number of this thread's current stream for a GPU. Recorded work runs on the first.
pub(crate) fn current(ordinal: usize) -> u8 {
    if SECOND.load(Ordering::Relaxed) == 0 || capture::stream(ordinal).is_some() {
        return 0;
    }
    CURRENT.with(|current| current.get().get(ordinal).copied().unwrap_or(0))
}

impl Gpu {
    /// The default stream, which recorded work also runs on.
    pub(crate) fn first_stream(&self) -> sys::CUstream {
        self.streams.get(0).unwrap_or(std::ptr::null_mut())
    }

    /// The stream of this thread when it is not recording.
    pub(crate) fn own_stream(&self) -> sys::CUstream {
        let number = current(self.ordinal);
        self.streams.get(number).unwrap_or_else(|| self.first_stream())
    }

    /// Takes a free stream.
    ///
    /// # Errors
    /// If all streams are in use, or the driver refuses.
    pub(crate) fn take_stream(&self, op: &'static str) -> Result<u8> {
        let mut free = self.streams.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&number) = free.last() else {
            crate::error::bail!(
                Backend,
                op,
                "cannot make a stream: all {} streams of cuda:{} are in use",
                STREAMS - 1,
                self.ordinal
            );
        };
        if self.streams.get(number).is_none() {
            let kind = result::stream::StreamKind::NonBlocking;
            let stream = result::stream::create(kind).map_err(|e| failed(op, "making a stream", e))?;
            // Only set under the lock.
            let _ = self.streams.all[number as usize].set(Handle(stream));
            SECOND.fetch_add(1, Ordering::Relaxed);
        }
        free.pop();
        Ok(number)
    }

    /// Releases a stream. Its work continues, and work of the next owner runs after it.
    pub(crate) fn give_stream(&self, number: u8) {
        self.streams.free.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Makes a stream wait for all work submitted to another.
    fn order(&self, earlier: u8, later: u8) {
        let (Some(earlier), Some(later)) = (self.streams.get(earlier), self.streams.get(later)) else { return };
        let ordered = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).and_then(|event| {
            // SAFETY: event and streams are valid. The driver keeps an event that is waited for.
            unsafe {
                let waits = result::event::record(event, earlier).and_then(|()| {
                    result::stream::wait_event(later, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                });
                let _ = result::event::destroy(event);
                waits
            }
        });
        if ordered.is_err() {
            // Waiting here also orders them. If that fails, too, the context is lost, and the next call fails.
            // SAFETY: the stream is valid.
            let _ = unsafe { result::stream::synchronize(earlier) };
        }
    }

    /// Orders work on the first stream whose buffers are not tracked, such as a recorded graph, with all other streams: after what
    /// was submitted to them before, and before what is submitted later.
    pub(crate) fn fenced<R>(&self, work: impl FnOnce() -> R) -> R {
        if SECOND.load(Ordering::Relaxed) == 0 {
            return work();
        }
        let others = || self.streams.open().map(|(number, _)| number).filter(|&number| number != 0);
        others().for_each(|number| self.order(number, 0));
        let done = work();
        others().for_each(|number| self.order(0, number));
        done
    }
}

/// Makes a stream current on this thread until it is dropped.
pub(crate) struct Entered {
    before: [u8; MOST],
}

impl Entered {
    pub fn new(ordinal: usize, number: u8) -> Entered {
        let before = CURRENT.get();
        let mut now = before;
        now[ordinal] = number;
        CURRENT.set(now);
        Entered { before }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// The streams that use a buffer: the one that its block belongs to, the one that has written it, and those that have read it
/// since and have waited for the writer.
pub(crate) struct Uses {
    home: u8,
    /// The writer's number in the low 16 bits, and a bit for each reader above.
    state: AtomicU32,
}

const READERS: u32 = 16;

impl Uses {
    /// For a block that was allocated for a stream.
    pub fn by(home: u8) -> Uses {
        Uses { home, state: AtomicU32::new(home.into()) }
    }

    fn others(&self, number: u8) -> impl Iterator<Item = u8> + use<> {
        let state = self.state.load(Ordering::Acquire);
        let all = state >> READERS | 1 << (state & 0xff);
        (0..STREAMS as u8).filter(move |&other| other != number && all >> other & 1 == 1)
    }

    /// Call before work of this thread's stream that reads the buffer.
    #[inline]
    pub fn read(&self, ordinal: usize) {
        if SECOND.load(Ordering::Relaxed) > 0 {
            self.order_read(ordinal);
        }
    }

    /// Call before work of this thread's stream that writes the buffer, which has no other user.
    #[inline]
    pub fn write(&self, ordinal: usize) {
        if SECOND.load(Ordering::Relaxed) > 0 {
            self.order_write(ordinal);
        }
    }

    #[cold]
    fn order_read(&self, ordinal: usize) {
        let (here, state) = (current(ordinal), self.state.load(Ordering::Acquire));
        let writer = (state & 0xff) as u8;
        let reader = 1 << (READERS + u32::from(here));
        if writer == here || state & reader != 0 || capture::stream(ordinal).is_some() {
            return;
        }
        if let Ok(gpu) = gpu("stream", ordinal) {
            gpu.order(writer, here);
        }
        self.state.fetch_or(reader, Ordering::Release);
    }

    #[cold]
    fn order_write(&self, ordinal: usize) {
        let here = current(ordinal);
        if capture::stream(ordinal).is_some() {
            return;
        }
        if let Ok(gpu) = gpu("stream", ordinal) {
            self.others(here).for_each(|other| gpu.order(other, here));
        }
        self.state.store(here.into(), Ordering::Release);
    }

    /// Call before the block is released to its stream's free lists.
    #[inline]
    pub fn end(&self, gpu: &Gpu) {
        if SECOND.load(Ordering::Relaxed) > 0 {
            self.others(self.home).for_each(|other| gpu.order(other, self.home));
        }
    }
}
