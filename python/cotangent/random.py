"""Random numbers: seeds, states and generators, as in PyTorch's ``torch.random``."""

from __future__ import annotations

import builtins
import operator
import os

from . import _cotangent as _c



class Generator:
    """A random number generator, for the argument ``generator`` of random functions.

        >>> import cotangent as ct
        >>> g = ct.Generator().manual_seed(0)
        >>> ct.rand(2, generator=g).shape
        cotangent.Size([2])
    """

    def __init__(self, device="cpu"):
        self.device = device if isinstance(device, _c.device) else _c.device(device)
        self._state = (0, 0)

    def manual_seed(self, seed):
        """Sets the seed and returns the generator."""
        self._state = (operator.index(seed) % 2**64, 0)
        return self

    def seed(self):
        """Sets a random seed and returns it."""
        self.manual_seed(builtins.int.from_bytes(os.urandom(8), "little"))
        return self._state[0]

    def initial_seed(self):
        """The current seed."""
        return self._state[0]

    def get_state(self):
        """The state, for ``set_state``."""
        return self._state

    def set_state(self, state):
        """Sets a state returned by ``get_state``."""
        seed, offset = state
        self._state = (operator.index(seed), operator.index(offset))

    def clone_state(self):
        """A new generator with the same state."""
        made = Generator(self.device)
        made.set_state(self.get_state())
        return made

    def __repr__(self):
        return f"<cotangent.Generator device={self.device} seed={self.initial_seed()}>"


class _Default(Generator):
    """The default generator of this thread."""

    @property
    def _state(self):
        return _c.get_rng_state()

    @_state.setter
    def _state(self, state):
        _c.set_rng_state(state)

    def __init__(self):
        self.device = _c.device("cpu")


default_generator = _Default()


def manual_seed(seed):
    """Sets the seed of this thread, and returns the default generator."""
    _c.manual_seed(seed)
    return default_generator


def seed():
    """Sets a random seed for this thread, and returns it."""
    return default_generator.seed()


def initial_seed():
    """The current seed of this thread."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of this thread's default generator, for ``set_rng_state``."""
    return _c.get_rng_state()


def set_rng_state(new_state):
    """Sets the state of this thread's default generator to one returned by ``get_rng_state``."""
    _c.set_rng_state(tuple(new_state))


class fork_rng:
    """Restores the state of the default generator at the end: ``with fork_rng():``."""

    def __init__(self, devices=None, enabled=True):
        self._enabled, self._before = enabled, []

    def __enter__(self):
        self._before.append(_c.get_rng_state())

    def __exit__(self, *exception):
        before = self._before.pop()
        if self._enabled:
            _c.set_rng_state(before)
