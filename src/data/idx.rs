//! IDX files, the format of MNIST: four bytes with the dtype and the number of dimensions, the sizes, then the elements.
//! Gzipped files are decompressed.
//!
//! ```
//! use cotangent::data::idx;
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-idx-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("labels");
//! std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])?;
//! assert_eq!(idx::load(&path)?.to_vec::<u8>()?, [7, 2, 1]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::files::{self, Contents};
use crate::error::{bail, err};
use crate::{Element, Error, Result, Tensor};
use cotangent_macros::named;
use std::io::{ErrorKind, Read};
use std::path::Path;

const OP: &str = "idx::load";

/// The most dimensions that are read.
const MOST_DIMS: u8 = 16;

/// The most bytes that are reserved before the elements are read.
const FIRST_RESERVE: u64 = 1 << 20;

/// Loads the tensor of an IDX file.
///
/// # Errors
/// If the file cannot be read, is not of this format, or has fewer or more elements than its header says.
#[named("idx::load")]
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    read(path.as_ref())
}

fn read(path: &Path) -> Result<Tensor> {
    let at = path.display();
    let Contents { mut reader, most } = files::open(OP, path)?;
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::UnexpectedEof => err!(Format, OP, "{at}: unexpected end of file"),
        _ => Error::io(OP, path, e),
    };
    let mut magic = [0; 4];
    reader.read_exact(&mut magic).map_err(failed)?;
    let [0, 0, kind, rank @ 1..=MOST_DIMS] = magic else {
        bail!(Format, OP, "{at}: not an IDX file: it begins with {magic:02x?}");
    };
    let mut shape = Vec::with_capacity(rank.into());
    for _ in 0..rank {
        let mut size = [0; 4];
        reader.read_exact(&mut size).map_err(failed)?;
        shape.push(u32::from_be_bytes(size) as usize);
    }
    let size = match kind {
        0x08 | 0x09 => 1,
        0x0B => 2,
        0x0C | 0x0D => 4,
        0x0E => 8,
        _ => bail!(Format, OP, "{at}: unknown dtype code {kind:#04x}"),
    };
    let bytes = shape.iter().try_fold(size, |bytes: u64, &n| bytes.checked_mul(n as u64));
    let Some(bytes) = bytes.filter(|&bytes| bytes <= most) else {
        bail!(Format, OP, "{at}: file is too short for the shape {shape:?} in its header");
    };
    // Memory grows with the elements that are read, not with the size in the header.
    let mut data = Vec::with_capacity(bytes.min(FIRST_RESERVE) as usize);
    reader.by_ref().take(bytes).read_to_end(&mut data).map_err(failed)?;
    if data.len() as u64 != bytes {
        bail!(Format, OP, "{at}: expected {bytes} bytes of elements for shape {shape:?}, got {}", data.len());
    }
    if reader.read(&mut [0]).map_err(failed)? != 0 {
        bail!(Format, OP, "{at}: expected {bytes} bytes of elements for shape {shape:?}, got more");
    }
    match kind {
        0x08 => Tensor::from_vec(data, shape),
        0x09 => elements(&data, shape, i8::from_be_bytes),
        0x0B => elements(&data, shape, i16::from_be_bytes),
        0x0C => elements(&data, shape, i32::from_be_bytes),
        0x0D => elements(&data, shape, f32::from_be_bytes),
        _ => elements(&data, shape, f64::from_be_bytes),
    }
}

fn elements<T: Element, const N: usize>(data: &[u8], shape: Vec<usize>, from: fn([u8; N]) -> T) -> Result<Tensor> {
    let (elements, _) = data.as_chunks::<N>();
    Tensor::from_vec(elements.iter().map(|&bytes| from(bytes)).collect(), shape)
}
