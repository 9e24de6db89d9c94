//! The kernels against plain loops, on all layouts, dtypes and numbers of threads.

use super::*;
use crate::Generator;
use crate::autograd::{GradOptions, derivative, grad_with};
use std::collections::HashMap;

/// Every index of a shape in row-major order.
fn positions(shape: &[usize]) -> Vec<Vec<isize>> {
    shape.iter().fold(vec![Vec::new()], |all, &size| {
        let longer =
            |position: &Vec<isize>| (0..size as isize).map(|i| [&position[..], &[i]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}

fn with(position: &[isize], dim: usize, index: isize) -> Vec<isize> {
    let mut position = position.to_vec();
    position[dim] = index;
    position
}

fn number(x: &Tensor, position: &[isize]) -> Result<f64> {
    Ok(x.at(position)?.to_f64())
}

/// The definition of `gather`, as a loop.
fn plain_gather(x: &Tensor, dim: usize, index: &Tensor) -> Result<Vec<f64>> {
    positions(index.shape()).iter().map(|p| number(x, &with(p, dim, number(index, p)? as isize))).collect()
}

/// The definition of `scatter_add`, as a loop.
fn plain_scatter_add(x: &Tensor, dim: usize, index: &Tensor, source: &Tensor) -> Result<Vec<f64>> {
    let mut sums = HashMap::new();
    for position in positions(index.shape()) {
        let target = with(&position, dim, number(index, &position)? as isize);
        *sums.entry(target).or_insert(0.0) += number(source, &position)?;
    }
    positions(x.shape()).iter().map(|p| Ok(number(x, p)? + sums.get(p).copied().unwrap_or(0.0))).collect()
}

/// Integers between -8 and 8, whose sums are exact in every signed dtype.
fn whole(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    Generator::seed(seed).randint(-8, 9, shape)?.to_dtype(dtype)
}

/// The same values with another memory layout.
fn relaid(x: &Tensor, way: usize) -> Result<Tensor> {
    match way {
        0 => Ok(x.clone()),
        1 => x
            .permute((0..x.rank() as isize).rev().collect::<Vec<_>>())?
            .contiguous()?
            .permute((0..x.rank() as isize).rev().collect::<Vec<_>>()),
        2 => x.flip(..)?.contiguous()?.flip(..),
        _ => Tensor::stack(&[x, x], -1)?.select(-1, 1),
    }
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.detach().to_dtype(DType::F64)?.to_vec::<f64>()
}

const SHAPES: [(&[usize], usize, &[usize]); 7] = [
    (&[7], 0, &[40]),
    (&[5, 33], 0, &[9, 33]),
    (&[5, 33], 0, &[9, 20]),
    (&[33, 5], 1, &[30, 9]),
    (&[3, 4, 5], 1, &[2, 6, 5]),
    (&[3, 1, 50], 0, &[8, 1, 50]),
    (&[2, 3, 4, 5], 3, &[2, 3, 1, 2]),
];

#[cotangent_macros::unit_test]
fn gather_and_scatter_add_agree_with_plain_loops() -> Result<()> {
    for (shape, dim, index_shape) in SHAPES {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I16] {
            let (x, source) = (whole(shape, 1, dtype)?, whole(index_shape, 2, dtype)?);
            let index = Generator::seed(3).randint(0, shape[dim] as i64, index_shape)?;
            let (gathered, added) = (plain_gather(&x, dim, &index)?, plain_scatter_add(&x, dim, &index, &source)?);
            for way in 0..4 {
                let (x, source, index) = (relaid(&x, way)?, relaid(&source, way)?, relaid(&index, (way + 1) % 4)?);
                let what = format!("{dtype} {shape:?} at {index_shape:?} along {dim}, layout {way}");
                assert_eq!(values(&x.gather(dim as isize, &index)?)?, gathered, "gather of {what}");
                assert_eq!(values(&x.scatter_add(dim as isize, &index, &source)?)?, added, "scatter_add of {what}");
            }
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn rows_agree_with_plain_loops() -> Result<()> {
    for (shape, dim) in [(&[6, 40][..], 0), (&[40, 6], 1), (&[3, 5, 20], 1), (&[6, 3], 0), (&[6], 0)] {
        for way in 0..4 {
            let x = relaid(&whole(shape, 1, DType::F32)?, way)?;
            let index = Generator::seed(3).randint(0, shape[dim] as i64, [25])?;
            let chosen = x.layout().shape().with(dim, 25);
            let repeated = lined_up(&index, dim, shape.len())?.expand(&chosen)?;
            let selected = x.index_select(dim as isize, &index)?;
            assert_eq!(selected.shape(), &chosen[..]);
            assert_eq!(values(&selected)?, plain_gather(&x, dim, &repeated)?, "{shape:?} along {dim}, layout {way}");
            let source = relaid(&whole(&chosen, 2, DType::F32)?, way)?;
            let added = plain_scatter_add(&x, dim, &repeated, &source)?;
            let sum = x.index_add(dim as isize, &index, &source)?;
            assert_eq!(values(&sum)?, added, "{shape:?} along {dim}, layout {way}");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn sums_do_not_depend_on_the_number_of_threads() -> Result<()> {
    let mut generator = Generator::seed(1);
    for (shape, dim, index_shape) in [(&[50, 300][..], 0, &[2000, 300][..]), (&[300, 50], 1, &[300, 2000])] {
        let index = generator.randint(0, 50, index_shape)?;
        let row = generator.randint(0, 50, [2000])?;
        let (x, source) = (generator.randn(shape)?, generator.randn(index_shape)?);
        let sums = |threads: usize| -> Result<(Tensor, Tensor)> {
            let sums = || Ok((x.scatter_add(dim, &index, &source)?, x.index_add(dim, &row, &source)?));
            crate::backend::with_num_threads(threads, sums)?
        };
        let (one, four) = (sums(1)?, sums(4)?);
        assert!(one.0.equal(&four.0)? && one.1.equal(&four.1)?);
        assert!(!one.0.equal(&one.1)?);
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn half_precision_is_added_up_in_single() -> Result<()> {
    // Added sequentially, the sum would stop at 2048 in f16, and at 256 in bf16.
    for dtype in [DType::F16, DType::BF16] {
        let (zero, ones) = (Tensor::zeros_with([1], dtype)?, Tensor::ones_with([4096], dtype)?);
        let sum = zero.scatter_add(0, &Tensor::zeros_with([4096], DType::I64)?, &ones)?;
        assert_eq!((sum.dtype(), values(&sum)?), (dtype, vec![4096.0]));
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_gradient_of_an_embedding_adds_up_rows() -> Result<()> {
    let weight = whole(&[10, 64], 1, DType::F32)?.requires_grad_(true)?;
    let index = Generator::seed(2).randint(0, 10, [4, 100])?;
    let rows = index.embedding(&weight)?;
    let g = whole(&[4, 100, 64], 3, DType::F32)?;
    rows.backward_with(&g)?;
    let lined = index.reshape([400, 1])?.expand([400, 64])?;
    let expected = plain_scatter_add(&weight.zeros_like()?, 0, &lined, &g.reshape([400, 64])?)?;
    assert_eq!(weight.grad().map(|g| values(&g)).transpose()?, Some(expected));
    Ok(())
}

#[cotangent_macros::unit_test]
fn derivatives_of_derivatives_exist() -> Result<()> {
    let x = whole(&[3, 4], 1, DType::F64)?.requires_grad_(true)?;
    let index = Tensor::new([[0, 0, 2], [1, 3, 3]])?;
    let y = x.gather(1, &index)?.pow(3)?.sum(..)?;
    let first = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?;
    let first = first.into_iter().flatten().next().unwrap_or_else(|| x.detach());
    let second = values(&derivative(&first.sum(..)?, &x)?)?;
    let count = [2.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0];
    let expected: Vec<f64> = values(&x)?.iter().zip(count).map(|(x, n)| 6.0 * x * n).collect();
    assert_eq!(second, expected);
    Ok(())
}

#[cotangent_macros::unit_test]
fn what_lies_outside_a_triangle_is_zero_whatever_it_was() -> Result<()> {
    let x = Tensor::full([2, 3], f64::NAN)?;
    let lower = x.t()?.tril(-1)?.to_vec::<f32>()?;
    assert_eq!(lower.iter().map(|v| v.is_nan()).collect::<Vec<_>>(), [false, false, true, false, true, true]);
    assert!(lower.iter().all(|v| v.is_nan() || v.to_bits() == 0));
    for (diagonal, expected) in [(isize::MAX, [1.0; 4]), (isize::MIN, [0.0; 4])] {
        assert_eq!(values(&Tensor::ones([2, 2])?.tril(diagonal)?)?, expected);
        assert_eq!(values(&Tensor::ones([2, 2])?.triu(diagonal)?)?, expected.map(|v| 1.0 - v));
    }
    Ok(())
}
