"""Variables that a module has: parameters, which are trained, and buffers, which are not."""

from __future__ import annotations

from .._cotangent import Tensor


class Parameter(Tensor):
    """A leaf that a module trains: assigned to an attribute of a module it is one of its parameters.

    It begins with the values of ``data``, and is a variable of its own.
    """

    def __new__(cls, data=None, requires_grad=True):
        if isinstance(data, Tensor):
            data = data.detach()
        self = super().__new__(cls, data)
        return self.requires_grad_(requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return _rebuild, (type(self), Tensor(self.detach()), self.requires_grad)

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()


def _rebuild(kind, data, requires_grad):
    return kind(data, requires_grad)


class Buffer(Tensor):
    """A tensor that belongs to a module's state and is not trained."""

    def __new__(cls, data=None, *, persistent=True):
        self = super().__new__(cls, data.detach() if isinstance(data, Tensor) else data)
        self.persistent = persistent
        return self

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), persistent=self.persistent)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return _rebuild_buffer, (type(self), Tensor(self.detach()), self.persistent)


def _rebuild_buffer(kind, data, persistent):
    return kind(data, persistent=persistent)
