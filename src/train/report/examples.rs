//! Images for the cells of a confusion matrix.

use super::super::logs::png;
use super::super::metrics::counted;
use crate::error::bail;
use crate::{Result, Tensor};
use cotangent_macros::named;
use std::collections::BTreeMap;

/// Some images of each kind of mistake, and of what was right, for a [report](super::Report::examples).
///
/// ```
/// use cotangent::{Tensor, tensor, train::Examples};
/// let mut examples = Examples::new(2)?;
/// examples.update(&Tensor::rand([3, 8, 8])?, &tensor!([0, 1, 1])?, &tensor!([0, 0, 1])?)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Examples {
    classes: usize,
    /// By target and prediction: PNG files.
    cells: BTreeMap<(usize, usize), Vec<Vec<u8>>>,
    bytes: usize,
}

/// Images of one mistake, and of one class that was right.
const MISTAKES: usize = 8;
const RIGHT: usize = 2;
/// A page of more bytes than this is slow to open.
const MOST_BYTES: usize = 4 << 20;

impl Examples {
    /// None yet, of so many classes.
    ///
    /// # Errors
    /// If there are no classes.
    #[named("Examples::new")]
    pub fn new(classes: usize) -> Result<Examples> {
        if classes == 0 {
            bail!(Value, "Examples::new", "there are no classes");
        }
        Ok(Examples { classes, cells: BTreeMap::new(), bytes: 0 })
    }

    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// Takes the images `[n, height, width]` or `[n, channels, height, width]` of a batch that are still wanted; predictions and
    /// targets are as for a [`ConfusionMatrix`](crate::train::ConfusionMatrix). 8 images are kept of each mistake and 2 of each
    /// class that was right, and 4 MiB of all.
    ///
    /// # Errors
    /// If they do not fit each other.
    #[named("Examples::update")]
    pub fn update(&mut self, images: &Tensor, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "Examples::update";
        if target.rank() != 1 || !matches!(images.rank(), 3 | 4) || images.shape()[0] != target.shape()[0] {
            let (images, targets) = (images.shape(), target.shape());
            bail!(
                Shape,
                OP,
                "images of shape {images:?} for targets of shape {targets:?}: they are [n, .., height, width]"
            );
        }
        let (predicted, actual) = counted(OP, self.classes, prediction, target, None, None)?;
        for (at, (predicted, actual)) in predicted.into_iter().zip(actual).enumerate() {
            let cell = self.cells.entry((actual as usize, predicted as usize)).or_default();
            let wanted = if actual == predicted { RIGHT } else { MISTAKES };
            if cell.len() < wanted && self.bytes < MOST_BYTES {
                let png = png::encode(OP, &images.select(0, at as isize)?)?;
                self.bytes += png.bytes.len();
                cell.push(png.bytes);
            }
        }
        Ok(())
    }

    /// The images of a cell.
    pub(super) fn of(&self, target: usize, predicted: usize) -> &[Vec<u8>] {
        self.cells.get(&(target, predicted)).map_or(&[], Vec::as_slice)
    }
}

/// Bytes as a `data:` address.
pub(super) fn data_address(png: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("data:image/png;base64,");
    for three in png.chunks(3) {
        let word = three.iter().enumerate().fold(0, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for digit in 0..4 {
            let known = digit <= three.len();
            text.push(if known { DIGITS[(word >> (18 - 6 * digit) & 63) as usize] as char } else { '=' });
        }
    }
    text
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_base64() {
        let text = |bytes: &[u8]| data_address(bytes).trim_start_matches("data:image/png;base64,").to_string();
        assert_eq!(
            [text(b""), text(b"f"), text(b"fo"), text(b"foo"), text(b"foob")],
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
