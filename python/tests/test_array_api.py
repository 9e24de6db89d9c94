"""The Python array API standard, compared with array-api-strict: names, signatures, dtypes, shapes and values."""

import inspect
import itertools
import math
import warnings

import numpy as np
import pytest

import cotangent as ct

strict = pytest.importorskip("array_api_strict")
warnings.simplefilter("ignore")
NAMES = list(strict.__array_namespace_info__().dtypes())
RNG = np.random.default_rng(0)
ARRAYS = {name: RNG.integers(0, 5, (2, 3, 4)).astype(name) for name in NAMES}
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.0, 7.25, math.inf, -math.inf, math.nan, 1e-3, 100.0, 1e30]


def flat(result):
    return [y for x in result for y in flat(x)] if isinstance(result, (tuple, list)) else [result]


def agree(call, *arrays, rtol=1e-5, atol=1e-5, signs=False, what=""):
    """Both namespaces give the same dtypes, shapes and values. What the strict one refuses need not be there."""
    try:
        wanted = flat(call(strict, *[strict.asarray(a) for a in arrays]))
    except (TypeError, ValueError, AttributeError, np.linalg.LinAlgError):
        return False
    found = flat(call(ct.array_api, *[ct.asarray(a) for a in arrays]))
    assert len(found) == len(wanted), what
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b._array if hasattr(b, "_array") else b)
        if isinstance(a, ct.Tensor):
            assert a.dtype.name == str(b.dtype), (what, a.dtype, b.dtype)
        a = np.asarray(a)
        assert a.shape == b.shape, (what, a.shape, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg=what)
        if signs and b.dtype.kind == "f":
            zeros = b == 0
            assert (np.signbit(a) == np.signbit(b))[zeros].all(), f"{what}: the signs of zeros"
    return True


def modules():
    yield "", ct, strict
    yield "linalg.", ct.linalg, strict.linalg
    yield "fft.", ct.fft, strict.fft


FUNCTIONS = [(place + name, getattr(own, name, None), getattr(theirs, name)) for place, own, theirs in modules()
             for name in theirs.__all__ if inspect.isfunction(getattr(theirs, name)) and "strict_flags" not in name]


@pytest.mark.parametrize("name, own, theirs", FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_names_and_signatures(name, own, theirs):
    assert own is not None, f"{name} is missing"
    params = inspect.signature(own).parameters
    positional = [p for p in params.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in params.values())
    wanted = list(inspect.signature(theirs).parameters.values())
    for at, p in enumerate(p for p in wanted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)):
        assert any_number or at < len(positional)
        assert p.kind is p.POSITIONAL_ONLY or positional[at].name == p.name
    for p in wanted:
        assert p.kind is not p.KEYWORD_ONLY or p.name in params, p.name


def special(name):
    if name == "bool":
        return np.array([True, False])
    if "int" in name:
        return np.array([0, 1, 2, 3, 7, 100, 127] + ([] if name[0] == "u" else [-1, -2, -7, -128])).astype(name)
    if name.startswith("float"):
        return np.array(FLOATS, dtype=name)
    return np.array([complex(a, b) for a in FLOATS[:12] for b in FLOATS[:12]], dtype=name)


UNARY = ("abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log "
         "log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc").split()
BINARY = ("add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide "
          "greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply "
          "nextafter not_equal pow remainder subtract").split()


@pytest.mark.parametrize("function", UNARY)
def test_unary_functions_and_their_special_values(function):
    called = 0
    for name in NAMES:
        if function in ("acos", "asin", "atan", "acosh", "asinh", "atanh", "reciprocal", "log", "log2", "log10", "log1p") and "complex" in name:
            continue  # At the singular points of complex functions.
        called += agree(lambda xp, x: getattr(xp, function)(x), special(name), rtol=2e-5, atol=1e-7, signs=True,
                        what=f"{function}({name})")
    assert called


@pytest.mark.parametrize("function", BINARY)
def test_binary_functions_and_their_special_values(function):
    called = 0
    for name in NAMES:
        if "complex" in name and function in ("divide", "pow"):
            continue
        a = special(name)
        b = a
        if "int" in name:
            small = {"pow": 5, "bitwise_left_shift": 7, "bitwise_right_shift": 7}.get(function)
            b = (np.abs(a.astype("int64")) % small).astype(name) if small else b
            b = np.where(b == 0, 1, b).astype(name) if function in ("floor_divide", "remainder") else b
        # A remainder of zero has the sign of the dividend, as PyTorch's.
        called += agree(lambda xp, x, y: getattr(xp, function)(x, y), a[:, None], b[None, :], rtol=2e-5, atol=1e-7,
                        signs=function != "remainder", what=f"{function}({name})")
        if "int" in name or "float" in name:
            agree(lambda xp, x: (getattr(xp, function)(x, 2), getattr(xp, function)(2, x)), b[b != 0], rtol=2e-5,
                  what=f"{function}({name}, 2)")
    assert called


