"""Learning rate schedulers: the crate's schedules under PyTorch's names."""

from __future__ import annotations

import bisect
import inspect
import math

from .. import _cotangent as _c


class LRScheduler:
    """Base class of schedulers, which set the learning rates of an optimiser's groups at each step."""

    def __init__(self, optimizer, last_epoch=-1):
        self.optimizer = optimizer
        for at, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                # An earlier scheduler may have set initial_lr, and changed lr.
                group.setdefault("initial_lr", _number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{at}] when resuming an optimizer")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self.step()

    def get_lr(self):
        """Returns the learning rates of the step ``last_epoch``. Subclasses override it."""
        return self._lrs(max(self.last_epoch, 0), self.base_lrs)

    def _lrs(self, step, base_lrs):
        raise NotImplementedError(f"{type(self).__name__} must define get_lr")

    def _momenta(self, step, groups):
        return None

    def get_last_lr(self):
        """Returns the learning rates that were set last."""
        return list(self._last_lr)

    def step(self, epoch=None):
        """Advances to the next step, and sets the optimiser's learning rates."""
        before = self.last_epoch
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        try:
            lrs = self.get_lr()
            momenta = self._momenta(max(self.last_epoch, 0), len(lrs))
        except Exception:
            self.last_epoch = before
            raise
        self._step_count += 1
        self._set(lrs, momenta)

    def _set(self, lrs, momenta=None):
        for at, (group, lr) in enumerate(zip(self.optimizer.param_groups, lrs)):
            group["lr"] = lr
            if momenta is not None:
                _set_momentum(group, momenta[at])
        self._last_lr = list(lrs)

    def state_dict(self):
        """Returns the state, without the optimiser."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer" and not name.startswith("_schedule")}

    def load_state_dict(self, state_dict):
        """Loads a state that ``state_dict`` returned."""
        self.__dict__.update(state_dict)

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_schedule")}


_LRScheduler = LRScheduler


def _number(value):
    return value.item() if hasattr(value, "item") else value


def _set_momentum(group, momentum):
    if "momentum" in group:
        group["momentum"] = momentum
    else:
        group["betas"] = (momentum, *group["betas"][1:])


class _Listed(LRScheduler):
    """A scheduler that is implemented in the crate. Its arguments are attributes."""

    _names: tuple = ()

    def __init__(self, optimizer, last_epoch=-1, **arguments):
        # Numbers of steps may be whole floats.
        whole = ("step_size", "T_max", "total_iters", "step_size_up", "step_size_down")
        arguments = {name: int(value) if name in whole and isinstance(value, float) and value.is_integer() else value
                     for name, value in arguments.items()}
        self.__dict__.update(arguments)
        self._function().check(len(optimizer.param_groups))
        super().__init__(optimizer, last_epoch)

    def _function(self):
        own = {name: getattr(self, name) for name in self._names}
        kept = self.__dict__.get("_schedule")
        # A changed argument takes effect.
        if kept is None or kept[0] != own:
            self._schedule = kept = own, _c._Schedule(type(self).__name__, own)
        return kept[1]

    def _lrs(self, step, base_lrs):
        return self._function().lrs(step, base_lrs)

    def _momenta(self, step, groups):
        return self._function().momenta(step, groups)


def _class(name, arguments, docs):
    """Creates a scheduler class from its arguments and defaults, in PyTorch's order."""
    empty = inspect.Parameter.empty
    kinds = inspect.Parameter
    params = [kinds(key, kinds.POSITIONAL_OR_KEYWORD, default=value) for key, value in arguments.items()]
    signature = inspect.Signature([kinds("self", kinds.POSITIONAL_OR_KEYWORD), kinds("optimizer", kinds.POSITIONAL_OR_KEYWORD),
                                   *params, kinds("last_epoch", kinds.POSITIONAL_OR_KEYWORD, default=-1)])

    def __init__(self, *args, **kwargs):
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        own = dict(given.arguments)
        own.pop("self")
        for key, value in own.items():
            if value is empty:
                raise TypeError(f"{name}() is missing the argument {key}")
        _Listed.__init__(self, own.pop("optimizer"), own.pop("last_epoch"), **own)

    __init__.__signature__ = signature
    return type(name, (_Listed,), {"_names": tuple(arguments), "__init__": __init__, "__doc__": docs, "__module__": __name__})


