"""Views one by one and in chains, with the strides and offset that PyTorch gives them."""

import torch

from .core import HALVES, Book, tensor


def slice_(x, dim, start, end, step=1):
    index = [slice(None)] * x.dim()
    index[dim] = slice(start, end, step)
    return x[tuple(index)]


VIEWS = {
    "permute": lambda x, dims: x.permute(dims),
    "transpose": lambda x, dim0, dim1: x.transpose(dim0, dim1),
    "t": lambda x: x.t(),
    "view": lambda x, shape: x.view(shape),
    "reshape": lambda x, shape: x.reshape(shape),
    "flatten": lambda x, start, end: x.flatten(start, end),
    "squeeze": lambda x: x.squeeze(),
    "squeeze_dim": lambda x, dim: x.squeeze(dim),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "expand": lambda x, shape: x.expand(shape),
    "slice": slice_,
    "select": lambda x, dim, index: x.select(dim, index),
    "narrow": lambda x, dim, start, len: x.narrow(dim, start, len),
    "flip": lambda x, dims: x.flip(dims),
    "as_strided": lambda x, shape, strides, offset: x.as_strided(shape, strides, offset),
    "split": lambda x, size, dim: x.split(size, dim),
    "chunk": lambda x, n, dim: x.chunk(n, dim),
    "unbind": lambda x, dim: x.unbind(dim),
    "contiguous": lambda x: x.contiguous(),
}


def chain(x, steps):
    """Several views after one another: steps is a list of [name, args]."""
    for name, args in steps:
        x = VIEWS[name](x, **args)
    return x


FUNCTIONS = {**VIEWS, "chain": chain}

