"""PyTorch's name of the file of hooks."""

from ..nn.hooks import RemovableHandle  # noqa: F401
