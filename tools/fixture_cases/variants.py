"""Variants of operations: bounds, distances of vectors, shuffles and the outputs of unique."""

import torch
import torch.nn.functional as F

from .core import DTYPES, INF, NAN, tensor

def one_or_more(f):
    def call(x, **args):
        out = f(x, **args)
        return out if isinstance(out, torch.Tensor) else tuple(out)

    return call


FUNCTIONS = {
    "clamp_min": lambda x, y=None, min=None: torch.clamp_min(x, min if y is None else y),
    "clamp_max": lambda x, y=None, max=None: torch.clamp_max(x, max if y is None else y),
    "allclose": lambda x, y, **args: torch.tensor(torch.allclose(x, y, **args)),
    "fill": lambda x, y=None, value=None: torch.fill(x, value if y is None else y),
    "constant_pad_nd": torch.constant_pad_nd,
    "nonzero_static": torch.nonzero_static,
    "pixel_shuffle": F.pixel_shuffle,
    "pixel_unshuffle": F.pixel_unshuffle,
    "channel_shuffle": F.channel_shuffle,
    "cdist": lambda x, y, p=2.0: torch.cdist(x, y, p),
    "pdist": lambda x, p=2.0: F.pdist(x, p),
    "pairwise_distance": F.pairwise_distance,
    "cosine_similarity": F.cosine_similarity,
    "normalize": F.normalize,
    "unique": one_or_more(torch.unique),
    "unique_consecutive": one_or_more(torch.unique_consecutive),
}
NAMES = {
    "clamp_min": ["self", "min"],
    "clamp_max": ["self", "max"],
    "fill": ["self", "value"],
    **{op: ["self", "x2"] for op in ("cdist", "pairwise_distance", "cosine_similarity")},
}


def add_simple(book):
    for op in ("clamp_min", "clamp_max"):
        bound = op[-3:]
        book.add(op, [book.draw(op).uniform([2, 3]), None], {bound: 0.5})
        draw = book.draw(op)
        book.add(op, [draw.uniform([2, 3]), draw.uniform([3])])
        book.add(op, [tensor([1, -2, 3], "i64"), None], {bound: 0}, grad=False)
        book.add(op, [tensor([1, -2, 3], "i64"), None], {bound: 0.5}, grad=False, note="a float with integers")
        book.add(op, [tensor([NAN, 1.0, INF, -INF]), None], {bound: 0.0}, grad=False)
    x = tensor([1.0, 2.0, INF])
    for y, args in (x, {}), (x + 0.01, {}), (x + 0.01, {"rtol": 0.1}), (tensor([1.0, 2.0, -INF]), {}), (tensor([1.0, NAN, INF]), {"equal_nan": True}):
        book.add("allclose", [x, y], args, grad=False)
    book.add("allclose", [tensor([NAN]), tensor([NAN])], {"equal_nan": True}, grad=False)
    book.add("allclose", [torch.zeros(0), torch.zeros(0)], {}, grad=False)
    book.add("fill", [book.draw("fill").uniform([2, 3]), None], {"value": 2.5})
    book.add("fill", [book.draw("fill").uniform([2, 3]), tensor(2.5)])
    book.add("fill", [tensor([1, 2], "i64"), None], {"value": 3}, grad=False)
    for args in {"pad": [1, 2]}, {"pad": [-1, 1, 0, 2], "value": 1.5}:
        book.add("constant_pad_nd", [book.draw("constant_pad_nd").uniform([3, 4])], args)
    for args in {"size": 2}, {"size": 6}, {"size": 6, "fill_value": 7}, {"size": 0}:
        book.add("nonzero_static", [tensor([[0, 1, 2], [3, 0, 0]], "i64")], args, grad=False)
    for shape in ([1, 4, 2, 3], [8, 1, 2], [2, 2, 4, 1, 1]):
        book.add("pixel_shuffle", [book.draw("pixel_shuffle").uniform(shape)], {"upscale_factor": 2})
    for shape in ([1, 1, 4, 6], [2, 2, 2]):
        book.add("pixel_unshuffle", [book.draw("pixel_unshuffle").uniform(shape)], {"downscale_factor": 2})
    for shape, groups in ([1, 4, 2], 2), ([2, 6, 1, 2], 3), ([2, 6, 1, 2], 1):
        book.add("channel_shuffle", [book.draw("channel_shuffle").uniform(shape)], {"groups": groups})


