//! The saved position of a loader.

use super::DataLoader;
use crate::Result;
use crate::error::err;
use crate::io::{State, Stateful};
use crate::json::object;
use cotangent_macros::named;
use serde_json::Value;

/// The position of a [`DataLoader`](super::DataLoader), returned by [`state`](super::DataLoader::state) and taken by
/// [`restore`](super::DataLoader::restore). As text it is a line of JSON.
///
/// ```
/// use cotangent::data::{DataLoader, DataLoaderState};
/// let state = DataLoader::new(vec![1, 2, 3], 2)?.state();
/// assert_eq!(DataLoaderState::from_json(&state.to_json())?, state);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataLoaderState {
    /// The seed of the loader, which determines the order of each epoch.
    pub seed: u64,
    /// The epoch, counted from 0.
    pub epoch: usize,
    /// Batches of the epoch returned so far.
    pub position: usize,
    /// Items in a batch.
    pub batch_size: usize,
    /// Items in the dataset, if known.
    pub items: Option<usize>,
}

impl DataLoaderState {
    /// The state as JSON.
    pub fn to_json(&self) -> String {
        let DataLoaderState { seed, epoch, position, batch_size, items } = self;
        object! {"seed": seed, "epoch": epoch, "position": position, "batch_size": batch_size, "items": items}
            .to_string()
    }

    /// Parses the output of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// If the text is malformed.
    #[named("DataLoaderState::from_json")]
    pub fn from_json(text: &str) -> Result<DataLoaderState> {
        const OP: &str = "DataLoaderState::from_json";
        let value: Value = serde_json::from_str(text).map_err(|e| err!(Format, OP, "{e}"))?;
        let number = |name: &str| {
            let wrong = || err!(Format, OP, "{name:?} must be an integer ≥ 0, got {}", value[name]);
            value[name].as_u64().ok_or_else(wrong)
        };
        let size = |name: &str| {
            let number = number(name)?;
            usize::try_from(number).map_err(|_| err!(Format, OP, "{name:?} is too large: {number}"))
        };
        Ok(DataLoaderState {
            seed: number("seed")?,
            epoch: size("epoch")?,
            position: size("position")?,
            batch_size: size("batch_size")?,
            items: if value["items"].is_null() { None } else { Some(size("items")?) },
        })
    }
}

/// The position of the loader, for a [`Checkpoint`](crate::io::Checkpoint).
///
/// ```
/// use cotangent::{data::DataLoader, io::Stateful};
/// let loader = DataLoader::new(vec![1, 2, 3], 1)?;
/// let mut batches = loader.iter();
/// batches.next();
/// let mut resumed = DataLoader::new(vec![1, 2, 3], 1)?;
/// resumed.load_state(&loader.save_state()?)?;
/// assert_eq!(resumed.iter().count(), 2);
/// # Ok::<(), cotangent::Error>(())
/// ```
impl<B: Send + 'static> Stateful for DataLoader<B> {
    fn save_state(&self) -> Result<State> {
        let DataLoaderState { seed, epoch, position, batch_size, items } = self.state();
        let mut state = State::new();
        let all =
            [("epoch", Some(epoch)), ("position", Some(position)), ("batch_size", Some(batch_size)), ("items", items)];
        for (name, number) in all {
            if let Some(number) = number {
                state.set(name, number as u64);
            }
        }
        state.set("seed", seed);
        Ok(state)
    }

    #[track_caller]
    fn load_state(&mut self, state: &State) -> Result<()> {
        let items = state.get("items").map(|_| state.u64("items")).transpose()?;
        let names = ["seed", "epoch", "position", "batch_size", "items"];
        state.expect_values(if items.is_some() { &names } else { &names[..4] })?;
        let size = |number: u64| {
            usize::try_from(number).map_err(|_| err!(Format, "load_state", "numbers must fit in usize, got {number}"))
        };
        self.restore(&DataLoaderState {
            seed: state.u64("seed")?,
            epoch: size(state.u64("epoch")?)?,
            position: size(state.u64("position")?)?,
            batch_size: size(state.u64("batch_size")?)?,
            items: items.map(size).transpose()?,
        })
    }
}
