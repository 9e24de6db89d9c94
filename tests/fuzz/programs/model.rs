//! The reference: tensors that are lists of numbers, copied instead of shared, and scalar derivatives. It says what a step must do,
//! and whether the library may refuse it.

use super::compute::{broadcast, inputs};
use super::steps::{InPlace, Move, Other, Outcome, Place, Step};
use super::tape::{Id, Tape};
use std::collections::BTreeSet;

/// A tensor.
#[derive(Clone)]
pub struct Plain {
    pub shape: Vec<usize>,
    /// Its elements.
    pub at: Vec<Id>,
    /// The numbers that derivatives are taken with respect to: its elements, unless they were changed without the graph.
    own: Vec<Id>,
    /// Whether a gradient is required.
    pub tracks: bool,
    pub leaf: Option<usize>,
    /// The leaves that its graph leads to.
    deps: BTreeSet<usize>,
    /// Whether the graph may lead to fewer leaves than that.
    vague: bool,
    /// Whether it may share memory with a tensor that it is a view of, so that it cannot be changed in place.
    view: bool,
}

/// A leaf, for the time that its values are not changed.
struct Leaf {
    ids: Vec<Id>,
    /// The index of its gradient.
    cell: usize,
    stale: bool,
}

#[derive(Default)]
pub struct Model {
    pub tape: Tape,
    leaves: Vec<Leaf>,
    grads: Vec<Option<Vec<f64>>>,
}

pub enum Fault {
    /// The library did something else.
    Wrong(String),
    /// Numbers are so large, or so close to a discontinuity, that rounding decides: the program ends here.
    Unclear,
}

pub type Outcomes<T> = Result<T, Fault>;

const LARGEST: f64 = 1e3;
const NEAR: f64 = 1e-7;

/// Whether the library must, may or must not refuse a step.
#[derive(Clone, Copy, PartialEq)]
enum Refusal {
    Must,
    May,
    Never,
}

/// Whether the step was taken, if that is correct.
fn was_taken(refusal: Refusal, outcome: &Outcome) -> Outcomes<bool> {
    match (refusal, outcome) {
        (Refusal::Never, Outcome::Refused(message)) => Err(Fault::Wrong(format!("refused: {message}"))),
        (Refusal::Must, Outcome::Done { .. } | Outcome::Nothing) => {
            Err(Fault::Wrong("done, and should be refused".to_string()))
        }
        (_, outcome) => Ok(!matches!(outcome, Outcome::Refused(_))),
    }
}

impl Model {
    pub fn values(&self, plain: &Plain) -> Vec<f64> {
        plain.at.iter().map(|&id| self.tape.value(id)).collect()
    }

    /// The gradient of a leaf, if there is one.
    pub fn grad(&self, plain: &Plain) -> Option<&Vec<f64>> {
        self.grads[self.leaves[plain.leaf?].cell].as_ref()
    }

