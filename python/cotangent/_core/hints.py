"""PyTorch's settings for speed and determinism: accepted, without effect."""

from __future__ import annotations

_settings = {"deterministic": False, "precision": "highest", "interop": 1, "warn_always": False}


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):  # noqa: A001
    """Returns the function or module itself; also a decorator. Chains of elementwise operations are fused without it."""
    return (lambda function: function) if model is None else model


def use_deterministic_algorithms(mode, *, warn_only=False):
    """No effect: results are always deterministic, for any number of threads."""
    _settings["deterministic"] = bool(mode)


def are_deterministic_algorithms_enabled():
    """The setting of ``use_deterministic_algorithms``."""
    return _settings["deterministic"]


def set_float32_matmul_precision(precision):
    """No effect: products of float32 are computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision: precision must be 'highest', 'high' or 'medium', got {precision!r}")
    _settings["precision"] = precision


def get_float32_matmul_precision():
    """The setting of ``set_float32_matmul_precision``."""
    return _settings["precision"]


def set_num_interop_threads(num):
    """No effect: the operations of a thread run sequentially."""
    if num < 1:
        raise RuntimeError(f"set_num_interop_threads: num must be positive, got {num}")
    _settings["interop"] = num


def get_num_interop_threads():
    """The setting of ``set_num_interop_threads``."""
    return _settings["interop"]


def set_flush_denormal(mode):
    """Returns whether the mode is supported: denormal numbers are never flushed to 0."""
    return not mode


def set_warn_always(b):
    """No effect: Python's ``warnings`` control how often a warning is shown."""
    _settings["warn_always"] = bool(b)


def is_warn_always_enabled():
    """The setting of ``set_warn_always``."""
    return _settings["warn_always"]


class _Named:
    """One of PyTorch's named constants."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"cotangent.{self._name}"


class memory_format(_Named):  # noqa: N801
    """The order of elements in memory. It has no effect: tensors are row-major."""


class layout(_Named):  # noqa: N801
    """The storage of elements: dense (strided) or sparse."""


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided, sparse_coo, sparse_csr = layout("strided"), layout("sparse_coo"), layout("sparse_csr")
