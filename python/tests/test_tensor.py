"""Tensors as Python people use them: operators, indices, conversions, against NumPy."""

import copy
import itertools
import math
import operator
import pickle
import threading

import numpy as np
import pytest

import cotangent as ct
from cotangent import _cotangent as core

RNG = np.random.default_rng(0)


def same(found, wanted):
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype.name == str(wanted.dtype), (found.shape, found.dtype, wanted.dtype)
    np.testing.assert_array_equal(np.asarray(found), wanted)


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">", ">="]


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_operators_are_numpys(symbol, dtype):
    if symbol == "/" and dtype == "int32":
        pytest.skip("a quotient of integers is f32 here, and f64 there")
    a = (RNG.integers(1, 9, (3, 4))).astype(dtype)
    b = (RNG.integers(1, 4, (4,))).astype(dtype)
    x, y = ct.asarray(a), ct.asarray(b)
    apply = lambda p, q: eval(f"p {symbol} q", {"p": p, "q": q})
    same(apply(x, y), apply(a, b))
    same(apply(x, 2), apply(a, 2))
    same(apply(2, x), apply(2, a) if symbol != "**" else np.power(a.dtype.type(2), a))


@pytest.mark.parametrize("symbol", ["&", "|", "^", "<<", ">>"])
def test_bits_are_numpys(symbol):
    a, b = RNG.integers(0, 7, (5,)), RNG.integers(0, 4, (5,))
    apply = lambda p, q: eval(f"p {symbol} q", {"p": p, "q": q})
    same(apply(ct.asarray(a), ct.asarray(b)), apply(a, b))
    same(apply(3, ct.asarray(b)), apply(3, b))


def test_a_number_takes_the_dtype_of_the_tensor_unless_it_is_of_a_higher_kind():
    for dtype in (ct.float16, ct.float32, ct.float64, ct.bfloat16):
        assert (ct.ones(2, dtype=dtype) * 2.5).dtype == dtype and (2 - ct.ones(2, dtype=dtype)).dtype == dtype
    assert (ct.ones(2, dtype=ct.uint8) + 1).dtype == ct.uint8
    assert (ct.ones(2, dtype=ct.int8) * 1.5).dtype == ct.float32
    assert (ct.ones(2, dtype=ct.bool) + 1).dtype == ct.int64
    assert (ct.ones(2) * 1j).dtype == ct.complex64 and (ct.ones(2, dtype=ct.float64) * 1j).dtype == ct.complex128
    assert ct.result_type(ct.float32, 1j) == ct.complex64 and ct.result_type(ct.int8, ct.uint8, 3) == ct.int16
    assert ct.where(ct.tensor([True, False]), 1.5, ct.zeros(2, dtype=ct.float64)).dtype == ct.float64


def test_in_place_operators_change_the_object():
    x = ct.ones(3)
    y, before = x, x * 1
    x += 1
    x *= ct.tensor([1.0, 2.0, 3.0])
    x -= 1
    x /= 2
    x **= 2
    assert y is x
    np.testing.assert_allclose(np.asarray(x), [0.25, 2.25, 6.25])
    np.testing.assert_allclose(np.asarray(before), 1)
    n = ct.tensor([6, 7])
    n //= 2
    n |= 8
    n <<= 1
    same(n, np.array([22, 22]))
    with pytest.raises(TypeError, match="i64|int64|f32"):
        n /= 2


INDICES = [
    0, -1, slice(None), slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1), slice(-1, 0, -2),
    slice(5, 1), slice(-100, 100), None, ..., [0, 2], [-1, 0], np.array([[0, 1], [2, 0]]), slice(10, None),
]


