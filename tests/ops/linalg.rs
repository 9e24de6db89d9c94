//! Decompositions of matrices that are large enough for blocks and threads, and of those that have no derivative.

use crate::checks::both;
use cotangent::autograd::{GradOptions, grad, grad_with};
use cotangent::{
    Complex, DType, Device, ErrorKind, Generator, Result, Tensor, linalg,
    options::{CholeskyOptions, LdlOptions, LuSolveOptions, QrMode, SvdOptions},
    settings::with_num_threads,
};

const SIZES: [usize; 9] = [1, 2, 3, 16, 17, 33, 64, 100, 161];

fn normal(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    let mut generator = Generator::seed(seed);
    let real = generator.randn_with(shape, DType::F64)?;
    if !dtype.is_complex() {
        return real.to_dtype(dtype);
    }
    real.complex(&generator.randn_with(shape, DType::F64)?)?.to_dtype(dtype)
}

fn tolerance(dtype: DType) -> f64 {
    if dtype.to_real() == DType::F64 { 1e-10 } else { 4e-3 }
}

/// The largest difference between two tensors.
fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    assert_eq!(a.shape(), b.shape());
    if a.numel() == 0 {
        return Ok(0.0);
    }
    a.sub(b)?.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>()
}

fn close(a: &Tensor, b: &Tensor, what: &str) -> Result<()> {
    let distance = distance(a, b)?;
    assert!(distance <= tolerance(a.dtype()), "{what} of {:?} {}: off by {distance}", a.shape(), a.dtype());
    Ok(())
}

fn orthonormal(q: &Tensor, what: &str) -> Result<()> {
    let one = identity(q.shape()[q.rank() - 1], q)?;
    close(&q.adjoint()?.matmul(q)?, &one, what)
}

/// Calls `check` for every size, dtype and device, with something that makes normal numbers there.
fn each(check: impl Fn(usize, &dyn Fn(&[usize], u64) -> Result<Tensor>) -> Result<()>) -> Result<()> {
    for device in crate::checks::devices() {
        for dtype in [DType::F64, DType::F32, DType::C128, DType::C64] {
            for n in SIZES {
                check(n, &|shape, seed| normal(shape, seed, dtype)?.to_device(device))?;
            }
        }
    }
    Ok(())
}

fn identity(n: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::eye(n)?.to_dtype(like.dtype())?.to_device(like.device())
}

#[test]
fn lu_factors_make_the_matrix() -> Result<()> {
    each(|n, normal| {
        for shape in [[n, n], [n, n / 2 + 1], [n / 2 + 1, n]] {
            let x = normal(&shape, 1)?;
            let (p, l, u) = linalg::lu(&x)?;
            close(&p.matmul(&l)?.matmul(&u)?, &x, "P L U")?;
        }
        let (x, b) = (normal(&[n, n], 2)?, normal(&[n, 5], 3)?);
        let x = x.add(&identity(n, &x)?.mul(n as f64)?)?;
        close(&x.matmul(&linalg::solve(&x, &b)?)?, &b, "A X")?;
        close(&x.matmul(&x.inverse()?)?, &identity(n, &x)?, "A A⁻¹")?;
        let (lu, pivots) = linalg::lu_factor(&x)?;
        let y = linalg::lu_solve_with(&lu, &pivots, &b, LuSolveOptions::new().adjoint(true))?;
        close(&x.adjoint()?.matmul(&y)?, &b, "Aᴴ X")
    })
}

#[test]
fn triangles_are_solved_from_both_sides() -> Result<()> {
    each(|n, normal| {
        let x = normal(&[n, n], 1)?.mul(0.5 / n as f64)?;
        let x = x.add(&identity(n, &x)?.mul(2.0)?)?;
        let b = normal(&[n, 7], 2)?;
        for (a, upper) in [(x.tril(0)?, false), (x.triu(0)?, true)] {
            close(&a.matmul(&linalg::solve_triangular(&x, &b, upper)?)?, &b, "a triangle")?;
            // In the layout after a transpose.
            let turned = x.t()?.contiguous()?.t()?;
            close(&a.matmul(&linalg::solve_triangular(&turned, &b, upper)?)?, &b, "a triangle by columns")?;
        }
        Ok(())
    })
}

#[test]
fn cholesky_factors_make_the_matrix() -> Result<()> {
    each(|n, normal| {
        let x = normal(&[2, n, n], 1)?;
        let one = identity(n, &x)?;
        let a = x.matmul(&x.adjoint()?)?.div(n as f64)?.add(&one)?;
        let l = linalg::cholesky(&a)?;
        close(&l.matmul(&l.adjoint()?)?, &a, "L Lᴴ")?;
        assert_eq!(distance(&l, &l.tril(0)?)?, 0.0);
        let u = linalg::cholesky_with(&a, CholeskyOptions::new().upper(true))?;
        close(&u, &l.adjoint()?, "U")
    })
}

