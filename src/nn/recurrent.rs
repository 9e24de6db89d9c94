//! Recurrent layers and their cells.

use super::{Forward, Module, Parameter, Part, PartMut, Ties, Training, Visit, Visitor, init, layer};
use crate::error::bail;
use crate::ops::{Cell, choices};
use crate::options::RecurrentOptions;
use crate::options::options;
use crate::{Result, Tensor};

/// The weights of all layers and directions, under PyTorch's names: `weight_ih_l0`, .., `bias_hh_l1_reverse`.
#[derive(Debug)]
struct SequenceWeights(Vec<(String, Parameter)>);

/// The settings that the three kinds of layers share.
#[derive(Clone, Debug)]
struct Sizes {
    cell: Cell,
    input_size: usize,
    hidden_size: usize,
    proj_size: usize,
    num_layers: usize,
    bias: bool,
    batch_first: bool,
    dropout: f64,
    bidirectional: bool,
}

impl Sizes {
    fn check(&self, name: &'static str) -> Result<()> {
        let Sizes { hidden_size, proj_size, num_layers, dropout, .. } = *self;
        if hidden_size == 0 || num_layers == 0 {
            bail!(Value, name, "hidden_size and num_layers must be ≥ 1, got {hidden_size} and {num_layers}");
        }
        if proj_size >= hidden_size {
            bail!(Value, name, "proj_size must be smaller than hidden_size {hidden_size}, got {proj_size}");
        }
        if !(0.0..=1.0).contains(&dropout) {
            bail!(Value, name, "dropout must be in [0, 1], got {dropout}");
        }
        if dropout > 0.0 && num_layers == 1 {
            bail!(Value, name, "dropout acts between layers and must be 0 if num_layers is 1, got {dropout}");
        }
        Ok(())
    }

    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// The size of a hidden state.
    fn handed_on(&self) -> usize {
        if self.proj_size > 0 { self.proj_size } else { self.hidden_size }
    }

    /// The names of the weights, and their shapes.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let rows = self.cell.gates().saturating_mul(self.hidden_size);
        let mut all = Vec::new();
        for at in 0..self.num_layers {
            let inputs = if at == 0 { self.input_size } else { self.handed_on() * self.directions() };
            for suffix in &["", "_reverse"][..self.directions()] {
                let mut add = |name: &str, shape: &[usize]| all.push((format!("{name}_l{at}{suffix}"), shape.to_vec()));
                add("weight_ih", &[rows, inputs]);
                add("weight_hh", &[rows, self.handed_on()]);
                if self.bias {
                    add("bias_ih", &[rows]);
                    add("bias_hh", &[rows]);
                }
                if self.proj_size > 0 {
                    add("weight_hr", &[self.proj_size, self.hidden_size]);
                }
            }
        }
        all
    }

    /// New weights, uniform in ±1/√hidden_size as in PyTorch.
    fn weights(&self, name: &'static str) -> Result<SequenceWeights> {
        self.check(name)?;
        let bound = 1.0 / (self.hidden_size as f64).sqrt();
        let weight = |(name, shape): (String, Vec<usize>)| {
            Ok((name, Parameter::new(init::uniform(&shape[..], -bound, bound)?)?))
        };
        Ok(SequenceWeights(self.shapes().into_iter().map(weight).collect::<Result<_>>()?))
    }

    fn options<'a>(&self, training: &Training, lengths: Option<&'a Tensor>) -> RecurrentOptions<'a> {
        let options = RecurrentOptions::new().has_biases(self.bias).num_layers(self.num_layers).dropout(self.dropout);
        let options = options.train(training.is_on()).bidirectional(self.bidirectional).batch_first(self.batch_first);
        options.lengths(lengths)
    }

    /// The default initial state for the inputs `x`: zeros.
    fn first(&self, x: &Tensor, size: usize) -> Result<Tensor> {
        let runs = self.num_layers * self.directions();
        let shape = match (x.shape(), self.batch_first) {
            (&[_, batch, _], false) | (&[batch, _, _], true) => vec![runs, batch, size],
            _ => vec![runs, size],
        };
        Tensor::zeros_with(&shape[..], (x.dtype(), x.device()))
    }
}

impl SequenceWeights {
    fn tensors(&self) -> Vec<&Tensor> {
        self.0.iter().map(|(_, parameter)| &**parameter).collect()
    }
}

