//! Kernels at sizes that the samples do not have.

use super::{GPU, alone, beside_others, close, gpu, random};
use crate::checks::both;
use cotangent::autograd::grad_with;
use cotangent::{
    DType, Device, Generator, Result, Tensor,
    arguments::{Dims, Slice},
    keepdim, memory,
    options::{AttentionOptions, CrossEntropyOptions, LayerNormOptions},
    with_generator,
};

const FLOATS: [(DType, f64); 4] = [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];

#[test]
fn folds_of_every_length_and_direction() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let shapes: [&[usize]; 7] =
        [&[3_000_001], &[4, 300_000], &[300_000, 4], &[2000, 1000], &[33, 7, 129], &[70_000, 3], &[5, 1, 40_000]];
    for (dtype, tolerance) in FLOATS {
        for shape in shapes {
            let x = random(shape, 1, dtype)?.mul(0.1)?.add(0.01)?;
            let there = x.to_device(GPU)?;
            let all: Vec<isize> = (0..shape.len() as isize).collect();
            let mut dims: Vec<Dims> = all.iter().map(|&d| Dims::from(d)).collect();
            dims.push(Dims::from(..));
            for dims in dims {
                let what = format!("{dtype} {shape:?} over {dims:?}");
                // The sum of many numbers of both signs is small compared with its terms.
                let wide = tolerance * 50.0;
                assert!(close(&there.sum(dims.clone())?, &x.sum(dims.clone())?, wide)?, "sum of {what}");
                assert!(
                    close(&there.max(keepdim(dims.clone()))?, &x.max(keepdim(dims.clone()))?, 0.0)?,
                    "max of {what}"
                );
                assert!(
                    close(&there.var(keepdim(dims.clone()))?, &x.var(keepdim(dims.clone()))?, wide)?,
                    "variance of {what}"
                );
                let (a, b) = (there.logsumexp(dims.clone())?, x.logsumexp(dims.clone())?);
                assert!(close(&a, &b, wide)?, "logsumexp of {what}");
            }
            for dim in all {
                assert!(close(&there.argmax(dim)?, &x.argmax(dim)?, 0.0)?, "argmax of {dtype} {shape:?} over {dim}");
                let by_rows: [fn(&Tensor, isize) -> Result<Tensor>; 2] =
                    [|x, dim| x.softmax(dim), |x, dim| x.log_softmax(dim)];
                for rows in by_rows {
                    assert!(
                        close(&rows(&there, dim)?, &rows(&x, dim)?, tolerance * 4.0)?,
                        "softmax of {dtype} {shape:?} over {dim}"
                    );
                }
            }
            assert_eq!(there.sum(..)?.to_vec_f64()?, there.sum(..)?.to_vec_f64()?, "the same bits every time");
        }
    }
    Ok(())
}

trait ToF64 {
    fn to_vec_f64(&self) -> Result<Vec<f64>>;
}

impl ToF64 for Tensor {
    fn to_vec_f64(&self) -> Result<Vec<f64>> {
        self.to_dtype(DType::F64)?.to_vec::<f64>()
    }
}

#[test]
fn integers_are_folded_and_multiplied_exactly() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::I64, DType::I32, DType::U8, DType::U64, DType::I8] {
        let x = Generator::seed(1).randint(0, 100, [70, 90])?.to_dtype(dtype)?;
        let y = Generator::seed(2).randint(0, 100, [90, 50])?.to_dtype(dtype)?;
        let (there, other) = (x.to_device(GPU)?, y.to_device(GPU)?);
        assert!(close(&there.matmul(&other)?, &x.matmul(&y)?, 0.0)?, "matmul of {dtype}");
        assert!(
            close(&there.sum(..)?, &x.sum(..)?, 0.0)? && close(&there.prod(..)?, &x.prod(..)?, 0.0)?,
            "folds of {dtype}"
        );
        assert!(close(&there.min(..)?, &x.min(..)?, 0.0)?, "min of {dtype}");
    }
    Ok(())
}

