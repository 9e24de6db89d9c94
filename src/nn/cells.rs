//! Single steps of recurrent layers.

use super::{Forward, Module, Parameter, RnnNonlinearity, init, layer};
use crate::error::bail;
use crate::ops::Cell;
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The options of [`GRUCell::new_with`] and [`LSTMCell::new_with`].
    ///
    /// ```
    /// use cotangent::nn::{GRUCell, CellOptions, Module};
    /// assert_eq!(GRUCell::new_with(3, 8, CellOptions::new().bias(false))?.parameters().len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CellOptions {
        /// Whether there are biases.
        bias: bool = true,
    }
}

options! {
    /// The options of [`RNNCell::new_with`]. A [`RnnNonlinearity`] can be passed in their place.
    ///
    /// ```
    /// use cotangent::nn::{RNNCell, RNNCellOptions};
    /// let cell = RNNCell::new_with(3, 8, RNNCellOptions::new().bias(false))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RNNCellOptions {
        /// Whether there are biases.
        bias: bool = true,
        /// The nonlinearity.
        nonlinearity: RnnNonlinearity = RnnNonlinearity::Tanh,
    }
}

impl From<RnnNonlinearity> for RNNCellOptions {
    fn from(nonlinearity: RnnNonlinearity) -> RNNCellOptions {
        RNNCellOptions::new().nonlinearity(nonlinearity)
    }
}

/// The weights of a cell: of the input, of the hidden state, and the biases of both.
type CellWeights = (Parameter, Parameter, Option<Parameter>, Option<Parameter>);

/// New weights, uniform in ±1/√hidden_size as in PyTorch.
fn weights(name: &'static str, cell: Cell, input_size: usize, hidden_size: usize, bias: bool) -> Result<CellWeights> {
    if hidden_size == 0 {
        bail!(Value, name, "hidden_size must be ≥ 1, got 0");
    }
    let (rows, bound) = (cell.gates().saturating_mul(hidden_size), 1.0 / (hidden_size as f64).sqrt());
    let new = |shape: &[usize]| Parameter::new(init::uniform(shape, -bound, bound)?);
    let one = || bias.then(|| new(&[rows])).transpose();
    Ok((new(&[rows, input_size])?, new(&[rows, hidden_size])?, one()?, one()?))
}

/// The initial state for the inputs `x`: zeros.
fn zeros(x: &Tensor, weight_hh: &Tensor) -> Result<Tensor> {
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = weight_hh.shape()[1];
    }
    Tensor::zeros_with(&shape[..], (x.dtype(), x.device()))
}

/// One step of an Elman recurrent network: `tanh(W_ih x + b_ih + W_hh h + b_hh)`.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, RNNCell}};
/// let cell = RNNCell::new(3, 8)?;
/// let x = Tensor::randn([2, 3])?;
/// let h = cell.forward(&x)?;
/// assert_eq!(cell.step(&x, &h)?.shape(), [2, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct RNNCell {
    /// Of shape `[hidden_size, input_size]`.
    pub weight_ih: Parameter,
    /// Of shape `[hidden_size, hidden_size]`.
    pub weight_hh: Parameter,
    /// Of shape `[hidden_size]`.
    pub bias_ih: Option<Parameter>,
    /// Of shape `[hidden_size]`.
    pub bias_hh: Option<Parameter>,
    #[module(skip)]
    nonlinearity: RnnNonlinearity,
}

#[layer]
impl RNNCell {
    /// One step of an Elman recurrent network, `tanh(W_ih x + b_ih + W_hh h + b_hh)` or ReLU in place of tanh, with inputs of
    /// size `input_size` and hidden states of size `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{RNNCell, RnnNonlinearity};
    /// let cell = RNNCell::new_with(3, 8, RnnNonlinearity::Relu)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` is 0, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<RNNCellOptions>) -> Result<RNNCell> {
        let (weight_ih, weight_hh, bias_ih, bias_hh) =
            weights("RNNCell", Cell::Tanh, input_size, hidden_size, options.bias)?;
        Ok(RNNCell { weight_ih, weight_hh, bias_ih, bias_hh, nonlinearity: options.nonlinearity })
    }

    /// The next hidden state.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::RNNCell};
    /// let h = RNNCell::new(3, 8)?.step(&Tensor::randn([3])?, &Tensor::zeros([8])?)?;
    /// assert_eq!(h.shape(), [8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        let (b_ih, b_hh) = (self.bias_ih.as_deref(), self.bias_hh.as_deref());
        match self.nonlinearity {
            RnnNonlinearity::Relu => x.rnn_relu_cell(hidden, &self.weight_ih, &self.weight_hh, b_ih, b_hh),
            RnnNonlinearity::Tanh => x.rnn_tanh_cell(hidden, &self.weight_ih, &self.weight_hh, b_ih, b_hh),
        }
    }
}

