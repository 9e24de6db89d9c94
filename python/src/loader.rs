//! The data loader of the crate: over tensors without the interpreter, and over Python datasets with it.
//!
//! An exception of a dataset or a collate function passes through the crate as a normal result, so that the caller gets the
//! original exception from any thread.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::args;
use crate::error::{self, OrRaise, carry};
use crate::tensor::{PyTensor, expect};
use cotangent::data::{
    self, BatchSampler, Csv, CsvOptions, DataLoader, DataLoaderIter, DataLoaderOptions, DataLoaderState, Dataset,
    Mnist, Part, Sampler, TensorDataset, Vocabulary, Windows,
};
use cotangent::{Error, ErrorKind, Generator, Result, Tensor};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Datasets of the crate.
enum Rows {
    Tensors(TensorDataset),
    Windows(Windows),
}

/// A dataset of the crate, or a subset of it.
#[pyclass(name = "_Source", module = "cotangent.data", frozen)]
struct PySource {
    rows: std::sync::Arc<Rows>,
    chosen: Option<std::sync::Arc<Vec<usize>>>,
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Rows::Tensors(all) => all.len(),
            Rows::Windows(all) => all.len(),
        }
    }
}

impl Clone for PySource {
    fn clone(&self) -> PySource {
        PySource { rows: self.rows.clone(), chosen: self.chosen.clone() }
    }
}

impl PySource {
    fn place(&self, index: usize) -> Result<usize> {
        match &self.chosen {
            None => Ok(index),
            Some(chosen) => chosen.get(index).copied().ok_or_else(|| {
                let text = format!("index {index} is out of range for {} items", chosen.len());
                Error::new(ErrorKind::Index, "get_item", text)
            }),
        }
    }
}

impl Dataset for PySource {
    type Item = Vec<Tensor>;

    fn len(&self) -> usize {
        self.chosen.as_ref().map_or_else(|| self.rows.len(), Dataset::len)
    }

    fn get_item(&self, index: usize) -> Result<Vec<Tensor>> {
        let at = self.place(index)?;
        match &*self.rows {
            Rows::Tensors(all) => all.get_item(at),
            Rows::Windows(all) => all.get_item(at).map(|(input, target)| vec![input, target]),
        }
    }

    fn get_batch(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        let places = indices.iter().map(|&index| self.place(index)).collect::<Result<Vec<_>>>()?;
        match &*self.rows {
            Rows::Tensors(all) => all.get_batch(&places),
            Rows::Windows(all) => all.get_batch(&places).map(|(input, target)| vec![input, target]),
        }
    }
}

#[pymethods]
impl PySource {
    /// The rows of tensors.
    #[staticmethod]
    fn tensors(tensors: &Bound<'_, PyAny>) -> PyResult<PySource> {
        let items = args::items(tensors).unwrap_or_default();
        let tensors = items.iter().map(|x| Ok(expect("TensorDataset", "tensors", x)?.detach()));
        let rows = TensorDataset::new(tensors.collect::<PyResult<Vec<_>>>()?).or_raise()?;
        Ok(PySource { rows: std::sync::Arc::new(Rows::Tensors(rows)), chosen: None })
    }

    /// Windows of tokens, each with the window shifted by one.
    #[staticmethod]
    fn windows(tokens: &Bound<'_, PyTensor>, length: usize, stride: usize) -> PyResult<PySource> {
        let rows = Windows::new(&tokens.get().get()?.detach(), length).and_then(|windows| windows.stride(stride));
        Ok(PySource { rows: std::sync::Arc::new(Rows::Windows(rows.or_raise()?)), chosen: None })
    }

    /// A subset of the samples.
    fn subset(&self, indices: Vec<usize>) -> PyResult<PySource> {
        let chosen = indices.iter().map(|&index| {
            let at = self.place(index).or_raise()?;
            if at < self.rows.len() {
                Ok(at)
            } else {
                let len = self.rows.len();
                Err(PyIndexError::new_err(format!("Subset: index {at} is out of range for {len} samples")))
            }
        });
        let chosen = chosen.collect::<PyResult<Vec<_>>>()?;
        Ok(PySource { rows: self.rows.clone(), chosen: Some(std::sync::Arc::new(chosen)) })
    }

    fn __len__(&self) -> usize {
        self.len()
    }

    fn item(&self, py: Python<'_>, index: usize) -> PyResult<Py<PyTuple>> {
        let made = py.detach(|| self.get_item(index)).or_raise()?;
        tuple(py, made)
    }
}

