//! What all optimisers share: settings of parameter groups, and running the update rules.

use super::settings::{Settings, number_of, saved_settings, set_number, set_numbers};
use super::store::{Chosen, Fresh, NumbersOf, RuleNumbers, Saving, Store, TensorUpdate, save_numbers};
use crate::backend::optim_on_cpu::{Loop, update_elements};
use crate::backend::spec::Rule;
use crate::error::{err, named};
use crate::io::StateDict;
use crate::nn::Module;
use crate::{Result, Tensor};
use std::fmt;
use std::sync::Arc;

/// The settings of an optimiser, which are its options, and its algorithm.
pub(crate) trait Algorithm: Clone + fmt::Debug + Send + Sync + 'static {
    /// For messages.
    const OP: &'static str;
    /// The names of the tensors that are kept for each parameter.
    const SLOTS: &'static [&'static str];
    /// How many of them always exist; the others depend on settings.
    const REQUIRED_SLOTS: usize = Self::SLOTS.len();
    /// The numbers that are kept for each parameter besides its step count, with their initial values.
    const COUNTERS: &'static [(&'static str, f64)] = &[];

    /// Its elementwise rules.
    #[cfg_attr(not(all(test, feature = "cuda")), allow(dead_code))]
    const RULES: &'static [AnyRule] = &[];

    /// The settings with their names, to be saved and loaded.
    fn settings(&mut self) -> Settings<'_>;

    /// Checks that the settings are in their domains.
    fn check(&self) -> Result<()>;

    /// The initial value of a tensor's elements, by slot.
    fn initial(&self, slot: usize) -> f64 {
        let _ = slot;
        0.0
    }

    /// Passes the rule to the call, with its coefficients for each parameter.
    fn run(groups: &Groups<Self>, call: Call<'_>) -> Result<()>;
}

/// An elementwise rule as a value: the code that iterates over parameters is compiled once for all rules, the loops over
/// elements once for each.
pub(crate) struct AnyRule {
    /// The number of tensors it keeps for a parameter.
    pub slots: usize,
    pub f32: Loop<f32>,
    pub f64: Loop<f64>,
    /// For GPUs: which rule it is, and the rule as data.
    #[cfg(feature = "cuda")]
    pub id: std::any::TypeId,
    #[cfg(feature = "cuda")]
    pub steps: fn() -> crate::backend::spec::RuleSteps,
}

impl AnyRule {
    pub const fn of<R: Rule<S, M>, const S: usize, const M: usize>() -> AnyRule {
        AnyRule {
            slots: S,
            f32: update_elements::<f32, R, S, M>,
            f64: update_elements::<f64, R, S, M>,
            #[cfg(feature = "cuda")]
            id: std::any::TypeId::of::<R>(),
            #[cfg(feature = "cuda")]
            steps: crate::backend::spec::RuleSteps::of::<R, S, M>,
        }
    }
}

/// What an optimiser is asked to do: a step of a model, or, without a model, to count a recorded step that is replayed next.
pub(crate) struct Call<'a> {
    pub store: &'a mut Store,
    pub model: Option<&'a mut dyn Module>,
    /// The initial state of a new parameter.
    pub fresh: Fresh<'a>,
}

