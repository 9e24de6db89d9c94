"""What PyTorch computes, as the cases of tests/fixtures/ops have it: reading them, and comparing with them."""

from __future__ import annotations

import math

import numpy as np

import cotangent as ct
from cotangent import _cotangent as core

DTYPES = {
    "f64": ct.float64, "f32": ct.float32, "f16": ct.float16, "bf16": ct.bfloat16, "i64": ct.int64, "i32": ct.int32,
    "i16": ct.int16, "i8": ct.int8, "u8": ct.uint8, "u16": ct.uint16, "u32": ct.uint32, "u64": ct.uint64,
    "bool": ct.bool, "c64": ct.complex64, "c128": ct.complex128,
}
OPS = {op["name"]: op for op in core._ops()}
TOLERANCES = {
    ct.float64: (1e-9, 1e-9), ct.float32: (2e-5, 2e-6), ct.float16: (4e-3, 2e-3), ct.bfloat16: (3e-2, 1.6e-2),
    ct.complex64: (2e-5, 2e-6), ct.complex128: (1e-9, 1e-9),
}


def number(value):
    return float(value) if isinstance(value, str) else value


def is_tensor(value):
    return isinstance(value, dict) and "shape" in value


def tensor(case):
    dtype = DTYPES[case["dtype"]]
    data = [number(value) for value in case["data"]]
    if dtype in (ct.complex64, ct.complex128):
        data = [complex(re, im) for re, im in zip(data[::2], data[1::2])]
    return ct.tensor(data, dtype=dtype).reshape(tuple(case["shape"]))


def index(items):
    def one(item):
        if item == "...":
            return ...
        if isinstance(item, dict):
            return slice(*item["slice"]) if "slice" in item else tensor(item)
        return item

    return tuple(one(item) for item in items)


def argument(value, kind):
    if is_tensor(value):
        return tensor(value)
    if isinstance(value, dict):
        return slice(*value["slice"]) if "slice" in value else index(value["index"])
    if isinstance(value, list) and value and is_tensor(value[0]):
        return [tensor(item) for item in value]
    if kind == "dtype" and value is not None:
        return DTYPES[value]
    if isinstance(value, list):
        return tuple(number(item) for item in value)
    if value in ("nan", "inf", "-inf") and kind in ("float", "scalar", "operand", "floats"):
        return float(value)
    return value


def numpy(x):
    return x.detach().to(ct.float64).numpy() if x.dtype in (ct.bfloat16, ct.float16) else x.detach().numpy()


def assert_close(found, wanted, case, what):
    wanted = tensor(wanted)
    assert tuple(found.shape) == tuple(wanted.shape), f"{what}: shape {found.shape}, not {wanted.shape}"
    rtol, atol = TOLERANCES.get(wanted.dtype, (0, 0))
    rtol, atol = max(rtol, case.get("rtol") or 0), max(atol, case.get("atol") or 0)
    if found.dtype != wanted.dtype:
        # Some results are of f64 in any case: the crate's documentation says which.
        rtol, atol = max(rtol, 3e-2), max(atol, 1.6e-2)
    np.testing.assert_allclose(numpy(found), numpy(wanted), rtol=rtol, atol=atol, err_msg=what, equal_nan=True)


def run(op, case, method=False):
    """Calls the operation as a case says, and compares values and gradients."""
    entry = OPS[op]
    args = {param["name"]: argument(case["args"][param["name"]], param["kind"])
            for param in entry["params"] if param["name"] in case["args"]}
    tensors = []
    for param in entry["params"]:
        value = args.get(param["name"]) if param["kind"] != "index" else None
        tensors += [value] if isinstance(value, ct.Tensor) else []
        tensors += [x for x in value if isinstance(x, ct.Tensor)] if isinstance(value, (list, tuple)) else []
    for x, wanted in zip(tensors, case.get("grad", [False] * len(tensors)), strict=True):
        if wanted:
            x.requires_grad_()
    if method:
        own = args.pop("self")
        result = getattr(own, op)(**args)
    else:
        result = core._functions[op](**{"input" if name == "self" and "input" not in args else name: value
                                        for name, value in args.items()})
    if isinstance(result, bool):
        result = ct.tensor(result)
    results = [result] if isinstance(result, ct.Tensor) else list(result)
    outputs = case["output"] if isinstance(case["output"], list) else [case["output"]]
    assert len(results) == len(outputs), f"{len(results)} results, not {len(outputs)}"
    for at, (found, wanted) in enumerate(zip(results, outputs)):
        assert_close(found, wanted, case, f"{op} result {at}")
    if "grads" not in case:
        return
    cotangents = case["cotangent"] if isinstance(case["cotangent"], list) else [case["cotangent"]]
    pairs = [(y, tensor(g).to(y.dtype)) for y, g in zip(results, cotangents, strict=True) if g is not None]
    ct.autograd.backward([y for y, _ in pairs], [g for _, g in pairs])
    for at, (x, wanted) in enumerate(zip(tensors, case["grads"], strict=True)):
        if wanted is None:
            continue
        assert x.grad is not None, f"{op} gradient {at} is missing"
        assert_close(x.grad, wanted, case, f"{op} gradient {at}")


