"""Elementwise functions beyond those of elementwise.py: angles, rounding, special functions, activations, more arithmetic."""

import torch
import torch.nn.functional as F

from .core import DTYPES, HALVES, INF, NAN, tensor

S = torch.special
# Name: PyTorch's function, and the range of the samples.
UNARY = {
    "tan": (torch.tan, -1.3, 1.3),
    "asin": (torch.asin, -0.95, 0.95),
    "acos": (torch.acos, -0.95, 0.95),
    "atan": (torch.atan, -3, 3),
    "sinh": (torch.sinh, -3, 3),
    "cosh": (torch.cosh, -3, 3),
    "asinh": (torch.asinh, -3, 3),
    "acosh": (torch.acosh, 1.1, 4),
    "atanh": (torch.atanh, -0.95, 0.95),
    "sinc": (torch.sinc, -3, 3),
    "deg2rad": (torch.deg2rad, -300, 300),
    "rad2deg": (torch.rad2deg, -5, 5),
    "exp2": (torch.exp2, -3, 3),
    "log2": (torch.log2, 0.2, 5),
    "log10": (torch.log10, 0.2, 5),
    "rsqrt": (torch.rsqrt, 0.2, 5),
    "floor": (torch.floor, -3, 3),
    "ceil": (torch.ceil, -3, 3),
    "trunc": (torch.trunc, -3, 3),
    "frac": (torch.frac, -3, 3),
    "positive": (torch.positive, -3, 3),
    "erfc": (torch.erfc, -3, 3),
    "erfinv": (torch.erfinv, -0.95, 0.95),
    "erfcx": (S.erfcx, -2, 5),
    "lgamma": (torch.lgamma, 0.2, 6),
    "digamma": (torch.digamma, 0.2, 6),
    "i0": (torch.i0, -4, 4),
    "i0e": (S.i0e, -4, 4),
    "i1": (S.i1, -4, 4),
    "i1e": (S.i1e, -4, 4),
    "entr": (S.entr, 0.1, 3),
    "ndtr": (S.ndtr, -3, 3),
    "ndtri": (S.ndtri, 0.05, 0.95),
    "log_ndtr": (S.log_ndtr, -4, 3),
    "logsigmoid": (F.logsigmoid, -4, 4),
    "relu6": (F.relu6, -3, 9),
    "selu": (F.selu, -3, 3),
    "mish": (F.mish, -4, 4),
    "softsign": (F.softsign, -3, 3),
    "hardsigmoid": (F.hardsigmoid, -5, 5),
    "hardswish": (F.hardswish, -5, 5),
    "tanhshrink": (F.tanhshrink, -3, 3),
}
CLASSES = {
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
}
OPTIONS = {
    "round": (lambda x, decimals=0: torch.round(x, decimals=decimals), [{}, {"decimals": 2}, {"decimals": -1}], -30, 30),
    "nan_to_num": (torch.nan_to_num, [{}, {"nan": 1.5, "posinf": 7.0, "neginf": -7.0}], -3, 3),
    "logit": (torch.logit, [{}, {"eps": 0.2}], 0.05, 0.95),
    "celu": (F.celu, [{}, {"alpha": 0.6}], -3, 3),
    "hardtanh": (F.hardtanh, [{}, {"min_val": -0.5, "max_val": 2.0}], -3, 3),
    "hardshrink": (F.hardshrink, [{}, {"lambd": 1.0}], -2, 2),
    "softshrink": (F.softshrink, [{}, {"lambd": 1.0}], -2, 2),
    "threshold": (F.threshold, [{"threshold": 0.3, "value": -2.0}, {"threshold": -1, "value": 5}], -3, 3),
    "polygamma": (lambda x, n: torch.polygamma(n, x), [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 4}], 0.3, 5),
    "mvlgamma": (torch.mvlgamma, [{"p": 1}, {"p": 3}], 1.5, 5),
    "glu": (F.glu, [{}, {"dim": 0}], -3, 3),
    "softmin": (lambda x, dim: F.softmin(x, dim), [{"dim": 0}, {"dim": -1}], -3, 3),
    "swiglu": (lambda x, dim=-1: F.silu(x.chunk(2, dim)[0]) * x.chunk(2, dim)[1], [{}, {"dim": 0}], -3, 3),
    "rrelu": (F.rrelu, [{}, {"lower": 0.2, "upper": 0.5}], -3, 3),
}
# Name: the function, the ranges of the left and right operands, and whether to test integers.
BINARY = {
    "floor_divide": (torch.floor_divide, (-5, 5), (0.3, 2), True),
    "remainder": (torch.remainder, (-5, 5), (0.3, 2), True),
    "fmod": (torch.fmod, (-5, 5), (0.3, 2), True),
    "fmax": (torch.fmax, (-2, 2), (-2, 2), True),
    "fmin": (torch.fmin, (-2, 2), (-2, 2), True),
    "logaddexp": (torch.logaddexp, (-3, 3), (-3, 3), False),
    "logaddexp2": (torch.logaddexp2, (-3, 3), (-3, 3), False),
    "copysign": (torch.copysign, (-2, 2), (-2, 2), True),
    "ldexp": (torch.ldexp, (-2, 2), (-2, 2), True),
    "xlogy": (torch.xlogy, (-2, 2), (0.2, 3), False),
    "xlog1py": (S.xlog1py, (-2, 2), (-0.8, 3), False),
    "nextafter": (torch.nextafter, (-2, 2), (-2, 2), False),
    "logical_and": (torch.logical_and, (-1, 1), (-1, 1), True),
    "logical_or": (torch.logical_or, (-1, 1), (-1, 1), True),
    "logical_xor": (torch.logical_xor, (-1, 1), (-1, 1), True),
}
WITHOUT_GRADIENT = {"floor_divide", "logical_and", "logical_or", "logical_xor", "nextafter"}
INTS = {
    "gcd": torch.gcd,
    "lcm": torch.lcm,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
}


