//! Connectionist temporal classification (CTC).

use crate::error::bail;
use crate::memory::scratch::with_room;
use crate::ops::loss::cross_entropy::{from_reduction, loss_dtype};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::PadOptions;
use crate::options::options;
use crate::{DType, Reduction, Result, Tensor};

options! {
    /// The options of [`Tensor::ctc_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::CtcLossOptions};
    /// // One step is too short for two labels.
    /// let (x, labels) = (Tensor::zeros([1, 3])?.log_softmax(1)?, tensor!([1, 2])?);
    /// let options = CtcLossOptions::new().zero_infinity(true);
    /// let loss = x.ctc_loss_with(&labels, &tensor!(1)?, &tensor!(2)?, options)?;
    /// assert_eq!(loss.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CtcLossOptions {
        /// The blank class.
        blank: i64 = 0,
        /// How the losses are reduced. The mean divides each loss by its target length first.
        reduction: Reduction = Reduction::Mean,
        /// Whether infinite losses and their gradients are replaced by 0.
        zero_infinity: bool = false,
    }
}

from_reduction!(CtcLossOptions);

/// Replaces the logarithm of 0: finite, so that no derivative is NaN, and far below any sum of log-probabilities.
const NEVER: f64 = -1e30;

/// The sequences of a batch, with everything on the device of the probabilities.
struct Batch {
    /// Log-probabilities, `[time, batch, classes]`.
    log_probs: Tensor,
    /// Labels with blanks between and around them, `[batch, 2 · most + 1]`, padded with blanks.
    states: Tensor,
    /// 0 where a state can be reached from two states before, skipping a blank; `NEVER` elsewhere.
    skips: Tensor,
    /// `[batch]`, as is `target_lengths`.
    input_lengths: Tensor,
    target_lengths: Tensor,
}

const OP: &str = "ctc_loss";

/// Checks lengths, each at most `most`, and returns them.
fn lengths(what: &str, x: &Tensor, batch: usize, most: usize) -> Result<Vec<i64>> {
    if !x.dtype().is_int() {
        bail!(DType, OP, "{what} must be integers, got {}", x.dtype());
    }
    if x.rank() > 1 || x.numel() != batch {
        bail!(Shape, OP, "{what} must have {batch} elements, got shape {:?}", x.shape());
    }
    let all = x.detach().to_dtype(DType::I64)?.to_vec::<i64>()?;
    if let Some(bad) = all.iter().find(|&&length| !usize::try_from(length).is_ok_and(|length| length <= most)) {
        bail!(Value, OP, "{what} must be in [0, {most}], got {bad}");
    }
    Ok(all)
}

impl Batch {
    #[track_caller]
    fn new(x: &Tensor, targets: &Tensor, input_lengths: &Tensor, target_lengths: &Tensor, blank: i64) -> Result<Batch> {
        let [time, batch, classes] = *x.shape() else {
            bail!(Shape, OP, "input must have shape [time, batch, classes] or [time, classes], got {:?}", x.shape());
        };
        if !(0..classes as i64).contains(&blank) {
            bail!(Value, OP, "blank must be one of {classes} classes, got {blank}");
        }
        if !targets.dtype().is_int() {
            bail!(DType, OP, "targets must be integers, got {}", targets.dtype());
        }
        let input_lengths = lengths("input_lengths", input_lengths, batch, time)?;
        let concatenated = targets.rank() == 1;
        let fits = if concatenated { true } else { targets.rank() == 2 && targets.shape()[0] == batch };
        if !fits {
            bail!(Shape, OP, "targets must be a vector or have {batch} rows, got shape {:?}", targets.shape());
        }
        let widest = if concatenated { targets.numel() } else { targets.shape()[1] };
        let target_lengths = lengths("target_lengths", target_lengths, batch, widest)?;
        let most = target_lengths.iter().copied().max().unwrap_or(0) as usize;
        let given = targets.detach().to_dtype(DType::I64)?.to_vec::<i64>()?;
        if concatenated && target_lengths.iter().sum::<i64>() != given.len() as i64 {
            bail!(Shape, OP, "target_lengths must sum to {} targets, got {target_lengths:?}", given.len());
        }
        let width = 2 * most + 1;
        // About twice the number of targets, with the padding.
        let count = batch.saturating_mul(width);
        let (mut states, mut skips) = (with_room::<i64>(OP, count)?, with_room::<f64>(OP, count)?);
        let mut start = 0;
        for (number, &length) in target_lengths.iter().enumerate() {
            let length = length as usize;
            let from = if concatenated { start } else { number * widest };
            start += length;
            let own = &given[from..from + length];
            if let Some(bad) = own.iter().find(|&&label| !(0..classes as i64).contains(&label) || label == blank) {
                bail!(
                    Index,
                    OP,
                    "label {bad} of sequence {number} is out of range for {classes} classes, or the blank"
                );
            }
            for state in 0..width {
                let label = own.get(state / 2).filter(|_| state % 2 == 1);
                let before = (state / 2).checked_sub(1).and_then(|at| own.get(at));
                states.push(label.copied().unwrap_or(blank));
                skips.push(if label.is_some() && before.is_some() && label != before { 0.0 } else { NEVER });
            }
        }
        let shape = [batch, width];
        let device = x.device();
        Ok(Batch {
            log_probs: x.maximum(NEVER)?,
            states: Tensor::from_vec(states, shape)?.to_device(device)?,
            skips: Tensor::from_vec(skips, shape)?.to_dtype(x.dtype())?.to_device(device)?,
            input_lengths: Tensor::from_vec(input_lengths, batch)?.to_device(device)?,
            target_lengths: Tensor::from_vec(target_lengths, batch)?.to_device(device)?,
        })
    }

