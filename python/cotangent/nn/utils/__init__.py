"""Bounds for gradients, and parameters as one vector."""

from __future__ import annotations

from ..._core import aliases as _aliases
from ... import _cotangent as _c
from ..._cotangent import Tensor
from . import rnn  # noqa: F401

_ops = _c._functions


def _bound(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    # Those without a gradient are passed over by the crate. To ask for `grad` here would make an object that keeps the bytes.
    own = list({id(p): p for p in parameters}.values())
    return _c._Parameters(own, [str(at) for at in range(len(own))])


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales the gradients of all parameters together so that their norm is at most ``max_norm``; gives the norm before."""
    norm = _bound(parameters).clip_grad_norm(float(max_norm), float(norm_type), error_if_nonfinite)
    return _c._tensor(norm, dtype=_c.float32, device=None, requires_grad=False)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Bounds every element of the gradients by ±``clip_value``."""
    _bound(parameters).clip_grad_value(float(clip_value))


def parameters_to_vector(parameters):
    """All parameters as one vector."""
    return _ops["cat"]([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Puts the parts of a vector into the parameters."""
    at = 0
    for p in parameters:
        p.data = vec[at:at + p.numel()].reshape(p.shape)
        at += p.numel()


def __getattr__(name: str):
    # They are made of modules, which are imported after this.
    if name in ("parametrize", "parametrizations"):
        import importlib

        return importlib.import_module("cotangent.nn.utils." + name)
    raise AttributeError(f"module 'cotangent.nn.utils' has no attribute {name!r}")


def weight_norm(module, name="weight", dim=0):
    """A weight as a direction times lengths: ``parametrizations.weight_norm``, whose names of parameters it has."""
    from . import parametrize

    return parametrize.weight_norm(module, name, dim)


def remove_weight_norm(module, name="weight"):
    """Makes a weight one parameter again."""
    from . import parametrize

    return parametrize.remove_parametrizations(module, name)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """A weight divided by its largest singular value: ``parametrizations.spectral_norm``, whose names of parameters it has."""
    from . import parametrize

    return parametrize.spectral_norm(module, name, n_power_iterations, eps, dim)


def remove_spectral_norm(module, name="weight"):
    """Makes a weight one parameter again."""
    from . import parametrize

    return parametrize.remove_parametrizations(module, name)


def skip_init(module_cls, *args, **kwargs):
    """A module, whose first values are drawn as always."""
    return module_cls(*args, **kwargs)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors together."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _c._tensor(0.0)
    norms = _ops["stack"]([_ops["norm"](x, None, False, float(norm_type)) for x in tensors])
    total = _ops["norm"](norms, None, False, float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"get_total_norm: the norm of order {norm_type} is {total.item()}")
    return total


# PyTorch has files for them.
_aliases.alias(__name__, "clip_grad convert_parameters")
