"""Reductions over everything and over dims, softmax and its like."""

import torch

from .core import HALVES, INF, NAN, Book, tensor

ALL = "all"


def dims_of(dims):
    """ "all" stands for `..` in Rust, which is no `dim` at all here."""
    return None if dims == ALL else dims


def prod_dim(x, dims, keepdim):
    """PyTorch's prod takes one dim; several are one after the other, the last first."""
    if dims == ALL:
        dims = list(range(x.dim()))
    dims = [dims] if isinstance(dims, int) else dims
    for d in sorted((d % max(x.dim(), 1) for d in dims), reverse=True):
        x = torch.prod(x, d, keepdim=keepdim)
    return x


def logsumexp(x, dims, keepdim):
    dims = list(range(x.dim())) if dims == ALL else dims
    return torch.logsumexp(x, dims, keepdim)


FUNCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "max": torch.max,
    "min": torch.min,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "var": lambda x, correction: torch.var(x, correction=correction),
    "sum_dim": lambda x, dims, keepdim: torch.sum(x, dims_of(dims), keepdim),
    "mean_dim": lambda x, dims, keepdim: torch.mean(x, dims_of(dims), keepdim),
    "prod_dim": prod_dim,
    "amax": lambda x, dims, keepdim: torch.amax(x, dims_of(dims) if dims != ALL else (), keepdim),
    "amin": lambda x, dims, keepdim: torch.amin(x, dims_of(dims) if dims != ALL else (), keepdim),
    "var_dim": lambda x, dims, correction, keepdim: torch.var(x, dims_of(dims), correction=correction, keepdim=keepdim),
    "logsumexp": logsumexp,
    "max_dim": lambda x, dim, keepdim: tuple(torch.max(x, dim, keepdim)),
    "min_dim": lambda x, dim, keepdim: tuple(torch.min(x, dim, keepdim)),
    "argmax_dim": lambda x, dim, keepdim: torch.argmax(x, dim, keepdim),
    "argmin_dim": lambda x, dim, keepdim: torch.argmin(x, dim, keepdim),
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "log_softmax": lambda x, dim: torch.log_softmax(x, dim),
}
TOTAL = ["sum", "mean", "prod", "max", "min", "argmax", "argmin", "var"]
OVER_DIMS = ["sum_dim", "mean_dim", "prod_dim", "amax", "amin", "var_dim", "logsumexp"]
ONE_DIM = ["max_dim", "min_dim", "argmax_dim", "argmin_dim"]
NO_GRADIENT = {"argmax", "argmin", "argmax_dim", "argmin_dim"}
# The extremum of nothing is an error, not a value.
NEEDS_AN_ELEMENT = {"max", "min", "argmax", "argmin"}


def gradient(op):
    return False if op in NO_GRADIENT else "auto"


def total_cases(book):
    for op in TOTAL:
        choices = [{"correction": 1}, {"correction": 0}] if op == "var" else [{}]
        for args in choices:
            for shape in ([7], [2, 3], [2, 3, 4], [67]):
                book.add(op, [book.draw(op).near_one(shape)], args, grad=gradient(op))
            book.add(op, [book.draw(op).distinct([3, 5], "f32")], args, grad=gradient(op))
            if args != {"correction": 1}:
                book.add(op, [book.draw(op).uniform([])], args, grad=gradient(op), note="0-d")
            for dtype in HALVES:
                book.add(op, [book.draw(op).positive([4, 9], dtype, 0.7, 1.4)], args, grad=False)
        if op not in NEEDS_AN_ELEMENT:
            for args in choices:
                book.add(op, [tensor([])], args, grad=False, note="empty")
        for dtype in ("i64", "i32", "u8", "i8", "bool"):
            x = book.draw(op).integers([2, 3], 0, 2 if dtype == "bool" else 5, dtype)
            book.add_if_defined(op, [x], choices[0], grad=False)
        extreme = [[1.0, INF, 2.0], [1.0, -INF, 2.0], [INF, -INF], [1.0, NAN, 3.0]]
        if op != "var":
            # Overflows in any order of summation; the variance of it depends on the method.
            extreme.append([1e308, 1e308, 1e308])
        for values in extreme:
            book.add(op, [tensor(values)], choices[0], grad=False, note="extreme")
    for op in ("max", "min"):
        book.add(op, [tensor([[1.0, 3.0, 3.0], [3.0, 1.0, 1.0]])], note="ties share the gradient")
    for op in ("argmax", "argmin"):
        book.add(op, [tensor([[1.0, 3.0, 3.0], [3.0, 1.0, 1.0]])], grad=False, note="ties")
    for zeros in ([2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]):
        book.add("prod", [tensor(zeros)], note="zeros")
    book.add("sum", [tensor([100] * 5, "i8")], grad=False, note="does not wrap")
    book.add("sum", [torch.full([300], 300.0, dtype=torch.float16)], grad=False, note="overflows f16 only at the end")
    book.add("mean", [torch.full([300], 300.0, dtype=torch.float16)], grad=False, note="does not overflow on the way")
    book.add("var", [tensor([1e8, 1e8 + 1, 1e8 + 2])], {"correction": 1}, note="large mean")


