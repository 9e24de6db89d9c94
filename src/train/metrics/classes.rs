//! Metrics of classification: accuracy, precision, recall, F1.

use super::{Metric, check_range, check_scores, nothing, predicted_classes, target_classes, without};
use crate::autograd::no_grad;
use crate::error::{bail, err};
use crate::{DType, Result, Tensor};
use cotangent_macros::named;

/// The share of examples whose class is predicted correctly.
///
/// For targets `[n, ..]`, predictions are scores `[n, classes, ..]`, of which the highest counts, or classes of the targets'
/// shape, or for two classes probabilities of class 1 of that shape.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{Accuracy, Metric};
/// let mut accuracy = Accuracy::new();
/// accuracy.update(&tensor!([[2.0, 1.0], [0.0, 3.0]])?, &tensor!([0, 0])?)?;
/// assert_eq!(accuracy.compute()?, 0.5);
/// // Logits of class 1 alone, which is predicted above 0.
/// let mut binary = Accuracy::new().threshold(0.0);
/// binary.update(&tensor!([-1.5, 4.0])?, &tensor!([0, 1])?)?;
/// assert_eq!(binary.compute()?, 1.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    threshold: Option<f64>,
    ignored: Option<i64>,
    correct: u64,
    all: u64,
}

impl Accuracy {
    /// An accuracy without examples.
    pub fn new() -> Accuracy {
        Accuracy::default()
    }

    /// The score above which class 1 is predicted, for predictions of one number. Unless set: 0.5, and scores must be
    /// probabilities.
    #[must_use]
    pub fn threshold(mut self, threshold: f64) -> Accuracy {
        self.threshold = Some(threshold);
        self
    }

    /// A target that is ignored, such as padding.
    #[must_use]
    pub fn ignore_index(mut self, class: i64) -> Accuracy {
        self.ignored = Some(class);
        self
    }
}

impl Metric for Accuracy {
    fn name(&self) -> String {
        "accuracy".into()
    }

    #[named("Accuracy::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "Accuracy::update";
        let classes = target_classes(OP, target)?;
        let predicted = predicted_classes(OP, prediction, target, self.threshold)?;
        let (predicted, classes) = without(self.ignored, predicted, classes);
        if prediction.shape() != target.shape() {
            check_range(OP, "target", prediction.shape()[1], &classes)?;
        }
        self.correct += predicted.iter().zip(&classes).filter(|(a, b)| a == b).count() as u64;
        self.all += classes.len() as u64;
        Ok(())
    }

    #[named("Accuracy::compute")]
    fn compute(&self) -> Result<f64> {
        if self.all == 0 {
            return Err(nothing("Accuracy::compute"));
        }
        Ok(self.correct as f64 / self.all as f64)
    }

    fn reset(&mut self) {
        (self.correct, self.all) = (0, 0);
    }
}

/// The share of examples whose class is among the `k` classes with the highest scores. Of equal scores the lower class comes
/// first, as with [`Tensor::argmax`]; NaN comes last.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{Metric, TopKAccuracy};
/// let mut top2 = TopKAccuracy::new(2)?;
/// top2.update(&tensor!([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])?, &tensor!([1, 2])?)?;
/// assert_eq!(top2.compute()?, 0.5);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TopKAccuracy {
    k: usize,
    ignored: Option<i64>,
    correct: u64,
    all: u64,
}

impl TopKAccuracy {
    /// The accuracy of the `k` highest scores.
    ///
    /// # Errors
    /// If `k` is 0.
    #[named("TopKAccuracy::new")]
    pub fn new(k: usize) -> Result<TopKAccuracy> {
        if k == 0 {
            bail!(Value, "TopKAccuracy::new", "k must be positive, got 0");
        }
        Ok(TopKAccuracy { k, ignored: None, correct: 0, all: 0 })
    }

    /// A target that is ignored, such as padding.
    #[must_use]
    pub fn ignore_index(mut self, class: i64) -> TopKAccuracy {
        self.ignored = Some(class);
        self
    }
}

impl Metric for TopKAccuracy {
    fn name(&self) -> String {
        format!("top{}_accuracy", self.k)
    }

