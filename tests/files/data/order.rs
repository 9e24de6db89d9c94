//! The orders of samplers.

use super::{assert_fails_with, items, numbers};
use cotangent::data::{
    BatchSampler, DataLoader, DataLoaderOptions, DistributedSampler, RandomSampler, Sampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
use cotangent::{Generator, Result};
use std::collections::BTreeSet;

fn shuffled(n: i64, seed: u64) -> Result<cotangent::data::DataLoader<cotangent::Tensor>> {
    DataLoader::new_with(numbers(n), DataLoaderOptions::new().batch_size(7).shuffle(true).seed(seed))
}

#[test]
fn a_shuffle_differs_in_each_epoch_and_repeats_with_the_seed() -> Result<()> {
    let loader = shuffled(100, 3)?;
    let epochs: Vec<_> = (0..5).map(|_| items(&loader)).collect::<Result<_>>()?;
    for epoch in &epochs {
        let mut sorted = epoch.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, numbers(100));
        assert_ne!(*epoch, sorted);
    }
    assert_eq!(epochs.iter().collect::<BTreeSet<_>>().len(), 5, "no two epochs are the same");
    let again = shuffled(100, 3)?;
    assert_eq!((0..5).map(|_| items(&again)).collect::<Result<Vec<_>>>()?, epochs);
    again.set_epoch(2);
    assert_eq!(items(&again)?, epochs[2]);
    assert_ne!(items(&shuffled(100, 4)?)?, epochs[0]);
    // An abandoned iteration counts as an epoch, too.
    let given_up = shuffled(100, 3)?;
    assert!(given_up.iter().next().is_some());
    assert_eq!(items(&given_up)?, epochs[1]);
    Ok(())
}

#[test]
fn every_order_is_equally_likely() -> Result<()> {
    let loader = DataLoader::new_with(numbers(4), DataLoaderOptions::new().batch_size(4).shuffle(true).seed(1))?;
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..4800 {
        *counts.entry(items(&loader)?).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 24);
    // 200 each, with a standard deviation of 14.
    assert!(counts.values().all(|&count| (130..270).contains(&count)), "{counts:?}");
    Ok(())
}

fn drawn(sampler: &impl Sampler, len: usize, seed: u64) -> Result<Vec<usize>> {
    sampler.indices(len, 0, &mut Generator::seed(seed))
}

#[test]
fn random_samplers_draw_as_many_as_they_are_told() -> Result<()> {
    let twice = drawn(&RandomSampler::new().num_samples(25), 10, 1)?;
    assert_eq!(twice.len(), 25);
    assert!((0..10).all(|index| (2..=3).contains(&twice.iter().filter(|&&x| x == index).count())));
    let again = drawn(&RandomSampler::new().replacement(true), 1000, 1)?;
    let different = again.iter().collect::<BTreeSet<_>>().len();
    assert!(again.len() == 1000 && (560..700).contains(&different), "{different} of about 632");
    assert_fails_with(drawn(&RandomSampler::new().num_samples(1), 0, 1), &["empty dataset"]);
    let mut subset = drawn(&SubsetRandomSampler::new([3, 1, 4]), 10, 1)?;
    subset.sort_unstable();
    assert_eq!(subset, [1, 3, 4]);
    Ok(())
}

