"""Gradient clipping, parameters as one vector, and normalised weights."""

from __future__ import annotations

from ..._core import aliases as _aliases
from ... import _cotangent as _c
from ..._cotangent import Tensor
from . import rnn  # noqa: F401

_ops = _c._functions


def _bound(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    # The crate skips parameters without a gradient. Reading `grad` here would create an object that keeps the memory alive.
    own = list({id(p): p for p in parameters}.values())
    return _c._Parameters(own, [str(at) for at in range(len(own))])


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients so that their total norm is at most ``max_norm``. Returns the norm before the scaling."""
    norm = _bound(parameters).clip_grad_norm(float(max_norm), float(norm_type), error_if_nonfinite)
    return _c._tensor(norm, dtype=_c.float32, device=None, requires_grad=False)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clips every element of the gradients to ``[-clip_value, clip_value]``."""
    _bound(parameters).clip_grad_value(float(clip_value))


def parameters_to_vector(parameters):
    """Concatenates all parameters to one vector."""
    return _ops["cat"]([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Sets the parameters to the consecutive parts of a vector."""
    at = 0
    for p in parameters:
        p.data = vec[at:at + p.numel()].reshape(p.shape)
        at += p.numel()


def __getattr__(name: str):
    # They import modules, which are imported after this package.
    if name in ("parametrize", "parametrizations"):
        import importlib

        return importlib.import_module("cotangent.nn.utils." + name)
    raise AttributeError(f"module 'cotangent.nn.utils' has no attribute {name!r}")


def weight_norm(module, name="weight", dim=0):
    """Applies weight normalisation. Its parameters have the names of ``parametrizations.weight_norm``."""
    from . import parametrize

    return parametrize.weight_norm(module, name, dim)


def remove_weight_norm(module, name="weight"):
    """Removes weight normalisation: the weight is one parameter again."""
    from . import parametrize

    return parametrize.remove_parametrizations(module, name)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Applies spectral normalisation. Its parameters have the names of ``parametrizations.spectral_norm``."""
    from . import parametrize

    return parametrize.spectral_norm(module, name, n_power_iterations, eps, dim)


def remove_spectral_norm(module, name="weight"):
    """Removes spectral normalisation: the weight is one parameter again."""
    from . import parametrize

    return parametrize.remove_parametrizations(module, name)


def skip_init(module_cls, *args, **kwargs):
    """Creates a module. Unlike in PyTorch, its parameters are initialised."""
    return module_cls(*args, **kwargs)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Returns the total norm of all tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _c._tensor(0.0)
    norms = _ops["stack"]([_ops["norm"](x, None, False, float(norm_type)) for x in tensors])
    total = _ops["norm"](norms, None, False, float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"get_total_norm: the norm of order {norm_type} must be finite, got {total.item()}")
    return total


# The names of PyTorch's files.
_aliases.alias(__name__, "clip_grad convert_parameters")
