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
    """A module. It is not compiled."""


class ScriptFunction:
    """The class of scripted functions, for ``isinstance`` checks. No object is an instance of it."""

    def __init__(self, *args, **kwargs):
        raise TypeError("jit.ScriptFunction: Python code is not compiled: jit.script returns the function itself")


RecursiveScriptModule = ScriptModule


class Error(Exception):
    """The error of compiled functions. It is never raised."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Returns the function, class or module itself."""
    return obj


def trace(func, example_inputs=None, *args, **kwargs):
    """Returns the function or module itself: control flow that depends on values is kept."""
    return func


def trace_module(mod, inputs, *args, **kwargs):
    """Returns the module itself."""
    return mod


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """Returns the module itself."""
    return mod


def optimize_for_inference(mod, other_methods=None):
    """Returns the module itself."""
    return mod


def script_method(fn):
    """Returns the method itself."""
    return fn


def export(fn):
    """Returns the method itself."""
    return fn


def unused(fn):
    """Returns the function itself."""
    return fn


def interface(obj):
    """Returns the class itself."""
    return obj


def ignore(drop=False, **kwargs):
    """Returns the function itself; also a decorator with arguments."""
    return drop if callable(drop) else lambda fn: fn


def script_if_tracing(fn):
    """Returns the function itself."""
    return fn


def annotate(the_type: type[_T], the_value: _T) -> _T:
    """Returns the value."""
    return the_value


def isinstance(obj, target_type):  # noqa: A001
    """Whether the object is an instance of the class, or of one of the classes."""
    return builtins.isinstance(obj, target_type)


def is_scripting():
    """Always False: nothing is compiled."""
    return False


def is_tracing():
    """Always False: nothing is compiled."""
    return False


def __getattr__(name: str):
    if name in ("save", "load"):
        raise AttributeError(f"module 'cotangent.jit' has no attribute {name!r}: Python code is not compiled: save the state dict")
    raise AttributeError(f"module 'cotangent.jit' has no attribute {name!r}: Python code is not compiled: call the function itself")
