//! NumPy's `.npy` files: one array.
//!
//! All dtypes but `bf16`, which NumPy lacks, are written and read. Arrays in Fortran order and of big-endian numbers can be
//! read; arrays are written in row-major order. Arrays of objects, text or records are refused: nothing is unpickled.
//!
//! ```
//! use cotangent::{io::npy, tensor};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-npy-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("x.npy");
//! npy::save(&path, &tensor!([[1.0, 2.0], [3.0, 4.0]])?)?;
//! assert_eq!(npy::load(&path)?.shape(), [2, 2]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::load_options::printable;
use super::replace::replace;
use crate::error::{bail, err, named};
use crate::io::bytes;
use crate::layout::checked_bytes;
use crate::memory::scratch;
use crate::{DType, Device, Error, Result, Shape, Tensor};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

const LOAD: &str = "npy::load";
const SAVE: &str = "npy::save";
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read, more than any array of numbers needs.
const LONGEST_HEADER: usize = 1 << 16;

/// Loads an array.
///
/// ```
/// use cotangent::{io::npy, tensor};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npy-load-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("x.npy");
/// npy::save(&path, &tensor!([1, 2, 3])?)?;
/// assert_eq!(npy::load(&path)?.to_vec::<i64>()?, [1, 2, 3]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is not of this format, holds no numbers, or has trailing bytes.
#[doc(alias = "np.load")]
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let read = || {
        let file = File::open(path).map_err(|source| Error::io(LOAD, path, source))?;
        let length = file.metadata().map_err(|source| Error::io(LOAD, path, source))?.len();
        read_array(LOAD, &mut BufReader::new(file), length).map_err(|error| error.context(path.display()))
    };
    named(LOAD, read())
}

/// Saves a tensor as an array. The file at `path` is replaced atomically.
///
/// ```
/// use cotangent::{Tensor, io::npy};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-npy-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("x.npy");
/// npy::save(&path, &Tensor::ones([2, 3])?.t()?)?;
/// assert_eq!(npy::load(&path)?.shape(), [3, 2]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the tensor is of `bf16`, or the file cannot be written; the old file is then unchanged.
#[doc(alias = "np.save")]
#[track_caller]
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let write = || {
        let (header, tensor) = prepare(SAVE, tensor).map_err(|error| error.context(path.display()))?;
        let view = tensor.as_raw_view()?;
        replace(path, |file| {
            file.write_all(&header)?;
            file.write_all(bytes::as_bytes(view).unwrap_or_default())
        })
        .map_err(|source| Error::io(SAVE, path, source))
    };
    named(SAVE, write())
}

