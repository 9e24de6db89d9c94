"""Methods and properties of tensors, as in PyTorch or the standard, that are not operations of the crate."""

from __future__ import annotations

import weakref

from .. import _cotangent as _c
from .._cotangent import Tensor
from .size import Size, _Count  # noqa: F401

_ops = _c._functions


def _size(self):
    """The number of elements; when called, the size of one dimension or of all."""
    return _Count(self.shape)


def _matrix_transpose(self):
    """The tensor with its last two dimensions transposed, as a view."""
    if self.ndim < 2:
        raise ValueError(f"mT: the tensor must have at least 2 dimensions, got shape {list(self.shape)}")
    return self.transpose(-2, -1)


def _transposed(self):
    """The transposed matrix, as a view."""
    return self.t()


def _adjoint(self):
    """The conjugate transpose of each matrix."""
    return self.adjoint()


def _real(self):
    """The real parts, as a view."""
    return _ops["real"](self)


def _imag(self):
    """The imaginary parts, as a view."""
    return _ops["imag"](self)


def _set_real(self, value):
    _real(self)[...] = value


def _set_imag(self, value):
    _imag(self)[...] = value


_in_order = Tensor.contiguous


def _contiguous(self, *, memory_format=None):
    """The tensor with contiguous elements in row-major order. ``memory_format`` has no effect."""
    return _in_order(self)


def _whole(name):
    """Makes the result of an operation contiguous: where PyTorch copies, it may be an expanded view, for which ``view`` fails."""
    function = _ops[name]

    def whole(input, *args, **kwargs):  # noqa: A002
        made = function(input, *args, **kwargs)
        return made if made.is_contiguous() else _in_order(made)

    whole.__name__ = whole.__qualname__ = name
    whole.__doc__, whole.__wrapped__ = function.__doc__, function
    return whole


repeat_interleave, tile = _whole("repeat_interleave"), _whole("tile")


class _Node(str):
    """A recorded operation: the string is its name, and the class has PyTorch's name."""

    __slots__ = ()

    def name(self):
        """PyTorch's name of the operation."""
        return type(self).__name__

    @property
    def next_functions(self):
        """Not supported: the recorded graph is not exposed."""
        raise AttributeError("next_functions: the graph is not exposed: use autograd.grad() for gradients of intermediate tensors")

    def __repr__(self):
        return f"<{type(self).__name__} object at {hex(id(self))}>"

    __str__ = __repr__


_recorded = Tensor.grad_fn
_nodes: dict = {}


def _grad_fn(self):
    """The recorded operation that computed this tensor, or ``None``."""
    name = _recorded.__get__(self)
    if name is None:
        return None
    if name not in _nodes:
        from . import text as _text

        _nodes[name] = type(_text._node(name), (_Node,), {"__slots__": ()})
    return _nodes[name](name)


def _layout(self):
    """The layout, always ``strided``."""
    from . import hints as _hints

    return _hints.strided


def _is_cpu(self):
    """Whether the elements are in the CPU's memory."""
    return self.device.type == "cpu"


def _never(self):
    """Always False: not supported."""
    return False


def _get_device(self):
    """The index of the tensor's GPU; -1 for the CPU."""
    index = self.device.index
    return -1 if index is None else index


def _is_nonzero(self):
    """Whether the element of a tensor with one element is not 0."""
    return bool(self)


def _is_signed(self):
    """Whether the dtype can represent negative numbers."""
    return self.dtype.is_signed


def _pin_memory(self, device=None):
    """The tensor itself: pinning is not needed for copies to a GPU."""
    return self


def _new_of(self, *data):
    """A tensor with the dtype and device of this one, with the given elements, or with the given sizes and zeros."""
    return Tensor(*data, dtype=self.dtype, device=self.device)


# Unsupported methods of PyTorch, and their alternatives.
_INSTEAD = {
    "storage": "tensors do not expose their storage: numpy() and DLPack share the memory, data_ptr() is its address",
    "untyped_storage": "tensors do not expose their storage: numpy() and DLPack share the memory, nbytes is its size",
    "set_": "tensors do not expose their storage: x.data = y replaces the elements",
    "resize_": "an in-place operation keeps the shape: make a new tensor, or assign x.data = x.reshape(..)",
    "resize_as_": "an in-place operation keeps the shape: make a new tensor, or assign x.data = x.reshape(..)",
    "record_stream": "memory is freed only after the work that uses it has finished",
}


