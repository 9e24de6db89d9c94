"""Tensors with automatic differentiation.

    >>> import cotangent as ct
    >>> w = ct.tensor([0.5, -1.0], requires_grad=True)
    >>> loss = (ct.tensor([[1.0, 2.0], [3.0, 4.0]]) * w).tanh().sum()
    >>> loss.backward()
    >>> w.grad.shape
    cotangent.Size([2])

Functions and methods follow PyTorch. The module also follows the Python array API standard: where the two differ, its
functions follow the standard and the methods of tensors follow PyTorch. The README has the list.
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

# Every operation of the crate is a function of the module; the imports below replace those that differ in the standard.
globals().update(_cotangent._functions)

from ._core import methods as _methods  # noqa: E402

# Functions that are also methods: they follow PyTorch with `dim`, and the standard with the keyword `axis`.
max, min, median, nanmedian, norm = Tensor.max, Tensor.min, Tensor.median, Tensor.nanmedian, Tensor.norm
repeat_interleave, tile = _methods.repeat_interleave, _methods.tile
std, var, std_mean, var_mean, Size = _methods.std, _methods.var, _methods.std_mean, _methods.var_mean, _methods.Size
from ._core.dtypes import *  # noqa: E402, F403
from ._core.creation import *  # noqa: E402, F403
from ._core.standard import *  # noqa: E402, F403
from ._core.forms import *  # noqa: E402, F403
from . import autograd, cuda, data, func, io, linalg, random, special, train  # noqa: E402
from ._core.devices import get_default_device, set_default_device  # noqa: E402
from ._core.modes import enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled  # noqa: E402
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

# The module replaces the operation of the same name, which is `fft.fft`.
fft = __import__("importlib").import_module(".fft", __name__)

# PyTorch's aliases of dtypes.
double, float, half, short, int, long = float64, float32, float16, int16, int32, int64
cfloat, cdouble = complex64, complex128
# PyTorch has submodules of these names.
__import__("importlib").import_module("._core.aliases", __name__).alias(__name__, "_tensor functional serialization")
__array_api_version__ = "2025.12"

# Alternatives to some of PyTorch's names, for the error message.
_INSTEAD = {
    "hub": "models are not downloaded; load local files with cotangent.load, and language models with cotangent.models.load",
    "onnx": "ONNX export is not supported; use cotangent.io.save_safetensors",
    "quantization": "quantised tensors are only read, from GGUF files, as float32: use cotangent.io.load_gguf",
    "profiler": "use cotangent.utils.benchmark",
    "range": "use arange, which excludes the end",
    "solve": "use linalg.solve, which has the matrix first",
    "symeig": "use linalg.eigh",
    "version": "use cotangent.__version__",
}

# Modules that are imported on first access, so that `import cotangent` is fast.
_MODULES = ("accelerator", "amp", "array_api", "backends", "compiler", "distributed", "distributions", "jit", "models",
            "multiprocessing", "nn", "optim", "signal", "sparse", "testing", "types", "utils")
# Names whose modules are imported on first access.
_ELSEWHERE = {"sparse_coo_tensor": "sparse", "sparse_csr_tensor": "sparse", "spmm": "sparse", "autocast": "amp", "GradScaler": "amp", "is_autocast_enabled": "amp", "generate": "models", "set_printoptions": "_core.text"} | dict.fromkeys(
    ("compile", "use_deterministic_algorithms", "are_deterministic_algorithms_enabled", "set_float32_matmul_precision",
     "get_float32_matmul_precision", "set_num_interop_threads", "get_num_interop_threads", "set_flush_denormal",
     "set_warn_always", "is_warn_always_enabled", "channels_last", "channels_last_3d", "contiguous_format", "preserve_format",
     "memory_format", "strided", "sparse_coo", "sparse_csr", "layout"), "_core.hints")


def __getattr__(name: str):
    import importlib

    if name in _MODULES:
        return importlib.import_module("cotangent." + name)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module("cotangent." + _ELSEWHERE[name]), name)
    if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, name):
        # PyTorch's in-place functions.
        return getattr(Tensor, name)
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'cotangent' has no attribute {name!r}" + (f": {instead}" if instead else ""))
