"""Every operation of the list, as a function and as a method, against what PyTorch computed (tests/fixtures/ops)."""

import inspect
import json
import math
from pathlib import Path

import numpy as np
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


def test_forms_of_pytorch_beside_those_of_the_list():
    x = ct.tensor([[1.0, 4.0, 9.0]])
    assert ct.diff(x, 2, -1).tolist() == [[2.0]] and ct.diff(x, axis=1).tolist() == [[3.0, 5.0]]
    assert [y.shape for y in ct.atleast_2d([ct.tensor(1.0), ct.ones(3)])] == [(1, 1), (1, 3)]
    assert ct.atleast_1d(ct.tensor(1.0)).shape == (1,) and ct.atleast_3d(ct.ones(2), ct.ones(2, 3))[1].shape == (2, 3, 1)
    assert ct.cdist(x, x, 2.0, "donot_use_mm_for_euclid_dist").tolist() == [[0.0]]
    with pytest.raises(ValueError, match="compute_mode"):
        ct.cdist(x, x, compute_mode="fast")
    values, indices = ct.nanmedian(ct.tensor([[3.0, float("nan"), 1.0, 2.0]]), 1)
    assert (values.tolist(), indices.tolist()) == ([2.0], [3])
    assert ct.nanmedian(ct.tensor([3.0, float("nan"), 1.0, 2.0])).item() == 2.0
    assert ct.tensor(0.0).nonzero().shape == (0, 0) and ct.tensor(2.0).nonzero().shape == (1, 0)
    assert [i.tolist() for i in ct.nonzero(ct.tensor(2.0), as_tuple=True)] == [[0]]
    assert ct.tensor(3.0).unfold(0, 1, 1).tolist() == [3.0]
    upper = ct.tensor([[1.0, 0.0], [100.0, 2.0]])
    assert ct.linalg.eigvalsh(upper, UPLO="U").tolist() == [1.0, 2.0]
    u, s, v = ct.svd(ct.ones(4, 2), some=False)
    assert (u.shape, s.shape, v.shape) == ((4, 4), (2,), (2, 2))


def test_solve_of_a_vector_for_each_matrix():
    a, b = ct.stack([ct.eye(3) * 2, ct.eye(3) * 4]), ct.ones(2, 3)
    assert ct.linalg.solve(a, b).tolist() == [[0.5] * 3, [0.25] * 3]
    # Where the standard has an answer, that is it: two right-hand sides for each of two matrices.
    a, b = ct.stack([ct.eye(2) * 2, ct.eye(2) * 4]), ct.ones(2, 2)
    assert ct.linalg.solve(a, b).shape == (2, 2, 2)


def test_pinv_with_bounds_for_each_matrix():
    x = ct.diag(ct.tensor([1.0, 0.1, 0.01], dtype=ct.float64))
    both = ct.stack([x, x])
    found = ct.linalg.pinv(both, rtol=ct.tensor([0.05, 0.5]))
    assert found.diagonal(0, -2, -1).tolist() == [[1.0, 10.0, 0.0], [1.0, 0.0, 0.0]]
    found = ct.linalg.pinv(both, atol=ct.tensor([0.05, 0.001]), rtol=0.0)
    assert [[round(y, 6) for y in row] for row in found.diagonal(0, -2, -1).tolist()] == [[1.0, 10.0, 0.0], [1.0, 10.0, 100.0]]
    assert ct.linalg.pinv(ct.zeros(0, 3), rtol=ct.tensor(1.0)).shape == (3, 0)


def test_histogramdd_between_edges():
    points = ct.tensor([[0.0, 0.0], [1.0, 1.0], [0.9, 0.2], [5.0, 0.0], [float("nan"), 0.0]])
    edges = [ct.tensor([0.0, 0.5, 1.0]), ct.tensor([0.0, 0.1, 2.0])]
    hist, found = ct.histogramdd(points, edges)
    assert hist.tolist() == [[1.0, 0.0], [0.0, 2.0]] and [e.tolist() for e in found] == [e.tolist() for e in edges]
    wanted, _ = np.histogramdd(points[:4].numpy(), [e.numpy() for e in edges], weights=[1, 2, 3, 4], density=True)
    hist = ct.histogramdd(points[:4].clone(), edges, weight=ct.tensor([1.0, 2.0, 3.0, 4.0]), density=True).hist
    np.testing.assert_allclose(hist.numpy(), wanted, rtol=1e-6)
    assert ct.histogramdd(points[:4].clone(), 2).hist.shape == (2, 2)
    with pytest.raises(ValueError, match="ascend"):
        ct.histogramdd(points, [ct.tensor([0.0, 1.0]), ct.tensor([1.0, 0.0])])
    with pytest.raises(ValueError, match="got 1 for shape"):
        ct.histogramdd(points, edges[:1])


