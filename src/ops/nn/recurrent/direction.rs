//! Recurrent networks: one loop over the steps of a sequence, for all kinds of cells.
//!
//! A cell multiplies its input and its hidden state by weights; the rest of it is elementwise. The products of the inputs are
//! computed for all steps at once, before the loop, and the gradient of the hidden state's weight is one product over all
//! steps, after the loop of the backward pass. So a layer in one direction is one node with its own backward rule.

use crate::autograd::{BackwardContext, Grads, is_grad_enabled, no_grad};
use crate::backend::spec::Real;
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise};
use crate::order::sort_by_key;
use crate::{DType, Device, Result, Tensor};

/// The kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Tanh,
    Relu,
    Lstm,
    Gru,
}

/// The state that a step passes to the next one.
#[derive(Clone)]
pub(crate) struct State {
    pub hidden: Tensor,
    /// The cell state of an LSTM.
    pub cell: Option<Tensor>,
}

static TANH: Elementwise = Elementwise::new("rnn_tanh", Domain::Float, 2, 0, |x, _| (x[0] + x[1]).tanh());
static RELU: Elementwise = Elementwise::new("rnn_relu", Domain::Float, 2, 0, |x, _| (x[0] + x[1]).relu());
/// `sigmoid(gate) · tanh(value)`: the update of the cell state, and the hidden state from that cell state.
static LSTM_NEW: Elementwise = Elementwise::new("lstm", Domain::Float, 2, 0, |x, _| x[0].sigmoid() * x[1].tanh());
/// The next cell state, from the forget gate, the previous cell state and the update.
static LSTM_CELL: Elementwise = Elementwise::new("lstm", Domain::Float, 3, 0, |x, _| x[0].sigmoid() * x[1] + x[2]);
/// The candidate state, from the reset gate, the input product and the hidden product.
static GRU_NEW: Elementwise =
    Elementwise::new("gru", Domain::Float, 3, 0, |x, _| (x[1] + x[0].sigmoid() * x[2]).tanh());
/// The next state, from the update gate, the candidate state and the previous state.
static GRU_NEXT: Elementwise =
    Elementwise::new("gru", Domain::Float, 3, 0, |x, _| x[1] + x[0].sigmoid() * (x[2] - x[1]));

impl Cell {
    pub fn name(self) -> &'static str {
        match self {
            Cell::Tanh => "rnn_tanh",
            Cell::Relu => "rnn_relu",
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
        }
    }

    /// The size of the products, divided by the size of the state.
    pub fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// The number of tensors in a state.
    pub fn states(self) -> usize {
        if self == Cell::Lstm { 2 } else { 1 }
    }

    /// Whether the biases of the two products can be added into one.
    pub fn adds_biases(self) -> bool {
        self != Cell::Gru
    }

    /// The next state, from the two products and the previous state.
    pub fn step(self, input: &Tensor, hidden: &Tensor, last: &State) -> Result<State> {
        let alone = |hidden| State { hidden, cell: None };
        match self {
            Cell::Tanh => Ok(alone(TANH.call(&[input, hidden], &[])?)),
            Cell::Relu => Ok(alone(RELU.call(&[input, hidden], &[])?)),
            Cell::Lstm => {
                let [i, f, g, o] = input.add(hidden)?.chunks(-1)?;
                let cell = LSTM_CELL.call(&[&f, last.memory()?, &LSTM_NEW.call(&[&i, &g], &[])?], &[])?;
                Ok(State { hidden: LSTM_NEW.call(&[&o, &cell], &[])?, cell: Some(cell) })
            }
            Cell::Gru => {
                let ([r, z, n], [hr, hz, hn]) = (input.chunks(-1)?, hidden.chunks(-1)?);
                let new = GRU_NEW.call(&[&r.add(&hr)?, &n, &hn], &[])?;
                Ok(alone(GRU_NEXT.call(&[&z.add(&hz)?, &new, &last.hidden], &[])?))
            }
        }
    }

    /// The cotangents of the inputs of `step`, from those of its results.
    fn pull(self, input: &Tensor, hidden: &Tensor, last: &State, next: &State, g: &State) -> Result<StepCotangents> {
        match self {
            Cell::Tanh | Cell::Relu => {
                let cell = if self == Cell::Tanh { &TANH } else { &RELU };
                let sum = cell.cotangent(0, &g.hidden, &[input, hidden])?;
                Ok(StepCotangents { input: sum.clone(), hidden: sum, last_hidden: None, last_cell: None })
            }
            Cell::Lstm => {
                let [i, f, new, o] = input.add(hidden)?.chunks(-1)?;
                let shown = [&o, next.memory()?];
                let kept = g.memory()?.add(LSTM_NEW.cotangent(1, &g.hidden, &shown)?)?;
                // The third operand is only added, so its value is not read: `kept` stands in for it.
                let memory = [&f, last.memory()?, &kept];
                let gates = [
                    LSTM_NEW.cotangent(0, &kept, &[&i, &new])?,
                    LSTM_CELL.cotangent(0, &kept, &memory)?,
                    LSTM_NEW.cotangent(1, &kept, &[&i, &new])?,
                    LSTM_NEW.cotangent(0, &g.hidden, &shown)?,
                ];
                let (sum, last_cell) = (Tensor::cat(&gates, -1)?, Some(LSTM_CELL.cotangent(1, &kept, &memory)?));
                Ok(StepCotangents { input: sum.clone(), hidden: sum, last_hidden: None, last_cell })
            }
            Cell::Gru => {
                let ([r, z, n], [hr, hz, hn]) = (input.chunks(-1)?, hidden.chunks(-1)?);
                let reset = [&r.add(&hr)?, &n, &hn];
                let keep = [&z.add(&hz)?, &GRU_NEW.call(&reset, &[])?, &last.hidden];
                let new = GRU_NEXT.cotangent(1, &g.hidden, &keep)?;
                let pull = |at| GRU_NEW.cotangent(at, &new, &reset);
                let (r, z) = (pull(0)?, GRU_NEXT.cotangent(0, &g.hidden, &keep)?);
                Ok(StepCotangents {
                    input: Tensor::cat(&[&r, &z, &pull(1)?], -1)?,
                    hidden: Tensor::cat(&[&r, &z, &pull(2)?], -1)?,
                    last_hidden: Some(GRU_NEXT.cotangent(2, &g.hidden, &keep)?),
                    last_cell: None,
                })
            }
        }
    }
}

