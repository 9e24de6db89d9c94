"""Measures the accuracy of the elementwise functions, and writes the fixtures of its test.

    PYTHONPATH=python python tools/accuracy_fixtures.py [NAME ..]

Requires NumPy, SciPy, mpmath and the Python package. Each function is evaluated over its whole domain: at points spread over the
bit patterns and over its usual range, and around critical points: powers of two, integers and half-integers, ends of domains,
overflow and denormal numbers. References for f32 are computed in f64 by NumPy and SciPy. Those for f64 have a 64-bit significand
(`long double` of NumPy and the C library), or are computed by mpmath with 40 digits.

Two outputs:

tests/fixtures/accuracy/NAME.txt: a few hundred points of each dtype, including those with the largest errors. A line has the bits
    of the argument, the bits of the correctly rounded value, and the exact value minus the rounded one, in ulp.
src/ops/ACCURACY.md: the largest error of each function, in units in the last place (ulp), and its argument. Rows of functions that
    are not measured in a run are kept.
"""

import ctypes
import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np
import scipy.special as sp

ROOT = Path(__file__).resolve().parent.parent
FOLDER, TABLE = ROOT / "tests" / "fixtures" / "accuracy", ROOT / "src" / "ops" / "ACCURACY.md"
L = np.longdouble
PI = L("3.14159265358979323846264338327950288")
mp.mp.dps = 40


def libm(name):
    """A `long double` function of the C library."""
    function = getattr(ctypes.CDLL("libm.so.6"), name)
    function.restype, function.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return function


erfl, erfcl = (np.vectorize(libm(name), otypes=[L]) for name in ("erfl", "erfcl"))


def by_sign(positive, negative):
    return lambda x: np.where(x > 0, positive(x), negative(x))


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def selu(x):
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def logit(x):
    return np.where(np.abs(x - 0.5) < 0.25, np.log1p((2 * x - 1) / (1 - x)), np.log(x) - np.log1p(-x))


def entr(x):
    return np.where(x == 0, 0, np.where(x < 0, -np.inf, -x * np.log(np.abs(x))))


def sinc(x):
    """Computed from the distance to the nearest integer, which is exact."""
    rest = x - np.rint(x)
    sign = np.where(np.fmod(np.abs(np.rint(x)), 2) == 1, -1, 1)
    return np.where(x == 0, 1, sign * np.sin(PI * rest) / (PI * x))


def spherical(x):
    return np.where(x == 0, 1, np.where(np.isinf(x), 0, np.sin(x) / x))


# The same formula in f64 is the reference for f32, and in long double that for f64.
PLAIN = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "square": np.square,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": sigmoid, "silu": lambda x: x * sigmoid(x), "logsigmoid": lambda x: -softplus(-x),
    "mish": lambda x: x * np.tanh(softplus(x)), "selu": selu, "softsign": lambda x: x / (1 + np.abs(x)),
    "rad2deg": lambda x: x * (180 / PI), "deg2rad": lambda x: x * (PI / 180), "logit": logit, "entr": entr,
    "sinc": sinc, "spherical_bessel_j0": spherical,
    "hardswish": lambda x: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6)),
}  # fmt: skip


def quantile(p):
    """SciPy's value, which is almost exact in f64, refined by a step of Halley's method."""
    y = mp.mpf(float(sp.ndtri(float(p))))
    step = (normal_share(y) - p) / mp.npdf(y)
    return y - step / (1 + y * step / 2)


def finite(function, limits):
    """A SciPy function with the given limits at minus and plus infinity, where SciPy's are missing or wrong."""
    return lambda x: np.where(np.isinf(x), np.where(x > 0, limits[1], limits[0]), function(x))


