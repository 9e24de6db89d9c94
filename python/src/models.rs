//! Language models: loading, logits, caches, and generation step by step.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::dtype::{self, PyDType, PyDevice};
use crate::error::{self, OrRaise, raise_as};
use crate::tensor::{PyTensor, expect};
use cotangent::io::{LoadOptions, Value, gguf};
use cotangent::models::{
    CausalLm, CausalModel, GenerateOptions, Generated, Generation, GenerationStep, KeyValueCache, Llama, Speculation,
    generate_scored,
};
use cotangent::nn::Module;
use cotangent::{DType, Device, Error, ErrorKind, Result, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const OP: &str = "generate";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model whose parameters are frozen.
#[pyclass(name = "_CausalLm", module = "cotangent.models", frozen)]
struct PyCausalLm {
    model: Arc<CausalLm>,
    device: Device,
    vocab_size: usize,
    /// The options that are published with it, or why they are refused, which only a generation minds.
    published: std::result::Result<GenerateOptions, (ErrorKind, String)>,
}

/// The number of rows of the token embedding.
fn vocab_size(model: &CausalLm) -> usize {
    let parameters = model.named_parameters();
    let table = parameters.iter().find(|(name, _)| name.contains("embed_tokens") || name.contains("wte"));
    table.map_or(0, |(_, weight)| weight.quantized().map_or(weight.shape()[0], |weight| weight.shape()[0]))
}

impl PyCausalLm {
    fn new(mut model: CausalLm, published: Result<GenerateOptions>) -> Result<PyCausalLm> {
        // Python has no handles of the parameters: gradients of them would be lost.
        model.requires_grad_(false)?;
        let device = model.parameters().first().map_or(Device::Cpu, |weight| weight.device());
        let vocab_size = vocab_size(&model);
        let published = published.map_err(|error| (error.kind(), error.message()));
        Ok(PyCausalLm { model: Arc::new(model), device, vocab_size, published })
    }

    fn published(&self) -> PyResult<GenerateOptions> {
        self.published.clone().map_err(|(kind, text)| raise(Error::new(kind, OP, text)))
    }
}

#[pymethods]
impl PyCausalLm {
    /// Loads a folder with Hugging Face's files.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        folder: PathBuf,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyCausalLm> {
        let mut options = LoadOptions::new();
        if let Some(dtype) = dtype {
            options = options.dtype(dtype::extract(dtype)?);
        }
        if let Some(device) = device {
            options = options.device(dtype::device(device)?);
        }
        py.detach(|| PyCausalLm::new(CausalLm::load_with(&folder, options)?, GenerateOptions::from_folder(&folder)))
            .map_err(|error| raise_as("load", error))
    }

    /// Loads a GGUF file.
    #[staticmethod]
    fn load_gguf(py: Python<'_>, path: PathBuf, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyCausalLm> {
        let device = device.map(dtype::device).transpose()?;
        py.detach(|| {
            let mut model = CausalLm::Llama(Llama::from_gguf(&path)?);
            if let Some(device) = device {
                model.to_device(device)?;
            }
            model.eval();
            let file = gguf::open(path)?;
            let end = file.metadata().get("tokenizer.ggml.eos_token_id").and_then(Value::as_i64);
            PyCausalLm::new(model, Ok(GenerateOptions::new().end(end)))
        })
        .map_err(|error| raise_as("load", error))
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn model_type(&self) -> &'static str {
        self.model.model_type()
    }

    fn num_parameters(&self) -> usize {
        self.model.num_parameters()
    }

    /// The dtype of the weights; of quantised ones, that of the others.
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        let parameters = self.model.parameters();
        let float = parameters.iter().map(|weight| weight.dtype()).find(|dtype| dtype.is_float());
        dtype::object(py, float.unwrap_or(DType::F32))
    }

    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    /// The logits of tokens, which follow those of the cache.
    fn forward(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        cache: Option<&Bound<'_, PyCache>>,
    ) -> PyResult<Py<PyTensor>> {
        let tokens = expect("forward", "tokens", tokens)?;
        check_tokens("forward", &tokens)?;
        let Some(cache) = cache else {
            // A cache that keeps nothing.
            let logits = py.detach(|| self.model.forward_cached(&tokens, &mut KeyValueCache::default()));
            return PyTensor::result(py, logits.map_err(|error| raise_as("forward", error))?);
        };
        let mut taken = Taken::from(cache, "forward", &self.model)?;
        let logits = py.detach(|| -> Result<Tensor> {
            let rows = rows(&tokens)?;
            let logits = self.model.forward_cached(&tokens, &mut taken.kept.cache)?;
            taken.kept.extend(&rows);
            Ok(logits)
        });
        drop(taken);
        PyTensor::result(py, logits.map_err(|error| raise_as("forward", error))?)
    }
}