#[test]
fn products_of_all_layouts() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in FLOATS {
        let (a, b) = (random(&[3, 70, 130], 1, dtype)?, random(&[3, 130, 50], 2, dtype)?);
        let (there_a, there_b) = (a.to_device(GPU)?, b.to_device(GPU)?);
        type Call = fn(&Tensor, &Tensor) -> Result<Tensor>;
        let calls: [(&str, Call); 11] = [
            ("repeated", |a, b| {
                a.narrow(2, 0, 1)?.expand([3, 70, 130])?.matmul(&b.narrow(1, 0, 1)?.expand([3, 130, 50])?)
            }),
            ("repeated vectors", |a, b| {
                let first = |x: &Tensor| x.select(0, 0)?.select(0, 0)?.narrow(0, 0, 1)?.expand([3]);
                first(a)?.matmul(&first(b)?)
            }),
            ("batched", |a, b| a.matmul(b)),
            ("one matrix", |a, b| a.matmul(&b.select(0, 1)?)),
            ("one on the left", |a, b| a.select(0, 1)?.matmul(b)),
            ("transposed", |a, b| b.transpose(1, 2)?.matmul(&a.transpose(1, 2)?)),
            ("offset", |a, b| a.narrow(1, 3, 33)?.narrow(2, 1, 99)?.matmul(&b.narrow(1, 2, 99)?.narrow(2, 5, 31)?)),
            ("stepped", |a, b| a.slice(2, cotangent::arguments::Slice::from(..).step(2))?.matmul(&b.narrow(1, 0, 65)?)),
            ("backwards", |a, b| a.flip(2)?.matmul(&b.flip(1)?)),
            ("a vector", |a, b| a.select(1, 3)?.select(0, 0)?.matmul(b)),
            ("with a bias", |a, b| a.linear(&b.select(0, 0)?.t()?, Some(&b.select(0, 0)?.select(0, 0)?))),
        ];
        for (name, call) in calls {
            assert!(close(&call(&there_a, &there_b)?, &call(&a, &b)?, tolerance * 30.0)?, "{name} in {dtype}");
        }
    }
    Ok(())
}

#[test]
fn sums_by_index_have_the_processors_bits() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (rows, entries) in [(5000, 70), (40_000, 1), (10, 100_000), (3000, 3000)] {
        let x = random(&[rows, 20], 1, DType::F32)?;
        let index = Generator::seed(2).randint(0, entries, [rows])?;
        let zeros = Tensor::zeros([entries as usize, 20])?;
        // The gradient of rows chosen by index is a sum by index.
        let gradient = |device: Device| -> Result<Tensor> {
            let leaf = zeros.to_device(device)?.requires_grad_(true)?;
            let y = leaf.index_select(0, &index.to_device(device)?)?;
            let mut grads = grad_with(&y, &[&leaf], &x.to_device(device)?)?;
            Ok(grads.pop().flatten().unwrap_or(leaf))
        };
        assert!(gradient(GPU)?.equal(&gradient(Device::Cpu)?)?, "{rows} rows into {entries}");
        let index = Generator::seed(3).randint(0, entries, [rows, 20])?;
        let here = zeros.scatter_add(0, &index, &x)?;
        let there = zeros.to_device(GPU)?.scatter_add(0, &index.to_device(GPU)?, &x.to_device(GPU)?)?;
        assert!(there.equal(&zeros.to_device(GPU)?.scatter_add(0, &index.to_device(GPU)?, &x.to_device(GPU)?)?)?);
        let wide = |x: &Tensor| x.to_dtype(DType::F64);
        let exact = wide(&zeros)?.scatter_add(0, &index, &wide(&x)?)?;
        let (error, theirs) = (wide(&there.to_device(Device::Cpu)?)?.sub(&exact)?, wide(&here)?.sub(&exact)?);
        let most = |x: Tensor| x.abs()?.max(..)?.item::<f64>();
        // No further from the exact sums than those of the CPU.
        assert!(most(error)? <= most(theirs)?, "{rows}x20 elements into {entries}");
    }
    Ok(())
}

#[test]
fn random_numbers_are_the_processors() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for n in [1, 7, 100_003] {
            let here = (Generator::seed(5).rand_with([n], dtype)?, Generator::seed(5).randn_with([n], dtype)?);
            let there =
                (Generator::seed(5).rand_with([n], (dtype, GPU))?, Generator::seed(5).randn_with([n], (dtype, GPU))?);
            assert!(there.0.equal(&here.0)?, "{n} uniform numbers of {dtype}");
            assert!(there.1.equal(&here.1)?, "{n} normal numbers of {dtype}");
        }
    }
    let x = random(&[100, 103], 1, DType::F32)?;
    for p in [0.1, 0.5, 1.0] {
        let drop = |x: &Tensor| with_generator(&mut Generator::seed(7), || x.dropout(p));
        assert!(drop(&x.to_device(GPU)?)?.equal(&drop(&x)?)?, "dropout of {p}");
    }
    // From rate 0 to rates beyond the exact integers of a float.
    let rates =
        Generator::seed(3).rand([50_000])?.to_dtype(DType::F64)?.mul(50.0)?.sub(1.0)?.exp2()?.sub(0.5)?.relu()?;
    let events = |x: &Tensor| with_generator(&mut Generator::seed(8), || x.poisson());
    assert!(events(&rates.to_device(GPU)?)?.equal(&events(&rates)?)?, "numbers of events");
    let few = rates.remainder(20.0)?;
    assert!(events(&few.to_device(GPU)?)?.equal(&events(&few)?)?, "numbers of few events");
    Ok(())
}

