"""The loader and its collate functions, by PyTorch's name."""

from ...data import DataLoader, default_collate, default_convert, get_worker_info  # noqa: F401
