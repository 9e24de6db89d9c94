//! Collation of items into batches.

use crate::error::{bail, err};
use crate::{Complex, Element, Result, Tensor};
use half::{bf16, f16};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Items that can be collated into a batch: PyTorch's `default_collate`.
///
/// | items | batch |
/// | --- | --- |
/// | [`Tensor`], all of one shape | [`Tensor`], stacked along a new first dimension |
/// | number, `bool` | 1-D [`Tensor`] of the same dtype; `i64` for `usize` and `isize` |
/// | `Vec` or array of n numbers | [`Tensor`] of shape `[batch, n]` |
/// | tuple, `Vec<Tensor>`, array of tensors, map | the same, collated element by element |
/// | `Option` | `None` if all items are `None`, `Some` batch if all are `Some` |
/// | `String`, `&str` | `Vec` of them |
///
/// Implement it for custom types. For other batches, give the loader a function:
/// [`DataLoader::with_collate`](super::DataLoader::with_collate).
///
/// ```
/// use cotangent::{Result, Tensor, data::Collate};
///
/// struct Review { words: Tensor, stars: f32 }
///
/// impl Collate for Review {
///     type Batch = (Tensor, Tensor);
///
///     fn collate(items: Vec<Review>) -> Result<(Tensor, Tensor)> {
///         Collate::collate(items.into_iter().map(|review| (review.words, review.stars)).collect::<Vec<_>>())
///     }
/// }
///
/// let items = vec![Review { words: Tensor::zeros([5])?, stars: 4.0 }, Review { words: Tensor::ones([5])?, stars: 1.0 }];
/// let (words, stars) = Collate::collate(items)?;
/// assert_eq!((words.shape(), stars.to_vec::<f32>()?), (&[2, 5][..], vec![4.0, 1.0]));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Collate: Sized {
    /// The type of the batch.
    type Batch;

    /// Collates the items in order. A loader passes at least one.
    ///
    /// # Errors
    /// If the items do not fit together.
    fn collate(items: Vec<Self>) -> Result<Self::Batch>;
}

const OP: &str = "collate";

impl Collate for Tensor {
    type Batch = Tensor;

    fn collate(items: Vec<Tensor>) -> Result<Tensor> {
        for (at, x) in items.iter().enumerate() {
            let first = &items[0];
            if (x.shape(), x.dtype()) != (first.shape(), first.dtype()) {
                bail!(
                    Shape,
                    OP,
                    "items of a batch must have the same dtype and shape: the first is {}{:?}, item {at} is {}{:?}; give \
                     the loader a collate function otherwise",
                    first.dtype(),
                    first.shape(),
                    x.dtype(),
                    x.shape()
                );
            }
        }
        Tensor::stack(&items, 0)
    }
}

/// Lists of equal length as the rows of a matrix.
fn rows<T: Element>(lists: &[impl AsRef<[T]>]) -> Result<Tensor> {
    let n = lists.first().map_or(0, |list| list.as_ref().len());
    let mut all = Vec::with_capacity(n * lists.len());
    for (at, list) in lists.iter().enumerate() {
        let list = list.as_ref();
        if list.len() != n {
            bail!(
                Shape,
                OP,
                "items of a batch must have the same length: the first has {n}, item {at} has {}",
                list.len()
            );
        }
        all.extend_from_slice(list);
    }
    Tensor::from_vec(all, [lists.len(), n])
}

macro_rules! numbers {
    ($($ty:ty),+) => {$(
        impl Collate for $ty {
            type Batch = Tensor;

            fn collate(items: Vec<Self>) -> Result<Tensor> {
                let n = items.len();
                Tensor::from_vec(items, [n])
            }
        }

        impl Collate for Vec<$ty> {
            type Batch = Tensor;

            fn collate(items: Vec<Self>) -> Result<Tensor> {
                rows::<$ty>(&items)
            }
        }

        impl<const N: usize> Collate for [$ty; N] {
            type Batch = Tensor;

            fn collate(items: Vec<Self>) -> Result<Tensor> {
                rows::<$ty>(&items)
            }
        }
    )+};
}
numbers!(f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool, Complex<f32>, Complex<f64>);

macro_rules! sizes {
    ($($ty:ty),+) => {$(
        impl Collate for $ty {
            type Batch = Tensor;

            fn collate(items: Vec<Self>) -> Result<Tensor> {
                let large = |x| err!(Value, OP, "{x} is too large for an i64");
                let items = items.into_iter().map(|x| i64::try_from(x).map_err(|_| large(x)));
                i64::collate(items.collect::<Result<_>>()?)
            }
        }
    )+};
}
sizes!(usize, isize);

