//! A language model of LSTM layers.

use super::Published;
use super::cache::KeyValueCache;
use super::generate::CausalModel;
use crate::error::bail;
use crate::nn::{Dropout, Embedding, Forward, LSTM, LSTMOptions, Linear, Module, Parameter, init};
use crate::{Result, Tensor};

/// The sizes of a [`LstmLm`]. The default is that of PyTorch's example of a word-level model.
///
/// ```
/// use cotangent::models::LstmLmConfig;
/// assert_eq!(LstmLmConfig::default().num_layers, 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LstmLmConfig {
    /// The vocabulary size.
    pub vocab_size: usize,
    /// The size of the token embeddings.
    pub embedding_size: usize,
    /// The size of the hidden states.
    pub hidden_size: usize,
    /// The number of LSTM layers.
    pub num_layers: usize,
    /// The dropout probability in training, for the embeddings, between layers, and for the outputs.
    pub dropout: f64,
    /// Whether the head is tied to the token embedding, which requires equal `embedding_size` and `hidden_size`.
    pub tie_weights: bool,
}

impl Default for LstmLmConfig {
    fn default() -> LstmLmConfig {
        LstmLmConfig {
            vocab_size: 33278,
            embedding_size: 200,
            hidden_size: 200,
            num_layers: 2,
            dropout: 0.2,
            tie_weights: false,
        }
    }
}

/// A language model: a token embedding, LSTM layers, and a linear head for the logits of the next token. The names are those of
/// PyTorch's example of a word-level model.
///
/// A long text is trained on in segments: the final state of one, detached from its graph, is the initial state of the next.
///
/// ```
/// use cotangent::models::{LstmLm, LstmLmConfig};
/// use cotangent::Tensor;
/// let model = LstmLm::new(&LstmLmConfig { vocab_size: 50, embedding_size: 8, hidden_size: 16, ..LstmLmConfig::default() })?;
/// let mut state = None;
/// for _ in 0..3 {
///     let (tokens, next) = (Tensor::randint(0, 50, [4, 10])?, Tensor::randint(0, 50, [4, 10])?);
///     let (logits, (h, c)) = model.forward_state(&tokens, state.as_ref().map(|(h, c)| (h, c)))?;
///     logits.flatten(0, 1)?.cross_entropy(&next.flatten(0, 1)?)?.backward()?;
///     state = Some((h.detach(), c.detach()));
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct LstmLm {
    drop: Dropout,
    encoder: Embedding,
    rnn: LSTM,
    decoder: Linear,
}

impl LstmLm {
    /// A model with new weights: uniform in ±0.1, except for those of the LSTM.
    ///
    /// ```
    /// use cotangent::models::{LstmLm, LstmLmConfig};
    /// let config = LstmLmConfig { embedding_size: 100, tie_weights: true, ..LstmLmConfig::default() };
    /// assert!(LstmLm::new(&config).is_err());
    /// ```
    ///
    /// # Errors
    /// If a size is 0, `dropout` is not in [0, 1], or weights of different sizes are to be tied.
    #[track_caller]
    pub fn new(config: &LstmLmConfig) -> Result<LstmLm> {
        let &LstmLmConfig { vocab_size, embedding_size, hidden_size, num_layers, dropout, tie_weights } = config;
        if vocab_size == 0 || embedding_size == 0 {
            bail!(Value, "LstmLm", "vocab_size and embedding_size must be ≥ 1, got {vocab_size} and {embedding_size}");
        }
        if tie_weights && embedding_size != hidden_size {
            bail!(
                Value,
                "LstmLm",
                "embedding_size and hidden_size must be equal to tie weights, got {embedding_size} and {hidden_size}"
            );
        }
        let table = |size: usize| Parameter::new(init::uniform([vocab_size, size], -0.1, 0.1)?);
        let encoder = Embedding::from_weight(table(embedding_size)?);
        let weight = if tie_weights { encoder.weight.tie() } else { table(hidden_size)? };
        // A single layer has nothing between layers.
        let between = if num_layers > 1 { dropout } else { 0.0 };
        let options = LSTMOptions::new().num_layers(num_layers).dropout(between).batch_first(true);
        Ok(LstmLm {
            drop: Dropout::new(dropout)?,
            encoder,
            rnn: LSTM::new_with(embedding_size, hidden_size, options)?,
            decoder: Linear { weight, bias: Some(Parameter::new(Tensor::zeros([vocab_size])?)?) },
        })
    }

    /// Computes the logits `[batch, steps, vocab_size]` of tokens `[batch, steps]`, from a state of zeros.
    ///
    /// ```
    /// use cotangent::models::{LstmLm, LstmLmConfig};
    /// use cotangent::tensor;
    /// let model = LstmLm::new(&LstmLmConfig { vocab_size: 50, embedding_size: 8, hidden_size: 16, ..LstmLmConfig::default() })?;
    /// assert_eq!(model.forward(&tensor!([[3, 1, 4]])?)?.shape(), [1, 3, 50]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token is out of range.
    #[track_caller]
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        Ok(self.forward_state(tokens, None)?.0)
    }

    /// As [`forward`](Self::forward), from an initial state. Also returns the final hidden and cell states,
    /// `[num_layers, batch, hidden_size]`.
    ///
    /// ```
    /// use cotangent::models::{LstmLm, LstmLmConfig};
    /// use cotangent::tensor;
    /// let model = LstmLm::new(&LstmLmConfig { vocab_size: 50, embedding_size: 8, hidden_size: 16, ..LstmLmConfig::default() })?;
    /// let (_, (h, c)) = model.forward_state(&tensor!([[3, 1, 4]])?, None)?;
    /// let (more, _) = model.forward_state(&tensor!([[1, 5]])?, Some((&h, &c)))?;
    /// assert_eq!((h.shape(), more.shape()), (&[2, 1, 16][..], &[1, 2, 50][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token is out of range, or the state does not fit.
    #[track_caller]
    pub fn forward_state(
        &self,
        tokens: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        if tokens.rank() != 2 {
            bail!(Shape, "LstmLm", "tokens must have shape [batch, steps], got {:?}", tokens.shape());
        }
        let x = self.drop.forward(&self.encoder.forward(tokens)?)?;
        let (x, state) = self.rnn.forward_state(&x, state)?;
        Ok((self.decoder.forward(&self.drop.forward(&x)?)?, state))
    }
}

impl CausalModel for LstmLm {
    #[track_caller]
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        if !cache.padding().is_empty() {
            bail!(Value, "LstmLm", "the cache must have no padding: a recurrent model cannot skip tokens");
        }
        let (logits, state) = self.forward_state(tokens, cache.state())?;
        cache.check("LstmLm", tokens.shape()[0], tokens.shape()[1])?;
        cache.keep_state(state, tokens)?;
        Ok(logits)
    }
}

impl Published for LstmLm {}
