//! Zip archives, as far as `.npz` and `.pt` files need them: entries that are stored or deflated, and zip64. The directory is
//! not trusted.
#![forbid(unsafe_code)]

use super::load_options::printable;
use crate::error::{bail, err};
use crate::memory::scratch;
use crate::order::sort_by_key;
use crate::{Error, Result};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The longest directory that is read: some millions of entries.
const LONGEST_DIRECTORY: u64 = 1 << 28;
/// The highest compression ratio of deflate.
const GREATEST_RATIO: u64 = 1032;

const LOCAL: &[u8; 4] = b"PK\x03\x04";
const CENTRAL: &[u8; 4] = b"PK\x01\x02";
const END: &[u8; 4] = b"PK\x05\x06";
const END_64: &[u8; 4] = b"PK\x06\x06";
const LOCATOR_64: &[u8; 4] = b"PK\x06\x07";

/// An archive to read.
#[derive(Debug)]
pub(super) struct Archive<F> {
    file: F,
    /// In the order of the directory.
    pub entries: Vec<Entry>,
    positions: HashMap<String, usize>,
}

/// A file in an archive.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: String,
    /// The number of its bytes.
    pub size: u64,
    /// The number of bytes it takes in the archive.
    packed: u64,
    deflated: bool,
    checksum: u32,
    /// The start of its local header and, set by [`Archive::open`], of its bytes.
    header: u64,
    start: u64,
}

impl<F: Read + Seek> Archive<F> {
    /// Reads the directory, and checks that its entries do not overlap.
    pub fn open(op: &'static str, mut file: F) -> Result<Archive<F>> {
        let length = file.seek(SeekFrom::End(0)).map_err(|source| failed(op, &source))?;
        let (count, size, start) = find_directory(op, &mut file, length)?;
        if start.checked_add(size).is_none_or(|end| end > length) || size > LONGEST_DIRECTORY {
            bail!(Format, op, "directory of {size} bytes at byte {start} does not fit in an archive of {length} bytes");
        }
        // Each entry takes at least 46 bytes of the directory.
        if count > size / 46 {
            bail!(Format, op, "{count} entries do not fit in a directory of {size} bytes");
        }
        let directory = read_at(op, &mut file, start, size)?;
        let mut rest = Bytes { op, rest: &directory };
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(parse_entry(&mut rest)?);
        }
        let mut positions = HashMap::new();
        for (at, entry) in entries.iter_mut().enumerate() {
            locate(op, &mut file, entry, start).map_err(|error| error.context(printable(&entry.name)))?;
            if positions.insert(entry.name.clone(), at).is_some() {
                bail!(Format, op, "archive has {} twice", printable(&entry.name));
            }
        }
        // An archive whose entries share bytes could unpack to far more than its size.
        let mut order: Vec<&Entry> = entries.iter().collect();
        sort_by_key(&mut order, |entry| entry.header);
        if let Some(two) = order.windows(2).find(|two| two[0].start + two[0].packed > two[1].header) {
            bail!(Format, op, "entries {} and {} overlap", printable(&two[0].name), printable(&two[1].name));
        }
        Ok(Archive { file, entries, positions })
    }

    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.positions.get(name).map(|&position| &self.entries[position])
    }

    /// Passes the bytes of an entry to `take`, which must read all of them; `verify` compares their checksum.
    pub fn read<R>(
        &mut self,
        op: &'static str,
        entry: &Entry,
        verify: bool,
        take: impl FnOnce(&mut dyn Read) -> Result<R>,
    ) -> Result<R> {
        // An entry that claims a high compression ratio is unpacked once to check its size, before memory is allocated.
        const LARGE: u64 = 1 << 24;
        if entry.deflated && entry.size > LARGE && entry.size / 16 > entry.packed {
            self.file.seek(SeekFrom::Start(entry.start)).map_err(|source| failed(op, &source))?;
            let mut unpacked = DeflateDecoder::new((&mut self.file).take(entry.packed)).take(entry.size + 1);
            let count = io::copy(&mut unpacked, &mut io::sink()).map_err(|source| failed(op, &source))?;
            if count != entry.size {
                bail!(Format, op, "expected {} bytes, got {count}", entry.size);
            }
        }
        self.file.seek(SeekFrom::Start(entry.start)).map_err(|source| failed(op, &source))?;
        let packed = (&mut self.file).take(entry.packed);
        let mut reader: Box<dyn Read + '_> = if entry.deflated {
            Box::new(DeflateDecoder::new(packed))
        } else {
            Box::new(io::BufReader::with_capacity(1 << 16, packed))
        };
        if !verify {
            return take(&mut reader);
        }
        let mut checked = Checked { inner: reader, crc: Crc::new() };
        let taken = take(&mut checked)?;
        if checked.crc.sum() != entry.checksum || u64::from(checked.crc.amount()) != entry.size & u64::from(u32::MAX) {
            bail!(Format, op, "expected checksum {:08x}, got {:08x}", entry.checksum, checked.crc.sum());
        }
        Ok(taken)
    }

    /// The bytes of an entry, at most `most`.
    pub fn bytes(&mut self, op: &'static str, entry: &Entry, most: u64) -> Result<Vec<u8>> {
        if entry.size > most {
            bail!(Format, op, "{} must have at most {most} bytes, got {}", printable(&entry.name), entry.size);
        }
        self.read(op, entry, false, |reader| {
            let mut bytes = scratch::filled(op, 0_u8, entry.size as usize)?;
            reader.read_exact(&mut bytes).map_err(|source| failed(op, &source))?;
            Ok(bytes)
        })
    }

    /// Reads bytes of a stored entry from an offset on; `None` if the entry is deflated.
    pub fn read_part(&mut self, op: &'static str, entry: &Entry, from: u64, to: &mut [u8]) -> Result<Option<()>> {
        if entry.deflated {
            return Ok(None);
        }
        if from.checked_add(to.len() as u64).is_none_or(|end| end > entry.size) {
            bail!(Format, op, "{} bytes at byte {from} do not fit in an entry of {} bytes", to.len(), entry.size);
        }
        self.file.seek(SeekFrom::Start(entry.start + from)).map_err(|source| failed(op, &source))?;
        self.file.read_exact(to).map_err(|source| failed(op, &source))?;
        Ok(Some(()))
    }
}