def _never_method():
    def never(self):
        """Always False: not supported."""
        return False

    return never


def _is_shared(self):
    """Always True: threads share memory."""
    return True


def _post_hook(self, hook):
    """Calls ``hook(self)`` after each backward pass that adds to the gradient of this leaf."""
    from . import hooks as _hooks

    return _hooks.register_post_accumulate_grad_hook(self, hook)


def _refusing(name, text):
    def refuse(self, *args, **kwargs):
        raise NotImplementedError(f"{name}: {text}")

    refuse.__doc__ = f"Not supported: {text}."
    return refuse


def _is_cuda(self):
    """Whether the elements are on a GPU."""
    return self.device.type == "cuda"


def _array_namespace(self, /, *, api_version=None):
    """The namespace of the Python array API standard."""
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f"api_version must be one of {', '.join(_VERSIONS)}, got {api_version!r}")
    from .. import array_api

    return array_api


_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def _array(self, dtype=None, copy=None):
    """The elements as a NumPy array: a writable copy, or with ``copy=False`` the same memory, read-only."""
    import numpy

    if self.dtype is _c.bfloat16:
        raise TypeError("NumPy has no bfloat16: use to(float32) first")
    if copy is False:
        array = numpy.asarray(_c._Memory(self))
        if dtype is not None and array.dtype != dtype:
            raise ValueError(f"copy=False requires the dtype of the tensor, {self.dtype}, got {dtype}")
        return array
    array = numpy.asarray(memoryview(self))
    return array if dtype is None else array.astype(dtype, copy=False)


def _numpy(self, *, force=False):
    """The elements as a read-only NumPy array, which shares memory if possible. Copy it to change it."""
    if force:
        self = self.detach().cpu()
    return _array(self, copy=False)


def _to_device(self, device, /, *, stream=None):
    """The tensor on another device."""
    if stream is not None:
        raise ValueError(f"to_device: stream must be None, got {stream!r}")
    return _ops["to_device"](self, device)


def _max(self, dim=None, keepdim=False, *, axis=None, keepdims=None):
    """The largest element; with ``dim`` the largest elements and their indices, as in PyTorch.

    With ``axis``, as in NumPy, only the elements. With another tensor, the elementwise maximum.
    """
    return _extreme(self, dim, keepdim, axis, keepdims, "max")


def _min(self, dim=None, keepdim=False, *, axis=None, keepdims=None):
    """The smallest element; with ``dim`` the smallest elements and their indices, as in PyTorch.

    With ``axis``, as in NumPy, only the elements. With another tensor, the elementwise minimum.
    """
    return _extreme(self, dim, keepdim, axis, keepdims, "min")


def _median(self, dim=None, keepdim=False, *, axis=None, keepdims=None):
    """The median, the lower of two; with ``dim`` the medians and their indices, as in PyTorch.

    With ``axis`` only the medians.
    """
    return _extreme(self, dim, keepdim, axis, keepdims, "median")


def _nanmedian(self, dim=None, keepdim=False, *, axis=None, keepdims=None):
    """As ``median``, ignoring NaN."""
    return _extreme(self, dim, keepdim, axis, keepdims, "nanmedian")


def _extreme(self, dim, keepdim, axis, keepdims, name):
    if isinstance(dim, Tensor):
        return _ops[name + "imum"](self, dim)
    if dim is None:
        keep = keepdim if keepdims is None else keepdims
        return _ops[name](self, axis=axis, keepdim=keep)
    if axis is not None or keepdims is not None:
        raise TypeError(f"{name}() takes either dim and keepdim or axis and keepdims")
    return _ops[name + "_with_indices"](self, dim, keepdim)


def _lu(self, pivot=True, get_infos=False):
    """The compact LU factorization and the pivots; with ``get_infos`` also the error codes."""
    from . import forms as _forms

    return _forms.lu(self, pivot, get_infos)