    /// Takes a step that the library has taken, or reports why the library is wrong.
    pub fn replay(&mut self, slots: &mut Vec<Plain>, (step, without): &Move, outcome: &Outcome) -> Outcomes<()> {
        match step {
            Step::InPlace(kind, a, other) => return self.change(slots, *kind, *a, other, *without, outcome),
            Step::Set(a, place, other) => return self.set(slots, *a, place, other, *without, outcome),
            Step::Backward(a) => return self.backward(&slots[*a].clone(), *without, outcome),
            Step::Grad(y, x) => {
                let grad = self.gradient(&slots[*y].clone(), &slots[*x].clone(), *without, outcome)?;
                slots.extend(grad);
                return Ok(());
            }
            Step::TakeGrad(a) => {
                let grad = self.grad(&slots[*a]).cloned();
                if let Outcome::Done { .. } = outcome {
                    let shape = slots[*a].shape.clone();
                    let values = grad.unwrap_or_else(|| vec![0.0; shape.iter().product()]);
                    let plain = self.given(shape, &values);
                    slots.push(plain);
                }
                return Ok(());
            }
            Step::Drop(a) => {
                slots.swap_remove(*a);
                return Ok(());
            }
            _ => {}
        }
        let inputs = inputs(step);
        let record = !without && inputs.iter().any(|&k| slots[k].tracks);
        let refusal = match step {
            Step::Clone(_) | Step::Detach(_) | Step::Leaf(_) | Step::Create { .. } => Refusal::Never,
            // Nothing is recorded that could be differentiated.
            Step::Fresh(..) => {
                if *without {
                    Refusal::Must
                } else {
                    Refusal::Never
                }
            }
            _ if record && inputs.iter().any(|&k| self.is_stale_leaf(&slots[k])) => Refusal::Must,
            _ => Refusal::Never,
        };
        if !was_taken(refusal, outcome)? {
            return Ok(());
        }
        let new = match step {
            Step::Create { shape, values, leaf } => {
                let plain = self.given(shape.clone(), values);
                if *leaf { self.leaf(plain) } else { plain }
            }
            Step::Clone(a) => slots[*a].clone(),
            Step::Detach(a) => self.detached(&slots[*a]),
            Step::Leaf(a) => {
                let plain = self.detached(&slots[*a]);
                self.leaf(plain)
            }
            Step::Fresh(a, b) => self.fresh(&slots[*a].clone(), &slots[*b].clone()),
            _ => {
                let (shape, ids) = self.compute(step, slots)?;
                let of: Vec<&Plain> = inputs.iter().map(|&k| &slots[k]).collect();
                let mut plain = self.result(shape, &ids, &of, record);
                plain.view = matches!(step, Step::View(..));
                plain
            }
        };
        self.check_size(&new.at)?;
        slots.push(new);
        Ok(())
    }

    pub fn check_size(&self, ids: &[Id]) -> Outcomes<()> {
        let small = |&id: &Id| self.tape.value(id).abs() <= LARGEST;
        if ids.iter().all(small) { Ok(()) } else { Err(Fault::Unclear) }
    }

    /// Whether two numbers differ enough for their order to be certain.
    pub fn check_apart(&self, a: Id, b: f64) -> Outcomes<()> {
        if (self.tape.value(a) - b).abs() > NEAR { Ok(()) } else { Err(Fault::Unclear) }
    }

    fn is_stale_leaf(&self, plain: &Plain) -> bool {
        plain.leaf.is_some_and(|leaf| self.leaves[leaf].stale)
    }

    fn has_stale(&self, plain: &Plain) -> bool {
        plain.deps.iter().any(|&leaf| self.leaves[leaf].stale)
    }

    fn given(&mut self, shape: Vec<usize>, values: &[f64]) -> Plain {
        let at: Vec<Id> = values.iter().map(|&value| self.tape.given(value)).collect();
        Plain {
            shape,
            own: at.clone(),
            at,
            tracks: false,
            leaf: None,
            deps: BTreeSet::new(),
            vague: false,
            view: false,
        }
    }

    fn detached(&mut self, plain: &Plain) -> Plain {
        let values = self.values(plain);
        Plain { view: plain.view, ..self.given(plain.shape.clone(), &values) }
    }

    fn leaf(&mut self, plain: Plain) -> Plain {
        self.grads.push(None);
        self.leaf_with(plain, self.grads.len() - 1)
    }

    fn leaf_with(&mut self, plain: Plain, cell: usize) -> Plain {
        let leaf = self.leaves.len();
        self.leaves.push(Leaf { ids: plain.at.clone(), cell, stale: false });
        Plain { tracks: true, leaf: Some(leaf), deps: BTreeSet::from([leaf]), ..plain }
    }

    /// A tensor of these numbers, which were made from `inputs`.
    fn result(&mut self, shape: Vec<usize>, ids: &[Id], inputs: &[&Plain], record: bool) -> Plain {
        if !record {
            let values: Vec<f64> = ids.iter().map(|&id| self.tape.value(id)).collect();
            return self.given(shape, &values);
        }
        let at: Vec<Id> = ids.iter().map(|&id| self.tape.again(id)).collect();
        Plain {
            shape,
            own: at.clone(),
            at,
            tracks: true,
            leaf: None,
            deps: inputs.iter().flat_map(|plain| plain.deps.iter().copied()).collect(),
            vague: inputs.iter().any(|plain| plain.vague),
            view: false,
        }
    }

