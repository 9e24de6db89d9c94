//! MNIST and data sets in the same format.

use super::{Dataset, idx};
use crate::error::bail;
use crate::{DType, Result, Tensor};
use cotangent_macros::named;
use std::path::{Path, PathBuf};

const OP: &str = "Mnist::load";

/// Which part of a data set.
///
/// ```
/// use cotangent::data::{Mnist, Part};
/// assert!(Mnist::load("no/such/folder", Part::Test).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The training set.
    Train,
    /// The test set.
    Test,
}

/// The images and labels of MNIST, or of data sets with the same file names, such as Fashion-MNIST and KMNIST. An item is an
/// image of shape `[1, 28, 28]`, `f32` from 0 to 1, and its label, `i64`.
///
/// ```no_run
/// use cotangent::data::{DataLoader, DataLoaderOptions, Mnist, Part};
/// let train = Mnist::load("data/mnist", Part::Train)?;
/// for batch in &DataLoader::new_with(train, DataLoaderOptions::new().batch_size(64).shuffle(true))? {
///     let (images, labels) = batch?;
///     assert_eq!(images.shape(), [64, 1, 28, 28]);
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mnist {
    /// `[n, 1, 28, 28]`, as `u8`.
    pub images: Tensor,
    /// `[n]`, as `i64`.
    pub labels: Tensor,
}

impl Mnist {
    /// Loads a part from the files in a folder, which may be gzipped: `train-images-idx3-ubyte.gz` and
    /// `train-labels-idx1-ubyte.gz`, or `t10k-` for the test.
    ///
    /// # Errors
    /// If a file is missing or malformed.
    #[named("Mnist::load")]
    pub fn load(folder: impl AsRef<Path>, part: Part) -> Result<Mnist> {
        let (folder, prefix) = (folder.as_ref(), if part == Part::Train { "train" } else { "t10k" });
        let (images_at, labels_at) = (find(folder, prefix, "images", 3)?, find(folder, prefix, "labels", 1)?);
        let (images, labels) = (idx::load(&images_at)?, idx::load(&labels_at)?);
        let (&[count, height, width], &[labelled]) = (images.shape(), labels.shape()) else {
            bail!(
                Format,
                OP,
                "images must have 3 dimensions and labels 1, got shapes {:?} and {:?}",
                images.shape(),
                labels.shape()
            );
        };
        if count != labelled || images.dtype() != DType::U8 || labels.dtype() != DType::U8 {
            let (images, labels) = ((images.dtype(), count), (labels.dtype(), labelled));
            bail!(
                Format,
                OP,
                "{}: images and labels must be u8 and equally many, got {images:?} and {labels:?}",
                folder.display()
            );
        }
        Ok(Mnist { images: images.reshape([count, 1, height, width])?, labels: labels.to_dtype(DType::I64)? })
    }
}

/// Finds a file in either spelling of its name, gzipped or not.
fn find(folder: &Path, prefix: &str, what: &str, dims: usize) -> Result<PathBuf> {
    for between in ['-', '.'] {
        for end in ["", ".gz"] {
            let path = folder.join(format!("{prefix}-{what}{between}idx{dims}-ubyte{end}"));
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    bail!(Io, OP, "{}: no file {prefix}-{what}-idx{dims}-ubyte, gzipped or not", folder.display())
}

fn scaled(images: &Tensor) -> Result<Tensor> {
    images.to_dtype(DType::F32)?.div(255)
}

impl Dataset for Mnist {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        Dataset::len(&self.labels)
    }

    fn get_item(&self, index: usize) -> Result<(Tensor, Tensor)> {
        Ok((scaled(&self.images.get_item(index)?)?, self.labels.get_item(index)?))
    }

    fn get_batch(&self, indices: &[usize]) -> Result<(Tensor, Tensor)> {
        Ok((scaled(&self.images.get_batch(indices)?)?, self.labels.get_batch(indices)?))
    }
}
