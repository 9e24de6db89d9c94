//! Recurrent networks of several layers, and their cells.

mod direction;
#[cfg(feature = "cuda")]
mod on_gpu;

use crate::backend::common_device;
use crate::error::bail;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::{DType, Device, Result, Tensor};
pub(crate) use direction::Cell;
use direction::{Direction, State};

options! {
    /// The options of [`Tensor::lstm_with`], [`Tensor::gru_with`], [`Tensor::rnn_tanh_with`] and [`Tensor::rnn_relu_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::RecurrentOptions};
    /// let (w, h) = (Tensor::randn([8, 3])?, Tensor::zeros([1, 5, 8])?);
    /// let params = [&w, &Tensor::randn([8, 8])?];
    /// let options = RecurrentOptions::new().has_biases(false).batch_first(true);
    /// let (output, _) = Tensor::randn([5, 7, 3])?.rnn_tanh_with(&h, &params, options)?;
    /// assert_eq!(output.shape(), [5, 7, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RecurrentOptions<'a> {
        /// Whether two biases come after the two weights of each layer.
        has_biases: bool = true,
        /// The number of stacked layers. Each takes the outputs of the previous one as inputs.
        num_layers: usize = 1,
        /// The dropout probability for the outputs of all layers but the last, applied if `train` is set.
        dropout: f64 = 0.0,
        /// Whether dropout is applied.
        train: bool = false,
        /// Whether each layer also runs in reverse. The outputs of both directions are concatenated, forward first.
        bidirectional: bool = false,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
        /// The length of each sequence of the batch, as integers that are read on the host. By default all steps.
        lengths: Option<&'a Tensor> = None,
    }
}

