//! Time and memory of the phases of a step.

use crate::{Device, Result, memory};
use std::fmt;
use std::time::{Duration, Instant};

/// The time and the memory of each phase of a step: data, forward, backward, optimiser, or user-defined ones.
///
/// ```
/// use cotangent::{Tensor, train::Phases};
/// let mut phases = Phases::new();
/// for _ in 0..3 {
///     let x = phases.run("data", || Tensor::randn([32, 8]))?;
///     let _loss = phases.run("forward", || x.square()?.mean(..))?;
/// }
/// println!("{phases}");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Phases {
    device: Device,
    all: Vec<Phase>,
}

#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub name: String,
    pub calls: u64,
    pub time: Duration,
    /// The peak of bytes in use.
    pub peak: usize,
}

impl Default for Phases {
    fn default() -> Phases {
        Phases::new()
    }
}

impl Phases {
    /// For work on the CPU.
    pub fn new() -> Phases {
        Phases::on(Device::Cpu)
    }

    /// For work on a device, whose memory is measured. Each phase ends by waiting for the GPU, so that its work is not counted
    /// in a later phase.
    pub fn on(device: Device) -> Phases {
        Phases { device, all: Vec::new() }
    }

    /// Runs `f` as a part of the phase with this name. In a [profile](crate::profile()) it is a scope.
    ///
    /// # Errors
    /// The errors of `f`; also if the GPU has failed.
    pub fn run<R>(&mut self, name: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let (_, before) = memory::begin_peak(self.device);
        let start = Instant::now();
        let done = crate::profile::scope(name.to_string(), f);
        let waited = if self.device == Device::Cpu { Ok(()) } else { self.device.synchronize() };
        let time = start.elapsed();
        let (_, peak) = memory::end_peak(self.device, before);
        let phase = self.phase(name);
        phase.calls += 1;
        phase.time += time;
        phase.peak = phase.peak.max(peak);
        waited.and(done)
    }

    /// Adds a time that was measured elsewhere.
    pub fn add(&mut self, name: &str, time: Duration) {
        let phase = self.phase(name);
        phase.calls += 1;
        phase.time += time;
    }

    fn phase(&mut self, name: &str) -> &mut Phase {
        let at = self.all.iter().position(|phase| phase.name == name).unwrap_or_else(|| {
            self.all.push(Phase { name: name.into(), calls: 0, time: Duration::ZERO, peak: 0 });
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    /// The names of the phases with their times, in the order of their first use.
    pub fn times(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.all.iter().map(|phase| (phase.name.as_str(), phase.time))
    }

    pub(super) fn all(&self) -> &[Phase] {
        &self.all
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.all.iter().map(|phase| phase.name.chars().count()).max().unwrap_or(0);
        let whole: Duration = self.all.iter().map(|phase| phase.time).sum();
        for (at, phase) in self.all.iter().enumerate() {
            let share = 100.0 * phase.time.as_secs_f64() / whole.as_secs_f64().max(1e-12);
            let (end, mib) = (if at + 1 < self.all.len() { "\n" } else { "" }, phase.peak as f64 / f64::from(1 << 20));
            let (name, seconds) = (&phase.name, phase.time.as_secs_f64());
            write!(f, "{name:width$}  {seconds:9.3} s  {share:5.1} %  {mib:9.2} MiB at most{end}")?;
        }
        Ok(())
    }
}
