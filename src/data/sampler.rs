//! Samplers: the order of the items in an epoch.

use super::draw;
use crate::error::{bail, named};
use crate::{Generator, Result};
use cotangent_macros::named as public;

/// The order of the items in an epoch.
///
/// It depends only on the epoch and the given generator, which is seeded by the loader's seed and the epoch. So an order can
/// be repeated, and there is no state to save.
///
/// ```
/// use cotangent::{Generator, Result, data::{DataLoader, DataLoaderOptions, Sampler}};
///
/// /// More items from epoch to epoch.
/// struct Curriculum;
///
/// impl Sampler for Curriculum {
///     fn indices(&self, len: usize, epoch: usize, _: &mut Generator) -> Result<Vec<usize>> {
///         Ok((0..len.min(10 * (epoch + 1))).collect())
///     }
/// }
///
/// let items: Vec<i64> = (0..100).collect();
/// let loader = DataLoader::new_with(items, DataLoaderOptions::new().batch_size(5).sampler(Curriculum))?;
/// assert_eq!((loader.iter().count(), loader.iter().count()), (2, 4));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Sampler: Send + Sync {
    /// The indices of an epoch over a dataset of `len` items, each below `len`.
    ///
    /// # Errors
    /// If the sampler does not fit the dataset.
    fn indices(&self, len: usize, epoch: usize, generator: &mut Generator) -> Result<Vec<usize>>;

    /// The number of indices in an epoch, if it is known in advance. [`DataLoader::len`](super::DataLoader::len) needs it.
    fn count(&self, len: usize) -> Option<usize> {
        let _ = len;
        None
    }
}

/// A sampler of whole batches, for example of texts of similar length.
///
/// ```
/// use cotangent::{Generator, Result, data::{BatchSampler, DataLoader, DataLoaderOptions}};
///
/// struct Pairs;
///
/// impl BatchSampler for Pairs {
///     fn batches(&self, len: usize, _: usize, _: &mut Generator) -> Result<Vec<Vec<usize>>> {
///         Ok((0..len / 2).map(|at| vec![at, len - 1 - at]).collect())
///     }
/// }
///
/// let loader = DataLoader::new_with(vec![1_i64, 2, 3, 4], DataLoaderOptions::new().batch_sampler(Pairs))?;
/// let first = loader.iter().next().transpose()?;
/// assert_eq!(first.map(|x| x.to_vec::<i64>()).transpose()?, Some(vec![1, 4]));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait BatchSampler: Send + Sync {
    /// The indices of each batch of an epoch over a dataset of `len` items.
    ///
    /// # Errors
    /// If the sampler does not fit the dataset.
    fn batches(&self, len: usize, epoch: usize, generator: &mut Generator) -> Result<Vec<Vec<usize>>>;
}

/// All items in order.
///
/// ```
/// use cotangent::{Generator, data::{Sampler, SequentialSampler}};
/// assert_eq!(SequentialSampler.indices(3, 0, &mut Generator::seed(0))?, [0, 1, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialSampler;

impl Sampler for SequentialSampler {
    fn indices(&self, len: usize, _: usize, _: &mut Generator) -> Result<Vec<usize>> {
        Ok((0..len).collect())
    }

    fn count(&self, len: usize) -> Option<usize> {
        Some(len)
    }
}

/// Items in a random order, a new one in each epoch.
///
/// ```
/// use cotangent::{Generator, data::{RandomSampler, Sampler}};
/// let mut order = RandomSampler::new().indices(100, 0, &mut Generator::seed(1))?;
/// order.sort_unstable();
/// assert_eq!(order, (0..100).collect::<Vec<_>>());
/// let some = RandomSampler::new().replacement(true).num_samples(1000).indices(100, 0, &mut Generator::seed(1))?;
/// assert_eq!(some.len(), 1000);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RandomSampler {
    replacement: bool,
    num_samples: Option<usize>,
}

impl RandomSampler {
    /// All items, each once.
    pub fn new() -> RandomSampler {
        RandomSampler::default()
    }

    /// Whether to draw with replacement, so that an item may occur several times in an epoch. Unless set: `false`.
    pub fn replacement(mut self, replacement: bool) -> RandomSampler {
        self.replacement = replacement;
        self
    }

