//! The parts of a checkpoint: objects whose state can be saved and loaded.
#![forbid(unsafe_code)]

use super::{StateDict, Value};
use crate::error::{bail, err, named};
use crate::nn::Module;
use crate::optim::{AveragedModel, GradScaler, Lbfgs, Optimizer, ReduceLROnPlateau, Scheduler};
use crate::random::{rng_state, set_rng_state};
use crate::{Generator, Result};

/// The state of one part: named tensors and plain values.
///
/// ```
/// use cotangent::io::{State, StateDict, Value};
/// use cotangent::tensor;
/// let mut state = State::from(StateDict::from_iter([("weight", tensor!([1.0, 2.0])?)]));
/// state.set("epoch", 3);
/// assert_eq!(state.u64("epoch")?, 3);
/// assert!(state.f64("rate").is_err());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The tensors.
    pub tensors: StateDict,
    /// The values; a map, or null if there are none.
    pub values: Value,
}

macro_rules! typed_getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty, $as:ident, $what:literal;)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, name: &str) -> Result<$type> {
            let value = self.required(name).and_then(|value| {
                value.$as().map(Into::into).ok_or_else(|| err!(Format, "State", "{name} must be {}, got {value}", $what))
            });
            named(concat!("State::", stringify!($name)), value)
        }
    )+};
}

impl State {
    /// An empty state.
    ///
    /// ```
    /// assert!(cotangent::io::State::new().tensors.is_empty());
    /// ```
    pub fn new() -> State {
        State::default()
    }

    /// Sets a value under a name.
    ///
    /// ```
    /// let mut state = cotangent::io::State::new();
    /// state.set("rate", 0.1);
    /// assert_eq!(state.f64("rate")?, 0.1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.values.set(name, value);
    }

    /// The value under a name.
    ///
    /// ```
    /// let state = cotangent::io::State::new();
    /// assert!(state.get("rate").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    fn required(&self, name: &str) -> Result<&Value> {
        self.get(name).ok_or_else(|| err!(Format, "State", "no value named {name}"))
    }

    typed_getters! {
        /// The number under a name, which may be an integer.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        f64 -> f64, as_f64, "a number";
        /// The integer under a name.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        i64 -> i64, as_i64, "an integer of 64 bits";
        /// The non-negative integer under a name.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        u64 -> u64, as_u64, "an integer ≥ 0";
        /// The size or position under a name.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        usize -> usize, as_usize, "an integer ≥ 0";
        /// The bool under a name.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        bool -> bool, as_bool, "true or false";
        /// The text under a name.
        ///
        /// # Errors
        /// If there is none, or it has another type.
        text -> String, as_str, "text";
    }

    /// Checks that the state has values under exactly these names and no tensors. Call it first in `load_state`.
    ///
    /// ```
    /// use cotangent::io::State;
    /// let mut state = State::new();
    /// state.set("step", 3);
    /// assert!(state.expect_values(&["step"]).is_ok());
    /// assert!(state.expect_values(&["epoch"]).is_err());
    /// ```
    ///
    /// # Errors
    /// If a name is missing, or there are others: the message lists them all.
    #[track_caller]
    pub fn expect_values(&self, names: &[&str]) -> Result<()> {
        const OP: &str = "State::expect_values";
        let own = self.values.as_map().into_iter().flatten().map(|(name, _)| name.as_str());
        let missing = names.iter().filter(|name| self.get(name).is_none()).map(|name| format!("missing {name}"));
        let unknown = own.filter(|name| !names.contains(name));
        let unexpected = unknown.chain(self.tensors.names()).map(|name| format!("unexpected {name}"));
        let faults: Vec<String> = missing.chain(unexpected).collect();
        let check = || {
            if !faults.is_empty() {
                bail!(Format, OP, "nothing was loaded:\n  {}", faults.join("\n  "));
            }
            Ok(())
        };
        named(OP, check())
    }
}

impl From<StateDict> for State {
    fn from(tensors: StateDict) -> State {
        State { tensors, values: Value::Null }
    }
}

