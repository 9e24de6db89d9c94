"""Containers of modules and of parameters."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Mapping

from .._cotangent import Tensor
from .._core.dtypes import _type_name
from .module import Module
from .parameter import Parameter


def _place(index, length):
    at = operator.index(index)
    if not -length <= at < length:
        raise IndexError(f"index {at} is out of range for {length} items")
    return at % length


class _List(Module):
    """Base class of containers whose modules have an index."""

    def _set(self, modules):
        self._modules.clear()
        self._modules.update((str(at), module) for at, module in enumerate(modules))

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __contains__(self, module):
        return any(module is own for own in self)

    def __getitem__(self, index):
        modules = list(self._modules.items())
        if isinstance(index, slice):
            part = modules[index]
            return type(self)(OrderedDict(part)) if isinstance(self, Sequential) else type(self)([own for _, own in part])
        return modules[_place(index, len(modules))][1]

    def __setitem__(self, index, module):
        setattr(self, list(self._modules)[_place(index, len(self))], module)

    def __delitem__(self, index):
        modules = list(self)
        del modules[index]
        self._set(modules)

    def append(self, module):
        """Appends a module."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        """Inserts a module before an index."""
        modules = list(self)
        modules.insert(index, module)
        self._set(modules)
        return self

    def extend(self, modules):
        """Appends several modules."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key=-1):
        """Removes a module and returns it."""
        module = self[key]
        del self[key]
        return module

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return type(self)(*self, *other) if isinstance(self, Sequential) else type(self)([*self, *other])


class Sequential(_List):
    """A sequence of modules. The output of each is the input of the next."""

    def __init__(self, *args):
        super().__init__()
        one = len(args) == 1 and isinstance(args[0], Mapping)
        for name, module in args[0].items() if one else ((str(at), module) for at, module in enumerate(args)):
            self.add_module(name, module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_List):
    """Holds modules in a list."""

    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or [])

    def __repr__(self):
        """Shows consecutive modules with the same text once, with their number."""
        lines, at = [], 0
        for text, run in itertools.groupby(map(repr, self)):
            text, count = text.replace("\n", "\n  "), len(list(run))
            lines.append(f"({at}-{at + count - 1}): {count} x {text}" if count > 1 else f"({at}): {text}")
            at += count
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


class _Dict(Module):
    def __init__(self, items=None):
        super().__init__()
        self.update(items or {})

    def _own(self):
        return self._modules

    def __len__(self):
        return len(self._own())

    def __iter__(self):
        return iter(self._own())

    def __contains__(self, key):
        return key in self._own()

    def __getitem__(self, key):
        return self._own()[key]

    def __delitem__(self, key):
        del self._own()[key]

    def keys(self):
        """Returns the keys."""
        return self._own().keys()

    def values(self):
        """Returns the values."""
        return self._own().values()

    def items(self):
        """Returns the pairs of keys and values."""
        return self._own().items()

    def clear(self):
        """Removes all items."""
        self._own().clear()

    def pop(self, key):
        """Removes a key and returns its value."""
        return self._own().pop(key)

    def get(self, key, default=None):
        """Returns the value of a key, or the default."""
        return self._own().get(key, default)

    def setdefault(self, key, default=None):
        """Returns the value of a key. A missing key is first set to the default."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self):
        """Removes the last item and returns its key and value."""
        return self._own().popitem()

    def update(self, items):
        """Adds the items of a mapping, or pairs of keys and values."""
        for key, value in items.items() if hasattr(items, "items") else items:
            self[key] = value


class ModuleDict(_Dict):
    """Holds modules in a dictionary."""

    def __init__(self, modules=None):
        super().__init__(modules)

    def __setitem__(self, key, module):
        self.add_module(key, module)


def _parameter(value):
    return value if isinstance(value, Parameter) or not isinstance(value, Tensor) else Parameter(value)


def _listed(module, kind):
    """Returns the lines of ``repr`` for the parameters of a container."""
    lines = []
    for name, value in module._parameters.items():
        sizes, place = "x".join(map(str, value.shape)), "" if value.device.type == "cpu" else f" ({value.device})"
        lines.append(f"  ({name}): Parameter containing: [{kind(value)} of size {sizes}{place}]")
    return "\n".join(lines)


class ParameterDict(_Dict):
    """Holds parameters in a dictionary. Tensors become parameters."""

    def __init__(self, parameters=None):
        super().__init__(parameters)

    def _own(self):
        return self._parameters

    def __setitem__(self, key, value):
        self.register_parameter(key, _parameter(value))

    def extra_repr(self):
        return _listed(self, _type_name)


class ParameterList(Module):
    """Holds parameters in a list. Tensors become parameters."""

    def __init__(self, values=None):
        super().__init__()
        self.extend(values or [])

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(self._parameters.values())

    def __getitem__(self, index):
        values = list(self)
        return ParameterList(values[index]) if isinstance(index, slice) else values[_place(index, len(values))]

    def __setitem__(self, index, value):
        self.register_parameter(str(_place(index, len(self))), _parameter(value))

    def append(self, value):
        """Appends a parameter."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values):
        """Appends several parameters."""
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values):
        return self.extend(values)

    def extra_repr(self):
        return _listed(self, lambda value: value.dtype)
