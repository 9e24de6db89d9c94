"""``Independent``, by the name of PyTorch's file."""

from .distribution import Independent  # noqa: F401
