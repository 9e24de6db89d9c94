//! Tensors under names.

use crate::Tensor;
use std::collections::HashMap;

/// Tensors under names, in the order in which they were put in.
///
/// ```
/// use cotangent::{Tensor, io::StateDict};
/// let mut dict = StateDict::new();
/// dict.insert("weight", Tensor::ones([2, 3])?);
/// assert_eq!(dict.get("weight").map(|t| t.numel()), Some(6));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StateDict {
    entries: Vec<(String, Tensor)>,
    places: HashMap<String, usize>,
}

impl StateDict {
    /// An empty one.
    pub fn new() -> StateDict {
        StateDict::default()
    }

    /// Puts a tensor under a name, and gives back what was there.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        if let Some(&place) = self.places.get(&name) {
            return Some(std::mem::replace(&mut self.entries[place].1, tensor));
        }
        self.places.insert(name.clone(), self.entries.len());
        self.entries.push((name, tensor));
        None
    }

    /// Takes a tensor out.
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        let place = self.places.remove(name)?;
        self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        Some(self.entries.remove(place).1)
    }

    /// The tensor under a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.places.get(name).map(|&place| &self.entries[place].1)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// The names and tensors.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(entries: I) -> StateDict {
        let mut dict = StateDict::new();
        dict.extend(entries);
        dict
    }
}

impl<N: Into<String>> Extend<(N, Tensor)> for StateDict {
    fn extend<I: IntoIterator<Item = (N, Tensor)>>(&mut self, entries: I) {
        for (name, tensor) in entries {
            self.insert(name, tensor);
        }
    }
}

impl IntoIterator for StateDict {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}
