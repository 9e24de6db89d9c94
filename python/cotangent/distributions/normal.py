"""``Normal``, by the name of PyTorch's file."""

from .continuous import Normal  # noqa: F401
