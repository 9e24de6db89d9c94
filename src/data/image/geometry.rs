//! Crops, flips, padding and rotations.

use super::resize::Crop;
use super::{Image, Interpolation, MOST_BYTES};
use crate::Result;
use crate::error::bail;
use cotangent_macros::named;

impl Image {
    /// Crops `height` by `width` pixels with the upper left corner at row `top` and column `left`.
    ///
    /// ```
    /// use cotangent::data::Image;
    /// let image = Image::new((0..6).collect(), 2, 3, 1)?;
    /// assert_eq!(image.crop(0, 1, 2, 2)?.pixels(), [1, 2, 4, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the crop is empty or not inside the image.
    #[named("crop")]
    pub fn crop(&self, top: usize, left: usize, height: usize, width: usize) -> Result<Image> {
        let fits =
            |start: usize, size: usize, all: usize| start.checked_add(size).is_some_and(|end| size > 0 && end <= all);
        if !fits(top, height, self.height) || !fits(left, width, self.width) {
            bail!(
                Index,
                "crop",
                "crop of {height} by {width} pixels at row {top}, column {left} must lie in the image of {} by {}",
                self.height,
                self.width
            );
        }
        Ok(self.part(Crop { top, left, height, width }))
    }

    /// Flips left and right.
    pub fn horizontal_flip(&self) -> Image {
        let rows = (0..self.height).flat_map(|y| self.row(y).rchunks_exact(self.channels).flatten());
        Image::made(rows.copied().collect(), self.height, self.width, self.channels)
    }

    /// Flips top and bottom.
    pub fn vertical_flip(&self) -> Image {
        let rows = (0..self.height).rev().flat_map(|y| self.row(y));
        Image::made(rows.copied().collect(), self.height, self.width, self.channels)
    }

    /// Pads the left, top, right and bottom by the given numbers of pixels of value `fill`.
    ///
    /// ```
    /// use cotangent::data::Image;
    /// let image = Image::new(vec![7], 1, 1, 1)?;
    /// assert_eq!(image.pad([1, 0, 0, 1], 9)?.pixels(), [9, 7, 9, 9]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the result has more than 2³⁰ bytes.
    #[named("pad")]
    pub fn pad(&self, [left, top, right, bottom]: [usize; 4], fill: u8) -> Result<Image> {
        let sum = |a: usize, b: usize, c: usize| a.checked_add(b)?.checked_add(c);
        let sizes = sum(self.height, top, bottom).zip(sum(self.width, left, right));
        let bytes = |(h, w): (usize, usize)| h.checked_mul(w)?.checked_mul(self.channels);
        let Some((height, width)) = sizes.filter(|&sizes| bytes(sizes).is_some_and(|bytes| bytes <= MOST_BYTES)) else {
            bail!(
                Value,
                "pad",
                "padded image must have at most {MOST_BYTES} bytes, got padding {:?}",
                [left, top, right, bottom]
            );
        };
        let (c, line) = (self.channels, self.width * self.channels);
        let mut pixels = vec![fill; height * width * c];
        for y in 0..self.height {
            pixels[((top + y) * width + left) * c..][..line].copy_from_slice(self.row(y));
        }
        Ok(Image::made(pixels, height, width, c))
    }

    /// Rotates counter-clockwise about the center by `angle` degrees. Pixels from outside of the image have the value `fill`.
    ///
    /// ```
    /// use cotangent::data::{Image, Interpolation};
    /// let image = Image::new(vec![1, 2, 3, 4], 2, 2, 1)?;
    /// assert_eq!(image.rotate(90.0, Interpolation::Nearest, 0)?.pixels(), [2, 4, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the angle is not finite, or the interpolation is neither nearest nor bilinear.
    #[named("rotate")]
    pub fn rotate(&self, angle: f64, interpolation: Interpolation, fill: u8) -> Result<Image> {
        if !angle.is_finite() {
            bail!(Value, "rotate", "angle must be finite, got {angle}");
        }
        if !matches!(interpolation, Interpolation::Nearest | Interpolation::Bilinear) {
            bail!(Value, "rotate", "interpolation must be Nearest or Bilinear, got {interpolation:?}");
        }
        let angle = angle.rem_euclid(360.0);
        if angle == 0.0 {
            return Ok(self.clone());
        }
        if angle == 180.0 {
            return Ok(self.vertical_flip().horizontal_flip());
        }
        if (angle == 90.0 || angle == 270.0) && self.height == self.width {
            let turned = self.transposed();
            return Ok(if angle == 90.0 { turned.vertical_flip() } else { turned.horizontal_flip() });
        }
        let turn = Turn::about_center(self, angle);
        Ok(match interpolation {
            Interpolation::Nearest => self.turned_nearest(&turn, fill),
            _ => self.turned_bilinear(&turn, fill),
        })
    }