impl Call<'_> {
    /// Runs an elementwise rule. `numbers` gives its coefficients for the named parameter in a step, counted from 1.
    pub fn elementwise<R: Rule<S, M>, const S: usize, const M: usize>(
        self,
        op: &'static str,
        numbers: impl Fn(&str, u64) -> [f64; M],
    ) -> Result<()> {
        self.counting::<R, S, M>(op, |name, step, _| numbers(name, step))
    }

    /// The same for a rule whose coefficients depend on earlier steps, by way of counters.
    pub fn counting<R: Rule<S, M>, const S: usize, const M: usize>(
        self,
        op: &'static str,
        numbers: impl Fn(&str, u64, &mut [f64]) -> [f64; M],
    ) -> Result<()> {
        let numbers =
            |name: &str, step: u64, counters: &mut [f64]| RuleNumbers::from_slice(&numbers(name, step, counters));
        self.by_rule(op, &const { AnyRule::of::<R, S, M>() }, &numbers)
    }

    fn by_rule(self, op: &'static str, rule: &AnyRule, numbers: &NumbersOf<'_>) -> Result<()> {
        let Call { store, model, fresh } = self;
        match model {
            Some(model) => store.step(op, model, rule, fresh, numbers),
            None => store.advance(op, numbers),
        }
    }

    /// Runs an update by tensor operations: `f` returns the new values of a parameter.
    pub fn tensors(self, op: &'static str, f: impl FnMut(TensorUpdate<'_>) -> Result<Tensor>) -> Result<()> {
        match self.model {
            Some(model) => self.store.step_tensors(op, model, f),
            // Such a step is never recorded.
            None => Ok(()),
        }
    }
}

/// Settings for all parameters, and other settings for groups of them.
#[derive(Clone)]
pub(crate) struct Groups<A> {
    pub base: A,
    /// In order: a parameter uses the first group that it belongs to.
    others: Vec<Group<A>>,
}

/// Settings for the parameters that `belongs` selects by name.
#[derive(Clone)]
struct Group<A> {
    belongs: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Derives its settings from the base settings.
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
}

impl<A: Algorithm> Groups<A> {
    /// The settings of all groups, in a form whose users are compiled once for all optimisers.
    fn settings(&mut self) -> Vec<Settings<'_>> {
        let mut all = vec![self.base.settings()];
        all.extend(self.others.iter_mut().map(|group| group.settings.settings()));
        all
    }
}

impl<A: fmt::Debug> fmt::Debug for Groups<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

/// An optimiser: settings, and the state of each parameter.
#[derive(Debug)]
pub(crate) struct Engine<A> {
    pub groups: Groups<A>,
    /// The learning rates of all groups as they were given. `set_lr` keeps their ratios.
    rates: Vec<f64>,
    store: Store,
}

impl<A: Algorithm> Engine<A> {
    pub fn new(base: A) -> Engine<A> {
        Engine { groups: Groups { base, others: Vec::new() }, rates: Vec::new(), store: Store::default() }
    }

    /// Adds a group: parameters selected by name, with settings derived from the base settings.
    pub fn group(
        &mut self,
        belongs: impl Fn(&str) -> bool + Send + Sync + 'static,
        change: impl Fn(A) -> A + Send + Sync + 'static,
    ) {
        let settings = change(self.groups.base.clone());
        let (belongs, change) = (Arc::new(belongs), Arc::new(change));
        self.groups.others.push(Group { belongs, change, settings });
    }

    /// Changes a base setting. Groups that do not override it follow, whatever the order of the calls.
    pub fn set(&mut self, change: impl FnOnce(&mut A)) {
        change(&mut self.groups.base);
        self.follow();
    }

    fn follow(&mut self) {
        for group in &mut self.groups.others {
            group.settings = (group.change)(self.groups.base.clone());
        }
    }