/// Computes the checksum of the bytes that are read.
struct Checked<R> {
    inner: R,
    crc: Crc,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.crc.update(&to[..count]);
        Ok(count)
    }
}

fn failed(op: &'static str, source: &io::Error) -> Error {
    err!(Format, op, "{source}")
}

fn read_at<F: Read + Seek>(op: &'static str, file: &mut F, start: u64, size: u64) -> Result<Vec<u8>> {
    let mut bytes = scratch::filled(op, 0_u8, size as usize)?;
    let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
    read.map_err(|source| failed(op, &source))?;
    Ok(bytes)
}

/// The number of entries, and the size and the start of the directory.
fn find_directory<F: Read + Seek>(op: &'static str, file: &mut F, length: u64) -> Result<(u64, u64, u64)> {
    // The end record has 22 bytes and then a comment.
    let tail = read_at(op, file, length.saturating_sub(22 + 0xffff), length.min(22 + 0xffff))?;
    let ends = (0..tail.len().saturating_sub(21)).rev();
    let Some(at) = ends.into_iter().find(|&at| tail[at..].starts_with(END)) else {
        bail!(Format, op, "not a zip archive, or its end is missing");
    };
    let mut end = Bytes { op, rest: &tail[at + 4..] };
    let (disk, first_disk) = (end.u16()?, end.u16()?);
    let (_, count, size, start) = (end.u16()?, u64::from(end.u16()?), u64::from(end.u32()?), u64::from(end.u32()?));
    if (disk, first_disk) != (0, 0) && disk != 0xffff {
        bail!(Format, op, "archives of several files are not supported");
    }
    let is_64 = at >= 20 && tail[at - 20..].starts_with(LOCATOR_64);
    if !is_64 {
        return Ok((count, size, start));
    }
    let mut locator = Bytes { op, rest: &tail[at - 20 + 8..] };
    let position = locator.u64()?;
    if position.checked_add(56).is_none_or(|end| end > length) {
        bail!(Format, op, "zip64 end record at byte {position} does not fit in an archive of {length} bytes");
    }
    let end = read_at(op, file, position, 56)?;
    if !end.starts_with(END_64) {
        bail!(Format, op, "no zip64 end record at byte {position}");
    }
    let mut end = Bytes { op, rest: &end[32..] };
    Ok((end.u64()?, end.u64()?, end.u64()?))
}