def test_reading_is_numpys():
    a = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    x = ct.asarray(a)
    for key in INDICES:
        same(x[key], a[key])
    for key in itertools.product(INDICES, repeat=2):
        if sum(k is ... for k in key) > 1:
            continue
        mixed = any(isinstance(k, int) for k in key) and any(isinstance(k, (list, np.ndarray)) for k in key)
        if mixed:
            continue  # An integer with an array is a view here, as in PyTorch.
        same(x[key], a[key])
    mask = a % 3 == 0
    same(x[ct.asarray(mask)], a[mask])
    same(x[mask], a[mask])
    same(x[:, [True, False, True, False]], a[:, [True, False, True, False]])
    same(x[True], a[True])
    same(x[False], a[False])
    same(x[ct.tensor(1)], a[1])
    same(x[np.int64(2), np.int8(1)], a[2, 1])


def test_assigning_is_numpys():
    keys = INDICES + [(0, 1), (slice(None), 1), (..., -1), (1, None, slice(1, 3)), ([0, 2], [1, 3]), (slice(None), [0, 1])]
    for key in keys:
        a = np.arange(3 * 4 * 5).reshape(3, 4, 5)
        x = ct.asarray(a)
        part = np.asarray(a[key])
        for value in (7, part * 2):
            a[key] = value
            x[key] = value if isinstance(value, int) else ct.asarray(value)
            same(x, a)
    x = ct.zeros(4)
    x[x == 0] = 3
    x[1:3] = [5, 6]
    np.testing.assert_array_equal(np.asarray(x), [3, 5, 6, 3])
    x[...] = True
    np.testing.assert_array_equal(np.asarray(x), 1)


@pytest.mark.parametrize("key, error", [
    (9, IndexError), ((0, 0, 0), IndexError), (1.5, IndexError), ("a", IndexError), ((..., ...), IndexError),
    ([9], IndexError), (slice(None, None, 0), ValueError), (slice(1.5), TypeError), ([True, False], IndexError),
    (10**30, IndexError), ({}, IndexError),
])
def test_wrong_indices_are_refused(key, error):
    x = ct.zeros(3, 4)
    with pytest.raises(error):
        x[key]
    with pytest.raises(error):
        x[key] = 1
    assert float(x.sum()) == 0


def test_numbers_and_lists():
    assert float(ct.tensor(1.5)) == 1.5 and int(ct.tensor([3.7])) == 3 and bool(ct.tensor([[1]])) is True
    assert complex(ct.tensor(2 + 3j)) == 2 + 3j and [10, 20][ct.tensor(1)] == 20
    assert ct.tensor(2**63, dtype=ct.uint64).item() == 2**63 and ct.tensor([True]).item() is True
    assert ct.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]] and ct.tensor(1.5).tolist() == 1.5
    assert ct.zeros(2, 0).tolist() == [[], []] and ct.zeros(0, 2).tolist() == []
    assert f"{ct.tensor(1.25):.1f}" == "1.2" and len(ct.zeros(3, 2)) == 3 and 2.0 in ct.tensor([1.0, 2.0])
    for bad in (lambda: bool(ct.ones(2)), lambda: float(ct.ones(2)), lambda: float(ct.zeros(0))):
        with pytest.raises(ValueError):
            bad()
    for bad in (lambda: len(ct.tensor(1)), lambda: iter(ct.tensor(1)), lambda: [1][ct.tensor(0.0)],
                lambda: float(ct.tensor(1j)), lambda: [1][ct.tensor([0])]):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(OverflowError):
        ct.tensor(300, dtype=ct.uint8)
    with pytest.raises(OverflowError):
        ct.tensor(2**70)
    for bad in ([[1], [2, 3]], [1, [2]], [[[]], [1]]):
        with pytest.raises(ValueError, match="shape"):
            ct.tensor(bad)
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError):
        ct.tensor(loop)


def test_iteration_gives_views_and_hashing_is_by_identity():
    x = ct.zeros(3, 2)
    for at, row in enumerate(x):
        row += at
    assert x.tolist() == [[0, 0], [1, 1], [2, 2]]
    first, *_ = ct.arange(3)
    assert int(first) == 0
    assert len({x, x, ct.zeros(3, 2)}) == 2 and {x: 1}[x] == 1


