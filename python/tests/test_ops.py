"""Every operation of the list, as a function and as a method, against what PyTorch computed (tests/fixtures/ops)."""

import inspect
import json
from pathlib import Path

import pytest

import cases
import cotangent as ct
from cotangent import _cotangent as core

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "ops"
# Methods that are PyTorch's where the operation is not: they are tested in test_tensor.py.
OTHER_METHODS = {"max", "min", "median", "split", "equal", "to_dtype", "real", "imag", "mT", "to_device", "where"}


@pytest.mark.parametrize("op", sorted(cases.OPS))
def test_values_and_gradients(op):
    path = FOLDER / f"{op}.json"
    if not path.exists():
        assert cases.OPS[op]["random"] or cases.OPS[op]["derivative"] == "none", f"{op} has no cases"
        pytest.skip("random, or about memory: there is nothing to compare with")
    for at, case in enumerate(json.loads(path.read_text())["cases"]):
        is_method = "self" in case["args"] and op not in OTHER_METHODS
        try:
            cases.run(op, case)
            if is_method and at == 0:
                cases.run(op, case, method=True)
        except Exception as error:
            error.add_note(f"case {at}: {case.get('note', '')} {str(case['args'])[:300]}")
            raise


@pytest.mark.parametrize("op", sorted(cases.OPS))
def test_signature_and_docstring(op):
    function = core._functions[op]
    names = list(inspect.signature(function).parameters)
    assert len(names) == len(cases.OPS[op]["params"])
    assert function.__doc__ and function.__name__ == op
    assert "```" not in function.__doc__ and "](" not in function.__doc__


@pytest.mark.skipif(not hasattr(core, "_samples"), reason="the extension was built without its feature samples")
def test_every_sample_can_be_called_by_position():
    for op in cases.OPS:
        for args in core._samples(op):
            if any(isinstance(arg, str) and ("Slice" in arg or "Index" in arg) for arg in args):
                continue
            core._functions[op](*args)


def test_unknown_names_and_wrong_types_are_type_errors():
    x = ct.ones(2, 3)
    for call, words in [
        (lambda: x.sum(dims=0, keep=True), ["sum", "keep"]),
        (lambda: x.softmax(), ["softmax", "dim"]),
        (lambda: x.softmax(0, dim=1), ["softmax", "dim", "twice"]),
        (lambda: x.softmax("0"), ["softmax", "dim", "int"]),
        (lambda: ct.add(1, 2), ["add", "Tensor"]),
        (lambda: x.cross_entropy(x, reduction=3), ["cross_entropy", "reduction"]),
        (lambda: x.add(1, 2, 3, 4), ["add", "at most"]),
    ]:
        with pytest.raises(TypeError) as raised:
            call()
        assert all(word in str(raised.value) for word in words), raised.value


def test_the_order_of_a_norm_comes_first():
    x = ct.tensor([[3.0, -4.0], [0.0, 12.0]])
    assert float(x.norm()) == 13.0 and float(x.norm(1)) == 19.0
    assert x.norm(2, 1).tolist() == [5.0, 12.0]
    assert float(ct.norm(x, float("inf"))) == 12.0
    assert x.norm(p=1, axis=0, keepdims=True).tolist() == [[3.0, 16.0]]
    with pytest.raises(ValueError, match="'two'"):
        x.norm("two")
