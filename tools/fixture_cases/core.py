"""Shared by all subjects: drawing inputs, running a case in PyTorch, and writing it."""

import json
import math
import zlib

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
HALVES = ("f16", "bf16")

INF = math.inf
NAN = math.nan
# Extreme values of each float type: infinities, NaN, huge and denormal numbers, both zeros, and
# arguments near overflow and underflow of exp.
EXTREMES = {
    "f64": [INF, -INF, NAN, 1e308, -1e308, 5e-324, -5e-324, 1e-310, -1e-310, 0.0, -0.0, 1.0, -1.0, 50.0, -50.0, 709.0, -700.0],
    "f32": [INF, -INF, NAN, 3e38, -3e38, 1e-45, -1e-45, 1e-40, -1e-40, 0.0, -0.0, 1.0, -1.0, 50.0, -50.0, 88.0, -80.0],
    "f16": [INF, -INF, NAN, 65504.0, -65504.0, 6e-8, -6e-8, 0.0, -0.0, 1.0, -1.0, 11.0, -9.0],
    "bf16": [INF, -INF, NAN, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0, 1.0, -1.0, 88.0, -80.0],
}
# Absolute tolerances for extreme cases, at the limit of denormal numbers: intermediate results may
# be flushed to zero (1 / (1 + exp(100)) in f32).
TINY = {"f64": 1e-300, "f32": 1e-37, "f16": 1e-3, "bf16": 1e-37}


class Draw:
    """Random inputs from a seed, rounded to a few decimals to keep the files small."""

    def __init__(self, key):
        self.generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))

    def uniform(self, shape, low=-2.0, high=2.0, dtype="f64", decimals=4):
        u = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return ((u * (high - low) + low).round(decimals=decimals)).to(DTYPES[dtype])

    def complex(self, shape, low=-2.0, high=2.0, dtype="c128", decimals=4):
        parts = self.uniform([*shape, 2], low, high, "f64", decimals)
        return torch.view_as_complex(parts).to(DTYPES[dtype])

    def positive(self, shape, dtype="f64", low=0.2, high=3.0):
        return self.uniform(shape, low, high, dtype)

    def away_from_zero(self, shape, dtype="f64"):
        """Numbers of both signs, at least 0.3 away from zero, for divisors."""
        size = self.uniform(shape, 0.3, 2.5)
        sign = torch.rand(shape, generator=self.generator) < 0.5
        return torch.where(sign, -size, size).to(DTYPES[dtype])

    def integers(self, shape, low, high, dtype="i64"):
        """Integers in [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator).to(DTYPES[dtype])

    def distinct(self, shape, dtype="f64"):
        """Distinct numbers, for max, min and similar ops without ties."""
        n = math.prod(shape)
        order = torch.randperm(n, generator=self.generator).to(torch.float64)
        return ((order - n / 2) * 0.37 + 0.05).round(decimals=4).reshape(shape).to(DTYPES[dtype])

    def near_one(self, shape, dtype="f64"):
        """Distinct numbers near 1, so that products neither vanish nor explode."""
        return (self.distinct(shape) * 0.1 + 1.0).round(decimals=5).to(DTYPES[dtype])


def tensor(data, dtype="f64"):
    return torch.tensor(data, dtype=DTYPES[dtype])


def number(value):
    """A float for JSON, with non-finite values as strings."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def shortest(value, dtype):
    """The shortest decimal that rounds to `value` in `dtype`."""
    if dtype == torch.float64 or not math.isfinite(value):
        return number(value)
    for digits in range(1, 12):
        short = float(f"{value:.{digits}g}")
        if torch.tensor(short, dtype=torch.float64).to(dtype).item() == value:
            return short
    return value


