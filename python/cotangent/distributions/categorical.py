"""``Categorical``, by the name of PyTorch's file."""

from .discrete import Categorical  # noqa: F401
