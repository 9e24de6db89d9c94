"""Scatter, gather, masks and indices of elements."""

import torch

from .core import HALVES, INF, NAN, tensor
from .indexing import item


def scatter(x, index, src, dim, value=None, reduce=None):
    if src is None:
        return x.scatter(dim, index, value) if reduce is None else x.scatter(dim, index, value, reduce=reduce)
    return x.scatter(dim, index, src) if reduce is None else x.scatter(dim, index, src, reduce=reduce)


FUNCTIONS = {
    "scatter": lambda x, index, source=None, dim=0, src=None, reduce=None: scatter(x, index, source, dim, src, reduce),
    "scatter_reduce": lambda x, index, src, dim, reduce, include_self=True: x.scatter_reduce(
        dim, index, src, reduce, include_self=include_self
    ),
    "index_add": lambda x, index, source, dim, alpha=1: x.index_add(dim, index, source, alpha=alpha),
    "index_copy": lambda x, index, source, dim: x.index_copy(dim, index, source),
    "index_fill": lambda x, index, filled=None, dim=0, value=None: x.index_fill(dim, index, value if filled is None else filled),
    "index_reduce": lambda x, index, source, dim, reduce, include_self=True: x.index_reduce(
        dim, index, source, reduce, include_self=include_self
    ),
    "take": lambda x, index: x.take(index),
    "take_along_dim": lambda x, indices, dim=None: torch.take_along_dim(x, indices, dim),
    "put": lambda x, index, source, accumulate=False: x.put(index, source, accumulate),
    "index_put": lambda x, values, indices, accumulate=False: x.index_put(
        tuple(item(i) for i in indices["index"]), values, accumulate
    ),
    "masked_select": torch.masked_select,
    "masked_scatter": lambda x, mask, source: x.masked_scatter(mask, source),
    "nonzero": torch.nonzero,
    "unravel_index": lambda x, shape: torch.unravel_index(x, shape),
}
NAMES = {
    "scatter": ["self", "index", "src"],
    "scatter_reduce": ["self", "index", "src"],
    **{op: ["self", "index", "source"] for op in ("index_add", "index_copy", "index_reduce", "put")},
    "index_fill": ["self", "index", "value"],
    "take": ["self", "index"],
    "take_along_dim": ["self", "indices"],
    "index_put": ["self", "values"],
    "masked_select": ["self", "mask"],
    "masked_scatter": ["self", "mask", "source"],
}
REDUCES = ("sum", "prod", "mean", "amax", "amin")


def scatter_cases(book):
    for shape, index, src, dim in [
        ([3, 4], [[2, 0, 1, 2], [0, 2, 0, 1]], [2, 4], 0),
        ([3, 4], [[3, 1], [0, 2], [1, 0]], [3, 5], -1),
        ([5], [4, 0, 2], [3], 0),
    ]:
        draw = book.draw("scatter")
        index = tensor(index, "i64")
        # PyTorch supports the gradient of the source only if all of it is used.
        grad = "auto" if list(index.shape) == src else [True, False, False]
        book.add("scatter", [draw.uniform(shape), index, draw.uniform(src)], {"dim": dim}, grad=grad)
        for dtype in ("i64", "i32", "u8", "bool", *HALVES):
            book.add("scatter", [draw.integers(shape, 0, 2, dtype), index, draw.integers(src, 0, 2, dtype)], {"dim": dim}, grad=False)
        book.add("scatter", [draw.uniform(shape), index, None], {"dim": dim, "src": 1.5})
        book.add("scatter", [draw.integers(shape, 0, 9), index, None], {"dim": dim, "src": 7}, grad=False)
        for reduce in ("add", "multiply"):
            book.add("scatter", [draw.uniform(shape), index, draw.uniform(src)], {"dim": dim, "reduce": reduce}, grad=False)
            book.add("scatter", [draw.integers(shape, 0, 9), index, None], {"dim": dim, "reduce": reduce, "src": 3}, grad=False)
    repeated = tensor([2, 0, 2, 2], "i64")
    book.add("scatter", [tensor([1.0, 2.0, 3.0]), repeated, tensor([4.0, 5.0, 6.0, 7.0])], {"dim": 0}, grad=False, note="the last one stays")
    book.add("scatter", [tensor(1.0), tensor(0, "i64"), tensor(2.0)], {"dim": 0}, note="single numbers")


