"""matmul, concatenation, and indexing by integers and masks."""

import torch

from .core import DTYPES, HALVES, INF, NAN, encode, tensor

FUNCTIONS = {
    "matmul": torch.matmul,
    "cat": lambda *xs, dim: torch.cat(xs, dim),
    "stack": lambda *xs, dim: torch.stack(xs, dim),
    "gather": lambda x, index, dim: torch.gather(x, dim, index),
    "index_select": lambda x, index, dim: torch.index_select(x, dim, index),
    "scatter_add": lambda x, index, src, dim: torch.scatter_add(x, dim, index, src),
    "masked_fill": lambda x, mask, value: torch.masked_fill(x, mask, value),
    "tril": lambda x, diagonal: torch.tril(x, diagonal),
    "triu": lambda x, diagonal: torch.triu(x, diagonal),
    "embedding": torch.nn.functional.embedding,
    "index": lambda x, index: x[tuple(item(i) for i in index["index"])],
}
NAMES = {
    "cat": ["tensors"],
    "stack": ["tensors"],
    "gather": ["self", "index"],
    "index_select": ["self", "index"],
    "scatter_add": ["self", "index", "src"],
    "masked_fill": ["self", "mask"],
    "embedding": ["self", "weight"],
}


def item(written):
    """An item of an index, from its form in JSON."""
    if isinstance(written, dict) and "slice" in written:
        return slice(*written["slice"])
    if isinstance(written, dict):
        return torch.tensor(written["data"], dtype=DTYPES[written["dtype"]]).reshape(written["shape"])
    return ... if written == "..." else written

MATMULS = [
    ([3], [3]),
    ([3], [3, 4]),
    ([2, 3], [3]),
    ([2, 3], [3, 4]),
    ([1, 1], [1, 1]),
    ([1, 5], [5, 1]),
    ([5, 1], [1, 4]),
    ([9, 17], [17, 5]),
    ([2, 3, 4], [2, 4, 5]),
    ([2, 3, 4], [4, 5]),
    ([3, 4], [2, 4, 5]),
    ([2, 3, 4], [4]),
    ([3], [2, 3, 4]),
    ([1, 2, 3], [4, 3, 2]),
    ([4, 2, 3], [1, 3, 2]),
    ([2, 1, 2, 3], [3, 3, 2]),
    ([2, 1, 2, 3], [1, 4, 3, 2]),
    ([2, 2, 1, 3], [3]),
    ([2, 0], [0, 3]),
    ([0, 3], [3, 2]),
    ([2, 3], [3, 0]),
    ([0], [0]),
    ([0, 2, 3], [3, 4]),
    ([2, 3, 0], [2, 0, 2]),
]


def matmul_cases(book):
    for a, b in MATMULS:
        draw = book.draw("matmul")
        book.add("matmul", [draw.uniform(a), draw.uniform(b)])
    for grad in ([True, False], [False, True]):
        draw = book.draw("matmul")
        book.add("matmul", [draw.uniform([2, 2, 3]), draw.uniform([3, 2])], grad=grad, note="one side")
    for a, b in ([3, 4], [4, 2]), ([2, 3, 4], [4, 2]), ([4], [4]):
        draw = book.draw("matmul")
        book.add("matmul", [draw.uniform(a, dtype="f32"), draw.uniform(b, dtype="f32")])
        for dtype in HALVES:
            draw = book.draw("matmul")
            book.add("matmul", [draw.uniform(a, dtype=dtype), draw.uniform(b, dtype=dtype)], grad=False)
    for dtype in ("i64", "i32", "u8", "bool"):
        draw = book.draw("matmul")
        inputs = [draw.integers([2, 3], 0, 2, dtype), draw.integers([3, 2], 0, 2, dtype)]
        book.add_if_defined("matmul", inputs, grad=False)
    extreme = tensor([[INF, 1.0], [NAN, 0.0], [1e308, 1e308]])
    book.add("matmul", [extreme, tensor([[1.0, 0.0], [2.0, 1.0]])], grad=False, note="extreme")


def join_cases(book):
    for shapes, dim in [
        ([[2, 3], [2, 3]], 0),
        ([[2, 3], [4, 3], [1, 3]], 0),
        ([[2, 3], [2, 1]], 1),
        ([[2, 3], [2, 1]], -1),
        ([[2, 3], [1, 3]], -2),
        ([[5], [2], [3]], 0),
        ([[2, 1, 2], [2, 3, 2]], 1),
        ([[2, 3]], 0),
        ([[2, 0], [2, 3]], 1),
        ([[0, 3], [0, 3]], 0),
    ]:
        draw = book.draw("cat")
        book.add("cat", [draw.uniform(s) for s in shapes], {"dim": dim})
    draw = book.draw("cat")
    book.add("cat", [draw.uniform([0]), draw.uniform([2, 3]), draw.uniform([0])], {"dim": 1}, note="vectors without elements")
    for shape, count, dim in [([2, 3], 2, 0), ([2, 3], 3, 1), ([2, 3], 2, 2), ([2, 3], 2, -1), ([2, 3], 2, -3), ([], 3, 0), ([4], 1, 0), ([0, 2], 2, 1)]:
        draw = book.draw("stack")
        book.add("stack", [draw.uniform(shape) for _ in range(count)], {"dim": dim})
    for op in ("cat", "stack"):
        draw = book.draw(op)
        book.add(op, [draw.uniform([2, 3]), draw.uniform([2, 3]), draw.uniform([2, 3])], {"dim": 0}, grad=[True, False, True])
        book.add(op, [draw.uniform([2, 2], dtype="f32"), draw.uniform([2, 2], dtype="f32")], {"dim": 1})
        for a, b in ("f16", "f16"), ("bf16", "bf16"), ("i64", "i64"), ("bool", "bool"), ("i32", "f32"), ("u8", "i64"), ("f32", "f64"), ("bool", "i8"):
            draw = book.draw(op)
            book.add_if_defined(op, [draw.integers([2, 2], 0, 2, a), draw.integers([2, 2], 0, 2, b)], {"dim": 0}, grad=False, note=f"{a} with {b}")


