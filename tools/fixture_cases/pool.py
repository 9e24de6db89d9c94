"""Pooling, unpooling, and unfold and fold of images."""

import torch
import torch.nn.functional as F

from .core import INF, NAN, tensor

RANKS = (1, 2, 3)
SIZES = {1: (9,), 2: (5, 7), 3: (3, 4, 5)}


def with_indices(f):
    return lambda x, *sizes, **args: f(x, *sizes, **args, return_indices=True)


def adaptive(f):
    def call(x, output_size, **more):
        sizes = [None if s == -1 else s for s in output_size] if isinstance(output_size, list) else output_size
        return f(x, sizes, **more)

    return call


def fractional(f):
    return lambda x, samples, **args: f(x, _random_samples=samples, **args)


FUNCTIONS = {"im2col": F.unfold, "fold": F.fold}
for rank in RANKS:
    largest, near = getattr(F, f"max_pool{rank}d"), getattr(F, f"adaptive_max_pool{rank}d")
    FUNCTIONS |= {
        f"max_pool{rank}d": largest,
        f"max_pool{rank}d_with_indices": with_indices(largest),
        f"avg_pool{rank}d": getattr(F, f"avg_pool{rank}d"),
        f"lp_pool{rank}d": getattr(F, f"lp_pool{rank}d"),
        f"adaptive_max_pool{rank}d": adaptive(near),
        f"adaptive_max_pool{rank}d_with_indices": adaptive(with_indices(near)),
        f"adaptive_avg_pool{rank}d": adaptive(getattr(F, f"adaptive_avg_pool{rank}d")),
        f"max_unpool{rank}d": getattr(F, f"max_unpool{rank}d"),
    }
    if rank > 1:
        some = getattr(F, f"fractional_max_pool{rank}d")
        FUNCTIONS[f"fractional_max_pool{rank}d"] = fractional(some)
        FUNCTIONS[f"fractional_max_pool{rank}d_with_indices"] = fractional(with_indices(some))
NAMES = {name: ["self", "_random_samples"] for name in FUNCTIONS if "fractional" in name}
NAMES |= {name: ["self", "indices"] for name in FUNCTIONS if "unpool" in name}


