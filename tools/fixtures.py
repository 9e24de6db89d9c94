"""Writes tests/fixtures/*.json: what PyTorch computes, for the tests to compare with.

    python tools/fixtures.py            # writes every file
    python tools/fixtures.py --check    # says whether the committed files are what it would write

Needs PyTorch (CPU is enough; the version is recorded in each file). The tests read only the JSON, so
this is run when an op is added or its cases change, not by the tests. The output is deterministic for
one version of PyTorch: every case draws from a generator seeded by its op and its number.

To add an op: its PyTorch form goes into the FUNCTIONS of the module of its subject in
tools/fixture_cases, its cases below it, and its call into tests/common/dispatch.rs.

Tensors, in all files: {"shape": [..], "dtype": "f64", "data": [..]}, the data flat in row-major order,
integers as integers, bools as true and false, non-finite floats as "nan", "inf" and "-inf".

elementwise, reductions, indexing, nn and views.json: {"header": {"torch", "generator"}, "cases": [..]}, each case
    op         the method's name on Tensor; "chain" is several views one after the other
    note       what is special about it (optional)
    args       the arguments that are not tensors, by name. "rhs": a number in place of the right operand,
               written 2 if an integer and 2.0 if a float; "dims": a number, a list or "all";
               "reduction": "none", "mean" or "sum"; null for a bound or option left out; "steps" of a chain: a list of [op, args]
    inputs     the tensors, self first; optional ones (bias, class weights) only where given
    grad       for each input, whether its gradient is recorded
    output     a tensor, or a list of them where the op returns several (max_dim, split, ..);
               those of views also have "strides" and "offset", where PyTorch makes a view too
    cotangent  of the output: what to pass to backward_with; a list, with null for outputs
               without gradient, where output is a list (only where some grad is true)
    grads      for each input its gradient, or null (likewise)
    rtol, atol tolerances in place of the dtype's usual ones (optional)

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
from fixture_cases import elementwise, indexing, nn, promotion, reductions, second_order, train, views

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def write_all(folder, verbose):
    paths = []
    for module in (elementwise, reductions, indexing, nn, views):
        book = module.book()
        paths.append(book.write(folder))
        if verbose:
            counts = ", ".join(f"{op} {n}" for op, n in book.counts().items())
            print(f"{book.subject}: {len(book.cases)} cases: {counts}")
            for line in book.undefined:
                print(f"  PyTorch has no {line}")
    paths += [module.write(folder) for module in (promotion, second_order, train)]
    return paths


def main():
    parser = argparse.ArgumentParser(description="Reference values from PyTorch for the tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files there instead of writing them")
    check = parser.parse_args().check
    # One thread, so that no sum depends on how work was split.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path in write_all(FOLDER, verbose=True):
            print(f"{path.name}: {path.stat().st_size} bytes")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        made = write_all(Path(scratch), verbose=False)
        stale = [p.name for p in made if not (FOLDER / p.name).exists() or p.read_text() != (FOLDER / p.name).read_text()]
    print("stale: " + ", ".join(stale) if stale else "all fixtures are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