DIM_CHOICES = [0, 1, -1, [0], [0, 2], [-1, 0], [1, 2], [0, 1, 2], ALL]


def dims_cases(book):
    for op in OVER_DIMS:
        extra = {"correction": 1} if op == "var_dim" else {}
        for i, dims in enumerate(DIM_CHOICES):
            for keepdim in (False, True) if i in (0, 2, 4) else (i % 2 == 0,):
                x = book.draw(op).near_one([2, 3, 4])
                book.add(op, [x], {"dims": dims, "keepdim": keepdim, **extra})
        if op == "var_dim":
            for dims in (1, [0, 1]):
                x = book.draw(op).uniform([3, 4])
                book.add(op, [x], {"dims": dims, "keepdim": False, "correction": 0})
            x = book.draw(op).uniform([3, 1])
            book.add(op, [x], {"dims": 1, "keepdim": False, "correction": 1}, grad=False, note="one element")
        book.add(op, [book.draw(op).uniform([3, 5], dtype="f32")], {"dims": -1, "keepdim": True, **extra})
        for dtype in HALVES:
            x = book.draw(op).positive([3, 8], dtype, 0.7, 1.4)
            book.add(op, [x], {"dims": 1, "keepdim": False, **extra}, grad=False)
            book.add(op, [x], {"dims": 0, "keepdim": False, **extra}, grad=False)
        if op != "var_dim":
            book.add(op, [book.draw(op).uniform([])], {"dims": 0, "keepdim": False}, note="0-d")
            book.add(op, [book.draw(op).uniform([])], {"dims": -1, "keepdim": True}, note="0-d")
        book.add(op, [book.draw(op).uniform([0, 3])], {"dims": 1, "keepdim": False, **extra}, note="size 0 kept")
        if op not in ("amax", "amin"):
            book.add(op, [book.draw(op).uniform([2, 0])], {"dims": 1, "keepdim": True, **extra}, grad=False, note="size 0 reduced")
        book.add(op, [book.draw(op).uniform([1, 3, 1])], {"dims": 1, "keepdim": False, **extra})
        book.add(op, [book.draw(op).uniform([3, 20], 0.5, 1.5)], {"dims": 0, "keepdim": False, **extra}, note="outer dim")
        for dtype in ("i64", "u8", "bool"):
            x = book.draw(op).integers([2, 3], 0, 2 if dtype == "bool" else 5, dtype)
            book.add_if_defined(op, [x], {"dims": 1, "keepdim": False, **extra}, grad=False)
        x = tensor([[1.0, INF, 2.0], [1.0, -INF, 2.0], [NAN, 1.0, 2.0], [1e308, 1e308, 1.0]])
        x = x[:3] if op == "var_dim" else x
        book.add(op, [x], {"dims": 1, "keepdim": False, **extra}, grad=False, note="extreme")
    ties = tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, -1.0]])
    for op in ("amax", "amin"):
        for dims in (1, 0, [0, 1]):
            book.add(op, [ties], {"dims": dims, "keepdim": False}, note="ties share the gradient")
    zeros = tensor([[2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [1.0, 2.0, 3.0]])
    for dims in (0, 1, [0, 1]):
        book.add("prod_dim", [zeros], {"dims": dims, "keepdim": False}, note="zeros")
    far = tensor([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -INF], [0.0, -1e300, 1.0]])
    book.add("logsumexp", [far], {"dims": 1, "keepdim": False}, note="far from zero")
    infinite = tensor([[-INF, -INF], [INF, 1.0], [INF, INF], [-INF, 2.0]])
    book.add("logsumexp", [infinite], {"dims": 1, "keepdim": False}, grad=False, note="infinite")


