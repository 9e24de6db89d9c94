"""The classes of ``cotangent.nn`` under PyTorch's module paths: ``nn.modules.conv.Conv2d`` is ``nn.Conv2d``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable

from ..._core import aliases as _aliases
from .. import layers as _layers
from ..containers import *  # noqa: F403
from ..module import Module  # noqa: F401

_FILES = ("activation adaptive batchnorm container conv distance dropout flatten fold instancenorm linear loss module normalization padding "
          "pixelshuffle pooling rnn sparse transformer upsampling utils").split()


_aliases.alias(__name__, " ".join(_FILES))


def _ntuple(n, name="parse"):
    """Returns a function that repeats one value ``n`` times as a tuple, and converts a sequence to a tuple."""

    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = _ntuple(1, "_single"), _ntuple(2, "_pair"), _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


class _Loss(Module):
    """The base class of user-defined losses, with the attribute ``reduction``."""

    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        if size_average is not None or reduce is not None:
            whole = True if size_average is None else size_average
            reduction = "none" if reduce is False else "mean" if whole else "sum"
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """A loss with a weight for each class, stored in the buffer ``weight``."""

    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class _AnyOf(type):
    """The metaclass of PyTorch's private base classes: instances are the layers whose names begin with ``starts``."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, tuple(value for name, value in _layers.CLASSES.items() if name.startswith(cls.starts)))


class _BatchNorm(metaclass=_AnyOf):
    """PyTorch's base class of batch norms, for ``isinstance``."""

    starts = "BatchNorm"


class _InstanceNorm(metaclass=_AnyOf):
    """PyTorch's base class of instance norms, for ``isinstance``."""

    starts = "InstanceNorm"


class _ConvNd(metaclass=_AnyOf):
    """PyTorch's base class of convolutions, for ``isinstance``."""

    starts = "Conv"


def __getattr__(name: str):
    if name in _FILES:
        return sys.modules[__name__]
    from ... import nn

    if name.startswith("_") or not hasattr(nn, name):
        raise AttributeError(f"module 'cotangent.nn.modules' has no attribute {name!r}")
    return getattr(nn, name)
