//! What all optimisers share: settings for groups of parameters, and the way to their rules.

use super::settings::{Settings, number_of, saved_settings, set_number, set_numbers};
use super::store::{Chosen, Fresh, NumbersOf, RuleNumbers, Saving, Store, TensorUpdate, save_numbers};
use crate::backend::cpu::nn::optim::{Loop, update_elements};
use crate::backend::spec::Rule;
use crate::error::{err, named};
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
    const RULES: &'static [AnyRule] = &[];

    /// The settings with their names, to be saved and loaded.
    fn settings(&mut self) -> Settings<'_>;

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

/// An elementwise rule as a value: what goes over the parameters is compiled once for all rules, the loops over elements once
/// for each.
pub(crate) struct AnyRule {
    /// How many tensors it keeps for a parameter.
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
}

impl<A: Algorithm> Groups<A> {
    /// The settings of all groups. What is done with them is compiled once for all optimisers.
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
        self.follow();
    }

    fn follow(&mut self) {
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
        // Parameters and states belong together: a step that was begun is made.
        let done = crate::interrupt::whole(|| self.run(Some(model)));
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
        self.groups.clone().settings().iter().map(|group| number_of(group, "lr").unwrap_or(0.0)).collect()
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

    /// Sets the momentum of each group, or what takes its place.
    #[track_caller]
    pub fn set_momenta(&mut self, momenta: &[f64]) -> Result<()> {
        const OP: &str = "set_momenta";
        let mut base = self.groups.base.clone();
        let settings = base.settings();
        let Some(name) = ["momentum", "beta1"].into_iter().find(|name| number_of(&settings, name).is_some()) else {
            return named(OP, Err(err!(Value, OP, "{} has no momentum", A::OP)));
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
