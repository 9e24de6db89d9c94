//! L-BFGS (Liu and Nocedal, 1989): a quasi-Newton method with a limited history of gradients.

mod search;

use super::saved::{Saved, save_count, save_number, save_numbers};
use super::settings::{SettingValue, not_negative};
use super::{Optimizer, OptimizerEntry};
use crate::autograd::{enable_grad, no_grad};
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::nn::Module;
use crate::ops::{ParamGroup, choices};
use crate::options::options;
use crate::{DType, Result, Tensor};
use search::{Point, Search};
use std::fmt;
use std::sync::Arc;

choices! {
    /// The line search of [`Lbfgs`].
    ///
    /// ```
    /// use cotangent::optim::{Lbfgs, LineSearch};
    /// let optimizer = Lbfgs::new(1.0).line_search_fn(LineSearch::StrongWolfe);
    /// ```
    pub enum LineSearch {
        /// No line search: the step size is the learning rate.
        #[default]
        None = "none",
        /// A line search for the strong Wolfe conditions.
        StrongWolfe = "strong_wolfe",
    }
}

impl SettingValue for LineSearch {
    fn get(&self) -> f64 {
        f64::from(u8::from(*self == LineSearch::StrongWolfe))
    }

    fn set(&mut self, number: f64) {
        *self = if number == 0.0 { LineSearch::None } else { LineSearch::StrongWolfe };
    }
}

