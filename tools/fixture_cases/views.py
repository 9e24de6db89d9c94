"""Single views and chains of views, with PyTorch's strides and offsets."""

import json

import torch

from .core import HALVES, Book, header, tensor


def slice_(x, dim, range):
    index = [slice(None)] * x.dim()
    index[dim] = slice(*range["slice"])
    return x[tuple(index)]


VIEWS = {
    "permute": lambda x, dims: x.permute(dims),
    "transpose": lambda x, dim0, dim1: x.transpose(dim0, dim1),
    "t": lambda x: x.t(),
    "view": lambda x, shape: x.view(shape),
    "reshape": lambda x, shape: x.reshape(shape),
    "flatten": lambda x, start_dim, end_dim: x.flatten(start_dim, end_dim),
    "squeeze": lambda x, dim=None: x.squeeze() if dim is None else x.squeeze(dim),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "expand": lambda x, size: x.expand(size),
    "slice": slice_,
    "select": lambda x, dim, index: x.select(dim, index),
    "narrow": lambda x, dim, start, length: x.narrow(dim, start, length),
    "flip": lambda x, dims: x.flip(dims),
    "as_strided": lambda x, size, stride, storage_offset: x.as_strided(size, stride, storage_offset),
    "split": lambda x, split_size, dim: x.split(split_size, dim),
    "chunk": lambda x, chunks, dim: x.chunk(chunks, dim),
    "unbind": lambda x, dim: x.unbind(dim),
    "contiguous": lambda x: x.contiguous(),
    "deep_clone": torch.clone,
    "to_device": lambda x, device: x.to(device),
}


def chain(x, steps):
    """Applies a chain of views: steps is a list of [name, args]."""
    for name, args in steps:
        x = VIEWS[name](x, **args)
    return x


FUNCTIONS = VIEWS

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
    ("flatten", [2, 3, 4], {"start_dim": 0, "end_dim": -1}),
    ("flatten", [2, 3, 4], {"start_dim": 1, "end_dim": 2}),
    ("flatten", [2, 3, 4], {"start_dim": 0, "end_dim": 1}),
    ("flatten", [2, 3, 4], {"start_dim": -2, "end_dim": -1}),
    ("flatten", [2, 3, 4], {"start_dim": 1, "end_dim": 1}),
    ("flatten", [], {"start_dim": 0, "end_dim": -1}),
    ("squeeze", [1, 3, 1, 2], {}),
    ("squeeze", [2, 3], {}),
    ("squeeze", [1, 1], {}),
    ("squeeze", [], {}),
    ("squeeze", [1, 3, 1], {"dim": 0}),
    ("squeeze", [1, 3, 1], {"dim": -1}),
    ("squeeze", [1, 3, 1], {"dim": 1}),
    ("squeeze", [0, 1], {"dim": 1}),
    ("unsqueeze", [2, 3], {"dim": 0}),
    ("unsqueeze", [2, 3], {"dim": 1}),
    ("unsqueeze", [2, 3], {"dim": 2}),
    ("unsqueeze", [2, 3], {"dim": -1}),
    ("unsqueeze", [2, 3], {"dim": -3}),
    ("unsqueeze", [], {"dim": 0}),
    ("expand", [1, 3], {"size": [4, 3]}),
    ("expand", [3], {"size": [2, 3]}),
    ("expand", [2, 1], {"size": [3, 2, 4]}),
    ("expand", [2, 1], {"size": [-1, 4]}),
    ("expand", [3, 1], {"size": [2, -1, -1]}),
    ("expand", [], {"size": [2, 3]}),
    ("expand", [2, 3], {"size": [2, 3]}),
    ("expand", [1, 3], {"size": [0, 3]}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [1, 4, None]}}),
    ("slice", [5, 3], {"dim": 1, "range": {"slice": [0, 2, None]}}),
    ("slice", [5, 3], {"dim": -1, "range": {"slice": [1, None, None]}}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [None, 2, None]}}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [None, None, None]}}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [2, 2, None]}}),
    ("slice", [2, 3, 4], {"dim": 1, "range": {"slice": [1, 3, None]}}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [-3, -1, None]}}),
    ("slice", [5, 3], {"dim": 1, "range": {"slice": [1, 100, None]}}),
    ("slice", [5, 3], {"dim": 0, "range": {"slice": [4, 2, None]}}),
    ("slice", [7, 2], {"dim": 0, "range": {"slice": [1, None, 2]}}),
    ("slice", [2, 7], {"dim": -1, "range": {"slice": [None, -1, 3]}}),
    ("select", [4, 3], {"dim": 0, "index": 2}),
    ("select", [4, 3], {"dim": 1, "index": 0}),
    ("select", [4, 3], {"dim": -1, "index": -1}),
    ("select", [2, 3, 4], {"dim": 1, "index": -2}),
    ("select", [5], {"dim": 0, "index": 3}),
    ("narrow", [5, 3], {"dim": 0, "start": 1, "length": 3}),
    ("narrow", [5, 3], {"dim": 1, "start": 2, "length": 1}),
    ("narrow", [5, 3], {"dim": -1, "start": 0, "length": 3}),
    ("narrow", [5, 3], {"dim": 0, "start": 5, "length": 0}),
    ("narrow", [5, 3], {"dim": 0, "start": -2, "length": 2}),
    ("narrow", [2, 3, 4], {"dim": -2, "start": 1, "length": 2}),
    ("flip", [5], {"dims": [0]}),
    ("flip", [2, 3], {"dims": [0]}),
    ("flip", [2, 3], {"dims": [-1]}),
    ("flip", [2, 3, 4], {"dims": [0, 2]}),
    ("flip", [2, 3, 4], {"dims": [2, 1, 0]}),
    ("flip", [0, 3], {"dims": [0]}),
    ("flip", [1], {"dims": [0]}),
    ("as_strided", [2, 3], {"size": [3, 2], "stride": [2, 1], "storage_offset": 0}),
    ("as_strided", [2, 3], {"size": [3, 2], "stride": [1, 3], "storage_offset": 0}),
    ("as_strided", [8], {"size": [5, 4], "stride": [1, 1], "storage_offset": 0}),
    ("as_strided", [8], {"size": [3, 2], "stride": [0, 2], "storage_offset": 3}),
    ("as_strided", [8], {"size": [], "stride": [], "storage_offset": 7}),
    ("as_strided", [3, 4], {"size": [3], "stride": [5], "storage_offset": 1}),
    ("as_strided", [8], {"size": [0, 3], "stride": [3, 1], "storage_offset": 2}),
    ("split", [5, 2], {"split_size": 2, "dim": 0}),
    ("split", [2, 6], {"split_size": 3, "dim": 1}),
    ("split", [2, 5], {"split_size": 4, "dim": -1}),
    ("split", [3], {"split_size": 7, "dim": 0}),
    ("chunk", [6, 2], {"chunks": 3, "dim": 0}),
    ("chunk", [2, 7], {"chunks": 3, "dim": 1}),
    ("chunk", [5], {"chunks": 4, "dim": 0}),
    ("chunk", [2, 2], {"chunks": 5, "dim": -1}),
    ("unbind", [3, 2], {"dim": 0}),
    ("unbind", [3, 2], {"dim": 1}),
    ("unbind", [2, 3, 2], {"dim": -2}),
    ("unbind", [3], {"dim": 0}),
    ("contiguous", [2, 3], {}),
    ("contiguous", [], {}),
    ("contiguous", [0, 2], {}),
    ("deep_clone", [2, 3], {}),
    ("deep_clone", [], {}),
    ("to_device", [2, 3], {"device": "cpu"}),
    ("transpose", [], {"dim0": 0, "dim1": -1}),
]

