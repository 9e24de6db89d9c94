//! Cases that no other test covers, found by mutation testing.

use cotangent::autograd::{BackwardOptions, jvp};
use cotangent::{
    Complex, DType, Result, Tensor, linalg,
    options::{CovOptions, InterpolateMode, InterpolateOptions, MaxPoolOptions, RreluOptions},
    special, tensor,
};

#[track_caller]
fn near(x: &Tensor, expected: &[f64]) -> Result<()> {
    let values = x.to_dtype(DType::F64)?.to_vec::<f64>()?;
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!((value - expected).abs() <= 1e-10 * expected.abs().max(1.0), "{values:?}");
    }
    Ok(())
}

#[test]
fn negative_numbers_are_close_within_their_magnitude() -> Result<()> {
    let x = tensor!([-100.0, 100.0, -1.0])?;
    assert_eq!(x.isclose(&tensor!([-100.0005, 100.0005, -1.5])?)?.to_vec::<bool>()?, [true, true, false]);
    Ok(())
}

#[test]
fn covariances_of_complex_numbers_are_hermitian() -> Result<()> {
    let z = |re, im| Complex::new(re, im);
    let x =
        Tensor::from_vec(vec![z(1.0, 2.0), z(3.0, -1.0), z(0.0, 0.5), z(2.0, -1.0), z(0.0, 1.0), z(4.0, 0.0)], [2, 3])?;
    let once = Tensor::ones_with([3], DType::I64)?;
    for cov in [x.cov()?, x.cov_with(CovOptions::new().fweights(&once))?] {
        near(&cov.real()?, &[55.0 / 12.0, -4.5, -4.5, 5.0])?;
        near(&cov.imag()?, &[0.0, 0.5, -0.5, 0.0])?;
    }
    Ok(())
}

#[test]
fn chebyshev_polynomials_of_high_degree_grow_on_both_sides() -> Result<()> {
    let x = Tensor::from_vec(vec![-1.5, -1.01, 1.25], [3])?;
    let y = special::chebyshev_polynomial_t(&x, 40)?;
    let exact = |x: f64| (40.0 * x.abs().acosh()).cosh();
    near(&y.div(&Tensor::from_vec([-1.5, -1.01, 1.25].map(exact).to_vec(), [3])?)?, &[1.0; 3])
}

#[test]
fn slopes_may_be_drawn_from_one_number() -> Result<()> {
    let y = tensor!([-2.0, 3.0])?.rrelu_with(RreluOptions::new().lower(0.25).upper(0.25).training(true))?;
    assert_eq!(y.to_vec::<f32>()?, [-0.5, 3.0]);
    Ok(())
}

#[test]
fn the_greatest_of_long_columns_is_one_of_the_column() -> Result<()> {
    let rows = 100_003;
    let falling = Tensor::arange(0, rows as i64)?.to_dtype(DType::F32)?.neg()?.unsqueeze(1)?.expand([rows, 3])?;
    // Larger rows follow the rows that are used.
    let all = Tensor::cat(&[&falling, &Tensor::full([70_000, 3], 5)?], 0)?;
    let columns = all.narrow(0, 0, rows)?;
    assert_eq!(columns.argmax(0)?.to_vec::<i64>()?, [0, 0, 0]);
    assert_eq!(columns.neg()?.argmax(0)?.to_vec::<i64>()?, [rows as i64 - 1; 3]);
    Ok(())
}

#[test]
fn the_logarithm_of_one_large_complex_exponential_is_its_exponent() -> Result<()> {
    let x = tensor!([[1000.0, -1000.0]])?.to_dtype(DType::C128)?;
    near(&x.logsumexp(0)?.real()?, &[1000.0, -1000.0])?;
    near(&x.narrow(1, 0, 1)?.logsumexp(..)?.real()?, &[1000.0])
}

