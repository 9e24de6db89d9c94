//! Resuming in the middle of an epoch.

use super::{assert_fails_with, numbers};
use cotangent::data::{DataLoader, DataLoaderOptions, DataLoaderState, Dataset, IterableDataset, from_fn};
use cotangent::io::Checkpoint;
use cotangent::{Result, Tensor};

fn options(workers: usize) -> DataLoaderOptions {
    DataLoaderOptions::new().batch_size(3).num_workers(workers)
}

/// Items with noise, in a random order, with an unknown seed.
fn noisy(workers: usize) -> Result<DataLoader<Tensor>> {
    let dataset = from_fn(20, |index| Tensor::rand([2])?.add(index as f64));
    DataLoader::new_with(dataset, options(workers).shuffle(true))
}

fn stream(workers: usize) -> Result<DataLoader<Tensor>> {
    DataLoader::iterable((|| (0..20_i64).map(|x| Tensor::rand([2])?.add(x))).shuffle_buffer(6), options(workers))
}

fn epoch(loader: &DataLoader<Tensor>) -> Result<Vec<Vec<f32>>> {
    loader.iter().map(|batch| batch?.to_vec::<f32>()).collect()
}

/// The batches of the rest of the first epoch and of the next two, once from the same loader, once from another one with its
/// state.
fn goes_on(made: &dyn Fn(usize) -> Result<DataLoader<Tensor>>, taken: usize, workers: (usize, usize)) -> Result<()> {
    let loader = made(workers.0)?;
    let mut batches = loader.iter();
    for _ in 0..taken {
        batches.next().transpose()?;
    }
    let saved = loader.state().to_json();
    let rest: Vec<Vec<f32>> = batches.map(|batch| batch?.to_vec::<f32>()).collect::<Result<_>>()?;
    let expected = [rest, epoch(&loader)?, epoch(&loader)?];

    let resumed = made(workers.1)?;
    resumed.restore(&DataLoaderState::from_json(&saved)?)?;
    assert_eq!(resumed.epoch(), 0);
    let got = [epoch(&resumed)?, epoch(&resumed)?, epoch(&resumed)?];
    assert_eq!(got, expected, "after {taken} batches, {workers:?} workers");
    assert_eq!(got[0].len(), 7 - taken);
    Ok(())
}

#[test]
fn a_run_that_goes_on_gets_the_batches_of_one_that_was_not_interrupted() -> Result<()> {
    for taken in [0, 1, 4, 7] {
        for workers in [(0, 0), (3, 3), (2, 0), (0, 2)] {
            goes_on(&noisy, taken, workers)?;
            goes_on(&stream, taken, workers)?;
        }
    }
    Ok(())
}

#[test]
fn a_checkpoint_holds_the_position() -> Result<()> {
    let path = std::env::temp_dir().join(format!("cotangent-data-position-{}.ckpt", std::process::id()));
    for made in [noisy, stream] {
        let loader = made(2)?;
        let mut batches = loader.iter();
        batches.next().transpose()?;
        let mut checkpoint = Checkpoint::new();
        checkpoint.add("data", &loader)?;
        checkpoint.save(&path)?;
        let expected = batches.next().transpose()?.map(|x| x.to_vec::<f32>()).transpose()?;
        let mut resumed = made(2)?;
        Checkpoint::load(&path)?.restore(&mut [("data", &mut resumed)])?;
        let got = resumed.iter().next().transpose()?.map(|x| x.to_vec::<f32>()).transpose()?;
        assert!(got.is_some() && got == expected);
    }
    let mut other = DataLoader::new(numbers(20), 4)?;
    assert!(Checkpoint::load(&path)?.restore(&mut [("data", &mut other)]).is_err());
    assert_eq!(other.state().position, 0);
    let _ = std::fs::remove_file(path);
    Ok(())
}

#[test]
fn the_state_says_what_was_handed_out_and_not_what_was_made_ahead() -> Result<()> {
    let loader = DataLoader::new_with(numbers(20), options(4).prefetch_factor(5))?;
    let mut batches = loader.iter();
    for taken in 1..=7 {
        batches.next().transpose()?;
        let state = loader.state();
        assert_eq!((state.epoch, state.position), (0, taken));
    }
    assert!(batches.next().is_none());
    let state = loader.state();
    assert_eq!((state.epoch, state.position, loader.epoch()), (1, 0, 1));
    // An older iterator does not count any more.
    let mut older = loader.iter();
    let mut newer = loader.iter();
    newer.next().transpose()?;
    older.next().transpose()?;
    older.next().transpose()?;
    assert_eq!((loader.state().epoch, loader.state().position), (2, 1));
    Ok(())
}

#[test]
fn the_state_of_another_loader_is_refused() -> Result<()> {
    let state = DataLoader::new(numbers(20), 3)?.state();
    assert_fails_with(
        DataLoader::new(numbers(20), 4)?.restore(&state),
        &["DataLoader::restore", "20 items in batches of 3", "20 items in batches of 4"],
    );
    assert_fails_with(DataLoader::new(numbers(21), 3)?.restore(&state), &["21 items"]);
    assert!(DataLoader::new(numbers(20).map(|x| Ok(x + 1)), 3)?.restore(&state).is_ok());
    for text in
        ["", "[]", "{\"seed\": 1}", "{\"seed\": -1, \"epoch\": 0, \"position\": 0, \"batch_size\": 1, \"items\": 1}"]
    {
        assert_fails_with(DataLoaderState::from_json(text), &["DataLoaderState::from_json"]);
    }
    Ok(())
}