fn check_tokens(op: &str, tokens: &Tensor) -> PyResult<()> {
    if tokens.rank() != 2 {
        let text = format!("{op}: tokens must have shape [batch, steps], got {:?}", tokens.shape());
        return Err(PyValueError::new_err(text));
    }
    if !tokens.dtype().is_int() {
        let dtype = dtype::name(tokens.dtype());
        return Err(pyo3::exceptions::PyTypeError::new_err(format!("{op}: tokens must be integers, got {dtype}")));
    }
    Ok(())
}

/// The tokens of each sequence of `[batch, steps]`.
fn rows(tokens: &Tensor) -> Result<Vec<Vec<i64>>> {
    let steps = tokens.shape()[1];
    let all = tokens.to_dtype(DType::I64)?.to_vec::<i64>()?;
    Ok((0..tokens.shape()[0]).map(|row| all[row * steps..(row + 1) * steps].to_vec()).collect())
}

/// A cache, and the tokens that it has.
#[derive(Clone)]
struct Kept {
    cache: KeyValueCache,
    rows: Vec<Vec<i64>>,
    model: Weak<CausalLm>,
}

impl Kept {
    fn extend(&mut self, rows: &[Vec<i64>]) {
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

    fn empty(capacity: Option<usize>) -> Kept {
        let cache = capacity.map_or_else(KeyValueCache::new, KeyValueCache::with_capacity);
        Kept { cache, rows: Vec::new(), model: Weak::new() }
    }

    /// Makes a cache usable that an error may have left in the middle of a step: without the last token that it counts.
    fn repair(&mut self) {
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
struct PyCache {
    /// None while a generation uses it.
    kept: Mutex<Option<Kept>>,
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
struct Taken {
    kept: Kept,
    of: Py<PyCache>,
    gives_back: bool,
}

impl Taken {
    fn from(cache: &Bound<'_, PyCache>, op: &str, model: &Arc<CausalLm>) -> PyResult<Taken> {
        let mut place = lock(&cache.get().kept);
        let Some(mut kept) = place.take() else { return Err(in_use(op)) };
        if kept.cache.is_empty() {
            kept.model = Arc::downgrade(model);
        } else if !std::ptr::eq(kept.model.as_ptr(), Arc::as_ptr(model)) {
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

/// The options of a generation, which Python has checked for their types. Those that are None are the published ones.
#[derive(FromPyObject)]
struct Options {
    #[pyo3(item)]
    temperature: Option<f64>,
    #[pyo3(item)]
    top_k: Option<usize>,
    #[pyo3(item)]
    top_p: Option<f64>,
    #[pyo3(item)]
    min_p: Option<f64>,
    #[pyo3(item)]
    repetition_penalty: Option<f64>,
    #[pyo3(item)]
    presence_penalty: Option<f64>,
    #[pyo3(item)]
    frequency_penalty: Option<f64>,
    #[pyo3(item)]
    length_penalty: Option<f64>,
    #[pyo3(item)]
    eos_token_id: Option<Vec<i64>>,
    /// The token that ends the turn of a chat, beside those that are published.
    #[pyo3(item)]
    end_of_turn: Option<i64>,
    #[pyo3(item)]
    stop_tokens: Vec<Vec<i64>>,
    #[pyo3(item)]
    seed: Option<u64>,
    #[pyo3(item)]
    num_beams: Option<usize>,
    #[pyo3(item)]
    n: usize,
}

impl Options {
    fn over(self, mut options: GenerateOptions) -> PyResult<GenerateOptions> {
        if let Some(temperature) = self.temperature {
            options = options.temperature(temperature);
            if temperature == 0.0 {
                // The published ones are for draws.
                options = options.top_k(None::<usize>).top_p(None::<f64>).min_p(None::<f64>);
            }
        }
        // 0 and 1 turn them off.
        if let Some(k) = self.top_k {
            options = options.top_k((k > 0).then_some(k));
        }
        if let Some(p) = self.top_p {
            options = options.top_p((p != 1.0).then_some(p));
        }
        if let Some(p) = self.min_p {
            options = options.min_p((p != 0.0).then_some(p));
        }
        if let Some(penalty) = self.repetition_penalty {
            options = options.repetition_penalty(penalty);
        }
        if let Some(penalty) = self.presence_penalty {
            options = options.presence_penalty(penalty);
        }
        if let Some(penalty) = self.frequency_penalty {
            options = options.frequency_penalty(penalty);
        }
        match self.eos_token_id {
            Some(end) => options = options.end(end),
            None => {
                let mut end = options.end_tokens().tokens().to_vec();
                end.extend(self.end_of_turn.filter(|token| !end.contains(token)));
                options = options.end(end);
            }
        }
        if let Some(beams) = self.num_beams {
            if beams <= 1 {
                options = options.length_penalty(1.0);
            }
            options = options.beams(beams);
        }
        if let Some(penalty) = self.length_penalty {
            if options.num_beams() == 1 && penalty != 1.0 {
                return Err(refused(&format!(
                    "length_penalty must be 1 with num_beams=1, got {penalty}: it would have no effect"
                )));
            }
            options = options.length_penalty(penalty);
        }
        let n = self.n;
        if n > 1 && !options.is_sampling() {
            return Err(refused(&format!("temperature must be > 0 with n={n}, got 0: all texts would be equal")));
        }
        if options.num_beams() > 1 && options.is_sampling() {
            let beams = options.num_beams();
            return Err(refused(&format!("temperature must be 0 with num_beams={beams}: a beam search draws nothing")));
        }
        Ok(options.stop(self.stop_tokens).seed(self.seed).samples(n))
    }
}

fn refused(what: &str) -> PyErr {
    PyValueError::new_err(format!("{OP}: {what}"))
}

/// An error of generation, which names it. Those of the system keep their names.
pub fn raise(error: Error) -> PyErr {
    let own = error.op() == OP;
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::Io | ErrorKind::Interrupted => error::raise(error),
        _ if own => error::raise(error),
        kind => error::raise(Error::new(kind, OP, format!("{}: {}", error.op(), error.message()))),
    }
}

/// The model, which heeds signals before each pass: a small one has no long operation that does.
struct Heeding<'a>(&'a CausalLm);

impl CausalModel for Heeding<'_> {
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        error::heed()?;
        self.0.forward_cached(tokens, cache)
    }

    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        error::heed()?;
        self.0.next_logits(tokens, cache)
    }

    fn recordable_steps(&self) -> Option<usize> {
        self.0.recordable_steps()
    }
}

enum Steps {
    Alone(Box<Generation<'static, CausalLm>>),
    Drafted(Box<Speculation<'static, CausalLm, CausalLm>>),
}

impl Steps {
    fn next(&mut self) -> Option<Result<GenerationStep>> {
        match self {
            Steps::Alone(generation) => generation.next(),
            Steps::Drafted(speculation) => speculation.next(),
        }
    }
}

/// A generation that has not ended, the tokens of its sequences, and the cache that it gives back to.
struct Running {
    steps: Steps,
    rows: Vec<Vec<i64>>,
    cache: Option<(Py<PyCache>, Weak<CausalLm>)>,
}

/// A token of each sequence, and its log-probability.
type Step = (Vec<i64>, Vec<f64>);

impl Running {
    fn step(&mut self) -> Result<Option<Step>> {
        let Some(step) = self.steps.next().transpose()? else { return Ok(None) };
        let tokens = step.tokens.to_vec::<i64>()?;
        let log_probs = step.log_probs.to_dtype(DType::F64)?.to_vec::<f64>()?;
        if log_probs.iter().any(|log_prob| log_prob.is_nan()) {
            // On a GPU the crate does not wait for them.
            let text = "logits must be finite or −∞, and not all −∞, got others";
            return Err(Error::new(ErrorKind::Value, OP, text));
        }
        if self.cache.is_some() {
            self.rows.iter_mut().zip(&tokens).for_each(|(row, &token)| row.push(token));
        }
        Ok(Some((tokens, log_probs)))
    }

    fn end(self, has_failed: bool) {
        let (Steps::Alone(generation), Some((of, model))) = (self.steps, self.cache) else { return };
        let cache = generation.into_cache();
        let mut kept = Kept { rows: self.rows, model, cache };
        let len = kept.cache.len();
        kept.rows.iter_mut().for_each(|row| row.truncate(len));
        if has_failed {
            kept.repair();
        }
        *lock(&of.get().kept) = Some(kept);
    }
}

/// A generation step by step. It gives its cache back when it is closed or dropped.
#[pyclass(name = "_Generation", module = "cotangent.models", frozen)]
struct PyGeneration {
    running: Mutex<Option<Running>>,
    /// The tokens that end a sequence.
    #[pyo3(get)]
    end_tokens: Vec<i64>,
}

#[pymethods]
impl PyGeneration {
    #[new]
    fn new(
        py: Python<'_>,
        model: &Bound<'_, PyCausalLm>,
        tokens: &Bound<'_, PyTensor>,
        options: Options,
        cache: Option<&Bound<'_, PyCache>>,
        draft: Option<(Bound<'_, PyCausalLm>, usize, usize)>,
    ) -> PyResult<PyGeneration> {
        let (tokens, own) = (tokens.get().get()?.detach(), model.get());
        check_tokens(OP, &tokens)?;
        let options = options.over(own.published()?)?;
        if options.num_beams() > 1 {
            return Err(refused("num_beams must be 1 for tokens one by one"));
        }
        let end_tokens = options.end_tokens().tokens().to_vec();
        let model = own.model.clone();
        let (steps, rows, cache) = if let Some((draft, lookahead, count)) = draft {
            let draft = draft.get().model.clone();
            let begin = || Speculation::with_shared(model, draft, &tokens, count, options)?.lookahead(lookahead);
            (Steps::Drafted(Box::new(py.detach(begin).map_err(raise)?)), Vec::new(), None)
        } else if let Some(cache) = cache {
            let mut taken = Taken::from(cache, OP, &model)?;
            let (steps, rows) = py.detach(|| continued(model, &mut taken.kept, &tokens, options)).map_err(raise)?;
            // It is in use until the generation ends.
            taken.gives_back = false;
            (steps, rows, Some((taken.of.clone_ref(py), taken.kept.model.clone())))
        } else {
            let begin = || Generation::with_shared(model, KeyValueCache::new(), &tokens, options);
            (Steps::Alone(Box::new(py.detach(begin).map_err(raise)?)), Vec::new(), None)
        };
        Ok(PyGeneration { running: Mutex::new(Some(Running { steps, rows, cache })), end_tokens })
    }

    /// The next token of each sequence and its log-probability, or None at the end.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let Some(mut running) = lock(&self.running).take() else { return Ok(None) };
        let stepped = py.detach(|| running.step());
        match stepped {
            Ok(step) => {
                *lock(&self.running) = Some(running);
                Ok(step)
            }
            Err(error) => {
                running.end(true);
                Err(raise(error))
            }
        }
    }

    /// Ends the generation.
    fn close(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.end(false);
        }
    }
}

impl Drop for PyGeneration {
    fn drop(&mut self) {
        self.close();
    }
}

/// A generation after the tokens that the prompt shares with the cache. After an error the cache is as before.
fn continued(
    model: Arc<CausalLm>,
    kept: &mut Kept,
    tokens: &Tensor,
    options: GenerateOptions,
) -> Result<(Steps, Vec<Vec<i64>>)> {
    let rows = rows(tokens)?;
    if !kept.rows.is_empty() && kept.rows.len() != rows.len() {
        let (own, given) = (kept.rows.len(), rows.len());
        let text = format!("the prompt must have as many sequences as the cache, {own}, got {given}");
        return Err(Error::new(ErrorKind::Value, OP, text));
    }
    let shared = |(own, given): (&Vec<i64>, &Vec<i64>)| own.iter().zip(given).take_while(|(a, b)| a == b).count();
    // At least one token is computed.
    let most = tokens.shape()[1].saturating_sub(1);
    let common = kept.rows.iter().zip(&rows).map(shared).min().unwrap_or(0).min(most);
    let mut cache = kept.cache.clone();
    if common == 0 && !cache.is_empty() {
        cache = Kept::empty(cache.capacity()).cache;
    } else {
        cache.truncate(common)?;
    }
    let generation = Generation::with_shared(model, cache, tokens, options)?;
    Ok((Steps::Alone(Box::new(generation)), rows))
}

/// The best continuation of each prompt by a beam search, its log-probabilities, and the tokens that end it.
#[pyfunction]
fn _search(
    py: Python<'_>,
    model: &Bound<'_, PyCausalLm>,
    tokens: &Bound<'_, PyTensor>,
    count: usize,
    options: Options,
) -> PyResult<(Vec<Vec<i64>>, Vec<Vec<f64>>, Vec<i64>)> {
    let (tokens, own) = (tokens.get().get()?.detach(), model.get());
    check_tokens(OP, &tokens)?;
    let options = options.over(own.published()?)?;
    let end_tokens = options.end_tokens().tokens().to_vec();
    let search = || -> Result<(Vec<Vec<i64>>, Vec<Vec<f64>>)> {
        let Generated { tokens: all, log_probs } = generate_scored(&Heeding(&own.model), &tokens, count, options)?;
        let (batch, steps) = (all.shape()[0], tokens.shape()[1]);
        let new = all.shape()[1] - steps;
        let log_probs = log_probs.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let scores = (0..batch).map(|row| log_probs[row * new..(row + 1) * new].to_vec()).collect();
        Ok((rows(&all)?.into_iter().map(|row| row[steps..].to_vec()).collect(), scores))
    };
    let (tokens, log_probs) = py.detach(search).map_err(raise)?;
    Ok((tokens, log_probs, end_tokens))
}

/// The number of beams: the given one, or the published one.
#[pyfunction]
fn _num_beams(model: &Bound<'_, PyCausalLm>, given: Option<usize>) -> PyResult<usize> {
    match given {
        Some(beams) => Ok(beams),
        None => Ok(model.get().published()?.num_beams()),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCausalLm>()?;
    module.add_class::<PyCache>()?;
    module.add_class::<PyGeneration>()?;
    module.add_function(wrap_pyfunction!(_search, module)?)?;
    module.add_function(wrap_pyfunction!(_num_beams, module)?)
}
