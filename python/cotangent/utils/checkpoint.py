"""Intermediate values that are computed again in the backward pass instead of being saved."""

from __future__ import annotations

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