    /// Restricts the optimiser to the parameters that `belongs` selects by name.
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
        let scope = crate::backend::events::enter(A::OP);
        // Not interrupted halfway, so that parameters and states stay consistent.
        let done = crate::interrupt::whole(|| self.run(Some(model)));
        crate::backend::events::leave(scope);
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
        self.groups.clone().settings().iter().map(|group| number_of(group, "lr").unwrap_or(0.0)).collect()
    }

    /// Remembers the learning rates of all groups, unless the base rate is 0: a warm-up from 0 or a decay to 0 must not lose
    /// their ratios.
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
        for (at, group) in self.groups.settings().into_iter().enumerate() {
            let factor = self.rates.get(at).map_or(1.0, |rate| rate / base);
            set_number(group, "lr", lr * factor);
        }
    }

    /// Sets the learning rate of each group.
    #[track_caller]
    pub fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        self.set_each("set_lrs", "lr", lrs)
    }

    /// Sets the momentum of each group, or `beta1`.
    #[track_caller]
    pub fn set_momenta(&mut self, momenta: &[f64]) -> Result<()> {
        const OP: &str = "set_momenta";
        let mut base = self.groups.base.clone();
        let settings = base.settings();
        let Some(name) = ["momentum", "beta1"].into_iter().find(|name| number_of(&settings, name).is_some()) else {
            return named(OP, Err(err!(Value, OP, "{} has neither momentum nor beta1", A::OP)));
        };
        self.set_each(OP, name, momenta)
    }

    #[track_caller]
    fn set_each(&mut self, op: &'static str, name: &str, numbers: &[f64]) -> Result<()> {
        named(op, set_numbers((op, A::OP), self.groups.settings(), name, numbers))
    }

    #[track_caller]
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        let mut groups = self.groups.clone();
        let settings = saved_settings(groups.settings()).into_iter();
        save_numbers(&settings.map(|(name, own)| (name, own.get())).collect::<Vec<_>>(), &mut dict)?;
        self.store.save(&Self::SAVING, &mut dict)?;
        Ok(dict)
    }

    const SAVING: Saving = Saving { slots: A::SLOTS, required: A::REQUIRED_SLOTS, counters: A::COUNTERS };

    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", self.load(dict).map_err(|error| error.context(A::OP)))
    }

    fn load(&mut self, dict: &StateDict) -> Result<()> {
        let mut groups = self.groups.clone();
        let (names, settings): (Vec<_>, Vec<_>) = saved_settings(groups.settings()).into_iter().unzip();
        let (store, numbers) = Store::load(A::OP, &Self::SAVING, &names, dict)?;
        settings.into_iter().zip(numbers).for_each(|(own, number)| own.set(number));
        groups.all().try_for_each(Algorithm::check)?;
        self.keep_rates();
        self.groups = groups;
        self.keep_rates();
        let only = self.store.only.take();
        self.store = store;
        self.store.only = only;
        Ok(())
    }
}

/// The methods of an optimiser that has a weight decay, and of one that has betas.
macro_rules! decay_methods {
    ($name:ident) => {};
    ($name:ident weight_decay $($rest:ident)*) => {
        /// Exempts the parameters that `exempt` selects by name from weight decay.
        ///
        #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
        #[doc = concat!("let optimizer = ", stringify!($name), "::new(0.1).no_decay(|name| name.ends_with(\"bias\"));\n```")]
        pub fn no_decay(self, exempt: impl Fn(&str) -> bool + Send + Sync + 'static) -> $name {
            self.group(exempt, |options| options.weight_decay(0.0))
        }

        $crate::optim::engine::decay_methods! { $name $($rest)* }
    };
    ($name:ident beta2 $($rest:ident)*) => {
        /// Sets `beta1` and `beta2`.
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
    (@ [$($lines:literal)*] [doc = $line:literal] $($rest:tt)*) => {
        $crate::optim::engine::text_of!(@ [$($lines)* $line] $($rest)*)
    };
    (@ $lines:tt [$($other:tt)+] $($rest:tt)*) => { $crate::optim::engine::text_of!(@ $lines $($rest)*) };
    (@ [$($lines:literal)*]) => { concat!($($lines, "\n"),*) };
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
            /// Creates the optimiser with a learning rate, and defaults for all other settings.
            ///
            #[doc = concat!("```\nuse cotangent::optim::{", stringify!($name), ", Optimizer};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(0.1).lr(), 0.1);\n```")]
            pub fn new(lr: f64) -> $name {
                $name::new_with($options::new().lr(lr))
            }

            /// Creates the optimiser with these settings.
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

            /// Adds a parameter group: the parameters that `belongs` selects by name get the settings that `change` derives
            /// from the base settings. A parameter that belongs to several groups uses the first.
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
            /// Updates only the parameters that `belongs` selects by name, for example because another optimiser trains the
            /// others.
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
