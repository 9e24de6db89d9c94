//! GGUF files, the format of llama.cpp: metadata, and tensors that are mostly quantised.
//!
//! Tensors of `F32`, `F16`, `BF16`, `F64` and integers are loaded as they are; those of `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0` and
//! `Q2_K` to `Q6_K` are dequantised to `f32`. [`Reader::quantized`] reads these as they are. Shapes are row-major: the
//! contiguous dimension is the last.
//!
//! [`load`] returns a dictionary: [from a file into a model](super#from-a-file-into-a-model). The names are those of llama.cpp.
//!
//! ```no_run
//! use cotangent::io::{Value, gguf};
//! let file = gguf::open("model.gguf")?;
//! println!("{:?}", file.metadata().get("general.architecture").and_then(Value::as_str));
//! let embedding = file.tensor("token_embd.weight")?;
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod header;
mod quantized;

use super::load_options::printable;
use super::{LoadOptions, StateDict, Value};
use crate::error::{bail, err, named};
use crate::io::bytes;
use crate::memory::scratch;
use crate::quantized::QuantizedTensor;
use crate::{DType, Error, Result, Shape, Tensor};
use header::{Entry, Header};
use quantized::Form;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const LOAD: &str = "gguf::load";

/// Opens a file and reads its metadata. Tensors are read on request.
///
/// ```
/// use cotangent::io::{Value, gguf};
/// # let path = "tests/fixtures/io/quantized.gguf";
/// let file = gguf::open(path)?;
/// assert_eq!(file.metadata().get("general.architecture").and_then(Value::as_str), Some("llama"));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is broken, or is of version 1 or for big-endian machines.
#[track_caller]
pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
    named("gguf::open", Reader::new(path.as_ref()))
}

/// Loads all tensors of a file.
///
/// ```
/// use cotangent::io::gguf;
/// # let path = "tests/fixtures/io/quantized.gguf";
/// let dict = gguf::load(path)?;
/// assert_eq!(dict.get("Q4_K").map(|x| x.shape().to_vec()), Some(vec![2, 512]));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`open`]; also if the quantisation of a tensor is not supported.
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    named(LOAD, Reader::new(path.as_ref()).and_then(|reader| reader.read(&LoadOptions::new())))
}

/// As [`load`], with options: only some names, other names, another dtype, another device.
///
/// ```
/// use cotangent::{DType, io::{LoadOptions, gguf}};
/// # let path = "tests/fixtures/io/quantized.gguf";
/// let dict = gguf::load_with(path, LoadOptions::new().names(["Q4_K"]).dtype(DType::BF16))?;
/// assert_eq!(dict.get("Q4_K").map(|x| x.dtype()), Some(DType::BF16));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`load`]; also if a requested name is missing, or renaming gives two tensors one name.
#[track_caller]
pub fn load_with(path: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<StateDict> {
    named("gguf::load_with", Reader::new(path.as_ref()).and_then(|reader| reader.read(&options.into())))
}

/// An open file, returned by [`open`]: its metadata and the list of its tensors, which are read on request.
///
/// ```
/// use cotangent::{DType, io::gguf};
/// # let path = "tests/fixtures/io/quantized.gguf";
/// let file = gguf::open(path)?;
/// for name in file.names() {
///     println!("{name}: {:?} of {:?}", file.form(name), file.shape(name));
/// }
/// assert_eq!(file.tensor("Q4_K")?.dtype(), DType::F32);
/// assert_eq!(file.load(DType::F16)?.len(), file.names().count());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: Mutex<File>,
    header: Header,
    positions: HashMap<String, usize>,
}

impl Reader {
    fn new(path: &Path) -> Result<Reader> {
        let io = |source| Error::io(LOAD, path, source);
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let header = Header::read(&mut file, length).map_err(|error| error.context(path.display()))?;
        let positions = header.entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        Ok(Reader { path: path.to_path_buf(), file: Mutex::new(file), header, positions })
    }

    /// The metadata, a map with names such as `general.architecture`.
    pub fn metadata(&self) -> &Value {
        &self.header.metadata
    }