fn tuple(py: Python<'_>, tensors: Vec<Tensor>) -> PyResult<Py<PyTuple>> {
    let all = tensors.into_iter().map(|x| PyTensor::object(py, x)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, all)?.unbind())
}

type Object = PyResult<Py<PyAny>>;

/// Runs Python code, or returns an error if the interpreter is gone.
fn attached<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(PyValueError::new_err("the interpreter is shutting down")))
}

/// A Python dataset.
struct Objects {
    dataset: Py<PyAny>,
    len: usize,
}

impl Dataset for Objects {
    type Item = Object;

    fn len(&self) -> usize {
        self.len
    }

    fn get_item(&self, index: usize) -> Result<Object> {
        Ok(attached(|py| self.dataset.bind(py).get_item(index).map(Bound::unbind)))
    }
}

/// A batch by a Python collate function, or the first exception of an item.
fn collated(collate: &Py<PyAny>, items: Vec<Object>) -> Object {
    let items = items.into_iter().collect::<PyResult<Vec<_>>>()?;
    attached(|py| collate.bind(py).call1((PyList::new(py, items)?,)).map(Bound::unbind))
}

/// The items of a Python iterator. An exception ends it.
struct ObjectItems(Option<Py<PyAny>>);

impl Iterator for ObjectItems {
    type Item = Result<Object>;

    fn next(&mut self) -> Option<Result<Object>> {
        let iterator = self.0.as_ref()?;
        let step = |py: Python<'_>| match iterator.bind(py).call_method0("__next__") {
            Ok(item) => Ok(Some(item.unbind())),
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => Ok(None),
            Err(error) => Err(error),
        };
        match attached(step) {
            Ok(Some(item)) => Some(Ok(Ok(item))),
            Ok(None) => {
                self.0 = None;
                None
            }
            Err(error) => {
                self.0 = None;
                Some(Ok(Err(error)))
            }
        }
    }
}

/// The order of an epoch by a Python iterable.
struct PyOrder(Py<PyAny>);

impl PyOrder {
    fn list<T: for<'a, 'py> FromPyObject<'a, 'py>>(&self, epoch: usize) -> Result<Vec<T>> {
        let read = |py: Python<'_>| {
            let order = self.0.bind(py);
            if order.hasattr("set_epoch")? {
                order.call_method1("set_epoch", (epoch,))?;
            }
            order.try_iter()?.map(|item| item?.extract().map_err(Into::into)).collect::<PyResult<Vec<T>>>()
        };
        attached(read).map_err(carry)
    }
}

impl Sampler for PyOrder {
    fn indices(&self, _: usize, epoch: usize, _: &mut Generator) -> Result<Vec<usize>> {
        self.list(epoch)
    }

    fn count(&self, _: usize) -> Option<usize> {
        attached(|py| self.0.bind(py).len()).ok()
    }
}

impl BatchSampler for PyOrder {
    fn batches(&self, _: usize, epoch: usize, _: &mut Generator) -> Result<Vec<Vec<usize>>> {
        self.list(epoch)
    }
}

/// The crate's loader, of tensors or of objects.
enum Either<A, B> {
    Tensors(A),
    Objects(B),
}

#[pyclass(name = "_Loader", module = "cotangent.data", frozen)]
struct PyLoader(Either<DataLoader<Vec<Tensor>>, DataLoader<Object>>);

macro_rules! either {
    ($this:expr, $loader:ident => $result:expr) => {
        match &$this.0 {
            Either::Tensors($loader) => $result,
            Either::Objects($loader) => $result,
        }
    };
}

#[pymethods]
impl PyLoader {
    #[new]
    fn new(
        dataset: &Bound<'_, PyAny>,
        iterable: bool,
        collate: &Bound<'_, PyAny>,
        batch_size: usize,
        shuffle: bool,
        sampler: Option<Py<PyAny>>,
        batch_sampler: Option<Py<PyAny>>,
        num_workers: usize,
        drop_last: bool,
        prefetch_factor: Option<usize>,
        seed: Option<u64>,
    ) -> PyResult<PyLoader> {
        let mut options = DataLoaderOptions::new().seed(seed).num_workers(num_workers);
        if batch_sampler.is_none() {
            options = options.batch_size(batch_size).shuffle(shuffle).drop_last(drop_last);
        }
        if let Some(factor) = prefetch_factor {
            options = options.prefetch_factor(factor);
        }
        if let Some(sampler) = sampler {
            options = options.sampler(PyOrder(sampler));
        }
        if let Some(sampler) = batch_sampler {
            options = options.batch_sampler(PyOrder(sampler));
        }
        if let Ok(source) = dataset.cast::<PySource>() {
            return Ok(PyLoader(Either::Tensors(DataLoader::new_with(source.get().clone(), options).or_raise()?)));
        }
        let collate = collate.clone().unbind();
        let collate = move |items: Vec<Object>| Ok(collated(&collate, items));
        let object = dataset.clone().unbind();
        let made = if iterable {
            let open = move || ObjectItems::open(&object);
            DataLoader::iterable_with_collate(open, options, collate)
        } else {
            DataLoader::with_collate(Objects { len: dataset.len()?, dataset: object }, options, collate)
        };
        Ok(PyLoader(Either::Objects(made.or_raise()?)))
    }

