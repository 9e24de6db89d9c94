//! What all optimisers share: settings for groups of parameters, and the way to their rules.

use super::store::{Chosen, Store, TensorUpdate, save_numbers};
use crate::backend::spec::Rule;
use crate::error::{bail, named};
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

    /// The settings with their names, to be saved and loaded.
    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)>;

    /// Refuses settings out of their domains.
    fn check(&self) -> Result<()>;

    /// Hands the rule to the call, with its numbers for each parameter.
    fn run(groups: &Groups<Self>, call: Call<'_>) -> Result<()>;
}

/// A setting in its place. It is saved as a number.
pub(crate) enum Setting<'a> {
    Number(&'a mut f64),
    Flag(&'a mut bool),
}

impl Setting<'_> {
    fn get(&self) -> f64 {
        match self {
            Setting::Number(number) => **number,
            Setting::Flag(flag) => f64::from(u8::from(**flag)),
        }
    }

    fn set(&mut self, number: f64) {
        match self {
            Setting::Number(own) => **own = number,
            Setting::Flag(own) => **own = number != 0.0,
        }
    }
}

impl<'a> From<&'a mut f64> for Setting<'a> {
    fn from(number: &'a mut f64) -> Setting<'a> {
        Setting::Number(number)
    }
}

impl<'a> From<&'a mut bool> for Setting<'a> {
    fn from(flag: &'a mut bool) -> Setting<'a> {
        Setting::Flag(flag)
    }
}

/// Settings by their names: `settings!(self: lr, nesterov)`.
macro_rules! settings {
    ($own:ident: $($name:ident),+) => {
        vec![$((stringify!($name), $crate::optim::engine::Setting::from(&mut $own.$name))),+]
    };
}
pub(crate) use settings;

/// What an optimiser is asked for.
pub(crate) enum Call<'a> {
    Step(&'a mut Store, &'a mut dyn Module),
    Advance(&'a mut Store),
}

impl Call<'_> {
    /// Does it by an elementwise rule, whose numbers for the named parameter in its `step`-th step, counted from 1, are
    /// given.
    pub fn elementwise<R: Rule<S, M>, const S: usize, const M: usize>(
        self,
        op: &'static str,
        numbers: impl Fn(&str, u64) -> [f64; M],
    ) -> Result<()> {
        match self {
            Call::Step(store, model) => store.step::<R, S, M>(op, model, &numbers),
            Call::Advance(store) => store.advance(op, |name, step| numbers(name, step).to_vec()),
        }
    }

    /// Does it by tensor operations: `f` gives the new values of a parameter.
    pub fn tensors(self, op: &'static str, f: impl FnMut(TensorUpdate<'_>) -> Result<Tensor>) -> Result<()> {
        match self {
            Call::Step(store, model) => store.step_tensors(op, model, f),
            // Nothing of it was recorded with numbers of its own.
            Call::Advance(_) => Ok(()),
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
        match model {
            Some(model) => A::run(groups, Call::Step(store, model)),
            None => A::run(groups, Call::Advance(store)),
        }
    }

    #[track_caller]
    pub fn step(&mut self, model: &mut dyn Module) -> Result<()> {
        named("step", self.run(Some(model)).map_err(|error| error.context(A::OP)))
    }

    #[track_caller]
    pub fn advance(&mut self) -> Result<()> {
        named("advance", self.run(None).map_err(|error| error.context(A::OP)))
    }

    pub fn lr(&self) -> f64 {
        let mut base = self.groups.base.clone();
        base.settings().iter().find(|(name, _)| *name == "lr").map_or(0.0, |(_, lr)| lr.get())
    }

    /// Remembers the learning rates of all groups, unless they have none to speak of: a warm-up from 0 or a decay to 0 must
    /// not make their ratios forgotten.
    fn keep_rates(&mut self) {
        if self.lr() != 0.0 {
            let rate = |settings: &mut A| {
                settings.settings().iter().find(|(name, _)| *name == "lr").map_or(0.0, |(_, lr)| lr.get())
            };
            self.rates = self.groups.all_mut().map(rate).collect();
        }
    }

    pub fn set_lr(&mut self, lr: f64) {
        if self.rates.is_empty() {
            self.keep_rates();
        }
        let base = self.rates.first().copied().unwrap_or(0.0);
        for (at, settings) in self.groups.all_mut().enumerate() {
            let factor = self.rates.get(at).map_or(1.0, |rate| rate / base);
            if let Some((_, mut own)) = settings.settings().into_iter().find(|(name, _)| *name == "lr") {
                own.set(lr * factor);
            }
        }
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
        self.store.save(A::SLOTS, &mut dict)?;
        Ok(dict)
    }

    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let names: Vec<String> = self.named_settings().into_iter().map(|(name, _)| name).collect();
        let loaded = Store::load(A::OP, A::SLOTS, &names, dict).map_err(|error| error.context(A::OP));
        let (store, numbers) = named("load_state_dict", loaded)?;
        self.keep_rates();
        if numbers.len() != names.len() {
            bail!(Format, "load_state_dict", "{} settings for {}", numbers.len(), names.len());
        }
        self.named_settings().into_iter().zip(numbers).for_each(|((_, mut own), number)| own.set(number));
        self.keep_rates();
        self.store = store;
        Ok(())
    }
}

/// Defines an optimiser by its options, which implement [`Algorithm`], with a method for each setting besides the learning rate.
macro_rules! optimizer {
    ($(#[$doc:meta])+ $name:ident($options:ident) { $($setting:ident: $ty:ty),* }) => {
        $(#[$doc])+
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

            /// The parameters, by name, that do not decay.
            ///
            #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new(0.1).no_decay(|name| name.ends_with(\"bias\"));\n```")]
            pub fn no_decay(self, exempt: impl Fn(&str) -> bool + Send + Sync + 'static) -> $name {
                self.group(exempt, |options| options.weight_decay(0.0))
            }

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
                params: <$options as $crate::ops::ParamGroup<'static>>::PARAMS,
            };
        }

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

/// Refuses a number that is negative or none.
pub(crate) fn not_negative(op: &'static str, what: &str, number: f64) -> Result<()> {
    if number.is_nan() || number < 0.0 {
        bail!(Value, op, "the {what} cannot be {number}");
    }
    Ok(())
}
