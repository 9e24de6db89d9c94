//! Long operations end at a deadline or a request, and their inputs are unchanged.

use cotangent::interrupt::{Interrupt, set_poll, with_deadline};
use cotangent::{
    DType, ErrorKind, Generator, Result, Tensor, fft, keepdim, linalg, settings::with_num_threads, with_generator,
};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// An interrupted operation ends within a fraction of a second on an idle machine.
const SOON: Duration = Duration::from_secs(10);
const N: usize = 1 << 36;

/// Very many elements, in the memory of one.
fn endless(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::ones_with((), dtype)?.expand(shape)
}

/// Runs an operation with a deadline, on one thread and on several.
fn ends(what: &str, limit: Duration, f: impl Fn() -> Result<Tensor>) -> Result<()> {
    for threads in [1, 3] {
        let start = Instant::now();
        let outcome = with_num_threads(threads, || with_deadline(limit, || f()?.compute()))?;
        let kind = outcome.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Interrupted), "{what} with {threads} threads");
        assert!(start.elapsed() < SOON, "{what} with {threads} threads went on for {:?}", start.elapsed());
    }
    assert_eq!(Tensor::ones([100, 100])?.add(1)?.sum(..)?.item::<f32>()?, 20_000.0, "after {what}");
    Ok(())
}

#[test]
fn reductions_end_at_a_deadline() -> Result<()> {
    let limit = Duration::from_millis(100);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I8, DType::I64, DType::Bool] {
        let x = endless(&[N], dtype)?;
        ends("sum", limit, || x.sum(..))?;
        ends("max", limit, || x.max(..))?;
        ends("argmax", limit, || x.argmax(..))?;
    }
    let x = endless(&[N], DType::F32)?;
    let matrix = endless(&[1 << 18, 1 << 18], DType::F32)?;
    ends("mean", limit, || x.mean(..))?;
    ends("prod", limit, || x.prod(..))?;
    ends("var", limit, || x.var(..))?;
    ends("logsumexp", limit, || x.logsumexp(..))?;
    ends("sum down columns", limit, || matrix.sum(0))?;
    ends("sum along rows", limit, || matrix.sum(keepdim(1)))?;
    ends("argmin down columns", limit, || matrix.argmin(0))?;
    // Deferred steps are computed as they are folded.
    let some = endless(&[1 << 26], DType::F32)?;
    ends("the sum of a chain", Duration::from_millis(1), || some.add(1)?.mul(2)?.exp()?.sum(..))
}

#[test]
fn pools_and_sums_by_index_end_at_a_deadline() -> Result<()> {
    let limit = Duration::from_millis(100);
    let row = endless(&[1, 1, 1 << 30], DType::F32)?;
    let plane = endless(&[1, 1, 1 << 18, 1 << 18], DType::F32)?;
    let window = [1_usize << 18, 1 << 18];
    ends("avg_pool2d", limit, || plane.avg_pool2d(window))?;
    ends("max_pool2d", limit, || plane.max_pool2d(window))?;
    ends("adaptive_avg_pool2d", limit, || plane.adaptive_avg_pool2d([1, 1]))?;
    ends("adaptive_max_pool2d", limit, || plane.adaptive_max_pool2d([2, 2]))?;
    ends("max_pool1d", limit, || row.max_pool1d(1_usize << 30))?;
    let index = endless(&[N], DType::I64)?;
    ends("scatter_add", limit, || Tensor::zeros([9])?.scatter_add(0, &index, &endless(&[N], DType::F32)?))?;
    ends("bincount", limit, || index.bincount())
}

#[test]
fn operations_as_large_as_memory_end_at_a_deadline() -> Result<()> {
    const M: usize = 1 << 24;
    let limit = Duration::from_millis(1);
    let x = with_generator(&mut Generator::seed(1), || Tensor::randn([M]))?;
    let matrix = x.narrow(0, 0, 1 << 20)?.reshape([1 << 10, 1 << 10])?;
    ends("cumsum", limit, || x.cumsum(0))?;
    ends("cummax", limit, || Ok(x.cummax(0)?.0))?;
    ends("sin", limit, || x.sin())?;
    ends("a broadcast sum", limit, || Tensor::ones([4096, 1])?.add(&Tensor::ones([1, 4096])?))?;
    ends("to_dtype", limit, || x.to_dtype(DType::F64))?;
    ends("contiguous", limit, || x.reshape([1 << 12, 1 << 12])?.t()?.contiguous())?;
    ends("full", limit, || Tensor::full([M], 3))?;
    ends("full of bools", limit, || Tensor::full([M * 4], true))?;
    ends("rand", limit, || Tensor::rand([M]))?;
    ends("randn", limit, || Tensor::randn([M]))?;
    ends("sort", limit, || Ok(x.sort(0)?.0))?;
    ends("argsort of rows", limit, || x.reshape([1 << 12, 1 << 12])?.argsort(1))?;
    ends("topk", limit, || Ok(x.topk(9, 0)?.0))?;
    ends("median", limit, || x.narrow(0, 0, 1 << 20)?.median(..))?;
    ends("unique", limit, || x.unique())?;
    ends("index_select", limit, || x.index_select(0, &Tensor::zeros_with([M], DType::I64)?))?;
    ends("softmax", limit, || x.reshape([1 << 12, 1 << 12])?.softmax(1))?;
    ends("matmul", limit, || matrix.matmul(&matrix))?;
    ends("conv2d", limit, || {
        let x = matrix.reshape([4, 64, 64, 64])?;
        x.conv2d(&Tensor::ones([64, 64, 3, 3])?)
    })?;
    ends("linalg_svd", limit, || Ok(linalg::svd(&matrix.narrow(0, 0, 256)?)?.1))?;
    ends("linalg_qr", limit, || Ok(linalg::qr(&matrix)?.0))?;
    ends("fft", limit, || fft::fft(&x))?;
    ends("cdist", limit, || matrix.cdist(&matrix))?;
    // A mask is counted first.
    ends("nonzero", limit, || x.nonzero())
}

