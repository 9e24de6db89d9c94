//! What all optimisers share: settings for groups of parameters, and the way to their rules.

use super::store::{Chosen, Fresh, Saving, Store, TensorUpdate, save_numbers};
use crate::backend::spec::{Rule, RuleSteps};
use crate::error::{bail, err, named};
use crate::io::StateDict;
use crate::nn::Module;
use crate::{Result, Tensor};
use std::fmt;
use std::sync::Arc;

/// The settings of an optimiser, which are its options, and what it does with them.
pub(crate) trait Algorithm: Clone + fmt::Debug + Send + Sync + 'static {
    /// For messages.
    const OP: &'static str;
    /// The names of the tensors that are kept for each parameter.
    const SLOTS: &'static [&'static str];
    /// How many of them are always there; the others are where a setting asks for them.
    const REQUIRED_SLOTS: usize = Self::SLOTS.len();
    /// The numbers that are kept for each parameter besides its steps, with what they begin at.
    const COUNTERS: &'static [(&'static str, f64)] = &[];

    /// Its elementwise rules.
    #[cfg_attr(not(all(test, feature = "cuda")), allow(dead_code))]
    const RULES: &'static [RuleSource] = &[];

    /// The settings with their names, to be saved and loaded.
    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)>;

    /// Refuses settings out of their domains.
    fn check(&self) -> Result<()>;

    /// What the elements of a tensor that is kept begin at.
    fn initial(&self, slot: usize) -> f64 {
        let _ = slot;
        0.0
    }

    /// Hands the rule to the call, with its numbers for each parameter.
    fn run(groups: &Groups<Self>, call: Call<'_>) -> Result<()>;
}

/// A setting in its place.
pub(crate) type Setting<'a> = &'a mut dyn SettingValue;

/// What a setting can be. It is saved as a number.
pub(crate) trait SettingValue {
    fn get(&self) -> f64;
    fn set(&mut self, number: f64);
}

impl SettingValue for f64 {
    fn get(&self) -> f64 {
        *self
    }

    fn set(&mut self, number: f64) {
        *self = number;
    }
}

impl SettingValue for bool {
    fn get(&self) -> f64 {
        f64::from(u8::from(*self))
    }

    fn set(&mut self, number: f64) {
        *self = number != 0.0;
    }
}

impl SettingValue for usize {
    fn get(&self) -> f64 {
        *self as f64
    }

    fn set(&mut self, number: f64) {
        *self = number as usize;
    }
}

/// Nothing is saved as NaN.
impl SettingValue for Option<f64> {
    fn get(&self) -> f64 {
        self.unwrap_or(f64::NAN)
    }

    fn set(&mut self, number: f64) {
        *self = Some(number).filter(|number| !number.is_nan());
    }
}

impl SettingValue for Option<usize> {
    fn get(&self) -> f64 {
        self.map_or(f64::NAN, |count| count as f64)
    }

    fn set(&mut self, number: f64) {
        *self = Some(number).filter(|number| !number.is_nan()).map(|number| number as usize);
    }
}

/// A rule of an optimiser as data, with the number of tensors that it keeps: what a test compiles for GPUs.
#[cfg_attr(not(all(test, feature = "cuda")), allow(dead_code))]
pub(crate) struct RuleSource {
    pub steps: fn() -> RuleSteps,
    pub slots: usize,
}

impl RuleSource {
    pub const fn of<R: Rule<S, M>, const S: usize, const M: usize>() -> RuleSource {
        RuleSource { steps: RuleSteps::of::<R, S, M>, slots: S }
    }
}

