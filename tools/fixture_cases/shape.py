"""Moving, repeating, padding and stacking dimensions; diagonals; replacing parts."""

import torch
import torch.nn.functional as F

from .core import HALVES, INF, NAN, tensor


VIEWS = {
    "movedim": lambda x, source, destination: x.movedim(source, destination),
    "mT": lambda x: x.mT,
    "unflatten": lambda x, dim, sizes: x.unflatten(dim, sizes),
    "atleast_1d": torch.atleast_1d,
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": torch.atleast_3d,
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal(offset, dim1, dim2),
    "unfold": lambda x, dimension, size, step: x.unfold(dimension, size, step),
    "tensor_split": lambda x, indices_or_sections, dim=0: x.tensor_split(indices_or_sections, dim),
    "hsplit": lambda x, indices_or_sections: x.hsplit(indices_or_sections),
    "vsplit": lambda x, indices_or_sections: x.vsplit(indices_or_sections),
    "dsplit": lambda x, indices_or_sections: x.dsplit(indices_or_sections),
    "split_with_sizes": lambda x, split_sizes, dim=0: torch.split_with_sizes(x, split_sizes, dim),
}
COPIES = {
    "rot90": lambda x, k=1, dims=(0, 1): x.rot90(k, dims),
    "fliplr": torch.fliplr,
    "flipud": torch.flipud,
    "sum_to_size": lambda x, size: x.sum_to_size(size),
    "narrow_copy": lambda x, dim, start, length: x.narrow_copy(dim, start, length),
    "repeat": lambda x, repeats: x.repeat(repeats),
    "tile": lambda x, dims: x.tile(dims),
    "roll": lambda x, shifts, dims=None: x.roll(shifts) if dims is None else x.roll(shifts, dims),
    "pad": lambda x, pad, mode="constant", value=0: F.pad(x, pad, mode, value if mode == "constant" else None),
    "diag": lambda x, diagonal=0: torch.diag(x, diagonal),
    "diag_embed": lambda x, offset=0, dim1=-2, dim2=-1: torch.diag_embed(x, offset, dim1, dim2),
    "diagflat": lambda x, offset=0: torch.diagflat(x, offset),
    "combinations": lambda x, r=2, with_replacement=False: torch.combinations(x, r, with_replacement),
}
WITH_OTHERS = {
    "expand_as": lambda x, other: x.expand_as(other),
    "view_as": lambda x, other: x.view_as(other),
    "reshape_as": lambda x, other: x.reshape_as(other),
    "repeat_interleave": lambda x, times=None, repeats=None, dim=None: x.repeat_interleave(
        repeats if times is None else times, dim
    ),
    "diagonal_scatter": lambda x, src, offset=0, dim1=0, dim2=1: x.diagonal_scatter(src, offset, dim1, dim2),
    "select_scatter": lambda x, src, dim, index: x.select_scatter(src, dim, index),
    "slice_scatter": lambda x, src, dim=0, start=None, end=None, step=1: x.slice_scatter(src, dim, start, end, step),
    "as_strided_scatter": lambda x, src, size, stride, storage_offset=0: x.as_strided_scatter(
        src, size, stride, storage_offset
    ),
    "broadcast_tensors": lambda *xs: torch.broadcast_tensors(*xs),
    "meshgrid": lambda *xs, indexing="ij": torch.meshgrid(*xs, indexing=indexing),
    "hstack": lambda *xs: torch.hstack(xs),
    "vstack": lambda *xs: torch.vstack(xs),
    "dstack": lambda *xs: torch.dstack(xs),
    "column_stack": lambda *xs: torch.column_stack(xs),
    "block_diag": torch.block_diag,
    "cartesian_prod": torch.cartesian_prod,
}
NAMES = {
    "repeat_interleave": ["self", "repeats"],
    **{op: ["self", "src"] for op in ("diagonal_scatter", "select_scatter", "slice_scatter", "as_strided_scatter")},
    **{
        op: ["tensors"]
        for op in ("broadcast_tensors", "meshgrid", "hstack", "vstack", "dstack", "column_stack", "block_diag", "cartesian_prod")
    },
}

