"""What PyTorch takes beyond the plainest form of a call. The numbers that are compared with are PyTorch's, or NumPy's."""

import numpy as np
import pytest

import cotangent as ct
from cotangent import nn
from cotangent.nn import functional as F


def test_leading_ones_of_an_assigned_value_are_left_out():
    x = ct.zeros(2, 20)
    x[0] = ct.ones(1, 20)
    assert x.sum().item() == 20 and x[1].sum().item() == 0
    x[0, 0] = ct.full((1, 1), 5.0)
    x[ct.tensor([1])] = ct.full((1, 1, 20), 2.0)
    assert x[0, 0].item() == 5 and x[1].tolist() == [2.0] * 20
    x[x == 2] = ct.full((1, 1), 3.0)
    assert x[1].tolist() == [3.0] * 20
    with pytest.raises(ValueError, match=r"\[2, 20\]"):
        x[0] = ct.ones(2, 20)


def test_the_gradient_of_an_assigned_value_has_its_shape():
    value, x = ct.ones(1, 3, requires_grad=True), ct.zeros(2, 3)
    x[1] = value * 2
    (x * ct.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert value.grad.tolist() == [[2.0, 4.0, 6.0]]


def test_a_complex_row_is_assigned_from_another_after_a_change():
    z = ct.ones(2, 2) * 1j
    z[0] *= 2
    row = z[0]
    z[1] = z[0]
    assert z.tolist() == [[2j, 2j], [2j, 2j]]
    z += 1
    assert row.tolist() == [1 + 2j, 1 + 2j]
    copy = z.clone()
    first = copy[0]
    copy[1] = 0
    assert first.tolist() == [1 + 2j, 1 + 2j] and copy[1].tolist() == [0, 0] and z[1].tolist() == [1 + 2j, 1 + 2j]


@pytest.mark.parametrize("own, other", [("float32", "float64"), ("float16", "float32"), ("bfloat16", "float32"), ("int32", "int64"),
                                        ("complex64", "complex128"), ("float16", "bfloat16"), ("float32", "int64")])
def test_a_change_in_place_takes_a_wider_operand(own, other):
    own, other = getattr(ct, own), getattr(ct, other)
    for change in (lambda x, y: x.add_(y), lambda x, y: x.__iadd__(y), lambda x, y: x.__imul__(y), lambda x, y: x.sub_(y),
                   lambda x, y: x.mul_(y)):
        x, y = ct.tensor([1, 2, 3]).to(own), ct.tensor([1, 0, 1]).to(other)
        change(x, y)
        assert x.dtype is own


def test_values_of_changes_by_wider_operands():
    x = ct.full((2,), 0.1)
    x *= ct.full((2,), 0.1, dtype=ct.float64)
    assert x.numpy().tolist() == [float(np.float32(np.float64(np.float32(0.1)) * 0.1))] * 2
    half = ct.ones(2, dtype=ct.float16)
    half += ct.ones(2)
    half **= ct.tensor([3.0, 2.0])
    half //= ct.tensor([3.0, 3.0])
    half.addcmul_(ct.ones(2), ct.ones(2))
    half.clamp_(min=ct.tensor([0.0, 2.0]))
    half.atan2_(ct.ones(2)).lerp_(ct.ones(2), ct.full((2,), 1.0))
    assert half.dtype is ct.float16 and half.tolist() == [1.0, 1.0]
    int32, byte = ct.ones(2, dtype=ct.int32), ct.tensor([250, 1], dtype=ct.uint8)
    int32 += ct.full((2,), 2**33)
    byte += ct.tensor([10, -3])
    assert int32.tolist() == [1, 1] and byte.tolist() == [4, 254]
    view = ct.zeros(2, 2)
    view[0] += ct.ones(2, dtype=ct.float64)
    assert view.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    x = ct.ones(2).masked_fill_(ct.tensor([True, False]), ct.tensor(3.0, dtype=ct.float64))
    assert x.tolist() == [3.0, 1.0]


def test_a_higher_kind_is_refused_in_place():
    for own, other in [("int32", 1.5), ("int32", ct.ones(2)), ("bool", 1), ("bool", ct.tensor([1, 2])), ("float32", ct.ones(2) * 1j)]:
        x = ct.ones(2, dtype=getattr(ct, own))
        with pytest.raises(TypeError, match="cannot hold"):
            x += other
    with pytest.raises(TypeError, match="cannot hold"):
        ct.ones(2, dtype=ct.int32).div_(2)
    with pytest.raises(TypeError, match="cannot hold"):
        ct.ones(2, dtype=ct.bool).square_()


def test_a_gradient_through_a_wider_operand():
    wide, x = ct.full((2,), 3.0, dtype=ct.float64, requires_grad=True), ct.tensor([1.0, 2.0])
    x *= wide
    x.sum().backward()
    assert x.dtype is ct.float32 and wide.grad.dtype is ct.float64 and wide.grad.tolist() == [1.0, 2.0]


def test_comparisons_and_logic_in_place():
    x = ct.tensor([0.0, 2.0])
    assert x.eq_(2).tolist() == [0.0, 1.0] and x.dtype is ct.float32
    assert ct.tensor([0, 2]).eq_(2.5).tolist() == [0, 0]
    assert ct.tensor([0.0, 2.0]).gt_(ct.tensor([1, 1])).tolist() == [0.0, 1.0]
    for name, wanted in {"ne_": [1, 0, 1], "lt_": [1, 0, 0], "le_": [1, 1, 0], "gt_": [0, 0, 1], "ge_": [0, 1, 1]}.items():
        assert getattr(ct.tensor([1, 2, 3]), name)(2).tolist() == wanted
    assert ct.tensor([0.0, 2.0]).logical_not_().tolist() == [1.0, 0.0]
    assert ct.tensor([0.0, 2.0]).logical_and_(ct.tensor([1.0, 1.0])).tolist() == [0.0, 1.0]


def test_numbers_that_are_put_into_integers():
    x = ct.zeros(2, dtype=ct.uint8)
    x[0] = -1
    assert x.tolist() == [255, 0]
    x[x == 0] = -2
    assert x.tolist() == [255, 254]
    assert ct.zeros(2, dtype=ct.uint8).fill_(-1).tolist() == [255, 255]
    mask = ct.tensor([True, False])
    assert ct.zeros(2, dtype=ct.uint8).masked_fill(mask, -1).tolist() == [255, 0]
    assert ct.where(mask, ct.zeros(2, dtype=ct.uint8), -1).tolist() == [0, 255]
    assert ct.zeros(2, dtype=ct.uint8).index_fill(0, ct.tensor([0]), -1).tolist() == [255, 0]
    for name, number in [("uint8", 300), ("uint8", -256), ("int8", 200)]:
        x = ct.zeros(2, dtype=getattr(ct, name))
        with pytest.raises(ValueError, match=str(number)):
            x[0] = number
        with pytest.raises(ValueError, match=str(number)):
            x.fill_(number)
        with pytest.raises(ValueError, match=str(number)):
            x.masked_fill(mask, number)


def test_bools_as_numbers():
    x = ct.tensor([True, False])
    assert x.masked_fill(x, 0).tolist() == [False, False] and x.masked_fill(x, 2).tolist() == [True, False]
    assert x.sign().tolist() == [True, False] and x.sgn().dtype is ct.bool
    assert x.square().dtype is ct.int64 and x.square().tolist() == [1, 0]
    assert x.clamp(0, 1).dtype is ct.int64 and x.clamp(0.0, 1.0).dtype is ct.float32
    assert x.clamp(min=ct.tensor(True)).tolist() == [True, True]
    assert x.clamp(min=ct.tensor([False, True]), max=ct.tensor([False, True])).tolist() == [False, True]


def test_negative_powers_of_complex_numbers():
    z = ct.tensor([1 + 1j, 2])
    np.testing.assert_allclose((z**-1).numpy(), [0.5 - 0.5j, 0.5], rtol=1e-6)
    np.testing.assert_allclose((z**-2).numpy(), [-0.5j, 0.25], rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="-1"):
        ct.tensor([1, 2]) ** -1


def test_to_by_place_and_hints():
    x = ct.ones(2)
    assert x.to("cpu", ct.float64, True).dtype is ct.float64
    assert x.to(ct.float64, True).dtype is ct.float64 and x.to(None, ct.float64).dtype is ct.float64
    assert x.to(ct.float32, False, True) is not x and x.to(ct.float32, True) is x
    assert x.to(ct.ones(1, dtype=ct.float64), True).dtype is ct.float64
    for form in (ct.preserve_format, ct.contiguous_format):
        assert x.clone(memory_format=form).tolist() == [1.0, 1.0]
        assert ct.zeros_like(x, memory_format=form).tolist() == [0.0, 0.0]
        assert x.double(memory_format=form).dtype is ct.float64
        assert ct.empty_like(x, memory_format=form).shape == (2,)
    assert ct.zeros(2, layout=ct.strided, pin_memory=False).shape == (2,)


def test_ctc_loss_takes_lengths_as_sequences():
    x = ct.log_softmax(ct.arange(30.0).reshape(5, 2, 3).sin(), dim=-1)
    targets = ct.tensor([[1, 2], [1, 2]])
    wanted = F.ctc_loss(x, targets, ct.tensor([5, 5]), ct.tensor([2, 2])).item()
    assert F.ctc_loss(x, targets, (5, 5), [2, 2]).item() == wanted
    assert ct.ctc_loss(x, targets, [5, 5], [2, 2], 0, "mean").item() == wanted
    assert nn.CTCLoss()(x, targets, [5, 5], (2, 2)).item() == wanted


def test_complex_convolutions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=9) + 1j * rng.normal(size=9)
    w = rng.normal(size=4) + 1j * rng.normal(size=4)
    a, b, bias = ct.tensor(x[None, None]), ct.tensor(w[None, None]), ct.tensor([0.5 - 2j], dtype=ct.complex128)
    # NumPy conjugates what it correlates with.
    np.testing.assert_allclose(F.conv1d(a, b, bias).numpy()[0, 0], np.correlate(x, w.conj(), "valid") + 0.5 - 2j, rtol=1e-12)
    np.testing.assert_allclose(F.conv_transpose1d(a, b, bias).numpy()[0, 0], np.convolve(x, w) + 0.5 - 2j, rtol=1e-12)
    y = F.conv2d(a[:, :, None], b[:, :, None], bias, padding=(0, 1))
    np.testing.assert_allclose(y.numpy()[0, 0, 0, 1:-1], np.correlate(x, w.conj(), "valid") + 0.5 - 2j, rtol=1e-12)
    assert F.conv3d(a[:, :, None, None], b[:, :, None, None]).shape == (1, 1, 1, 1, 6)


