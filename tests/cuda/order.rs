//! Sorts, selections, scans and scatters, at sizes that use different algorithms on a GPU.

use super::{GPU, alone, beside_others, close, gpu, random};
use crate::checks::both;
use cotangent::{
    DType, Device, Generator, Result, Tensor,
    options::{ScatterReduce, SortOptions},
    s,
    settings::with_deterministic_algorithms,
    tensor, vmap,
};

/// Numbers with many that are equal, some NaN and both zeros.
fn mixed(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let x = random(shape, 1, DType::F32)?.mul(20.0)?;
    let x = if dtype.is_float() { x } else { x.abs()? };
    let whole = Generator::seed(2).rand(shape)?.lt(0.5)?;
    let x = whole.where_(x.div_with(1.0, cotangent::options::Rounding::Trunc)?, &x)?;
    if !dtype.is_float() {
        return x.to_dtype(dtype);
    }
    Generator::seed(3).rand(shape)?.lt(0.02)?.where_(f32::NAN, &x)?.to_dtype(dtype)
}

#[test]
fn sorts_of_every_length() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let lengths = [1, 2, 7, 31, 32, 33, 64, 65, 128, 200, 257, 512, 1000, 1024, 1025, 2048, 2049, 4096, 4097, 20_000];
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I64, DType::U8] {
        for len in lengths {
            for (shape, dim) in [([3, len], 1), ([len, 3], 0)] {
                let x = mixed(&shape, dtype)?;
                let there = x.to_device(GPU)?;
                for descending in [false, true] {
                    let options = || SortOptions::new().descending(descending);
                    let what = format!("{dtype} {shape:?} descending {descending}");
                    let (values, order) = there.sort_with(dim, options())?;
                    assert!(order.equal(&x.argsort_with(dim, options())?)?, "{what}");
                    let again = there.gather(dim, &order)?;
                    // NaN is not equal to itself.
                    let alike = values.eq(&again)?.bitwise_or(values.ne(&values)?.bitwise_and(again.ne(&again)?)?)?;
                    assert!(alike.all(..)?.item::<bool>()?, "values of {what}");
                    // Zeros keep their signs.
                    assert!(values.signbit()?.equal(&again.signbit()?)?, "signs of {what}");
                    assert!(there.argsort_with(dim, options())?.equal(&order)?, "argsort of {what}");
                    let k = len.min(40);
                    let (_, first) =
                        there.topk_with(k, dim, cotangent::options::TopkOptions::new().largest(descending))?;
                    assert!(first.equal(&order.narrow(dim, 0, k)?)?, "the first {k} of {what}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn long_sorts_and_what_is_made_of_them() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I8] {
        for n in [100_000, 1 << 20] {
            let x = mixed(&[n], dtype)?;
            let there = x.to_device(GPU)?;
            let order = there.argsort(0)?;
            assert!(order.equal(&x.argsort(0)?)?, "{n} of {dtype}");
            assert!(there.argsort(0)?.equal(&order)?, "{n} of {dtype}: the same every time");
            if dtype.is_float() {
                assert!(close(&there.nanmedian(..)?, &x.nanmedian(..)?, 0.0)?, "the median of {n} of {dtype}");
            } else {
                assert!(there.unique()?.equal(&x.unique()?)?, "{n} different of {dtype}");
            }
        }
    }
    let many = mixed(&[9_000_001], DType::F32)?;
    assert!(many.to_device(GPU)?.argsort(0)?.equal(&many.argsort(0)?)?, "larger tiles");
    // All equal: no pass has anything to do.
    let same = Tensor::full([70_000], 2.5)?.to_device(GPU)?;
    assert!(same.argsort(0)?.equal(&Tensor::arange(0, 70_000)?)?);
    assert!(same.sort(0)?.0.equal(&same)?);
    let alike_but_for_lanes = same.reshape([10, 7000])?;
    assert!(alike_but_for_lanes.sort(1)?.0.equal(&alike_but_for_lanes)?);
    let rows = mixed(&[70, 9000], DType::F32)?;
    assert!(rows.to_device(GPU)?.argsort(1)?.equal(&rows.argsort(1)?)?, "many long rows");
    assert!(rows.to_device(GPU)?.topk(2000, 1)?.1.equal(&rows.topk(2000, 1)?.1)?, "many of many long rows");
    let median = |x: &Tensor| Ok::<_, cotangent::Error>(x.nanmedian_with_indices(1)?.1);
    assert!(median(&rows.to_device(GPU)?)?.equal(&median(&rows)?)?, "medians of long rows");
    let integers = Generator::seed(4).randint(0, 1 << 40, [200_000])?;
    assert!(integers.to_device(GPU)?.argsort(0)?.equal(&integers.argsort(0)?)?, "large integers");
    Ok(())
}

#[test]
fn places_in_the_order_of_long_lanes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I64, DType::I8, DType::U8] {
        for (shape, dim) in [(vec![40_000], 0), (vec![3, 70_001], 1), (vec![2, 33_000, 3], 1), (vec![1_000_003], 0)] {
            let (n, x) = (shape[dim], mixed(&shape, dtype)?);
            let dim = dim as i64;
            let there = x.to_device(GPU)?;
            for k in [1, n / 3, n] {
                let found = there.kthvalue(k, dim)?.1;
                assert!(found.equal(&x.kthvalue(k, dim)?.1)?, "{k} of {shape:?} of {dtype}");
            }
            let medians = |x: &Tensor| {
                Ok::<_, cotangent::Error>([x.median_with_indices(dim)?.1, x.nanmedian_with_indices(dim)?.1])
            };
            for (found, own) in both(medians(&there)?.iter(), &medians(&x)?) {
                assert!(found.equal(own)?, "medians of {shape:?} of {dtype}");
            }
        }
    }
    let same = Tensor::full([70_000], 2.5)?.to_device(GPU)?;
    assert_eq!(same.kthvalue(69_999, 0)?.1.item::<i64>()?, 69_998, "all alike");
    Ok(())
}

#[test]
fn places_of_true_elements() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (n, share) in [(1, 1.0), (15, 0.5), (4096, 1.0), (4097, 0.3), (100_000, 0.01), (1_000_000, 0.5)] {
        let mask = Generator::seed(1).rand([n])?.lt(share)?;
        let there = mask.to_device(GPU)?;
        assert!(there.nonzero()?.equal(&mask.nonzero()?)?, "{share} of {n}");
        // From an address that is not aligned for the widest reads.
        let (a, b) = (there.narrow(0, n / 2, n - n / 2)?, mask.narrow(0, n / 2, n - n / 2)?);
        assert!(a.nonzero()?.equal(&b.nonzero()?)?, "half of {share} of {n}");
        let x = random(&[n], 2, DType::F32)?;
        assert!(
            x.to_device(GPU)?.masked_select(&there)?.equal(&x.masked_select(&mask)?)?,
            "elements of {share} of {n}"
        );
    }
    // The counts of 40 million elements are summed in several rounds.
    let n = 40_000_000;
    let all = Tensor::full_with([n], true, (DType::Bool, GPU))?.nonzero()?.reshape([n])?;
    assert!(all.equal(&Tensor::arange_with(0, n, (DType::I64, GPU))?)?, "all of {n}");
    let mask = Generator::seed(1).rand([70, 33, 21])?.lt(0.4)?;
    assert!(mask.to_device(GPU)?.nonzero()?.equal(&mask.nonzero()?)?, "three dimensions");
    Ok(())
}

