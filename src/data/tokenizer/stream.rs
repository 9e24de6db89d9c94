//! Decoding token by token.

use super::Tokenizer;
use super::stop::StopStrings;
use crate::Result;
use crate::error::bail;
use crate::shared::MaybeShared;
use cotangent_macros::named;
use std::sync::Arc;
use tokenizers::DecoderWrapper;

/// The text of a sequence of tokens, piece by piece. [`Tokenizer::decode_stream`] makes it.
///
/// All pieces together, with that of [`finish`](Self::finish), are the text that [`decode`](Tokenizer::decode) gives for all
/// tokens. A character whose bytes are several tokens is returned when it is complete.
///
/// ```no_run
/// use cotangent::data::Tokenizer;
/// use cotangent::models::{CausalLm, GenerateOptions, Generation};
/// let model = CausalLm::load("folder")?;
/// let tokenizer = Tokenizer::open("folder/tokenizer.json")?;
/// let prompt = tokenizer.encode_special("The meaning of life is")?.unsqueeze(0)?;
/// let mut text = tokenizer.decode_stream().stop(["\n\n"])?;
/// for step in Generation::new(&model, &prompt, GenerateOptions::new())?.take(100) {
///     print!("{}", text.push(step?.tokens.item()?)?);
///     if text.stopped_by().is_some() {
///         break;
///     }
/// }
/// println!("{}", text.finish()?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'a> {
    tokenizer: MaybeShared<'a, Tokenizer>,
    /// The tokens that the next text depends on: some whose text has been returned, as context, and those that are new.
    ids: Vec<u32>,
    context: usize,
    /// The text of `ids` that has been returned.
    given: String,
    /// Whether tokens such as `<0xE2>` are decoded together.
    has_byte_tokens: bool,
    stops: StopStrings,
}

impl<'a> DecodeStream<'a> {
    fn new(tokenizer: MaybeShared<'a, Tokenizer>) -> DecodeStream<'a> {
        DecodeStream {
            ids: Vec::new(),
            context: 0,
            given: String::new(),
            has_byte_tokens: tokenizer.inner.get_decoder().is_some_and(decodes_byte_tokens),
            stops: StopStrings::default(),
            tokenizer,
        }
    }

    /// Ends the text before the first of these strings. A string may span tokens. Text that may be the start of a stop string is
    /// held back until the next tokens decide. Of several strings, the one that is complete first counts.
    ///
    /// # Errors
    /// If a string is empty.
    #[named("DecodeStream::stop")]
    pub fn stop<S: Into<String>>(mut self, texts: impl IntoIterator<Item = S>) -> Result<DecodeStream<'a>> {
        let texts: Vec<String> = texts.into_iter().map(Into::into).collect();
        if texts.iter().any(String::is_empty) {
            bail!(Value, "DecodeStream::stop", "stop strings must have at least one character, got an empty one");
        }
        self.stops = StopStrings::new(texts);
        Ok(self)
    }

    /// The stop string that has ended the text. After it all pieces are empty.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stops.found()
    }

    /// Takes the next token, and returns the text that is known after it, which may be empty. Special tokens have no text.
    ///
    /// # Errors
    /// If the id is not in the vocabulary: the stream is unchanged then.
    #[named("DecodeStream::push")]
    pub fn push(&mut self, token: i64) -> Result<String> {
        let id = self.tokenizer.checked(token)?;
        if self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        let word = self.tokenizer.inner.id_to_token(id).unwrap_or_default();
        self.ids.push(id);
        // Tokens of bytes are decoded as a whole, and all of them are invalid if one is.
        if self.has_byte_tokens && word.len() == 6 && word.starts_with("<0x") && word.ends_with('>') {
            return Ok(String::new());
        }
        match self.next_text(false) {
            Ok(text) => Ok(self.stops.push(&text)),
            Err(error) => {
                self.ids.pop();
                Err(error)
            }
        }
    }

    /// Returns the rest of the text, when there are no more tokens. Of a character whose bytes are incomplete this is
    /// `char::REPLACEMENT_CHARACTER`, as in [`decode`](Tokenizer::decode).
    ///
    /// # Errors
    /// If the tokenizer fails.
    #[named("DecodeStream::finish")]
    pub fn finish(mut self) -> Result<String> {
        let last = self.next_text(true)?;
        let mut text = self.stops.push(&last);
        text.push_str(&self.stops.finish());
        Ok(text)
    }

    /// The text after the one returned before.
    fn next_text(&mut self, is_last: bool) -> Result<String> {
        let whole = self.tokenizer.text_of(&self.ids)?;
        // At the end this may stand for the first bytes of a character.
        let known = if is_last { &whole } else { whole.strip_suffix(char::REPLACEMENT_CHARACTER).unwrap_or(&whole) };
        let Some(next) = known.strip_prefix(self.given.as_str()) else {
            // A decoder that changes the text before. That has been returned, so the new tokens are decoded alone.
            let text = self.tokenizer.text_of(&self.ids[self.context..])?;
            self.ids.drain(..self.context);
            (self.context, self.given) = (self.ids.len(), text.clone());
            return Ok(text);
        };
        let next = next.to_string();
        if known.len() < whole.len() {
            self.given.push_str(&next);
            return Ok(next);
        }
        // The new tokens are the next context, if they have a text: decoders treat the first text differently.
        let text = self.tokenizer.text_of(&self.ids[self.context..])?;
        if text.is_empty() {
            self.given = whole;
        } else {
            self.ids.drain(..self.context);
            self.given = text;
        }
        self.context = self.ids.len();
        Ok(next)
    }
}

fn decodes_byte_tokens(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(all) => all.get_decoders().iter().any(decodes_byte_tokens),
        _ => false,
    }
}

impl Tokenizer {
    /// Decodes tokens one by one: see [`DecodeStream`].
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(MaybeShared::Borrowed(self))
    }

    /// As [`decode_stream`](Self::decode_stream), with a stream that has no lifetime, so that a thread or a struct can own it.
    ///
    /// ```no_run
    /// use cotangent::data::Tokenizer;
    /// use std::sync::Arc;
    /// let tokenizer = Arc::new(Tokenizer::open("folder/tokenizer.json")?);
    /// let mut text = tokenizer.into_decode_stream();
    /// std::thread::spawn(move || text.push(3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn into_decode_stream(self: Arc<Self>) -> DecodeStream<'static> {
        DecodeStream::new(MaybeShared::Shared(self))
    }
}
