//! The bytes of tensors in an archive.
#![forbid(unsafe_code)]

use super::LOAD;
use super::pickle::{Pickle, TensorSpec};
use crate::error::{bail, err};
use crate::io::bytes;
use crate::io::load_options::printable;
use crate::io::zip::{Archive, Entry};
use crate::layout::checked_bytes;
use crate::{DType, Result, Shape, Tensor};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

pub(super) struct Storages {
    archive: Archive<File>,
    /// The folder of the archive, with a slash.
    folder: String,
    /// Whether numbers are big-endian.
    swapped: bool,
    /// Storages that several tensors share, each as a 1-D tensor.
    shared: HashMap<(String, DType), Tensor>,
    /// Bytes that may still be copied. A file can describe any number of tensors on the same bytes: beyond the budget they are views.
    budget: u64,
}

impl Storages {
    pub fn new(mut archive: Archive<File>, folder: String) -> Result<Storages> {
        let order = match archive.find(&format!("{folder}byteorder")).cloned() {
            Some(entry) => archive.bytes(LOAD, &entry, 16)?,
            None => b"little".to_vec(),
        };
        let swapped = match &order[..] {
            b"little" => false,
            b"big" => true,
            other => bail!(
                Format,
                LOAD,
                "byteorder must be little or big, got {}",
                printable(&String::from_utf8_lossy(other))
            ),
        };
        // Enough for two copies of everything, as tied parameters are common.
        let total: u64 = archive.entries.iter().map(|entry| entry.size).sum();
        Ok(Storages { archive, folder, swapped, shared: HashMap::new(), budget: 2 * total })
    }

    pub fn tensor(&mut self, pickle: &Pickle, spec: &TensorSpec) -> Result<Tensor> {
        let malformed = |what: String| err!(Format, LOAD, "{what}");
        let (key, dtype) = (pickle.key(spec).map_err(malformed)?, spec.dtype);
        let (shape, strides) = pickle.layout(spec).map_err(malformed)?;
        let Some(entry) = self.archive.find(&format!("{}data/{key}", self.folder)).cloned() else {
            bail!(Format, LOAD, "no storage {} in the archive", printable(key));
        };
        let (shape, strides) = (Shape::from(shape), strides);
        let taken = checked_bytes(LOAD, &shape, dtype.size())?;
        if taken == 0 {
            return Tensor::zeros_with(shape, dtype);
        }
        // The offset of the last element in the storage.
        let furthest = shape.iter().zip(&strides).try_fold(spec.offset, |sum, (size, stride)| {
            size.saturating_sub(1).checked_mul(*stride).and_then(|more| sum.checked_add(more))
        });
        let count = usize::try_from(entry.size).unwrap_or(usize::MAX) / dtype.size();
        if furthest.is_none_or(|furthest| furthest >= count) {
            let offset = spec.offset;
            bail!(
                Format,
                LOAD,
                "shape {shape:?} with strides {strides:?} and offset {offset} must fit in a storage of {count} elements"
            );
        }
        let own = self.budget.checked_sub(taken as u64);
        if let Some(left) = own
            && is_contiguous(&shape, &strides)
        {
            self.budget = left;
            return self.read(&entry, dtype, shape, spec.offset * dtype.size());
        }
        let base = self.shared(key, &entry, dtype, count)?;
        let strides: Vec<isize> = strides.into_iter().map(|stride| stride as isize).collect();
        let view = base.as_strided(shape, &strides, spec.offset)?;
        match own {
            Some(left) => {
                self.budget = left;
                view.contiguous()
            }
            None => Ok(view),
        }
    }

    /// A whole storage, which is read once.
    fn shared(&mut self, key: &str, entry: &Entry, dtype: DType, count: usize) -> Result<Tensor> {
        let position = (key.to_string(), dtype);
        if let Some(base) = self.shared.get(&position) {
            return Ok(base.clone());
        }
        let base = self.read(entry, dtype, count.into(), 0)?;
        self.shared.insert(position, base.clone());
        Ok(base)
    }

    /// Contiguous elements of a storage, from a byte on.
    fn read(&mut self, entry: &Entry, dtype: DType, shape: Shape, from: usize) -> Result<Tensor> {
        let (archive, swapped) = (&mut self.archive, self.swapped);
        bytes::from_bytes(LOAD, shape, dtype, |to| {
            if archive.read_part(LOAD, entry, from as u64, to)?.is_none() {
                let failed = |source: std::io::Error| err!(Format, LOAD, "{source}");
                archive.read(LOAD, entry, false, |reader| {
                    let skipped = std::io::copy(&mut reader.take(from as u64), &mut std::io::sink()).map_err(failed)?;
                    if skipped != from as u64 {
                        bail!(Format, LOAD, "storage ends too early, at byte {skipped}");
                    }
                    reader.read_exact(to).map_err(failed)
                })?;
            }
            if swapped {
                let width = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
                to.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            Ok(())
        })
    }
}

/// Whether the layout is contiguous; the strides of dimensions of size 1 do not matter.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1_usize;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || stride == expected;
        expected = expected.saturating_mul(size);
        fits
    })
}