#[test]
fn qr_factors_make_the_matrix() -> Result<()> {
    each(|n, normal| {
        for shape in [[n, n], [n, n / 2 + 1], [n / 2 + 1, n]] {
            let x = normal(&shape, 1)?;
            for mode in [QrMode::Reduced, QrMode::Complete] {
                let (q, r) = linalg::qr_with(&x, mode)?;
                orthonormal(&q, "Q")?;
                close(&q.matmul(&r)?, &x, "Q R")?;
                assert_eq!(distance(&r, &r.triu(0)?)?, 0.0);
            }
        }
        Ok(())
    })
}

#[test]
fn eigenvectors_are_orthonormal_and_make_the_matrix() -> Result<()> {
    each(|n, normal| {
        let x = normal(&[n, n], 1)?;
        let a = x.add(&x.adjoint()?)?.div((n as f64).sqrt())?;
        let (w, v) = linalg::eigh(&a)?;
        orthonormal(&v, "V")?;
        close(&v.mul(&w)?.matmul(&v.adjoint()?)?, &a, "V W Vᴴ")?;
        close(&linalg::eigvalsh(&a)?, &w, "eigenvalues alone")?;
        let values = w.to_dtype(DType::F64)?.to_vec::<f64>()?;
        assert!(values.is_sorted(), "{values:?}");
        Ok(())
    })
}

#[test]
fn singular_vectors_are_orthonormal_and_make_the_matrix() -> Result<()> {
    each(|n, normal| {
        for shape in [[n, n], [n, n / 2 + 1], [n / 2 + 1, n], [3 * n, n]] {
            let x = normal(&shape, 1)?.div((n as f64).sqrt())?;
            let (u, s, v) = x.svd()?;
            orthonormal(&u, "U")?;
            orthonormal(&v, "V")?;
            close(&u.mul(&s)?.matmul(&v.adjoint()?)?, &x, "U S Vᴴ")?;
            close(&linalg::svdvals(&x)?, &s, "singular values alone")?;
            let values = s.to_dtype(DType::F64)?.to_vec::<f64>()?;
            assert!(values.iter().rev().is_sorted(), "{values:?}");
            assert!(values.iter().all(|&s| s >= 0.0));
            let (u, _, vh) = linalg::svd(&x)?;
            assert_eq!((u.shape(), vh.shape()), (&[shape[0]; 2][..], &[shape[1]; 2][..]));
            orthonormal(&u, "full U")?;
            orthonormal(&vh.adjoint()?, "full V")?;
        }
        Ok(())
    })
}

#[test]
fn eigenvectors_of_general_matrices_are_their_own_multiples() -> Result<()> {
    each(|n, normal| {
        let a = normal(&[2, n, n], 1)?.div((n as f64).sqrt())?;
        let (w, v) = linalg::eig(&a)?;
        close(&a.to_dtype(w.dtype())?.matmul(&v)?, &v.mul(&w.unsqueeze(-2)?)?, "A V")?;
        let lengths = v.abs()?.square()?.sum(-2)?;
        close(&lengths, &lengths.ones_like()?, "lengths")?;
        close(&linalg::eigvals(&a)?, &w, "eigenvalues alone")?;
        if !a.dtype().is_complex() {
            // Conjugate pairs are exact, and real eigenvalues have imaginary part 0.
            let (re, im) = (w.real()?.to_dtype(DType::F64)?, w.imag()?.to_dtype(DType::F64)?);
            let (re, im) = (re.to_vec::<f64>()?, im.to_vec::<f64>()?);
            let pair = |k: usize| re[k] == re[k + 1] && im[k] == -im[k + 1];
            assert!((0..2 * n).all(|k| im[k] == 0.0 || pair(if im[k] > 0.0 { k } else { k - 1 })), "{im:?}");
        }
        Ok(())
    })
}