macro_rules! as_they_are {
    ($($ty:ty),+) => {$(
        impl Collate for $ty {
            type Batch = Vec<$ty>;

            fn collate(items: Vec<Self>) -> Result<Vec<$ty>> {
                Ok(items)
            }
        }
    )+};
}
as_they_are!(String, &'static str, serde_json::Value);

impl Collate for () {
    type Batch = ();

    fn collate(_: Vec<()>) -> Result<()> {
        Ok(())
    }
}

/// Collates lists element by element.
fn by_place<T: Collate>(lists: Vec<Vec<T>>) -> Result<Vec<T::Batch>> {
    let n = lists.first().map_or(0, Vec::len);
    let count = lists.len();
    let mut positions: Vec<Vec<T>> = (0..n).map(|_| Vec::with_capacity(count)).collect();
    for (at, list) in lists.into_iter().enumerate() {
        if list.len() != n {
            bail!(
                Shape,
                OP,
                "items of a batch must have the same length: the first has {n}, item {at} has {}",
                list.len()
            );
        }
        positions.iter_mut().zip(list).for_each(|(position, item)| position.push(item));
    }
    positions.into_iter().map(Collate::collate).collect()
}

impl Collate for Vec<Tensor> {
    type Batch = Vec<Tensor>;

    fn collate(items: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        by_place(items)
    }
}

impl<const N: usize> Collate for [Tensor; N] {
    type Batch = [Tensor; N];

    fn collate(items: Vec<[Tensor; N]>) -> Result<[Tensor; N]> {
        let batch = by_place(items.into_iter().map(Vec::from).collect())?;
        batch.try_into().map_err(|_| err!(Value, OP, "batch must have at least one item, got none"))
    }
}

impl<T: Collate> Collate for Option<T> {
    type Batch = Option<T::Batch>;

    fn collate(items: Vec<Option<T>>) -> Result<Option<T::Batch>> {
        let count = items.len();
        let some: Vec<T> = items.into_iter().flatten().collect();
        match some.len() {
            0 => Ok(None),
            n if n == count => T::collate(some).map(Some),
            n => bail!(Value, OP, "items of a batch must be all Some or all None, got {n} Some of {count}"),
        }
    }
}

macro_rules! maps {
    ($($map:ident: $($bound:path),+;)+) => {$(
        impl<K: Clone + std::fmt::Debug $(+ $bound)+, V: Collate> Collate for $map<K, V> {
            type Batch = $map<K, V::Batch>;

            fn collate(items: Vec<Self>) -> Result<Self::Batch> {
                let mut lists: $map<K, Vec<V>> = $map::new();
                for (at, item) in items.into_iter().enumerate() {
                    if at > 0 && item.len() != lists.len() {
                        let (first, own) = (lists.len(), item.len());
                        bail!(Value, OP, "items of a batch must have the same keys: the first has {first}, item {at} has {own}");
                    }
                    for (key, value) in item {
                        match lists.get_mut(&key) {
                            Some(list) => list.push(value),
                            None if at == 0 => drop(lists.insert(key, vec![value])),
                            None => bail!(Value, OP, "items of a batch must have the same keys: item {at} has {key:?}, the first does not"),
                        }
                    }
                }
                lists.into_iter().map(|(key, list)| Ok((key, V::collate(list)?))).collect()
            }
        }
    )+};
}
maps! {
    BTreeMap: Ord;
    HashMap: Eq, Hash;
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),+);)+) => {$(
        impl<$($name: Collate),+> Collate for ($($name,)+) {
            type Batch = ($($name::Batch,)+);

            fn collate(items: Vec<Self>) -> Result<Self::Batch> {
                let count = items.len();
                let mut lists = ($(Vec::<$name>::with_capacity(count),)+);
                for item in items {
                    $(lists.$at.push(item.$at);)+
                }
                Ok(($($name::collate(lists.$at)?,)+))
            }
        }
    )+};
}
tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// A batch whose tensors a loader can move to a device: [`DataLoader::to_device`](super::DataLoader::to_device). All
/// batches of the crate's own types implement it. The size of a batch is another trait, [`train::Batch`](crate::train::Batch).
///
/// ```
/// use cotangent::{Result, Tensor, data::Batch};
///
/// struct Reviews { words: Tensor, stars: Tensor }
///
/// impl Batch for Reviews {
///     fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Reviews> {
///         Ok(Reviews { words: f(self.words)?, stars: f(self.stars)? })
///     }
/// }
/// # let batch = Reviews { words: Tensor::zeros([2, 3])?, stars: Tensor::ones([2])? };
/// # assert_eq!(batch.map_tensors(&mut |x| x.add(1))?.stars.to_vec::<f32>()?, [2.0, 2.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Batch: Sized {
    /// Applies `f` to each tensor of the batch.
    ///
    /// # Errors
    /// The errors of `f`.
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Self>;
}

impl Batch for Tensor {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(self)
    }
}

impl<T: Batch> Batch for Vec<T> {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Vec<T>> {
        self.into_iter().map(|x| x.map_tensors(f)).collect()
    }
}

impl<T: Batch, const N: usize> Batch for [T; N] {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<[T; N]> {
        let all = Vec::from(self).map_tensors(f)?;
        all.try_into().map_err(|_| err!(Value, OP, "batch must keep its {N} parts"))
    }
}

impl<T: Batch> Batch for Option<T> {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Option<T>> {
        self.map(|x| x.map_tensors(f)).transpose()
    }
}

impl<K: Ord, V: Batch> Batch for BTreeMap<K, V> {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Self> {
        self.into_iter().map(|(key, x)| Ok((key, x.map_tensors(f)?))).collect()
    }
}

impl<K: Eq + Hash, V: Batch> Batch for HashMap<K, V> {
    fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Self> {
        self.into_iter().map(|(key, x)| Ok((key, x.map_tensors(f)?))).collect()
    }
}

macro_rules! without_tensors {
    ($($ty:ty),+) => {$(
        impl Batch for $ty {
            fn map_tensors(self, _: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Self> {
                Ok(self)
            }
        }
    )+};
}
without_tensors!((), String, &'static str, bool, usize, i64, f64, serde_json::Value);

macro_rules! batch_tuples {
    ($(($($name:ident $at:tt),+);)+) => {$(
        impl<$($name: Batch),+> Batch for ($($name,)+) {
            fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Self> {
                Ok(($(self.$at.map_tensors(f)?,)+))
            }
        }
    )+};
}
batch_tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}
