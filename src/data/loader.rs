//! The data loader.

use super::draw::{self, Epoch, in_epoch};
use super::jobs::{self, ByDefault, ByFunction, Indexed, IndexedJobs, Iterable, Jobs, Open, Order};
use super::workers::Workers;
use super::{Batch, Collate, DataLoaderOptions, DataLoaderState, Dataset, IterableDataset};
use super::{RandomSampler, Sampler, SequentialSampler};
use crate::error::{bail, named};
use crate::location::Location;
use crate::{Device, Error, Generator, Result};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) const OP: &str = "DataLoader";

/// Loads batches of a dataset. Each iteration is one epoch.
///
/// ```
/// use cotangent::{Tensor, data::{DataLoader, DataLoaderOptions}};
/// let (x, y) = (Tensor::randn([100, 8])?, Tensor::randint(0, 10, [100])?);
/// let options = DataLoaderOptions::new().batch_size(32).shuffle(true).num_workers(2);
/// let loader = DataLoader::new_with((x, y), options)?;
/// for epoch in 0..3 {
///     for batch in &loader {
///         let (x, y) = batch?;
///         assert_eq!(x.shape()[0], y.shape()[0]);
///     }
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// Every epoch has a new random order. A batch that fails is an `Err` that names the item; the iteration continues after
/// it. A panic of a worker is such an error as well. Dropping an iterator ends its threads after the items that they are
/// reading.
///
/// [`state`](Self::state) returns the position of the loader, also within an epoch. [`restore`](Self::restore) lets another
/// loader continue from there with the same batches.
pub struct DataLoader<B> {
    source: Source<B>,
    options: DataLoaderOptions,
    finish: Option<Finish<B>>,
    progress: Arc<Mutex<Progress>>,
}

/// A function that is applied to each batch.
pub(super) type Finish<B> = Arc<dyn Fn(B) -> Result<B> + Send + Sync>;

enum Source<B> {
    Indexed(Arc<dyn Indexed<B>>),
    Iterable(Arc<dyn Open<B>>),
}

/// The position of the loader.
struct Progress {
    seed: u64,
    epoch: usize,
    /// Batches of the epoch returned so far.
    position: usize,
    /// The number of the latest iteration, to which this belongs.
    iteration: u64,
    /// Whether that iteration has not ended.
    running: bool,
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    // No user code runs under the lock.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Send + 'static> DataLoader<B> {
    /// A loader of batches of `batch_size` items, in order.
    ///
    /// ```
    /// use cotangent::{Tensor, data::DataLoader};
    /// let loader = DataLoader::new(Tensor::arange(0, 10)?, 4)?;
    /// let sizes: Vec<usize> = loader.iter().map(|x| Ok(x?.numel())).collect::<cotangent::Result<_>>()?;
    /// assert_eq!(sizes, [4, 4, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `batch_size` is 0.
    #[track_caller]
    pub fn new<D>(dataset: D, batch_size: usize) -> Result<DataLoader<B>>
    where
        D: Dataset + 'static,
        D::Item: Collate<Batch = B>,
    {
        Self::new_with(dataset, batch_size)
    }

    /// As [`new`](Self::new), with options: a random order, workers and others.
    ///
    /// ```
    /// use cotangent::{Tensor, data::{DataLoader, DataLoaderOptions}};
    /// let options = DataLoaderOptions::new().batch_size(4).shuffle(true).num_workers(2);
    /// let loader = DataLoader::new_with(Tensor::arange(0, 10)?, options)?;
    /// assert_eq!(loader.len(), Some(3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the options contradict each other or are out of range.
    #[track_caller]
    pub fn new_with<D>(dataset: D, options: impl Into<DataLoaderOptions>) -> Result<DataLoader<B>>
    where
        D: Dataset + 'static,
        D::Item: Collate<Batch = B>,
    {
        named(OP, Self::made(Source::Indexed(Arc::new(ByDefault(dataset))), options.into()))
    }

