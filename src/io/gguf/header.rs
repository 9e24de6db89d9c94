//! Reads and checks the metadata and the list of tensors.

use super::LOAD;
use super::quantized::Form;
use crate::error::{bail, err};
use crate::io::Value;
use crate::io::load_options::printable;
use crate::io::zip::Bytes;
use crate::layout::checked_bytes;
use crate::memory::scratch;
use crate::{Result, Shape};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;

/// The most bytes that are read for metadata and the list of tensors. A vocabulary takes some megabytes.
const LONGEST_HEADER: u64 = 1 << 28;
/// The most values of metadata, counting the elements of lists.
const MOST_VALUES: usize = 1 << 23;
/// The deepest nesting of lists.
const DEEPEST: usize = 4;

#[derive(Debug)]
pub(super) struct Header {
    pub metadata: Value,
    /// In the order of the file's list.
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub name: String,
    pub shape: Shape,
    pub form: Form,
    /// The start of its bytes in the file.
    pub start: u64,
}

impl Header {
    pub fn read(file: &mut File, length: u64) -> Result<Header> {
        let io = |source: std::io::Error| err!(Format, LOAD, "{source}");
        // The length of the header is not stored. Most are short: more is read only if needed.
        let mut bytes = Vec::new();
        for most in [1 << 20, 1 << 24, LONGEST_HEADER] {
            let more = (most.min(length) as usize).saturating_sub(bytes.len());
            let have = bytes.len();
            bytes.extend(scratch::filled(LOAD, 0_u8, more)?);
            file.read_exact(&mut bytes[have..]).map_err(io)?;
            let mut parser = Parser { bytes: Bytes { op: LOAD, rest: &bytes }, values: 0, total: bytes.len() };
            let whole = bytes.len() as u64 == length.min(LONGEST_HEADER);
            match parser.header(length) {
                // The header may continue beyond the bytes read so far.
                Err(_) if !whole => {}
                done => return done,
            }
        }
        bail!(Format, LOAD, "metadata and list of tensors must have at most {LONGEST_HEADER} bytes")
    }
}

struct Parser<'b> {
    bytes: Bytes<'b>,
    /// The number of values so far.
    values: usize,
    total: usize,
}