    /// The negative log-probability of each label sequence; large and finite for an impossible one.
    fn losses(&self) -> Result<Tensor> {
        let (time, width) = (self.log_probs.shape()[0], self.states.shape()[1]);
        // A path begins with a blank or with the first label.
        let numbers = Tensor::arange_with(0, width, self.states.device())?;
        let ends = self.target_lengths.mul(2)?.unsqueeze(1)?;
        let begins = numbers.le(&ends.minimum(1)?)?;
        let mut paths = begins.where_(0.0, NEVER)?.to_dtype(self.log_probs.dtype())?;
        for step in 0..time {
            let emitted = self.log_probs.select(0, step)?.gather(1, &self.states)?;
            let reached = if step == 0 {
                paths.add(&emitted)?
            } else {
                let shifted = |by: usize| {
                    let pad = PadOptions::new().value(NEVER);
                    paths.pad_with(&[by as isize, -(by as isize)], pad)
                };
                let steps = paths.logaddexp(&shifted(1)?)?;
                // A batch without labels has only one state.
                let all = if width > 1 { steps.logaddexp(&shifted(2)?.add(&self.skips)?)? } else { paths.clone() };
                all.add(&emitted)?
            };
            let goes_on = self.input_lengths.gt(step)?.unsqueeze(1)?;
            paths = goes_on.where_(&reached, &paths)?;
        }
        // A path ends with the last label or with the blank after it.
        let last = paths.gather(1, &ends)?;
        let with_label = paths.gather(1, &ends.sub(1)?.maximum(0)?)?;
        let with_label = ends.gt(0)?.where_(&with_label, NEVER)?;
        last.logaddexp(&with_label)?.squeeze(1)?.neg()
    }
}