def both(f):
    """An op with a tensor or a number as the right operand."""

    def call(a, b=None, *, other=None, **options):
        b = torch.tensor(other, dtype=torch.result_type(a, other)) if b is None else b
        return f(a, b, **options)

    return call


def float_power(a, b=None, *, exponent=None):
    return torch.float_power(a, exponent if b is None else b)


def lerp(a, b, w=None, *, weight=None):
    return torch.lerp(a, b, weight if w is None else w)


FUNCTIONS = {
    **{name: f for name, (f, *_) in UNARY.items()},
    **CLASSES,
    **{name: f for name, (f, *_) in OPTIONS.items()},
    **{name: both(f) for name, (f, *_) in BINARY.items()},
    **{name: both(f) for name, f in INTS.items()},
    "frexp": torch.frexp,
    "heaviside": torch.heaviside,
    "lerp": lerp,
    "addcmul": torch.addcmul,
    "addcdiv": torch.addcdiv,
    "float_power": float_power,
    "rsub": both(torch.rsub),
    "isclose": both(torch.isclose),
    "prelu": F.prelu,
    "zeta": both(S.zeta),
    "igamma": both(torch.igamma),
    "igammac": both(torch.igammac),
}
NAMES = {
    "heaviside": ["self", "values"],
    "lerp": ["self", "end", "weight"],
    "addcmul": ["self", "tensor1", "tensor2"],
    "addcdiv": ["self", "tensor1", "tensor2"],
    "float_power": ["self", "exponent"],
    "prelu": ["self", "weight"],
}
EDGES = [INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 6.0, 1e-20, 30.0, -30.0, 1e10]
# Values where PyTorch is wrong or its kernels differ: not used as references.
SKIP_EDGES = {
    "mish": lambda v: v == -INF,
    "tanhshrink": lambda v: abs(v) < 1e-10 and v != 0,
    "erfcx": lambda v: v <= -30,
    "digamma": lambda v: v <= 0,
    "hardswish": lambda v: v == -INF,
    "selu": lambda v: False,
    "i0": lambda v: abs(v) >= 1e10,
    "i1": lambda v: abs(v) >= 1e10,
    "sinc": lambda v: abs(v) in (1.0, 3.0, 6.0, 30.0, 1e10),
    "softsign": lambda v: abs(v) == INF,
    "lgamma": lambda v: False,
}


