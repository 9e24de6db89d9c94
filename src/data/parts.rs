//! Subsets, random splits and concatenation.

use super::{Collate, Dataset, draw};
use crate::error::{bail, err, named};
use crate::{Generator, Result};
use std::sync::Arc;

/// Some of the items of a dataset, returned by [`Dataset::subset`] and [`random_split`].
///
/// ```
/// use cotangent::data::{Dataset, Subset};
/// let some: Subset<Vec<i64>> = vec![10, 20, 30].subset([2, 1])?;
/// assert_eq!((some.indices(), some.get_item(1)?), (&[2, 1][..], 20));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Subset<D> {
    dataset: Arc<D>,
    indices: Arc<[usize]>,
}

impl<D> Clone for Subset<D> {
    fn clone(&self) -> Self {
        Subset { dataset: self.dataset.clone(), indices: self.indices.clone() }
    }
}

impl<D: Dataset> Subset<D> {
    pub(super) fn of(dataset: Arc<D>, indices: Vec<usize>) -> Result<Subset<D>> {
        let len = dataset.len();
        if let Some(index) = indices.iter().find(|&&index| index >= len) {
            bail!(Index, "subset", "index {index} is out of range for {len} items");
        }
        Ok(Subset { dataset, indices: indices.into() })
    }

    /// The indices of its items in the whole dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The whole dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    fn at(&self, index: usize) -> Result<usize> {
        let out = || err!(Index, "get_item", "index {index} is out of range for {} items", self.indices.len());
        self.indices.get(index).copied().ok_or_else(out)
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get_item(&self, index: usize) -> Result<D::Item> {
        self.dataset.get_item(self.at(index)?)
    }

    fn get_batch(&self, indices: &[usize]) -> Result<<D::Item as Collate>::Batch>
    where
        D::Item: Collate,
    {
        let indices: Vec<usize> = indices.iter().map(|&index| self.at(index)).collect::<Result<_>>()?;
        self.dataset.get_batch(&indices)
    }
}

/// Concatenates datasets. Box datasets of different types as `Box<dyn Dataset<Item = T>>`.
///
/// ```
/// use cotangent::data::{ConcatDataset, Dataset};
/// let all = ConcatDataset::new([vec![1, 2], vec![3]]);
/// assert_eq!((all.len(), all.get_item(2)?), (3, 3));
/// let boxed: [Box<dyn Dataset<Item = i32>>; 2] = [Box::new([1, 2]), Box::new(vec![3].map(|x| Ok(2 * x)))];
/// assert_eq!(ConcatDataset::new(boxed).get_item(2)?, 6);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// Concatenates the datasets in order.
    pub fn new(datasets: impl Into<Vec<D>>) -> ConcatDataset<D> {
        ConcatDataset { datasets: datasets.into() }
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.datasets.iter().map(Dataset::len).sum()
    }

    fn get_item(&self, index: usize) -> Result<D::Item> {
        let mut rest = index;
        for dataset in &self.datasets {
            if rest < dataset.len() {
                return dataset.get_item(rest);
            }
            rest -= dataset.len();
        }
        bail!(Index, "get_item", "index {index} is out of range for {} items", self.len())
    }
}

/// The size of a part: a number of items, or a share of them.
///
/// ```
/// use cotangent::data::SplitSize;
/// assert_eq!(SplitSize::from(10), SplitSize::Items(10));
/// assert_eq!(SplitSize::from(0.2), SplitSize::Share(0.2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SplitSize {
    /// A number of items.
    Items(usize),
    /// A share of all items, rounded down. Remaining items go to the first parts, one each.
    Share(f64),
}

impl From<usize> for SplitSize {
    fn from(items: usize) -> Self {
        SplitSize::Items(items)
    }
}

impl From<f64> for SplitSize {
    fn from(share: f64) -> Self {
        SplitSize::Share(share)
    }
}

/// Splits a dataset at random by `seed`. Every item is in exactly one part.
///
/// ```
/// use cotangent::data::{Dataset, random_split};
/// let [train, test] = random_split((0..100).collect::<Vec<i64>>(), [80, 20], 42)?;
/// assert_eq!((train.len(), test.len()), (80, 20));
/// let [train, valid, test] = random_split(vec![0; 105], [0.8, 0.1, 0.1], 42)?;
/// assert_eq!((train.len(), valid.len(), test.len()), (85, 10, 10));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the sizes do not add up to all items, or the shares to 1, or they are mixed.
#[track_caller]
pub fn random_split<D: Dataset, const N: usize>(
    dataset: D,
    sizes: [impl Into<SplitSize>; N],
    seed: u64,
) -> Result<[Subset<D>; N]> {
    named("random_split", split(dataset, sizes.map(Into::into), seed))
}

fn split<D: Dataset, const N: usize>(dataset: D, sizes: [SplitSize; N], seed: u64) -> Result<[Subset<D>; N]> {
    let sizes = split_sizes(dataset.len(), sizes)?;
    let mut order: Vec<usize> = (0..dataset.len()).collect();
    draw::shuffle(&mut order, &mut Generator::seed(seed));
    let dataset = Arc::new(dataset);
    let mut rest = order.as_slice();
    Ok(sizes.map(|size| {
        let (part, others) = rest.split_at(size);
        rest = others;
        Subset { dataset: dataset.clone(), indices: part.into() }
    }))
}

fn split_sizes<const N: usize>(len: usize, sizes: [SplitSize; N]) -> Result<[usize; N]> {
    const OP: &str = "random_split";
    let shares = sizes.iter().filter(|size| matches!(size, SplitSize::Share(_))).count();
    if shares != 0 && shares != N {
        bail!(Value, OP, "sizes must be all numbers of items or all shares, got {sizes:?}");
    }
    let mut items = sizes.map(|size| match size {
        SplitSize::Items(items) => items,
        SplitSize::Share(share) => (share * len as f64).floor() as usize,
    });
    if shares == 0 {
        let total = items.iter().try_fold(0_usize, |sum, &size| sum.checked_add(size));
        if total != Some(len) {
            bail!(Value, OP, "sizes must add up to the {len} items of the dataset, got {items:?}");
        }
        return Ok(items);
    }
    let total: f64 = sizes.iter().map(|size| if let SplitSize::Share(share) = size { *share } else { 0.0 }).sum();
    let proper = sizes.iter().all(|size| matches!(size, SplitSize::Share(share) if (0.0..=1.0).contains(share)));
    if !proper || (total - 1.0).abs() > 1e-6 {
        bail!(Value, OP, "shares must be in [0, 1] and add up to 1, got {sizes:?}");
    }
    // Rounding down may leave some items over.
    for at in 0..len.saturating_sub(items.iter().sum()) {
        items[at % N] += 1;
    }
    if items.iter().sum::<usize>() != len {
        bail!(Value, OP, "shares must add up to 1 for {len} items, got {sizes:?}");
    }
    Ok(items)
}
