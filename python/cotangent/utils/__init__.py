"""PyTorch's names of what is elsewhere here: ``utils.data``, ``utils.checkpoint`` and ``utils.tensorboard``."""

from __future__ import annotations


def __getattr__(name: str):
    if name in ("data", "checkpoint", "tensorboard"):
        import importlib

        return importlib.import_module("cotangent.utils." + name)
    raise AttributeError(f"module 'cotangent.utils' has no attribute {name!r}: there are data, checkpoint and tensorboard")
