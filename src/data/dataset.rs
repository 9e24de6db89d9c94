//! Datasets: items by index.

use super::{Collate, Subset, draw};
use crate::error::{bail, err, named};
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// A dataset of items by index, which a [`DataLoader`](super::DataLoader) collates into batches.
///
/// A [`Tensor`] is a dataset of its rows, and a tuple of tensors one of tuples of rows: `(images, labels)` has items
/// `(image, label)`. `Vec`s, arrays and slices are datasets of cloned items. For other data, implement two methods:
///
/// ```
/// use cotangent::{Result, Tensor, data::{DataLoader, Dataset}};
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Item = (Tensor, i64);
///
///     fn len(&self) -> usize {
///         10
///     }
///
///     fn get_item(&self, index: usize) -> Result<(Tensor, i64)> {
///         Ok((Tensor::full([3], index as f64)?, (index * index) as i64))
///     }
/// }
///
/// for batch in &DataLoader::new(Squares, 4)? {
///     let (x, squares) = batch?;
///     println!("{:?} {squares}", x.shape());
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// Random numbers drawn in `get_item` without an explicit [`Generator`](crate::Generator) depend only on the loader's seed,
/// the epoch and the index, not on the thread.
// Not named `get`: that would shadow the method of slices on every `Vec`.
pub trait Dataset: Send + Sync {
    /// The type of an item.
    type Item;

    /// The number of items.
    fn len(&self) -> usize;

    /// The item with an index below [`len`](Self::len): Python's `__getitem__`.
    ///
    /// # Errors
    /// Any error of the dataset. A loader passes it on with the index.
    fn get_item(&self, index: usize) -> Result<Self::Item>;

    /// A collated batch of items. Override it only to be faster than item by item, as for tensors; the result must be the
    /// same.
    ///
    /// # Errors
    /// If an item fails, or the items cannot be collated.
    fn get_batch(&self, indices: &[usize]) -> Result<<Self::Item as Collate>::Batch>
    where
        Self::Item: Collate,
    {
        Collate::collate(items(self, indices)?)
    }

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies `f` to each item. It runs each time an item is read, in the threads of the loader.
    ///
    /// ```
    /// use cotangent::data::Dataset;
    /// let doubled = vec![1, 2, 3].map(|x| Ok(2 * x));
    /// assert_eq!(doubled.get_item(2)?, 6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn map<U, F: Fn(Self::Item) -> Result<U> + Send + Sync>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
    {
        Map { dataset: self, f }
    }

    /// Pairs the items with those of another dataset.
    ///
    /// ```
    /// use cotangent::{Tensor, data::Dataset};
    /// let pairs = Tensor::arange(0, 3)?.zip(vec!["a", "b", "c"])?;
    /// assert_eq!(pairs.get_item(1)?.1, "b");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the lengths differ.
    #[track_caller]
    fn zip<D: Dataset>(self, other: D) -> Result<Zip<Self, D>>
    where
        Self: Sized,
    {
        if self.len() != other.len() {
            let message = format!("datasets must have the same length, got {} and {}", self.len(), other.len());
            return Err(Error::new(ErrorKind::Shape, "zip", message));
        }
        Ok(Zip { first: self, second: other })
    }

    /// The items at some indices, in that order.
    ///
    /// ```
    /// use cotangent::data::Dataset;
    /// let some = vec!["a", "b", "c"].subset([2, 0])?;
    /// assert_eq!((some.len(), some.get_item(0)?), (2, "c"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range.
    #[track_caller]
    fn subset(self, indices: impl Into<Vec<usize>>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        named("subset", Subset::of(Arc::new(self), indices.into()))
    }
}

/// Reads items in order, each under its own generator.
pub(super) fn items<D: Dataset + ?Sized>(dataset: &D, indices: &[usize]) -> Result<Vec<D::Item>> {
    indices.iter().map(|&index| draw::item(index, || dataset.get_item(index))).collect()
}

fn too_large(index: usize, len: usize) -> Error {
    err!(Index, "get_item", "index {index} is out of range for {len} items")
}