# Ops with constants that PyTorch rounds to f32 for all dtypes.
ROUGH = {"celu": 1e-6, "hardsigmoid": 1e-6}


def unary_cases(book, op, args, low, high, thorough=True):
    shapes = ([4, 6], [2, 4]) if op in ("glu", "swiglu", "softmin") else ([2, 3], [17], [])
    for shape in shapes:
        book.add(op, [book.draw(op).uniform(shape, low, high)], args, rtol=ROUGH.get(op))
    if not thorough:
        return
    book.add(op, [book.draw(op).uniform([2, 0] if op != "softmin" else [2, 0], low, high)], args, note="size 0")
    book.add(op, [book.draw(op).uniform([2, 4], low, high, "f32")], args)
    for dtype in HALVES:
        book.add_if_defined(op, [book.draw(op).uniform([2, 4], low, high, dtype)], args, grad=False)
    for dtype in ("i64", "u8", "bool"):
        draw = book.draw(op)
        if op == "threshold":
            continue
        x = draw.integers([2, 2], max(0, int(low)) if dtype != "i64" else int(low), 2 if dtype == "bool" else max(int(high), 1), dtype)
        book.add_if_defined(op, [x], args, grad=False)


def add_unary(book):
    for op, (_, low, high) in UNARY.items():
        unary_cases(book, op, {}, low, high)
        for dtype in ("f64", "f32"):
            values = [v for v in EDGES if not SKIP_EDGES.get(op, lambda _: False)(v)]
            book.add(op, [tensor(values, dtype)], grad=False, note="edges", rtol=1e-6 if dtype == "f64" else 1e-4)
    for op in CLASSES:
        for dtype in ("f64", "f32", "f16"):
            book.add(op, [tensor([INF, -INF, NAN, 0.0, -0.0, 1.0, -1.5], dtype)], grad=False)
        for dtype in ("i64", "u8", "bool"):
            book.add_if_defined(op, [book.draw(op).integers([4], 0, 2, dtype)], grad=False)
        book.add(op, [tensor([-1, 0, 5], "i32")], grad=False)
        book.add(op, [tensor([]).reshape(2, 0)], grad=False, note="size 0")
    for op, (_, choices, low, high) in OPTIONS.items():
        for i, args in enumerate(choices):
            unary_cases(book, op, args, low, high, thorough=i == 0)
    kink = tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0])
    for op in ("relu6", "selu", "hardsigmoid", "hardswish", "hardtanh", "hardshrink", "softshrink", "celu", "softsign", "floor", "trunc"):
        book.add(op, [kink], note="at the kinks", rtol=ROUGH.get(op))
    book.add("sinc", [tensor([0.0, 0.25, 0.5])], note="at 0")
    for op in ("i0e", "i1", "i1e", "entr"):
        book.add(op, [tensor([0.0, 1.0])], note="at 0", grad=op != "entr" and [True])
    book.add("round", [tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.4999999])], note="half to even")
    book.add("nan_to_num", [tensor([NAN, INF, -INF, 1.0])], note="replaced")
    book.add("nan_to_num", [tensor([NAN, INF, -INF, 1.0], "f32")], grad=False)
    book.add("nan_to_num", [tensor([NAN, INF, -INF, 1.0], "f16")], grad=False)
    book.add("nan_to_num", [tensor([NAN, INF, -INF, 1.0], "bf16")], grad=False)
    book.add("logit", [tensor([0.0, 1.0, 0.5, -0.5, 1.5])], {"eps": 0.1}, note="outside")
    book.add("logit", [tensor([0.0, 1.0, 0.5, -0.5, 1.5])], note="outside", grad=False)
    book.add("logsigmoid", [tensor([-700.0, -40.0, 0.0, 40.0, 700.0])], note="tails")
    book.add("log_ndtr", [tensor([-30.0, -10.0, -1.0, 0.0, 10.0])], note="tails")
    book.add("lgamma", [tensor([-0.5, -1.5, -2.7, 100.0])], note="negative")
    book.add("digamma", [tensor([-0.5, -1.5, -2.7, 100.0])], note="negative")
    book.add("digamma", [tensor([1e10, INF])], note="large")
    book.add("remainder", [tensor([2.0, 2.0, -2.0, -2.0]), tensor([INF, -INF, INF, -INF])], note="by infinity")
    book.add("threshold", [tensor([-1, 0, 4], "i64")], {"threshold": 0, "value": 7}, grad=False)
    book.add("frac", [tensor([-1.5, 1e18, -0.0])], grad=False)


