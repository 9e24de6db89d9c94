"""PyTorch's ``torch.jit`` as with ``PYTORCH_JIT=0``: functions and modules are not compiled.

    >>> import cotangent as ct
    >>> @ct.jit.script
    ... def twice(x: ct.Tensor) -> ct.Tensor:
    ...     return x + x
    >>> twice(ct.ones(2)).tolist()
    [2.0, 2.0]
"""

from __future__ import annotations

import builtins
from typing import Final, TypeVar  # noqa: F401

from .nn.module import Module

_T = TypeVar("_T")


class ScriptModule(Module):
    """A module, which is not compiled."""


class ScriptFunction:
    """PyTorch's class of compiled functions, for ``isinstance``: there are none here."""

    def __init__(self, *args, **kwargs):
        raise TypeError("jit.ScriptFunction: Python code is not compiled: jit.script returns the function itself")


RecursiveScriptModule = ScriptModule


class Error(Exception):
    """An error of a compiled function: there are none here."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function, class or module itself."""
    return obj


def trace(func, example_inputs=None, *args, **kwargs):
    """The function or module itself: control flow that depends on values is kept."""
    return func


def trace_module(mod, inputs, *args, **kwargs):
    """The module itself."""
    return mod


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module itself."""
    return mod


def optimize_for_inference(mod, other_methods=None):
    """The module itself."""
    return mod


def script_method(fn):
    """The method itself."""
    return fn


def export(fn):
    """The method itself."""
    return fn


def unused(fn):
    """The function itself."""
    return fn


def interface(obj):
    """The class itself."""
    return obj


def ignore(drop=False, **kwargs):
    """The function itself, also as a decorator with arguments."""
    return drop if callable(drop) else lambda fn: fn


def script_if_tracing(fn):
    """The function itself."""
    return fn


def annotate(the_type: type[_T], the_value: _T) -> _T:
    """The value."""
    return the_value


def isinstance(obj, target_type):  # noqa: A001
    """Whether the object is of the class, or of one of the classes."""
    return builtins.isinstance(obj, target_type)


def is_scripting():
    """False: nothing is compiled."""
    return False


def is_tracing():
    """False: nothing is compiled."""
    return False


def __getattr__(name: str):
    if name in ("save", "load"):
        raise AttributeError(f"module 'cotangent.jit' has no attribute {name!r}: Python code is not compiled: save the state dict")
    raise AttributeError(f"module 'cotangent.jit' has no attribute {name!r}: Python code is not compiled: call the function itself")
