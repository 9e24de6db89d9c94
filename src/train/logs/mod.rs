//! Logs: the numbers of a run, by step, in files.
//!
//! ```
//! use cotangent::train::{CsvLog, JsonlLog, Log, TensorBoard};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-logs-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let mut logs: Vec<Box<dyn Log>> = vec![
//!     Box::new(CsvLog::create(folder.join("log.csv"))?),
//!     Box::new(JsonlLog::create(folder.join("log.jsonl"))?),
//!     Box::new(TensorBoard::create(folder.join("runs"))?),
//! ];
//! for step in 0..3 {
//!     for log in &mut logs {
//!         log.log(step, &[("loss", 1.0 / (step + 1) as f64), ("lr", 1e-3)])?;
//!     }
//! }
//! # drop(logs);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod csv;
mod jsonl;
pub(crate) mod png;
mod proto;
mod tensorboard;

pub use csv::CsvLog;
pub use jsonl::JsonlLog;
pub use tensorboard::TensorBoard;

use crate::Result;

/// A log of the numbers of a run.
///
/// ```
/// use cotangent::train::Log;
///
/// /// A custom log.
/// struct Print;
///
/// impl Log for Print {
///     fn log(&mut self, step: u64, values: &[(&str, f64)]) -> cotangent::Result<()> {
///         println!("{step}: {values:?}");
///         Ok(())
///     }
/// }
///
/// Print.log(1, &[("loss", 0.5)])?;
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Log {
    /// Logs the named numbers of a step. A later call may have other names.
    ///
    /// # Errors
    /// If they cannot be written.
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()>;

    /// Writes buffered data to the file.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A borrowed log, which can be used again afterwards.
impl<L: Log + ?Sized> Log for &mut L {
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        (**self).log(step, values)
    }

    fn flush(&mut self) -> Result<()> {
        (**self).flush()
    }
}

impl<L: Log + ?Sized> Log for Box<L> {
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        (**self).log(step, values)
    }

    fn flush(&mut self) -> Result<()> {
        (**self).flush()
    }
}