/// Makes the layers modules whose weights are named as fields of the layer.
macro_rules! sequence_modules {
    ($($name:ident),+) => {$(
        impl Visit for $name {
            fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
                visitor.enter(stringify!($name));
                for (name, parameter) in &self.weights.0 {
                    visitor.module(name, parameter);
                }
                visitor.module("training", &self.training);
            }

            fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
                visitor.enter(stringify!($name));
                for (name, parameter) in &mut self.weights.0 {
                    visitor.module(name, parameter);
                }
                visitor.module("training", &mut self.training);
            }

            fn deep_clone_in(&self, ties: &mut Ties) -> Result<$name> {
                let weight = |(name, parameter): &(String, Parameter)| Ok((name.clone(), ties.clone_of(parameter)?));
                let weights = SequenceWeights(self.weights.0.iter().map(weight).collect::<Result<_>>()?);
                Ok($name { weights, sizes: self.sizes.clone(), training: self.training.clone() })
            }
        }

        impl Module for $name {}

        impl Forward for $name {
            /// The outputs of the last layer at all steps.
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                Ok(self.forward_state(x, None)?.0)
            }
        }
    )+};
}
sequence_modules!(RNN, GRU, LSTM);

choices! {
    /// The nonlinearity of a plain recurrent cell.
    ///
    /// ```
    /// use cotangent::nn::{RNN, RnnNonlinearity};
    /// let layer = RNN::new_with(3, 8, RnnNonlinearity::Relu)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum RnnNonlinearity {
        /// The hyperbolic tangent.
        #[default]
        Tanh = "tanh",
        /// `max(x, 0)`.
        Relu = "relu",
    }
}

impl RnnNonlinearity {
    fn cell(self) -> Cell {
        match self {
            RnnNonlinearity::Relu => Cell::Relu,
            _ => Cell::Tanh,
        }
    }
}

options! {
    /// The options of [`RNN::new_with`]. A [`RnnNonlinearity`] can be passed in their place.
    ///
    /// ```
    /// use cotangent::nn::{RNN, RNNOptions, Module};
    /// let layer = RNN::new_with(3, 8, RNNOptions::new().num_layers(2).bias(false))?;
    /// assert_eq!(layer.parameters().len(), 4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RNNOptions {
        /// The number of stacked layers.
        num_layers: usize = 1,
        /// The nonlinearity of the cells.
        nonlinearity: RnnNonlinearity = RnnNonlinearity::Tanh,
        /// Whether there are biases.
        bias: bool = true,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
        /// The dropout probability of the outputs of each layer but the last, in training.
        dropout: f64 = 0.0,
        /// Whether each layer also runs over the reversed sequence.
        bidirectional: bool = false,
    }
}

impl From<RnnNonlinearity> for RNNOptions {
    fn from(nonlinearity: RnnNonlinearity) -> RNNOptions {
        RNNOptions::new().nonlinearity(nonlinearity)
    }
}

options! {
    /// The options of [`GRU::new_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, GRU, GRUOptions}};
    /// let layer = GRU::new_with(3, 8, GRUOptions::new().bidirectional(true).batch_first(true))?;
    /// assert_eq!(layer.forward(&Tensor::randn([2, 5, 3])?)?.shape(), [2, 5, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GRUOptions {
        /// The number of stacked layers.
        num_layers: usize = 1,
        /// Whether there are biases.
        bias: bool = true,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
        /// The dropout probability of the outputs of each layer but the last, in training.
        dropout: f64 = 0.0,
        /// Whether each layer also runs over the reversed sequence.
        bidirectional: bool = false,
    }
}

options! {
    /// The options of [`LSTM::new_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, LSTM, LSTMOptions}};
    /// let layer = LSTM::new_with(3, 8, LSTMOptions::new().num_layers(2).proj_size(4))?;
    /// assert_eq!(layer.forward(&Tensor::randn([5, 2, 3])?)?.shape(), [5, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LSTMOptions {
        /// The number of stacked layers.
        num_layers: usize = 1,
        /// Whether there are biases.
        bias: bool = true,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
        /// The dropout probability of the outputs of each layer but the last, in training.
        dropout: f64 = 0.0,
        /// Whether each layer also runs over the reversed sequence.
        bidirectional: bool = false,
        /// The size to which hidden states are projected; 0 for no projection.
        proj_size: usize = 0,
    }
}