/// The header of a tensor's array, and the contiguous tensor on the CPU whose bytes follow.
pub(super) fn prepare(op: &'static str, tensor: &Tensor) -> Result<(Vec<u8>, Tensor)> {
    let tensor = tensor.detach().contiguous()?.to_device(Device::Cpu)?;
    let Some(descr) = to_file(tensor.dtype()) else {
        bail!(Format, op, "NumPy has no {}: cast to f32", tensor.dtype());
    };
    let sizes: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
    // A tuple of one element ends in a comma.
    let shape = if sizes.len() == 1 { format!("{},", sizes[0]) } else { sizes.join(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Version 1 has a length of two bytes, version 2 one of four. The elements begin at a multiple of 64.
    let long = text.len() + 64 + 10 > usize::from(u16::MAX);
    let start = MAGIC.len() + 2 + if long { 4 } else { 2 };
    let padded = (start + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', padded - start - text.len() - 1));
    text.push('\n');
    let mut header = MAGIC.to_vec();
    if long {
        header.extend([2, 0]);
        header.extend((text.len() as u32).to_le_bytes());
    } else {
        header.extend([1, 0]);
        header.extend((text.len() as u16).to_le_bytes());
    }
    header.extend(text.as_bytes());
    Ok((header, tensor))
}

/// Reads an array of exactly `length` bytes.
pub(super) fn read_array(op: &'static str, file: &mut dyn Read, length: u64) -> Result<Tensor> {
    let failed = |source: std::io::Error| err!(Format, op, "{source}");
    let mut start = [0; 10];
    if length < 10 {
        bail!(Format, op, "not a .npy file: {length} bytes are too few");
    }
    file.read_exact(&mut start).map_err(failed)?;
    if start[..6] != MAGIC[..] {
        bail!(Format, op, "not a .npy file: it does not begin with \\x93NUMPY");
    }
    let (mut taken, mut size) = (10, u64::from(u16::from_le_bytes([start[8], start[9]])));
    match start[6] {
        1 => {}
        2 | 3 if length >= 12 => {
            let mut more = [0; 2];
            file.read_exact(&mut more).map_err(failed)?;
            (taken, size) = (12, u64::from(u32::from_le_bytes([start[8], start[9], more[0], more[1]])));
        }
        version => bail!(Format, op, "version {version} of the .npy format is not supported"),
    }
    if size > length - taken || size > LONGEST_HEADER as u64 {
        bail!(Format, op, "header must fit in the file of {length} bytes and in {LONGEST_HEADER} bytes, got {size}");
    }
    let mut text = scratch::filled(op, 0_u8, size as usize)?;
    file.read_exact(&mut text).map_err(failed)?;
    let header = Header::parse(&text).map_err(|what| err!(Format, op, "header: {what}"))?;
    let (dtype, swapped) = from_file(&header.descr).map_err(|what| err!(Format, op, "{what}"))?;
    let expected = checked_bytes(op, &header.shape, dtype.size())? as u64;
    let left = length - taken - size;
    if expected != left {
        bail!(Format, op, "expected {expected} bytes for shape {:?} of {dtype}, got {left}", header.shape);
    }
    let stored: Shape = if header.fortran {
        header.shape.iter().rev().copied().collect::<Vec<_>>().into()
    } else {
        header.shape.clone()
    };
    let tensor = bytes::from_bytes(op, stored, dtype, |to| {
        file.read_exact(to).map_err(failed)?;
        if swapped {
            // Each part of a complex number is swapped.
            let width = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
            to.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        Ok(())
    })?;
    if !header.fortran || tensor.rank() < 2 {
        return Ok(tensor);
    }
    let reversed: Vec<isize> = (0..tensor.rank() as isize).rev().collect();
    tensor.permute(reversed)?.contiguous()
}

/// NumPy's name of a dtype; none for `bf16`.
fn to_file(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        DType::BF16 => return None,
    })
}

/// The dtype of a NumPy name, and whether it is big-endian.
fn from_file(descr: &str) -> Result<(DType, bool), String> {
    let (order, kind) = match descr.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => (descr.as_bytes()[0], &descr[1..]),
        _ => (b'=', descr),
    };
    let own = DType::ALL.into_iter().find(|&dtype| to_file(dtype).is_some_and(|own| &own[1..] == kind));
    match (own, kind.as_bytes().first()) {
        (Some(dtype), _) => Ok((dtype, order == b'>' && dtype.size() > 1)),
        (None, Some(b'O')) => Err("arrays of Python objects are not supported: they would be unpickled".to_string()),
        (None, Some(b'U' | b'S')) => Err(format!("arrays of text are not supported, got dtype {}", printable(descr))),
        _ => Err(format!("NumPy dtype {} is not supported", printable(descr))),
    }
}

/// The contents of a header.
struct Header {
    descr: String,
    fortran: bool,
    shape: Shape,
}

impl Header {
    /// Reads the literal of a Python dictionary with exactly these three keys.
    fn parse(text: &[u8]) -> Result<Header, String> {
        let text = std::str::from_utf8(text).map_err(|_| "not UTF-8")?;
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.take('}') {
            let key = literal.text()?;
            literal.expect(':')?;
            match key {
                "descr" if literal.peek() == Some('[') => return Err("structured arrays are not supported".to_string()),
                "descr" => descr = Some(literal.text()?.to_string()),
                "fortran_order" => fortran = Some(literal.boolean()?),
                "shape" => shape = Some(literal.sizes()?),
                other => return Err(format!("unexpected {}", printable(other))),
            }
            if !literal.take(',') && literal.peek() != Some('}') {
                return Err("expected a comma or a brace".to_string());
            }
        }
        if !literal.rest.trim().is_empty() {
            return Err(format!("unexpected {}", printable(literal.rest)));
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Header { descr, fortran, shape: shape.into() }),
            _ => Err("one of descr, fortran_order and shape is missing".to_string()),
        }
    }
}

/// The unread rest of a literal.
struct Literal<'t> {
    rest: &'t str,
}

impl<'t> Literal<'t> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(sign);
        if found {
            self.rest = &self.rest[sign.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("expected {sign} before {}", printable(self.rest))) }
    }

    /// Text between quotes, without escapes: no name of a dtype has a backslash.
    fn text(&mut self) -> Result<&'t str, String> {
        let quote = match self.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(format!("a quote is missing before {}", printable(self.rest))),
        };
        match self.rest[1..].split_once(quote) {
            Some((text, rest)) => {
                self.rest = rest;
                Ok(text)
            }
            None => Err("a quote is missing".to_string()),
        }
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(format!("expected True or False, got {}", printable(self.rest)))
    }

    /// A tuple of sizes.
    fn sizes(&mut self) -> Result<Vec<usize>, String> {
        // NumPy's limit of dimensions.
        const MOST: usize = 64;
        let mut sizes = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            self.peek();
            let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            // Python 2 wrote long integers as `3L`.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            sizes.push(
                number
                    .parse()
                    .map_err(|_| format!("expected a size, got {}", printable(&format!("{number}{rest}"))))?,
            );
            if sizes.len() > MOST {
                return Err(format!("shape must have at most {MOST} dimensions"));
            }
            if !self.take(',') && self.peek() != Some(')') {
                return Err(format!("expected a comma before {}", printable(self.rest)));
            }
        }
        Ok(sizes)
    }
}
