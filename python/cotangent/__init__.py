"""Tensors with automatic differentiation.

    >>> import cotangent as ct
    >>> w = ct.tensor([0.5, -1.0], requires_grad=True)
    >>> loss = (ct.tensor([[1.0, 2.0], [3.0, 4.0]]) * w).tanh().sum()
    >>> loss.backward()
    >>> w.grad.shape
    cotangent.Size([2])

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
    get_default_dtype,
    get_num_threads,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    memory_stats,
    promote_types,
    set_default_dtype,
    set_num_threads,
    uint8,
    uint16,
    uint32,
    uint64,
)

# Every operation of the list is a function of the module; what differs in the standard follows.
globals().update(_cotangent._functions)

from . import _methods  # noqa: E402

# The same by functions and methods: PyTorch's by `dim`, the standard's by `axis`, which it has by name alone.
max, min, median, nanmedian, norm = Tensor.max, Tensor.min, Tensor.median, Tensor.nanmedian, Tensor.norm
repeat_interleave, tile = _methods.repeat_interleave, _methods.tile
std, var, std_mean, var_mean, Size = _methods.std, _methods.var, _methods.std_mean, _methods.var_mean, _methods.Size
from ._dtypes import *  # noqa: E402, F403
from ._creation import *  # noqa: E402, F403
from ._standard import *  # noqa: E402, F403
from ._forms import *  # noqa: E402, F403
from . import autograd, cuda, data, func, io, linalg, random, special, train  # noqa: E402
from ._devices import get_default_device, set_default_device  # noqa: E402
from ._modes import enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled  # noqa: E402
from .func import vmap  # noqa: E402
from .io import load, save  # noqa: E402
from .random import (  # noqa: E402
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

# The operation `fft` has the name of the module, which would hide it: it is `fft.fft`.
fft = __import__("importlib").import_module(".fft", __name__)

# PyTorch's other names of dtypes.
double, float, half, short, int, long = float64, float32, float16, int16, int32, int64
cfloat, cdouble = complex64, complex128
# PyTorch has files for them.
__import__("importlib").import_module("._aliases", __name__).alias(__name__, "_tensor functional serialization")
__array_api_version__ = "2025.12"

# What there is in place of some of PyTorch's names, for the message.
_INSTEAD = {
    "hub": "load files that you have with cotangent.load; nothing is fetched",
    "onnx": "nothing is exported; cotangent.io.save_safetensors is read by others",
    "quantization": "GGUF's quantised tensors are read as float32 by cotangent.io.load_gguf",
    "profiler": "time what you call",
    "range": "arange leaves the end out",
    "solve": "linalg.solve has the matrix first",
    "symeig": "linalg.eigh",
    "version": "cotangent.__version__ is the version",
}

# Modules that are imported when they are asked for: most programs need some of them, and `import cotangent` is quick.
_MODULES = ("accelerator", "amp", "array_api", "backends", "compiler", "distributed", "distributions", "jit", "multiprocessing",
            "nn", "optim", "signal", "sparse", "testing", "types", "utils")
# Names whose modules are imported when they are asked for.
_ELSEWHERE = {"sparse_coo_tensor": "sparse", "sparse_csr_tensor": "sparse", "spmm": "sparse", "autocast": "amp", "GradScaler": "amp", "is_autocast_enabled": "amp", "set_printoptions": "_text"} | dict.fromkeys(
    ("compile", "use_deterministic_algorithms", "are_deterministic_algorithms_enabled", "set_float32_matmul_precision",
     "get_float32_matmul_precision", "set_num_interop_threads", "get_num_interop_threads", "set_flush_denormal",
     "set_warn_always", "is_warn_always_enabled", "channels_last", "channels_last_3d", "contiguous_format", "preserve_format",
     "memory_format", "strided", "sparse_coo", "sparse_csr", "layout"), "_hints")


def __getattr__(name: str):
    import importlib

    if name in _MODULES:
        return importlib.import_module("cotangent." + name)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module("cotangent." + _ELSEWHERE[name]), name)
    if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, name):
        # PyTorch's functions that change their first argument.
        return getattr(Tensor, name)
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'cotangent' has no attribute {name!r}" + (f": {instead}" if instead else ""))