    /// A tensor whose values were replaced while nothing was recorded.
    fn replaced(&mut self, plain: &Plain, values: &[f64]) -> Plain {
        if let Some(old) = plain.leaf {
            self.leaves[old].stale = true;
            let given = Plain { view: plain.view, ..self.given(plain.shape.clone(), values) };
            return self.leaf_with(given, self.leaves[old].cell);
        }
        if !plain.tracks {
            return Plain { view: plain.view, ..self.given(plain.shape.clone(), values) };
        }
        let at = plain.at.iter().zip(values).map(|(&id, &value)| self.tape.instead(id, value)).collect();
        Plain { at, ..plain.clone() }
    }

    pub fn other(&mut self, slots: &[Plain], other: &Other) -> Plain {
        match other {
            Other::Number(value) => self.given(vec![], &[*value]),
            Other::Tensor(at) => slots[*at].clone(),
        }
    }

    /// Whether a change of `x` by `value` is recorded, and whether it is refused.
    fn changes(&self, x: &Plain, value: &Plain, record: bool, without: bool) -> Refusal {
        if (!without && x.leaf.is_some()) || (record && self.is_stale_leaf(value)) {
            Refusal::Must
        } else if x.view {
            Refusal::May
        } else {
            Refusal::Never
        }
    }

    fn change(
        &mut self,
        slots: &mut [Plain],
        kind: InPlace,
        a: usize,
        other: &Other,
        without: bool,
        outcome: &Outcome,
    ) -> Outcomes<()> {
        let (x, value) = (slots[a].clone(), self.other(slots, other));
        let keeps = matches!(kind, InPlace::Add | InPlace::Sub | InPlace::Mul);
        let record = !without && (value.tracks || (keeps && x.tracks));
        if !was_taken(self.changes(&x, &value, record, without), outcome)? {
            return Ok(());
        }
        let spread = broadcast(&value.shape, &value.at, &x.shape);
        let one = |(&x, &b): (&Id, &Id)| match kind {
            InPlace::Add => self.tape.add(x, b),
            InPlace::Sub => self.tape.sub(x, b),
            InPlace::Mul => self.tape.mul(x, b),
            InPlace::Fill | InPlace::Copy => b,
        };
        let ids: Vec<Id> = x.at.iter().zip(&spread).map(one).collect();
        self.check_size(&ids)?;
        slots[a] = if record {
            let of: &[&Plain] = if keeps { &[&x, &value] } else { &[&value] };
            self.result(x.shape.clone(), &ids, of, true)
        } else {
            let values: Vec<f64> = ids.iter().map(|&id| self.tape.value(id)).collect();
            // A tensor that was replaced completely does not depend on anything any more, unless it is a leaf.
            let before = if keeps || x.leaf.is_some() { x } else { self.detached(&x) };
            self.replaced(&before, &values)
        };
        Ok(())
    }

    fn set(
        &mut self,
        slots: &mut [Plain],
        a: usize,
        place: &Place,
        other: &Other,
        without: bool,
        outcome: &Outcome,
    ) -> Outcomes<()> {
        let (x, value) = (slots[a].clone(), self.other(slots, other));
        let record = !without && (value.tracks || x.tracks);
        if !was_taken(self.changes(&x, &value, record, without), outcome)? {
            return Ok(());
        }
        let rest = &x.shape[1..];
        let (rows, part): (Vec<usize>, Vec<usize>) = match place {
            Place::All => ((0..x.shape[0]).collect(), x.shape.clone()),
            Place::At(at) => (vec![*at], rest.to_vec()),
            Place::Slice(start, end, step) => {
                let rows: Vec<usize> = (*start..*end).step_by(*step as usize).collect();
                let part = [&[rows.len()], rest].concat();
                (rows, part)
            }
            Place::Chosen(index) => (index.iter().map(|&i| i as usize).collect(), [&[index.len()], rest].concat()),
        };
        let spread = broadcast(&value.shape, &value.at, &part);
        let len: usize = rest.iter().product();
        let mut ids = x.at.clone();
        for (k, row) in rows.into_iter().enumerate() {
            ids[row * len..(row + 1) * len].copy_from_slice(&spread[k * len..(k + 1) * len]);
        }
        slots[a] = if record {
            self.result(x.shape.clone(), &ids, &[&x, &value], true)
        } else {
            let values: Vec<f64> = ids.iter().map(|&id| self.tape.value(id)).collect();
            self.replaced(&x, &values)
        };
        Ok(())
    }