/// # Recurrent networks
#[ops]
impl Tensor {
    /// A long short-term memory network over inputs `[steps, batch, size]`, or without the batch. `hx` holds the
    /// initial hidden states and cell states of all layers, `[layers · directions, batch, size]`; `params` holds, for
    /// each layer and direction, `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh` and, with a projection, `weight_hr`.
    /// Returns the outputs of the last layer at all steps, and the final hidden states and cell states.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let state = Tensor::zeros([1, 2, 8])?;
    /// let weights = [Tensor::randn([32, 3])?, Tensor::randn([32, 8])?, Tensor::zeros([32])?, Tensor::zeros([32])?];
    /// let (output, h, c) = Tensor::randn([5, 2, 3])?.lstm(&[&state, &state], &weights)?;
    /// assert_eq!((output.shape(), h.shape(), c.shape()), (&[5, 2, 8][..], &[1, 2, 8][..], &[1, 2, 8][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not match, or there are no steps.
    #[op(autocast = lower, outputs = [output, hidden, cell], samples = lstm_samples, errors = lstm_errors, tolerance = 10.0)]
    pub fn lstm<'a>(
        &self,
        hx: &[impl AsRef<Tensor>],
        params: &[impl AsRef<Tensor>],
        options: impl Into<RecurrentOptions<'a>>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let (output, hidden, cell) = network(Cell::Lstm, self, hx, params, &options)?;
        match cell {
            Some(cell) => Ok((output, hidden, cell)),
            None => bail!(Value, "lstm", "expected states (h, c), got h only"),
        }
    }

    /// A gated recurrent unit network. As [`lstm`](Self::lstm), without cell states.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let weights = [Tensor::randn([24, 3])?, Tensor::randn([24, 8])?, Tensor::zeros([24])?, Tensor::zeros([24])?];
    /// let (output, h) = Tensor::randn([5, 2, 3])?.gru(&Tensor::zeros([1, 2, 8])?, &weights)?;
    /// assert_eq!((output.shape(), h.shape()), (&[5, 2, 8][..], &[1, 2, 8][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm`](Self::lstm).
    #[op(autocast = lower, outputs = [output, hidden], samples = || simple_samples(Cell::Gru), errors = || simple_errors(Cell::Gru), tolerance = 10.0)]
    pub fn gru<'a>(
        &self,
        hx: &Tensor,
        params: &[impl AsRef<Tensor>],
        options: impl Into<RecurrentOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        let (output, hidden, _) = network(Cell::Gru, self, &[hx], params, &options)?;
        Ok((output, hidden))
    }

    /// A recurrent network with cells `tanh(W_ih x + b_ih + W_hh h + b_hh)`. As [`gru`](Self::gru) otherwise.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let weights = [Tensor::randn([8, 3])?, Tensor::randn([8, 8])?, Tensor::zeros([8])?, Tensor::zeros([8])?];
    /// let (output, _) = Tensor::randn([5, 2, 3])?.rnn_tanh(&Tensor::zeros([1, 2, 8])?, &weights)?;
    /// assert!(output.abs()?.max(..)?.item::<f32>()? <= 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm`](Self::lstm).
    #[op(autocast = lower, outputs = [output, hidden], samples = || simple_samples(Cell::Tanh), errors = || simple_errors(Cell::Tanh), tolerance = 10.0)]
    pub fn rnn_tanh<'a>(
        &self,
        hx: &Tensor,
        params: &[impl AsRef<Tensor>],
        options: impl Into<RecurrentOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        let (output, hidden, _) = network(Cell::Tanh, self, &[hx], params, &options)?;
        Ok((output, hidden))
    }

    /// [`rnn_tanh`](Self::rnn_tanh) with `relu` instead of `tanh`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let weights = [Tensor::randn([8, 3])?, Tensor::randn([8, 8])?, Tensor::zeros([8])?, Tensor::zeros([8])?];
    /// let (output, _) = Tensor::randn([5, 2, 3])?.rnn_relu(&Tensor::zeros([1, 2, 8])?, &weights)?;
    /// assert!(output.min(..)?.item::<f32>()? >= 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm`](Self::lstm).
    #[op(autocast = lower, outputs = [output, hidden], samples = || simple_samples(Cell::Relu), errors = || simple_errors(Cell::Relu), tolerance = 10.0)]
    pub fn rnn_relu<'a>(
        &self,
        hx: &Tensor,
        params: &[impl AsRef<Tensor>],
        options: impl Into<RecurrentOptions<'a>>,
    ) -> Result<(Tensor, Tensor)> {
        let (output, hidden, _) = network(Cell::Relu, self, &[hx], params, &options)?;
        Ok((output, hidden))
    }

    /// One step of an LSTM: the next hidden state and cell state for inputs `[batch, size]`, or without the batch.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let state = Tensor::zeros([2, 8])?;
    /// let (w_ih, w_hh) = (Tensor::randn([32, 3])?, Tensor::randn([32, 8])?);
    /// let (h, c) = Tensor::randn([2, 3])?.lstm_cell(&[&state, &state], &w_ih, &w_hh, None, None)?;
    /// assert_eq!((h.shape(), c.shape()), (&[2, 8][..], &[2, 8][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not match.
    #[op(autocast = lower, outputs = [hidden, cell], samples = lstm_cell_samples, errors = lstm_cell_errors)]
    pub fn lstm_cell(
        &self,
        hx: &[impl AsRef<Tensor>],
        w_ih: &Tensor,
        w_hh: &Tensor,
        #[default(None)] b_ih: Option<&Tensor>,
        #[default(None)] b_hh: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        match one_step(Cell::Lstm, "lstm_cell", self, hx, [w_ih, w_hh], [b_ih, b_hh])? {
            (hidden, Some(cell)) => Ok((hidden, cell)),
            _ => bail!(Value, "lstm_cell", "expected states (h, c), got h only"),
        }
    }

    /// One step of a gated recurrent unit. As [`lstm_cell`](Self::lstm_cell), without a cell state.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (w_ih, w_hh) = (Tensor::randn([24, 3])?, Tensor::randn([24, 8])?);
    /// let h = Tensor::randn([2, 3])?.gru_cell(&Tensor::zeros([2, 8])?, &w_ih, &w_hh, None, None)?;
    /// assert_eq!(h.shape(), [2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm_cell`](Self::lstm_cell).
    #[op(autocast = lower, samples = || cell_samples(Cell::Gru), errors = || cell_errors(Cell::Gru))]
    pub fn gru_cell(
        &self,
        hx: &Tensor,
        w_ih: &Tensor,
        w_hh: &Tensor,
        #[default(None)] b_ih: Option<&Tensor>,
        #[default(None)] b_hh: Option<&Tensor>,
    ) -> Result<Tensor> {
        Ok(one_step(Cell::Gru, "gru_cell", self, &[hx], [w_ih, w_hh], [b_ih, b_hh])?.0)
    }

    /// One step of a recurrent cell: `tanh(W_ih x + b_ih + W_hh h + b_hh)`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (w_ih, w_hh) = (Tensor::randn([8, 3])?, Tensor::randn([8, 8])?);
    /// let h = Tensor::randn([2, 3])?.rnn_tanh_cell(&Tensor::zeros([2, 8])?, &w_ih, &w_hh, None, None)?;
    /// assert_eq!(h.shape(), [2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm_cell`](Self::lstm_cell).
    #[op(autocast = lower, samples = || cell_samples(Cell::Tanh), errors = || cell_errors(Cell::Tanh))]
    pub fn rnn_tanh_cell(
        &self,
        hx: &Tensor,
        w_ih: &Tensor,
        w_hh: &Tensor,
        #[default(None)] b_ih: Option<&Tensor>,
        #[default(None)] b_hh: Option<&Tensor>,
    ) -> Result<Tensor> {
        Ok(one_step(Cell::Tanh, "rnn_tanh_cell", self, &[hx], [w_ih, w_hh], [b_ih, b_hh])?.0)
    }

    /// One step of a recurrent cell with `relu`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (w_ih, w_hh) = (Tensor::randn([8, 3])?, Tensor::randn([8, 8])?);
    /// let h = Tensor::randn([2, 3])?.rnn_relu_cell(&Tensor::zeros([2, 8])?, &w_ih, &w_hh, None, None)?;
    /// assert!(h.min(..)?.item::<f32>()? >= 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lstm_cell`](Self::lstm_cell).
    #[op(autocast = lower, samples = || cell_samples(Cell::Relu), errors = || cell_errors(Cell::Relu))]
    pub fn rnn_relu_cell(
        &self,
        hx: &Tensor,
        w_ih: &Tensor,
        w_hh: &Tensor,
        #[default(None)] b_ih: Option<&Tensor>,
        #[default(None)] b_hh: Option<&Tensor>,
    ) -> Result<Tensor> {
        Ok(one_step(Cell::Relu, "rnn_relu_cell", self, &[hx], [w_ih, w_hh], [b_ih, b_hh])?.0)
    }
}

