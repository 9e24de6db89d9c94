//! Data loaders, with and without workers.

use super::{assert_fails_with, batches, failure, items, numbers};
use cotangent::data::{
    Batch, ChainDataset, Collate, ConcatDataset, DataLoader, DataLoaderOptions, Dataset, IterableDataset, Sampler,
    TensorDataset, from_fn, random_split,
};
use cotangent::{
    DType, Device, Error, ErrorKind, Generator, Result, Tensor, random::rng_state, tensor, with_generator,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options(batch_size: usize, num_workers: usize) -> DataLoaderOptions {
    DataLoaderOptions::new().batch_size(batch_size).num_workers(num_workers)
}

#[test]
fn batches_have_their_sizes_and_their_order() -> Result<()> {
    for workers in [0, 1, 3] {
        let loader = DataLoader::new_with(numbers(10), options(4, workers))?;
        assert_eq!(batches(&loader)?, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!((loader.len(), loader.iter().size_hint()), (Some(3), (3, Some(3))));
        let full = DataLoader::new_with(numbers(10), options(4, workers).drop_last(true))?;
        assert_eq!((full.len(), items(&full)?), (Some(2), numbers(8)));
        let exact = DataLoader::new_with(numbers(8), options(4, workers).drop_last(true))?;
        assert_eq!(items(&exact)?, numbers(8));
        let none = DataLoader::new_with(numbers(0), options(4, workers))?;
        assert_eq!((none.len(), none.iter().count()), (Some(0), 0));
        let stream = DataLoader::iterable(|| (0..10_i64).map(Ok), options(4, workers))?;
        assert_eq!(batches(&stream)?, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!(batches(&stream)?.len(), 3, "each epoch restarts the iterator");
        let full = DataLoader::iterable(|| (0..10_i64).map(Ok), options(4, workers).drop_last(true))?;
        assert_eq!(items(&full)?, numbers(8));
    }
    Ok(())
}

#[test]
fn the_order_is_kept_whatever_the_workers_timing() -> Result<()> {
    // The first of each four items takes longest.
    let slow = |index: usize| {
        std::thread::sleep(Duration::from_micros(if index.is_multiple_of(4) { 3000 } else { 10 }));
        Ok(index as i64)
    };
    for _ in 0..3 {
        assert_eq!(items(&DataLoader::new_with(from_fn(60, slow), options(1, 4))?)?, numbers(60));
        let stream = DataLoader::iterable_with_collate(
            || (0..60_i64).map(Ok),
            options(1, 4),
            move |x: Vec<i64>| {
                slow(x[0] as usize)?;
                Tensor::from_vec(x, [1])
            },
        )?;
        assert_eq!(items(&stream)?, numbers(60));
    }
    Ok(())
}

#[test]
fn a_failing_item_is_an_error_that_names_it_and_the_others_still_come() -> Result<()> {
    for workers in [0, 2] {
        let dataset = from_fn(20, |index| match index {
            13 => Err(Error::new(ErrorKind::Format, "decode", "the file is broken")),
            _ => Ok(index as i64),
        });
        let loader = DataLoader::new_with(dataset, options(4, workers))?;
        let (made, failed): (Vec<_>, Vec<_>) = loader.iter().partition(Result::is_ok);
        assert_eq!((made.len(), failed.len()), (4, 1));
        let Some(Err(error)) = failed.into_iter().next() else { unreachable!() };
        assert_eq!((error.kind(), error.op()), (ErrorKind::Format, "DataLoader"));
        let message = error.to_string();
        for part in ["batch 3", "item 13", "decode", "the file is broken"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(error.location().is_some_and(|location| location.file().ends_with("loader.rs")));
    }
    // The message of the system about a file is kept.
    let missing = from_fn(2, |_| cotangent::data::idx::load("/no/such/file"));
    let loader = DataLoader::new_with(missing, options(1, 1))?;
    let Some(failed) = loader.iter().next() else { unreachable!() };
    assert_fails_with(failed, &["item 0", "/no/such/file", "No such file"]);
    Ok(())
}

#[test]
fn a_panicking_worker_is_an_error_that_names_the_item() -> Result<()> {
    let dataset = from_fn(20, |index| {
        assert_ne!(index, 7, "seven");
        Ok(index as i64)
    });
    let loader = DataLoader::new_with(dataset, options(2, 3))?;
    let all: Vec<_> = loader.iter().collect();
    assert_eq!((all.len(), all.iter().filter(|batch| batch.is_ok()).count()), (10, 9));
    let message = all.into_iter().find_map(Result::err).map_or_else(String::new, |error| error.to_string());
    assert!(message.contains("item 7") && message.contains("panicked") && message.contains("seven"), "{message}");

    // In a function that makes batches, and in an iterator, which is not called again.
    let collate = |items: Vec<i64>| -> Result<i64> {
        assert!(!items.contains(&4), "four");
        Ok(items[0])
    };
    let loader = DataLoader::with_collate(numbers(8), options(2, 2), collate)?;
    assert_eq!(loader.iter().map(|batch| batch.is_ok()).collect::<Vec<_>>(), [true, true, false, true]);
    let stream = || (0..10_i64).map(|x| if x == 5 { panic!("five") } else { Ok(x) });
    let loader = DataLoader::iterable(stream, options(2, 2))?;
    let all: Vec<_> = loader.iter().map(failure).collect();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[2].contains("item 5") && all[2].contains("five"), "{all:?}");
    Ok(())
}

#[test]
fn a_stream_ends_with_its_first_error() -> Result<()> {
    for workers in [0, 2] {
        let failing = || (0_i64..).map(|x| if x < 6 { Ok(x) } else { Err(Error::new(ErrorKind::Io, "read", "gone")) });
        let loader = DataLoader::iterable(failing, options(4, workers))?;
        let all: Vec<_> = loader.iter().collect();
        assert_eq!(all.len(), 2);
        assert_fails_with(all.into_iter().last().unwrap_or_else(|| unreachable!()), &["item 6", "read", "gone"]);
    }
    Ok(())
}

/// Counts the threads that have made an item and have not ended.
struct Threads(Arc<AtomicUsize>);

thread_local! {
    static ALIVE: RefCell<Vec<Alive>> = const { RefCell::new(Vec::new()) };
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Dataset for Threads {
    type Item = i64;

    fn len(&self) -> usize {
        1000
    }

    fn get_item(&self, index: usize) -> Result<i64> {
        ALIVE.with_borrow_mut(|alive| {
            if !alive.iter().any(|alive| Arc::ptr_eq(&alive.0, &self.0)) {
                self.0.fetch_add(1, Ordering::SeqCst);
                alive.push(Alive(self.0.clone()));
            }
        });
        Ok(index as i64)
    }
}

#[test]
fn no_thread_outlives_its_iterator() -> Result<()> {
    let alive = Arc::new(AtomicUsize::new(0));
    let loader = DataLoader::new_with(Threads(alive.clone()), options(2, 3))?;
    for taken in [0, 1, 5, 50] {
        let mut iterator = loader.iter();
        for _ in 0..taken {
            assert!(iterator.next().is_some_and(|batch| batch.is_ok()));
        }
        assert!(taken == 0 || alive.load(Ordering::SeqCst) > 0);
        drop(iterator);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "after {taken} batches");
    }
    // The loader is dropped first, and the iterator continues.
    let mut iterator = loader.iter();
    drop(loader);
    assert_eq!(iterator.by_ref().filter(Result::is_ok).count(), 500);
    assert_eq!(alive.load(Ordering::SeqCst), 0, "at its end an iterator has no threads");
    assert!(iterator.next().is_none());
    // Only this test holds the dataset.
    drop(iterator);
    assert_eq!(Arc::strong_count(&alive), 1);
    Ok(())
}

#[test]
fn a_dropped_iterator_does_not_wait_for_whole_batches() -> Result<()> {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let slow = from_fn(1_000_000, move |index| {
        count.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        Ok(index as i64)
    });
    let iterator = DataLoader::new_with(slow, options(100_000, 2))?.iter();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(iterator.size_hint().0, 10);
    drop(iterator);
    assert!(made.load(Ordering::SeqCst) < 10_000);
    Ok(())
}

#[test]
fn workers_run_ahead_as_far_as_they_may() -> Result<()> {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let dataset = from_fn(1000, move |index| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(index as i64)
    });
    let loader = DataLoader::new_with(dataset, options(5, 2).prefetch_factor(3))?;
    let mut iterator = loader.iter();
    assert!(iterator.next().is_some());
    let wait = || std::thread::sleep(Duration::from_millis(1));
    (0..2000).take_while(|_| made.load(Ordering::SeqCst) < 35).for_each(|_| wait());
    (0..50).for_each(|_| wait());
    assert_eq!(made.load(Ordering::SeqCst), 35, "one batch taken and 2 * 3 ahead");
    Ok(())
}

#[test]
fn what_is_drawn_for_an_item_depends_on_seed_epoch_and_index_alone() -> Result<()> {
    let draws = |workers, batch_size, seed: u64| -> Result<[Vec<f32>; 2]> {
        let noise = from_fn(12, |_| Tensor::rand([]));
        let loader = DataLoader::new_with(noise, options(batch_size, workers).seed(seed))?;
        let epoch = || Ok(loader.iter().map(|x| x?.to_vec::<f32>()).collect::<Result<Vec<_>>>()?.concat());
        Ok([epoch()?, epoch()?])
    };
    let expected = draws(0, 1, 5)?;
    assert_ne!(expected[0], expected[1], "epochs differ");
    assert_ne!(expected[0][0], expected[0][1], "items differ");
    for (workers, batch_size) in [(0, 5), (1, 1), (3, 2), (4, 12)] {
        assert_eq!(draws(workers, batch_size, 5)?, expected, "{workers} workers, batches of {batch_size}");
    }
    assert_ne!(draws(0, 1, 6)?, expected);
    Ok(())
}

#[test]
fn what_is_drawn_for_a_batch_does_not_depend_on_the_workers() -> Result<()> {
    let draws = |workers| -> Result<[Vec<Vec<f32>>; 2]> {
        let options = options(3, workers).seed(5);
        let noise = |_: Vec<i64>| Tensor::rand([2]);
        let indexed = DataLoader::with_collate(numbers(10), &options, noise)?;
        let stream = DataLoader::iterable_with_collate(|| (0..10_i64).map(Ok), &options, noise)?;
        let epoch = |loader: &DataLoader<Tensor>| loader.iter().map(|x| x?.to_vec::<f32>()).collect::<Result<Vec<_>>>();
        Ok([epoch(&indexed)?, epoch(&stream)?])
    };
    let expected = draws(0)?;
    assert!(expected.iter().all(|batches| batches[0] != batches[1]));
    assert_eq!(draws(3)?, expected);
    Ok(())
}

#[test]
fn a_loader_without_a_seed_follows_the_generator_of_the_program() -> Result<()> {
    let order = |generator: &mut Generator| {
        with_generator(generator, || items(&DataLoader::new_with(numbers(50), options(50, 0).shuffle(true))?))
    };
    let (mut a, mut b) = (Generator::seed(3), Generator::seed(3));
    let first = order(&mut a)?;
    assert_eq!(first, order(&mut b)?);
    assert_ne!(first, order(&mut a)?, "two loaders have two seeds");
    // Iterating a loader does not change the default generator.
    let loader = DataLoader::new_with(from_fn(4, |_| Tensor::rand([1])), options(2, 0).seed(1))?;
    with_generator(&mut Generator::seed(9), || {
        let state = rng_state();
        assert_eq!((loader.iter().count(), rng_state()), (2, state));
    });
    Ok(())
}

#[test]
fn items_become_batches_by_their_types() -> Result<()> {
    fn collate<T: Collate>(items: Vec<T>) -> Result<T::Batch> {
        T::collate(items)
    }
    assert_eq!(collate(vec![tensor!([1, 2])?, tensor!([3, 4])?])?.shape(), [2, 2]);
    for (batch, dtype) in [
        (collate(vec![1.5_f32, 2.5])?, DType::F32),
        (collate(vec![1.5_f64, 2.5])?, DType::F64),
        (collate(vec![1_i64, 2])?, DType::I64),
        (collate(vec![1_u8, 2])?, DType::U8),
        (collate(vec![1_usize, 2])?, DType::I64),
        (collate(vec![true, false])?, DType::Bool),
    ] {
        assert_eq!((batch.dtype(), batch.shape()), (dtype, &[2][..]));
    }
    assert_eq!(collate(vec![[1.0_f32, 2.0, 3.0]; 2])?.shape(), [2, 3]);
    assert_eq!(collate(vec![vec![1_i64, 2, 3]; 2])?.shape(), [2, 3]);
    let (x, y, names) =
        collate(vec![(tensor!([1.0])?, 7_i64, "a".to_string()), (tensor!([2.0])?, 8, "b".to_string())])?;
    assert_eq!(
        (x.shape(), y.to_vec::<i64>()?, names),
        (&[2, 1][..], vec![7, 8], vec!["a".to_string(), "b".to_string()])
    );
    assert_eq!(collate(vec![vec![tensor!([1])?, tensor!([2, 3])?]; 4])?[1].shape(), [4, 2]);
    let [a, b] = collate(vec![[tensor!([1])?, tensor!([2, 3])?]; 4])?;
    assert_eq!((a.shape(), b.shape()), (&[4, 1][..], &[4, 2][..]));
    assert!(collate::<Option<i64>>(vec![None, None])?.is_none());
    assert!(collate(vec![Some(1_i64), Some(2)])?.is_some());
    assert_fails_with(collate(vec![Some(1_i64), None]), &["1 Some of 2"]);
    let map = |x: f32| BTreeMap::from([("x", x)]);
    assert_eq!(collate(vec![map(1.0), map(2.0)])?["x"].to_vec::<f32>()?, [1.0, 2.0]);
    assert_fails_with(collate(vec![map(1.0), BTreeMap::from([("y", 2.0)])]), &["item 1", "\"y\""]);
    assert_fails_with(collate(vec![map(1.0), BTreeMap::new()]), &["the first has 1, item 1 has 0"]);
    assert_fails_with(collate(vec![tensor!([1])?, tensor!([1, 2])?]), &["item 1", "i64[2]", "i64[1]"]);
    assert_fails_with(collate(vec![tensor!([1])?, tensor!([1.0])?]), &["item 1", "f32[1]"]);
    assert_fails_with(collate(vec![vec![1_i64], vec![1, 2]]), &["item 1 has 2"]);
    assert_fails_with(collate(vec![1, usize::MAX]), &["too large"]);
    Ok(())
}

#[test]
fn batches_go_to_a_device() -> Result<()> {
    let loader = DataLoader::new((Tensor::zeros([6, 2])?, Tensor::arange(0, 6)?), 4)?.to_device(Device::Cpu)?;
    assert_eq!(loader.iter().count(), 2);
    if crate::checks::gpu().is_none() {
        let loader = DataLoader::new(Tensor::zeros([6, 2])?, 4)?;
        assert_fails_with(loader.to_device(Device::cuda(0)), &["to_device"]);
    }
    let batch = (vec![tensor!([1])?], Some(tensor!([2])?), "text".to_string(), [tensor!([3])?]);
    let (a, b, text, [c]) = batch.map_tensors(&mut |x| x.mul(10))?;
    assert_eq!((a[0].to_vec::<i64>()?, c.to_vec::<i64>()?, text), (vec![10], vec![30], "text".to_string()));
    assert_eq!(b.map(|b| b.to_vec::<i64>()).transpose()?, Some(vec![20]));
    Ok(())
}

#[test]
fn tensors_are_datasets_of_their_rows() -> Result<()> {
    let (x, y) = (Tensor::arange(0, 12)?.reshape([4, 3])?, Tensor::arange(0, 4)?);
    let loader = DataLoader::new_with((x.clone(), y.clone()), options(3, 0).shuffle(true).seed(1))?;
    for batch in &loader {
        let (x, y) = batch?;
        assert_eq!(x.select(1, 0)?.to_vec::<i64>()?, y.mul(3)?.to_vec::<i64>()?);
    }
    // Fetching a batch at once gives the same as fetching its items.
    for indices in [vec![1, 2, 3], vec![3, 0, 0], vec![2]] {
        let one_by_one = indices.iter().map(|&index| x.get_item(index)).collect::<Result<Vec<_>>>()?;
        assert!(x.get_batch(&indices)?.equal(&Collate::collate(one_by_one)?)?);
    }
    // Changing a batch does not change the dataset.
    let mut batch = x.get_batch(&[0, 1])?.deep_clone()?;
    batch.fill_(-1)?;
    assert_eq!(x.get_item(0)?.to_vec::<i64>()?, [0, 1, 2]);

    let uneven = DataLoader::new((x.clone(), Tensor::arange(0, 5)?), 2)?;
    assert!(uneven.iter().all(|batch| batch.is_err()));
    let Some(failed) = uneven.iter().next() else { unreachable!() };
    assert_fails_with(failed, &["[4, 3]", "[5]", "same number of rows"]);
    assert_fails_with(TensorDataset::new([x.clone(), Tensor::arange(0, 5)?]), &["TensorDataset::new", "[5]"]);
    assert_fails_with(TensorDataset::new([]), &["got none"]);
    let scalar = DataLoader::new(tensor!(1)?, 2)?;
    assert!(scalar.iter().next().is_some_and(|batch| batch.is_err()), "not silently nothing");
    assert_fails_with(x.get_item(4), &["4", "out of range"]);
    assert_fails_with(x.get_batch(&[0, 4]), &["4", "out of range"]);
    Ok(())
}

#[test]
fn datasets_are_made_of_others() -> Result<()> {
    let doubled = numbers(5).map(|x| Ok(2 * x)).subset([4, 0])?;
    assert_eq!(items(&DataLoader::new(doubled, 2)?)?, [8, 0]);
    assert_fails_with(numbers(5).subset([5]), &["subset", "5"]);
    let all = ConcatDataset::new([numbers(3), vec![], vec![7]]);
    assert_eq!((all.len(), items(&DataLoader::new(all.clone(), 9)?)?), (4, vec![0, 1, 2, 7]));
    assert_fails_with(all.get_item(4), &["4"]);
    assert_fails_with(numbers(3).zip(numbers(4)), &["zip", "3", "4"]);
    let boxed: Box<dyn Dataset<Item = i64>> = Box::new(numbers(3));
    assert_eq!(items(&DataLoader::new(boxed, 2)?)?, [0, 1, 2]);
    static STATIC: [i64; 2] = [5, 6];
    assert_eq!(items(&DataLoader::new(&STATIC[..], 2)?)?, [5, 6]);
    let shared = Arc::new(numbers(3));
    assert_eq!(items(&DataLoader::new(shared.clone(), 2)?)?, [0, 1, 2]);
    let chained =
        ChainDataset::new([|| vec![Ok(1_i64)], || vec![Ok(1), Err(Error::new(ErrorKind::Io, "read", "gone"))]]);
    assert_eq!(chained.iter()?.filter(Result::is_ok).count(), 2);
    Ok(())
}

#[test]
fn splits_are_partitions_that_follow_the_seed() -> Result<()> {
    for seed in 0..5 {
        let [a, b, c] = random_split(numbers(101), [0.5, 0.3, 0.2], seed)?;
        assert_eq!((a.len(), b.len(), c.len()), (51, 30, 20));
        let mut all = [a.indices(), b.indices(), c.indices()].concat();
        assert_ne!(all, (0..101).collect::<Vec<_>>());
        let [again, ..] = random_split(numbers(101), [51, 30, 20], seed)?;
        assert_eq!(again.indices(), a.indices());
        all.sort_unstable();
        assert_eq!(all, (0..101).collect::<Vec<_>>());
    }
    let [x] = random_split(numbers(10), [10], 1)?;
    let [y] = random_split(numbers(10), [10], 2)?;
    assert_ne!(x.indices(), y.indices());
    assert_fails_with(random_split(numbers(10), [5, 4], 1), &["random_split", "[5, 4]", "10"]);
    assert_fails_with(random_split(numbers(10), [usize::MAX, 2], 1), &["random_split"]);
    assert_fails_with(random_split(numbers(10), [0.5, 0.4], 1), &["add up to 1"]);
    assert_fails_with(random_split(numbers(10), [1.5, -0.5], 1), &["in [0, 1]"]);
    assert_fails_with(random_split(numbers(10), [f64::NAN, 1.0], 1), &["in [0, 1]"]);
    Ok(())
}

struct Beyond;

impl Sampler for Beyond {
    fn indices(&self, len: usize, _: usize, _: &mut Generator) -> Result<Vec<usize>> {
        Ok(vec![0, len])
    }
}

#[test]
fn options_that_make_no_sense_are_refused() -> Result<()> {
    let made = |options| DataLoader::new_with(numbers(10), options);
    assert_fails_with(made(DataLoaderOptions::new().batch_size(0)), &["DataLoader", "batch_size must be positive"]);
    assert_fails_with(made(options(1, 1 << 20)), &["at most 1024, got 1048576"]);
    assert_fails_with(made(options(1, 1).prefetch_factor(0)), &["prefetch_factor"]);
    assert_fails_with(made(options(1, 1).shuffle(true).sampler(Beyond)), &["shuffle"]);
    let stream = DataLoader::iterable(|| (0..3_i64).map(Ok), options(1, 0).shuffle(true));
    assert_fails_with(stream, &["shuffle_buffer"]);
    // Only an epoch shows its first and last items.
    let loader = made(options(1, 2).sampler(Beyond))?;
    let all: Vec<_> = loader.iter().collect();
    assert_eq!(all.len(), 1);
    assert_fails_with(all.into_iter().next().unwrap_or_else(|| unreachable!()), &["index 10", "10 items"]);
    Ok(())
}

#[test]
fn loaders_can_be_shared_and_sent() {
    fn check<T: Send + Sync>() {}
    fn check_send<T: Send>() {}
    check::<DataLoader<Tensor>>();
    check_send::<cotangent::data::DataLoaderIter<Tensor>>();
    let seen = Mutex::new(Vec::new());
    let Ok(loader) = DataLoader::new_with(numbers(100), options(3, 2)) else { unreachable!() };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let all = items(&loader).unwrap_or_default();
                seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(all);
            });
        }
    });
    let seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(seen.len() == 3 && seen.iter().all(|all| *all == numbers(100)));
}
