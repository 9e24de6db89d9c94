"""Creation like another tensor, powers, and indices of triangles."""

import torch

from .core import HALVES, tensor
from .creation import dtype_of

FUNCTIONS = {
    "new_zeros": lambda x, size, dtype=None: x.new_zeros(size, dtype=dtype_of(dtype)),
    "new_ones": lambda x, size, dtype=None: x.new_ones(size, dtype=dtype_of(dtype)),
    "new_full": lambda x, size, fill_value, dtype=None: x.new_full(size, fill_value, dtype=dtype_of(dtype)),
    "scalar_tensor": lambda s, dtype=None: torch.scalar_tensor(s, dtype=dtype_of(dtype)),
    "logspace": lambda start, end, steps, base=10.0, dtype=None: torch.logspace(start, end, steps, base, dtype=dtype_of(dtype)),
    "tril_indices": lambda row, col, offset=0, dtype="i64": torch.tril_indices(row, col, offset, dtype=dtype_of(dtype)),
    "triu_indices": lambda row, col, offset=0, dtype="i64": torch.triu_indices(row, col, offset, dtype=dtype_of(dtype)),
    "one_hot": lambda x, num_classes=-1: torch.nn.functional.one_hot(x, num_classes),
    "vander": lambda x, N=None, increasing=False: vander(x, N, increasing),
}


def vander(x, N, increasing):
    if not x.requires_grad:
        return torch.vander(x, N, increasing)
    # The gradient fails in PyTorch 2.15: an in-place product overwrites a saved tensor.
    columns = [x**k for k in range(x.numel() if N is None else N)]
    return torch.stack(columns if increasing else columns[::-1], 1)


def add_cases(book):
    book.define(FUNCTIONS)
    for op, args in ("new_zeros", {}), ("new_ones", {}), ("new_full", {"fill_value": 3}):
        for dtype in ("f64", "f32", *HALVES, "i64", "u8", "bool"):
            book.add(op, [tensor([1, 0], dtype)], {"size": [2, 1], **args}, grad=False)
        book.add(op, [tensor([1.0])], {"size": [], "dtype": "i32", **args}, grad=False)
        book.add(op, [tensor([1.0])], {"size": [0, 2], **args}, grad=False)
    for value, dtype in (2.5, None), (3, None), (True, None), (3, "i64"), (2.5, "i32"), (0.1, "f64"), (1, "bool"):
        book.add("scalar_tensor", [], {"s": value} if dtype is None else {"s": value, "dtype": dtype})
    for start, end, steps in (0.0, 2.0, 5), (-1.0, 1.0, 4), (3.0, 1.0, 1), (1.0, 2.0, 0), (2.0, -2.0, 3):
        book.add("logspace", [], {"start": start, "end": end, "steps": steps}, rtol=1e-5)
        book.add("logspace", [], {"start": start, "end": end, "steps": steps, "base": 2.0, "dtype": "f64"}, rtol=1e-12)
    book.add("logspace", [], {"start": 4.3, "end": 0.0, "steps": 4, "base": 5.0, "dtype": "i64"}, note="integers between fractions")
    for op in ("tril_indices", "triu_indices"):
        for row, col, offset in (3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, -5), (3, 3, 5), (0, 3, 0), (3, 0, 0), (1, 1, 0):
            book.add(op, [], {"row": row, "col": col, "offset": offset})
        book.add(op, [], {"row": 2, "col": 3, "dtype": "i32"})
    for values, classes in ([2, 0, 1], -1), ([[2, 0], [1, 1]], 5), (1, 2), (0, -1):
        book.add("one_hot", [tensor(values, "i64")], {"num_classes": classes}, grad=False)
    book.add("one_hot", [torch.zeros([0, 2], dtype=torch.int64)], {"num_classes": 3}, grad=False)
    for shape, args in ([3], {}), ([3], {"N": 4}), ([3], {"N": 2, "increasing": True}), ([1], {"increasing": True, "N": 3}):
        draw = book.draw("vander")
        book.add("vander", [draw.uniform(shape)], args)
        book.add("vander", [draw.uniform(shape, dtype="f32")], args)
        for dtype in ("i64", "i32", "u8"):
            book.add("vander", [draw.integers(shape, 0, 5, dtype)], args, grad=False)
    book.add("vander", [tensor([2.0, 0.0])], {"N": 1}, grad=False)
    book.add("vander", [tensor([0.0, -1.0])], {"N": 3}, note="zero")
