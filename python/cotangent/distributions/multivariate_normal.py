"""``MultivariateNormal`` under PyTorch's module path."""

from .continuous import MultivariateNormal  # noqa: F401
