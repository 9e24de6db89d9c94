//! 8-bit images and their transforms.
//!
//! The results equal torchvision's on PIL images, with the same rounding and the same filters for resizing.

mod color;
#[cfg(feature = "image")]
mod folder;
mod geometry;
mod resize;
pub mod transforms;

#[cfg(feature = "image")]
pub use folder::ImageFolder;
pub use resize::Interpolation;

use crate::error::bail;
use crate::{Result, Tensor};
use cotangent_macros::named;
use std::fmt;

/// The most bytes of an image that a transform makes.
const MOST_BYTES: usize = 1 << 30;

/// An RGB or grayscale image with 8 bits per channel.
///
/// ```
/// use cotangent::data::Image;
/// let image = Image::new(vec![0, 128, 255, 64, 0, 0], 1, 2, 3)?;
/// assert_eq!((image.height(), image.width(), image.channels()), (1, 2, 3));
/// assert_eq!(image.horizontal_flip().pixels(), [64, 0, 0, 0, 128, 255]);
/// assert_eq!(image.to_tensor()?.shape(), [3, 1, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Row by row, with interleaved channels.
    pixels: Vec<u8>,
    height: usize,
    width: usize,
    channels: usize,
}

impl Image {
    /// An image from pixels: row by row, with interleaved channels.
    ///
    /// # Errors
    /// If there are no pixels, `channels` is not 1 or 3, or the number of bytes does not match.
    #[named("Image::new")]
    pub fn new(pixels: Vec<u8>, height: usize, width: usize, channels: usize) -> Result<Image> {
        if channels != 1 && channels != 3 {
            bail!(Shape, "Image::new", "channels must be 1 or 3, got {channels}");
        }
        let bytes = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        if bytes != Some(pixels.len()) || pixels.is_empty() {
            let bytes = pixels.len();
            bail!(
                Shape,
                "Image::new",
                "pixels must have height × width × channels bytes and not be empty, got {bytes} bytes for {height} × {width} × {channels}"
            );
        }
        Ok(Image { pixels, height, width, channels })
    }

    /// As [`new`](Self::new), without checks.
    fn made(pixels: Vec<u8>, height: usize, width: usize, channels: usize) -> Image {
        debug_assert_eq!(pixels.len(), height * width * channels);
        Image { pixels, height, width, channels }
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// 3 for RGB, 1 for gray.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The pixels, row by row, with interleaved channels.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes of a row.
    fn row(&self, y: usize) -> &[u8] {
        let line = self.width * self.channels;
        &self.pixels[y * line..(y + 1) * line]
    }

    /// The image as a tensor: `[channels, height, width]`, `f32` from 0 to 1.
    ///
    /// # Errors
    /// If memory runs out.
    #[named("to_tensor")]
    pub fn to_tensor(&self) -> Result<Tensor> {
        let shape = [self.channels, self.height, self.width];
        let numbers = UNIT.with(|unit| match self.channels {
            3 => planes(&self.pixels, unit),
            _ => self.pixels.iter().map(|&x| unit[usize::from(x)]).collect(),
        });
        Tensor::from_vec(numbers, shape)
    }
}

thread_local! {
    /// The byte values scaled to `[0, 1]`.
    static UNIT: [f32; 256] = std::array::from_fn(|x| x as f32 / 255.0);
}

/// Splits interleaved RGB into three planes.
fn planes(pixels: &[u8], unit: &[f32; 256]) -> Vec<f32> {
    let mut numbers = vec![0.0; pixels.len()];
    let (red, rest) = numbers.split_at_mut(pixels.len() / 3);
    let (green, blue) = rest.split_at_mut(pixels.len() / 3);
    let (pixels, _) = pixels.as_chunks::<3>();
    for (((&[r, g, b], red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
        (*red, *green, *blue) = (unit[usize::from(r)], unit[usize::from(g)], unit[usize::from(b)]);
    }
    numbers
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} by {}, {})", self.height, self.width, if self.channels == 3 { "RGB" } else { "gray" })
    }
}

/// Images are collated into a list, as they may differ in size.
impl super::Collate for Image {
    type Batch = Vec<Image>;

    fn collate(items: Vec<Image>) -> Result<Vec<Image>> {
        Ok(items)
    }
}
