"""``Beta``, by the name of PyTorch's file."""

from .continuous import Beta  # noqa: F401
