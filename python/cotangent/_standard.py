"""Functions of the Python array API standard that are not operations of the list as they are.

They take PyTorch's names of parameters, too: ``dim`` for ``axis``, ``keepdim`` for ``keepdims``.
"""

from __future__ import annotations

import builtins
import math
import operator
import os

from . import _cotangent as _c
from ._cotangent import Tensor

_ops = _c._functions

e = math.e
inf = math.inf
nan = math.nan
pi = math.pi
newaxis = None

_FLOATS = (_c.float32, _c.float64)
_HALVES = (_c.float16, _c.bfloat16)
_COMPLEX = (_c.complex64, _c.complex128)
_SIGNED = (_c.int8, _c.int16, _c.int32, _c.int64)
_UNSIGNED = (_c.uint8, _c.uint16, _c.uint32, _c.uint64)


def _either(function, name, value, other, default=None):
    """The value of a parameter with two names."""
    if other is default or other is None:
        return value
    if value is not default and value is not None:
        raise TypeError(f"{function}() got {name} twice")
    return other


# Creation


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """A tensor with values of its own: of a number, nested sequences, or another array."""
    return _c._tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """A tensor of a number, nested sequences or another array.

    A tensor is given back as it is, if nothing is to be changed. The memory of other arrays is copied, unless ``copy`` is
    False: then it is shared, and must not be changed as long as the tensor or one computed from it is used.
    """
    if isinstance(obj, Tensor):
        same = (dtype is None or obj.dtype == dtype) and (device is None or obj.device == _device(device))
        if same and not copy:
            return obj
        if copy is False:
            raise ValueError("asarray: another dtype or device is a copy")
        return obj.to(dtype=dtype, device=device, copy=True)
    if copy is False:
        if not hasattr(obj, "__dlpack__"):
            raise ValueError(f"asarray: a tensor of a value of type {type(obj).__name__} is a copy")
        shared, _ = _c._from_dlpack(obj)
        if (dtype is not None and shared.dtype != dtype) or (device is not None and shared.device != _device(device)):
            raise ValueError("asarray: another dtype or device is a copy")
        return shared
    return _c._tensor(obj, dtype=dtype, device=device)


as_tensor = asarray


def _device(value):
    return value if isinstance(value, _c.device) else _c.device(value)


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor over the memory of another library's array, which is shared and never written by us.

    The other library must not change it as long as the tensor or one computed from it is used, or ask for a copy.
    """
    shared, _ = _c._from_dlpack(x)
    if device is not None and shared.device != _device(device):
        if copy is False:
            raise ValueError(f"from_dlpack: the array is on {shared.device}, not on {device}")
        return shared.to(device)
    return shared.clone() if copy else shared


def from_numpy(ndarray):
    """A tensor over the memory of NumPy's array, which must not be changed as long as the tensor is used."""
    return from_dlpack(ndarray)


def arange(start=0, stop=None, step=1, *, end=None, dtype=None, device=None, requires_grad=False):
    """Numbers from ``start`` up to but without ``stop``, in steps."""
    stop = _either("arange", "stop", stop, end)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (x.item() if isinstance(x, Tensor) else x for x in (start, stop, step))
    if step == 0:
        raise ValueError("arange: no range in steps of 0")
    if (stop - start) / step <= 0:
        whole = all_ints = builtins.all(isinstance(x, builtins.int) for x in (start, stop, step))
        dtype = dtype or (_c.int64 if whole and all_ints else _c.float32)
        made = _ops["zeros"]((0,), dtype=dtype, device=device)
    else:
        made = _ops["arange"](start, stop, step, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def linspace(start, stop=None, num=None, *, end=None, steps=None, dtype=None, device=None, endpoint=True, requires_grad=False):
    """So many numbers at even distances from ``start`` to ``stop``, without ``stop`` if there is no endpoint."""
    if requires_grad:
        stop, num = _either("linspace", "stop", stop, end), _either("linspace", "num", num, steps)
        return linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint).requires_grad_()
    stop = _either("linspace", "stop", stop, end)
    num = operator.index(_either("linspace", "num", num, steps))
    if num < 0:
        raise ValueError(f"linspace: {num} numbers")
    complex_ends = isinstance(start, complex) or isinstance(stop, complex)
    dtype = dtype or (_c.complex64 if complex_ends else _c.float32)
    if complex_ends or dtype in _COMPLEX:
        real_dtype = _c.float64 if dtype is _c.complex128 else _c.float32
        start, stop = complex(start), complex(stop)
        parts = [linspace(a, b, num, dtype=real_dtype, device=device, endpoint=endpoint)
                 for a, b in ((start.real, stop.real), (start.imag, stop.imag))]
        return _ops["complex"](*parts).to(dtype)
    if endpoint:
        made = _ops["linspace"](start, stop, num, dtype=_c.float64, device=device)
    else:
        made = _ops["linspace"](start, stop, num + 1, dtype=_c.float64, device=device)[:-1].clone()
    return made.to(dtype)


