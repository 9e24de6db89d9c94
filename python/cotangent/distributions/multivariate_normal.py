"""``MultivariateNormal``, by the name of PyTorch's file."""

from .continuous import MultivariateNormal  # noqa: F401
