"""The namespace of the Python array API standard: all of ``cotangent``, with the standard's defaults where PyTorch's differ,
and without functions that differ from NumPy's of the same name.
"""

import cotangent as _ct
from cotangent import _cotangent as _c
from cotangent._core import creation as _creation, dtypes as _dtypes

# PyTorch's functions that are not in the standard and differ in NumPy or SciPy: programs look up a name and expect NumPy's
# behaviour. SciPy's `special` has other arguments, domains and dtypes.
_DIFFERENT = set("""gradient histogram histogramdd load median nanmedian pad put random save select special split transpose
tril_indices triu_indices unique""".split())
globals().update({name: value for name, value in vars(_ct).items() if not name.startswith("__") and name not in _DIFFERENT})
__array_api_version__ = _ct.__array_api_version__
__array_namespace_info__ = _dtypes.__array_namespace_info__
_ops = _c._functions


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The standard deviation, by default of the population (correction 0)."""
    return _ops["std"](x, axis=axis, keepdim=keepdims, correction=1.0 * correction)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variance, by default of the population (correction 0)."""
    return _ops["var"](x, axis=axis, keepdim=keepdims, correction=1.0 * correction)


def meshgrid(*arrays, indexing="xy"):
    """Coordinates of a grid, one tensor for each vector."""
    return [x.clone() for x in _creation.meshgrid(*arrays, indexing=indexing)]


def squeeze(x, /, axis):
    """Removes dimensions, which must have size 1."""
    for dim in axis if isinstance(axis, tuple) else (axis,):
        if x.shape[dim] != 1:
            raise ValueError(f"squeeze: dimension {dim} must have size 1, got shape {list(x.shape)}")
    return _ops["squeeze"](x, axis)