#[test]
fn distinct_rows() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for rows in [0, 1, 2, 3, 255, 1000, 30_000] {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool] {
            // Few numbers in few columns, so that many rows are equal, and many begin alike.
            let x = Generator::seed(1).randint(-2, 3, [3, rows])?;
            let x = if dtype.is_float() { x.to_dtype(dtype)?.div(2.0)? } else { x.abs()?.to_dtype(dtype)? };
            let (here, there) = (x.unique_all_with(1)?, x.to_device(GPU)?.unique_all_with(1)?);
            for (a, b) in [(there.0, here.0), (there.1, here.1), (there.2, here.2), (there.3, here.3)] {
                assert!(a.equal(&b)?, "{rows} of {dtype}");
            }
        }
    }
    Ok(())
}

/// Whether sums by index are those of the CPU. In f32 they may be the exact sums, rounded, which is more accurate.
fn near_sums(sums: &Tensor, x: &Tensor, index: &Tensor, y: &Tensor) -> Result<bool> {
    let same = sums.equal(&x.scatter_add(0, index, y)?)?;
    if same || x.dtype() != DType::F32 {
        return Ok(same);
    }
    let wide = |x: &Tensor| x.to_dtype(DType::F64);
    let exact = wide(x)?.scatter_add(0, index, &wide(y)?)?;
    // An f64 that lies between two f32 may have been rounded from the other side of their middle.
    let error = wide(&sums.to_device(Device::Cpu)?)?.sub(&exact)?.abs()?;
    let allowed = exact.abs()?.mul(f64::from(f32::EPSILON) * 0.5001)?.add(1e-12)?;
    error.le(&allowed)?.all(..)?.item::<bool>()
}

