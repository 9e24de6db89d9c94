"""NVIDIA's GPUs, where there are any: they are looked for when they are used."""

from . import _cotangent as _c


def is_available() -> bool:
    """Whether there is a GPU."""
    return _c._device_count() > 0


def device_count() -> int:
    """How many there are."""
    return _c._device_count()


def synchronize(device="cuda") -> None:
    """Waits until a GPU has done what it was told."""
    _c._synchronize(device if isinstance(device, (str, _c.device)) else f"cuda:{device}")


def manual_seed(seed) -> None:
    """Starts the random numbers again from a seed: those of CPU and GPUs are the same."""
    _c.manual_seed(seed)


def manual_seed_all(seed) -> None:
    """The same of all GPUs."""
    _c.manual_seed(seed)
