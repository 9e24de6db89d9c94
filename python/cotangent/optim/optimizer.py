"""The optimisers of the Rust crate, with PyTorch's names, arguments and state dicts."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict, defaultdict

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import enable_grad

# PyTorch's names, and its arguments that stand for several of the crate's.
_NAMES = {"Sgd": "SGD", "Lbfgs": "LBFGS", "Lamb": "LAMB"}
_PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("min_step_size", "max_step_size"),
          "eps": ("eps1", "eps2")}
_RENAMED = {"adjust_lr": "adjust_lr_fn"}
_WORDS = {"adjust_lr_fn": "original", "line_search_fn": "none"}
# PyTorch's order of arguments, where it differs.
_ORDER = {"Muon": "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn".split()}
# PyTorch's arguments that choose an implementation. They have no effect.
_WAYS = ("foreach", "fused", "capturable", "differentiable")


def _settings(entry):
    """Returns the arguments of an optimiser in PyTorch's form, with their defaults."""
    own = {p["name"]: p["default"] for p in entry["params"]}
    for name, parts in _PAIRS.items():
        if parts[0] in own:
            at = list(own).index(parts[0])
            pair = tuple(own[part] for part in parts)
            items = [(key, value) for key, value in own.items() if key not in parts]
            own = dict(items[:at] + [(name, pair)] + items[at:])
    own = {_RENAMED.get(name, name): value for name, value in own.items()}
    for name, word in _WORDS.items():
        if own.get(name) == word:
            own[name] = None
    order = _ORDER.get(entry["name"], list(own))
    return {name: own[name] for name in order}


