"""Event files that TensorBoard shows, by PyTorch's name."""

from ..train import SummaryWriter  # noqa: F401
