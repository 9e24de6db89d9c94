//! Foreign memory that changes at any time, such as arrays of a Python program: an operation may see old or new values, but its
//! result must be consistent with what it has read. Indices are checked before they are used, masks are counted before they are
//! applied, and elements are compared before they are moved.

use crate::call::{Call, parts};
use cotangent::ops::list;
use cotangent::{
    DType, Device, ErrorKind, Result, Tensor,
    options::{BincountOptions, EmbeddingBagOptions, SortOptions, UniqueDimOptions},
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// A tensor with the same elements in memory of this test.
fn foreign(x: &Tensor) -> Result<Tensor> {
    let own = x.detach().contiguous()?;
    own.compute()?;
    let bytes = own.numel() * own.dtype().size();
    if bytes == 0 {
        return Ok(own);
    }
    let mut copy = vec![0_u64; bytes.div_ceil(8)];
    let from = own.data_ptr()?;
    // SAFETY: the tensor is contiguous and has as many bytes, and the vector has room for them.
    unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr().cast::<u8>(), bytes) };
    let owner = Arc::new(copy);
    let start = owner.as_ptr().cast();
    // SAFETY: the vector has the elements, is not changed, and lives as long as the tensor.
    unsafe { Tensor::from_foreign(owner, start, own.shape(), own.strides(), own.dtype(), Device::Cpu) }
}

fn bits(all: &[Tensor]) -> Result<Vec<Vec<u64>>> {
    let one = |x: &Tensor| Ok(parts(x)?.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect());
    all.iter().map(one).collect()
}

