"""The dtype of floats of Python's. habits/defaults.txt has PyTorch's answers."""

import pytest

import cotangent as ct


@pytest.fixture
def wide():
    ct.set_default_dtype(ct.float64)
    yield
    ct.set_default_dtype(ct.float32)


def test_floats_are_not_rounded_to_32_bits(wide):
    assert ct.tensor(0.1).item() == 0.1 and ct.tensor([0.1, 1]).tolist() == [0.1, 1.0]
    assert ct.full((1,), 0.1).item() == 0.1 and ct.full((), 0.1j).item() == 0.1j
    assert (ct.tensor([1]) * 0.1).item() == 0.1 and (ct.tensor([1]) / 3).item() == 1 / 3 and (1 / ct.tensor([3])).item() == 1 / 3
    assert ct.where(ct.tensor([True]), 0.1, 0.2).item() == 0.1
    assert ct.sqrt(ct.tensor(2)).item() == 2**0.5
    assert ct.arange(0, 1, 0.1)[1].item() == 0.1 and ct.linspace(0, 1, 11)[1].item() == 0.1


def test_what_has_a_dtype_keeps_it(wide):
    narrow = ct.ones(2, dtype=ct.float32)
    for found in (narrow * 0.1, narrow + ct.tensor([1, 2]), narrow.sqrt(), ct.zeros_like(narrow), narrow.new_zeros(2), narrow.sum()):
        assert found.dtype == ct.float32
    assert ct.ones(2, dtype=ct.int32).to(ct.float32).dtype == ct.float32
    assert ct.tensor([1, 2]).float().dtype == ct.float32 and ct.tensor([1, 2]).sum(dtype=ct.float32).dtype == ct.float32
    assert ct.tensor([1], dtype=ct.int32).view(ct.float32).dtype == ct.float32


def test_generators_and_dtypes_of_integers_stay(wide):
    assert ct.randint(0, 3, (2,)).dtype == ct.randperm(3).dtype == ct.arange(3).dtype == ct.int64
    assert ct.full((2,), 1).dtype == ct.int64 and ct.full((2,), True).dtype == ct.bool


@pytest.mark.parametrize("wrong", [ct.int64, ct.bool, ct.complex64, "float64", None])
def test_other_dtypes_are_refused(wrong):
    with pytest.raises(TypeError, match="set_default_dtype: d must be a dtype"):
        ct.set_default_dtype(wrong)
    assert ct.get_default_dtype() is ct.float32
