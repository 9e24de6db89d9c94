"""Functions with arguments of PyTorch that the crate's operations lack."""

from __future__ import annotations

import collections

from .. import _cotangent as _c
from .._cotangent import Tensor

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "cdist", "ctc_loss", "histogramdd", "lu"]
_ops = _c._functions
_Histogramdd = collections.namedtuple("_Histogramdd", "hist bin_edges")


def atleast_1d(*tensors):
    """A tensor, or each of several, with at least one dimension."""
    return _each("atleast_1d", tensors)


def atleast_2d(*tensors):
    """A tensor, or each of several, with at least two dimensions."""
    return _each("atleast_2d", tensors)


def atleast_3d(*tensors):
    """A tensor, or each of several, with at least three dimensions."""
    return _each("atleast_3d", tensors)


def _each(name, tensors):
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    elif len(tensors) == 1:
        return _ops[name](tensors[0])
    return tuple(_ops[name](x) for x in tensors)


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distances of all pairs of rows. ``compute_mode`` has no effect: the algorithm depends on the sizes."""
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"cdist: compute_mode must be one of {', '.join(modes)}, got {compute_mode!r}")
    return _ops["cdist"](x1, x2, p)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The connectionist temporal classification loss; lengths are tensors or sequences of ints."""
    lengths = (x if isinstance(x, Tensor) else _c._tensor(x, dtype=_c.int64) for x in (input_lengths, target_lengths))
    return _ops["ctc_loss"](log_probs, targets, *lengths, blank, reduction, zero_infinity)


def lu(A, pivot=True, get_infos=False):
    """The compact LU factorization and the pivots, as ``linalg.lu_factor``; with ``get_infos`` also the error codes."""
    if get_infos:
        return tuple(_ops["linalg_lu_factor_ex"](A, pivot))
    return tuple(_ops["linalg_lu_factor"](A, pivot))


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """A multi-dimensional histogram of points, and the edges along each dimension.

    ``bins`` is the number of bins of all dimensions or of each, or the edges along each.
    """
    if not (isinstance(bins, (list, tuple)) and bins and isinstance(bins[0], Tensor)):
        bins = [bins] if isinstance(bins, int) else bins
        hist, *edges = _ops["histogramdd"](input, bins, range, weight, density)
        return _Histogramdd(hist, tuple(edges))
    if range is not None:
        raise ValueError("histogramdd: range cannot be combined with edges")
    if input.ndim < 2 or len(bins) != input.shape[-1]:
        raise ValueError(f"histogramdd: bins must have a vector of edges for each column, got {len(bins)} for shape {list(input.shape)}")
    return _Histogramdd(_in_boxes(input.detach(), bins, weight, density), tuple(edges.clone() for edges in bins))


def _in_boxes(input, bins, weight, density):
    points = input.reshape((-1, len(bins)))
    weight = _ops["ones_like"](points[:, 0]) if weight is None else weight.detach().reshape((-1,))
    place = _ops["zeros_like"](points[:, 0], dtype=_c.int64)
    inside = _ops["ones_like"](place, dtype=_c.bool)
    volume = _c._tensor([1.0], dtype=input.dtype, device=input.device)
    for k, edges in enumerate(bins):
        _ops["histogram"](points[:0, k], edges)  # checks the edges
        x, count = points[:, k].clone(), edges.shape[0] - 1
        # The last bin includes its upper edge.
        at = _ops["clamp"](_ops["searchsorted"](edges, x, right=True) - 1, max=count - 1)
        inside = inside & (x >= edges[0]) & (x <= edges[-1])
        place = place * count + at
        volume = (volume[:, None] * (edges[1:] - edges[:-1])).reshape((-1,))
    hist = _ops["bincount"](place[inside], weight[inside], volume.shape[0]).to(input.dtype)
    if density:
        hist = hist / (hist.sum() * volume)
    return hist.reshape([edges.shape[0] - 1 for edges in bins])
