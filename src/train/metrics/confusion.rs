//! The confusion matrix.

use super::Metric;
use super::classes::{ClassCounts, counted};
use crate::error::bail;
use crate::{Result, Tensor};
use cotangent_macros::named;
use std::fmt;

/// The confusion matrix: counts with targets as rows and predictions as columns.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{ConfusionMatrix, Metric};
/// let mut matrix = ConfusionMatrix::new(2)?;
/// matrix.update(&tensor!([0, 1, 1])?, &tensor!([0, 0, 1])?)?;
/// assert_eq!((matrix.count(0, 0), matrix.count(0, 1), matrix.count(1, 0)), (1, 1, 0));
/// println!("{matrix}");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfusionMatrix {
    classes: usize,
    threshold: Option<f64>,
    ignored: Option<i64>,
    /// Row by row.
    counts: Vec<u64>,
}

/// The most classes of a matrix.
const MOST: usize = 10_000;

impl ConfusionMatrix {
    /// A matrix of `classes` classes.
    ///
    /// # Errors
    /// If there are no classes, or more than 10 000.
    #[named("ConfusionMatrix::new")]
    pub fn new(classes: usize) -> Result<ConfusionMatrix> {
        if classes == 0 || classes > MOST {
            bail!(Value, "ConfusionMatrix::new", "classes must be in [1, {MOST}], got {classes}");
        }
        Ok(ConfusionMatrix { classes, threshold: None, ignored: None, counts: vec![0; classes * classes] })
    }

    /// The score above which class 1 is predicted, for predictions of one number. Unless set: 0.5, and scores must be
    /// probabilities.
    #[must_use]
    pub fn threshold(mut self, threshold: f64) -> ConfusionMatrix {
        self.threshold = Some(threshold);
        self
    }

    /// A target that is ignored, such as padding.
    #[must_use]
    pub fn ignore_index(mut self, class: i64) -> ConfusionMatrix {
        self.ignored = Some(class);
        self
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The number of examples of `target` with the prediction `predicted`; 0 for an invalid class.
    pub fn count(&self, target: usize, predicted: usize) -> u64 {
        if target < self.classes && predicted < self.classes {
            self.counts[target * self.classes + predicted]
        } else {
            0
        }
    }

    /// The matrix as a tensor of integers, `[classes, classes]`.
    ///
    /// # Errors
    /// If memory runs out.
    #[named("ConfusionMatrix::to_tensor")]
    pub fn to_tensor(&self) -> Result<Tensor> {
        Tensor::from_vec(self.counts.iter().map(|&n| n as i64).collect::<Vec<_>>(), [self.classes, self.classes])
    }

    fn class_counts(&self) -> ClassCounts {
        let n = self.classes;
        ClassCounts {
            hits: (0..n).map(|k| self.count(k, k)).collect(),
            predicted: (0..n).map(|k| (0..n).map(|target| self.count(target, k)).sum()).collect(),
            actual: (0..n).map(|k| (0..n).map(|predicted| self.count(k, predicted)).sum()).collect(),
        }
    }

    /// The recall of each class: the share of correct predictions among its examples.
    pub fn recall(&self) -> Vec<f64> {
        self.class_counts().each(super::classes::RECALL)
    }

    /// The precision of each class: the share of correct predictions among its predictions.
    pub fn precision(&self) -> Vec<f64> {
        self.class_counts().each(super::classes::PRECISION)
    }

    /// The F1 score of each class.
    pub fn f1(&self) -> Vec<f64> {
        self.class_counts().each(super::classes::F1_FIGURE)
    }
}

/// As a metric, the accuracy.
impl Metric for ConfusionMatrix {
    fn name(&self) -> String {
        "accuracy".into()
    }

    #[named("ConfusionMatrix::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "ConfusionMatrix::update";
        let (predicted, actual) = counted(OP, self.classes, prediction, target, self.threshold, self.ignored)?;
        for (predicted, actual) in predicted.into_iter().zip(actual) {
            self.counts[actual as usize * self.classes + predicted as usize] += 1;
        }
        Ok(())
    }

    #[named("ConfusionMatrix::compute")]
    fn compute(&self) -> Result<f64> {
        let all: u64 = self.counts.iter().sum();
        if all == 0 {
            return Err(super::nothing("ConfusionMatrix::compute"));
        }
        Ok((0..self.classes).map(|k| self.count(k, k)).sum::<u64>() as f64 / all as f64)
    }

    fn reset(&mut self) {
        self.counts.fill(0);
    }
}

/// A table with targets as rows and predictions as columns.
impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.counts.iter().max().copied().unwrap_or(0).max(self.classes as u64);
        let width = most.to_string().len();
        write!(f, "{:>width$}", "")?;
        (0..self.classes).try_for_each(|k| write!(f, " {k:>width$}"))?;
        for row in 0..self.classes {
            write!(f, "\n{row:>width$}")?;
            (0..self.classes).try_for_each(|k| write!(f, " {:>width$}", self.count(row, k)))?;
        }
        Ok(())
    }
}
