"""Transforms of functions of trees, and dual tensors. habits/transforms.txt has PyTorch's answers."""

import collections
import copy

import pytest

import cotangent as ct
from cotangent import func
from cotangent.autograd import forward_ad
from cotangent.utils import _pytree


def test_trees_are_taken_apart_and_put_together():
    Point = collections.namedtuple("Point", "x y")
    tree = {"a": [1, (2, None)], "b": Point(3, collections.OrderedDict(c=4)), "d": collections.deque([5], maxlen=2), "e": ()}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == [1, 2, None, 3, 4, 5] and spec.num_leaves == 6
    again = _pytree.tree_unflatten(leaves, spec)
    assert again == tree and type(again["b"]) is Point and again["d"].maxlen == 2
    assert _pytree.tree_structure(tree) == spec and _pytree.tree_structure([1]) != _pytree.tree_structure((1,))
    counts = collections.defaultdict(int, k=1)
    assert _pytree.tree_map(lambda n: n + 1, counts)["missing"] == 0
    with pytest.raises(ValueError, match="must be 6 leaves, got 1"):
        _pytree.tree_unflatten([1], spec)
    with pytest.raises(ValueError, match="trees must have the same containers"):
        _pytree.tree_map(lambda a, b: a, [1, 2], [1])


def test_classes_can_be_registered():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    _pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
    found = func.grad(lambda p: (p.a * p.b).sum())(Pair(ct.tensor(2.0), ct.tensor(3.0)))
    assert (found.a.item(), found.b.item()) == (3, 2)
    with pytest.raises(ValueError, match="Pair is already registered"):
        _pytree.register_pytree_node(Pair, None, None)


def test_results_have_a_graph_where_something_beyond_has_one():
    x = ct.tensor([1.0, 2.0])
    grads, (value, aux) = func.grad_and_value(lambda p: ((p["x"] ** 2).sum(), p["x"] * 2), has_aux=True)({"x": x})
    assert not (grads["x"].requires_grad or value.requires_grad or aux.requires_grad)
    w = ct.tensor([3.0, 4.0], requires_grad=True)
    grads, aux = func.grad(lambda p: ((p["x"] ** 2 * w).sum(), p["x"] * w), has_aux=True)({"x": x})
    assert ct.autograd.grad(grads["x"].sum(), w)[0].tolist() == [2, 4]
    assert ct.autograd.grad(aux.sum(), w)[0].tolist() == [1, 2]


def test_arguments_that_do_not_fit_are_refused():
    x = ct.ones(3)
    with pytest.raises(TypeError, match="arguments with derivatives must be Tensors, got one of type int"):
        func.grad(lambda p: p["a"] * 1.0)({"a": 1})
    with pytest.raises(RuntimeError, match="must return a Tensor, got TreeSpec"):
        func.grad(lambda a: (a.sum(), a))(x)
    with pytest.raises(RuntimeError, match="with has_aux the function must return a tuple"):
        func.grad(lambda a: a.sum(), has_aux=True)(x)
    with pytest.raises(RuntimeError, match="cotangents must have the containers and shapes"):
        func.vjp(lambda a: {"y": a}, x)[1]({"z": x})
    with pytest.raises(RuntimeError, match="tangents must have the containers"):
        func.jvp(lambda a: a["k"], ({"k": x},), (x,))
    with pytest.raises(ValueError, match="in_dims must be ints or None in the containers"):
        ct.vmap(lambda p: p["a"], in_dims=({"b": 0},))({"a": x})
    with pytest.raises(ValueError, match="out_dims must be ints or None in the containers"):
        ct.vmap(lambda a: {"y": a}, out_dims={"z": 0})(x)
    with pytest.raises(ValueError, match="out_dims must be a dimension for a result that differs"):
        ct.vmap(lambda a: a, out_dims=None)(ct.arange(3.0))
    with pytest.raises(ValueError, match="chunk_size must be a positive int, got 0"):
        ct.vmap(lambda a: a, chunk_size=0)
    with pytest.raises(ValueError, match="randomness must be"):
        ct.vmap(lambda a: a, randomness="some")
    with pytest.raises(TypeError, match="results must be Tensors"):
        ct.vmap(lambda a: 3)(x)


