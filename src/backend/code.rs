//! Expressions in CUDA C: what a formula becomes when it is given symbols instead of numbers.

// Without GPUs formulas still can become code, and nobody asks them to.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

use std::ops;

/// What stands before the bits of a number.
const NUMBER: char = '#';

/// An expression of the compute dtype, which the source around it calls `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    /// A variable.
    pub fn symbol(name: &str) -> Code {
        Code(name.to_string())
    }

    /// A call of a function of the source's beginning, or of CUDA's own.
    pub fn call<const N: usize>(function: &str, arguments: [Code; N]) -> Code {
        Code(format!("{function}({})", arguments.map(|argument| argument.0).join(", ")))
    }

    /// A number. The kernel gets it as an argument, so that its source does not depend on it: in the text there stands
    /// [`NUMBER`] and its bits.
    pub fn number(value: f64) -> Code {
        Code(format!("{NUMBER}{:016x}", value.to_bits()))
    }

    /// `then` where the comparison of this with a number holds, else `otherwise`.
    pub fn choose(self, comparison: &str, bound: f64, then: &Code, otherwise: &Code) -> Code {
        Code(format!("({} {comparison} {} ? {} : {})", self.0, Code::number(bound).0, then.0, otherwise.0))
    }

    /// The text, with each number as an argument of the kernel; `numbers` has the bits of all of them so far.
    pub fn text(&self, numbers: &mut Vec<u64>) -> String {
        let mut pieces = self.0.split(NUMBER);
        let mut text = pieces.next().unwrap_or_default().to_string();
        for piece in pieces {
            let (bits, rest) = piece.split_at_checked(16).unwrap_or((piece, ""));
            let bits = u64::from_str_radix(bits, 16).unwrap_or(f64::NAN.to_bits());
            let at = numbers.iter().position(|&known| known == bits).unwrap_or_else(|| {
                numbers.push(bits);
                numbers.len() - 1
            });
            text.push_str(&format!("c{at}{rest}"));
        }
        text
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $sign:literal),+) => {$(
        impl ops::$operator for Code {
            type Output = Code;
            fn $method(self, other: Code) -> Code {
                Code(format!("({} {} {})", self.0, $sign, other.0))
            }
        }
    )+};
}
operators!(Add add "+", Sub sub "-", Mul mul "*");

/// By a function, since integers divided by zero give zero.
impl ops::Div for Code {
    type Output = Code;
    fn div(self, other: Code) -> Code {
        Code::call("divide", [self, other])
    }
}

impl ops::Neg for Code {
    type Output = Code;
    fn neg(self) -> Code {
        Code(format!("(-{})", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_order() {
        let [a, b] = ["a", "b"].map(Code::symbol);
        let code = -(a.clone() + b.clone()) * (a / b);
        assert_eq!(code.text(&mut Vec::new()), "((-(a + b)) * divide(a, b))");
    }

    #[test]
    fn numbers_become_arguments() {
        let a = Code::symbol("a");
        let (half, nan) = (Code::number(0.5), Code::number(f64::NAN));
        let code = a.choose(">", 0.5, &(half + nan), &Code::number(-0.0));
        let mut numbers = Vec::new();
        assert_eq!(code.text(&mut numbers), "(a > c0 ? (c0 + c1) : c2)");
        assert_eq!(numbers, [0.5, f64::NAN, -0.0].map(f64::to_bits));
    }
}
