"""Functions of the Python array API standard that differ from the crate's operations.

They also accept PyTorch's parameter names: ``dim`` for ``axis``, ``keepdim`` for ``keepdims``.
"""

from __future__ import annotations

import builtins
import math

from .. import _cotangent as _c
from .._cotangent import Tensor
from .creation import _either
from .dtypes import _COMPLEX, _FLOATS, _HALVES, _UNSIGNED

_ops = _c._functions

e = math.e
inf = math.inf
nan = math.nan
pi = math.pi
newaxis = None


# Shapes


def broadcast_arrays(*arrays):
    """The tensors, expanded to a common shape."""
    return list(broadcast_tensors(*arrays))


def broadcast_tensors(*tensors):
    """The tensors, expanded to a common shape, as views."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    if not tensors:
        return ()
    shape = _ops["broadcast_tensors"]([x.detach() for x in tensors])[0].shape
    return tuple(x.expand(shape) for x in tensors)


def broadcast_shapes(*shapes):
    """The shape to which the given shapes broadcast."""
    found: list = []
    for shape in shapes:
        shape = [shape] if isinstance(shape, builtins.int) else list(shape)
        if len(shape) > len(found):
            found = [1] * (len(shape) - len(found)) + found
        for at in range(1, len(shape) + 1):
            if found[-at] == 1:
                found[-at] = shape[-at]
            elif shape[-at] not in (1, found[-at]):
                raise ValueError(f"broadcast_shapes: {list(shapes)} do not broadcast: sizes {found[-at]} and {shape[-at]} differ")
    return tuple(found)


def concat(arrays, /, *, axis=0, dim=0):
    """Concatenates tensors along a dimension; with None they are flattened first."""
    axis = dim if dim != 0 else axis
    arrays = list(arrays)
    if axis is None:
        return _ops["cat"]([x.reshape((-1,)) for x in arrays], 0)
    return _ops["cat"](arrays, axis)


def expand_dims(x, /, axis=0, *, dim=None):
    """Inserts dimensions of size 1."""
    axis = axis if dim is None else dim
    if isinstance(axis, tuple):
        rank = x.ndim + len(axis)
        places = sorted(_wrapped("expand_dims", at, rank) for at in axis)
        if len(set(places)) != len(places):
            raise ValueError(f"expand_dims: axis must not repeat a dimension, got {axis}")
        for at in places:
            x = _ops["unsqueeze"](x, at)
        return x
    return _ops["unsqueeze"](x, axis)


def _wrapped(function, dim, rank):
    if not -rank <= dim < rank:
        raise IndexError(f"{function}: dimension {dim} is out of range for rank {rank}")
    return dim % rank


def flip(x, /, *dims_, axis=None, dims=None):
    """Reverses the order of the elements along some dimensions, or along all."""
    axis = _either("flip", "axis", axis, dims)
    if dims_:
        axis = dims_[0] if len(dims_) == 1 else dims_
    if axis is None:
        axis = tuple(range(x.ndim))
    return _ops["flip"](x, axis) if axis != () else x.clone()


def matrix_transpose(x, /):
    """Transposes the last two dimensions."""
    return x.mT


def reshape(x, /, shape, *, copy=None):
    """The elements in another shape: a view if possible and ``copy`` is not True."""
    out = _ops["reshape"](x, shape)
    if copy and out.shares_memory(x):
        return out.clone()
    if copy is False and not out.shares_memory(x) and x.numel():
        raise ValueError(f"reshape: copy=False requires a view, but {list(x.shape)} to {list(out.shape)} is a copy")
    return out


def repeat(x, repeats, /, *, axis=None, dim=None):
    """Repeats each element, or each slice along a dimension. The method ``repeat`` is PyTorch's, and tiles."""
    axis = _either("repeat", "axis", axis, dim)
    if isinstance(repeats, (list, tuple)):
        repeats = _c._tensor(list(repeats), dtype=_c.int64)
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    if isinstance(repeats, Tensor) and repeats.dtype != _c.int64:
        repeats = repeats.to(_c.int64)
    return _ops["repeat_interleave"](x, repeats, axis).contiguous()


def roll(x, /, shift=None, axis=None, *, shifts=None, dims=None):
    """Rolls the elements along dimensions."""
    shift = _either("roll", "shift", shift, shifts)
    axis = _either("roll", "axis", axis, dims)
    if isinstance(axis, (tuple, list)) and isinstance(shift, builtins.int):
        shift = (shift,) * len(axis)
    return _ops["roll"](x, shift, axis)


def unstack(x, /, *, axis=0, dim=None):
    """The slices along a dimension."""
    return _ops["unbind"](x, axis if dim is None else dim)


