//! Datasets, data loaders and sources of data.
//!
//! ```
//! use cotangent::data::{self, DataLoader, DataLoaderOptions};
//! let (train, test) = data::digits()?.split(360, 0)?;
//! let options = DataLoaderOptions::new().batch_size(32).shuffle(true).seed(1).num_workers(2);
//! let loader = DataLoader::new_with(train, options)?;
//! for batch in &loader {
//!     let (images, labels) = batch?;
//!     assert_eq!((images.shape()[1], images.shape()[0]), (64, labels.numel()));
//! }
//! # assert_eq!(test.len(), 360);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! A [`Dataset`] returns items by index. Tensors, tuples of tensors, `Vec`s and slices are datasets, and so are the results
//! of [`map`](Dataset::map), [`subset`](Dataset::subset), [`zip`](Dataset::zip), [`ConcatDataset`] and [`random_split`].
//! An [`IterableDataset`] returns items sequentially. A [`DataLoader`] collates the items of either into batches, by
//! [`Collate`] or by a function, in the order of a [`Sampler`], optionally with worker threads and on a device.
//!
//! | from | by |
//! | --- | --- |
//! | memory | a [`Tensor`](crate::Tensor), a tuple of them, [`TensorDataset`], a `Vec`, [`from_fn`] |
//! | CSV files | [`Csv`] |
//! | lines of JSON | [`Jsonl`] |
//! | `.npy` files | [`io::npy::load`](crate::io::npy::load): a tensor is a dataset |
//! | IDX files, gzipped or not | [`idx`], [`Mnist`] |
//! | text | [`Windows`] over [bytes](Windows::bytes), [characters](Vocabulary) or tokens |
//! | JPEG and PNG files | [`ImageFolder`], with the feature `image`, and [`transforms`] |
//! | subword tokens | [`Tokenizer`], with the feature `tokenizers` |
//! | conversations | [`ChatTemplate`], with the feature `tokenizers` |
//! | built in | [`digits`] |
//!
// Links of builds without the features.
#![cfg_attr(not(feature = "image"), doc = "[`ImageFolder`]: crate::data")]
#![cfg_attr(not(feature = "tokenizers"), doc = "[`Tokenizer`]: crate::data\n[`ChatTemplate`]: crate::data")]
#![forbid(unsafe_code)]

#[cfg(feature = "tokenizers")]
mod chat;
mod collate;
mod csv;
mod dataset;
mod digits;
mod draw;
mod files;
pub mod idx;
mod image;
mod iterable;
mod jobs;
mod jsonl;
mod loader;
mod loader_options;
mod mnist;
mod parts;
mod position;
mod sampler;
mod text;
#[cfg(feature = "tokenizers")]
mod tokenizer;
mod workers;

#[cfg(feature = "tokenizers")]
pub use chat::{ChatMessage, ChatOptions, ChatTemplate};
pub use collate::{Batch, Collate};
pub use csv::{Csv, CsvColumn, CsvOptions};
pub use dataset::{Dataset, FromFn, Map, TensorDataset, Zip, from_fn};
pub use digits::{Digits, digits};
#[cfg(feature = "image")]
pub use image::ImageFolder;
pub use image::{Image, Interpolation, transforms};
pub use iterable::{ChainDataset, Items, IterableDataset, MapItems, ShuffleBuffer};
pub use jsonl::{Jsonl, JsonlStream};
pub use loader::{DataLoader, DataLoaderIter};
pub use loader_options::DataLoaderOptions;
pub use mnist::{Mnist, Part};
pub use parts::{ConcatDataset, SplitSize, Subset, random_split};
pub use position::DataLoaderState;
pub use sampler::{
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
pub use text::{Vocabulary, Windows};
#[cfg(feature = "tokenizers")]
pub use tokenizer::{DecodeStream, Tokenizer};
