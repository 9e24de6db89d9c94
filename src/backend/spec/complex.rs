//! Formulas of complex numbers as formulas of their real and imaginary parts.

use super::formula::{Formula, Inst, Sym, SymMask, build_all};
use super::functions::{self as f, Function, Meaning, Real};
use super::number::{Arithmetic, Ordered, select};
use std::collections::HashMap;
use std::f64::consts::{FRAC_PI_2, LN_2, LN_10};
use std::sync::{Mutex, PoisonError};

/// The formulas of the real and the imaginary part. Their inputs are those of the complex formula, with each complex input
/// replaced by its real and its imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct ComplexFormula {
    pub re: &'static Formula,
    pub im: &'static Formula,
}

impl ComplexFormula {
    /// The parts of a formula with complex inputs, or the name of a function that is not defined for complex numbers.
    pub fn of(formula: &'static Formula, complex: &[bool]) -> Result<ComplexFormula, &'static str> {
        type Known = HashMap<(usize, Vec<bool>), Result<ComplexFormula, &'static str>>;
        static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
        let key = (std::ptr::from_ref(formula).addr(), complex.to_vec());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        *known.get_or_insert_default().entry(key).or_insert_with(|| take_apart(formula, complex))
    }
}

/// A complex number in a formula, as its parts.
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
            // Created once for each formula and kept, since deferred steps refer to it.
            None => Ok(&*Box::leak(Box::new(Formula::of_steps(formula.name.clone(), inputs, steps)))),
        }
    };
    Ok(ComplexFormula { re: part(|pair| pair.re)?, im: part(|pair| pair.im)? })
}

/// Evaluates the steps on symbols for the parts of the inputs.
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
                let args = &args[..function.arity];
                let constant = |k: usize| args.get(k).is_some_and(|&arg| matches!(steps[arg], Inst::Const(_)));
                let pairs: Vec<Pair> = args.iter().map(|&arg| values[arg]).collect();
                match beside_constant(function, &pairs, (constant(0), constant(1))) {
                    Some(pair) => pair,
                    None => call(function, &pairs)?,
                }
            }
        });
    }
    values.last().copied().ok_or("nothing")
}

