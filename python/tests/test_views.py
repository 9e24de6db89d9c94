"""What a view is: it shows a part of another tensor, and is seen through in both directions. Graphs hold values."""

import numpy as np
import pytest

import cotangent as ct


def test_a_view_and_its_base_see_each_others_changes():
    x = ct.zeros(2, 3)
    y = x[0]
    y += 1
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]
    x[:, 1] = 5
    assert y.tolist() == [1, 5, 1] and y._base is x


def test_a_view_of_a_view_shows_the_first_base():
    x = ct.zeros(4, 4)
    y = x.T[1:3]
    z = y.diagonal()
    z.fill_(7)
    assert z._base is x and y._base is x
    wanted = np.zeros((4, 4))
    wanted.T[1:3].diagonal()  # NumPy's is read-only, so that it is written out.
    wanted[0, 1] = wanted[1, 2] = 7
    np.testing.assert_array_equal(np.asarray(x), wanted)
    y.zero_()
    assert float(x.abs().sum()) == 0 and z.tolist() == [0, 0]
    x += 1
    assert y.tolist() == [[1] * 4] * 2 and z.tolist() == [1, 1]


VIEWS = {
    "index": lambda x: x[1], "slice": lambda x: x[::2, 1:], "reversed": lambda x: x[::-1], "newaxis": lambda x: x[:, None],
    "transpose": lambda x: x.transpose(0, 1), "T": lambda x: x.T, "mT": lambda x: x.mT, "reshape": lambda x: x.reshape(12),
    "view": lambda x: x.view(2, 6), "permute": lambda x: x.permute(1, 0), "squeeze": lambda x: x[None].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1), "diagonal": lambda x: x.diagonal(), "select": lambda x: x.select(1, 2),
    "narrow": lambda x: x.narrow(0, 1, 2), "chunk": lambda x: x.chunk(2)[1],
    "split": lambda x: x.split(2)[0], "unbind": lambda x: x.unbind(1)[3], "flatten": lambda x: x.flatten(),
    "movedim": lambda x: x.movedim(0, 1), "detach": lambda x: x.detach(), "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "contiguous": lambda x: x.contiguous(), "to": lambda x: x.to(ct.float64), "atleast": lambda x: ct.atleast_3d(x),
    "function": lambda x: ct.permute_dims(x, (1, 0)), "data": lambda x: x.data,
    "unfold": lambda x: x.unfold(1, 2, 2), "ellipsis": lambda x: x[...], "empty": lambda x: x[3:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_written_through_with_and_without_a_graph(name):
    """A change of a view is that of the same elements of the base, and so is its gradient."""
    view = VIEWS[name]
    positions = view(ct.arange(12, dtype=ct.float64).reshape(3, 4)).to(ct.int64).numpy().ravel()
    x = ct.arange(12, dtype=ct.float64).reshape(3, 4).clone()
    kept = x * 1
    y = view(x)
    y *= 10
    wanted = np.arange(12.0)
    wanted[positions] *= 10
    np.testing.assert_array_equal(np.asarray(x).ravel(), wanted)
    np.testing.assert_array_equal(np.asarray(kept).ravel(), np.arange(12))
    x += 1
    np.testing.assert_array_equal(np.asarray(y).ravel(), (wanted + 1)[positions])
    if name in ("detach", "data"):
        return
    leaf = ct.arange(12, dtype=ct.float64).reshape(3, 4).clone().requires_grad_()
    x = leaf * 1
    y = view(x)
    y.mul_(3)
    (x * x).sum().backward()
    wanted = 2 * np.arange(12.0)
    wanted[positions] *= 9
    np.testing.assert_allclose(np.asarray(leaf.grad).ravel(), wanted)
    assert y.requires_grad and (positions.size == 0 or float(y.sum().detach()) == 3 * positions.sum())


def test_what_a_graph_has_saved_does_not_change():
    x = ct.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = y * y
    y += 100
    y[0] = 0
    z.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_copies_and_results_are_no_views():
    x = ct.zeros(3)
    for other in (x.clone(), x + 0, x[[0, 1, 2]], x[x == 0], ct.asarray(x, copy=True), x.expand(2, 3).clone(), x.abs(), x.clamp(0)):
        other += 1
        assert x.tolist() == [0, 0, 0] and other._base is None
    assert ct.asarray(x) is x


def test_an_expanded_view_cannot_be_changed():
    x = ct.zeros(3)
    y = x.expand(2, 3)
    with pytest.raises(ValueError, match="more than once"):
        y += 1
    x += 1
    assert y.tolist() == [[1, 1, 1]] * 2


def test_leaves_are_changed_under_no_grad():
    w = ct.ones(3, dtype=ct.float64).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        w += 1
    with pytest.raises(RuntimeError, match="leaf"):
        w[0] = 1
    with pytest.raises(RuntimeError, match="leaf"):
        w[0].zero_()
    (w * w).sum().backward()
    with ct.no_grad():
        w -= 0.5 * w.grad
        w[0] = 7
    assert w.tolist() == [7, 0, 0] and w.requires_grad and w.is_leaf and w.grad.tolist() == [2, 2, 2]
    w.data.add_(1)
    w.detach()[1] = 5
    assert w.tolist() == [8, 5, 1] and w.requires_grad
    w.data = ct.zeros(3, dtype=ct.float64)
    assert w.tolist() == [0, 0, 0] and w.is_leaf and w.requires_grad


def test_the_gradient_is_one_object_until_it_is_taken_away():
    w = ct.ones(2).requires_grad_()
    assert w.grad is None
    (w * 3).sum().backward()
    g = w.grad
    assert g is w.grad
    (w * 3).sum().backward()
    assert g.tolist() == w.grad.tolist() == [6, 6]
    g.zero_()
    assert w.grad.tolist() == [0, 0]
    g[0] = 5
    assert w.grad.tolist() == [5, 0]
    (w * 1).sum().backward()
    assert w.grad.tolist() == [6, 1] and g[0].item() == 6
    w.grad = None
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2, 2] and g.tolist() == [6, 1]
    w.grad = ct.full((2,), 9.0)
    assert w.grad.tolist() == [9, 9]
    w.grad *= 2
    assert w.grad.tolist() == [18, 18]