    /// The number of items in an epoch. Without replacement, more than the dataset has continue with another permutation.
    /// Unless set: the length of the dataset.
    pub fn num_samples(mut self, num_samples: impl Into<Option<usize>>) -> RandomSampler {
        self.num_samples = num_samples.into();
        self
    }
}

impl Sampler for RandomSampler {
    fn indices(&self, len: usize, _: usize, generator: &mut Generator) -> Result<Vec<usize>> {
        let count = self.num_samples.unwrap_or(len);
        if len == 0 {
            if count > 0 {
                bail!(Value, "RandomSampler", "cannot draw {count} items from an empty dataset");
            }
            return Ok(Vec::new());
        }
        if self.replacement {
            return Ok(draw::integers(count, len, generator));
        }
        let mut indices = Vec::new();
        while indices.len() < count {
            let mut order: Vec<usize> = (0..len).collect();
            draw::shuffle(&mut order, generator);
            order.truncate(count - indices.len());
            if indices.is_empty() {
                indices = order;
            } else {
                indices.extend(order);
            }
        }
        Ok(indices)
    }

    fn count(&self, len: usize) -> Option<usize> {
        Some(self.num_samples.unwrap_or(len))
    }
}

/// Some of the items, in a random order.
///
/// ```
/// use cotangent::{Generator, data::{Sampler, SubsetRandomSampler}};
/// let mut order = SubsetRandomSampler::new([7, 3, 5]).indices(10, 0, &mut Generator::seed(1))?;
/// order.sort_unstable();
/// assert_eq!(order, [3, 5, 7]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SubsetRandomSampler {
    indices: Vec<usize>,
}

impl SubsetRandomSampler {
    /// The items at these indices.
    pub fn new(indices: impl Into<Vec<usize>>) -> SubsetRandomSampler {
        SubsetRandomSampler { indices: indices.into() }
    }
}

impl Sampler for SubsetRandomSampler {
    fn indices(&self, _: usize, _: usize, generator: &mut Generator) -> Result<Vec<usize>> {
        let mut indices = self.indices.clone();
        draw::shuffle(&mut indices, generator);
        Ok(indices)
    }

    fn count(&self, _: usize) -> Option<usize> {
        Some(self.indices.len())
    }
}

/// Items drawn with given weights, which need not add up to 1.
///
/// ```
/// use cotangent::{Generator, data::{Sampler, WeightedRandomSampler}};
/// let sampler = WeightedRandomSampler::new([1.0, 0.0, 3.0], 1000)?;
/// let drawn = sampler.indices(3, 0, &mut Generator::seed(1))?;
/// assert!(drawn.iter().all(|&index| index != 1) && drawn.iter().filter(|&&index| index == 2).count() > 700);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    num_samples: usize,
    replacement: bool,
}

impl WeightedRandomSampler {
    /// Draws `num_samples` items in an epoch, with a weight for each item of the dataset.
    ///
    /// # Errors
    /// If a weight is negative, infinite or not a number, or none is positive.
    #[public("WeightedRandomSampler::new")]
    pub fn new(weights: impl Into<Vec<f64>>, num_samples: usize) -> Result<WeightedRandomSampler> {
        const OP: &str = "WeightedRandomSampler::new";
        let weights = weights.into();
        if let Some((index, weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
            bail!(Value, OP, "weights must be finite and not negative, got {weight} for item {index}");
        }
        let total: f64 = weights.iter().sum();
        if !(total > 0.0 && total.is_finite()) {
            bail!(Value, OP, "weights must have a positive and finite sum, got {total}");
        }
        Ok(WeightedRandomSampler { weights, num_samples, replacement: true })
    }

    /// Whether to draw with replacement. Unless set: `true`.
    ///
    /// # Errors
    /// If `replacement` is false and fewer than `num_samples` weights are positive.
    #[track_caller]
    pub fn replacement(mut self, replacement: bool) -> Result<WeightedRandomSampler> {
        self.replacement = replacement;
        let drawable = self.weights.iter().filter(|&&weight| weight > 0.0).count();
        if !replacement && drawable < self.num_samples {
            let asked = self.num_samples;
            let message =
                format!("num_samples must be at most {drawable}, the number of positive weights, got {asked}");
            return Err(crate::Error::new(crate::ErrorKind::Value, "WeightedRandomSampler::replacement", message));
        }
        Ok(self)
    }
}

impl Sampler for WeightedRandomSampler {
    fn indices(&self, len: usize, _: usize, generator: &mut Generator) -> Result<Vec<usize>> {
        if self.weights.len() != len {
            bail!(Value, "WeightedRandomSampler", "expected {len} weights, one per item, got {}", self.weights.len());
        }
        if self.replacement {
            let mut total = 0.0;
            let ends = self.weights.iter().map(|weight| {
                total += weight;
                total
            });
            let ends: Vec<f64> = ends.collect();
            // Rounding may lift a draw to the total itself, beyond the last item of positive weight.
            let last = self.weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
            let draws = draw::many_uniforms(self.num_samples, generator);
            return Ok(draws.into_iter().map(|u| ends.partition_point(|&end| end <= u * total).min(last)).collect());
        }
        // The items with the smallest exponentially distributed times, with the weights as rates.
        let draws = draw::many_uniforms(len, generator);
        let mut times: Vec<(f64, usize)> = (self.weights.iter().zip(draws).enumerate())
            .filter(|(_, (weight, _))| **weight > 0.0)
            .map(|(index, (weight, u))| (-(-u).ln_1p() / weight, index))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Ok(times.into_iter().take(self.num_samples).map(|(_, index)| index).collect())
    }

