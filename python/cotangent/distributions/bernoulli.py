"""``Bernoulli``, by the name of PyTorch's file."""

from .discrete import Bernoulli  # noqa: F401
