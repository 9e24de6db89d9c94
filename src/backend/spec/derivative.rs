//! The derivative of a formula, as a formula: to any order, from the derivatives of its functions.
//!
//! Derivatives are propagated forward from an input to the result. The derivative of a selection is that of the branch taken; the
//! other branch has no influence. A product with a selection becomes a selection of products, and a product with a comparison
//! selects the other factor or 0. So a branch that was not taken cannot cause `0 · ∞`, whichever factor is infinite.

use super::formula::{Cotangent, Formula, Inst, Sym, build};
use super::functions::{self, Function, Meaning};
use super::number::Arithmetic;
use crate::location::Name;

impl Formula {
    /// The cotangents of the inputs; `None` for inputs on which the derivative of the result is 0.
    pub fn cotangents(&self) -> &[Option<Cotangent>] {
        self.cotangents.get_or_init(|| (0..self.inputs).map(|input| self.cotangent(input)).collect())
    }

    fn cotangent(&self, wrt: usize) -> Option<Cotangent> {
        let mut depends = true;
        let steps = build(|| {
            let g = Sym::add_step(Inst::Input(0));
            let (values, tangents) = trace(&self.steps, |k| Sym::add_step(Inst::Input(k + 1)), wrt);
            let _ = values;
            let tangent = tangents.last().copied().flatten();
            let cotangent = tangent.map(|tangent| times(g, tangent)).filter(|cotangent| cotangent.value() != Some(0.0));
            depends = cotangent.is_some();
            cotangent.unwrap_or(g)
        });
        let name = if self.name.ends_with("_backward") {
            self.name.clone()
        } else {
            Name::from(format!("{}_backward", self.name))
        };
        depends.then(|| Cotangent::new(name, steps))
    }
}

/// Evaluates the steps of a formula on other symbols for its inputs. Returns each value and its derivative with respect to the
/// input `wrt`.
fn trace(steps: &[Inst], input: impl Fn(usize) -> Sym, wrt: usize) -> (Vec<Sym>, Vec<Option<Sym>>) {
    let (mut values, mut tangents): (Vec<Sym>, Vec<Option<Sym>>) = (Vec::new(), Vec::new());
    for step in steps {
        let (value, tangent) = match *step {
            Inst::Input(k) => (input(k), (k == wrt).then(|| Sym::constant(1.0))),
            Inst::Param(k) => (Sym::add_step(Inst::Param(k)), None),
            Inst::Const(value) => (Sym::constant(value), None),
            Inst::Call(function, args) => {
                let args = &args[..function.arity];
                let of: Vec<Sym> = args.iter().map(|&arg| values[arg]).collect();
                let along: Vec<Option<Sym>> = args.iter().map(|&arg| tangents[arg]).collect();
                apply(function, &of, &along)
            }
        };
        values.push(value);
        tangents.push(tangent);
    }
    (values, tangents)
}

/// A function of arguments, and its derivative from the derivatives of the arguments.
fn apply(function: &'static Function, args: &[Sym], along: &[Option<Sym>]) -> (Sym, Option<Sym>) {
    let three = std::array::from_fn(|k| args[k.min(args.len() - 1)]);
    if along.iter().all(Option::is_none) {
        return (Sym::call(function, args), None);
    }
    if std::ptr::eq(function, &functions::SELECT) {
        let or_zero = |tangent: Option<Sym>| tangent.unwrap_or_else(|| Sym::constant(0.0));
        let tangent = match along {
            [_, None, None] => None,
            [_, a, b] => Some(Sym::call(function, &[args[0], or_zero(*a), or_zero(*b)])),
            _ => None,
        };
        return (Sym::call(function, args), tangent);
    }
    match function.meaning {
        Meaning::Basic { partials, .. } => {
            let value = Sym::call(function, args);
            let terms = partials(three, value).into_iter().zip(along);
            let terms = terms.filter_map(|(partial, along)| Some(times((*along)?, partial?)));
            (value, terms.reduce(|a, b| a + b))
        }
        // The derivative comes from the formula; the value stays a call of the fused function.
        Meaning::Fused(formula) => {
            let inner = Sym::steps_of(function.arity, formula);
            let mut tangent: Option<Sym> = None;
            for (k, along) in along.iter().enumerate() {
                let Some(along) = *along else { continue };
                let (_, inner_tangents) = trace(&inner, |k| args[k], k);
                if let Some(slope) = inner_tangents.last().copied().flatten() {
                    let term = times(along, slope);
                    tangent = Some(tangent.map_or(term, |sum| sum + term));
                }
            }
            (Sym::call(function, args), tangent)
        }
    }
}

/// A product, simplified for factors of 0, 1 and -1.
fn times(a: Sym, b: Sym) -> Sym {
    match (a.value(), b.value()) {
        (Some(0.0), _) | (_, Some(1.0)) => a,
        (_, Some(0.0)) | (Some(1.0), _) => b,
        (Some(-1.0), _) => -b,
        (_, Some(-1.0)) => -a,
        _ if has_choice(b) => spread(a, b),
        _ if has_choice(a) => spread(b, a),
        _ => a * b,
    }
}

/// Whether a derivative is a selection with a constant branch, or a sum of such. Only then a factor is distributed over the
/// branches.
fn has_choice(slope: Sym) -> bool {
    let Inst::Call(function, [a, b, c]) = slope.step() else { return false };
    let is = |other: &'static Function| std::ptr::eq(function, other);
    let known = |k: usize| Sym::at(k).value().is_some() || has_choice(Sym::at(k));
    if is(&functions::SELECT) {
        known(b) || known(c)
    } else if is(&functions::ADD) || is(&functions::SUB) {
        has_choice(Sym::at(a)) || has_choice(Sym::at(b))
    } else if is(&functions::NEG) {
        has_choice(Sym::at(a))
    } else {
        functions::is_truth(function)
    }
}

/// The product of a factor and a derivative that [`has_choice`], distributed over the branches.
fn spread(factor: Sym, slope: Sym) -> Sym {
    let Inst::Call(function, args) = slope.step() else { return factor * slope };
    let [a, b, c] = args.map(Sym::at);
    let is = |other: &'static Function| std::ptr::eq(function, other);
    let zero = Sym::constant(0.0);
    if is(&functions::SELECT) {
        let (then, otherwise) = (times(factor, b), times(factor, c));
        if then == otherwise { then } else { Sym::call(function, &[a, then, otherwise]) }
    } else if is(&functions::NEG) {
        -times(factor, a)
    } else if functions::is_truth(function) {
        Sym::call(&functions::SELECT, &[slope, factor, zero])
    } else {
        // A sum or a difference.
        let (left, right) = (times(factor, a), times(factor, b));
        match (left.value(), right.value()) {
            (_, Some(0.0)) => left,
            (Some(0.0), _) if is(&functions::ADD) => right,
            _ => Sym::call(function, &[left, right]),
        }
    }
}