def reduce_cases(book):
    op = "scatter_reduce"
    index = tensor([[2, 2, 0, 1], [1, 1, 0, 0]], "i64")
    for reduce in REDUCES:
        for include_self in (True, False):
            args = {"dim": 1, "reduce": reduce, "include_self": include_self}
            draw = book.draw(op)
            book.add(op, [draw.uniform([2, 3]), index, draw.uniform([2, 4])], args)
            book.add(op, [draw.integers([2, 3], -9, 9), index, draw.integers([2, 4], -9, 9)], args, grad=False)
            book.add(op, [draw.integers([2, 3], 0, 9, "u8"), index, draw.integers([2, 4], 0, 9, "u8")], args, grad=False)
            book.add(op, [draw.uniform([2, 3], dtype="f32"), index, draw.uniform([2, 4], dtype="f32")], args)
            book.add(op, [draw.integers([2, 3], 1, 4, "f16"), index, draw.integers([2, 4], 1, 4, "f16")], args, grad=False)
        args = {"dim": 0, "reduce": reduce}
        book.add(op, [tensor([1.0, NAN, 3.0]), tensor([0, 0, 1, 2], "i64"), tensor([2.0, NAN, 1.0, INF])], args, grad=False, note="extreme")
        if reduce != "mean":
            book.add(op, [tensor([2.0, 2.0, 0.0]), tensor([0, 0, 1, 2], "i64"), tensor([2.0, 0.0, 2.0, 0.0])], args, note="ties and zeros")
    for reduce in REDUCES[1:]:
        for include_self in (True, False):
            draw = book.draw("index_reduce")
            args = {"dim": -2, "reduce": reduce, "include_self": include_self}
            inputs = [draw.uniform([3, 2]), tensor([2, 0, 2], "i64"), draw.uniform([3, 2])]
            book.add("index_reduce", inputs, args)
            book.add("index_reduce", [draw.integers([3, 2], 1, 9), inputs[1], draw.integers([3, 2], 1, 9)], args, grad=False)


def along_cases(book):
    for op in ("index_add", "index_copy"):
        for shape, index, source, dim in [
            ([3, 2], [2, 0], [2, 2], 0),
            ([2, 4, 2], [3, 1, 0], [2, 3, 2], -2),
            ([4], [1], [1], 0),
            ([2, 3], [], [0, 3], 0),
        ]:
            draw = book.draw(op)
            book.add(op, [draw.uniform(shape), tensor(index, "i64"), draw.uniform(source)], {"dim": dim})
            for dtype in ("i64", "u8", *HALVES, "bool"):
                inputs = [draw.integers(shape, 0, 2, dtype), tensor(index, "i32" if op == "index_add" else "i64"), draw.integers(source, 0, 2, dtype)]
                book.add_if_defined(op, inputs, {"dim": dim}, grad=False)
    draw = book.draw("index_add")
    inputs = [draw.uniform([3]), tensor([2, 0, 2], "i64"), draw.uniform([3])]
    book.add("index_add", inputs, {"dim": 0, "alpha": -1.5})
    book.add("index_add", [draw.integers([3], 0, 9), inputs[1], draw.integers([3], 0, 9)], {"dim": 0, "alpha": 3}, grad=False)
    book.add("index_add", [tensor(1.0), tensor([0], "i64"), tensor(2.0)], {"dim": 0}, note="a single number")
    op = "index_fill"
    for shape, index, dim in ([3, 2], [2, 0], 0), ([2, 3], [-1], 1), ([2, 3], [], 0), ([4], [1, 1], -1):
        draw = book.draw(op)
        # PyTorch's gradient does not support negative indices.
        grad = False if -1 in index else "auto"
        book.add(op, [draw.uniform(shape), tensor(index, "i64"), None], {"dim": dim, "value": 2.5}, grad=grad)
        book.add(op, [draw.uniform(shape), tensor(index, "i64"), tensor(1.5)], {"dim": dim}, grad=grad)
        book.add(op, [draw.integers(shape, 0, 9), tensor(index, "i64"), None], {"dim": dim, "value": 2}, grad=False)
        book.add(op, [draw.integers(shape, 0, 2, "bool"), tensor(index, "i64"), None], {"dim": dim, "value": True}, grad=False)


