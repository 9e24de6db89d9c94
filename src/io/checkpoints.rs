//! A folder that keeps the last and the best checkpoints.
#![forbid(unsafe_code)]

use super::replace::remove_leftovers;
use super::{Checkpoint, Value};
use crate::error::{bail, named};
use crate::order::sort_by;
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

const SAVE: &str = "Checkpoints::save";
const OPEN: &str = "Checkpoints::new";

/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The lower one: losses, errors.
    Lower,
    /// The higher one: accuracies.
    Higher,
}

/// A folder with the checkpoints of a run: `step-00000000100.ckpt` and so on. Saving removes the checkpoints that are neither
/// among the last nor among the best. Metrics are read from the files, so that a resumed run knows the best.
///
/// ```
/// use cotangent::io::{Better, Checkpoint, Checkpoints};
/// use cotangent::nn::Linear;
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-checkpoints-{}", std::process::id()));
/// let model = Linear::new(3, 2)?;
/// let checkpoints = Checkpoints::new(&folder)?.keep_last(1).keep_best(1, "loss", Better::Lower);
/// for (step, loss) in [(100, 0.5), (200, 0.2), (300, 0.3), (400, 0.4)] {
///     let mut checkpoint = Checkpoint::new();
///     checkpoint.add("model", &model)?;
///     checkpoint.set("loss", loss);
///     checkpoints.save(step, &checkpoint)?;
/// }
/// assert_eq!(checkpoints.steps()?, [200, 400]);
/// assert_eq!(checkpoints.best()?.map(|(step, _)| step), Some(200));
/// if let Some((step, path)) = checkpoints.last()? {
///     println!("going on after step {step}");
///     let checkpoint = Checkpoint::load(path)?;
/// }
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Checkpoints {
    folder: PathBuf,
    last: usize,
    best: Option<(usize, String, Better)>,
}

impl Checkpoints {
    /// The checkpoints in a folder, which is created if missing. All are kept unless set otherwise.
    ///
    /// # Errors
    /// If the folder cannot be created.
    #[track_caller]
    pub fn new(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let folder = folder.as_ref().to_path_buf();
        let made = fs::create_dir_all(&folder).map_err(|source| Error::io(OPEN, &folder, source));
        named(OPEN, made)?;
        Ok(Checkpoints { folder, last: usize::MAX, best: None })
    }

    /// Keeps the last `count` checkpoints, at least one.
    pub fn keep_last(mut self, count: usize) -> Checkpoints {
        self.last = count.max(1);
        self
    }

    /// Also keeps the best `count` checkpoints by a value that every checkpoint must have, set with [`Checkpoint::set`]. NaN
    /// is never the best. Of equal values the earlier is better.
    pub fn keep_best(mut self, count: usize, metric: impl Into<String>, better: Better) -> Checkpoints {
        self.best = Some((count, metric.into(), better));
        self
    }

    /// Saves a checkpoint, and then removes those that are not to be kept.
    ///
    /// # Errors
    /// If the checkpoint lacks the metric of [`keep_best`](Self::keep_best), or a file cannot be written, read or removed.
    #[track_caller]
    pub fn save(&self, step: u64, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let save = || {
            if let Some((_, metric, _)) = &self.best {
                checkpoint.values().f64(metric)?;
            }
            let path = self.path(step);
            checkpoint.save(&path)?;
            self.remove_others(step)?;
            remove_leftovers(&self.folder).map_err(|source| Error::io(SAVE, &self.folder, source))?;
            Ok(path)
        };
        named(SAVE, save())
    }

    /// The steps of the checkpoints in the folder, in order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    #[track_caller]
    pub fn steps(&self) -> Result<Vec<u64>> {
        const OP: &str = "Checkpoints::steps";
        let io = |source| Error::io(OP, &self.folder, source);
        let read = || {
            let mut steps = Vec::new();
            for entry in fs::read_dir(&self.folder).map_err(io)? {
                let name = entry.map_err(io)?.file_name();
                let number = name.to_str().and_then(|name| name.strip_prefix("step-")?.strip_suffix(".ckpt"));
                steps.extend(
                    number.and_then(|number| number.parse::<u64>().ok()).filter(|step| self.path(*step).exists()),
                );
            }
            steps.sort_unstable();
            Ok(steps)
        };
        named(OP, read())
    }

    /// The last checkpoint: its step and its file.
    ///
    /// # Errors
    /// If the folder cannot be read.
    #[doc(alias = "latest")]
    #[track_caller]
    pub fn last(&self) -> Result<Option<(u64, PathBuf)>> {
        let steps = named("Checkpoints::last", self.steps())?;
        Ok(steps.last().map(|step| (*step, self.path(*step))))
    }

    /// The best checkpoint: its step and its file.
    ///
    /// # Errors
    /// If [`keep_best`](Self::keep_best) is not set, or a file cannot be read.
    #[track_caller]
    pub fn best(&self) -> Result<Option<(u64, PathBuf)>> {
        const OP: &str = "Checkpoints::best";
        let find = || {
            if self.best.is_none() {
                bail!(Value, OP, "no metric to compare by: call keep_best first");
            }
            let steps = self.steps()?;
            Ok(self.ranked(&steps)?.first().map(|step| (*step, self.path(*step))))
        };
        named(OP, find())
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step-{step:011}.ckpt"))
    }

    /// Steps sorted by metric, the best first, without those that have none.
    fn ranked(&self, steps: &[u64]) -> Result<Vec<u64>> {
        let Some((_, metric, better)) = &self.best else { return Ok(Vec::new()) };
        let mut ranked = Vec::new();
        for step in steps {
            let value = Checkpoint::peek(&self.path(*step))?.get(metric).and_then(Value::as_f64);
            ranked.extend(value.filter(|value| !value.is_nan()).map(|value| (value, *step)));
        }
        // Of equal ones the earlier stays first.
        sort_by(&mut ranked, |a, b| match better {
            Better::Lower => a.0.total_cmp(&b.0),
            Better::Higher => b.0.total_cmp(&a.0),
        });
        Ok(ranked.into_iter().map(|(_, step)| step).collect())
    }

    fn remove_others(&self, saved: u64) -> Result<()> {
        let steps = self.steps()?;
        let best = self.ranked(&steps)?;
        let best = &best[..best.len().min(self.best.as_ref().map_or(0, |best| best.0))];
        let last = &steps[steps.len() - steps.len().min(self.last)..];
        for step in steps.iter().filter(|step| **step != saved && !last.contains(step) && !best.contains(step)) {
            let path = self.path(*step);
            fs::remove_file(&path).map_err(|source| Error::io(SAVE, &path, source))?;
        }
        Ok(())
    }
}
