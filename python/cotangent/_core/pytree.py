"""Nested containers of values: lists, tuples, named tuples, dicts and deques.

    >>> from cotangent.utils._pytree import tree_flatten, tree_map, tree_unflatten
    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, [3])})
    >>> leaves
    [1, 2, 3]
    >>> tree_unflatten([10, 20, 30], spec)
    {'a': 10, 'b': (20, [30])}

Everything that is not a container is a leaf: tensors, numbers and None. The names are those of PyTorch's
``torch.utils._pytree``.
"""

from __future__ import annotations

import collections

# For each container type, the functions to flatten and to unflatten it.
_KINDS: dict = {}


class TreeSpec:
    """The containers of a tree, without its leaves."""

    __slots__ = ("type", "context", "children_specs", "num_leaves")

    def __init__(self, type, context, children_specs):  # noqa: A002
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves = sum(child.num_leaves for child in children_specs) if type is not None else 1

    def is_leaf(self):
        """Whether the tree is a single leaf."""
        return self.type is None

    @property
    def num_children(self):
        return len(self.children_specs)

    @property
    def num_nodes(self):
        return 1 + sum(child.num_nodes for child in self.children_specs)

    def unflatten(self, leaves):
        """The tree with these leaves."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other):
        if not isinstance(other, TreeSpec):
            return NotImplemented
        own = (self.type, self.context, self.children_specs)
        return own == (other.type, other.context, other.children_specs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self):
        if self.is_leaf():
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


_LEAF = TreeSpec(None, None, [])


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None):
    """Registers a container class: ``flatten_fn(x)`` returns ``(parts, context)``, ``unflatten_fn(parts, context)`` an object."""
    if cls in _KINDS:
        raise ValueError(f"register_pytree_node: {cls.__name__} is already registered")
    _KINDS[cls] = flatten_fn, unflatten_fn


_KINDS[list] = (lambda x: (x, None), lambda parts, context: list(parts))
_KINDS[tuple] = (lambda x: (list(x), None), lambda parts, context: tuple(parts))
_KINDS[dict] = (lambda x: (list(x.values()), list(x)), lambda parts, keys: dict(zip(keys, parts)))
_KINDS[collections.OrderedDict] = (
    lambda x: (list(x.values()), list(x)),
    lambda parts, keys: collections.OrderedDict(zip(keys, parts)),
)
_KINDS[collections.defaultdict] = (
    lambda x: (list(x.values()), (x.default_factory, list(x))),
    lambda parts, context: collections.defaultdict(context[0], zip(context[1], parts)),
)
_KINDS[collections.deque] = (lambda x: (list(x), x.maxlen), lambda parts, maxlen: collections.deque(parts, maxlen))
_NAMED = (lambda x: (list(x), type(x)), lambda parts, kind: kind(*parts))


def _is_named(kind):
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _kind(tree):
    """The type of a container; None for a leaf."""
    kind = type(tree)
    return kind if kind in _KINDS or _is_named(kind) else None


def _rules(kind):
    return _KINDS.get(kind) or _NAMED


def _flatten(tree, leaves, is_leaf):
    kind = _kind(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return _LEAF
    parts, context = _rules(kind)[0](tree)
    return TreeSpec(kind, context, [_flatten(part, leaves, is_leaf) for part in parts])


def tree_flatten(tree, is_leaf=None):
    """The leaves of a tree in order, and the spec to rebuild it."""
    leaves: list = []
    return leaves, _flatten(tree, leaves, is_leaf)


def tree_unflatten(leaves, treespec):
    """Rebuilds a tree from its leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: there must be {treespec.num_leaves} leaves, got {len(leaves)}")
    return _unflatten(iter(leaves), treespec)


def _unflatten(leaves, spec):
    if spec.is_leaf():
        return next(leaves)
    return _rules(spec.type)[1]([_unflatten(leaves, child) for child in spec.children_specs], spec.context)


def tree_leaves(tree, is_leaf=None):
    """The leaves of a tree in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    """The containers of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """Applies a function to each leaf, together with the corresponding leaves of other trees."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_up_to(spec, rest) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls a function with each leaf, and returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds, func, tree, is_leaf=None):
    """As ``tree_map``, for leaves of the types ``kinds``; other leaves are unchanged."""
    return tree_map(lambda x: func(x) if isinstance(x, kinds) else x, tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Whether a predicate is true for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Whether a predicate is true for at least one leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def _up_to(spec, tree):
    """The subtrees of a tree at the leaves of a spec."""
    if spec.is_leaf():
        return [tree]
    kind = _kind(tree)
    parts, context = _rules(kind)[0](tree) if kind is spec.type else ((), None)
    if kind is spec.type and spec.type in (dict, collections.OrderedDict) and set(context) == set(spec.context):
        parts = [tree[key] for key in spec.context]
    elif kind is not spec.type or context != spec.context or len(parts) != len(spec.children_specs):
        raise ValueError(f"tree_map: trees must have the same containers, got {tree_structure(tree)} and {spec}")
    return [leaf for child, part in zip(spec.children_specs, parts) for leaf in _up_to(child, part)]


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """Broadcasts a prefix tree: its leaf for each leaf of the spec. None if the containers differ."""
    kind = _kind(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        return [tree] * treespec.num_leaves
    if kind is not treespec.type:
        return None
    parts, context = _rules(kind)[0](tree)
    if context != treespec.context or len(parts) != len(treespec.children_specs):
        return None
    found: list = []
    for part, child in zip(parts, treespec.children_specs):
        own = _broadcast_to_and_flatten(part, child, is_leaf)
        if own is None:
            return None
        found += own
    return found
