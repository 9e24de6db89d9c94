//! The in-place forms of operations: a line for each.

use super::{Index, Operand, Tensor};
use crate::autograd::is_grad_enabled;
use crate::error::{bail, named};
use crate::ops::signatures::{ScatterReduce, ScatterReduceOptions};
use crate::{Bound, DType, Dim, Result};

impl Tensor {
    /// Takes over the result of an operation on this tensor, which has its shape, cast to its dtype. Where a gradient is required the
    /// operation is part of the graph.
    #[track_caller]
    pub(super) fn become_result(&mut self, op: &'static str, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        self.check_change(op)?;
        let out = f(self)?;
        self.become_tensor(op, out)
    }

    pub(super) fn become_tensor(&mut self, op: &'static str, out: Tensor) -> Result<()> {
        if out.shape() != self.shape() {
            let (from, to) = (self.shape(), out.shape());
            bail!(Shape, op, "a tensor of shape {from:?} cannot be changed to shape {to:?}");
        }
        let out = if out.dtype() == self.dtype() {
            out
        } else {
            self.check_holds(op, out.dtype())?;
            out.to_dtype(self.dtype())?
        };
        if is_grad_enabled() && out.requires_grad() {
            *self = out.into_value();
            return Ok(());
        }
        // A view of this very tensor would be one that others share.
        let out = if out.is_same(self) { return Ok(()) } else { out.detach().into_value() };
        self.data = out.data;
        self.renew_leaf();
        Ok(())
    }

    /// Refuses results of a higher kind than this tensor's: floats for integers, complex numbers for floats. Another dtype of the
    /// same kind, or of a lower one, is cast.
    pub(super) fn check_holds(&self, op: &'static str, dtype: DType) -> Result<()> {
        if dtype.category() > self.dtype().category() {
            bail!(DType, op, "the result is {dtype}, which the tensor's {} cannot hold", self.dtype());
        }
        Ok(())
    }

    /// Takes over numbers that do not depend on those that were there.
    fn become_numbers(&mut self, op: &'static str, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        self.check_change(op)?;
        self.data = f(&self.detach())?.into_value().data;
        self.forget_history();
        Ok(())
    }
}

/// In-place forms: the name, and the operation with its arguments.
macro_rules! in_place {
    ($by:ident: $($name:ident = $op:ident($($arg:ident: $ty:ty),*);)+) => {$(
        #[doc = concat!("[`", stringify!($op), "`](Self::", stringify!($op), ") in place, as [`add_`](Self::add_) adds.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($op), "`](Self::", stringify!($op), ") and [`add_`](Self::add_).")]
        #[track_caller]
        #[allow(clippy::extra_unused_lifetimes)]
        pub fn $name<'a>(&mut self $(, $arg: $ty)*) -> Result<()> {
            let name = stringify!($name);
            named(name, self.$by(name, |x| x.$op($($arg),*)))
        }
    )+};
}