class _RequiredParameter:
    """The default of a required argument."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


class Optimizer:
    """Base class for all optimisers, which update parameters by their gradients.

    ``params`` are parameters, pairs of names and parameters, or groups: dicts with ``params`` and their own options.
    ``param_groups`` has the options. Changes of them take effect in the next step.

    A subclass that defines ``step`` keeps its state in ``state``, a dictionary for each parameter.
    """

    # The entry in the crate's list of optimisers, or None for a user-defined optimiser.
    _entry: dict | None = None
    _defaults: dict

    def __init__(self, params, defaults):
        self.defaults = dict(defaults)
        self.param_groups = []
        self._rust = []
        if self._entry is None:
            self.__dict__["_own_state"] = defaultdict(dict)
        groups = [params] if isinstance(params, Tensor) else list(params)
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of Tensors or dicts, got a Tensor")
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Adds a group of parameters with its own options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        group = dict(param_group)
        given = group["params"]
        given = [given] if isinstance(given, Tensor) else list(given)
        if given and isinstance(given[0], tuple):
            group["param_names"] = [name for name, _ in given]
            given = [p for _, p in given]
        group["params"] = given
        seen = {id(p) for own in self.param_groups for p in own["params"]}
        for p in given:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf or p._base is not None:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(p) in seen:
                raise ValueError("some parameters appear in more than one place of the optimizer's groups")
            seen.add(id(p))
        for name in group.keys() - self.defaults.keys() - {"params", "param_names", "initial_lr", *_WAYS} if self._entry else ():
            raise TypeError(f"{type(self).__name__}: a group has no option {name}, only {', '.join(self.defaults)}")
        for name, value in self.defaults.items():
            group.setdefault(name, copy.copy(value))
        first = sum(len(own["params"]) for own in self.param_groups)
        names = [str(first + at) for at in range(len(given))]
        if self._entry is None:
            self.param_groups.append(group)
            return
        crate = self._crate(group)
        self.param_groups.append(group)
        self._rust.append((_c._Optimizer(self._entry["name"], crate), _c._Parameters(given, names), crate))
        self.__dict__.pop("_all", None)

    def _crate(self, group):
        """Returns the options of a group in the crate's form."""
        own = {}
        for p in self._entry["params"]:
            name = p["name"]
            pair = next((pair for pair, parts in _PAIRS.items() if name in parts and parts[0] in
                         {q["name"] for q in self._entry["params"]}), None)
            if pair is not None:
                value = group[pair][_PAIRS[pair].index(name)]
            else:
                shown = _RENAMED.get(name, name)
                value = group[shown]
                value = _WORDS[shown] if value is None and shown in _WORDS else value
            own[name] = value.item() if isinstance(value, Tensor) else value
        return own

    def _sync(self):
        """Passes changed options to the crate."""
        for at, (group, (optimizer, parameters, before)) in enumerate(zip(self.param_groups, self._rust)):
            now = self._crate(group)
            if now != before:
                if {**now, "lr": before["lr"]} == before:
                    optimizer.set_lr(now["lr"])
                else:
                    optimizer.set(now)
                self._rust[at] = optimizer, parameters, now

    def step(self, closure=None):
        """Performs one step: updates every parameter with a gradient. ``closure`` first computes the loss, which is returned."""
        if self._entry is None:
            raise NotImplementedError(f"{type(self).__name__} must define step")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._call(self._pre_hooks)
        self._sync()
        for optimizer, parameters, _ in self._rust:
            optimizer.step(parameters)
        self._call(self._post_hooks)
        return loss

    # Hooks. Most optimisers have none, and share these empty dictionaries.
    _pre_hooks: OrderedDict = OrderedDict()
    _post_hooks: OrderedDict = OrderedDict()

    def _call(self, hooks):
        for hook in list(hooks.values()):
            hook(self, (), {})

    def register_step_pre_hook(self, hook):
        """Calls ``hook(optimizer, args, kwargs)`` before each step, after the closure has computed the loss."""
        return self._add_hook("_pre_hooks", hook)

    def register_step_post_hook(self, hook):
        """Calls ``hook(optimizer, args, kwargs)`` after each step."""
        return self._add_hook("_post_hooks", hook)

    def _add_hook(self, name, hook):
        from ..nn.hooks import add

        return add(self.__dict__.setdefault(name, OrderedDict()), hook)

    def zero_grad(self, set_to_none=True):
        """Sets the gradients of all parameters to None, or to zero if ``set_to_none`` is false."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad.zero_()

    def _parameters(self):
        """Returns all parameters as one object of the crate, for operations on their gradients."""
        if "_all" not in self.__dict__:
            every = [p for group in self.param_groups for p in group["params"]]
            self._all = _c._Parameters(every, [str(at) for at in range(len(every))])
        return self._all

    # State.

    def _kept(self):
        """Returns the state of each parameter, by its index."""
        if self._entry is None:
            own = self.__dict__["_own_state"]
            every = [p for group in self.param_groups for p in group["params"]]
            kept = {number: own[p] for number, p in enumerate(every) if p in own}
            # State that belongs to no parameter is stored under names.
            return kept | {key: value for key, value in own.items() if not isinstance(key, Tensor)}
        state = {}
        for optimizer, _, crate in self._rust:
            for name, value in optimizer.state_dict().items():
                number, _, slot = name.partition(".")
                if slot and number.isdigit():
                    state.setdefault(int(number), {})[slot] = value
        return {number: self._shown(own) for number, own in sorted(state.items())}

    def _shown(self, own):
        """Returns the state of a parameter in PyTorch's form."""
        own = dict(own)
        step = float(own.pop("step"))
        if self._entry["name"] != "Sgd":
            own = {"step": _c._tensor(step, dtype=_c.float32, device=None, requires_grad=False), **own}
        if "row_var" in own and "col_var" not in own:
            # Adafactor, for a parameter that is not a matrix.
            own["variance"] = own.pop("row_var")
        return own

    @property
    def state(self):
        """The current state of each parameter that had a step."""
        if self._entry is None:
            return self.__dict__["_own_state"]
        every = [p for group in self.param_groups for p in group["params"]]
        return {every[number]: own for number, own in self._kept().items()}

    def state_dict(self):
        """Returns the options and the state of each parameter, in PyTorch's form."""
        groups, at = [], 0
        for group in self.param_groups:
            own = {name: value for name, value in group.items() if name != "params"}
            groups.append(own | {"params": list(range(at, at + len(group["params"])))})
            at += len(group["params"])
        return {"state": self._kept(), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Loads a state dict of this optimiser, or of PyTorch's. After an error, the optimiser is unchanged."""
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(f"loaded state dict must have {len(self.param_groups)} parameter groups, got {len(groups)}")
        for saved, own in zip(groups, self.param_groups):
            if len(saved["params"]) != len(own["params"]):
                raise ValueError(f"loaded state dict: a parameter group must have {len(own['params'])} parameters, "
                                 f"got {len(saved['params'])}")
        numbers, new = {}, []
        for saved, own in zip(groups, self.param_groups):
            for number, p in zip(saved["params"], own["params"]):
                numbers[number] = len(numbers), p
            settings = {name: value for name, value in saved.items() if name in self.defaults or name in ("initial_lr", "param_names")
                        or (self._entry is None and name != "params")}
            new.append({**own, **{name: _plain(value) for name, value in settings.items()}})
        kept, named = {}, {}
        for number, own in state_dict["state"].items():
            if self._entry is None and isinstance(number, str) and not number.isdigit():
                named[number] = copy.deepcopy(own)
                continue
            if number not in numbers:
                raise ValueError(f"loaded state dict has the state of parameter {number}, which is in no group")
            at, p = numbers[number]
            kept[at] = _copied(own, p) if self._entry is None else self._read(at, own, p)
        if self._entry is None:
            every = [p for group in self.param_groups for p in group["params"]]
            self.__dict__["_own_state"] = defaultdict(dict, {every[at]: own for at, own in kept.items()} | named)
            for own, group in zip(self.param_groups, new):
                own.update(group)
            return
        rust, first = [], 0
        for group, (_, parameters, _) in zip(new, self._rust):
            crate = self._crate(group)
            optimizer = _c._Optimizer(self._entry["name"], crate)
            count = len(group["params"])
            state = {f"{at}.{slot}": value for at in range(first, first + count) for slot, value in kept.get(at, {}).items()}
            if state:
                optimizer.load_state_dict(optimizer.state_dict() | state)
            rust.append((optimizer, parameters, crate))
            first += count
        for own, group in zip(self.param_groups, new):
            own.update(group)
        self._rust = rust

    def _read(self, at, saved, p):
        """Converts the saved state of a parameter to the crate's form."""
        from ..nn.module import _tensor_of

        tensors = {name: value if isinstance(value, Tensor) else _tensor_of(value) for name, value in saved.items()
                   if value is not None and not isinstance(value, (int, float))}
        numbers = {name: value for name, value in saved.items() if isinstance(value, (int, float))}
        numbers |= {name: tensors.pop(name).item() for name in ("step", "mu_product") if name in tensors}
        # PyTorch's SGD does not count steps. The crate only needs to know that there was one.
        own = {"step": _c._tensor(int(numbers.get("step", 1)), dtype=_c.int64, device=None, requires_grad=False)}
        if "mu_product" in numbers:
            own["mu_product"] = _c._tensor(float(numbers["mu_product"]), dtype=_c.float64, device=None, requires_grad=False)
        if "variance" in tensors:
            tensors["row_var"] = tensors.pop("variance")
        wide = p.dtype if p.dtype == _c.float64 else _c.float32
        for name, value in tensors.items():
            own[name] = value.detach().to(wide).clone()
        if self._entry["name"] == "Sgd" and not tensors:
            return {}
        return own

    def __getstate__(self):
        return {"defaults": self.defaults, "param_groups": self.param_groups, "saved": self.state_dict()}

    def __setstate__(self, state):
        self.defaults, self.param_groups, self._rust = state["defaults"], [], []
        if self._entry is None:
            self.__dict__["_own_state"] = defaultdict(dict)
        for group in state["param_groups"]:
            self.add_param_group(group)
        self.load_state_dict(state["saved"])

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for at, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {at}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name not in ("params", "param_names")]
        return "\n".join(lines + [")"])


