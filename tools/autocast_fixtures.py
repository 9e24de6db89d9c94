#!/usr/bin/env python3
"""Writes tests/fixtures/autocast.json: the dtypes of PyTorch's results inside `torch.autocast`.

Every op is run with the inputs of one of its fixtures, on the CPU and on a simulated GPU (with fake tensors), with floats
of f32, of the autocast dtype, and of both. For each device, it writes the dtypes of the results outside and inside
autocast, or null if PyTorch raises an error.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

sys.dont_write_bytecode = True
from fixture_cases import bessel, complex, conv, creation, elementwise, fft, functions, indexing, linalg, linalg_complex, losses, networks, nn, options, pool, recurrent, reductions, scatter, sequences, shape, spectral, statistics, variants, views
from fixture_cases.core import Book, NAMES

PATH = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "autocast.json"
FLOATS = (torch.float64, torch.float32)
HALF = {"cpu": torch.bfloat16, "cuda": torch.float16}


def flat(out):
    return [out] if isinstance(out, torch.Tensor) else [t for t in out if isinstance(t, torch.Tensor)]


def scoped(device, dtype, run):
    if dtype is None:
        return run()
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        return run()
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


class Dtypes(Book):
    """Also runs each case to record its dtypes."""

    def __init__(self):
        super().__init__()
        self.rows = {}

    def add(self, op, inputs, args=None, grad="auto", note=None, rtol=None, atol=None, layout=False):
        place = len(self.cases.get(op, []))
        super().add(op, inputs, args, grad, note, rtol, atol, layout)
        args = args or {}
        floats = [t for t in inputs if t is not None and t.is_floating_point()]
        whole = all(t is None or t.numel() > 0 for t in inputs)
        is_complex = any(t is not None and t.is_complex() for t in inputs)
        if op in self.rows or note or not floats or is_complex or not whole or any(t.dtype not in FLOATS for t in floats) or any(isinstance(v, str) and "dtype" in k for k, v in args.items()):
            return
        row = {"case": place}
        for device, half in HALF.items():
            row[device] = [self.run(device, op, inputs, args, half, kinds) for kinds in ("f32", "half", "mixed")]
        self.rows[op] = row

    def run(self, device, op, inputs, args, half, kinds):
        """The dtypes of the results outside and inside autocast."""
        floats = 0
        cast = []
        for t in inputs:
            if t is not None and t.is_floating_point():
                t = t.to(torch.float32 if kinds == "f32" or kinds == "mixed" and floats == 0 else half)
                floats += 1
            cast.append(t)

        def call():
            if device == "cpu":
                return self.functions[op](*[None if t is None else t.clone() for t in cast], **args)
            with FakeTensorMode(allow_non_fake_inputs=True):
                return self.functions[op](*[None if t is None else torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in cast], **args)

        def dtypes(dtype):
            try:
                return [NAMES[t.dtype] for t in flat(scoped(device, dtype, call))]
            except Exception:
                return None

        return [dtypes(None), dtypes(half)]


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    book = Dtypes()
    for module in (creation, elementwise, functions, reductions, statistics, indexing, linalg, nn, views, complex, fft, shape, scatter, sequences, options, spectral, bessel, variants, linalg_complex, recurrent, losses, networks, conv, pool):
        module.add_cases(book)
    lines = ",\n".join(f"{json.dumps(op)}:{json.dumps(row, separators=(',', ':'))}" for op, row in sorted(book.rows.items()))
    PATH.write_text("{\n" + lines + "\n}\n")
    print(len(book.rows), "ops,", PATH.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