def test_printing():
    assert repr(ct.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(ct.tensor([1, 2], dtype=ct.uint8)) == "tensor([1, 2], dtype=cotangent.uint8)"
    assert "requires_grad=True" in repr(ct.ones(1, requires_grad=True))
    assert "grad_fn=<ExpBackward0>" in repr(ct.ones(1).requires_grad_().exp())
    # Lines are as long as they may be with our own names, which are longer than PyTorch's.
    assert repr(ct.arange(8.0, dtype=ct.float64).requires_grad_() * 2) == (
        "tensor([ 0.,  2.,  4.,  6.,  8., 10., 12., 14.], dtype=cotangent.float64,\n       grad_fn=<MulBackward0>)")
    with pytest.raises(TypeError, match="__format__"):
        f"{ct.ones(2):.2f}"
    with pytest.raises(ValueError, match="profile must be one of default, short, full, got 'wide'"):
        ct.set_printoptions(profile="wide")
    assert repr(ct.float32) == "cotangent.float32" and repr(ct.device("cpu")) == "device(type='cpu')"


@pytest.mark.parametrize("dtype", list(ct.__array_namespace_info__().dtypes().values()) + [ct.bfloat16, ct.float16])
def test_pickling_and_copying(dtype):
    x = ct.tensor([[0, 1], [1, 0], [1, 1]]).to(dtype).T
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert other.dtype == dtype and other.tolist() == x.tolist() and other is not x
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert pickle.loads(pickle.dumps(ct.device("cuda:1"))) == ct.device("cuda", 1)
    if dtype.is_floating_point:
        leaf = pickle.loads(pickle.dumps(ct.ones(2, dtype=dtype).requires_grad_()))
        assert leaf.requires_grad and leaf.is_leaf
    y = copy.deepcopy(x)
    y[0, 0] = 1
    assert x.tolist()[0][0] in (0, False)


def test_torn_pickles_are_refused():
    rebuild, parts = ct.zeros(2).__reduce__()
    with pytest.raises(ValueError):
        rebuild(b"123", *parts[1:])
    with pytest.raises((ValueError, OverflowError)):
        rebuild(b"", (2**62, 2**62), *parts[2:])
    assert rebuild(b"\x02\x00", (2,), "bool", "cpu", False).tolist() == [True, False]


def test_pytorchs_methods():
    x = ct.tensor([[1.0, 5.0], [4.0, 2.0]])
    values, indices = x.max(1)
    assert values.tolist() == [5, 4] and indices.tolist() == [1, 0] and float(x.max()) == 5
    assert x.max(axis=0).tolist() == [4, 5] and x.min(dim=0, keepdim=True).indices.tolist() == [[0, 1]]
    assert x.max(ct.full((2, 2), 3.0)).tolist() == [[3, 5], [4, 3]]
    assert x.size() == (2, 2) and x.size(-1) == 2 and x.size == 4 and x.numel() == 4 and x.dim() == x.ndim == 2
    assert x.view(4).shape == x.view(2, -1, 1).reshape(4).shape and x.permute(1, 0).tolist() == x.T.tolist()
    assert x.float().dtype == ct.float32 and x.long().dtype == ct.int64 and x.to("cpu", ct.float64).dtype == ct.float64
    assert x.to(x) is x and x.new_zeros(2, 3).shape == (2, 3) and x.type_as(ct.ones(1, dtype=ct.int8)).dtype == ct.int8
    assert x.equal(x.clone()) and not x.equal(x + 1) and x.allclose(x + 1e-9) is True
    assert [p.shape for p in x.split(1)] == [(1, 2)] * 2 and [p.shape for p in x.split([1, 1], dim=1)] == [(2, 1)] * 2
    assert x.sum(0).tolist() == x.sum(dim=0).tolist() == x.sum(axis=0).tolist() and x.sum(axis=0, keepdims=True).shape == (1, 2)
    assert x.sort().values.tolist() == ct.sort(x).tolist() and x.nonzero().shape == (4, 2) and len(ct.nonzero(x)) == 2
    assert ct.einsum("ij,jk->ik", x, x).tolist() == (x @ x).tolist() and ct.cat([x, x], dim=1).shape == (2, 4)
    assert ct.linalg.norm(x).item() == pytest.approx(46**0.5) and x.T.stride() == (1, 2) and x.is_contiguous()
    assert (1j * x).imag.tolist() == x.tolist() and x.mT.shape == (2, 2) and x.mH.shape == (2, 2)


def test_errors_are_those_of_the_kind_with_the_operations_name():
    x = ct.ones(2, 3)
    for error, words, call in [
        (ValueError, "matmul: cannot multiply [2, 3] by [2, 3]", lambda: x @ x),
        (TypeError, "bitwise_and", lambda: x & x),
        (IndexError, "sum: dimension 5", lambda: x.sum(5)),
        (RuntimeError, "backward", lambda: x.sum().backward()),
        (MemoryError, "zeros", lambda: ct.zeros(2**40, 2**10)),
        (ValueError, "add_: ", lambda: x.add_(ct.ones(4, 2, 3))),
        (TypeError, "unsupported operand", lambda: x + "a"),
        (ValueError, "cuda", lambda: ct.device("tpu")),
        (NotImplementedError, "create_graph", lambda: x.sum().backward(create_graph=True)),
    ]:
        with pytest.raises(error) as raised:
            call()
        assert words in str(raised.value), raised.value


def test_threads_compute_side_by_side():
    ct.manual_seed(0)
    x = ct.randn(300, 300)
    wanted = (x @ x).sum().item()
    results, errors = [], []

    def work():
        try:
            with ct.no_grad():
                for _ in range(5):
                    results.append((x @ x).sum().item())
            assert ct.is_grad_enabled()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors and results == [wanted] * 20


def test_threads_change_one_tensor_without_deadlock():
    x = ct.zeros(20000)
    views = [x[::2], x[1::2]]

    def work(view):
        for _ in range(50):
            view += 1
            x.sum().item()

    threads = [threading.Thread(target=work, args=(view,)) for view in views]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert x.max().item() <= 50


def test_division_by_and_of_numbers_that_the_integers_cannot_be() -> None:
    x = ct.tensor([1, 200], dtype=ct.uint8)
    assert (x / 256).tolist() == [1 / 256, 200 / 256]
    assert (x / -2).tolist() == [-0.5, -100.0]
    assert (256 / x).tolist() == pytest.approx([256.0, 1.28])
    assert (-2 / x).tolist() == pytest.approx([-2.0, -0.01])
    assert (2**63 / x).dtype == ct.float32


@pytest.mark.parametrize(("function", "first"), [
    (ct.div, 256.0), (ct.true_divide, 256.0), (ct.divide, 256.0), (ct.xlogy, 0.0), (ct.float_power, 256.0),
    (ct.special.xlog1py, 256 * math.log(2)), (ct.special.chebyshev_polynomial_t, 256.0), (ct.atan2, math.atan(256)),
    (ct.special.zeta, 1.0), (ct.logaddexp, 256.0)])
def test_a_number_first_is_a_float_where_integers_become_floats(function, first):
    x = ct.tensor([1, 2], dtype=ct.uint8)
    assert function(256, x)[0].item() == pytest.approx(first)
    wide = function(256, x.long())
    assert function(256, x).tolist() == pytest.approx(wide.tolist()) and function(256, x).dtype == wide.dtype


def test_a_power_in_f64_takes_all_digits_of_a_number():
    assert ct.float_power(300.1, ct.tensor([1], dtype=ct.uint8)).item() == 300.1


# A number that is put into a tensor, such as -1 into bytes, may wrap around.
PUT = [
    lambda x, n: x.fill_(n), lambda x, n: x.masked_fill(x > 1, n), lambda x, n: ct.where(x > 1, x, n),
    lambda x, n: ct.where(x > 1, n, x), lambda x, n: x.index_fill(0, ct.tensor([0]), n), lambda x, n: x.scatter(0, ct.tensor([0]), n),
    lambda x, n: ct.nn.functional.pad(x, (1, 1), value=n), lambda x, n: x.__setitem__(0, n), lambda x, n: x.__setitem__(x > 1, n)]


@pytest.mark.parametrize("number", [300, -256])
@pytest.mark.parametrize("call", PUT)
def test_a_number_that_cannot_be_put_into_a_dtype_is_refused(call, number):
    x = ct.tensor([1, 2], dtype=ct.uint8)
    with pytest.raises(ValueError, match=rf"{number}(\.0)? is (not a number of|out of range for) u8"):
        call(x, number)
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("number", [300, -1])
@pytest.mark.parametrize("call", [
    lambda x, n: ct.full((2,), n, dtype=x.dtype), lambda x, n: x.new_full((2,), n), lambda x, n: x // n, lambda x, n: n // x, lambda x, n: x % n, lambda x, n: n % x,
    lambda x, n: n ** x, lambda x, n: x << n, lambda x, n: n << x, lambda x, n: ct.linspace(0, n, 3, dtype=x.dtype),
    lambda x, n: ct.arange(n, n + 2, dtype=x.dtype), lambda x, n: ct.div(n, x, rounding_mode="floor")])
def test_a_number_that_the_dtype_does_not_have_is_refused(call, number):
    x = ct.tensor([1, 2], dtype=ct.uint8)
    with pytest.raises(ValueError, match=rf"{number}(\.0)? is (not a number of|out of range for) u8"):
        call(x, number)
    assert x.tolist() == [1, 2]


def test_numbers_that_wrap_around_and_bounds_beyond_the_dtype():
    x = ct.tensor([1, 44], dtype=ct.uint8)
    assert ((x + 300).tolist(), (x - 2).tolist(), (-1 * x).tolist()) == ([45, 88], [255, 42], [255, 212])
    assert ct.add(x, x, alpha=-1).tolist() == [0, 0]
    assert x.clamp(-5, 1000).tolist() == [1, 44] and x.clamp(-5, 1000).dtype == ct.uint8
    assert x.clamp(max=1e30).dtype == ct.float32
    assert ((x > -1).tolist(), (x == 300).tolist(), (x < 300).tolist()) == ([True] * 2, [False] * 2, [True] * 2)
    assert ct.isin(x, 300).tolist() == [False, False]
    assert ct.searchsorted(x, 300).item() == 2
    with pytest.raises(ValueError, match="300"):
        x.clamp(min=300)


FLOAT = np.array([0.3, 2.5, -7.25, 1e-3])
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
             "%": operator.mod, "**": operator.pow}