    /// A loader with a custom collate function, which gets the items of a batch.
    ///
    /// ```
    /// use cotangent::{Tensor, data::DataLoader};
    /// let texts = vec![vec![1_i64, 2, 3], vec![4], vec![5, 6]];
    /// let pad = |texts: Vec<Vec<i64>>| {
    ///     let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    ///     let padded = texts.iter().flat_map(|text| (0..longest).map(|at| text.get(at).copied().unwrap_or(0)));
    ///     Tensor::from_vec(padded.collect(), [texts.len(), longest])
    /// };
    /// let loader = DataLoader::with_collate(texts, 3, pad)?;
    /// assert_eq!(loader.iter().next().transpose()?.map(|x| x.shape().to_vec()), Some(vec![3, 3]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new_with`](Self::new_with).
    #[track_caller]
    pub fn with_collate<D, F>(dataset: D, options: impl Into<DataLoaderOptions>, collate: F) -> Result<DataLoader<B>>
    where
        D: Dataset + 'static,
        F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    {
        named(OP, Self::made(Source::Indexed(Arc::new(ByFunction(dataset, collate))), options.into()))
    }

    /// A loader of an iterable dataset.
    ///
    /// ```
    /// use cotangent::data::{DataLoader, DataLoaderOptions};
    /// let options = DataLoaderOptions::new().batch_size(4).num_workers(2);
    /// let loader = DataLoader::iterable(|| (0..10_i64).map(Ok), options)?;
    /// assert_eq!((loader.len(), loader.iter().count()), (None, 3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new_with`](Self::new_with); also if shuffling or a sampler is set: see
    /// [`shuffle_buffer`](IterableDataset::shuffle_buffer).
    #[track_caller]
    pub fn iterable<D>(dataset: D, options: impl Into<DataLoaderOptions>) -> Result<DataLoader<B>>
    where
        D: IterableDataset + 'static,
        D::Item: Collate<Batch = B> + 'static,
    {
        Self::iterable_with_collate(dataset, options, D::Item::collate)
    }

    /// As [`iterable`](Self::iterable), with a custom collate function. The workers run it in parallel.
    ///
    /// ```
    /// use cotangent::data::DataLoader;
    /// let count = |words: Vec<&str>| Ok(words.concat().len());
    /// let loader = DataLoader::iterable_with_collate(|| ["a", "bc"].map(Ok), 2, count)?;
    /// assert_eq!(loader.iter().next().transpose()?, Some(3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`iterable`](Self::iterable).
    #[track_caller]
    pub fn iterable_with_collate<D, F>(
        dataset: D,
        options: impl Into<DataLoaderOptions>,
        collate: F,
    ) -> Result<DataLoader<B>>
    where
        D: IterableDataset + 'static,
        D::Item: 'static,
        F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    {
        named(OP, Self::made(Source::Iterable(Arc::new(Iterable(dataset, Arc::new(collate)))), options.into()))
    }

    fn made(source: Source<B>, options: DataLoaderOptions) -> Result<DataLoader<B>> {
        options.check()?;
        let ordered = options.shuffle || options.sampler.is_some() || options.batch_sampler.is_some();
        if ordered && matches!(source, Source::Iterable(_)) {
            bail!(
                Value,
                OP,
                "shuffle, sampler and batch_sampler cannot be set for an iterable dataset: use shuffle_buffer"
            );
        }
        let seed = options.seed.unwrap_or_else(draw::fresh_seed);
        let progress = Progress { seed, epoch: 0, position: 0, iteration: 0, running: false };
        Ok(DataLoader { source, options, finish: None, progress: Arc::new(Mutex::new(progress)) })
    }

