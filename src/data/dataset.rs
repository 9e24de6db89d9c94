//! Datasets: items by index.

use super::{Collate, Subset, draw};
use crate::error::{bail, err, named};
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// Items by index: what a [`DataLoader`](super::DataLoader) makes batches of.
///
/// A [`Tensor`] is one, of its rows, and a tuple of tensors one of tuples of rows: `(images, labels)` has items
/// `(image, label)`. So are `Vec`s, arrays and slices, whose items are cloned. For others, implement two methods:
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
/// Random draws in `get_item` that name no [`Generator`](crate::Generator) follow from the loader's seed, the epoch and the
/// index alone, whatever thread calls it.
// The names are Python's with a reason: a method `get` would stand before that of slices on every `Vec`.
pub trait Dataset: Send + Sync {
    /// What an item is.
    type Item;

    /// The number of items.
    fn len(&self) -> usize;

    /// The item with an index below [`len`](Self::len): Python's `__getitem__`.
    ///
    /// # Errors
    /// Whatever is wrong with it. A loader hands the error on, with the index.
    fn get_item(&self, index: usize) -> Result<Self::Item>;

    /// A batch of items. To be written only where it can be made faster than item by item, as for tensors; the result is
    /// the same.
    ///
    /// # Errors
    /// If one of the items cannot be had, or they do not fit together.
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

    /// The dataset whose items are made of these by `f`. It is called each time an item is asked for, in the threads of the
    /// loader.
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

    /// The items of this dataset in pairs with those of another.
    ///
    /// ```
    /// use cotangent::{Tensor, data::Dataset};
    /// let pairs = Tensor::arange(0, 3)?.zip(vec!["a", "b", "c"])?;
    /// assert_eq!(pairs.get_item(1)?.1, "b");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If they do not have equally many items.
    #[track_caller]
    fn zip<D: Dataset>(self, other: D) -> Result<Zip<Self, D>>
    where
        Self: Sized,
    {
        if self.len() != other.len() {
            let message = format!("{} items make no pairs with {}", self.len(), other.len());
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
    /// If an index is too large.
    #[track_caller]
    fn subset(self, indices: impl Into<Vec<usize>>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        named("subset", Subset::of(Arc::new(self), indices.into()))
    }
}

/// Items one after the other, each under its own generator.
pub(super) fn items<D: Dataset + ?Sized>(dataset: &D, indices: &[usize]) -> Result<Vec<D::Item>> {
    indices.iter().map(|&index| draw::item(index, || dataset.get_item(index))).collect()
}

fn too_large(index: usize, len: usize) -> Error {
    err!(Index, "get_item", "index {index} is out of range for {len} items")
}

/// What [`Dataset::map`] makes.
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

/// A dataset of `len` items that `f` makes from their indices.
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

/// What [`from_fn`] makes.
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
        // A tensor without dimensions has no rows; the one that it claims to have is an error when it is asked for.
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
            // A view of the rows, which nobody can change under the dataset.
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
        bail!(Shape, "get_item", "a tensor without dimensions has no rows to make items of");
    }
    Ok(())
}

/// Tensors of equally many rows, of which an item has one each: PyTorch's `TensorDataset`. Where it is known how many
/// tensors there are, a tuple of them is a dataset as well, and its items are tuples.
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
    /// The dataset of the rows of some tensors.
    ///
    /// # Errors
    /// If there are none, one has no dimensions, or they differ in their number of rows.
    #[cotangent_macros::named("TensorDataset::new")]
    pub fn new(tensors: impl Into<Vec<Tensor>>) -> Result<TensorDataset> {
        let tensors = tensors.into();
        let Some(first) = tensors.first() else {
            bail!(Value, "TensorDataset::new", "no tensors were given");
        };
        if tensors.iter().any(|x| x.rank() == 0 || x.shape()[0] != first.shape()[0]) {
            let shapes: Vec<_> = tensors.iter().map(Tensor::shape).collect();
            bail!(Shape, "TensorDataset::new", "tensors of shapes {shapes:?} do not have equally many rows");
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
        /// The items are tuples of rows. If the tensors do not have equally many, each item is an error.
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
        bail!(Shape, "get_item", "tensors of shapes {shapes:?} do not have equally many rows");
    }
    Ok(())
}

/// What [`Dataset::zip`] makes.
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