@pytest.mark.parametrize("call", [
    lambda x: x.topk(2, True), lambda x: x.sum(True), lambda x: x.sum(dim=True), lambda x: x.sum((0, True)),
    lambda x: x.transpose(False, True), lambda x: x.reshape(True, 6), lambda x: ct.roll(x, True), lambda x: ct.zeros(True),
    lambda x: ct.nn.functional.cross_entropy(x, ct.tensor([0, 1]), None, False)])
def test_a_bool_is_no_integer(call):
    """It was meant for another parameter: PyTorch refuses it, too."""
    with pytest.raises(TypeError, match="of type (bool|tuple)"):
        call(ct.arange(6.0).reshape(2, 3))


def test_windows_of_signals_have_their_namespace_and_their_own_options():
    windows = ct.signal.windows
    assert windows.hann(4, sym=False).tolist() == [0.0, 0.5, 1.0, 0.5]
    assert windows.general_cosine(3, a=[0.5, 0.5]).tolist() == windows.hann(3).tolist()
    assert windows.gaussian(3, std=2.0).tolist() == pytest.approx([math.exp(-1 / 8), 1.0, math.exp(-1 / 8)])
    with pytest.raises(TypeError, match="no parameter tau"):
        windows.hann(4, tau=2.0)


def test_unique_consecutive_takes_its_arguments_in_the_order_of_pytorch():
    values, inverse, counts = ct.unique_consecutive(ct.tensor([1, 1, 3, 1]), True, True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 3, 1], [0, 0, 1, 2], [2, 1, 1])


def test_functions_take_arguments_in_pytorchs_order():
    x = ct.tensor([1.0, 2.0], dtype=ct.float64)
    for polygamma in (ct.polygamma, ct.special.polygamma):
        # mpmath.polygamma(1, x)
        assert polygamma(1, x).tolist() == pytest.approx([1.6449340668482264, 0.6449340668482264])
        assert polygamma(n=1, input=x).tolist() == polygamma(1, x).tolist()
    assert x.polygamma(1).tolist() == ct.polygamma(1, x).tolist()
    table = ct.arange(8.0).reshape(4, 2)
    bags, starts = ct.tensor([0, 1, 3]), ct.tensor([0, 2])
    assert ct.nn.functional.embedding_bag(bags, table, starts, None, 2.0, False, "sum").tolist() == [[2, 4], [6, 7]]
    with pytest.raises(NotImplementedError, match="not scaled"):
        ct.nn.functional.embedding_bag(bags, table, starts, None, 2.0, True)
    ct.manual_seed(0)
    rows = ct.nn.functional.gumbel_softmax(ct.zeros(3, 4), 1.0, True, 1e-10, 0)
    assert rows.sum(0).tolist() == [1] * 4


@pytest.mark.parametrize("call", [
    lambda a: ct.nn.functional.triplet_margin_loss(anchor=a, positive=a, negative=a),
    lambda a: ct.nn.functional.cosine_similarity(x1=a, x2=a), lambda a: ct.linalg.det(A=a), lambda a: ct.linalg.cond(A=a, p=2),
    lambda a: ct.nn.functional.pairwise_distance(x1=a, x2=a), lambda a: ct.linalg.eigh(A=a, UPLO="U"), lambda a: ct.trapezoid(y=a),
    lambda a: ct.complex(real=a, imag=a), lambda a: ct.nn.functional.one_hot(tensor=a.long(), num_classes=3),
    lambda a: ct.dot(input=a[0], tensor=a[1]), lambda a: ct.isin(elements=a, test_elements=a), lambda a: ct.cholesky_inverse(L=a),
    lambda a: ct.swapaxes(a, axis0=0, axis1=1), lambda a: ct.cholesky_solve(B=a, L=a), lambda a: ct.polar(abs=a, angle=a)])
def test_functions_take_pytorchs_names(call):
    assert call(ct.eye(2, dtype=ct.float64)) is not None


def test_an_lu_factorization_is_pytorchs():
    a = ct.tensor([[0.0, 2.0], [4.0, 6.0]], dtype=ct.float64)
    made = ct.linalg.lu(a)
    assert made._fields == ("P", "L", "U")
    assert made.P.tolist() == [[0, 1], [1, 0]] and made.L.tolist() == [[1, 0], [0, 1]] and made.U.tolist() == [[4, 6], [0, 2]]
    for lu, pivots in (ct.lu(a), a.lu(), ct.linalg.lu_factor(a)):
        assert lu.tolist() == [[4, 6], [0, 2]] and pivots.tolist() == [2, 2] and pivots.dtype == ct.int32
    assert [x.tolist() for x in a.lu(get_infos=True)][1:] == [[2, 2], 0]
    assert ct.lu_unpack(*ct.lu(a))._fields == ("P", "L", "U")
    assert ct.linalg.lu_factor(a)._fields == ("LU", "pivots") and ct.linalg.ldl_factor(a)._fields == ("LD", "pivots")
    assert ct.linalg.cholesky_ex(a)._fields == ("L", "info") and ct.svd(a)._fields == ("U", "S", "V")
