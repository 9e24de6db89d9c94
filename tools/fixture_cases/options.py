"""Options that were added later to ops of other modules, also with complex numbers."""

import torch

from .core import DTYPES, INF, NAN, tensor


def with_dtype(f):
    def call(*tensors, dtype=None, **args):
        return f(*tensors, **args, **({"dtype": DTYPES[dtype]} if dtype else {}))

    return call


REDUCTIONS = ("sum", "mean", "prod", "nansum", "nanmean")
ROWS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "softmin": torch.nn.functional.softmin, "cumsum": torch.cumsum, "cumprod": torch.cumprod}


def deviation(f):
    """A function with `correction` or its older name `unbiased`."""

    def call(x, dim=None, keepdim=False, correction=1, unbiased=None):
        return f(x, dim, correction=correction if unbiased is None else int(unbiased), keepdim=keepdim)

    return call


FUNCTIONS = {
    **{name: with_dtype(getattr(torch, name)) for name in REDUCTIONS},
    **{name: with_dtype(f) for name, f in ROWS.items()},
    **{name: deviation(getattr(torch, name)) for name in ("var", "std", "var_mean", "std_mean")},
    "split": lambda x, split_size, dim=0: torch.split(x, split_size, dim),
    "repeat_interleave": lambda x, repeats, dim, output_size: x.repeat_interleave(repeats, dim, output_size=output_size),
}
NAMES = {"masked_fill": ["self", "mask", "value"]}


def add_dtypes(book):
    for op in REDUCTIONS:
        for source, dtype in ("i64", "f64"), ("f32", "f64"), ("bool", "f32"), ("f64", "f16"), ("i32", "f32"):
            x = book.draw(op).integers([2, 3], 0, 3).to(DTYPES[source])
            grad = [True] if source in ("f32", "f64") and dtype == "f64" else False
            book.add_if_defined(op, [x], {"dim": 1, "keepdim": True, "dtype": dtype}, grad=grad)
    for op in ("sum", "prod"):
        book.add(op, [book.draw(op).integers([2, 3], -3, 9)], {"dim": 0, "dtype": "i32"}, grad=False)
    for op in ROWS:
        for source, dtype in ("i64", "f64"), ("f32", "f64"), ("f16", "f32"):
            x = book.draw(op).integers([2, 3], 1, 5).to(DTYPES[source])
            book.add(op, [x], {"dim": -1, "dtype": dtype}, grad=[True] if source == "f32" else False)
    book.add("cumsum", [book.draw("cumsum").integers([4], 1, 5)], {"dim": 0, "dtype": "i32"}, grad=False)


def add_others(book):
    for op in ("add", "sub"):
        for args in {"alpha": 2}, {"alpha": 0.5}, {"alpha": -1}:
            draw = book.draw(op)
            book.add(op, [draw.uniform([2, 3]), draw.uniform([3])], args)
        book.add(op, [tensor([1, 2], "i64"), tensor([3, 4], "i64")], {"alpha": 3}, grad=False)
        book.add(op, [tensor([1.0, INF]), tensor([NAN, 4.0])], {"alpha": 3}, grad=False)
        draw = book.draw(op)
        book.add(op, [draw.complex([2]), draw.complex([2])], {"alpha": 0.5})
    for op in ("var", "std", "var_mean", "std_mean"):
        for args in {"unbiased": False}, {"dim": 1, "unbiased": True}, {"dim": [0], "correction": 2, "keepdim": True}:
            book.add(op, [book.draw(op).uniform([3, 4])], args)
            book.add(op, [book.draw(op).complex([3, 4])], args, note="complex")
        book.add(op, [torch.complex(tensor([1.0, 1.0]), tensor([2.0, 2.0]))], {"correction": 0}, grad=False, note="complex, of zero")
    book.add("masked_fill", [book.draw("masked_fill").uniform([2, 3]), tensor([True, False, True], "bool"), tensor(2.5)], grad=[True, False, True])
    for sizes in [1, 3], [4, 0], [2, 2]:
        book.add("split", [book.draw("split").uniform([4, 2])], {"split_size": sizes})
    book.add("split", [book.draw("split").uniform([4, 2])], {"split_size": [1, 1], "dim": -1})
    book.add("repeat_interleave", [book.draw("repeat_interleave").uniform([2, 2])], {"repeats": 2, "dim": 1, "output_size": 4})
    for pad in [-1, 1], [1, -1], [-1, 1, -2, 2], [2, -1, 1, 0]:
        shape = [2, 4] if len(pad) == 2 else [1, 4, 4]
        book.add("pad", [book.draw("pad").uniform(shape)], {"pad": pad, "mode": "circular"}, note="what is cut off does not come back")