SINGLE = [
    ("permute", [2, 3, 4], {"dims": [2, 0, 1]}),
    ("permute", [2, 3, 4], {"dims": [-1, 0, -2]}),
    ("permute", [2, 3], {"dims": [0, 1]}),
    ("permute", [2, 3], {"dims": [1, 0]}),
    ("permute", [], {"dims": []}),
    ("permute", [2, 0, 3], {"dims": [1, 2, 0]}),
    ("transpose", [2, 3], {"dim0": 0, "dim1": 1}),
    ("transpose", [2, 3, 4], {"dim0": -1, "dim1": 0}),
    ("transpose", [2, 3, 4], {"dim0": 1, "dim1": 1}),
    ("transpose", [0, 3], {"dim0": 0, "dim1": 1}),
    ("t", [2, 3], {}),
    ("t", [3], {}),
    ("t", [], {}),
    ("view", [2, 6], {"shape": [3, 4]}),
    ("view", [2, 6], {"shape": [-1]}),
    ("view", [2, 6], {"shape": [2, -1, 3]}),
    ("view", [1], {"shape": []}),
    ("view", [], {"shape": [1, 1]}),
    ("view", [0, 3], {"shape": [3, 0]}),
    ("reshape", [2, 6], {"shape": [3, 4]}),
    ("reshape", [2, 6], {"shape": [-1, 2]}),
    ("reshape", [2, 3], {"shape": [6]}),
    ("reshape", [], {"shape": [1]}),
    ("reshape", [1, 1], {"shape": []}),
    ("reshape", [2, 0], {"shape": [0, 5]}),
    ("flatten", [2, 3, 4], {"start": 0, "end": -1}),
    ("flatten", [2, 3, 4], {"start": 1, "end": 2}),
    ("flatten", [2, 3, 4], {"start": 0, "end": 1}),
    ("flatten", [2, 3, 4], {"start": -2, "end": -1}),
    ("flatten", [2, 3, 4], {"start": 1, "end": 1}),
    ("flatten", [], {"start": 0, "end": -1}),
    ("squeeze", [1, 3, 1, 2], {}),
    ("squeeze", [2, 3], {}),
    ("squeeze", [1, 1], {}),
    ("squeeze", [], {}),
    ("squeeze_dim", [1, 3, 1], {"dim": 0}),
    ("squeeze_dim", [1, 3, 1], {"dim": -1}),
    ("squeeze_dim", [1, 3, 1], {"dim": 1}),
    ("squeeze_dim", [0, 1], {"dim": 1}),
    ("unsqueeze", [2, 3], {"dim": 0}),
    ("unsqueeze", [2, 3], {"dim": 1}),
    ("unsqueeze", [2, 3], {"dim": 2}),
    ("unsqueeze", [2, 3], {"dim": -1}),
    ("unsqueeze", [2, 3], {"dim": -3}),
    ("unsqueeze", [], {"dim": 0}),
    ("expand", [1, 3], {"shape": [4, 3]}),
    ("expand", [3], {"shape": [2, 3]}),
    ("expand", [2, 1], {"shape": [3, 2, 4]}),
    ("expand", [2, 1], {"shape": [-1, 4]}),
    ("expand", [3, 1], {"shape": [2, -1, -1]}),
    ("expand", [], {"shape": [2, 3]}),
    ("expand", [2, 3], {"shape": [2, 3]}),
    ("expand", [1, 3], {"shape": [0, 3]}),
    ("slice", [5, 3], {"dim": 0, "start": 1, "end": 4}),
    ("slice", [5, 3], {"dim": 1, "start": 0, "end": 2}),
    ("slice", [5, 3], {"dim": -1, "start": 1, "end": None}),
    ("slice", [5, 3], {"dim": 0, "start": None, "end": 2}),
    ("slice", [5, 3], {"dim": 0, "start": None, "end": None}),
    ("slice", [5, 3], {"dim": 0, "start": 2, "end": 2}),
    ("slice", [2, 3, 4], {"dim": 1, "start": 1, "end": 3}),
    ("slice", [5, 3], {"dim": 0, "start": -3, "end": -1}),
    ("slice", [5, 3], {"dim": 1, "start": 1, "end": 100}),
    ("slice", [5, 3], {"dim": 0, "start": 4, "end": 2}),
    ("slice", [7, 2], {"dim": 0, "start": 1, "end": None, "step": 2}),
    ("slice", [2, 7], {"dim": -1, "start": None, "end": -1, "step": 3}),
    ("select", [4, 3], {"dim": 0, "index": 2}),
    ("select", [4, 3], {"dim": 1, "index": 0}),
    ("select", [4, 3], {"dim": -1, "index": -1}),
    ("select", [2, 3, 4], {"dim": 1, "index": -2}),
    ("select", [5], {"dim": 0, "index": 3}),
    ("narrow", [5, 3], {"dim": 0, "start": 1, "len": 3}),
    ("narrow", [5, 3], {"dim": 1, "start": 2, "len": 1}),
    ("narrow", [5, 3], {"dim": -1, "start": 0, "len": 3}),
    ("narrow", [5, 3], {"dim": 0, "start": 5, "len": 0}),
    ("narrow", [5, 3], {"dim": 0, "start": -2, "len": 2}),
    ("narrow", [2, 3, 4], {"dim": -2, "start": 1, "len": 2}),
    ("flip", [5], {"dims": [0]}),
    ("flip", [2, 3], {"dims": [0]}),
    ("flip", [2, 3], {"dims": [-1]}),
    ("flip", [2, 3, 4], {"dims": [0, 2]}),
    ("flip", [2, 3, 4], {"dims": [2, 1, 0]}),
    ("flip", [0, 3], {"dims": [0]}),
    ("flip", [1], {"dims": [0]}),
    ("as_strided", [2, 3], {"shape": [3, 2], "strides": [2, 1], "offset": 0}),
    ("as_strided", [2, 3], {"shape": [3, 2], "strides": [1, 3], "offset": 0}),
    ("as_strided", [8], {"shape": [5, 4], "strides": [1, 1], "offset": 0}),
    ("as_strided", [8], {"shape": [3, 2], "strides": [0, 2], "offset": 3}),
    ("as_strided", [8], {"shape": [], "strides": [], "offset": 7}),
    ("as_strided", [3, 4], {"shape": [3], "strides": [5], "offset": 1}),
    ("as_strided", [8], {"shape": [0, 3], "strides": [3, 1], "offset": 2}),
    ("split", [5, 2], {"size": 2, "dim": 0}),
    ("split", [2, 6], {"size": 3, "dim": 1}),
    ("split", [2, 5], {"size": 4, "dim": -1}),
    ("split", [3], {"size": 7, "dim": 0}),
    ("chunk", [6, 2], {"n": 3, "dim": 0}),
    ("chunk", [2, 7], {"n": 3, "dim": 1}),
    ("chunk", [5], {"n": 4, "dim": 0}),
    ("chunk", [2, 2], {"n": 5, "dim": -1}),
    ("unbind", [3, 2], {"dim": 0}),
    ("unbind", [3, 2], {"dim": 1}),
    ("unbind", [2, 3, 2], {"dim": -2}),
    ("unbind", [3], {"dim": 0}),
    ("contiguous", [2, 3], {}),
    ("contiguous", [], {}),
    ("contiguous", [0, 2], {}),
]