def test_gradients_of_complex_convolutions():
    x = ct.tensor([[[1 + 2j, 3 - 1j, 2j]]], dtype=ct.complex128, requires_grad=True)
    w = ct.tensor([[[2 - 1j, 1j]]], dtype=ct.complex128, requires_grad=True)
    F.conv1d(x, w).backward(ct.tensor([[[1 + 1j, 2.0]]], dtype=ct.complex128))
    # Of y = x w the gradients are g conj(w) and g conj(x), in PyTorch's convention.
    assert x.grad.tolist() == [[[1 + 3j, 5 + 1j, -2j]]]
    assert w.grad.tolist() == [[[9 + 1j, 2 + 0j]]]


def test_losses_of_half_precision_have_the_dtype_of_their_input():
    y = ct.tensor([0.25, 0.5])
    classes, logits = ct.tensor([0, 2]), ct.tensor([[0.5, 1.0, 0.25], [1.0, 2.0, 0.125]])
    for dtype in (ct.float16, ct.bfloat16):
        x, t, z = ct.tensor([0.5, 0.75]).to(dtype), y.to(dtype), logits.to(dtype)
        one = ct.ones(2, dtype=dtype)
        calls = [F.mse_loss(x, t), F.l1_loss(x, t), F.smooth_l1_loss(x, t), F.huber_loss(x, t), F.kl_div(x, t),
                 F.binary_cross_entropy(x, t), F.binary_cross_entropy_with_logits(x, t), F.poisson_nll_loss(x, t),
                 F.hinge_embedding_loss(x, one), F.soft_margin_loss(x, one), F.cross_entropy(z, classes), F.nll_loss(z, classes),
                 F.cross_entropy(z, z.softmax(-1)), F.margin_ranking_loss(x, t, one), F.gaussian_nll_loss(x, t, one),
                 F.gaussian_nll_loss(x, t, 1.0), F.triplet_margin_loss(z, z, z), F.multi_margin_loss(z, classes),
                 F.cosine_embedding_loss(z, z, one), F.mse_loss(x, t, reduction="none")]
        assert [loss.dtype for loss in calls] == [dtype] * len(calls)
        assert F.gaussian_nll_loss(x, t, ct.ones(2)).dtype is ct.float32 and F.mse_loss(x, y).dtype is ct.float32
        x.requires_grad_()
        F.mse_loss(x, t).backward()
        assert x.grad.dtype is dtype and x.grad.tolist() == [0.25, 0.25]
    with ct.autocast("cpu", dtype=ct.bfloat16):
        x = ct.tensor([0.5, 0.75], dtype=ct.bfloat16)
        assert F.mse_loss(x, x).dtype is ct.float32 and F.binary_cross_entropy(x, x).dtype is ct.float32
        assert F.cross_entropy(logits.to(ct.bfloat16), classes).dtype is ct.float32