    fn len(&self) -> Option<usize> {
        either!(self, loader => loader.len())
    }

    fn epoch(&self) -> usize {
        either!(self, loader => loader.epoch())
    }

    fn set_epoch(&self, epoch: usize) {
        either!(self, loader => loader.set_epoch(epoch));
    }

    fn state(&self) -> String {
        either!(self, loader => loader.state()).to_json()
    }

    fn restore(&self, state: &str) -> PyResult<()> {
        let state = DataLoaderState::from_json(state).or_raise()?;
        either!(self, loader => loader.restore(&state)).or_raise()
    }

    fn iter(&self, py: Python<'_>) -> PyBatches {
        error::forget();
        // Samplers run here, and may release the interpreter.
        let batches = match &self.0 {
            Either::Tensors(loader) => py.detach(|| Either::Tensors(loader.iter())),
            Either::Objects(loader) => py.detach(|| Either::Objects(loader.iter())),
        };
        PyBatches(Mutex::new(Some(batches)))
    }
}

impl ObjectItems {
    /// Begins to iterate. An exception becomes the only item.
    fn open(dataset: &Py<PyAny>) -> Box<dyn Iterator<Item = Result<Object>> + Send> {
        match attached(|py| dataset.bind(py).try_iter().map(|items| items.into_any().unbind())) {
            Ok(items) => Box::new(ObjectItems(Some(items))),
            Err(error) => Box::new(std::iter::once(Ok(Err(error)))),
        }
    }
}

/// The batches of an epoch. The workers end when it is closed or dropped.
#[pyclass(name = "_Batches", module = "cotangent.data", frozen, weakref)]
struct PyBatches(Mutex<Option<Either<DataLoaderIter<Vec<Tensor>>, DataLoaderIter<Object>>>>);

#[pymethods]
impl PyBatches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        enum Next {
            Tensors(Result<Vec<Tensor>>),
            Objects(Result<Object>),
        }
        // Workers need the interpreter while this thread waits for them.
        let next = py.detach(|| {
            let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match batches.as_mut()? {
                Either::Tensors(batches) => batches.next().map(Next::Tensors),
                Either::Objects(batches) => batches.next().map(Next::Objects),
            }
        });
        match next {
            None => {
                self.close(py);
                Ok(None)
            }
            Some(Next::Tensors(batch)) => tuple(py, batch.or_raise()?).map(|batch| Some(batch.into_any())),
            Some(Next::Objects(batch)) => batch.or_raise()?.map(Some),
        }
    }

    /// Ends the workers.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let batches = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(batches);
        });
    }
}

impl Drop for PyBatches {
    fn drop(&mut self) {
        // Closing waits for the workers, which may need the interpreter to end.
        let _ = Python::try_attach(|py| self.close(py));
    }
}

/// The images and labels of a data set in MNIST format.
#[pyfunction]
fn _mnist(py: Python<'_>, folder: PathBuf, train: bool) -> PyResult<(Py<PyTensor>, Py<PyTensor>)> {
    let part = if train { Part::Train } else { Part::Test };
    let found = py.detach(|| Mnist::load(folder, part)).or_raise()?;
    Ok((PyTensor::object(py, found.images)?, PyTensor::object(py, found.labels)?))
}