/// Settings by their names: `settings!(self: lr, nesterov)`.
macro_rules! settings {
    ($own:ident: $($name:ident),+) => {
        vec![$((stringify!($name), &mut $own.$name as $crate::optim::engine::Setting<'_>)),+]
    };
}
pub(crate) use settings;

/// What an optimiser is asked for: a step of a model, or to count one that was recorded and is replayed next.
pub(crate) struct Call<'a> {
    pub store: &'a mut Store,
    pub model: Option<&'a mut dyn Module>,
    /// What is kept for a new parameter.
    pub fresh: Fresh<'a>,
}

impl Call<'_> {
    /// Does it by an elementwise rule, whose numbers for the named parameter in its `step`-th step, counted from 1, are
    /// given.
    pub fn elementwise<R: Rule<S, M>, const S: usize, const M: usize>(
        self,
        op: &'static str,
        numbers: impl Fn(&str, u64) -> [f64; M],
    ) -> Result<()> {
        self.counting::<R, S, M>(op, |name, step, _| numbers(name, step))
    }

    /// The same for a rule whose numbers depend on earlier ones, which are kept as counters.
    pub fn counting<R: Rule<S, M>, const S: usize, const M: usize>(
        self,
        op: &'static str,
        numbers: impl Fn(&str, u64, &mut [f64]) -> [f64; M],
    ) -> Result<()> {
        let Call { store, model, fresh } = self;
        match model {
            Some(model) => store.step::<R, S, M>(op, model, fresh, &numbers),
            None => store.advance(op, |name, step, counters| numbers(name, step, counters).to_vec()),
        }
    }

    /// Does it by tensor operations: `f` gives the new values of a parameter.
    pub fn tensors(self, op: &'static str, f: impl FnMut(TensorUpdate<'_>) -> Result<Tensor>) -> Result<()> {
        match self.model {
            Some(model) => self.store.step_tensors(op, model, f),
            // It is never recorded.
            None => Ok(()),
        }
    }
}

/// Settings for all parameters, and others for some of them.
#[derive(Clone)]
pub(crate) struct Groups<A> {
    pub base: A,
    /// In order: the first that a parameter belongs to is its own.
    others: Vec<Group<A>>,
}

/// Settings for the parameters of certain names.
#[derive(Clone)]
struct Group<A> {
    belongs: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Makes its settings from those of all others.
    change: Arc<dyn Fn(A) -> A + Send + Sync>,
    settings: A,
}

impl<A> Groups<A> {
    /// The settings for the named parameter.
    pub fn of(&self, name: &str) -> &A {
        self.others.iter().find(|group| (group.belongs)(name)).map_or(&self.base, |group| &group.settings)
    }

    pub fn all(&self) -> impl Iterator<Item = &A> {
        std::iter::once(&self.base).chain(self.others.iter().map(|group| &group.settings))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut A> {
        std::iter::once(&mut self.base).chain(self.others.iter_mut().map(|group| &mut group.settings))
    }
}

impl<A: fmt::Debug> fmt::Debug for Groups<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

/// An optimiser: settings, and what is kept for each parameter.
#[derive(Debug)]
pub(crate) struct Engine<A> {
    pub groups: Groups<A>,
    /// The learning rates of all groups as they were given, whose ratios stay.
    rates: Vec<f64>,
    store: Store,
}

impl<A: Algorithm> Engine<A> {
    pub fn new(base: A) -> Engine<A> {
        Engine { groups: Groups { base, others: Vec::new() }, rates: Vec::new(), store: Store::default() }
    }

    /// Gives parameters of certain names settings of their own, made from those of all others.
    pub fn group(
        &mut self,
        belongs: impl Fn(&str) -> bool + Send + Sync + 'static,
        change: impl Fn(A) -> A + Send + Sync + 'static,
    ) {
        let settings = change(self.groups.base.clone());
        let (belongs, change) = (Arc::new(belongs), Arc::new(change));
        self.groups.others.push(Group { belongs, change, settings });
    }

    /// Changes a setting of all parameters. A group that does not change it follows, whichever was called first.
    pub fn set(&mut self, change: impl FnOnce(&mut A)) {
        change(&mut self.groups.base);
        for group in &mut self.groups.others {
            group.settings = (group.change)(self.groups.base.clone());
        }
    }

    /// Leaves all other parameters alone.
    pub fn only(&mut self, belongs: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.store.only = Some(Chosen(Arc::new(belongs)));
    }