def normal_share(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


# The references: SciPy for f32, mpmath for f64, and the range in which mpmath is fast enough.
SPECIAL = {
    "erf": (sp.erf, mp.erf, 10), "erfc": (sp.erfc, mp.erfc, 30),
    "erfcx": (sp.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), 1e4),
    "erfinv": (sp.erfinv, mp.erfinv, 1), "ndtri": (sp.ndtri, quantile, 1),
    "ndtr": (sp.ndtr, normal_share, 40), "log_ndtr": (sp.log_ndtr, lambda x: mp.log(normal_share(x)) if x < 5 else mp.log1p(-normal_share(-x)), 100),
    "gelu": (lambda x: x * sp.ndtr(x), lambda x: x * normal_share(x), 40),
    "lgamma": (finite(sp.gammaln, (np.inf, np.inf)), lambda x: mp.log(abs(mp.gamma(x))), 1e5), "digamma": (sp.digamma, mp.digamma, 1e5),
    "i0": (finite(sp.i0, (np.inf, np.inf)), lambda x: mp.besseli(0, x), 720), "i0e": (finite(sp.i0e, (0, 0)), lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), 1e4),
    "i1": (finite(sp.i1, (-np.inf, np.inf)), lambda x: mp.besseli(1, x), 720), "i1e": (finite(sp.i1e, (0, 0)), lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), 1e4),
    "modified_bessel_k0": (sp.k0, lambda x: mp.besselk(0, x), 720), "modified_bessel_k1": (sp.k1, lambda x: mp.besselk(1, x), 720),
    "scaled_modified_bessel_k0": (sp.k0e, lambda x: mp.besselk(0, x) * mp.exp(x), 1e4),
    "scaled_modified_bessel_k1": (sp.k1e, lambda x: mp.besselk(1, x) * mp.exp(x), 1e4),
    "bessel_j0": (finite(sp.j0, (0, 0)), lambda x: mp.besselj(0, x), 1e4), "bessel_j1": (finite(sp.j1, (0, 0)), lambda x: mp.besselj(1, x), 1e4),
    "bessel_y0": (finite(sp.y0, (np.nan, 0)), lambda x: mp.bessely(0, x), 1e4), "bessel_y1": (finite(sp.y1, (np.nan, 0)), lambda x: mp.bessely(1, x), 1e4),
    "airy_ai": (finite(lambda x: sp.airy(x)[0], (0, 0)), mp.airyai, 100), "tanhshrink": (None, lambda x: x - mp.tanh(x), 30),
}  # fmt: skip
# The domains: no reference is computed outside.
DOMAINS = {
    "erfinv": (-1, 1), "ndtri": (0, 1), "modified_bessel_k0": (0, 1e300), "modified_bessel_k1": (0, 1e300),
    "scaled_modified_bessel_k0": (0, 1e300), "scaled_modified_bessel_k1": (0, 1e300), "bessel_y0": (0, 1e300), "bessel_y1": (0, 1e300),
    "airy_ai": (-1e4, 300), "bessel_j0": (-1e5, 1e5), "bessel_j1": (-1e5, 1e5),
}  # fmt: skip
# For larger arguments, SciPy is less accurate than f32.
DOMAINS["bessel_y0"] = DOMAINS["bessel_y1"] = (0, 1e5)


def tanhshrink(x):
    near = x**3 * (1 / 3 - x**2 * (2 / 15 - x**2 * (17 / 315 - x**2 * (62 / 2835 - x**2 * 1382 / 155925))))
    return np.where(np.abs(x) < 0.05, near, x - np.tanh(x))


SPECIAL["tanhshrink"] = (tanhshrink, *SPECIAL["tanhshrink"][1:])
SEAMS = [0.0, 0.1, 0.01, 0.125, 0.375, 0.625, 0.7, 0.75, 0.9, 0.99, 1.4142135, 1.7, 2.5, 2.405, 3.5, 3.832, 4.5, 5.52, 6.5, 9.5, 12.0, 13.0,
         18.0, 18.5, 19.0, 20.0, 22.0, 26.5, 27.0, 28.0, 33.0, 36.7, 37.5, 38.5, 40.0, 44.0, 50.0, 80.0, 87.3, 88.0, 88.7, 89.4, 100.0, 103.9,
         126.0, 127.0, 128.0, 149.0, 150.0, 700.0, 708.4, 709.7, 710.4, 713.0, 745.0, 746.0, 1022.0, 1023.0, 1024.0, 1074.0, 1075.0, 1e8, 1e9,
         1e16, 1.4616321, 2.4570247, 2.7476826, 0.8935769, 3.9576784, math.pi, math.pi / 2, math.pi / 4]  # fmt: skip


