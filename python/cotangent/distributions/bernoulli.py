"""``Bernoulli`` under PyTorch's module path."""

from .discrete import Bernoulli  # noqa: F401