/// The tensor of an IDX file, gzipped or not.
#[pyfunction]
fn _load_idx(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyTensor>> {
    let found = py.detach(|| data::idx::load(path)).or_raise()?;
    PyTensor::object(py, found)
}

/// The images and labels of the crate's digits.
#[pyfunction]
fn _digits(py: Python<'_>) -> PyResult<(Py<PyTensor>, Py<PyTensor>)> {
    let found = py.detach(data::digits).or_raise()?;
    Ok((PyTensor::object(py, found.images)?, PyTensor::object(py, found.labels)?))
}

/// The bytes of a text as tokens.
#[pyfunction]
fn _bytes_as_tokens(py: Python<'_>, text: &[u8]) -> PyResult<Py<PyTensor>> {
    let tokens: Vec<i64> = text.iter().map(|&byte| i64::from(byte)).collect();
    let count = tokens.len();
    PyTensor::object(py, Tensor::from_vec(tokens, [count]).or_raise()?)
}

/// The distinct characters of a text, sorted. A token is the index of a character.
#[pyclass(name = "Vocabulary", module = "cotangent.data", frozen)]
struct PyVocabulary(Vocabulary);

#[pymethods]
impl PyVocabulary {
    #[new]
    fn new(text: &str) -> PyVocabulary {
        PyVocabulary(Vocabulary::of(text))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The characters, by index.
    #[getter]
    fn characters(&self) -> String {
        self.0.characters().iter().collect()
    }

    /// The indices of the characters of a text.
    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Py<PyTensor>> {
        PyTensor::object(py, self.0.encode(text).or_raise()?)
    }

    /// The text of character indices.
    fn decode(&self, tokens: &Bound<'_, PyTensor>) -> PyResult<String> {
        self.0.decode(&tokens.get().get()?).or_raise()
    }
}

/// A table from a CSV file, whose columns convert to tensors.
#[pyclass(name = "_Csv", module = "cotangent.data", frozen)]
struct PyCsv(Csv);

#[pymethods]
impl PyCsv {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        delimiter: char,
        header: bool,
        comment: Option<char>,
        missing: Option<Vec<String>>,
    ) -> PyResult<PyCsv> {
        let byte = |name: &str, c: char| {
            u8::try_from(c)
                .map_err(|_| PyValueError::new_err(format!("Csv: {name} must be an ASCII character, got {c:?}")))
        };
        let mut options = CsvOptions::new().delimiter(byte("delimiter", delimiter)?).header(header);
        if let Some(comment) = comment {
            options = options.comment(byte("comment", comment)?);
        }
        if let Some(missing) = missing {
            options = options.missing(missing);
        }
        Ok(PyCsv(py.detach(|| Csv::open_with(path, options)).or_raise()?))
    }

    fn names(&self) -> Vec<String> {
        self.0.names().to_vec()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn numbers(&self, py: Python<'_>, columns: Vec<Column>) -> PyResult<Py<PyTensor>> {
        let found = match columns.iter().map(Column::name).collect::<Option<Vec<&str>>>() {
            Some(names) => self.0.numbers(names),
            None => self.0.numbers(self.places(&columns)?),
        };
        PyTensor::object(py, found.or_raise()?)
    }

    fn integers(&self, py: Python<'_>, column: Column) -> PyResult<Py<PyTensor>> {
        let found = match &column {
            Column::Name(name) => self.0.integers(name.as_str()),
            Column::Place(at) => self.0.integers(*at),
        };
        PyTensor::object(py, found.or_raise()?)
    }

    fn categories(&self, py: Python<'_>, column: Column) -> PyResult<(Py<PyTensor>, Vec<String>)> {
        let found = match &column {
            Column::Name(name) => self.0.categories(name.as_str()),
            Column::Place(at) => self.0.categories(*at),
        };
        let (codes, names) = found.or_raise()?;
        Ok((PyTensor::object(py, codes)?, names))
    }

    fn column(&self, column: Column) -> PyResult<Vec<String>> {
        match &column {
            Column::Name(name) => self.0.column(name.as_str()),
            Column::Place(at) => self.0.column(*at),
        }
        .or_raise()
    }
}

impl PyCsv {
    fn places(&self, columns: &[Column]) -> PyResult<Vec<usize>> {
        let place = |column: &Column| match column {
            Column::Place(at) => Ok(*at),
            Column::Name(name) => self.0.names().iter().position(|other| other == name).ok_or_else(|| {
                PyValueError::new_err(format!("Csv: no column is named {name:?}, the names are {:?}", self.0.names()))
            }),
        };
        columns.iter().map(place).collect()
    }
}

/// A column by name or by index.
#[derive(FromPyObject)]
enum Column {
    Name(String),
    Place(usize),
}

impl Column {
    fn name(&self) -> Option<&str> {
        if let Column::Name(name) = self { Some(name) } else { None }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySource>()?;
    module.add_class::<PyLoader>()?;
    module.add_class::<PyBatches>()?;
    module.add_class::<PyVocabulary>()?;
    module.add_class::<PyCsv>()?;
    module.add_function(wrap_pyfunction!(_mnist, module)?)?;
    module.add_function(wrap_pyfunction!(_load_idx, module)?)?;
    module.add_function(wrap_pyfunction!(_digits, module)?)?;
    module.add_function(wrap_pyfunction!(_bytes_as_tokens, module)?)
}
