//! Tensors under names.

use crate::error::{bail, named};
use crate::{DType, Result, Tensor};
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
    ///
    /// ```
    /// assert!(cotangent::io::StateDict::new().is_empty());
    /// ```
    pub fn new() -> StateDict {
        StateDict::default()
    }

    /// Puts a tensor under a name, and gives back what was there.
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
        if let Some(&place) = self.places.get(&name) {
            return Some(std::mem::replace(&mut self.entries[place].1, tensor));
        }
        self.places.insert(name.clone(), self.entries.len());
        self.entries.push((name, tensor));
        None
    }

    /// Takes a tensor out.
    ///
    /// ```
    /// use cotangent::{Tensor, io::StateDict};
    /// let mut dict = StateDict::from_iter([("x", Tensor::zeros([2])?)]);
    /// assert!(dict.remove("x").is_some() && dict.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        let place = self.places.remove(name)?;
        self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        Some(self.entries.remove(place).1)
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
        self.places.get(name).map(|&place| &self.entries[place].1)
    }

    /// The tensor under a name, to be changed.
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
        self.places.get(name).map(|&place| &mut self.entries[place].1)
    }

    /// Gives a tensor another name. It keeps its place in the order.
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
    /// If there is no such name, or another tensor has the new one; nothing is changed then.
    #[track_caller]
    pub fn rename(&mut self, from: &str, to: impl Into<String>) -> Result<()> {
        const OP: &str = "StateDict::rename";
        let to = to.into();
        let mut rename = || {
            let Some(&place) = self.places.get(from) else {
                bail!(Value, OP, "there is no tensor {from}, which should become {to}");
            };
            match self.places.get(&to) {
                Some(&other) if other != place => bail!(Value, OP, "{from} cannot become {to}: there is one already"),
                _ => {}
            }
            self.places.remove(from);
            self.places.insert(to.clone(), place);
            self.entries[place].0.clone_from(&to);
            Ok(())
        };
        named(OP, rename())
    }

    /// The same with the tensors of floating point cast; others are taken over as they are.
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
    /// If the dtype is not of floating point, or memory runs out.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<StateDict> {
        const OP: &str = "StateDict::to_dtype";
        let cast = || {
            if !dtype.is_float() {
                bail!(DType, OP, "tensors of floating point are cast to a dtype of floating point, not {dtype}");
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

    /// Whether there are none.
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