def add_complex(book):
    for op in ("prod", "cumprod", "logsumexp", "logcumsumexp"):
        for dim in (0, -1):
            book.add(op, [book.draw(op).complex([3, 5])], {"dim": dim}, note="complex")
        book.add(op, [book.draw(op).complex([0, 2])], {"dim": 0}, grad=False, note="complex, size 0")
    book.add("prod", [torch.complex(tensor([1.0, 0.0, 2.0]), tensor([2.0, 0.0, -1.0]))], note="complex, with a zero")
    book.add("cumprod", [torch.complex(tensor([1.0, 0.0, 2.0]), tensor([2.0, 0.0, -1.0]))], {"dim": 0}, note="complex, with a zero")
    for op in ("tril", "triu"):
        book.add(op, [book.draw(op).complex([3, 3])], {"diagonal": 1}, note="complex")
    book.add("pad", [book.draw("pad").complex([2, 3])], {"pad": [1, 2]}, note="complex")
    for p in (2.0, 1.0, 3.0):
        book.add("norm", [book.draw("norm").complex([2, 3])], {"dim": 1, "p": p}, note="complex")
        draw = book.draw("dist")
        book.add("dist", [draw.complex([2, 3]), draw.complex([2, 3])], {"p": p}, note="complex")
    book.add("renorm", [book.draw("renorm").complex([2, 3])], {"p": 2.0, "dim": 0, "maxnorm": 1.0}, note="complex")
    for op in ("logaddexp", "lerp"):
        draw = book.draw(op)
        book.add(op, [draw.complex([2, 3]), draw.complex([3]), *([draw.complex([3])] if op == "lerp" else [])], note="complex")
    book.add("softsign", [book.draw("softsign").complex([4])], note="complex")
    draw = book.draw("float_power")
    book.add("float_power", [draw.complex([4]), draw.complex([4])], note="complex")
    draw = book.draw("isclose")
    z = torch.complex(tensor([1.0, 1.0, INF, NAN, 3.0]), tensor([2.0, 2.0, 1.0, 1.0, 4.0]))
    w = torch.complex(tensor([1.0, 1.0, INF, NAN, 3.0]), tensor([2.0, 2.1, 1.0, 1.0, 4.00001]))
    for args in {}, {"rtol": 0.1}, {"equal_nan": True}, {"rtol": 0.0, "atol": 1e-4}:
        book.add("isclose", [z, w], args, grad=False, note="complex")
    book.add("corrcoef", [book.draw("corrcoef").complex([2, 4])], note="complex")
    book.add("block_diag", [book.draw("block_diag").complex([2, 1]), book.draw("block_diag").complex([1, 2])], note="complex")
    index = tensor([2, 0], "i64")
    for op in ("index_add", "index_copy"):
        draw = book.draw(op)
        book.add(op, [draw.complex([3, 2]), index, draw.complex([2, 2])], {"dim": 0})
    for op in ("scatter", "scatter_add"):
        draw = book.draw(op)
        book.add(op, [draw.complex([3]), index, draw.complex([2])], {"dim": 0})
    draw = book.draw("diagonal_scatter")
    book.add("diagonal_scatter", [draw.complex([3, 3]), draw.complex([3])], note="complex")
    draw = book.draw("masked_scatter")
    book.add("masked_scatter", [draw.complex([3]), tensor([True, False, True], "bool"), draw.complex([3])], note="complex")
    for op, args in ("split", {"split_size": 2, "dim": 0}), ("chunk", {"chunks": 2, "dim": 0}), ("unbind", {"dim": 0}):
        book.add(op, [book.draw(op).complex([4, 2])], args, note="complex")


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    add_dtypes(book)
    add_others(book)
    add_complex(book)
