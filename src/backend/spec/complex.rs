//! Formulas of complex numbers, as formulas of their parts.

use super::formula::{Formula, Inst, Sym, build_all};
use super::functions::{self as f, Function, Meaning, Real};
use super::number::{Arithmetic, Ordered, select};
use std::collections::HashMap;
use std::f64::consts::{LN_2, LN_10};
use std::sync::{Mutex, PoisonError};

/// The formulas of the real and the imaginary part. Their inputs are those of the whole, where each that is complex stands
/// for two: its real and its imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct ComplexFormula {
    pub re: &'static Formula,
    pub im: &'static Formula,
}

impl ComplexFormula {
    /// The parts of a formula some of whose inputs are complex, or the name of a function that complex numbers do not have.
    pub fn of(formula: &'static Formula, complex: &[bool]) -> Result<ComplexFormula, &'static str> {
        type Known = HashMap<(usize, Vec<bool>), Result<ComplexFormula, &'static str>>;
        static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
        let key = (std::ptr::from_ref(formula).addr(), complex.to_vec());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        *known.get_or_insert_default().entry(key).or_insert_with(|| take_apart(formula, complex))
    }
}

/// A complex number in a formula: its parts.
#[derive(Clone, Copy)]
struct Pair {
    re: Sym,
    im: Sym,
}

fn take_apart(formula: &'static Formula, complex: &[bool]) -> Result<ComplexFormula, &'static str> {
    let part = |part: fn(Pair) -> Sym| {
        let mut missing = None;
        let (steps, _) = build_all(|| match trace(&formula.steps, complex) {
            Ok(pair) => vec![part(pair)],
            Err(name) => {
                missing = Some(name);
                vec![Sym::constant(0.0)]
            }
        });
        let inputs = complex.iter().map(|&complex| if complex { 2 } else { 1 }).sum();
        match missing {
            Some(name) => Err(name),
            // Made once for each formula, and kept: what is deferred refers to it.
            None => Ok(&*Box::leak(Box::new(Formula::of_steps(formula.name.clone(), inputs, steps)))),
        }
    };
    Ok(ComplexFormula { re: part(|pair| pair.re)?, im: part(|pair| pair.im)? })
}

/// The result of the steps, on symbols for the parts of the inputs.
fn trace(steps: &[Inst], complex: &[bool]) -> Result<Pair, &'static str> {
    let first: Vec<usize> = complex
        .iter()
        .scan(0, |at, &complex| {
            let first = *at;
            *at += if complex { 2 } else { 1 };
            Some(first)
        })
        .collect();
    let real = |re: Sym| Pair { re, im: Sym::constant(0.0) };
    let mut values: Vec<Pair> = Vec::new();
    for step in steps {
        values.push(match *step {
            Inst::Input(k) if complex[k] => {
                Pair { re: Sym::add_step(Inst::Input(first[k])), im: Sym::add_step(Inst::Input(first[k] + 1)) }
            }
            Inst::Input(k) => real(Sym::add_step(Inst::Input(first[k]))),
            Inst::Param(k) => real(Sym::add_step(Inst::Param(k))),
            Inst::Const(value) => real(Sym::constant(value)),
            Inst::Call(function, args) => {
                let args: Vec<Pair> = args[..function.arity].iter().map(|&arg| values[arg]).collect();
                call(function, &args)?
            }
        });
    }
    values.last().copied().ok_or("nothing")
}

fn call(function: &'static Function, args: &[Pair]) -> Result<Pair, &'static str> {
    let at = |k: usize| args[k.min(args.len() - 1)];
    let (a, b) = (at(0), at(1));
    let is = |other: &'static Function| std::ptr::eq(function, other);
    let zero = || Sym::constant(0.0);
    let truth = |mask: Sym| Pair { re: mask, im: Sym::constant(0.0) };
    Ok(if is(&f::ADD) {
        Pair { re: a.re + b.re, im: a.im + b.im }
    } else if is(&f::SUB) {
        Pair { re: a.re - b.re, im: a.im - b.im }
    } else if is(&f::MUL) {
        a.times(b)
    } else if is(&f::DIV) {
        a.over(b)
    } else if is(&f::NEG) {
        Pair { re: -a.re, im: -a.im }
    } else if is(&f::EQ) {
        truth((a.re.eq(b.re) & a.im.eq(b.im)).0)
    } else if is(&f::NE) {
        truth((a.re.ne(b.re) | a.im.ne(b.im)).0)
    } else if is(&f::SELECT) {
        let c = at(2);
        let mask = a.re.ne(zero()) | a.im.ne(zero());
        Pair { re: select(mask, b.re, c.re), im: select(mask, b.im, c.im) }
    } else if is(&f::LOGICAL_AND) {
        truth((a.is_nonzero() & b.is_nonzero()).0)
    } else if is(&f::LOGICAL_OR) {
        truth((a.is_nonzero() | b.is_nonzero()).0)
    } else if is(&f::LOGICAL_NOT) {
        truth((!a.is_nonzero()).0)
    } else if is(&f::EXP) {
        a.exp()
    } else if is(&f::EXPM1) {
        // (e^re - 1) cos im - 2 sin²(im / 2): exact near 0.
        let half = (0.5 * a.im).sin();
        Pair { re: a.re.expm1() * a.im.cos() - 2.0 * (half * half), im: a.re.exp() * a.im.sin() }
    } else if is(&f::LN) {
        a.ln()
    } else if is(&f::LOG1P) {
        // log|1 + z|² = log(1 + re (2 + re) + im²).
        let size = a.re * (2.0 + a.re) + a.im * a.im;
        Pair { re: 0.5 * size.log1p(), im: a.im.atan2(1.0 + a.re) }
    } else if is(&f::special::LOG2) {
        a.ln().scaled(1.0 / LN_2)
    } else if is(&f::special::LOG10) {
        a.ln().scaled(1.0 / LN_10)
    } else if is(&f::special::EXP2) {
        a.scaled(LN_2).exp()
    } else if is(&f::SQRT) {
        a.sqrt()
    } else if is(&f::special::RSQRT) {
        Pair::one().over(a.sqrt())
    } else if is(&f::SIN) {
        a.sin()
    } else if is(&f::COS) {
        a.cos()
    } else if is(&f::special::TAN) {
        // tan z = -i tanh(i z).
        let t = a.times_i().tanh();
        Pair { re: t.im, im: -t.re }
    } else if is(&f::special::SINH) {
        Pair { re: a.re.sinh() * a.im.cos(), im: a.re.cosh() * a.im.sin() }
    } else if is(&f::special::COSH) {
        Pair { re: a.re.cosh() * a.im.cos(), im: a.re.sinh() * a.im.sin() }
    } else if is(&f::TANH) {
        a.tanh()
    } else if is(&f::SIGMOID) {
        // (1 + tanh(z / 2)) / 2.
        let t = a.scaled(0.5).tanh();
        Pair { re: 0.5 + 0.5 * t.re, im: 0.5 * t.im }
    } else if is(&f::special::ASINH) {
        a.asinh()
    } else if is(&f::special::ASIN) {
        // -i asinh(i z).
        let t = a.times_i().asinh();
        Pair { re: t.im, im: -t.re }
    } else if is(&f::special::ACOS) {
        let t = a.times_i().asinh();
        Pair { re: std::f64::consts::FRAC_PI_2 - t.im, im: t.re }
    } else if is(&f::special::ATANH) {
        a.atanh()
    } else if is(&f::special::ATAN) {
        let t = a.times_i().atanh();
        Pair { re: t.im, im: -t.re }
    } else if is(&f::special::ACOSH) {
        // log(z + √(z + 1) √(z - 1)).
        let root = Pair { re: a.re + 1.0, im: a.im }.sqrt().times(Pair { re: a.re - 1.0, im: a.im }.sqrt());
        Pair { re: a.re + root.re, im: a.im + root.im }.ln()
    } else if is(&f::POW) {
        // exp(b log a); 0 to a power with a positive real part is 0, and to the power of 0 it is 1. To others there is none.
        let power = b.times(a.ln()).exp();
        let exponent_zero = !b.is_nonzero();
        let known = !a.is_nonzero() & (b.re.gt(zero()) | exponent_zero);
        Pair { re: select(known, Sym::from_mask(exponent_zero), power.re), im: select(known, zero(), power.im) }
    } else if let Meaning::Fused(formula) = function.meaning {
        let inner = Sym::steps_of(function.arity, formula);
        return inner_call(&inner, args);
    } else {
        return Err(function.name);
    })
}

/// A function that is made of others, on pairs.
fn inner_call(steps: &[Inst], args: &[Pair]) -> Result<Pair, &'static str> {
    let mut values: Vec<Pair> = Vec::new();
    for step in steps {
        values.push(match *step {
            Inst::Input(k) => args[k],
            Inst::Param(k) => Pair { re: Sym::add_step(Inst::Param(k)), im: Sym::constant(0.0) },
            Inst::Const(value) => Pair { re: Sym::constant(value), im: Sym::constant(0.0) },
            Inst::Call(function, of) => {
                let of: Vec<Pair> = of[..function.arity].iter().map(|&arg| values[arg]).collect();
                call(function, &of)?
            }
        });
    }
    values.last().copied().ok_or("nothing")
}

impl Pair {
    fn one() -> Pair {
        Pair { re: Sym::constant(1.0), im: Sym::constant(0.0) }
    }

