"""Checkpointing: intermediate values are recomputed in the backward pass instead of saved."""

from __future__ import annotations

from .. import random
from .._cotangent import Tensor
from ..autograd import checkpoint  # noqa: F401


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Runs ``functions`` in sequence in ``segments`` checkpointed segments; the last one is not checkpointed."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if segments < 1 or segments > len(functions):
        raise ValueError(f"checkpoint_sequential: segments must be from 1 to {len(functions)}, got {segments}")

    def run(part):
        def of(x):
            for function in part:
                x = function(x)
            return x

        return of

    size = len(functions) // segments
    for at in range(segments - 1):
        input = checkpoint(run(functions[at * size:(at + 1) * size]), input)
    return run(functions[(segments - 1) * size:])(input)


def get_device_states(*args):
    """The indices of the GPUs of the tensors among the arguments, and the generator state for each."""
    devices = []
    for x in args:
        if isinstance(x, Tensor) and x.device.type == "cuda" and x.device.index not in devices:
            devices.append(x.device.index)
    return devices, [random.get_rng_state() for _ in devices]


def set_device_states(devices, states, *, device_type=None):
    """Restores the states returned by ``get_device_states``. All devices share the generator of the thread."""
    for state in states:
        random.set_rng_state(state)
