"""Hooks that run after the gradient of a leaf has been accumulated."""

from __future__ import annotations

import weakref
from collections import OrderedDict

from .._cotangent import Tensor

# The leaves with hooks, by id: tensors cannot be keys, because they compare element by element.
_watched: dict[int, "_Leaf"] = {}
_backward = Tensor.backward


class _Leaf:
    """A leaf with hooks, and whether the current backward pass has reached it."""

    def __init__(self, leaf):
        key = id(leaf)
        self.leaf = weakref.ref(leaf, lambda _: _watched.pop(key, None))
        self.hooks: OrderedDict = OrderedDict()
        self.reached = False
        leaf.register_hook(self._reach)

    def _reach(self, grad):
        self.reached = True


def register_post_accumulate_grad_hook(self, hook):
    """Calls ``hook(self)`` after each backward pass that adds to the gradient of this leaf."""
    if not (self.is_leaf and self.requires_grad):
        raise RuntimeError("register_post_accumulate_grad_hook: the tensor must be a leaf that requires gradients")
    from ..nn.hooks import add

    if id(self) not in _watched:
        _watched[id(self)] = _Leaf(self)
    Tensor.backward = backward
    return add(_watched[id(self)].hooks, hook)


def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of this tensor to those of the leaves it depends on."""
    for one in list(_watched.values()):
        one.reached = False
    _backward(self, gradient, retain_graph, create_graph, inputs)
    for one in list(_watched.values()):
        leaf = one.leaf()
        if one.reached and leaf is not None:
            for hook in list(one.hooks.values()):
                hook(leaf)
