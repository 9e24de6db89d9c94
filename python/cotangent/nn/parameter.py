"""The tensors of a module: parameters, which are trained, and buffers, which are not."""

from __future__ import annotations

from .._cotangent import Tensor


class Parameter(Tensor):
    """A tensor that a module trains. Assigning it to an attribute of a module registers it as a parameter.

    It is a new leaf with a copy of the values of ``data``.
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
    """A tensor of a module's state that is not trained. Assigning it to an attribute of a module registers it."""

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