def add_binary(book):
    for op, (_, left, right, ints) in BINARY.items():
        grad = False if op in WITHOUT_GRADIENT else "auto"
        for a, b in ([2, 3], [2, 3]), ([2, 3], [3]), ([4, 1], [1, 3]), ([], [3]), ([0, 3], [3]):
            draw = book.draw(op)
            book.add(op, [draw.uniform(a, *left), draw.uniform(b, *right)], grad=grad)
        draw = book.draw(op)
        book.add(op, [draw.uniform([2, 3], *left, "f32"), draw.uniform([3], *right, "f32")], grad=grad)
        for dtype in HALVES:
            draw = book.draw(op)
            book.add_if_defined(op, [draw.uniform([4], *left, dtype), draw.uniform([4], *right, dtype)], grad=False)
        if op not in ("nextafter",):
            book.add(op, [book.draw(op).uniform([4], *left)], {"other": 0.75}, note="number", grad=grad)
        if ints:
            for a, b in ("i64", "i64"), ("i32", "i64"), ("u8", "u8"), ("i64", "f32"):
                draw = book.draw(op)
                x, y = draw.integers([2, 3], 0 if a == "u8" else -9, 9, a), draw.integers([3], 1, 5, b)
                book.add_if_defined(op, [x, y], grad=False, note=f"{a} with {b}")
        values = [INF, -INF, NAN, 0.0, -0.0, 1.5, -2.0]
        if op in ("floor_divide", "remainder", "fmod"):
            # PyTorch's vector and scalar kernels differ for infinite quotients.
            values = [0.0, -0.0, 1.5, -2.0, 3.0]
        if op in ("xlogy", "xlog1py", "ldexp", "logaddexp2"):
            values = [NAN, 0.0, 1.5, 2.0]
        x = tensor(values)
        book.add(op, [x.reshape(-1, 1), x.reshape(1, -1)], grad=False, note="edges")
    for op in ("fmax", "fmin"):
        book.add(op, [tensor([1.0, 2.0, NAN, 3.0, NAN]), tensor([1.0, 3.0, 1.0, NAN, NAN])], note="ties and NaN")
    book.add("copysign", [tensor([0.0, -0.0, 2.0]), tensor([-1.0, 1.0, -0.0])], note="zeros")
    book.add("xlogy", [tensor([0.0, 0.0, 1.0]), tensor([0.0, 2.0, 2.0])], note="at 0")
    book.add("logaddexp", [tensor([INF, -INF, 1.0, 1000.0]), tensor([1.0, 1.0, 1.0, -1000.0])], grad=False)
    for op in INTS:
        for dtype in ("i64", "i32", "i16", "u8"):
            draw = book.draw(op)
            low = 0 if dtype == "u8" else -40
            left, right = draw.integers([2, 3], low, 40, dtype), draw.integers([3], 0 if "shift" in op else low, 7 if "shift" in op else 40, dtype)
            book.add(op, [left, right], grad=False)
        book.add(op, [tensor([0, 0, 5], "i64"), tensor([0, 5, 0], "i64")], grad=False)
        book.add(op, [tensor([12, -8], "i64")], {"other": 2}, grad=False)