    #[named("TopKAccuracy::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "TopKAccuracy::update";
        check_scores(OP, prediction, target)?;
        let (classes, scored) = (target_classes(OP, target)?, prediction.shape()[1]);
        if self.k > scored {
            bail!(Value, OP, "k must be at most {scored}, the number of classes, got {}", self.k);
        }
        let counted: Vec<i64> = classes.iter().copied().filter(|&class| Some(class) != self.ignored).collect();
        check_range(OP, "target", scored, &counted)?;
        let ranks = no_grad(|| ranks(&prediction.detach(), target, self.ignored))?;
        let counts = |class: i64| Some(class) != self.ignored;
        let hits = ranks.iter().zip(&classes).filter(|&(&rank, &class)| counts(class) && rank < self.k as i64).count();
        self.correct += hits as u64;
        self.all += counted.len() as u64;
        Ok(())
    }

    #[named("TopKAccuracy::compute")]
    fn compute(&self) -> Result<f64> {
        if self.all == 0 {
            return Err(nothing("TopKAccuracy::compute"));
        }
        Ok(self.correct as f64 / self.all as f64)
    }

    fn reset(&mut self) {
        (self.correct, self.all) = (0, 0);
    }
}

/// The rank of each target by its score among `[n, classes, ..]`, computed on the device of the scores.
fn ranks(scores: &Tensor, target: &Tensor, ignored: Option<i64>) -> Result<Vec<i64>> {
    let mut target = target.to_dtype(DType::I64)?.to_device(scores.device())?;
    if let Some(ignored) = ignored {
        // Any class will do, as the result is not counted.
        target = target.masked_fill(&target.eq(ignored)?, 0)?;
    }
    let (target, classes) = (target.unsqueeze(1)?, scores.shape()[1]);
    let own = scores.gather(1, &target)?;
    // Written so that NaN, also as the score of the target, is never among the highest.
    let not_above = scores.le(&own)?.sum(1)?;
    let mut shape = vec![1; scores.rank()];
    shape[1] = classes;
    let numbers = Tensor::arange(0, classes as i64)?.to_device(scores.device())?.reshape(shape)?;
    let before = scores.eq(&own)?.logical_and(&numbers.lt(&target)?)?.sum(1)?;
    not_above.neg()?.add(classes as i64)?.add(&before)?.to_vec()
}

/// How the values of several classes are averaged, as in scikit-learn.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{Average, F1, Metric};
/// let (predicted, target) = (tensor!([0, 1, 1, 2])?, tensor!([0, 1, 2, 2])?);
/// for (average, expected) in [(Average::Micro, 0.75), (Average::Macro, 7.0 / 9.0)] {
///     let mut f1 = F1::new(3, average)?;
///     f1.update(&predicted, &target)?;
///     assert!((f1.compute()? - expected).abs() < 1e-12);
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Average {
    /// The value of class 1 of two.
    Binary,
    /// Over all examples: each example has the same weight.
    Micro,
    /// The mean over the classes that occur in targets or predictions: each class has the same weight.
    Macro,
    /// The mean over the classes, weighted by their number of targets.
    Weighted,
}

/// The counts of each class.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassCounts {
    pub hits: Vec<u64>,
    pub predicted: Vec<u64>,
    pub actual: Vec<u64>,
}

/// The metric of one class, from its numbers of hits, predictions and targets.
type Figure = fn(u64, u64, u64) -> f64;

/// 0 / 0 is 0, as in scikit-learn.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(super) const PRECISION: Figure = |hits, predicted, _| share(hits, predicted);
pub(super) const RECALL: Figure = |hits, _, actual| share(hits, actual);
pub(super) const F1_FIGURE: Figure = |hits, predicted, actual| share(2 * hits, predicted + actual);

impl ClassCounts {
    pub fn add(&mut self, classes: usize, predicted: &[i64], target: &[i64]) {
        for counts in [&mut self.hits, &mut self.predicted, &mut self.actual] {
            counts.resize(classes, 0);
        }
        for (&predicted, &target) in predicted.iter().zip(target) {
            self.predicted[predicted as usize] += 1;
            self.actual[target as usize] += 1;
            self.hits[target as usize] += u64::from(predicted == target);
        }
    }

    pub fn each(&self, figure: Figure) -> Vec<f64> {
        (0..self.hits.len()).map(|k| figure(self.hits[k], self.predicted[k], self.actual[k])).collect()
    }

    pub fn average(&self, op: &'static str, average: Average, figure: Figure) -> Result<f64> {
        let all: u64 = self.actual.iter().sum();
        if all == 0 {
            return Err(nothing(op));
        }
        let each = self.each(figure);
        Ok(match average {
            Average::Binary => each[1],
            Average::Micro => figure(self.hits.iter().sum(), self.predicted.iter().sum(), all),
            Average::Macro => {
                let occurs = |k: &usize| self.predicted[*k] + self.actual[*k] > 0;
                let present: Vec<f64> = (0..each.len()).filter(occurs).map(|k| each[k]).collect();
                present.iter().sum::<f64>() / present.len() as f64
            }
            Average::Weighted => each.iter().zip(&self.actual).map(|(x, &n)| x * n as f64).sum::<f64>() / all as f64,
        })
    }
}

/// The most classes of a metric, which keeps three numbers for each.
const MOST_CLASSES: usize = 1 << 24;