/// # Sequence losses
#[ops]
impl Tensor {
    /// The connectionist temporal classification loss: the negative log-probability of label sequences under
    /// log-probabilities of shape `[time, batch, classes]` or `[time, classes]`, summed over all alignments with
    /// repeated labels and blanks. The labels are `[batch, longest]`, or concatenated. The mean divides each loss by
    /// the length of its labels first.
    ///
    /// The gradient is that of the given log-probabilities. PyTorch's gradient assumes that they come from a `log_softmax`;
    /// after one both are equal.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// // Of all two steps, these give the label 1: (1, 1), (1, blank), (blank, 1).
    /// let x = Tensor::zeros([2, 2])?.log_softmax(1)?;
    /// let loss = x.ctc_loss(&tensor!([1])?, &tensor!(2)?, &tensor!(1)?)?;
    /// assert!((loss.item::<f32>()? + 0.75_f32.ln()).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or lengths do not match, a label is out of range or the blank, or the input is not floating point.
    #[op(samples = ctc_samples, errors = ctc_errors, rounds, tolerance = 10.0)]
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &Tensor,
        target_lengths: &Tensor,
        options: impl Into<CtcLossOptions>,
    ) -> Result<Tensor> {
        let CtcLossOptions { blank, reduction, zero_infinity } = options;
        if !self.dtype().is_float() {
            bail!(DType, OP, "not defined for {}: cast to a float with to_dtype first", self.dtype());
        }
        let single = self.rank() == 2;
        let x = self.to_dtype(loss_dtype(OP, &[self])?)?;
        let x = if single { x.unsqueeze(1)? } else { x };
        let batch = Batch::new(&x, targets, input_lengths, target_lengths, blank)?;
        let losses = batch.losses()?;
        let impossible = losses.detach().gt(-NEVER / 10.0)?;
        let losses = impossible.where_(if zero_infinity { 0.0 } else { f64::INFINITY }, &losses)?;
        match reduction {
            Reduction::None if single => losses.squeeze(0),
            Reduction::Mean => Reduction::Mean.of(&losses.div(&batch.target_lengths.maximum(1)?.to_dtype(x.dtype())?)?),
            reduction => reduction.of(&losses),
        }
    }
}

fn ctc_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| normal(shape, 1)?.log_softmax(-1);
    let padded = ints(&[1, 2, 2, 3, 1, 0], [2, 3])?;
    let mut all = Vec::new();
    for reduction in crate::ops::loss::cross_entropy::REDUCTIONS {
        let sample = sample![x(&[6, 2, 4])?, &padded, ints(&[6, 5], [2])?, ints(&[3, 2], [2])?; reduction = reduction];
        all.push(sample);
    }
    let flat = ints(&[0, 2, 2, 1], [4])?;
    all.push(sample![x(&[5, 2, 4])?, &flat, ints(&[5, 4], [2])?, ints(&[3, 1], [2])?; blank = 3]);
    all.push(sample![x(&[4, 3])?, ints(&[1, 2], [2])?, ints(&[4], [])?, ints(&[2], [])?]);
    // No labels at all, and more labels than steps.
    all.push(sample![x(&[3, 2, 3])?, ints(&[1, 1, 1, 1], [2, 2])?, ints(&[3, 2], [2])?, ints(&[0, 2], [2])?; zero_infinity = true]);
    all.push(sample![x(&[2, 3])?, ints(&[], [0])?, ints(&[2], [1])?, ints(&[0], [1])?]);
    Ok(all)
}

fn ctc_errors() -> Result<Vec<ErrorCase>> {
    let (x, labels) = (normal([4, 2, 3], 1)?, ints(&[1, 2, 1, 1], [2, 2])?);
    let (long, short) = (ints(&[4, 4], [2])?, ints(&[2, 2], [2])?);
    Ok(vec![
        error!["one dimension", "[3]"; sample![normal([3], 1)?, &labels, &long, &short]],
        error!["a label that is not there", "label 3", "3 classes"; sample![&x, ints(&[1, 3, 1, 1], [2, 2])?, &long, &short]],
        error!["the blank as a label", "label 0"; sample![&x, ints(&[1, 0, 1, 1], [2, 2])?, &long, &short]],
        error!["another batch", "[3, 1]", "2"; sample![&x, ints(&[1, 1, 1], [3, 1])?, &long, &short]],
        error!["too long", "input_lengths", "5"; sample![&x, &labels, ints(&[4, 5], [2])?, &short]],
        error!["more labels than there are", "target_lengths", "3"; sample![&x, &labels, &long, ints(&[3, 1], [2])?]],
        error!["too few lengths", "[1]"; sample![&x, &labels, ints(&[4], [1])?, &short]],
        error!["lengths that do not add up", "3 targets"; sample![&x, ints(&[1, 1, 1], [3])?, &long, &short]],
        error!["another blank", "3", "3 classes"; sample![&x, &labels, &long, &short; blank = 3]],
        error!["integers", "i64"; sample![Tensor::zeros_with([4, 2, 3], DType::I64)?, &labels, &long, &short]],
        error!["floats as labels", "f64"; sample![&x, normal([2, 2], 1)?, &long, &short]],
        error!["floats as lengths", "f64"; sample![&x, &labels, normal([2], 1)?, &short]],
    ])
}