_required = inspect.Parameter.empty
StepLR = _class("StepLR", {"step_size": _required, "gamma": 0.1}, "Multiplies the rates by ``gamma`` every ``step_size`` steps.")
MultiStepLR = _class("MultiStepLR", {"milestones": _required, "gamma": 0.1}, "Multiplies the rates by ``gamma`` at each milestone.")
ConstantLR = _class("ConstantLR", {"factor": 1.0 / 3, "total_iters": 5}, "Multiplies the rates by ``factor`` for the first steps.")
LinearLR = _class("LinearLR", {"start_factor": 1.0 / 3, "end_factor": 1.0, "total_iters": 5},
                  "Multiplies the rates by a factor that changes linearly.")
ExponentialLR = _class("ExponentialLR", {"gamma": _required}, "Multiplies the rates by ``gamma`` at every step.")
PolynomialLR = _class("PolynomialLR", {"total_iters": 5, "power": 1.0}, "Decays the rates to 0 by a polynomial.")
CosineAnnealingLR = _class("CosineAnnealingLR", {"T_max": _required, "eta_min": 0.0},
                           "Anneals the rates to ``eta_min`` by half a cosine.")
CosineAnnealingWarmRestarts = _class("CosineAnnealingWarmRestarts", {"T_0": _required, "T_mult": 1, "eta_min": 0.0},
                                     "Cosine annealing with restarts. Each period is ``T_mult`` times as long as the previous one.")


class OneCycleLR(_Listed):
    """The 1cycle policy: the rate rises to ``max_lr`` and falls again. The momentum moves the opposite way."""

    _names = ("max_lr", "total_steps", "pct_start", "anneal_strategy", "cycle_momentum", "base_momentum", "max_momentum",
              "div_factor", "final_div_factor", "three_phase")

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        super().__init__(optimizer, last_epoch, max_lr=max_lr, total_steps=total_steps, pct_start=pct_start,
                         anneal_strategy=anneal_strategy, cycle_momentum=cycle_momentum, base_momentum=base_momentum,
                         max_momentum=max_momentum, div_factor=div_factor, final_div_factor=final_div_factor, three_phase=three_phase)


class CyclicLR(_Listed):
    """Cycles the rates between ``base_lr`` and ``max_lr``."""

    _names = ("base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum", "base_momentum", "max_momentum")

    def __init__(self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0,
                 scale_fn=None, scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9, last_epoch=-1):
        if scale_fn is not None:
            raise NotImplementedError("CyclicLR: scale_fn must be None: LambdaLR accepts any function of the step")
        super().__init__(optimizer, last_epoch, base_lr=base_lr, max_lr=max_lr, step_size_up=step_size_up,
                         step_size_down=step_size_down, mode=mode, gamma=gamma, cycle_momentum=cycle_momentum,
                         base_momentum=base_momentum, max_momentum=max_momentum)


class SWALR(_Listed):
    """Anneals the current rates to ``swa_lr``, and then keeps them."""

    _names = ("swa_lr", "anneal_epochs", "anneal_strategy")

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        super().__init__(optimizer, last_epoch, swa_lr=swa_lr, anneal_epochs=anneal_epochs, anneal_strategy=anneal_strategy)

    def _share(self, step):
        """Returns the fraction of the annealing that is done after ``step`` steps, from 0 to 1."""
        if self.anneal_epochs == 0:
            return 1.0
        done = max(0.0, min(1.0, step / self.anneal_epochs))
        return done if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * done)) / 2

    def get_lr(self):
        """Returns the rates, computed from the optimiser's current ones: another scheduler may have changed them."""
        before, now = self._share(self._step_count - 1), self._share(self._step_count)
        groups = self.optimizer.param_groups
        ends = self.swa_lr if isinstance(self.swa_lr, (list, tuple)) else [self.swa_lr] * len(groups)
        starts = [end if before == 1 else (_number(group["lr"]) - before * end) / (1 - before) for group, end in zip(groups, ends)]
        return [end * now + start * (1 - now) for start, end in zip(starts, ends)]