    fn run(&mut self, model: Option<&mut dyn Module>) -> Result<()> {
        self.groups.all().try_for_each(Algorithm::check)?;
        let Engine { groups, store, .. } = self;
        let initial = |name: &str, slot: usize| groups.of(name).initial(slot);
        let fresh = Fresh { initial: &initial, counters: A::COUNTERS };
        match model {
            Some(model) => A::run(groups, Call { store, model: Some(model), fresh }),
            None => A::run(groups, Call { store, model: None, fresh }),
        }
    }

    #[track_caller]
    pub fn step(&mut self, model: &mut dyn Module) -> Result<()> {
        let scope = crate::profile::enter(A::OP);
        let done = self.run(Some(model));
        crate::profile::leave(scope);
        named("step", done.map_err(|error| error.context(A::OP)))
    }

    #[track_caller]
    pub fn advance(&mut self) -> Result<()> {
        named("advance", self.run(None).map_err(|error| error.context(A::OP)))
    }

    pub fn lr(&self) -> f64 {
        self.lrs().first().copied().unwrap_or(0.0)
    }

    /// The learning rates of all groups.
    pub fn lrs(&self) -> Vec<f64> {
        self.groups.all().map(|settings| number_of(&mut settings.clone(), "lr").unwrap_or(0.0)).collect()
    }

    /// Remembers the learning rates of all groups, unless they have none to speak of: a warm-up from 0 or a decay to 0 must
    /// not make their ratios forgotten.
    fn keep_rates(&mut self) {
        if self.lr() != 0.0 {
            self.rates = self.lrs();
        }
    }

    pub fn set_lr(&mut self, lr: f64) {
        if self.rates.is_empty() {
            self.keep_rates();
        }
        let base = self.rates.first().copied().unwrap_or(0.0);
        for (at, settings) in self.groups.all_mut().enumerate() {
            let factor = self.rates.get(at).map_or(1.0, |rate| rate / base);
            set_number(settings, "lr", lr * factor);
        }
    }

    /// Sets the learning rate of each group.
    #[track_caller]
    pub fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        self.set_each("set_lrs", "lr", lrs)
    }

    /// Sets the momentum of each group, or what takes its place.
    #[track_caller]
    pub fn set_momenta(&mut self, momenta: &[f64]) -> Result<()> {
        const OP: &str = "set_momenta";
        let mut base = self.groups.base.clone();
        let Some(name) = ["momentum", "beta1"].into_iter().find(|name| number_of(&mut base, name).is_some()) else {
            return named(OP, Err(err!(Value, OP, "{} has no momentum", A::OP)));
        };
        self.set_each(OP, name, momenta)
    }

    #[track_caller]
    fn set_each(&mut self, op: &'static str, name: &str, numbers: &[f64]) -> Result<()> {
        let groups = self.groups.all().count();
        if numbers.len() != groups {
            let wrong = err!(Value, op, "{} numbers for the {groups} groups of {}", numbers.len(), A::OP);
            return named(op, Err(wrong));
        }
        self.groups.all_mut().zip(numbers).for_each(|(settings, &number)| set_number(settings, name, number));
        Ok(())
    }

    /// The settings under the names they are saved by.
    fn named_settings(&mut self) -> Vec<(String, Setting<'_>)> {
        let mut all = Vec::new();
        for (at, settings) in self.groups.all_mut().enumerate() {
            let prefix = at.checked_sub(1).map_or_else(String::new, |group| format!("group.{group}."));
            all.extend(settings.settings().into_iter().map(|(name, own)| (format!("{prefix}{name}"), own)));
        }
        all
    }

    #[track_caller]
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        let mut copy = Engine { groups: self.groups.clone(), rates: Vec::new(), store: Store::default() };
        let numbers: Vec<(String, f64)> =
            copy.named_settings().into_iter().map(|(name, own)| (name, own.get())).collect();
        save_numbers(&numbers, &mut dict)?;
        self.store.save(&Self::SAVING, &mut dict)?;
        Ok(dict)
    }

    const SAVING: Saving = Saving { slots: A::SLOTS, required: A::REQUIRED_SLOTS, counters: A::COUNTERS };

    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", self.load(dict).map_err(|error| error.context(A::OP)))
    }

    fn load(&mut self, dict: &StateDict) -> Result<()> {
        let names: Vec<String> = self.named_settings().into_iter().map(|(name, _)| name).collect();
        let (store, numbers) = Store::load(A::OP, &Self::SAVING, &names, dict)?;
        let mut loaded = Engine { groups: self.groups.clone(), rates: Vec::new(), store: Store::default() };
        loaded.named_settings().into_iter().zip(numbers).for_each(|((_, own), number)| own.set(number));
        loaded.groups.all().try_for_each(Algorithm::check)?;
        self.keep_rates();
        self.groups = loaded.groups;
        self.keep_rates();
        let only = self.store.only.take();
        self.store = store;
        self.store.only = only;
        Ok(())
    }
}

