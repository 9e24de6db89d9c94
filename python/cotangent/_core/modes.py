"""Gradient modes: context managers that are also decorators."""

from __future__ import annotations

import functools
import threading

from .._cotangent import _set_grad_enabled


class _Mode:
    """Sets the gradient mode of this thread inside a ``with`` block, and restores it at the end."""

    def __init__(self, enabled: bool):
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self):
        self._before.append(_set_grad_enabled(self._enabled))

    def __exit__(self, *exception):
        _set_grad_enabled(self._before.pop())

    def __call__(self, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with _Mode(self._enabled):
                return function(*args, **kwargs)

        return wrapper


class no_grad(_Mode):
    """Disables the recording of operations: ``with no_grad():``, or a decorator."""

    def __init__(self, function=None):
        super().__init__(False)

    def __new__(cls, function=None):
        mode = super().__new__(cls)
        return mode if function is None else _Mode(False)(function)


class enable_grad(_Mode):
    """Enables the recording of operations, also inside ``no_grad``."""

    def __init__(self, function=None):
        super().__init__(True)

    def __new__(cls, function=None):
        mode = super().__new__(cls)
        return mode if function is None else _Mode(True)(function)


_inference = threading.local()


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return getattr(_inference, "depth", 0) > 0


class inference_mode(_Mode):
    """As ``no_grad``: tensors without a graph have no further overhead."""

    def __init__(self, mode=True):
        super().__init__(not mode)

    def __new__(cls, mode=True):
        made = super().__new__(cls)
        return _Mode(False)(mode) if callable(mode) else made

    def __enter__(self):
        super().__enter__()
        _inference.depth = getattr(_inference, "depth", 0) + (not self._enabled)

    def __exit__(self, *exception):
        _inference.depth = getattr(_inference, "depth", 0) - (not self._enabled)
        super().__exit__(*exception)


class set_grad_enabled(_Mode):
    """Enables or disables the recording of operations immediately; as a context manager, it restores the mode at the end."""

    def __init__(self, mode: bool):
        super().__init__(mode)
        self._before.append(_set_grad_enabled(mode))

    def __enter__(self):
        _set_grad_enabled(self._enabled)
