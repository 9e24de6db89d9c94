//! Arithmetic on two tensors, which broadcast against each other both ways.

use super::formula::{Expr, Num, Wrapping};
use super::map::{map, map_alike};
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::{BackwardContext, Grads};
use crate::backend::code::Code;
use crate::backend::cpu::elementwise::map::{Formula, Numbers, Tile};
use crate::error::bail;
use crate::layout::broadcast;
use crate::{DType, Operand, Result, Tensor};

/// The operations of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Maximum,
    Minimum,
}

impl Arithmetic {
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "add",
            Arithmetic::Sub => "sub",
            Arithmetic::Mul => "mul",
            Arithmetic::Div => "div",
            Arithmetic::Pow => "pow",
            Arithmetic::Maximum => "maximum",
            Arithmetic::Minimum => "minimum",
        }
    }

    pub fn tile(self) -> &'static dyn Tile<2> {
        match self {
            Arithmetic::Add => &Numbers(Add),
            Arithmetic::Sub => &Numbers(Sub),
            Arithmetic::Mul => &Numbers(Mul),
            Arithmetic::Div => &Numbers(Div),
            Arithmetic::Pow => &Numbers(Pow),
            Arithmetic::Maximum => &Numbers(Maximum),
            Arithmetic::Minimum => &Numbers(Minimum),
        }
    }
}

/// The dtype in which two dtypes meet: quotients are floats, and bools have no differences.
#[inline]
pub(crate) fn result_dtype(op: Arithmetic, a: DType, b: DType) -> Result<DType> {
    let dtype = common_dtype(op.name(), a, b)?;
    match op {
        Arithmetic::Div => Ok(dtype.to_float()),
        Arithmetic::Sub | Arithmetic::Pow if dtype == DType::Bool => {
            bail!(DType, op.name(), "not defined for two bools: cast one of them first")
        }
        _ => Ok(dtype),
    }
}

/// The promoted dtype, with the operation's name on a error_case.
#[inline]
pub(crate) fn common_dtype(op: &'static str, a: DType, b: DType) -> Result<DType> {
    if a == b {
        return Ok(a);
    }
    match a.promote(b) {
        Ok(dtype) => Ok(dtype),
        Err(_) => bail!(DType, op, "{a} and {b} have no common type: cast one of them first"),
    }
}

/// `kernel(a, b)` in the broadcast shape, computed in `compute`.
#[inline]
pub(crate) fn zip(
    op: &'static str,
    kernel: impl Tile<2> + Send + 'static,
    a: &Tensor,
    b: &Tensor,
    compute: DType,
    dtype: DType,
) -> Result<Tensor> {
    if a.layout().shape() == b.layout().shape() {
        return map_alike(op, kernel, compute, [a, b], dtype);
    }
    map(op, kernel, compute, [a, b], &broadcast(op, &[a.layout().shape(), b.layout().shape()])?, dtype)
}

/// The operation with its derivative.
#[track_caller]
pub(crate) fn arithmetic(op: Arithmetic, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let name = op.name();
    let dtype = result_dtype(op, a.dtype(), b.dtype())?;
    let out = zip(name, op.tile(), a, b, dtype, dtype)?;
    match op {
        Arithmetic::Add => out.record(name, &[a, b], |_| {
            |ctx: &BackwardContext, g: &Tensor| Ok(Grads::from([ctx.pass(0, g), ctx.pass(1, g)]))
        }),
        Arithmetic::Sub => out.record(name, &[a, b], |_| {
            |ctx: &BackwardContext, g: &Tensor| Ok(Grads::from([ctx.pass(0, g), ctx.want(1, || g.neg())?]))
        }),
        Arithmetic::Mul => out.record(name, &[a, b], |save| {
            let (a, b) = (save.save_for(1, a), save.save_for(0, b));
            move |ctx: &BackwardContext, g: &Tensor| {
                Ok(Grads::from([ctx.want(0, || g.mul(b.get()?))?, ctx.want(1, || g.mul(a.get()?))?]))
            }
        }),
        Arithmetic::Div => out.record(name, &[a, b], |save| {
            let (b, y) = (save.save(b), save.needs(1).then(|| save.save_output()));
            move |ctx: &BackwardContext, g: &Tensor| {
                let y = y.as_ref().map(|y| ctx.output(y));
                let by_b = || y.iter().fold(g.div(&b), |over_b, y| over_b?.mul(y)).and_then(|x| x.neg());
                Ok(Grads::from([ctx.want(0, || g.div(&b))?, ctx.want(1, by_b)?]))
            }
        }),
        Arithmetic::Pow => out.record(name, &[a, b], |save| {
            let (a, b, y) = (save.save(a), save.save(b), save.needs(1).then(|| save.save_output()));
            move |ctx: &BackwardContext, g: &Tensor| {
                let y = y.as_ref().map(|y| ctx.output(y));
                let by_exponent = || pow_by_exponent(g, &a, &b, y.as_ref());
                Ok(Grads::from([ctx.want(0, || pow_by_base(g, &a, &b))?, ctx.want(1, by_exponent)?]))
            }
        }),
        Arithmetic::Maximum | Arithmetic::Minimum => out.record(name, &[a, b], |save| {
            let (a, b) = (save.save(a), save.save(b));
            move |ctx: &BackwardContext, g: &Tensor| {
                let (first, second) = if op == Arithmetic::Maximum { (&a, &b) } else { (&b, &a) };
                let for_a = || chosen(g, first, second);
                let for_b = || chosen(g, second, first);
                Ok(Grads::from([ctx.want(0, for_a)?, ctx.want(1, for_b)?]))
            }
        }),
    }
}