/// Arithmetic with a constant of the formula, which is real. Nothing is added to the imaginary part: this keeps the sign of its
/// zero, which selects the side of a branch cut, and avoids 0 · ∞.
fn beside_constant(function: &'static Function, args: &[Pair], constant: (bool, bool)) -> Option<Pair> {
    let &[a, b] = args else { return None };
    let is = |other: &'static Function| std::ptr::eq(function, other);
    Some(match constant {
        (true, false) if is(&f::ADD) => Pair { re: a.re + b.re, im: b.im },
        (false, true) if is(&f::ADD) => Pair { re: a.re + b.re, im: a.im },
        (true, false) if is(&f::SUB) => Pair { re: a.re - b.re, im: -b.im },
        (false, true) if is(&f::SUB) => Pair { re: a.re - b.re, im: a.im },
        (true, false) if is(&f::MUL) => Pair { re: a.re * b.re, im: a.re * b.im },
        (false, true) if is(&f::MUL) => Pair { re: a.re * b.re, im: a.im * b.re },
        (false, true) if is(&f::DIV) => Pair { re: a.re / b.re, im: a.im / b.re },
        _ => return None,
    })
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
        let (less, odd) = (a.re.expm1(), a.is_endless());
        Pair {
            re: select(odd, less, less * a.im.cos() - 2.0 * (half * half)),
            im: select(odd & a.re.lt(zero()), zero(), a.im_or(a.re.exp() * a.im.sin())),
        }
    } else if is(&f::LN) {
        a.ln()
    } else if is(&f::LOG1P) {
        a.log1p()
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
        a.by_i(Pair::sinh)
    } else if is(&f::COS) {
        a.times_i().cosh()
    } else if is(&f::special::TAN) {
        a.by_i(Pair::tanh)
    } else if is(&f::special::SINH) {
        a.sinh()
    } else if is(&f::special::COSH) {
        a.cosh()
    } else if is(&f::TANH) {
        a.tanh()
    } else if is(&f::SIGMOID) {
        // (1 + tanh(z / 2)) / 2.
        let t = a.scaled(0.5).tanh();
        Pair { re: 0.5 + 0.5 * t.re, im: 0.5 * t.im }
    } else if is(&f::special::ASINH) {
        a.asinh()
    } else if is(&f::special::ASIN) {
        a.by_i(Pair::asinh)
    } else if is(&f::special::ACOS) {
        a.acos()
    } else if is(&f::special::ATANH) {
        a.atanh()
    } else if is(&f::special::ATAN) {
        a.by_i(Pair::atanh)
    } else if is(&f::special::ACOSH) {
        a.acosh()
    } else if is(&f::POW) {
        // exp(b log a); 0 to a power with a positive real part is 0, and 0 to the power of 0 is 1. Other powers of 0 are NaN.
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

/// A function composed of others, on pairs.
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

    fn is_nonzero(self) -> SymMask {
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

    /// Division by Smith's method, by the larger part of the divisor first: no square overflows, and a finite number over infinity is
    /// 0. Over 0 the parts are infinite, or NaN where they are 0.
    fn over(self, b: Pair) -> Pair {
        let swapped = b.re.abs().lt(b.im.abs());
        let (greater, lesser) = (select(swapped, b.im, b.re), select(swapped, b.re, b.im));
        let zero = greater.eq(Sym::constant(0.0));
        let ratio = select(zero, Sym::constant(0.0), lesser / greater);
        let size = select(zero, Sym::constant(0.0), greater + lesser * ratio);
        let re = select(swapped, self.re * ratio + self.im, self.re + self.im * ratio);
        let im = select(swapped, self.im * ratio - self.re, self.im - self.re * ratio);
        Pair { re: re / size, im: im / size }
    }

    /// -i f(i z), which gives the trigonometric functions from the hyperbolic ones.
    fn by_i(self, f: fn(Pair) -> Pair) -> Pair {
        let value = f(self.times_i());
        Pair { re: value.im, im: -value.re }
    }

    /// The imaginary part if it is 0, with its sign, and `value` otherwise: most functions of a real number are real, even if the
    /// other factor is infinite or NaN.
    fn im_or(self, value: Sym) -> Sym {
        select(self.im.eq(Sym::constant(0.0)), self.im, value)
    }

    /// Whether the real part is infinite and the imaginary part, whose sine and cosine are NaN, is infinite or NaN.
    fn is_endless(self) -> SymMask {
        self.re.is_infinite() & !self.im.is_finite()
    }

    /// Whether a part is NaN, or so large that adding 1 to its square has no effect.
    fn is_large(self) -> SymMask {
        !self.re.abs().maximum(self.im.abs()).lt(Sym::constant(1e8))
    }

    fn exp(self) -> Pair {
        let (size, odd) = (self.re.exp(), self.is_endless());
        let im = self.im_or(size * self.im.sin());
        Pair {
            re: select(odd, size, size * self.im.cos()),
            im: select(odd & self.re.lt(Sym::constant(0.0)), Sym::constant(0.0), im),
        }
    }

    /// If the absolute value is close to 1, its logarithm is computed with `log1p` of the difference from 1.
    fn ln(self) -> Pair {
        let (re, im) = (self.re.abs(), self.im.abs());
        let (size, more, less) = (re.hypot(im), re.maximum(im), re.minimum(im));
        let near = size.gt(Sym::constant(0.5)) & size.lt(Sym::constant(2.0));
        let by_one = 0.5 * ((more - 1.0) * (more + 1.0) + less * less).log1p();
        Pair { re: select(near, by_one, size.ln()), im: self.im.atan2(self.re) }
    }

    /// log|1 + z|² = log(1 + re (2 + re) + im²), if that neither overflows nor is close to log 0.
    fn log1p(self) -> Pair {
        let near = self.re.abs().maximum(self.im.abs()).lt(Sym::constant(1e3)) & self.re.gt(Sym::constant(-0.5));
        let size = self.re * (2.0 + self.re) + self.im * self.im;
        let far = (1.0 + self.re).hypot(self.im).ln();
        Pair { re: select(near, 0.5 * size.log1p(), far), im: self.im.atan2(1.0 + self.re) }
    }

    /// The principal square root, whose real part is not negative.
    fn sqrt(self) -> Pair {
        let (zero, infinity) = (Sym::constant(0.0), Sym::constant(f64::INFINITY));
        let size = (0.5 * (self.re.hypot(self.im) + self.re.abs())).sqrt();
        let other = self.im / (2.0 * size);
        let right = self.re.ge(zero);
        let root = Pair { re: select(right, size, other.abs()), im: select(right, other, size.copysign(self.im)) };
        let at_zero = !self.is_nonzero();
        let root = Pair { re: select(at_zero, zero, root.re), im: select(at_zero, self.im, root.im) };
        let up = self.im.is_infinite();
        Pair { re: select(up, infinity, root.re), im: select(up, self.im, root.im) }
    }

    fn sinh(self) -> Pair {
        let known = !self.im.is_finite() & (self.re.eq(Sym::constant(0.0)) | self.re.is_infinite());
        Pair {
            re: select(known, self.re, self.re.sinh() * self.im.cos()),
            im: self.im_or(self.re.cosh() * self.im.sin()),
        }
    }

    fn cosh(self) -> Pair {
        let zero = Sym::constant(0.0);
        let real = self.im.eq(zero) | (self.re.eq(zero) & !self.im.is_finite());
        let signed = select(self.im.eq(zero), select(self.re.lt(zero), -self.im, self.im), zero);
        Pair {
            re: select(self.is_endless(), self.re.abs(), self.re.cosh() * self.im.cos()),
            im: select(real, signed, self.re.sinh() * self.im.sin()),
        }
    }

    /// With t = tanh re: (t + i tan im) / (1 + i t tan im), expanded so that a large real part does not overflow.
    fn tanh(self) -> Pair {
        let zero = Sym::constant(0.0);
        let (t, s, c, cosh) = (self.re.tanh(), self.im.sin(), self.im.cos(), self.re.cosh());
        // Away from 0 in terms of 1 - t², so that a large real part gives exactly 1.
        let size = select(self.re.abs().lt(Sym::constant(1.0)), c * c + t * t * s * s, 1.0 - s / cosh * (s / cosh));
        let known = !self.im.is_finite() & (self.re.eq(zero) | self.re.is_infinite());
        // In terms of cosh, since 1 - t² would cancel.
        let im = s * c / size / cosh / cosh;
        Pair { re: select(known, t, t / size), im: select(self.is_endless(), zero, self.im_or(im)) }
    }

    /// By Kahan's formula (1987), which has no cancellation; for large numbers log 2z.
    fn asinh(self) -> Pair {
        let (a, b) = (Pair { re: 1.0 + self.im, im: -self.re }.sqrt(), Pair { re: 1.0 - self.im, im: self.re }.sqrt());
        let left = self.re.lt(Sym::constant(0.0));
        let far = Pair { re: self.re.abs(), im: select(left, -self.im, self.im) }.ln();
        let large = self.is_large();
        let im = select(large, select(left, -far.im, far.im), self.im.atan2(a.re * b.re - a.im * b.im));
        Pair {
            re: select(large, (far.re + LN_2).copysign(self.re), (a.re * b.im - b.re * a.im).asinh()),
            im: self.im_or(im),
        }
    }

    /// As [`asinh`](Self::asinh).
    fn acos(self) -> Pair {
        let (a, b) = (Pair { re: 1.0 - self.re, im: -self.im }.sqrt(), Pair { re: 1.0 + self.re, im: self.im }.sqrt());
        let (far, large) = (self.ln(), self.is_large());
        let re = select(large, far.im.abs(), 2.0 * a.re.atan2(b.re));
        Pair {
            re: select(self.is_nan_above_zero(), Sym::constant(FRAC_PI_2), re),
            im: select(large, -(far.re + LN_2).copysign(self.im), (b.re * a.im - b.im * a.re).asinh()),
        }
    }

    /// As [`asinh`](Self::asinh).
    fn acosh(self) -> Pair {
        let (a, b) = (Pair { re: self.re - 1.0, im: self.im }.sqrt(), Pair { re: self.re + 1.0, im: self.im }.sqrt());
        let (far, large) = (self.ln(), self.is_large());
        let im = select(large, far.im, 2.0 * a.im.atan2(b.re));
        Pair {
            re: select(large, far.re + LN_2, (a.re * b.re + a.im * b.im).asinh()),
            im: select(self.is_nan_above_zero(), Sym::constant(FRAC_PI_2), im),
        }
    }

    fn is_nan_above_zero(self) -> SymMask {
        self.re.eq(Sym::constant(0.0)) & self.im.ne(self.im)
    }

    /// log(1 + 4 re / |1 - z|²) / 4 and an angle, computed in the right half-plane and with the sign of the number; for large
    /// numbers 1/z and a right angle.
    fn atanh(self) -> Pair {
        let (re, im) = (self.re.abs(), self.im.abs());
        let near = 0.25 * (4.0 * re / ((1.0 - re) * (1.0 - re) + im * im)).log1p();
        let angle = 0.5 * (2.0 * self.im).atan2((1.0 - re) * (1.0 + re) - im * im);
        let (more, large) = (re.maximum(im), self.is_large());
        let part = re.minimum(im) / more;
        let far = re / more / more / (1.0 + part * part);
        let far = select(re.is_infinite() | im.is_infinite(), Sym::constant(0.0), far);
        // The angle is NaN if the imaginary part is NaN, or if the real part is NaN and the imaginary part is not infinite.
        let unknown = self.im.ne(self.im) | (re.ne(re) & !im.is_infinite());
        let right = select(unknown, Sym::constant(f64::NAN), Sym::constant(FRAC_PI_2).copysign(self.im));
        let value = select(large, far, near).copysign(self.re);
        Pair { re: select(re.eq(Sym::constant(0.0)), self.re, value), im: select(large, right, angle) }
    }
}

impl Sym {
    fn is_finite(self) -> SymMask {
        self.abs().lt(Sym::constant(f64::INFINITY))
    }

    fn is_infinite(self) -> SymMask {
        self.abs().eq(Sym::constant(f64::INFINITY))
    }
}
