"""Unary and binary elementwise ops, comparisons, where, clamp, and casting."""

import torch
import torch.nn.functional as F

from .core import DTYPES, EXTREMES, HALVES, INF, NAN, TINY, tensor

UNARY = {
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "silu": F.silu,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "sign": torch.sign,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
}
def clamp(x, low=None, high=None, *, min=None, max=None):
    return torch.clamp(x, min if low is None else low, max if high is None else high)


WITH_CONSTANTS = {
    "leaky_relu": lambda x, negative_slope: F.leaky_relu(x, negative_slope),
    "elu": lambda x, alpha: F.elu(x, alpha),
    "gelu": lambda x, approximate: F.gelu(x, approximate=approximate),
    "softplus": lambda x, beta, threshold: F.softplus(x, beta, threshold),
    "clamp": clamp,
}
# The arguments for each of these; the first is used for dtypes and extremes.
CONSTANTS = {
    "leaky_relu": [{"negative_slope": 0.01}, {"negative_slope": 0.3}],
    "elu": [{"alpha": 1.0}, {"alpha": 0.7}],
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "softplus": [{"beta": 1.0, "threshold": 20.0}, {"beta": 2.5, "threshold": 3.0}],
    "clamp": [{"min": -0.8, "max": 1.1}, {"min": None, "max": 0.6}, {"min": -0.4, "max": None}],
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
}
BITS = {"bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor}
# PyTorch does not accept a number here; it is treated as in other ops.
WITHOUT_NUMBERS = (torch.maximum, torch.minimum, torch.atan2, torch.hypot)
COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


def with_number(f):
    """An op with a tensor or a Python number as the right operand."""

    def call(a, b=None, *, other=None, **options):
        if b is None and f in WITHOUT_NUMBERS:
            b = torch.tensor(other, dtype=torch.result_type(a, other))
        return f(a, other if b is None else b, **options)

    return call


def with_exponent(a, b=None, *, exponent=None):
    return torch.pow(a, exponent if b is None else b)


def operand_name(op):
    """The name of the right operand."""
    return "exponent" if op == "pow" else "other"


NAMES = {"pow": ["self", "exponent"], "where": ["self", "input", "other"], "clamp": ["self", "min", "max"]}
FUNCTIONS = {
    **UNARY,
    **WITH_CONSTANTS,
    **{name: with_number(f) for name, f in {**BINARY, **COMPARE, **BITS}.items()},
    "pow": with_exponent,
    "bitwise_not": torch.bitwise_not,
    "where": torch.where,
    "to_dtype": lambda x, dtype: x.to(DTYPES[dtype]),
}

# Ops whose result on extreme inputs is exact or nearly so, denormals included.
EXACT = {"neg", "abs", "relu", "square", "reciprocal", "leaky_relu", "clamp", "sqrt", "log"}
# Both are NaN at -inf in PyTorch (inf * 0), where the limit is 0: not used as a reference.
NOT_AT_MINUS_INF = {"gelu", "silu"}
# PyTorch accepts bools, and returns surprising dtypes; our ops require a cast.
REFUSES_BOOL = {"square", "sign"}

BROADCASTS = [
    ([2, 3], [2, 3]),
    ([2, 3], [1, 3]),
    ([1, 3], [2, 3]),
    ([4, 1], [1, 3]),
    ([1, 3], [4, 1]),
    ([3], [4, 3]),
    ([4, 3], [3]),
    ([], [2, 3]),
    ([2, 3], []),
    ([], []),
    ([2, 1, 3], [4, 1]),
    ([1], [2, 2, 2]),
    ([0, 3], [1, 3]),
    ([1], [0]),
    ([], [0, 2]),
]


def sample(op, draw, shape, dtype="f64"):
    if op in ("log", "sqrt", "log1p"):
        return draw.positive(shape, dtype)
    if op == "reciprocal":
        return draw.away_from_zero(shape, dtype)
    return draw.uniform(shape, -3, 3, dtype)


def extreme_atol(op, dtype):
    return 0.0 if op in EXACT and dtype not in HALVES else TINY[dtype]


def unary(book, op, args, thorough):
    for shape in ([2, 3], [67], []) if thorough else ([3, 4],):
        book.add(op, [sample(op, book.draw(op), shape)], args)
    if not thorough:
        return
    book.add(op, [sample(op, book.draw(op), [2, 0, 3])], args, note="size 0")
    book.add(op, [sample(op, book.draw(op), [3, 7], "f32")], args)
    for dtype in HALVES:
        book.add(op, [sample(op, book.draw(op), [3, 7], dtype)], args, grad=False)
    for dtype, values in EXTREMES.items():
        if op in NOT_AT_MINUS_INF:
            values = [v for v in values if v != -INF]
        if op == "gelu" and dtype != "f64":
            # PyTorch's half-precision kernels return NaN for large values: not used as a reference.
            values = [v for v in values if not abs(v) > 1e4]
        # The tail of gelu is 1 + erf(x), which cancels: only the absolute error is meaningful.
        atol = None if op in ("gelu", "elu") else extreme_atol(op, dtype)
        book.add(op, [tensor(values, dtype)], args, grad=False, note="extreme", atol=atol)
    for dtype in ("i64", "i32", "u8", "bool"):
        draw = book.draw(op)
        if dtype == "bool" and op in REFUSES_BOOL:
            continue
        low = 0 if dtype in ("u8", "bool") or op in ("log", "sqrt") else -4
        book.add_if_defined(op, [draw.integers([2, 4], low, 2 if dtype == "bool" else 5, dtype)], args, grad=False)


def unary_cases(book):
    for op in UNARY:
        unary(book, op, {}, thorough=True)
    for op, choices in CONSTANTS.items():
        for i, args in enumerate(choices):
            unary(book, op, args, thorough=i == 0)
    # Points where the value or the derivative is discontinuous.
    kink = tensor([-1.0, 0.0, 1.0, 0.0])
    for op in ("abs", "relu", "square"):
        book.add(op, [kink], note="at 0")
    book.add("leaky_relu", [kink], {"negative_slope": 0.1}, note="at 0")
    book.add("elu", [kink], {"alpha": 0.5}, note="at 0")
    book.add("sqrt", [tensor([0.0, 4.0])], note="infinite slope at 0")
    edges = tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    book.add("clamp", [edges], {"min": -1.0, "max": 1.0}, note="at the bounds")
    book.add("clamp", [edges], {"min": 1.0, "max": -1.0}, grad=False, note="min above max")
    book.add("clamp", [tensor([NAN, 1.0])], {"min": 0.0, "max": None}, grad=False, note="NaN stays")
    book.add("softplus", [tensor([30.0, 19.9, 20.0, 20.1, -30.0])], {"beta": 1.0, "threshold": 20.0}, note="at the threshold")
    for op in ("tanh", "sigmoid", "silu"):
        book.add(op, [tensor([-40.0, -20.0, -9.0, 9.0, 20.0, 40.0])], note="saturated")
    book.add("gelu", [tensor([-7.0, -4.0, 4.0, 7.0])], {"approximate": "none"}, note="saturated")
    book.add("gelu", [tensor([-7.0, -4.0, 4.0, 7.0])], {"approximate": "tanh"}, note="saturated")


def operands(op, draw, a, b, dtype="f64"):
    if op in ("div", "atan2", "hypot"):
        return [draw.uniform(a, dtype=dtype), draw.away_from_zero(b, dtype)]
    if op == "pow":
        return [draw.positive(a, dtype), draw.uniform(b, dtype=dtype)]
    return [draw.uniform(a, dtype=dtype), draw.uniform(b, dtype=dtype)]


def whole(op, draw, shape, dtype, right):
    """Integers for which `op` is defined: no zero divisors or negative exponents."""
    if dtype == "bool":
        return draw.integers(shape, 0, 2, dtype)
    if right and op in ("div", "pow"):
        return draw.integers(shape, 1, 4, dtype)
    return draw.integers(shape, 0 if dtype.startswith("u") else -4, 5, dtype)


def binary_cases(book):
    for op in BINARY:
        for a, b in BROADCASTS:
            book.add(op, operands(op, book.draw(op), a, b))
        book.add(op, operands(op, book.draw(op), [5, 13], [5, 13]))
        one_sided = operands(op, book.draw(op), [2, 3], [3])
        book.add(op, one_sided, grad=[True, False], note="gradient of the left only")
        book.add(op, one_sided, grad=[False, True], note="gradient of the right only")
        book.add(op, operands(op, book.draw(op), [2, 3], [3], "f32"))
        for dtype in HALVES:
            book.add(op, operands(op, book.draw(op), [2, 3], [3], dtype), grad=False)
        # Mixed floats: each gradient has the dtype of its input.
        a, b = operands(op, book.draw(op), [2, 3], [2, 3])
        book.add(op, [a.float(), b], rtol=1e-5, note="f32 with f64")
        numbers = {"div": (2.0, -0.5, 3), "maximum": (0.5, -0.5, 1), "minimum": (0.5, -0.5, 1)}
        for rhs in numbers.get(op, (2.0, -0.5, 3, 0.0)):
            book.add(op, operands(op, book.draw(op), [2, 3], [])[:1], {operand_name(op): rhs}, note="number")
        integers(book, op)
        extremes(book, op)
    special_binary(book)


def integers(book, op):
    pairs = [("i64", "i64"), ("i32", "i64"), ("u8", "i8"), ("i64", "f32"), ("f64", "i32"), ("bool", "i64"), ("u8", "bool"), ("f16", "i64"), ("bf16", "f16"), ("bool", "bool")]
    for a, b in pairs:
        draw = book.draw(op)
        left = draw.positive([2, 3], a) if DTYPES[a].is_floating_point else whole(op, draw, [2, 3], a, False)
        right = draw.positive([3], b) if DTYPES[b].is_floating_point else whole(op, draw, [3], b, True)
        if op == "pow" and a in ("u8", "i64") and DTYPES[b].is_floating_point:
            left = left.abs()
        book.add_if_defined(op, [left, right], grad=False, note=f"{a} with {b}")
    for dtype, rhs in (("i64", 2), ("i64", 2.5), ("u8", 3), ("i32", 2.0), ("bool", 2), ("bool", 1.5), ("f16", 2), ("bf16", 1.5), ("f32", 2)):
        draw = book.draw(op)
        left = draw.positive([4], dtype) if DTYPES[dtype].is_floating_point else whole(op, draw, [4], dtype, False)
        if op == "pow":
            left = left if dtype == "bool" else left.abs()
        book.add_if_defined(op, [left], {operand_name(op): rhs}, grad=False, note=f"{dtype} with a number")


def extremes(book, op):
    for dtype in ("f64", "f32"):
        huge, small = (1e308, 5e-324) if dtype == "f64" else (3e38, 1e-45)
        values = tensor([INF, -INF, NAN, huge, -huge, small, 0.0, -0.0, 1.5, -2.0], dtype)
        # Every pair of values.
        book.add(op, [values.reshape(-1, 1), values.reshape(1, -1)], grad=False, note="extreme", atol=0.0 if op != "pow" else TINY[dtype])


def special_binary(book):
    base = tensor([[-2.0], [-1.5], [-0.5], [-1.0]])
    book.add("pow", [base, tensor([[2.0, 3.0, -1.0, 0.0, -2.0]])], grad=[True, False], note="negative base")
    book.add("pow", [base, tensor([[0.5, 1.5]])], grad=False, note="negative base, fractional exponent")
    book.add("pow", [tensor([0.0, 0.0, 0.0, 0.0]), tensor([1.0, 2.0, 3.0, 0.5])], note="zero base")
    book.add("pow", [tensor([0.0, 2.0, -1.5, 0.5]), tensor([0.0, 0.0, 0.0, 0.0])], grad=[True, False], note="zero exponent")
    book.add("pow", [tensor([0.0, 2.0]), tensor([0.0, 0.0])], note="zero exponent")
    book.add("pow", [tensor([0.0, 0.0])], {"exponent": -1.0}, grad=False, note="zero base, negative exponent")
    powers = torch.tensor([1j, 2, 1 + 1j, 0.5 - 3j], dtype=torch.complex128)
    book.add("pow", [torch.zeros(4, dtype=torch.complex128), powers], grad=False, note="zero base, complex exponent")
    for rhs in (2, 3, 2.0, 3.0, -1.0, -2, 0.0, 0, 1.0, 1):
        book.add("pow", [tensor([-2.0, -0.7, 0.4, 1.9])], {"exponent": rhs}, note="number")
    for rhs in (0.0, 1.0, 2.0, 3.0, 0.5):
        book.add("pow", [tensor([0.0, 1.5])], {"exponent": rhs}, note="zero base, number")
    for op in ("maximum", "minimum"):
        a, b = tensor([1.0, 2.0, -1.0, 0.0]), tensor([1.0, -2.0, -1.0, 0.5])
        book.add(op, [a, b], note="ties share the gradient")
        book.add(op, [tensor([[1.0], [2.0]]), tensor([[1.0, 2.0, 3.0]])], note="ties, broadcast")
        book.add(op, [tensor([1.0, 2.0, 3.0])], {operand_name(op): 2.0}, note="tie with a number", grad=False)
    zero = tensor([0, 0, 0, 2], "i64")
    book.add("div", [tensor([1, -1, 0, 3], "i64"), zero], grad=False, note="integers by zero")
    book.add("div", [tensor([1.0, -1.0, 0.0]), tensor([0.0, 0.0, 0.0])], grad=False, note="by zero")
    book.add("add", [tensor([127, -128, 100], "i8"), tensor([1, -1, 100], "i8")], grad=False, note="wraps")
    book.add("sub", [tensor([0, 255], "u8"), tensor([1, 255], "u8")], grad=False, note="wraps")
    book.add("mul", [tensor([100, -100], "i8"), tensor([2, 2], "i8")], grad=False, note="wraps")
    big = tensor([2**62, 2**53 + 1, -(2**53) - 1], "i64")
    book.add("add", [big, tensor([1, 1, -1], "i64")], grad=False, note="beyond f64's integers")
    book.add("mul", [big, tensor([1, 3, 3], "i64")], grad=False, note="beyond f64's integers")


def compare_cases(book):
    for op in COMPARE:
        for a, b in ([2, 3], [2, 3]), ([2, 3], [1, 3]), ([1, 3], [4, 1]), ([], [5]), ([0, 3], [3]), ([], []):
            draw = book.draw(op)
            book.add(op, [draw.integers(a, 0, 3, "f64"), draw.integers(b, 0, 3, "f64")], grad=False)
        values = tensor([INF, -INF, NAN, 0.0, -0.0, 1.0])
        book.add(op, [values.reshape(-1, 1), values], grad=False, note="extreme")
        for a, b in ("i64", "i64"), ("u8", "i8"), ("i64", "f32"), ("bool", "bool"), ("bool", "f16"), ("bf16", "f64"), ("f32", "f64"):
            draw = book.draw(op)
            book.add(op, [draw.integers([2, 4], 0, 2, a), draw.integers([4], 0, 2, b)], grad=False, note=f"{a} with {b}")
        for dtype, rhs in ("f64", 1.0), ("f32", 1), ("i64", 1), ("i64", 0.5), ("u8", 1), ("bool", 1), ("bf16", 1.0):
            draw = book.draw(op)
            book.add(op, [draw.integers([5], 0, 2, dtype)], {operand_name(op): rhs}, grad=False, note=f"{dtype} with a number")
        big = tensor([2**53, 2**53 + 1], "i64")
        book.add(op, [big, big.flip(0)], grad=False, note="beyond f64's integers")


def where_cases(book):
    shapes = [([2, 3],) * 3, ([3], [2, 3], [2, 1]), ([2, 1], [3], []), ([], [2, 3], [3]), ([0, 3], [3], [1, 3]), ([2, 3], [], []), ([], [], [])]
    for c, a, b in shapes:
        draw = book.draw("where")
        book.add("where", [draw.integers(c, 0, 2, "bool"), draw.uniform(a), draw.uniform(b)])
    draw = book.draw("where")
    mask = draw.integers([2, 3], 0, 2, "bool")
    book.add("where", [mask, draw.uniform([2, 3]), draw.uniform([2, 3])], grad=[False, False, True], note="one side")
    book.add("where", [mask, draw.uniform([2, 3], dtype="f32"), draw.uniform([3], dtype="f32")])
    for a, b in ("f16", "f16"), ("bf16", "bf16"), ("i64", "f32"), ("i64", "i32"), ("bool", "u8"), ("f32", "f64"), ("bool", "bool"):
        draw = book.draw("where")
        book.add("where", [mask, draw.integers([2, 3], 0, 2, a), draw.integers([2, 3], 0, 2, b)], grad=False, note=f"{a} with {b}")
    half = tensor([True, False, True], "bool")
    book.add("where", [half, tensor([1.0, NAN, INF]), tensor([NAN, 2.0, NAN])], note="the side not taken may be NaN")


def cast_cases(book):
    for source in DTYPES:
        for target in DTYPES:
            if source.startswith("c") or target.startswith("c"):
                continue
            draw = book.draw("to_dtype")
            if DTYPES[source].is_floating_point:
                # Unsigned targets of negative floats are undefined behaviour in PyTorch.
                x = draw.uniform([5], 0 if target.startswith("u") else -9, 9, source, decimals=2)
            else:
                x = draw.integers([5], 0, 2 if source == "bool" else 100, source)
            book.add("to_dtype", [x], {"dtype": target}, grad=False)
    for source, target in ("f64", "f32"), ("f32", "f64"), ("f64", "f64"), ("f64", "f16"), ("f64", "bf16"), ("f32", "bf16"):
        book.add("to_dtype", [book.draw("to_dtype").uniform([2, 3], dtype=source)], {"dtype": target}, note="gradient in the input's dtype")
    wide = tensor([300, -1, -129, 128, 70000, 255], "i64")
    for target in ("i8", "u8", "i16", "u16", "i32", "u32", "bool"):
        book.add("to_dtype", [wide], {"dtype": target}, grad=False, note="wraps")
    floats = tensor([1.9, -1.9, 0.5, -0.5, 2.5, 3.5])
    book.add("to_dtype", [floats], {"dtype": "i32"}, grad=False, note="towards zero")
    edge = tensor([INF, -INF, NAN, 1e39, -1e39, 70000.0, 1e-50, 1e-6, 0.0])
    for target in ("f32", "f16", "bf16"):
        book.add("to_dtype", [edge], {"dtype": target}, grad=False, note="overflow and underflow", atol=0.0)
    book.add("to_dtype", [tensor([NAN, 0.0, -0.0, 1e-300, INF, -2.0])], {"dtype": "bool"}, grad=False)
    ties = tensor([1.00390625, 1.01171875, 256.5, 257.0, 258.5, 2049.0, 2051.0])
    for target in HALVES:
        book.add("to_dtype", [ties], {"dtype": target}, grad=False, note="halfway goes to even", rtol=0.0, atol=0.0)
    book.add("to_dtype", [book.draw("to_dtype").uniform([0, 2])], {"dtype": "f32"}, note="size 0")
    book.add("to_dtype", [book.draw("to_dtype").uniform([])], {"dtype": "f32"}, note="0-d")
    book.add("to_dtype", [tensor([2**63 - 1, 2**53 + 1, -(2**63)], "i64")], {"dtype": "f64"}, grad=False, note="large integers")
    book.add("to_dtype", [tensor([2**53 + 1, 2**62 + 1], "i64")], {"dtype": "u64"}, grad=False, note="large integers")


def rounded_cases(book):
    values = tensor([7.0, -7.0, 6.5, -0.3, 0.0, 9.0, -9.0])
    for mode in ("trunc", "floor"):
        book.add("div", [values, tensor([2.0, 2.0, -2.0, 0.5, 3.0, 0.1, 3.0])], {"rounding_mode": mode}, grad=False)
        book.add("div", [values.reshape(-1, 1), tensor([0.7, -1.3])], {"rounding_mode": mode}, grad=False)
        book.add("div", [values], {"other": 0.7, "rounding_mode": mode}, grad=False, note="number")
        for dtype in ("i64", "i8"):
            ints = tensor([7, -7, 7, -7, 0, 6, -6], dtype)
            book.add("div", [ints, tensor([2, 2, -2, -2, 3, 3, 3], dtype)], {"rounding_mode": mode}, grad=False)
        book.add("div", [tensor([7, 9, 0], "u8"), tensor([2, 3, 4], "u8")], {"rounding_mode": mode}, grad=False)
        for dtype in ("f32", *HALVES):
            book.add("div", [values.to(DTYPES[dtype])], {"other": 2, "rounding_mode": mode}, grad=False)
        edge = tensor([1.0, -1.0, 0.0, INF, 1.0, NAN, -INF])
        by = tensor([0.0, 0.0, 0.0, 2.0, INF, 1.0, -3.0])
        book.add("div", [edge, by], {"rounding_mode": mode}, grad=False, note="extreme")


def bit_cases(book):
    for op in BITS:
        for dtype in ("i64", "i32", "i16", "i8", "u8", "bool"):
            draw = book.draw(op)
            low, high = (0, 2) if dtype == "bool" else (0 if dtype == "u8" else -90, 90)
            book.add(op, [draw.integers([2, 3], low, high, dtype), draw.integers([3], low, high, dtype)], grad=False)
        draw = book.draw(op)
        book.add(op, [draw.integers([4], -9, 9, "i32"), draw.integers([4], -9, 9, "i64")], grad=False, note="i32 with i64")
        book.add(op, [draw.integers([4], 0, 2, "bool"), draw.integers([4], -9, 9, "i8")], grad=False, note="bool with i8")
        book.add(op, [draw.integers([4], -99, 99)], {"other": 12}, grad=False, note="number")
        book.add(op, [draw.integers([], -99, 99), draw.integers([0], -9, 9)], grad=False, note="size 0")
    for dtype in ("i64", "i8", "u8", "bool"):
        draw = book.draw("bitwise_not")
        low, high = (0, 2) if dtype == "bool" else (0, 100)
        book.add("bitwise_not", [draw.integers([2, 3], low, high, dtype)], grad=False)


def special_quadrants(book):
    ys, xs = tensor([[0.0], [-0.0], [1.0], [-2.0], [INF], [-INF], [NAN]]), tensor([[0.0, -0.0, 3.0, -1.0, INF, -INF]])
    book.add("atan2", [ys, xs], grad=False, note="all quadrants")
    book.add("atan2", [tensor([0.0, 1.0]), tensor([0.0, 0.0])], note="at the origin the gradient is 0")
    for op in ("maximum", "minimum"):
        book.add(op, [tensor([NAN, 1.0, NAN, 1.0]), tensor([1.0, NAN, NAN, 1.0])], note="gradients where one is NaN")
    book.add("relu", [tensor([NAN, 0.0, -0.0, INF, -INF])], note="gradients at NaN and 0")
    book.add("hypot", [tensor([1e300, 3e-300]), tensor([1e300, 4e-300])], note="squares over- and underflow")


def clamp_cases(book):
    draw = book.draw("clamp")
    x = draw.uniform([3, 4])
    book.add("clamp", [x, draw.uniform([4], -1.5, -0.5), draw.uniform([3, 1], 0.5, 1.5)], note="tensors", grad=[True, True, True])
    book.add("clamp", [x, draw.uniform([], -1.0, 0.0), None], note="one tensor", grad=[True, False])
    # If a bound is NaN, PyTorch's gradients of all three inputs are 0.
    every, bounds = tensor([0.0, 1.0, 2.0, NAN]), tensor([0.0, 1.0, 2.0])
    three = [one.reshape(-1).clone() for one in torch.meshgrid(every, bounds, bounds, indexing="ij")]
    book.add("clamp", three, note="ties, NaN and a least value above the greatest", grad=[True, True, True])
    big = tensor([2**24 + 1, -5, 7], "i64")
    book.add("clamp", [big], {"min": 0, "max": 2**25}, grad=False, note="integers stay integers")
    book.add("clamp", [tensor([1, 5, 9], "u8")], {"min": 3, "max": None}, grad=False)
    book.add("clamp", [tensor([1, 5, 9], "i64")], {"min": 2.5, "max": None}, grad=False, note="integers with a float")


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    unary_cases(book)
    binary_cases(book)
    rounded_cases(book)
    special_quadrants(book)
    clamp_cases(book)
    bit_cases(book)
    compare_cases(book)
    where_cases(book)
    cast_cases(book)