def eye(n_rows=None, n_cols=None, /, *, k=0, n=None, m=None, dtype=None, device=None, requires_grad=False):
    """A matrix with ones on the diagonal ``k``, and zeros elsewhere."""
    n_rows = operator.index(_either("eye", "n_rows", n_rows, n))
    if requires_grad:
        return eye(n_rows, n_cols, k=k, m=m, dtype=dtype, device=device).requires_grad_()
    n_cols = _either("eye", "n_cols", n_cols, m)
    n_cols = n_rows if n_cols is None else n_cols
    if k == 0:
        return _ops["eye"](n_rows, n_cols, dtype=dtype, device=device)
    rows, columns = (_ops["arange"](0, max_ - 0, device=device) if max_ else _ops["zeros"]((0,), dtype=_c.int64, device=device)
                     for max_ in (n_rows, n_cols))
    return (columns[None, :] - rows[:, None] == k).to(dtype or _c.float32)


def meshgrid(*arrays, indexing="ij"):
    """Coordinates of a grid, one tensor for each of the vectors. The namespace of the standard has ``indexing="xy"``."""
    if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)):
        arrays = tuple(arrays[0])
    if not arrays:
        return []
    vectors = [x.reshape((1,)) if x.ndim == 0 else x for x in arrays]
    return [x.clone() for x in _ops["meshgrid"](vectors, indexing=indexing)]


# Dtypes


def astype(x, dtype, /, *, copy=True, device=None):
    """The tensor as another dtype: a copy, unless it need not be one."""
    return x.to(dtype=dtype, device=device, copy=copy)


def result_type(*arrays_and_dtypes):
    """The dtype of results of operands such as these: tensors, dtypes and numbers."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: there are no operands")
    dtypes, numbers = [], []
    for x in arrays_and_dtypes:
        if isinstance(x, (builtins.bool, builtins.int, builtins.float, complex)):
            numbers.append(x)
        else:
            dtypes.append(x.dtype if isinstance(x, Tensor) else x)
    if not dtypes:
        return _c._tensor(list(numbers)).dtype
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = _c.promote_types(found, dtype)
    for number in numbers:
        found = (_ops["zeros"]((1,), dtype=found) + number).dtype
    return found


def can_cast(from_, to, /):
    """Whether a dtype, or that of a tensor, can become another one by the rules of promotion."""
    from_ = from_.dtype if isinstance(from_, Tensor) else from_
    if _kind(from_) != _kind(to) and not (_kind(from_) == "float" and _kind(to) == "complex"):
        return False
    try:
        return _c.promote_types(from_, to) == to
    except TypeError:
        return False


def _kind(dtype):
    if dtype in _COMPLEX:
        return "complex"
    return "float" if dtype.is_floating_point else "bool" if dtype is _c.bool else "int"


def isdtype(dtype, kind):
    """Whether a dtype is another one, of a kind, or of one of several kinds."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, _c.dtype):
        return dtype == kind
    kinds = {
        "bool": (_c.bool,),
        "signed integer": _SIGNED,
        "unsigned integer": _UNSIGNED,
        "integral": _SIGNED + _UNSIGNED,
        "real floating": _FLOATS + _HALVES,
        "complex floating": _COMPLEX,
        "numeric": _SIGNED + _UNSIGNED + _FLOATS + _HALVES + _COMPLEX,
    }
    if kind not in kinds:
        raise ValueError(f"isdtype: there is no kind {kind!r}: there are {', '.join(kinds)}")
    return dtype in kinds[kind]


