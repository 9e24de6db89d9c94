"""Tensors with automatic differentiation.

    >>> import cotangent as ct
    >>> w = ct.tensor([0.5, -1.0], requires_grad=True)
    >>> loss = (ct.tensor([[1.0, 2.0], [3.0, 4.0]]) * w).tanh().sum()
    >>> loss.backward()
    >>> w.grad.shape
    (2,)

Functions and methods are PyTorch's; the module is also a namespace of the Python array API standard, and where the two
differ the functions of the module are the standard's and the methods of tensors are PyTorch's. The README has the list.
"""

from __future__ import annotations

from . import _cotangent
from ._cotangent import (
    Tensor,
    __version__,
    bfloat16,
    bool,
    complex64,
    complex128,
    device,
    dtype,
    float16,
    float32,
    float64,
    get_num_threads,
    get_rng_state,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    manual_seed,
    memory_stats,
    promote_types,
    set_num_threads,
    set_rng_state,
    uint8,
    uint16,
    uint32,
    uint64,
)

# Every operation of the list is a function of the module; what differs in the standard follows.
globals().update(_cotangent._functions)

from . import _methods  # noqa: E402

# The same by functions and methods: PyTorch's by `dim`, the standard's by `axis`, which it has by name alone.
max, min, median, norm = Tensor.max, Tensor.min, Tensor.median, Tensor.norm
std, var, std_mean, var_mean, Size = _methods.std, _methods.var, _methods.std_mean, _methods.var_mean, _methods.Size
from ._standard import *  # noqa: E402, F403
from . import autograd, cuda, data, func, io, linalg, special, train  # noqa: E402
from ._modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402
from .func import vmap  # noqa: E402
from .io import load, save  # noqa: E402

# The operation `fft` has the name of the module, which would hide it: it is `fft.fft`.
fft = __import__("importlib").import_module(".fft", __name__)

# PyTorch's other names of dtypes.
double, float, half, short, int, long = float64, float32, float16, int16, int32, int64
cfloat, cdouble = complex64, complex128
__array_api_version__ = "2025.12"

# What there is in place of some of PyTorch's names, for the message.
_INSTEAD = {
    "set_default_dtype": "floats are of float32 unless a dtype is named: zeros(2, dtype=float64), module.double()",
    "set_default_device": "name the device where a tensor is made, or move it with to(device)",
    "get_default_device": "tensors are made on the CPU unless a device is named",
    "compile": "elementwise chains are fused as they are called; call the function itself",
    "jit": "there is no compiler of Python's code; call the function itself",
    "backends": "there is nothing to choose: results do not depend on the number of threads",
    "use_deterministic_algorithms": "results do not depend on the number of threads",
    "is_inference_mode_enabled": "inference_mode is no_grad: is_grad_enabled() tells",
    "utils": "utils.data is cotangent.data, utils.checkpoint.checkpoint is cotangent.autograd.checkpoint",
    "random": "manual_seed, get_rng_state and set_rng_state are functions of cotangent; a Generator draws apart",
    "distributed": "there is one process",
    "sparse": "tensors are dense",
}

# Names whose modules are imported when they are asked for.
_ELSEWHERE = {"autocast": "amp", "GradScaler": "amp", "set_printoptions": "_text"}


def __getattr__(name: str):
    # Imported when they are asked for: most programs need some of them, and `import cotangent` is quick.
    import importlib

    if name in ("array_api", "nn", "optim", "amp"):
        return importlib.import_module("cotangent." + name)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module("cotangent." + _ELSEWHERE[name]), name)
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'cotangent' has no attribute {name!r}" + (f": {instead}" if instead else ""))
