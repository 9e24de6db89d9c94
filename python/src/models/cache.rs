//! The keys and values of tokens, which a call borrows.

use super::{Shell, Stamp, Valued, lock};
use crate::error::OrRaise;
use cotangent::Result;
use cotangent::models::KeyValueCache;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, Weak};

/// A cache, and the tokens that it has.
#[derive(Clone)]
pub struct Kept {
    pub cache: KeyValueCache,
    pub rows: Vec<Vec<i64>>,
    pub model: Weak<Shell>,
    pub stamp: Stamp,
}

impl Kept {
    /// Whether the parameters have not changed since.
    pub fn is_of(&self, model: &Valued) -> bool {
        self.stamp == model.stamp
    }

    pub fn extend(&mut self, rows: &[Vec<i64>]) {
        self.rows.resize(rows.len(), Vec::new());
        for (own, more) in self.rows.iter_mut().zip(rows) {
            own.extend(more);
        }
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.cache.truncate(len)?;
        self.rows.iter_mut().for_each(|row| row.truncate(len));
        if len == 0 {
            // Another number of sequences may follow, of another model.
            *self = Kept::empty(self.cache.capacity());
        }
        Ok(())
    }

    pub fn empty(capacity: Option<usize>) -> Kept {
        let cache = capacity.map_or_else(KeyValueCache::new, KeyValueCache::with_capacity);
        Kept { cache, rows: Vec::new(), model: Weak::new(), stamp: Stamp::new() }
    }

    /// Makes a cache usable that an error may have left in the middle of a step: without the last token that it counts.
    pub fn repair(&mut self) {
        let len = self.cache.len().saturating_sub(1);
        if len == 0 || self.cache.truncate(len).is_err() {
            *self = Kept::empty(self.cache.capacity());
        } else {
            self.rows.iter_mut().for_each(|row| row.truncate(len));
        }
    }
}

/// The keys and values of tokens that a model has seen, so that they are not computed again.
///
/// ``generate(.., cache=cache)`` finds the tokens that its prompt shares with the cache, removes the others, and keeps what the
/// model sees. ``model.forward(tokens, cache)`` computes tokens that follow those of the cache. With a capacity the memory is
/// allocated once, and more tokens are an error; otherwise it doubles.
#[pyclass(name = "KeyValueCache", module = "cotangent.models", frozen)]
pub struct PyCache {
    /// None while a generation uses it.
    pub kept: Mutex<Option<Kept>>,
    capacity: Option<usize>,
}

impl PyCache {
    fn with<T>(&self, op: &str, f: impl FnOnce(&mut Kept) -> Result<T>) -> PyResult<T> {
        match &mut *lock(&self.kept) {
            Some(kept) => f(kept).or_raise(),
            None => Err(in_use(op)),
        }
    }
}

fn in_use(op: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{op}: cache is in use by another call or generator: close it first"))
}

#[pymethods]
impl PyCache {
    #[new]
    #[pyo3(signature = (capacity=None))]
    fn new(capacity: Option<usize>) -> PyCache {
        PyCache { kept: Mutex::new(Some(Kept::empty(capacity))), capacity }
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with("len", |kept| Ok(kept.cache.len()))
    }

    /// The greatest number of tokens, or None.
    #[getter]
    fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    /// The tokens, a list for each sequence.
    #[getter]
    fn tokens(&self) -> PyResult<Vec<Vec<i64>>> {
        self.with("tokens", |kept| Ok(kept.rows.clone()))
    }

    /// Removes all tokens but the first ``length``.
    fn truncate(&self, length: usize) -> PyResult<()> {
        self.with("truncate", |kept| kept.truncate(length))
    }

    /// A cache with the same tokens. The two share memory until one of them gets more.
    fn copy(&self) -> PyResult<PyCache> {
        let kept = self.with("copy", |kept| Ok(kept.clone()))?;
        Ok(PyCache { kept: Mutex::new(Some(kept)), capacity: self.capacity })
    }

    fn __copy__(&self) -> PyResult<PyCache> {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyResult<PyCache> {
        self.copy()
    }

    fn __repr__(&self) -> String {
        match &*lock(&self.kept) {
            Some(kept) => format!("KeyValueCache({} tokens)", kept.cache.len()),
            None => "KeyValueCache(in use)".to_string(),
        }
    }
}

/// What a call has taken out of a cache, and puts back when it is dropped.
pub struct Taken {
    pub kept: Kept,
    pub of: Py<PyCache>,
    pub gives_back: bool,
}

impl Taken {
    pub fn from(cache: &Bound<'_, PyCache>, op: &str, model: &Valued) -> PyResult<Taken> {
        let mut place = lock(&cache.get().kept);
        let Some(mut kept) = place.take() else { return Err(in_use(op)) };
        if kept.cache.is_empty() {
            kept.model = Arc::downgrade(&model.shell);
            kept.stamp.clone_from(&model.stamp);
        } else if !std::ptr::eq(kept.model.as_ptr(), Arc::as_ptr(&model.shell)) {
            *place = Some(kept);
            return Err(PyValueError::new_err(format!("{op}: cache must be that of this model, got one of another")));
        }
        Ok(Taken { kept, of: cache.clone().unbind(), gives_back: true })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.gives_back {
            return;
        }
        let empty = Kept::empty(None);
        *lock(&self.of.get().kept) = Some(std::mem::replace(&mut self.kept, empty));
    }
}