    fn transposed(&self) -> Image {
        let (c, line) = (self.channels, self.width * self.channels);
        let columns = (0..self.width).flat_map(|x| (0..self.height).map(move |y| y * line + x * c));
        let pixels = columns.flat_map(|at| &self.pixels[at..at + c]).copied().collect();
        Image::made(pixels, self.width, self.height, c)
    }

    /// With fixed-point coordinates of 16 fractional bits, as in PIL.
    fn turned_nearest(&self, turn: &Turn, fill: u8) -> Image {
        let fixed = |x: f64| (x * 65536.0 + 0.5).floor() as i64;
        let c = self.channels;
        let (right, down) = ([fixed(turn.cos), fixed(-turn.sin)], [fixed(turn.sin), fixed(turn.cos)]);
        let [mut x0, mut y0] = turn.source(0.5, 0.5).map(fixed);
        let mut pixels = vec![fill; self.pixels.len()];
        for out in pixels.chunks_exact_mut(self.width * c) {
            let (mut x, mut y) = (x0, y0);
            for out in out.chunks_exact_mut(c) {
                let (column, row) = (x >> 16, y >> 16);
                if (0..self.width as i64).contains(&column) && (0..self.height as i64).contains(&row) {
                    out.copy_from_slice(&self.row(row as usize)[column as usize * c..][..c]);
                }
                (x, y) = (x + right[0], y + right[1]);
            }
            (x0, y0) = (x0 + down[0], y0 + down[1]);
        }
        Image::made(pixels, self.height, self.width, c)
    }

    fn turned_bilinear(&self, turn: &Turn, fill: u8) -> Image {
        let (c, h, w) = (self.channels, self.height, self.width);
        let mut pixels = vec![fill; self.pixels.len()];
        for (at, out) in pixels.chunks_exact_mut(c).enumerate() {
            let [x, y] = turn.source((at % w) as f64 + 0.5, (at / w) as f64 + 0.5);
            if !(x >= 0.0 && x < w as f64 && y >= 0.0 && y < h as f64) {
                continue;
            }
            let (x, y) = (x - 0.5, y - 0.5);
            let (dx, dy) = (x - x.floor(), y - y.floor());
            // The pixels before and after, clamped at the border.
            let near = |x: f64, size: usize| [x.floor().max(0.0) as usize, ((x.floor() + 1.0) as usize).min(size - 1)];
            let (columns, rows) = (near(x, w), near(y, h));
            for (channel, out) in out.iter_mut().enumerate() {
                let [above, below] = rows.map(|row| {
                    let [a, b] = columns.map(|column| f64::from(self.row(row)[column * c + channel]));
                    a + (b - a) * dx
                });
                *out = (above + (below - above) * dy) as u8;
            }
        }
        Image::made(pixels, h, w, c)
    }
}

/// The map from pixels of the rotated image to the source.
struct Turn {
    cos: f64,
    sin: f64,
    x: f64,
    y: f64,
}

impl Turn {
    fn about_center(image: &Image, degrees: f64) -> Turn {
        // To 15 digits, so that right angles are exact.
        let round = |x: f64| (x * 1e15).round() / 1e15;
        let (sin, cos) = (-degrees.to_radians()).sin_cos();
        let (cx, cy) = (image.width as f64 / 2.0, image.height as f64 / 2.0);
        let mut turn = Turn { cos: round(cos), sin: round(sin), x: 0.0, y: 0.0 };
        let [x, y] = turn.source(-cx, -cy);
        (turn.x, turn.y) = (x + cx, y + cy);
        turn
    }

    fn source(&self, x: f64, y: f64) -> [f64; 2] {
        [self.cos * x + self.sin * y + self.x, self.cos * y - self.sin * x + self.y]
    }
}