options! {
    /// The settings of [`Lbfgs`].
    ///
    /// ```
    /// use cotangent::optim::{Lbfgs, LbfgsOptions};
    /// let optimizer = Lbfgs::new_with(LbfgsOptions::new().history_size(10));
    /// ```
    pub struct LbfgsOptions {
        /// The learning rate: the step size, or the first one that the line search tries.
        lr: f64 = 1.0,
        /// The largest number of iterations in a step.
        max_iter: usize = 20,
        /// The largest number of evaluations of the loss in a step; by default 5/4 of `max_iter`.
        max_eval: Option<usize> = None,
        /// A step ends when no element of the gradient is larger in magnitude.
        tolerance_grad: f64 = 1e-7,
        /// A step ends when an iteration changes the loss, or all parameters, by no more than this.
        tolerance_change: f64 = 1e-9,
        /// The number of past gradients that are kept.
        history_size: usize = 100,
        /// The line search.
        line_search_fn: LineSearch = LineSearch::None,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

/// L-BFGS: a quasi-Newton method that estimates the inverse Hessian from past gradients, for small problems and full-batch
/// gradients. A step evaluates the loss several times, so it takes a closure: [`step_with`](Lbfgs::step_with). All parameters
/// form one vector, on one device, without groups. The arithmetic is PyTorch's.
///
/// ```
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::optim::{Lbfgs, LineSearch};
/// use cotangent::{Generator, Tensor};
/// let x = Generator::seed(1).randn([20, 3])?;
/// let y = x.sum(1)?.unsqueeze(1)?;
/// let mut model = Linear::new(3, 1)?;
/// let mut optimizer = Lbfgs::new(1.0).line_search_fn(LineSearch::StrongWolfe);
/// for _ in 0..3 {
///     optimizer.step_with(&mut model, |model| {
///         let loss = model.forward(&x)?.mse_loss(&y)?;
///         loss.backward()?;
///         Ok(loss)
///     })?;
/// }
/// assert!(model.forward(&x)?.mse_loss(&y)?.item::<f64>()? < 1e-6);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "LBFGS")]
#[must_use]
pub struct Lbfgs {
    options: LbfgsOptions,
    only: Option<Arc<dyn Fn(&str) -> bool + Send + Sync>>,
    state: State,
}

/// The state between steps.
#[derive(Clone, Debug, Default)]
struct State {
    iterations: u64,
    evaluations: u64,
    memory: Option<Memory>,
    /// The rounding residual of half-precision parameters.
    residual: Option<Tensor>,
}

/// The last iteration, and the history of those before.
#[derive(Clone, Debug)]
struct Memory {
    direction: Tensor,
    length: f64,
    gradient: Tensor,
    scale: f64,
    /// Differences of gradients, and the steps that made them.
    differences: Vec<Tensor>,
    steps: Vec<Tensor>,
    /// The inverse dot products of both.
    ro: Vec<f64>,
}

const OP: &str = "Lbfgs";

macro_rules! setters {
    ($($(#[$doc:meta])+ $name:ident: $ty:ty;)+) => {$(
        $(#[$doc])+
        pub fn $name(mut self, $name: $ty) -> Lbfgs {
            self.options.$name = $name;
            self
        }
    )+};
}

impl Lbfgs {
    /// Creates the optimiser with a learning rate, and defaults for all other settings.
    ///
    /// ```
    /// use cotangent::optim::{Lbfgs, Optimizer};
    /// assert_eq!(Lbfgs::new(0.1).lr(), 0.1);
    /// ```
    pub fn new(lr: f64) -> Lbfgs {
        Lbfgs::new_with(LbfgsOptions::new().lr(lr))
    }

    /// Creates the optimiser with these settings.
    ///
    /// ```
    /// use cotangent::optim::{Lbfgs, LbfgsOptions, Optimizer};
    /// assert_eq!(Lbfgs::new_with(LbfgsOptions::new().lr(0.1)).lr(), 0.1);
    /// ```
    pub fn new_with(options: impl Into<LbfgsOptions>) -> Lbfgs {
        Lbfgs { options: options.into(), only: None, state: State::default() }
    }

    setters! {
        /// As [`LbfgsOptions::max_iter`].
        max_iter: usize;
        /// As [`LbfgsOptions::tolerance_grad`].
        tolerance_grad: f64;
        /// As [`LbfgsOptions::tolerance_change`].
        tolerance_change: f64;
        /// As [`LbfgsOptions::history_size`].
        history_size: usize;
        /// As [`LbfgsOptions::line_search_fn`].
        line_search_fn: LineSearch;
        /// As [`LbfgsOptions::maximize`].
        maximize: bool;
    }

    /// As [`LbfgsOptions::max_eval`].
    pub fn max_eval(mut self, max_eval: usize) -> Lbfgs {
        self.options.max_eval = Some(max_eval);
        self
    }

    /// Updates only the parameters that `belongs` selects by name.
    ///
    /// ```
    /// use cotangent::optim::Lbfgs;
    /// let optimizer = Lbfgs::new(1.0).only(|name| name.ends_with("weight"));
    /// ```
    pub fn only(mut self, belongs: impl Fn(&str) -> bool + Send + Sync + 'static) -> Lbfgs {
        self.only = Some(Arc::new(belongs));
        self
    }

    pub(crate) const ENTRY: OptimizerEntry = OptimizerEntry {
        name: OP,
        docs: "L-BFGS: a quasi-Newton method that estimates the inverse Hessian from past gradients, for small problems and \
               full-batch gradients. A step evaluates the loss several times, so it takes a closure.",
        params: LbfgsOptions::PARAMS,
        build: |args| Ok(Box::new(Lbfgs::new_with(LbfgsOptions::from_args(OP, args)?))),
    };

    /// A step of up to [`max_iter`](LbfgsOptions::max_iter) iterations. `closure` computes the loss and calls `backward` on it;
    /// gradients are removed before each call. Returns the loss before the step.
    ///
    /// # Errors
    /// If a setting is out of its domain, the closure fails, the parameters are on several devices, or memory runs out; the
    /// parameters are then as they were.
    #[track_caller]
    pub fn step_with<M: Module + ?Sized>(
        &mut self,
        model: &mut M,
        mut closure: impl FnMut(&M) -> Result<Tensor>,
    ) -> Result<Tensor> {
        named("step_with", self.run(model, &mut closure).map_err(|error| error.context(OP)))
    }

    fn run<M: Module + ?Sized>(
        &mut self,
        model: &mut M,
        closure: &mut dyn FnMut(&M) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.check()?;
        let mut problem = Problem::new(self, model, closure)?;
        let before = problem.x.clone();
        let done = no_grad(|| self.state.clone().minimize(&self.options, &mut problem));
        match done {
            Ok((state, loss)) => {
                let residual = problem.residual()?;
                self.state = State { residual, ..state };
                Ok(loss)
            }
            Err(error) => {
                problem.put(&before)?;
                Err(error)
            }
        }
    }

    fn check(&self) -> Result<()> {
        not_negative(OP, "lr", self.options.lr)?;
        not_negative(OP, "tolerance_grad", self.options.tolerance_grad)?;
        not_negative(OP, "tolerance_change", self.options.tolerance_change)
    }

    fn settings(options: &mut LbfgsOptions) -> Vec<(&'static str, &mut dyn SettingValue)> {
        super::settings::settings!(options: lr, max_iter, max_eval, tolerance_grad, tolerance_change, history_size,
            line_search_fn, maximize)
    }

    fn load(&mut self, dict: &StateDict) -> Result<()> {
        let mut saved = Saved::new(OP, dict);
        let mut options = self.options.clone();
        for (name, value) in Lbfgs::settings(&mut options) {
            value.set(saved.number(name));
        }
        let mut state =
            State { iterations: saved.count("n_iter"), evaluations: saved.count("func_evals"), ..State::default() };
        if dict.get("residual").is_some() {
            state.residual = saved.vector("residual");
        }
        if dict.get("d").is_some() {
            let ro =
                saved.vector("ro").map_or_else(|| Ok(Vec::new()), |ro| ro.to_dtype(DType::F64)?.to_vec::<f64>())?;
            let n = saved.vector("d").map_or(0, |d| d.numel());
            let matrix = |saved: &mut Saved<'_>, name: &str| -> Result<Vec<Tensor>> {
                let rows = saved.matrix(name, [ro.len(), n]);
                rows.map_or_else(|| Ok(Vec::new()), |rows| rows.unbind(0))
            };
            let (differences, steps) = (matrix(&mut saved, "old_dirs")?, matrix(&mut saved, "old_stps")?);
            let (length, scale) = (saved.number("t"), saved.number("H_diag"));
            if let (Some(direction), Some(gradient)) = (saved.vector("d"), saved.vector("prev_flat_grad")) {
                state.memory = Some(Memory { direction, length, gradient, scale, differences, steps, ro });
            }
        }
        saved.finish()?;
        Lbfgs { options: options.clone(), only: None, state: State::default() }.check()?;
        (self.options, self.state) = (options, state);
        Ok(())
    }
}

impl fmt::Debug for Lbfgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(OP)
            .field("options", &self.options)
            .field("iterations", &self.state.iterations)
            .finish_non_exhaustive()
    }
}

impl Optimizer for Lbfgs {
    #[track_caller]
    fn step(&mut self, _: &mut dyn Module) -> Result<()> {
        let why = "a step evaluates the loss several times: call step_with() with a closure that computes the loss";
        named("step", Err(crate::error::err!(Value, "step", "{OP}: {why}")))
    }

    fn lr(&self) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.options.lr = lr;
    }

    #[track_caller]
    fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        for (name, value) in Lbfgs::settings(&mut self.options.clone()) {
            save_number(name, value.get(), &mut dict)?;
        }
        save_count("n_iter", self.state.iterations, &mut dict)?;
        save_count("func_evals", self.state.evaluations, &mut dict)?;
        if let Some(residual) = &self.state.residual {
            dict.insert("residual", residual.clone());
        }
        if let Some(memory) = &self.state.memory {
            dict.insert("d", memory.direction.clone());
            dict.insert("prev_flat_grad", memory.gradient.clone());
            save_number("t", memory.length, &mut dict)?;
            save_number("H_diag", memory.scale, &mut dict)?;
            save_numbers("ro", &memory.ro, &mut dict)?;
            let rows = |all: &[Tensor]| match all {
                [] => Tensor::zeros_with([0, memory.direction.numel()], memory.direction.dtype()),
                all => Tensor::stack(all, 0),
            };
            dict.insert("old_dirs", rows(&memory.differences)?);
            dict.insert("old_stps", rows(&memory.steps)?);
        }
        Ok(dict)
    }

    #[track_caller]
    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", self.load(dict).map_err(|error| error.context(OP)))
    }
}

