//! The operations of the model, index by index.

use super::model::{Fault, Model, Outcomes, Plain};
use super::steps::{Binary, Other, Reduce, Step, Unary, View};
use super::tape::{Id, Tape};

/// All indices of a shape in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in shape {
        all = all.into_iter().flat_map(|index| (0..size).map(move |i| [index.clone(), vec![i]].concat())).collect();
    }
    all
}

fn flat(shape: &[usize], index: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (i, size)| flat * size + i)
}

/// The elements of a list broadcast to another shape.
pub fn broadcast(from: &[usize], ids: &[Id], to: &[usize]) -> Vec<Id> {
    let skipped = to.len() - from.len();
    let pick = |index: Vec<usize>| {
        let own: Vec<usize> = index[skipped..].iter().zip(from).map(|(&i, &size)| i.min(size - 1)).collect();
        ids[flat(from, &own)]
    };
    indices(to).into_iter().map(pick).collect()
}

fn common(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
    padded(a).iter().zip(padded(b)).map(|(&a, b)| a.max(b)).collect()
}

impl Plain {
    fn get(&self, index: &[usize]) -> Id {
        self.at[flat(&self.shape, index)]
    }

    /// The elements along a dimension, one list for each index of the others (which has 0 there).
    fn lines(&self, dim: usize) -> Vec<(Vec<usize>, Vec<Id>)> {
        let mut outer = self.shape.clone();
        outer[dim] = 1;
        let line = |index: Vec<usize>| {
            let one = |i: usize| {
                let mut index = index.clone();
                index[dim] = i;
                self.get(&index)
            };
            let ids = (0..self.shape[dim]).map(one).collect();
            (index, ids)
        };
        indices(&outer).into_iter().map(line).collect()
    }
}

impl Model {
    pub fn compute(&mut self, step: &Step, slots: &[Plain]) -> Outcomes<(Vec<usize>, Vec<Id>)> {
        Ok(match step {
            Step::Unary(kind, a) => {
                let ids = slots[*a].at.clone();
                let ids = ids.into_iter().map(|id| self.unary(*kind, id)).collect::<Outcomes<_>>()?;
                (slots[*a].shape.clone(), ids)
            }
            Step::Binary(kind, a, other) => {
                let (a, b) = (slots[*a].clone(), self.other(slots, other));
                let shape = common(&a.shape, &b.shape);
                let (a, b) = (broadcast(&a.shape, &a.at, &shape), broadcast(&b.shape, &b.at, &shape));
                let ids = a.into_iter().zip(b).map(|(a, b)| self.binary(*kind, a, b)).collect::<Outcomes<_>>()?;
                (shape, ids)
            }
            Step::Matmul(a, b) => {
                let (a, b) = (&slots[*a], &slots[*b]);
                let shape = vec![a.shape[0], b.shape[1]];
                let one = |index: Vec<usize>| {
                    let products: Vec<Id> =
                        (0..a.shape[1]).map(|k| self.tape.mul(a.get(&[index[0], k]), b.get(&[k, index[1]]))).collect();
                    self.tape.sum(&products)
                };
                (shape.clone(), indices(&shape).into_iter().map(one).collect())
            }
            Step::Reduce(kind, a, None, _) => (vec![], vec![self.reduce(*kind, &slots[*a].at)?]),
            Step::Reduce(kind, a, Some(dim), kept) => {
                let mut shape = slots[*a].shape.clone();
                shape[*dim] = 1;
                if !kept {
                    shape.remove(*dim);
                }
                let lines = slots[*a].lines(*dim);
                let ids = lines.iter().map(|(_, ids)| self.reduce(*kind, ids)).collect::<Outcomes<_>>()?;
                (shape, ids)
            }
            Step::Softmax(a, dim) => self.along(&slots[*a], *dim, |tape, line| {
                let powers: Vec<Id> = line.iter().map(|&id| tape.exp(id)).collect();
                let sum = tape.sum(&powers);
                let below = tape.reciprocal(sum);
                powers.iter().map(|&power| tape.mul(power, below)).collect()
            }),
            Step::Cumsum(a, dim) => self.along(&slots[*a], *dim, |tape, line| {
                let mut sum = tape.given(0.0);
                let next = |&id: &Id| {
                    sum = tape.add(sum, id);
                    sum
                };
                line.iter().map(next).collect()
            }),
            Step::View(view, a) => viewed(view, &slots[*a]),
            Step::Cat(a, b, dim) => {
                let (a, b) = (&slots[*a], &slots[*b]);
                let mut shape = a.shape.clone();
                shape[*dim] *= 2;
                let pick = |mut index: Vec<usize>| match index[*dim].checked_sub(a.shape[*dim]) {
                    None => a.get(&index),
                    Some(at) => {
                        index[*dim] = at;
                        b.get(&index)
                    }
                };
                let ids = indices(&shape).into_iter().map(pick).collect();
                (shape, ids)
            }
            Step::Stack(a, b, dim) => {
                let mut shape = slots[*a].shape.clone();
                shape.insert(*dim, 2);
                let pick = |mut index: Vec<usize>| {
                    let from = if index.remove(*dim) == 0 { a } else { b };
                    slots[*from].get(&index)
                };
                let ids = indices(&shape).into_iter().map(pick).collect();
                (shape, ids)
            }
            Step::Where(a, above, b) => {
                let (a, b) = (&slots[*a], &slots[*b]);
                let mut ids = Vec::new();
                for (&x, &y) in a.at.iter().zip(&b.at) {
                    self.check_apart(x, *above)?;
                    ids.push(if self.tape.value(x) > *above { x } else { y });
                }
                (a.shape.clone(), ids)
            }
            Step::IndexSelect(a, dim, index) => {
                let mut shape = slots[*a].shape.clone();
                shape[*dim] = index.len();
                let pick = |mut at: Vec<usize>| {
                    at[*dim] = index[at[*dim]] as usize;
                    slots[*a].get(&at)
                };
                let ids = indices(&shape).into_iter().map(pick).collect();
                (shape, ids)
            }
            Step::DeepClone(a) => (slots[*a].shape.clone(), slots[*a].at.clone()),
            other => return Err(Fault::Wrong(format!("{other:?} computes nothing"))),
        })
    }

