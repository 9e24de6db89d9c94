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
    "narrow": lambda x: x.narrow(0, 1, 2), "flip": lambda x: x.flip(0), "chunk": lambda x: x.chunk(2)[1],
    "split": lambda x: x.split(2)[0], "unbind": lambda x: x.unbind(1)[3], "flatten": lambda x: x.flatten(),
    "movedim": lambda x: x.movedim(0, 1), "detach": lambda x: x.detach(), "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "contiguous": lambda x: x.contiguous(), "to": lambda x: x.to(ct.float64), "atleast": lambda x: ct.atleast_3d(x),
    "rot90": lambda x: x.rot90(), "function": lambda x: ct.permute_dims(x, (1, 0)), "data": lambda x: x.data,
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
    with pytest.raises(ValueError, match="no view"):
        z.real.add_(1)
