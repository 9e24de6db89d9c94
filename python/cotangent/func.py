"""Function transforms: derivatives and batching, as in PyTorch's ``func``.

    >>> import cotangent as ct
    >>> loss = lambda w, x: ((x * w["scale"] + w["shift"]) ** 2).sum()
    >>> w = {"scale": ct.tensor(2.0), "shift": ct.tensor(1.0)}
    >>> ct.func.grad(loss)(w, ct.tensor([1.0, 2.0]))
    {'scale': tensor(26.), 'shift': tensor(16.)}

Arguments and results may be tensors, or lists, tuples, named tuples and dicts of them.
"""

from __future__ import annotations

import functools
import math

from . import _cotangent as _c
from ._cotangent import Tensor
from ._core.pytree import _broadcast_to_and_flatten, tree_flatten, tree_map, tree_unflatten

_ops = _c._functions


def _indices(argnums, count):
    many = isinstance(argnums, (tuple, list))
    chosen = [at + count if at < 0 else at for at in (argnums if many else (argnums,))]
    for at in chosen:
        if not 0 <= at < count:
            raise ValueError(f"argnums: argument {at} is out of range for {count} arguments")
    return chosen, many


def _tensors(name, what, leaves):
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{name}: {what} must be Tensors, got one of type {type(leaf).__name__}")
    return leaves


class _Call:
    """Wraps a function as one from the tensors among its arguments to a single tensor.

    A result that is a tree of tensors is packed into one vector of their elements.
    """

    def __init__(self, name, func, args, kwargs, chosen, has_aux):
        self.name, self.func, self.args, self.kwargs, self.chosen, self.has_aux = name, func, args, kwargs, chosen, has_aux
        self.inputs, self.in_spec = tree_flatten([args[at] for at in chosen])
        _tensors(name, "arguments with derivatives", self.inputs)

    def __call__(self, *tensors):
        full = list(self.args)
        for at, x in zip(self.chosen, tree_unflatten(tensors, self.in_spec)):
            full[at] = x
        result = self.func(*full, **self.kwargs)
        if self.has_aux:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(f"{self.name}: with has_aux the function must return a tuple (result, aux)")
            result, self._aux = result
        leaves, self.out_spec = tree_flatten(result)
        _tensors(self.name, "results", leaves)
        self.shapes, self.dtypes = [tuple(x.shape) for x in leaves], [x.dtype for x in leaves]
        if self.out_spec.is_leaf():
            return leaves[0]
        if not leaves:
            raise RuntimeError(f"{self.name}: the function must return a Tensor, got none")
        wide = functools.reduce(_c.promote_types, self.dtypes)
        return _ops["cat"]([x.reshape(-1).to(wide) for x in leaves])

    def aux(self, value):
        """The auxiliary output, with a graph if the result has one outside this transform."""
        return self._aux if value.requires_grad else tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, self._aux)

    def value(self, packed):
        """The results in the structure that the function returned."""
        if self.out_spec.is_leaf():
            return packed
        pieces = _ops["split_with_sizes"](packed, [math.prod(shape) for shape in self.shapes])
        shaped = zip(pieces, self.shapes, self.dtypes)
        return tree_unflatten([x.reshape(shape).to(dtype) for x, shape, dtype in shaped], self.out_spec)

    def packed(self, what, tree, like):
        """Packs a tree of tensors with the structure of the results into one tensor."""
        leaves, spec = tree_flatten(tree)
        _tensors(self.name, what, leaves)
        if spec != self.out_spec or [tuple(x.shape) for x in leaves] != self.shapes:
            raise RuntimeError(f"{self.name}: {what} must have the containers and shapes of the result, "
                               f"{self.out_spec} of {self.shapes}, got {spec} of {[tuple(x.shape) for x in leaves]}")
        return leaves[0] if spec.is_leaf() else _ops["cat"]([x.reshape(-1).to(like.dtype) for x in leaves])


def grad_and_value(func, argnums=0, has_aux=False):
    """Returns a function that computes the gradients and the value of a scalar function."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, many = _indices(argnums, len(args))
        call = _Call("grad", func, args, kwargs, chosen, has_aux)
        value, pull = _c._vjp(call, call.inputs)
        if not call.out_spec.is_leaf():
            raise RuntimeError(f"grad: the function must return a Tensor, got {call.out_spec}")
        if value.numel() != 1:
            raise RuntimeError(f"grad: the function must return a scalar, got shape {list(value.shape)}")
        grads = tree_unflatten(pull(_ops["ones_like"](value)), call.in_spec)
        grads = tuple(grads) if many else grads[0]
        return (grads, (value, call.aux(value))) if has_aux else (grads, value)

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """Returns a function that computes the gradients of a scalar function."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


