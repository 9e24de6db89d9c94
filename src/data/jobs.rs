//! The batches of an epoch as jobs, which the workers take in order.

use super::draw::{self, in_epoch};
use super::{Collate, Dataset, Items, IterableDataset};
use crate::random::with_generator;
use crate::{Generator, Result};
use std::sync::Arc;

/// Makes a batch.
pub(super) type Job<B> = Box<dyn FnOnce() -> Result<B>>;

/// The remaining batches of an epoch.
pub(super) trait Jobs<B>: Send {
    fn next(&mut self) -> Option<Job<B>>;
}

/// A dataset with its way to make batches.
pub(super) trait Indexed<B>: Send + Sync {
    fn len(&self) -> usize;
    fn fetch(&self, indices: &[usize]) -> Result<B>;
}

/// Batches by [`Collate`].
pub(super) struct ByDefault<D>(pub(super) D);

impl<D: Dataset> Indexed<<D::Item as Collate>::Batch> for ByDefault<D>
where
    D::Item: Collate,
{
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fetch(&self, indices: &[usize]) -> Result<<D::Item as Collate>::Batch> {
        self.0.get_batch(indices)
    }
}

/// Batches by a function.
pub(super) struct ByFunction<D, F>(pub(super) D, pub(super) F);

impl<D: Dataset, B, F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync> Indexed<B> for ByFunction<D, F> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fetch(&self, indices: &[usize]) -> Result<B> {
        (self.1)(super::dataset::items(&self.0, indices)?)
    }
}

/// The indices of an epoch.
pub(super) enum Order {
    /// Batches of `batch_size` indices.
    Even { indices: Vec<usize>, batch_size: usize, drop_last: bool },
    /// The indices of each batch.
    Lists(Vec<Vec<usize>>),
}

impl Order {
    /// The number of batches.
    pub(super) fn len(&self) -> usize {
        match self {
            Order::Even { indices, batch_size, drop_last } => batches(indices.len(), *batch_size, *drop_last),
            Order::Lists(lists) => lists.len(),
        }
    }

    fn batch(&self, at: usize) -> Option<&[usize]> {
        match self {
            _ if at >= self.len() => None,
            Order::Even { indices, batch_size, .. } => indices.chunks(*batch_size).nth(at),
            Order::Lists(lists) => lists.get(at).map(Vec::as_slice),
        }
    }

    /// The first index that is not below `len`.
    pub(super) fn beyond(&self, len: usize) -> Option<usize> {
        let mut all: Box<dyn Iterator<Item = &usize>> = match self {
            Order::Even { indices, .. } => Box::new(indices.iter()),
            Order::Lists(lists) => Box::new(lists.iter().flatten()),
        };
        all.find(|&&index| index >= len).copied()
    }
}

/// The number of batches that `items` make.
pub(super) fn batches(items: usize, batch_size: usize, drop_last: bool) -> usize {
    if drop_last { items / batch_size } else { items.div_ceil(batch_size) }
}

/// The batches of a dataset with indices.
pub(super) struct IndexedJobs<B> {
    pub(super) dataset: Arc<dyn Indexed<B>>,
    pub(super) order: Order,
    /// The seed of the epoch.
    pub(super) key: u64,
    /// The number of the next batch.
    pub(super) at: usize,
}

impl<B: 'static> Jobs<B> for IndexedJobs<B> {
    fn next(&mut self) -> Option<Job<B>> {
        let (key, number, dataset) = (self.key, self.at, self.dataset.clone());
        let indices = self.order.batch(number)?.to_vec();
        self.at += 1;
        Some(Box::new(move || draw::batch(key, number, || dataset.fetch(&indices))))
    }
}

/// An iterable dataset with its way to make batches.
pub(super) trait Open<B>: Send + Sync {
    fn open(&self, epoch: &draw::Epoch, batch_size: usize, drop_last: bool) -> Result<Box<dyn Jobs<B>>>;
}

pub(super) struct Iterable<D, F>(pub(super) D, pub(super) Arc<F>);

impl<D, B, F> Open<B> for Iterable<D, F>
where
    D: IterableDataset,
    D::Item: 'static,
    F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
{
    fn open(&self, epoch: &draw::Epoch, batch_size: usize, drop_last: bool) -> Result<Box<dyn Jobs<B>>> {
        let mut generator = Generator::seed(epoch.key);
        let items = with_generator(&mut generator, || self.0.iter())?;
        let (epoch, collate) = (epoch.clone(), self.1.clone());
        let (taken, batches, ended) = (0, 0, false);
        Ok(Box::new(IterableJobs { items, collate, epoch, generator, batch_size, drop_last, taken, batches, ended }))
    }
}

struct IterableJobs<T, F> {
    items: Items<T>,
    collate: Arc<F>,
    epoch: draw::Epoch,
    /// The random numbers of the iterator, which continue from item to item.
    generator: Generator,
    batch_size: usize,
    drop_last: bool,
    /// The numbers of items and batches read so far.
    taken: usize,
    batches: usize,
    ended: bool,
}

impl<T: 'static, B, F: Fn(Vec<T>) -> Result<B> + Send + Sync + 'static> Jobs<B> for IterableJobs<T, F> {
    fn next(&mut self) -> Option<Job<B>> {
        let mut batch = Vec::new();
        while batch.len() < self.batch_size && !self.ended {
            // An iterator that has ended, failed or panicked is not called again.
            self.ended = true;
            let (items, generator, number) = (&mut self.items, &mut self.generator, self.taken);
            let next = in_epoch(&self.epoch, || {
                draw::begin_item(number);
                with_generator(generator, || items.next())
            });
            match next {
                Some(Ok(item)) => batch.push(item),
                Some(Err(error)) => return Some(Box::new(move || Err(draw::of_item(number, error)))),
                None => break,
            }
            (self.taken, self.ended) = (number + 1, false);
        }
        if batch.is_empty() || (self.drop_last && batch.len() < self.batch_size) {
            return None;
        }
        let (key, number, collate) = (self.epoch.key, self.batches, self.collate.clone());
        self.batches += 1;
        // Runs on the thread that has read the items, as they need not be `Send`.
        Some(Box::new(move || draw::batch(key, number, || collate(batch))))
    }
}
