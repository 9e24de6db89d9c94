"""Nested containers of values, by PyTorch's name."""

from __future__ import annotations

from .._core.pytree import *  # noqa: F403
from .._core.pytree import _broadcast_to_and_flatten  # noqa: F401