#[test]
fn sums_of_floats_of_all_sizes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    // The second with several floats for each thread.
    for (n, places) in [(50_000, 20_000), (600_000, 150_000)] {
        let index = Generator::seed(1).randint(0, places, [n])?;
        let at = index.to_device(GPU)?;
        // From the smallest subnormal to the largest: what is far below the largest of all must not be lost.
        let exponent = Generator::seed(2).rand([n])?.to_dtype(DType::F64)?.mul(250.0)?.sub(140.0)?.floor()?;
        let y = random(&[n], 3, DType::F64)?.mul(&exponent.exp2()?)?.to_dtype(DType::F32)?;
        let x = Tensor::zeros([places as usize])?;
        let sums = x.to_device(GPU)?.scatter_add(0, &at, &y.to_device(GPU)?)?;
        let exact = x.to_dtype(DType::F64)?.scatter_add(0, &index, &y.to_dtype(DType::F64)?)?;
        let largest =
            x.to_dtype(DType::F64)?.scatter_reduce(0, &index, &y.abs()?.to_dtype(DType::F64)?, ScatterReduce::Amax)?;
        let error = sums.to_device(Device::Cpu)?.to_dtype(DType::F64)?.sub(&exact)?.abs()?;
        // Half of the last bit of the sum, and a trace of the largest addend, which the sum may have lost.
        let allowed = exact.abs()?.mul(6e-8)?.add(&largest.mul(1e-9)?)?.add(1e-45)?;
        assert!(error.le(&allowed)?.all(..)?.item::<bool>()?, "sums of all sizes");
    }

    let y =
        tensor!([f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1.0, 1e-45, 1e38, 3e38, 3e38, -0.0])?;
    let index = tensor!([0, 0, 1, 2, 3, 3, 4, 4, 5, 5, 6])?;
    let index = Tensor::cat(&[&index, &tensor!([2])?], 0)?;
    let y = Tensor::cat(&[&y, &tensor!([f32::NEG_INFINITY])?], 0)?;
    let x = tensor!([-0.0_f32; 8])?;
    let sums = x.to_device(GPU)?.scatter_add(0, &index.to_device(GPU)?, &y.to_device(GPU)?)?;
    let sums = sums.to_device(Device::Cpu)?.to_vec::<f32>()?;
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let want = [inf, -inf, nan, nan, 1e38, inf, -0.0, -0.0];
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    assert!(sums.iter().zip(&want).all(same), "{sums:?}");
    Ok(())
}

/// Sums of integers do not depend on the order, also in floating point.
#[test]
fn sums_in_any_order() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    with_deterministic_algorithms(false, || {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (n, places) in [(1, 1), (5000, 3000), (200_000, 100_000)] {
                let index = Generator::seed(1).randint(0, places, [n])?;
                let draw = |seed: u64, shape: &[usize]| Generator::seed(seed).randint(-3, 4, shape)?.to_dtype(dtype);
                let (at, places) = (index.to_device(GPU)?, places as usize);
                let what = format!("{n} of {dtype} into {places}");
                let (x, y) = (draw(2, &[places])?, draw(3, &[n])?);
                let sums = x.to_device(GPU)?.scatter_add(0, &at, &y.to_device(GPU)?)?;
                assert!(sums.equal(&x.scatter_add(0, &index, &y)?)?, "{what}");
                let (x, y) = (draw(4, &[places, 3])?, draw(5, &[n, 3])?);
                let rows = x.to_device(GPU)?.index_add(0, &at, &y.to_device(GPU)?)?;
                assert!(rows.equal(&x.index_add(0, &index, &y)?)?, "rows: {what}");
                let strided = x.to_device(GPU)?.t()?.index_add(1, &at, &y.to_device(GPU)?.t()?)?;
                assert!(strided.equal(&rows.t()?)?, "columns: {what}");
            }
        }
        let outside = Tensor::zeros([3])?.to_device(GPU)?;
        let sums = outside.scatter_add(0, &tensor!([0, 7])?.to_device(GPU)?, &tensor!([1.0, 2.0])?.to_device(GPU)?);
        let refused = sums.and_then(|sums| sums.to_vec::<f32>());
        assert!(refused.is_err_and(|error| error.to_string().contains('7')), "an index outside");
        Ok(())
    })
}

