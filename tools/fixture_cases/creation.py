"""Creation of tensors."""

import torch

from .core import DTYPES, HALVES, tensor


def dtype_of(dtype):
    return None if dtype is None else DTYPES[dtype]


FUNCTIONS = {
    "zeros": lambda size, dtype=None: torch.zeros(size, dtype=dtype_of(dtype)),
    "ones": lambda size, dtype=None: torch.ones(size, dtype=dtype_of(dtype)),
    "full": lambda size, fill_value, dtype=None: torch.full(size, fill_value, dtype=dtype_of(dtype)),
    "zeros_like": lambda x, dtype=None: torch.zeros_like(x, dtype=dtype_of(dtype)),
    "ones_like": lambda x, dtype=None: torch.ones_like(x, dtype=dtype_of(dtype)),
    "full_like": lambda x, fill_value, dtype=None: torch.full_like(x, fill_value, dtype=dtype_of(dtype)),
    "arange": lambda start, end, step=1, dtype=None: torch.arange(start, end, step, dtype=dtype_of(dtype)),
    "linspace": lambda start, end, steps, dtype=None: torch.linspace(start, end, steps, dtype=dtype_of(dtype)),
    "eye": lambda n, m=None, dtype=None: torch.eye(n, n if m is None else m, dtype=dtype_of(dtype)),
}


def add_cases(book):
    book.define(FUNCTIONS)
    for op in ("zeros", "ones"):
        for size in ([2, 3], [], [0, 2]):
            book.add(op, [], {"size": size})
        for dtype in ("f64", *HALVES, "i64", "u8", "bool"):
            book.add(op, [], {"size": [3], "dtype": dtype})
    for size, value in ([2, 2], 1.5), ([], -3), ([3], True), ([0], 2.0):
        book.add("full", [], {"size": size, "fill_value": value})
    for dtype, value in ("f64", 0.1), ("bf16", 0.1), ("i32", 7), ("bool", 1), ("f32", 3):
        book.add("full", [], {"size": [2], "fill_value": value, "dtype": dtype})
    for op, args in ("zeros_like", {}), ("ones_like", {}), ("full_like", {"fill_value": 2}):
        for dtype in ("f64", "f32", "bf16", "i64", "bool"):
            book.add(op, [tensor([[1, 0, 1]], dtype)], args, grad=False)
        book.add(op, [tensor([1.0, 2.0])], {**args, "dtype": "i64"}, grad=False)
    for start, end, step in (0, 5, 1), (2, 11, 3), (5, 0, -2), (0, 0, 1), (0.0, 1.0, 0.25), (0, 2.5, 0.5), (1, -1, -0.4):
        book.add("arange", [], {"start": start, "end": end, "step": step})
    for dtype in ("f64", "f16", "bf16", "i32", "u8"):
        book.add("arange", [], {"start": 0, "end": 5, "dtype": dtype})
    for start, end, steps in (0.0, 1.0, 5), (-2.0, 3.0, 7), (1.0, 1.0, 3), (2.0, -2.0, 2), (3.0, 9.0, 1), (0.0, 1.0, 0):
        for dtype in (None, "f64"):
            book.add("linspace", [], {"start": start, "end": end, "steps": steps, "dtype": dtype})
    for start, end in ((4.3, 0.0), (-2.7, 2.7), (0.9, 7.9)):
        book.add("linspace", [], {"start": start, "end": end, "steps": 6, "dtype": "i64"}, note="integers between fractions")
    for args in {"n": 3}, {"n": 0}, {"n": 2, "m": 4}, {"n": 4, "m": 2}, {"n": 2, "m": 0}, {"n": 2, "dtype": "i64"}, {"n": 2, "dtype": "bool"}:
        book.add("eye", [], args)