    fn is_nonzero(self) -> super::formula::SymMask {
        self.re.ne(Sym::constant(0.0)) | self.im.ne(Sym::constant(0.0))
    }

    fn times_i(self) -> Pair {
        Pair { re: -self.im, im: self.re }
    }

    fn scaled(self, factor: f64) -> Pair {
        Pair { re: self.re * factor, im: self.im * factor }
    }

    fn times(self, b: Pair) -> Pair {
        Pair { re: self.re * b.re - self.im * b.im, im: self.re * b.im + self.im * b.re }
    }

    /// By the greater part of the divisor first, so that its square does not overflow.
    fn over(self, b: Pair) -> Pair {
        let scale = b.re.abs().maximum(b.im.abs());
        let (re, im) = (b.re / scale, b.im / scale);
        let size = (re * re + im * im) * scale;
        Pair { re: (self.re * re + self.im * im) / size, im: (self.im * re - self.re * im) / size }
    }

    fn exp(self) -> Pair {
        let size = self.re.exp();
        Pair { re: size * self.im.cos(), im: size * self.im.sin() }
    }

    fn ln(self) -> Pair {
        Pair { re: self.re.hypot(self.im).ln(), im: self.im.atan2(self.re) }
    }

    /// The root with a real part that is not negative.
    fn sqrt(self) -> Pair {
        let zero = Sym::constant(0.0);
        let size = (0.5 * (self.re.hypot(self.im) + self.re.abs())).sqrt();
        let other = self.im / (2.0 * size);
        let right = self.re.ge(zero);
        let root = Pair { re: select(right, size, other.abs()), im: select(right, other, size.copysign(self.im)) };
        let at_zero = !self.is_nonzero();
        Pair { re: select(at_zero, zero, root.re), im: select(at_zero, self.im, root.im) }
    }