#[test]
fn indices_that_repeat_in_all_ways() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (n, places) in [(1, 1), (1000, 3), (30_000, 30_000), (100_000, 40_000), (30_000, 90_000), (300, 1_000_000)] {
        for repeated in [0.0, 0.001, 0.5, 1.0] {
            // Many elements are added to one position.
            let index = Generator::seed(1).randint(0, places, [n])?;
            let index = Generator::seed(2).rand([n])?.lt(repeated)?.where_(places / 2, &index)?;
            let (x, y) = (random(&[places as usize], 3, DType::F32)?, random(&[n], 4, DType::F32)?);
            let whole = |x: &Tensor| x.mul(1000.0)?.to_dtype(DType::I64);
            let what = format!("{n} into {places}, {repeated} of them into one");
            let at = index.to_device(GPU)?;
            for (x, y) in [(x.clone(), y.clone()), (whole(&x)?, whole(&y)?)] {
                let (there, from) = (x.to_device(GPU)?, y.to_device(GPU)?);
                let sums = there.scatter_add(0, &at, &from)?;
                assert!(sums.equal(&there.scatter_add(0, &at, &from)?)?, "sums again: {what}");
                assert!(near_sums(&sums, &x, &index, &y)?, "sums: {what}");
                assert!(there.scatter(0, &at, &from)?.equal(&x.scatter(0, &index, &y)?)?, "the last: {what}");
                assert!(there.index_put(&at, &from)?.equal(&x.index_put(&index, &y)?)?, "index_put: {what}");
                for reduce in [ScatterReduce::Amax, ScatterReduce::Amin] {
                    let (a, b) =
                        (there.scatter_reduce(0, &at, &from, reduce)?, x.scatter_reduce(0, &index, &y, reduce)?);
                    assert!(a.equal(&b)?, "{reduce:?}: {what}");
                }
            }
            // One index for a row.
            let (x, y) = (random(&[places as usize, 3], 5, DType::F32)?, random(&[n, 3], 6, DType::F32)?);
            let (there, from) = (x.to_device(GPU)?, y.to_device(GPU)?);
            assert!(there.index_add(0, &at, &from)?.equal(&x.index_add(0, &index, &y)?)?, "rows: {what}");
            assert!(there.index_copy(0, &at, &from)?.equal(&x.index_copy(0, &index, &y)?)?, "the last row: {what}");
            // A strided base, with the index in the middle.
            let (x, y) = (x.expand([2, places as usize, 3])?, y.expand([2, n, 3])?);
            let (there, from) = (x.to_device(GPU)?.transpose(0, 2)?, y.to_device(GPU)?.transpose(0, 2)?);
            let here = x.transpose(0, 2)?.index_copy(1, &index, &y.transpose(0, 2)?)?;
            assert!(there.index_copy(1, &at, &from)?.equal(&here)?, "in the middle: {what}");
        }
    }
    Ok(())
}

#[test]
fn indices_from_the_end() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    // A wrong index is reported at the next synchronisation.
    let _alone = alone();
    let x = Tensor::arange(0, 12)?.reshape([3, 4])?;
    let there = x.to_device(GPU)?;
    let (rows, columns) = (tensor!([-1, 0, -3, 2])?, tensor!([-4, 3, 1, -1])?);
    let (rows_there, columns_there) = (rows.to_device(GPU)?, columns.to_device(GPU)?);
    let values = tensor!([-1_i64, -2, -3, -4])?;
    let values_there = values.to_device(GPU)?;
    assert!(there.index(s![&rows_there, &columns_there])?.equal(&x.index(s![&rows, &columns])?)?);
    assert!(there.index(&rows_there.reshape([2, 2])?)?.equal(&x.index(&rows.reshape([2, 2])?)?)?);
    let put = x.index_put(s![&rows, &columns], &values)?;
    assert!(there.index_put(s![&rows_there, &columns_there], &values_there)?.equal(&put)?);
    // Rows alone are counted from the end where they are put: elements with their numbers, whole rows, and with a gradient.
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for shape in [&[3][..], &[3, 4], &[3, 2, 2]] {
            let x = Tensor::arange(0, shape.iter().product::<usize>())?.reshape(shape)?.to_dtype(dtype)?;
            let part: Vec<usize> = [4].iter().chain(&shape[1..]).copied().collect();
            let values = Tensor::arange(100, 100 + part.iter().product::<usize>())?.reshape(&*part)?.to_dtype(dtype)?;
            let put = x.index_put(&rows, &values)?;
            let there = x.to_device(GPU)?;
            assert!(there.index_put(&rows_there, &values.to_device(GPU)?)?.equal(&put)?, "{dtype} {shape:?}");
            let mut changed = there.clone();
            changed.set(&rows_there, values.to_device(GPU)?)?;
            assert!(changed.equal(&put)? && there.equal(&x)?, "{dtype} {shape:?} in place");
            if dtype == DType::F32 {
                let there = there.requires_grad_(true)?;
                let recorded = there.index_put(&rows_there, &values.to_device(GPU)?)?;
                assert!(recorded.equal(&put)? && recorded.requires_grad(), "{shape:?} with a gradient");
            }
        }
    }
    let taken = vmap(|at| x.index(&at[0]), &[&rows.reshape([2, 2])?])?;
    assert!(vmap(|at| there.index(&at[0]), &[&rows_there.reshape([2, 2])?])?.equal(&taken)?, "one for each example");
    for (wrong, size) in [(-4_i64, 3), (3, 3), (i64::MIN, 3), (i64::MAX, 3)] {
        let index = tensor!([0, wrong])?.to_device(GPU)?;
        let error = there.index(&index).and_then(|x| x.to_device(Device::Cpu)).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("index: index {wrong} is out of range for a dimension of size {size}")),
            "{error}"
        );
        let values = Tensor::zeros_with([2, 4], (DType::I64, GPU))?;
        let error = there.index_put(&index, &values).and_then(|x| x.to_device(Device::Cpu)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(&format!("index_put: index {wrong} is out of range")), "{error}");
    }
    Ok(())
}