    /// Moves the batches to a device. Copies to a GPU go through pinned memory and a separate stream, so that they overlap
    /// with computation; workers copy ahead of time.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, data::{DataLoader, DataLoaderOptions}};
    /// let device = if Device::cuda(0).is_available() { Device::cuda(0) } else { Device::Cpu };
    /// let data = (Tensor::randn([100, 8])?, Tensor::zeros([100])?);
    /// let loader = DataLoader::new_with(data, DataLoaderOptions::new().batch_size(32).num_workers(2))?.to_device(device)?;
    /// for batch in &loader {
    ///     let (x, y) = batch?;
    ///     assert_eq!((x.device(), y.device()), (device, device));
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device is not available, or its streams are all in use.
    #[track_caller]
    pub fn to_device(mut self, device: Device) -> Result<DataLoader<B>>
    where
        B: Batch,
    {
        self.finish = Some(named("to_device", transfer(device))?);
        Ok(self)
    }

    /// The number of batches in an epoch: `None` for iterable datasets, batch samplers and samplers without a count.
    ///
    /// ```
    /// use cotangent::data::{DataLoader, DataLoaderOptions};
    /// let loader = DataLoader::new_with(vec![1, 2, 3], DataLoaderOptions::new().batch_size(2).drop_last(true))?;
    /// assert_eq!(loader.len(), Some(1));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> Option<usize> {
        let Source::Indexed(dataset) = &self.source else { return None };
        if self.options.batch_sampler.is_some() {
            return None;
        }
        let sampler = self.options.sampler.as_ref();
        let items = sampler.map_or_else(|| Some(dataset.len()), |sampler| sampler.count(dataset.len()))?;
        Some(jobs::batches(items, self.batch_size(), self.options.drop_last))
    }

    /// The number of items in a batch.
    pub fn batch_size(&self) -> usize {
        self.options.batch_size.unwrap_or(1)
    }

    /// The current epoch, or between two epochs the next one.
    ///
    /// ```
    /// let loader = cotangent::data::DataLoader::new(vec![1, 2, 3], 2)?;
    /// assert_eq!(loader.epoch(), 0);
    /// assert_eq!((loader.iter().count(), loader.epoch()), (2, 1));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn epoch(&self) -> usize {
        lock(&self.progress).epoch
    }

    /// Sets the epoch of the next iteration.
    ///
    /// ```
    /// use cotangent::data::{DataLoader, DataLoaderOptions};
    /// let options = DataLoaderOptions::new().batch_size(100).shuffle(true);
    /// let loader = DataLoader::new_with((0..100).collect::<Vec<i64>>(), options)?;
    /// let first = loader.iter().next().transpose()?;
    /// loader.set_epoch(0);
    /// assert_eq!(loader.iter().next().transpose()?.zip(first).map(|(a, b)| a.equal(&b)).transpose()?, Some(true));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn set_epoch(&self, epoch: usize) {
        let mut progress = lock(&self.progress);
        // An iterator that is still in use no longer updates the progress.
        progress.iteration += 1;
        (progress.epoch, progress.position, progress.running) = (epoch, 0, false);
    }

    /// The position of the loader: the epoch, how many of its batches the latest iterator has returned, and the seed.
    ///
    /// ```
    /// use cotangent::data::{DataLoader, DataLoaderOptions};
    /// let options = DataLoaderOptions::new().batch_size(2).shuffle(true);
    /// let items: Vec<i64> = (0..10).collect();
    /// let loader = DataLoader::new_with(items.clone(), &options)?;
    /// let mut batches = loader.iter();
    /// batches.next().transpose()?;
    /// let state = loader.state();
    /// let expected = batches.next().transpose()?;
    ///
    /// let resumed = DataLoader::new_with(items, &options)?;
    /// resumed.restore(&state)?;
    /// let next = resumed.iter().next().transpose()?;
    /// assert_eq!(next.zip(expected).map(|(a, b)| a.equal(&b)).transpose()?, Some(true));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn state(&self) -> DataLoaderState {
        let progress = lock(&self.progress);
        DataLoaderState {
            seed: progress.seed,
            epoch: progress.epoch,
            position: progress.position,
            batch_size: self.batch_size(),
            items: self.items(),
        }
    }

    /// Lets the next iteration continue from a saved state, with its seed.
    ///
    /// # Errors
    /// If the saved loader had another batch size or a dataset of another length.
    #[track_caller]
    pub fn restore(&self, state: &DataLoaderState) -> Result<()> {
        named("DataLoader::restore", self.restored(state))
    }

    fn restored(&self, state: &DataLoaderState) -> Result<()> {
        let (own, other) = ((self.batch_size(), self.items()), (state.batch_size, state.items));
        if own != other {
            let say = |(size, items): (usize, Option<usize>)| {
                let items = items.map_or_else(|| "an unknown number of".to_string(), |items| items.to_string());
                format!("{items} items in batches of {size}")
            };
            bail!(
                Value,
                "DataLoader::restore",
                "state must be of the same dataset and batch size, got {} for a loader of {}",
                say(other),
                say(own)
            );
        }
        let mut progress = lock(&self.progress);
        progress.iteration += 1;
        (progress.seed, progress.epoch, progress.position) = (state.seed, state.epoch, state.position);
        progress.running = false;
        Ok(())
    }

    fn items(&self) -> Option<usize> {
        match &self.source {
            Source::Indexed(dataset) => Some(dataset.len()),
            Source::Iterable(_) => None,
        }
    }

    /// The batches of the next epoch.
    #[track_caller]
    pub fn iter(&self) -> DataLoaderIter<B> {
        let mut progress = lock(&self.progress);
        if progress.running {
            (progress.epoch, progress.position) = (progress.epoch + 1, 0);
        }
        progress.running = true;
        progress.iteration += 1;
        let Progress { seed, epoch, position, iteration, .. } = *progress;
        drop(progress);
        let (maker, left) = match self.start(seed, epoch, position) {
            Ok((maker, left)) => (maker, left),
            Err(error) => (Maker::Failed(Some(error)), None),
        };
        DataLoaderIter {
            maker,
            left,
            position,
            location: Location::caller(),
            iteration,
            progress: self.progress.clone(),
        }
    }

    /// The source of the batches of an epoch from a position on, and their number.
    fn start(&self, seed: u64, epoch: usize, position: usize) -> Result<(Maker<B>, Option<usize>)> {
        let number = epoch;
        let epoch = Epoch { key: draw::mix(seed, number as u64), stop: Arc::new(AtomicBool::new(false)) };
        let mut left = None;
        let jobs: Box<dyn Jobs<B>> = match &self.source {
            Source::Indexed(dataset) => {
                let order = self.order(dataset.len(), number, &mut Generator::seed(epoch.key))?;
                left = Some(order.len().saturating_sub(position));
                Box::new(IndexedJobs { dataset: dataset.clone(), order, key: epoch.key, at: position })
            }
            Source::Iterable(dataset) => {
                let mut jobs = dataset.open(&epoch, self.batch_size(), self.options.drop_last)?;
                (0..position).map_while(|_| jobs.next()).for_each(drop);
                jobs
            }
        };
        let (finish, workers) = (self.finish.clone(), self.options.num_workers);
        let maker = match workers {
            0 => Maker::Here { jobs, epoch, finish },
            _ => {
                let ahead = workers.saturating_mul(self.options.prefetch_factor);
                Maker::Workers(Workers::start(jobs, epoch, finish, workers, ahead)?)
            }
        };
        Ok((maker, left))
    }

    fn order(&self, len: usize, epoch: usize, generator: &mut Generator) -> Result<Order> {
        let options = &self.options;
        let order = if let Some(sampler) = &options.batch_sampler {
            let lists = sampler.batches(len, epoch, generator)?;
            if let Some(at) = lists.iter().position(Vec::is_empty) {
                bail!(Value, OP, "batch_sampler must not give an empty batch, got one at {at}");
            }
            Order::Lists(lists)
        } else {
            let indices = match &options.sampler {
                Some(sampler) => sampler.indices(len, epoch, generator)?,
                None if options.shuffle => RandomSampler::new().indices(len, epoch, generator)?,
                None => SequentialSampler.indices(len, epoch, generator)?,
            };
            Order::Even { indices, batch_size: self.batch_size(), drop_last: options.drop_last }
        };
        if let Some(index) = order.beyond(len) {
            bail!(Index, OP, "sampler gave index {index}, out of range for {len} items");
        }
        Ok(order)
    }
}