/// Operations that rely on elements get a private copy; a kernel that was forgotten refuses foreign memory.
#[test]
fn every_operation_takes_memory_of_others() -> Result<()> {
    let named = std::env::var("COTANGENT_TEST_OPS").ok();
    let mut faults = Vec::new();
    for &op in list() {
        if named.as_ref().is_some_and(|named| named.split(',').all(|name| name != op.name)) {
            continue;
        }
        for sample in op.samples()? {
            let call = Call::new(op, &sample, Device::Cpu)?;
            if call.tensors().is_empty() {
                continue;
            }
            let own = bits(&call.run()?)?;
            match call.map(foreign).and_then(|call| bits(&call.run()?)) {
                Ok(other) if other == own => {}
                Ok(_) => faults.push(format!("{}{sample:?} gives other values", op.name)),
                Err(error) => faults.push(format!("{}{sample:?}: {error}", op.name)),
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

const N: usize = 1 << 13;

/// Integers and bools that a thread writes all the time, alternating between valid and invalid values.
struct Written {
    numbers: Arc<Vec<AtomicI64>>,
    bools: Arc<Vec<AtomicU8>>,
    done: Arc<AtomicBool>,
}

impl Written {
    fn run<R>(good: i64, bad: i64, f: impl FnOnce(&Written) -> R) -> R {
        let numbers: Arc<Vec<AtomicI64>> = Arc::new((0..N).map(|_| AtomicI64::new(good)).collect());
        let bools: Arc<Vec<AtomicU8>> = Arc::new((0..N).map(|_| AtomicU8::new(0)).collect());
        let written = Written { numbers, bools, done: Arc::new(AtomicBool::new(false)) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Of several lengths, so that some change comes between any two reads.
                for round in 0_usize.. {
                    if written.done.load(Ordering::Relaxed) {
                        return;
                    }
                    for value in [(bad, 1), (good, 0)] {
                        written.numbers.iter().for_each(|x| x.store(value.0, Ordering::Relaxed));
                        written.bools.iter().for_each(|x| x.store(value.1, Ordering::Relaxed));
                        (0..round % 64 * 100).for_each(|_| std::hint::spin_loop());
                    }
                }
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&written)));
            written.done.store(true, Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn numbers(&self) -> Result<Tensor> {
        let start = self.numbers.as_ptr().cast();
        // SAFETY: the numbers are there as long as the vector. That they change is what is tested.
        unsafe { Tensor::from_foreign(self.numbers.clone(), start, [N], &[1], DType::I64, Device::Cpu) }
    }

    fn bools(&self) -> Result<Tensor> {
        let start = self.bools.as_ptr().cast();
        // SAFETY: as above; each is 0 or 1.
        unsafe { Tensor::from_foreign(self.bools.clone(), start, [N], &[1], DType::Bool, Device::Cpu) }
    }
}

/// Calls `f` repeatedly for half a second. It must return a result or an error.
fn again(good: i64, bad: i64, f: impl Fn(&Tensor, &Tensor) -> Result<()>) -> Result<()> {
    Written::run(good, bad, |written| {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(500) || calls < 2 {
            calls += 1;
            match f(&written.numbers()?, &written.bools()?) {
                Err(error) if !matches!(error.kind(), ErrorKind::Index | ErrorKind::Value | ErrorKind::Shape) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    })
}

const FAR: i64 = 1 << 40;

#[test]
fn indices_that_change_are_those_that_were_looked_at() -> Result<()> {
    let (x, source) = (Tensor::ones([64, 2])?, Tensor::ones([N, 2])?);
    again(0, FAR, |at, _| x.index(at)?.compute())?;
    again(-1, FAR, |at, _| x.index(at)?.compute())?;
    again(0, FAR, |at, _| x.index_select(0, at)?.compute())?;
    again(0, FAR, |at, _| x.gather(0, &at.unsqueeze(1)?)?.compute())?;
    again(0, -FAR, |at, _| x.take(at)?.compute())?;
    again(0, FAR, |at, _| x.take_along_dim(&at.unsqueeze(1)?, 0)?.compute())?;
    again(0, FAR, |at, _| at.embedding(&x)?.compute())?;
    again(0, FAR, |at, _| x.index_add(0, at, &source)?.compute())?;
    again(0, FAR, |at, _| x.index_copy(0, at, &source)?.compute())?;
    again(0, FAR, |at, _| x.scatter(0, &at.unsqueeze(1)?, 3.0)?.compute())?;
    again(0, FAR, |at, _| x.scatter_add(0, &at.unsqueeze(1)?, &source)?.compute())?;
    again(0, FAR, |at, _| x.put(at, &Tensor::ones([N])?)?.compute())?;
    again(0, FAR, |at, _| {
        let mut x = x.deep_clone()?;
        x.set(at, &source)?;
        x.compute()
    })
}

#[test]
fn a_mask_that_changes_is_the_one_that_was_counted() -> Result<()> {
    let x = Tensor::ones([N])?;
    let is_whole = |y: Tensor| {
        assert!(y.to_vec::<f32>()?.iter().all(|&x| x == 1.0));
        Ok(())
    };
    again(0, 1, |_, mask| is_whole(x.index(mask)?))?;
    again(0, 1, |_, mask| is_whole(x.masked_select(mask)?))?;
    again(0, 1, |_, mask| {
        let places = mask.nonzero()?.to_vec::<i64>()?;
        assert!(
            places.windows(2).all(|pair| pair[0] < pair[1]) && places.iter().all(|&at| (0..N as i64).contains(&at))
        );
        Ok(())
    })?;
    again(0, 1, |numbers, _| {
        assert!(numbers.nonzero()?.to_vec::<i64>()?.windows(2).all(|pair| pair[0] < pair[1]));
        Ok(())
    })?;
    again(0, 1, |_, mask| is_whole(x.masked_scatter(mask, &x)?))?;
    again(0, 1, |_, mask| {
        let mut y = x.deep_clone()?;
        y.set(mask, &Tensor::ones(())?)?;
        is_whole(y)
    })
}

#[test]
fn classes_and_lengths_that_change_are_those_that_were_looked_at() -> Result<()> {
    let (x, w) = (Tensor::ones([N, 3])?, Tensor::ones([N, 2])?);
    again(0, FAR, |at, _| x.cross_entropy(at)?.compute())?;
    again(0, FAR, |at, _| x.nll_loss(at)?.compute())?;
    again(0, FAR, |at, _| x.multi_margin_loss(at)?.compute())?;
    // As many classes as the largest says, and each below it.
    again(0, 5, |at, _| {
        let hot = at.one_hot(-1)?;
        assert_eq!(hot.sum(..)?.item::<i64>()?, N as i64);
        Ok(())
    })?;
    again(0, 5, |at, _| {
        assert_eq!(at.bincount()?.sum(..)?.item::<i64>()?, N as i64);
        at.bincount_with(BincountOptions::new().weights(&Tensor::ones([N])?))?.compute()
    })?;
    again(0, 3, |times, _| Tensor::ones([N])?.repeat_interleave(times, 0)?.compute())?;
    again(0, FAR, |offsets, _| {
        Tensor::zeros_with([N], DType::I64)?
            .embedding_bag_with(&w, EmbeddingBagOptions::new().offsets(offsets))?
            .compute()
    })
}

#[test]
fn elements_that_change_are_sorted_as_they_were_compared() -> Result<()> {
    let is_order = |order: &Tensor| {
        let mut order = order.to_vec::<i64>()?;
        order.sort_unstable();
        assert!(order.into_iter().eq(0..N as i64));
        Ok(())
    };
    again(0, FAR, |x, _| {
        let (values, order) = x.sort_with(0, SortOptions::new().descending(true))?;
        assert!(values.to_vec::<i64>()?.is_sorted_by(|a, b| a >= b));
        is_order(&order)
    })?;
    again(0, FAR, |x, _| is_order(&x.argsort(0)?))?;
    again(0, FAR, |x, _| {
        assert!(x.topk(9, 0)?.1.to_vec::<i64>()?.iter().all(|at| (0..N as i64).contains(at)));
        Ok(())
    })?;
    again(0, FAR, |x, _| x.kthvalue(N / 2, 0)?.0.compute())?;
    again(0, FAR, |x, _| {
        assert!(x.unique()?.numel() <= 2);
        // The rows are compared with each other, one by one.
        let (values, inverse) =
            x.reshape([N / 2, 2])?.unique_inverse_with(UniqueDimOptions::new().dim(Some(0.into())))?;
        assert!(values.shape()[0] <= 4 && inverse.max(..)?.item::<i64>()? < 4);
        Ok(())
    })
}