class finfo:
    """The limits of a dtype of floating point."""

    def __init__(self, type):
        dtype = type.dtype if isinstance(type, Tensor) else type
        dtype = {_c.complex64: _c.float32, _c.complex128: _c.float64}.get(dtype, dtype)
        figures = {
            _c.float16: (16, 2.0**-10, 65504.0, 2.0**-14),
            _c.bfloat16: (16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126),
            _c.float32: (32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
            _c.float64: (64, 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022),
        }
        if dtype not in figures:
            raise TypeError(f"finfo: {dtype!r} is no dtype of floating point")
        self.bits, self.eps, self.max, self.smallest_normal = figures[dtype]
        self.min, self.tiny, self.dtype = -self.max, self.smallest_normal, dtype

    def __repr__(self):
        return f"finfo(min={self.min}, max={self.max}, eps={self.eps}, dtype={self.dtype.name})"


class iinfo:
    """The limits of a dtype of integers."""

    def __init__(self, type):
        dtype = type.dtype if isinstance(type, Tensor) else type
        if dtype not in _SIGNED + _UNSIGNED:
            raise TypeError(f"iinfo: {dtype!r} is no dtype of integers")
        self.bits, self.dtype = 8 * dtype.itemsize, dtype
        sign = builtins.int(dtype in _SIGNED)
        self.min, self.max = -sign * 2 ** (self.bits - 1), 2 ** (self.bits - sign) - 1

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


# Shapes


def broadcast_arrays(*arrays):
    """The tensors, expanded to a common shape."""
    return list(_ops["broadcast_tensors"](list(arrays)))


def broadcast_shapes(*shapes):
    """The shape that these broadcast to."""
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
    """The tensors one after the other along a dimension; flattened first, if it is None."""
    axis = dim if dim != 0 else axis
    arrays = list(arrays)
    if axis is None:
        return _ops["cat"]([x.reshape((-1,)) for x in arrays], 0)
    return _ops["cat"](arrays, axis)


def expand_dims(x, /, axis=0, *, dim=None):
    """The tensor with new dimensions of size 1."""
    axis = axis if dim is None else dim
    if isinstance(axis, tuple):
        rank = x.ndim + len(axis)
        places = sorted(_wrapped("expand_dims", at, rank) for at in axis)
        if len(set(places)) != len(places):
            raise ValueError(f"expand_dims: a dimension occurs twice in {axis}")
        for at in places:
            x = _ops["unsqueeze"](x, at)
        return x
    return _ops["unsqueeze"](x, axis)


def _wrapped(function, dim, rank):
    if not -rank <= dim < rank:
        raise IndexError(f"{function}: dimension {dim} is out of range for rank {rank}")
    return dim % rank


def flip(x, /, *dims_, axis=None, dims=None):
    """The tensor with the order of some dimensions, or of all, reversed."""
    axis = _either("flip", "axis", axis, dims)
    if dims_:
        axis = dims_[0] if len(dims_) == 1 else dims_
    if axis is None:
        axis = tuple(range(x.ndim))
    return _ops["flip"](x, axis) if axis != () else x


def matrix_transpose(x, /):
    """The tensor with its last two dimensions exchanged."""
    return x.mT


def reshape(x, /, shape, *, copy=None):
    """The same elements in another shape: a view, if that is possible and ``copy`` is not True."""
    out = _ops["reshape"](x, shape)
    if copy and out.shares_memory(x):
        return out.clone()
    if copy is False and not out.shares_memory(x) and x.numel():
        raise ValueError(f"reshape: {list(x.shape)} to {list(out.shape)} is a copy")
    return out


def repeat(x, repeats, /, *, axis=None, dim=None):
    """Every element, or every part along a dimension, so many times. The method ``repeat`` is PyTorch's, and tiles."""
    axis = _either("repeat", "axis", axis, dim)
    if isinstance(repeats, (list, tuple)):
        repeats = _c._tensor(list(repeats), dtype=_c.int64)
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    if isinstance(repeats, Tensor) and repeats.dtype != _c.int64:
        repeats = repeats.to(_c.int64)
    return _ops["repeat_interleave"](x, repeats, axis)


def roll(x, /, shift=None, axis=None, *, shifts=None, dims=None):
    """The elements, moved along dimensions; what leaves at one end comes back at the other."""
    shift = _either("roll", "shift", shift, shifts)
    axis = _either("roll", "axis", axis, dims)
    if isinstance(axis, (tuple, list)) and isinstance(shift, builtins.int):
        shift = (shift,) * len(axis)
    return _ops["roll"](x, shift, axis)


def unstack(x, /, *, axis=0, dim=None):
    """The parts along a dimension."""
    return _ops["unbind"](x, axis if dim is None else dim)


def squeeze(x, /, axis=None, *, dim=None):
    """The tensor without some dimensions of size 1, or without all of them."""
    axis = _either("squeeze", "axis", axis, dim)
    return _ops["squeeze"](x) if axis is None else _ops["squeeze"](x, axis)


def split(x, split_size_or_sections, dim=0, *, axis=None):
    """Parts of a size, or of several sizes, along a dimension."""
    return x.split(split_size_or_sections, dim if axis is None else axis)


# Elements


def take(x, indices, /, *, axis=None, dim=None):
    """The parts of these indices along a dimension; without one, the elements as if the tensor were flat."""
    axis = _either("take", "axis", axis, dim)
    if axis is None:
        return x[indices] if x.ndim == 1 else _ops["take"](x, indices)
    axis = _wrapped("take", axis, x.ndim)
    return x[(slice(None),) * axis + (indices,)]


def take_along_axis(x, indices, /, *, axis=-1):
    """The elements of these indices along a dimension."""
    return _ops["take_along_dim"](x, _from_end(indices, x.shape[axis]), axis)


def _from_end(indices, size):
    return _ops["where"](indices < 0, indices + size, indices)


def bitwise_invert(x, /):
    """The bits of each element, inverted; the opposite of a bool."""
    return _ops["bitwise_not"](x)


def clip(x, /, min=None, max=None):
    """The elements, not below ``min`` and not above ``max``, in the dtype of the tensor."""
    if min is None and max is None:
        return x.clone()
    bounds = [_in_dtype(bound, x) for bound in (min, max)]
    return _ops["clamp"](x, *bounds)


def _in_dtype(bound, x):
    return bound.to(x.dtype) if isinstance(bound, Tensor) and bound.dtype != x.dtype else bound


def sign(x, /):
    """-1, 0 or 1 as the element is below, at or above 0; of a complex number, the number of absolute value 1."""
    if x.dtype in _COMPLEX:
        return _ops["sgn"](x)
    out = _ops["sign"](x)
    return _ops["where"](x == x, out, x) if x.dtype.is_floating_point else out


def round(x, /, *, decimals=0):  # noqa: A001
    """The nearest whole number, of two the even one; of a complex number, of both parts."""
    if x.dtype in _COMPLEX:
        return _ops["complex"](round(x.real, decimals=decimals), round(x.imag, decimals=decimals))
    return _ops["round"](x, decimals)


def pow(x1, x2, /):  # noqa: A001
    """One operand to the power of the other."""
    return _ops["pow"](x1, x2)


# Searching and sorting


def where(condition, x1=None, x2=None, /, **named):
    """The elements of one operand where a condition holds, and of the other elsewhere.

    Of a condition alone, the indices of where it holds, one tensor for each dimension.
    """
    if x1 is None and x2 is None and not named:
        return nonzero(condition)
    return _ops["where"](condition, *(x for x in (x1, x2) if x is not None), **named)


def nonzero(x, /, *, as_tuple=True):
    """The indices of elements other than 0, one tensor for each dimension; with ``as_tuple=False``, a row for each element.

    The method is PyTorch's: a row for each element, unless a tuple is asked for.
    """
    if not as_tuple:
        return _ops["nonzero"](x)
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d tensor has no indices")
    return tuple(part.clone() for part in _ops["unbind"](_ops["nonzero"](x), 1))


def _of_complex(name, x):
    """An operation of sets on complex numbers: on rows of their two parts, in the same order."""
    rows = _ops["view_as_real"](x.reshape((-1,)))
    return _ops[name](rows, dim=0)


def _joined(rows):
    return _ops["view_as_complex"](rows.contiguous())


def unique_all(x, /):
    """The different elements, where each is first, where each element is among them, and how often each is there."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_all"](x)
    found = _of_complex("unique_all", x)
    return found._replace(values=_joined(found.values), inverse_indices=found.inverse_indices.reshape(x.shape))


def unique_counts(x, /):
    """The different elements, and how often each is there."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_counts"](x)
    found = _of_complex("unique_counts", x)
    return found._replace(values=_joined(found.values))


