"""Derivatives of functions of tensors, as PyTorch's ``torch.autograd.functional``.

    >>> import cotangent as ct
    >>> ct.autograd.functional.jacobian(lambda x: x ** 2, ct.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])

A function takes and gives a tensor or a tuple of tensors. ``cotangent.func`` has transforms of functions.
"""

from __future__ import annotations

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import enable_grad
from . import grad

_ops = _c._functions


def _tuple(name, values):
    """Tensors as a tuple, and whether they were one."""
    if isinstance(values, Tensor):
        return (values,), False
    values = tuple(values)
    if not all(isinstance(x, Tensor) for x in values):
        raise TypeError(f"{name}: there should be a Tensor or a tuple of them")
    return values, True


def _leaves(name, inputs, create_graph):
    """The inputs as variables of their own, which keep their graph where derivatives are to have one."""
    inputs, many = _tuple(name, inputs)
    own = tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().clone().requires_grad_() for x in inputs)
    return own, many


def _scalar(name, outputs):
    if len(outputs) != 1 or outputs[0].numel() != 1:
        raise RuntimeError(f"{name}: the function should give one Tensor of one element, not shapes "
                           f"{[list(y.shape) for y in outputs]}")
    return outputs[0].reshape(())


def _vectors(name, v, like):
    """The tensors that derivatives are multiplied by: ones where there is one element and none is given."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: the vector v is needed, unless there is one Tensor of one element")
        return (_ops["ones_like"](like[0]),)
    v, _ = _tuple(name, v)
    if [x.shape for x in v] != [x.shape for x in like]:
        raise RuntimeError(f"{name}: v has shapes {[list(x.shape) for x in v]}, not {[list(x.shape) for x in like]}")
    return v


def _grads(name, outputs, inputs, vectors=None, create_graph=False, strict=False):
    """Gradients, zeros where there are none."""
    pairs = [(y, None if vectors is None else v) for y, v in zip(outputs, vectors or outputs) if y.requires_grad]
    found = (None,) * len(inputs)
    if pairs:
        found = grad([y for y, _ in pairs], inputs, None if vectors is None else [v for _, v in pairs], retain_graph=True,
                     create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        at = [g is None for g in found].index(True)
        raise RuntimeError(f"{name}: the result does not depend on input {at}, which strict=True does not allow")
    return tuple(_ops["zeros_like"](x) if g is None else g for g, x in zip(found, inputs))


def _given(values, many, create_graph):
    values = tuple(x if create_graph else x.detach() for x in values)
    return values if many else values[0]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """All derivatives of the results by the inputs: of a result of shape ``s`` and an input of shape ``t``, shape ``s + t``.

    Of several results or inputs, tuples: ``jacobian[result][input]``.
    """
    with enable_grad():
        own, many = _leaves("jacobian", inputs, create_graph)
        outputs, several = _tuple("jacobian", func(*own))
        rows = []
        for output in outputs:
            flat = output.reshape(-1)
            each = [_grads("jacobian", [flat[at]], own, None, create_graph, strict) for at in range(flat.numel())]
            row = [_ops["stack"]([one[k] for one in each]).reshape((*output.shape, *x.shape)) if each else
                   _ops["zeros"]((*output.shape, *x.shape), dtype=x.dtype, device=x.device) for k, x in enumerate(own)]
            rows.append(_given(row, many, create_graph))
    return tuple(rows) if several else rows[0]


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function of one number; of several inputs, ``hessian[input][input]``."""
    _, many = _tuple("hessian", inputs)

    def first(*given):
        outputs, _ = _tuple("hessian", func(*given))
        found = _grads("hessian", [_scalar("hessian", outputs)], given, None, True, strict)
        return found if many else found[0]

    return jacobian(first, inputs, create_graph, strict)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The results, and the product of a vector and the Jacobian."""
    with enable_grad():
        own, many = _leaves("vjp", inputs, create_graph)
        outputs, several = _tuple("vjp", func(*own))
        found = _grads("vjp", outputs, own, _vectors("vjp", v, outputs), create_graph, strict)
    return _given(outputs, several, create_graph), _given(found, many, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The results, and the product of the Jacobian and a vector."""
    with enable_grad():
        own, many = _leaves("jvp", inputs, create_graph)
        outputs, several = _tuple("jvp", func(*own))
        v = _vectors("jvp", v, own)
        # The product with the transposed matrix is linear in its vector; its derivative is the product that is wanted.
        probes = tuple(_ops["zeros_like"](y).requires_grad_() for y in outputs)
        pulled = _grads("jvp", outputs, own, probes, True, strict)
        found = _grads("jvp", pulled, probes, v, create_graph, strict)
    return _given(outputs, several, create_graph), _given(found, several, create_graph)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a function of one number, and the product of a vector and its Hessian."""
    with enable_grad():
        own, many = _leaves("vhp", inputs, create_graph)
        outputs, _ = _tuple("vhp", func(*own))
        first = _grads("vhp", [_scalar("vhp", outputs)], own, None, True, strict)
        found = _grads("vhp", first, own, _vectors("vhp", v, own), create_graph, strict)
    return _given(outputs, False, create_graph), _given(found, many, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a function of one number, and the product of its Hessian, which is symmetric, and a vector."""
    return vhp(func, inputs, v, create_graph, strict)
