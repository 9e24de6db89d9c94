//! How a loader makes its batches.

use super::loader::OP;
use super::{BatchSampler, Sampler};
use crate::Result;
use crate::error::bail;
use std::fmt;
use std::sync::Arc;

/// The most workers that can be asked for.
const MOST_WORKERS: usize = 1024;

/// The options of a [`DataLoader`](crate::data::DataLoader). A number stands for the batch size.
///
/// ```
/// use cotangent::{Tensor, data::{DataLoader, DataLoaderOptions}};
/// let options = DataLoaderOptions::new().batch_size(32).shuffle(true).seed(1).num_workers(2).drop_last(true);
/// let loader = DataLoader::new_with(Tensor::zeros([100, 8])?, options)?;
/// assert_eq!(loader.len(), Some(3));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct DataLoaderOptions {
    pub(super) batch_size: Option<usize>,
    pub(super) shuffle: bool,
    pub(super) seed: Option<u64>,
    pub(super) drop_last: bool,
    pub(super) num_workers: usize,
    pub(super) prefetch_factor: usize,
    pub(super) sampler: Option<Arc<dyn Sampler>>,
    pub(super) batch_sampler: Option<Arc<dyn BatchSampler>>,
}

impl Default for DataLoaderOptions {
    fn default() -> Self {
        DataLoaderOptions {
            batch_size: None,
            shuffle: false,
            seed: None,
            drop_last: false,
            num_workers: 0,
            prefetch_factor: 2,
            sampler: None,
            batch_sampler: None,
        }
    }
}

impl From<usize> for DataLoaderOptions {
    fn from(batch_size: usize) -> Self {
        DataLoaderOptions::new().batch_size(batch_size)
    }
}

impl From<&DataLoaderOptions> for DataLoaderOptions {
    fn from(options: &DataLoaderOptions) -> Self {
        options.clone()
    }
}

impl DataLoaderOptions {
    /// All options at their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many items a batch has. Unless set: `1`.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = Some(batch_size);
        self
    }

    /// Whether the items come in a random order, another one in each epoch. Unless set: `false`.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The seed of all that is random: the order, and the draws of the dataset. The same seed gives the same batches in each
    /// epoch, with any number of workers. Unless set: drawn when the loader is made, from the generator that
    /// [`manual_seed`](crate::manual_seed) seeds.
    pub fn seed(mut self, seed: impl Into<Option<u64>>) -> Self {
        self.seed = seed.into();
        self
    }

    /// Whether a last batch that is not full is left out. Unless set: `false`.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// How many threads make batches ahead of time. With `0` they are made when they are asked for, by whoever asks. The
    /// batches and their order are the same. Unless set: `0`.
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.num_workers = num_workers;
        self
    }

    /// How many batches are made ahead for each worker. Unless set: `2`.
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.prefetch_factor = prefetch_factor;
        self
    }

    /// The order of the items, in place of `shuffle`.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Some(Arc::new(sampler));
        self
    }

    /// The items of each batch, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    pub fn batch_sampler(mut self, sampler: impl BatchSampler + 'static) -> Self {
        self.batch_sampler = Some(Arc::new(sampler));
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.batch_size == Some(0) {
            bail!(Value, OP, "a batch size of 0 makes no batches");
        }
        if self.prefetch_factor == 0 {
            bail!(Value, OP, "a prefetch_factor of 0 leaves the workers nothing to do");
        }
        if self.num_workers > MOST_WORKERS {
            bail!(Value, OP, "{} workers: at most {MOST_WORKERS} are possible", self.num_workers);
        }
        if self.shuffle && self.sampler.is_some() {
            bail!(Value, OP, "the order is that of the sampler: shuffle cannot be set beside it");
        }
        if self.batch_sampler.is_some()
            && (self.batch_size.is_some() || self.shuffle || self.drop_last || self.sampler.is_some())
        {
            bail!(
                Value,
                OP,
                "beside a batch_sampler, batch_size, shuffle, sampler and drop_last say nothing: leave them out"
            );
        }
        Ok(())
    }
}

impl fmt::Debug for DataLoaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderOptions")
            .field("batch_size", &self.batch_size.unwrap_or(1))
            .field("shuffle", &self.shuffle)
            .field("seed", &self.seed)
            .field("drop_last", &self.drop_last)
            .field("num_workers", &self.num_workers)
            .field("prefetch_factor", &self.prefetch_factor)
            .field("sampler", &self.sampler.is_some())
            .field("batch_sampler", &self.batch_sampler.is_some())
            .finish()
    }
}
