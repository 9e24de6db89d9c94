//! Reads and checks the header of a file.
#![forbid(unsafe_code)]

use super::super::load_options::printable;
use super::{LOAD, LONGEST_HEADER, METADATA, Metadata};
use crate::error::{bail, err};
use crate::json::object;
use crate::layout::checked_bytes;
use crate::memory::scratch;
use crate::order::sort_by_key;
use crate::{DType, Error, Result, Shape};
use serde_json::{json, value::RawValue};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A checked header.
pub(super) struct Header {
    /// In the order of their bytes, without gaps, up to the end of the file.
    pub entries: Vec<Entry>,
    pub metadata: Metadata,
    /// The start of the bytes of the tensors.
    pub bytes: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub name: String,
    pub shape: Shape,
    pub dtype: DType,
    /// Counted from the end of the header.
    pub start: usize,
}

impl Header {
    /// Reads and checks the header. Memory is bounded by the size of the file.
    pub fn read(file: &mut File, path: &Path) -> Result<Header> {
        let io = |source| failed(LOAD, path, source);
        let length = file.metadata().map_err(io)?.len();
        if length < 8 {
            bail!(Format, LOAD, "{}: not a safetensors file: {length} bytes are too few", path.display());
        }
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(io)?;
        let size = u64::from_le_bytes(size);
        if size > length - 8 {
            let path = path.display();
            bail!(
                Format,
                LOAD,
                "{path}: not a safetensors file: a header of {size} bytes does not fit in {length} bytes"
            );
        }
        if size > LONGEST_HEADER {
            let path = path.display();
            bail!(Format, LOAD, "{path}: header must have at most {LONGEST_HEADER} bytes, got {size}");
        }
        let mut text = scratch::filled(LOAD, 0_u8, size as usize)?;
        file.read_exact(&mut text).map_err(io)?;
        let items = serde_json::from_slice(&text);
        let mut items: BTreeMap<String, &RawValue> = items.map_err(|error| malformed(LOAD, path, &error))?;
        let metadata: Option<Metadata> = match items.remove(METADATA) {
            Some(metadata) => {
                serde_json::from_str(metadata.get()).map_err(|error| unreadable(path, METADATA, &error))?
            }
            None => None,
        };
        let entries = position(items, length - 8 - size, path)?;
        Ok(Header { entries, metadata: metadata.unwrap_or_default(), bytes: 8 + size as usize })
    }
}

/// The tensors in the order of their bytes, which must fill exactly `bytes` without gaps.
fn position(items: BTreeMap<String, &RawValue>, bytes: u64, path: &Path) -> Result<Vec<Entry>> {
    let mut infos: Vec<(String, Info)> = Vec::new();
    for (name, text) in items {
        let info = Info::read(text).map_err(|error| within(error, path, &name))?;
        infos.push((name, info));
    }
    sort_by_key(&mut infos, |(_, info)| info.offsets);
    let (mut entries, mut end) = (Vec::new(), 0);
    for (name, info) in infos {
        let (shape, dtype) = check(&info, end, bytes).map_err(|error| within(error, path, &name))?;
        entries.push(Entry { name, shape, dtype, start: end });
        end = info.offsets.1;
    }
    if end as u64 != bytes {
        let path = path.display();
        bail!(Format, LOAD, "{path}: expected {end} bytes after the header, got {bytes}");
    }
    Ok(entries)
}

/// Checks one tensor of the header, whose bytes must begin at `others`, where the tensor before ends.
fn check(info: &Info, others: usize, bytes: u64) -> Result<(Shape, DType)> {
    let (start, end) = info.offsets;
    let Some(dtype) = from_file(&info.dtype) else {
        bail!(Format, LOAD, "unknown dtype {}", printable(&info.dtype));
    };
    if start != others {
        bail!(Format, LOAD, "data_offsets must begin at {others}, where the tensor before ends, got {start}");
    }
    if end < start || end as u64 > bytes {
        bail!(Format, LOAD, "data_offsets must be in order and at most {bytes}, got {start} to {end}");
    }
    let shape = Shape::from(&info.shape);
    let taken = checked_bytes(LOAD, &shape, dtype.size())?;
    if taken != end - start {
        bail!(Format, LOAD, "expected {taken} bytes for shape {shape:?} of {dtype}, got {}", end - start);
    }
    Ok((shape, dtype))
}

/// The error for a malformed item of the header.
fn unreadable(path: &Path, name: &str, error: &serde_json::Error) -> Error {
    within(err!(Format, LOAD, "{error}"), path, name)
}

pub(super) fn malformed(op: &'static str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    err!(Format, op, "{}: {error}", path.display())
}

/// Adds the file and the tensor to a message.
pub(super) fn within(error: Error, path: &Path, name: &str) -> Error {
    error.context(format_args!("{}: {}", path.display(), printable(name)))
}

pub(super) fn failed(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::io(op, path, source)
}

/// The entry of a tensor in the header.
struct Info {
    dtype: String,
    shape: Vec<usize>,
    offsets: (usize, usize),
}

impl Info {
    fn read(text: &RawValue) -> Result<Info> {
        let wrong = |error: serde_json::Error| err!(Format, LOAD, "{error}");
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text.get()).map_err(wrong)?;
        let field = |name: &str| match fields.get(name) {
            Some(field) => Ok(field.get()),
            None => Err(err!(Format, LOAD, "missing field `{name}`")),
        };
        Ok(Info {
            dtype: serde_json::from_str(field("dtype")?).map_err(wrong)?,
            shape: serde_json::from_str(field("shape")?).map_err(wrong)?,
            offsets: serde_json::from_str(field("data_offsets")?).map_err(wrong)?,
        })
    }
}

/// The text of a header, with the tensors in the order of their bytes.
pub(super) fn text(metadata: &Metadata, entries: &[Entry]) -> String {
    let mut items = Vec::new();
    if !metadata.is_empty() {
        items.push(format!("{}:{}", json!(METADATA), json!(metadata)));
    }
    for Entry { name, shape, dtype, start } in entries {
        let end = start + shape.numel() * dtype.size();
        let info = object! {"dtype": to_file(*dtype), "shape": shape[..], "data_offsets": [start, &end]};
        items.push(format!("{}:{info}", json!(name)));
    }
    format!("{{{}}}", items.join(","))
}

/// The format's name of a dtype; none for `c128`.
pub(super) fn to_file(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "BOOL",
        DType::U8 => "U8",
        DType::U16 => "U16",
        DType::U32 => "U32",
        DType::U64 => "U64",
        DType::I8 => "I8",
        DType::I16 => "I16",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::C64 => "C64",
        DType::C128 => return None,
    })
}

fn from_file(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&own| to_file(own) == Some(name))
}
