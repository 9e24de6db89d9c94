//! Datasets, loaders and sources of data.

#[cfg(feature = "tokenizers")]
mod chat;
#[cfg(feature = "tokenizers")]
mod decode;
mod images;
mod loader;
mod order;
mod resume;
mod sources;

use cotangent::data::DataLoader;
use cotangent::{Error, Result, Tensor};

/// All batches of an epoch, as lists of numbers.
fn batches(loader: &DataLoader<Tensor>) -> Result<Vec<Vec<i64>>> {
    loader.iter().map(|batch| batch?.to_vec::<i64>()).collect()
}

/// All items of an epoch.
fn items(loader: &DataLoader<Tensor>) -> Result<Vec<i64>> {
    Ok(batches(loader)?.concat())
}

fn numbers(n: i64) -> Vec<i64> {
    (0..n).collect()
}

/// The error message, or that there was none.
fn failure<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "it succeeded".to_string(), |error: Error| error.to_string())
}

fn assert_fails_with<T>(result: Result<T>, parts: &[&str]) {
    let message = failure(result);
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}
