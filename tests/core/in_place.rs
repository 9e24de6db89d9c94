//! The forms of operations that change a tensor, against the operations.

use cotangent::{DType, Result, Tensor, options::ScatterReduce, tensor};

/// `x.f_(..)` leaves what `x.f(..)` gives, in the dtype of `x`, and another handle does not see it.
macro_rules! same {
    ($x:expr; $($op:ident $changing:ident ($($arg:expr),*);)+) => {$(
        let x: Tensor = $x;
        let (before, expected) = (x.deep_clone()?, x.$op($($arg),*)?.to_dtype(x.dtype())?);
        let (mut changed, held) = (x.clone(), x);
        changed.$changing($($arg),*)?;
        assert!(changed.allclose(&expected)?, "{} gave {changed}, not {expected}", stringify!($changing));
        assert_eq!(changed.dtype(), before.dtype());
        assert!(held.allclose(&before)?, "{} changed another handle", stringify!($changing));
    )+};
}

#[test]
fn every_form_leaves_what_the_operation_gives() -> Result<()> {
    let other = &tensor!([0.5, 2.0, 1.5])?;
    same! { tensor!([0.25, 1.0, 3.0])?;
        abs abs_(); neg neg_(); exp exp_(); log log_(); tanh tanh_(); sigmoid sigmoid_(); relu relu_();
        celu celu_(); elu elu_(); hardsigmoid hardsigmoid_(); hardswish hardswish_(); hardtanh hardtanh_();
        leaky_relu leaky_relu_(); mish mish_(); relu6 relu6_(); selu selu_(); silu silu_(); threshold threshold_(1.5, 7.0);
        deg2rad deg2rad_(); rad2deg rad2deg_(); i0 i0_(); sinc sinc_(); sgn sgn_(); mvlgamma mvlgamma_(1);
        polygamma polygamma_(1); conj conj_(); logical_not logical_not_();
        clamp_min clamp_min_(0.5); clamp_max clamp_max_(2.0); float_power float_power_(2.0); heaviside heaviside_(0.5);
        igamma igamma_(other); igammac igammac_(other); nextafter nextafter_(other); xlogy xlogy_(other); ldexp ldexp_(2);
        eq eq_(1.0); ne ne_(1.0); lt lt_(1.0); le le_(1.0); gt gt_(1.0); ge ge_(1.0);
        logical_and logical_and_(other); logical_or logical_or_(other); logical_xor logical_xor_(other);
        index_reduce index_reduce_(0, &tensor!([1, 1])?, &tensor!([5.0, 6.0])?, ScatterReduce::Prod);
    }
    same! { tensor!([12, 18, 7])?;
        gcd gcd_(6); lcm lcm_(4); bitwise_left_shift bitwise_left_shift_(2); bitwise_right_shift bitwise_right_shift_(1);
    }
    let (row, column) = (&tensor!([1.0, 2.0])?, &tensor!([3.0, -1.0])?);
    let batch = &Tensor::ones([3, 2, 2])?;
    same! { tensor!([[1.0, 2.0], [3.0, 4.0]])?; addr addr_(row, column); addbmm addbmm_(batch, batch); }
    same! { tensor!([1.0, 2.0])?; addmv addmv_(&tensor!([[1.0, 2.0], [3.0, 4.0]])?, row); }
    Ok(())
}

#[test]
fn a_form_refuses_what_the_tensor_cannot_hold() -> Result<()> {
    let mut counts = tensor!([1, 2])?;
    assert!(counts.sinc_().is_err_and(|error| error.op() == "sinc_"));
    assert_eq!(counts.to_vec::<i64>()?, [1, 2]);
    let mut leaf = Tensor::ones([2])?.requires_grad_(true)?;
    assert!(leaf.deg2rad_().is_err());
    // The operation is part of the graph of a result.
    let mut y = leaf.mul(2.0)?;
    y.xlogy_(3.0)?;
    y.sum(..)?.backward()?;
    let slope = leaf.grad().map(|g| g.to_vec::<f32>()).transpose()?.unwrap_or_default();
    assert!(slope.iter().all(|g| (g - 2.0 * 3.0_f32.ln()).abs() < 1e-6), "{slope:?}");
    assert_eq!(y.dtype(), DType::F32);
    Ok(())
}
