"""Writes print.txt: arrays and the text NumPy (2.3 or later) gives them. Usage: python print.py > print.txt

Each case is `=== dtype shape...`, the values that are shown in row-major order, and NumPy's `str`
and the array part of its `repr`. `python print.py SEED COUNT` writes that many random cases instead.
"""
import sys
import numpy as np

NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "int64": "i64", "uint64": "u64", "bool": "bool"}
NAN, INF = np.nan, np.inf


def case(a):
    corners = a
    if a.size > 1000:
        for axis, length in enumerate(a.shape):
            if length > 6:
                ends = [0, 1, 2, length - 3, length - 2, length - 1]
                corners = np.take(corners, ends, axis)
    values = [repr(float(x)) if a.dtype.kind == "f" else str(int(x)) for x in corners.ravel()]
    text = np.array2string(a, separator=", ", prefix="array(", suffix=")")
    shape = "".join(f" {n}" for n in a.shape)
    print(f"\n=== {NAMES[a.dtype.name]}{shape}\n{' '.join(values)}\n--- str\n{str(a)}\n--- repr\n{text}", end="")


def narrowed(values, kind):
    with np.errstate(over="ignore"):
        return np.array(values, dtype=kind)


def chosen():
    floats = [
        [1.0], [1, 2, 3], [-1, 2.5], [0.0], [-0.0, 0.0, 1.0], [1 / 3, 2 / 3, 1], [0.1, 0.25, 12.125],
        [1e8], [99999999.5], [1e6], [999999], [1e-4], [9.9e-5, 1], [1, 1000], [1, 1001], [1e-5, 1e5],
        [1e300, 1e-300], [5e-324], [1e100, 1], [1e22], [9.9999999999e9, 1e99 / 3], [0.99999999999, 1],
        [0.126953125, 0.009765625], [1.000000005, 1.000000015], [NAN], [INF], [-INF], [NAN, 1], [NAN, 1.5, -INF],
        [INF, 1e10], [-INF, -1e-10, NAN], [NAN, INF, 12345.678], [0, 0, 0], [-1e-8, 2e-8], [123456.789], [16777216, 1],
        [3.1415927, 2.7182817, 1.4142135], [1e-45, 1], [3.4028235e38], [65504, 1], [0.0999755859375, 1.2345e-3], [2.5] * 40, [2.0**-96],
    ]
    for values in floats:
        yield np.array(values, "f8")
        yield narrowed(values, "f4")
    for values in ([0.1, 0.25, 1 / 3], [65504, 1], [6e-8], [999, 0.5], [1000.0], [NAN, -INF, 2], [1e-4], [0.1, 100], [0.1, 101], [2.0**-6]):
        yield np.array(values, "f2")
    for value in (0, -0.0, 1, -2.5, 1 / 3, 1e16, 9.999999e15, 1e-4, 9.9e-5, NAN, INF, -INF, 1e100, 123456789, 2.0**-44):
        yield np.array(value, "f8")
        yield narrowed(value, "f4")
    yield np.array(65504, "f2")
    for values in ([], [0], [1, -1], [10, 200, -3000], [-(2**63), 2**63 - 1], range(100), range(1001)):
        yield np.array(values, "i8")
    yield np.array(7)
    yield np.array([2**64 - 1, 0], "u8")
    for values in ([True], [False], [True, False], [[True] * 3] * 2, [True] * 60, [False] * 1200, True, False):
        yield np.array(values, "?")
    for shape in ((0,), (2, 0), (0, 3), (2, 0, 3)):
        yield np.zeros(shape)
    for shape in ((2, 3), (1, 1, 1), (2, 3, 4), (2, 2, 2, 2), (1, 30), (2, 40), (3, 1), (1001,), (7, 143), (6, 200),
                  (200, 6), (100, 100), (20, 20, 20), (5, 6, 7, 8), (2, 600), (600, 2), (7, 2, 2, 37), (30, 2, 30)):
        n = int(np.prod(shape))
        yield np.arange(n, dtype="i8").reshape(shape)
        if len(shape) > 3:
            continue
        yield (np.arange(n, dtype="f4") * np.float32(0.37) - 5).reshape(shape)
        yield np.sin(np.arange(n, dtype="f8") + 1).reshape(shape)


def drawn(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rank = int(rng.integers(0, 5))
        shape = tuple(int(x) for x in rng.integers(1, [0, 40, 12, 7, 6][rank] + 1, rank)) if rank else ()
        if rng.random() < 0.1 and rank:
            shape = tuple(int(x) for x in rng.integers(1, [0, 2000, 60, 20, 12][rank], rank))
        kind = rng.choice(["f8", "f4", "f2", "i8", "u8", "?"], p=[0.3, 0.3, 0.15, 0.1, 0.05, 0.1])
        if kind == "?":
            yield rng.random(shape) < 0.5 if rank else np.array(bool(rng.integers(2)))
        elif kind in ("i8", "u8"):
            top = 10 ** int(rng.integers(1, 18))
            yield np.array(rng.integers(0 if kind == "u8" else -top, top, shape), kind)
        else:
            style = rng.integers(6)
            a = np.array(rng.standard_normal(shape))
            if style == 1:
                a = a * 10.0 ** rng.integers(-12, 12)
            elif style == 2:
                a = np.round(a * 10, int(rng.integers(0, 4)))
            elif style == 3:
                a = np.exp(a * rng.integers(1, 30))
            elif style == 4:
                a = np.abs(np.round(a * 100) / 2 ** int(rng.integers(0, 12)))
            if rng.random() < 0.15:
                a = np.where(rng.random(shape) < 0.2, rng.choice([NAN, INF, -INF]), a)
            yield narrowed(a, kind)


if len(sys.argv) == 3:
    arrays = drawn(int(sys.argv[1]), int(sys.argv[2]))
else:
    arrays = [*chosen(), *(a for a in drawn(1, 90) if a.size <= 60 or a.size > 1000)]
for array in arrays:
    case(array)
