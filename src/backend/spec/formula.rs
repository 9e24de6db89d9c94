//! Elementwise formulas as data.
//!
//! A formula is a short program: inputs, parameters and constants, and calls of compiled [`Function`]s on them. It is built by
//! running ordinary code on [`Sym`]s instead of numbers. One formula gives the CPU kernel (evaluated in blocks of elements,
//! function by function), the source of the GPU kernel, and the derivative.

use super::functions::{self, Function};
use super::number::{Arithmetic, Ordered};
use crate::location::Name;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};
use std::sync::OnceLock;

/// The maximum number of operands of a formula.
pub(crate) const MOST_INPUTS: usize = 8;

/// One step of a formula.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inst {
    Input(usize),
    /// A number that is the same for all elements, passed when the kernel runs.
    Param(usize),
    Const(f64),
    /// A call on the results of earlier steps, one for each argument of the function.
    Call(&'static Function, [usize; 3]),
}

impl PartialEq for Inst {
    fn eq(&self, other: &Inst) -> bool {
        match (self, other) {
            (Inst::Input(a), Inst::Input(b)) | (Inst::Param(a), Inst::Param(b)) => a == b,
            (Inst::Const(a), Inst::Const(b)) => a.to_bits() == b.to_bits(),
            (Inst::Call(f, a), Inst::Call(g, b)) => std::ptr::eq(*f, *g) && a == b,
            _ => false,
        }
    }
}

/// An elementwise function of some tensors and some numbers.
pub(crate) struct Formula {
    /// The name of the operation, for messages and for recording.
    pub name: Name,
    pub inputs: usize,
    /// Operands come before what uses them; the last step is the result.
    pub steps: Vec<Inst>,
    /// The function, if the formula only calls it on the inputs in order.
    pub direct: Option<&'static Function>,
    pub(super) program: OnceLock<super::program::Program>,
    pub(super) cotangents: OnceLock<Vec<Option<Cotangent>>>,
}

impl Formula {
    /// Builds a formula by calling `f` with symbols for the inputs and parameters.
    pub fn new(name: impl Into<Name>, inputs: usize, params: usize, f: impl FnOnce(&[Sym], &[Sym]) -> Sym) -> Formula {
        debug_assert!(inputs <= MOST_INPUTS);
        let steps = build(|| {
            let inputs: Vec<Sym> = (0..inputs).map(|k| Sym::add_step(Inst::Input(k))).collect();
            let params: Vec<Sym> = (0..params).map(|k| Sym::add_step(Inst::Param(k))).collect();
            f(&inputs, &params)
        });
        Formula::of_steps(name.into(), inputs, steps)
    }

    pub(super) fn of_steps(name: Name, inputs: usize, steps: Vec<Inst>) -> Formula {
        let direct = direct(&steps, inputs);
        Formula { name, inputs, steps, direct, program: OnceLock::new(), cotangents: OnceLock::new() }
    }
    /// The input, if the formula is the identity of one.
    pub fn identity(&self) -> Option<usize> {
        match self.steps[..] {
            [Inst::Input(k)] => Some(k),
            _ => None,
        }
    }

    /// Whether there is a kernel for this compute dtype.
    pub fn has_kernel(&self, compute: crate::DType) -> bool {
        self.steps.iter().all(|step| match step {
            Inst::Call(function, _) => function.kernel(compute).is_some(),
            _ => true,
        })
    }
}

/// The formula for the cotangent of one input.
pub(crate) struct Cotangent {
    pub formula: Formula,
    /// The inputs of the formula: 0 is the cotangent of the result, then the inputs of the function, then its result.
    pub operands: Box<[usize]>,
    /// The same as a set: bit `k` stands for operand `k`.
    pub reads: u16,
    /// Whether it is the cotangent of the result, unchanged.
    pub passes_on: bool,
}

impl Cotangent {
    /// From steps over all operands; unused operands are dropped.
    pub(super) fn new(name: Name, steps: Vec<Inst>) -> Cotangent {
        let mut operands: SmallVec<[usize; 4]> = SmallVec::new();
        let mut compact = |k: usize| {
            operands.iter().position(|&known| known == k).unwrap_or_else(|| {
                operands.push(k);
                operands.len() - 1
            })
        };
        let steps = steps.into_iter().map(|step| match step {
            Inst::Input(k) => Inst::Input(compact(k)),
            other => other,
        });
        let steps = steps.collect();
        let formula = Formula::of_steps(name, operands.len(), steps);
        let reads = operands.iter().fold(0, |set, &operand| set | 1 << operand);
        let passes_on = formula.identity() == Some(0) && operands[0] == 0;
        Cotangent { formula, operands: operands.into_vec().into(), reads, passes_on }
    }