ONE = [
    ("movedim", [2, 3, 4], {"source": 0, "destination": 2}),
    ("movedim", [], {"source": 0, "destination": -1}),
    ("movedim", [2, 3, 4], {"source": -1, "destination": 0}),
    ("movedim", [2, 3, 4], {"source": [0, 2], "destination": [-1, 0]}),
    ("movedim", [2, 0], {"source": 1, "destination": 0}),
    ("movedim", [2, 3], {"source": [], "destination": []}),
    ("mT", [2, 3], {}),
    ("mT", [2, 3, 4], {}),
    ("mT", [3, 0, 2], {}),
    ("unflatten", [2, 6], {"dim": 1, "sizes": [3, 2]}),
    ("unflatten", [6, 2], {"dim": -2, "sizes": [-1, 3]}),
    ("unflatten", [4], {"dim": 0, "sizes": [2, 1, 2]}),
    ("unflatten", [0, 2], {"dim": 0, "sizes": [0, 3]}),
    *[(op, shape, {}) for op in ("atleast_1d", "atleast_2d", "atleast_3d") for shape in ([], [3], [2, 3], [2, 1, 3], [0])],
    ("diagonal", [3, 3], {}),
    ("diagonal", [2, 4], {"offset": 1}),
    ("diagonal", [4, 2], {"offset": -2}),
    ("diagonal", [2, 3, 4], {"offset": 1, "dim1": -1, "dim2": 0}),
    ("diagonal", [2, 3, 4], {"dim1": 1, "dim2": 2}),
    ("diagonal", [2, 3], {"offset": 5}),
    ("diagonal", [0, 3], {}),
    ("unfold", [], {"dimension": 0, "size": 1, "step": 1}),
    ("unfold", [7], {"dimension": 0, "size": 3, "step": 2}),
    ("unfold", [7], {"dimension": 0, "size": 2, "step": 3}),
    ("unfold", [3, 5], {"dimension": 1, "size": 4, "step": 1}),
    ("unfold", [4, 2, 3], {"dimension": -3, "size": 2, "step": 1}),
    ("unfold", [3, 2], {"dimension": 0, "size": 3, "step": 9}),
    ("tensor_split", [7, 2], {"indices_or_sections": 3}),
    ("tensor_split", [2, 3], {"indices_or_sections": 5, "dim": -1}),
    ("tensor_split", [7, 2], {"indices_or_sections": [2, 5]}),
    ("tensor_split", [7], {"indices_or_sections": [-3, -1]}),
    ("tensor_split", [4], {"indices_or_sections": [3, 1, 9]}),
    ("tensor_split", [0, 2], {"indices_or_sections": 2}),
    ("hsplit", [2, 4], {"indices_or_sections": 2}),
    ("hsplit", [6], {"indices_or_sections": 3}),
    ("hsplit", [2, 5], {"indices_or_sections": [1, 4]}),
    ("vsplit", [4, 2], {"indices_or_sections": 2}),
    ("vsplit", [5, 2], {"indices_or_sections": [2, 3]}),
    ("dsplit", [1, 2, 4], {"indices_or_sections": 2}),
    ("dsplit", [1, 2, 5], {"indices_or_sections": [1]}),
    ("split_with_sizes", [5, 2], {"split_sizes": [2, 3]}),
    ("split_with_sizes", [2, 5], {"split_sizes": [0, 4, 1], "dim": -1}),
    ("split_with_sizes", [0], {"split_sizes": [0]}),
    *[("rot90", [2, 3], {"k": k}) for k in (-3, -1, 0, 1, 2, 3, 4)],
    ("rot90", [2, 3, 4], {"k": 1, "dims": [2, 0]}),
    ("rot90", [2, 3, 4], {"k": -1, "dims": [-1, 1]}),
    ("fliplr", [2, 3], {}),
    ("fliplr", [2, 3, 2], {}),
    ("flipud", [3], {}),
    ("flipud", [2, 3], {}),
    ("sum_to_size", [2, 3], {"size": [1, 3]}),
    ("sum_to_size", [4, 2, 3], {"size": [2, 1]}),
    ("sum_to_size", [4, 2, 3], {"size": []}),
    ("sum_to_size", [2, 3], {"size": [2, 3]}),
    ("sum_to_size", [0, 3], {"size": [3]}),
    ("narrow_copy", [5, 3], {"dim": 0, "start": 1, "length": 2}),
    ("narrow_copy", [5, 3], {"dim": -1, "start": -2, "length": 2}),
    ("narrow_copy", [5, 3], {"dim": 0, "start": 5, "length": 0}),
    ("repeat", [2, 3], {"repeats": [2, 2]}),
    ("repeat", [3], {"repeats": [2, 1, 3]}),
    ("repeat", [], {"repeats": [3]}),
    ("repeat", [], {"repeats": []}),
    ("repeat", [2, 3], {"repeats": [0, 2]}),
    ("tile", [2, 3], {"dims": [2]}),
    ("tile", [3], {"dims": [2, 2]}),
    ("tile", [2, 2], {"dims": []}),
    ("tile", [2, 2], {"dims": [1, 3]}),
    ("roll", [5], {"shifts": 2, "dims": 0}),
    ("roll", [2, 3], {"shifts": 1}),
    ("roll", [2, 3], {"shifts": -7, "dims": 1}),
    ("roll", [3, 4], {"shifts": [1, -1], "dims": [0, 1]}),
    ("roll", [3, 4], {"shifts": [1, 1], "dims": [1, 1]}),
    ("roll", [2, 0], {"shifts": 1, "dims": 0}),
    ("pad", [2, 3], {"pad": [1, 2]}),
    ("pad", [2, 3], {"pad": [1, 0, 0, 2], "value": -1.5}),
    ("pad", [2, 3], {"pad": [-1, 2, 1, -1]}),
    ("pad", [2, 3], {"pad": [-1, -1]}),
    ("pad", [2, 3], {"pad": [0, 0, 0, 0]}),
    ("pad", [2, 0], {"pad": [1, 1], "value": 2.0}),
    ("pad", [2, 3], {"pad": [1, 0], "value": 1e300}),
    *[("pad", [2, 4], {"pad": [2, 3], "mode": mode}) for mode in ("reflect", "replicate", "circular")],
    *[("pad", [1, 3, 4], {"pad": [1, 2, 2, 0], "mode": mode}) for mode in ("reflect", "replicate", "circular")],
    *[("pad", [1, 3, 3, 2], {"pad": [1, 1, 2, 0, 1, 2], "mode": mode}) for mode in ("reflect", "replicate", "circular")],
    ("diag", [3], {}),
    ("diag", [2], {"diagonal": 2}),
    ("diag", [3, 4], {}),
    ("diag", [3, 4], {"diagonal": -1}),
    ("diag", [0], {}),
    ("diag_embed", [3], {}),
    ("diag_embed", [2, 3], {"offset": 1}),
    ("diag_embed", [2, 3], {"offset": -1, "dim1": 0, "dim2": 2}),
    ("diag_embed", [2, 3], {"offset": 1, "dim1": 2, "dim2": 0}),
    ("diagflat", [2, 2], {}),
    ("diagflat", [], {"offset": 1}),
    ("diagflat", [3], {"offset": -2}),
    ("combinations", [4], {}),
    ("combinations", [4], {"r": 3}),
    ("combinations", [3], {"r": 2, "with_replacement": True}),
    ("combinations", [3], {"r": 4}),
    ("combinations", [0], {}),
]

