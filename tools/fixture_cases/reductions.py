"""Reductions over all elements and over dims, softmax, and similar ops."""

import torch

from .core import HALVES, INF, NAN, tensor

ALL = None


def prod(x, dim=None, keepdim=False):
    """PyTorch's prod accepts one dim; several are reduced in sequence, starting with the last."""
    if dim is None and not keepdim:
        return torch.prod(x)
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else dim
    for d in sorted((d % max(x.dim(), 1) for d in dims), reverse=True):
        x = torch.prod(x, d, keepdim=keepdim)
    return x


def logsumexp(x, dim=None, keepdim=False):
    dim = list(range(x.dim())) if dim is None else dim
    return torch.logsumexp(x, dim, keepdim)


def extreme(total, over):
    """The maximum or minimum of all elements, or over dims."""

    def call(x, dim=None, keepdim=False):
        if dim is None and not keepdim:
            return total(x)
        return over(x, () if dim is None else dim, keepdim)

    return call


FUNCTIONS = {
    "sum": lambda x, dim=None, keepdim=False: torch.sum(x, dim, keepdim) if keepdim or dim is not None else torch.sum(x),
    "mean": lambda x, dim=None, keepdim=False: torch.mean(x, dim, keepdim) if keepdim or dim is not None else torch.mean(x),
    "prod": prod,
    "max": extreme(torch.max, torch.amax),
    "min": extreme(torch.min, torch.amin),
    "var": lambda x, dim=None, keepdim=False, correction=1: torch.var(x, dim, correction=correction, keepdim=keepdim),
    # The mean is computed separately: with infinities, that of torch.var_mean is NaN.
    "var_mean": lambda x, dim=None, keepdim=False, correction=1: (
        torch.var(x, dim, correction=correction, keepdim=keepdim),
        FUNCTIONS["mean"](x, dim, keepdim),
    ),
    "logsumexp": logsumexp,
    "max_with_indices": lambda x, dim, keepdim: tuple(torch.max(x, dim, keepdim)),
    "min_with_indices": lambda x, dim, keepdim: tuple(torch.min(x, dim, keepdim)),
    "argmax": lambda x, dim=None, keepdim=False: torch.argmax(x, dim, keepdim),
    "argmin": lambda x, dim=None, keepdim=False: torch.argmin(x, dim, keepdim),
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "log_softmax": lambda x, dim: torch.log_softmax(x, dim),
    "cumsum": lambda x, dim: torch.cumsum(x, dim),
    "sort": lambda x, dim=-1, descending=False: tuple(torch.sort(x, stable=True, dim=dim, descending=descending)),
}
TOTAL = ["sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "var_mean"]
OVER_DIMS = ["sum", "mean", "prod", "max", "min", "var", "var_mean", "logsumexp"]
VARIANCES = ("var", "var_mean")
ONE_DIM = ["max_with_indices", "min_with_indices", "argmax", "argmin"]
NO_GRADIENT = {"argmax", "argmin"}
# These raise an error for an empty tensor.
NEEDS_AN_ELEMENT = {"max", "min", "argmax", "argmin"}


def gradient(op):
    return False if op in NO_GRADIENT else "auto"


def total_cases(book):
    for op in TOTAL:
        choices = [{"correction": 1}, {"correction": 0}] if op in VARIANCES else [{}]
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
        if op not in VARIANCES:
            # The sum overflows in any order; the variance depends on the algorithm.
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
        extra = {"correction": 1} if op in VARIANCES else {}
        for i, dims in enumerate(DIM_CHOICES):
            for keepdim in (False, True) if i in (0, 2, 4) else (i % 2 == 0,):
                x = book.draw(op).near_one([2, 3, 4])
                book.add(op, [x], {"dim": dims, "keepdim": keepdim, **extra})
        if op in VARIANCES:
            for dims in (1, [0, 1]):
                x = book.draw(op).uniform([3, 4])
                book.add(op, [x], {"dim": dims, "keepdim": False, "correction": 0})
                book.add(op, [x], {"dim": dims, "keepdim": False, "correction": 0.5}, note="no whole number")
            x = book.draw(op).uniform([3, 1])
            book.add(op, [x], {"dim": 1, "keepdim": False, "correction": 1}, grad=False, note="one element")
        book.add(op, [book.draw(op).uniform([3, 5], dtype="f32")], {"dim": -1, "keepdim": True, **extra})
        for dtype in HALVES:
            x = book.draw(op).positive([3, 8], dtype, 0.7, 1.4)
            book.add(op, [x], {"dim": 1, "keepdim": False, **extra}, grad=False)
            book.add(op, [x], {"dim": 0, "keepdim": False, **extra}, grad=False)
        if op not in VARIANCES:
            book.add(op, [book.draw(op).uniform([])], {"dim": 0, "keepdim": False}, note="0-d")
            book.add(op, [book.draw(op).uniform([])], {"dim": -1, "keepdim": True}, note="0-d")
        book.add(op, [book.draw(op).uniform([0, 3])], {"dim": 1, "keepdim": False, **extra}, note="size 0 kept")
        if op not in ("max", "min"):
            book.add(op, [book.draw(op).uniform([2, 0])], {"dim": 1, "keepdim": True, **extra}, grad=False, note="size 0 reduced")
        book.add(op, [book.draw(op).uniform([1, 3, 1])], {"dim": 1, "keepdim": False, **extra})
        book.add(op, [book.draw(op).uniform([3, 20], 0.5, 1.5)], {"dim": 0, "keepdim": False, **extra}, note="outer dim")
        for dtype in ("i64", "u8", "bool"):
            x = book.draw(op).integers([2, 3], 0, 2 if dtype == "bool" else 5, dtype)
            book.add_if_defined(op, [x], {"dim": 1, "keepdim": False, **extra}, grad=False)
        x = tensor([[1.0, INF, 2.0], [1.0, -INF, 2.0], [NAN, 1.0, 2.0], [1e308, 1e308, 1.0]])
        x = x[:3] if op in VARIANCES else x
        book.add(op, [x], {"dim": 1, "keepdim": False, **extra}, grad=False, note="extreme")
    ties = tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, -1.0]])
    for op in ("max", "min"):
        for dims in (1, 0, [0, 1]):
            book.add(op, [ties], {"dim": dims, "keepdim": False}, note="ties share the gradient")
    zeros = tensor([[2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [1.0, 2.0, 3.0]])
    for dims in (0, 1, [0, 1]):
        book.add("prod", [zeros], {"dim": dims, "keepdim": False}, note="zeros")
    far = tensor([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -INF], [0.0, -1e300, 1.0]])
    book.add("logsumexp", [far], {"dim": 1, "keepdim": False}, note="far from zero")
    infinite = tensor([[-INF, -INF], [INF, 1.0], [INF, INF], [-INF, 2.0]])
    book.add("logsumexp", [infinite], {"dim": 1, "keepdim": False}, grad=False, note="infinite")


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