#[test]
fn ldl_factors_solve_what_they_came_from() -> Result<()> {
    each(|n, normal| {
        let (x, b) = (normal(&[2, n, n], 1)?, normal(&[2, n, 3], 2)?);
        for hermitian in [false, true] {
            if hermitian && x.dtype().is_complex() && x.device() != Device::Cpu {
                continue;
            }
            let other = if hermitian { x.adjoint()? } else { x.transpose(-2, -1)? };
            let a = x.add(&other)?.add(&identity(n, &x)?.mul(0.5)?)?;
            let options = LdlOptions::new().hermitian(hermitian);
            let (ld, pivots) = linalg::ldl_factor_with(&a, &options)?;
            let y = linalg::ldl_solve_with(&ld, &pivots, &b, &options)?;
            let size = y.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>()?.max(1.0);
            close(&a.matmul(&y)?.div(10.0 * size)?, &b.div(10.0 * size)?, "A X")?;
        }
        Ok(())
    })
}

/// Of low rank, diagonal, of zeros, with very large and very small elements.
#[test]
fn unusual_matrices_are_decomposed_as_well() -> Result<()> {
    let low = normal(&[40, 3], 1, DType::F64)?.matmul(&normal(&[3, 40], 2, DType::F64)?)?;
    let diagonal = Tensor::eye(40)?.to_dtype(DType::F64)?;
    let graded = diagonal.mul(&Tensor::arange(0, 40)?.to_dtype(DType::F64)?.mul(-0.5)?.exp()?)?;
    let zeros = Tensor::zeros_with([40, 40], DType::F64)?;
    let complex = normal(&[40, 3], 1, DType::C128)?.matmul(&normal(&[3, 40], 2, DType::C128)?)?;
    let pure = diagonal.zeros_like()?.complex(&diagonal)?;
    let all = [
        (&low, 1.0),
        (&low, 1e200),
        (&low, 1e-200),
        (&diagonal, 1.0),
        (&graded, 1.0),
        (&zeros, 1.0),
        (&complex, 1.0),
        (&complex, 1e200),
        (&complex, 1e-200),
        (&pure, 1.0),
    ];
    for (x, scale) in all {
        let symmetric = x.add(&x.adjoint()?)?;
        let (w, v) = linalg::eigh(&symmetric.mul(scale)?)?;
        orthonormal(&v, "V")?;
        close(&v.mul(&w.div(scale)?)?.matmul(&v.adjoint()?)?, &symmetric, "V W Vᴴ")?;
        let (u, s, v) = x.mul(scale)?.svd()?;
        orthonormal(&u, "U")?;
        orthonormal(&v, "V")?;
        close(&u.mul(&s.div(scale)?)?.matmul(&v.adjoint()?)?, x, "U S Vᴴ")?;
        let (w, v) = linalg::eig(&x.mul(scale)?)?;
        let w = w.div(scale)?;
        close(&x.to_dtype(DType::C128)?.matmul(&v)?, &v.mul(&w)?, "A V")?;
        close(&linalg::eigvals(&x.mul(scale)?)?.div(scale)?, &w, "eigenvalues alone")?;
    }
    assert_eq!(linalg::matrix_rank(&low)?.item::<i64>()?, 3);
    Ok(())
}

#[test]
fn results_of_large_matrices_do_not_depend_on_the_number_of_threads() -> Result<()> {
    for dtype in [DType::F64, DType::C128] {
        let x = normal(&[3, 150, 150], 1, dtype)?;
        let a = x.matmul(&x.adjoint()?)?;
        let run = |threads: usize| {
            with_num_threads(threads, || -> Result<Vec<Vec<Complex<f64>>>> {
                let mut all = Vec::new();
                for x in [a.clone(), a.narrow(0, 0, 1)?] {
                    let (w, v) = linalg::eigh(&x)?;
                    let (u, s, _) = x.svd()?;
                    let (lu, _) = linalg::lu_factor(&x)?;
                    let (q, _) = linalg::qr(&x)?;
                    for y in [w, v, u, s, lu, q, linalg::cholesky(&x)?, linalg::solve(&x, &x)?] {
                        all.push(y.to_dtype(DType::C128)?.to_vec()?);
                    }
                }
                Ok(all)
            })?
        };
        assert_eq!(run(1)?, run(4)?, "{dtype}");
    }
    Ok(())
}