def _norm(self, p="fro", dim=None, keepdim=False, dtype=None, *, axis=None, keepdims=None):
    """The norm of order ``p`` of the elements along dimensions, or of all of them, as PyTorch's ``norm``.

    ``"fro"`` is the order 2, and ``"nuc"`` the sum of the singular values of a matrix.
    """
    if (dim is not None and axis is not None) or (keepdim and keepdims is not None):
        raise TypeError("norm() takes either dim and keepdim or axis and keepdims")
    dim, keepdim = dim if axis is None else axis, keepdim if keepdims is None else keepdims
    if p == "nuc":
        return _ops["linalg_matrix_norm"](self, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype)
    if isinstance(p, str) and p != "fro":
        raise ValueError(f"norm: p must be a number, 'fro' or 'nuc', got {p!r}")
    return _ops["norm"](self, dim, keepdim, 2.0 if p == "fro" or p is None else float(p), dtype)


def _spread(name, with_mean=False):
    """``std``, ``var`` and similar functions with PyTorch's arguments, where ``unbiased`` may be the first."""
    function = _ops[name]

    def spread(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):  # noqa: A002
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if (dim is not None and axis is not None) or (keepdim and keepdims is not None):
            raise TypeError(f"{name}() takes either dim and keepdim or axis and keepdims")
        if unbiased is not None and correction is not None:
            raise TypeError(f"{name}() takes either unbiased or correction")
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        keep = keepdim if keepdims is None else keepdims
        # With `axis`, as in the standard, an empty tuple reduces no dimension.
        named = {"axis": axis} if axis is not None else {"dim": dim}
        return function(input, keepdim=keep, correction=float(correction), **named)

    spread.__name__ = spread.__qualname__ = name
    spread.__doc__ = (function.__doc__ or "") + (
        "\n\n``correction`` is subtracted from the number of elements; ``unbiased=True`` is 1 and ``unbiased=False`` is 0.")
    return spread


std, var, std_mean, var_mean = (_spread(name) for name in ("std", "var", "std_mean", "var_mean"))


def _nonzero(self, *, as_tuple=False):
    """The indices of nonzero elements: a row for each, or with ``as_tuple`` a tensor for each dimension."""
    # A 0-d tensor gives a tuple of one tensor, as in PyTorch.
    found = _ops["nonzero"](self.reshape(1) if as_tuple and self.ndim == 0 else self)
    return tuple(part.clone() for part in _ops["unbind"](found, 1)) if as_tuple else found


def _where(self, condition, other=None):
    """The elements where the condition is true, and those of another tensor, or a number, elsewhere."""
    if other is None:
        # The arguments of the function: a mask and the values where it is true.
        raise TypeError("where() is missing the argument other")
    return _ops["where"](condition, self, other)


def _becoming(name):
    def change(self, *args, **kwargs):
        if kwargs:
            import inspect

            args = inspect.signature(_ops[name]).bind(self, *args, **kwargs).args[1:]
        return self._become(name, *args)

    change.__doc__ = f"`{name}` in place: this tensor becomes the view."
    return change


