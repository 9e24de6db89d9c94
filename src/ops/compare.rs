//! Comparisons, which give bools, and choosing by a bool.

use super::binary::{common_dtype, zip};
use super::map::map;
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::BackwardContext;
use crate::backend::code::Code;
use crate::backend::cpu::elementwise::map::{Formula, Numbers};
use crate::error::bail;
use crate::layout::broadcast;
use crate::{DType, Operand, Result, Tensor};
use smallvec::smallvec;

/// Defines comparison kernels, which answer 1 or 0 in the compute dtype, their methods and list entries.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $entry:ident $kernel:ident $name:ident: |$a:ident, $b:ident| $value:expr;)+) => {
        $(
            struct $kernel;
            comparisons!(@ $kernel f32 |$a, $b| $value);
            comparisons!(@ $kernel f64 |$a, $b| $value);
            comparisons!(@ $kernel i64 |$a, $b| $value);
            comparisons!(@ $kernel u64 |$a, $b| $value);
            impl Formula<Code, 2> for $kernel {
                fn at(&self, [a, b]: [Code; 2]) -> Code { Code::call(stringify!($name), [a, b]) }
            }

            static $entry: Op = Op {
                name: stringify!($name),
                samples: || compare_samples(stringify!($name), |a, b| a.$name(b)),
                error_cases: || compare_error_cases(stringify!($name), |a, b| a.$name(b)),
            };
        )+
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the shapes do not broadcast or the dtypes have no common type.
            #[track_caller]
            pub fn $name<'a>(&self, rhs: impl Into<Operand<'a>>) -> Result<Tensor> {
                let rhs = rhs.into();
                let rhs = rhs.resolve(self.dtype(), self.device())?;
                let compute = common_dtype(stringify!($name), self.dtype(), rhs.dtype())?;
                let out = zip(stringify!($name), Numbers($kernel), self, &rhs, compute, DType::Bool)?;
                Ok(out.record_barrier(stringify!($name), &[self, &rhs]))
            }
        )+}
    };
    (@ $kernel:ident $t:ty |$a:ident, $b:ident| $value:expr) => {
        impl Formula<$t, 2> for $kernel {
            #[inline(always)]
            fn at(&self, [$a, $b]: [$t; 2]) -> $t { u8::from($value) as $t }
        }
    };
}

comparisons! {
    /// Where two elements are equal; a NaN equals nothing.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 2])?.eq(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    EQ Eq eq: |a, b| a == b;

    /// Where two elements differ.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 2])?.ne(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    NE Ne ne: |a, b| a != b;

    /// Where the left element is less.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 2])?.lt(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    LT Lt lt: |a, b| a < b;

    /// Where the left element is less or equal.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 3])?.le(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    LE Le le: |a, b| a <= b;

    /// Where the left element is greater.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 3])?.gt(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    GT Gt gt: |a, b| a > b;

    /// Where the left element is greater or equal.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1, 2])?.ge(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    GE Ge ge: |a, b| a >= b;
}

type Call = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn compare_samples(label: &'static str, call: Call) -> Result<Vec<Sample>> {
    let sample = |a: Tensor, b: Tensor| Sample::new(label, vec![a, b], move |x| call(&x[0], &x[1]));
    let ints = |values: [i64; 4]| Tensor::from_slice(&values, [4]);
    Ok(vec![
        sample(spread([2, 3], -1.0, 1.0)?, spread([3], -1.0, 1.0)?),
        sample(spread((), -1.0, 1.0)?, spread([2, 2], -1.0, 1.0)?),
        sample(ints([1, 2, 3, 4])?, ints([1, 3, 2, 4])?),
    ])
}

fn compare_error_cases(name: &'static str, call: Call) -> Result<Vec<ErrorCase>> {
    let (a, b) = (normal([2, 3], 1)?, normal([4], 2)?);
    Ok(vec![ErrorCase::new("shapes that do not broadcast", &[name, "[2, 3]", "[4]"], move || call(&a, &b))])
}

/// Chooses between two numbers by a third: not zero takes the first.
struct Select;

macro_rules! select {
    ($($t:ty),+) => {$(
        impl Formula<$t, 3> for Select {
            #[inline(always)]
            fn at(&self, [condition, a, b]: [$t; 3]) -> $t { if condition != 0 as $t { a } else { b } }
        }
    )+};
}
select!(f32, f64, i64, u64);

impl Formula<Code, 3> for Select {
    fn at(&self, [condition, a, b]: [Code; 3]) -> Code {
        Code::call("select", [condition, a, b])
    }
}