/// With equal eigenvalues or singular values the derivative of vectors is refused, and that of values is correct.
#[test]
fn derivatives_that_do_not_exist_are_refused() -> Result<()> {
    let x = Tensor::eye(3)?.to_dtype(DType::F64)?.requires_grad_(true)?;
    let weights = Tensor::arange(1, 10)?.to_dtype(DType::F64)?.reshape([3, 3])?;
    let refused = |y: Tensor, words: &str| {
        let error = grad(&y.mul(&weights)?.sum(..)?, &[&x]).err();
        let message = error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(error.is_some_and(|e| e.kind() == ErrorKind::Graph) && message.contains(words), "{message:?}");
        Ok::<(), cotangent::Error>(())
    };
    refused(linalg::eig(&x)?.1.real()?, "two of the values are the same")?;
    refused(linalg::eigh(&x)?.1, "two of the values are the same")?;
    refused(linalg::svd(&x)?.0, "two of the values are the same")?;
    refused(x.svd()?.2, "two of the values are the same")?;
    let values = linalg::eigvalsh(&x)?.sum(..)?.add(&linalg::svdvals(&x)?.sum(..)?)?;
    let found = grad(&values, &[&x])?.remove(0).map(|g| g.to_vec::<f64>()).transpose()?;
    assert_eq!(found, Some(vec![2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0]));
    let tall = Tensor::ones_with([4, 2], DType::F64)?.requires_grad_(true)?;
    for y in [linalg::svd(&tall)?.0, linalg::qr_with(&tall, QrMode::Complete)?.0] {
        assert!(grad(&y.sum(..)?, &[&tall]).is_err_and(|e| e.kind() == ErrorKind::Graph));
    }
    let reduced = linalg::svd_with(&tall, SvdOptions::new().full_matrices(false))?.0;
    assert!(grad(&reduced.sum(..)?, &[&tall]).is_err(), "a singular value of {tall} is zero");
    Ok(())
}

/// The cofactors of singular matrices, and their derivatives where there are any.
#[test]
fn determinants_of_singular_matrices_have_derivatives() -> Result<()> {
    let gradient = |values: Vec<f64>, n: usize| -> Result<Option<Vec<f64>>> {
        let x = Tensor::from_vec(values, [n, n])?.requires_grad_(true)?;
        grad(&x.det()?, &[&x])?.remove(0).map(|g| g.to_vec::<f64>()).transpose()
    };
    let found = gradient(vec![1.0, 2.0, 2.0, 4.0], 2)?.unwrap_or_default();
    assert!(found.iter().zip([4.0, -2.0, -2.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
    assert_eq!(gradient(vec![0.0; 9], 3)?, Some(vec![0.0; 9]));
    // Of a matrix of rank 1 the second derivative is not zero.
    let x = Tensor::from_vec(vec![1.0, 0.0, 0.0, 0.0], [2, 2])?.requires_grad_(true)?;
    let first = grad_with(&x.det()?, &[&x], GradOptions::new().create_graph(true))?.remove(0);
    let first = first.ok_or_else(|| cotangent::Error::new(ErrorKind::Graph, "test", "no gradient"))?;
    let second = grad(&first.select(0, 0)?.select(0, 0)?, &[&x])?.remove(0).map(|g| g.to_vec::<f64>()).transpose()?;
    assert!(second.is_some_and(|g| (g[3] - 1.0).abs() < 1e-9));
    Ok(())
}

/// Matrices in a batch are independent: a regular matrix next to a zero matrix has the same derivative as alone.
#[test]
fn determinants_of_a_batch_of_all_ranks_have_the_derivatives_of_each() -> Result<()> {
    let (n, missing) = (40, || cotangent::Error::new(ErrorKind::Graph, "test", "no gradient"));
    for dtype in [DType::F64, DType::C128] {
        // Near the identity, so that no determinant is large.
        let regular = identity(n, &normal(&[1], 1, dtype)?)?.add(&normal(&[n, n], 2, dtype)?.mul(0.02)?)?;
        let flat =
            regular.mul(&Tensor::arange_with(0, n as i64, DType::F64)?.lt(n as i64 - 1)?.to_dtype(DType::F64)?)?;
        let zeros = regular.zeros_like()?;
        let all = [&regular, &flat, &zeros, &regular.mul(1.1)?];
        let derivatives = |x: &Tensor| -> Result<[Tensor; 2]> {
            let x = x.detach().requires_grad_(true)?;
            let y = x.det()?.real()?.sum(..)?;
            let first = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?.remove(0).ok_or_else(missing)?;
            let weights = normal(&[n, n], 3, DType::F64)?;
            let sum = first.real()?.mul(&weights)?.sum(..)?;
            let second = grad_with(&sum, &[&x], GradOptions::new())?.remove(0).ok_or_else(missing)?;
            Ok([first.detach(), second])
        };
        let together = derivatives(&Tensor::stack(&all, 0)?)?;
        for (at, alone) in all.iter().enumerate() {
            for (order, (batch, alone)) in both(together.iter(), derivatives(alone)?).enumerate() {
                close(&batch.select(0, at as isize)?, &alone, &format!("order {order} of matrix {at}, {dtype}"))?;
            }
        }
    }
    Ok(())
}
