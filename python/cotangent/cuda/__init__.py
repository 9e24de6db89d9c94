"""NVIDIA GPUs: PyTorch's ``torch.cuda``. They are initialized on first use."""

from __future__ import annotations

import time

from .. import _cotangent as _c


def is_available() -> bool:
    """Whether there is a GPU."""
    return _c._device_count() > 0


def device_count() -> int:
    """The number of GPUs."""
    return _c._device_count()


# PyTorch's programs save the random states of GPUs if this is True. Here all devices share the generator of the thread.
_initialized = False


def is_initialized() -> bool:
    """Whether there is a GPU: no initialization is needed."""
    return is_available()


def init() -> None:
    """No effect: GPUs are initialized on first use."""


def current_device() -> int:
    """The index of the current GPU, always 0."""
    _one("current_device", None)
    return 0


def set_device(device) -> None:
    """Accepts only GPU 0, the current one. To use another, pass its name to the functions that create tensors."""
    if _one("set_device", device).index != 0:
        raise NotImplementedError(f'set_device: device must be GPU 0: pass the name of another one, as in to("{_named(device)}")')


def _named(device):
    if device is None:
        return _c.device("cuda")
    return device if isinstance(device, _c.device) else _c.device(device if isinstance(device, str) else f"cuda:{device}")


def _one(function, device):
    """The device, which must exist."""
    device = _named(device)
    if device.type == "cuda" and device.index >= _c._device_count():
        raise RuntimeError(f"{function}: device {device} does not exist: {_c._device_count()} GPUs were found")
    return device


def synchronize(device=None) -> None:
    """Waits until a GPU has finished its work."""
    _c._synchronize(_named(device))


def manual_seed(seed) -> None:
    """Sets the seed. The CPU and GPUs share one generator."""
    _c.manual_seed(seed)


def manual_seed_all(seed) -> None:
    """Sets the seed of all GPUs."""
    _c.manual_seed(seed)


def get_rng_state(device=None):
    """The state of the generator, which the CPU and GPUs share."""
    return _c.get_rng_state()


def set_rng_state(new_state, device=None) -> None:
    """Sets the state of the generator to one returned by ``get_rng_state``."""
    _c.set_rng_state(tuple(new_state))


def get_rng_state_all():
    """The states of the generators of all GPUs."""
    return [_c.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states) -> None:
    """Sets the states of the generators of all GPUs to those returned by ``get_rng_state_all``."""
    for state in new_states:
        _c.set_rng_state(tuple(state))


# Memory


def _figure(name, device):
    return _c.memory_stats(_one(name, device))[name] if is_available() else 0


def memory_allocated(device=None) -> int:
    """The memory of all tensors on a GPU, in bytes; 0 without a GPU."""
    return _figure("current", device)


def max_memory_allocated(device=None) -> int:
    """The peak memory of tensors on a GPU, in bytes."""
    return _figure("peak", device)


def memory_reserved(device=None) -> int:
    """The memory that the allocator holds on a GPU, in bytes, including its cache."""
    return _figure("held", device)


def max_memory_reserved(device=None) -> int:
    """The peak of ``memory_reserved``. Only ``empty_cache`` releases memory."""
    return max(_figure("held", device), _figure("peak", device))


def empty_cache() -> None:
    """Releases the cached memory of all GPUs."""
    for at in range(device_count()):
        _c._empty_cache(_c.device("cuda", at))


def reset_peak_memory_stats(device=None) -> None:
    """Resets the peak of ``max_memory_allocated``."""
    if is_available():
        _c._reset_peak(_one("reset_peak_memory_stats", device))


def memory_stats(device=None) -> dict[str, int]:
    """The statistics of a GPU's allocator, in bytes; empty without a GPU."""
    return dict(_c.memory_stats(_one("memory_stats", device))) if is_available() else {}


def memory_summary(device=None, abbreviated=False) -> str:
    """The statistics of ``memory_stats`` as text."""
    return "\n".join(f"{name}: {value / 2**20:.1f} MiB" for name, value in memory_stats(device).items())


def ipc_collect() -> None:
    """No effect: memory is not shared with other processes."""


def is_bf16_supported(including_emulation=True) -> bool:
    """Whether GPUs support bfloat16: True if there is a GPU."""
    return is_available()


class device:
    """A context manager that accepts only GPU 0, the current one, as ``set_device``."""

    def __init__(self, device):
        self._device = _named(device) if device is not None and device != -1 else None

    def __enter__(self):
        if self._device is not None and self._device.type == "cuda":
            set_device(self._device)

    def __exit__(self, *exception):
        pass


class Event:
    """A point in time for measurements: ``start.elapsed_time(end)`` returns milliseconds.

    ``record`` waits until the GPU has finished its work. Without a GPU it does not wait.
    """

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._time = None

    def record(self, stream=None) -> None:
        """Records the time."""
        self.synchronize()
        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Waits until a GPU has finished its work."""
        if is_available():
            synchronize()

    def query(self) -> bool:
        """Always True: ``record`` waits until the work has finished."""
        return True

    def elapsed_time(self, end_event) -> float:
        """The milliseconds from this event to another."""
        if self._time is None or end_event._time is None:
            raise RuntimeError("elapsed_time: both events must be recorded first")
        return (end_event._time - self._time) * 1e3


_INSTEAD = {
    "Stream": "the operations of a thread run in order; use several threads to run them concurrently",
    "stream": "the operations of a thread run in order; use several threads to run them concurrently",
    "current_stream": "use synchronize(), which waits for all work",
    "CUDAGraph": "only the crate in Rust records steps on GPUs",
    "nccl": "there is one process",
    "get_device_name": "use nvidia-smi -L",
    "get_device_properties": "use nvidia-smi -q, or cotangent.memory_stats(\"cuda\") for the memory",
    "get_device_capability": "use nvidia-smi --query-gpu=compute_cap --format=csv",
    "mem_get_info": "use memory_allocated() and memory_reserved()",
}


def __getattr__(name: str):
    if name == "amp":
        import importlib

        return importlib.import_module("cotangent.cuda.amp")
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'cotangent.cuda' has no attribute {name!r}" + (f": {instead}" if instead else ""))