/// An Elman recurrent network: `tanh(W_ih x + b_ih + W_hh h + b_hh)` at every step. Weights and biases are initialised uniformly
/// in ±1/√hidden_size.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, RNN}};
/// let layer = RNN::new(3, 8)?;
/// assert_eq!(layer.forward(&Tensor::randn([5, 2, 3])?)?.shape(), [5, 2, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct RNN {
    weights: SequenceWeights,
    sizes: Sizes,
    training: Training,
}

#[layer]
impl RNN {
    /// An Elman recurrent network, `tanh(W_ih x + b_ih + W_hh h + b_hh)` or ReLU in place of tanh at every step, with inputs of
    /// size `input_size` and hidden states of size `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{Module, RNN};
    /// assert_eq!(RNN::new(3, 8)?.num_parameters(), 8 * 3 + 8 * 8 + 8 + 8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` or `num_layers` is 0, `dropout` is not in [0, 1] or not 0 for a single layer, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<RNNOptions>) -> Result<RNN> {
        let RNNOptions { num_layers, nonlinearity, bias, batch_first, dropout, bidirectional } = options;
        let cell = nonlinearity.cell();
        let sizes = Sizes {
            cell,
            input_size,
            hidden_size,
            proj_size: 0,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
        };
        Ok(RNN { weights: sizes.weights("RNN")?, sizes, training: Training::default() })
    }
}

/// A network of gated recurrent units (GRU). Weights and biases are initialised uniformly in ±1/√hidden_size.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, GRU}};
/// let layer = GRU::new(3, 8)?;
/// assert_eq!(layer.forward(&Tensor::randn([5, 2, 3])?)?.shape(), [5, 2, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct GRU {
    weights: SequenceWeights,
    sizes: Sizes,
    training: Training,
}

#[layer]
impl GRU {
    /// A network of gated recurrent units (GRU), with inputs of size `input_size` and hidden states of size `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{GRU, Module};
    /// assert_eq!(GRU::new(3, 8)?.num_parameters(), 3 * (8 * 3 + 8 * 8 + 8 + 8));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` or `num_layers` is 0, `dropout` is not in [0, 1] or not 0 for a single layer, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<GRUOptions>) -> Result<GRU> {
        let GRUOptions { num_layers, bias, batch_first, dropout, bidirectional } = options;
        let cell = Cell::Gru;
        let sizes = Sizes {
            cell,
            input_size,
            hidden_size,
            proj_size: 0,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
        };
        Ok(GRU { weights: sizes.weights("GRU")?, sizes, training: Training::default() })
    }
}

/// A long short-term memory network (LSTM). Weights and biases are initialised uniformly in ±1/√hidden_size.
///
/// ```
/// use cotangent::{Tensor, nn::LSTM};
/// let layer = LSTM::new(3, 8)?;
/// let (output, state) = layer.forward_state(&Tensor::randn([5, 2, 3])?, None)?;
/// // Go on from where the sequence ended.
/// let (more, _) = layer.forward_state(&Tensor::randn([4, 2, 3])?, Some((&state.0, &state.1)))?;
/// assert_eq!((output.shape(), more.shape()), (&[5, 2, 8][..], &[4, 2, 8][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct LSTM {
    weights: SequenceWeights,
    sizes: Sizes,
    training: Training,
}

#[layer]
impl LSTM {
    /// A long short-term memory network (LSTM), with inputs of size `input_size` and hidden states of size `hidden_size`.
    ///
    /// ```
    /// use cotangent::nn::{LSTM, Module};
    /// assert_eq!(LSTM::new(3, 8)?.num_parameters(), 4 * (8 * 3 + 8 * 8 + 8 + 8));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` or `num_layers` is 0, `proj_size` is not smaller than `hidden_size`, `dropout` is not in [0, 1] or not 0
    /// for a single layer, or memory runs out.
    pub fn new(input_size: usize, hidden_size: usize, options: impl Into<LSTMOptions>) -> Result<LSTM> {
        let LSTMOptions { num_layers, bias, batch_first, dropout, bidirectional, proj_size } = options;
        let cell = Cell::Lstm;
        let sizes =
            Sizes { cell, input_size, hidden_size, proj_size, num_layers, bias, batch_first, dropout, bidirectional };
        Ok(LSTM { weights: sizes.weights("LSTM")?, sizes, training: Training::default() })
    }

