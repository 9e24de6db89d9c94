"""Lazy layers, which infer the number of input features from their first input."""

from __future__ import annotations

import inspect

from .. import _cotangent as _c
from .layers import CLASSES
from .module import Module
from .parameter import Parameter

_ops = _c._functions


class UninitializedParameter(Parameter):
    """A parameter whose shape is unknown until the first input, which initialises it."""

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return super().__new__(cls, _ops["zeros"]((0,), dtype=dtype, device=device), requires_grad)


class _Lazy(Module):
    """A module that becomes the layer ``_layer`` at the first call. Its parameters stay the same objects."""

    _layer: type
    # The inferred argument, and the dimension of the input with its value.
    _told, _dim = "in_features", -1

    def __init__(self, *args, **kwargs):
        super().__init__()
        # A layer of the smallest size has the names of the parameters, and checks the arguments.
        probe = self._make(args, kwargs, max(1, kwargs.get("groups", 1)))
        self.__dict__["_arguments"] = args, kwargs
        self.__dict__.update({name: value for name, value in probe.__dict__.items() if not name.startswith("_")})
        self.__dict__[self._told] = 0
        for name, value in probe._parameters.items():
            self.register_parameter(name, None if value is None else UninitializedParameter(dtype=value.dtype, device=value.device))
        for name, value in probe._buffers.items():
            self.register_buffer(name, value)

    def _make(self, args, kwargs, size):
        given = (size, *args) if self._told not in kwargs else args
        return self._layer(*given, **kwargs)

    def has_uninitialized_params(self):
        """Whether the parameters are uninitialised: true before the first call."""
        return True

    def initialize_parameters(self, input):
        """Turns the module into the layer that fits an input."""
        # An input without a batch dimension has the channels first.
        dim = 0 if input.ndim == self._rank else self._dim
        made = self._make(*self._arguments, input.shape[dim])
        variables, training = dict(self._parameters), self.training
        hooks = {name: value for name, value in self.__dict__.items() if name.endswith("_hooks")}
        for name, value in made._parameters.items():
            if value is not None:
                variables[name].data = value.detach()
                made._parameters[name] = variables[name]
        made.to(next((p.device for p in variables.values() if p is not None), None))
        # An instance of a user-defined subclass keeps its class.
        self.__class__ = self._layer if type(self).__module__.startswith("cotangent") else type(self)
        self.__dict__.clear()
        self.__dict__.update(made.__dict__ | hooks | {"training": training})

    def forward(self, input):
        self.initialize_parameters(input)
        return self.forward(input)

    def extra_repr(self):
        from . import _shown

        return _shown.text(self, self._layer.__name__)


def _class(name, told, dim, rank):
    layer = CLASSES[name]
    own = [p for p in inspect.signature(layer.__init__).parameters.values() if p.name != told]

    def __init__(self, *args, **kwargs):
        _Lazy.__init__(self, *args, **kwargs)

    __init__.__signature__ = inspect.Signature(own)
    return type(f"Lazy{name}", (_Lazy,), {"_layer": layer, "_told": told, "_dim": dim, "_rank": rank, "_params": [
        p for p in layer._params if p["name"] != told], "__init__": __init__, "__module__": "cotangent.nn",
        "__doc__": f"A ``{name}`` module that infers ``{told}`` from its first input."})


LAZY = {"LazyLinear": _class("Linear", "in_features", -1, 0)}
for _rank in (1, 2, 3):
    for _name in ("Conv", "ConvTranspose"):
        LAZY[f"Lazy{_name}{_rank}d"] = _class(f"{_name}{_rank}d", "in_channels", 1, _rank + 1)
    for _name in ("BatchNorm", "InstanceNorm"):
        LAZY[f"Lazy{_name}{_rank}d"] = _class(f"{_name}{_rank}d", "num_features", 1, _rank + 1 if _name != "BatchNorm" else 0)
