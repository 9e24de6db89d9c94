"""PyTorch's ``torch.compiler``: nothing is compiled."""

from __future__ import annotations

from ._core.hints import compile  # noqa: A004, F401


def is_compiling():
    """Always False: nothing is compiled."""
    return False


def is_dynamo_compiling():
    """Always False: nothing is compiled."""
    return False


def is_exporting():
    """Always False: nothing is exported."""
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """Returns the function itself; also a decorator with arguments."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn):
    """Returns the function itself."""
    return fn


def assume_constant_result(fn):
    """Returns the function itself."""
    return fn


def cudagraph_mark_step_begin():
    """No effect: calls are not captured in CUDA graphs."""


def reset():
    """No effect: nothing is compiled."""