@pytest.mark.parametrize("number", [0.1, -1 / 3, 1e-320, np.float64(0.1)])
@pytest.mark.parametrize("sign", OPERATORS)
def test_a_float_is_rounded_to_the_dtype_of_the_result_alone(sign, number):
    with np.errstate(all="ignore"):
        for f in (OPERATORS[sign], lambda a, b: OPERATORS[sign](b, a)):
            wanted = f(float(number), FLOAT)
            found = f(number, ct.asarray(FLOAT))
            assert found.dtype == ct.float64
            # Powers are those of two libraries.
            np.testing.assert_allclose(found.numpy(), wanted, rtol=4e-16 if sign == "**" else 0, equal_nan=True)
            changed = ct.asarray(FLOAT)
            if f is OPERATORS[sign]:
                continue
            exec(f"changed {sign}= number", {}, {"changed": changed, "number": number})
            np.testing.assert_array_equal(changed.numpy(), found.numpy())


def test_a_large_float_stays_one_and_a_complex_number_keeps_its_digits():
    x, z = ct.asarray(FLOAT), 0.1 + 0.7j
    assert (1e300 - x).tolist() == (1e300 - FLOAT).tolist() and (1e300 * x).tolist() == (1e300 * FLOAT).tolist()
    for found, wanted in ((z - x, z - FLOAT), (x - z, FLOAT - z), (z + x, z + FLOAT), (ct.sub(z, x), z - FLOAT),
                          (0.1 - x.to(ct.complex128), 0.1 - FLOAT.astype(complex)), (np.complex128(z) * x, z * FLOAT)):
        assert found.dtype == ct.complex128 and found.tolist() == wanted.tolist()
    assert (z - x.float()).dtype == ct.complex64 and (0.1 - x.half()).dtype == ct.float16
    assert (0.1 - ct.tensor([1, 2])).dtype == ct.float32
    assert ct.rsub(x, 0.1).tolist() == (0.1 - FLOAT).tolist()
    # Of several floats the widest is the result's.
    assert ct.addcmul(0.1, x.float(), x).tolist() == ct.addcmul(ct.tensor(0.1, dtype=ct.float64), x.float(), x).tolist()