    fn unary(&mut self, kind: Unary, x: Id) -> Outcomes<Id> {
        Ok(match kind {
            Unary::Neg => self.tape.scale(x, -1.0),
            Unary::Tanh => self.tape.tanh(x),
            Unary::Sigmoid => self.tape.sigmoid(x),
            Unary::Sin => self.tape.sin(x),
            Unary::Square => self.tape.mul(x, x),
            Unary::Relu | Unary::Abs => {
                self.check_apart(x, 0.0)?;
                match (kind, self.tape.value(x) > 0.0) {
                    (_, true) => x,
                    (Unary::Abs, false) => self.tape.scale(x, -1.0),
                    _ => self.tape.given(0.0),
                }
            }
        })
    }

    fn binary(&mut self, kind: Binary, a: Id, b: Id) -> Outcomes<Id> {
        Ok(match kind {
            Binary::Add => self.tape.add(a, b),
            Binary::Sub => self.tape.sub(a, b),
            Binary::Mul => self.tape.mul(a, b),
            Binary::Maximum => {
                self.check_apart(a, self.tape.value(b))?;
                if self.tape.value(a) > self.tape.value(b) { a } else { b }
            }
        })
    }

    fn reduce(&mut self, kind: Reduce, ids: &[Id]) -> Outcomes<Id> {
        Ok(match kind {
            Reduce::Sum => self.tape.sum(ids),
            Reduce::Mean => {
                let sum = self.tape.sum(ids);
                self.tape.scale(sum, 1.0 / ids.len() as f64)
            }
            Reduce::LogSumExp => {
                let powers: Vec<Id> = ids.iter().map(|&id| self.tape.exp(id)).collect();
                self.check_size(&powers)?;
                let sum = self.tape.sum(&powers);
                self.tape.log(sum)
            }
            Reduce::Max => {
                let mut ordered = ids.to_vec();
                ordered.sort_by(|&a, &b| self.tape.value(b).total_cmp(&self.tape.value(a)));
                if let [first, second, ..] = ordered[..] {
                    self.check_apart(first, self.tape.value(second))?;
                }
                ordered[0]
            }
        })
    }

    /// A function of every line along a dimension.
    fn along(&mut self, x: &Plain, dim: usize, f: impl Fn(&mut Tape, &[Id]) -> Vec<Id>) -> (Vec<usize>, Vec<Id>) {
        let mut ids = x.at.clone();
        for (mut index, line) in x.lines(dim) {
            for (i, id) in f(&mut self.tape, &line).into_iter().enumerate() {
                index[dim] = i;
                ids[flat(&x.shape, &index)] = id;
            }
        }
        (x.shape.clone(), ids)
    }
}

/// The tensors that a step makes its result of.
pub fn inputs(step: &Step) -> Vec<usize> {
    match step {
        Step::Unary(_, a)
        | Step::Reduce(_, a, ..)
        | Step::Softmax(a, _)
        | Step::Cumsum(a, _)
        | Step::View(_, a)
        | Step::IndexSelect(a, ..)
        | Step::DeepClone(a)
        | Step::Binary(_, a, Other::Number(_)) => vec![*a],
        Step::Binary(_, a, Other::Tensor(b))
        | Step::Matmul(a, b)
        | Step::Cat(a, b, _)
        | Step::Stack(a, b, _)
        | Step::Where(a, _, b) => vec![*a, *b],
        _ => vec![],
    }
}

fn viewed(view: &View, x: &Plain) -> (Vec<usize>, Vec<Id>) {
    let mut shape = x.shape.clone();
    let pick: Box<dyn Fn(Vec<usize>) -> Id> = match *view {
        View::Transpose(a, b) => {
            shape.swap(a, b);
            Box::new(move |mut index| {
                index.swap(a, b);
                x.get(&index)
            })
        }
        View::Reshape(ref to) => return (to.clone(), x.at.clone()),
        View::Slice(dim, start, end, step) => {
            let kept: Vec<usize> =
                if step < 0 { (start..end).rev().collect() } else { (start..end).step_by(step as usize).collect() };
            shape[dim] = kept.len();
            Box::new(move |mut index| {
                index[dim] = kept[index[dim]];
                x.get(&index)
            })
        }
        View::Select(dim, at) => {
            shape.remove(dim);
            Box::new(move |mut index| {
                index.insert(dim, at);
                x.get(&index)
            })
        }
        View::Unsqueeze(dim) => {
            shape.insert(dim, 1);
            return (shape, x.at.clone());
        }
        View::Squeeze(dim) => {
            shape.remove(dim);
            return (shape, x.at.clone());
        }
        View::Expand(times) => {
            shape.insert(0, times);
            Box::new(|index| x.get(&index[1..]))
        }
        View::Flip(dim) => {
            let last = shape[dim] - 1;
            Box::new(move |mut index| {
                index[dim] = last - index[dim];
                x.get(&index)
            })
        }
    };
    let ids = indices(&shape).into_iter().map(pick).collect();
    (shape, ids)
}
