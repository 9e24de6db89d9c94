"""The default device: ``with device(..):``, ``set_default_device``."""

from __future__ import annotations

import threading

from .. import _cotangent as _c

# The default devices to restore at the end of the thread's open blocks, the innermost last.
_before = threading.local()


def _enter(self):
    """Makes this device the default inside ``with device(..):``."""
    if not hasattr(_before, "all"):
        _before.all = []
    _before.all.append(_c._set_default_device(self))
    return self


def _exit(self, *exception):
    _c._set_default_device(_before.all.pop())


def set_default_device(device):
    """Sets the default device of this thread; None resets it to the CPU."""
    _c._set_default_device(device)


def get_default_device():
    """The default device of this thread."""
    chosen = _c._default_device()
    return _c.device("cpu") if chosen is None else chosen


_c.device.__enter__, _c.device.__exit__ = _enter, _exit
