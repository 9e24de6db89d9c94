//! Resizing with the filters and the arithmetic of PIL. The first pass goes along rows, the second along columns; the other
//! way round if rows get longer and columns shorter. Weights are integers with 22 fractional bits, and each pass rounds to
//! bytes. The filter widens when an image shrinks, so that there is no aliasing.

use super::{Image, MOST_BYTES};
use crate::Result;
use crate::backend::simd::{Job, dispatch};
use crate::error::bail;
use cotangent_macros::named;
use std::ops::Range;

/// The interpolation of resized and rotated images.
///
/// ```
/// use cotangent::data::{Image, Interpolation};
/// let image = Image::new(vec![0, 100, 200, 255], 2, 2, 1)?;
/// assert_eq!(image.resize(1, 1, Interpolation::Bilinear)?.pixels(), [139]);
/// assert_eq!(image.resize(1, 4, Interpolation::Nearest)?.pixels(), [200, 200, 255, 255]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// Linear, over 2 pixels in each dimension.
    #[default]
    Bilinear,
    /// A cubic, over 4 pixels in each dimension.
    Bicubic,
    /// A windowed sinc, over 6 pixels in each dimension.
    Lanczos,
}

impl Interpolation {
    /// The radius of the filter, in pixels of the smaller image.
    fn support(self) -> f64 {
        match self {
            Interpolation::Nearest => 0.0,
            Interpolation::Bilinear => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        }
    }

    /// The weight of a pixel at a distance.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            _ if x >= self.support() => 0.0,
            Interpolation::Nearest => 1.0,
            Interpolation::Bilinear => 1.0 - x,
            // With a = -0.5.
            Interpolation::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Interpolation::Bicubic => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Interpolation::Lanczos => sinc(x) * sinc(x / 3.0),
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// Fractional bits of a weight, so that a sum of bytes times weights fits 32 bits.
const FRACTION: u32 = 22;

/// For each output pixel the range of input pixels and their weights.
struct Filter {
    ranges: Vec<Range<usize>>,
    /// `most` weights for each output pixel.
    weights: Vec<i32>,
    most: usize,
}

impl Filter {
    fn new(interpolation: Interpolation, from: usize, to: usize) -> Filter {
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        let support = interpolation.support() * stretch;
        let most = support.ceil() as usize * 2 + 1;
        let (mut ranges, mut weights) = (Vec::with_capacity(to), vec![0; to * most]);
        let mut exact = Vec::with_capacity(most);
        for (at, weights) in weights.chunks_exact_mut(most).enumerate() {
            let center = (at as f64 + 0.5) * scale;
            // The cast truncates negative positions to 0.
            let start = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from).min(start + most);
            exact.clear();
            exact.extend((start..end).map(|x| interpolation.weight((x as f64 - center + 0.5) / stretch)));
            let total: f64 = exact.iter().sum();
            for (weight, exact) in weights.iter_mut().zip(&exact) {
                let exact = if total == 0.0 { *exact } else { exact / total };
                let scaled = exact * f64::from(1 << FRACTION);
                *weight = if scaled < 0.0 { (scaled - 0.5) as i32 } else { (scaled + 0.5) as i32 };
            }
            ranges.push(start..end);
        }
        Filter { ranges, weights, most }
    }

    fn of(&self, at: usize) -> (Range<usize>, &[i32]) {
        let range = self.ranges[at].clone();
        let weights = &self.weights[at * self.most..][..range.len()];
        (range, weights)
    }
}

#[inline(always)]
fn to_byte(sum: i32) -> u8 {
    (sum >> FRACTION).clamp(0, 255) as u8
}

/// A part of an image.
#[derive(Clone, Copy)]
pub(super) struct Crop {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

impl Image {
    /// Resizes the image.
    ///
    /// # Errors
    /// If a size is 0, or the result has more than 2³⁰ bytes.
    #[named("resize")]
    pub fn resize(&self, height: usize, width: usize, interpolation: Interpolation) -> Result<Image> {
        self.resize_part(self.all(), height, width, interpolation)
    }

    /// Resizes a part, which must lie in the image.
    pub(super) fn resize_part(
        &self,
        crop: Crop,
        height: usize,
        width: usize,
        interpolation: Interpolation,
    ) -> Result<Image> {
        let bytes = height.checked_mul(width).and_then(|n| n.checked_mul(self.channels));
        let rows = crop.height.checked_mul(width).and_then(|n| n.checked_mul(self.channels));
        if height == 0 || width == 0 || bytes.max(rows).is_none_or(|bytes| bytes > MOST_BYTES) || bytes.is_none() {
            let from = (crop.height, crop.width);
            bail!(
                Value,
                "resize",
                "size must be positive and give at most {MOST_BYTES} bytes, got {:?} from {from:?}",
                (height, width)
            );
        }
        if (height, width) == (crop.height, crop.width) {
            return Ok(self.part(crop));
        }
        if interpolation == Interpolation::Nearest {
            return Ok(self.nearest(crop, height, width));
        }
        let along_rows = (width != crop.width).then(|| Filter::new(interpolation, crop.width, width));
        let along_columns = (height != crop.height).then(|| Filter::new(interpolation, crop.height, height));
        Ok(match (along_rows, along_columns) {
            (None, None) => self.part(crop),
            (Some(rows), None) => self.along_rows(crop, &rows),
            (None, Some(columns)) => self.along_columns(crop, &columns, 0),
            (Some(rows), Some(columns)) if width > crop.width && height < crop.height => {
                let low = self.along_columns(crop, &columns, 0);
                low.along_rows(low.all(), &rows)
            }
            (Some(rows), Some(columns)) => {
                // Only rows that the second pass reads go through the first.
                let start = columns.ranges.iter().map(|range| range.start).min().unwrap_or(0);
                let end = columns.ranges.iter().map(|range| range.end).max().unwrap_or(0);
                let narrow = self.along_rows(Crop { top: crop.top + start, height: end - start, ..crop }, &rows);
                narrow.along_columns(narrow.all(), &columns, start)
            }
        })
    }