def points(dtype, few, reach):
    """The arguments: fewer if the reference is slow, and none beyond `reach`, if given."""
    bits, uint = (32, np.uint32) if dtype == np.float32 else (64, np.uint64)
    count = 4_000 if few else 20_000
    if dtype == np.float32:
        spread = np.arange(0, 2**32, 16_381 if few else 4_093, dtype=np.uint64).astype(uint)
    else:
        spread = np.array([int(k * (2**64 / count)) + 0x9E3779B97F4A7C15 * k % 2**50 & (2**64 - 1) for k in range(count)], dtype=uint)
    random = np.random.default_rng(1)
    ordinary = [random.uniform(-1, 1, count), random.uniform(-12, 12, count), random.uniform(-60, 60, count // 2)]
    ordinary.append(random.choice([-1, 1], count) * 10.0 ** random.uniform(-6, 3, count))
    info = np.finfo(dtype)
    powers = 2.0 ** np.arange(-20, 20) if few else np.ldexp(1.0, np.arange(info.minexp, info.maxexp))
    whole = np.arange(-24, 24.5, 0.5)
    seams = np.concatenate([powers, -powers, whole, SEAMS, np.negative(SEAMS), 1 - powers[powers < 1], powers[powers < 1] - 1])
    seams = seams.astype(dtype)
    near = [seams]
    for way in (np.inf, -np.inf):
        now = seams
        for _ in range(3):
            now = np.nextafter(now, dtype(way))
            near.append(now)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal,
                     -info.smallest_subnormal, info.smallest_subnormal * 12345], dtype=dtype)  # fmt: skip
    x = np.concatenate([spread.view(dtype), *[o.astype(dtype) for o in ordinary], *near, ends])
    x = np.unique(x.view(uint)).view(dtype)
    return x if reach is None else x[np.isnan(x) | np.isinf(x) | (np.abs(x) <= reach)]


def rounded(values, dtype):
    """The nearest numbers of a dtype, and the remainders in ulp, which are 0 for infinities and NaN."""
    with np.errstate(all="ignore"):
        near = values.astype(dtype)
        size = np.spacing(np.minimum(np.abs(near), np.finfo(dtype).max)).astype(values.dtype)
        rest = (values - near.astype(values.dtype)) / size
    return near, np.where(np.isfinite(near), rest, 0).astype(np.float64)


def reference(name, x):
    """The reference values: the nearest numbers of the dtype, the remainders in ulp, and whether there is a reference."""
    dtype = x.dtype.type
    known = np.ones(x.shape, bool)
    low, high = DOMAINS.get(name, (-np.inf, np.inf))
    known &= ~(np.isfinite(x) & ((x < low) | (x > high)))
    if dtype == np.float32:
        function = PLAIN[name] if name in PLAIN else SPECIAL[name][0]
        with np.errstate(all="ignore"):
            near, rest = rounded(np.asarray(function(x.astype(np.float64)), dtype=np.float64), dtype)
        return near, rest, known
    if name in PLAIN:
        with np.errstate(all="ignore"):
            near, rest = rounded(np.asarray(PLAIN[name](x.astype(L)), dtype=L), dtype)
        return near, rest, known
    function, reach = SPECIAL[name][1:]
    near, rest = np.zeros_like(x), np.zeros(x.shape)
    for k, value in enumerate(x):
        if not known[k] or not np.isfinite(value):
            known[k] = False
            continue
        try:
            exact = function(mp.mpf(float(value)))
        except (ValueError, ZeroDivisionError, OverflowError, mp.libmp.NoConvergence):
            known[k] = False
            continue
        if isinstance(exact, mp.mpc) or not mp.isfinite(exact):
            known[k] = False
            continue
        near[k] = float(exact)
        size = float(np.spacing(abs(near[k]))) if np.isfinite(near[k]) else 0
        rest[k] = float((exact - mp.mpf(float(near[k]))) / size) if size else 0
    return near, rest, known


def errors(got, near, rest):
    """The errors in ulp; infinite if only one of the two values is NaN or infinite."""
    with np.errstate(all="ignore"):
        size = np.spacing(np.minimum(np.abs(near), np.finfo(near.dtype).max)).astype(L)
        error = np.abs((got.astype(L) - near.astype(L)) / size - rest).astype(np.float64)
        # The largest number instead of infinity, or the reverse, is an error of 1 ulp.
        last = np.isinf(got) != np.isinf(near)
        most = (np.abs(got) == np.finfo(got.dtype).max) | (np.abs(near) == np.finfo(got.dtype).max)
        same = (got == near) & ~np.isfinite(near) | np.isnan(got) & np.isnan(near)
    error = np.where(last & most & (np.sign(got) == np.sign(near)), 1, np.where(np.isnan(error), np.inf, error))
    return np.where(same, 0, error)