def test_losses_broadcast_sizes_of_one_where_pytorch_says_so():
    x, row, column = ct.arange(12.0).reshape(4, 3), ct.ones(1, 3), ct.full((4, 1), 2.0)
    assert F.gaussian_nll_loss(x, column, ct.ones(4, 1)).item() == F.gaussian_nll_loss(x, column.expand(4, 3), ct.ones(4, 3)).item()
    assert F.margin_ranking_loss(x, row, column).item() == F.margin_ranking_loss(x, row.expand(4, 3), column.expand(4, 3)).item()
    assert F.triplet_margin_loss(x, row, x).item() == F.triplet_margin_loss(x, row.expand(4, 3), x).item()
    sign = ct.tensor([1])
    assert F.cosine_embedding_loss(x, row, sign).item() == F.cosine_embedding_loss(x, row.expand(4, 3), sign.expand(4)).item()
    for call in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.raises(ValueError, match="reshape"):
            call(ct.ones(4, 1), ct.ones(4))
    with pytest.raises(ValueError, match=r"\[4\]"):
        F.margin_ranking_loss(ct.ones(4, 1), ct.ones(4), ct.ones(4, 1))


def test_as_strided_in_place():
    x = ct.arange(6.0)
    assert x.as_strided_((2, 2), (1, 2)).tolist() == [[0.0, 2.0], [1.0, 3.0]]
    assert ct.arange(6.0).as_strided_(size=(2, 2), stride=(1, 2), storage_offset=1).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert ct.zeros(2, 3).transpose_(dim0=0, dim1=1).shape == (3, 2)
    with pytest.raises(TypeError, match="dim"):
        ct.zeros(2).unsqueeze_(other=1)


