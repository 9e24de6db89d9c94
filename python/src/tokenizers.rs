//! Texts as tokens, and conversations as texts: the tokenizers and chat templates of the crate.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::error::raise_as;
use crate::models;
use cotangent::Tensor;
use cotangent::data::{ChatMessage, ChatOptions, ChatTemplate, DecodeStream, Tokenizer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[pyclass(name = "_Tokenizer", module = "cotangent.data", frozen)]
struct PyTokenizer(Arc<Tokenizer>);

#[pymethods]
impl PyTokenizer {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<PyTokenizer> {
        Ok(PyTokenizer(Arc::new(py.detach(|| Tokenizer::open(path)).map_err(|error| raise_as("Tokenizer", error))?)))
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn token_id(&self, token: &str) -> Option<i64> {
        self.0.token_id(token)
    }

    fn encode(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<i64>> {
        let encode = || {
            let tokens = if special { self.0.encode_special(text) } else { self.0.encode(text) };
            tokens?.to_vec::<i64>()
        };
        py.detach(encode).map_err(|error| raise_as("encode", error))
    }

    fn decode(&self, py: Python<'_>, tokens: Vec<i64>) -> PyResult<String> {
        py.detach(|| {
            let count = tokens.len();
            self.0.decode(&Tensor::from_vec(tokens, [count])?)
        })
        .map_err(|error| raise_as("decode", error))
    }

    /// The text of tokens that come one by one.
    fn stream(&self, stop: Vec<String>) -> PyResult<PyDecodeStream> {
        let stream = self.0.clone().into_decode_stream().stop(stop).map_err(models::raise)?;
        Ok(PyDecodeStream(Mutex::new(Some(stream))))
    }
}

#[pyclass(name = "_DecodeStream", module = "cotangent.data", frozen)]
struct PyDecodeStream(Mutex<Option<DecodeStream<'static>>>);

impl PyDecodeStream {
    fn lock(&self) -> MutexGuard<'_, Option<DecodeStream<'static>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyDecodeStream {
    /// The text that is known after the next generated token, and whether a stop string has ended it.
    fn push(&self, token: i64) -> PyResult<(String, bool)> {
        match &mut *self.lock() {
            Some(stream) => Ok((stream.push(token).map_err(models::raise)?, stream.stopped_by().is_some())),
            None => Err(PyValueError::new_err("push: the text has ended")),
        }
    }

    /// The rest of the text.
    fn finish(&self) -> PyResult<String> {
        let stream = self.lock().take();
        stream.map_or(Ok(String::new()), |stream| stream.finish().map_err(models::raise))
    }
}

/// The variables of a template. Messages and values are JSON.
#[derive(FromPyObject)]
struct Conversation {
    #[pyo3(item)]
    messages: Vec<String>,
    #[pyo3(item)]
    tools: Option<String>,
    #[pyo3(item)]
    documents: Option<String>,
    #[pyo3(item)]
    template: Option<String>,
    #[pyo3(item)]
    add_generation_prompt: bool,
    #[pyo3(item)]
    continue_final_message: bool,
    #[pyo3(item)]
    variables: Vec<(String, String)>,
}

#[pyclass(name = "_ChatTemplate", module = "cotangent.data", frozen)]
struct PyChatTemplate(ChatTemplate);

#[pymethods]
impl PyChatTemplate {
    #[new]
    fn new(template: &str) -> PyResult<PyChatTemplate> {
        ChatTemplate::new(template).map(PyChatTemplate).map_err(|error| raise_as("ChatTemplate", error))
    }

    /// Reads the template of a model's folder.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<PyChatTemplate> {
        let opened = py.detach(|| ChatTemplate::open(folder));
        opened.map(PyChatTemplate).map_err(|error| raise_as("ChatTemplate.open", error))
    }

    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_string).collect()
    }

    fn special_token(&self, name: &str) -> Option<String> {
        self.0.special_token(name).map(str::to_string)
    }

    fn render(&self, py: Python<'_>, given: Conversation) -> PyResult<String> {
        let render = || {
            let messages = given.messages.iter().map(|message| ChatMessage::from_json(message));
            let messages = messages.collect::<cotangent::Result<Vec<_>>>()?;
            let mut options = ChatOptions::new()
                .add_generation_prompt(given.add_generation_prompt)
                .continue_final_message(given.continue_final_message);
            if let Some(name) = given.template {
                options = options.template(name);
            }
            if let Some(tools) = given.tools {
                options = options.tools(&tools)?;
            }
            if let Some(documents) = given.documents {
                options = options.documents(&documents)?;
            }
            for (name, value) in given.variables {
                options = options.variable(name, &value)?;
            }
            self.0.render_with(&messages, options)
        };
        py.detach(render).map_err(|error| raise_as("render", error))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTokenizer>()?;
    module.add_class::<PyDecodeStream>()?;
    module.add_class::<PyChatTemplate>()
}