#[test]
fn running_folds_of_long_lanes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for shape in
        [&[255][..], &[256], &[4096], &[5000], &[100_001], &[3_000_000], &[3, 40_000], &[40_000, 2], &[2, 9000, 2]]
    {
        for dim in 0..shape.len() as isize {
            let x = random(shape, 1, DType::F32)?;
            let there = x.to_device(GPU)?;
            assert!(close(&there.cumsum(dim)?, &x.cumsum(dim)?, 1e-6)?, "sums of {shape:?} over {dim}");
            assert!(there.cumsum(dim)?.equal(&there.cumsum(dim)?)?, "the same bits every time");
            let indices = |x: &Tensor| Ok::<_, cotangent::Error>(x.cummax(dim)?.1);
            assert!(indices(&there)?.equal(&indices(&x)?)?, "the largest of {shape:?} over {dim}");
            assert!(close(&there.logcumsumexp(dim)?, &x.logcumsumexp(dim)?, 1e-5)?, "logarithms of {shape:?}");
            let whole = |x: &Tensor| x.mul(100.0)?.to_dtype(DType::I64)?.cumsum(dim);
            assert!(whole(&there)?.equal(&whole(&x)?)?, "integers of {shape:?} over {dim}");
            let gradient = |x: &Tensor| {
                let x = x.detach().requires_grad_(true)?;
                x.cumsum(dim)?.square()?.sum(..)?.backward()?;
                x.grad().map_or_else(|| x.zeros_like(), Ok)
            };
            assert!(close(&gradient(&there)?, &gradient(&x)?, 1e-5)?, "gradients of {shape:?} over {dim}");
        }
    }
    // Longer pieces, of elements of every size.
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::U8, DType::I16] {
        let x = random(&[20_000_003], 1, DType::F32)?.abs()?.mul(3.0)?.to_dtype(dtype)?;
        let there = x.to_device(GPU)?;
        let epsilon = if dtype == DType::BF16 { 1e-2 } else { 1e-6 };
        assert!(close(&there.cumsum(0)?, &x.cumsum(0)?, epsilon)?, "sums of many {dtype}");
        let one = x.mul(0)?.add(1)?;
        let factors = one.to_device(GPU)?.cumprod(0)?;
        assert!(factors.equal(&factors.ones_like()?)?, "products of many {dtype}");
        assert!(there.cummax(0)?.1.equal(&x.cummax(0)?.1)?, "the largest of many {dtype}");
        // From an element on that does not lie at a multiple of 16 bytes, and in lanes of an odd length.
        let (later, there_later) = (x.narrow(0, 4, 2_000_000)?, there.narrow(0, 4, 2_000_000)?);
        assert!(close(&there_later.cumsum(0)?, &later.cumsum(0)?, epsilon)?, "sums from the fourth {dtype} on");
        assert!(there_later.cummax(0)?.1.equal(&later.cummax(0)?.1)?, "the largest from the fourth {dtype} on");
        let (lanes, there_lanes) = (later.narrow(0, 0, 399_996)?, there_later.narrow(0, 0, 399_996)?);
        let (lanes, there_lanes) = (lanes.reshape([4, 99_999])?, there_lanes.reshape([4, 99_999])?);
        assert!(there_lanes.cummax(1)?.1.equal(&lanes.cummax(1)?.1)?, "the largest of odd lanes of {dtype}");
    }
    Ok(())
}