/// The weights of a layer in one direction.
struct Weights<'a> {
    input: &'a Tensor,
    hidden: &'a Tensor,
    biases: Option<[&'a Tensor; 2]>,
    projection: Option<&'a Tensor>,
}

impl<'a> Weights<'a> {
    /// From tensors in PyTorch's order, checked against each other and the input size.
    fn new(cell: Cell, op: &'static str, given: &[&'a Tensor], has_biases: bool, inputs: usize) -> Result<Weights<'a>> {
        let (&[input, hidden, ref rest @ ..], biases) = (given, if has_biases { 2 } else { 0 }) else {
            bail!(Value, op, "expected at least 2 weights per layer, got {}", given.len());
        };
        let (biases, projection) = match (rest, biases) {
            ([], 0) => (None, None),
            (&[projection], 0) => (None, Some(projection)),
            (&[a, b], 2) => (Some([a, b]), None),
            (&[a, b, projection], 2) => (Some([a, b]), Some(projection)),
            _ => bail!(
                Value,
                op,
                "expected {} or {} weights per layer with has_biases {has_biases}, got {}",
                2 + biases,
                3 + biases,
                given.len()
            ),
        };
        let weights = Weights { input, hidden, biases, projection };
        let (rows, size) = (input.shape().first().copied().unwrap_or(0), weights.size(cell));
        let handed_on = projection.map_or(Some(size), |projection| projection.shape().first().copied()).unwrap_or(0);
        let fits = *input.shape() == [rows, inputs]
            && rows == size * cell.gates()
            && *hidden.shape() == [rows, handed_on]
            && biases.is_none_or(|biases| biases.iter().all(|bias| *bias.shape() == [rows]))
            && projection.is_none_or(|projection| *projection.shape() == [handed_on, size]);
        if !fits {
            let shapes: Vec<&[usize]> = given.iter().map(|weight| weight.shape()).collect();
            bail!(
                Shape,
                op,
                "weights must have shapes [{gates} n, {inputs}], [{gates} n, n] and [{gates} n] for hidden size n, got {shapes:?}",
                gates = cell.gates()
            );
        }
        Ok(weights)
    }

    /// The size of the state that a cell computes, before a projection.
    fn size(&self, cell: Cell) -> usize {
        self.input.shape().first().map_or(0, |rows| rows / cell.gates())
    }

    /// The input products, and the bias of the hidden product unless the cell adds both biases.
    fn products(&self, cell: Cell, x: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        match self.biases {
            None => Ok((x.linear(self.input, None)?, None)),
            Some([a, b]) if cell.adds_biases() => Ok((x.linear(self.input, Some(&a.add(b)?))?, None)),
            Some([a, b]) => Ok((x.linear(self.input, Some(a))?, Some(b.clone()))),
        }
    }
}