def gather_cases(book):
    for shape, index, dim in [
        ([2, 3], [2, 3], 0),
        ([2, 3], [2, 3], 1),
        ([2, 3], [2, 5], -1),
        ([3, 4], [1, 2], 0),
        ([3, 4], [2, 3], -2),
        ([2, 3, 4], [2, 5, 2], 1),
        ([2, 3, 4], [1, 2, 4], 2),
        ([6], [9], 0),
        ([3, 4], [3, 0], 1),
        ([], [], 0),
        ([], [3], 0),
        ([3], [], 0),
    ]:
        draw = book.draw("gather")
        x = draw.uniform(shape)
        i = draw.integers(index, 0, shape[dim] if shape else 1)
        book.add("gather", [x, i], {"dim": dim}, note="duplicates" if i.numel() > 2 else None)
        draw = book.draw("scatter_add")
        i = draw.integers(index, 0, shape[dim] if shape else 1)
        book.add("scatter_add", [draw.uniform(shape), i, draw.uniform(index)], {"dim": dim})
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    same = tensor([[0, 0], [0, 0]], "i64")
    book.add("gather", [x, same], {"dim": 0}, note="all the same index")
    book.add("scatter_add", [x, same, x + 1], {"dim": 0}, note="all the same index")
    # PyTorch does not support the gradient of this case.
    book.add("scatter_add", [x, same, tensor([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]])], {"dim": 1}, grad=False, note="source larger than index")
    draw = book.draw("scatter_add")
    i = draw.integers([3, 3], 0, 2)
    for grad in ([True, False, False], [False, False, True]):
        book.add("scatter_add", [draw.uniform([2, 3]), i, draw.uniform([3, 3])], {"dim": 0}, grad=grad, note="one side")
    for dtype in ("f32", "f16", "bf16", "i64", "u8", "bool"):
        draw = book.draw("gather")
        x = draw.integers([2, 3], 0, 2, dtype)
        i = draw.integers([2, 4], 0, 3)
        book.add("gather", [x, i], {"dim": 1})
        if dtype != "bool":
            book.add("scatter_add", [x, draw.integers([2, 4], 0, 3), draw.integers([2, 4], 0, 9, dtype)], {"dim": 1})
    book.add("gather", [x, draw.integers([2, 2], 0, 3, "i32")], {"dim": 1}, note="i32 index")

    for shape, count, dim in [([4, 3], 3, 0), ([4, 3], 5, 1), ([4, 3], 2, -1), ([2, 3, 4], 4, 1), ([2, 3, 4], 6, -3), ([5], 7, 0), ([3, 2], 0, 0), ([2, 1], 3, 1)]:
        draw = book.draw("index_select")
        x = draw.uniform(shape)
        book.add("index_select", [x, draw.integers([count], 0, shape[dim])], {"dim": dim})
    book.add("index_select", [tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1, 1, 1, 0], "i64")], {"dim": 0}, note="duplicates")
    for dtype in ("f32", "f16", "bf16", "i64", "u8", "bool"):
        draw = book.draw("index_select")
        book.add("index_select", [draw.integers([3, 2], 0, 2, dtype), tensor([2, 0, 2], "i32")], {"dim": 0}, note="i32 index")

    for index, rows in [([3], 4), ([2, 3], 4), ([], 4), ([0], 4), ([2, 2, 2], 3), ([6], 1)]:
        draw = book.draw("embedding")
        book.add("embedding", [draw.integers(index, 0, rows), draw.uniform([rows, 3])])
    book.add("embedding", [tensor([1, 1, 0, 1], "i64"), tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])], note="duplicates")
    for more in ({"padding_idx": 1}, {"padding_idx": -1}, {"scale_grad_by_freq": True}, {"padding_idx": 0, "scale_grad_by_freq": True}):
        book.add("embedding", [tensor([[1, 2, 0], [1, 1, 0]], "i64"), tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])], more)
    for dtype in ("f32", "f16", "bf16"):
        draw = book.draw("embedding")
        book.add("embedding", [draw.integers([2, 2], 0, 4, "i32"), draw.uniform([4, 3], dtype=dtype)], note="i32 index")


