//! A profiler of the time and the memory of operations.
//!
//! ```
//! use cotangent::nn::{Forward, Linear};
//! use cotangent::{Tensor, profile};
//! let (model, x) = (Linear::new(64, 10)?, Tensor::randn([32, 64])?);
//! let (loss, profile) = profile(|| {
//!     let loss = model.forward(&x)?.square()?.mean(..)?;
//!     loss.backward()?;
//!     loss.item::<f64>()
//! })?;
//! println!("{loss}\n{profile}");
//! assert!(profile.rows().iter().any(|row| row.name() == "grad of mean"));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! The first step of a program compiles kernels and fills caches: profile a later one. [`Profile::save_trace`] writes the
//! operations as a timeline, for Perfetto and `chrome://tracing`.
//!
//! Every row of the table is an operation, in the forward or the backward pass. *Self* excludes the operations that it calls,
//! so that the self times add up.
//!
//! Elementwise operations on large tensors, and all of them on a GPU, are deferred: the call records the operation, and a
//! whole chain is computed when the values are needed. The row of such an operation is marked `deferred` and has only the
//! time of the call. The time of the computation is in the row of the chain, `fused(mul, add, tanh)`, in the pass that needed
//! the values.
//!
//! Time on a GPU is measured by events before the first and after the last kernel of an operation. Recording them does not
//! wait for the GPU; [`profile`](profile()) waits at its end.
//!
//! Without a profile the overhead is not measurable: operations check one byte, which they check anyway.
#![forbid(unsafe_code)]

mod rows;
mod trace;

pub(crate) use rows::bytes;
pub use rows::{Pass, Row};

use crate::backend::events::{self, Finished, Kind};
use crate::error::named;
use crate::location::Name;
use crate::{Result, flags};
use rows::Totals;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Runs `f` and measures the time and the memory of its operations, on all threads, on the CPU and on GPUs. Returns the
/// result of `f` and the profile.
///
/// The first step of a program compiles kernels and fills caches; profile a later one.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let x = Tensor::randn([256, 256])?;
/// let (y, profile) = profile(|| x.matmul(&x))?;
/// let row = profile.rows().into_iter().find(|row| row.name() == "matmul").ok_or("it was called")?;
/// assert!(row.calls() == 1 && row.self_time() <= profile.wall_time());
/// # assert_eq!(y.shape(), [256, 256]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of `f`; also if a profile is already running.
#[doc(alias = "profiler")]
#[track_caller]
pub fn profile<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    /// Ends the session if `f` panics.
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            events::end();
        }
    }
    let start = named("profile", events::begin())?;
    let ending = Ending;
    let done = f();
    std::mem::forget(ending);
    let taken = events::end();
    let done = done?;
    Ok((done, named("profile", events::finish(taken, start).map(Profile))?))
}

/// Runs `f` as a named scope, which is a row of the table and a bar in the trace.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let (_, profile) = profile(|| profile::scope("preparation", || Tensor::ones([4])?.add(1)))?;
/// assert!(profile.rows().iter().any(|row| row.name() == "preparation"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "record_function")]
pub fn scope<R>(name: impl Into<Name>, f: impl FnOnce() -> R) -> R {
    if !flags::has(flags::PROFILE) {
        return f();
    }
    let scope = events::open(Cow::Owned(name.into().to_string()), Kind::Scope, false);
    let done = f();
    events::leave(scope);
    done
}

/// The measurements of [`profile`](profile()). It prints as a table.
///
/// ```
/// use cotangent::{Tensor, profile};
/// let x = Tensor::randn([64, 64])?;
/// let (_, profile) = profile(|| x.matmul(&x)?.exp()?.sum(..))?;
/// println!("{profile}");
/// for row in profile.rows() {
///     println!("{} took {:?}", row.name(), row.total_time());
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile(Finished);

impl Profile {
    /// The time from the beginning to the end, including waiting for GPUs.
    pub fn wall_time(&self) -> Duration {
        self.0.wall
    }

    /// A row for each operation in each pass, sorted by self time, the largest first.
    pub fn rows(&self) -> Vec<Row> {
        Totals::of(&self.0.events).rows()
    }

    /// Writes a trace that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open: every operation as a bar, by thread
    /// and GPU, and the memory in use as a curve.
    ///
    /// ```
    /// use cotangent::{Tensor, profile};
    /// # let folder = std::env::temp_dir().join(format!("cotangent-doc-trace-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let (_, profile) = profile(|| Tensor::ones([8, 8])?.sum(..))?;
    /// profile.save_trace(folder.join("trace.json"))?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    #[doc(alias = "export_chrome_trace")]
    #[track_caller]
    pub fn save_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        named("Profile::save_trace", trace::save(self, path.as_ref()))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rows::table(&self.rows(), self.0.wall))
    }
}