#[test]
fn another_thread_can_ask() -> Result<()> {
    let (stop, x) = (Interrupt::new(), endless(&[N], DType::F32)?);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            stop.request();
        });
        let start = Instant::now();
        let error = stop.run(|| x.sum(..)).err();
        assert_eq!(
            error.map(|error| (error.kind(), error.op().to_string())),
            Some((ErrorKind::Interrupted, "sum".into()))
        );
        assert!(start.elapsed() < SOON);
    });
    // From then on everything inside ends at once, and nothing outside.
    let own = Tensor::ones([1 << 16])?;
    assert!(stop.run(|| own.cumsum(0)).is_err_and(|error| error.kind() == ErrorKind::Interrupted));
    own.cumsum(0)?.compute()
}

#[test]
fn a_front_is_asked() -> Result<()> {
    thread_local! {
        static ASKED: Cell<usize> = const { Cell::new(0) };
    }
    set_poll(Some(|| {
        ASKED.set(ASKED.get() + 1);
        ASKED.get() == 4
    }));
    let outcome = endless(&[N], DType::F32)?.sum(..);
    set_poll(None);
    assert!(outcome.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
    assert_eq!(ASKED.get(), 4);
    Ok(())
}

#[test]
fn what_was_ended_leaves_all_as_it_was() -> Result<()> {
    const M: usize = 1 << 20;
    let now = Duration::ZERO;
    let is_ended = |outcome: Result<()>| assert!(outcome.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
    // Deferred values can still be computed.
    let y = Tensor::ones([M])?.add(1)?;
    is_ended(with_deadline(now, || y.compute()));
    assert_eq!(y.sum(..)?.item::<f32>()?, 2.0 * M as f32);
    // A change in place is made completely or not at all.
    for round in 0..20 {
        let mut x = Tensor::zeros([M])?;
        let outcome = with_deadline(Duration::from_micros(round * 50), || {
            x.add_(1)?;
            x.mul_(3)?;
            x.fill_(5)
        });
        let values = x.to_vec::<f32>()?;
        assert!([0.0, 1.0, 3.0, 5.0].contains(&values[0]) && values.iter().all(|&value| value == values[0]));
        assert!(outcome.is_ok() == (values[0] == 5.0));
    }
    // Gradients come after the whole pass, all of them.
    let leaves = [Tensor::ones([M])?.requires_grad_(true)?, Tensor::ones([M])?.requires_grad_(true)?];
    let loss = leaves[0].mul(&leaves[1])?.cumsum(0)?.sum(..)?;
    is_ended(with_deadline(now, || loss.backward()));
    assert!(leaves.iter().all(|leaf| leaf.grad().is_none()));
    Ok(())
}

#[test]
fn the_earlier_of_two_deadlines_counts_and_goes_with_its_call() -> Result<()> {
    let x = endless(&[N], DType::F32)?;
    let (start, long) = (Instant::now(), Duration::from_secs(3600));
    for (outer, inner) in [(long, Duration::from_millis(20)), (Duration::from_millis(20), long)] {
        let sum = with_deadline(outer, || with_deadline(inner, || x.sum(..)));
        assert!(sum.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
    }
    assert!(start.elapsed() < 2 * SOON);
    with_deadline(Duration::from_millis(1), || std::thread::sleep(Duration::from_millis(5)));
    Tensor::ones([1 << 20])?.cumsum(0)?.compute()?;
    assert_eq!(with_deadline(Duration::MAX, || Tensor::ones([9])?.sum(..)?.item::<f32>())?, 9.0);
    // A panic of the caller ends its deadline.
    let panicked =
        std::panic::catch_unwind(|| with_deadline(Duration::ZERO, || std::panic::resume_unwind(Box::new(()))));
    assert!(panicked.is_err());
    Tensor::ones([1 << 20])?.cumsum(0)?.compute()
}
