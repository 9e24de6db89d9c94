"""Functions with arguments of PyTorch's that the operations of the list do not take."""

from __future__ import annotations

import collections

from . import _cotangent as _c
from ._cotangent import Tensor

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "cdist", "ctc_loss", "histogramdd", "lu"]
_ops = _c._functions
_Histogramdd = collections.namedtuple("_Histogramdd", "hist bin_edges")


def atleast_1d(*tensors):
    """A tensor, or each of several, with one dimension or more."""
    return _each("atleast_1d", tensors)


def atleast_2d(*tensors):
    """A tensor, or each of several, with two dimensions or more."""
    return _each("atleast_2d", tensors)


def atleast_3d(*tensors):
    """A tensor, or each of several, with three dimensions or more."""
    return _each("atleast_3d", tensors)


def _each(name, tensors):
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    elif len(tensors) == 1:
        return _ops[name](tensors[0])
    return tuple(_ops[name](x) for x in tensors)


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distances of all pairs of rows. How they are computed depends on their sizes, whatever ``compute_mode`` says."""
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"cdist: compute_mode is one of {', '.join(modes)}, not {compute_mode!r}")
    return _ops["cdist"](x1, x2, p)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The loss of connectionist temporal classification; lengths are tensors or sequences of ints."""
    lengths = (x if isinstance(x, Tensor) else _c._tensor(x, dtype=_c.int64) for x in (input_lengths, target_lengths))
    return _ops["ctc_loss"](log_probs, targets, *lengths, blank, reduction, zero_infinity)


def lu(A, pivot=True, get_infos=False):
    """The LU factorization in one tensor, and the pivots, as ``linalg.lu_factor``; with ``get_infos`` also how it went."""
    if get_infos:
        return tuple(_ops["linalg_lu_factor_ex"](A, pivot))
    return tuple(_ops["linalg_lu_factor"](A, pivot))


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """How many points are in each of some boxes, and the edges of these along each dimension.

    ``bins`` is the number of bins along all dimensions or along each, or the edges along each.
    """
    if not (isinstance(bins, (list, tuple)) and bins and isinstance(bins[0], Tensor)):
        bins = [bins] if isinstance(bins, int) else bins
        hist, *edges = _ops["histogramdd"](input, bins, range, weight, density)
        return _Histogramdd(hist, tuple(edges))
    if range is not None:
        raise ValueError("histogramdd: there is a range beside edges")
    if input.ndim < 2 or len(bins) != input.shape[-1]:
        raise ValueError(f"histogramdd: {len(bins)} vectors of edges for points of shape {list(input.shape)}")
    return _Histogramdd(_in_boxes(input.detach(), bins, weight, density), tuple(edges.clone() for edges in bins))


def _in_boxes(input, bins, weight, density):
    points = input.reshape((-1, len(bins)))
    weight = _ops["ones_like"](points[:, 0]) if weight is None else weight.detach().reshape((-1,))
    place = _ops["zeros_like"](points[:, 0], dtype=_c.int64)
    inside = _ops["ones_like"](place, dtype=_c.bool)
    volume = _c._tensor([1.0], dtype=input.dtype, device=input.device)
    for k, edges in enumerate(bins):
        _ops["histogram"](points[:0, k], edges)  # which refuses what are no edges
        x, count = points[:, k].clone(), edges.shape[0] - 1
        # The last bin has its upper edge, too.
        at = _ops["clamp"](_ops["searchsorted"](edges, x, right=True) - 1, max=count - 1)
        inside = inside & (x >= edges[0]) & (x <= edges[-1])
        place = place * count + at
        volume = (volume[:, None] * (edges[1:] - edges[:-1])).reshape((-1,))
    hist = _ops["bincount"](place[inside], weight[inside], volume.shape[0]).to(input.dtype)
    if density:
        hist = hist / (hist.sum() * volume)
    return hist.reshape([edges.shape[0] - 1 for edges in bins])