/// The cotangents of the operands of a step.
struct StepCotangents {
    /// Of the product of the input.
    input: Tensor,
    /// Of the product of the hidden state.
    hidden: Tensor,
    /// Of the previous hidden state, except through its product.
    last_hidden: Option<Tensor>,
    last_cell: Option<Tensor>,
}

impl State {
    fn memory(&self) -> Result<&Tensor> {
        match &self.cell {
            Some(cell) => Ok(cell),
            None => bail!(Value, "lstm", "expected states (h, c), got h only"),
        }
    }

    /// This state where the mask is true, the other elsewhere.
    fn where_(&self, mask: &Tensor, other: &State) -> Result<State> {
        let cell = match (&self.cell, &other.cell) {
            (Some(own), Some(other)) => Some(mask.where_(own, other)?),
            _ => None,
        };
        Ok(State { hidden: mask.where_(&self.hidden, &other.hidden)?, cell })
    }

    fn zeros_like(&self) -> Result<State> {
        Ok(State {
            hidden: Tensor::zeros_like(&self.hidden)?,
            cell: self.cell.as_ref().map(Tensor::zeros_like).transpose()?,
        })
    }

    fn add(&self, other: &State) -> Result<State> {
        let cell = match (&self.cell, &other.cell) {
            (Some(own), Some(other)) => Some(own.add(other)?),
            (own, _) => own.clone(),
        };
        Ok(State { hidden: self.hidden.add(&other.hidden)?, cell })
    }
}

/// The least numbers of steps and of weight elements for which [`Direction::spread`] is faster, and the padding of each
/// row in elements: a cache line.
const SPREAD_STEPS: usize = 4;
const SPREAD_SIZE: usize = 1 << 12;
const SPREAD_GAP: isize = 16;

/// A layer in one direction.
#[derive(Clone)]
pub(crate) struct Direction {
    pub cell: Cell,
    /// Whether it starts with the last step.
    pub reverse: bool,
    /// The products of the inputs: `[steps, batch, gates · size]`.
    pub inputs: Tensor,
    pub first: State,
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    /// The projection of the hidden state.
    pub projection: Option<Tensor>,
    /// Whether each step lies inside its sequence: bools of shape `[steps, batch, 1]`.
    pub mask: Option<Tensor>,
}

/// The values computed by a step.
struct Step {
    /// The product of the hidden state.
    hidden: Tensor,
    last: State,
    /// The result of the cell, before the projection and the mask.
    raw: State,
    next: State,
}