/// `g · b · a^(b-1)`, and 0 where `b` is 0, whatever `a` is.
fn pow_by_base(g: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let slope = Expr::from(b) * Expr::from(a.pow(b.sub(1.0)?));
    let grad = (Expr::from(g) * slope).finish(g)?;
    b.eq(0.0)?.where_(0.0, grad)
}

/// `g · y · log(a)`, and 0 where `a` is 0 and `b` is not negative, where the logarithm has no value.
fn pow_by_exponent(g: &Tensor, a: &Tensor, b: &Tensor, y: Option<&Tensor>) -> Result<Tensor> {
    let y = y.map_or_else(|| Expr::from(a.pow(b)), Expr::from);
    let grad = (Expr::from(g) * (y * Expr::from(a.log()))).finish(g)?;
    let flat = a.eq(0.0)?.mul(&b.ge(0.0)?)?;
    flat.where_(0.0, grad)
}

/// The cotangent of `winner`: all of it where it is the greater, half where both are equal.
fn chosen(g: &Tensor, winner: &Tensor, loser: &Tensor) -> Result<Tensor> {
    let tied = winner.eq(loser)?.where_(g.mul(0.5)?, 0.0)?;
    winner.gt(loser)?.where_(g, tied)
}

macro_rules! kernels {
    ($($name:ident: |$a:ident, $b:ident| $float:expr, |$i:ident, $j:ident| $int:expr, |$x:ident, $y:ident| $code:expr;)+) => {$(
        struct $name;
        impl Formula<Code, 2> for $name {
            fn at(&self, [$x, $y]: [Code; 2]) -> Code { $code }
        }
        kernels!(@ $name f32 |$a, $b| $float);
        kernels!(@ $name f64 |$a, $b| $float);
        kernels!(@ $name i64 |$i, $j| $int);
        kernels!(@ $name u64 |$i, $j| $int);
    )+};
    (@ $name:ident $t:ty |$a:ident, $b:ident| $value:expr) => {
        impl Formula<$t, 2> for $name {
            #[inline(always)]
            fn at(&self, [$a, $b]: [$t; 2]) -> $t { $value }
        }
    };
}

kernels! {
    Add: |a, b| a + b, |i, j| i.wrapping_add(j), |x, y| x + y;
    Sub: |a, b| a - b, |i, j| i.wrapping_sub(j), |x, y| x - y;
    Mul: |a, b| a * b, |i, j| i.wrapping_mul(j), |x, y| x * y;
    Div: |a, b| a / b, |i, j| (Wrapping(i) / Wrapping(j)).0, |x, y| x / y;
    Pow: |a, b| a.powf(b), |i, j| int_pow(Wrapping(i), j as i64).0, |x, y| Code::call("power", [x, y]);
    // A NaN on either side wins.
    Maximum: |a, b| if a > b || a.is_nan() { a } else { b }, |i, j| i.max(j), |x, y| Code::call("larger", [x, y]);
    Minimum: |a, b| if a < b || a.is_nan() { a } else { b }, |i, j| i.min(j), |x, y| Code::call("smaller", [x, y]);
}

/// Integer powers by squaring; a negative exponent gives the quotient, which is 0 but for 1 and -1.
fn int_pow<T: Num + Copy + PartialEq>(base: T, exponent: i64) -> T {
    let (mut result, mut square, mut left) = (T::lit(1.0), base, exponent.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            result = result * square;
        }
        square = square * square;
        left >>= 1;
    }
    if exponent < 0 { T::lit(1.0) / result } else { result }
}