def add_distances(book):
    for p in (2.0, 1.0, 3.0, 0.5):
        for a, b in ([3, 2], [4, 2]), ([2, 3, 2], [2, 1, 2]), ([1, 3, 2], [3, 4, 2]):
            draw = book.draw("cdist")
            book.add("cdist", [draw.uniform(a), draw.uniform(b)], {"p": p}, rtol=1e-9, atol=1e-12)
        book.add("pdist", [book.draw("pdist").uniform([4, 3])], {"p": p})
        draw = book.draw("pairwise_distance")
        book.add("pairwise_distance", [draw.uniform([3, 2]), draw.uniform([3, 2])], {"p": p})
        book.add("normalize", [book.draw("normalize").uniform([3, 2])], {"p": p})
    x = tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    book.add("cdist", [x, x[:1]], {}, note="a distance of 0")
    book.add("cdist", [torch.zeros(0, 2).double(), x], {}, grad=False, note="size 0")
    book.add("cdist", [torch.zeros(3, 0).double(), torch.zeros(2, 0).double()], {}, grad=False, note="size 0")
    book.add("pdist", [x], {"p": 1.0}, grad=False, note="a distance of 0")
    draw = book.draw("pairwise_distance")
    book.add("pairwise_distance", [draw.uniform([2, 3]), draw.uniform([3])], {"keepdim": True, "eps": 0.1})
    for a, b, args in ([3, 2], [3, 2], {}), ([3, 2], [3, 1], {"dim": 0}), ([2, 3, 2], [3, 2], {"dim": -1, "eps": 0.01}), ([4], [4], {"dim": 0}):
        draw = book.draw("cosine_similarity")
        book.add("cosine_similarity", [draw.uniform(a), draw.uniform(b)], args)
    book.add("cosine_similarity", [tensor(2.0), tensor(-3.0)], {"dim": 0}, grad=False, note="numbers")
    book.add("cosine_similarity", [tensor([[0.0, 0.0]]), tensor([[1.0, 0.0]])], {}, grad=False, note="of 0")
    book.add("normalize", [book.draw("normalize").uniform([4])], {"dim": 0})
    book.add("normalize", [tensor([[0.0, 0.0], [3.0, 4.0]])], {}, grad=False, note="of 0")


def add_unique(book):
    x = tensor([[3, 3, 1], [1, 1, 3]], "i64")
    for op in ("unique", "unique_consecutive"):
        for args in {}, {"return_inverse": True}, {"return_counts": True}, {"return_inverse": True, "return_counts": True}:
            for dim in (None, 0, -1):
                book.add(op, [x], {**args, **({} if dim is None else {"dim": dim})}, grad=False)
        book.add(op, [tensor([2.5, 2.5, -1.0])], {"return_counts": True}, grad=False)
        book.add(op, [tensor(2.5)], {"return_inverse": True}, grad=False)
        book.add(op, [tensor([], "i64")], {"return_inverse": True, "return_counts": True}, grad=False)


def add_ranges(book):
    book.define({"arange": lambda start, end=None, step=1, dtype=None: torch.arange(*([start] if end is None else [start, end, step]), dtype=DTYPES[dtype] if dtype else None)})
    for args in {"start": 3}, {"start": 2.5}, {"start": 0}, {"start": 3, "dtype": "f64"}, {"start": -0.9, "end": 2.1, "step": 2.0, "dtype": "i64"}:
        book.add("arange", [], args)


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    add_ranges(book)
    add_simple(book)
    add_distances(book)
    add_unique(book)
    for dim, index in (1, [[-1], [0]]), (0, [[-2, 1, -1]]):
        draw = book.draw("take_along_dim")
        book.add("take_along_dim", [draw.uniform([2, 3]), tensor(index, "i64")], {"dim": dim}, grad=[True, False], note="negative")