/// Checks that all tensors have one floating-point dtype and one device.
fn check_alike(op: &'static str, x: &Tensor, others: &[&Tensor]) -> Result<()> {
    float_only(op, x)?;
    for other in others {
        if other.dtype() != x.dtype() {
            bail!(
                DType,
                op,
                "input, states and weights must have the same dtype, got {} and {}: cast one of them",
                x.dtype(),
                other.dtype()
            );
        }
        common_device(op, x.device(), [other.device()])?;
    }
    Ok(())
}

fn one_step(
    cell: Cell,
    op: &'static str,
    x: &Tensor,
    states: &[&Tensor],
    [input, hidden]: [&Tensor; 2],
    biases: [Option<&Tensor>; 2],
) -> Result<(Tensor, Option<Tensor>)> {
    let biases: Vec<&Tensor> = biases.into_iter().flatten().collect();
    let weights: Vec<&Tensor> = [input, hidden].into_iter().chain(biases.iter().copied()).collect();
    check_alike(op, x, &[states, &weights].concat())?;
    let (1 | 2, Some(&inputs)) = (x.rank(), x.shape().last()) else {
        bail!(Shape, op, "input must be [batch, size] or [size], got shape {:?}", x.shape());
    };
    let weights = Weights::new(cell, op, &weights, !biases.is_empty(), inputs)?;
    let lead = &x.shape()[..x.rank() - 1];
    let expected: Vec<usize> = lead.iter().copied().chain([weights.size(cell)]).collect();
    if states.len() != cell.states() || states.iter().any(|state| *state.shape() != *expected) {
        let shapes: Vec<&[usize]> = states.iter().map(|state| state.shape()).collect();
        bail!(Shape, op, "expected {} states of shape {expected:?}, got shapes {shapes:?}", cell.states());
    }
    let (products, bias) = weights.products(cell, x)?;
    let state = State { hidden: states[0].clone(), cell: states.get(1).map(|&cell| cell.clone()) };
    let next = cell.step(&products, &state.hidden.linear(weights.hidden, bias.as_ref())?, &state)?;
    Ok((next.hidden, next.cell))
}