CHAINS = [
    ([4, 6], [("slice", {"dim": 0, "range": {"slice": [1, 3, None]}}), ("view", {"shape": [2, 2, 3]})]),
    ([4, 6], [("slice", {"dim": 0, "range": {"slice": [1, 4, None]}}), ("slice", {"dim": 0, "range": {"slice": [1, 3, None]}})]),
    ([4, 6], [("slice", {"dim": 1, "range": {"slice": [2, 5, None]}}), ("slice", {"dim": 0, "range": {"slice": [2, 4, None]}}), ("t", {})]),
    ([4, 6], [("t", {}), ("slice", {"dim": 0, "range": {"slice": [1, 4, None]}}), ("select", {"dim": 1, "index": 2})]),
    ([4, 6], [("narrow", {"dim": 0, "start": 2, "length": 2}), ("flatten", {"start_dim": 0, "end_dim": -1}), ("narrow", {"dim": 0, "start": 3, "length": 5})]),
    ([4, 6], [("t", {}), ("contiguous", {})]),
    ([4, 6], [("slice", {"dim": 1, "range": {"slice": [1, 4, None]}}), ("contiguous", {})]),
    ([4, 6], [("slice", {"dim": 0, "range": {"slice": [1, 3, None]}}), ("contiguous", {})]),
    ([4, 6], [("t", {}), ("reshape", {"shape": [4, 6]})]),
    ([4, 6], [("slice", {"dim": 1, "range": {"slice": [2, 4, None]}}), ("reshape", {"shape": [8]})]),
    ([4, 6], [("slice", {"dim": 1, "range": {"slice": [2, 6, None]}}), ("view", {"shape": [2, 2, 2, 2]})]),
    ([4, 6], [("t", {}), ("view", {"shape": [2, 3, 2, 2]})]),
    ([4, 6], [("view", {"shape": [2, 2, 6]}), ("permute", {"dims": [1, 2, 0]}), ("select", {"dim": 0, "index": 1})]),
    ([2, 3, 4], [("permute", {"dims": [2, 0, 1]}), ("slice", {"dim": 0, "range": {"slice": [1, 3, None]}}), ("transpose", {"dim0": 0, "dim1": 2})]),
    ([2, 3, 4], [("select", {"dim": 1, "index": 1}), ("unsqueeze", {"dim": 0}), ("expand", {"size": [3, 2, 4]})]),
    ([2, 3, 4], [("select", {"dim": 2, "index": 3}), ("t", {}), ("select", {"dim": 0, "index": 1})]),
    ([2, 3, 4], [("transpose", {"dim0": 0, "dim1": 1}), ("flatten", {"start_dim": 1, "end_dim": 2})]),
    ([2, 3, 4], [("transpose", {"dim0": 1, "dim1": 2}), ("flatten", {"start_dim": 0, "end_dim": 1})]),
    ([3, 1], [("expand", {"size": [3, 4]}), ("t", {}), ("slice", {"dim": 0, "range": {"slice": [1, 3, None]}})]),
    ([3, 1], [("expand", {"size": [3, 4]}), ("reshape", {"shape": [12]})]),
    ([3, 1], [("expand", {"size": [3, 4]}), ("contiguous", {}), ("view", {"shape": [2, 6]})]),
    ([1, 3], [("expand", {"size": [4, 3]}), ("view", {"shape": [2, 2, 3]})]),
    ([], [("expand", {"size": [3]}), ("unsqueeze", {"dim": 1}), ("expand", {"size": [3, 2]})]),
    ([6], [("slice", {"dim": 0, "range": {"slice": [1, 6, None]}}), ("flip", {"dims": [0]}), ("slice", {"dim": 0, "range": {"slice": [1, 4, None]}})]),
    ([2, 6], [("flip", {"dims": [1]}), ("view", {"shape": [2, 2, 3]}), ("flip", {"dims": [0]})]),
    ([2, 3, 4], [("flip", {"dims": [0, 2]}), ("transpose", {"dim0": 0, "dim1": 2}), ("select", {"dim": 0, "index": 1})]),
    ([2, 6], [("slice", {"dim": 0, "range": {"slice": [1, 1, None]}}), ("t", {}), ("reshape", {"shape": [0, 4]})]),
    ([4, 6], [("as_strided", {"size": [4], "stride": [7], "storage_offset": 0}), ("slice", {"dim": 0, "range": {"slice": [1, 3, None]}})]),
    ([12], [("as_strided", {"size": [4, 3], "stride": [2, 1], "storage_offset": 2}), ("t", {}), ("select", {"dim": 0, "index": 1})]),
    ([9], [("slice", {"dim": 0, "range": {"slice": [1, None, 2]}}), ("slice", {"dim": 0, "range": {"slice": [1, None, 2]}})]),
    ([6, 4], [("slice", {"dim": 0, "range": {"slice": [0, None, 2]}}), ("t", {}), ("slice", {"dim": 1, "range": {"slice": [-2, None, None]}})]),
    ([2, 1, 3, 1], [("squeeze", {}), ("t", {}), ("unsqueeze", {"dim": 1}), ("squeeze", {"dim": 1})]),
]


