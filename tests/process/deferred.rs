//! Large elementwise operations are deferred and computed together. This must only affect time and memory.

use crate::alone;
use crate::checks::both;
use cotangent::autograd::no_grad;
use cotangent::{
    DType, Device, ErrorKind, Generator, Result, Scalar, Tensor, keepdim, memory, settings::with_num_threads,
};

/// Elements that are certainly deferred, in an awkward number: not a multiple of any tile, piece or vector.
const ROWS: usize = 181;
const COLUMNS: usize = 199;
/// Elements that are certainly done at once.
const FEW: usize = 15;

fn in_use() -> Result<usize> {
    Ok(memory::stats(Device::Cpu)?.current())
}

fn random(seed: u64, dtype: DType) -> Result<Tensor> {
    Generator::seed(seed).randn_with([ROWS, COLUMNS], DType::F32)?.to_dtype(dtype)
}

/// What one tensor of this file takes in f32.
fn size() -> Result<usize> {
    let before = in_use()?;
    let _one = Tensor::zeros([ROWS, COLUMNS])?;
    Ok(in_use()? - before)
}

type Formula = (&'static str, fn(&[Tensor]) -> Result<Tensor>);

/// Chains over four tensors of one shape.
const FORMULAS: [Formula; 7] = [
    ("a chain", |x| x[0].mul(&x[1])?.add(&x[2])?.tanh()?.mul(&x[0])),
    ("a diamond", |x| {
        let y = x[0].sub(&x[1])?;
        let z = y.exp()?.add(&y)?;
        z.mul(&y)?.sub(&z)?.mul(z.sigmoid()?)
    }),
    ("one operand again and again", |x| x[0].add(&x[0])?.mul(&x[0])?.sub(&x[0])),
    ("numbers", |x| x[0].mul(3.0)?.add(0.25)?.sub(1.0)?.div(7.0)),
    ("bools between", |x| x[0].gt(&x[1])?.where_(x[2].exp()?, x[3].neg()?)?.add(&x[0])),
    ("more operands than a chain keeps", |x| {
        let wide = |x: &Tensor| x.to_dtype(DType::F64)?.sin()?.to_dtype(x.dtype());
        x[0].mul(&x[1])?.add(x[2].mul(&x[3])?)?.add(wide(&x[0])?.mul(wide(&x[1])?)?)?.mul(wide(&x[2])?)
    }),
    ("longer than a chain gets", |x| {
        let mut y = x[0].clone();
        for i in 0..30 {
            y = y.mul(0.9)?.add(&x[i % 4])?.tanh()?;
        }
        Ok(y)
    }),
];

/// A formula of slices that are too short to be deferred, joined.
fn piece_by_piece(formula: fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Tensor> {
    let numel = inputs[0].numel();
    let flat = inputs.iter().map(|x| x.contiguous()?.reshape([numel])).collect::<Result<Vec<_>>>()?;
    let mut parts = Vec::new();
    for start in (0..numel).step_by(FEW) {
        let part = |x: &Tensor| x.narrow(0, start as isize, FEW.min(numel - start));
        parts.push(formula(&flat.iter().map(part).collect::<Result<Vec<_>>>()?)?);
    }
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?.reshape([ROWS, COLUMNS])
}

#[test]
fn the_bits_are_those_of_one_operation_after_the_other() -> Result<()> {
    let _alone = alone();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let inputs = (0..4).map(|seed| random(seed, dtype)).collect::<Result<Vec<_>>>()?;
        for (name, formula) in FORMULAS {
            let want = piece_by_piece(formula, &inputs)?;
            for threads in [1, 3] {
                let got = with_num_threads(threads, || formula(&inputs).and_then(|y| y.compute().map(|()| y)))??;
                assert!(got.equal(&want)?, "{name} in {dtype} on {threads} threads");
            }
        }
    }
    Ok(())
}

#[test]
fn operands_of_all_layouts_and_types_are_read_where_they_lie() -> Result<()> {
    let _alone = alone();
    let x = random(1, DType::F32)?;
    let formula = |x: &[Tensor]| x[0].mul(&x[1])?.add(&x[2])?.mul(&x[1]);
    let transposed = random(2, DType::F32)?.reshape([COLUMNS, ROWS])?.t()?;
    let row = Generator::seed(3).randn([COLUMNS])?;
    let column = Generator::seed(4).randn([ROWS, 1])?;
    let number = Tensor::new(1.5_f32)?;
    let whole = Generator::seed(5).randn([ROWS, COLUMNS * 2 + 1])?;
    let stepped = whole.slice(1, cotangent::arguments::Slice::from(1..).step(2))?;
    let integers = Tensor::arange(0, (ROWS * COLUMNS) as i64)?.reshape([ROWS, COLUMNS])?;
    let bools = x.gt(0.0)?;
    let halves = random(6, DType::F16)?;
    for (name, b) in [
        ("transposed", &transposed),
        ("a row", &row),
        ("a column", &column),
        ("a number", &number),
        ("stepped", &stepped),
        ("integers", &integers),
        ("bools", &bools),
        ("f16", &halves),
    ] {
        let c = x.flip([0, 1])?;
        let spread = b.expand([ROWS, COLUMNS])?.contiguous()?;
        let want = piece_by_piece(formula, &[x.clone(), spread, c.contiguous()?])?;
        assert!(formula(&[x.clone(), b.clone(), c])?.equal(&want)?, "{name}");
    }
    Ok(())
}

#[test]
fn views_of_what_is_pending_show_its_values() -> Result<()> {
    let _alone = alone();
    let x = random(1, DType::F32)?;
    let y = x.exp()?;
    let (transposed, part, flat) = (y.t()?, y.narrow(0, 5, 7)?, y.reshape([ROWS * COLUMNS])?);
    // The same number of elements in another order: not computed together.
    let (doubled, back_to_front) = (transposed.mul(2.0)?, x.exp()?.flip([0, 1])?.mul(2.0)?);
    let spread = y.unsqueeze(0)?.expand([2, ROWS, COLUMNS])?.mul(2.0)?;
    let want = piece_by_piece(|x| x[0].exp(), &[x])?;
    assert!(doubled.equal(&want.t()?.contiguous()?.mul(2.0)?)?);
    assert!(back_to_front.equal(&want.flip([0, 1])?.contiguous()?.mul(2.0)?)?);
    assert!(transposed.contiguous()?.t()?.equal(&want)?);
    assert!(part.equal(&want.narrow(0, 5, 7)?)?);
    // A flat view is computed with the rest of its chain.
    assert!(flat.add(1.0)?.equal(&want.reshape([ROWS * COLUMNS])?.add(1.0)?)?);
    assert!(spread.select(0, 1)?.equal(&want.mul(2.0)?)?);
    Ok(())
}

#[test]
fn what_nobody_reads_takes_no_memory_and_nothing_is_computed_more_than_twice() -> Result<()> {
    let _alone = alone();
    let (x, one) = (random(1, DType::F32)?, size()?);
    let before = in_use()?;
    let y = x.exp()?.add(&x)?.sqrt()?;
    assert_eq!(in_use()?, before, "nothing is computed before it is needed");
    memory::reset_peak(Device::Cpu)?;
    y.compute()?;
    assert_eq!(in_use()?, before + one);
    // The peak may be counted a little high.
    assert!(memory::stats(Device::Cpu)?.peak() < before + one + 1024);
    drop(y);
    // Nor is a result that is held but not read, as temporaries are to the end of their statement.
    let taken = |y: Tensor| -> Result<usize> {
        y.compute()?;
        Ok(in_use()? - before)
    };
    assert_eq!(taken(x.exp()?.add(&x)?.sqrt()?)?, one);
    // An intermediate result that is computed a second time is written.
    let between = x.exp()?;
    let y = between.add(&x)?.sqrt()?;
    y.compute()?;
    assert_eq!(in_use()?, before + one);
    let z = between.neg()?;
    z.compute()?;
    assert_eq!(in_use()?, before + 3 * one);
    between.compute()?;
    assert_eq!(in_use()?, before + 3 * one);
    assert!(between.equal(&piece_by_piece(|x| x[0].exp(), std::slice::from_ref(&x))?)?);
    drop((between, y, z));
    // A result whose operands have no other handles is written at once, instead of keeping two tensors alive for one.
    let between = random(2, DType::F32)?.mul(&random(3, DType::F32)?)?;
    let y = between.exp()?;
    y.compute()?;
    assert_eq!(in_use()?, before + 2 * one);
    drop((between, y));
    // So is what a backward pass will read.
    let leaf = x.clone().requires_grad_(true)?;
    let y = leaf.sub(&x)?.exp()?.neg()?;
    y.compute()?;
    assert_eq!(in_use()?, before + 2 * one, "the exponentials, and their negatives");
    drop((y, leaf));
    // Never read.
    drop(x.exp()?.log()?);
    assert_eq!(in_use()?, before);
    Ok(())
}

#[test]
fn a_sum_of_what_is_pending_takes_no_memory_for_it_unless_it_is_read_again() -> Result<()> {
    let _alone = alone();
    let (x, one) = (random(1, DType::F32)?, size()?);
    let b = Generator::seed(2).randn([1, COLUMNS])?;
    let before = in_use()?;
    let peak_of = |f: &dyn Fn() -> Result<Tensor>| -> Result<usize> {
        memory::reset_peak(Device::Cpu)?;
        let _result = f()?;
        Ok(memory::stats(Device::Cpu)?.peak() - before)
    };
    let small = one / 8;
    let sums: [(&str, &dyn Fn() -> Result<Tensor>); 4] = [
        ("of all", &|| x.exp()?.add(&x)?.sum(..)),
        ("of columns", &|| x.exp()?.mul(&x)?.sum(0)),
        ("of rows", &|| x.exp()?.mul(&x)?.mean(keepdim(1))),
        ("of the largest", &|| x.exp()?.mul(&x)?.max(..)),
    ];
    for (what, sum) in sums {
        let peak = peak_of(sum)?;
        assert!(peak < small, "{what}: {peak} bytes");
    }
    // A gradient that is passed on unchanged to one tensor, and as a sum to another, is written while it is summed.
    let (x, b) = (x.requires_grad_(true)?, b.requires_grad_(true)?);
    let peak = peak_of(&|| {
        x.add(&b)?.sigmoid()?.sum(..)?.backward()?;
        Ok(x.clone())
    })?;
    assert!(peak < 2 * one + small, "{} tensors at the peak", peak as f64 / one as f64);
    let (got, want) = (b.grad(), x.grad());
    let (Some(got), Some(want)) = (got, want) else { panic!("gradients are lost") };
    assert!(got.equal(&want.sum(keepdim(0))?)?);
    Ok(())
}

#[test]
fn a_pending_result_keeps_the_values_its_operands_had() -> Result<()> {
    let _alone = alone();
    let mut x = random(1, DType::F32)?;
    let (y, want) = (x.mul(2.0)?, x.to_vec::<f32>()?);
    x.fill_(7.0)?;
    assert!(y.to_vec::<f32>()?.iter().zip(want).all(|(y, x)| *y == 2.0 * x));
    // Its own change is not its operands'.
    let mut z = x.add(1.0)?;
    let before = z.clone();
    z.mul_(10.0)?;
    let values = [&x, &before, &z].map(|t| t.at(&[3, 3]));
    assert!(matches!(values, [Ok(Scalar::F64(7.0)), Ok(Scalar::F64(8.0)), Ok(Scalar::F64(80.0))]), "{values:?}");
    Ok(())
}

#[test]
fn an_optimisers_step_does_not_copy_a_parameter_that_was_looked_at() -> Result<()> {
    let _alone = alone();
    let mut p = random(1, DType::F32)?.requires_grad_(true)?;
    let (average, first) = (no_grad(|| p.mul(0.5))?, p.at(&[0, 0])?);
    let before = in_use()?;
    memory::reset_peak(Device::Cpu)?;
    no_grad(|| p.fill_(3.0))?;
    assert!(memory::stats(Device::Cpu)?.peak() < before + size()?, "the parameter was copied");
    let now = average.at(&[0, 0])?;
    assert!(matches!((first, now), (Scalar::F64(x), Scalar::F64(y)) if y == 0.5 * x), "{now:?} of {first:?}");
    Ok(())
}

#[test]
fn chains_keep_a_bounded_number_of_operands_alive() -> Result<()> {
    let _alone = alone();
    let one = size()?;
    let fresh = |seed| random(seed, DType::F32);
    let before = in_use()?;
    memory::reset_peak(Device::Cpu)?;
    let mut total = fresh(0)?;
    for seed in 1..30 {
        total = total.add(fresh(seed)?)?;
    }
    let peak = memory::stats(Device::Cpu)?.peak() - before;
    // Four operands, the result, and what the generator needs for the next one.
    assert!(peak <= 8 * one, "{} tensors at the peak", peak as f64 / one as f64);
    // Ten thousand operations that are never read: no memory, and no deep recursion when they are dropped.
    let x = fresh(1)?;
    let mut y = x.clone();
    for _ in 0..10_000 {
        y = y.mul(1.0)?;
    }
    assert!(y.equal(&x)?);
    Ok(())
}

#[test]
fn when_memory_runs_out_the_value_can_be_asked_for_again() -> Result<()> {
    let _alone = alone();
    // Too large for what is left of the segments that are held.
    let x = Tensor::linspace(-1.0, 1.0, 5_000_000)?;
    let (between, want) = (x.exp()?, x.exp()?.mul(2.0)?);
    want.compute()?;
    let y = between.mul(2.0)?;
    memory::empty_cache(Device::Cpu)?;
    memory::set_limit(Device::Cpu, Some(memory::stats(Device::Cpu)?.held()))?;
    let refused = y.compute();
    let shown = format!("{y} {y:?}");
    memory::set_limit(Device::Cpu, None)?;
    assert!(refused.as_ref().is_err_and(|e| e.kind() == ErrorKind::OutOfMemory && e.memory().is_some()), "{refused:?}");
    assert!(shown.contains("not computed"), "{shown}");
    assert!(y.equal(&want)?);
    assert!(between.mul(2.0)?.equal(&want)?);
    Ok(())
}

#[test]
fn threads_may_ask_for_the_same_chain_from_different_ends() -> Result<()> {
    let _alone = alone();
    let inputs = (0..4).map(|seed| random(seed, DType::F32)).collect::<Result<Vec<_>>>()?;
    let build = || -> Result<Vec<Tensor>> {
        let a = inputs[0].mul(&inputs[1])?;
        let b = a.exp()?.add(&inputs[2])?;
        let c = a.sub(&b)?;
        let d = c.mul(&b)?.add(&a)?;
        Ok(vec![a, b, c, d])
    };
    let values = |tensors: &[Tensor]| tensors.iter().map(Tensor::to_vec::<f32>).collect::<Result<Vec<_>>>();
    let want = values(&build()?)?;
    for round in 0..30 {
        let tensors = build()?;
        std::thread::scope(|scope| {
            let ask = |first: usize| {
                let tensors = tensors.clone();
                let want = &want;
                scope.spawn(move || -> Result<bool> {
                    let mut right = true;
                    for k in 0..4 {
                        let at = (first + k * (1 + round % 3)) % 4;
                        right &= tensors[at].to_vec::<f32>()? == want[at];
                        right &= tensors[at].add(&tensors[(at + 1) % 4])?.mul(0.0)?.sum(..)?.item::<f32>()? == 0.0;
                    }
                    Ok(right)
                })
            };
            let asked: Vec<_> = (0..4).map(ask).collect();
            for thread in asked {
                assert!(thread.join().is_ok_and(|right| right.is_ok_and(|right| right)), "round {round}");
            }
        });
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_one_operation_after_the_other() -> Result<()> {
    let _alone = alone();
    let leaves = (0..4).map(|seed| random(seed, DType::F64)?.requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    for (name, formula) in FORMULAS.into_iter().filter(|(name, _)| *name != "longer than a chain gets") {
        let grads = |y: Tensor| -> Result<Vec<Option<Tensor>>> {
            y.sum(..)?.backward()?;
            Ok(leaves.iter().map(Tensor::take_grad).collect())
        };
        let (deferred, plain) = (grads(formula(&leaves)?)?, grads(piece_by_piece(formula, &leaves)?)?);
        for (deferred, plain) in both(deferred.iter(), &plain) {
            let same = match (deferred, plain) {
                (Some(deferred), Some(plain)) => deferred.allclose_with(plain, (1e-14, 1e-14))?,
                (deferred, plain) => deferred.is_none() && plain.is_none(),
            };
            assert!(same, "{name}");
        }
    }
    Ok(())
}