impl Direction {
    /// The hidden states of all steps and the final state. Sequences that have ended keep their state and output zeros.
    #[track_caller]
    pub fn run(&self) -> Result<(Tensor, State)> {
        let (detached, inputs) = (self.map(Tensor::detach), self.operands());
        // The values of the steps are needed for a backward pass only.
        let keep = is_grad_enabled() && inputs.iter().any(|x| x.requires_grad());
        #[cfg(feature = "cuda")]
        if let Some((output, last, steps)) = no_grad(|| detached.run_on_gpu(keep))? {
            return self.recorded(output, last, move |saved, ctx, g| saved.pull_on_gpu(ctx, &steps, g));
        }
        let (mut steps, mut outputs) = (Vec::new(), Vec::new());
        let last = no_grad(|| {
            detached.walk(|at, step| {
                outputs.push(detached.output(at, &step.next)?);
                if keep {
                    steps.push(step);
                }
                Ok(())
            })
        })?;
        if self.reverse {
            outputs.reverse();
        }
        let output = no_grad(|| Tensor::stack(&outputs, 0))?;
        drop(outputs);
        self.recorded(output, last, move |saved, ctx, g| {
            if steps.is_empty() { saved.pull(ctx, &saved.steps()?, g) } else { saved.pull(ctx, &steps, g) }
        })
    }