impl Parser<'_> {
    fn header(&mut self, length: u64) -> Result<Header> {
        if self.bytes.take(4)? != b"GGUF" {
            bail!(Format, LOAD, "not a GGUF file: it does not begin with GGUF");
        }
        match self.bytes.u32()? {
            2 | 3 => {}
            version if version.swap_bytes() <= 16 => {
                bail!(Format, LOAD, "big-endian files are not supported")
            }
            version => bail!(Format, LOAD, "version must be 2 or 3, got {version}"),
        }
        let (tensors, pairs) = (self.bytes.u64()?, self.bytes.u64()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..pairs {
            let name = self.text()?;
            let kind = self.bytes.u32()?;
            let value = self.value(kind, 0).map_err(|error| error.context(printable(&name)))?;
            if metadata.contains_key(&name) {
                bail!(Format, LOAD, "metadata has {} twice", printable(&name));
            }
            metadata.insert(name, value);
        }
        let metadata = Value::Map(metadata);
        let align = match metadata.get("general.alignment") {
            None => 32,
            Some(value) => match value.as_u64() {
                Some(align) if align.is_power_of_two() && align <= 1 << 20 => align,
                _ => bail!(
                    Format,
                    LOAD,
                    "general.alignment must be a power of 2, at most 2^20, got {}",
                    printable(&value.to_string())
                ),
            },
        };
        let mut entries = Vec::new();
        for _ in 0..tensors {
            entries.push(self.entry()?);
        }
        let start = ((self.total - self.bytes.rest.len()) as u64).next_multiple_of(align);
        position(&mut entries, start, length, align)?;
        Ok(Header { metadata, entries })
    }

    fn entry(&mut self) -> Result<Entry> {
        let name = self.text()?;
        let mut parse = || {
            let rank = self.bytes.u32()?;
            if rank > 8 {
                bail!(Format, LOAD, "rank must be at most 8, got {rank}");
            }
            let mut sizes = Vec::new();
            for _ in 0..rank {
                let size = self.bytes.u64()?;
                sizes
                    .push(usize::try_from(size).map_err(|_| err!(Format, LOAD, "size must fit in usize, got {size}"))?);
            }
            // The first size in the file is that of the contiguous dimension.
            sizes.reverse();
            let form = Form::of(self.bytes.u32()?)?;
            let start = self.bytes.u64()?;
            Ok((Shape::from(sizes), form, start))
        };
        let (shape, form, start) = parse().map_err(|error| error.context(printable(&name)))?;
        Ok(Entry { name, shape, form, start })
    }

    fn text(&mut self) -> Result<String> {
        let length = self.bytes.u64()?;
        let length = usize::try_from(length)
            .map_err(|_| err!(Format, LOAD, "length of text must fit in usize, got {length}"))?;
        // Vocabularies contain partial UTF-8 sequences.
        Ok(String::from_utf8_lossy(self.bytes.take(length)?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        self.values += 1;
        if self.values > MOST_VALUES {
            bail!(Format, LOAD, "metadata must have at most {MOST_VALUES} values");
        }
        Ok(match kind {
            0 => self.bytes.u8()?.into(),
            1 => (self.bytes.u8()? as i8).into(),
            2 => self.bytes.u16()?.into(),
            3 => (self.bytes.u16()? as i16).into(),
            4 => self.bytes.u32()?.into(),
            5 => (self.bytes.u32()? as i32).into(),
            6 => f32::from_bits(self.bytes.u32()?).into(),
            7 => match self.bytes.u8()? {
                0 => false.into(),
                1 => true.into(),
                other => bail!(Format, LOAD, "bool must be 0 or 1, got {other}"),
            },
            8 => self.text()?.into(),
            9 if depth < DEEPEST => {
                let (kind, count) = (self.bytes.u32()?, self.bytes.u64()?);
                // Every element takes at least a byte.
                if count > self.bytes.rest.len() as u64 {
                    bail!(
                        Format,
                        LOAD,
                        "list of {count} values does not fit in the {} bytes left",
                        self.bytes.rest.len()
                    );
                }
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(kind, depth + 1)?);
                }
                Value::List(values)
            }
            9 => bail!(Format, LOAD, "lists must be nested at most {DEEPEST} deep"),
            10 => self.bytes.u64()?.into(),
            11 => (self.bytes.u64()? as i64).into(),
            12 => f64::from_bits(self.bytes.u64()?).into(),
            other => bail!(Format, LOAD, "unknown type of value {other}"),
        })
    }
}

/// Turns offsets into positions in the file, and checks that tensors do not overlap.
fn position(entries: &mut [Entry], start: u64, length: u64, align: u64) -> Result<()> {
    let mut ranges = Vec::new();
    let mut names = HashSet::new();
    for (at, entry) in entries.iter_mut().enumerate() {
        let check = || {
            let bytes = entry.form.bytes_of(&entry.shape)?;
            checked_bytes(LOAD, &entry.shape, entry.form.dtype().size())?;
            let begin = start.checked_add(entry.start);
            match begin.and_then(|begin| Some((begin, begin.checked_add(bytes)?))) {
                _ if entry.start % align != 0 => {
                    bail!(Format, LOAD, "offset must be a multiple of {align}, got {}", entry.start)
                }
                Some((begin, end)) if end <= length => Ok((begin, end)),
                _ => bail!(
                    Format,
                    LOAD,
                    "{bytes} bytes at offset {} do not fit in a file of {length} bytes whose tensors begin at {start}",
                    entry.start
                ),
            }
        };
        let (begin, end) = check().map_err(|error| error.context(printable(&entry.name)))?;
        entry.start = begin;
        if !names.insert(entry.name.clone()) {
            bail!(Format, LOAD, "two tensors are named {}", printable(&entry.name));
        }
        if begin < end {
            ranges.push((begin, end, at));
        }
    }
    ranges.sort_unstable();
    if let Some(two) = ranges.windows(2).find(|two| two[0].1 > two[1].0) {
        let (first, second) = (&entries[two[0].2].name, &entries[two[1].2].name);
        bail!(Format, LOAD, "bytes of {} and {} overlap", printable(first), printable(second));
    }
    Ok(())
}