def test_embedding_bag_takes_its_arguments_in_order():
    weight, index = ct.tensor([[3.0, 4.0], [0.5, 0.0], [0.0, 2.0]]), ct.tensor([0, 1, 2])
    offsets = ct.tensor([0, 2])
    assert F.embedding_bag(index, weight, offsets, None, 2.0, False, "sum").tolist() == [[3.5, 4.0], [0.0, 2.0]]
    bags = F.embedding_bag(index, weight, offsets, max_norm=1.0, mode="sum")
    np.testing.assert_allclose(bags.numpy(), [[1.1, 0.8], [0.0, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(weight.numpy(), [[0.6, 0.8], [0.5, 0.0], [0.0, 1.0]], rtol=1e-5)
    with pytest.raises(NotImplementedError, match="sparse"):
        F.embedding_bag(index, weight, offsets, sparse=True)


def test_a_dropout_outside_of_training_takes_everything():
    for drop in (F.dropout, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout):
        for x in (ct.ones(5), ct.ones(2, 3, dtype=ct.int64), ct.ones(2) * 1j, ct.tensor([True])):
            assert drop(x, 0.5, False).tolist() == x.tolist()
        with pytest.raises(ValueError, match="2"):
            drop(ct.ones(2, 3, 4, 4), 2.0, False)
