//! Named tensors.

use crate::error::{bail, named};
use crate::{DType, Result, Tensor};
use std::collections::HashMap;

/// Named tensors, in the order of insertion.
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
    positions: HashMap<String, usize>,
}

impl StateDict {
    /// An empty dictionary.
    ///
    /// ```
    /// assert!(cotangent::io::StateDict::new().is_empty());
    /// ```
    pub fn new() -> StateDict {
        StateDict::default()
    }

    /// Inserts a tensor under a name, and returns the one it replaces.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let mut dict = StateDict::new();
    /// assert!(dict.insert("x", Tensor::zeros([2])?).is_none());
    /// assert_eq!(dict.insert("x", Tensor::zeros([3])?).map(|old| old.numel()), Some(2));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        if let Some(&position) = self.positions.get(&name) {
            return Some(std::mem::replace(&mut self.entries[position].1, tensor));
        }
        self.positions.insert(name.clone(), self.entries.len());
        self.entries.push((name, tensor));
        None
    }

    /// Removes and returns a tensor.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let mut dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// assert!(dict.remove("x").is_some() && dict.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        let position = self.positions.remove(name)?;
        self.positions.values_mut().filter(|other| **other > position).for_each(|other| *other -= 1);
        Some(self.entries.remove(position).1)
    }

    /// The tensor under a name.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// assert!(dict.get("x").is_some() && dict.get("y").is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.positions.get(name).map(|&position| &self.entries[position].1)
    }

    /// The tensor under a name, mutable.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let mut dict: StateDict = [("weight", Tensor::ones([2])?)].into_iter().collect();
    /// if let Some(weight) = dict.get_mut("weight") {
    ///     weight.mul_(3.0)?;
    /// }
    /// assert_eq!(dict.get("weight").map(|t| t.to_vec::<f32>()).transpose()?, Some(vec![3.0, 3.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.positions.get(name).map(|&position| &mut self.entries[position].1)
    }

    /// Renames a tensor. It keeps its position in the order.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let mut dict: StateDict = [("fc.weight", Tensor::ones([2])?), ("fc.bias", Tensor::ones([1])?)].into_iter().collect();
    /// dict.rename("fc.weight", "head.weight")?;
    /// assert_eq!(dict.names().collect::<Vec<_>>(), ["head.weight", "fc.bias"]);
    /// assert!(dict.rename("head.weight", "fc.bias").is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such name, or another tensor has the new name; nothing is changed then.
    #[track_caller]
    pub fn rename(&mut self, from: &str, to: impl Into<String>) -> Result<()> {
        const OP: &str = "StateDict::rename";
        let to = to.into();
        let mut rename = || {
            let Some(&position) = self.positions.get(from) else {
                bail!(Value, OP, "no tensor named {from}");
            };
            match self.positions.get(&to) {
                Some(&other) if other != position => {
                    bail!(Value, OP, "cannot rename {from} to {to}: there is a tensor of that name")
                }
                _ => {}
            }
            self.positions.remove(from);
            self.positions.insert(to.clone(), position);
            self.entries[position].0.clone_from(&to);
            Ok(())
        };
        named(OP, rename())
    }

    /// Casts the floating-point tensors; others are unchanged.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, io::StateDict, tensor};
    /// let dict: StateDict = [("weight", Tensor::ones([2])?), ("steps", tensor!(7)?)].into_iter().collect();
    /// let half = dict.to_dtype(DType::BF16)?;
    /// assert_eq!(half.iter().map(|(_, t)| t.dtype()).collect::<Vec<_>>(), [DType::BF16, DType::I64]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not floating point, or memory runs out.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<StateDict> {
        const OP: &str = "StateDict::to_dtype";
        let cast = || {
            if !dtype.is_float() {
                bail!(DType, OP, "dtype must be floating point, got {dtype}");
            }
            let mut dict = StateDict::new();
            for (name, tensor) in self.iter() {
                let tensor = if tensor.dtype().is_float() { tensor.to_dtype(dtype) } else { Ok(tensor.clone()) };
                dict.insert(name, tensor.map_err(|error| error.context(name))?);
            }
            Ok(dict)
        };
        named(OP, cast())
    }

    /// The names.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let dict = StateDict::from_iter([("b", Tensor::zeros([2])?), ("a", Tensor::zeros([3])?)]);
    /// assert_eq!(dict.names().collect::<Vec<_>>(), ["b", "a"]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// The names and tensors.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// for (name, tensor) in dict.iter() {
    ///     println!("{name}: {:?}", tensor.shape());
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The number of names.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// assert_eq!(dict.len(), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// assert!(!dict.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
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
