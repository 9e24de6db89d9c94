"""Channel normalisation, image resizing, rotary positions, embedding bags, and deterministic cases of dropout."""

import torch
import torch.nn.functional as F

from .core import HALVES, tensor


def batch_norm(x, mean=None, var=None, weight=None, bias=None, **args):
    # PyTorch modifies its arguments in place.
    mean, var = (None if t is None else t.clone() for t in (mean, var))
    return F.batch_norm(x, mean, var, weight, bias, **args)


def update(x, mean, var, weight=None, bias=None, **args):
    # Computed from the definition, to differentiate the statistics.
    dims = [d for d in range(x.dim()) if d != 1]
    momentum = args.get("momentum", 0.1)
    y = F.batch_norm(x, None, None, weight, bias, training=True, eps=args.get("eps", 1e-5))
    new_mean = mean * (1 - momentum) + momentum * x.mean(dims)
    new_var = var * (1 - momentum) + momentum * x.var(dims)
    kept = mean.detach().clone(), var.detach().clone()
    F.batch_norm(x, *kept, weight, bias, training=True, **args)
    assert torch.allclose(kept[0], new_mean) and torch.allclose(kept[1], new_var)
    return y, new_mean, new_var


def instance_norm(x, mean=None, var=None, weight=None, bias=None, **args):
    return F.instance_norm(x, mean, var, weight, bias, **args)


def rope(x, cos, sin, interleaved=False):
    n = cos.shape[-1]
    turned, rest = x[..., : 2 * n], x[..., 2 * n :]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        out = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        half = torch.cat([-turned[..., n:], turned[..., :n]], -1)
        out = turned * torch.cat([cos, cos], -1) + half * torch.cat([sin, sin], -1)
    return torch.cat([out, rest], -1)


def rope_cos_sin(x, size, base=10000.0):
    wide = x if x.is_floating_point() else x.double()
    rates = 1.0 / base ** (torch.arange(0, size, 2, dtype=wide.dtype) / size)
    angles = wide[..., None] * rates
    dtype = x.dtype if x.is_floating_point() else torch.float32
    return angles.cos().to(dtype), angles.sin().to(dtype)


FUNCTIONS = {
    "batch_norm": batch_norm,
    "batch_norm_with_update": update,
    "instance_norm": instance_norm,
    "group_norm": lambda x, w=None, b=None, num_groups=1, **args: F.group_norm(x, num_groups, w, b, **args),
    "rms_norm": lambda x, w=None, normalized_shape=None, **args: F.rms_norm(x, normalized_shape, w, **args),
    "local_response_norm": F.local_response_norm,
    "interpolate": F.interpolate,
    "grid_sample": lambda x, g, align_corners=False, **args: F.grid_sample(x, g, align_corners=align_corners, **args),
    "affine_grid": lambda x, align_corners=False, **args: F.affine_grid(x, align_corners=align_corners, **args),
    "rope": rope,
    "rope_cos_sin": rope_cos_sin,
    "embedding_bag": lambda x, w, o=None, p=None, **args: F.embedding_bag(x, w, o, per_sample_weights=p, **args),
    "bilinear": F.bilinear,
    "dropout1d": F.dropout1d,
    "dropout2d": F.dropout2d,
    "dropout3d": F.dropout3d,
    "alpha_dropout": F.alpha_dropout,
    "feature_alpha_dropout": F.feature_alpha_dropout,
}
CHANNELS = ["self", "running_mean", "running_var", "weight", "bias"]
NAMES = {
    **{name: ["self"] for name in FUNCTIONS},
    "batch_norm": CHANNELS,
    "batch_norm_with_update": CHANNELS,
    "instance_norm": CHANNELS,
    "group_norm": ["self", "weight", "bias"],
    "rms_norm": ["self", "weight"],
    "grid_sample": ["self", "grid"],
    "rope": ["self", "cos", "sin"],
    "embedding_bag": ["self", "weight", "offsets", "per_sample_weights"],
    "bilinear": ["self", "input2", "weight", "bias"],
}