    fn backward(&mut self, y: &Plain, without: bool, outcome: &Outcome) -> Outcomes<()> {
        let refusal = match self.has_stale(y) {
            _ if without || !y.tracks => Refusal::Must,
            true if y.vague => Refusal::May,
            true => Refusal::Must,
            false => Refusal::Never,
        };
        if !was_taken(refusal, outcome)? {
            return Ok(());
        }
        let found = self.tape.derivatives(&y.at);
        for &leaf in &y.deps {
            let Leaf { ids, cell, .. } = &self.leaves[leaf];
            let new: Vec<f64> = ids.iter().map(|id| found.get(id).map_or(0.0, |&g| self.tape.value(g))).collect();
            let sum = match &self.grads[*cell] {
                Some(old) => old.iter().zip(&new).map(|(a, b)| a + b).collect(),
                None => new,
            };
            if sum.iter().any(|g: &f64| g.abs() > LARGEST) {
                return Err(Fault::Unclear);
            }
            self.grads[*cell] = Some(sum);
        }
        Ok(())
    }

    fn gradient(&mut self, y: &Plain, x: &Plain, without: bool, outcome: &Outcome) -> Outcomes<Option<Plain>> {
        let refusal = match self.has_stale(y) || self.is_stale_leaf(x) {
            _ if without || !y.tracks || !x.tracks => Refusal::Must,
            true => Refusal::May,
            false => Refusal::Never,
        };
        if !was_taken(refusal, outcome)? {
            return Ok(None);
        }
        // A derivative may be expressed by intermediate results or by their inputs. Its second derivative with respect to such a
        // result depends on that.
        if y.vague && x.leaf.is_none() {
            return Err(Fault::Unclear);
        }
        let found = self.tape.derivatives(&y.at);
        let mut ids = Vec::new();
        for own in &x.own {
            ids.push(found.get(own).copied().unwrap_or_else(|| self.tape.given(0.0)));
        }
        self.check_size(&ids)?;
        let Outcome::Done { recorded } = outcome else {
            let none = ids.iter().all(|&id| self.tape.value(id) == 0.0);
            return if none { Ok(None) } else { Err(Fault::Wrong("there is no gradient".to_string())) };
        };
        let plain = self.result(x.shape.clone(), &ids, &[y, x], *recorded);
        Ok(Some(Plain { vague: true, ..plain }))
    }

    /// As the step says: the gradients of the sum of `(tanh(x * y) + x)²`.
    fn fresh(&mut self, x: &Plain, y: &Plain) -> Plain {
        let (x, y) = (self.detached(x), self.detached(y));
        let one = |(&x, &y): (&Id, &Id)| {
            let product = self.tape.mul(x, y);
            let tanh = self.tape.tanh(product);
            let sum = self.tape.add(tanh, x);
            self.tape.mul(sum, sum)
        };
        let squares: Vec<Id> = x.at.iter().zip(&y.at).map(one).collect();
        let found = self.tape.derivatives(&squares);
        let slope = |id: &Id| found.get(id).map_or(0.0, |&g| self.tape.value(g));
        let values: Vec<f64> = x.at.iter().chain(&y.at).map(slope).collect();
        self.given([&[2], &x.shape[..]].concat(), &values)
    }
}
