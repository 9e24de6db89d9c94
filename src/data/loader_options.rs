//! The options of the data loader.

use super::loader::OP;
use super::{BatchSampler, Sampler};
use crate::Result;
use crate::error::bail;
use std::fmt;
use std::sync::Arc;

/// The largest number of workers.
const MOST_WORKERS: usize = 1024;

/// The options of a [`DataLoader`](crate::data::DataLoader). A number converts to options with this batch size.
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

    /// The number of items in a batch. Unless set: `1`.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = Some(batch_size);
        self
    }

    /// Whether to shuffle the items, in a new order in each epoch. Unless set: `false`.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The seed of the order and of the random numbers of the dataset. The same seed gives the same batches in each epoch,
    /// with any number of workers. Unless set: drawn when the loader is made, from the generator that
    /// [`manual_seed`](crate::manual_seed) seeds.
    pub fn seed(mut self, seed: impl Into<Option<u64>>) -> Self {
        self.seed = seed.into();
        self
    }

    /// Whether to drop the last batch if it is incomplete. Unless set: `false`.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// The number of worker threads, which load batches ahead of time. With `0` the calling thread loads each batch. The
    /// batches and their order do not depend on it. Unless set: `0`.
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.num_workers = num_workers;
        self
    }

    /// The number of batches that each worker loads ahead. Unless set: `2`.
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.prefetch_factor = prefetch_factor;
        self
    }

    /// The sampler of the items, instead of `shuffle`.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Some(Arc::new(sampler));
        self
    }

    /// The sampler of whole batches, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    pub fn batch_sampler(mut self, sampler: impl BatchSampler + 'static) -> Self {
        self.batch_sampler = Some(Arc::new(sampler));
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.batch_size == Some(0) {
            bail!(Value, OP, "batch_size must be positive, got 0");
        }
        if self.prefetch_factor == 0 {
            bail!(Value, OP, "prefetch_factor must be positive, got 0");
        }
        if self.num_workers > MOST_WORKERS {
            bail!(Value, OP, "num_workers must be at most {MOST_WORKERS}, got {}", self.num_workers);
        }
        if self.shuffle && self.sampler.is_some() {
            bail!(Value, OP, "shuffle cannot be combined with sampler");
        }
        if self.batch_sampler.is_some()
            && (self.batch_size.is_some() || self.shuffle || self.drop_last || self.sampler.is_some())
        {
            bail!(Value, OP, "batch_sampler cannot be combined with batch_size, shuffle, sampler or drop_last");
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