fn parse_entry(directory: &mut Bytes<'_>) -> Result<Entry> {
    let op = directory.op;
    if directory.take(4)? != CENTRAL {
        bail!(Format, op, "entry of the directory does not begin with its signature");
    }
    directory.take(4)?;
    let (flags, method) = (directory.u16()?, directory.u16()?);
    directory.take(4)?;
    let checksum = directory.u32()?;
    let (packed, size) = (directory.u32()?, directory.u32()?);
    let (name, extra, comment) = (directory.u16()?, directory.u16()?, directory.u16()?);
    directory.take(8)?;
    let header = directory.u32()?;
    let name = String::from_utf8_lossy(directory.take(name.into())?).into_owned();
    let mut extra = Bytes { op, rest: directory.take(extra.into())? };
    directory.take(comment.into())?;
    let mut entry = Entry {
        name,
        size: size.into(),
        packed: packed.into(),
        deflated: method == 8,
        checksum,
        header: header.into(),
        start: 0,
    };
    // 64-bit sizes are in an extra field; the 32-bit ones are then all ones.
    while extra.rest.len() >= 4 {
        let (id, length) = (extra.u16()?, extra.u16()?);
        let mut field = Bytes { op, rest: extra.take(length.into())? };
        if id == 1 {
            for number in [&mut entry.size, &mut entry.packed, &mut entry.header] {
                if *number == u64::from(u32::MAX) {
                    *number = field.u64()?;
                }
            }
        }
    }
    let refused = if flags & 1 != 0 {
        Some("encrypted entries are not supported".to_string())
    } else if method != 0 && method != 8 {
        Some(format!("compression must be stored (0) or deflate (8), got {method}"))
    } else if !entry.deflated && entry.packed != entry.size {
        Some(format!("stored entry must take {} bytes, got {}", entry.size, entry.packed))
    } else if entry.size > entry.packed.saturating_mul(GREATEST_RATIO) {
        Some(format!("{} bytes cannot be deflated to {}", entry.size, entry.packed))
    } else {
        None
    };
    match refused {
        Some(why) => bail!(Format, op, "{}: {why}", printable(&entry.name)),
        None => Ok(entry),
    }
}

/// Finds the bytes of an entry, which must be before the directory.
fn locate<F: Read + Seek>(op: &'static str, file: &mut F, entry: &mut Entry, directory: u64) -> Result<()> {
    let fits = |end: Option<u64>| end.is_some_and(|end| end <= directory);
    if !fits(entry.header.checked_add(30)) {
        bail!(Format, op, "header at byte {} must be before the directory at byte {directory}", entry.header);
    }
    let header = read_at(op, file, entry.header, 30)?;
    if !header.starts_with(LOCAL) {
        bail!(Format, op, "no header at byte {}", entry.header);
    }
    let mut lengths = Bytes { op, rest: &header[26..] };
    let (name, extra) = (lengths.u16()?, lengths.u16()?);
    entry.start = entry.header + 30 + u64::from(name) + u64::from(extra);
    if !fits(entry.start.checked_add(entry.packed)) {
        let (start, packed) = (entry.start, entry.packed);
        bail!(Format, op, "{packed} bytes at byte {start} must end before the directory at byte {directory}");
    }
    Ok(())
}

/// Reads little-endian numbers from bytes.
pub(super) struct Bytes<'b> {
    pub op: &'static str,
    pub rest: &'b [u8],
}

impl<'b> Bytes<'b> {
    pub fn take(&mut self, count: usize) -> Result<&'b [u8]> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(err!(Format, self.op, "expected {count} more bytes, {} are left", self.rest.len())),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// An archive to write. Sizes are known in advance, so that no part is written twice.
pub(super) struct Writer<'w> {
    file: &'w mut dyn Write,
    at: u64,
    directory: Vec<u8>,
    count: u64,
    /// The bytes of every entry begin at a multiple of this.
    align: u64,
}