def norm_cases(book):
    for shape in ([4, 3], [2, 3, 4], [2, 2, 2, 3], [2, 1, 1, 2, 2]):
        c = shape[1]
        for affine in (False, True):
            for op in ("batch_norm", "instance_norm"):
                if op == "instance_norm" and len(shape) == 2:
                    continue
                draw = book.draw(op)
                pair = [draw.uniform([c]), draw.uniform([c])] if affine else [None, None]
                own = {"training": True} if op == "batch_norm" else {}
                book.add(op, [draw.uniform(shape), None, None, *pair], {**own, "eps": 0.01 if affine else 1e-5})
                stats = [draw.uniform([c]), draw.positive([c])]
                given = {"training": False} if op == "batch_norm" else {"use_input_stats": False}
                grad = [True, False, False] + [True] * (2 * affine)
                book.add(op, [draw.uniform(shape), *stats, *pair], given, grad=grad, note="given statistics")
            draw = book.draw("batch_norm_with_update")
            pair = [draw.uniform([c]), draw.uniform([c])] if affine else [None, None]
            inputs = [draw.uniform(shape), draw.uniform([c]), draw.positive([c]), *pair]
            book.add("batch_norm_with_update", inputs, {"momentum": 0.3} if affine else {})
    for shape, groups in ([2, 4], 2), ([2, 6, 3], 3), ([1, 4, 2, 3], 1), ([2, 3, 4], 3), ([1, 4, 1, 1], 2):
        for affine in (False, True):
            draw = book.draw("group_norm")
            pair = [draw.uniform([shape[1]]), draw.uniform([shape[1]])] if affine else [None, None]
            book.add("group_norm", [draw.uniform(shape), *pair], {"num_groups": groups, **({"eps": 0.1} if affine else {})})
    for shape, normalized in ([4, 6], [6]), ([2, 3, 4], [3, 4]), ([5], [5]), ([0, 3], [3]):
        for weighted in (False, True):
            draw = book.draw("rms_norm")
            w = draw.uniform(normalized) if weighted else None
            book.add("rms_norm", [draw.uniform(shape), w], {"normalized_shape": normalized, **({"eps": 0.1} if weighted else {})})
    book.add("rms_norm", [tensor([[0.0, 0.0], [1e-9, 0.0]]), None], {"normalized_shape": [2]}, note="small")
    for dtype in ("f32", *HALVES):
        for op, args, weights in (
            ("batch_norm", {"training": True}, [None, None, [3], [3]]),
            ("instance_norm", {}, [None, None, [3], [3]]),
            ("group_norm", {"num_groups": 3}, [[3], [3]]),
            ("rms_norm", {"normalized_shape": [4]}, [[4]]),
            ("local_response_norm", {"size": 2}, []),
        ):
            draw = book.draw(op)
            x = draw.uniform([2, 3, 4], dtype=dtype)
            book.add(op, [x] + [None if s is None else draw.uniform(s, dtype=dtype) for s in weights], args)
    for shape, size in ([2, 5, 3], 1), ([2, 5, 3], 3), ([2, 4, 2, 2], 2), ([1, 3, 2], 7), ([1, 2, 2, 1, 2], 3):
        for more in {}, {"alpha": 0.5, "beta": 0.6, "k": 1.5}:
            draw = book.draw("local_response_norm")
            book.add("local_response_norm", [draw.uniform(shape)], {"size": size, **more})


