"""Linear algebra: PyTorch's ``linalg``, and the linear algebra extension of the array API standard."""

from __future__ import annotations

import collections
import math

from . import _cotangent as _c

_ops = _c._functions
globals().update({name[7:]: value for name, value in _ops.items() if name.startswith("linalg_")})
globals().update({name: _ops[name] for name in ("matmul", "multi_dot", "svdvals", "inv")})

# The standard's functions also take integers.
from ._core.dtypes import finfo as _finfo  # noqa: E402
from ._core.standard import matrix_transpose, tensordot, vecdot  # noqa: E402, F401

# Raised if a factorization fails, for example for a singular matrix.
LinAlgError = ValueError
_QR = collections.namedtuple("QRResult", "Q R")
_SVD = collections.namedtuple("SVDResult", "U S Vh")
_ORDERS = {math.inf: "inf", -math.inf: "-inf", 1: "1", -1: "-1", 2: "2", -2: "-2"}


def qr(A, /, mode="reduced"):
    """The QR decomposition ``A = Q R``: ``Q`` has orthonormal columns, and ``R`` is upper triangular."""
    return _QR(*_ops["linalg_qr"](A, mode))


def svd(A, /, full_matrices=True):
    """The singular value decomposition ``A = U diag(S) Vh``."""
    return _SVD(*_ops["linalg_svd"](A, full_matrices))


def outer(x1, x2, /):
    """The outer product of two vectors."""
    return x1[:, None] * x2[None, :]


def trace(x, /, *, offset=0, dtype=None):
    """The traces of matrices: the sums of their diagonals."""
    from ._core.standard import sum as total

    return total(_ops["linalg_diagonal"](x, offset), axis=-1, dtype=dtype)


def diagonal(x, /, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices."""
    return _ops["linalg_diagonal"](x, offset, dim1, dim2)


def matrix_norm(x, /, ord="fro", dim=(-2, -1), keepdim=False, *, keepdims=False, dtype=None):
    """A norm of matrices: ``"fro"``, ``"nuc"``, 1, 2, inf, or a negative of these numbers."""
    return _ops["linalg_matrix_norm"](x, _order(ord), dim, keepdim or keepdims, dtype)


def _order(ord):
    if isinstance(ord, str):
        return ord
    if ord not in _ORDERS:
        raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', 1, 2, inf or the negative of a number, got {ord}")
    return _ORDERS[ord]


def vector_norm(x, /, ord=2, axis=None, keepdims=False, *, dim=None, keepdim=False, dtype=None):
    """A norm of vectors along dimensions, or of all elements."""
    axis = axis if dim is None else dim
    if ord == math.inf and x.numel() == 0:
        # The maximum norm of no elements is 0, as in NumPy.
        ord = 1
    return _ops["linalg_vector_norm"](x, float(ord), axis, keepdims or keepdim, dtype)



def norm(x, /, ord=None, dim=None, keepdim=False, *, dtype=None):
    """A norm of vectors or matrices, as PyTorch's ``linalg.norm``."""
    pair = dim if isinstance(dim, (tuple, list)) else None
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    if (pair is not None and len(pair) == 2) or (dim is None and x.ndim == 2) or isinstance(ord, str):
        return matrix_norm(x, ord, pair or (-2, -1), keepdim, dtype=dtype)
    return vector_norm(x, ord, dim, keepdim, dtype=dtype)


def matrix_rank(A, /, *, rtol=None, atol=None, hermitian=False):
    """The number of singular values above a tolerance."""
    if rtol is None or isinstance(rtol, (int, float)):
        return _ops["linalg_matrix_rank"](A, atol, rtol, hermitian)
    values = _ops["linalg_svdvals"](A)
    return _ops["count_nonzero"](values > rtol[..., None] * _ops["max"](values, -1, True), -1)


def pinv(A, /, *, rtol=None, atol=None, hermitian=False):
    """The pseudoinverse of matrices."""
    if not isinstance(rtol, _c.Tensor) and not isinstance(atol, _c.Tensor):
        return _ops["linalg_pinv"](A, atol, rtol, hermitian)
    u, s, vh = _ops["linalg_svd"](A, False)
    atol = _like(s, 0.0 if atol is None else atol)
    # As for numbers: with an absolute tolerance the relative one defaults to 0.
    rtol = _ops["where"](atol > 0, 0.0, max(A.shape[-2:]) * _finfo(s.dtype).eps) if rtol is None else _like(s, rtol)
    # The largest singular value comes first, if there are any.
    bound = _ops["maximum"](rtol[..., None] * s[..., :1], atol[..., None])
    large = s > bound
    inverse = _ops["where"](large, 1 / _ops["where"](large, s, 1.0), 0.0)
    return (vh.adjoint() * inverse[..., None, :].to(A.dtype)) @ u.adjoint()


def _like(x, number):
    return number.to(x.dtype) if isinstance(number, _c.Tensor) else _c._tensor(number, dtype=x.dtype, device=x.device)


def solve(x1, x2, /, *, left=True):
    """The solution ``x`` of ``x1 x = x2``; a vector if ``x2`` is a vector."""
    if left and x2.ndim == 1:
        batch = x1.shape[:-2]
        return _ops["linalg_solve"](x1, x2[:, None].expand(*batch, *x2.shape, 1))[..., 0]
    if left and x2.shape == x1.shape[:-1] and (x2.ndim < 2 or x2.shape[-2] != x1.shape[-1]):
        # As in PyTorch, but not in the standard: a vector for each matrix.
        return _ops["linalg_solve"](x1, x2)
    batch = _batch(x1.shape[:-2], x2.shape[:-2])
    x1, x2 = x1.expand(*batch, *x1.shape[-2:]), x2.expand(*batch, *x2.shape[-2:])
    return _ops["linalg_solve"](x1, x2, left)


def _batch(a, b):
    from ._core.standard import broadcast_shapes

    return broadcast_shapes(a, b)


def cross(x1, x2, /, *, axis=-1, dim=None):
    """The cross products of vectors of three elements, with broadcasting."""
    if x1.ndim != x2.ndim:
        x1, x2 = _ops["broadcast_tensors"]([x1, x2])
    return _ops["linalg_cross"](x1, x2, axis if dim is None else dim)
