"""Convolutions and their transposes."""

import torch.nn.functional as F

RANKS = (1, 2, 3)
FUNCTIONS = {f"conv{kind}{rank}d": getattr(F, f"conv{kind}{rank}d") for kind in ("", "_transpose") for rank in RANKS}
NAMES = {name: ["self", "weight", "bias"] for name in FUNCTIONS}
SIZES = {1: (9,), 2: (4, 6), 3: (3, 3, 4)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 2, 1)}


def add_conv(book, rank):
    op, sizes, kernel = f"conv{rank}d", SIZES[rank], KERNELS[rank]

    def add(batch, c_in, c_out, args=None, groups=1, bias=False, sizes=sizes, kernel=kernel, dtype="f64", **more):
        draw, args = book.draw(op), dict(args or {})
        if groups != 1:
            args["groups"] = groups
        lead = [] if batch is None else [batch]
        x = draw.uniform([*lead, c_in, *sizes], dtype=dtype)
        w = draw.uniform([c_out, c_in // groups, *kernel], dtype=dtype)
        b = draw.uniform([c_out], dtype=dtype) if bias else None
        book.add(op, [x, w, b], args, **more)

    add(2, 2, 3)
    add(1, 2, 3, bias=True)
    add(None, 2, 2, {"padding": 1}, bias=True, note="no batch")
    add(1, 2, 3, {"stride": 2, "padding": 1})
    add(1, 2, 2, {"stride": [3, 2, 1][:rank], "padding": [1, 0, 2][:rank]})
    add(1, 2, 2, {"dilation": 2, "padding": 2})
    add(2, 4, 2, {"padding": 1}, groups=2, bias=True)
    add(1, 3, 3, {"padding": 1}, groups=3, note="depthwise")
    add(1, 2, 4, {"padding": 1, "stride": 2}, groups=2, note="depthwise, two kernels a channel")
    add(1, 1, 17, {"stride": 2, "padding": 1}, note="more channels than lanes")
    add(1, 9, 1, {"padding": 1})
    add(1, 2, 2, {"padding": "same"}, bias=True)
    add(1, 1, 2, {"padding": "same", "dilation": 2}, kernel=(2,) * rank, note="an odd padding")
    add(1, 2, 2, {"padding": "valid"})
    add(2, 3, 8, kernel=(1,) * rank, bias=True, note="one element")
    add(1, 3, 9, {"stride": 2}, kernel=(1,) * rank)
    add(1, 2, 2, {"stride": 5}, sizes=tuple(s + 2 for s in sizes), note="a stride beyond the windows")
    add(0, 2, 3, note="no images")
    add(2, 2, 9, {"padding": 1}, dtype="f32", bias=True)
    add(2, 3, 3, {"padding": 1}, dtype="f32", groups=3)
    for dtype in ("f16", "bf16"):
        add(1, 2, 9, {"padding": 1}, dtype=dtype, bias=True)
        add(1, 2, 2, {"padding": 1}, dtype=dtype, groups=2)
    if rank < 3:
        add(2, 8, 16, {"padding": 1}, sizes=(6,) * rank)


def add_transpose(book, rank):
    op, sizes, kernel = f"conv_transpose{rank}d", {1: (5,), 2: (3, 4), 3: (2, 3, 2)}[rank], {1: (3,), 2: (3, 2), 3: (2, 2, 2)}[rank]

    def add(batch, c_in, c_out, args=None, groups=1, bias=False, sizes=sizes, kernel=kernel, dtype="f64", **more):
        draw, args = book.draw(op), dict(args or {})
        if groups != 1:
            args["groups"] = groups
        lead = [] if batch is None else [batch]
        x = draw.uniform([*lead, c_in, *sizes], dtype=dtype)
        w = draw.uniform([c_in, c_out // groups, *kernel], dtype=dtype)
        b = draw.uniform([c_out], dtype=dtype) if bias else None
        book.add(op, [x, w, b], args, **more)

    add(2, 2, 3)
    add(None, 2, 3, bias=True)
    add(1, 2, 3, {"stride": 2, "padding": 1, "output_padding": 1}, bias=True)
    add(1, 2, 2, {"stride": [3, 2, 2][:rank], "padding": [1, 0, 1][:rank], "output_padding": [2, 1, 0][:rank]})
    add(1, 2, 2, {"dilation": 2, "output_padding": 1})
    add(1, 4, 2, {"stride": 2}, groups=2, bias=True)
    add(1, 3, 3, {"stride": 2, "padding": 1}, groups=3)
    add(1, 2, 9, {"stride": 2}, bias=True)
    add(1, 1, 2, {"stride": 4}, kernel=(2,) * rank, bias=True, note="places that no window reaches")
    add(1, 2, 9, kernel=(1,) * rank)
    add(2, 2, 3, {"padding": 1}, dtype="f32", bias=True)
    for dtype in ("f16", "bf16"):
        add(1, 2, 3, {"stride": 2}, dtype=dtype, bias=True)


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    for rank in RANKS:
        add_conv(book, rank)
        add_transpose(book, rank)
