"""The sizes of tensors."""

from __future__ import annotations

import math


class Size(tuple):
    """The sizes of a tensor's dimensions."""

    __slots__ = ()
    __module__ = "cotangent"

    def numel(self):
        """The number of elements."""
        return math.prod(self)

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return Size(found) if type(index) is slice else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count):
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __repr__(self):
        return f"cotangent.Size({list(self)})"


class _Count(int):
    """The number of elements, as in the standard; when called, PyTorch's sizes: ``x.size``, ``x.size()``, ``x.size(0)``."""

    def __new__(cls, shape):
        count = 1
        for size in shape:
            count *= size
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __call__(self, dim=None):
        if dim is None:
            return Size(self._shape)
        try:
            return self._shape[dim]
        except IndexError:
            raise IndexError(f"size: dimension {dim} is out of range for rank {len(self._shape)}") from None

    def __reduce__(self):
        return int, (int(self),)