#[test]
fn weights_are_frequencies() -> Result<()> {
    let sampler = WeightedRandomSampler::new([1.0, 0.0, 3.0, 0.5], 9000)?;
    let indices = drawn(&sampler, 4, 1)?;
    let count = |index| indices.iter().filter(|&&x| x == index).count();
    assert_eq!((indices.len(), count(1)), (9000, 0));
    for (index, expected) in [(0, 2000), (2, 6000), (3, 1000)] {
        assert!(count(index).abs_diff(expected) < 200, "{} of {expected}", count(index));
    }
    // Without replacement: each once, those with large weights mostly first.
    let sampler = WeightedRandomSampler::new([1.0, 0.0, 9.0], 2)?.replacement(false)?;
    let mut heavy_first = 0;
    for seed in 0..1000 {
        let indices = drawn(&sampler, 3, seed)?;
        assert!(indices == [0, 2] || indices == [2, 0]);
        heavy_first += usize::from(indices[0] == 2);
    }
    assert!((860..940).contains(&heavy_first), "{heavy_first} of about 900");
    assert_fails_with(drawn(&sampler, 4, 1), &["expected 4 weights", "got 3"]);
    assert_fails_with(WeightedRandomSampler::new([1.0, -1.0], 2), &["-1", "item 1"]);
    assert_fails_with(WeightedRandomSampler::new([0.0], 2), &["sum, got 0"]);
    assert_fails_with(WeightedRandomSampler::new([f64::NAN], 2), &["NaN"]);
    assert_fails_with(WeightedRandomSampler::new([1.0, 0.0], 2)?.replacement(false), &["at most 1", "got 2"]);
    Ok(())
}

#[test]
fn processes_share_the_items_evenly() -> Result<()> {
    for len in [0, 1, 5, 12, 13, 100] {
        for replicas in [1, 2, 3, 7] {
            for drop_last in [false, true] {
                for epoch in 0..2 {
                    let part = |rank| {
                        let sampler = DistributedSampler::new(replicas, rank)?.drop_last(drop_last).seed(4);
                        assert_eq!(
                            sampler.count(len),
                            Some(sampler.indices(len, epoch, &mut Generator::seed(0))?.len())
                        );
                        // The loader's seed, which may differ between processes, has no effect.
                        sampler.indices(len, epoch, &mut Generator::seed(rank as u64))
                    };
                    let parts: Vec<Vec<usize>> = (0..replicas).map(part).collect::<Result<_>>()?;
                    let each = if drop_last { len / replicas } else { len.div_ceil(replicas) };
                    assert!(parts.iter().all(|part| part.len() == each));
                    let all = parts.concat();
                    let different = all.iter().collect::<BTreeSet<_>>().len();
                    let expected = if drop_last { each * replicas } else { len };
                    assert_eq!(different, expected, "{len} items for {replicas}");
                }
            }
        }
    }
    let order = |epoch| DistributedSampler::new(2, 0)?.indices(50, epoch, &mut Generator::seed(0));
    assert_ne!(order(0)?, order(1)?, "epochs differ without being told to");
    let plain = DistributedSampler::new(2, 1)?.shuffle(false).indices(6, 0, &mut Generator::seed(0))?;
    assert_eq!(plain, [1, 3, 5]);
    assert_fails_with(DistributedSampler::new(2, 2), &["num_replicas = 2", "got 2"]);
    Ok(())
}

struct ByLength(Vec<usize>);

impl BatchSampler for ByLength {
    fn batches(&self, len: usize, _: usize, _: &mut Generator) -> Result<Vec<Vec<usize>>> {
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by_key(|&index| self.0[index]);
        Ok(order.chunks(2).map(<[usize]>::to_vec).collect())
    }
}

#[test]
fn a_batch_sampler_says_what_is_in_each_batch() -> Result<()> {
    let texts = vec![vec![1_i64; 3], vec![2; 1], vec![3; 3], vec![4; 1]];
    let lengths = texts.iter().map(Vec::len).collect();
    let loader = DataLoader::new_with(texts, DataLoaderOptions::new().batch_sampler(ByLength(lengths)).num_workers(2))?;
    let shapes: Vec<_> = loader.iter().map(|x| Ok(x?.shape().to_vec())).collect::<Result<_>>()?;
    assert_eq!((shapes, loader.len()), (vec![vec![2, 1], vec![2, 3]], None));
    let both = DataLoaderOptions::new().batch_sampler(ByLength(vec![])).batch_size(2);
    assert_fails_with(DataLoader::new_with(numbers(4), both), &["batch_sampler", "batch_size"]);
    Ok(())
}
