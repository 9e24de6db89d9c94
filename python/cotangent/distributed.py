"""PyTorch's ``torch.distributed``, as in a build without it: ``is_available()`` is False, and collective functions raise errors."""

from __future__ import annotations


def is_available():
    """Always False: a program has one process."""
    return False


def is_initialized():
    """Always False: a program has one process."""
    return False


is_torchelastic_launched = is_nccl_available = is_gloo_available = is_mpi_available = is_available


def _refused(name):
    def call(*args, **kwargs):
        raise RuntimeError(f"distributed.{name}: there is one process and no process group: check is_available() first")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Not supported: there is no process group."
    return call


# Programs import these even if they do not use them.
init_process_group, destroy_process_group, new_group = map(_refused, ("init_process_group", "destroy_process_group", "new_group"))
get_rank, get_world_size, get_backend, barrier = map(_refused, ("get_rank", "get_world_size", "get_backend", "barrier"))
all_reduce, all_gather, reduce, broadcast = map(_refused, ("all_reduce", "all_gather", "reduce", "broadcast"))


def __getattr__(name: str):
    raise AttributeError(f"module 'cotangent.distributed' has no attribute {name!r}: there is one process")