SEVERAL = [
    ("broadcast_tensors", [[2, 1], [3]]),
    ("broadcast_tensors", [[], [2, 1, 2], [3, 1]]),
    ("broadcast_tensors", [[1], [0]]),
    ("meshgrid", [[2], [3]]),
    ("meshgrid", [[2], [], [3]]),
    ("meshgrid", [[2], [0]]),
    ("hstack", [[2], [3]]),
    ("hstack", [[2, 3], [2, 1]]),
    ("hstack", [[], [2]]),
    ("vstack", [[3], [3]]),
    ("vstack", [[2, 3], [1, 3], [3]]),
    ("vstack", [[], []]),
    ("dstack", [[2], [2]]),
    ("dstack", [[2, 3], [2, 3]]),
    ("dstack", [[2, 1, 2], [2, 1, 1]]),
    ("column_stack", [[3], [3, 2]]),
    ("column_stack", [[], [1]]),
    ("block_diag", [[2, 3], [1, 2]]),
    ("block_diag", [[], [2], [0, 1], [2, 2]]),
    ("cartesian_prod", [[2], [3]]),
    ("cartesian_prod", [[2], [1], [2]]),
    ("cartesian_prod", [[3]]),
]

# Op, shape of the tensor, shape of the replacement, and arguments.
REPLACED = [
    ("diagonal_scatter", [3, 3], [3], {}),
    ("diagonal_scatter", [2, 3, 4], [4, 1], {"offset": -1, "dim1": 0, "dim2": 1}),
    ("diagonal_scatter", [2, 3, 4], [3, 2], {"offset": 1, "dim1": 0, "dim2": -1}),
    ("select_scatter", [2, 3], [3], {"dim": 0, "index": 1}),
    ("select_scatter", [2, 3, 2], [2, 2], {"dim": -2, "index": -1}),
    ("slice_scatter", [4, 2], [2, 2], {"start": 1, "end": 3}),
    ("slice_scatter", [2, 5], [2, 2], {"dim": 1, "start": -4, "step": 2}),
    ("slice_scatter", [4, 2], [4, 2], {}),
    ("as_strided_scatter", [3, 4], [3], {"size": [3], "stride": [5]}),
    ("as_strided_scatter", [3, 4], [2, 2], {"size": [2, 2], "stride": [1, 4], "storage_offset": 2}),
]