def number_cases(book):
    for shape, index in ([2, 3], [[5, 0], [-1, -6]]), ([4], 2), ([], [0, -1]), ([2, 3], []):
        draw = book.draw("take")
        book.add("take", [draw.uniform(shape), tensor(index, "i64")])
        book.add("take", [draw.integers(shape, 0, 9), tensor(index, "i64")], grad=False)
    for shape, index, dim in [
        ([2, 3], [[2, 0], [1, 1]], 1),
        ([2, 3], [[1], [0], [1]], 0),
        ([1, 3], [[2], [0]], -1),
        ([2, 3], [[5, 0], [3, 3]], None),
    ]:
        draw = book.draw("take_along_dim")
        args = {} if dim is None else {"dim": dim}
        book.add("take_along_dim", [draw.uniform(shape), tensor(index, "i64")], args)
        book.add("take_along_dim", [draw.integers(shape, 0, 9), tensor(index, "i64")], args, grad=False)
    for shape, index, source in ([2, 3], [5, 0, -2], [3]), ([2, 3], [[1, 3]], [2]), ([4], [], [0]), ([], [0], [1]):
        draw = book.draw("put")
        book.add("put", [draw.uniform(shape), tensor(index, "i64"), draw.uniform(source)])
        book.add("put", [draw.uniform(shape), tensor(index, "i64"), draw.uniform(source)], {"accumulate": True})
        book.add("put", [draw.integers(shape, 0, 9), tensor(index, "i64"), draw.integers(source, 0, 9)], grad=False)
    book.add("put", [tensor([1.0, 2.0]), tensor([1, 1, 1], "i64"), tensor([3.0, 4.0, 5.0])], {"accumulate": True}, note="one place")

    def written(values):
        t = torch.tensor(values)
        dtype = "bool" if t.dtype == torch.bool else "i64"
        return {"shape": list(t.shape), "dtype": dtype, "data": t.reshape(-1).tolist()}

    mask = [[True, False, True], [False, False, True]]
    for shape, index, values in [
        ([3, 4], [written([0, 2]), written([1, 3])], [2]),
        ([3, 4], [written([0, -1])], [2, 4]),
        ([3, 4], [written([0, 2])], [4]),
        ([3, 4, 2], [written([[0, 2]]), written([[1], [3]])], [1, 2, 2]),
        ([2, 3], [written(mask)], [3]),
        ([2, 3], [written(mask)], []),
        ([2, 3, 2], [written(mask)], [3, 2]),
    ]:
        draw = book.draw("index_put")
        for accumulate in (False, True):
            args = {"indices": {"index": index}, "accumulate": accumulate}
            book.add("index_put", [draw.uniform(shape), draw.uniform(values)], args)
            book.add("index_put", [draw.integers(shape, 0, 9), draw.integers(values, 0, 9)], args, grad=False)
    args = {"indices": {"index": [written([1, 1, 1])]}, "accumulate": True}
    book.add("index_put", [tensor([1.0, 2.0]), tensor([3.0, 4.0, 5.0])], args, note="one place")


def mask_cases(book):
    for shape, mask in ([2, 3], [2, 3]), ([2, 3], [3]), ([3], [2, 1]), ([], []), ([0, 2], [2]), ([2, 2, 2], [2, 1, 2]):
        draw = book.draw("masked_select")
        chosen = draw.integers(mask, 0, 2, "bool")
        book.add("masked_select", [draw.uniform(shape), chosen])
        for dtype in ("i64", "bool", *HALVES):
            book.add("masked_select", [draw.integers(shape, 0, 2, dtype), chosen], grad=False)
        source = torch.broadcast_shapes(shape, mask)
        draw = book.draw("masked_scatter")
        if list(source) == shape:
            book.add("masked_scatter", [draw.uniform(shape), chosen, draw.uniform(source)])
        book.add("masked_scatter", [draw.integers(shape, 0, 9), chosen, draw.integers(source, 0, 9)], grad=False)
    for shape in [7], [2, 3], [2, 3, 2], [0, 2], [], [1]:
        draw = book.draw("nonzero")
        for dtype in ("f64", "f32", "i64", "u8", "bool", *HALVES):
            book.add("nonzero", [draw.integers(shape, 0, 2, dtype)], grad=False)
    book.add("nonzero", [tensor([NAN, 0.0, -0.0, INF, 1e-320])], grad=False, note="extreme")
    for numbers, shape in ([5, 0, 3], [2, 3]), ([[7], [11]], [2, 3, 2]), (3, [4]), ([], [2, 2]):
        book.add("unravel_index", [tensor(numbers, "i64")], {"shape": shape}, grad=False)


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    scatter_cases(book)
    reduce_cases(book)
    along_cases(book)
    number_cases(book)
    mask_cases(book)