REDUCTIONS = "sum prod max min mean std var any all count_nonzero argmax argmin".split()


@pytest.mark.parametrize("function", REDUCTIONS)
def test_reductions(function):
    for name, a in ARRAYS.items():
        for axis, keepdims in itertools.product((None, 0, -1, (0, 2), ()), (False, True)):
            agree(lambda xp, x: getattr(xp, function)(x, axis=axis, keepdims=keepdims), a, what=f"{function}({name}, {axis}, {keepdims})")


SHAPES = {
    "flip": lambda xp, x: (xp.flip(x), xp.flip(x, axis=(0, 1))),
    "roll": lambda xp, x: (xp.roll(x, 2), xp.roll(x, (1, 2), axis=(0, 2)), xp.roll(x, 1, axis=(0, 2))),
    "concat": lambda xp, x: (xp.concat([x, x], axis=None), xp.concat([x, x], axis=-1)),
    "stack": lambda xp, x: xp.stack([x, x], axis=-1),
    "tile": lambda xp, x: xp.tile(x, (2, 1)),
    "repeat": lambda xp, x: (xp.repeat(x, 2), xp.repeat(x, 2, axis=1), xp.repeat(x, xp.asarray([1, 0, 2]), axis=1)),
    "unstack": lambda xp, x: xp.unstack(x, axis=1),
    "moveaxis": lambda xp, x: xp.moveaxis(x, (0, 1), (1, 2)),
    "permute_dims": lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
    "take": lambda xp, x: (xp.take(x, xp.asarray([0, 2]), axis=2), xp.take(x[0, 0, :], xp.asarray([1]))),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.zeros((2, 1, 4), dtype=xp.int64), axis=1),
    "squeeze": lambda xp, x: xp.squeeze(x[:, :1, :], axis=1),
    "expand_dims": lambda xp, x: xp.expand_dims(x, axis=1),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (5, 2, 3, 4)),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, x[:1, ...]),
    "tril": lambda xp, x: (xp.tril(x, k=1), xp.triu(x, k=-1)),
    "like": lambda xp, x: (xp.zeros_like(x), xp.ones_like(x), xp.full_like(x, 1)),
    "reshape": lambda xp, x: xp.reshape(x, (4, -1), copy=True),
    "nonzero": lambda xp, x: xp.nonzero(x),
    "where": lambda xp, x: xp.where(x == x, x, x),
    "sort": lambda xp, x: [f(x, axis=a, descending=d, stable=True) for f in (xp.sort, xp.argsort) for a in (0, -1) for d in (False, True)],
    "cumulative": lambda xp, x: [f(x, axis=a, include_initial=i) for f in (xp.cumulative_sum, xp.cumulative_prod) for a in (0, -1)
                                 for i in (False, True)],
    "diff": lambda xp, x: xp.diff(x, axis=1),
    "matmul": lambda xp, x: (xp.matmul(x, xp.matrix_transpose(x)), x @ x[0, 0, :]),
    "vecdot": lambda xp, x: xp.vecdot(x, x, axis=-1),
    "tensordot": lambda xp, x: (xp.tensordot(x, x, axes=((0, 2), (0, 2))), xp.tensordot(x, x, axes=0)),
    "outer": lambda xp, x: xp.linalg.outer(x[0, 0, :], x[0, 1, :]),
    "trace": lambda xp, x: xp.linalg.trace(x, offset=1),
    "cross": lambda xp, x: xp.linalg.cross(xp.matrix_transpose(x), xp.matrix_transpose(x + x), axis=-1),
    "unique": lambda xp, x: (tuple(xp.unique_all(x)), tuple(xp.unique_counts(x)), tuple(xp.unique_inverse(x)), xp.unique_values(x)),
    "clip": lambda xp, x: (xp.clip(x, 1, 3), xp.clip(x, None, x[:1, ...]), xp.clip(x)),
    "searchsorted": lambda xp, x: xp.searchsorted(xp.sort(x[0, 0, :]), x[1, 1, :], side="right"),
    "fft": lambda xp, x: [getattr(xp.fft, n)(x) for n in ("fft", "ifft", "fftn", "ifftn", "fftshift", "ifftshift")],
    "rfft": lambda xp, x: [getattr(xp.fft, n)(x, norm="ortho") for n in ("rfft", "rfftn", "ihfft")],
    "irfft": lambda xp, x: [getattr(xp.fft, n)(x) for n in ("irfft", "irfftn", "hfft")],
}


