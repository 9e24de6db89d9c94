"""Complex numbers: real and imaginary parts, elementwise functions, sums, products and transforms."""

import torch

from .core import INF, NAN, tensor
from .functions import both

OWN = {
    "view_as_real": torch.view_as_real,
    "real": torch.real,
    "imag": torch.imag,
    "conj": lambda x: torch.conj(x).resolve_conj(),
    "angle": torch.angle,
    "sgn": torch.sgn,
    "isreal": torch.isreal,
}
# Ops that other modules define; here they get complex cases.
UNARY = [
    "neg", "abs", "square", "reciprocal", "exp", "expm1", "log", "log1p", "sqrt", "tanh", "sigmoid", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "rsqrt", "isnan", "isinf", "isfinite",
    "logical_not",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "pow", "eq", "ne", "logical_and", "logical_or", "logical_xor"]
NO_GRADIENT = {"isnan", "isinf", "isfinite", "logical_not", "isreal", "eq", "ne", "logical_and", "logical_or", "logical_xor"}
# Wrong in PyTorch for extreme numbers.
FEW_CASES = {"log1p", "expm1"}


def add_unary(book, op):
    grad = False if op in NO_GRADIENT else "auto"
    for shape in ([2, 3], [9], []):
        book.add(op, [book.draw(op).complex(shape)], grad=grad, note="complex")
    book.add(op, [book.draw(op).complex([4], dtype="c64")], grad=grad, note="complex")
    book.add(op, [book.draw(op).complex([2, 0])], grad=grad, note="complex, size 0")
    if op not in FEW_CASES:
        on_axes = torch.complex(tensor([1.5, -1.5, 0.0, 0.0, 0.25]), tensor([0.0, 0.0, 1.5, -1.5, 0.0]))
        book.add(op, [on_axes], grad=False, note="on the axes", atol=1e-14)


def add_cases(book):
    book.define(OWN)
    book.define(
        {"view_as_complex": torch.view_as_complex, "complex": both(torch.complex), "polar": both(torch.polar)},
        {"complex": ["self", "imag"], "polar": ["self", "angle"]},
    )
    for op in [*OWN, *UNARY]:
        add_unary(book, op)
    for op in ("real", "conj", "angle", "sgn", "isreal"):
        book.add_if_defined(op, [tensor([1.5, -2.0, 0.0, -0.0])], grad=False, note="real")
    book.add("angle", [tensor([NAN, INF, -INF])], grad=False)
    book.add("abs", [torch.complex(tensor([0.0, 3.0]), tensor([0.0, 4.0]))], note="at 0")
    for op in ("sgn", "angle"):
        book.add(op, [torch.complex(tensor([0.0, 3.0]), tensor([0.0, 4.0]))], note="at 0")
    over = torch.complex(tensor([0.0, -0.0, INF, -INF, 1.0, INF, NAN]), tensor([0.0, -0.0, 1.0, 2.0, -INF, INF, 1.0]))
    book.add("div", [torch.complex(tensor(1.0), tensor(2.0)).reshape(1), over], grad=False, note="over 0 and infinity")
    book.add("reciprocal", [over], grad=False, note="of 0 and infinity")
    # Between -1 and 1, PyTorch returns the gradient of the upper side on both sides.
    cut = torch.complex(tensor([-2.0, 0.5, -2.0]), tensor([0.0, 0.0, -0.0]))
    book.add("acosh", [cut], note="both sides of the cut")
    for op in BINARY:
        for a, b in ([2, 3], [2, 3]), ([2, 3], [3]), ([], [2]):
            draw = book.draw(op)
            book.add(op, [draw.complex(a), draw.complex(b)], grad=False if op in NO_GRADIENT else "auto", note="complex")
        draw = book.draw(op)
        book.add(op, [draw.complex([3]), draw.away_from_zero([3])], grad=False if op in NO_GRADIENT else "auto", note="complex with real")
        draw = book.draw(op)
        book.add(op, [draw.positive([3]), draw.complex([3])], grad=False if op in NO_GRADIENT else "auto", note="real with complex")
        draw = book.draw(op)
        book.add(op, [draw.complex([3], dtype="c64"), draw.complex([3])], grad=False, note="c64 with c128", rtol=1e-5)
        draw = book.draw(op)
        book.add(op, [draw.integers([3], 1, 5), draw.complex([3], dtype="c64")], grad=False, note="i64 with c64")
    for op in ("vdot", "dot", "inner"):
        draw = book.draw(op)
        book.add(op, [draw.complex([4]), draw.complex([4])], note="complex")
    draw = book.draw("linalg_vecdot")
    book.add("linalg_vecdot", [draw.complex([2, 3]), draw.complex([2, 3])], note="complex")
    book.add("cov", [book.draw("cov").complex([2, 4])], note="complex")
    book.define({"adjoint": lambda x: torch.adjoint(x).resolve_conj()})
    for shape in ([2, 3], [2, 1, 3]):
        book.add("adjoint", [book.draw("adjoint").complex(shape)])
    for op in ("outer", "kron", "trace"):
        if op in ("outer", "kron"):
            draw = book.draw(op)
            book.add(op, [draw.complex([2]), draw.complex([3])], note="complex")
        else:
            book.add(op, [book.draw(op).complex([3, 3])], note="complex")
    draw = book.draw("einsum")
    book.add("einsum", [draw.complex([2, 3]), draw.complex([3, 2])], {"equation": "ij,jk->ik"}, note="complex")
    for shape in ([3], [2, 3]):
        draw = book.draw("complex")
        book.add("complex", [draw.uniform(shape), draw.uniform(shape)])
        draw = book.draw("polar")
        book.add("polar", [draw.positive(shape), draw.uniform(shape)])
        book.add("view_as_complex", [book.draw("view_as_complex").uniform([*shape, 2])])
    for op in ("sum", "mean"):
        for args in ({}, {"dim": 0}, {"dim": [0, 1], "keepdim": True}):
            book.add(op, [book.draw(op).complex([3, 4])], args, note="complex")
    book.add("cumsum", [book.draw("cumsum").complex([3, 4])], {"dim": 1}, note="complex")
    for a, b in ([2, 3], [3, 4]), ([3], [3]), ([2, 2, 3], [3, 2]), ([2, 3], [3]):
        draw = book.draw("matmul")
        book.add("matmul", [draw.complex(a), draw.complex(b)], note="complex")
    draw = book.draw("matmul")
    book.add("matmul", [draw.complex([2, 3]), draw.complex([3, 2], dtype="c128").to(torch.complex128)], note="complex")
    book.add("to_dtype", [book.draw("to_dtype").complex([3])], {"dtype": "c64"}, grad=False)
    book.add("to_dtype", [book.draw("to_dtype").uniform([3])], {"dtype": "c128"})
    book.add("to_dtype", [book.draw("to_dtype").integers([3], -4, 5)], {"dtype": "c64"}, grad=False)