/// All layers of a network: the outputs, the final hidden states and the final cell states.
fn network(
    cell: Cell,
    x: &Tensor,
    states: &[&Tensor],
    params: &[&Tensor],
    options: &RecurrentOptions<'_>,
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let op = cell.name();
    check_alike(op, x, &[states, params].concat())?;
    if !(0.0..=1.0).contains(&options.dropout) {
        bail!(Value, op, "dropout probability must be in [0, 1], got {}", options.dropout);
    }
    let batched = match x.rank() {
        3 => true,
        2 => false,
        _ => bail!(Shape, op, "input must have 3 dimensions, or 2 without a batch, got shape {:?}", x.shape()),
    };
    let mut x = if batched { x.clone() } else { x.unsqueeze(isize::from(!options.batch_first))? };
    if options.batch_first {
        x = x.transpose(0, 1)?;
    }
    let &[steps, batch, _] = x.shape() else {
        bail!(Shape, op, "input must have 3 dimensions, got shape {:?}", x.shape())
    };
    if steps == 0 {
        bail!(Shape, op, "sequences must have at least one step, got shape {:?}", x.shape());
    }
    let directions = if options.bidirectional { 2 } else { 1 };
    let runs = options.num_layers.saturating_mul(directions);
    if runs == 0 || params.is_empty() || !params.len().is_multiple_of(runs) {
        bail!(
            Value,
            op,
            "the number of params must be a positive multiple of num_layers · directions = {} · {directions}, got {}",
            options.num_layers,
            params.len()
        );
    }
    if states.len() != cell.states() {
        bail!(Value, op, "expected {} states, got {}", cell.states(), states.len());
    }
    // The states of each layer and direction.
    let states: Vec<Tensor> =
        states.iter().map(|s| if batched { Ok((*s).clone()) } else { s.unsqueeze(1) }).collect::<Result<_>>()?;
    let mask = options.lengths.map(|lengths| mask(op, lengths, steps, batch, x.device())).transpose()?;
    let mut last: [Vec<Tensor>; 2] = [Vec::new(), Vec::new()];
    for (layer, weights) in params.chunks(params.len() / options.num_layers).enumerate() {
        let mut outputs = Vec::new();
        for (reverse, weights) in [false, true].into_iter().zip(weights.chunks(weights.len() / directions)) {
            let at = layer * directions + usize::from(reverse);
            let weights = Weights::new(cell, op, weights, options.has_biases, x.shape()[2])?;
            if cell != Cell::Lstm && weights.projection.is_some() {
                bail!(
                    Value,
                    op,
                    "projections are supported for lstm only, got {} weights for {} layers",
                    params.len(),
                    options.num_layers
                );
            }
            let sizes = [weights.projection.map_or(weights.size(cell), |w| w.shape()[0]), weights.size(cell)];
            for (state, size) in states.iter().zip(sizes) {
                if *state.shape() != [runs, batch, size] {
                    bail!(Shape, op, "states must have shape {:?}, got {:?}", [runs, batch, size], state.shape());
                }
            }
            let (inputs, bias) = weights.products(cell, &x)?;
            let first = State {
                hidden: states[0].select(0, at)?,
                cell: states.get(1).map(|cell| cell.select(0, at)).transpose()?,
            };
            let direction = Direction {
                cell,
                reverse,
                inputs,
                first,
                weight: weights.hidden.clone(),
                bias,
                projection: weights.projection.cloned(),
                mask: mask.clone(),
            };
            let (output, state) = direction.run()?;
            outputs.push(output);
            last[0].push(state.hidden);
            last[1].extend(state.cell);
        }
        x = if outputs.len() == 1 { outputs.swap_remove(0) } else { Tensor::cat(&outputs, -1)? };
        if options.dropout > 0.0 && options.train && layer + 1 < options.num_layers {
            x = x.dropout_with(options.dropout, true)?;
        }
    }
    if options.batch_first {
        x = x.transpose(0, 1)?;
    }
    let unbatched = |x: Tensor, dim: isize| if batched { Ok(x) } else { x.squeeze(dim) };
    let [hidden, cells] = last;
    let cells = if cells.is_empty() { None } else { Some(unbatched(Tensor::stack(&cells, 0)?, 1)?) };
    Ok((unbatched(x, isize::from(!options.batch_first))?, unbatched(Tensor::stack(&hidden, 0)?, 1)?, cells))
}

/// Whether each step lies inside its sequence: bools of shape `[steps, batch, 1]`.
fn mask(op: &'static str, lengths: &Tensor, steps: usize, batch: usize, device: Device) -> Result<Tensor> {
    if *lengths.shape() != [batch] || lengths.dtype().is_differentiable() || lengths.dtype() == DType::Bool {
        bail!(Shape, op, "lengths must be {batch} integers, got shape {:?} of {}", lengths.shape(), lengths.dtype());
    }
    let lengths = lengths.private()?.to_device(Device::Cpu)?.to_dtype(DType::I64)?;
    if let Some(bad) =
        lengths.all_examples()?.to_vec::<i64>()?.iter().find(|&&length| length < 1 || length > steps as i64)
    {
        bail!(Value, op, "lengths must be between 1 and {steps}, got {bad}");
    }
    let positions = Tensor::arange(0, steps as i64)?.unsqueeze(1)?;
    positions.lt(&lengths)?.unsqueeze(2)?.to_device(device)
}

