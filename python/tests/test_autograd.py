"""Differentiation from Python: passes, functions of one's own, transforms, hooks, tapes."""

import numpy as np
import pytest

import cotangent as ct
from cotangent import _cotangent as core


def leaf(*values, dtype=ct.float64):
    return ct.tensor(list(values), dtype=dtype, requires_grad=True)


def test_backward_and_grad():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x * y).sum().backward()
    assert x.grad.tolist() == [3, 4] and y.grad.tolist() == [1, 2]
    (x * 2).backward(ct.tensor([1.0, 10.0], dtype=ct.float64))
    assert x.grad.tolist() == [5, 24]
    z = (x**3).sum()
    (first,) = ct.autograd.grad(z, x, create_graph=True)
    (second,) = ct.autograd.grad(first.sum(), [x])
    assert second.tolist() == [6, 12] and x.grad.tolist() == [5, 24]
    with pytest.raises(RuntimeError, match="depend"):
        ct.autograd.grad((x * 2).sum(), [x, y])
    assert ct.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    assert ct.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)[1].tolist() == [0, 0]
    both = ct.autograd.grad([x.sum(), (x * y)], [x], [None, ct.ones(2, dtype=ct.float64)])
    assert both[0].tolist() == [4, 5]
    with pytest.raises(RuntimeError):
        x.exp().backward()
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="freed|retain"):
        loss.backward()


def test_modes():
    x = leaf(1.0)
    with ct.no_grad():
        assert not (x * 2).requires_grad
        with ct.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad

    @ct.no_grad()
    def f(x):
        return x * 2

    @ct.no_grad
    def g(x):
        return x * 2

    assert not f(x).requires_grad and not g(x).requires_grad
    with pytest.raises(ZeroDivisionError):
        with ct.no_grad():
            1 / 0
    assert ct.is_grad_enabled()
    with ct.set_grad_enabled(False):
        assert not ct.is_grad_enabled()
    assert ct.is_grad_enabled() and not x.detach().requires_grad


