"""Initialisation of parameters, as in ``torch.nn.init``: in place, and outside of the graph."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .._core.modes import no_grad

_ops = _c._functions


def calculate_gain(nonlinearity, param=None):
    """Returns the recommended gain of a nonlinearity."""
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75} | dict.fromkeys(
        ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"), 1.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in gains:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return gains[nonlinearity]


def _fans(tensor):
    if tensor.ndim < 2:
        raise ValueError(f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions: {list(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans


def _fan(tensor, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of fan_in, fan_out")
    return _fans(tensor)[mode == "fan_out"]


@no_grad()
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Fills the tensor from the uniform distribution on ``[a, b)``."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Fills the tensor from the normal distribution."""
    return tensor.copy_(_ops["randn"](tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator) * std + mean)


@no_grad()
def constant_(tensor, val):
    """Fills the tensor with the value ``val``."""
    return tensor.fill_(val)


def ones_(tensor):
    """Fills the tensor with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """Fills the tensor with zeros."""
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor):
    """Fills a matrix with the identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    tensor.zero_()
    tensor.fill_diagonal_(1.0)
    return tensor


@no_grad()
def dirac_(tensor, groups=1):
    """Fills the weight of a convolution with the Dirac delta function, so that it returns its input channels."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    tensor.zero_()
    each = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for at in range(min(each, tensor.shape[1])):
            tensor[(group * each + at, at, *centre)] = 1.0
    return tensor


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Xavier uniform initialisation (Glorot and Bengio, 2010): layers keep the variance of activations and gradients."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Xavier normal initialisation (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Kaiming uniform initialisation (He et al., 2015): a layer with its nonlinearity keeps the variance."""
    if 0 in tensor.shape:
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Kaiming normal initialisation (He et al., 2015)."""
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


@no_grad()
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Fills the tensor from the normal distribution, truncated to ``[a, b]``."""
    part = lambda x: (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0
    # Inverse transform sampling: the inverse CDF of numbers that are uniform between the CDF at the bounds.
    low, high = 2 * part(a) - 1, 2 * part(b) - 1
    tensor.uniform_(low, high, generator=generator)
    tensor.erfinv_()
    tensor.mul_(std * math.sqrt(2.0))
    tensor.add_(mean)
    return tensor.clamp_(a, b)


@no_grad()
def orthogonal_(tensor, gain=1, generator=None):
    """Fills a matrix with orthonormal rows or columns, times ``gain`` (Saxe et al., 2013)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = _ops["randn"]((max(rows, columns), min(rows, columns)), dtype=tensor.dtype, device=tensor.device, generator=generator)
    q, r = _ops["linalg_qr"](drawn)
    q = q * r.diagonal().sign()
    return tensor.copy_((q if rows >= columns else q.t()).reshape(tensor.shape) * gain)


@no_grad()
def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Fills a matrix from the normal distribution, and sets the fraction ``sparsity`` of each column to zero."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0.0, std, generator)
    for column in range(columns):
        tensor[_ops["randperm"](rows, generator=generator)[:zeros], column] = 0.0
    return tensor
