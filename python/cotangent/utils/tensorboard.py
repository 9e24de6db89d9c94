"""The writer of TensorBoard event files, by PyTorch's name."""

from ..train import SummaryWriter  # noqa: F401