/// The result and the gradients of a call.
fn with_gradients(inputs: &[Tensor], call: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let leaves = inputs.iter().map(|x| x.detach().requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    let y = call(&leaves)?;
    let g = Generator::seed(9).randn_with(y.shape(), DType::F32)?.to_dtype(y.dtype())?.to_device(y.device())?;
    let grads = grad_with(&y, &leaves.iter().collect::<Vec<_>>(), &g)?;
    Ok(std::iter::once(y.detach()).chain(grads.into_iter().flatten()).collect())
}

#[test]
fn layer_norms_of_every_width() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in FLOATS {
        for (rows, width) in [(1, 1), (100, 7), (3000, 96), (513, 768), (40, 1024), (30, 1025), (9, 5000), (3, 20_000)]
        {
            let inputs =
                [random(&[rows, width], 1, dtype)?, random(&[width], 2, dtype)?.add(1.0)?, random(&[width], 3, dtype)?];
            let call = |x: &[Tensor]| x[0].layer_norm_with([width], LayerNormOptions::new().weight(&x[1]).bias(&x[2]));
            let there = inputs.iter().map(|x| x.to_device(GPU)).collect::<Result<Vec<_>>>()?;
            for (at, (a, b)) in both(with_gradients(&there, call)?.iter(), &with_gradients(&inputs, call)?).enumerate()
            {
                assert!(close(a, b, tolerance * 30.0)?, "{dtype} {rows}x{width}, tensor {at}: {a} and {b}");
            }
        }
    }
    Ok(())
}