def squeeze(x, /, axis=None, *, dim=None):
    """Removes dimensions of size 1, the given ones or all."""
    axis = _either("squeeze", "axis", axis, dim)
    return _ops["squeeze"](x) if axis is None else _ops["squeeze"](x, axis)


def split(x, split_size_or_sections, dim=0, *, axis=None):
    """Splits along a dimension into parts of one size, or of given sizes."""
    return x.split(split_size_or_sections, dim if axis is None else axis)


# Elements


def take(x, indices, /, *, axis=None, dim=None):
    """The slices at these indices along a dimension; without one, the elements of the flattened tensor."""
    axis = _either("take", "axis", axis, dim)
    if axis is None:
        return x[indices] if x.ndim == 1 else _ops["take"](x, indices)
    axis = _wrapped("take", axis, x.ndim)
    return x[(slice(None),) * axis + (indices,)]


def take_along_axis(x, indices, /, *, axis=-1):
    """The elements at these indices along a dimension."""
    return _ops["take_along_dim"](x, _from_end(indices, x.shape[axis]), axis)


def _from_end(indices, size):
    return _ops["where"](indices < 0, indices + size, indices)


def bitwise_invert(x, /):
    """Inverts the bits of each element; logical not for bools."""
    return _ops["bitwise_not"](x)


def clip(x, /, min=None, max=None):
    """Clamps the elements to [``min``, ``max``], in the dtype of the tensor."""
    if min is None and max is None:
        return x.clone()
    bounds = [_in_dtype(bound, x) for bound in (min, max)]
    return _ops["clamp"](x, *bounds)


def _in_dtype(bound, x):
    return bound.to(x.dtype) if isinstance(bound, Tensor) and bound.dtype != x.dtype else bound


def sign(x, /):
    """The sign of each element: -1, 0 or 1; for complex numbers, z / |z|."""
    if x.dtype in _COMPLEX:
        return _ops["sgn"](x)
    out = _ops["sign"](x)
    return _ops["where"](x == x, out, x.detach()) if x.dtype.is_floating_point else out


def round(x, /, *, decimals=0):  # noqa: A001
    """Rounds half to even; for complex numbers, both parts."""
    if x.dtype in _COMPLEX:
        return _ops["complex"](round(x.real, decimals=decimals), round(x.imag, decimals=decimals))
    return _ops["round"](x, decimals)


def pow(x1, x2, /):  # noqa: A001
    """Raises the elements of ``x1`` to the powers ``x2``."""
    return _ops["pow"](x1, x2)


def polygamma(n, input):  # noqa: A002
    """The derivative of order ``n`` of the digamma function of each element. The tensor may come first, as with the method."""
    return _ops["polygamma"](n, input) if isinstance(n, Tensor) else _ops["polygamma"](input, n)


# Searching and sorting


def where(condition, x1=None, x2=None, /, **named):
    """The elements of one operand where the condition is true, and of the other elsewhere.

    With only a condition, the indices where it is true, one tensor for each dimension.
    """
    if x1 is None and x2 is None and not named:
        return nonzero(condition)
    if isinstance(condition, Tensor) and condition.dtype is _c.uint8:
        # PyTorch also accepts masks of uint8.
        condition = condition != 0
    return _ops["where"](condition, *(x for x in (x1, x2) if x is not None), **named)


def nonzero(x, /, *, as_tuple=None):
    """The indices of nonzero elements, one tensor for each dimension; with ``as_tuple=False``, a row for each element.

    The method is PyTorch's: by default a row for each element.
    """
    if x.ndim == 0 and as_tuple is None:
        raise ValueError("nonzero: x must have at least 1 dimension, got a 0-d tensor")
    return x.nonzero(as_tuple=as_tuple is not False)


def _of_complex(name, x):
    """A set operation on complex numbers, computed on rows of their real and imaginary parts."""
    rows = _ops["view_as_real"](x.reshape((-1,)))
    return _ops[name](rows, dim=0)


def _joined(rows):
    return _ops["view_as_complex"](rows.contiguous())


def unique_all(x, /):
    """The unique elements, the indices of their first occurrences, the inverse indices, and the counts."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_all"](x)
    found = _of_complex("unique_all", x)
    return found._replace(values=_joined(found.values), inverse_indices=found.inverse_indices.reshape(x.shape))


def unique_counts(x, /):
    """The unique elements and their counts."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_counts"](x)
    found = _of_complex("unique_counts", x)
    return found._replace(values=_joined(found.values))