/// Defines a metric that is averaged over classes.
macro_rules! averaged {
    ($(#[$doc:meta])* $name:ident, $text:literal, $figure:expr, $new:tt $update:tt $compute:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            classes: usize,
            average: Average,
            threshold: Option<f64>,
            ignored: Option<i64>,
            counts: ClassCounts,
        }

        impl $name {
            /// For a number of classes.
            ///
            /// # Errors
            /// If `classes` is 0 or too large, or not 2 for [`Average::Binary`].
            #[named($new)]
            pub fn new(classes: usize, average: Average) -> Result<$name> {
                const OP: &str = $new;
                if classes == 0 || classes > MOST_CLASSES {
                    bail!(Value, OP, "classes must be in [1, {MOST_CLASSES}], got {classes}");
                }
                if average == Average::Binary && classes != 2 {
                    bail!(Value, OP, "Average::Binary requires 2 classes, got {classes}");
                }
                Ok($name { classes, average, threshold: None, ignored: None, counts: ClassCounts::default() })
            }

            /// The score above which class 1 is predicted, for predictions of one number. Unless set: 0.5, and scores must be
            /// probabilities.
            #[must_use]
            pub fn threshold(mut self, threshold: f64) -> $name {
                self.threshold = Some(threshold);
                self
            }

            /// A target that is ignored, such as padding.
            #[must_use]
            pub fn ignore_index(mut self, class: i64) -> $name {
                self.ignored = Some(class);
                self
            }

            /// The value of each class.
            pub fn per_class(&self) -> Vec<f64> {
                self.counts.each($figure)
            }
        }

        impl Metric for $name {
            fn name(&self) -> String {
                $text.into()
            }

            #[named($update)]
            fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
                const OP: &str = $update;
                let (predicted, classes) =
                    counted(OP, self.classes, prediction, target, self.threshold, self.ignored)?;
                self.counts.add(self.classes, &predicted, &classes);
                Ok(())
            }

            #[named($compute)]
            fn compute(&self) -> Result<f64> {
                self.counts.average($compute, self.average, $figure)
            }

            fn reset(&mut self) {
                self.counts = ClassCounts::default();
            }
        }
    };
}

/// The predicted and actual classes of a batch, checked against the number of classes.
pub(crate) fn counted(
    op: &'static str,
    classes: usize,
    prediction: &Tensor,
    target: &Tensor,
    threshold: Option<f64>,
    ignored: Option<i64>,
) -> Result<(Vec<i64>, Vec<i64>)> {
    let actual = target_classes(op, target)?;
    if prediction.shape() == target.shape() && prediction.dtype().is_float() && classes != 2 {
        bail!(
            Shape,
            op,
            "scores of {classes} classes must have shape [n, {classes}, ..], got {:?}",
            prediction.shape()
        );
    }
    let predicted = predicted_classes(op, prediction, target, threshold)?;
    let scored = prediction.shape().get(1).copied().filter(|_| prediction.shape() != target.shape());
    if let Some(scored) = scored.filter(|&scored| scored != classes) {
        return Err(err!(Shape, op, "expected scores of {classes} classes, got {scored}"));
    }
    let (predicted, actual) = without(ignored, predicted, actual);
    check_range(op, "target", classes, &actual)?;
    check_range(op, "prediction", classes, &predicted)?;
    Ok((predicted, actual))
}

averaged! {
    /// The share of correct predictions among the predictions of a class. 0 for a class that was never predicted.
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{Average, Metric, Precision};
    /// let mut precision = Precision::new(2, Average::Binary)?;
    /// precision.update(&tensor!([1, 1, 0])?, &tensor!([1, 0, 0])?)?;
    /// assert_eq!(precision.compute()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Precision, "precision", PRECISION, "Precision::new" "Precision::update" "Precision::compute"
}

averaged! {
    /// The share of correct predictions among the examples of a class. 0 for a class without examples.
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{Average, Metric, Recall};
    /// let mut recall = Recall::new(2, Average::Binary)?;
    /// recall.update(&tensor!([1, 0, 0])?, &tensor!([1, 1, 0])?)?;
    /// assert_eq!(recall.compute()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Recall, "recall", RECALL, "Recall::new" "Recall::update" "Recall::compute"
}

averaged! {
    /// The harmonic mean of [`Precision`] and [`Recall`].
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{Average, F1, Metric};
    /// let mut f1 = F1::new(2, Average::Binary)?;
    /// f1.update(&tensor!([0.9, 0.6, 0.2])?, &tensor!([1, 0, 1])?)?;
    /// assert_eq!(f1.compute()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "f1_score")]
    F1, "f1", F1_FIGURE, "F1::new" "F1::update" "F1::compute"
}
