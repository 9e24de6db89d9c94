"""Nested containers of values, by PyTorch's name."""

from __future__ import annotations

from .._pytree import *  # noqa: F403
from .._pytree import _broadcast_to_and_flatten  # noqa: F401
