"""Where tensors are made unless a device is named: ``with device(..):``, ``set_default_device``."""

from __future__ import annotations

import threading

from . import _cotangent as _c

# What the blocks that a thread is inside of will set back, the innermost last.
_before = threading.local()


def _enter(self):
    """Tensors that are made inside of ``with device(..):`` are on this device, unless another is named."""
    if not hasattr(_before, "all"):
        _before.all = []
    _before.all.append(_c._set_default_device(self))
    return self


def _exit(self, *exception):
    _c._set_default_device(_before.all.pop())


def set_default_device(device):
    """Lets tensors of this thread be made on a device unless another is named; None is the CPU again."""
    _c._set_default_device(device)


def get_default_device():
    """Where tensors of this thread are made unless a device is named."""
    chosen = _c._default_device()
    return _c.device("cpu") if chosen is None else chosen


_c.device.__enter__, _c.device.__exit__ = _enter, _exit
