"""``Categorical`` under PyTorch's module path."""

from .discrete import Categorical  # noqa: F401