def unique_inverse(x, /):
    """The different elements, and where each element is among them."""
    if x.dtype not in _COMPLEX:
        return _ops["unique_inverse"](x)
    found = _of_complex("unique_inverse", x)
    return found._replace(values=_joined(found.values), inverse_indices=found.inverse_indices.reshape(x.shape))


def unique_values(x, /):
    """The different elements."""
    return _joined(_of_complex("unique_values", x)) if x.dtype in _COMPLEX else _ops["unique_values"](x)


def sort(x, /, *, axis=-1, dim=None, descending=False, stable=True):
    """The elements in order along an axis. By ``dim``, as the method: PyTorch's, which gives the indices, too."""
    if dim is not None:
        return x.sort(dim, descending, stable)
    return x.clone() if x.ndim == 0 else _ops["sort"](x, axis, descending, stable)[0]


def searchsorted(x1, x2, /, *, side="left", sorter=None, right=False, out_int32=False):
    """Where elements would stand in a sorted sequence."""
    side = "right" if right else side
    return _ops["searchsorted"](x1, x2, side=side, sorter=sorter, out_int32=out_int32)


# Statistics


def _summed(x, dtype):
    if dtype is None and x.dtype in _UNSIGNED:
        return _c.uint64
    return dtype


def sum(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False, dtype=None):  # noqa: A001
    """The sum of the elements, or along dimensions. Small integers become 64-bit ones, unsigned those without a sign."""
    return _ops["sum"](x, axis=_either("sum", "axis", axis, dim), keepdim=keepdims or keepdim, dtype=_summed(x, dtype))


