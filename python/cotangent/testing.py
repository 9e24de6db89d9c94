"""Comparisons for tests: PyTorch's ``torch.testing``."""

from __future__ import annotations

import collections.abc
import math

from . import _cotangent as _c
from ._cotangent import Tensor

_TOLERANCES = {
    _c.float16: (1e-3, 1e-5), _c.bfloat16: (1.6e-2, 1e-5), _c.float32: (1.3e-6, 1e-5), _c.float64: (1e-7, 1e-7),
    _c.complex64: (1.3e-6, 1e-5), _c.complex128: (1e-7, 1e-7),
}


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Asserts that tensors, numbers, or containers of them are close: ``|actual - expected| <= atol + rtol |expected|``.

    By default, the tolerances are those of the less exact dtype.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"assert_close: rtol and atol must be given together, got {rtol} and {atol}")
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "dtype": check_dtype, "device": check_device}
    try:
        _compare(actual, expected, options, "")
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _compare(actual, expected, options, where):
    if isinstance(actual, collections.abc.Mapping) and isinstance(expected, collections.abc.Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(f"The keys of the mappings do not match: {sorted(actual)} and {sorted(expected)}{where}")
        for key in expected:
            _compare(actual[key], expected[key], options, f"{where} at {key!r}")
        return
    sequences = (list, tuple)
    if isinstance(actual, sequences) and isinstance(expected, sequences):
        if len(actual) != len(expected):
            raise AssertionError(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{where}")
        for at, (a, b) in enumerate(zip(actual, expected)):
            _compare(a, b, options, f"{where} at {at}")
        return
    numbers = not isinstance(actual, Tensor) and not isinstance(expected, Tensor)
    a, b = (x if isinstance(x, Tensor) else _c._tensor(x, dtype=_c.float64 if isinstance(x, float) else None) for x in (actual, expected))
    kind = "Scalars" if numbers else "Tensor-likes"
    if a.shape != b.shape:
        raise AssertionError(f"The values for attribute 'shape' do not match: {tuple(a.shape)} != {tuple(b.shape)}.{where}")
    for name in ("device", "dtype"):
        if not numbers and options[name] and getattr(a, name) != getattr(b, name):
            raise AssertionError(f"The values for attribute '{name}' do not match: {getattr(a, name)} != {getattr(b, name)}.{where}")
    rtol, atol = _tolerances(a, b, options)
    a, b = a.detach().to("cpu"), b.detach().to("cpu")
    wide = _c.complex128 if a.is_complex() or b.is_complex() else _c.float64
    if a.dtype != b.dtype or a.is_floating_point() or a.is_complex():
        a, b = a.to(wide), b.to(wide)
    difference = (a - b).abs() if a.dtype is not _c.bool else (a != b)
    close = difference <= atol + rtol * b.abs() if a.dtype is not _c.bool else ~difference
    close = close | (a == b)
    if options["equal_nan"]:
        close = close | (a.isnan() & b.isnan())
    wrong = int((~close).sum())
    if not wrong:
        return
    if a.numel() == 1:
        raise AssertionError(f"{kind} are not close!\n\nExpected {b.item()} but got {a.item()}.\n"
                             f"Absolute difference: {difference.item()} (up to {atol} allowed){where}")
    worst = difference.to(_c.float64).reshape(-1).nan_to_num(math.inf)
    raise AssertionError(f"{kind} are not close!\n\nMismatched elements: {wrong} / {a.numel()} ({100 * wrong / a.numel():.1f}%)\n"
                         f"Greatest absolute difference: {worst.max().item()} (up to {atol} allowed)\n"
                         f"Relative tolerance: {rtol}{where}")


def _tolerances(a, b, options):
    if options["rtol"] is not None:
        return options["rtol"], options["atol"]
    pairs = [_TOLERANCES.get(x.dtype, (0.0, 0.0)) for x in (a, b)]
    return max(one[0] for one in pairs), max(one[1] for one in pairs)