impl Tensor {
    /// The elements of `a` where this bool tensor is true, those of `b` elsewhere; all three broadcast.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([-1.0, 2.0])?;
    /// assert_eq!(x.gt(0.0)?.where_(&x, 0.0)?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is not a bool tensor, the shapes do not broadcast, or the dtypes have no common type.
    #[track_caller]
    pub fn where_<'a>(&self, a: impl Into<Operand<'a>>, b: impl Into<Operand<'a>>) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        // A number beside a tensor takes that tensor's dtype; of two numbers the first decides.
        let guide = match (&a, &b) {
            (Operand::Scalar(x), Operand::Scalar(_)) => x.default_dtype(),
            (Operand::Scalar(_), Operand::Borrowed(t)) => t.dtype(),
            (Operand::Scalar(_), Operand::Owned(t)) => t.dtype(),
            (Operand::Borrowed(t), _) => t.dtype(),
            (Operand::Owned(t), _) => t.dtype(),
        };
        let (a, b) = (a.resolve(guide, self.device())?, b.resolve(guide, self.device())?);
        where_tensors(self, &a, &b)
    }

    /// This tensor with `value` put in where `mask` is true; the two broadcast.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([1.0, 2.0])?;
    /// assert_eq!(x.masked_fill(&x.gt(1.5)?, 0.0)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the mask is not a bool tensor, the shapes do not broadcast, or the number does not fit the dtype.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<crate::Scalar>) -> Result<Tensor> {
        let value = value.into();
        if value.beside(self.dtype()) != self.dtype() {
            bail!(DType, "masked_fill", "{value} cannot be put into a tensor of {}", self.dtype());
        }
        if mask.dtype() != DType::Bool {
            bail!(DType, "masked_fill", "the mask must be of bools, not {}", mask.dtype());
        }
        broadcast("masked_fill", &[mask.layout().shape(), self.layout().shape()])?;
        where_tensors(mask, &Tensor::scalar(value, self.dtype(), self.device())?, self)
    }
}

#[track_caller]
fn where_tensors(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if condition.dtype() != DType::Bool {
        bail!(DType, "where_", "the condition must be of bools, not {}", condition.dtype());
    }
    let dtype = common_dtype("where_", a.dtype(), b.dtype())?;
    let shape = broadcast("where_", &[condition.layout().shape(), a.layout().shape(), b.layout().shape()])?;
    let out = map("where_", Numbers(Select), dtype, [condition, a, b], &shape, dtype)?;
    out.record("where_", &[a, b], |save| {
        let condition = save.save(&condition.detach());
        move |ctx: &BackwardContext, g: &Tensor| {
            Ok(smallvec![ctx.want(0, || condition.where_(g, 0.0))?, ctx.want(1, || condition.where_(0.0, g))?])
        }
    })
}

static WHERE: Op = Op {
    name: "where_",
    samples: || {
        let shapes: [(&[usize], &[usize], &[usize]); 4] =
            [(&[2, 3], &[2, 3], &[2, 3]), (&[3], &[2, 1], &[2, 3]), (&[2, 1], &[], &[3]), (&[], &[2], &[])];
        let sample = |(c, a, b): (&[usize], &[usize], &[usize])| {
            let inputs = vec![spread(c, -1.0, 1.0)?.gt(0.0)?, spread(a, 1.0, 2.0)?, spread(b, -2.0, -1.0)?];
            Ok(Sample::new("where_", inputs, |x| x[0].where_(&x[1], &x[2])))
        };
        shapes.into_iter().map(sample).collect()
    },
    error_cases: || {
        let (a, b) = (normal([2], 1)?, normal([2], 2)?);
        Ok(vec![ErrorCase::new("a condition of floats", &["where_", "f64"], move || a.where_(&a, &b))])
    },
};

static MASKED_FILL: Op = Op {
    name: "masked_fill",
    samples: || {
        let sample =
            |x: Tensor, mask: Tensor| Sample::new("masked_fill", vec![x, mask], |x| x[0].masked_fill(&x[1], -7.5));
        Ok(vec![
            sample(spread([2, 3], -1.0, 1.0)?, spread([2, 3], -1.0, 1.0)?.gt(0.0)?),
            sample(spread([2, 3], -1.0, 1.0)?, spread([3], -1.0, 1.0)?.gt(0.0)?),
        ])
    },
    error_cases: || {
        let (x, ints) = (normal([2], 1)?, Tensor::zeros_with([2], DType::I64)?);
        let mask = x.gt(0.0)?;
        let (x2, mask2) = (x.clone(), mask.clone());
        Ok(vec![
            ErrorCase::new("a mask of floats", &["masked_fill", "f64"], move || x2.masked_fill(&x2, 0.0)),
            ErrorCase::new("a float into integers", &["masked_fill", "0.5", "i64"], move || {
                ints.masked_fill(&mask2, 0.5)
            }),
        ])
    },
};

pub(crate) static OPS: &[&Op] = &[&EQ, &NE, &LT, &LE, &GT, &GE, &WHERE, &MASKED_FILL];
