"""``Uniform``, by the name of PyTorch's file."""

from .continuous import Uniform  # noqa: F401
