"""Programs of people who come from PyTorch give what PyTorch gives: its answers are in habits/answers.json."""

import json

import numpy as np
import pytest

import cotangent as ct

import habits

ANSWERS = habits.answers()


@pytest.mark.parametrize("program", habits.programs())
def test_habit(program):
    found = json.loads(json.dumps(habits.evaluate(ct, program)))
    assert habits.same(found, ANSWERS[program]), f"{found} is not PyTorch's {ANSWERS[program]}"


def test_every_program_has_an_answer():
    assert list(ANSWERS) == habits.programs()


def test_shapes_change_in_place_and_views_stay():
    x = ct.arange(6.0).reshape(2, 3).clone()
    before, row = x.view(6), x[0]
    assert x.unsqueeze_(0) is x and x.shape == (1, 2, 3)
    after = x[0, 1]
    x += 10
    assert before.tolist() == [10, 11, 12, 13, 14, 15] and row.tolist() == [10, 11, 12] and after.tolist() == [13, 14, 15]
    before[0] = 0
    row[1] = 1
    after.zero_()
    assert x.tolist() == [[[0, 1, 12], [0, 0, 0]]]
    x.squeeze_().t_()
    assert x.tolist() == [[0, 0], [1, 0], [12, 0]]
    x[2, 1] = 7
    assert before.tolist() == [0, 1, 12, 0, 0, 7]


def test_shapes_of_leaves_and_graphs():
    w = ct.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="unsqueeze_: a leaf"):
        w.unsqueeze_(0)
    y = w * 2
    y.t_()
    (y * ct.arange(6.0).reshape(3, 2)).sum().backward()
    assert w.grad.tolist() == [[0, 4, 8], [2, 6, 10]]


def test_gradients_of_named_inputs():
    w, u = ct.ones(2, requires_grad=True), ct.ones(2, requires_grad=True)
    y = (w * u).sum()
    y.backward(inputs=[w], retain_graph=True)
    held = w.grad
    y.backward(inputs=[w])
    assert held is w.grad and held.tolist() == [2, 2] and u.grad is None
    with pytest.raises(NotImplementedError, match="name the inputs"):
        (w * 2).sum().backward(create_graph=True)
    x = ct.tensor([2.0], requires_grad=True)
    (x**3).sum().backward(inputs=x, create_graph=True)
    (second,) = ct.autograd.grad(x.grad.sum(), x)
    assert x.grad.tolist() == [12] and second.tolist() == [12]
    (x * 5).sum().backward()
    assert x.grad.tolist() == [17] and not x.grad.requires_grad


def test_std_refuses_both_kinds_of_correction():
    x = ct.ones(3)
    with pytest.raises(TypeError, match="unbiased or correction"):
        x.std(0, True, correction=1)
    with pytest.raises(TypeError, match="dim and keepdim"):
        x.var(0, axis=0)
    np.testing.assert_allclose(np.asarray(ct.std(ct.arange(4.0), axis=0, correction=0)), np.arange(4.0).std(), rtol=1e-6)


def test_a_generator_leaves_the_others_alone():
    ct.manual_seed(1)
    wanted = ct.rand(2).tolist()
    ct.manual_seed(1)
    g = ct.Generator().manual_seed(7)
    first = ct.randn(3, generator=g)
    assert ct.rand(2).tolist() == wanted
    second = ct.randn(3, generator=g)
    assert first.tolist() != second.tolist()
    g.manual_seed(7)
    assert ct.randn(3, generator=g).tolist() == first.tolist()
    with pytest.raises(TypeError, match="generator should be a Generator"):
        ct.rand(2, generator=3)
    with pytest.raises(TypeError, match="no parameter generator"):
        ct.zeros(2, generator=g)


def test_sizes_and_elements_make_tensors():
    assert ct.Tensor(2, 3).tolist() == [[0, 0, 0], [0, 0, 0]] and ct.Tensor().shape == (0,)
    assert ct.Tensor(ct.tensor([1, 2])).dtype is ct.int64
    with pytest.raises(TypeError, match="one sequence"):
        ct.Tensor([1], [2])


def test_what_is_absent_says_what_there_is_instead():
    for name, text in [("set_default_dtype", "dtype=float64"), ("utils", "cotangent.data"), ("compile", "call the function")]:
        with pytest.raises(AttributeError, match=text):
            getattr(ct, name)
    assert not hasattr(ct, "no_such_name")