def add_others(book):
    book.add("frexp", [tensor([0.0, 1.0, -12.0, 0.1, 1e300, 5e-324])], grad=False)
    book.add("frexp", [book.draw("frexp").uniform([2, 3], 0.1, 9)])
    book.add("frexp", [book.draw("frexp").uniform([2, 3], -9, 9, "f32")])
    for dtype in ("f64", "f32", "i64"):
        book.add("heaviside", [tensor([-1, 0, 2, 0], dtype), tensor([1, 0, 3, 2], dtype)], grad=False)
    book.add("heaviside", [tensor([NAN, -0.0, INF, -INF]), tensor([0.5])], grad=False)
    for a, b, w in ([2, 3], [2, 3], [2, 3]), ([2, 3], [3], []), ([1], [4, 1], [3]), ([0], [0], [1]):
        draw = book.draw("lerp")
        book.add("lerp", [draw.uniform(a), draw.uniform(b), draw.uniform(w, 0, 1)])
    book.add("lerp", [book.draw("lerp").uniform([3]), book.draw("lerp").uniform([3])], {"weight": 0.3})
    book.add("lerp", [tensor([1.0, -1e16]), tensor([2.0, 1.0])], {"weight": 1.0}, note="exact at the end")
    for op in ("addcmul", "addcdiv"):
        for args in ({}, {"value": -1.5}):
            for a, b, c in ([2, 3], [2, 3], [2, 3]), ([2, 3], [3], [2, 1]), ([], [2], [1]):
                draw = book.draw(op)
                book.add(op, [draw.uniform(a), draw.uniform(b), draw.away_from_zero(c)], args)
        draw = book.draw(op)
        book.add(op, [draw.uniform([3], dtype="f32"), draw.uniform([3], dtype="f32"), draw.away_from_zero([3], "f32")])
    book.add("addcmul", [tensor([1, 2], "i64"), tensor([3, 4], "i64"), tensor([5, 6], "i64")], {"value": 2}, grad=False)
    for dtype in ("f64", "f32", "f16", "i64", "u8", "bool"):
        draw = book.draw("float_power")
        x = draw.positive([3], dtype) if DTYPES[dtype].is_floating_point else draw.integers([3], 1, 2 if dtype == "bool" else 5, dtype)
        book.add("float_power", [x, draw.uniform([2, 3])], grad=dtype in ("f64", "f32") and [True, True])
        book.add("float_power", [x], {"exponent": -2}, grad=False)
    for args in ({}, {"alpha": 2}, {"alpha": 0.5}):
        draw = book.draw("rsub")
        book.add("rsub", [draw.uniform([2, 3]), draw.uniform([3])], args)
    book.add("rsub", [tensor([1, 2], "i64")], {"other": 10, "alpha": 3}, grad=False)
    close = tensor([1.0, 1.00001, INF, INF, -INF, NAN, 0.0, 1e-9]), tensor([1.00001, 1.0, INF, -INF, 1.0, NAN, 1e-9, 0.0])
    for args in ({}, {"rtol": 0.0}, {"rtol": 1e-3, "atol": 0.0}, {"equal_nan": True}):
        book.add("isclose", list(close), args, grad=False)
    book.add("isclose", [tensor([100, 7], "i64"), tensor([101, 7], "i64")], {"rtol": 0.02}, grad=False)
    for a, w in ([2, 3, 4], [3]), ([2, 3], [1]), ([5], [1]), ([2, 3], [3]):
        draw = book.draw("prelu")
        book.add("prelu", [draw.uniform(a), draw.uniform(w, 0.1, 0.5)])
    book.add("prelu", [tensor([0.0, -0.0, 1.0]), tensor([0.3])], note="at 0")
    for op, low in ("zeta", 1.2), ("igamma", 0.3), ("igammac", 0.3):
        for a, b in ([2, 3], [2, 3]), ([3], [4, 1]), ([0], [1]):
            draw = book.draw(op)
            book.add(op, [draw.uniform(a, low, 6), draw.uniform(b, 0.2, 6)], grad=[False, True])
        draw = book.draw(op)
        book.add(op, [draw.uniform([4], low, 6, "f32"), draw.uniform([4], 0.2, 6, "f32")], grad=False)
    book.add("igamma", [tensor([0.0, 1.0, 0.0, 2.0, INF, 1.0, -1.0]), tensor([1.0, 0.0, 0.0, INF, 1.0, -1.0, 1.0])], grad=False, note="edges")
    book.add("zeta", [tensor([1.0, 0.5, 2.0, 2.0, 2.5, 3.0]), tensor([2.0, 2.0, -1.0, -0.5, -0.5, -1.5])], grad=False, note="edges")


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    add_unary(book)
    add_binary(book)
    add_others(book)
