//! The scalar functions of formulas. Each is one line of a table, with the code for every compute dtype, the name in CUDA C, and
//! the derivative.
//!
//! Functions are compiled, formulas are not. A formula for which a benchmark justifies compiled code becomes a
//! [fused](Meaning::Fused) function.

use super::formula::Sym;
use super::number::{Arithmetic, Constant, N, Ordered, select};
use crate::DType;
use crate::backend::cpu::elementwise::math;
use crate::backend::cpu::runtime::simd::{Job, baseline, dispatch, each};
use smallvec::SmallVec;
use std::fmt;

/// A loop over `n` elements: `y[i] = f(x[0][i], ..)`, in one compute dtype.
///
/// # Safety
/// The arguments in `x` that the function takes are valid for `n` reads, and `y` for `n` writes; an `x[k]` is equal to `y` or does
/// not overlap it.
pub(crate) type Loop = unsafe fn(x: [*const u8; 3], y: *mut u8, n: usize);

/// A compiled function of up to three numbers.
pub(crate) struct Function {
    pub name: &'static str,
    pub arity: usize,
    /// For f32, f64, i64 and u64.
    kernels: [Option<Loop>; 4],
    pub meaning: Meaning,
}

pub(crate) enum Meaning {
    /// A basic function: its CUDA C code, with `{0}`, `{1}`, `{2}` for the arguments, and its derivative
    /// with respect to each, from the arguments and the result.
    Basic {
        #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
        cuda: &'static str,
        partials: fn([Sym; 3], Sym) -> Partials,
    },
    /// A formula of other functions, compiled as one. CUDA code and derivative follow from the formula.
    Fused(fn([Sym; 3]) -> Sym),
}

/// The derivatives with respect to the arguments; `None` for 0.
pub(crate) type Partials = SmallVec<[Option<Sym>; 3]>;

