//! Batches of matrices, singular values and Fourier transforms, at sizes that use different algorithms on a GPU.

use super::{GPU, beside_others, close, gpu, random};
use cotangent::{
    DType, Result, Tensor, fft, linalg,
    options::{LinalgSolveOptions, SolveTriangularOptions, SvdOptions},
};

/// Sizes of a batch, and of its matrices.
const SIZES: [(usize, usize); 7] = [(1, 5), (2, 1), (3, 33), (7, 64), (16, 256), (2, 300), (2, 600)];

fn regular(batch: usize, n: usize, dtype: DType) -> Result<Tensor> {
    random(&[batch, n, n], 1, dtype)?.add(&Tensor::eye(n)?.to_dtype(dtype)?.mul(2.0 * (n as f64).sqrt())?)
}

fn positive(batch: usize, n: usize, dtype: DType) -> Result<Tensor> {
    let x = random(&[batch, n, n], 1, dtype)?;
    x.matmul(&x.transpose(1, 2)?)?.div(n as f64)?.add(&Tensor::eye(n)?.to_dtype(dtype)?)
}

#[test]
fn systems_and_factors_of_batches() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in [(DType::F32, 2e-3), (DType::F64, 1e-10)] {
        for (batch, n) in SIZES {
            let what = format!("{batch} of {n} by {n}, {dtype}");
            let (a, b) = (regular(batch, n, dtype)?, random(&[batch, n, 7], 2, dtype)?);
            let (there, right) = (a.to_device(GPU)?, b.to_device(GPU)?);
            assert!(close(&linalg::solve(&there, &right)?, &linalg::solve(&a, &b)?, tolerance)?, "solve: {what}");
            let left = LinalgSolveOptions::new().left(false);
            let turned = right.transpose(1, 2)?;
            let got = linalg::solve_with(&there, &turned, left.clone())?;
            assert!(
                close(&got, &linalg::solve_with(&a, &b.transpose(1, 2)?, left)?, tolerance)?,
                "from the right: {what}"
            );
            assert!(close(&there.inverse()?, &a.inverse()?, tolerance)?, "inverse: {what}");
            if dtype == DType::F64 {
                // In f32 rounding may select another pivot.
                let ((lu, pivots), here) = (linalg::lu_factor(&there)?, linalg::lu_factor(&a)?);
                assert!(pivots.equal(&here.1)?, "pivots: {what}");
                assert!(close(&lu, &here.0, tolerance)?, "factors: {what}");
            }
            for upper in [false, true] {
                let options = || SolveTriangularOptions::new();
                let triangle = |x: &Tensor| if upper { x.triu(0) } else { x.tril(0) };
                let (wide, near) = (triangle(&positive(batch, n, dtype)?)?, &b);
                let got = linalg::solve_triangular_with(&wide.to_device(GPU)?, &right, upper, options())?;
                let want = linalg::solve_triangular_with(&wide, near, upper, options())?;
                assert!(close(&got, &want, tolerance)?, "triangles, upper {upper}: {what}");
            }
            let p = positive(batch, n, dtype)?;
            assert!(
                close(&linalg::cholesky(&p.to_device(GPU)?)?, &linalg::cholesky(&p)?, tolerance)?,
                "cholesky: {what}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_a_batch_stops_at_is_said_for_each() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for n in [5, 40, 256] {
        let good = positive(3, n, DType::F64)?;
        let mut signs = vec![1.0; n];
        signs[n - 2] = -1.0;
        let broken = good.narrow(0, 1, 1)?.mul(&Tensor::from_vec(signs, [n])?)?;
        let mixed = Tensor::cat(&[&good.narrow(0, 0, 1)?, &broken, &good.narrow(0, 2, 1)?], 0)?;
        let there = mixed.to_device(GPU)?;
        let infos = |x: &Tensor| linalg::cholesky_ex(x)?.1.to_vec::<i32>();
        assert_eq!(infos(&there)?, infos(&mixed)?, "{n}");
        assert_ne!(infos(&there)?[1], 0);
        assert!(linalg::cholesky(&there).is_err());
        // A column of zeros.
        let mut mask = vec![1.0; n];
        mask[3] = 0.0;
        let singular = good.mul(&Tensor::from_vec(mask, [n])?)?;
        let mixed = Tensor::cat(&[&good.narrow(0, 0, 1)?, &singular.narrow(0, 1, 2)?], 0)?.to_device(GPU)?;
        let info = linalg::lu_factor_ex(&mixed)?.2.to_vec::<i32>()?;
        assert_eq!(info, [0, 4, 4], "{n}");
        assert!(linalg::solve(&mixed, &good.to_device(GPU)?).is_err());
    }
    Ok(())
}

#[test]
fn singular_vectors_are_orthogonal_and_give_the_matrix_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64] {
        let tolerance = if dtype == DType::F32 { 2e-5 } else { 1e-12 };
        let low = random(&[2, 40, 3], 1, dtype)?.matmul(&random(&[2, 3, 30], 2, dtype)?)?;
        let all = [
            random(&[3, 64, 64], 1, dtype)?,
            random(&[50, 20], 2, dtype)?,
            random(&[2, 20, 50], 3, dtype)?,
            random(&[256, 256], 4, dtype)?,
            low,
            Tensor::zeros_with([2, 5, 4], dtype)?,
            Tensor::ones_with([9, 9], dtype)?,
            Tensor::eye(6)?.to_dtype(dtype)?,
            // Small ones, which are computed in one batched call.
            random(&[100, 16, 16], 5, dtype)?,
            random(&[7, 32, 20], 6, dtype)?,
            random(&[7, 3, 9], 7, dtype)?,
            random(&[4, 12, 2], 8, dtype)?.matmul(&random(&[4, 2, 12], 9, dtype)?)?,
            random(&[4, 12, 1], 8, dtype)?.matmul(&random(&[4, 1, 7], 9, dtype)?)?,
            random(&[20_000, 2, 2], 10, dtype)?,
            Tensor::ones_with([3, 9, 9], dtype)?,
        ];
        for x in all {
            let there = x.to_device(GPU)?;
            let want = linalg::svdvals(&x)?;
            let size = want.max(..)?.to_dtype(DType::F64)?.item::<f64>()?;
            let size = size.max(1e-30);
            for full in [false, true] {
                let what = format!("{dtype} {:?}, full {full}", x.shape());
                let (u, s, vh) = linalg::svd_with(&there, SvdOptions::new().full_matrices(full))?;
                assert!(close(&s.div(size)?, &want.div(size)?, tolerance)?, "values of {what}");
                for q in [u.clone(), vh.transpose(-2, -1)?] {
                    let n = q.shape()[q.rank() - 1];
                    let one = Tensor::eye(n)?.to_dtype(dtype)?.to_device(GPU)?;
                    let off = q.transpose(-2, -1)?.matmul(&q)?.sub(&one)?.abs()?.max(..)?;
                    assert!(off.to_dtype(DType::F64)?.item::<f64>()? < tolerance * 4.0, "vectors of {what}");
                }
                let k = s.shape()[s.rank() - 1];
                let again = u.narrow(-1, 0, k)?.mul(&s.unsqueeze(-2)?)?.matmul(&vh.narrow(-2, 0, k)?)?;
                let off = again.sub(&there)?.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>()?;
                assert!(off <= tolerance * size, "{what}: {off}");
            }
        }
    }
    Ok(())
}