def functions_of_two():
    for op in core._ops():
        kinds = [param["kind"] for param in op["params"]]
        others = [param["default"] for param in op["params"][2:]]
        if len(kinds) > 1 and set(kinds[:2]) <= {"tensor", "operand"} and None not in others and not op["random"]:
            yield op["name"]


def test_a_number_in_the_place_of_a_tensor_is_what_a_tensor_of_it_would_be():
    """0.1 has more digits in float64 than in float32."""
    exact, compared = ct.tensor(0.1, dtype=ct.float64), set()
    for name in functions_of_two():
        function = getattr(ct, name)
        for x in (ct.asarray(np.abs(FLOAT)), ct.asarray(FLOAT * 1j), ct.asarray(FLOAT > 0)):
            for side, call in enumerate((lambda number: function(number, x), lambda number: function(x, number))):
                try:
                    wanted, found = call(exact), call(0.1)
                except (TypeError, ValueError, RuntimeError, IndexError):
                    continue
                if isinstance(wanted, ct.Tensor) and wanted.dtype == found.dtype:
                    np.testing.assert_array_equal(found.numpy(), wanted.numpy(), err_msg=name)
                    compared.add((name, side))
    arithmetic = itertools.product(("add", "sub", "mul", "div", "rsub", "pow", "remainder", "floor_divide", "atan2", "hypot", "fmax"), (0, 1))
    assert compared >= set(arithmetic) and len(compared) > 60, compared