/// A setting by its name.
fn number_of(settings: &mut impl Algorithm, name: &str) -> Option<f64> {
    settings.settings().into_iter().find(|(own, _)| *own == name).map(|(_, value)| value.get())
}

fn set_number(settings: &mut impl Algorithm, name: &str, number: f64) {
    if let Some((_, value)) = settings.settings().into_iter().find(|(own, _)| *own == name) {
        value.set(number);
    }
}

/// The methods of an optimiser that has a weight decay, and of one that has betas.
macro_rules! decay_methods {
    ($name:ident) => {};
    ($name:ident weight_decay $($rest:ident)*) => {
        /// The parameters, by name, that do not decay.
        ///
        #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
        #[doc = concat!("let optimizer = ", stringify!($name), "::new(0.1).no_decay(|name| name.ends_with(\"bias\"));\n```")]
        pub fn no_decay(self, exempt: impl Fn(&str) -> bool + Send + Sync + 'static) -> $name {
            self.group(exempt, |options| options.weight_decay(0.0))
        }

        $crate::optim::engine::decay_methods! { $name $($rest)* }
    };
    ($name:ident beta2 $($rest:ident)*) => {
        /// How much of the running means of the gradient and of its square is kept in each step.
        ///
        #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
        #[doc = concat!("let optimizer = ", stringify!($name), "::new(3e-4).betas(0.9, 0.95);\n```")]
        pub fn betas(self, beta1: f64, beta2: f64) -> $name {
            self.beta1(beta1).beta2(beta2)
        }

        $crate::optim::engine::decay_methods! { $name $($rest)* }
    };
    ($name:ident $other:ident $($rest:ident)*) => {
        $crate::optim::engine::decay_methods! { $name $($rest)* }
    };
}
pub(crate) use decay_methods;

/// The text of a documentation, from its attributes between brackets.
macro_rules! text_of {
    (@ $lines:tt [doc = $line:literal] $($rest:tt)*) => { $crate::optim::engine::text_of!(@ [$lines $line] $($rest)*) };
    (@ $lines:tt [$($other:tt)+] $($rest:tt)*) => { $crate::optim::engine::text_of!(@ $lines $($rest)*) };
    (@ [$lines:tt $line:literal]) => { concat!($crate::optim::engine::text_of!(@ $lines), $line, "\n") };
    (@ []) => { "" };
    ($($attribute:tt)+) => { $crate::optim::engine::text_of!(@ [] $($attribute)+) };
}
pub(crate) use text_of;