impl<B: Send + 'static> IntoIterator for &DataLoader<B> {
    type Item = Result<B>;
    type IntoIter = DataLoaderIter<B>;

    #[track_caller]
    fn into_iter(self) -> DataLoaderIter<B> {
        self.iter()
    }
}

impl<B> fmt::Debug for DataLoader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { seed, epoch, position, .. } = *lock(&self.progress);
        f.debug_struct("DataLoader")
            .field("options", &self.options)
            .field("seed", &seed)
            .field("epoch", &epoch)
            .field("position", &position)
            .finish()
    }
}

/// Moves batches to a device.
fn transfer<B: Batch + 'static>(device: Device) -> Result<Finish<B>> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => {
            let copies = crate::Stream::new(device)?;
            Ok(Arc::new(move |batch: B| {
                copies.run(|| {
                    batch.map_tensors(&mut |x| {
                        if x.device() == device { Ok(x) } else { x.pin_memory()?.to_device(device) }
                    })
                })
            }))
        }
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(ordinal) => Err(crate::backend::no_cuda("to_device", ordinal)),
        Device::Cpu => Ok(Arc::new(move |batch: B| batch.map_tensors(&mut |x| x.to_device(device)))),
    }
}

/// An iterator over the batches of an epoch, returned by [`DataLoader::iter`].
pub struct DataLoaderIter<B> {
    maker: Maker<B>,
    /// The number of batches left, if known.
    left: Option<usize>,
    /// The number of the next batch in the epoch.
    position: usize,
    location: Location,
    iteration: u64,
    progress: Arc<Mutex<Progress>>,
}