#[test]
fn cross_entropies_of_many_classes() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in FLOATS {
        for (rows, classes) in [(5, 3), (200, 1003), (64, 5000), (3, 50_257)] {
            let x = random(&[rows, classes], 1, dtype)?;
            let target = Generator::seed(2).randint(0, classes as i64, [rows])?;
            for label_smoothing in [0.0, 0.1] {
                let options = || CrossEntropyOptions::new().label_smoothing(label_smoothing).ignore_index(2);
                let there = with_gradients(&[x.to_device(GPU)?], |x| {
                    x[0].cross_entropy_with(&target.to_device(GPU)?, options())
                })?;
                let here = with_gradients(std::slice::from_ref(&x), |x| x[0].cross_entropy_with(&target, options()))?;
                for (a, b) in both(there.iter(), &here) {
                    assert!(close(a, b, tolerance * 4.0)?, "{dtype} {rows}x{classes}, smoothing {label_smoothing}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn attention_on_tensor_cores_agrees_with_f32() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::BF16, DType::F16] {
        for (t, s, d) in [(1, 1, 16), (65, 65, 32), (300, 300, 64), (129, 257, 64), (257, 129, 128), (200, 100, 96)] {
            // Heads that lie between each other, as a layer makes them.
            let make = |rows: usize, seed| random(&[2, rows, 3, d], seed, dtype)?.transpose(1, 2);
            let inputs = [make(t, 1)?, make(s, 2)?, make(s, 3)?];
            let seen = Generator::seed(4).rand([2, 1, t, s])?.gt(0.3)?;
            for (causal, masked) in [(false, false), (true, false), (true, true)] {
                let run = |device: Device, dtype: DType| -> Result<Vec<Tensor>> {
                    let x = inputs.iter().map(|x| x.to_dtype(dtype)?.to_device(device)).collect::<Result<Vec<_>>>()?;
                    let seen = seen.to_device(device)?;
                    with_gradients(&x, |x| {
                        let options = AttentionOptions::new().attn_mask(masked.then_some(&seen)).is_causal(causal);
                        x[0].scaled_dot_product_attention_with(&x[1], &x[2], options)
                    })
                };
                let tolerance = if dtype == DType::BF16 { 4e-2 } else { 6e-3 };
                let exact = run(Device::Cpu, DType::F32)?;
                let (first, second) = (run(GPU, dtype)?, run(GPU, dtype)?);
                for (at, (a, b)) in both(first.iter(), &exact).enumerate() {
                    let a = a.to_dtype(DType::F32)?;
                    assert!(
                        close(&a, b, tolerance)?,
                        "{dtype} {t}x{s}x{d} causal {causal} masked {masked}, tensor {at}"
                    );
                }
                for (a, b) in both(first.iter(), &second) {
                    assert!(a.equal(b)?, "{dtype} {t}x{s}x{d}: the same bits every time");
                }
            }
        }
    }
    Ok(())
}

/// Sizes of queries and keys, of a key and of a value, and whether all heads have the same keys and values.
const PROBLEMS: [([usize; 4], bool); 12] = [
    ([1, 1, 1, 1], false),
    ([7, 65, 5, 33], true),
    ([64, 64, 16, 16], false),
    ([65, 200, 33, 40], false),
    ([200, 65, 40, 33], true),
    ([333, 333, 64, 64], false),
    ([200, 333, 72, 72], false),
    ([65, 7, 80, 100], false),
    ([130, 65, 100, 80], true),
    ([333, 200, 128, 128], false),
    ([65, 64, 200, 256], false),
    ([64, 130, 256, 256], true),
];

#[test]
fn attention_in_tiles_agrees_with_f64() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-11), (DType::F16, 6e-3), (DType::BF16, 4e-2)] {
        for (at, ([t, s, d, e], same)) in PROBLEMS.into_iter().enumerate() {
            let heads = if same { 1 } else { 3 };
            // Heads that lie between each other, as a layer makes them.
            let make =
                |[rows, heads, size]: [usize; 3], seed| random(&[2, rows, heads, size], seed, dtype)?.transpose(1, 2);
            let inputs = [make([t, 3, d], 1)?, make([s, heads, d], 2)?, make([s, heads, e], 3)?];
            let unseen = Generator::seed(4).rand([2, 1, t, s])?.lt(0.3)?;
            let mask = random(&[2, 1, t, s], 5, DType::F32)?.masked_fill(&unseen, f64::NEG_INFINITY)?;
            // Two of the four forms each; negative scales are also valid.
            for (causal, masked) in [(at % 2 == 0, false), (at % 2 != 0, true)] {
                let scale = (at % 5 == 1).then(|| -(d as f64).sqrt().recip());
                let run = |device: Device, dtype: DType| -> Result<Vec<Tensor>> {
                    let x = inputs.iter().map(|x| x.to_dtype(dtype)?.to_device(device)).collect::<Result<Vec<_>>>()?;
                    let mask = mask.to_device(device)?;
                    with_gradients(&x, |x| {
                        let options =
                            AttentionOptions::new().attn_mask(masked.then_some(&mask)).is_causal(causal).scale(scale);
                        x[0].scaled_dot_product_attention_with(&x[1], &x[2], options)
                    })
                };
                let exact = run(Device::Cpu, DType::F64)?;
                let (first, second) = (run(GPU, dtype)?, run(GPU, dtype)?);
                assert_eq!(first.len(), 4);
                for (at, ((a, b), exact)) in both(first.iter().zip(&second), &exact).enumerate() {
                    let what = format!("{dtype} {t}x{s}x{d}x{e} causal {causal} masked {masked}, tensor {at}");
                    assert!(close(&a.to_dtype(DType::F64)?, exact, tolerance)?, "{what}");
                    assert!(a.equal(b)?, "{what}: the same bits every time");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn attention_in_tiles_takes_rows_as_they_lie() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    // Rows that are not aligned to 16 bytes, reversed rows, and strided elements.
    let whole = [random(&[2, 70, 41], 1, DType::F32)?, random(&[2, 90, 41], 2, DType::F32)?];
    let run = |device: Device| -> Result<Vec<Tensor>> {
        let x = whole.iter().map(|x| x.to_device(device)).collect::<Result<Vec<_>>>()?;
        with_gradients(&x, |x| {
            let reverse = Slice::from(..).step(-1);
            let (query, key) = (x[0].narrow(2, 1, 40)?, x[1].narrow(2, 1, 40)?.slice(1, reverse)?);
            let value = x[1].narrow(1, 0, 90)?.slice(2, Slice::from(..).step(3))?;
            query.scaled_dot_product_attention_with(&key, &value, AttentionOptions::new().is_causal(true))
        })
    };
    for (at, (a, b)) in both(run(GPU)?.iter(), &run(Device::Cpu)?).enumerate() {
        assert!(close(a, b, 2e-5)?, "tensor {at}");
    }
    Ok(())
}

#[test]
fn attention_in_tiles_stores_no_scores() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let x = random(&[1, 1, 16_384, 64], 1, DType::F32)?.to_device(GPU)?;
    memory::reset_peak(GPU)?;
    let before = memory::stats(GPU)?.current();
    let all = with_gradients(&[x.clone(), x.clone(), x], |x| x[0].scaled_dot_product_attention(&x[1], &x[2]))?;
    assert_eq!(all.len(), 4);
    let taken = memory::stats(GPU)?.peak() - before;
    // The scores alone would be 1 GiB.
    assert!(taken < 100 << 20, "{taken} bytes");
    Ok(())
}
