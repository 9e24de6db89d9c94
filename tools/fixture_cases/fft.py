"""Fourier transforms."""

import torch

from .core import DTYPES

ONE = {name: getattr(torch.fft, name) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")}
MANY = {name: getattr(torch.fft, name) for name in ("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")}
REAL = {"rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn"}


def frequencies(f):
    return lambda n, d=1.0, dtype=None: f(n, d=d, dtype=DTYPES[dtype] if dtype else None)


FUNCTIONS = {
    **ONE,
    **MANY,
    "fftshift": torch.fft.fftshift,
    "ifftshift": torch.fft.ifftshift,
    "fftfreq": frequencies(torch.fft.fftfreq),
    "rfftfreq": frequencies(torch.fft.rfftfreq),
}


def numbers(book, op, shape, dtype="f64"):
    draw = book.draw(op)
    if op in REAL:
        return draw.uniform(shape, dtype=dtype)
    return draw.complex(shape, dtype={"f64": "c128", "f32": "c64"}[dtype])


def add_cases(book):
    book.define(FUNCTIONS)
    for op in ONE:
        for shape, args in (
            ([6], {}), ([5], {}), ([2, 7], {}), ([1], {"n": 4}), ([2, 5], {"n": 3}), ([2, 5], {"n": 8}),
            ([3, 2], {"dim": 0}), ([4, 3, 2], {"dim": -2, "norm": "ortho"}), ([6], {"norm": "forward"}), ([2, 3], {"n": 7, "norm": "ortho"}),
        ):  # fmt: skip
            book.add(op, [numbers(book, op, shape)], args)
        book.add(op, [numbers(book, op, [2, 6], "f32")])
        book.add(op, [book.draw(op).uniform([6])], note="real")
        book.add(op, [book.draw(op).integers([6], -4, 5)], grad=False, note="integers")
        for n in (16, 12, 13, 30):
            book.add(op, [numbers(book, op, [n])], note="length")
    for op in MANY:
        for shape, args in (
            ([4, 3], {}), ([2, 3, 4], {}), ([3, 4], {"s": [2, 6]}), ([3, 2, 4], {"dim": [0, 2]}), ([3, 4], {"norm": "ortho"}),
            ([3, 4], {"norm": "forward"}), ([3, 4], {"s": [-1, 5]}),
        ):  # fmt: skip
            book.add(op, [numbers(book, op, shape)], args)
        book.add(op, [numbers(book, op, [3, 4], "f32")])
        if op.endswith("n"):
            book.add(op, [numbers(book, op, [5])])
            book.add(op, [numbers(book, op, [2, 3, 4])], {"s": [3, 5]})
        # The last dimension in `dim` is halved.
        for args in {"dim": [2, 0]}, {"s": [5, 2], "dim": [-1, 0]}:
            book.add(op, [numbers(book, op, [3, 2, 4])], args)
    for op in ("fftshift", "ifftshift"):
        for shape, args in ([5], {}), ([4], {}), ([3, 4], {}), ([3, 4], {"dim": 0}), ([2, 3, 4], {"dim": [0, 2]}), ([0, 3], {}):
            book.add(op, [book.draw(op).uniform(shape)], args)
    for op in ("fftfreq", "rfftfreq"):
        for args in {"n": 5}, {"n": 6}, {"n": 1}, {"n": 8, "d": 0.25}, {"n": 7, "d": 2.0, "dtype": "f64"}, {"n": 2}:
            book.add(op, [], args)
