"""Dtypes: limits, kinds and promotion, PyTorch's legacy tensor types, and the inspection API of the namespace."""

from __future__ import annotations

import builtins

from .. import _cotangent as _c
from .._cotangent import Tensor

_ops = _c._functions

_FLOATS = (_c.float32, _c.float64)
_HALVES = (_c.float16, _c.bfloat16)
_COMPLEX = (_c.complex64, _c.complex128)
_SIGNED = (_c.int8, _c.int16, _c.int32, _c.int64)
_UNSIGNED = (_c.uint8, _c.uint16, _c.uint32, _c.uint64)


def astype(x, dtype, /, *, copy=True, device=None):
    """Casts a tensor to a dtype; ``copy=False`` avoids a copy if the dtype matches."""
    return x.to(dtype=dtype, device=device, copy=copy)


def result_type(*arrays_and_dtypes):
    """The dtype to which tensors, dtypes and numbers promote."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: expected at least one operand, got none")
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
    """Whether a dtype, or the dtype of a tensor, can be cast to another one by the promotion rules."""
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
    """Whether a dtype equals another one, or belongs to a kind, or to one of several kinds."""
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
        raise ValueError(f"isdtype: kind must be one of {', '.join(kinds)}, got {kind!r}")
    return dtype in kinds[kind]


class finfo:
    """The limits of a floating-point dtype."""

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
            raise TypeError(f"finfo: type must be a floating-point dtype, got {dtype!r}")
        self.bits, self.eps, self.max, self.smallest_normal = figures[dtype]
        self.min, self.tiny, self.dtype = -self.max, self.smallest_normal, dtype

    def __repr__(self):
        return f"finfo(min={self.min}, max={self.max}, eps={self.eps}, dtype={self.dtype.name})"


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type):
        dtype = type.dtype if isinstance(type, Tensor) else type
        if dtype not in _SIGNED + _UNSIGNED:
            raise TypeError(f"iinfo: type must be an integer dtype, got {dtype!r}")
        self.bits, self.dtype = 8 * dtype.itemsize, dtype
        sign = builtins.int(dtype in _SIGNED)
        self.min, self.max = -sign * 2 ** (self.bits - 1), 2 ** (self.bits - sign) - 1

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


class _Info:
    """The inspection API of this namespace: see the standard's ``__array_namespace_info__``."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return _c.device("cpu")

    def default_dtypes(self, *, device=None):
        return {
            "real floating": _c.get_default_dtype(),
            "complex floating": _default_complex(),
            "integral": _c.int64,
            "indexing": _c.int64,
        }

    def dtypes(self, *, device=None, kind=None):
        all_ = (_c.bool,) + _SIGNED + _UNSIGNED + _FLOATS + _COMPLEX
        return {dtype.name: dtype for dtype in all_ if kind is None or isdtype(dtype, kind)}

    def devices(self):
        return [_c.device("cpu")] + [_c.device("cuda", at) for at in range(_c._device_count())]


def __array_namespace_info__():
    """The inspection API of this namespace."""
    return _Info()


def _default_complex():
    return _c.complex128 if _c.get_default_dtype() is _c.float64 else _c.complex64


def set_default_tensor_type(t):
    """Sets the default dtype of floats to that of a tensor type such as ``DoubleTensor``, or of its name."""
    _c.set_default_dtype(_dtype_of(t))


def is_floating_point(input):  # noqa: A002
    """Whether the elements are real floating-point numbers."""
    return input.is_floating_point()


def is_complex(input):  # noqa: A002
    """Whether the elements are complex numbers."""
    return input.is_complex()


def is_signed(input):  # noqa: A002
    """Whether the dtype can represent negative numbers."""
    return input.dtype.is_signed


class _Kind(type):
    """A legacy tensor type of one dtype: it creates tensors, and ``isinstance`` checks the dtype."""

    dtype: _c.dtype

    def __call__(cls, *data):
        return Tensor(*data, dtype=cls.dtype)

    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype


_NAMES = {
    _c.float32: "Float", _c.float64: "Double", _c.float16: "Half", _c.bfloat16: "BFloat16", _c.uint8: "Byte", _c.int8: "Char",
    _c.int16: "Short", _c.int32: "Int", _c.int64: "Long", _c.bool: "Bool", _c.complex64: "ComplexFloat",
    _c.complex128: "ComplexDouble",
}


def _type_name(x):
    """PyTorch's name of a tensor type: ``cotangent.FloatTensor``."""
    where = "cotangent." if x.device.type == "cpu" else f"cotangent.{x.device.type}."
    return f"{where}{_NAMES.get(x.dtype, x.dtype.name.upper())}Tensor"


def _dtype_of(kind):
    """The dtype of a dtype, a tensor type, or the name of a tensor type."""
    if isinstance(kind, _Kind):
        return kind.dtype
    if isinstance(kind, builtins.str) and kind.endswith("Tensor"):
        name = kind.rpartition(".")[2].removesuffix("Tensor")
        for dtype, own in _NAMES.items():
            if own == name:
                return dtype
        raise ValueError(f"type: unknown tensor type {kind!r}")
    return kind


def _legacy(dtype):
    name = f"{_NAMES[dtype]}Tensor"
    doc = f"A tensor of {dtype.name}, with the given elements, or with the given sizes and zeros."
    return _Kind(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "cotangent"})


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = map(_legacy, (_c.float32, _c.float64, _c.float16, _c.bfloat16))
LongTensor, IntTensor, ShortTensor, CharTensor = map(_legacy, (_c.int64, _c.int32, _c.int16, _c.int8))
ByteTensor, BoolTensor = map(_legacy, (_c.uint8, _c.bool))

__all__ = [name for name, value in list(globals().items()) if name == "__array_namespace_info__" or not name.startswith("_")
           and (isinstance(value, _Kind) or getattr(value, "__module__", None) == __name__)]