def image_cases(book):
    op = "interpolate"
    shapes = [([2, 1, 5], [8], [0.7], ["linear"]), ([1, 2, 3, 4], [5, 3], [1.7, 2.0], ["bilinear", "bicubic"]), ([1, 1, 2, 3, 2], [3, 2, 4], [1.5, 0.8, 2.3], ["trilinear"])]
    for shape, size, factor, modes in shapes:
        for mode in ("nearest", "nearest-exact", "area", *modes):
            for args in ({"size": size}, {"scale_factor": factor}, {"scale_factor": factor, "recompute_scale_factor": True}):
                aligns = (None, False, True) if mode in modes else (None,)
                for align in aligns:
                    draw = book.draw(op)
                    # PyTorch's gradient for volumes with a scale factor does not match its values.
                    grad = False if mode == "nearest" and len(shape) == 5 and "scale_factor" in args else "auto"
                    book.add(op, [draw.uniform(shape)], {**args, "mode": mode, **({} if align is None else {"align_corners": align})}, grad=grad)
    for mode in ("bilinear", "bicubic"):
        for shape, size in ([1, 1, 7, 5], [3, 4]), ([1, 2, 3, 3], [5, 7]), ([1, 1, 9, 3], [2, 2]), ([1, 1, 4, 4], [4, 2]):
            for align in (False, True):
                draw = book.draw(op)
                book.add(op, [draw.uniform(shape)], {"size": size, "mode": mode, "align_corners": align, "antialias": True})
        draw = book.draw(op)
        book.add(op, [draw.uniform([1, 1, 6, 5])], {"scale_factor": [0.4, 1.3], "mode": mode, "antialias": True})
        for align in (False, True):
            draw = book.draw(op)
            book.add(op, [draw.uniform([1, 1, 3, 1])], {"size": [1, 4], "mode": mode, "align_corners": align}, note="sizes of 1")
    for size in (3, 7, 10, 13, 100):
        draw = book.draw(op)
        book.add(op, [draw.uniform([1, 1, 9], dtype="f32")], {"size": [size], "mode": "nearest"})
        book.add(op, [draw.uniform([1, 1, 9], dtype="f32")], {"size": [size], "mode": "nearest-exact"})
    for dtype in ("f32", *HALVES):
        for mode in ("bilinear", "nearest", "bicubic"):
            draw = book.draw(op)
            book.add(op, [draw.uniform([1, 1, 3, 3], dtype=dtype)], {"size": [5, 4], "mode": mode})
    op = "grid_sample"
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                draw = book.draw(op)
                inputs = [draw.uniform([2, 2, 3, 4]), draw.uniform([2, 2, 3, 2], -1.6, 1.6)]
                book.add(op, inputs, {"mode": mode, "padding_mode": padding, "align_corners": align})
                if mode != "bicubic":
                    draw = book.draw(op)
                    inputs = [draw.uniform([1, 2, 2, 3, 2]), draw.uniform([1, 1, 2, 2, 3], -1.6, 1.6)]
                    book.add(op, inputs, {"mode": mode, "padding_mode": padding, "align_corners": align})
                draw = book.draw(op)
                far = [draw.uniform([1, 1, 2, 3]), draw.uniform([1, 1, 3, 2], -9.0, 9.0)]
                book.add(op, far, {"mode": mode, "padding_mode": padding, "align_corners": align}, note="far outside")
    edges = tensor([[[[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [0.5, -0.5]]]])
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            args = {"padding_mode": padding, "align_corners": align}
            book.add(op, [book.draw(op).uniform([1, 1, 2, 3]), edges], args, grad=[True, False], note="edges")
            book.add(op, [book.draw(op).uniform([1, 1, 1, 1]), edges], args, grad=[True, False], note="one element")
    for dtype in ("f32",):
        draw = book.draw(op)
        book.add(op, [draw.uniform([1, 1, 3, 3], dtype=dtype), draw.uniform([1, 2, 2, 2], -1, 1, dtype=dtype)])
    for align in (False, True):
        for shape, size in ([2, 2, 3], [2, 1, 3, 4]), ([1, 3, 4], [1, 2, 2, 1, 3]), ([1, 2, 3], [1, 1, 1, 1]):
            draw = book.draw("affine_grid")
            book.add("affine_grid", [draw.uniform(shape)], {"size": size, "align_corners": align})


def other_cases(book):
    for interleaved in (False, True):
        for shape, angles in ([2, 3, 4], [3, 2]), ([3, 7], [1, 2]), ([6], [3]), ([2, 2, 3, 4], [2, 1, 3, 2]):
            draw = book.draw("rope")
            book.add("rope", [draw.uniform(s) for s in (shape, angles, angles)], {"interleaved": interleaved})
        for dtype in ("f32",):
            draw = book.draw("rope")
            book.add("rope", [draw.uniform(s, dtype=dtype) for s in ([3, 4], [3, 2], [3, 2])], {"interleaved": interleaved})
    for shape, size, more in ([4], 6, {}), ([2, 3], 2, {"base": 50.0}), ([], 4, {}):
        draw = book.draw("rope_cos_sin")
        book.add("rope_cos_sin", [draw.uniform(shape, 0.0, 9.0)], {"size": size, **more})
        book.add("rope_cos_sin", [draw.integers(shape, 0, 1000)], {"size": size, **more})
    op = "embedding_bag"
    matrix, vector = tensor([[0, 2, 4], [1, 3, 4]], "i64"), tensor([0, 2, 4, 1, 3, 1], "i64")
    offsets = tensor([0, 2, 2, 5], "i64")
    ends = tensor([0, 2, 2, 5, 6], "i64")
    for mode in ("sum", "mean", "max"):
        for padding in (None, 4, -4):
            more = {} if padding is None else {"padding_idx": padding}
            draw = book.draw(op)
            weight = draw.distinct([5, 3])
            book.add(op, [matrix, weight], {"mode": mode, **more}, grad=[False, True])
            book.add(op, [vector, weight, offsets], {"mode": mode, **more}, grad=[False, True, False])
            book.add(op, [vector, weight, ends], {"mode": mode, "include_last_offset": True, **more}, grad=[False, True, False])
        book.add(op, [tensor([[4, 4], [4, 1]], "i64"), weight], {"mode": mode, "padding_idx": 4}, grad=[False, True], note="nothing but padding")
    for padding in ({}, {"padding_idx": 1}):
        draw = book.draw(op)
        book.add(op, [matrix, draw.uniform([5, 3]), None, draw.uniform([2, 3])], {"mode": "sum", **padding}, grad=[False, True, True])
        draw = book.draw(op)
        book.add(op, [vector, draw.uniform([5, 3]), offsets, draw.uniform([6])], {"mode": "sum", **padding}, grad=[False, True, False, True])
    for a, b, w in ([3, 2], [3, 4], [5, 2, 4]), ([2, 1, 3], [2, 1, 2], [2, 3, 2]), ([2], [2], [3, 2, 2]):
        for biased in (False, True):
            draw = book.draw("bilinear")
            book.add("bilinear", [draw.uniform(s) for s in (a, b, w)] + ([draw.uniform(w[:1])] if biased else []))
    for dtype in ("f32",):
        draw = book.draw("bilinear")
        book.add("bilinear", [draw.uniform(s, dtype=dtype) for s in ([3, 2], [3, 4], [5, 2, 4], [5])])
    for op in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        shape = [2, 3, 2, 2] if op in ("dropout2d", "dropout3d") else [2, 3, 2]
        for p, training in (0.5, False), (0.0, True):
            book.add(op, [book.draw(op).uniform(shape)], {"p": p, "training": training})


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    norm_cases(book)
    image_cases(book)
    other_cases(book)
