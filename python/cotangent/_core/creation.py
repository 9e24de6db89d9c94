"""Creation of tensors: from arrays, ranges, grids and random integers."""

from __future__ import annotations

import builtins
import operator

from .. import _cotangent as _c
from .._cotangent import Tensor
from .dtypes import _COMPLEX, _default_complex

_ops = _c._functions


def _either(function, name, value, other, default=None):
    """The value of a parameter with two names."""
    if other is default or other is None:
        return value
    if value is not default and value is not None:
        raise TypeError(f"{function}() got {name} twice")
    return other


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """A tensor with a copy of a number, nested sequences, or another array."""
    try:
        return _c._tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
    except TypeError:
        # Arrays inside sequences are rare, and are tried last.
        if not _has_arrays(data):
            raise
        made = _stacked(data).to(dtype=dtype, device=device)
        return made.requires_grad_() if requires_grad else made


def _has_arrays(data, depth=0):
    if isinstance(data, (list, tuple)):
        return depth < 64 and builtins.any(_has_arrays(one, depth + 1) for one in data)
    return not isinstance(data, Tensor) and hasattr(data, "__array__") and hasattr(data, "shape")


def _stacked(data):
    """A tensor from nested sequences that contain arrays."""
    if not isinstance(data, (list, tuple)):
        return _c._tensor(data)
    parts = [_stacked(one) for one in data]
    if builtins.any(part.shape != parts[0].shape for part in parts):
        raise ValueError("tensor: items of a nested sequence must have the same shape")
    return _ops["stack"](parts)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """A tensor from a number, nested sequences or another array.

    A tensor is returned unchanged if dtype and device match. The memory of other arrays is copied, unless ``copy`` is False:
    then it is shared, and must not be changed while the tensor or one computed from it is used.
    """
    if isinstance(obj, Tensor):
        same = (dtype is None or obj.dtype == dtype) and (device is None or obj.device == _device(device))
        if same and not copy:
            return obj
        if copy is False:
            raise ValueError("asarray: copy=False requires the same dtype and device")
        return obj.to(dtype=dtype, device=device, copy=True)
    if copy is False:
        if not hasattr(obj, "__dlpack__"):
            raise ValueError(f"asarray: copy=False requires an array with __dlpack__, got a value of type {type(obj).__name__}")
        shared, _ = _c._from_dlpack(obj)
        if (dtype is not None and shared.dtype != dtype) or (device is not None and shared.device != _device(device)):
            raise ValueError("asarray: copy=False requires the same dtype and device")
        return shared
    return _c._tensor(obj, dtype=dtype, device=device)


def as_tensor(data, dtype=None, device=None):
    """A tensor from a number, nested sequences or another array; a tensor is returned unchanged if dtype and device match."""
    if isinstance(data, (list, tuple)):
        return tensor(data, dtype=dtype, device=device)
    return asarray(data, dtype=dtype, device=device)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A 1-D tensor with a copy of the elements in a buffer."""
    data = memoryview(buffer).cast("B")[offset:]
    size = dtype.itemsize
    count = len(data) // size if count < 0 else count
    if count * size > len(data) or (count == 0 and len(data) == 0):
        raise ValueError(f"frombuffer: {count} elements of {size} bytes must fit in the {len(data)} bytes from offset {offset}")
    made = _c._rebuild(bytes(data[:count * size]), (count,), dtype.name, "cpu", False)
    return made.requires_grad_() if requires_grad else made


def _device(value):
    return value if isinstance(value, _c.device) else _c.device(value)


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor that shares the memory of another library's array. This library never writes to it.

    The memory must not be changed while the tensor or one computed from it is used; otherwise pass ``copy=True``.
    """
    shared, _ = _c._from_dlpack(x)
    if device is not None and shared.device != _device(device):
        if copy is False:
            raise ValueError(f"from_dlpack: copy=False requires device to be that of the array, {shared.device}, got {device}")
        return shared.to(device)
    return shared.clone() if copy else shared


def from_numpy(ndarray):
    """A tensor that shares the memory of a NumPy array, which must not be changed while the tensor is used."""
    return from_dlpack(ndarray)