/// The dataset returned by [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    dataset: D,
    f: F,
}

impl<D: Dataset, U, F: Fn(D::Item) -> Result<U> + Send + Sync> Dataset for Map<D, F> {
    type Item = U;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get_item(&self, index: usize) -> Result<U> {
        (self.f)(self.dataset.get_item(index)?)
    }
}

/// A dataset of `len` items, computed by `f` from the index.
///
/// ```
/// use cotangent::{Tensor, data::{self, Dataset}};
/// let noise = data::from_fn(1000, |_| Tensor::randn([8]));
/// assert_eq!((noise.len(), noise.get_item(3)?.shape()), (1000, &[8][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn from_fn<T, F: Fn(usize) -> Result<T> + Send + Sync>(len: usize, f: F) -> FromFn<F> {
    FromFn { len, f }
}

/// The dataset returned by [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<F> {
    len: usize,
    f: F,
}

impl<T, F: Fn(usize) -> Result<T> + Send + Sync> Dataset for FromFn<F> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get_item(&self, index: usize) -> Result<T> {
        if index >= self.len {
            return Err(too_large(index, self.len));
        }
        (self.f)(index)
    }
}

impl<T: Clone + Send + Sync> Dataset for [T] {
    type Item = T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn get_item(&self, index: usize) -> Result<T> {
        <[T]>::get(self, index).cloned().ok_or_else(|| too_large(index, <[T]>::len(self)))
    }
}

macro_rules! like_slices {
    ($([$($generics:tt)*] $ty:ty;)+) => {$(
        impl<T: Clone + Send + Sync, $($generics)*> Dataset for $ty {
            type Item = T;

            fn len(&self) -> usize {
                self.as_slice().len()
            }

            fn get_item(&self, index: usize) -> Result<T> {
                self.as_slice().get_item(index)
            }
        }
    )+};
}
like_slices! {
    [] Vec<T>;
    [const N: usize] [T; N];
}

macro_rules! like_what_they_point_to {
    ($($ty:ty),+) => {$(
        impl<D: Dataset + ?Sized> Dataset for $ty {
            type Item = D::Item;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn get_item(&self, index: usize) -> Result<D::Item> {
                (**self).get_item(index)
            }

            fn get_batch(&self, indices: &[usize]) -> Result<<D::Item as Collate>::Batch>
            where
                D::Item: Collate,
            {
                (**self).get_batch(indices)
            }
        }
    )+};
}
like_what_they_point_to!(&D, Arc<D>, Box<D>);

/// The items are the rows: `x[0]`, `x[1]` and so on.
impl Dataset for Tensor {
    type Item = Tensor;

    fn len(&self) -> usize {
        // A 0-d tensor counts as one row, so that reading it is an error and not an empty epoch.
        self.shape().first().copied().unwrap_or(1)
    }