/// Defines the method and the list entry of each operation.
macro_rules! arithmetic_ops {
    ($(
        $(#[$doc:meta])*
        $entry:ident $name:ident = $op:ident, samples: |$low:literal, $high:literal|
    )+) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the shapes do not broadcast or the dtypes have no common type.
            #[track_caller]
            pub fn $name<'a>(&self, rhs: impl Into<Operand<'a>>) -> Result<Tensor> {
                match rhs.into() {
                    Operand::Borrowed(rhs) => arithmetic(Arithmetic::$op, self, rhs),
                    rhs => arithmetic(Arithmetic::$op, self, &*rhs.resolve(self.dtype(), self.device())?),
                }
            }
        )+}
        $(
            static $entry: Op = Op {
                name: stringify!($name),
                samples: || samples(stringify!($name), $low, $high, |a, b| a.$name(b)),
                error_cases: || error_cases(stringify!($name), |a, b| a.$name(b)),
            };
        )+
    };
}

arithmetic_ops! {
    /// The sum of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0], [2.0]])?;
    /// assert_eq!(x.add(&Tensor::new([10.0, 20.0])?)?.to_vec::<f32>()?, [11.0, 21.0, 12.0, 22.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ADD add = Add, samples: |-2.0, 2.0|

    /// The difference of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([3, 4])?.sub(1)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    SUB sub = Sub, samples: |-2.0, 2.0|

    /// The product, element by element, of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([3.0, 4.0])?.mul(0.5)?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    MUL mul = Mul, samples: |-2.0, 2.0|

    /// The quotient, element by element, of two tensors, or of a tensor and a number; integers give floats.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([3, 4])?.div(2)?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    DIV div = Div, samples: |0.5, 2.0|

    /// Each element raised to a power.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([3.0, 4.0])?.pow(2.0)?.to_vec::<f32>()?, [9.0, 16.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    POW pow = Pow, samples: |0.4, 2.0|

    /// The greater of two elements; a NaN on either side gives NaN. Where both are equal each gets half the gradient.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.0, 4.0])?.maximum(0.0)?.to_vec::<f32>()?, [0.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    MAXIMUM maximum = Maximum, samples: |-2.0, 2.0|

    /// The lesser of two elements; a NaN on either side gives NaN. Where both are equal each gets half the gradient.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([-1.0, 4.0])?.minimum(0.0)?.to_vec::<f32>()?, [-1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    MINIMUM minimum = Minimum, samples: |-2.0, 2.0|
}

impl Tensor {
    /// Each element times a constant.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.0, 2.0])?.scale(3.0)?.to_vec::<f32>()?, [3.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn scale(&self, factor: f64) -> Result<Tensor> {
        self.mul(factor)
    }
}

static SCALE: Op = Op {
    name: "scale",
    samples: || super::sample::unary_samples("scale", -2.0, 2.0, |x| x.scale(-1.5)),
    error_cases: || Ok(Vec::new()),
};

/// Pairs of shapes that broadcast in every way.
const PAIRS: [(&[usize], &[usize]); 10] = [
    (&[2, 3], &[2, 3]),
    (&[2, 3], &[1, 3]),
    (&[1, 3], &[2, 3]),
    (&[4, 1], &[1, 3]),
    (&[3], &[4, 3]),
    (&[2, 1, 3], &[4, 1]),
    (&[], &[2, 3]),
    (&[2], &[]),
    (&[], &[]),
    (&[0, 3], &[1, 3]),
];

type Call = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn samples(label: &'static str, low: f64, high: f64, call: Call) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for (a, b) in PAIRS {
        // Ranges that are shifted against each other, so that no two elements tie.
        let inputs = vec![spread(a, low, high)?, spread(b, low + 0.013, high + 0.017)?];
        all.push(Sample::new(label, inputs, move |x| call(&x[0], &x[1])));
    }
    let itself = Sample::new("with itself", vec![spread([2, 3], low, high)?], move |x| call(&x[0], &x[0]));
    // `x - x` and `x / x` do not depend on `x`.
    all.push(if matches!(label, "sub" | "div") { itself.with_zero_derivative() } else { itself });
    Ok(all)
}

fn error_cases(name: &'static str, call: Call) -> Result<Vec<ErrorCase>> {
    let (a, b) = (normal([2, 3], 1)?, normal([4], 2)?);
    let (u, i) = (Tensor::zeros_with([2], DType::U64)?, Tensor::zeros_with([2], DType::I8)?);
    Ok(vec![
        ErrorCase::new("shapes that do not broadcast", &[name, "[2, 3]", "[4]"], move || call(&a, &b)),
        ErrorCase::new("u64 with a signed integer", &[name, "u64", "i8"], move || call(&u, &i)),
    ])
}

pub(crate) static OPS: &[&Op] = &[&ADD, &SUB, &MUL, &DIV, &POW, &MAXIMUM, &MINIMUM, &SCALE];
