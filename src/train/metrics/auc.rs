//! The area under the ROC curve.

use super::{Average, Metric, check_range, check_scores, nothing, numbers, target_classes};
use crate::error::bail;
use crate::{Result, Tensor};
use cotangent_macros::named;

/// The area under the ROC curve: the probability that an example of a class has a higher score for it than an example of
/// another class, where equal scores count half. All scores are kept, so the result is exact.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{Metric, RocAuc};
/// let mut auc = RocAuc::binary();
/// auc.update(&tensor!([0.1, 0.4, 0.35, 0.8])?, &tensor!([0, 0, 1, 1])?)?;
/// assert_eq!(auc.compute()?, 0.75);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RocAuc {
    /// `None` for two classes with one score.
    classes: Option<(usize, Average)>,
    /// A score for each class of each example, or one for each example.
    scores: Vec<f64>,
    targets: Vec<i64>,
}

impl RocAuc {
    /// For two classes: predictions are scores of class 1, of any scale, with the shape of the targets.
    pub fn binary() -> RocAuc {
        RocAuc { classes: None, scores: Vec::new(), targets: Vec::new() }
    }

    /// For several classes, each against the others: predictions are probabilities `[n, classes, ..]`, as from softmax.
    ///
    /// # Errors
    /// If there are fewer than two classes, or the average is [`Average::Binary`].
    #[named("RocAuc::one_vs_rest")]
    pub fn one_vs_rest(classes: usize, average: Average) -> Result<RocAuc> {
        const OP: &str = "RocAuc::one_vs_rest";
        if classes < 2 {
            bail!(Value, OP, "classes must be at least 2, got {classes}");
        }
        if average == Average::Binary {
            bail!(Value, OP, "average must not be Binary: use RocAuc::binary()");
        }
        Ok(RocAuc { classes: Some((classes, average)), scores: Vec::new(), targets: Vec::new() })
    }
}

impl Metric for RocAuc {
    fn name(&self) -> String {
        "auc".into()
    }

    #[named("RocAuc::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "RocAuc::update";
        let targets = target_classes(OP, target)?;
        let classes = self.classes.map(|(classes, _)| classes);
        let scores = match classes {
            None if prediction.shape() != target.shape() => bail!(
                Shape,
                OP,
                "scores (of class 1) and targets must have the same shape, got {:?} and {:?}",
                prediction.shape(),
                target.shape()
            ),
            None => numbers(OP, "scores", prediction)?,
            Some(classes) => {
                check_scores(OP, prediction, target)?;
                if prediction.shape()[1] != classes {
                    bail!(Shape, OP, "expected scores of {classes} classes, got {}", prediction.shape()[1]);
                }
                let scores = numbers(OP, "scores", &prediction.detach().movedim(1, -1)?)?;
                check_probabilities(OP, classes, &scores)?;
                scores
            }
        };
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            bail!(Value, OP, "score {at} is NaN");
        }
        check_range(OP, "target", classes.unwrap_or(2), &targets)?;
        self.scores.extend(scores);
        self.targets.extend(targets);
        Ok(())
    }

    #[named("RocAuc::compute")]
    fn compute(&self) -> Result<f64> {
        const OP: &str = "RocAuc::compute";
        if self.targets.is_empty() {
            return Err(nothing(OP));
        }
        let Some((classes, average)) = self.classes else {
            let positive = self.targets.iter().map(|&target| target == 1);
            return area(OP, 1, self.scores.iter().copied().zip(positive).collect());
        };
        let of = |class: usize| self.scores.iter().skip(class).step_by(classes).copied();
        let is = |class: usize| self.targets.iter().map(move |&target| target == class as i64);
        if average == Average::Micro {
            let all = (0..classes).flat_map(|class| of(class).zip(is(class)));
            return area(OP, 0, all.collect());
        }
        let areas = (0..classes)
            .map(|class| area(OP, class, of(class).zip(is(class)).collect()))
            .collect::<Result<Vec<f64>>>()?;
        Ok(match average {
            Average::Weighted => {
                let counts = (0..classes).map(|class| is(class).filter(|&is| is).count() as f64);
                areas.iter().zip(counts).map(|(area, n)| area * n).sum::<f64>() / self.targets.len() as f64
            }
            _ => areas.iter().sum::<f64>() / classes as f64,
        })
    }

    fn reset(&mut self) {
        self.scores.clear();
        self.targets.clear();
    }
}

/// A class is ranked against the others by its scores in all examples, which must have one scale. Logits do not, and would
/// give a wrong result.
fn check_probabilities(op: &'static str, classes: usize, scores: &[f64]) -> Result<()> {
    for (at, row) in scores.chunks_exact(classes).enumerate() {
        let sum: f64 = row.iter().sum();
        // The tolerance allows for half precision.
        if !((sum - 1.0).abs() < 0.02 && row.iter().all(|p| (0.0..=1.0).contains(p))) {
            bail!(Value, op, "scores must be probabilities, those of example {at} sum to {sum}: apply softmax(1)");
        }
    }
    Ok(())
}

/// The area by ranks. Equal scores share the mean of their ranks.
fn area(op: &'static str, class: usize, mut examples: Vec<(f64, bool)>) -> Result<f64> {
    examples.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let positives = examples.iter().filter(|(_, is)| *is).count() as f64;
    let negatives = examples.len() as f64 - positives;
    if positives == 0.0 || negatives == 0.0 {
        let there = if positives == 0.0 { "no" } else { "only" };
        bail!(Value, op, "AUC of class {class} requires examples of it and of others, got {there} examples of it");
    }
    let (mut ranks, mut before) = (0.0, 0);
    // -0.0 and 0.0 are equal scores, though `total_cmp` orders them.
    for equal in examples.chunk_by(|a, b| a.0 == b.0) {
        let rank = before as f64 + (equal.len() + 1) as f64 / 2.0;
        ranks += rank * equal.iter().filter(|(_, is)| *is).count() as f64;
        before += equal.len();
    }
    Ok((ranks - positives * (positives + 1.0) / 2.0) / (positives * negatives))
}
