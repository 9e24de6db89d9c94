"""Functions of complex numbers where a part is zero, tiny, huge, infinite or NaN, compared with NumPy's, which are C's."""

import math

import numpy as np
import pytest

import cotangent as ct

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, math.inf, -math.inf, math.nan, 1e-10, -1e-12, 1e12, -1e200]
Z = np.array([complex(a, b) for a in PARTS for b in PARTS])
# What the sign of an infinity or a zero is, these leave open in some places.
UNSIGNED = set("acosh asin acos asinh atan atanh tanh tan cos cosh sin sinh exp expm1".split())
FUNCTIONS = "abs acos acosh asin asinh atan atanh cos cosh exp isfinite isinf isnan log log10 log2 sin sinh sqrt tan tanh".split()


def same(found, wanted, loose):
    close = np.isclose(found, wanted, rtol=1e-10, atol=1e-18, equal_nan=True)
    return close | (loose & np.isinf(found) & np.isinf(wanted))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_numpys(name):
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(Z)
    found = getattr(ct, name)(ct.asarray(Z)).numpy()
    for part in (np.real, np.imag):
        right = same(part(found), part(wanted), name in UNSIGNED)
        assert right.all(), [(z, a, b) for z, a, b in zip(Z[~right], found[~right], wanted[~right])][:5]


@pytest.mark.parametrize("name", ["sqrt", "log", "asin", "asinh", "atan", "atanh", "acos", "acosh"])
def test_the_sign_of_a_zero_chooses_the_side_of_a_cut(name):
    sides = np.array([complex(a, b) for a in (-2.0, 2.0, -0.5, 0.5, 0.0, -0.0) for b in (0.0, -0.0)])
    sides = np.concatenate([sides, [complex(b, a) for a in (-2.0, 2.0) for b in (0.0, -0.0)]])
    wanted, found = getattr(np, name)(sides), getattr(ct, name)(ct.asarray(sides)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize(("z", "wanted"), [
    # NumPy gives NaN for these; the values are those that the array API standard lists.
    (complex(math.inf, 0.0), complex(math.inf, 0.0)),
    (complex(-math.inf, math.inf), complex(-1.0, 0.0)),
    (complex(-math.inf, math.nan), complex(-1.0, 0.0)),
    (complex(-math.inf, 1.0), complex(-1.0, 0.0)),
    (complex(math.nan, 0.0), complex(math.nan, 0.0)),
    (complex(0.0, math.inf), complex(math.nan, math.nan)),
    (complex(math.inf, math.nan), complex(math.inf, math.nan)),
])
def test_expm1(z, wanted):
    found = complex(ct.expm1(ct.asarray(z)))
    assert same(np.array([found.real, found.imag]), np.array([wanted.real, wanted.imag]), True).all(), found


def test_log1p_is_exact_near_zero_and_near_its_pole():
    z = np.array([1e-10j, 1e-12 + 1e-12j, -1 + 1e-10j, -1 + 0j, complex(math.nan, math.inf), complex(-math.inf, 1.0)])
    wanted = np.array([complex(5e-21, 1e-10), complex(1e-12, 1e-12), complex(math.log(1e-10), math.pi / 2), complex(-math.inf, 0.0),
                       complex(math.inf, math.nan), complex(math.inf, math.pi)])
    found = ct.log1p(ct.asarray(z)).numpy()
    assert same(found.real, wanted.real, False).all() and same(found.imag, wanted.imag, False).all(), found


@pytest.mark.parametrize("name", ["asinh", "atanh", "asin", "atan", "sinh", "tanh", "expm1"])
def test_small_numbers_keep_their_digits(name):
    for size in (1e-4, 1e-9, 1e-15):
        z = np.array([complex(size, 2 * size), complex(-size, size), complex(size, 0.0)])
        cube = {"asinh": -1 / 6, "atanh": 1 / 3, "asin": 1 / 6, "atan": -1 / 3, "sinh": 1 / 6, "tanh": -1 / 3, "expm1": 1 / 6}[name]
        wanted = z + cube * z**3 + (z**2 / 2 + z**4 / 24 if name == "expm1" else 0)
        np.testing.assert_allclose(getattr(ct, name)(ct.asarray(z)).numpy(), wanted, rtol=1e-14)
