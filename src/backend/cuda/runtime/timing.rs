//! Timed events in a stream.

use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::Gpu;
use cudarc::driver::{result, sys};
use std::time::Duration;

/// A timed event in a stream.
pub(crate) struct TimedEvent(sys::CUevent);

// SAFETY: a handle of the driver, valid on every thread.
unsafe impl Send for TimedEvent {}

impl TimedEvent {
    /// Records an event after all work submitted to this thread's stream. `None` while this thread is recording, or if the driver
    /// refuses.
    pub fn now(gpu: &Gpu) -> Option<TimedEvent> {
        if capture::stream(gpu.ordinal).is_some() {
            return None;
        }
        let event = TimedEvent(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).ok()?);
        // SAFETY: event and stream are valid.
        unsafe { result::event::record(event.0, gpu.own_stream()) }.ok()?;
        Some(event)
    }

    /// The time since `base`; `None` if the work before the event is not done.
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
