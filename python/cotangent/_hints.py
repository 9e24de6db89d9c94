"""How PyTorch is told to run: what asks for speed or for the same result each time is taken, and changes nothing here."""

from __future__ import annotations

_settings = {"deterministic": False, "precision": "highest", "interop": 1, "warn_always": False}


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):  # noqa: A001
    """The function or module itself, also as a decorator: chains of elementwise operations are fused as they are called."""
    return (lambda function: function) if model is None else model


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Results are the same each time in any case, whatever the number of threads."""
    _settings["deterministic"] = bool(mode)


def are_deterministic_algorithms_enabled():
    """What ``use_deterministic_algorithms`` was told."""
    return _settings["deterministic"]


def set_float32_matmul_precision(precision):
    """Allows products of float32 to be rounded more than they are: they stay of float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision: {precision!r} is none of 'highest', 'high', 'medium'")
    _settings["precision"] = precision


def get_float32_matmul_precision():
    """What ``set_float32_matmul_precision`` was told."""
    return _settings["precision"]


def set_num_interop_threads(num):
    """Operations of one thread are computed one after the other."""
    if num < 1:
        raise RuntimeError("set_num_interop_threads: there must be a thread")
    _settings["interop"] = num


def get_num_interop_threads():
    """What ``set_num_interop_threads`` was told."""
    return _settings["interop"]


def set_flush_denormal(mode):
    """Whether numbers that are nearly 0 can be taken for 0: they are kept as they are."""
    return not mode


def set_warn_always(b):
    """Whether a warning is given each time: Python's ``warnings`` decide."""
    _settings["warn_always"] = bool(b)


def is_warn_always_enabled():
    """What ``set_warn_always`` was told."""
    return _settings["warn_always"]


class _Named:
    """A word of PyTorch's that is known by its name."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"cotangent.{self._name}"


class memory_format(_Named):  # noqa: N801
    """In which order elements lie. They lie in the order of their indices: what is asked for is taken, and changes nothing."""


class layout(_Named):  # noqa: N801
    """How elements are stored: all of them, one after the other, or only some with their places."""


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided, sparse_coo, sparse_csr = layout("strided"), layout("sparse_coo"), layout("sparse_csr")
