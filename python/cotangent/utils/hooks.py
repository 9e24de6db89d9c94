"""Handles of hooks, by PyTorch's name."""

from ..nn.hooks import RemovableHandle  # noqa: F401