    fn get_item(&self, index: usize) -> Result<Tensor> {
        check_rows(self)?;
        if index >= Dataset::len(self) {
            return Err(too_large(index, Dataset::len(self)));
        }
        self.select(0, index as isize)
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Tensor> {
        check_rows(self)?;
        let len = Dataset::len(self);
        if let Some(&index) = indices.iter().find(|&&index| index >= len) {
            return Err(too_large(index, len));
        }
        let consecutive = indices.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        match indices.first() {
            // A view of the rows: changing the batch does not change the dataset.
            Some(&first) if consecutive => self.narrow(0, first as isize, indices.len()),
            _ => {
                let indices: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
                let count = indices.len();
                self.index_select(0, &Tensor::from_vec_with(indices, [count], self.device())?)
            }
        }
    }
}

fn check_rows(x: &Tensor) -> Result<()> {
    if x.rank() == 0 {
        bail!(Shape, "get_item", "tensor must have at least 1 dimension, got shape []");
    }
    Ok(())
}

/// Tensors with the same number of rows; an item has one row of each: PyTorch's `TensorDataset`. For a fixed number of
/// tensors a tuple is a dataset as well, whose items are tuples.
///
/// ```
/// use cotangent::{Tensor, data::{DataLoader, Dataset, TensorDataset}};
/// let dataset = TensorDataset::new([Tensor::zeros([10, 3])?, Tensor::arange(0, 10)?])?;
/// assert_eq!((dataset.len(), dataset.get_item(7)?[1].item::<i64>()?), (10, 7));
/// let (x, y) = (Tensor::zeros([10, 3])?, Tensor::arange(0, 10)?);
/// for batch in &DataLoader::new((x, y), 4)? {
///     let (x, y) = batch?;
///     assert_eq!(x.shape()[0], y.shape()[0]);
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorDataset {
    tensors: Vec<Tensor>,
}

impl TensorDataset {
    /// A dataset of the rows of `tensors`.
    ///
    /// # Errors
    /// If there are no tensors, a tensor is 0-d, or the numbers of rows differ.
    #[cotangent_macros::named("TensorDataset::new")]
    pub fn new(tensors: impl Into<Vec<Tensor>>) -> Result<TensorDataset> {
        let tensors = tensors.into();
        let Some(first) = tensors.first() else {
            bail!(Value, "TensorDataset::new", "expected at least one tensor, got none");
        };
        if tensors.iter().any(|x| x.rank() == 0 || x.shape()[0] != first.shape()[0]) {
            let shapes: Vec<_> = tensors.iter().map(Tensor::shape).collect();
            bail!(Shape, "TensorDataset::new", "tensors must have the same number of rows, got shapes {shapes:?}");
        }
        Ok(TensorDataset { tensors })
    }

    /// The tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl Dataset for TensorDataset {
    type Item = Vec<Tensor>;

    fn len(&self) -> usize {
        self.tensors.first().map_or(0, Dataset::len)
    }

    fn get_item(&self, index: usize) -> Result<Vec<Tensor>> {
        self.tensors.iter().map(|x| x.get_item(index)).collect()
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        self.tensors.iter().map(|x| x.get_batch(indices)).collect()
    }
}

macro_rules! tuples {
    ($(($($at:tt $tensor:ident),+);)+) => {$(
        /// The items are tuples of rows. If the numbers of rows differ, each item is an error.
        impl Dataset for ($($tensor,)+) {
            type Item = ($($tensor,)+);

            fn len(&self) -> usize {
                [$(Dataset::len(&self.$at)),+].into_iter().max().unwrap_or(0)
            }

            fn get_item(&self, index: usize) -> Result<Self::Item> {
                check_tuple(&[$(&self.$at),+])?;
                Ok(($(self.$at.get_item(index)?,)+))
            }

            fn get_batch(&self, indices: &[usize]) -> Result<Self::Item> {
                check_tuple(&[$(&self.$at),+])?;
                Ok(($(self.$at.get_batch(indices)?,)+))
            }
        }
    )+};
}
tuples! {
    (0 Tensor, 1 Tensor);
    (0 Tensor, 1 Tensor, 2 Tensor);
    (0 Tensor, 1 Tensor, 2 Tensor, 3 Tensor);
}

fn check_tuple(tensors: &[&Tensor]) -> Result<()> {
    if tensors.iter().any(|x| x.rank() == 0 || x.shape()[0] != tensors[0].shape()[0]) {
        let shapes: Vec<_> = tensors.iter().map(|x| x.shape()).collect();
        bail!(Shape, "get_item", "tensors must have the same number of rows, got shapes {shapes:?}");
    }
    Ok(())
}

/// The dataset returned by [`Dataset::zip`].
#[derive(Clone, Debug)]
pub struct Zip<A, B> {
    first: A,
    second: B,
}

impl<A: Dataset, B: Dataset> Dataset for Zip<A, B> {
    type Item = (A::Item, B::Item);

    fn len(&self) -> usize {
        self.first.len()
    }

    fn get_item(&self, index: usize) -> Result<Self::Item> {
        Ok((self.first.get_item(index)?, self.second.get_item(index)?))
    }
}