#[test]
fn indices_without_dimensions_do_not_fit_matrices() -> Result<()> {
    let (x, index) = (Tensor::zeros([2, 3])?, tensor!(1)?);
    let error = x.scatter(0, &index, &tensor!(5.0)?).map_or_else(|e| e.to_string(), |y| format!("{y:?}"));
    assert!(error.contains("rank of shape [2, 3]") && error.contains("got shape []"), "{error}");
    Ok(())
}

#[test]
fn a_kept_graph_of_several_results_gives_the_same_gradient_again() -> Result<()> {
    let x = tensor!([[3.0, 1.0], [1.0, 2.0], [0.5, -1.0]])?.to_dtype(DType::F64)?.requires_grad_(true)?;
    let (q, r) = linalg::qr(&x)?;
    let loss = q.sum(..)?.add(&r.square()?.sum(..)?)?;
    let gradient = || -> Result<Vec<f64>> {
        x.zero_grad();
        loss.backward_with(BackwardOptions::new().retain_graph(true))?;
        x.grad().map_or_else(|| Ok(Vec::new()), |g| g.to_vec::<f64>())
    };
    let first = gradient()?;
    assert!(first.len() == 6 && first.iter().any(|g| *g != 0.0));
    assert_eq!(gradient()?, first);
    Ok(())
}

#[test]
fn a_jacobian_product_is_differentiated_by_one_of_its_tangents() -> Result<()> {
    let (x, y) = (tensor!([2.0, 3.0])?, tensor!([5.0, 7.0])?);
    let (u, v) = (tensor!([1.0, 1.0])?.requires_grad_(true)?, tensor!([1.0, -1.0])?);
    let (_, tangent) = jvp(|all| all[0].mul(&all[1]), &[&x, &y], &[&u, &v])?;
    assert_eq!(tangent.to_vec::<f32>()?, [7.0, 4.0]);
    tangent.sum(..)?.backward()?;
    assert_eq!(u.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![5.0, 7.0]));
    Ok(())
}

#[test]
fn a_window_without_elements_in_one_dimension_is_refused() -> Result<()> {
    let options = MaxPoolOptions::new().stride([1, 1]).padding([0, 1]).dilation([1, 10]);
    let error = Tensor::ones([1, 1, 9, 9])?
        .max_pool2d_with([2, 2], options)
        .map_or_else(|e| e.to_string(), |y| format!("{y:?}"));
    assert!(error.starts_with("max_pool2d: ") && error.contains("must contain an element"), "{error}");
    Ok(())
}

#[test]
fn a_window_far_larger_than_the_image_takes_no_longer() -> Result<()> {
    let x = Tensor::arange(0, 8)?.reshape([1, 1, 2, 2, 2])?;
    let options = MaxPoolOptions::new().padding([1, 1, 1]).ceil_mode(true);
    assert_eq!(x.max_pool3d_with([1_i64 << 40; 3], options)?.to_vec::<i64>()?, [7]);
    let options = MaxPoolOptions::new().padding([1_i64 << 39; 3]).stride([1_i64 << 40; 3]);
    assert_eq!(x.max_pool3d_with([1_i64 << 40; 3], options)?.to_vec::<i64>()?, [7]);
    Ok(())
}

#[test]
fn images_shrink_by_all_elements_in_reach() -> Result<()> {
    let x = Tensor::arange(0, 29)?.to_dtype(DType::F64)?.square()?.reshape([1, 1, 1, 29])?;
    let options =
        InterpolateOptions::new().size(cotangent::Shape::from([1, 10])).mode(InterpolateMode::Bilinear).antialias(true);
    // PyTorch's.
    let expected = [
        2.3866666666666667,
        16.363095238095237,
        47.22023809523809,
        94.79166666666666,
        159.07738095238093,
        240.07738095238096,
        337.79166666666663,
        452.22023809523813,
        583.3630952380952,
        718.44,
    ];
    near(&x.interpolate_with(options)?, &expected)
}