/// A model as a function of one vector.
struct Problem<'a, M: ?Sized> {
    model: &'a mut M,
    closure: &'a mut dyn FnMut(&M) -> Result<Tensor>,
    only: Option<Arc<dyn Fn(&str) -> bool + Send + Sync>>,
    sign: f64,
    dtype: DType,
    half: bool,
    /// The values that the parameters have, in the compute dtype.
    x: Tensor,
}

impl<'a, M: Module + ?Sized> Problem<'a, M> {
    fn new(own: &Lbfgs, model: &'a mut M, closure: &'a mut dyn FnMut(&M) -> Result<Tensor>) -> Result<Problem<'a, M>> {
        let chosen = |name: &str| own.only.as_ref().is_none_or(|only| only(name));
        let all: Vec<Tensor> = model
            .named_parameters()
            .into_iter()
            .filter(|(name, _)| chosen(name))
            .map(|(_, parameter)| parameter.detach())
            .collect();
        let Some(first) = all.first() else { bail!(Value, OP, "the model must have at least one parameter to train") };
        if let Some(other) = all.iter().find(|other| other.device() != first.device()) {
            bail!(Device, OP, "all parameters must be on one device, got {} and {}", first.device(), other.device());
        }
        if crate::backend::is_recording(first.device()) {
            bail!(Backend, OP, "steps cannot be recorded: their length depends on values");
        }
        let dtype = if all.iter().any(|x| x.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
        let half = all.iter().any(|x| x.dtype() != DType::F32 && x.dtype() != DType::F64);
        let mut x = flat(&all, dtype)?;
        if let Some(memory) = &own.state.memory {
            super::store::same_form(OP, "all parameters", &memory.direction, x.shape(), dtype)?;
        }
        if let Some(residual) = &own.state.residual {
            super::store::same_form(OP, "all parameters", residual, x.shape(), dtype)?;
            x = x.add(&residual.to_device(x.device())?)?;
        }
        let sign = super::settings::sign(own.options.maximize);
        Ok(Problem { model, closure, only: own.only.clone(), sign, dtype, half, x })
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only(name))
    }

    /// Sets the parameters.
    fn put(&mut self, x: &Tensor) -> Result<()> {
        let only = self.only.clone();
        let mut at = 0;
        for mut parameter in self.model.parameters_mut() {
            if only.as_ref().is_none_or(|only| only(parameter.name())) {
                let part = x.narrow(0, at, parameter.numel())?.reshape(parameter.shape())?;
                at += parameter.numel();
                parameter.set(&part.to_dtype(parameter.dtype())?)?;
            }
        }
        self.x = x.clone();
        Ok(())
    }

    /// The rounding residual of the parameters.
    fn residual(&self) -> Result<Option<Tensor>> {
        if !self.half {
            return Ok(None);
        }
        let all = self.model.named_parameters().into_iter().filter(|(name, _)| self.is_chosen(name));
        let all: Vec<Tensor> = all.map(|(_, parameter)| parameter.detach()).collect();
        self.x.sub(&flat(&all, self.dtype)?).map(Some)
    }

    /// The loss, as a tensor and as a number that is minimised, and its gradient.
    fn evaluate(&mut self) -> Result<(Tensor, f64, Tensor)> {
        self.model.zero_grad();
        let loss = enable_grad(|| (self.closure)(self.model))?;
        let value = loss.item::<f64>()? * self.sign;
        let mut parts = Vec::new();
        for (_, parameter) in self.model.named_parameters().into_iter().filter(|(name, _)| self.is_chosen(name)) {
            parts.push(parameter.grad().map_or_else(|| parameter.detach().zeros_like(), |grad| Ok(grad.detach()))?);
        }
        let gradient = flat(&parts, self.dtype)?;
        Ok((loss, value, if self.sign < 0.0 { gradient.neg()? } else { gradient }))
    }
}