def mask_cases(book):
    for shape, mask, value in [
        ([2, 3], [2, 3], 0.0),
        ([2, 3], [3], -1.5),
        ([2, 3], [2, 1], 7.0),
        ([2, 3, 4], [3, 1], 0.25),
        ([2, 3], [], 1.0),
        ([], [], 2.0),
        ([0, 3], [3], 1.0),
    ]:
        draw = book.draw("masked_fill")
        book.add("masked_fill", [draw.uniform(shape), draw.integers(mask, 0, 2, "bool")], {"value": value})
    draw = book.draw("masked_fill")
    for dtype, value in (("f32", 2.5), ("f16", 2.5), ("bf16", 2.5), ("i64", 3), ("u8", 3), ("i64", -3)):
        book.add("masked_fill", [draw.integers([2, 3], 0, 9, dtype), draw.integers([3], 0, 2, "bool")], {"value": value})
    x = tensor([1.0, NAN, INF])
    book.add("masked_fill", [x, tensor([False, True, True], "bool")], {"value": 0.0}, note="covers NaN")
    for op in ("tril", "triu"):
        for shape in ([3, 3], [2, 4], [4, 2], [2, 3, 3], [1, 1], [0, 3], [2, 2, 2, 3]):
            diagonals = (0, 1, -1) if shape in ([3, 3], [2, 4], [4, 2]) else (0,)
            for diagonal in diagonals:
                book.add(op, [book.draw(op).uniform(shape)], {"diagonal": diagonal})
        for diagonal in (5, -5):
            book.add(op, [book.draw(op).uniform([3, 3])], {"diagonal": diagonal}, note="beyond the matrix")
        for dtype in ("f32", "f16", "bf16", "i64", "u8", "bool"):
            book.add(op, [book.draw(op).integers([3, 4], 0, 2, dtype)], {"diagonal": 1})
        book.add(op, [tensor([[NAN, INF], [NAN, -INF]])], {"diagonal": 0}, grad=False, note="cut off, not multiplied by 0")


    book.add("index_select", [tensor(5.0), tensor([0], "i64")], {"dim": 0}, note="0-d")
    book.add("gather", [tensor([[1.0, 2.0]]), tensor([], "i64")], {"dim": 1}, note="an empty index")


def span(*ends):
    return {"slice": [*ends, *[None] * (3 - len(ends))]}


def chosen(data, dtype="i64"):
    return encode(tensor(data, dtype))


# The shape of the tensor, and the index.
INDICES = [
    ([3, 4], [1]),
    ([3, 4], [-1, 2]),
    ([3, 4], [span(None, 2)]),
    ([3, 4], [span(1, None), span(None, None, 2)]),
    ([3, 4], [span(-2, None), -1]),
    ([3, 4], [None, span(0, 2)]),
    ([3, 4], ["...", 0]),
    ([2, 3, 4], [0, "...", span(1, 3)]),
    ([2, 3, 4], ["...", None]),
    ([2, 3, 4], [span(None), 1, None]),
    ([3, 4], [chosen([2, 0, 2])]),
    ([3, 4], [chosen([[0, 1], [2, -1]])]),
    ([3, 4], [span(None), chosen([3, 0])]),
    ([3, 4], [chosen([2, 0]), chosen([1, 3])]),
    ([3, 4], [chosen([[2], [0]]), chosen([1, 3, 0])]),
    ([2, 3, 4], [chosen([1, 0]), span(None), chosen([1, 3])]),
    ([2, 3, 4], [span(None), chosen([1, 0]), chosen([1, 3])]),
    ([2, 3, 4], [0, span(None), chosen([1, 3])]),
    ([2, 3, 4], [chosen([1, 0]), 2]),
    ([2, 3, 4], ["...", chosen([0, 0, 1])]),
    ([2, 3, 4], [span(None), None, chosen([2, 2])]),
    ([3, 4], [chosen([True, False, True], "bool")]),
    ([3, 4], [chosen([[True, False, True, False]] * 3, "bool")]),
    ([3, 4], [span(None), chosen([True, False, False, True], "bool")]),
    ([2, 3, 4], [chosen([[True, False, True], [False, True, False]], "bool")]),
    ([2, 3, 4], [chosen([1, 0, 1]), chosen([[True, False, True], [False, True, False]], "bool")][:1]),
    ([3, 4], [chosen([False, False, False], "bool")]),
    ([3, 4], [chosen([], "i64")]),
    ([0, 4], [span(None), chosen([1])]),
    ([5], [chosen([4, 4, 4, 0])]),
    ([], ["..."]),
    ([], [None]),
]


def index_cases(book):
    for shape, items in INDICES:
        book.add("index", [book.draw("index").uniform(shape)], {"index": {"index": items}})
    for dtype in ("f32", "bf16", "i64", "u8", "bool"):
        x = book.draw("index").integers([3, 4], 0, 2, dtype)
        book.add("index", [x], {"index": {"index": [chosen([2, 0]), span(1, None)]}}, grad=False)


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    matmul_cases(book)
    join_cases(book)
    gather_cases(book)
    mask_cases(book)
    index_cases(book)
