"""``Independent`` under PyTorch's module path."""

from .distribution import Independent  # noqa: F401