    /// The names of the tensors, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|entry| &entry.shape[..])
    }

    /// The storage type of a tensor, by llama.cpp's name: `F16`, `Q4_K`.
    pub fn form(&self, name: &str) -> Option<&'static str> {
        self.entry(name).map(|entry| entry.form.name())
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.positions.get(name).map(|&position| &self.header.entries[position])
    }

    /// Reads one tensor.
    ///
    /// # Errors
    /// If there is no tensor of that name, or the file cannot be read.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        const OP: &str = "Reader::tensor";
        named(
            OP,
            self.entry(name).ok_or_else(|| err!(Value, OP, "no tensor named {name}")).and_then(|e| self.read_entry(e)),
        )
    }

    /// Reads one quantised tensor as it is in the file.
    ///
    /// ```
    /// use cotangent::{io::gguf, nn::QuantFormat};
    /// # let path = "tests/fixtures/io/quantized.gguf";
    /// let weight = gguf::open(path)?.quantized("Q4_K")?;
    /// assert_eq!((weight.format(), weight.shape()), (QuantFormat::Q4K, [2, 512]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no tensor of that name, it is not quantised or no matrix, or the file cannot be read.
    #[track_caller]
    pub fn quantized(&self, name: &str) -> Result<QuantizedTensor> {
        const OP: &str = "Reader::quantized";
        let read = || {
            let entry = self.entry(name).ok_or_else(|| err!(Value, OP, "no tensor named {name}"))?;
            let (Form::Blocks(format), &[outputs, inputs]) = (entry.form, &entry.shape[..]) else {
                let (form, shape) = (entry.form.name(), &entry.shape);
                bail!(Value, OP, "{} must be a quantised matrix, got {form} of shape {shape:?}", printable(name));
            };
            let shape = [outputs, format.row_bytes(inputs)?].into();
            QuantizedTensor::from_blocks(&self.read_bytes(entry, shape, DType::U8)?, format)
        };
        named(OP, read())
    }

    /// The bytes of a tensor as they are, as elements of a dtype.
    fn read_bytes(&self, entry: &Entry, shape: Shape, dtype: DType) -> Result<Tensor> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let io = |source| Error::io(LOAD, &self.path, source);
        file.seek(SeekFrom::Start(entry.start)).map_err(io)?;
        bytes::from_bytes(LOAD, shape, dtype, |to| file.read_exact(to).map_err(io))
    }

    /// Reads tensors sequentially.
    ///
    /// # Errors
    /// If a requested name is missing, renaming gives two tensors one name, or the file cannot be read.
    #[track_caller]
    pub fn load(&self, options: impl Into<LoadOptions>) -> Result<StateDict> {
        named("Reader::load", self.read(&options.into()))
    }

    fn read(&self, options: &LoadOptions) -> Result<StateDict> {
        let mut dict = StateDict::new();
        for (name, new) in options.choose(LOAD, self.names())? {
            let Some(entry) = self.entry(name) else { continue };
            dict.insert(new, self.read_entry(entry).and_then(|tensor| options.finish(tensor))?);
        }
        Ok(dict)
    }

    fn read_entry(&self, entry: &Entry) -> Result<Tensor> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let io = |source| Error::io(LOAD, &self.path, source);
        file.seek(SeekFrom::Start(entry.start)).map_err(io)?;
        let tensor = bytes::from_bytes(LOAD, entry.shape.clone(), entry.form.dtype(), |to| match entry.form {
            Form::Plain(..) => file.read_exact(to).map_err(io),
            Form::Blocks(format) => {
                // Some hundred kilobytes of blocks at a time.
                let (elements, bytes) = ((1 << 10) * format.block_elements(), (1 << 10) * format.block_bytes());
                let (mut part, mut values) =
                    (scratch::filled(LOAD, 0_u8, bytes)?, scratch::filled(LOAD, 0.0, elements)?);
                for to in to.chunks_mut(elements * 4) {
                    let count = to.len() / 4;
                    let part = &mut part[..count / format.block_elements() * format.block_bytes()];
                    file.read_exact(part).map_err(io)?;
                    format.decode_row(part, &mut values[..count]);
                    for (to, value) in to.as_chunks_mut::<4>().0.iter_mut().zip(&values) {
                        *to = value.to_le_bytes();
                    }
                }
                Ok(())
            }
        });
        tensor.map_err(|error| error.context(format_args!("{}: {}", self.path.display(), printable(&entry.name))))
    }
}
