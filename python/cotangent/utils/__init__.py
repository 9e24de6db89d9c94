"""Utilities, and PyTorch's names of other modules: benchmark, checkpoint, data, hooks, model_zoo and tensorboard."""

from __future__ import annotations


def __getattr__(name: str):
    if name in ("_pytree", "benchmark", "checkpoint", "data", "hooks", "model_zoo", "tensorboard"):
        import importlib

        return importlib.import_module("cotangent.utils." + name)
    raise AttributeError(f"module 'cotangent.utils' has no attribute {name!r}: it has benchmark, checkpoint, data, hooks, "
                         "model_zoo and tensorboard")
