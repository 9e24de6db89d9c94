"""Automatic differentiation: gradients, custom functions, tapes and checks."""

from __future__ import annotations

import functools
import sys as _sys

from .._core import aliases as _aliases
from .. import _cotangent as _c
from .._cotangent import Gradients, RemovableHandle, Tape, Tensor  # noqa: F401
from .._core.modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401

_ops = _c._functions


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of tensors to those of the leaves they depend on, or only to those of ``inputs``."""
    output, gradient = _joined(_list(tensors), grad_tensors)
    output.backward(gradient, retain_graph, create_graph, inputs)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """The gradients of outputs with respect to inputs, as a tuple. It does not change ``.grad``.

    If the outputs do not depend on an input, it raises an error, or with ``allow_unused`` returns None for that input. With
    ``is_grads_batched`` the gradients of the outputs, and the results, have an additional first dimension.
    """
    if not only_inputs:
        raise NotImplementedError("grad: only_inputs must be True: use backward() for the gradients of all leaves")
    if is_grads_batched:
        each = zip(*(g.unbind(0) for g in _list(grad_outputs)))
        found = [grad(outputs, inputs, one, True, create_graph, True, allow_unused, False, materialize_grads) for one in each]
        return tuple(None if one[0] is None else _ops["stack"](one) for one in zip(*found))
    output, gradient = _joined(_list(outputs), grad_outputs)
    inputs = _list(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    found = _c._grad(output, inputs, gradient, retain, create_graph)
    if materialize_grads:
        found = [_ops["zeros_like"](x) if g is None else g for g, x in zip(found, inputs)]
    elif not allow_unused and any(g is None for g in found):
        at = [g is None for g in found].index(True)
        raise RuntimeError(f"grad: the outputs must depend on all inputs, but do not on input {at}: allow_unused=True returns None")
    return tuple(found)


def _list(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _joined(outputs, gradients):
    """Joins outputs into one tensor with the gradients of all."""
    gradients = [None] * len(outputs) if gradients is None else _list(gradients)
    if len(outputs) != len(gradients):
        raise ValueError(f"grad: grad_outputs must have {len(outputs)} gradients, one for each output, got {len(gradients)}")
    if len(outputs) == 1:
        return outputs[0], gradients[0]
    terms = []
    for output, gradient in zip(outputs, gradients):
        if gradient is None and output.numel() != 1:
            raise RuntimeError(f"grad: grad_outputs is required for an output that is not a scalar, got shape {list(output.shape)}")
        # For complex numbers: the real function with this gradient.
        term = output.sum() if gradient is None else (output * gradient.conj()).sum()
        terms.append(term.real if term.is_complex() else term)
    return functools.reduce(lambda a, b: a + b, terms), None


def once_differentiable(function):
    """Decorates the ``backward`` of a ``Function``: its gradients have no graph."""

    @functools.wraps(function)
    def wrapper(ctx, *grads):
        with no_grad():
            return function(ctx, *grads)

    return wrapper


class FunctionCtx:
    """The context that passes data from ``forward`` to ``backward``."""

    def __init__(self):
        self._to_save = None
        self._saved = None
        self._saved_count = 0
        self._tuple = False
        self._marked, self._constants = (), []
        self.needs_input_grad = ()

    def save_for_backward(self, *tensors):
        """Saves tensors for ``backward``. Inputs and results keep their graph."""
        self._to_save = tuple(x for x in tensors if x is not None)
        self._given = tuple(x is not None for x in tensors)

    @property
    def saved_tensors(self):
        """The saved tensors, inside ``backward``."""
        if self._saved is None:
            raise RuntimeError("saved_tensors: saved tensors are available only inside backward")
        saved = iter(self._saved)
        return tuple(next(saved) if given else None for given in getattr(self, "_given", ()))

    def mark_non_differentiable(self, *tensors):
        """Marks results of ``forward`` that require no gradient. ``backward`` gets zeros for them."""
        self._marked = tensors

    def _returned(self, results):
        """Notes the positions of the marked tensors among the results."""
        results = [results] if isinstance(results, Tensor) else results
        self._constants = [at for at, x in enumerate(results) if any(x is marked for marked in self._marked)]

    def set_materialize_grads(self, value):
        """No effect: gradients of unused results are always zeros."""


class Function:
    """A custom differentiable function, called by ``apply``.

    ``forward(ctx, *args)`` returns a tensor or a tuple of tensors, and ``backward(ctx, *grads)`` a gradient, or None, for each
    argument of ``forward``. If a class defines ``setup_context(ctx, inputs, output)``, which saves tensors for ``backward``,
    ``forward`` has no context: ``forward(*args)``.
    """

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError("Function: subclasses must define forward")

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError("Function: subclasses must define backward")

    @classmethod
    def apply(cls, *args):
        """Calls ``forward``, and records ``backward``."""
        if getattr(cls, "setup_context", None) is None:
            return _c._apply(cls, FunctionCtx(), args)
        # A class whose forward has the context, created by the first call.
        if "_joined" not in cls.__dict__:

            def forward(ctx, *given):
                output = cls.forward(*given)
                cls.setup_context(ctx, given, output)
                return output

            cls._joined = type(cls.__name__, (cls,), {"forward": staticmethod(forward)})
        return _c._apply(cls._joined, FunctionCtx(), args)


def checkpoint(function, *args, use_reentrant=None):
    """Calls a function without saving its intermediate values. The backward pass recomputes them."""
    tensors, places = [], []
    for at, arg in enumerate(args):
        if isinstance(arg, Tensor):
            tensors.append(arg)
            places.append(at)

    def of_tensors(*given):
        full = list(args)
        for at, x in zip(places, given):
            full[at] = x
        return function(*full)

    return _c._checkpoint(of_tensors, tensors)


def gradcheck(func, inputs, eps=None, atol=None, rtol=None, fast_mode=False, raise_exception=True):
    """Compares the gradients of a function with finite differences. Inputs must be float64."""
    return _check(func, inputs, False, eps, atol, rtol, fast_mode, raise_exception)


def gradgradcheck(func, inputs, eps=None, atol=None, rtol=None, fast_mode=False, raise_exception=True):
    """Compares the second derivatives of a function with finite differences. Inputs must be float64."""
    return _check(func, inputs, True, eps, atol, rtol, fast_mode, raise_exception)


def _check(func, inputs, second, eps, atol, rtol, fast_mode, raise_exception):
    tolerances = None if atol is None and rtol is None else (1e-3 if rtol is None else rtol, 1e-5 if atol is None else atol)
    try:
        _c._gradcheck(func, _list(inputs), second, fast_mode, tolerances, eps)
    except (RuntimeError, ValueError):
        if raise_exception:
            raise
        return False
    return True


class detect_anomaly:
    """A context manager: errors of backward passes name the first operation whose gradient is NaN."""

    def __init__(self, check_nan=True):
        if not check_nan:
            raise NotImplementedError("detect_anomaly: check_nan must be True, got False")

    def __enter__(self):
        _c._detect_anomaly(True)

    def __exit__(self, *exception):
        _c._detect_anomaly(False)


class set_detect_anomaly:
    """Enables or disables anomaly detection; as a context manager, until the end of the block."""

    _depth = 0

    def __init__(self, mode, check_nan=True):
        self._before = set_detect_anomaly._depth
        self._set(1 if mode else 0)

    @staticmethod
    def _set(depth):
        while set_detect_anomaly._depth != depth:
            _c._detect_anomaly(depth > set_detect_anomaly._depth)
            set_detect_anomaly._depth += 1 if depth > set_detect_anomaly._depth else -1

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._set(self._before)


class _AnyTensor(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor)


class Variable(metaclass=_AnyTensor):
    """PyTorch's old name of tensors: ``Variable(x)`` is ``x`` without its graph."""

    def __new__(cls, data, requires_grad=False, volatile=False):
        return data.detach().requires_grad_(requires_grad)


# PyTorch has submodules of these names.
_aliases.alias(__name__, "function variable grad_mode gradcheck anomaly_mode")


def __getattr__(name: str):
    if name in ("function", "variable", "grad_mode"):
        return _sys.modules[__name__]
    if name in ("functional", "forward_ad"):
        import importlib

        return importlib.import_module("cotangent.autograd." + name)
    instead = {
        "profiler": "use cotangent.utils.benchmark",
        "graph": "hooks on saved tensors are not supported; use autograd.checkpoint to recompute instead of saving",
    }.get(name)
    raise AttributeError(f"module 'cotangent.autograd' has no attribute {name!r}" + (f": {instead}" if instead else ""))