def test_a_view_that_becomes_a_leaf_is_one_of_its_own():
    x = ct.zeros(2, 2)
    y = x[0].requires_grad_()
    x += 1
    assert y.tolist() == [0, 0] and y._base is None


def test_assigning_a_part_to_another_that_overlaps():
    x = ct.arange(6)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[::-1] += x
    assert x.tolist() == [4, 3, 3, 3, 3, 4]


def test_complex_views():
    z = ct.zeros(2, 2, dtype=ct.complex64)
    z.T[0] += 1 + 2j
    assert z.tolist() == [[1 + 2j, 0], [1 + 2j, 0]]
    assert z.real.tolist() == [[1, 0], [1, 0]]
    z.real.add_(1)
    z[1].imag = 7
    assert z.tolist() == [[2 + 2j, 1], [2 + 7j, 1 + 7j]]


COPIES = {
    "flip": lambda x: x.flip(0), "flip of all": lambda x: ct.flip(x), "flip of none": lambda x: ct.flip(x, axis=()),
    "fliplr": lambda x: x.fliplr(), "flipud": lambda x: ct.flipud(x), "rot90": lambda x: x.rot90(), "not turned": lambda x: x.rot90(0),
    "permute": lambda x: ct.permute_copy(x, (1, 0)), "transpose": lambda x: ct.transpose_copy(x, 0, 1), "t": lambda x: ct.t_copy(x),
    "view": lambda x: ct.view_copy(x, (4, 3)), "select": lambda x: ct.select_copy(x, 0, 1), "slice": lambda x: ct.slice_copy(x, 0, slice(1)),
    "diagonal": lambda x: ct.diagonal_copy(x), "expand": lambda x: ct.expand_copy(x, (3, 4)), "squeeze": lambda x: ct.squeeze_copy(x),
    "unsqueeze": lambda x: ct.unsqueeze_copy(x, 0), "unfold": lambda x: ct.unfold_copy(x, 0, 2, 1), "split": lambda x: ct.split_copy(x, 2)[0],
    "split_with_sizes": lambda x: ct.split_with_sizes_copy(x, (1, 2))[0], "unbind": lambda x: ct.unbind_copy(x)[0],
    "as_strided": lambda x: ct.as_strided_copy(x, (2, 2), (1, 1)), "alias": lambda x: ct.alias_copy(x), "narrow": lambda x: ct.narrow_copy(x, 0, 0, 1),
    "conj_physical": lambda x: (x + 0j).conj_physical(), "roll": lambda x: x.roll(0), "diff": lambda x: x.diff(n=0),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_pytorch_copies_is_a_copy(name):
    x = ct.arange(12, dtype=ct.float64).reshape(3, 4).clone()
    y = COPIES[name](x)
    assert y._base is None and y.is_contiguous()
    before = y.tolist()
    x += 1
    assert y.tolist() == before
    y.fill_(-1)
    assert x.tolist() == (np.arange(12).reshape(3, 4) + 1).tolist()


def test_as_strided_without_an_offset_begins_where_the_view_does():
    x = ct.arange(6)
    y = x[2:].as_strided((2,), (1,))
    assert y.tolist() == [2, 3] and x[2:].as_strided((2,), (1,), 0).tolist() == [0, 1]
    y += 10
    assert x.tolist() == [0, 1, 12, 13, 4, 5] and ct.as_strided(x[1:], (2, 2), (2, 1)).tolist() == [[1, 12], [13, 4]]
    w = ct.ones(6, dtype=ct.float64).requires_grad_()
    (w[2:] * 1).as_strided((2,), (2,)).sum().backward()
    assert w.grad.tolist() == [0, 0, 1, 0, 1, 0]


def conjugated(x):
    return np.conj(np.asarray(x))


COMPLEX_VIEWS = {
    "conj": (lambda z: z.conj(), np.conj), "mH": (lambda z: z.mH, lambda z: np.conj(z.T)), "H": (lambda z: z.H, lambda z: np.conj(z.T)),
    "adjoint": (lambda z: ct.adjoint(z), lambda z: np.conj(z.T)), "twice": (lambda z: z.conj().mH, lambda z: z.T),
    "row of conj": (lambda z: z.conj()[1], lambda z: np.conj(z[1])), "conj of row": (lambda z: z[:, 1].conj(), lambda z: np.conj(z[:, 1])),
    "real": (lambda z: z.real, np.real), "imag": (lambda z: z.imag, np.imag), "real of row": (lambda z: z[1].real, lambda z: z[1].real),
    "row of imag": (lambda z: z.T.imag[2], lambda z: z.T[2].imag), "imag of conj": (lambda z: z.conj().imag, lambda z: -z.imag),
    "real of mH": (lambda z: z.mH.real[1:], lambda z: z.T.real[1:]),
    "pairs": (lambda z: ct.view_as_real(z), lambda z: np.stack([z.real, z.imag], -1)),
    "pairs and back": (lambda z: ct.view_as_complex(ct.view_as_real(z)[:, 1:]), lambda z: z[:, 1:]),
}


@pytest.mark.parametrize("name", COMPLEX_VIEWS)
def test_views_of_complex_numbers_are_written_through_with_and_without_a_graph(name):
    view, wanted = COMPLEX_VIEWS[name]
    start = (np.arange(6) + 1j * np.arange(6, 0, -1)).reshape(2, 3)
    z = ct.tensor(start)
    y = view(z)
    np.testing.assert_array_equal(y.numpy(), wanted(start))
    z += 1 + 2j
    np.testing.assert_array_equal(y.numpy(), wanted(start + 1 + 2j))
    y *= 2
    np.testing.assert_array_equal(y.numpy(), 2 * wanted(start + 1 + 2j))
    np.testing.assert_array_equal(wanted(z.numpy()), y.numpy())
    y.fill_(3)
    # What the view does not show has stayed.
    hidden = wanted(z.numpy())
    assert (hidden == 3).all() and y._base is z
    leaf = ct.tensor(start, requires_grad=True)
    z = leaf * 1
    y = view(z)
    y.mul_(ct.tensor(3.0, dtype=ct.float64))
    assert z.requires_grad and np.allclose(wanted(z.detach().numpy()), 3 * wanted(start))
    ct.view_as_real(z).square().sum().backward()
    # What is shown was multiplied by 3, so that its gradient is 9 times that of the rest.
    marked = ct.zeros(2, 3, dtype=ct.complex128)
    view(marked).fill_(1)
    parts = np.stack([marked.numpy().real, marked.numpy().imag], -1) != 0
    if not view(marked).dtype.is_complex:
        factor = np.where(parts, 9, 1)
    else:
        factor = np.where(parts.any(-1, keepdims=True), 9, 1)
    found = np.stack([leaf.grad.numpy().real, leaf.grad.numpy().imag], -1)
    np.testing.assert_allclose(found, 2 * factor * np.stack([start.real, start.imag], -1))


def test_real_numbers_seen_as_complex_ones():
    x = ct.zeros(3, 2, dtype=ct.float64)
    z = ct.view_as_complex(x)
    z[1:] += 1 - 2j
    assert x.tolist() == [[0, 0], [1, -2], [1, -2]]
    x[0] = 5
    assert z[0].item() == 5 + 5j
    w = ct.ones(2, 2, dtype=ct.float64).requires_grad_()
    y = w * 1
    ct.view_as_complex(y)[0] = 2j
    (y * y).sum().backward()
    assert y.tolist() == [[0, 2], [1, 1]] and w.grad.tolist() == [[0, 0], [2, 2]]


def test_the_conjugate_of_real_numbers_is_the_tensor():
    x = ct.arange(3.0)
    assert x.conj() is x and x.real is x and x.positive() is x and ct.conj_physical(x) is x
    m = ct.zeros(2, 3)
    m.mH[0] = 1
    assert m.tolist() == [[1, 0, 0], [1, 0, 0]]


def test_broadcast_tensors_and_meshgrid_give_views():
    x, y = ct.zeros(2, 3), ct.ones(3)
    a, b = ct.broadcast_tensors(x, y)
    assert (a.shape, b.shape) == (x.shape, x.shape) and isinstance(ct.broadcast_tensors([x]), tuple) and ct.broadcast_tensors() == ()
    a[0] = 7
    assert x.tolist() == [[7] * 3, [0] * 3]
    y[0] = 5
    assert b.tolist() == [[5, 1, 1]] * 2
    with pytest.raises(ValueError, match="more than once"):
        b += 1
    with pytest.raises(ValueError):
        ct.broadcast_tensors(x, ct.ones(2))
    (only,) = ct.meshgrid(y)
    only += 1
    assert y.tolist() == [6, 2, 2]
    for indexing in ("ij", "xy"):
        grids = ct.meshgrid(y, ct.arange(2), ct.arange(4.0), indexing=indexing)
        for found, wanted in zip(grids, np.meshgrid(y.numpy(), np.arange(2), np.arange(4.0), indexing=indexing), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)
    assert [g.shape for g in ct.meshgrid(ct.zeros(0), ct.tensor(3.0))] == [(0, 1), (0, 1)]
    g = ct.meshgrid(y, ct.arange(2))[0]
    y.zero_()
    assert g.tolist() == [[0, 0]] * 3
    with pytest.raises(ValueError, match="more than once"):
        g += 1
    free = ct.array_api.meshgrid(y, ct.arange(2))[0]
    free += 1
    assert y.tolist() == [0, 0, 0]


def test_the_same_bytes_as_another_dtype_are_a_view():
    x = ct.tensor([1.0, -2.0, 3.0])
    bits = x.view(ct.int32)
    bits.bitwise_and_(0x7FFFFFFF)
    assert x.tolist() == [1, 2, 3] and bits._base is x
    x[0] = -1
    assert bits[0].item() == np.float32(-1).view(np.int32)
    x.view(ct.uint8)[3] = 0
    assert x[0].item() == np.uint32(0x00800000).view(np.float32)
    y = ct.zeros(2, 4, dtype=ct.int16)
    y.view(ct.int64)[1] = 1 << 48
    assert y.tolist() == [[0] * 4, [0, 0, 0, 1]]
    # Where it cannot be one, to change it is an error.
    masks = (x > 2).view(ct.uint8)
    assert masks.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="must return a view"):
        masks += 1
    with pytest.raises(ValueError, match="must return a view"):
        y.T.view(ct.int32).zero_()


def test_a_view_of_a_tensor_that_lies_transposed_is_written_where_it_is():
    x = ct.arange(6.0).reshape(3, 2).clone()
    y = ct.einsum("ij->ji", x)
    row = y.t().reshape(6)[1:3]
    row[:] = ct.tensor([10.0, 20.0])
    assert y.tolist() == [[0, 20, 4], [10, 3, 5]] and row.tolist() == [10, 20] and x.tolist() == [[0, 1], [2, 3], [4, 5]]