#[test]
fn eigenvectors_of_batches_are_orthogonal_and_give_the_matrices_back() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::C64, DType::C128] {
        let single = matches!(dtype, DType::F32 | DType::C64);
        let tolerance = if single { 3e-5 } else { 1e-12 };
        let parts = if single { DType::F32 } else { DType::F64 };
        let mixed = |shape: &[usize], seed: u64| {
            let re = random(shape, seed, parts)?;
            if dtype.is_complex() { Tensor::complex(&re, &random(shape, seed + 100, parts)?) } else { Ok(re) }
        };
        // One, several sequentially and batched, and more than fit into the workspace.
        let shapes: [&[usize]; 8] = [
            &[70, 70],
            &[2, 5, 5],
            &[3, 300, 300],
            &[9, 270, 270],
            &[1000, 4, 4],
            &[2, 20, 32, 32],
            &[5, 1, 1],
            &[3000, 16, 16],
        ];
        let mut all = shapes.iter().zip(1..).map(|(shape, seed)| mixed(shape, seed)).collect::<Result<Vec<_>>>()?;
        all.push(Tensor::zeros_with([3, 6, 6], dtype)?);
        all.push(Tensor::ones_with([3, 6, 6], dtype)?);
        for x in all {
            let x = x.add(&x.transpose(-2, -1)?.conj()?)?;
            let (there, what) = (x.to_device(GPU)?, format!("{dtype} {:?}", x.shape()));
            let want = linalg::eigvalsh(&x)?;
            let size = want.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>()?.max(1e-30);
            assert!(
                close(&linalg::eigvalsh(&there)?.div(size)?, &want.div(size)?, tolerance)?,
                "values alone of {what}"
            );
            let (values, vectors) = linalg::eigh(&there)?;
            assert!(close(&values.div(size)?, &want.div(size)?, tolerance)?, "values of {what}");
            let turned = vectors.transpose(-2, -1)?.conj()?;
            let one = Tensor::eye(x.shape()[x.rank() - 1])?.to_dtype(dtype)?.to_device(GPU)?;
            let largest = |x: &Tensor| x.abs()?.max(..)?.to_dtype(DType::F64)?.item::<f64>();
            assert!(largest(&turned.matmul(&vectors)?.sub(&one)?)? < tolerance * 4.0, "vectors of {what}");
            let again = vectors.mul(&values.unsqueeze(-2)?.to_dtype(dtype)?)?.matmul(&turned)?;
            assert!(largest(&again.sub(&there)?)? < tolerance * size * 4.0, "{what}");
        }
    }
    Ok(())
}

#[test]
fn transforms_of_several_dimensions_at_once() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for shape in [&[4, 6, 2][..], &[3, 8, 5, 2], &[2, 3, 4, 5, 2], &[128, 100, 2]] {
        let x = random(shape, 1, DType::F64)?.view_as_complex()?;
        let there = x.to_device(GPU)?;
        type Call = fn(&Tensor) -> Result<Tensor>;
        let calls: [(&str, Call); 5] = [
            ("fft2", |x| fft::fft2(x)),
            ("ifft2", |x| fft::ifft2(x)),
            ("fftn", |x| fft::fftn(x)),
            ("ifftn", |x| fft::ifftn(x)),
            ("transposed", |x| fft::fft2(&x.transpose(-2, -1)?)),
        ];
        for (name, call) in calls {
            let parts = |x: &Tensor| call(x)?.view_as_real()?.contiguous();
            assert!(close(&parts(&there)?, &parts(&x)?, 1e-9)?, "{name} of {shape:?}");
            let gradient = |x: &Tensor| {
                let x = x.detach().requires_grad_(true)?;
                call(&x)?.view_as_real()?.square()?.sum(..)?.backward()?;
                x.grad().map_or_else(|| x.zeros_like(), Ok)?.view_as_real()?.contiguous()
            };
            assert!(close(&gradient(&there)?, &gradient(&x)?, 1e-9)?, "the gradient of {name} of {shape:?}");
        }
    }
    Ok(())
}
