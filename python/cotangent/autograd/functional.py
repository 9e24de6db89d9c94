"""Derivatives of functions: PyTorch's ``torch.autograd.functional``.

    >>> import cotangent as ct
    >>> ct.autograd.functional.jacobian(lambda x: x ** 2, ct.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])

Functions accept and return a tensor or several. ``cotangent.func`` has function transforms.
"""

from __future__ import annotations

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import enable_grad
from . import grad

_ops = _c._functions


def _tuple(name, values):
    """Tensors as a tuple, and whether they were given as one."""
    if isinstance(values, Tensor):
        return (values,), False
    values = tuple(values)
    if not all(isinstance(x, Tensor) for x in values):
        raise TypeError(f"{name}: inputs, results and v must be Tensors or tuples of Tensors")
    return values, True


def _leaves(name, inputs, create_graph):
    """New variables for the inputs, which keep their graph if the derivatives need one."""
    inputs, many = _tuple(name, inputs)
    own = tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().clone().requires_grad_() for x in inputs)
    return own, many


def _scalar(name, outputs):
    if len(outputs) != 1 or outputs[0].numel() != 1:
        raise RuntimeError(f"{name}: the function must return one Tensor with one element, got shapes "
                           f"{[list(y.shape) for y in outputs]}")
    return outputs[0].reshape(())


def _vectors(name, v, like):
    """The vectors to multiply with; by default, 1 for a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: v must be given unless there is one Tensor with one element")
        return (_ops["ones_like"](like[0]),)
    v, _ = _tuple(name, v)
    if [x.shape for x in v] != [x.shape for x in like]:
        raise RuntimeError(f"{name}: v must have shapes {[list(x.shape) for x in like]}, got {[list(x.shape) for x in v]}")
    return v


def _grads(name, outputs, inputs, vectors=None, create_graph=False, strict=False):
    """The gradients, with zeros for unused inputs."""
    pairs = [(y, None if vectors is None else v) for y, v in zip(outputs, vectors or outputs) if y.requires_grad]
    found = (None,) * len(inputs)
    if pairs:
        found = grad([y for y, _ in pairs], inputs, None if vectors is None else [v for _, v in pairs], retain_graph=True,
                     create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        at = [g is None for g in found].index(True)
        raise RuntimeError(f"{name}: with strict=True the result must depend on all inputs, but does not on input {at}")
    return tuple(_ops["zeros_like"](x) if g is None else g for g, x in zip(found, inputs))


def _given(values, many, create_graph):
    values = tuple(x if create_graph else x.detach() for x in values)
    return values if many else values[0]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian. For a result of shape ``s`` and an input of shape ``t`` it has shape ``s + t``.

    For tuples of results or inputs it is a tuple: ``jacobian[result][input]``.
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
    """The Hessian of a scalar function; for a tuple of inputs, ``hessian[input][input]``."""
    _, many = _tuple("hessian", inputs)

    def first(*given):
        outputs, _ = _tuple("hessian", func(*given))
        found = _grads("hessian", [_scalar("hessian", outputs)], given, None, True, strict)
        return found if many else found[0]

    return jacobian(first, inputs, create_graph, strict)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The results, and the vector-Jacobian product."""
    with enable_grad():
        own, many = _leaves("vjp", inputs, create_graph)
        outputs, several = _tuple("vjp", func(*own))
        found = _grads("vjp", outputs, own, _vectors("vjp", v, outputs), create_graph, strict)
    return _given(outputs, several, create_graph), _given(found, many, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The results, and the Jacobian-vector product."""
    with enable_grad():
        own, many = _leaves("jvp", inputs, create_graph)
        outputs, several = _tuple("jvp", func(*own))
        v = _vectors("jvp", v, own)
        # The vector-Jacobian product is linear in its vector; its derivative along v is the Jacobian-vector product.
        probes = tuple(_ops["zeros_like"](y).requires_grad_() for y in outputs)
        pulled = _grads("jvp", outputs, own, probes, True, strict)
        found = _grads("jvp", pulled, probes, v, create_graph, strict)
    return _given(outputs, several, create_graph), _given(found, several, create_graph)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a scalar function, and the vector-Hessian product."""
    with enable_grad():
        own, many = _leaves("vhp", inputs, create_graph)
        outputs, _ = _tuple("vhp", func(*own))
        first = _grads("vhp", [_scalar("vhp", outputs)], own, None, True, strict)
        found = _grads("vhp", first, own, _vectors("vhp", v, own), create_graph, strict)
    return _given(outputs, False, create_graph), _given(found, many, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a scalar function, and the Hessian-vector product. The Hessian is symmetric."""
    return vhp(func, inputs, v, create_graph, strict)