def encode(t, layout=False):
    """A tensor of expected values, written exactly."""
    t = t.detach()
    if t.is_complex():
        # The real and imaginary parts, interleaved.
        data = [number(v) for v in torch.view_as_real(t.resolve_conj().contiguous()).reshape(-1).tolist()]
    else:
        data = t.reshape(-1).tolist()
    if t.is_floating_point():
        data = [number(v) for v in data]
    out = {"shape": list(t.shape), "dtype": NAMES[t.dtype], "data": data}
    if layout:
        out["strides"] = list(t.stride())
        out["offset"] = t.storage_offset()
    return out


def encode_input(t):
    """An input, written with the fewest digits that round to the same value."""
    out = encode(t)
    if t.is_complex():
        parts = torch.view_as_real(t.detach().resolve_conj().contiguous())
        out["data"] = [shortest(v, parts.dtype) for v in parts.reshape(-1).tolist()]
    if t.is_floating_point():
        out["data"] = [shortest(v, t.dtype) for v in t.detach().reshape(-1).tolist()]
    return out


def encode_all(ts, layout=False):
    """A tensor as an object, or several as a list of objects."""
    if isinstance(ts, torch.Tensor):
        return encode(ts, layout)
    return [encode(t, layout) for t in ts]


class Book:
    """The cases of all ops, with a JSON file for each op."""

    def __init__(self):
        self.functions = {}
        self.names = {}
        self.cases = {}
        self.drawn = {}
        self.undefined = []
        self.infinite = {}

    def define(self, functions, names=None):
        """Defines ops by functions of PyTorch, with tensors by position and other arguments by name. `names` has the
        names of the tensor parameters if they are not `self` and `other`."""
        self.functions.update(functions)
        self.names.update(names or {})

    def draw(self, op):
        """A new generator, seeded by the op and the number of the draw, so that a case added at the end of an op
        does not change the others."""
        self.drawn[op] = self.drawn.get(op, 0) + 1
        return Draw(f"{op}/{self.drawn[op]}")

    def add(self, op, inputs, args=None, grad="auto", note=None, rtol=None, atol=None, layout=False):
        """Runs `op` in PyTorch and records the case.

        grad: "auto" records the gradients of all f64, f32 and complex inputs, False none, and a list of
        bools those that are True.
        """
        args = args or {}
        inputs = [None if t is None else t.detach().contiguous() for t in inputs]
        given = [t for t in inputs if t is not None]
        if grad == "auto":
            grad = [t.dtype in (torch.float64, torch.float32, torch.complex128, torch.complex64) for t in given]
        elif grad is False:
            grad = [False] * len(given)
        leaves = [t.clone().requires_grad_(g) for t, g in zip(given, grad)]
        rest = iter(leaves)
        out = self.functions[op](*[None if t is None else next(rest) for t in inputs], **args)
        case = {}
        if note:
            case["note"] = note
        written = {name: number(value) if isinstance(value, float) else value for name, value in args.items()}
        case["args"] = {**self.tensor_args(op, inputs), **written}
        case["grad"] = grad
        case["output"] = encode_all(out, layout)
        cases = self.cases.setdefault(op, [])
        if any(grad):
            self.differentiate(case, f"{op}/{len(cases)}", leaves, grad, out)
        for key, value in (("rtol", rtol), ("atol", atol)):
            if value is not None:
                case[key] = value
        cases.append(case)

    def tensor_args(self, op, inputs):
        """The tensors by parameter name. `name[2]` is a list of two tensors, and `name[]` a list of all that the other
        names do not use."""
        names = self.names.get(op, ["self", "other"])
        if names in (["tensors"], ["operands"]):
            names = [f"{names[0]}[]"]
        args, rest = {}, list(inputs)
        for at, name in enumerate(names):
            name, bracket, count = name.partition("[")
            if not bracket:
                given = rest.pop(0) if rest else None
                if given is not None:
                    args[name] = encode_input(given)
                continue
            count = count.rstrip("]")
            count = int(count) if count else len(rest) - len(names[at + 1 :])
            args[name] = [encode_input(t) for t in rest[:count]]
            rest = rest[count:]
        return args

    def add_if_defined(self, op, inputs, args=None, **more):
        """As `add`, for dtypes that PyTorch may not support: records an error instead of raising it."""
        try:
            self.add(op, inputs, args, **more)
        except (NotImplementedError, RuntimeError) as error:
            dtypes = ", ".join(NAMES[t.dtype] for t in inputs)
            self.undefined.append(f"{op}({dtypes}) {args or ''}: {str(error).splitlines()[0]}")

    def differentiate(self, case, key, leaves, grad, out):
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        draw = Draw(f"cotangent/{key}")
        cotangents = []
        for o in outs:
            wanted = o.requires_grad
            make = draw.complex if o.is_complex() else draw.uniform
            cotangents.append(make(o.shape, -2, 2, NAMES[o.dtype], decimals=2) if wanted else None)
        pairs = [(o, c) for o, c in zip(outs, cotangents) if c is not None]
        assert pairs, f"{key}: no output depends on the inputs marked for gradients"
        wanted = [leaf for leaf, g in zip(leaves, grad) if g]
        found = torch.autograd.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], retain_graph=True)
        found = iter(found)
        self.differentiate_infinite(case, key.partition("/")[0], leaves, grad, out, cotangents)
        encoded = [encode_input(c) if c is not None else None for c in cotangents]
        case["cotangent"] = encoded[0] if isinstance(out, torch.Tensor) else encoded
        case["grads"] = [encode(next(found)) if g else None for g in grad]

    def differentiate_infinite(self, case, op, leaves, grad, out, cotangents):
        """Records gradients for cotangents in which every other element is infinite, for the first small cases of an op. They
        detect products of infinity and 0 that PyTorch does not compute."""
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        wanted = [leaf for leaf, g in zip(leaves, grad) if g]
        tensors = [*outs, *leaves]
        cases = self.infinite.setdefault(op, [])
        small = sum(t.numel() for t in tensors) <= 64 and all(t.numel() > 0 for t in tensors)
        floats = all(t.dtype in (torch.float64, torch.int64, torch.bool) and t.isfinite().all() for t in tensors)
        if len(cases) == 3 or not (small and floats):
            return
        filled = []
        for c in cotangents:
            if c is not None:
                c = c.clone().reshape(-1)
                c[::2] = INF
            filled.append(c)
        filled = [None if c is None else c.reshape(o.shape) for c, o in zip(filled, outs)]
        pairs = [(o, c) for o, c in zip(outs, filled) if c is not None]
        found = torch.autograd.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], retain_graph=True)
        if any(not g.isnan().all() for g in found):
            found = iter(found)
            encoded = [encode_input(c) if c is not None else None for c in filled]
            cotangent = encoded[0] if isinstance(out, torch.Tensor) else encoded
            grads = [encode(next(found)) if g else None for g in grad]
            cases.append({"op": op, "args": case["args"], "grad": grad, "cotangent": cotangent, "grads": grads})
            # For the tolerances of the case, which are added later.
            cases[-1]["of"] = case

    def write_infinite(self, folder, without):
        cases = [case for op, cases in sorted(self.infinite.items()) if op not in without for case in cases]
        for case in cases:
            of = case.pop("of", {})
            case.update({key: of[key] for key in ("rtol", "atol") if key in of})
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        path = folder / "infinite_cotangents.json"
        path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
        return path

    def write_together(self, path):
        """Writes all cases to one file."""
        lines = ",\n".join(json.dumps({"op": op, **c}, separators=(",", ":")) for op, cases in self.cases.items() for c in cases)
        path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
        return path

    def write(self, folder):
        (folder / "ops").mkdir(exist_ok=True)
        paths = []
        for op, cases in self.cases.items():
            lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
            path = folder / "ops" / f"{op}.json"
            path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
            paths.append(path)
        return paths


def header():
    return {"torch": torch.__version__, "generator": "tools/fixtures.py"}