/// Random weights of all layers of a network of hidden size 2.
fn weights(
    cell: Cell,
    inputs: usize,
    layers: usize,
    directions: usize,
    biases: bool,
    projected: usize,
) -> Result<Vec<Tensor>> {
    let (size, mut seed, mut all) = (2, 10, Vec::new());
    let handed_on = if projected > 0 { projected } else { size };
    let rows = size * cell.gates();
    for layer in 0..layers {
        for _ in 0..directions {
            let inputs = if layer == 0 { inputs } else { handed_on * directions };
            let mut shapes: Vec<Vec<usize>> = vec![vec![rows, inputs], vec![rows, handed_on]];
            shapes.extend(biases.then(|| [vec![rows], vec![rows]]).into_iter().flatten());
            shapes.extend((projected > 0).then(|| vec![handed_on, size]));
            for shape in shapes {
                seed += 1;
                all.push(normal(&shape[..], seed)?.mul(0.5)?);
            }
        }
    }
    Ok(all)
}

fn lstm_samples() -> Result<Vec<Sample>> {
    const CELL: Cell = Cell::Lstm;
    let x = || normal([3, 2, 3], 1);
    let state = |runs: usize, size: usize| -> Result<Vec<Tensor>> {
        Ok(vec![normal([runs, 2, size], 2)?, normal([runs, 2, 2], 3)?])
    };
    Ok(vec![
        sample![x()?, state(1, 2)?, weights(CELL, 3, 1, 1, true, 0)?],
        sample![x()?, state(4, 2)?, weights(CELL, 3, 2, 2, false, 0)?; has_biases = false, num_layers = 2, bidirectional = true],
        sample![normal([2, 3, 3], 1)?, state(2, 1)?, weights(CELL, 3, 1, 2, true, 1)?; bidirectional = true, batch_first = true, lengths = ints(&[3, 1], [2])?],
        sample![normal([3, 3], 1)?, vec![normal([1, 2], 2)?, normal([1, 2], 3)?], weights(CELL, 3, 1, 1, true, 0)?],
    ])
}

fn lstm_errors() -> Result<Vec<ErrorCase>> {
    let call = |x: &[usize], state: &[usize], layers: usize| -> Result<Sample> {
        let state = normal(state, 2)?;
        Ok(
            sample![normal(x, 1)?, vec![state.clone(), state], weights(Cell::Lstm, 3, 1, 1, true, 0)?; num_layers = layers],
        )
    };
    let x = || normal([3, 2, 3], 1);
    let state = || -> Result<Vec<Tensor>> { Ok(vec![normal([1, 2, 2], 2)?, normal([1, 2, 2], 2)?]) };
    let all = || weights(Cell::Lstm, 3, 1, 1, true, 0);
    Ok(vec![
        error!["no step", "[0, 2, 3]"; call(&[0, 2, 3], &[1, 2, 2], 1)?],
        error!["one dimension", "[3]"; call(&[3], &[1, 2, 2], 1)?],
        error!["a state of another size", "[1, 2, 3]", "[1, 2, 2]"; call(&[3, 2, 3], &[1, 2, 3], 1)?],
        error!["more layers than weights", "4", "3"; call(&[3, 2, 3], &[3, 2, 2], 3)?],
        error!["no layers", "0"; call(&[3, 2, 3], &[1, 2, 2], 0)?],
        error!["inputs of another size", "4", "[8, 3]"; call(&[3, 2, 4], &[1, 2, 2], 1)?],
        error!["rows that are no multiple of the gates", "[7, 3]"; sample![x()?, vec![normal([1, 2, 1], 2)?, normal([1, 2, 1], 2)?], vec![normal([7, 3], 1)?, normal([7, 1], 1)?, normal([7], 1)?, normal([7], 1)?]]],
        error!["one state", "1"; sample![x()?, vec![normal([1, 2, 2], 2)?], all()?]],
        error!["a length beyond the end", "4"; sample![x()?, state()?, all()?; lengths = ints(&[4, 1], [2])?]],
        error!["another dtype", "f32"; sample![x()?.to_dtype(DType::F32)?, state()?, all()?]],
        error!["no probability", "1.5"; sample![x()?, state()?, all()?; dropout = 1.5]],
    ])
}