enum Maker<B> {
    /// The epoch could not begin.
    Failed(Option<Error>),
    Here {
        jobs: Box<dyn Jobs<B>>,
        epoch: Epoch,
        finish: Option<Finish<B>>,
    },
    Workers(Workers<B>),
    Ended,
}

impl<B> Iterator for DataLoaderIter<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let batch = match &mut self.maker {
            Maker::Failed(error) => return error.take().map(|error| Err(error.within(OP, self.location.clone()))),
            Maker::Here { jobs, epoch, finish } => {
                jobs.next().map(|job| in_epoch(epoch, || finish.iter().try_fold(job()?, |batch, finish| finish(batch))))
            }
            Maker::Workers(workers) => workers.next(),
            Maker::Ended => return None,
        };
        let mut progress = lock(&self.progress);
        let is_latest = progress.iteration == self.iteration;
        let Some(batch) = batch else {
            if is_latest {
                (progress.epoch, progress.position, progress.running) = (progress.epoch + 1, 0, false);
            }
            drop(progress);
            // Releases the threads and the dataset.
            self.maker = Maker::Ended;
            return None;
        };
        let number = self.position;
        self.position += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        if is_latest {
            progress.position = self.position;
        }
        Some(batch.map_err(|error| error.context(format_args!("batch {number}")).within(OP, self.location.clone())))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self.maker {
            Maker::Failed(_) => (1, Some(1)),
            Maker::Ended => (0, Some(0)),
            _ => (self.left.unwrap_or(0), self.left),
        }
    }
}

impl<B> fmt::Debug for DataLoaderIter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataLoaderIter(batch {}, {:?} left)", self.position, self.left)
    }
}
