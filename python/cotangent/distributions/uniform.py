"""``Uniform`` under PyTorch's module path."""

from .continuous import Uniform  # noqa: F401