impl<'w> Writer<'w> {
    pub fn new(file: &'w mut dyn Write, align: u64) -> Writer<'w> {
        Writer { file, at: 0, directory: Vec::new(), count: 0, align }
    }

    /// Adds a file whose bytes are these parts in order.
    pub fn add(&mut self, name: &str, parts: &[&[u8]], deflate: bool) -> io::Result<()> {
        let mut crc = Crc::new();
        parts.iter().for_each(|part| crc.update(part));
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let packed = if deflate { Some(deflated(parts)?) } else { None };
        let stored = packed.as_ref().map_or(size, |packed| packed.len() as u64);
        let name_length = u16::try_from(name.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "names must have at most 65535 bytes"))?;
        let header = self.at;
        // Both sizes as 64 bits, then padding up to the alignment, in a field that readers skip.
        let fixed = 30 + u64::from(name_length) + 20;
        let filler =
            if self.align > 1 { (header + fixed + 4).next_multiple_of(self.align) - header - fixed } else { 0 };
        let version: u16 = 45;
        let mut common = Vec::new();
        // Names are UTF-8. The date is the earliest possible, so that equal tensors give equal files.
        common.extend((1_u16 << 11).to_le_bytes());
        common.extend((if deflate { 8_u16 } else { 0 }).to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        common.extend(0x21_u16.to_le_bytes());
        common.extend(crc.sum().to_le_bytes());
        common.extend([0xff; 8]);
        common.extend(name_length.to_le_bytes());
        let sizes = |extra: &mut Vec<u8>, position: Option<u64>| {
            extra.extend(1_u16.to_le_bytes());
            extra.extend((if position.is_some() { 24_u16 } else { 16 }).to_le_bytes());
            extra.extend(size.to_le_bytes());
            extra.extend(stored.to_le_bytes());
            position.into_iter().for_each(|position| extra.extend(position.to_le_bytes()));
        };
        let mut local = LOCAL.to_vec();
        local.extend(version.to_le_bytes());
        local.extend(&common);
        local.extend((20 + filler as u16).to_le_bytes());
        local.extend(name.as_bytes());
        sizes(&mut local, None);
        if filler > 0 {
            local.extend(b"FB");
            local.extend((filler as u16 - 4).to_le_bytes());
            local.resize(local.len() + filler as usize - 4, b'Z');
        }
        self.file.write_all(&local)?;
        match &packed {
            Some(packed) => self.file.write_all(packed)?,
            None => parts.iter().try_for_each(|part| self.file.write_all(part))?,
        }
        self.at += local.len() as u64 + stored;
        self.count += 1;
        self.directory.extend(CENTRAL);
        self.directory.extend(version.to_le_bytes());
        self.directory.extend(version.to_le_bytes());
        self.directory.extend(&common);
        self.directory.extend(28_u16.to_le_bytes());
        // Comment, disk, attributes, and the offset, which is in the 64-bit field.
        self.directory.extend([0; 10]);
        self.directory.extend(u32::MAX.to_le_bytes());
        self.directory.extend(name.as_bytes());
        sizes(&mut self.directory, Some(header));
        Ok(())
    }

    /// Writes the directory.
    pub fn finish(self) -> io::Result<()> {
        let (start, size) = (self.at, self.directory.len() as u64);
        let mut end = self.directory;
        end.extend(END_64);
        end.extend(44_u64.to_le_bytes());
        end.extend([45, 0, 45, 0]);
        end.extend([0; 8]);
        for number in [self.count, self.count, size, start] {
            end.extend(number.to_le_bytes());
        }
        end.extend(LOCATOR_64);
        end.extend(0_u32.to_le_bytes());
        end.extend((start + size).to_le_bytes());
        end.extend(1_u32.to_le_bytes());
        end.extend(END);
        end.extend([0; 4]);
        let short = |number: u64| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
        let long = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        end.extend(short(self.count));
        end.extend(short(self.count));
        end.extend(long(size));
        end.extend(long(start));
        end.extend([0; 2]);
        self.file.write_all(&end)
    }
}

fn deflated(parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    parts.iter().try_for_each(|part| encoder.write_all(part))?;
    encoder.finish()
}
