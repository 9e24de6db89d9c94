//! The kernels against plain loops, with sizes that use several threads.

use super::*;
use crate::Generator;
use crate::backend::with_num_threads;

fn fold(by: ScatterReduce, old: f64, new: f64) -> f64 {
    match by {
        ScatterReduce::Sum | ScatterReduce::Mean => old + new,
        ScatterReduce::Prod => old * new,
        ScatterReduce::Amax => old.max(new),
        ScatterReduce::Amin => old.min(new),
    }
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.detach().to_dtype(DType::F64)?.to_vec::<f64>()
}

/// Whole numbers whose sums and products stay exact.
fn whole(shape: &[usize], seed: u64, dtype: DType) -> Result<Tensor> {
    Generator::seed(seed).randint(-1, 3, shape)?.to_dtype(dtype)
}

/// The shape (rows, columns) of the target, and the number of source rows.
const SIZES: [(usize, usize, usize); 4] = [(700, 1, 30_000), (5, 3, 9000), (400, 40, 900), (3, 9000, 2)];

#[cotangent_macros::unit_test]
fn many_elements_are_put_as_plain_loops_would() -> Result<()> {
    for (rows, columns, count) in SIZES {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::I64, DType::U8] {
            let (x, src) = (whole(&[rows, columns], 1, dtype)?, whole(&[count, columns], 2, dtype)?);
            let index = Generator::seed(3).randint(0, rows as i64, [count, columns])?;
            let (old, new, at) = (values(&x)?, values(&src)?, index.to_vec::<i64>()?);
            let positions = || at.iter().enumerate().map(|(i, &row)| (row as usize * columns + i % columns, i));
            let mut replaced = old.clone();
            positions().for_each(|(position, i)| replaced[position] = new[i]);
            for threads in [1, 2, 5] {
                let y = with_num_threads(threads, || x.scatter(0, &index, &src))??;
                assert_eq!(values(&y)?, replaced, "{dtype} {rows} {columns} {count}, {threads} threads");
                // The same along the other dimension.
                let y = with_num_threads(threads, || x.t()?.scatter(1, &index.t()?, &src.t()?))??;
                assert_eq!(
                    values(&y.t()?)?,
                    replaced,
                    "{dtype} {rows} {columns} {count}, {threads} threads, transposed"
                );
            }
            for by in [ScatterReduce::Amax, ScatterReduce::Amin] {
                let mut folded = old.clone();
                positions().for_each(|(position, i)| folded[position] = fold(by, folded[position], new[i]));
                let y = with_num_threads(3, || x.scatter_reduce(0, &index, &src, by))??;
                assert_eq!(values(&y)?, folded, "{by} of {dtype} {rows} {columns} {count}");
            }
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn rows_are_put_as_plain_loops_would() -> Result<()> {
    for (rows, columns, count) in SIZES {
        let (x, src) = (whole(&[rows, columns], 1, DType::F64)?, whole(&[count, columns], 2, DType::F64)?);
        let index = Generator::seed(3).randint(0, rows as i64, [count])?;
        let (mut replaced, mut product) = (values(&x)?, values(&x)?);
        let new = values(&src)?;
        for (j, &row) in index.to_vec::<i64>()?.iter().enumerate() {
            for column in 0..columns {
                let (to, from) = (row as usize * columns + column, j * columns + column);
                replaced[to] = new[from];
                product[to] *= new[from];
            }
        }
        for threads in [1, 4] {
            let copied = with_num_threads(threads, || x.index_copy(0, &index, &src))??;
            assert_eq!(values(&copied)?, replaced, "{rows} {columns} {count}, {threads} threads");
            let reduced = with_num_threads(threads, || x.index_reduce(0, &index, &src, ScatterReduce::Prod))??;
            assert_eq!(values(&reduced)?, product, "{rows} {columns} {count}, {threads} threads");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn sums_of_few_long_lanes_do_not_depend_on_the_number_of_threads() -> Result<()> {
    let mut generator = Generator::seed(1);
    let (x, src) = (generator.randn([1000])?, generator.randn([50_000])?);
    let index = generator.randint(0, 1000, [50_000])?;
    let sums = |threads: usize| with_num_threads(threads, || x.scatter_add(0, &index, &src))?;
    assert!(sums(1)?.equal(&sums(4)?)?);
    Ok(())
}

#[cotangent_macros::unit_test]
fn an_index_out_of_range_is_named_wherever_it_is() -> Result<()> {
    let x = Tensor::zeros([10])?;
    for position in [0, 9_999, 30_000] {
        let mut index = vec![0_i64; 30_001];
        index[position] = 10;
        let index = Tensor::from_vec(index, [30_001])?;
        let refused = with_num_threads(3, || x.scatter(0, &index, 1.0))?.map_err(|e| e.to_string());
        let message = format!("scatter: index 10 at [{position}] is out of range for a dimension of size 10");
        assert_eq!(refused.err(), Some(message));
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn true_elements_are_found_wherever_they_are() -> Result<()> {
    for (shape, share) in [(&[70_000][..], 2), (&[70_000], 40_000), (&[300, 211], 3), (&[20, 30, 70], 2)] {
        let x = Generator::seed(share as u64).randint(0, share, shape)?.eq(0)?;
        let mut expected = Vec::new();
        for (number, &yes) in x.to_vec::<bool>()?.iter().enumerate() {
            if yes {
                expected.extend(crate::layout::unravel(number, shape).iter().map(|&at| at as i64));
            }
        }
        for threads in [1, 4] {
            let found = with_num_threads(threads, || x.nonzero())??;
            assert_eq!(found.shape(), [expected.len() / shape.len(), shape.len()]);
            assert_eq!(found.to_vec::<i64>()?, expected, "{shape:?}, one in {share}, {threads} threads");
        }
        assert!(x.masked_select(&x)?.to_vec::<bool>()?.iter().all(|&yes| yes));
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_gradient_of_an_element_that_was_replaced_is_zero() -> Result<()> {
    let src = Tensor::new([1.0, 2.0, 3.0])?.requires_grad_(true)?;
    let y = Tensor::zeros_with([2], DType::F64)?.scatter(0, &Tensor::new([1_i64, 1, 0])?, &src)?;
    y.mul(&Tensor::new([10.0, 20.0])?)?.sum(..)?.backward()?;
    assert_eq!(src.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 20.0, 10.0]));
    Ok(())
}