    /// Records the results as one node. Its backward rule is `pull`, unless the backward pass is recorded itself.
    #[track_caller]
    fn recorded(
        &self,
        output: Tensor,
        last: State,
        pull: impl Fn(&Direction, &BackwardContext, &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static,
    ) -> Result<(Tensor, State)> {
        let inputs = self.operands();
        let outputs: Vec<Tensor> = [Some(output), Some(last.hidden), last.cell].into_iter().flatten().collect();
        let outputs = Tensor::record_all(outputs, self.cell.name(), &inputs, |save| {
            let saved = self.map(|x| save.save(x));
            move |ctx: &BackwardContext, g: &[Option<Tensor>]| {
                // A recorded backward pass needs the states as functions of the inputs.
                if is_grad_enabled() { saved.pull(ctx, &saved.steps()?, g) } else { pull(&saved, ctx, g) }
            }
        })?;
        let mut outputs = outputs.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(output), Some(hidden)) => Ok((output, State { hidden, cell: outputs.next() })),
            _ => bail!(Value, self.cell.name(), "expected an output and a hidden state, got fewer tensors"),
        }
    }

    pub(super) fn operands(&self) -> Vec<&Tensor> {
        let optional = [&self.first.cell, &self.bias, &self.projection];
        let mut all = vec![&self.inputs, &self.first.hidden, &self.weight];
        all.extend(optional.into_iter().flatten());
        all
    }

    fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Direction {
        Direction {
            cell: self.cell,
            reverse: self.reverse,
            inputs: f(&self.inputs),
            first: State { hidden: f(&self.first.hidden), cell: self.first.cell.as_ref().map(&mut f) },
            weight: f(&self.weight),
            bias: self.bias.as_ref().map(&mut f),
            projection: self.projection.as_ref().map(&mut f),
            mask: self.mask.clone(),
        }
    }

    /// The indices of the steps in the order in which they run.
    pub(super) fn order(&self) -> Vec<usize> {
        let count = self.inputs.shape()[0];
        if self.reverse { (0..count).rev().collect() } else { (0..count).collect() }
    }

    fn mask_at(&self, at: usize) -> Result<Option<Tensor>> {
        self.mask.as_ref().map(|mask| mask.select(0, at)).transpose()
    }

    /// The output of a step: zeros where the sequence has ended.
    fn output(&self, at: usize, state: &State) -> Result<Tensor> {
        match self.mask_at(at)? {
            Some(mask) => mask.where_(&state.hidden, 0.0),
            None => Ok(state.hidden.clone()),
        }
    }

    fn steps(&self) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        self.walk(|_, step| {
            steps.push(step);
            Ok(())
        })?;
        Ok(steps)
    }

    /// Runs all steps, passes the values of each to `each`, and returns the final state.
    fn walk(&self, mut each: impl FnMut(usize, Step) -> Result<()>) -> Result<State> {
        let mut state = self.first.clone();
        let weight = self.spread(&self.weight.t()?)?.t()?;
        for at in self.order() {
            let hidden = state.hidden.linear(&weight, self.bias.as_ref())?;
            let raw = self.cell.step(&self.inputs.select(0, at)?, &hidden, &state)?;
            let mut next = raw.clone();
            if let Some(projection) = &self.projection {
                next.hidden = next.hidden.linear(projection, None)?;
            }
            if let Some(mask) = self.mask_at(at)? {
                next = next.where_(&mask, &state)?;
            }
            each(at, Step { hidden, last: state, raw, next: next.clone() })?;
            state = next;
        }
        Ok(state)
    }

    /// A matrix that every step multiplies by. On the CPU it is copied, with contiguous rows and padding between them,
    /// so that a product of few rows reads it in place instead of packing it in each step. Without the padding, rows a
    /// power of two apart would evict each other from the cache.
    fn spread(&self, matrix: &Tensor) -> Result<Tensor> {
        let single = matches!(matrix.dtype(), DType::F32 | DType::F64);
        let pays = self.inputs.shape()[0] >= SPREAD_STEPS && matrix.numel() >= SPREAD_SIZE;
        if is_grad_enabled() || matrix.device() != Device::Cpu || !single || !pays {
            return Ok(matrix.clone());
        }
        matrix.detach().pad(&[0, SPREAD_GAP])?.narrow(1, 0, matrix.shape()[1])
    }

    fn pull(&self, ctx: &BackwardContext, steps: &[Step], g: &[Option<Tensor>]) -> Result<Grads> {
        let mut state = self.first.zeros_like()?;
        if let Some(hidden) = g.get(1).cloned().flatten() {
            state.hidden = hidden;
        }
        if let (Some(cell), true) = (g.get(2).cloned().flatten(), state.cell.is_some()) {
            state.cell = Some(cell);
        }
        let weight = self.spread(&self.weight)?;
        let mut pulled = Vec::with_capacity(steps.len());
        for (step, at) in steps.iter().zip(self.order()).rev() {
            let (mut next, mut kept) = (state, None);
            let mask = self.mask_at(at)?;
            if let Some(mask) = &mask {
                let zeros = next.zeros_like()?;
                kept = Some(zeros.where_(mask, &next)?);
                next = next.where_(mask, &zeros)?;
            }
            if let Some(Some(output)) = g.first() {
                let output = output.select(0, at)?;
                let output = if let Some(mask) = &mask { mask.where_(&output, 0.0)? } else { output };
                next.hidden = next.hidden.add(&output)?;
            }
            let projected = next.hidden.clone();
            if let Some(projection) = &self.projection {
                next.hidden = next.hidden.matmul(projection)?;
            }
            let input = self.inputs.select(0, at)?;
            let cotangents = self.cell.pull(&input, &step.hidden, &step.last, &step.raw, &next)?;
            let StepCotangents { input, hidden, last_hidden, last_cell } = cotangents;
            state = State { hidden: hidden.matmul(&weight)?, cell: last_cell };
            if let Some(last) = last_hidden {
                state.hidden = state.hidden.add(&last)?;
            }
            if let Some(kept) = &kept {
                state = state.add(kept)?;
            }
            pulled.push(PulledStep { at, input, hidden, projected, step });
        }
        sort_by_key(&mut pulled, |step| step.at);
        self.gradients(ctx, &pulled, state)
    }

    /// The gradients of all operands, from the cotangents of the steps.
    fn gradients(&self, ctx: &BackwardContext, pulled: &[PulledStep<'_>], first: State) -> Result<Grads> {
        // A tensor of every step, concatenated as rows.
        let rows = |of: &dyn Fn(&PulledStep<'_>) -> Tensor| Tensor::cat(&pulled.iter().map(of).collect::<Vec<_>>(), 0);
        let product = |g: &Tensor, x: &Tensor| g.t()?.matmul(x);
        let inputs = Tensor::stack(&pulled.iter().map(|step| &step.input).collect::<Vec<_>>(), 0)?;
        // Where the two products are added, they have the same cotangent.
        let hidden = match self.cell {
            Cell::Gru => rows(&|step| step.hidden.clone())?,
            _ => inputs.flatten(0, 1)?,
        };
        let weight = || product(&hidden, &rows(&|step| step.step.last.hidden.clone())?);
        let mut grads: Grads = [Some(inputs), Some(first.hidden), ctx.want(2, weight)?].into_iter().collect();
        if let Some(cell) = first.cell {
            grads.push(Some(cell));
        }
        if self.bias.is_some() {
            grads.push(Some(hidden.sum(0)?));
        }
        if self.projection.is_some() {
            let raw = rows(&|step| step.step.raw.hidden.clone())?;
            grads.push(Some(product(&rows(&|step| step.projected.clone())?, &raw)?));
        }
        Ok(grads)
    }
}

/// What the backward pass keeps of a step for the gradients of the weights.
struct PulledStep<'a> {
    at: usize,
    /// The cotangent of the product of the input.
    input: Tensor,
    /// The cotangent of the product of the hidden state.
    hidden: Tensor,
    /// The cotangent of the hidden state, after the projection.
    projected: Tensor,
    step: &'a Step,
}
