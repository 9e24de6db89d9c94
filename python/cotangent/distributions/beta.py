"""``Beta`` under PyTorch's module path."""

from .continuous import Beta  # noqa: F401