def unique_inverse(x, /):
    """The unique elements and the inverse indices."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_inverse"](x)
    found = _of_complex("unique_inverse", x)
    return found._replace(values=_joined(found.values), inverse_indices=found.inverse_indices.reshape(x.shape))


def unique_values(x, /):
    """The unique elements."""
    return _joined(_of_complex("unique_values", x)) if x.dtype in _COMPLEX else _ops["unique_values"](x)


def sort(x, /, *, axis=-1, dim=None, descending=False, stable=True):
    """Sorts along an axis. With ``dim`` it is PyTorch's method, which also returns the indices."""
    if dim is not None:
        return x.sort(dim, descending, stable)
    return x.clone() if x.ndim == 0 else _ops["sort"](x, axis, descending, stable)[0]


def searchsorted(x1, x2, /, *, side="left", sorter=None, right=False, out_int32=False):
    """The positions at which elements would be inserted in a sorted sequence."""
    side = "right" if right else side
    return _ops["searchsorted"](x1, x2, side=side, sorter=sorter, out_int32=out_int32)


# Statistics


def _summed(x, dtype):
    if dtype is None and x.dtype in _UNSIGNED:
        return _c.uint64
    return dtype


def _along(function, axis, dim):
    """The dimensions as the keyword that was passed: ``axis=()`` reduces none, and ``dim=()`` all."""
    _either(function, "axis", axis, dim)
    return {"axis": axis} if dim is None else {"dim": dim}


def sum(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False, dtype=None):  # noqa: A001
    """The sum of the elements, or along dimensions. Small integers are summed as int64, unsigned ones as uint64."""
    return _ops["sum"](x, **_along("sum", axis, dim), keepdim=keepdims or keepdim, dtype=_summed(x, dtype))


def prod(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False, dtype=None):
    """The product of the elements, or along dimensions."""
    return _ops["prod"](x, **_along("prod", axis, dim), keepdim=keepdims or keepdim, dtype=_summed(x, dtype))


def cumulative_sum(x, /, *, axis=None, dim=None, dtype=None, include_initial=False):
    """The cumulative sums along a dimension."""
    return _cumulative("cumulative_sum", x, _either("cumulative_sum", "axis", axis, dim), dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dim=None, dtype=None, include_initial=False):
    """The cumulative products along a dimension."""
    return _cumulative("cumulative_prod", x, _either("cumulative_prod", "axis", axis, dim), dtype, include_initial)


def _cumulative(name, x, axis, dtype, include_initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: axis must be given unless x has 1 dimension, got shape {list(x.shape)}")
        axis = 0
    return _ops[name](x, axis, include_initial, _summed(x, dtype))


def diff(x, /, n=1, dim=None, prepend=None, append=None, *, axis=-1):
    """The ``n``-th differences of neighbours along a dimension."""
    return _ops["diff"](x, n, axis if dim is None else dim, prepend, append)


# Products


def tensordot(x1, x2, /, *, axes=2, dims=None):
    """The tensor contraction over some dimensions of both."""
    axes = axes if dims is None else dims
    if isinstance(axes, builtins.int):
        return _ops["tensordot"](x1, x2, axes)
    left, right = ([a] if isinstance(a, builtins.int) else list(a) for a in axes)
    if len(left) != len(right):
        raise ValueError(f"tensordot: axes must have the same length for both tensors, got {len(left)} and {len(right)}")
    left = [_wrapped("tensordot", a, x1.ndim) for a in left]
    right = [_wrapped("tensordot", a, x2.ndim) for a in right]
    order1 = [a for a in range(x1.ndim) if a not in left] + left
    order2 = right + [a for a in range(x2.ndim) if a not in right]
    return _ops["tensordot"](x1.permute(order1) if order1 else x1, x2.permute(order2) if order2 else x2, len(left))


def vecdot(x1, x2, /, *, axis=-1, dim=None):
    """The dot products of vectors along a dimension; the first is conjugated."""
    axis = axis if dim is None else dim
    dtype = _c.promote_types(x1.dtype, x2.dtype)
    if dtype not in _FLOATS + _HALVES + _COMPLEX:
        return _ops["sum"](x1 * x2, axis, False, dtype)
    return _ops["linalg_vecdot"](x1, x2, axis)


def detach(input):  # noqa: A002
    """The same values, detached from the graph, as a view."""
    return input.detach()


def is_nonzero(input):  # noqa: A002
    """Whether the element of a tensor with one element is not 0."""
    return builtins.bool(input)


def is_same_size(input, other):  # noqa: A002
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_tensor(obj):
    """Whether the object is a tensor."""
    return isinstance(obj, Tensor)


def numel(input):  # noqa: A002
    """The number of elements."""
    return input.numel()


def equal_all(input, other):  # noqa: A002
    """Whether two tensors have the same shape and elements: PyTorch's ``equal``."""
    return input.equal(other)


__all__ = ["e", "inf", "nan", "newaxis", "pi"] + [
    name for name, value in list(globals().items()) if not name.startswith("_") and getattr(value, "__module__", None) == __name__
]