@pytest.mark.parametrize("name", SHAPES)
def test_other_functions(name):
    assert sum(agree(SHAPES[name], a, rtol=1e-3, what=f"{name}({d})") for d, a in ARRAYS.items())


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_linear_algebra(name):
    m = RNG.standard_normal((2, 4, 4)).astype(name)
    spd = (m @ m.swapaxes(-1, -2) + 4 * np.eye(4)).astype(name)
    for f in "det inv matrix_rank pinv svdvals slogdet".split():
        assert agree(lambda xp, x: tuple(getattr(xp.linalg, f)(x)) if f == "slogdet" else getattr(xp.linalg, f)(x), m, rtol=1e-3, atol=1e-3, what=f)
    for f in "cholesky eigvalsh".split():
        assert agree(lambda xp, x: getattr(xp.linalg, f)(x), spd, rtol=1e-3, what=f)
    for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        assert agree(lambda xp, x: xp.linalg.matrix_norm(x, ord=order, keepdims=True), m, rtol=1e-3, what=f"matrix_norm {order}")
    for order in (0, 1, 2, 3.5, math.inf, -math.inf):
        assert agree(lambda xp, x: xp.linalg.vector_norm(x, ord=order, axis=(0, 2)), m, rtol=1e-3, what=f"vector_norm {order}")
    assert agree(lambda xp, x: (xp.linalg.solve(x, x[0, ...]), xp.linalg.solve(x, x[0, 0, :]), xp.linalg.matrix_power(x, -2)), spd, rtol=1e-2)
    x = ct.asarray(m)
    q, r = ct.linalg.qr(x)
    u, s, vh = ct.linalg.svd(x, full_matrices=False)
    values, vectors = ct.linalg.eigh(ct.asarray(spd))
    for back in (q @ r, u * s.to(u.dtype)[..., None, :] @ vh):
        np.testing.assert_allclose(np.asarray(back), m, rtol=1e-3, atol=1e-3)
    assert ct.linalg.qr(x).Q.shape == (2, 4, 4) and ct.linalg.svd(x).Vh.shape == (2, 4, 4) and values.shape == (2, 4)


def test_creation():
    assert agree(lambda xp: (xp.arange(5), xp.arange(2, 10, 3), xp.arange(5, 2), xp.arange(10, 0, -3, dtype=xp.int32)))
    assert agree(lambda xp: [xp.linspace(*args, dtype=xp.float64, endpoint=end) for args in ((0, 1, 5), (0, 1, 0), (3, 5, 1), (0, 10, 4))
                             for end in (True, False)])
    assert agree(lambda xp: (xp.eye(3, dtype=xp.float64), xp.eye(3, 4, k=1, dtype=xp.float64), xp.eye(3, 2, k=-1, dtype=xp.int32)))
    assert agree(lambda xp: (xp.full((2,), True), xp.full((2,), 3), xp.full((), 1.5, dtype=xp.float64)))
    assert agree(lambda xp: xp.meshgrid(xp.arange(3), xp.arange(4)))
    assert agree(lambda xp: (xp.fft.fftfreq(5, d=0.5, dtype=xp.float64), xp.fft.rfftfreq(6, dtype=xp.float64)))
    assert ct.zeros((2,)).dtype == ct.float32 and ct.asarray([1.0, 2j]).dtype == ct.complex64


def test_dtypes():
    for a, b in itertools.product(NAMES, repeat=2):
        own, theirs = [getattr(ct, a), getattr(ct, b)], [getattr(strict, a), getattr(strict, b)]
        assert ct.can_cast(*own) == strict.can_cast(*theirs), (a, b)
        try:
            wanted = strict.result_type(*theirs)
        except TypeError:
            continue
        assert ct.result_type(*own) == getattr(ct, str(np.dtype(wanted._np_dtype))), (a, b)
    for name in NAMES:
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
            assert ct.isdtype(getattr(ct, name), kind) == strict.isdtype(getattr(strict, name), kind)
    for name in ("float32", "float64"):
        own, theirs = ct.finfo(getattr(ct, name)), np.finfo(name)
        assert (own.bits, own.eps, own.max, own.min, own.smallest_normal) == (theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal)
    for name in (n for n in NAMES if "int" in n):
        assert (ct.iinfo(getattr(ct, name)).min, ct.iinfo(getattr(ct, name)).max) == (np.iinfo(name).min, np.iinfo(name).max)


