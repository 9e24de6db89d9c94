"""Bessel and Airy functions, and orthogonal polynomials. PyTorch does not differentiate them."""

import torch

from .core import INF, NAN, tensor

UNARY = {
    "bessel_j0": -9, "bessel_j1": -9, "bessel_y0": 0.1, "bessel_y1": 0.1, "modified_bessel_k0": 0.1, "modified_bessel_k1": 0.1,
    "scaled_modified_bessel_k0": 0.1, "scaled_modified_bessel_k1": 0.1, "airy_ai": -9, "spherical_bessel_j0": -9,
}  # fmt: skip
POLYNOMIALS = [
    *[f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"],
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip


def polynomial(f):
    return lambda x, degree=None, n=None: f(x, n if degree is None else degree)


def add_cases(book):
    book.define({op: getattr(torch.special, op) for op in UNARY})
    book.define({op: polynomial(getattr(torch.special, op)) for op in POLYNOMIALS}, {op: ["self", "n"] for op in POLYNOMIALS})
    for op, low in UNARY.items():
        # PyTorch computes only six to eight digits of these.
        near = {"rtol": 1e-5, "atol": 1e-6} if op.startswith(("bessel", "airy")) else {"rtol": 1e-10, "atol": 1e-13}
        for shape in ([2, 3], [9], [], [0]):
            book.add(op, [book.draw(op).uniform(shape, low, 9)], grad=False, **near)
        book.add(op, [book.draw(op).uniform([4], low, 9, "f32")], grad=False, rtol=1e-4, atol=1e-6)
        book.add(op, [book.draw(op).integers([4], 1, 9)], grad=False, rtol=1e-4, atol=1e-6)
        book.add(op, [tensor([0.0, 1.0, 2.0, 25.0, NAN])], grad=False, note="edges", **near)
        book.add(op, [tensor([1e-8, 0.3, 0.5, 1.999, 2.001, 5.0])], grad=False, note="small", **near)
    for op in POLYNOMIALS:
        for a, b in ([2, 3], [2, 3]), ([4, 1], [3]), ([], [3]):
            draw = book.draw(op)
            book.add(op, [draw.uniform(a, -1, 1), draw.integers(b, 0, 9)], grad=False, rtol=1e-9, atol=1e-12)
        draw = book.draw(op)
        book.add(op, [draw.uniform([3], 1, 2), draw.integers([3], 0, 9)], grad=False, rtol=1e-9)
        book.add(op, [tensor([1.0, -1.0, 0.0, 1.0, -1.0]), tensor([3, 3, 3, 4, 4], "i64")], grad=False, note="edges", atol=1e-12)
        book.add(op, [book.draw(op).uniform([3], -1, 1), None], {"n": 3}, grad=False, note="number", rtol=1e-9)
        book.add(op, [book.draw(op).uniform([2], -1, 1), tensor([-1, 0], "i64")], grad=False, note="negative")
        book.add(op, [book.draw(op).uniform([3], 0.1, 0.9, "f32"), tensor([2, 5, 1], "i64")], grad=False, rtol=1e-4, atol=1e-5)