fn flat(all: &[Tensor], dtype: DType) -> Result<Tensor> {
    let parts = all.iter().map(|x| x.to_dtype(dtype)?.reshape([x.numel()])).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, 0)
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    a.dot(b)?.item()
}

fn largest(x: &Tensor) -> Result<f64> {
    if x.numel() == 0 { Ok(0.0) } else { x.abs()?.max(..)?.item() }
}

impl State {
    /// Iterates until convergence or a limit, and returns the first loss.
    fn minimize<M: Module + ?Sized>(
        mut self,
        options: &LbfgsOptions,
        problem: &mut Problem<'_, M>,
    ) -> Result<(State, Tensor)> {
        let max_eval = options.max_eval.unwrap_or(options.max_iter.saturating_mul(5) / 4) as u64;
        let (first, mut loss, mut gradient) = problem.evaluate()?;
        let mut evaluations = 1;
        self.evaluations += 1;
        if largest(&gradient)? <= options.tolerance_grad {
            return Ok((self, first));
        }
        for iteration in 1..=options.max_iter {
            self.iterations += 1;
            let is_first = self.memory.is_none();
            let mut memory = match self.memory.take() {
                None => Memory::new(&gradient)?,
                Some(memory) => memory.next(&gradient, options.history_size)?,
            };
            memory.length = options.lr;
            if is_first {
                memory.length *= (1.0 / gradient.abs()?.sum(..)?.item::<f64>()?).min(1.0);
            }
            let (before, slope) = (loss, dot(&gradient, &memory.direction)?);
            if slope > -options.tolerance_change {
                self.memory = Some(memory);
                break;
            }
            let mut settled = false;
            let mut made = 0;
            let x = problem.x.clone();
            let moved = |length: f64| x.add(&memory.direction.mul(length)?);
            if options.line_search_fn == LineSearch::StrongWolfe {
                let mut at = |length: f64| {
                    problem.put(&moved(length)?)?;
                    let (_, value, gradient) = problem.evaluate()?;
                    let slope = dot(&gradient, &memory.direction)?;
                    Ok(Point { length, value, slope, gradient })
                };
                let search = Search {
                    start: Point { length: 0.0, value: loss, slope, gradient },
                    reach: largest(&memory.direction)?,
                    tolerance: options.tolerance_change,
                    most: max_eval.saturating_sub(evaluations),
                };
                let (found, tried) = search.run(memory.length, &mut at)?;
                (loss, gradient, memory.length, made) = (found.value, found.gradient, found.length, tried);
                problem.put(&moved(memory.length)?)?;
                settled = largest(&gradient)? <= options.tolerance_grad;
            } else {
                problem.put(&moved(memory.length)?)?;
                // The last point is not evaluated here, but in the next step.
                if iteration != options.max_iter {
                    (_, loss, gradient) = problem.evaluate()?;
                    settled = largest(&gradient)? <= options.tolerance_grad;
                    made = 1;
                }
            }
            evaluations += made;
            self.evaluations += made;
            let change = largest(&memory.direction)? * memory.length;
            self.memory = Some(memory);
            if evaluations >= max_eval
                || settled
                || change.abs() <= options.tolerance_change
                || (loss - before).abs() < options.tolerance_change
            {
                break;
            }
        }
        Ok((self, first))
    }
}