def prod(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False, dtype=None):
    """The product of the elements, or along dimensions."""
    return _ops["prod"](x, axis=_either("prod", "axis", axis, dim), keepdim=keepdims or keepdim, dtype=_summed(x, dtype))


def cumulative_sum(x, /, *, axis=None, dim=None, dtype=None, include_initial=False):
    """The sums of all elements up to each one."""
    return _cumulative("cumulative_sum", x, _either("cumulative_sum", "axis", axis, dim), dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dim=None, dtype=None, include_initial=False):
    """The products of all elements up to each one."""
    return _cumulative("cumulative_prod", x, _either("cumulative_prod", "axis", axis, dim), dtype, include_initial)


def _cumulative(name, x, axis, dtype, include_initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: which dimension of {list(x.shape)}? Name the axis")
        axis = 0
    return _ops[name](x, axis, include_initial, _summed(x, dtype))


def diff(x, /, *, axis=-1, dim=None, n=1, prepend=None, append=None):
    """The differences of neighbours along a dimension."""
    return _ops["diff"](x, n, axis if dim is None else dim, prepend, append)


# Products


def tensordot(x1, x2, /, *, axes=2, dims=None):
    """The products of two tensors, summed over some dimensions of both."""
    axes = axes if dims is None else dims
    if isinstance(axes, builtins.int):
        return _ops["tensordot"](x1, x2, axes)
    left, right = ([a] if isinstance(a, builtins.int) else list(a) for a in axes)
    if len(left) != len(right):
        raise ValueError(f"tensordot: {len(left)} dimensions beside {len(right)}")
    left = [_wrapped("tensordot", a, x1.ndim) for a in left]
    right = [_wrapped("tensordot", a, x2.ndim) for a in right]
    order1 = [a for a in range(x1.ndim) if a not in left] + left
    order2 = right + [a for a in range(x2.ndim) if a not in right]
    return _ops["tensordot"](x1.permute(order1) if order1 else x1, x2.permute(order2) if order2 else x2, len(left))


def vecdot(x1, x2, /, *, axis=-1, dim=None):
    """The products of vectors along a dimension; the first is conjugated."""
    axis = axis if dim is None else dim
    dtype = _c.promote_types(x1.dtype, x2.dtype)
    if dtype not in _FLOATS + _HALVES + _COMPLEX:
        return _ops["sum"](x1 * x2, axis, False, dtype)
    return _ops["linalg_vecdot"](x1, x2, axis)


# Inspection


class _Info:
    """What this namespace has: see the standard's ``__array_namespace_info__``."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return _c.device("cpu")

    def default_dtypes(self, *, device=None):
        return {
            "real floating": _c.float32,
            "complex floating": _c.complex64,
            "integral": _c.int64,
            "indexing": _c.int64,
        }

    def dtypes(self, *, device=None, kind=None):
        all_ = (_c.bool,) + _SIGNED + _UNSIGNED + _FLOATS + _COMPLEX
        return {dtype.name: dtype for dtype in all_ if kind is None or isdtype(dtype, kind)}

    def devices(self):
        return [_c.device("cpu")] + [_c.device("cuda", at) for at in range(_c._device_count())]


def __array_namespace_info__():
    """What this namespace has."""
    return _Info()


def randint(low, high=None, size=None, *, shape=None, dtype=None, device=None, generator=None, requires_grad=False):
    """Whole numbers from ``low`` up to but without ``high``, at random; with one number, from 0 up to it."""
    size = _either("randint", "size", size, shape)
    if not isinstance(high, (builtins.int, type(None))) or high is None:
        low, high, size = 0, low, high if size is None else size
    if size is None:
        raise TypeError("randint() misses the argument size")
    return _ops["randint"](low, high, size, dtype=dtype, device=device, generator=generator, requires_grad=requires_grad)


class Generator:
    """Random numbers of their own: the argument ``generator`` of functions that draw some.

        >>> import cotangent as ct
        >>> g = ct.Generator().manual_seed(0)
        >>> ct.rand(2, generator=g).shape
        (2,)
    """

    def __init__(self, device="cpu"):
        self.device = _device(device)
        self._state = (0, 0)

    def manual_seed(self, seed):
        """Starts again from a seed. Gives the generator back."""
        self._state = (operator.index(seed) % 2**64, 0)
        return self

    def seed(self):
        """Starts again from a seed at random, and gives it."""
        self.manual_seed(builtins.int.from_bytes(os.urandom(8), "little"))
        return self._state[0]

    def initial_seed(self):
        """The seed it has started from."""
        return self._state[0]

    def get_state(self):
        """The state, for ``set_state``."""
        return self._state

    def set_state(self, state):
        """Goes on from a state that ``get_state`` gave."""
        seed, offset = state
        self._state = (operator.index(seed), operator.index(offset))


def seed():
    """Starts the random numbers again from a seed at random, and gives it."""
    chosen = builtins.int.from_bytes(os.urandom(8), "little")
    _c.manual_seed(chosen)
    return chosen


def initial_seed():
    """The seed that the random numbers of this thread have started from."""
    return _c.get_rng_state()[0]


def get_default_dtype():
    """The dtype of floats of Python's: float32."""
    return _c.float32


def is_floating_point(input):  # noqa: A002
    """Whether the elements are real numbers of floating point."""
    return input.is_floating_point()


def is_complex(input):  # noqa: A002
    """Whether the elements are complex numbers."""
    return input.is_complex()


def detach(input):  # noqa: A002
    """The same values outside of the graph, as a view."""
    return input.detach()


def _legacy(name, dtype):
    def make(*data):
        return Tensor(*data, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A tensor of {dtype.name}: of elements, or zeros of these sizes."
    return make


FloatTensor, DoubleTensor, HalfTensor = (
    _legacy(name, dtype)
    for name, dtype in (("FloatTensor", _c.float32), ("DoubleTensor", _c.float64), ("HalfTensor", _c.float16)))
LongTensor, IntTensor, ByteTensor, BoolTensor = (
    _legacy(name, dtype)
    for name, dtype in (("LongTensor", _c.int64), ("IntTensor", _c.int32), ("ByteTensor", _c.uint8), ("BoolTensor", _c.bool)))


def is_tensor(obj):
    """Whether this is a tensor."""
    return isinstance(obj, Tensor)


def numel(input):  # noqa: A002
    """The number of elements."""
    return input.numel()


def equal_all(input, other):  # noqa: A002
    """Whether two tensors have the same shape and elements: PyTorch's ``equal``."""
    return input.equal(other)


__all__ = [
    name
    for name, value in list(globals().items())
    if (callable(value) or isinstance(value, builtins.float) or name in ("newaxis", "__array_namespace_info__"))
    and (not name.startswith("_") or name == "__array_namespace_info__")
    and name not in ("Tensor", "annotations")
]
