//! The branch not taken does not affect the derivative, even if it is infinite or NaN. The expected gradients are PyTorch's.

use cotangent::{Result, Tensor, tensor};

fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let x = x.to_dtype(cotangent::DType::F64)?.detach().requires_grad_(true)?;
    f(&x)?.sum(..)?.backward()?;
    x.grad().map_or_else(|| Ok(Vec::new()), |grad| grad.to_vec::<f64>())
}

#[test]
fn what_was_not_chosen_gets_no_nan() -> Result<()> {
    let x = tensor!([-1.0, 4.0])?;
    assert_eq!(gradient(&x, |x| x.gt(0.0)?.where_(x, 0.0)?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.masked_fill(&x.lt(0.0)?, 0.0)?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.maximum(0.0)?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.neg()?.minimum(0.0)?.neg()?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.hardshrink_with(2.0)?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.relu()?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.clamp_min(&tensor!([0.0_f64])?)?.sqrt())?, [0.0, 0.25]);
    assert_eq!(gradient(&x, |x| x.fill(0.0)?.sqrt())?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn nor_does_it_in_derivatives_of_derivatives() -> Result<()> {
    use cotangent::autograd::{GradOptions, grad_with};
    let x = tensor!([-1.0_f64, 4.0])?.requires_grad_(true)?;
    let y = x.gt(0.0)?.where_(&x, 0.0)?.sqrt()?.sum(..)?;
    let slopes = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?;
    let slope = slopes[0].clone().map_or_else(|| x.zeros_like(), Ok)?;
    let bends = grad_with(&slope.select(0, 1)?, &[&x], GradOptions::new())?;
    assert_eq!(bends[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![0.0, -1.0 / 32.0]));
    Ok(())
}