def vjp(func, *primals, has_aux=False):
    """The value of a function, and its pullback, which maps cotangents of the result to cotangents of the arguments."""
    call = _Call("vjp", func, primals, {}, range(len(primals)), has_aux)
    value, pull = _c._vjp(call, call.inputs)

    def pulled(cotangents):
        return tuple(tree_unflatten(pull(call.packed("cotangents", cotangents, value)), call.in_spec))

    return (call.value(value), pulled, call.aux(value)) if has_aux else (call.value(value), pulled)


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The value of a function, and its Jacobian-vector product with the tangents."""
    primals, tangents = _tuple(primals), _tuple(tangents)
    call = _Call("jvp", func, primals, {}, range(len(primals)), has_aux)
    along, spec = tree_flatten(list(tangents))
    if spec != call.in_spec:
        raise RuntimeError(f"jvp: tangents must have the containers of the primals, {call.in_spec}, got {spec}")
    value, tangent = _c._jvp(call, call.inputs, _tensors("jvp", "tangents", along))
    found = call.value(value), call.value(tangent)
    return (*found, call.aux(value)) if has_aux else found


def _tuple(tensors):
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def linearize(func, *primals):
    """The value of a function, and a function that computes its Jacobian-vector products."""
    value, _ = vjp(func, *primals)

    def pushed(*tangents):
        return jvp(func, primals, tangents)[1]

    return value, pushed


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """Returns a function that computes the Jacobian of a function with respect to an argument.

    For a result of shape ``s`` and an argument of shape ``t``, the Jacobian has shape ``s + t``. For trees, it has a tree of
    the arguments for each result. The backward passes run sequentially: ``chunk_size`` has no effect.
    """
    _whole("jacrev", "chunk_size", chunk_size)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, many = _indices(argnums, len(args))
        call = _Call("jacrev", func, args, kwargs, chosen, has_aux)
        value, pull = _c._vjp(call, call.inputs)
        count = value.numel()
        units = _ops["eye"](count, dtype=value.dtype, device=value.device)
        # Under vmap a cotangent is shared by all examples.
        rows = [pull(units[at].reshape(value.shape)) for at in range(count)]
        whole = [_ops["stack"]([row[k] for row in rows]) if rows else
                 _ops["zeros"]((0, *x.shape), dtype=x.dtype, device=x.device) for k, x in enumerate(call.inputs)]

        # For each result, the tree of the arguments.
        pieces = zip(*(_ops["split_with_sizes"](x, [math.prod(shape) for shape in call.shapes], 0) for x in whole))
        found = []
        for shape, dtype, each in zip(call.shapes, call.dtypes, pieces):
            shaped = [x.reshape((*shape, *x.shape[1:])) for x in each]
            tree = tree_unflatten(shaped, call.in_spec)
            found.append(tuple(tree) if many else tree[0])
        found = tree_unflatten(found, call.out_spec)
        return (found, call.aux(value)) if has_aux else found

    return wrapper


def _whole(name, what, value):
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name}: {what} must be a positive int, got {value!r}")


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """As ``jacrev``. It also runs backward passes."""
    _random("jacfwd", randomness)
    return jacrev(func, argnums, has_aux=has_aux)


def jacobian(func, x):
    """The Jacobian of ``func`` at ``x``."""
    return jacrev(func)(x)


def hessian(func, argnums=0):
    """Returns a function that computes the Hessian with respect to an argument, or to each pair of several."""
    return jacrev(jacrev(func, argnums), argnums)


def hvp(func, x, v):
    """The Hessian-vector product of a scalar function."""
    return _c._hvp(func, x, v)


def _random(name, randomness):
    if randomness not in ("error", "same", "different"):
        raise ValueError(f"{name}: randomness must be 'error', 'same' or 'different', got {randomness!r}")


def _out(found, dim, name):
    """A result with its batch dimension moved to ``dim``; for None, the result that all examples share."""
    if dim is None:
        if not bool(((found == found[:1]) | (found != found)).all()):
            raise ValueError(f"{name}: out_dims must be a dimension for a result that differs among examples, got None")
        return found[0]
    return found if dim == 0 else found.movedim(0, dim)


def _batched(func, args, kwargs, in_dims, out_dims, randomness):
    """Calls a function once with all examples of a batch or chunk."""
    leaves, spec, dims = in_dims(args)
    chosen = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    result_spec = []

    def of_tensors(*tensors):
        full = list(leaves)
        for at, x in zip(chosen, tensors):
            full[at] = x
        found, own = tree_flatten(func(*tree_unflatten(full, spec), **kwargs))
        result_spec[:] = [own]
        return tuple(_tensors("vmap", "results", found))

    found = _c._vmap(of_tensors, [leaves[at] for at in chosen], [dims[at] for at in chosen], 0, randomness)
    places = _places(out_dims, result_spec[0])
    return list(found), places, result_spec[0]


def _is_dim(x):
    return x is None or isinstance(x, int)


def _places(out_dims, spec):
    """The batch dimension of each result."""
    if isinstance(out_dims, list):
        out_dims = tuple(out_dims)
    if isinstance(out_dims, tuple) and spec.is_leaf() and len(out_dims) == 1:
        out_dims = out_dims[0]
    places = _broadcast_to_and_flatten(out_dims, spec)
    if places is None and isinstance(out_dims, tuple) and spec.num_children == len(out_dims):
        # For a list or a named tuple: a dimension for each part.
        places = []
        for dim, child in zip(out_dims, spec.children_specs):
            own = _broadcast_to_and_flatten(dim, child)
            places = None if own is None or places is None else places + own
    if places is None or not all(map(_is_dim, places)):
        raise ValueError(f"vmap: out_dims must be ints or None in the containers of the result, {spec}, got {out_dims!r}")
    return places


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """Vectorizes a function of a single example over a batch.

    ``in_dims`` has the batch dimension of each argument, or of each tensor in a tree; None for arguments that all examples
    share. ``out_dims`` has it for the results. ``chunk_size`` examples are computed at a time, by default all.
    """
    _random("vmap", randomness)
    _whole("vmap", "chunk_size", chunk_size)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        def prepared(given):
            leaves, spec = tree_flatten(given)
            given_dims = tuple(in_dims) if isinstance(in_dims, list) else in_dims
            if isinstance(given_dims, tuple) and len(given_dims) != len(given):
                raise ValueError(f"vmap: in_dims must have an entry for each of {len(given)} arguments, got {in_dims}")
            dims = _broadcast_to_and_flatten(given_dims, spec)
            if dims is None or not all(map(_is_dim, dims)):
                raise ValueError(f"vmap: in_dims must be ints or None in the containers of the arguments, {spec}, got {in_dims!r}")
            return leaves, spec, dims

        if chunk_size is None:
            found, places, spec = _batched(func, args, kwargs, prepared, out_dims, randomness)
            return tree_unflatten([_out(x, dim, "vmap") for x, dim in zip(found, places)], spec)
        leaves, spec, dims = prepared(args)
        mapped = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and dims[at] is not None]
        if not mapped:
            raise ValueError("vmap: in_dims must be an int for at least one argument, got None for all")
        sizes = {leaves[at].shape[dims[at]] for at in mapped}
        if len(sizes) != 1:
            raise ValueError(f"vmap: arguments must have the same number of examples, got {sorted(sizes)}")
        count, runs = sizes.pop(), []
        for start in range(0, max(count, 1), chunk_size):
            part = list(leaves)
            for at in mapped:
                part[at] = leaves[at].narrow(dims[at], start, min(chunk_size, count - start))
            run = _batched(func, tree_unflatten(part, spec), kwargs, prepared, out_dims, randomness)
            runs.append(run)
        _, places, result_spec = runs[0]
        whole = [_ops["cat"](list(each)) for each in zip(*(found for found, _, _ in runs))]
        return tree_unflatten([_out(x, dim, "vmap") for x, dim in zip(whole, places)], result_spec)

    return wrapper


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls a module with other tensors in place of its parameters and buffers, by name.

    A given tensor replaces all names of a tied parameter, unless ``tie_weights`` is False. With ``strict`` all names must be
    given.
    """
    dicts = parameter_and_buffer_dicts
    given: dict = {}
    for own in (dicts,) if isinstance(dicts, dict) else dicts:
        for name, x in own.items():
            if name in given:
                raise ValueError(f"functional_call: {name} must be in one dictionary, got it in several")
            given[name] = x
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    places = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for role in (part._parameters, part._buffers):
            for name in role:
                places[f"{path}.{name}" if path else name] = role, name
    unknown = [name for name in given if name not in places]
    if unknown:
        raise KeyError(f"functional_call: the module has no {', '.join(unknown)}")
    values = {name: role[own] for name, (role, own) in places.items()}
    # A name that is tied to a given name is also given.
    tied = {id(values[name]): x for name, x in given.items() if values[name] is not None} if tie_weights else {}
    missing = [name for name, x in values.items() if x is not None and name not in given and id(x) not in tied]
    if strict and missing:
        raise RuntimeError(f"functional_call: strict=True requires all parameters and buffers, missing: {', '.join(missing)}")
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


def stack_module_state(models):
    """The stacked parameters and the stacked buffers of several modules of the same class, as dictionaries by name.

    Use them with ``functional_call`` under ``vmap``. The stacked parameters are leaves.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: models must not be empty")
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: models must have the same class, got "
                           + ", ".join(sorted({type(model).__name__ for model in models})))
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: models must all be in training mode or all in evaluation mode, got both")

    def stacked(dicts):
        made = {}
        for name in dicts[0]:
            each = [own[name] for own in dicts]
            if len({x.requires_grad for x in each}) > 1:
                raise RuntimeError(f"stack_module_state: {name} must require gradients in all models or in none, got both")
            made[name] = _ops["stack"]([x.detach() for x in each]).requires_grad_(each[0].requires_grad)
        return made

    return (stacked([dict(model.named_parameters()) for model in models]),
            stacked([dict(model.named_buffers()) for model in models]))
