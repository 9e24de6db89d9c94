//! Tokens of words and their parts, through the crate `tokenizers`.

use crate::error::{bail, err};
use crate::{DType, Result, Tensor};
use cotangent_macros::named;
use std::fmt;
use std::path::Path;

/// A tokenizer as Hugging Face publishes it, in a file `tokenizer.json`: BPE, WordPiece or Unigram, with what belongs to it.
///
/// ```no_run
/// use cotangent::data::{DataLoader, Tokenizer, Windows};
/// let tokenizer = Tokenizer::open("gpt2/tokenizer.json")?;
/// let tokens = tokenizer.encode("Some text.")?;
/// println!("{}", tokenizer.decode(&tokens)?);
/// let loader = DataLoader::new(Windows::new(&tokens, 256)?, 8)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads a file `tokenizer.json`.
    ///
    /// # Errors
    /// If it cannot be read or is no tokenizer.
    #[named("Tokenizer::open")]
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|e| crate::Error::io("Tokenizer::open", path, e))?;
        let made = tokenizers::Tokenizer::from_bytes(text);
        Ok(Tokenizer(made.map_err(|e| err!(Format, "Tokenizer::open", "{}: {e}", path.display()))?))
    }

    /// The number of different tokens, with those that were added.
    pub fn vocab_size(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// The number of a token, if there is such a one.
    pub fn token_id(&self, token: &str) -> Option<i64> {
        self.0.token_to_id(token).map(i64::from)
    }

    /// The tokens of a text: `[tokens]`, as `i64`. No special tokens are added: see
    /// [`encode_special`](Self::encode_special).
    ///
    /// # Errors
    /// If the tokenizer does not take the text.
    #[named("Tokenizer::encode")]
    pub fn encode(&self, text: &str) -> Result<Tensor> {
        self.encoded(text, false)
    }

    /// As [`encode`](Self::encode), with the special tokens that the model wants, such as one for the start.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    #[named("Tokenizer::encode_special")]
    pub fn encode_special(&self, text: &str) -> Result<Tensor> {
        self.encoded(text, true)
    }

    fn encoded(&self, text: &str, special: bool) -> Result<Tensor> {
        let encoding = self.0.encode_fast(text, special).map_err(|e| err!(Value, "Tokenizer::encode", "{e}"))?;
        let ids: Vec<i64> = encoding.get_ids().iter().map(|&id| i64::from(id)).collect();
        let n = ids.len();
        Tensor::from_vec(ids, [n])
    }

    /// The text of some tokens, without special ones.
    ///
    /// # Errors
    /// If one of them is not the number of a token.
    #[named("Tokenizer::decode")]
    pub fn decode(&self, tokens: &Tensor) -> Result<String> {
        let mut ids = Vec::with_capacity(tokens.numel());
        for id in tokens.to_dtype(DType::I64)?.to_vec::<i64>()? {
            match u32::try_from(id).ok().filter(|&id| self.0.id_to_token(id).is_some()) {
                Some(id) => ids.push(id),
                None => {
                    bail!(Index, "Tokenizer::decode", "{id} is not the number of one of {} tokens", self.vocab_size())
                }
            }
        }
        self.0.decode(&ids, true).map_err(|e| err!(Value, "Tokenizer::decode", "{e}"))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.vocab_size())
    }
}