/// An object whose state can be saved and loaded: a model, an optimiser, a schedule, a position in the data, a generator of
/// random numbers. A [`Checkpoint`](super::Checkpoint) holds any of them.
///
/// Every [`Module`] implements it. A custom implementation must guarantee that after `load_state` it continues bit for bit as
/// the saved object would, and that nothing has changed if `load_state` fails.
///
/// ```
/// use cotangent::Result;
/// use cotangent::io::{State, Stateful};
///
/// struct Progress {
///     epoch: u64,
///     best: f64,
/// }
///
/// impl Stateful for Progress {
///     fn save_state(&self) -> Result<State> {
///         let mut state = State::new();
///         state.set("epoch", self.epoch);
///         state.set("best", self.best);
///         Ok(state)
///     }
///
///     fn load_state(&mut self, state: &State) -> Result<()> {
///         state.expect_values(&["epoch", "best"])?;
///         // Both are read before the first is changed.
///         let (epoch, best) = (state.u64("epoch")?, state.f64("best")?);
///         (self.epoch, self.best) = (epoch, best);
///         Ok(())
///     }
/// }
///
/// let (saved, mut loaded) = (Progress { epoch: 3, best: 0.25 }, Progress { epoch: 0, best: f64::INFINITY });
/// loaded.load_state(&saved.save_state()?)?;
/// assert_eq!((loaded.epoch, loaded.best), (3, 0.25));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Stateful {
    /// The current state. Its tensors share memory with the object until one of the two is changed.
    ///
    /// # Errors
    /// If memory runs out.
    fn save_state(&self) -> Result<State>;

    /// Loads a state that [`save_state`](Self::save_state) returned.
    ///
    /// # Errors
    /// If the state does not fit, with the names that are missing or unknown; nothing is changed then.
    fn load_state(&mut self, state: &State) -> Result<()>;
}

/// The parameters and buffers.
impl<M: Module> Stateful for M {
    fn save_state(&self) -> Result<State> {
        Ok(self.state_dict().into())
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        no_values(state)?;
        self.load_state_dict(&state.tensors)
    }
}

/// Refuses a state with values, for objects that have none.
pub(crate) fn no_values(state: &State) -> Result<()> {
    match state.values.as_map().and_then(|values| values.iter().next()) {
        Some((name, _)) => bail!(Format, "load_state", "nothing was loaded:\n  unexpected {name}"),
        None => Ok(()),
    }
}

/// Implements [`Stateful`] for optimisers, by their `state_dict` and `load_state_dict`.
macro_rules! stateful_optimizer {
    ($($name:ty),+ $(,)?) => {$(
        impl $crate::io::Stateful for $name {
            #[track_caller]
            fn save_state(&self) -> $crate::Result<$crate::io::State> {
                $crate::optim::Optimizer::state_dict(self).map(Into::into)
            }

            #[track_caller]
            fn load_state(&mut self, state: &$crate::io::State) -> $crate::Result<()> {
                $crate::io::no_values(state)?;
                $crate::optim::Optimizer::load_state_dict(self, &state.tensors)
            }
        }
    )+};
}
pub(crate) use stateful_optimizer;

/// Any optimiser; the state does not record which.
impl Stateful for Box<dyn Optimizer> {
    fn save_state(&self) -> Result<State> {
        (**self).state_dict().map(Into::into)
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        no_values(state)?;
        (**self).load_state_dict(&state.tensors)
    }
}

/// As above, for types with inherent `state_dict` and `load_state_dict`.
macro_rules! stateful_by_dict {
    ($([$($generics:tt)*] $name:ty),+ $(,)?) => {$(
        impl $($generics)* Stateful for $name {
            fn save_state(&self) -> Result<State> {
                self.state_dict().map(Into::into)
            }

            fn load_state(&mut self, state: &State) -> Result<()> {
                no_values(state)?;
                self.load_state_dict(&state.tensors)
            }
        }
    )+};
}

stateful_by_dict! {
    [] Lbfgs,
    [] Scheduler,
    [] ReduceLROnPlateau,
    [] GradScaler,
    [<M: Module>] AveragedModel<M>,
}

impl Stateful for Generator {
    fn save_state(&self) -> Result<State> {
        Ok(random_state(self.state()))
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        let (seed, offset) = random_numbers(state)?;
        *self = Generator::from_state(seed, offset);
        Ok(())
    }
}

/// The default generator of random operations, on the CPU and on GPUs, as a part of a checkpoint.
///
/// ```
/// use cotangent::Tensor;
/// use cotangent::io::{DefaultGenerator, Stateful};
/// let state = DefaultGenerator.save_state()?;
/// let first = Tensor::rand([3])?;
/// DefaultGenerator.load_state(&state)?;
/// assert!(Tensor::rand([3])?.equal(&first)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultGenerator;

impl Stateful for DefaultGenerator {
    fn save_state(&self) -> Result<State> {
        Ok(random_state(rng_state()))
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        set_rng_state(random_numbers(state)?);
        Ok(())
    }
}

fn random_state((seed, offset): (u64, u64)) -> State {
    State { tensors: StateDict::new(), values: Value::from_iter([("seed", seed), ("offset", offset)]) }
}

fn random_numbers(state: &State) -> Result<(u64, u64)> {
    state.expect_values(&["seed", "offset"])?;
    Ok((state.u64("seed")?, state.u64("offset")?))
}