impl Forward for RNNCell {
    /// The next hidden state from a hidden state of zeros.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.step(x, &zeros(x, &self.weight_hh)?)
    }
}

/// One step of a gated recurrent unit (GRU).
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, GRUCell}};
/// let cell = GRUCell::new(3, 8)?;
/// let x = Tensor::randn([2, 3])?;
/// let h = cell.forward(&x)?;
/// assert_eq!(cell.step(&x, &h)?.shape(), [2, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct GRUCell {
    /// Of shape `[3 · hidden_size, input_size]`.
    pub weight_ih: Parameter,
    /// Of shape `[3 · hidden_size, hidden_size]`.
    pub weight_hh: Parameter,
    /// Of shape `[3 · hidden_size]`.
    pub bias_ih: Option<Parameter>,
    /// Of shape `[3 · hidden_size]`.
    pub bias_hh: Option<Parameter>,
}

#[layer]
impl GRUCell {
    /// One step of a gated recurrent unit (GRU), with inputs of size `input_size` and hidden states of size `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{GRUCell, Module};
    /// assert_eq!(GRUCell::new(3, 8)?.weight_ih.shape(), [24, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` is 0, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<CellOptions>) -> Result<GRUCell> {
        let (weight_ih, weight_hh, bias_ih, bias_hh) =
            weights("GRUCell", Cell::Gru, input_size, hidden_size, options.bias)?;
        Ok(GRUCell { weight_ih, weight_hh, bias_ih, bias_hh })
    }

    /// The next hidden state.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::GRUCell};
    /// let h = GRUCell::new(3, 8)?.step(&Tensor::randn([3])?, &Tensor::zeros([8])?)?;
    /// assert_eq!(h.shape(), [8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        x.gru_cell(hidden, &self.weight_ih, &self.weight_hh, self.bias_ih.as_deref(), self.bias_hh.as_deref())
    }
}

impl Forward for GRUCell {
    /// The next hidden state from a hidden state of zeros.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.step(x, &zeros(x, &self.weight_hh)?)
    }
}

/// One step of a long short-term memory network (LSTM).
///
/// ```
/// use cotangent::{Tensor, nn::LSTMCell};
/// let (cell, zeros) = (LSTMCell::new(3, 8)?, Tensor::zeros([2, 8])?);
/// let (h, c) = cell.step(&Tensor::randn([2, 3])?, &zeros, &zeros)?;
/// assert_eq!((h.shape(), c.shape()), (&[2, 8][..], &[2, 8][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct LSTMCell {
    /// Of shape `[4 · hidden_size, input_size]`.
    pub weight_ih: Parameter,
    /// Of shape `[4 · hidden_size, hidden_size]`.
    pub weight_hh: Parameter,
    /// Of shape `[4 · hidden_size]`.
    pub bias_ih: Option<Parameter>,
    /// Of shape `[4 · hidden_size]`.
    pub bias_hh: Option<Parameter>,
}

#[layer]
impl LSTMCell {
    /// One step of a long short-term memory network (LSTM), with inputs of size `input_size` and hidden states of size
    /// `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{LSTMCell, Module};
    /// assert_eq!(LSTMCell::new(3, 8)?.weight_ih.shape(), [32, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` is 0, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<CellOptions>) -> Result<LSTMCell> {
        let (weight_ih, weight_hh, bias_ih, bias_hh) =
            weights("LSTMCell", Cell::Lstm, input_size, hidden_size, options.bias)?;
        Ok(LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh })
    }

    /// The next hidden state and cell state.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::LSTMCell};
    /// let zeros = Tensor::zeros([8])?;
    /// let (h, c) = LSTMCell::new(3, 8)?.step(&Tensor::randn([3])?, &zeros, &zeros)?;
    /// assert_eq!((h.shape(), c.shape()), (&[8][..], &[8][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, hidden: &Tensor, cell: &Tensor) -> Result<(Tensor, Tensor)> {
        let (b_ih, b_hh) = (self.bias_ih.as_deref(), self.bias_hh.as_deref());
        x.lstm_cell(&[hidden, cell], &self.weight_ih, &self.weight_hh, b_ih, b_hh)
    }
}

impl Forward for LSTMCell {
    /// The next hidden state from a hidden state of zeros.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let zeros = zeros(x, &self.weight_hh)?;
        Ok(self.step(x, &zeros, &zeros)?.0)
    }
}
