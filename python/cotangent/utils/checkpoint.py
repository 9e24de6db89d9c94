"""Intermediate values that are computed again in the backward pass instead of being saved."""

from __future__ import annotations

from .. import random
from .._cotangent import Tensor
from ..autograd import checkpoint  # noqa: F401


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """The result of modules one after the other, in so many parts: inside of each nothing is saved, but for the last."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if segments < 1 or segments > len(functions):
        raise ValueError(f"checkpoint_sequential: {len(functions)} functions cannot be {segments} parts")

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
    """The numbers of the GPUs that tensors among the arguments are on, and the state of the generator for each of them."""
    devices = []
    for x in args:
        if isinstance(x, Tensor) and x.device.type == "cuda" and x.device.index not in devices:
            devices.append(x.device.index)
    return devices, [random.get_rng_state() for _ in devices]


def set_device_states(devices, states, *, device_type=None):
    """Goes on from the states that ``get_device_states`` gave. All devices draw from the generator of the thread."""
    for state in states:
        random.set_rng_state(state)
