"""The GPU, if there is one: PyTorch's ``torch.accelerator``."""

from __future__ import annotations

from . import _cotangent as _c


def is_available() -> bool:
    """Whether there is a GPU."""
    return _c._device_count() > 0


def device_count() -> int:
    """The number of GPUs."""
    return _c._device_count()


def current_accelerator(check_available=False):
    """The device of the GPU, or None."""
    return _c.device("cuda") if is_available() else None


def current_device_index() -> int:
    """The index of the current GPU, always 0."""
    return 0


def synchronize(device=None) -> None:
    """Waits until a GPU has finished its work."""
    from . import cuda

    cuda.synchronize(device)
