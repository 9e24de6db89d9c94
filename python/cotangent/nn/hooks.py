"""Hooks: user functions that a module calls before and after its forward and backward passes."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from .._cotangent import Tensor, is_grad_enabled

_handles = itertools.count()


class RemovableHandle:
    """Removes a hook, by ``remove()`` or at the end of a ``with`` block."""

    def __init__(self, hooks):
        self._hooks, self._key = hooks, next(_handles)

    @property
    def id(self):
        """The id of the hook."""
        return self._key

    def remove(self):
        self._hooks.pop(self._key, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def add(hooks, hook, prepend=False):
    """Adds a hook to an ordered dictionary, and returns its handle."""
    handle = RemovableHandle(hooks)
    hooks[handle._key] = hook
    if prepend:
        hooks.move_to_end(handle._key, last=False)
    return handle


class Hooked:
    """The part of ``Module`` that registers hooks, and calls ``forward`` with them."""

    def _no_hooks(self):
        own = self.__dict__
        own["_forward_hooks"], own["_forward_pre_hooks"] = OrderedDict(), OrderedDict()
        own["_backward_hooks"], own["_backward_pre_hooks"] = OrderedDict(), OrderedDict()

    def __call__(self, *args, **kwargs):
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks):
            return self.forward(*args, **kwargs)
        try:
            return self._hooked(args, kwargs)
        except BaseException:
            # Hooks with always_call get None as the output of a failed call.
            for hook, with_kwargs, always in list(self._forward_hooks.values()):
                if always:
                    hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
            raise

    def _hooked(self, args, kwargs):
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            if with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            elif (changed := hook(self, args)) is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        passed = None
        if is_grad_enabled() and (self._backward_hooks or self._backward_pre_hooks):
            passed = _Passes(self)
            args = passed.enter(args)
        result = self.forward(*args, **kwargs)
        for hook, with_kwargs, _ in list(self._forward_hooks.values()):
            changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            result = result if changed is None else changed
        return result if passed is None else passed.leave(result)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Calls ``hook(module, args, output)`` after each call. A value that it returns replaces the output.

        With ``always_call`` the hook is also called after a failed call, with None as the output.
        """
        return add(self._forward_hooks, (hook, with_kwargs, always_call), prepend)

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Calls ``hook(module, args)`` before each call. A value that it returns replaces the arguments."""
        return add(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Calls ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are computed.

        A value that it returns replaces ``grad_input``. The gradient of an input that requires none is None. If no input requires a
        gradient, the hook is called when the gradients of the outputs are computed.
        """
        return add(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Calls ``hook(module, grad_output)`` when the gradients of the outputs are computed. A returned value replaces them."""
        return add(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook):
        """Same as ``register_full_backward_hook``."""
        return self.register_full_backward_hook(hook)


class _Passes:
    """One call of a module with backward hooks: its inputs and outputs pass through nodes whose backward calls the hooks."""

    def __init__(self, module):
        self.module, self.grad_output, self.needed, self.count = module, None, False, 0

    def enter(self, args):
        """Returns the inputs, passed through a node whose backward calls the hooks."""
        places = [at for at, x in enumerate(args) if isinstance(x, Tensor)]
        self.needed, self.count = any(args[at].requires_grad for at in places), len(args)
        if not self.needed:
            return args

        def rule(needs, grads):
            found = [None] * len(args)
            for at, need, grad in zip(places, needs, grads):
                found[at] = grad if need else None
            found = tuple(found)
            for hook in list(self.module._backward_hooks.values()):
                found = _changed(hook(self.module, found, self.grad_output), found)
            return tuple(found[at] for at in places)

        through = iter(_identity(rule, [args[at] for at in places]))
        return tuple(next(through) if at in places else x for at, x in enumerate(args))

    def leave(self, result):
        """Returns the outputs, passed through a node whose backward calls the pre-hooks."""
        many = isinstance(result, (tuple, list))
        outputs = list(result) if many else [result]
        places = [at for at, x in enumerate(outputs) if isinstance(x, Tensor) and x.requires_grad]

        def rule(needs, grads):
            found = [None] * len(outputs)
            for at, grad in zip(places, grads):
                found[at] = grad
            self.grad_output = tuple(found)
            for hook in list(self.module._backward_pre_hooks.values()):
                self.grad_output = _changed(hook(self.module, self.grad_output), self.grad_output)
            if not self.needed:
                for hook in list(self.module._backward_hooks.values()):
                    hook(self.module, (None,) * self.count, self.grad_output)
            return tuple(self.grad_output[at] for at in places)

        for at, x in zip(places, _identity(rule, [outputs[at] for at in places])):
            outputs[at] = x
        if not many:
            return outputs[0]
        return type(result)(*outputs) if hasattr(result, "_fields") else type(result)(outputs)


def _changed(new, old):
    if new is None:
        return old
    return new if isinstance(new, tuple) else (new,)


def _identity(rule, tensors):
    """Returns the same tensors. Their gradients pass through ``rule(needs, grads)``."""
    from ..autograd import Function

    class Identity(Function):
        @staticmethod
        def forward(ctx, *given):
            return tuple(x.view_as(x) for x in given)

        @staticmethod
        def backward(ctx, *grads):
            return rule(ctx.needs_input_grad, grads)

    return Identity.apply(*tensors) if tensors else ()