    fn all(&self) -> Crop {
        Crop { top: 0, left: 0, height: self.height, width: self.width }
    }

    fn along_rows(&self, part: Crop, filter: &Filter) -> Image {
        dispatch(AlongRows { image: self, part, filter })
    }

    /// The part begins at row `first` of the filter.
    fn along_columns(&self, part: Crop, filter: &Filter, first: usize) -> Image {
        dispatch(AlongColumns { image: self, part, filter, first })
    }

    /// Copies a part, which must lie in the image.
    pub(super) fn part(&self, crop: Crop) -> Image {
        let (start, line) = (crop.left * self.channels, crop.width * self.channels);
        let rows = (crop.top..crop.top + crop.height).flat_map(|y| &self.row(y)[start..start + line]);
        Image::made(rows.copied().collect(), crop.height, crop.width, self.channels)
    }

    fn nearest(&self, crop: Crop, height: usize, width: usize) -> Image {
        let c = self.channels;
        // Summed step by step, as in PIL: the rounding decides ties.
        let positions = |from: usize, to: usize| {
            let scale = from as f64 / to as f64;
            let positions = std::iter::successors(Some(0.5 * scale), move |at| Some(at + scale));
            positions.take(to).map(move |at| (at as usize).min(from - 1))
        };
        let columns: Vec<usize> = positions(crop.width, width).map(|x| (crop.left + x) * c).collect();
        let mut pixels = Vec::with_capacity(height * width * c);
        for y in positions(crop.height, height) {
            let row = self.row(crop.top + y);
            columns.iter().for_each(|&x| pixels.extend_from_slice(&row[x..x + c]));
        }
        Image::made(pixels, height, width, c)
    }
}

struct AlongRows<'a> {
    image: &'a Image,
    part: Crop,
    filter: &'a Filter,
}

/// The numbers of the widest vectors: the channels of several rows in one column.
const LANES: usize = 16;

impl Job for AlongRows<'_> {
    type Output = Image;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Image {
        if self.image.channels == 3 { self.with_channels::<3>() } else { self.with_channels::<1>() }
    }
}

impl AlongRows<'_> {
    #[inline(always)]
    fn with_channels<const C: usize>(self) -> Image {
        let AlongRows { image, part, filter } = self;
        let (c, width) = (C, filter.ranges.len());
        let (start, line) = (part.left * c, part.width * c);
        let mut pixels = vec![0; part.height * width * c];
        let mut columns = vec![[0_i32; LANES]; part.width];
        for (group, out) in pixels.chunks_mut(LANES / c * width * c).enumerate() {
            for at in 0..out.len() / (width * c) {
                let row = image.row(part.top + group * (LANES / c) + at);
                for (column, pixel) in columns.iter_mut().zip(row[start..start + line].chunks_exact(c)) {
                    for (channel, &x) in pixel.iter().enumerate() {
                        column[at * c + channel] = i32::from(x);
                    }
                }
            }
            for x in 0..width {
                let (range, weights) = filter.of(x);
                let mut sums = [1_i32 << (FRACTION - 1); LANES];
                for (column, &weight) in columns[range].iter().zip(weights) {
                    for lane in 0..LANES {
                        sums[lane] += column[lane] * weight;
                    }
                }
                let bytes = sums.map(to_byte);
                for (row, pixel) in out.chunks_exact_mut(width * c).zip(bytes.chunks_exact(c)) {
                    row[x * c..(x + 1) * c].copy_from_slice(pixel);
                }
            }
        }
        Image::made(pixels, part.height, width, c)
    }
}

struct AlongColumns<'a> {
    image: &'a Image,
    part: Crop,
    filter: &'a Filter,
    first: usize,
}

impl Job for AlongColumns<'_> {
    type Output = Image;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Image {
        let AlongColumns { image, part, filter, first } = self;
        let (start, line, height) = (part.left * image.channels, part.width * image.channels, filter.ranges.len());
        let mut pixels = vec![0; height * line];
        let mut sums = vec![0; line];
        for (at, out) in pixels.chunks_exact_mut(line).enumerate() {
            let (range, weights) = filter.of(at);
            sums.fill(1_i32 << (FRACTION - 1));
            for (y, &weight) in range.zip(weights) {
                let row = &image.row(part.top + y - first)[start..start + line];
                for (sum, &x) in sums.iter_mut().zip(row) {
                    *sum += i32::from(x) * weight;
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = to_byte(sum);
            }
        }
        Image::made(pixels, height, part.width, image.channels)
    }
}