def _copied(state, p):
    """Copies a parameter's state in a user-defined optimiser. Floating-point tensors get the parameter's dtype and device."""
    def one(name, x):
        if not isinstance(x, Tensor):
            return copy.deepcopy(x)
        return x.detach().clone() if name == "step" or not x.is_floating_point() else x.detach().to(p.dtype, p.device).clone()

    return {name: one(name, value) for name, value in state.items()}


def _plain(value):
    """Converts lists, as files have them, to the tuples of the options."""
    return tuple(value) if isinstance(value, list) and not any(isinstance(x, str) for x in value) else value


def _class(entry):
    name, own = _NAMES.get(entry["name"], entry["name"]), _settings(entry)

    def __init__(self, params, *args, **kwargs):
        for way in _WAYS:
            kwargs.pop(way, None)
        if len(args) > len(own):
            raise TypeError(f"{name}() takes at most {len(own) + 1} arguments, got {len(args) + 1}")
        given = dict(zip(own, args))
        for key, value in kwargs.items():
            if key not in own:
                raise TypeError(f"{name}() has no parameter {key}, only {', '.join(own)}")
            if key in given:
                raise TypeError(f"{name}() got multiple values for argument {key}")
            given[key] = value
        Optimizer.__init__(self, params, own | given)

    kinds = inspect.Parameter
    __init__.__signature__ = inspect.Signature(
        [kinds("self", kinds.POSITIONAL_OR_KEYWORD), kinds("params", kinds.POSITIONAL_OR_KEYWORD)]
        + [kinds(key, kinds.POSITIONAL_OR_KEYWORD, default=value) for key, value in own.items()]
        + [kinds("ways", kinds.VAR_KEYWORD)])
    return type(name, (Optimizer,), {"_entry": entry, "_defaults": own, "__init__": __init__, "__doc__": entry["docs"],
                                     "__module__": "cotangent.optim"})


CLASSES = {_NAMES.get(entry["name"], entry["name"]): _class(entry) for entry in _c._optimizers()}


class LBFGS(CLASSES["LBFGS"]):
    __doc__ = CLASSES["LBFGS"].__doc__
    __module__ = "cotangent.optim"

    def __init__(self, params, *args, **kwargs):
        super().__init__(params, *args, **kwargs)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._memory = None

    __init__.__signature__ = inspect.signature(CLASSES["LBFGS"].__init__)

    def step(self, closure):
        """Performs one step of up to ``max_iter`` iterations. ``closure`` computes the loss and calls ``backward``."""
        loss, self._memory = _c._lbfgs_step(self._crate(self.param_groups[0]), self._memory, self._rust[0][1], closure)
        return loss

    def _kept(self):
        return {0: dict(self._memory)} if self._memory else {}

    def load_state_dict(self, state_dict):
        """Loads a state dict of this optimiser."""
        own = state_dict["state"].get(0)
        if own is not None and "al" in own:
            raise ValueError("LBFGS: the state dict must be one of cotangent, got one of PyTorch")
        super().load_state_dict({**state_dict, "state": {}})
        self._memory = None if own is None else OrderedDict(own)


CLASSES["LBFGS"] = LBFGS
