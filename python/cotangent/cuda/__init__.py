"""NVIDIA's GPUs, where there are any: they are looked for when they are used."""

from __future__ import annotations

import time

from .. import _cotangent as _c


def is_available() -> bool:
    """Whether there is a GPU."""
    return _c._device_count() > 0


def device_count() -> int:
    """How many there are."""
    return _c._device_count()


# Programs save the random state of GPUs if this is true. Here all devices draw from the generator of the thread.
_initialized = False


def is_initialized() -> bool:
    """Whether GPUs can be used: there is nothing to set up before."""
    return is_available()


def init() -> None:
    """Nothing: GPUs are set up when they are first used."""


def current_device() -> int:
    """The number of the GPU that ``"cuda"`` stands for, which is the first."""
    _one("current_device", None)
    return 0


def set_device(device) -> None:
    """``"cuda"`` stands for the first GPU: another one is named where a tensor is made."""
    if _one("set_device", device).index != 0:
        raise NotImplementedError(f'set_device: "cuda" is the first GPU: name the other one, as in to("{_named(device)}")')


def _named(device):
    if device is None:
        return _c.device("cuda")
    return device if isinstance(device, _c.device) else _c.device(device if isinstance(device, str) else f"cuda:{device}")


def _one(function, device):
    """A GPU that is there."""
    device = _named(device)
    if device.type == "cuda" and device.index >= _c._device_count():
        raise RuntimeError(f"{function}: there is no {device}: {_c._device_count()} GPUs were found")
    return device


def synchronize(device=None) -> None:
    """Waits until a GPU has done what it was told."""
    _c._synchronize(_named(device))


def manual_seed(seed) -> None:
    """Starts the random numbers again from a seed: those of CPU and GPUs are the same."""
    _c.manual_seed(seed)


def manual_seed_all(seed) -> None:
    """The same of all GPUs."""
    _c.manual_seed(seed)


def get_rng_state(device=None):
    """The state of the random numbers: those of CPU and GPUs are the same."""
    return _c.get_rng_state()


def set_rng_state(new_state, device=None) -> None:
    """Puts the random numbers into a state that ``get_rng_state`` gave."""
    _c.set_rng_state(tuple(new_state))


def get_rng_state_all():
    """The states of all GPUs' random numbers."""
    return [_c.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states) -> None:
    """Puts the random numbers of all GPUs into states that ``get_rng_state_all`` gave."""
    for state in new_states:
        _c.set_rng_state(tuple(state))


# Memory


def _figure(name, device):
    return _c.memory_stats(_one(name, device))[name] if is_available() else 0


def memory_allocated(device=None) -> int:
    """The bytes of all tensors on a GPU; 0 where there is none."""
    return _figure("current", device)


def max_memory_allocated(device=None) -> int:
    """The most bytes of tensors there were on a GPU."""
    return _figure("peak", device)


def memory_reserved(device=None) -> int:
    """The bytes that are held on a GPU, those that are kept for later tensors included."""
    return _figure("held", device)


def max_memory_reserved(device=None) -> int:
    """The bytes that are held on a GPU: they are given back by ``empty_cache`` alone."""
    return max(_figure("held", device), _figure("peak", device))


def empty_cache() -> None:
    """Gives memory that is kept for later tensors back to all GPUs."""
    for at in range(device_count()):
        _c._empty_cache(_c.device("cuda", at))


def reset_peak_memory_stats(device=None) -> None:
    """Lets ``max_memory_allocated`` begin again."""
    if is_available():
        _c._reset_peak(_one("reset_peak_memory_stats", device))


def memory_stats(device=None) -> dict:
    """Figures of the allocator of a GPU, in bytes; none where there is no GPU."""
    return dict(_c.memory_stats(_one("memory_stats", device))) if is_available() else {}


def memory_summary(device=None, abbreviated=False) -> str:
    """The same as text."""
    return "\n".join(f"{name}: {value / 2**20:.1f} MiB" for name, value in memory_stats(device).items())


def ipc_collect() -> None:
    """Nothing: no other process has memory of ours."""


def is_bf16_supported(including_emulation=True) -> bool:
    """Whether GPUs compute with bfloat16."""
    return is_available()


class device:
    """``"cuda"`` stands for the first GPU inside of it, as everywhere: another one is named where a tensor is made."""

    def __init__(self, device):
        self._device = _named(device) if device is not None and device != -1 else None

    def __enter__(self):
        if self._device is not None and self._device.type == "cuda":
            set_device(self._device)

    def __exit__(self, *exception):
        pass


class Event:
    """A moment in the work of a GPU, for measuring: ``start.elapsed_time(end)`` gives milliseconds.

    To record waits until the work before is done; where there is no GPU nothing is waited for.
    """

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._time = None

    def record(self, stream=None) -> None:
        """Notes the moment."""
        self.synchronize()
        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Waits until a GPU has done what it was told."""
        if is_available():
            synchronize()

    def query(self) -> bool:
        """Whether the work before is done: it is, once the moment is noted."""
        return True

    def elapsed_time(self, end_event) -> float:
        """The milliseconds from this moment to another."""
        if self._time is None or end_event._time is None:
            raise RuntimeError("elapsed_time: both events should be recorded first")
        return (end_event._time - self._time) * 1e3


_INSTEAD = {
    "Stream": "the work of a thread is done in the order it was given in; give work to several threads",
    "stream": "the work of a thread is done in the order it was given in; give work to several threads",
    "current_stream": "synchronize() waits for all work",
    "CUDAGraph": "the crate records steps for GPUs, Python does not",
    "nccl": "there is one process",
    "get_device_name": "nvidia-smi -L names the GPUs",
    "get_device_properties": "nvidia-smi -q tells all of a GPU; cotangent.memory_stats(\"cuda\") its memory",
    "get_device_capability": "nvidia-smi --query-gpu=compute_cap --format=csv tells it",
    "mem_get_info": "memory_allocated() and memory_reserved() tell what we hold",
}


def __getattr__(name: str):
    if name == "amp":
        import importlib

        return importlib.import_module("cotangent.cuda.amp")
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'cotangent.cuda' has no attribute {name!r}" + (f": {instead}" if instead else ""))