def ours(name, x):
    import cotangent as ct

    function = getattr(ct, name, None) or getattr(ct.Tensor, name, None) or getattr(ct.special, name)
    return function(ct.from_numpy(x)).numpy()


def measure(name):
    """The lines of the fixture and, for each dtype, the largest error and its argument."""
    lines, worst = [], []
    for dtype, uint, digits in ((np.float32, np.uint32, 8), (np.float64, np.uint64, 16)):
        slow = dtype == np.float64 and name in SPECIAL
        x = points(dtype, name in SPECIAL, SPECIAL[name][2] if slow else None)
        if slow:
            x = x[:: max(1, len(x) // 1_000)]
        near, rest, known = reference(name, x)
        x, near, rest = x[known], near[known], rest[known]
        got = ours(name, x)
        assert got.dtype == dtype, (name, got.dtype)
        error = errors(got, near, rest)
        order = np.argsort(-np.nan_to_num(error, posinf=1e300), kind="stable")
        worst.append((float(error[order[0]]), float(x[order[0]]), float(np.quantile(error, 0.99)), int(np.isinf(error).sum())))
        chosen = np.unique(np.concatenate([order[:40], np.linspace(0, len(x) - 1, 100).astype(int), np.flatnonzero(np.isinf(x)), np.flatnonzero(np.isnan(x))[:1], np.flatnonzero(x == 0)]))
        lines.append(np.dtype(dtype).name)
        for k in chosen:
            a, b = (int(v.view(uint)) for v in (x[k], near[k]))
            lines.append(f"{a:0{digits}x} {b:0{digits}x} {rest[k]:.3g}")
    return lines, worst


HEADER = """# Accuracy of the elementwise functions

The largest errors found, in units in the last place (ulp) of the exact value, on the CPU. `most` is what 99 of 100 points do not
exceed. The points are spread over the bit patterns of the dtype and over its ordinary range, and lie around seams such as powers of
two, ends of domains, overflow and denormal numbers. References have more digits than the dtype. Those of the special functions in f64
are within the range that a reference can be computed for, and those of Bessel functions of the first and the second kind in f32 up to
10⁵. The library is tested to be no less accurate than this table.

Large errors are of these kinds:

- `gelu` far to the left and `tanhshrink` near 0 are differences of nearly equal numbers, as PyTorch computes them. The absolute error
  is that of one rounding of the larger number.
- Near a zero of the function other than 0 the error in ulp grows without bound and the absolute error does not: `digamma`, `lgamma`,
  the Bessel functions and `airy_ai`.
- `bessel_j0`, `bessel_j1`, `bessel_y0`, `bessel_y1` and `airy_ai` far out, where the phase of the wave is rounded.
- `silu` and `mish` far to the left multiply by a number that is denormal.
- `i0`, `i0e`, `i1`, `i1e` and the modified Bessel functions of the second kind sum power series in f64, and lose some ulp.

| function | f32: largest | at | most | f64: largest | at | most |
| --- | --- | --- | --- | --- | --- | --- |
"""


def row(name, worst):
    def cells(largest, at, most, _):
        up = lambda value: "inf" if math.isinf(value) else f"{value * 1.01 + 0.005:.2f}" if value < 100 else f"{value * 1.01:.1e}"
        return f"{up(largest)} | {at:.9g} | {up(most)}"

    return f"| `{name}` | {cells(*worst[0])} | {cells(*worst[1])} |"


def main():
    names = sys.argv[1:] or [*PLAIN, *SPECIAL]
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = {}
    if TABLE.exists():
        rows = {line.split("`")[1]: line for line in TABLE.read_text().splitlines() if line.startswith("| `")}
    for name in names:
        lines, worst = measure(name)
        (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")
        rows[name] = row(name, worst)
        print(rows[name], *[f"({w[3]} infinite)" for w in worst if w[3]], flush=True)
        TABLE.write_text(HEADER + "\n".join(rows[name] for name in sorted(rows)) + "\n")


if __name__ == "__main__":
    main()
