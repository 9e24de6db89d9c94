//! Complex numbers where they meet real ones: nothing of them is lost without a word.

use cotangent::ops::{self, Arg};
use cotangent::{Complex, DType, Scalar, Tensor, ValueOptions, tensor};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const Z: Complex<f64> = Complex::new(1.0, 2.0);

#[test]
fn no_imaginary_part_is_dropped() -> Outcome {
    let refused = |result: cotangent::Result<Tensor>, op: &str| {
        let error = result.map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(error.starts_with(op) && error.contains("1.0+2.0j"), "{op}: {error:?}");
    };
    let x = tensor!([1.0, 2.0])?;
    refused(Tensor::full_with([2], Z, DType::F32), "full");
    refused(x.full_like_with(Z, DType::F64), "full_like");
    refused(Tensor::arange(Z, 5), "arange");
    refused(x.addcmul_with(&x, &x, Scalar::from(Z)), "addcmul");
    refused(x.masked_fill(&x.gt(0)?, Z), "masked_fill");
    let mut y = x.deep_clone()?;
    let error = y.fill_(Z).map_err(|e| e.to_string()).err().unwrap_or_default();
    assert!(error.starts_with("fill_") && error.contains("1.0+2.0j"), "{error:?}");
    assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    // A formula has real parameters alone.
    let z = Tensor::new([Z, Z])?;
    refused(z.addcmul_with(&z, &z, ValueOptions::new().value(Z)), "addcmul");
    let softplus = ops::find("softplus").ok_or("there is one")?;
    let args = softplus.bind(&[Arg::from(&x)], &[("beta", Arg::from(Scalar::from(Z)))])?;
    assert!(softplus.call(&args).is_err());
    assert!(z.to_dtype(DType::F64).is_err() && z.item::<f64>().is_err() && z.to_vec::<f64>().is_err());
    Ok(())
}

#[test]
fn complex_tensors_are_filled_and_changed_in_place() -> Outcome {
    let mut z = Tensor::zeros_with([2], DType::C64)?;
    z.fill_(Z)?;
    z.add_(1)?;
    z.mul_(Complex::<f64>::I)?;
    assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(-2.0, 2.0); 2]);
    z.set(0, Z)?;
    assert_eq!(z.at(&[0])?, Scalar::from(Z));
    z.zero_()?;
    assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(0.0, 0.0); 2]);
    assert_eq!(format!("{}", Tensor::new([Z])?), "[1.+2.j]");
    Ok(())
}

#[test]
fn a_complex_number_needs_a_cotangent_and_a_real_leaf_gets_a_real_gradient() -> Outcome {
    let x = tensor!([2.0])?.requires_grad_(true)?;
    let y = x.mul(Z)?;
    let error = y.sum(..)?.backward().map_err(|e| e.to_string()).err().unwrap_or_default();
    assert!(error.contains("cotangent") && error.contains("real()"), "{error}");
    y.abs()?.square()?.sum(..)?.backward()?;
    assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?.map(|g| g[0].round()), Some(20.0));
    Ok(())
}
