//! Files that may be compressed.

use crate::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The highest compression ratio of gzip: 258 equal bytes take two bits.
const MOST_PER_BYTE: u64 = 1032;

/// The contents of a file, decompressed if it is gzipped.
pub(super) struct Contents {
    pub(super) reader: Box<dyn BufRead + Send>,
    /// An upper bound of their length.
    pub(super) most: u64,
}

/// Opens a file. Gzip is detected by the first bytes.
pub(super) fn open(op: &'static str, path: &Path) -> Result<Contents> {
    let failed = |e| Error::io(op, path, e);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(failed(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let zipped = reader.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    // The length of a pipe is unknown.
    let len = if meta.is_file() { meta.len() } else { u64::MAX };
    Ok(if zipped {
        let reader = Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader)));
        Contents { reader, most: len.saturating_mul(MOST_PER_BYTE) }
    } else {
        Contents { reader: Box::new(reader), most: len }
    })
}

/// All of a file, as text or other bytes.
pub(super) fn read_all(op: &'static str, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(op, path)?.reader.read_to_end(&mut bytes).map_err(|e| Error::io(op, path, e))?;
    Ok(bytes)
}
