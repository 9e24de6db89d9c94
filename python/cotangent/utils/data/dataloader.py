"""The loader, and how it makes batches, by PyTorch's name."""

from ...data import DataLoader, default_collate, default_convert, get_worker_info  # noqa: F401