def has_torch_layout(steps):
    """Whether the layout can be compared with PyTorch's, where flip is a copy."""
    return not any(name == "flip" for name in steps)


def add_cases(book):
    book.define(FUNCTIONS)
    for op, shape, args in SINGLE:
        book.add(op, [book.draw(op).uniform(shape)], args, layout=has_torch_layout([op]))
    # Views work for elements of any dtype.
    seen = set()
    for op, shape, args in SINGLE:
        if op in seen:
            continue
        seen.add(op)
        book.add(op, [book.draw(op).uniform(shape, dtype="f32")], args)
        for dtype in (*HALVES, "i64", "i32", "i16", "u8", "bool"):
            x = book.draw(op).integers(shape, 0, 2 if dtype == "bool" else 100, dtype)
            book.add(op, [x], args, grad=False)
    book.add("flip", [tensor([[True, False], [False, False]], "bool")], {"dims": [0, 1]}, grad=False)


def write_chains(folder):
    """Writes the chains of views to a separate file."""
    book = Book()
    book.define({"chain": chain})
    for shape, steps in CHAINS:
        names = [name for name, _ in steps]
        args = {"steps": [list(step) for step in steps]}
        book.add("chain", [book.draw("chain").uniform(shape)], args, layout=has_torch_layout(names))
        if "flip" not in names:
            book.add("chain", [book.draw("chain").integers(shape, 0, 100)], args, grad=False, layout=True)
    # The offset of as_strided is relative to the storage, not to the view.
    args = {"steps": [["slice", {"dim": 0, "range": {"slice": [1, 3, None]}}], ["as_strided", {"size": [2, 2], "stride": [6, 1], "storage_offset": 1}]]}
    book.add("chain", [book.draw("chain").uniform([4, 6])], args, grad=False, layout=True, note="as_strided of a view")
    path = folder / "chains.json"
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in book.cases["chain"])
    path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
    return path
