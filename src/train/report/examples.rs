//! Example images for the cells of a confusion matrix.

use super::super::logs::png;
use super::super::metrics::counted;
use crate::error::bail;
use crate::{Result, Tensor};
use cotangent_macros::named;
use std::collections::BTreeMap;

/// Example images of each kind of mistake and of correct predictions, for a [report](super::Report::examples).
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

/// The most images of one kind of mistake, and of correct predictions of one class.
const MISTAKES: usize = 8;
const RIGHT: usize = 2;
/// The most bytes of all images: a larger page is slow to open.
const MOST_BYTES: usize = 4 << 20;

impl Examples {
    /// No examples yet, of a number of classes.
    ///
    /// # Errors
    /// If there are no classes.
    #[named("Examples::new")]
    pub fn new(classes: usize) -> Result<Examples> {
        if classes == 0 {
            bail!(Value, "Examples::new", "classes must be positive, got 0");
        }
        Ok(Examples { classes, cells: BTreeMap::new(), bytes: 0 })
    }

    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// Adds images `[n, height, width]` or `[n, channels, height, width]` of a batch; predictions and targets are as for a
    /// [`ConfusionMatrix`](crate::train::ConfusionMatrix). It keeps 8 images of each kind of mistake, 2 of correct predictions
    /// of each class, and 4 MiB in total.
    ///
    /// # Errors
    /// If images, predictions and targets do not fit each other.
    #[named("Examples::update")]
    pub fn update(&mut self, images: &Tensor, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "Examples::update";
        if target.rank() != 1 || !matches!(images.rank(), 3 | 4) || images.shape()[0] != target.shape()[0] {
            let (images, targets) = (images.shape(), target.shape());
            bail!(
                Shape,
                OP,
                "images must have shape [n, .., height, width] for targets [n], got {images:?} for {targets:?}"
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

/// Bytes as a `data:` URL.
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