def scan_cases(book):
    for shape, dim in [([7], 0), ([3, 4], 0), ([3, 4], 1), ([2, 3, 4], -2), ([], 0), ([2, 0], 1), ([0, 3], 1), ([2, 600], 1), ([600, 2], 0)]:
        book.add("cumsum", [book.draw("cumsum").uniform(shape)], {"dim": dim})
    book.add("cumsum", [book.draw("cumsum").uniform([3, 5], dtype="f32")], {"dim": 1})
    for dtype in HALVES:
        book.add("cumsum", [book.draw("cumsum").uniform([3, 5], dtype=dtype)], {"dim": 0}, grad=False)
    for dtype in ("i64", "i32", "u8", "bool"):
        x = book.draw("cumsum").integers([2, 5], 0, 2 if dtype == "bool" else 100, dtype)
        book.add("cumsum", [x], {"dim": 1}, grad=False)
    book.add("cumsum", [tensor([1.0, INF, 2.0, -INF, 1.0, NAN])], {"dim": 0}, grad=False, note="extreme")


def sort_cases(book):
    for descending in (False, True):
        for shape, dim in [([7], 0), ([3, 4], 0), ([3, 4], -1), ([2, 5, 3], 1), ([], 0), ([2, 0], 1), ([1, 300], 1)]:
            book.add("sort", [book.draw("sort").distinct(shape)], {"dim": dim, "descending": descending})
        book.add("sort", [book.draw("sort").distinct([3, 5], "f32")], {"dim": 1, "descending": descending})
        for dtype in HALVES:
            book.add("sort", [book.draw("sort").uniform([3, 5], dtype=dtype)], {"dim": 1, "descending": descending}, grad=False)
        for dtype in ("i64", "i32", "i16", "i8", "u8", "bool"):
            low, high = (0, 2) if dtype in ("bool",) else (0 if dtype == "u8" else -9, 9)
            x = book.draw("sort").integers([2, 9], low, high, dtype)
            book.add("sort", [x], {"dim": 1, "descending": descending}, grad=False, note="ties stay in order")
        x = tensor([[1.0, NAN, -0.0, INF, 0.0, -INF, NAN, 1.0]])
        book.add("sort", [x], {"dim": 1, "descending": descending}, grad=False, note="extreme")
        book.add("sort", [tensor([3.0, 1.0, 3.0, 2.0])], {"descending": descending}, note="ties")


def add_cases(book):
    book.define(FUNCTIONS)
    total_cases(book)
    dims_cases(book)
    one_dim_cases(book)
    softmax_cases(book)
    scan_cases(book)
    sort_cases(book)
