//! Recording, not recording, operations without a derivative, and anomaly mode.

use super::{grad_of, leaf, refused};
use cotangent::autograd::{AnomalyGuard, GradMode, detect_anomaly, enable_grad, grad, is_grad_enabled, no_grad};
use cotangent::{DType, ErrorKind, Result, Tensor};

#[test]
fn modes_nest() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    assert!(is_grad_enabled());
    no_grad(|| -> Result<()> {
        assert!(!is_grad_enabled() && !x.mul(2.0)?.requires_grad());
        enable_grad(|| -> Result<()> {
            assert!(is_grad_enabled() && x.mul(2.0)?.requires_grad());
            no_grad(|| assert!(!is_grad_enabled()));
            assert!(is_grad_enabled());
            Ok(())
        })?;
        assert!(!is_grad_enabled());
        // `requires_grad_` makes a leaf in any mode.
        assert!(Tensor::ones([1])?.requires_grad_(true)?.requires_grad());
        Ok(())
    })?;
    assert!(is_grad_enabled());
    let off = GradMode::disable();
    {
        let _on = GradMode::enable();
        assert!(is_grad_enabled());
    }
    assert!(!is_grad_enabled());
    drop(off);
    assert!(is_grad_enabled());
    Ok(())
}

#[test]
fn a_mode_ends_with_its_scope_even_in_a_panic_and_belongs_to_its_thread() -> Result<()> {
    let panicked = std::panic::catch_unwind(|| no_grad(|| Tensor::ones([2]).is_ok_and(|x| (&x + &x).shape()[7] == 0)));
    assert!(panicked.is_err() && is_grad_enabled());
    let failed: Result<()> = no_grad(|| Tensor::ones([2])?.add(&Tensor::ones([3])?).map(|_| ()));
    assert!(failed.is_err() && is_grad_enabled());
    let _off = GradMode::disable();
    assert!(std::thread::spawn(is_grad_enabled).join().is_ok_and(|enabled| enabled));
    assert!(!is_grad_enabled());
    Ok(())
}

#[test]
fn a_backward_pass_works_under_no_grad_and_leaves_the_mode() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let y = x.mul(&x)?.sum(..)?;
    no_grad(|| y.backward())?;
    assert_eq!(grad_of(&x)?, [2.0, 4.0]);
    let y = x.mul(&x)?.sum(..)?;
    assert!(grad(&y, &[&x])?[0].as_ref().is_some_and(|g| !g.requires_grad()));
    assert!(is_grad_enabled());
    Ok(())
}

#[test]
fn operations_without_a_derivative_say_so() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let here = "tests/core/autograd/modes.rs";
    let mask = x.eq(1.0)?;
    assert!(!mask.requires_grad());
    refused(mask.backward_with(&mask.detach()), &["backward", "eq has no derivative", here]);
    // Still so after further operations on the result.
    let floats = x.gt(1.5)?.to_dtype(DType::F64)?.mul(2.0)?.sum(..)?;
    refused(floats.backward(), &["backward", "gt has no derivative", here]);
    refused(grad(&floats, &[&x]), &["grad", "gt has no derivative", here]);
    let rounded = x.to_dtype(DType::I64)?.to_dtype(DType::F64)?.sum(..)?;
    refused(rounded.backward(), &["to_dtype has no derivative", here]);
    refused(x.argmax(..)?.to_dtype(DType::F64)?.backward(), &["argmax has no derivative", here]);
    // Next to a path with a derivative it is a constant.
    mask.to_dtype(DType::F64)?.mul(&x)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [1.0, 0.0]);
    // Under no_grad nothing is recorded.
    refused(no_grad(|| x.eq(1.0)?.to_dtype(DType::F64)?.sum(..))?.backward(), &["no graph"]);
    Ok(())
}

#[test]
fn anomaly_mode_names_the_forward_operation() -> Result<()> {
    let x = leaf([-1.0, 1.0])?;
    assert!(x.sqrt()?.to_vec::<f64>()?[0].is_nan(), "outside the mode a NaN is a number like any other");
    let line = line!() + 1;
    let failed = detect_anomaly(|| x.sqrt());
    refused(failed, &["sqrt: ", "result", "NaN", &format!("tests/core/autograd/modes.rs:{line}")]);
    // Constants are checked as well.
    refused(detect_anomaly(|| x.detach().log()), &["log: ", "NaN", "tests/core/autograd/modes.rs"]);
    let guard = AnomalyGuard::new();
    detect_anomaly(|| assert!(x.sqrt().is_err()));
    assert!(x.sqrt().is_err());
    drop(guard);
    assert!(x.sqrt().is_ok());
    Ok(())
}

#[test]
fn anomaly_mode_names_the_operation_whose_gradient_is_nan() -> Result<()> {
    // 0 · inf in the rule of the product: the message must not name the rule's own multiplication.
    let (x, y) = (leaf([0.0])?, leaf([f64::INFINITY])?);
    let line = line!() + 1;
    let z = x.add(0.0)?.mul(&y.exp()?)?;
    let failed = detect_anomaly(|| z.backward_with(&x.detach()));
    refused(failed, &["backward: ", "the gradient of mul", "NaN", &format!("tests/core/autograd/modes.rs:{line}")]);
    assert!(x.grad().is_none() && y.grad().is_none());
    // sqrt at 0: an infinite slope times a cotangent of 0.
    let x = leaf([0.0])?;
    let failed = detect_anomaly(|| x.sqrt()?.mul(0.0)?.sum(..)?.backward());
    assert!(failed.as_ref().is_err_and(|e| (e.kind(), e.op()) == (ErrorKind::Value, "backward")), "{failed:?}");
    refused(failed, &["the gradient of sqrt", "NaN"]);
    Ok(())
}
