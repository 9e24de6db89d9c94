"""Any call with any arguments answers or raises one of Python's exceptions: nothing crashes, and nothing hangs."""

import random

import cotangent as ct
from cotangent import _cotangent as core

EXPECTED = (TypeError, ValueError, IndexError, RuntimeError, MemoryError, OverflowError, NotImplementedError, BufferError,
            AttributeError, KeyError, OSError)


def arguments(rng):
    dtypes = [ct.float32, ct.float64, ct.int64, ct.uint8, ct.bool, ct.complex64, ct.bfloat16]
    shapes = [(), (0,), (1,), (3,), (2, 3), (3, 3), (2, 1, 3), (1, 0, 2)]
    return [
        lambda: ct.zeros(rng.choice(shapes), dtype=rng.choice(dtypes)) + rng.choice([0, 1]),
        lambda: ct.ones(rng.choice(shapes)).requires_grad_(), lambda: rng.choice([0, 1, -1, 2, 3, -(2**63), 2**63, 2**70]),
        lambda: rng.choice([0.0, 1.5, float("nan"), float("inf"), -1e308]), lambda: None, lambda: rng.choice([True, False]),
        lambda: rng.choice(["", "mean", "sum", "none", "xy", "ij->ji", "\0", "é"]), lambda: rng.choice([(), (0,), (1, 0), [2, -1], (0, 0)]),
        lambda: slice(rng.choice([None, 0, -1]), rng.choice([None, 2])), lambda: [ct.ones(2), ct.ones(2)], lambda: 1j, lambda: ..., lambda: {},
        lambda: rng.choice([ct.float64, ct.device("cpu"), "cpu", "cuda:9", object(), b"x"]), lambda: ct.ones(2, 3).T,
    ]


def test_functions_with_any_arguments():
    rng = random.Random(0)
    makers = arguments(rng)
    for op in core._ops():
        function = core._functions[op["name"]]
        for _ in range(6):
            args = [rng.choice(makers)() for _ in range(rng.randint(0, len(op["params"]) + 1))]
            if any(isinstance(a, int) and abs(a) > 100 for a in args):
                args = [a for a in args if not isinstance(a, float)]
            try:
                function(*args)
            except EXPECTED:
                pass


def test_methods_attributes_and_indices_with_any_arguments():
    rng = random.Random(1)
    makers = arguments(rng)
    names = [n for n in dir(ct.Tensor) if n not in ("__class__", "__init_subclass__", "__subclasshook__", "__reduce_ex__", "__getattribute__",
                                                    "__setattr__", "__delattr__", "__new__", "__init__", "__sizeof__", "__dir__")]
    for name in names:
        for _ in range(2):
            x = ct.ones(2, 3)
            try:
                value = getattr(x, name)
                if callable(value):
                    value(*[rng.choice(makers)() for _ in range(rng.randint(0, 3))])
            except EXPECTED:
                pass
    for _ in range(600):
        x = ct.ones(2, 3)
        key = tuple(rng.choice(makers)() for _ in range(rng.randint(0, 3)))
        try:
            x[key]
            x[key] = rng.choice(makers)()
        except EXPECTED:
            pass
        for make in (ct.tensor, ct.asarray, ct.from_dlpack, ct.dtype, ct.device, ct.finfo):
            try:
                make(rng.choice(makers)())
            except EXPECTED:
                pass