def add_windows(book, rank):
    sizes = SIZES[rank]
    for op in (f"max_pool{rank}d", f"max_pool{rank}d_with_indices"):
        def add(shape, args, make="distinct", **more):
            book.add_if_defined(op, [getattr(book.draw(op), make)(shape, dtype=more.pop("dtype", "f64"))], args, **more)

        add([2, 2, *sizes], {"kernel_size": 2})
        add([2, *sizes], {"kernel_size": [3, 2, 2][:rank]}, note="no batch")
        add([1, 2, *sizes], {"kernel_size": 3, "stride": 2, "padding": 1})
        add([1, 2, *sizes], {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True})
        add([1, 1, *sizes], {"kernel_size": 2, "stride": 2, "ceil_mode": True})
        add([1, 1, *sizes], {"kernel_size": 2, "dilation": 2, "stride": 1, "padding": 1})
        add([1, 1, *sizes], {"kernel_size": [3, 2, 1][:rank], "stride": [1, 2, 3][:rank], "padding": [1, 1, 0][:rank]})
        add([1, 2, *sizes], {"kernel_size": 3, "stride": 1}, dtype="f32")
        add([0, 2, *sizes], {"kernel_size": 2}, make="uniform")
        for dtype in ("f16", "bf16"):
            add([1, 2, *sizes], {"kernel_size": 2}, dtype=dtype)
        ties = torch.ones(1, 1, *sizes, dtype=torch.float64)
        book.add(op, [ties], {"kernel_size": 3, "stride": 1}, note="ties")
        flat = torch.arange(ties.numel(), dtype=torch.float64) % 5
        for at, value in enumerate((NAN, -INF, INF, NAN)):
            flat[at] = value
        book.add(op, [flat.reshape(1, 1, *sizes)], {"kernel_size": 2, "stride": 1}, grad=False, note="extremes")
        book.add(op, [torch.full((1, 1, *sizes), -INF, dtype=torch.float64)], {"kernel_size": 2, "padding": 1}, grad=False)
    op = f"avg_pool{rank}d"
    for shape, args in (
        ([2, 2, *sizes], {"kernel_size": 2}), ([2, *sizes], {"kernel_size": 3, "stride": 1}), ([1, 2, *sizes], {"kernel_size": 3, "stride": 2, "padding": 1}),
        ([1, 1, *sizes], {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
        ([1, 1, *sizes], {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}),
        ([1, 1, *sizes], {"kernel_size": 3, "stride": 2, "ceil_mode": True, "count_include_pad": False}),
        ([1, 1, *sizes], {"kernel_size": [3, 2, 1][:rank], "stride": [1, 2, 3][:rank], "padding": [1, 1, 0][:rank]}), ([0, 2, *sizes], {"kernel_size": 2}),
    ):  # fmt: skip
        book.add(op, [book.draw(op).uniform(shape)], args)
    if rank > 1:
        book.add(op, [book.draw(op).uniform([1, 1, *sizes])], {"kernel_size": 2, "divisor_override": 3})
    book.add(op, [book.draw(op).uniform([1, 2, *sizes], dtype="f32")], {"kernel_size": 3, "stride": 2})
    for dtype in ("f16", "bf16"):
        book.add_if_defined(op, [book.draw(op).uniform([1, 2, *sizes], dtype=dtype)], {"kernel_size": 2})
    op = f"lp_pool{rank}d"
    for args in ({"norm_type": 2.0, "kernel_size": 2}, {"norm_type": 3.0, "kernel_size": 3, "stride": 1}, {"norm_type": 1.5, "kernel_size": 2, "ceil_mode": True}):
        book.add(op, [book.draw(op).positive([1, 2, *sizes])], args)
    book.add(op, [book.draw(op).positive([2, *sizes])], {"norm_type": 1.0, "kernel_size": [2, 2, 1][:rank] if rank > 1 else 2})


def add_adaptive(book, rank):
    sizes = SIZES[rank]
    for op in (f"adaptive_max_pool{rank}d", f"adaptive_max_pool{rank}d_with_indices", f"adaptive_avg_pool{rank}d"):
        for shape, output in (([2, 2, *sizes], 1), ([2, *sizes], 2), ([1, 1, *sizes], 3), ([1, 1, *sizes], 6), ([0, 2, *sizes], 2)):
            book.add(op, [book.draw(op).distinct(shape)], {"output_size": output})
        if rank > 1:
            book.add(op, [book.draw(op).distinct([1, 2, *sizes])], {"output_size": [-1, 2, 3][:rank]})
        book.add(op, [book.draw(op).distinct([1, 2, *sizes], dtype="f32")], {"output_size": 2})
        book.add_if_defined(op, [book.draw(op).distinct([1, 2, *sizes], dtype="bf16")], {"output_size": 2})


def add_others(book, rank):
    sizes = SIZES[rank]
    op = f"max_unpool{rank}d"
    for shape, args, more in (
        ([2, 2, *sizes], {"kernel_size": 2}, {"output_size": list(sizes)}), ([2, *sizes], {"kernel_size": 2}, {"output_size": list(sizes)}),
        ([1, 1, *sizes], {"kernel_size": 2, "stride": 3}, {"output_size": list(sizes)}),
    ):  # fmt: skip
        values, indices = FUNCTIONS[f"max_pool{rank}d_with_indices"](book.draw(op).distinct(shape), **args)
        book.add(op, [values, indices], {**args, **more})
    if rank == 1:
        return
    for op in (f"fractional_max_pool{rank}d", f"fractional_max_pool{rank}d_with_indices"):
        for batch, args in (
            (2, {"kernel_size": 2, "output_size": 2}), (1, {"kernel_size": 1, "output_size": [3, 4, 3][:rank]}),
            (1, {"kernel_size": [2, 3, 2][:rank], "output_size": [2, 2, 3][:rank]}), (1, {"kernel_size": 2, "output_size": 1}),
        ):  # fmt: skip
            draw = book.draw(op)
            book.add(op, [draw.distinct([batch, 2, *(s + 1 for s in sizes)]), draw.uniform([batch, 2, rank], 0, 1)], args, grad=[True, False])


def add_columns(book):
    for shape, args in (
        ([2, 2, 4, 5], {"kernel_size": [2, 3]}), ([2, 4, 5], {"kernel_size": 2}), ([1, 2, 4, 5], {"kernel_size": 2, "stride": 2}),
        ([1, 1, 5, 6], {"kernel_size": [3, 2], "dilation": 2, "padding": [1, 0]}), ([1, 1, 4, 5], {"kernel_size": 3, "padding": 1, "stride": [2, 1]}),
    ):  # fmt: skip
        book.add("im2col", [book.draw("im2col").uniform(shape)], args)
        x = F.unfold(book.draw("fold").uniform(shape), **args)
        book.add("fold", [x], {"output_size": shape[-2:], **args})
    book.add("im2col", [book.draw("im2col").uniform([1, 1, 4, 5], dtype="f32")], {"kernel_size": 2})
    book.add("im2col", [tensor([[[INF, NAN, 1.0], [2.0, -INF, 0.0]]])], {"kernel_size": 2, "padding": 1}, grad=False)


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    for rank in RANKS:
        add_windows(book, rank)
        add_adaptive(book, rank)
        add_others(book, rank)
    add_columns(book)
