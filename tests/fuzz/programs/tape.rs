//! Scalar derivatives: all computed numbers, each with its inputs. The derivatives of a pass are numbers of the same tape, so they
//! can be differentiated, too.

use std::collections::BTreeMap;

/// A number of the tape.
pub type Id = usize;

#[derive(Clone, Copy)]
enum Made {
    Given,
    /// The number of another, which it replaced: the derivative of the other is this one's.
    From(Id),
    Sum(Id, Id),
    Product(Id, Id),
    Exp(Id),
    Log(Id),
    Reciprocal(Id),
    Sin(Id),
    Cos(Id),
}

#[derive(Default)]
pub struct Tape(Vec<(f64, Made)>);

impl Tape {
    fn push(&mut self, value: f64, made: Made) -> Id {
        self.0.push((value, made));
        self.0.len() - 1
    }

    pub fn value(&self, id: Id) -> f64 {
        self.0[id].0
    }

    /// A constant.
    pub fn given(&mut self, value: f64) -> Id {
        self.push(value, Made::Given)
    }

    /// The same number again: what asks for its derivative does not ask for that of the other.
    pub fn again(&mut self, id: Id) -> Id {
        self.push(self.value(id), Made::From(id))
    }

    /// A number that replaces another without being recorded.
    pub fn instead(&mut self, of: Id, value: f64) -> Id {
        self.push(value, Made::From(of))
    }

    pub fn add(&mut self, a: Id, b: Id) -> Id {
        self.push(self.value(a) + self.value(b), Made::Sum(a, b))
    }

    pub fn mul(&mut self, a: Id, b: Id) -> Id {
        self.push(self.value(a) * self.value(b), Made::Product(a, b))
    }

    pub fn exp(&mut self, a: Id) -> Id {
        self.push(self.value(a).exp(), Made::Exp(a))
    }

    pub fn log(&mut self, a: Id) -> Id {
        self.push(self.value(a).ln(), Made::Log(a))
    }

    pub fn reciprocal(&mut self, a: Id) -> Id {
        self.push(1.0 / self.value(a), Made::Reciprocal(a))
    }

    pub fn sin(&mut self, a: Id) -> Id {
        self.push(self.value(a).sin(), Made::Sin(a))
    }

    pub fn cos(&mut self, a: Id) -> Id {
        self.push(self.value(a).cos(), Made::Cos(a))
    }

    pub fn scale(&mut self, a: Id, by: f64) -> Id {
        let by = self.given(by);
        self.mul(a, by)
    }

    pub fn shift(&mut self, a: Id, by: f64) -> Id {
        let by = self.given(by);
        self.add(a, by)
    }

    pub fn sub(&mut self, a: Id, b: Id) -> Id {
        let minus = self.scale(b, -1.0);
        self.add(a, minus)
    }

    pub fn sigmoid(&mut self, a: Id) -> Id {
        let minus = self.scale(a, -1.0);
        let power = self.exp(minus);
        let below = self.shift(power, 1.0);
        self.reciprocal(below)
    }

    pub fn tanh(&mut self, a: Id) -> Id {
        let double = self.scale(a, 2.0);
        let sigmoid = self.sigmoid(double);
        let double = self.scale(sigmoid, 2.0);
        self.shift(double, -1.0)
    }

    pub fn sum(&mut self, all: &[Id]) -> Id {
        let zero = self.given(0.0);
        all.iter().fold(zero, |sum, &id| self.add(sum, id))
    }

    /// The derivatives of the sum of some numbers by every number they depend on.
    pub fn derivatives(&mut self, of: &[Id]) -> BTreeMap<Id, Id> {
        let mut waiting: BTreeMap<Id, Id> = BTreeMap::new();
        for &id in of {
            let one = self.given(1.0);
            self.contribute(&mut waiting, id, one);
        }
        // The youngest first: then all its uses have been processed.
        let mut done = BTreeMap::new();
        while let Some((id, g)) = waiting.pop_last() {
            done.insert(id, g);
            match self.0[id].1 {
                Made::Given => {}
                Made::From(a) => self.contribute(&mut waiting, a, g),
                Made::Sum(a, b) => {
                    self.contribute(&mut waiting, a, g);
                    self.contribute(&mut waiting, b, g);
                }
                Made::Product(a, b) => {
                    let (for_a, for_b) = (self.mul(g, b), self.mul(g, a));
                    self.contribute(&mut waiting, a, for_a);
                    self.contribute(&mut waiting, b, for_b);
                }
                Made::Exp(a) => {
                    let part = self.mul(g, id);
                    self.contribute(&mut waiting, a, part);
                }
                Made::Log(a) => {
                    let slope = self.reciprocal(a);
                    let part = self.mul(g, slope);
                    self.contribute(&mut waiting, a, part);
                }
                Made::Reciprocal(a) => {
                    let square = self.mul(id, id);
                    let slope = self.scale(square, -1.0);
                    let part = self.mul(g, slope);
                    self.contribute(&mut waiting, a, part);
                }
                Made::Sin(a) => {
                    let slope = self.cos(a);
                    let part = self.mul(g, slope);
                    self.contribute(&mut waiting, a, part);
                }
                Made::Cos(a) => {
                    let sin = self.sin(a);
                    let slope = self.scale(sin, -1.0);
                    let part = self.mul(g, slope);
                    self.contribute(&mut waiting, a, part);
                }
            }
        }
        done
    }

    fn contribute(&mut self, waiting: &mut BTreeMap<Id, Id>, to: Id, part: Id) {
        let sum = match waiting.get(&to) {
            Some(&before) => self.add(before, part),
            None => part,
        };
        waiting.insert(to, sum);
    }
}