CHAINS = [
    ([4, 6], [("slice", {"dim": 0, "start": 1, "end": 3}), ("view", {"shape": [2, 2, 3]})]),
    ([4, 6], [("slice", {"dim": 0, "start": 1, "end": 4}), ("slice", {"dim": 0, "start": 1, "end": 3})]),
    ([4, 6], [("slice", {"dim": 1, "start": 2, "end": 5}), ("slice", {"dim": 0, "start": 2, "end": 4}), ("t", {})]),
    ([4, 6], [("t", {}), ("slice", {"dim": 0, "start": 1, "end": 4}), ("select", {"dim": 1, "index": 2})]),
    ([4, 6], [("narrow", {"dim": 0, "start": 2, "len": 2}), ("flatten", {"start": 0, "end": -1}), ("narrow", {"dim": 0, "start": 3, "len": 5})]),
    ([4, 6], [("t", {}), ("contiguous", {})]),
    ([4, 6], [("slice", {"dim": 1, "start": 1, "end": 4}), ("contiguous", {})]),
    ([4, 6], [("slice", {"dim": 0, "start": 1, "end": 3}), ("contiguous", {})]),
    ([4, 6], [("t", {}), ("reshape", {"shape": [4, 6]})]),
    ([4, 6], [("slice", {"dim": 1, "start": 2, "end": 4}), ("reshape", {"shape": [8]})]),
    ([4, 6], [("slice", {"dim": 1, "start": 2, "end": 6}), ("view", {"shape": [2, 2, 2, 2]})]),
    ([4, 6], [("t", {}), ("view", {"shape": [2, 3, 2, 2]})]),
    ([4, 6], [("view", {"shape": [2, 2, 6]}), ("permute", {"dims": [1, 2, 0]}), ("select", {"dim": 0, "index": 1})]),
    ([2, 3, 4], [("permute", {"dims": [2, 0, 1]}), ("slice", {"dim": 0, "start": 1, "end": 3}), ("transpose", {"dim0": 0, "dim1": 2})]),
    ([2, 3, 4], [("select", {"dim": 1, "index": 1}), ("unsqueeze", {"dim": 0}), ("expand", {"shape": [3, 2, 4]})]),
    ([2, 3, 4], [("select", {"dim": 2, "index": 3}), ("t", {}), ("select", {"dim": 0, "index": 1})]),
    ([2, 3, 4], [("transpose", {"dim0": 0, "dim1": 1}), ("flatten", {"start": 1, "end": 2})]),
    ([2, 3, 4], [("transpose", {"dim0": 1, "dim1": 2}), ("flatten", {"start": 0, "end": 1})]),
    ([3, 1], [("expand", {"shape": [3, 4]}), ("t", {}), ("slice", {"dim": 0, "start": 1, "end": 3})]),
    ([3, 1], [("expand", {"shape": [3, 4]}), ("reshape", {"shape": [12]})]),
    ([3, 1], [("expand", {"shape": [3, 4]}), ("contiguous", {}), ("view", {"shape": [2, 6]})]),
    ([1, 3], [("expand", {"shape": [4, 3]}), ("view", {"shape": [2, 2, 3]})]),
    ([], [("expand", {"shape": [3]}), ("unsqueeze", {"dim": 1}), ("expand", {"shape": [3, 2]})]),
    ([6], [("slice", {"dim": 0, "start": 1, "end": 6}), ("flip", {"dims": [0]}), ("slice", {"dim": 0, "start": 1, "end": 4})]),
    ([2, 6], [("flip", {"dims": [1]}), ("view", {"shape": [2, 2, 3]}), ("flip", {"dims": [0]})]),
    ([2, 3, 4], [("flip", {"dims": [0, 2]}), ("transpose", {"dim0": 0, "dim1": 2}), ("select", {"dim": 0, "index": 1})]),
    ([2, 6], [("slice", {"dim": 0, "start": 1, "end": 1}), ("t", {}), ("reshape", {"shape": [0, 4]})]),
    ([4, 6], [("as_strided", {"shape": [4], "strides": [7], "offset": 0}), ("slice", {"dim": 0, "start": 1, "end": 3})]),
    ([12], [("as_strided", {"shape": [4, 3], "strides": [2, 1], "offset": 2}), ("t", {}), ("select", {"dim": 0, "index": 1})]),
    ([9], [("slice", {"dim": 0, "start": 1, "end": None, "step": 2}), ("slice", {"dim": 0, "start": 1, "end": None, "step": 2})]),
    ([6, 4], [("slice", {"dim": 0, "start": 0, "end": None, "step": 2}), ("t", {}), ("slice", {"dim": 1, "start": -2, "end": None})]),
    ([2, 1, 3, 1], [("squeeze", {}), ("t", {}), ("unsqueeze", {"dim": 1}), ("squeeze_dim", {"dim": 1})]),
]


