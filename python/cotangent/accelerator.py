"""The GPU, if there is one, whatever its kind: PyTorch's ``torch.accelerator``."""

from __future__ import annotations

from . import _cotangent as _c


def is_available() -> bool:
    """Whether there is a GPU."""
    return _c._device_count() > 0


def device_count() -> int:
    """How many there are."""
    return _c._device_count()


def current_accelerator(check_available=False):
    """The GPU that is there, or None."""
    return _c.device("cuda") if is_available() else None


def current_device_index() -> int:
    """The number of the GPU that ``"cuda"`` stands for, which is the first."""
    return 0


def synchronize(device=None) -> None:
    """Waits until a GPU has done what it was told."""
    from . import cuda

    cuda.synchronize(device)