    /// The cotangents of the inputs that `f` returns, called with symbols for the cotangent of the result, the inputs, the result
    /// and the parameters.
    pub fn given(
        name: &'static str,
        inputs: usize,
        params: usize,
        f: fn(Sym, &[Sym], Sym, &[Sym]) -> Vec<Option<Sym>>,
    ) -> Vec<Option<Cotangent>> {
        let one = |wanted: usize| {
            let mut depends = true;
            let steps = build(|| {
                let symbols: Vec<Sym> = (0..inputs + 2).map(|k| Sym::add_step(Inst::Input(k))).collect();
                let params: Vec<Sym> = (0..params).map(|k| Sym::add_step(Inst::Param(k))).collect();
                let all = f(symbols[0], &symbols[1..=inputs], symbols[inputs + 1], &params);
                all.get(wanted).copied().flatten().unwrap_or_else(|| {
                    depends = false;
                    symbols[0]
                })
            });
            depends.then(|| Cotangent::new(Name::from(format!("{name}_backward")), steps))
        };
        (0..inputs).map(one).collect()
    }
}

/// The function, if the steps only call it on the inputs in order.
fn direct(steps: &[Inst], inputs: usize) -> Option<&'static Function> {
    let (Inst::Call(function, args), before) = steps.split_last()? else { return None };
    let in_order = before.iter().enumerate().all(|(k, step)| *step == Inst::Input(k));
    let called = (0..inputs).all(|k| args[k.min(2)] == k) && before.len() == inputs;
    (in_order && called && function.arity == inputs).then_some(function)
}

/// A symbolic number: a step of the formula that is being built on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sym(pub(super) usize);

thread_local! {
    /// The steps of the formulas that are being built, the innermost last.
    static BUILDERS: RefCell<Vec<Vec<Inst>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, and returns the steps that its result depends on, in order.
pub(super) fn build(f: impl FnOnce() -> Sym) -> Vec<Inst> {
    build_all(|| vec![f()]).0
}

/// As [`build`], for several results; also returns the positions of the results.
pub(super) fn build_all(f: impl FnOnce() -> Vec<Sym>) -> (Vec<Inst>, Vec<usize>) {
    /// Pops the innermost formula, also if `f` panics.
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            BUILDERS.with_borrow_mut(Vec::pop);
        }
    }
    BUILDERS.with_borrow_mut(|all| all.push(Vec::new()));
    let _ending = Ending;
    let results: Vec<usize> = f().into_iter().map(|Sym(at)| at).collect();
    let steps = BUILDERS.with_borrow(|all| all.last().cloned().unwrap_or_default());
    reachable(&steps, &results)
}

/// Drops the steps that the results do not depend on. A single result becomes the last step.
fn reachable(steps: &[Inst], results: &[usize]) -> (Vec<Inst>, Vec<usize>) {
    let mut needed = vec![false; steps.len()];
    results.iter().for_each(|&result| needed[result] = true);
    let last = results.iter().copied().max().unwrap_or(0);
    for at in (0..=last).rev().filter(|&at| matches!(steps[at], Inst::Call(..))) {
        if let (true, Inst::Call(function, args)) = (needed[at], steps[at]) {
            args[..function.arity].iter().for_each(|&arg| needed[arg] = true);
        }
    }
    let mut positions = vec![0; steps.len()];
    let mut kept = Vec::new();
    for (at, step) in steps.iter().enumerate().take(last + 1).filter(|(at, _)| needed[*at]) {
        positions[at] = kept.len();
        kept.push(match *step {
            Inst::Call(function, args) => Inst::Call(function, moved(function, args, |arg| positions[arg])),
            other => other,
        });
    }
    (kept, results.iter().map(|&result| positions[result]).collect())
}

/// Renumbers the arguments of a call. Unused argument slots repeat the first.
pub(super) fn moved(function: &Function, args: [usize; 3], to: impl Fn(usize) -> usize) -> [usize; 3] {
    std::array::from_fn(|k| to(args[if k < function.arity { k } else { 0 }]))
}

