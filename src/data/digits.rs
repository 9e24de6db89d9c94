//! The 8×8 handwritten digits of the UCI repository.
//!
//! "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository, under
//! CC BY 4.0: the 1797 images of its test part, written by 13 people. Each image is 64 counts of ink from 0 to 16.

use super::Dataset;
use crate::error::bail;
use crate::{Generator, Result, Tensor};
use cotangent_macros::named;

/// One record per image: 64 counts, row by row, then the digit.
static RECORDS: &[u8] = include_bytes!("digits.bin");
const PIXELS: usize = 64;
const RECORD: usize = PIXELS + 1;

/// Images and their digits.
///
/// ```
/// let digits = cotangent::data::digits()?;
/// assert_eq!((digits.images.shape(), digits.labels.shape()), (&[1797, 64][..], &[1797][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Digits {
    /// `[n, 64]`, from 0 to 1, as `f32`.
    pub images: Tensor,
    /// `[n]`, from 0 to 9, as `i64`.
    pub labels: Tensor,
}

/// All 1797 digits, in the order of the data set.
///
/// ```
/// let digits = cotangent::data::digits()?;
/// assert_eq!(digits.images.shape(), [1797, 64]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If memory runs out.
#[named]
pub fn digits() -> Result<Digits> {
    let records = || RECORDS.chunks_exact(RECORD);
    let images: Vec<f32> = records().flat_map(|r| &r[..PIXELS]).map(|&ink| f32::from(ink) / 16.0).collect();
    let labels: Vec<i64> = records().map(|r| i64::from(r[PIXELS])).collect();
    let n = labels.len();
    Ok(Digits { images: Tensor::from_vec(images, [n, PIXELS])?, labels: Tensor::from_vec(labels, [n])? })
}

impl Digits {
    /// The number of images.
    ///
    /// ```
    /// assert_eq!(cotangent::data::digits()?.len(), 1797);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.labels.numel()
    }

    /// Whether there are no images.
    ///
    /// ```
    /// assert!(!cotangent::data::digits()?.is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuffles by `seed` and splits into training images and `held_out` test images.
    ///
    /// ```
    /// let (train, test) = cotangent::data::digits()?.split(360, 0)?;
    /// assert_eq!((train.len(), test.len()), (1437, 360));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `held_out` exceeds the number of images.
    #[named]
    pub fn split(&self, held_out: usize, seed: u64) -> Result<(Digits, Digits)> {
        if held_out > self.len() {
            bail!(Value, "split", "held_out must be at most {}, got {held_out}", self.len());
        }
        let order = shuffled(self.len(), &mut Generator::seed(seed))?;
        let (test, train) = (order.narrow(0, 0, held_out)?, order.narrow(0, held_out as isize, self.len() - held_out)?);
        Ok((self.pick(&train)?, self.pick(&test)?))
    }

    /// The images at some positions.
    ///
    /// ```
    /// use cotangent::{data, tensor};
    /// assert_eq!(data::digits()?.pick(&tensor!([0, 5])?)?.images.shape(), [2, 64]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a position is out of range.
    #[named]
    pub fn pick(&self, positions: &Tensor) -> Result<Digits> {
        Ok(Digits { images: self.images.index_select(0, positions)?, labels: self.labels.index_select(0, positions)? })
    }

    /// The positions of all images in a random order, split into batches of `size`; the last may be shorter.
    ///
    /// ```
    /// use cotangent::{Generator, data};
    /// let digits = data::digits()?;
    /// let batches = digits.batches(32, &mut Generator::seed(1))?;
    /// assert_eq!(batches.len(), 1797_usize.div_ceil(32));
    /// assert_eq!(digits.pick(&batches[0])?.len(), 32);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `size` is 0.
    #[named]
    pub fn batches(&self, size: usize, generator: &mut Generator) -> Result<Vec<Tensor>> {
        shuffled(self.len(), generator)?.split(size, 0)
    }
}

/// The items are pairs of an image and its digit.
impl Dataset for Digits {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        Digits::len(self)
    }

    fn get_item(&self, index: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.images.get_item(index)?, self.labels.get_item(index)?))
    }

    fn get_batch(&self, indices: &[usize]) -> Result<(Tensor, Tensor)> {
        Ok((self.images.get_batch(indices)?, self.labels.get_batch(indices)?))
    }
}

/// The numbers from 0 to `n` in a random order.
fn shuffled(n: usize, generator: &mut Generator) -> Result<Tensor> {
    let mut order: Vec<i64> = (0..n as i64).collect();
    for at in (1..n).rev() {
        let other = generator.randint(0, at as i64 + 1, ())?.item::<i64>()?;
        order.swap(at, other as usize);
    }
    Tensor::from_vec(order, [n])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_all_there() -> Result<()> {
        let all = digits()?;
        assert_eq!((all.images.shape(), all.labels.shape()), (&[1797, 64][..], &[1797][..]));
        let counts = all.labels.to_vec::<i64>()?.iter().fold([0; 10], |mut counts, &digit| {
            counts[digit as usize] += 1;
            counts
        });
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert!(all.images.to_vec::<f32>()?.iter().all(|&ink| (0.0..=1.0).contains(&ink)));
        Ok(())
    }

    #[test]
    fn a_split_is_a_partition_and_follows_the_seed() -> Result<()> {
        let numbered = Digits { images: Tensor::arange(0, 50)?, labels: Tensor::arange(0, 50)? };
        let (train, test) = numbered.split(20, 7)?;
        let mut all = train.labels.to_vec::<i64>()?;
        all.extend(test.labels.to_vec::<i64>()?);
        assert_ne!(all, (0..50).collect::<Vec<i64>>());
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<i64>>());
        assert!(numbered.split(20, 7)?.1.labels.equal(&test.labels)?);
        assert!(!numbered.split(20, 8)?.1.labels.equal(&test.labels)?);
        let mut generator = Generator::seed(1);
        let (first, second) = (numbered.batches(50, &mut generator)?, numbered.batches(50, &mut generator)?);
        assert!(!first[0].equal(&second[0])?, "every epoch has an order of its own");
        Ok(())
    }
}
