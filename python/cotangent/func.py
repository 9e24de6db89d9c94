"""Transforms of functions: derivatives and batches, as PyTorch's ``func``."""

from __future__ import annotations

import functools

from . import _cotangent as _c
from ._cotangent import Tensor

_ops = _c._functions


def _indices(argnums, count):
    many = isinstance(argnums, (tuple, list))
    chosen = [at + count if at < 0 else at for at in (argnums if many else (argnums,))]
    for at in chosen:
        if not 0 <= at < count:
            raise ValueError(f"argnums: there is no argument {at} among {count}")
    return chosen, many


def _fixed(func, args, kwargs, chosen, aux):
    """The function of some of its arguments. What comes beside its result is put into ``aux``."""

    def of_chosen(*tensors):
        full = list(args)
        for at, x in zip(chosen, tensors):
            full[at] = x
        result = func(*full, **kwargs)
        if aux is not None:
            result, extra = result
            aux[:] = [extra]
        return result

    return of_chosen


def grad_and_value(func, argnums=0, has_aux=False):
    """The function that gives the gradients of a scalar function and its value."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, many = _indices(argnums, len(args))
        aux = [] if has_aux else None
        value, pull = _c._vjp(_fixed(func, args, kwargs, chosen, aux), [args[at] for at in chosen])
        if value.numel() != 1:
            raise RuntimeError(f"grad: the function gives a tensor of shape {list(value.shape)}, not a scalar")
        grads = pull(_ops["ones_like"](value))
        grads = grads if many else grads[0]
        return (grads, (value, aux[0])) if has_aux else (grads, value)

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """The function that gives the gradients of a scalar function."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


def vjp(func, *primals, has_aux=False):
    """The value of a function, and the function that pulls a cotangent of it back to its arguments."""
    aux = [] if has_aux else None
    value, pull = _c._vjp(_fixed(func, primals, {}, range(len(primals)), aux), list(primals))

    def pulled(cotangent):
        return pull(cotangent)

    return (value, pulled, aux[0]) if has_aux else (value, pulled)


def jvp(func, primals, tangents):
    """The value of a function, and how it changes as its arguments move along tangents."""
    return _c._jvp(func, _list(primals), _list(tangents))


def _list(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def jacrev(func, argnums=0):
    """The function that gives all derivatives of another one's results by an argument."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, many = _indices(argnums, len(args))
        found = [_c._jacobian(_fixed(func, args, kwargs, [at], None), args[at]) for at in chosen]
        return tuple(found) if many else found[0]

    return wrapper


jacfwd = jacrev


def jacobian(func, x):
    """All derivatives of the elements of ``func(x)`` by those of ``x``."""
    return _c._jacobian(func, x)


def hessian(func, argnums=0):
    """The function that gives the second derivatives of a scalar function."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, many = _indices(argnums, len(args))
        if many:
            raise NotImplementedError("hessian: by one argument at a time")
        return _c._hessian(_fixed(func, args, kwargs, chosen, None), args[chosen[0]])

    return wrapper


def hvp(func, x, v):
    """The product of the Hessian of a scalar function and a vector."""
    return _c._hvp(func, x, v)


def vmap(func, in_dims=0, out_dims=0, randomness="error"):
    """The function of a whole batch, from one of a single example."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        dims = list(in_dims) if isinstance(in_dims, (tuple, list)) else [in_dims] * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: in_dims {in_dims} for {len(args)} arguments")
        chosen = [at for at, arg in enumerate(args) if isinstance(arg, Tensor)]
        several = []

        def of_tensors(*tensors):
            full = list(args)
            for at, x in zip(chosen, tensors):
                full[at] = x
            result = func(*full, **kwargs)
            several[:] = [not isinstance(result, Tensor)]
            return result

        if isinstance(out_dims, (tuple, list)) and len(set(out_dims)) > 1:
            raise NotImplementedError("vmap: one out_dims for all results")
        out_dim = out_dims[0] if isinstance(out_dims, (tuple, list)) else out_dims
        found = _c._vmap(of_tensors, [args[at] for at in chosen], [dims[at] for at in chosen], out_dim, randomness)
        return found if several[0] else found[0]

    return wrapper


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None):
    """Calls a module with other tensors in the place of its parameters and buffers, by their names."""
    dicts = parameter_and_buffer_dicts
    given = dict(dicts) if isinstance(dicts, dict) else {name: x for own in dicts for name, x in own.items()}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    places = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for role in (part._parameters, part._buffers):
            for name in role:
                places[f"{path}.{name}" if path else name] = role, name
    unknown = [name for name in given if name not in places]
    if unknown:
        raise KeyError(f"functional_call: the module has no {', '.join(unknown)}")
    # What is tied to a name that is given is given, too.
    tied = {id(places[name][0][places[name][1]]): x for name, x in given.items() if places[name][0][places[name][1]] is not None}
    before = [(role, name, role[name]) for role, name in places.values()]
    try:
        for role, name, old in before:
            role[name] = tied.get(id(old), old)
        for name, x in given.items():
            role, own = places[name]
            role[own] = x
        return module(*args, **(kwargs or {}))
    finally:
        for role, name, old in before:
            role[name] = old
