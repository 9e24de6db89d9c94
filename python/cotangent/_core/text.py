"""The text of tensors, as PyTorch prints them, and ``set_printoptions``."""

from __future__ import annotations

import math
import re

from .. import _cotangent as _c
from .._cotangent import Tensor
from .dtypes import _default_complex

_ops = _c._functions
_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options = {**_PROFILES["default"], "sci_mode": None}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets how tensors are printed: ``precision`` digits after the point, above ``threshold`` elements only ``edgeitems`` at
    each end, lines of ``linewidth``, and with ``sci_mode`` an exponent (by default if it is needed).

    ``profile`` is ``"default"``, ``"short"`` or ``"full"``.
    """
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
        _options.update(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({name: value for name, value in given.items() if value is not None})
    _options["sci_mode"] = sci_mode


def _large(value, precision):
    """A number with an exponent."""
    return f"{value:.{precision}e}"


def _whole(value, precision):
    """A whole number with a point, to distinguish it from an integer."""
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


def _plain(value, precision):
    return f"{value:.{precision}f}"


class _Reals:
    """One format for all numbers of a tensor, determined by the finite and nonzero ones."""

    def __init__(self, values):
        counted = [value for value in values if math.isfinite(value) and value != 0.0]
        whole = all(value == math.ceil(value) for value in counted)
        exponent, precision = False, _options["precision"]
        if counted:
            largest, smallest = max(map(abs, counted)), min(map(abs, counted))
            exponent = largest / smallest > 1000.0 or largest > 1e8 or (not whole and smallest < 1e-4)
        if counted and _options["sci_mode"] is not None:
            exponent = _options["sci_mode"]
        self._write = _large if exponent else _whole if whole else _plain
        self.width = max((len(self._write(value, precision)) for value in counted), default=1)

    def __call__(self, value):
        return self._write(value, _options["precision"]).rjust(self.width)


class _Others:
    """Integers and bools, padded to the same width."""

    def __init__(self, values):
        self.width = max((len(str(value)) for value in values), default=1)

    def __call__(self, value):
        return str(value).rjust(self.width)


class _Pairs:
    """Complex numbers: each part in the format of real numbers."""

    def __init__(self, values):
        self._real, self._imag = _Reals([value.real for value in values]), _Reals([value.imag for value in values])
        self.width = self._real.width + self._imag.width + 1

    def __call__(self, value):
        imag = self._imag(value.imag).lstrip()
        return self._real(value.real) + ("" if imag.startswith("-") else "+") + imag + "j"


def _ends(x):
    """The tensor without its omitted middle."""
    edge = _options["edgeitems"]
    for dim in range(x.ndim):
        size = x.shape[dim]
        if size > 2 * edge:
            x = _ops["cat"]([x.narrow(dim, 0, edge), x.narrow(dim, size - edge, edge)], dim) if edge else x.narrow(dim, 0, 0)
    return x


def _lines(values, shape, full, indent, short, write):
    """The elements of a dimension and its inner dimensions. ``full`` are the sizes including omitted elements."""
    edge = _options["edgeitems"]
    cut = short and full[0] > 2 * edge
    if len(shape) == 1:
        items = [write(value) for value in values]
        if cut:
            items[edge:edge] = [" ..."]
        room = max(1, (_options["linewidth"] - indent) // (write.width + 2))
        rows = [", ".join(items[at:at + room]) for at in range(0, len(items), room)]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    items = [_lines(value, shape[1:], full[1:], indent + 1, short, write) for value in values]
    if cut:
        items[edge:edge] = ["..."]
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(items) + "]"


def _flat(values, rank):
    for _ in range(rank - 1):
        values = [one for row in values for one in row]
    return values


def _writer(x, values):
    kind = _Reals if x.dtype.is_floating_point else _Pairs if x.dtype.is_complex else _Others
    return kind(values)


def _elements(x, indent):
    """The elements of a tensor as text."""
    x = x.detach()
    if x.ndim == 0:
        value = x.item()
        return _writer(x, [value])(value)
    short = x.numel() > _options["threshold"]
    shown = _ends(x) if short else x
    values = shown.tolist()
    return _lines(values, shown.shape, x.shape, indent, short, _writer(x, _flat(values, x.ndim)))


def _node(name):
    """A recorded operation by PyTorch's name: ``log_softmax`` is ``LogSoftmaxBackward0``."""
    words = re.split(r"[_\W]+", name.removesuffix("_"))
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backward0"


def _suffixes(x):
    """The properties printed after the elements, if they are not the defaults."""
    found = []
    empty = x.numel() == 0
    if x.device.type != "cpu":
        found.append(f"device='{x.device}'")
    if empty and x.ndim != 1:
        found.append(f"size={tuple(x.shape)}")
    expected = (_c.get_default_dtype(),) if empty else (_c.get_default_dtype(), _default_complex(), _c.int64, _c.bool)
    if x.dtype not in expected:
        found.append(f"dtype={x.dtype!r}")
    if x.grad_fn is not None:
        found.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        found.append("requires_grad=True")
    return found


def text(x, start="tensor("):
    """The result of ``repr``."""
    body = start + (_elements(x, len(start)) if x.numel() else "[]")
    # The length of the last line, with the comma or bracket that follows.
    last = len(body) - body.rfind("\n") + 1
    for suffix in _suffixes(x):
        # On a new line if this one would be too long.
        if last + len(suffix) + 2 > _options["linewidth"]:
            body, last = body + ",\n" + " " * len(start) + suffix, len(start) + len(suffix)
        else:
            body, last = f"{body}, {suffix}", last + len(suffix) + 2
    return body + ")"


def formatted(x, spec):
    """The result of ``format``: for a 0-d tensor, that of its element."""
    if x.ndim == 0 and type(x) is Tensor:
        return format(x.item(), spec)
    return object.__format__(x, spec)