class Exp(ct.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = x.exp() * scale
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return grad * y, None


class SumAndProduct(ct.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx, of_sum, of_product):
        x, y = ctx.saved_tensors
        return of_sum + of_product * y, of_sum + of_product * x


def test_functions_of_ones_own():
    x = leaf(0.0, 1.0)
    y = Exp.apply(x, 2.0)
    y.sum().backward()
    np.testing.assert_allclose(np.asarray(x.grad), 2 * np.exp([0, 1]))
    assert y.grad_fn == "Exp"
    assert ct.autograd.gradcheck(lambda x: Exp.apply(x, 3.0), leaf(0.5, -0.2))
    assert ct.autograd.gradgradcheck(lambda x: Exp.apply(x, 3.0), leaf(0.5, -0.2))
    assert ct.autograd.gradcheck(lambda a, b: SumAndProduct.apply(a, b)[1], [leaf(0.5), leaf(2.0)])
    a, b = leaf(2.0), leaf(5.0)
    total, product = SumAndProduct.apply(a, b)
    (total + product).sum().backward()
    assert a.grad.tolist() == [6] and b.grad.tolist() == [3]


def test_exceptions_pass_through_the_engine():
    class Broken(ct.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        Broken.apply(leaf(1.0)).sum().backward()
    x = leaf(1.0)
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        x.sum().backward()
    with pytest.raises(KeyError):
        ct.func.vjp(lambda x: {}["no"], leaf(1.0))
    with pytest.raises(TypeError, match="Tensor"):
        ct.func.vjp(lambda x: 3, leaf(1.0))
    # An exception of before is not raised again.
    with pytest.raises(ValueError, match="matmul"):
        ct.ones(2, 3) @ ct.ones(2, 3)


def test_hooks_and_retained_gradients():
    x, seen = leaf(1.0, 2.0), []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    with x.register_hook(lambda g: g * 10):
        y = x * 3
        y.retain_grad()
        y.sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [30, 30] and y.grad.tolist() == [1, 1]
    handle.remove()
    x.sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [31, 31]


def test_gradcheck_finds_a_wrong_rule():
    class Wrong(Exp):
        @staticmethod
        def backward(ctx, grad):
            return grad, None

    with pytest.raises((RuntimeError, ValueError)):
        ct.autograd.gradcheck(lambda x: Wrong.apply(x, 2.0), leaf(0.5))
    assert ct.autograd.gradcheck(lambda x: Wrong.apply(x, 2.0), leaf(0.5), raise_exception=False) is False


def test_transforms():
    x = ct.tensor([1.0, 2.0, 3.0], dtype=ct.float64)
    cube = lambda x: (x**3).sum()
    assert ct.func.grad(cube)(x).tolist() == [3, 12, 27]
    assert ct.func.grad_and_value(cube)(x)[1].item() == 36
    assert ct.func.hessian(cube)(x).tolist() == [[6, 0, 0], [0, 12, 0], [0, 0, 18]]
    assert ct.func.jacrev(lambda x: x * x)(x).diagonal().tolist() == [2, 4, 6]
    assert ct.func.hvp(cube, x, ct.ones(3, dtype=ct.float64)).tolist() == [6, 12, 18]
    value, pull = ct.func.vjp(lambda a, b: a * b, x, x)
    assert [g.tolist() for g in pull(ct.ones(3, dtype=ct.float64))] == [[1, 2, 3]] * 2
    value, tangent = ct.func.jvp(lambda a: a * a, (x,), (ct.ones(3, dtype=ct.float64),))
    assert tangent.tolist() == [2, 4, 6]
    grads, aux = ct.func.grad(lambda a, b: ((a * b).sum(), "aux"), argnums=(0, 1), has_aux=True)(x, x)
    assert aux == "aux" and grads[1].tolist() == [1, 2, 3]
    batch = ct.arange(6, dtype=ct.float64).reshape(2, 3)
    assert ct.vmap(lambda row: row.sum())(batch).tolist() == [3, 12]
    assert ct.vmap(lambda row, w: row @ w, in_dims=(0, None))(batch, x).tolist() == (batch @ x).tolist()
    per_example = ct.vmap(ct.func.grad(lambda w, row: (w @ row) ** 2), in_dims=(None, 0))(x, batch)
    np.testing.assert_allclose(np.asarray(per_example), 2 * (np.asarray(batch) @ np.asarray(x))[:, None] * np.asarray(batch))
    assert [r.shape for r in ct.vmap(lambda a: (a, a.sum()), out_dims=0)(batch)] == [(2, 3), (2,)]
    with pytest.raises(RuntimeError):
        ct.vmap(lambda a: a + ct.rand(()).item() if a.sum().item() else a)(batch)


def test_checkpoint_and_tape():
    x, calls = leaf(0.5, 1.0), []

    def f(x, k):
        calls.append(k)
        return x.sin().exp() * k

    ct.autograd.checkpoint(f, x, 3).sum().backward()
    np.testing.assert_allclose(np.asarray(x.grad), 3 * np.exp(np.sin([0.5, 1])) * np.cos([0.5, 1]))
    assert calls == [3, 3]
    tape = ct.autograd.Tape()
    a = tape.variable(ct.tensor([2.0, 3.0]))
    b = tape.variable(ct.tensor([2.0, 3.0]))
    grads = tape.backward((a * a).sum())
    assert grads[a].tolist() == [4, 6] and grads.get(b) is None and len(tape) >= 2
    with pytest.raises(KeyError):
        grads[b]


def test_anomalies_are_named():
    x = leaf(0.0)
    with ct.autograd.detect_anomaly():
        with pytest.raises(ValueError, match=r"sqrt.*test_autograd.py:\d+"):
            (x.sqrt() * 0).sum().backward()
    with pytest.raises(KeyError):
        with ct.autograd.detect_anomaly():
            {}["ends"]


def test_a_small_network_trains():
    ct.manual_seed(1)
    w1, b1 = (ct.randn(2, 16) * 0.5).requires_grad_(), ct.zeros(16).requires_grad_()
    w2 = (ct.randn(16, 1) * 0.5).requires_grad_()
    x = ct.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = ct.tensor([[0.0], [1.0], [1.0], [0.0]])
    for _ in range(400):
        loss = (((x @ w1 + b1).tanh() @ w2) - y).square().mean()
        loss.backward()
        with ct.no_grad():
            for p in (w1, b1, w2):
                p -= 0.2 * p.grad
                p.grad.zero_()
    assert loss.item() < 0.05


def test_a_function_may_have_its_context_set_up_apart():
    class Double(ct.autograd.Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.k * x, None

    w = ct.tensor([1.0, 2.0], requires_grad=True)
    y = Double.apply(w, 3)
    y.sum().backward()
    assert y.tolist() == [3, 6] and w.grad.tolist() == [3, 6]


def unchanging(name):
    """Calls of an operation that may have nothing to do: on numbers, single elements and none, with zeros and ones."""
    for args in core._samples(name)[:4]:
        yield args
        if args and isinstance(args[0], ct.Tensor) and args[0].dtype.is_floating_point:
            for shape in ((), (1,), (1, 1), (2, 2)):
                for number in (0, 1):
                    def other(arg, number=number):
                        if isinstance(arg, int) and not isinstance(arg, bool):
                            return number
                        return tuple(number for _ in arg) if isinstance(arg, tuple) and all(isinstance(x, int) for x in arg) else arg

                    new = [ct.full(shape, 1.5, dtype=args[0].dtype), *map(other, args[1:])]
                    yield from (new, new[:2], new[:1])


@pytest.mark.skipif(not hasattr(core, "_samples"), reason="the extension was built without its feature samples")
@pytest.mark.parametrize("name", [op["name"] for op in core._ops()])
def test_a_result_is_no_second_leaf_where_an_operation_has_nothing_to_do(name):
    def all_of(results):
        return [y for x in results for y in all_of(x)] if isinstance(results, (tuple, list)) else [results]

    for args in unchanging(name):
        args = [arg.clone() if isinstance(arg, ct.Tensor) else arg for arg in args]
        leaf = next((x for x in all_of(args) if isinstance(x, ct.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)), None)
        if leaf is None:
            continue
        leaf.requires_grad_()
        for mode in (ct.enable_grad, ct.no_grad):
            try:
                with mode():
                    results = all_of(getattr(ct, name)(*args))
            except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, NotImplementedError):
                continue
            for y in results:
                if isinstance(y, ct.Tensor) and y is not leaf and y.requires_grad:
                    assert mode is ct.enable_grad and not y.is_leaf and y.grad_fn is not None, args


@pytest.mark.parametrize("call", [
    lambda x: x.roll(0), lambda x: ct.roll(x, 0), lambda x: ct.diff(x, n=0), lambda x: x.cumsum(-1), lambda x: x[...],
    lambda x: x.transpose(0, 0), lambda x: ct.nn.functional.pad(x, (0, 0)), lambda x: x.expand(x.shape), lambda x: x[:]])
def test_a_result_that_equals_its_input_hands_the_gradient_on(call):
    for shape in ((1,), (1, 1)):
        w = ct.full(shape, 2.0, dtype=ct.float64).requires_grad_()
        y = call(w)
        assert not y.is_leaf and y.requires_grad
        z = y * 3
        z.sum().backward()
        assert w.grad.numel() == 1 and w.grad.item() == 3 and y.grad is None
        if y._base is None:
            y += 1
            assert y.item() == 3 and w.item() == 2


def test_a_power_of_one_and_sums_of_a_number_are_results():
    for shape, call in (((2, 2), lambda x: ct.linalg.matrix_power(x, 1)), ((), lambda x: x.cumsum(0)), ((), lambda x: x.t()),
                        ((), lambda x: x.logcumsumexp(0)), ((), lambda x: x.cumprod(0))):
        w = ct.ones(shape, dtype=ct.float64).requires_grad_()
        y = call(w)
        (y * 2).sum().backward()
        assert not y.is_leaf and y is not w and (w.grad == 2).all() and y.grad is None


class Doubled(ct.autograd.Function):
    """Twice the input, and three times it, which is marked as not differentiable."""

    @staticmethod
    def forward(ctx, x):
        double, triple = x * 2, x * 3
        ctx.mark_non_differentiable(triple)
        return double, triple

    @staticmethod
    def backward(ctx, of_double, of_triple):
        assert of_triple.tolist() == [0, 0]
        return of_double * 2 + of_triple


def test_marked_results_of_a_function_require_no_gradient():
    x = ct.ones(2, requires_grad=True)
    double, triple = Doubled.apply(x)
    assert double.requires_grad and not triple.requires_grad and triple.tolist() == [3, 3]
    (double + triple).sum().backward()
    assert x.grad.tolist() == [2, 2]