/// Defines an optimiser by its options, which implement [`Algorithm`], with a method for each setting besides the learning rate.
macro_rules! optimizer {
    ($(#[$($doc:tt)+])+ $name:ident($options:ident) { $($setting:ident: $ty:ty),* }) => {
        $(#[$($doc)+])+
        #[derive(Debug)]
        #[must_use]
        pub struct $name {
            engine: $crate::optim::engine::Engine<$options>,
        }

        impl $name {
            /// With a learning rate, and all other settings at their defaults.
            ///
            #[doc = concat!("```\nuse cotangent::optim::{", stringify!($name), ", Optimizer};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).lr(), 0.1);\n```")]
            pub fn new(lr: f64) -> $name {
                $name::new_with($options::new().lr(lr))
            }

            /// With these settings.
            ///
            #[doc = concat!("```\nuse cotangent::optim::{", stringify!($name), ", ", stringify!($options), ", Optimizer};")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new_with(", stringify!($options), "::new().lr(0.1));")]
            /// assert_eq!(optimizer.lr(), 0.1);
            /// ```
            pub fn new_with(options: impl Into<$options>) -> $name {
                $name { engine: $crate::optim::engine::Engine::new(options.into()) }
            }

            $(
                #[doc = concat!("As [`", stringify!($options), "::", stringify!($setting), "`].")]
                pub fn $setting(mut self, $setting: $ty) -> $name {
                    self.engine.set(|base| base.$setting = $setting);
                    self
                }
            )*

            /// Gives the parameters that `belongs` chooses by their names settings of their own: `change` gets those of all
            /// others. Of several groups that a parameter belongs to the first counts.
            ///
            #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new(0.1)")]
            ///     .group(|name| name.starts_with("head."), |options| options.lr(0.01));
            /// ```
            pub fn group(
                mut self,
                belongs: impl Fn(&str) -> bool + Send + Sync + 'static,
                change: impl Fn($options) -> $options + Send + Sync + 'static,
            ) -> $name {
                self.engine.group(belongs, change);
                self
            }

            $crate::optim::engine::decay_methods! { $name $($setting)* }
            /// Leaves all parameters alone but those that `belongs` chooses by their names, for example because another
            /// optimiser trains the others.
            ///
            #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new(0.1).only(|name| name.ends_with(\"weight\"));\n```")]
            pub fn only(mut self, belongs: impl Fn(&str) -> bool + Send + Sync + 'static) -> $name {
                self.engine.only(belongs);
                self
            }

            pub(crate) const ENTRY: $crate::optim::OptimizerEntry = $crate::optim::OptimizerEntry {
                name: stringify!($name),
                docs: $crate::optim::engine::text_of!($([$($doc)+])+),
                params: <$options as $crate::ops::ParamGroup<'static>>::PARAMS,
                build: |args| {
                    let options = <$options as $crate::ops::ParamGroup<'_>>::from_args(stringify!($name), args)?;
                    Ok(Box::new($name::new_with(options)))
                },
            };
        }

        $crate::io::stateful_optimizer!($name);

        impl $crate::optim::Optimizer for $name {
            #[track_caller]
            fn step(&mut self, model: &mut dyn $crate::nn::Module) -> $crate::Result<()> {
                self.engine.step(model)
            }

            #[track_caller]
            fn advance(&mut self) -> $crate::Result<()> {
                self.engine.advance()
            }

            fn lr(&self) -> f64 {
                self.engine.lr()
            }

            fn set_lr(&mut self, lr: f64) {
                self.engine.set_lr(lr);
            }

            fn lrs(&self) -> Vec<f64> {
                self.engine.lrs()
            }

            #[track_caller]
            fn set_lrs(&mut self, lrs: &[f64]) -> $crate::Result<()> {
                self.engine.set_lrs(lrs)
            }

            #[track_caller]
            fn set_momenta(&mut self, momenta: &[f64]) -> $crate::Result<()> {
                self.engine.set_momenta(momenta)
            }

            #[track_caller]
            fn state_dict(&self) -> $crate::Result<$crate::io::StateDict> {
                self.engine.state_dict()
            }

            #[track_caller]
            fn load_state_dict(&mut self, dict: &$crate::io::StateDict) -> $crate::Result<()> {
                self.engine.load_state_dict(dict)
            }
        }
    };
}
pub(crate) use optimizer;

/// Refuses what is no part below 1.
pub(crate) fn check_betas(op: &'static str, betas: impl IntoIterator<Item = f64>) -> Result<()> {
    for beta in betas {
        if !(0.0..1.0).contains(&beta) {
            bail!(Value, op, "a beta of {beta} is not at least 0 and below 1");
        }
    }
    Ok(())
}

/// The factor of gradients: they are followed upwards where something is maximised.
pub(crate) fn sign(maximize: bool) -> f64 {
    if maximize { -1.0 } else { 1.0 }
}

/// Refuses a number that is negative or none.
pub(crate) fn not_negative(op: &'static str, what: &str, number: f64) -> Result<()> {
    if number.is_nan() || number < 0.0 {
        bail!(Value, op, "the {what} cannot be {number}");
    }
    Ok(())
}