def arange(start=0, stop=None, step=1, *, end=None, dtype=None, device=None, requires_grad=False):
    """Numbers from ``start`` up to but excluding ``stop``, in steps of ``step``."""
    stop = _either("arange", "stop", stop, end)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (x.item() if isinstance(x, Tensor) else x for x in (start, stop, step))
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if (stop - start) / step <= 0:
        whole = all_ints = builtins.all(isinstance(x, builtins.int) for x in (start, stop, step))
        dtype = dtype or (_c.int64 if whole and all_ints else _c.get_default_dtype())
        made = _ops["zeros"]((0,), dtype=dtype, device=device)
    else:
        made = _ops["arange"](start, stop, step, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def linspace(start, stop=None, num=None, *, end=None, steps=None, dtype=None, device=None, endpoint=True, requires_grad=False):
    """``num`` evenly spaced numbers from ``start`` to ``stop``, excluding ``stop`` if ``endpoint`` is False."""
    if requires_grad:
        stop, num = _either("linspace", "stop", stop, end), _either("linspace", "num", num, steps)
        return linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint).requires_grad_()
    stop = _either("linspace", "stop", stop, end)
    num = operator.index(_either("linspace", "num", num, steps))
    if num < 0:
        raise ValueError(f"linspace: num must be ≥ 0, got {num}")
    complex_ends = isinstance(start, complex) or isinstance(stop, complex)
    dtype = dtype or (_default_complex() if complex_ends else _c.get_default_dtype())
    if complex_ends or dtype in _COMPLEX:
        real_dtype = _c.float64 if dtype is _c.complex128 else _c.float32
        start, stop = complex(start), complex(stop)
        parts = [linspace(a, b, num, dtype=real_dtype, device=device, endpoint=endpoint)
                 for a, b in ((start.real, stop.real), (start.imag, stop.imag))]
        return _ops["complex"](*parts).to(dtype)
    # Floats are rounded once; integers that are out of range for the dtype are errors.
    wide = _c.float64 if dtype.is_floating_point else dtype
    if endpoint:
        made = _ops["linspace"](start, stop, num, dtype=wide, device=device)
    else:
        made = _ops["linspace"](start, stop, num + 1, dtype=wide, device=device)[:-1].clone()
    return made.to(dtype)


def eye(n_rows=None, n_cols=None, /, *, k=0, n=None, m=None, dtype=None, device=None, requires_grad=False):
    """A matrix with ones on the diagonal ``k`` and zeros elsewhere."""
    n_rows = operator.index(_either("eye", "n_rows", n_rows, n))
    if requires_grad:
        return eye(n_rows, n_cols, k=k, m=m, dtype=dtype, device=device).requires_grad_()
    n_cols = _either("eye", "n_cols", n_cols, m)
    n_cols = n_rows if n_cols is None else n_cols
    if k == 0:
        return _ops["eye"](n_rows, n_cols, dtype=dtype, device=device)
    rows, columns = (_ops["arange"](0, max_ - 0, device=device) if max_ else _ops["zeros"]((0,), dtype=_c.int64, device=device)
                     for max_ in (n_rows, n_cols))
    return (columns[None, :] - rows[:, None] == k).to(dtype or _c.get_default_dtype())


def meshgrid(*arrays, indexing="ij"):
    """Coordinates of a grid, one tensor for each vector, as views. The standard's namespace defaults to ``indexing="xy"``, and
    returns copies."""
    if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)):
        arrays = tuple(arrays[0])
    if not arrays:
        return []
    vectors = [x.reshape((1,)) if x.ndim == 0 else x for x in arrays]
    # The operation checks the arguments and determines the shape.
    shape = _ops["meshgrid"]([x.detach() for x in vectors], indexing=indexing)[0].shape
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[:2] = 1, 0
    return [x.reshape([x.numel() if dim == place else 1 for dim in range(len(shape))]).expand(shape)
            for x, place in zip(vectors, places)]


def randint(low, high=None, size=None, *, shape=None, dtype=None, device=None, generator=None, requires_grad=False):
    """Random integers from ``low`` up to but excluding ``high``; with one bound, from 0 up to it."""
    size = _either("randint", "size", size, shape)
    if not isinstance(high, (builtins.int, type(None))) or high is None:
        low, high, size = 0, low, high if size is None else size
    if size is None:
        raise TypeError("randint() is missing the argument size")
    return _ops["randint"](low, high, size, dtype=dtype, device=device, generator=generator, requires_grad=requires_grad)


__all__ = [name for name, value in list(globals().items())
           if not name.startswith("_") and getattr(value, "__module__", None) == __name__]
