//! Character vocabularies, and windows over tokens.

use super::Dataset;
use crate::error::{bail, err};
use crate::{DType, Result, Tensor};
use cotangent_macros::named;

/// Windows over a sequence of tokens, for next-token prediction: an item is `length` tokens and the same window shifted by
/// one, both `i64`.
///
/// ```
/// use cotangent::data::{Dataset, Windows};
/// let windows = Windows::bytes("hello world", 4)?;
/// let (input, target) = windows.get_item(1)?;
/// let bytes = |text: &str| text.bytes().map(i64::from).collect::<Vec<_>>();
/// assert_eq!((input.to_vec::<i64>()?, target.to_vec::<i64>()?), (bytes("o wo"), bytes(" wor")));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Windows {
    tokens: Tensor,
    length: usize,
    stride: usize,
}

impl Windows {
    /// Adjacent windows of `length` tokens. The tokens keep their dtype, so that a large text may be held as `u8` or `u16`.
    ///
    /// ```
    /// use cotangent::{data::{Dataset, Windows}, tensor};
    /// let windows = Windows::new(&tensor!([1, 2, 3, 4, 5, 6])?, 2)?;
    /// assert_eq!((windows.len(), windows.get_item(1)?.1.to_vec::<i64>()?), (2, vec![4, 5]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tokens are not integers in one dimension, or too few for one window.
    #[named("Windows::new")]
    pub fn new(tokens: &Tensor, length: usize) -> Result<Windows> {
        if tokens.rank() != 1 || !tokens.dtype().is_int() {
            let (dtype, shape) = (tokens.dtype(), tokens.shape());
            bail!(Shape, "Windows::new", "tokens must be integers in 1 dimension, got {dtype}{shape:?}");
        }
        if length == 0 || tokens.numel() <= length {
            bail!(
                Value,
                "Windows::new",
                "length must be at least 1 and less than the {} tokens, got {length}",
                tokens.numel()
            );
        }
        Ok(Windows { tokens: tokens.detach().contiguous()?, length, stride: length })
    }

    /// Windows over the bytes of a text: 256 different tokens, and no vocabulary.
    ///
    /// # Errors
    /// If there are too few bytes for one window.
    #[named("Windows::bytes")]
    pub fn bytes(text: impl AsRef<[u8]>, length: usize) -> Result<Windows> {
        let text = text.as_ref();
        Windows::new(&Tensor::from_slice(text, [text.len()])?, length)
    }

    /// Sets the distance between the starts of windows. They overlap if it is less than their length.
    ///
    /// ```
    /// use cotangent::data::{Dataset, Windows};
    /// assert_eq!(Windows::bytes("hello world", 4)?.stride(1)?.len(), 7);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `stride` is 0.
    #[named("Windows::stride")]
    pub fn stride(mut self, stride: usize) -> Result<Windows> {
        if stride == 0 {
            bail!(Value, "Windows::stride", "stride must be positive, got 0");
        }
        self.stride = stride;
        Ok(self)
    }

    /// The tokens of a window, shifted by `after`.
    fn at(&self, index: usize, after: usize) -> Result<Tensor> {
        let part = self.tokens.narrow(0, (index * self.stride + after) as isize, self.length)?;
        part.to_dtype(DType::I64)
    }
}

impl Dataset for Windows {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        // The last target is one token beyond the last window.
        (self.tokens.numel() - 1 - self.length) / self.stride + 1
    }

    fn get_item(&self, index: usize) -> Result<(Tensor, Tensor)> {
        if index >= self.len() {
            bail!(Index, "get_item", "index {index} is out of range for {} windows", self.len());
        }
        Ok((self.at(index, 0)?, self.at(index, 1)?))
    }
}

/// The distinct characters of a text, sorted. A token is the index of a character.
///
/// ```
/// use cotangent::data::{Vocabulary, Windows};
/// let text = "hello world";
/// let vocabulary = Vocabulary::of(text);
/// let tokens = vocabulary.encode(text)?;
/// assert_eq!((vocabulary.len(), vocabulary.decode(&tokens)?), (8, text.to_string()));
/// let windows = Windows::new(&tokens, 4)?;
/// assert_eq!(vocabulary.encode("why").err().map(|e| e.message()).as_deref(), Some("character 'y' is not in the vocabulary of 8 characters"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    characters: Vec<char>,
}

impl Vocabulary {
    /// The vocabulary of a text.
    pub fn of(text: &str) -> Vocabulary {
        let mut characters: Vec<char> = Vec::new();
        for c in text.chars() {
            if let Err(at) = characters.binary_search(&c) {
                characters.insert(at, c);
            }
        }
        Vocabulary { characters }
    }

    /// The number of characters.
    pub fn len(&self) -> usize {
        self.characters.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// The characters, by index.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// The indices of the characters of a text, as `i64`.
    ///
    /// # Errors
    /// If a character is not in the vocabulary.
    #[named("Vocabulary::encode")]
    pub fn encode(&self, text: &str) -> Result<Tensor> {
        let missing = |c| {
            err!(Value, "Vocabulary::encode", "character {c:?} is not in the vocabulary of {} characters", self.len())
        };
        let numbers = text.chars().map(|c| Ok(self.characters.binary_search(&c).map_err(|_| missing(c))? as i64));
        let numbers: Vec<i64> = numbers.collect::<Result<_>>()?;
        let n = numbers.len();
        Tensor::from_vec(numbers, [n])
    }

    /// The text of character indices.
    ///
    /// # Errors
    /// If an index is out of range.
    #[named("Vocabulary::decode")]
    pub fn decode(&self, numbers: &Tensor) -> Result<String> {
        let numbers = numbers.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let missing = |n| {
            err!(Index, "Vocabulary::decode", "index {n} is out of range for a vocabulary of {} characters", self.len())
        };
        let character = |n: i64| usize::try_from(n).ok().and_then(|n| self.characters.get(n)).copied();
        numbers.into_iter().map(|n| character(n).ok_or_else(|| missing(n))).collect()
    }
}
