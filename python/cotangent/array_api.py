"""The namespace that tensors name as that of the Python array API standard: all of ``cotangent``, with the standard's
defaults where PyTorch has others, and without what would be mistaken for a function of NumPy's.
"""

import cotangent as _ct
from cotangent import _cotangent as _c
from cotangent import _creation, _dtypes

# PyTorch's functions that the standard does not have, and that mean something else in NumPy or SciPy: programs look for a name, and
# expect what NumPy gives. SciPy's `special` has other arguments, domains and dtypes.
_DIFFERENT = set("""gradient histogram histogramdd load median nanmedian pad put random save select special split transpose
tril_indices triu_indices unique""".split())
globals().update({name: value for name, value in vars(_ct).items() if not name.startswith("__") and name not in _DIFFERENT})
__array_api_version__ = _ct.__array_api_version__
__array_namespace_info__ = _dtypes.__array_namespace_info__
_ops = _c._functions


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The standard deviation, of the whole population unless a correction says otherwise."""
    return _ops["std"](x, axis=axis, keepdim=keepdims, correction=1.0 * correction)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variance, of the whole population unless a correction says otherwise."""
    return _ops["var"](x, axis=axis, keepdim=keepdims, correction=1.0 * correction)


def meshgrid(*arrays, indexing="xy"):
    """Coordinates of a grid, one tensor for each of the vectors."""
    return [x.clone() for x in _creation.meshgrid(*arrays, indexing=indexing)]


def squeeze(x, /, axis):
    """The tensor without some dimensions, which have size 1."""
    for dim in axis if isinstance(axis, tuple) else (axis,):
        if x.shape[dim] != 1:
            raise ValueError(f"squeeze: dimension {dim} of {list(x.shape)} has not size 1")
    return _ops["squeeze"](x, axis)