def test_examples_in_chunks_are_those_of_one_call():
    x, w = ct.arange(12.0).reshape(4, 3), {"w": ct.arange(3.0)}
    f = lambda a, p: {"y": a * p["w"], "s": (a.sum(), a)}
    whole = ct.vmap(f, in_dims=(0, None), out_dims={"y": 1, "s": 0})(x, w)
    for size in (1, 3, 4, 9):
        parts = ct.vmap(f, in_dims=(0, None), out_dims={"y": 1, "s": 0}, chunk_size=size)(x, w)
        assert _pytree.tree_all(bool, _pytree.tree_map(lambda a, b: a.equal(b), whole, parts))


def test_models_that_differ_are_not_stacked():
    with pytest.raises(RuntimeError, match="models must not be empty"):
        func.stack_module_state([])
    with pytest.raises(RuntimeError, match="must have the same class, got Conv1d, Linear"):
        func.stack_module_state([ct.nn.Linear(1, 1), ct.nn.Conv1d(1, 1, 1)])
    with pytest.raises(RuntimeError, match="all be in training mode"):
        func.stack_module_state([ct.nn.Linear(1, 1), ct.nn.Linear(1, 1).eval()])


def test_all_tensors_of_a_module_are_asked_for_by_strict():
    net = ct.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="missing: weight"):
        func.functional_call(net, {"bias": ct.ones(1)}, ct.ones(1), strict=True)
    with pytest.raises(ValueError, match="bias must be in one dictionary"):
        func.functional_call(net, ({"bias": ct.ones(1)}, {"bias": ct.ones(1)}), ct.ones(1))
    net.tied = net.weight
    one = func.functional_call(net, {"weight": ct.tensor([[2.0]]), "bias": ct.zeros(1)}, (ct.ones(1),))
    assert one.item() == 2


def test_tangents_of_dual_tensors():
    x = ct.tensor([1.0, 2.0])
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, ct.ones(2))
        d.mul_(3)
        primal, tangent = forward_ad.unpack_dual(d)
        assert primal.tolist() == [3, 6] and tangent.tolist() == [3, 3] and x.tolist() == [1, 2]
        assert forward_ad.unpack_dual(ct.ones(2, requires_grad=True) * 2).tangent is None
        # A constant of a dual tensor has a tangent of zeros.
        assert forward_ad.unpack_dual(d.sign()).tangent.tolist() == [0, 0]
        with ct.no_grad():
            assert forward_ad.unpack_dual(d * 2).tangent is None
    assert forward_ad.unpack_dual(d).tangent is None


def test_dual_tensors_are_refused_where_they_cannot_be():
    x = ct.ones(2)
    with pytest.raises(RuntimeError, match="must be called inside a level"):
        forward_ad.make_dual(x, x)
    with pytest.raises(RuntimeError, match="a level must be entered first"):
        forward_ad.exit_dual_level()
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="levels must not be nested"):
            forward_ad.enter_dual_level()
        with pytest.raises(RuntimeError, match=r"tangent must have shape \[2\]"):
            forward_ad.make_dual(x, ct.ones(3))
        with pytest.raises(ValueError, match="tensor must be floating-point or complex"):
            forward_ad.make_dual(ct.tensor([1, 2]), ct.tensor([1, 2]))
        with pytest.raises(TypeError, match="tangent must be a Tensor"):
            forward_ad.make_dual(x, 1.0)


def test_a_copied_layer_is_made_inside_of_a_vmap():
    net = copy.deepcopy(ct.nn.Sequential(ct.nn.Linear(3, 2), ct.nn.Tanh(), ct.nn.Linear(2, 1)))
    ct.manual_seed(3)
    state = ct.get_rng_state()
    x = ct.arange(12.0).reshape(4, 3)
    found = ct.vmap(net.eval())(x)
    assert ct.get_rng_state() == state and ct.allclose(found, net(x))


@pytest.mark.parametrize("kind", ["Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"])
def test_layers_that_draw_in_training_alone_are_called_inside_of_vmap(kind):
    layer = getattr(ct.nn, kind)().eval()
    x = ct.linspace(-1, 1, 24).reshape(2, 3, 4)
    assert ct.allclose(ct.vmap(layer)(x), layer(x))
    with pytest.raises(ValueError, match="random numbers inside vmap"):
        ct.vmap(layer.train())(x)
