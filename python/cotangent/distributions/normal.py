"""``Normal`` under PyTorch's module path."""

from .continuous import Normal  # noqa: F401
