//! Text as numbers, and windows over it.

use super::Dataset;
use crate::error::{bail, err};
use crate::{DType, Result, Tensor};
use cotangent_macros::named;

/// Windows over a sequence of tokens, to train a model of what comes next: an item is `length` tokens and those that follow
/// each of them, both `i64`.
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
    /// Windows of `length` tokens, one beginning where the other ends. The tokens stay in the dtype they have, so that those
    /// of a large text may be held as `u8` or `u16`.
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
            bail!(Shape, "Windows::new", "tokens are integers in one dimension, not {dtype}{shape:?}");
        }
        if length == 0 || tokens.numel() <= length {
            bail!(Value, "Windows::new", "{} tokens have no window of {length} and the one after it", tokens.numel());
        }
        Ok(Windows { tokens: tokens.detach().contiguous()?, length, stride: length })
    }

    /// Windows over the bytes of a text: 256 different tokens, and no vocabulary.
    ///
    /// # Errors
    /// If they are too few for one window.
    #[named("Windows::bytes")]
    pub fn bytes(text: impl AsRef<[u8]>, length: usize) -> Result<Windows> {
        let text = text.as_ref();
        Windows::new(&Tensor::from_slice(text, [text.len()])?, length)
    }

    /// Windows that begin `stride` tokens after each other: less than their length lets them overlap.
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
            bail!(Value, "Windows::stride", "windows 0 tokens after each other never end");
        }
        self.stride = stride;
        Ok(self)
    }

    /// The tokens of a window, or those `after` later.
    fn at(&self, index: usize, after: usize) -> Result<Tensor> {
        let part = self.tokens.narrow(0, (index * self.stride + after) as isize, self.length)?;
        part.to_dtype(DType::I64)
    }
}

impl Dataset for Windows {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        // One token beyond the last window is its last target.
        (self.tokens.numel() - 1 - self.length) / self.stride + 1
    }

    fn get_item(&self, index: usize) -> Result<(Tensor, Tensor)> {
        if index >= self.len() {
            bail!(Index, "get_item", "index {index} is out of range for {} windows", self.len());
        }
        Ok((self.at(index, 0)?, self.at(index, 1)?))
    }
}

/// The different characters of a text, in their order, and their numbers.
///
/// ```
/// use cotangent::data::{Vocabulary, Windows};
/// let text = "hello world";
/// let vocabulary = Vocabulary::of(text);
/// let tokens = vocabulary.encode(text)?;
/// assert_eq!((vocabulary.len(), vocabulary.decode(&tokens)?), (8, text.to_string()));
/// let windows = Windows::new(&tokens, 4)?;
/// assert_eq!(vocabulary.encode("why").err().map(|e| e.message()).as_deref(), Some("'y' is not one of the 8 characters"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    characters: Vec<char>,
}

impl Vocabulary {
    /// The characters of a text.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// The characters, in the order of their numbers.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// The numbers of a text's characters, as `i64`.
    ///
    /// # Errors
    /// If one of them is not in the vocabulary.
    #[named("Vocabulary::encode")]
    pub fn encode(&self, text: &str) -> Result<Tensor> {
        let missing = |c| err!(Value, "Vocabulary::encode", "{c:?} is not one of the {} characters", self.len());
        let numbers = text.chars().map(|c| Ok(self.characters.binary_search(&c).map_err(|_| missing(c))? as i64));
        let numbers: Vec<i64> = numbers.collect::<Result<_>>()?;
        let n = numbers.len();
        Tensor::from_vec(numbers, [n])
    }

    /// The text of some numbers.
    ///
    /// # Errors
    /// If one of them is not that of a character.
    #[named("Vocabulary::decode")]
    pub fn decode(&self, numbers: &Tensor) -> Result<String> {
        let numbers = numbers.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let missing =
            |n| err!(Index, "Vocabulary::decode", "{n} is not the number of one of {} characters", self.len());
        let character = |n: i64| usize::try_from(n).ok().and_then(|n| self.characters.get(n)).copied();
        numbers.into_iter().map(|n| character(n).ok_or_else(|| missing(n))).collect()
    }
}
