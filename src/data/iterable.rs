//! Iterable datasets.

use super::draw;
use crate::Result;
use std::sync::Arc;

/// The items of an [`IterableDataset`].
pub type Items<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// A dataset that is iterated over, for items without an index or of unknown number: lines of a stream, records of many
/// files, an endless generator.
///
/// A function that returns an iterator is an iterable dataset:
///
/// ```
/// use cotangent::data::{DataLoader, IterableDataset};
/// let squares = || (0..10_i64).map(|x| Ok(x * x));
/// let loader = DataLoader::iterable(squares.map_items(|x| Ok(x + 1)), 4)?;
/// let first = loader.iter().next().transpose()?;
/// assert_eq!(first.map(|x| x.to_vec::<i64>()).transpose()?, Some(vec![1, 2, 5, 10]));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// The workers of a loader share one iterator, so each item comes once. Put slow work into the loader's collate function,
/// which the workers run in parallel.
pub trait IterableDataset: Send + Sync {
    /// The type of an item.
    type Item;

    /// The items of an epoch. Random numbers drawn here and in the iterator without an explicit
    /// [`Generator`](crate::Generator) depend only on the loader's seed and the epoch.
    ///
    /// # Errors
    /// Any error of the dataset.
    fn iter(&self) -> Result<Items<Self::Item>>;

    /// Applies `f` to each item.
    fn map_items<U: 'static, F>(self, f: F) -> MapItems<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item) -> Result<U> + Send + Sync + 'static,
    {
        MapItems { dataset: self, f: Arc::new(f) }
    }

    /// Shuffles with a buffer: each item is drawn at random from `buffer` items that were read ahead. A larger buffer
    /// shuffles better; one as large as the dataset makes all orders equally likely.
    ///
    /// ```
    /// use cotangent::data::{DataLoader, IterableDataset};
    /// let loader = DataLoader::iterable((|| (0..100_i64).map(Ok)).shuffle_buffer(100), 100)?;
    /// let mut all = loader.iter().next().transpose()?.ok_or("a batch")?.to_vec::<i64>()?;
    /// assert_ne!(all, (0..100).collect::<Vec<_>>());
    /// all.sort_unstable();
    /// assert_eq!(all, (0..100).collect::<Vec<_>>());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn shuffle_buffer(self, buffer: usize) -> ShuffleBuffer<Self>
    where
        Self: Sized,
    {
        ShuffleBuffer { dataset: self, buffer }
    }
}

impl<F, I, T> IterableDataset for F
where
    F: Fn() -> I + Send + Sync,
    I: IntoIterator<Item = Result<T>>,
    I::IntoIter: Send + 'static,
{
    type Item = T;

    fn iter(&self) -> Result<Items<T>> {
        Ok(Box::new(self().into_iter()))
    }
}

impl<D: IterableDataset + ?Sized> IterableDataset for Arc<D> {
    type Item = D::Item;

    fn iter(&self) -> Result<Items<D::Item>> {
        (**self).iter()
    }
}

impl<T> IterableDataset for Box<dyn IterableDataset<Item = T>> {
    type Item = T;

    fn iter(&self) -> Result<Items<T>> {
        (**self).iter()
    }
}

/// The dataset returned by [`IterableDataset::map_items`].
#[derive(Debug)]
pub struct MapItems<D, F> {
    dataset: D,
    f: Arc<F>,
}

impl<D, U, F> IterableDataset for MapItems<D, F>
where
    D: IterableDataset,
    D::Item: 'static,
    F: Fn(D::Item) -> Result<U> + Send + Sync + 'static,
{
    type Item = U;

    fn iter(&self) -> Result<Items<U>> {
        let f = self.f.clone();
        Ok(Box::new(self.dataset.iter()?.map(move |item| f(item?))))
    }
}

/// Concatenates iterable datasets.
///
/// ```
/// use cotangent::data::{ChainDataset, IterableDataset};
/// let all: [Box<dyn IterableDataset<Item = i64>>; 2] = [Box::new(|| [Ok(1), Ok(2)]), Box::new(|| vec![Ok(3)])];
/// let items: Vec<i64> = ChainDataset::new(all).iter()?.collect::<cotangent::Result<_>>()?;
/// assert_eq!(items, [1, 2, 3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct ChainDataset<D> {
    datasets: Arc<[D]>,
}

impl<D: IterableDataset> ChainDataset<D> {
    /// Concatenates the datasets in order.
    pub fn new(datasets: impl Into<Vec<D>>) -> ChainDataset<D> {
        ChainDataset { datasets: datasets.into().into() }
    }
}

impl<D: IterableDataset + 'static> IterableDataset for ChainDataset<D>
where
    D::Item: 'static,
{
    type Item = D::Item;

    fn iter(&self) -> Result<Items<D::Item>> {
        // A dataset is opened after the one before has ended, so that one file is open at a time.
        let datasets = self.datasets.clone();
        Ok(Box::new((0..datasets.len()).flat_map(move |at| -> Items<D::Item> {
            datasets[at].iter().unwrap_or_else(|error| Box::new(std::iter::once(error).map(Err)))
        })))
    }
}

/// The dataset returned by [`IterableDataset::shuffle_buffer`].
#[derive(Clone, Debug)]
pub struct ShuffleBuffer<D> {
    dataset: D,
    buffer: usize,
}

impl<D: IterableDataset> IterableDataset for ShuffleBuffer<D>
where
    D::Item: Send + 'static,
{
    type Item = D::Item;

    fn iter(&self) -> Result<Items<D::Item>> {
        let (mut items, size, mut held) = (self.dataset.iter()?.fuse(), self.buffer.max(1), Vec::new());
        Ok(Box::new(std::iter::from_fn(move || {
            while held.len() < size {
                match items.next() {
                    Some(Ok(item)) => held.push(item),
                    Some(Err(error)) => return Some(Err(error)),
                    None => break,
                }
            }
            (!held.is_empty()).then(|| Ok(held.swap_remove(draw::below(held.len()))))
        })))
    }
}
