"""PyTorch's ``torch.compiler``: nothing is compiled, and programs that ask are told so."""

from __future__ import annotations

from ._hints import compile  # noqa: A004, F401


def is_compiling():
    """No: Python runs what is called."""
    return False


def is_dynamo_compiling():
    """No: Python runs what is called."""
    return False


def is_exporting():
    """No: nothing is exported."""
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """The function itself, also as a decorator with arguments."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn):
    """The function itself."""
    return fn


def assume_constant_result(fn):
    """The function itself."""
    return fn


def cudagraph_mark_step_begin():
    """Marks nothing: calls are not recorded."""


def reset():
    """Forgets what has been compiled: there is nothing."""