def test_the_namespace():
    x = ct.ones((1, 1))
    xp = x.__array_namespace__()
    assert xp is ct.array_api and x.__array_namespace__(api_version="2025.12") is xp and ct.__array_api_version__ == "2025.12"
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="1999.1")
    info = ct.__array_namespace_info__()
    assert set(info.dtypes()) == set(strict.__array_namespace_info__().dtypes())
    assert info.default_dtypes()["real floating"] == ct.float32 and ct.device("cpu") in info.devices()
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"} and info.capabilities()["boolean indexing"]
    assert xp.std(ct.tensor([1.0, 3.0])).item() == 1.0 and ct.std(ct.tensor([1.0, 3.0])).item() == pytest.approx(2**0.5)
    with pytest.raises(ValueError):
        xp.squeeze(ct.zeros((2, 1)), axis=0)
    for name in ("e", "inf", "nan", "pi", "newaxis"):
        assert hasattr(ct, name)


def test_a_remainder_of_zero_has_the_sign_of_the_divisor():
    a, b = np.array([0.0, -0.0, 1.0, -1.0, 3.0, -2.5, 5.0]), np.array([-1.0, 2.0, -1.0, 1.0, -np.inf, 0.5, 3.0])
    found = ct.remainder(ct.asarray(a), ct.asarray(b)).numpy()
    assert found.tolist() == np.remainder(a, b).tolist()
    assert np.signbit(found).tolist() == np.signbit(np.remainder(a, b)).tolist()
    w = ct.tensor([3.0, 2.0], requires_grad=True)
    ct.remainder(w, -1.0).sum().backward()
    assert w.grad.tolist() == [1, 1]


def test_what_means_something_else_in_numpy_is_left_out():
    """Programs look for names that the standard does not have, and expect what NumPy gives."""
    for name in "median nanmedian split pad put select transpose unique histogram gradient tril_indices triu_indices".split():
        assert not hasattr(ct.array_api, name) and hasattr(ct, name)


REAL, WHOLE = np.array([[0.5, -1.5, 2.25], [3.0, -0.25, 1.0]]), np.array([[3, 0, 2], [1, 1, 4]])
EXTRA = {name: call for name, call in inspect.getmembers(ct.array_api) if callable(call) and not inspect.isclass(call)
         and hasattr(np, name) and not hasattr(strict, name) and not name.startswith("_")}


@pytest.mark.parametrize("name", EXTRA)
def test_names_beyond_the_standard_give_what_numpys_do(name):
    """Of one and two arrays, and along an axis; what is not taken is an error, and not something else."""
    calls = [(REAL,), (WHOLE,), (REAL[0],), (REAL, REAL), (WHOLE, WHOLE), (REAL[0], REAL[1]), (REAL, 0), (WHOLE, 1)]
    for args in [([REAL, REAL],), ([WHOLE, WHOLE],)] if "stack" in name or name == "concatenate" else calls:
        try:
            with np.errstate(all="ignore"):
                # Some of NumPy's write into their second argument.
                wanted = getattr(np, name)(*(x.copy() if isinstance(x, np.ndarray) else x for x in args))
            own = [[ct.asarray(x) for x in a] if isinstance(a, list) else ct.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
            found = EXTRA[name](*own)
        except Exception:
            continue
        found, wanted = flat(found), flat(wanted)
        assert len(found) == len(wanted), args
        for a, b in zip(found, wanted):
            assert np.shape(a) == np.shape(b), args
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6, atol=1e-6, err_msg=str(args))


def test_cross_broadcasts_dimensions_in_front():
    xp = ct.array_api
    x, y = xp.asarray([1.0, 0, 0]), xp.asarray([[0.0, 1, 0], [0, 0, 1]])
    assert xp.linalg.cross(x, y).tolist() == [[0, 0, 1], [0, -1, 0]] and xp.linalg.cross(y, x).shape == (2, 3)
    assert xp.linalg.cross(xp.ones((2, 1, 3)), xp.ones((4, 3))).shape == (2, 4, 3)