class LambdaLR(LRScheduler):
    """Multiplies the initial rates by a function of the step: one for all groups, or one for each."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def _lrs(self, step, base_lrs):
        return [base * function(step) for base, function in zip(base_lrs, self.lr_lambdas)]

    def state_dict(self):
        """Returns the state, without the optimiser and the functions."""
        return {name: value for name, value in super().state_dict().items() if name != "lr_lambdas"}


class MultiplicativeLR(LambdaLR):
    """Multiplies the rates at each step by a function of the step."""

    def _lrs(self, step, base_lrs):
        return [base * math.prod(function(at) for at in range(1, step + 1)) for base, function in zip(base_lrs, self.lr_lambdas)]


class SequentialLR(LRScheduler):
    """Runs schedulers one after the other. Each milestone starts the next one, which counts steps from 0."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(f"SequentialLR: there must be one scheduler more than {len(milestones)} milestones, "
                             f"got {len(schedulers)}")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        # Each scheduler has set its first rates: start again from the initial ones.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def _at(self, step):
        place = bisect.bisect_right(self._milestones, step)
        return self._schedulers[place], step - (self._milestones[place - 1] if place else 0)

    def _lrs(self, step, base_lrs):
        schedule, own = self._at(step)
        schedule.last_epoch = own
        lrs = schedule._lrs(own, base_lrs)
        schedule._last_lr = lrs
        return lrs

    def _momenta(self, step, groups):
        schedule, own = self._at(step)
        return schedule._momenta(own, groups)

    def state_dict(self):
        """Returns the state, with the states of the schedulers in it."""
        own = {name: value for name, value in super().state_dict().items() if name != "_schedulers"}
        return own | {"_schedulers": [schedule.state_dict() for schedule in self._schedulers]}

    def load_state_dict(self, state_dict):
        """Loads a state that ``state_dict`` returned."""
        own = dict(state_dict)
        for schedule, saved in zip(self._schedulers, own.pop("_schedulers")):
            schedule.load_state_dict(saved)
        self.__dict__.update(own)


class ChainedScheduler(LRScheduler):
    """Combines several schedulers at each step: each changes the rates that the previous one returns."""

    def __init__(self, schedulers, optimizer=None):
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler")
        optimizer = optimizer or self._schedulers[0].optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer)

    def _lrs(self, step, base_lrs):
        for schedule in self._schedulers:
            base_lrs = schedule._lrs(step, base_lrs)
            schedule.last_epoch, schedule._last_lr = step, base_lrs
        return base_lrs

    def _momenta(self, step, groups):
        found = [schedule._momenta(step, groups) for schedule in self._schedulers]
        return next((momenta for momenta in reversed(found) if momenta is not None), None)

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict


class ReduceLROnPlateau:
    """Reduces the rates when a metric has stopped improving for more than ``patience`` steps."""

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0,
                 min_lr=0, eps=1e-8):
        if not 0.0 <= factor < 1.0:
            raise ValueError(f"factor must be in [0, 1), got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be min or max, got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold_mode must be rel or abs, got {threshold_mode!r}")
        self.optimizer = optimizer
        self.mode, self.factor, self.patience, self.threshold = mode, factor, patience, threshold
        self.threshold_mode, self.cooldown, self.eps = threshold_mode, cooldown, eps
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"min_lr must have {count} elements, one for each group, got {len(self.min_lrs)}")
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [_number(group["lr"]) for group in optimizer.param_groups]

    def _is_better(self, metric):
        if self.threshold_mode == "rel":
            bound = self.best * (1.0 - self.threshold if self.mode == "min" else 1.0 + self.threshold)
        else:
            bound = self.best + (-self.threshold if self.mode == "min" else self.threshold)
        return metric < bound if self.mode == "min" else metric > bound

    def step(self, metrics, epoch=None):
        """Updates the state by the latest value of the metric, and reduces the rates if necessary."""
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                old = _number(group["lr"])
                new = max(old * self.factor, least)
                if old - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [_number(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self):
        """Returns the learning rates after the last step."""
        return list(self._last_lr)

    def state_dict(self):
        """Returns the state, without the optimiser."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict):
        """Loads a state that ``state_dict`` returned."""
        self.__dict__.update(state_dict)
