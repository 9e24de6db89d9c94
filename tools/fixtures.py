"""Writes tests/fixtures/*.json: reference values from PyTorch for the tests.

    python tools/fixtures.py            # writes every file
    python tools/fixtures.py --check    # checks whether the committed files are up to date

Requires PyTorch (on the CPU; the version is recorded in each file). The tests read only the JSON: run
this when an op is added or its cases change. The output is deterministic for a version of PyTorch:
every case has a generator seeded by its op and its number.

To add an op, add its PyTorch function to FUNCTIONS in the module of its subject in tools/fixture_cases, and its cases
below. The tests need no other code: they call ops by the parameters in the list of ops.

Tensors, in all files: {"shape": [..], "dtype": "f64", "data": [..]}, with flat data in row-major order:
integers as integers, bools as true and false, complex numbers as two numbers, non-finite floats as "nan", "inf" and "-inf".

ops/NAME.json, one for each op: {"header": {"torch", "generator"}, "cases": [..]}. Each case has
    note       a description (optional)
    args       the arguments by the names of the op's parameters: tensors as above, lists of them, numbers (2 is an integer,
               2.0 a float), lists of integers, text for dtypes, devices and choices, {"slice": [start, end, step]},
               {"index": [..]} with integers, slices, null, "..." and tensors; null for omitted arguments
    grad       for each tensor argument, in the order of the parameters, whether its gradient is recorded
    output     a tensor, or a list if the op returns several;
               views also have "strides" and "offset", if PyTorch returns a view too
    cotangent  the argument of backward_with; if output is a list, a list, with null for outputs
               without gradient (only if some grad is true)
    grads      for each tensor its gradient, or null (only if some grad is true)
    rtol, atol tolerances instead of the dtype's default (optional)

infinite_cotangents.json: cases as in ops/NAME.json, with "op", where every other element of the cotangent is infinite. Gradients
    that are NaN come from infinity times zero or a difference of infinities in PyTorch, and are not compared.

special_values.json: cases as in ops/NAME.json, with "op".

chains.json: the same, where "steps" is a sequence of views: a list of [op, args].

promotion.json: rows [left, right, result]: "types" of two tensors with dims, "number" of a tensor with dims
    and a Python float, int or bool. Pairs that PyTorch does not support are omitted.

second_order.json: "cases" with
    function   its name; tools/fixture_cases/second_order.py defines it
    inputs     f64 tensors; vectors: one per input, of its shape
    value      the value of the function (a scalar); grads: per input
    products   per input: the Hessian (over all inputs together) times the vectors

train.json, all in f64:
    "optimizers": name; kind "SGD", "Adam" or "AdamW"; all options under PyTorch's names;
        initial: the parameters; lr: the learning rate of each step, if it changes;
        steps: five of {grads, params}: the gradients of the step (null: the parameter has no gradient and
        must not change, not even by weight decay) and the parameters after it. The gradient of
        sum(parameter * g) is g, which is a way to set it.
    "clip": kind "norm" with max_norm, norm_type (a number or "inf"), grads (null: none), total_norm before
        clipping, and clipped, the gradients after clipping; kind "value" with clip_value, grads, clipped.
    "mlp": linear layers of sizes 4, 8, 6, 3 with an activation ("relu", "tanh", exact "gelu") between them;
        loss "cross_entropy" or "mse_loss" (mean); kind and options as above; x, target; initial: the weight
        [out, in] and bias [out] of each layer; steps: five of {loss, params}: the loss before the
        step and the parameters after it.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import torch

sys.dont_write_bytecode = True  # Do not create __pycache__ in the repository.
from fixture_cases import bessel, complex, conv, creation, edges, elementwise, fft, functions, indexing, layers, linalg, linalg_complex, losses, networks, nn, options, pool, promotion, recurrent, reductions, scatter, second_order, sequences, shape, spectral, statistics, train, transformer, variants, views
from fixture_cases.core import Book

# Ops whose gradient for an infinite cotangent depends on the order of operations, or on other gradients.
MIXED = {"cosine_embedding_loss", "ctc_loss", "linalg_cholesky", "linalg_lu", "ormqr"}

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def write_all(folder, verbose):
    book = Book()
    for module in (creation, elementwise, functions, reductions, statistics, indexing, linalg, nn, views, complex, fft, shape, scatter, sequences, options, spectral, bessel, variants, linalg_complex, recurrent, losses, networks, conv, pool):
        module.add_cases(book)
    paths = book.write(folder)
    if verbose:
        for op, cases in book.cases.items():
            print(f"{op}: {len(cases)} cases")
        for line in book.undefined:
            print(f"  PyTorch has no {line}")
    paths += [book.write_infinite(folder, MIXED)]
    paths += layers.write(folder)
    paths += [views.write_chains(folder)]
    paths += [module.write(folder) for module in (edges, promotion, second_order, train, transformer)]
    return paths


def main():
    parser = argparse.ArgumentParser(description="Reference values from PyTorch for the tests.")
    parser.add_argument("--check", action="store_true", help="compare with the existing files instead of writing them")
    check = parser.parse_args().check
    # One thread, so that sums do not depend on how work is split.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path in write_all(FOLDER, verbose=True):
            print(f"{path.name}: {path.stat().st_size} bytes")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        made = [path.relative_to(scratch) for path in write_all(Path(scratch), verbose=False)]
        # Files written by other tools.
        others = {"optim", "models", "io", "data", "train", "autocast.json"}
        there = [path.relative_to(FOLDER) for path in FOLDER.rglob("*.json") if path.relative_to(FOLDER).parts[0] not in others]
        read = lambda folder, path: (folder / path).read_text() if (folder / path).exists() else None
        stale = [str(p) for p in sorted({*made, *there}) if read(Path(scratch), p) != read(FOLDER, p)]
    print("stale: " + ", ".join(stale) if stale else "all fixtures are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