def _normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Fills with numbers from the normal distribution."""
    return self.copy_(_ops["normal"](mean, std, self.shape, dtype=self.dtype, device=self.device, generator=generator))


def _random_(self, from_=0, to=None, *, generator=None):
    """Fills with random integers from ``from_`` up to but excluding ``to``; with one bound, from 0 up to it."""
    if to is None:
        from_, to = (0, from_) if from_ else (0, _most(self.dtype) + 1)
    return self.copy_(_ops["randint"](from_, to, self.shape, device=self.device, generator=generator))


def _most(dtype):
    """The largest integer that ``random_`` draws."""
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "bool": 1, "uint8": 8, "int8": 7, "int16": 15,
              "uint16": 16, "int32": 31, "uint32": 32}
    return 2 ** digits.get(dtype.name, 62) - 1


def _apply_(self, callable):  # noqa: A002
    """Applies a Python function to each element, in place. Slow: for experiments."""
    return self.copy_(_c._tensor([callable(x) for x in self.reshape(-1).tolist()], dtype=self.dtype).reshape(self.shape))


def _map_(self, tensor, callable):  # noqa: A002
    """Applies a Python function of two elements to each pair, in place. Slow: for experiments."""
    other = tensor.expand(self.shape).reshape(-1).tolist()
    made = [callable(a, b) for a, b in zip(self.reshape(-1).tolist(), other)]
    return self.copy_(_c._tensor(made, dtype=self.dtype).reshape(self.shape))


# Tensors on which ``share_memory_`` was called.
_shared: dict = {}


def _share_memory_(self):
    """Marks the tensor as shared. Threads share memory; processes do not, and sending the tensor to one is an error."""
    key = id(self)
    _shared[key] = weakref.ref(self, lambda _: _shared.pop(key, None))
    return self


def _is_pinned(self):
    """Always False: memory is never pinned."""
    return False


def _is_same_size(self, other):
    """Whether two tensors have the same shape."""
    return self.shape == other.shape


def _is_sparse(self):
    """Always False: the tensor is dense."""
    return False


def _to_dense(self, dtype=None):
    """The tensor itself, which is dense, cast to ``dtype`` if given."""
    return self if dtype is None else self.to(dtype)


def _sparse(name):
    def method(self, *args, **kwargs):
        from .. import sparse

        return getattr(sparse, "_" + name)(self, *args, **kwargs)

    method.__doc__ = "The nonzero elements as a sparse tensor: ``cotangent.sparse``."
    return method


def _cast(dtype):
    def cast(self, memory_format=None):
        return self.to(dtype)

    cast.__doc__ = f"The tensor as {dtype.name}."
    return cast


def _cpu(self, memory_format=None):
    """The tensor on the CPU."""
    return self.to("cpu")


def _cuda(self, device=None, non_blocking=False, memory_format=None):
    """The tensor on a GPU."""
    return self.to("cuda" if device is None else device if isinstance(device, (str, _c.device)) else f"cuda:{device}")


def _type(self, dtype=None, non_blocking=False, memory_format=None):
    """PyTorch's name of the tensor type; with a dtype, a tensor type or its name, the tensor cast to it."""
    from . import dtypes as _dtypes

    return _dtypes._type_name(self) if dtype is None else self.to(_dtypes._dtype_of(dtype))


_shaped = Tensor.view


def _view(self, *shape, dtype=None, **named):
    """The elements in another shape, as a view; with a dtype, the bytes as elements of it, as a detached view."""
    if dtype is None and shape and isinstance(shape[0], (_c.dtype, type)):
        (dtype,) = shape
    if isinstance(dtype, type):
        # A Python type: float, int, bool or complex.
        dtype = _c._tensor(0, dtype=dtype).dtype
    return _shaped(self, *shape, **named) if dtype is None else _reinterpreted(self, dtype)


def _reinterpreted(self, dtype):
    old, new = self.dtype.itemsize, dtype.itemsize
    if old != new and not self.ndim:
        raise RuntimeError(f"view: a 0-d tensor of {self.dtype} requires a dtype of the same size, got {dtype}")
    if old != new and self.shape[-1] * old % new:
        raise RuntimeError(f"view: the last dimension must be a multiple of {new} bytes, got {self.shape[-1]} elements of {old} bytes")
    return self._bytes_as(dtype)


def _type_as(self, other):
    """The tensor cast to the dtype of ``other``."""
    return self.to(other.dtype)


def _element_size(self):
    """The size of an element in bytes."""
    return self.itemsize