def has_torch_layout(steps):
    """flip is a copy in PyTorch, so what follows it has no layout to compare with."""
    return not any(name == "flip" for name in steps)


def book():
    out = Book("views", FUNCTIONS)
    for op, shape, args in SINGLE:
        out.add(op, [out.draw(op).uniform(shape)], args, layout=has_torch_layout([op]))
    # Views move elements of any dtype and do not look at them.
    seen = set()
    for op, shape, args in SINGLE:
        if op in seen:
            continue
        seen.add(op)
        out.add(op, [out.draw(op).uniform(shape, dtype="f32")], args)
        for dtype in (*HALVES, "i64", "i32", "i16", "u8", "bool"):
            x = out.draw(op).integers(shape, 0, 2 if dtype == "bool" else 100, dtype)
            out.add(op, [x], args, grad=False)
    for shape, steps in CHAINS:
        names = [name for name, _ in steps]
        args = {"steps": [list(step) for step in steps]}
        out.add("chain", [out.draw("chain").uniform(shape)], args, layout=has_torch_layout(names))
        if "flip" not in names:
            out.add("chain", [out.draw("chain").integers(shape, 0, 100)], args, grad=False, layout=True)
    # The offset of as_strided counts from the storage's start, not from the view's.
    args = {"steps": [["slice", {"dim": 0, "start": 1, "end": 3}], ["as_strided", {"shape": [2, 2], "strides": [6, 1], "offset": 1}]]}
    out.add("chain", [out.draw("chain").uniform([4, 6])], args, grad=False, layout=True, note="as_strided of a view")
    out.add("flip", [tensor([[True, False], [False, False]], "bool")], {"dims": [0, 1]}, grad=False)
    assert set(FUNCTIONS) == {c["op"] for c in out.cases}
    return out