def add_cases(book):
    book.define({**VIEWS, **COPIES, **WITH_OTHERS}, NAMES)
    seen = set()
    for op, shape, args in ONE:
        x = book.draw(op).uniform(shape)
        try:
            book.add(op, [x], args, layout=op in VIEWS)
        except RuntimeError:
            # Some gradients of empty tensors fail in PyTorch.
            book.add(op, [x], args, grad=False)
        if op in seen:
            continue
        seen.add(op)
        book.add(op, [book.draw(op).uniform(shape, dtype="f32")], args)
        for dtype in (*HALVES, "i64", "i32", "u8", "bool"):
            x = book.draw(op).integers(shape, 0, 2 if dtype == "bool" else 100, dtype)
            book.add_if_defined(op, [x], args, grad=False)
    for op, shapes in SEVERAL:
        draw = book.draw(op)
        book.add(op, [draw.uniform(shape) for shape in shapes])
        book.add(op, [draw.integers(shape, 0, 9) for shape in shapes], grad=False)
    book.add("meshgrid", [book.draw("meshgrid").uniform([2]), book.draw("meshgrid").uniform([3])], {"indexing": "xy"})
    for op in ("hstack", "block_diag"):
        book.add(op, [tensor([1, 2], "i32"), tensor([0.5], "f32")], grad=False, note="promoted")
    for op, shape, src, args in REPLACED:
        draw = book.draw(op)
        # For the input of as_strided_scatter, PyTorch 2.15 returns the gradient of the replaced elements, which is wrong.
        right = op != "as_strided_scatter"
        book.add(op, [draw.uniform(shape), draw.uniform(src)], args, grad=[right, True])
        book.add(op, [draw.integers(shape, 0, 9), draw.integers(src, 10, 19)], args, grad=False)
        book.add(op, [draw.uniform(shape, dtype="f32"), draw.uniform(src, dtype="f32")], args, grad=[right, False])
    for op, shape, other in ("expand_as", [2, 1], [2, 3]), ("expand_as", [3], [0, 3]), ("view_as", [6], [2, 3]), ("reshape_as", [2, 3], [3, 2]):
        draw = book.draw(op)
        book.add(op, [draw.uniform(shape), draw.uniform(other)], grad=[True, False])
        book.add(op, [draw.integers(shape, 0, 9), draw.uniform(other)], grad=False)
    op = "repeat_interleave"
    for shape, repeats, dim in ([2, 3], [2, 0, 1], 1), ([2, 3], [2], 0), ([3], [1, 2, 3], None), ([0], [], 0), ([1, 2], [3], 0):
        args = {} if dim is None else {"dim": dim}
        book.add(op, [book.draw(op).uniform(shape), tensor(repeats, "i64")], args)
        book.add(op, [book.draw(op).integers(shape, 0, 9), tensor(repeats, "i32")], args, grad=False)
    for shape, repeats, args in ([2, 3], 2, {}), ([2, 3], 3, {"dim": -1}), ([2], 0, {"dim": 0}), ([], 2, {}):
        book.add(op, [book.draw(op).uniform(shape), None], {"repeats": repeats, **args})
    book.add("pad", [tensor([[NAN, INF], [-INF, -0.0]])], {"pad": [1, 1], "mode": "replicate"}, grad=False, note="extreme")
