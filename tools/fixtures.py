"""Writes tests/fixtures/*.json: what PyTorch computes, for the tests to compare with.

    python tools/fixtures.py            # writes every file
    python tools/fixtures.py --check    # says whether the committed files are what it would write

Needs PyTorch (CPU is enough; the version is recorded in each file). The tests read only the JSON, so
this is run when an op is added or its cases change, not by the tests. The output is deterministic for
one version of PyTorch: every case draws from a generator seeded by its op and its number.

To add an op: its PyTorch form goes into the FUNCTIONS of the module of its subject in tools/fixture_cases, and its cases
below it. The calls need no other code: the list of ops says what its parameters are.

Tensors, in all files: {"shape": [..], "dtype": "f64", "data": [..]}, the data flat in row-major order,
integers as integers, bools as true and false, complex numbers as their two parts, non-finite floats as "nan", "inf" and "-inf".

ops/NAME.json, one for each op: {"header": {"torch", "generator"}, "cases": [..]}, each case
    note       what is special about it (optional)
    args       the arguments by the names of the op's parameters: tensors as above, lists of them, numbers (2 is an integer,
               2.0 a float), lists of integers, text for dtypes, devices and choices, {"slice": [start, end, step]},
               {"index": [..]} with integers, slices, null, "..." and tensors; null for what is left out
    grad       for each tensor among them, in the order of the parameters, whether its gradient is recorded
    output     a tensor, or a list of them where the op returns several;
               those of views also have "strides" and "offset", where PyTorch makes a view too
    cotangent  of the output: what to pass to backward_with; a list, with null for outputs
               without gradient, where output is a list (only where some grad is true)
    grads      for each tensor its gradient, or null (likewise)
    rtol, atol tolerances in place of the dtype's usual ones (optional)

infinite_cotangents.json: cases as in ops/NAME.json, with "op", where every other element of the cotangent is infinite. A gradient of
    NaN there is PyTorch's infinity times zero, or a difference of infinities, and nothing to compare with.

special_values.json: cases as in ops/NAME.json, with "op".

chains.json: the same, where "steps" are several views one after the other: a list of [op, args].

promotion.json: rows [left, right, result]: "types" of two tensors with dims, "number" of a tensor with dims
    and a Python float, int or bool. Pairs that PyTorch refuses are left out.

second_order.json: "cases" with
    function   its name; tools/fixture_cases/second_order.py says what it computes
    inputs     f64 tensors; vectors: one per input, of its shape
    value      of the function (a scalar); grads: per input
    products   per input: the Hessian (over all inputs together) times the vectors

train.json, all in f64:
    "optimizers": name; kind "SGD", "Adam" or "AdamW"; options under PyTorch's names, all written out;
        initial: the parameters; lr: the learning rate of each step, where it changes between the steps;
        steps: five of {grads, params}: the gradients handed to the optimiser in this step (null: the parameter
        has none and must not change, weight decay included) and the parameters after it. The gradient of
        sum(parameter * g) is g, which is a way to hand it over.
    "clip": kind "norm" with max_norm, norm_type (a number or "inf"), grads (null: none), total_norm before
        clipping and clipped, the gradients after it; kind "value" with clip_value, grads, clipped.
    "mlp": linear layers of sizes 4, 8, 6, 3 with the activation ("relu", "tanh", "gelu" by erf) between them, not after the last;
        loss "cross_entropy" or "mse_loss" (mean); kind and options as above; x, target; initial: weight
        [out, in] and bias [out] of each layer in turn; steps: five of {loss, params}: the loss before the
        step and the parameters after it.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import torch

sys.dont_write_bytecode = True  # No __pycache__ left in the repository.
from fixture_cases import bessel, complex, conv, creation, edges, elementwise, fft, functions, indexing, layers, linalg, linalg_complex, losses, networks, nn, options, pool, promotion, recurrent, reductions, scatter, second_order, sequences, shape, spectral, statistics, train, transformer, variants, views
from fixture_cases.core import Book

# Of these the gradient of an infinite cotangent depends on the order of the sums and products in it, or is made of other ones.
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
    parser.add_argument("--check", action="store_true", help="compare with the files there instead of writing them")
    check = parser.parse_args().check
    # One thread, so that sums do not depend on the splitting of work.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path in write_all(FOLDER, verbose=True):
            print(f"{path.name}: {path.stat().st_size} bytes")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        made = [path.relative_to(scratch) for path in write_all(Path(scratch), verbose=False)]
        # Written by other tools.
        others = {"optim", "models", "io", "data", "train", "autocast.json"}
        there = [path.relative_to(FOLDER) for path in FOLDER.rglob("*.json") if path.relative_to(FOLDER).parts[0] not in others]
        read = lambda folder, path: (folder / path).read_text() if (folder / path).exists() else None
        stale = [str(p) for p in sorted({*made, *there}) if read(Path(scratch), p) != read(FOLDER, p)]
    print("stale: " + ", ".join(stale) if stale else "all fixtures are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