impl Sym {
    /// Adds a step to the formula under construction, or returns an equal step that exists already.
    pub(super) fn add_step(step: Inst) -> Sym {
        BUILDERS.with_borrow_mut(|all| {
            let Some(steps) = all.last_mut() else {
                // Symbols are only created inside `build`.
                debug_assert!(false, "a symbol outside of a formula");
                return Sym(0);
            };
            let at = steps.iter().position(|known| *known == step).unwrap_or_else(|| {
                steps.push(step);
                steps.len() - 1
            });
            Sym(at)
        })
    }

    /// A call of a function.
    pub fn call(function: &'static Function, args: &[Sym]) -> Sym {
        debug_assert_eq!(function.arity, args.len());
        Sym::add_step(Inst::Call(function, std::array::from_fn(|k| args[if k < args.len() { k } else { 0 }].0)))
    }

    /// The steps of a function of `arity` symbols.
    pub fn steps_of(arity: usize, f: fn([Sym; 3]) -> Sym) -> Vec<Inst> {
        build(|| {
            let symbols: Vec<Sym> = (0..arity).map(|k| Sym::add_step(Inst::Input(k))).collect();
            f(std::array::from_fn(|k| symbols[k.min(arity - 1)]))
        })
    }

    /// The step of this symbol.
    pub(super) fn step(self) -> Inst {
        BUILDERS
            .with_borrow(|all| all.last().and_then(|steps| steps.get(self.0)).copied())
            .unwrap_or(Inst::Const(f64::NAN))
    }

    /// The step with this number of the formula under construction.
    pub(super) fn at(number: usize) -> Sym {
        Sym(number)
    }

    /// The value, if it is a constant.
    pub(super) fn value(self) -> Option<f64> {
        BUILDERS.with_borrow(|all| match all.last()?.get(self.0)? {
            Inst::Const(value) => Some(*value),
            _ => None,
        })
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $function:ident;)+) => {$(
        impl $trait for Sym {
            type Output = Sym;
            fn $method(self, other: Sym) -> Sym {
                Sym::call(&functions::$function, &[self, other])
            }
        }
        impl $trait<f64> for Sym {
            type Output = Sym;
            fn $method(self, other: f64) -> Sym {
                $trait::$method(self, Sym::constant(other))
            }
        }
        impl $trait<Sym> for f64 {
            type Output = Sym;
            fn $method(self, other: Sym) -> Sym {
                $trait::$method(Sym::constant(self), other)
            }
        }
    )+};
}
operators! {
    Add add ADD;
    Sub sub SUB;
    Mul mul MUL;
    Div div DIV;
}

impl Neg for Sym {
    type Output = Sym;
    fn neg(self) -> Sym {
        Sym::call(&functions::NEG, &[self])
    }
}

impl Arithmetic for Sym {
    fn constant(value: f64) -> Sym {
        Sym::add_step(Inst::Const(value))
    }
}

/// A comparison in a formula: a number that is 0 or 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymMask(pub Sym);

impl Ordered for Sym {
    type Mask = SymMask;

    fn lt(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::LT, &[self, other]))
    }
    fn le(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::LE, &[self, other]))
    }
    fn eq(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::EQ, &[self, other]))
    }
    fn gt(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::GT, &[self, other]))
    }
    fn ge(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::GE, &[self, other]))
    }
    fn ne(self, other: Sym) -> SymMask {
        SymMask(Sym::call(&functions::NE, &[self, other]))
    }
    fn select(SymMask(mask): SymMask, then: Sym, otherwise: Sym) -> Sym {
        Sym::call(&functions::SELECT, &[mask, then, otherwise])
    }
    fn from_mask(SymMask(mask): SymMask) -> Sym {
        mask
    }
}

impl SymMask {
    /// Exclusive or.
    pub fn differs(self, other: SymMask) -> SymMask {
        SymMask(Sym::call(&functions::NE, &[self.0, other.0]))
    }
}

impl BitAnd for SymMask {
    type Output = SymMask;
    fn bitand(self, other: SymMask) -> SymMask {
        SymMask(Sym::call(&functions::LOGICAL_AND, &[self.0, other.0]))
    }
}

impl BitOr for SymMask {
    type Output = SymMask;
    fn bitor(self, other: SymMask) -> SymMask {
        SymMask(Sym::call(&functions::LOGICAL_OR, &[self.0, other.0]))
    }
}

impl Not for SymMask {
    type Output = SymMask;
    fn not(self) -> SymMask {
        SymMask(Sym::call(&functions::LOGICAL_NOT, &[self.0]))
    }
}

/// The values of a formula's parameters, in their order.
pub(crate) type Params = SmallVec<[crate::Scalar; 2]>;