impl Function {
    /// The loop for a compute dtype, if the function is defined for it.
    #[inline]
    pub fn kernel(&self, compute: DType) -> Option<Loop> {
        match compute {
            DType::F32 => self.kernels[0],
            DType::F64 => self.kernels[1],
            DType::I64 => self.kernels[2],
            DType::U64 => self.kernels[3],
            _ => None,
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A function of elements of compute dtype `C`.
trait Pointwise<C, const A: usize> {
    fn at(x: [C; A]) -> C;
}

struct Elements<C, F, const A: usize> {
    x: [*const C; A],
    y: *mut C,
    n: usize,
    function: std::marker::PhantomData<F>,
}

impl<C: Copy, F: Pointwise<C, A>, const A: usize> Job for Elements<C, F, A> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Elements { x, y, n, .. } = self;
        for i in 0..n {
            // SAFETY: the contract of `Loop`, under which this is made: all pointers are valid for `n` elements.
            unsafe { y.add(i).write(F::at(each(|k| x[k].add(i).read()))) };
        }
    }
}

#[inline(always)]
fn elements<C, F, const A: usize>(x: [*const u8; 3], y: *mut u8, n: usize) -> Elements<C, F, A> {
    let x = each(|k| x[k].cast::<C>());
    Elements { x, y: y.cast::<C>(), n, function: std::marker::PhantomData }
}

/// # Safety
/// As for [`Loop`].
unsafe fn vectorized<C: Copy, F: Pointwise<C, A>, const A: usize>(x: [*const u8; 3], y: *mut u8, n: usize) {
    if n < 8 {
        // Too short to benefit from wide vectors.
        baseline(elements::<C, F, A>(x, y, n));
    } else {
        dispatch(elements::<C, F, A>(x, y, n));
    }
}

/// As [`vectorized`], for scalar functions of the platform's library, for which one version of the loop is enough.
///
/// # Safety
/// As for [`Loop`].
unsafe fn scalar<C: Copy, F: Pointwise<C, A>, const A: usize>(x: [*const u8; 3], y: *mut u8, n: usize) {
    baseline(elements::<C, F, A>(x, y, n));
}

/// A derivative as written in the table.
trait Partial {
    fn get(self) -> Option<Sym>;
}

impl Partial for f64 {
    fn get(self) -> Option<Sym> {
        (self != 0.0).then(|| Sym::constant(self))
    }
}

impl Partial for Sym {
    fn get(self) -> Option<Sym> {
        Some(self)
    }
}

macro_rules! count {
    ($a:ident) => {
        1
    };
    ($a:ident $b:ident) => {
        2
    };
    ($a:ident $b:ident $c:ident) => {
        3
    };
}

/// Binds the arguments of a function.
macro_rules! symbols {
    ($args:ident => $($arg:ident)+) => {
        let [$($arg,)+ ..] = $args;
    };
}

/// Functions of all compute dtypes, by one expression; after `methods;` they are also methods of [`Sym`].
macro_rules! numbers {
    (methods; $($(#[$doc:meta])* $name:ident $method:ident($first:ident $(, $arg:ident)*) = $value:expr, $cuda:literal,
        |$y:ident| [$($partial:expr),+];)+) => {
        numbers! { $($(#[$doc])* $name $method($first $(, $arg)*) = $value, $cuda, |$y| [$($partial),+];)+ }
        impl Sym {$(
            $(#[$doc])*
            pub fn $method(self $(, $arg: Sym)*) -> Sym {
                Sym::call(&$name, &[self $(, $arg)*])
            }
        )+}
    };
    ($($(#[$doc:meta])* $name:ident $method:ident($($arg:ident),+) = $value:expr, $cuda:literal, |$y:ident| [$($partial:expr),+];)+) => {$(
        #[allow(non_camel_case_types)]
        struct $method;
        numbers!(@ $method f32 ($($arg),+) $value);
        numbers!(@ $method f64 ($($arg),+) $value);
        numbers!(@ $method i64 ($($arg),+) $value);
        numbers!(@ $method u64 ($($arg),+) $value);
        $(#[$doc])*
        pub(crate) static $name: Function = Function {
            name: stringify!($method),
            arity: count!($($arg)+),
            kernels: [
                Some(vectorized::<f32, $method, { count!($($arg)+) }>),
                Some(vectorized::<f64, $method, { count!($($arg)+) }>),
                Some(vectorized::<i64, $method, { count!($($arg)+) }>),
                Some(vectorized::<u64, $method, { count!($($arg)+) }>),
            ],
            meaning: Meaning::Basic {
                cuda: $cuda,
                #[allow(unused_variables)]
                partials: |args, $y| { symbols!(args => $($arg)+); SmallVec::from_iter([$(Partial::get($partial)),+]) },
            },
        };
    )+};
    (@ $method:ident $c:ident ($($arg:ident),+) $value:expr) => {
        impl Pointwise<$c, { count!($($arg)+) }> for $method {
            #[inline(always)]
            fn at(x: [$c; count!($($arg)+)]) -> $c {
                #[allow(dead_code)]
                type T = N<$c>;
                let [$($arg),+] = each(|k| N(x[k]));
                T::from($value).0
            }
        }
    };
}

/// In a loop the result of a comparison is a number.
impl<C> From<bool> for N<C>
where
    N<C>: Ordered<Mask = bool>,
{
    #[inline(always)]
    fn from(mask: bool) -> N<C> {
        N::<C>::from_mask(mask)
    }
}

/// Functions of integers, by an expression for each type.
macro_rules! ints {
    ($($(#[$doc:meta])* $name:ident $method:ident($first:ident $(, $arg:ident)*) = $value:expr, $cuda:literal;)+) => {$(
        impl Sym {
            $(#[$doc])*
            pub fn $method(self $(, $arg: Sym)*) -> Sym {
                Sym::call(&$name, &[self $(, $arg)*])
            }
        }
        #[allow(non_camel_case_types)]
        struct $method;
        ints!(@ $method i64 ($first $(, $arg)*) $value);
        ints!(@ $method u64 ($first $(, $arg)*) $value);
        $(#[$doc])*
        pub(crate) static $name: Function = Function {
            name: stringify!($method),
            arity: count!($first $($arg)*),
            kernels: [
                None,
                None,
                Some(vectorized::<i64, $method, { count!($first $($arg)*) }>),
                Some(vectorized::<u64, $method, { count!($first $($arg)*) }>),
            ],
            meaning: Meaning::Basic { cuda: $cuda, partials: |_, _| Partials::from_elem(None, count!($first $($arg)*)) },
        };
    )+};
    (@ $method:ident $c:ident ($($arg:ident),+) $value:expr) => {
        impl Pointwise<$c, { count!($($arg)+) }> for $method {
            #[inline(always)]
            fn at([$($arg),+]: [$c; count!($($arg)+)]) -> $c { $value }
        }
    };
}

/// Functions of real numbers, by a function for f32 and one for f64; `vectorized` if these have neither branches nor
/// calls, else `scalar`. They are the methods of [`Real`].
macro_rules! reals {
    ($($(#[$doc:meta])* $how:ident $name:ident $method:ident($x:ident $(, $arg:ident)*) = $f32:expr, $f64:expr, $cuda:literal,
        |$y:ident| [$($partial:expr),+];)+) => {
        /// Functions of real numbers.
        pub(crate) trait Real: Ordered {$(
            $(#[$doc])*
            fn $method(self $(, $arg: Self)*) -> Self;
        )+}

        impl Real for N<f32> {$(
            #[inline(always)]
            fn $method(self $(, $arg: Self)*) -> Self { N($f32(self.0 $(, $arg.0)*)) }
        )+}

        impl Real for N<f64> {$(
            #[inline(always)]
            fn $method(self $(, $arg: Self)*) -> Self { N($f64(self.0 $(, $arg.0)*)) }
        )+}

        impl Real for Sym {$(
            fn $method(self $(, $arg: Self)*) -> Self { Sym::call(&$name, &[self $(, $arg)*]) }
        )+}

        $(
            #[allow(non_camel_case_types)]
            struct $method;
            reals!(@function $(#[$doc])* $how $name $method($x $(, $arg)*) = $f32, $f64, $cuda, |$y| [$($partial),+]);
        )+
    };
    (@function $(#[$doc:meta])* $how:ident $name:ident $method:ident($x:ident $(, $arg:ident)*) = $f32:expr, $f64:expr,
        $cuda:literal, |$y:ident| [$($partial:expr),+]) => {
        impl Pointwise<f32, { count!($x $($arg)*) }> for $method {
            #[inline(always)]
            fn at([$x $(, $arg)*]: [f32; count!($x $($arg)*)]) -> f32 { $f32($x $(, $arg)*) }
        }
        impl Pointwise<f64, { count!($x $($arg)*) }> for $method {
            #[inline(always)]
            fn at([$x $(, $arg)*]: [f64; count!($x $($arg)*)]) -> f64 { $f64($x $(, $arg)*) }
        }
        $(#[$doc])*
        pub(crate) static $name: Function = Function {
            name: stringify!($method),
            arity: count!($x $($arg)*),
            kernels: [
                Some($how::<f32, $method, { count!($x $($arg)*) }>),
                Some($how::<f64, $method, { count!($x $($arg)*) }>),
                None,
                None,
            ],
            meaning: Meaning::Basic {
                cuda: $cuda,
                #[allow(unused_variables)]
                partials: |args, $y| { symbols!(args => $x $($arg)*); SmallVec::from_iter([$(Partial::get($partial)),+]) },
            },
        };
    };
}

/// Functions of real numbers that only formulas use: as [`reals!`], but methods of [`Sym`] alone.
macro_rules! specials {
    ($($(#[$doc:meta])* $how:ident $name:ident $method:ident($x:ident $(, $arg:ident)*) = $f32:expr, $f64:expr, $cuda:literal,
        |$y:ident| [$($partial:expr),+];)+) => {
        impl Sym {$(
            $(#[$doc])*
            pub fn $method(self $(, $arg: Sym)*) -> Sym {
                Sym::call(&$name, &[self $(, $arg)*])
            }
        )+}
        $(
            #[allow(non_camel_case_types)]
            struct $method;
            reals!(@function $(#[$doc])* $how $name $method($x $(, $arg)*) = $f32, $f64, $cuda, |$y| [$($partial),+]);
        )+
    };
}

/// Formulas that are compiled as one, of real numbers (`Real`) or of all numbers (`Ordered`). Each is a generic function.
macro_rules! fused {
    ($($(#[$doc:meta])* $trait:ident $name:ident $method:ident($first:ident $(, $arg:ident)*) = $value:expr;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        fn $method<T: $trait>($first: T $(, $arg: T)*) -> T
        where
            f64: Constant<T>,
        {
            $value
        }

        impl Sym {
            $(#[$doc])*
            pub fn $method(self $(, $arg: Sym)*) -> Sym {
                Sym::call(&$name, &[self $(, $arg)*])
            }
        }

        // In the type namespace, next to the function of the same name.
        #[allow(non_camel_case_types)]
        struct $method {}
        fused!(@ $trait $method $first $($arg)*);
        pub(crate) static $name: Function = Function {
            name: stringify!($method),
            arity: count!($first $($arg)*),
            kernels: fused!(@kernels $trait $method $first $($arg)*),
            meaning: Meaning::Fused(|args| { symbols!(args => $first $($arg)*); $method($first $(, $arg)*) }),
        };
    )+};
    (@ Real $method:ident $($arg:ident)+) => {
        fused!(@of f32 $method $($arg)+);
        fused!(@of f64 $method $($arg)+);
    };
    (@ Ordered $method:ident $($arg:ident)+) => {
        fused!(@ Real $method $($arg)+);
        fused!(@of i64 $method $($arg)+);
        fused!(@of u64 $method $($arg)+);
    };
    (@of $c:ident $method:ident $($arg:ident)+) => {
        impl Pointwise<$c, { count!($($arg)+) }> for $method {
            #[inline(always)]
            fn at(x: [$c; count!($($arg)+)]) -> $c {
                let [$($arg),+] = each(|k| N(x[k]));
                $method($($arg),+).0
            }
        }
    };
    (@kernels Real $method:ident $($arg:ident)+) => {
        [
            Some(vectorized::<f32, $method, { count!($($arg)+) }>),
            Some(vectorized::<f64, $method, { count!($($arg)+) }>),
            None,
            None,
        ]
    };
    (@kernels Ordered $method:ident $($arg:ident)+) => {
        [
            Some(vectorized::<f32, $method, { count!($($arg)+) }>),
            Some(vectorized::<f64, $method, { count!($($arg)+) }>),
            Some(vectorized::<i64, $method, { count!($($arg)+) }>),
            Some(vectorized::<u64, $method, { count!($($arg)+) }>),
        ]
    };
}

mod bessel;
pub(crate) mod special;
pub(crate) use special::{sinc, sinc_slope};

numbers! {
    ADD add(a, b) = a + b, "({0} + {1})", |y| [1.0, 1.0];
    SUB sub(a, b) = a - b, "({0} - {1})", |y| [1.0, -1.0];
    MUL mul(a, b) = a * b, "({0} * {1})", |y| [b, a];
    DIV div(a, b) = a / b, "divide({0}, {1})", |y| [1.0 / b, -y / b];
    NEG neg(a) = -a, "(-{0})", |y| [-1.0];
    LT lt(a, b) = a.lt(b), "lt({0}, {1})", |y| [0.0, 0.0];
    LE le(a, b) = a.le(b), "le({0}, {1})", |y| [0.0, 0.0];
    GT gt(a, b) = a.gt(b), "gt({0}, {1})", |y| [0.0, 0.0];
    GE ge(a, b) = a.ge(b), "ge({0}, {1})", |y| [0.0, 0.0];
    EQ eq(a, b) = a.eq(b), "eq({0}, {1})", |y| [0.0, 0.0];
    NE ne(a, b) = a.ne(b), "ne({0}, {1})", |y| [0.0, 0.0];
    LOGICAL_AND logical_and(a, b) = a.ne(T::constant(0.0)) & b.ne(T::constant(0.0)), "logical_and({0}, {1})", |y| [0.0, 0.0];
    LOGICAL_OR logical_or(a, b) = a.ne(T::constant(0.0)) | b.ne(T::constant(0.0)), "logical_or({0}, {1})", |y| [0.0, 0.0];
    LOGICAL_NOT logical_not(a) = a.eq(T::constant(0.0)), "logical_not({0})", |y| [0.0];
    // The derivative does not use these, since products with 0 would let in the branch not taken: see `derivative`.
    SELECT select_(c, a, b) = select(c.ne(T::constant(0.0)), a, b), "select({0}, {1}, {2})", |y| [0.0, 0.0, 0.0];
}

numbers! {
    methods;
    // 0 - x and not -x, so that -0 becomes 0.
    ABS abs(a) = select(a.gt(T::constant(0.0)), a, 0.0 - a), "absolute({0})", |y| [a.sign()];
    /// The sign: -1, 0 or 1; 0 for NaN.
    SIGN sign(a) = T::from_mask(a.gt(T::constant(0.0))) - T::from_mask(a.lt(T::constant(0.0))),
        "sign({0})", |y| [0.0];
    // NaN in either argument gives NaN. Both comparisons are always made: a branch would prevent vectorisation. Equal arguments
    // have half the derivative each.
    MAXIMUM maximum(a, b) = select(a.gt(b) | a.ne(a), a, b), "larger({0}, {1})", |y| [half_where_equal(a, b), half_where_equal(b, a)];
    MINIMUM minimum(a, b) = select(a.lt(b) | a.ne(a), a, b), "smaller({0}, {1})", |y| [half_where_equal(b, a), half_where_equal(a, b)];
}

/// Whether the result of a function is 0 or 1.
pub(super) fn is_truth(function: &'static Function) -> bool {
    let all: [&'static Function; 9] = [&LT, &LE, &GT, &GE, &EQ, &NE, &LOGICAL_AND, &LOGICAL_OR, &LOGICAL_NOT];
    all.iter().any(|truth| std::ptr::eq(*truth, function))
}

/// 1 if `a` is larger or one is NaN, 1/2 if both are equal, else 0.
fn half_where_equal(a: Sym, b: Sym) -> Sym {
    select(a.eq(b), Sym::constant(0.5), Sym::from_mask(!a.lt(b)))
}

ints! {
    BITWISE_AND bitwise_and(a, b) = a & b, "({0} & {1})";
    BITWISE_OR bitwise_or(a, b) = a | b, "({0} | {1})";
    BITWISE_XOR bitwise_xor(a, b) = a ^ b, "({0} ^ {1})";
    BITWISE_NOT bitwise_not(a) = !a, "(~{0})";
    /// Shifting by the bit width or more, or by a negative number, gives 0.
    SHIFT_LEFT shift_left(a, b) = if (b as u64) < 64 { a << b } else { 0 }, "shift_left({0}, {1})";
    /// An arithmetic shift: copies of the sign bit are shifted in.
    SHIFT_RIGHT shift_right(a, b) = if (b as u64) < 64 { a >> b } else { a >> 63 }, "shift_right({0}, {1})";
    /// The greatest common divisor, which is never negative.
    GCD gcd(a, b) = {
        let (mut a, mut b) = (a, b);
        while b != 0 {
            (a, b) = (b, a.wrapping_rem(b));
        }
        // Written so that it also works for unsigned numbers.
        if a > 0 { a } else { a.wrapping_neg() }
    }, "gcd({0}, {1})";
}

/// `x / length²`, and 0 if `length` is 0.
fn over_square(x: Sym, length: Sym) -> Sym {
    select(length.eq(Sym::constant(0.0)), Sym::constant(0.0), x / length / length)
}

reals! {
    vectorized EXP exp(x) = math::exp_f32, math::exp_f64, "exp({0})", |y| [y];
    vectorized LN ln(x) = math::ln_f32, math::ln_f64, "log({0})", |y| [1.0 / x];
    vectorized SQRT sqrt(x) = f32::sqrt, f64::sqrt, "sqrt({0})", |y| [0.5 / y];
    vectorized TANH tanh(x) = math::tanh_f32, math::tanh_f64, "tanh({0})", |y| [1.0 - y * y];
    vectorized SIGMOID sigmoid(x) = math::sigmoid_f32, math::sigmoid_f64, "sigmoid({0})", |y| [y * (1.0 - y)];
    vectorized ERF erf(x) = math::erf_f32, math::erf_f64, "erf({0})",
        |y| [std::f64::consts::FRAC_2_SQRT_PI * (-(x * x)).exp()];
    vectorized EXPM1 expm1(x) = math::expm1_f32, math::expm1_f64, "expm1({0})", |y| [y + 1.0];
    vectorized LOG1P log1p(x) = math::log1p_f32, math::log1p_f64, "log1p({0})", |y| [1.0 / (x + 1.0)];
    vectorized SIN sin(x) = math::sin_f32, math::sin_f64, "sin({0})", |y| [x.cos()];
    vectorized COS cos(x) = math::cos_f32, math::cos_f64, "cos({0})", |y| [-x.sin()];
    vectorized FLOOR floor(x) = f32::floor, f64::floor, "floor({0})", |y| [0.0];
    vectorized TRUNC trunc(x) = f32::trunc, f64::trunc, "trunc({0})", |y| [0.0];
    scalar FMOD fmod(x, b) = std::ops::Rem::rem, std::ops::Rem::rem, "fmod({0}, {1})", |y| [1.0, -(x / b).trunc()];
    scalar ATAN2 atan2(x, b) = f32::atan2, f64::atan2, "atan2({0}, {1})", |y| [over_square(b, x.hypot(b)), over_square(-x, x.hypot(b))];
    scalar HYPOT hypot(x, b) = f32::hypot, f64::hypot, "hypot({0}, {1})", |y| [x / y, b / y];
}

/// Powers: of floats by the platform's library; of integers by squaring, with wrap-around.
pub(crate) static POW: Function = {
    struct Power;
    impl Pointwise<f32, 2> for Power {
        #[inline(always)]
        fn at([a, b]: [f32; 2]) -> f32 {
            a.powf(b)
        }
    }
    impl Pointwise<f64, 2> for Power {
        #[inline(always)]
        fn at([a, b]: [f64; 2]) -> f64 {
            a.powf(b)
        }
    }
    impl Pointwise<i64, 2> for Power {
        #[inline(always)]
        fn at([a, b]: [i64; 2]) -> i64 {
            let power = integer_power(a as u64, b.unsigned_abs()) as i64;
            // 1 / power, which is 0 except for 1 and -1.
            if b < 0 { (N(1) / N(power)).0 } else { power }
        }
    }
    impl Pointwise<u64, 2> for Power {
        #[inline(always)]
        fn at([a, b]: [u64; 2]) -> u64 {
            integer_power(a, b)
        }
    }
    Function {
        name: "pow",
        arity: 2,
        kernels: [
            Some(scalar::<f32, Power, 2>),
            Some(scalar::<f64, Power, 2>),
            Some(scalar::<i64, Power, 2>),
            Some(scalar::<u64, Power, 2>),
        ],
        meaning: Meaning::Basic {
            cuda: "power({0}, {1})",
            partials: |[a, b, _], y| {
                let zero = Sym::constant(0.0);
                // 0 if the exponent is 0, whatever the base.
                let by_base = select(b.eq(zero), zero, b * a.pow(b - 1.0));
                // 0 if the base is 0 and the exponent not negative, where the logarithm is infinite. Tested by the power being 0
                // or 1, since complex numbers, which have no order, use this rule, too.
                let known = a.eq(zero) & (y.eq(zero) | y.eq(Sym::constant(1.0)));
                let by_exponent = select(known, zero, y * a.ln());
                SmallVec::from_iter([Some(by_base), Some(by_exponent)])
            },
        },
    }
};

/// The power with wrap-around. In two's complement it is the same for signed numbers.
fn integer_power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut left) = (1_u64, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    result
}

impl Sym {
    pub fn pow(self, exponent: Sym) -> Sym {
        Sym::call(&POW, &[self, exponent])
    }
}

const INV_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
/// The approximation is `Φ(x) ≈ (1 + tanh u) / 2 = σ(2 u)` with `2 u = x (LINEAR + CUBIC x²)`.
const LINEAR: f64 = 2.0 * 0.797_884_560_802_865_4;
const CUBIC: f64 = LINEAR * 0.044_715;

fused! {
    // In this order NaN stays NaN.
    Ordered RELU relu(x) = select(x.lt(T::constant(0.0)), T::constant(0.0), x);
    Ordered RELU_GRAD relu_grad(g, y) = select(y.le(T::constant(0.0)), T::constant(0.0), g);
    Real TANH_GRAD tanh_grad(g, y) = g * (1.0 - y * y);
    Real SIGMOID_GRAD sigmoid_grad(g, y) = g * (y * (1.0 - y));
    Real SILU silu(x) = x * x.sigmoid();
    Real SILU_GRAD silu_grad(g, x) = {
        let s = x.sigmoid();
        g * (s * (1.0 + x * (1.0 - s)))
    };
    Real GELU gelu(x) = x * (0.5 * (1.0 + (x * std::f64::consts::FRAC_1_SQRT_2).erf()));
    Real GELU_GRAD gelu_grad(g, x) = {
        let share = 0.5 * (1.0 + (x * std::f64::consts::FRAC_1_SQRT_2).erf());
        g * (share + x * (INV_SQRT_2PI * (x * x * -0.5).exp()))
    };
    // By the logistic function, which is accurate in the left tail, where `1 + tanh u` would cancel.
    Real GELU_TANH gelu_tanh(x) = x * (x * (LINEAR + CUBIC * (x * x))).sigmoid();
    Real GELU_TANH_GRAD gelu_tanh_grad(g, x) = {
        let share = (x * (LINEAR + CUBIC * (x * x))).sigmoid();
        let inner = LINEAR + CUBIC * (x * x) * 3.0;
        g * (share + x * (share * (1.0 - share)) * inner)
    };
}