    fn count(&self, _: usize) -> Option<usize> {
        Some(self.num_samples)
    }
}

/// The share of one process in distributed training: each item goes to one process, and all get the same number.
///
/// If the number of items is not divisible, some are repeated or, with [`drop_last`](Self::drop_last), dropped. The order
/// depends on the epoch and on the sampler's own seed, which must be the same in all processes.
///
/// ```
/// use cotangent::{Generator, data::{DistributedSampler, Sampler}};
/// let parts = (0..2).map(|rank| DistributedSampler::new(2, rank)?.indices(10, 0, &mut Generator::seed(rank as u64)));
/// let mut all: Vec<usize> = parts.collect::<cotangent::Result<Vec<_>>>()?.concat();
/// all.sort_unstable();
/// assert_eq!(all, (0..10).collect::<Vec<_>>());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistributedSampler {
    num_replicas: usize,
    rank: usize,
    shuffle: bool,
    seed: u64,
    drop_last: bool,
}

impl DistributedSampler {
    /// The share of process `rank` of `num_replicas`.
    ///
    /// # Errors
    /// If `rank` is not less than `num_replicas`.
    #[track_caller]
    pub fn new(num_replicas: usize, rank: usize) -> Result<DistributedSampler> {
        let check = || {
            if rank >= num_replicas {
                bail!(
                    Value,
                    "DistributedSampler::new",
                    "rank must be less than num_replicas = {num_replicas}, got {rank}"
                );
            }
            Ok(DistributedSampler { num_replicas, rank, shuffle: true, seed: 0, drop_last: false })
        };
        named("DistributedSampler::new", check())
    }

    /// Whether to shuffle, in a new order in each epoch. Unless set: `true`.
    pub fn shuffle(mut self, shuffle: bool) -> DistributedSampler {
        self.shuffle = shuffle;
        self
    }

    /// The seed of the order: the same in all processes. Unless set: `0`.
    pub fn seed(mut self, seed: u64) -> DistributedSampler {
        self.seed = seed;
        self
    }

    /// Whether to drop items that cannot be divided evenly, instead of repeating some. Unless set: `false`.
    pub fn drop_last(mut self, drop_last: bool) -> DistributedSampler {
        self.drop_last = drop_last;
        self
    }

    fn share(&self, len: usize) -> usize {
        if self.drop_last { len / self.num_replicas } else { len.div_ceil(self.num_replicas) }
    }
}

impl Sampler for DistributedSampler {
    fn indices(&self, len: usize, epoch: usize, _: &mut Generator) -> Result<Vec<usize>> {
        let mut order: Vec<usize> = (0..len).collect();
        if self.shuffle {
            draw::shuffle(&mut order, &mut Generator::seed(draw::mix(self.seed, epoch as u64)));
        }
        // Every `num_replicas`-th item, wrapping around at the end.
        Ok((0..self.share(len)).map(|at| order[(at * self.num_replicas + self.rank) % len]).collect())
    }

    fn count(&self, len: usize) -> Option<usize> {
        Some(self.share(len))
    }
}