    fn sin(self) -> Pair {
        Pair { re: self.re.sin() * self.im.cosh(), im: self.re.cos() * self.im.sinh() }
    }

    fn cos(self) -> Pair {
        Pair { re: self.re.cos() * self.im.cosh(), im: -(self.re.sin() * self.im.sinh()) }
    }

    /// With t = tanh re: (t + i tan im) / (1 + i t tan im), multiplied out, which overflows for no large real part.
    fn tanh(self) -> Pair {
        let (t, s, c) = (self.re.tanh(), self.im.sin(), self.im.cos());
        let size = c * c + t * t * s * s;
        Pair { re: t / size, im: (1.0 - t * t) * s * c / size }
    }

    /// log(z + √(z² + 1)), of the number in the right half of the plane and with its sign: the sum would cancel otherwise.
    fn asinh(self) -> Pair {
        let zero = Sym::constant(0.0);
        let left = self.re.lt(zero);
        let z = Pair { re: select(left, -self.re, self.re), im: select(left, -self.im, self.im) };
        // √(z² + 1) = √(1 + i z) √(1 - i z), which keeps to the branch.
        let root = Pair { re: 1.0 - z.im, im: z.re }.sqrt().times(Pair { re: 1.0 + z.im, im: -z.re }.sqrt());
        let value = Pair { re: z.re + root.re, im: z.im + root.im }.ln();
        Pair { re: select(left, -value.re, value.re), im: select(left, -value.im, value.im) }
    }

    /// (log(1 + z) - log(1 - z)) / 2.
    fn atanh(self) -> Pair {
        let (a, b) = (Pair { re: 1.0 + self.re, im: self.im }.ln(), Pair { re: 1.0 - self.re, im: -self.im }.ln());
        Pair { re: 0.5 * (a.re - b.re), im: 0.5 * (a.im - b.im) }
    }
}
