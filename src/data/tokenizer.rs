//! Subword tokenizers, through the crate `tokenizers`.

mod stop;
mod stream;

pub use stream::DecodeStream;

use crate::error::{bail, err};
use crate::{DType, Error, ErrorKind, Result, Tensor};
use cotangent_macros::named;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// A tokenizer in the format of Hugging Face, a file `tokenizer.json`: BPE, WordPiece or Unigram. It needs the feature
/// `tokenizers`. [`models`](mod@crate::models#text) shows how to continue a text with a model.
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
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
}

/// The largest padding that a file may ask for. The crate allocates it without a check, and a failed allocation aborts the
/// process.
const MOST_PADDING: usize = 1 << 24;

/// Calls the crate `tokenizers` and turns its panics into errors. It panics on some files, such as one whose decoder it
/// cannot read, and on some texts if the numbers in a file are inconsistent. A panic leaves only caches of words unfinished,
/// and their locks ignore it.
fn guarded<T>(kind: ErrorKind, op: &'static str, path: &Path, f: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let refused = |what: &dyn fmt::Display| Error::made(kind, op.into(), format!("{}: {what}", path.display()));
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(outcome) => outcome.map_err(|error| refused(&error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason is given");
            Err(refused(&format_args!("the tokenizer failed: {text}")))
        }
    }
}

impl Tokenizer {
    /// Reads a file `tokenizer.json`.
    ///
    /// # Errors
    /// If it cannot be read or is not a tokenizer.
    #[named("Tokenizer::open")]
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|e| crate::Error::io("Tokenizer::open", path, e))?;
        // Invalid JSON is refused here, with its line: the crate would panic within a decoder.
        serde_json::from_slice::<serde_json::Value>(&text)
            .map_err(|e| err!(Format, "Tokenizer::open", "{}: {e}", path.display()))?;
        let inner = guarded(ErrorKind::Format, "Tokenizer::open", path, || tokenizers::Tokenizer::from_bytes(text))?;
        if let Some(padding) = inner.get_padding() {
            let fixed = if let tokenizers::PaddingStrategy::Fixed(size) = padding.strategy { size } else { 0 };
            let padded = fixed.max(padding.pad_to_multiple_of.unwrap_or(0));
            if padded > MOST_PADDING {
                bail!(
                    Format,
                    "Tokenizer::open",
                    "{}: padding must be at most {MOST_PADDING} tokens, got {padded}",
                    path.display()
                );
            }
        }
        Ok(Tokenizer { inner, path: path.to_path_buf() })
    }

    /// The size of the vocabulary, with added tokens.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The id of a token, if it exists.
    pub fn token_id(&self, token: &str) -> Option<i64> {
        self.inner.token_to_id(token).map(i64::from)
    }

    /// The tokens of a text: `[tokens]`, as `i64`. No special tokens are added: see
    /// [`encode_special`](Self::encode_special).
    ///
    /// # Errors
    /// If the tokenizer fails.
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
        let encode = || self.inner.encode_fast(text, special);
        let encoding = guarded(ErrorKind::Value, "Tokenizer::encode", &self.path, encode)?;
        let ids: Vec<i64> = encoding.get_ids().iter().map(|&id| i64::from(id)).collect();
        let n = ids.len();
        Tensor::from_vec(ids, [n])
    }

    /// The text of tokens, without special tokens.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    #[named("Tokenizer::decode")]
    pub fn decode(&self, tokens: &Tensor) -> Result<String> {
        let tokens = tokens.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let ids = tokens.into_iter().map(|token| self.checked(token)).collect::<Result<Vec<u32>>>()?;
        self.text_of(&ids)
    }

    /// The id of the crate `tokenizers`.
    fn checked(&self, token: i64) -> Result<u32> {
        match u32::try_from(token).ok().filter(|&id| self.inner.id_to_token(id).is_some()) {
            Some(id) => Ok(id),
            None => bail!(
                Index,
                "Tokenizer::decode",
                "{token} is not a token id of the vocabulary of {} tokens",
                self.vocab_size()
            ),
        }
    }

    fn is_special(&self, id: u32) -> bool {
        let token = self.inner.id_to_token(id).unwrap_or_default();
        self.inner.get_added_vocabulary().is_special_token(&token)
    }

    fn text_of(&self, ids: &[u32]) -> Result<String> {
        // Some decoders of the crate panic if no token has a text.
        if ids.iter().all(|&id| self.is_special(id)) {
            return Ok(String::new());
        }
        guarded(ErrorKind::Value, "Tokenizer::decode", &self.path, || self.inner.decode(ids, true))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.vocab_size())
    }
}
