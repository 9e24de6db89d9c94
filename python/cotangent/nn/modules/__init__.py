"""The classes of ``cotangent.nn`` by the names of PyTorch's files: ``nn.modules.conv.Conv2d`` is ``nn.Conv2d``."""

from __future__ import annotations

import sys

from .. import layers as _layers
from ..containers import *  # noqa: F403
from ..module import Module  # noqa: F401

_FILES = ("activation adaptive batchnorm container conv distance dropout flatten fold instancenorm linear loss module normalization padding "
          "pixelshuffle pooling rnn sparse transformer upsampling utils").split()


class _AnyOf(type):
    """A base class of PyTorch's: instances are those of some layers of the list."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, tuple(value for name, value in _layers.CLASSES.items() if name.startswith(cls.starts)))


class _BatchNorm(metaclass=_AnyOf):
    """What PyTorch's batch norms have in common."""

    starts = "BatchNorm"


class _InstanceNorm(metaclass=_AnyOf):
    """What PyTorch's instance norms have in common."""

    starts = "InstanceNorm"


class _ConvNd(metaclass=_AnyOf):
    """What PyTorch's convolutions have in common."""

    starts = "Conv"


def __getattr__(name: str):
    if name in _FILES:
        return sys.modules[__name__]
    from ... import nn

    if name.startswith("_") or not hasattr(nn, name):
        raise AttributeError(f"module 'cotangent.nn.modules' has no attribute {name!r}")
    return getattr(nn, name)