fn simple_samples(cell: Cell) -> Result<Vec<Sample>> {
    let state = |runs: usize| normal([runs, 2, 2], 2);
    Ok(vec![
        sample![normal([3, 2, 3], 1)?, state(1)?, weights(cell, 3, 1, 1, true, 0)?],
        sample![normal([2, 3, 3], 1)?, state(4)?, weights(cell, 3, 2, 2, true, 0)?; num_layers = 2, bidirectional = true, batch_first = true, lengths = ints(&[1, 3], [2])?],
        sample![normal([2, 3], 1)?, normal([1, 2], 2)?, weights(cell, 3, 1, 1, false, 0)?; has_biases = false],
    ])
}

fn simple_errors(cell: Cell) -> Result<Vec<ErrorCase>> {
    let all = || weights(cell, 3, 1, 1, true, 0);
    Ok(vec![
        error!["a state of another size", "[1, 2, 3]", "[1, 2, 2]"; sample![normal([3, 2, 3], 1)?, normal([1, 2, 3], 1)?, all()?]],
        error!["no weights", "0"; sample![normal([3, 2, 3], 1)?, normal([1, 2, 2], 1)?, Vec::<Tensor>::new()]],
        error!["projections", "5", "projections"; sample![normal([3, 2, 3], 1)?, normal([1, 2, 1], 1)?, weights(cell, 3, 1, 1, true, 1)?]],
    ])
}

fn lstm_cell_samples() -> Result<Vec<Sample>> {
    let state = || -> Result<Vec<Tensor>> { Ok(vec![normal([2, 2], 2)?, normal([2, 2], 3)?]) };
    let (w, b) = (|n: u64| normal([8, n as usize], n), |n| normal([8], n));
    Ok(vec![
        sample![normal([2, 3], 1)?, state()?, w(3)?, w(2)?, b(1)?, b(2)?],
        sample![normal([3], 1)?, vec![normal([2], 2)?, normal([2], 3)?], w(3)?, w(2)?],
    ])
}

fn lstm_cell_errors() -> Result<Vec<ErrorCase>> {
    let w = |n: usize| normal([8, n], 4);
    Ok(vec![
        error!["one state", "[[2, 2]]", "2"; sample![normal([2, 3], 1)?, vec![normal([2, 2], 2)?], w(3)?, w(2)?]],
        error!["no multiple of 4", "[9, 3]"; sample![normal([2, 3], 1)?, vec![normal([2, 2], 2)?, normal([2, 2], 2)?], normal([9, 3], 1)?, w(2)?]],
    ])
}

fn cell_samples(cell: Cell) -> Result<Vec<Sample>> {
    let rows = 2 * cell.gates();
    let (w, b) = (|n: u64| normal([rows, n as usize], n), |n| normal([rows], n));
    Ok(vec![
        sample![normal([2, 3], 1)?, normal([2, 2], 2)?, w(3)?, w(2)?, b(1)?, b(2)?],
        sample![normal([3], 1)?, normal([2], 2)?, w(3)?, w(2)?],
    ])
}

fn cell_errors(cell: Cell) -> Result<Vec<ErrorCase>> {
    let rows = 2 * cell.gates();
    let w = |n: usize| normal([rows, n], 4);
    Ok(vec![
        error!["a state of another size", "[2, 3]"; sample![normal([2, 3], 1)?, normal([2, 3], 2)?, w(3)?, w(2)?]],
        error!["three dimensions", "[1, 2, 3]"; sample![normal([1, 2, 3], 1)?, normal([2, 2], 2)?, w(3)?, w(2)?]],
        error!["one bias", "3"; sample![normal([2, 3], 1)?, normal([2, 2], 2)?, w(3)?, w(2)?, normal([rows], 1)?]],
    ])
}