def test_deepcopy_takes_gradients_along_and_keeps_what_shares_memory():
    w = ct.tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    other = copy.deepcopy(w)
    assert other.grad.tolist() == [2, 4] and other.is_leaf and other.requires_grad
    other.grad.zero_()
    (other * 3).sum().backward()
    assert (w.grad.tolist(), other.grad.tolist()) == ([2, 4], [3, 3])
    frozen = ct.tensor([1.0], requires_grad=True)
    frozen.sum().backward()
    assert copy.deepcopy(frozen.requires_grad_(False)).grad.tolist() == [1]

    x = ct.zeros(2, 3)
    pair = {"row": x[0], "x": x, "again": x, "turned": x.T}
    made = copy.deepcopy(pair)
    assert made["x"] is made["again"] and made["row"]._base is made["x"]
    made["row"] += 1
    assert made["x"].tolist() == [[1, 1, 1], [0, 0, 0]] and made["turned"][:, 0].tolist() == [1, 1, 1]
    assert x.tolist() == [[0] * 3] * 2
    # Without the base they still share what they shared, and the values of a result that depends on a leaf are copied.
    one, two = copy.deepcopy([x[0], x[:, 0]])
    one[0] = 7
    assert two.tolist() == [7, 0] and x.sum().item() == 0
    y = w * 2
    a, b = copy.deepcopy([y.detach(), y.detach()[1:]])
    a += 1
    assert b.tolist() == [5] and y.tolist() == [2, 4] and not a.requires_grad
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy([y.detach(), y])