impl Memory {
    /// Before the first step: the direction is the negative gradient.
    fn new(gradient: &Tensor) -> Result<Memory> {
        Ok(Memory {
            direction: gradient.neg()?,
            length: 0.0,
            gradient: gradient.clone(),
            scale: 1.0,
            differences: Vec::new(),
            steps: Vec::new(),
            ro: Vec::new(),
        })
    }

    /// Adds the last step to the history, and computes the next direction.
    fn next(mut self, gradient: &Tensor, history: usize) -> Result<Memory> {
        for tensor in
            [&mut self.direction, &mut self.gradient].into_iter().chain(&mut self.differences).chain(&mut self.steps)
        {
            *tensor = tensor.to_device(gradient.device())?;
        }
        let difference = gradient.sub(&self.gradient)?;
        let step = self.direction.mul(self.length)?;
        let product = dot(&difference, &step)?;
        if product > 1e-10 {
            while self.ro.len() >= history.max(1) {
                self.differences.remove(0);
                self.steps.remove(0);
                self.ro.remove(0);
            }
            self.scale = product / dot(&difference, &difference)?;
            self.differences.push(difference);
            self.steps.push(step);
            self.ro.push(1.0 / product);
        }
        // Both loops of the recursion: the inverse Hessian times the gradient.
        let mut direction = gradient.neg()?;
        let mut parts = vec![0.0; self.ro.len()];
        for (at, part) in parts.iter_mut().enumerate().rev() {
            *part = dot(&self.steps[at], &direction)? * self.ro[at];
            direction = direction.sub(&self.differences[at].mul(*part)?)?;
        }
        direction = direction.mul(self.scale)?;
        for (at, part) in parts.into_iter().enumerate() {
            let other = dot(&self.differences[at], &direction)? * self.ro[at];
            direction = direction.add(&self.steps[at].mul(part - other)?)?;
        }
        self.direction = direction;
        self.gradient = gradient.clone();
        Ok(self)
    }
}
