"""Forward-mode derivatives: PyTorch's ``torch.autograd.forward_ad``.

    >>> import cotangent as ct
    >>> import cotangent.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(ct.tensor([1.0, 2.0]), ct.tensor([1.0, 10.0]))
    ...     y = fwAD.unpack_dual(x * x)
    >>> y.primal, y.tangent
    (tensor([1., 4.]), tensor([ 2., 40.]))

A dual tensor is a tensor with a recorded graph. ``unpack_dual`` computes its tangent by two backward passes: the vector-Jacobian
product is linear in the vector, and its derivative is the Jacobian-vector product.

Unlike in PyTorch, a dual tensor therefore requires gradients, and results computed inside ``no_grad()`` have no tangent. A custom
``Function`` needs a differentiable ``backward``, but no ``jvp``. The results of ``unpack_dual`` have a graph, for higher
derivatives, if a primal or tangent passed to ``make_dual`` at this level requires gradients.
"""

from __future__ import annotations

import collections

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import enable_grad

_ops = _c._functions

UnpackedDualTensor = collections.namedtuple("UnpackedDualTensor", ["primal", "tangent"])

# The open levels: at most one.
_levels: list = []


class _Level:
    def __init__(self):
        self.entries: list = []
        self.tangents: list = []
        # Whether the results of unpack_dual have a graph.
        self.open = False


def enter_dual_level():
    """Enters a level, and returns its number."""
    if _levels:
        raise RuntimeError("enter_dual_level: levels must not be nested: use cotangent.func.jvp")
    _levels.append(_Level())
    return 0


def exit_dual_level(*, level=None):
    """Exits a level: its tensors no longer have tangents."""
    if level not in (None, len(_levels) - 1):
        raise RuntimeError(f"exit_dual_level: level must be the last one entered, {len(_levels) - 1}, got {level}")
    if not _levels:
        raise RuntimeError("exit_dual_level: a level must be entered first")
    _levels.pop()


class dual_level:  # noqa: N801
    """A context manager: inside a level, tensors can have tangents."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()


def _level(name, level):
    if not _levels:
        raise RuntimeError(f"{name}: must be called inside a level: with dual_level():")
    if level not in (None, len(_levels) - 1):
        raise RuntimeError(f"{name}: level must be {len(_levels) - 1}, got {level}")
    return _levels[-1]


def make_dual(tensor, tangent, *, level=None):
    """A dual tensor, from a tensor and a tangent of the same shape and dtype."""
    own = _level("make_dual", level)
    for what, x in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(x, Tensor):
            raise TypeError(f"make_dual: {what} must be a Tensor, got a value of type {type(x).__name__}")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"make_dual: tensor must be floating-point or complex, got {tensor.dtype}")
    if (tensor.shape, tensor.dtype) != (tangent.shape, tangent.dtype):
        raise RuntimeError(f"make_dual: tangent must have shape {list(tensor.shape)} and dtype {tensor.dtype}, "
                           f"got {list(tangent.shape)} and {tangent.dtype}")
    with enable_grad():
        entry = (tensor if tensor.requires_grad else tensor.detach().requires_grad_()).clone()
    own.open |= tensor.requires_grad or tangent.requires_grad
    own.entries.append(entry)
    own.tangents.append(tangent)
    # A copy, so that in-place changes do not affect the entry.
    with enable_grad():
        return entry.clone()


def unpack_dual(tensor, *, level=None):
    """The value of a tensor and its tangent, or None if it does not depend on a dual tensor."""
    if not _levels and level is None:
        return UnpackedDualTensor(tensor, None)
    own = _level("unpack_dual", level)
    if not (isinstance(tensor, Tensor) and tensor.requires_grad and own.entries):
        return UnpackedDualTensor(tensor, None)
    with enable_grad():
        probe = _ops["zeros_like"](tensor).detach().requires_grad_()
        pulled = _c._grad(tensor, own.entries, probe, True, True)
        pairs = [(p, t) for p, t in zip(pulled, own.tangents) if p is not None]
        if not pairs:
            return UnpackedDualTensor(tensor, None)
        # For complex numbers: the real function with this gradient.
        terms = [(p * t.conj()).sum() for p, t in pairs if p.requires_grad]
        terms = [term.real if term.is_complex() else term for term in terms]
        found = [None]
        if terms:
            whole = terms[0]
            for term in terms[1:]:
                whole = whole + term
            found = _c._grad(whole, [probe], None, True, own.open)
        tangent = _ops["zeros_like"](tensor).detach() if found[0] is None else found[0]
    return UnpackedDualTensor(tensor if own.open else tensor.detach(), tangent)