def one_dim_cases(book):
    for op in ONE_DIM:
        for dim in (0, 1, 2, -1, -3):
            for keepdim in (False, True):
                x = book.draw(op).distinct([2, 3, 4])
                book.add(op, [x], {"dim": dim, "keepdim": keepdim}, grad=gradient(op))
        ties = tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [3.0, -1.0, -1.0]])
        for dim in (0, 1):
            book.add(op, [ties], {"dim": dim, "keepdim": False}, grad=gradient(op), note="ties: the first")
        book.add(op, [book.draw(op).uniform([])], {"dim": 0, "keepdim": False}, grad=gradient(op), note="0-d")
        book.add(op, [book.draw(op).uniform([0, 3])], {"dim": 1, "keepdim": False}, grad=gradient(op), note="size 0 kept")
        book.add(op, [book.draw(op).distinct([3, 5], "f32")], {"dim": 1, "keepdim": False}, grad=gradient(op))
        for dtype in HALVES:
            book.add(op, [book.draw(op).distinct([3, 5], dtype)], {"dim": 1, "keepdim": False}, grad=False)
        for dtype in ("i64", "u8", "i8", "bool"):
            x = book.draw(op).integers([2, 5], 0, 2 if dtype == "bool" else 100, dtype)
            book.add_if_defined(op, [x], {"dim": 1, "keepdim": False}, grad=False)
        x = tensor([[1.0, INF, 2.0], [1.0, -INF, 2.0], [0.0, NAN, NAN], [INF, NAN, -INF], [-INF, -INF, -INF]])
        book.add(op, [x], {"dim": 1, "keepdim": False}, grad=False, note="extreme: the first NaN wins")


def softmax_cases(book):
    for op in ("softmax", "log_softmax"):
        for shape in ([5], [2, 3], [2, 3, 4], [2, 3, 2, 2]):
            for dim in range(-len(shape), len(shape)):
                if len(shape) == 4 and dim not in (1, -3, -1):
                    continue
                book.add(op, [book.draw(op).uniform(shape)], {"dim": dim})
        book.add(op, [book.draw(op).uniform([])], {"dim": 0}, note="0-d")
        book.add(op, [book.draw(op).uniform([3, 1])], {"dim": 1}, note="one element")
        book.add(op, [book.draw(op).uniform([0, 3])], {"dim": 1}, note="size 0")
        book.add(op, [book.draw(op).uniform([3, 0])], {"dim": 1}, note="size 0 normalised")
        book.add(op, [book.draw(op).uniform([2, 40])], {"dim": 1})
        for dim in (0, 1):
            book.add(op, [book.draw(op).uniform([3, 4], dtype="f32")], {"dim": dim})
            for dtype in HALVES:
                book.add(op, [book.draw(op).uniform([3, 4], dtype=dtype)], {"dim": dim}, grad=False)
        far = tensor([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -INF], [0.0, -1e300, 1.0]])
        book.add(op, [far], {"dim": 1}, note="far from zero")
        x = tensor([[-INF, -INF], [INF, 1.0], [NAN, 1.0], [-INF, 2.0]])
        book.add(op, [x], {"dim": 1}, grad=False, note="extreme")
        for dtype in ("i64", "bool"):
            x = book.draw(op).integers([2, 3], 0, 2, dtype)
            book.add_if_defined(op, [x], {"dim": 1}, grad=False)


def book():
    out = Book("reductions", FUNCTIONS)
    total_cases(out)
    dims_cases(out)
    one_dim_cases(out)
    softmax_cases(out)
    return out