def _new(name):
    function = _ops[name]

    def new(self, *args, dtype=None, device=None, **kwargs):
        return function(*args, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    new.__doc__ = f"``{name}`` with the dtype and device of this tensor by default."
    return new


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A tensor with the given values, by default with the dtype and device of this one."""
    return _c._tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def _split(self, split_size, dim=0):
    """Splits along a dimension into parts of one size, or of given sizes, as views."""
    return _ops["split" if isinstance(split_size, int) else "split_with_sizes"](self, split_size, dim)


def _reversed_rows(self):
    """An iterator over the first dimension in reverse order."""
    return iter(self.flip(0)) if self.ndim else iter([self])


def _equal(self, other):
    """Whether two tensors have the same shape and the same elements."""
    return self.shape == other.shape and bool((self == other).all())


def _fill_diagonal(self, fill_value):
    """Fills the diagonal with a number, in place."""
    self.diagonal().fill_(fill_value)
    return self


def _astype(self, dtype, *, copy=True):
    """Casts to a dtype; ``copy=False`` avoids a copy if the dtype matches."""
    return self.to(dtype, copy=copy)


def _repr(self):
    from . import text as _text

    return _text.text(self)


def _format(self, spec):
    from . import text as _text

    return _text.formatted(self, spec)


_UFUNCS = {"power": "pow", "invert": "bitwise_invert", "conjugate": "conj", "left_shift": "bitwise_left_shift",
           "right_shift": "bitwise_right_shift", "fmod": "fmod"}


def _array_ufunc(self, ufunc, method, *inputs, **kwargs):
    """Calls the function of this library with the name of a NumPy ufunc; arrays become tensors."""
    import cotangent

    function = getattr(cotangent, _UFUNCS.get(ufunc.__name__, ufunc.__name__), None)
    if method != "__call__" or kwargs or function is None:
        return NotImplemented
    own = (int, float, complex, bool, Tensor)
    return function(*(x if isinstance(x, own) else cotangent.asarray(x) for x in inputs))


def _install():
    for name, function in {
        "size": _size,
        "mT": _matrix_transpose,
        "T": _transposed,
        "mH": _adjoint,
        "H": _adjoint,
        "is_cuda": _is_cuda,
        "is_sparse": _is_sparse,
        "is_sparse_csr": _never,
        "is_cpu": _is_cpu,
        "layout": _layout,
        "grad_fn": _grad_fn,
        "is_mps": _never,
        "is_meta": _never,
        "is_quantized": _never,
        "is_nested": _never,
    }.items():
        setattr(Tensor, name, property(function))
    Tensor.real, Tensor.imag = property(_real, _set_real), property(_imag, _set_imag)
    methods = {
        "__repr__": _repr,
        "__format__": _format,
        "__array_namespace__": _array_namespace,
        "__array__": _array,
        "__array_ufunc__": _array_ufunc,
        "numpy": _numpy,
        "to_device": _to_device,
        "max": _max,
        "min": _min,
        "median": _median,
        "nanmedian": _nanmedian,
        "norm": _norm,
        "lu": _lu,
        "std": std,
        "var": var,
        "nonzero": _nonzero,
        "where": _where,
        "normal_": _normal_,
        "random_": _random_,
        "apply_": _apply_,
        "map_": _map_,
        "share_memory_": _share_memory_,
        "is_pinned": _is_pinned,
        "is_same_size": _is_same_size,
        "cpu": _cpu,
        "cuda": _cuda,
        "type": _type,
        "type_as": _type_as,
        "element_size": _element_size,
        "nelement": Tensor.numel,
        "ndimension": Tensor.dim,
        "new_tensor": _new_tensor,
        "split": _split,
        "__reversed__": _reversed_rows,
        "equal": _equal,
        "fill_diagonal_": _fill_diagonal,
        "astype": _astype,
        "view": _view,
        "contiguous": _contiguous,
        "repeat": _whole("repeat"),
        "tile": _whole("tile"),
        "repeat_interleave": _whole("repeat_interleave"),
        "get_device": _get_device,
        "is_signed": _is_signed,
        "is_nonzero": _is_nonzero,
        "is_conj": _never_method(),
        "is_inference": _never_method(),
        "is_shared": _is_shared,
        "pin_memory": _pin_memory,
        "new": _new_of,
        "register_post_accumulate_grad_hook": _post_hook,
        "to_dense": _to_dense,
        "to_sparse": _sparse("to_sparse"),
        "to_sparse_coo": _sparse("to_sparse"),
        "to_sparse_csr": _sparse("to_sparse_csr"),
    }
    methods |= {name: _refusing(name, text) for name, text in _INSTEAD.items()}
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided"):
        methods[name + "_"] = _becoming(name)
    for name in ("zeros", "ones", "full", "empty"):
        methods["new_" + name] = _new(name)
    for name, dtype in {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "byte": "uint8",
        "char": "int8",
        "short": "int16",
        "int": "int32",
        "long": "int64",
        "bool": "bool",
        "cfloat": "complex64",
        "cdouble": "complex128",
    }.items():
        methods[name] = _cast(getattr(_c, dtype))
    for name, method in methods.items():
        if hasattr(method, "__code__"):
            method.__name__ = name
            method.__qualname__ = f"Tensor.{name}"
        setattr(Tensor, name, method)


_install()