/// # Operations in place
///
/// ```
/// # use cotangent::{Tensor, tensor};
/// let mut x = tensor!([-1.0, 4.0])?;
/// x.relu_()?;
/// x.sqrt_()?;
/// x.masked_fill_(&tensor!([true, false])?, 5.0)?;
/// assert_eq!(x.to_vec::<f32>()?, [5.0, 2.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
impl Tensor {
    in_place! { become_result:
        abs_ = abs();
        neg_ = neg();
        sign_ = sign();
        square_ = square();
        reciprocal_ = reciprocal();
        sqrt_ = sqrt();
        rsqrt_ = rsqrt();
        exp_ = exp();
        exp2_ = exp2();
        expm1_ = expm1();
        log_ = log();
        log2_ = log2();
        log10_ = log10();
        log1p_ = log1p();
        sin_ = sin();
        cos_ = cos();
        tan_ = tan();
        asin_ = asin();
        acos_ = acos();
        atan_ = atan();
        sinh_ = sinh();
        cosh_ = cosh();
        tanh_ = tanh();
        asinh_ = asinh();
        acosh_ = acosh();
        atanh_ = atanh();
        sigmoid_ = sigmoid();
        relu_ = relu();
        silu_ = silu();
        elu_ = elu();
        leaky_relu_ = leaky_relu();
        erf_ = erf();
        erfc_ = erfc();
        erfinv_ = erfinv();
        lgamma_ = lgamma();
        digamma_ = digamma();
        floor_ = floor();
        ceil_ = ceil();
        round_ = round();
        trunc_ = trunc();
        frac_ = frac();
        nan_to_num_ = nan_to_num();
        logit_ = logit();
        bitwise_not_ = bitwise_not();
        pow_ = pow(exponent: impl Into<Operand<'a>>);
        floor_divide_ = floor_divide(other: impl Into<Operand<'a>>);
        remainder_ = remainder(other: impl Into<Operand<'a>>);
        fmod_ = fmod(other: impl Into<Operand<'a>>);
        atan2_ = atan2(other: impl Into<Operand<'a>>);
        hypot_ = hypot(other: impl Into<Operand<'a>>);
        copysign_ = copysign(other: impl Into<Operand<'a>>);
        bitwise_and_ = bitwise_and(other: impl Into<Operand<'a>>);
        bitwise_or_ = bitwise_or(other: impl Into<Operand<'a>>);
        bitwise_xor_ = bitwise_xor(other: impl Into<Operand<'a>>);
        clamp_ = clamp(min: impl Into<Bound<'a>>, max: impl Into<Bound<'a>>);
        lerp_ = lerp(end: impl Into<Operand<'a>>, weight: impl Into<Operand<'a>>);
        addcmul_ = addcmul(tensor1: &Tensor, tensor2: &Tensor);
        addcdiv_ = addcdiv(tensor1: &Tensor, tensor2: &Tensor);
        addmm_ = addmm(mat1: &Tensor, mat2: &Tensor);
        baddbmm_ = baddbmm(batch1: &Tensor, batch2: &Tensor);
        tril_ = tril(diagonal: isize);
        triu_ = triu(diagonal: isize);
        cumsum_ = cumsum(dim: impl Into<Dim>);
        cumprod_ = cumprod(dim: impl Into<Dim>);
        masked_fill_ = masked_fill(mask: &Tensor, value: impl Into<Operand<'a>>);
        masked_scatter_ = masked_scatter(mask: &Tensor, source: &Tensor);
        index_add_ = index_add(dim: impl Into<Dim>, index: &Tensor, source: &Tensor);
        index_copy_ = index_copy(dim: impl Into<Dim>, index: &Tensor, source: &Tensor);
        index_fill_ = index_fill(dim: impl Into<Dim>, index: &Tensor, value: impl Into<Operand<'a>>);
        index_put_ = index_put(indices: impl Into<Index>, values: &Tensor);
        put_ = put(index: &Tensor, source: &Tensor);
        scatter_ = scatter(dim: impl Into<Dim>, index: &Tensor, src: impl Into<Operand<'a>>);
        scatter_add_ = scatter_add(dim: impl Into<Dim>, index: &Tensor, src: &Tensor);
        renorm_ = renorm(p: f64, dim: impl Into<Dim>, maxnorm: f64);
    }

    in_place! { become_numbers:
        bernoulli_ = bernoulli_with(p: f64);
        uniform_ = uniform(from: f64, to: f64);
        exponential_ = exponential(lambd: f64);
        geometric_ = geometric(p: f64);
        cauchy_ = cauchy(median: f64, sigma: f64);
        log_normal_ = log_normal(mean: f64, std: f64);
    }

    /// Puts normal random numbers everywhere, in place.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let mut x = Tensor::zeros([3])?;
    /// x.normal_(1.0, 0.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, `std` is negative, or as [`fill_`](Self::fill_).
    #[track_caller]
    pub fn normal_(&mut self, mean: f64, std: f64) -> Result<()> {
        if std.is_nan() || std < 0.0 {
            return named("normal_", Err(crate::error::err!(Value, "normal_", "a standard deviation of {std}")));
        }
        named("normal_", self.become_numbers("normal_", |x| x.randn_like()?.mul(std)?.add(mean)))
    }

    /// [`scatter_reduce`](Self::scatter_reduce) in place, as [`add_`](Self::add_) adds.
    ///
    /// ```
    /// # use cotangent::{ScatterReduce, tensor};
    /// let mut x = tensor!([1.0, 9.0])?;
    /// x.scatter_reduce_(0, &tensor!([0])?, &tensor!([3.0])?, ScatterReduce::Sum)?;
    /// assert_eq!(x.to_vec::<f32>()?, [4.0, 9.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatter_reduce`](Self::scatter_reduce) and [`add_`](Self::add_).
    #[track_caller]
    pub fn scatter_reduce_(
        &mut self,
        dim: impl Into<Dim>,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
    ) -> Result<()> {
        let call = |x: &Tensor| x.scatter_reduce_with(dim, index, src, reduce, ScatterReduceOptions::new());
        named("scatter_reduce_", self.become_result("scatter_reduce_", call))
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use crate::{Complex, DType, Result, Tensor, tensor};

    #[test]
    fn another_handle_does_not_see_the_change() -> Result<()> {
        let mut x = tensor!([-1.0, 4.0])?;
        let before = x.clone();
        x.relu_()?;
        assert_eq!(x.to_vec::<f32>()?, [0.0, 4.0]);
        assert_eq!(before.to_vec::<f32>()?, [-1.0, 4.0]);
        Ok(())
    }

    #[test]
    fn a_wider_result_of_the_same_kind_is_cast_back() -> Result<()> {
        let double = Tensor::full_with([2], 0.1, DType::F64)?;
        let mut x = Tensor::full_with([2], 0.1, DType::F32)?;
        x.mul_(&double)?;
        assert_eq!((x.dtype(), x.to_vec::<f32>()?), (DType::F32, vec![(f64::from(0.1_f32) * 0.1) as f32; 2]));
        let mut half = Tensor::ones_with([2], DType::F16)?;
        half.add_(&tensor!([1.0, 2.0])?)?;
        half.pow_(&tensor!([2.0])?)?;
        assert_eq!((half.dtype(), half.to_dtype(DType::F32)?.to_vec::<f32>()?), (DType::F16, vec![4.0, 9.0]));
        let mut byte = tensor!([250_u8, 1])?;
        byte.add_(&tensor!([10_i64, -3])?)?;
        assert_eq!(byte.to_vec::<u8>()?, [4, 254]);
        let mut z = Tensor::new([Complex::new(1.0_f32, 2.0)])?;
        z.mul_(&Tensor::new([Complex::new(0.0_f64, 1.0)])?)?;
        assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(-2.0, 1.0)]);
        Ok(())
    }

    #[test]
    fn the_gradient_of_a_wider_operand_has_its_dtype() -> Result<()> {
        let wide = Tensor::full_with([2], 3.0, DType::F64)?.requires_grad_(true)?;
        let mut x = tensor!([1.0, 2.0])?;
        x.mul_(&wide)?;
        x.sum(..)?.backward()?;
        let grad = wide.grad().map(|g| g.to_vec::<f64>()).transpose()?;
        assert_eq!((x.dtype(), grad), (DType::F32, Some(vec![1.0, 2.0])));
        Ok(())
    }

    #[test]
    fn a_higher_kind_is_refused() -> Result<()> {
        let refused = |result: Result<()>| result.err().map(|e| e.to_string()).unwrap_or_default();
        let text = refused(tensor!([1, 2])?.add_(&tensor!([1.0, 2.0])?));
        assert!(text.contains("add_") && text.contains("i64") && text.contains("f32"), "{text}");
        let text = refused(tensor!([true])?.add_(&tensor!([1])?));
        assert!(text.contains("bool") && text.contains("i64"), "{text}");
        let text = refused(tensor!([1.0])?.mul_(&Tensor::new([Complex::new(0.0_f64, 1.0)])?));
        assert!(text.contains("f32") && text.contains("c128"), "{text}");
        Ok(())
    }

    #[test]
    fn a_change_is_part_of_the_graph() -> Result<()> {
        let x = tensor!([1.0, 4.0])?.requires_grad_(true)?;
        let mut y = x.mul(1.0)?;
        y.sqrt_()?;
        y.clamp_(1.5, None::<f64>)?;
        y.sum(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![0.0, 0.25]));
        Ok(())
    }

    #[test]
    fn what_cannot_be_held_and_what_is_a_leaf_is_refused_by_name() -> Result<()> {
        let refused = |result: Result<()>| result.err().map(|e| e.to_string()).unwrap_or_default();
        let text = refused(tensor!([1, 2])?.sqrt_());
        assert!(text.contains("sqrt_") && text.contains("i64") && text.contains("f32"), "{text}");
        let mut leaf = tensor!([1.0])?.requires_grad_(true)?;
        assert!(refused(leaf.exp_()).contains("leaf"));
        let text = refused(Tensor::zeros([2])?.pow_(&Tensor::zeros([3, 2])?));
        assert!(text.contains("pow_") && text.contains("[3, 2]"), "{text}");
        let x = Tensor::zeros([2, 2])?;
        assert!(refused(x.select(0, 0)?.exp_()).contains("view"));
        Ok(())
    }

    #[test]
    fn random_numbers_forget_what_was_there() -> Result<()> {
        let x = tensor!([1.0, 4.0])?.requires_grad_(true)?;
        let mut y = x.mul(2.0)?;
        y.uniform_(5.0, 5.0)?;
        assert_eq!((y.to_vec::<f32>()?, y.requires_grad()), (vec![5.0, 5.0], false));
        Ok(())
    }
}