    /// The outputs at all steps, and the final hidden and cell states of all layers, `[layers · directions, batch, size]`.
    /// `state` is the initial state; zeros by default.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::LSTM};
    /// let (output, (h, c)) = LSTM::new(3, 8)?.forward_state(&Tensor::randn([5, 2, 3])?, None)?;
    /// assert_eq!((output.shape(), h.shape(), c.shape()), (&[5, 2, 8][..], &[1, 2, 8][..], &[1, 2, 8][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward_state(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> Result<(Tensor, (Tensor, Tensor))> {
        self.run(x, state, None)
    }

    /// As [`forward_state`](Self::forward_state), for padded sequences of the given lengths. Outputs beyond a sequence's length
    /// are zeros, and its final state is that of its own last step.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::LSTM, tensor};
    /// let layer = LSTM::new(3, 8)?;
    /// let (output, _) = layer.forward_padded(&Tensor::randn([5, 2, 3])?, &tensor!([5, 2])?, None)?;
    /// assert_eq!(output.select(1, 1)?.narrow(0, 2, 3)?.abs()?.max(..)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there; also if `lengths` is not one length from 1 to the number of steps for each sequence.
    #[doc(alias = "pack_padded_sequence")]
    #[track_caller]
    pub fn forward_padded(
        &self,
        x: &Tensor,
        lengths: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        self.run(x, state, Some(lengths))
    }

    #[track_caller]
    fn run(
        &self,
        x: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
        lengths: Option<&Tensor>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let (h, c) = match state {
            Some((h, c)) => (h.clone(), c.clone()),
            None => (self.sizes.first(x, self.sizes.handed_on())?, self.sizes.first(x, self.sizes.hidden_size)?),
        };
        let options = self.sizes.options(&self.training, lengths);
        let (output, h, c) = x.lstm_with(&[&h, &c], &self.weights.tensors(), options)?;
        Ok((output, (h, c)))
    }
}

/// The forward passes of layers whose state is one tensor.
macro_rules! one_state {
    ($($name:ident),+) => {$(
        impl $name {
            /// The outputs at all steps, and the final hidden states of all layers, `[layers · directions, batch, size]`.
            /// `state` is the initial state; zeros by default.
            ///
            #[doc = concat!("```\nuse cotangent::{Tensor, nn::", stringify!($name), "};")]
            #[doc = concat!("let (output, h) = ", stringify!($name), "::new(3, 8)?.forward_state(&Tensor::randn([5, 2, 3])?, None)?;")]
            /// assert_eq!((output.shape(), h.shape()), (&[5, 2, 8][..], &[1, 2, 8][..]));
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// If the shapes or dtypes do not fit.
            #[track_caller]
            pub fn forward_state(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                self.run(x, state, None)
            }

            /// As [`forward_state`](Self::forward_state), for padded sequences of the given lengths. Outputs beyond a sequence's
            /// length are zeros, and its final state is that of its own last step.
            ///
            #[doc = concat!("```\nuse cotangent::{Tensor, nn::", stringify!($name), ", tensor};")]
            #[doc = concat!("let layer = ", stringify!($name), "::new(3, 8)?;")]
            /// let (output, _) = layer.forward_padded(&Tensor::randn([5, 2, 3])?, &tensor!([5, 2])?, None)?;
            /// assert_eq!(output.select(1, 1)?.narrow(0, 2, 3)?.abs()?.max(..)?.item::<f32>()?, 0.0);
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// As there; also if `lengths` is not one length from 1 to the number of steps for each sequence.
            #[doc(alias = "pack_padded_sequence")]
            #[track_caller]
            pub fn forward_padded(
                &self,
                x: &Tensor,
                lengths: &Tensor,
                state: Option<&Tensor>,
            ) -> Result<(Tensor, Tensor)> {
                self.run(x, state, Some(lengths))
            }

            #[track_caller]
            fn run(&self, x: &Tensor, state: Option<&Tensor>, lengths: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                let h = match state {
                    Some(h) => h.clone(),
                    None => self.sizes.first(x, self.sizes.hidden_size)?,
                };
                let (weights, options) = (self.weights.tensors(), self.sizes.options(&self.training, lengths));
                match self.sizes.cell {
                    Cell::Relu => x.rnn_relu_with(&h, &weights, options),
                    Cell::Tanh => x.rnn_tanh_with(&h, &weights, options),
                    _ => x.gru_with(&h, &weights, options),
                }
            }
        }
    )+};
}
one_state!(RNN, GRU);
