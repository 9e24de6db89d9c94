//! Places in a stream of work whose time can be asked for.

use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::Gpu;
use cudarc::driver::{result, sys};
use std::time::Duration;

/// A place in a stream.
pub(crate) struct TimedEvent(sys::CUevent);

// SAFETY: a handle of the driver's, valid on every thread.
unsafe impl Send for TimedEvent {}

impl TimedEvent {
    /// The place after all work that this thread's stream was asked for so far. `None` while this thread records, or if the
    /// driver refuses.
    pub fn now(gpu: &Gpu) -> Option<TimedEvent> {
        if capture::stream(gpu.ordinal).is_some() {
            return None;
        }
        let event = TimedEvent(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).ok()?);
        // SAFETY: event and stream are valid.
        unsafe { result::event::record(event.0, gpu.own_stream()) }.ok()?;
        Some(event)
    }

    /// How long after `base` it came, once the work before it is done.
    pub fn since(&self, base: &TimedEvent) -> Option<Duration> {
        // SAFETY: both events are valid.
        let milliseconds = unsafe { result::event::elapsed(base.0, self.0) }.ok()?;
        Some(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        // SAFETY: made by `now`, and destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
