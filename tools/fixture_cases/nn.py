"""Losses, linear, layer_norm, and deterministic cases of dropout."""

import torch
import torch.nn.functional as F

from .core import HALVES, INF, NAN, tensor


def widened(function):
    """Computes a half-precision loss in f32, and rounds it once."""
    halves = (torch.float16, torch.bfloat16)
    wide = lambda t: t.float() if isinstance(t, torch.Tensor) and t.dtype in halves else t

    def loss(*inputs, **args):
        floats = {t.dtype for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point()}
        result = function(*map(wide, inputs), **args)
        return result.to(floats.pop()) if len(floats) == 1 and floats <= set(halves) else result

    return loss


FUNCTIONS = {
    "scaled_dot_product_attention": lambda q, k, v, mask=None, window=None, **args: attention(q, k, v, mask, window, **args),
    "mse_loss": widened(lambda x, t, w=None, **args: F.mse_loss(x, t, weight=w, **args)),
    "cross_entropy": widened(F.cross_entropy),
    "nll_loss": widened(F.nll_loss),
    "linear": F.linear,
    "layer_norm": lambda x, w, b, normalized_shape, eps: F.layer_norm(x, normalized_shape, w, b, eps),
    "dropout": F.dropout,
}
NAMES = {
    "scaled_dot_product_attention": ["self", "key", "value", "attn_mask"],
    "mse_loss": ["self", "target", "weight"],
    "cross_entropy": ["self", "target", "weight"],
    "nll_loss": ["self", "target", "weight"],
    "linear": ["self", "weight", "bias"],
    "layer_norm": ["self", "weight", "bias"],
}
REDUCTIONS = ("none", "mean", "sum")


def attention(q, k, v, mask, window, is_causal=False, **args):
    """Attention with a window, as a mask in PyTorch."""
    if window is None:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, **args)
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    seen = (i - j).abs() <= window
    seen = seen & (j <= i) if is_causal else seen
    if mask is not None and mask.dtype != torch.bool:
        seen = mask.masked_fill(~seen, -INF)
    elif mask is not None:
        seen = seen & mask
    return F.scaled_dot_product_attention(q, k, v, seen, **args)


def mse_cases(book):
    for reduction in REDUCTIONS:
        for shape in ([5], [2, 3], [2, 1, 3], []):
            draw = book.draw("mse_loss")
            book.add("mse_loss", [draw.uniform(shape), draw.uniform(shape)], {"reduction": reduction})
        for dtype in ("f32", *HALVES):
            draw = book.draw("mse_loss")
            book.add("mse_loss", [draw.uniform([3, 4], dtype=dtype), draw.uniform([3, 4], dtype=dtype)], {"reduction": reduction})
    book.add("mse_loss", [tensor([]), tensor([])], {"reduction": "sum"}, note="empty")
    book.add("mse_loss", [tensor([]), tensor([])], {"reduction": "mean"}, grad=False, note="empty")
    draw = book.draw("mse_loss")
    book.add("mse_loss", [draw.uniform([4]), draw.uniform([4])], {"reduction": "mean"}, grad=[True, False], note="target fixed")
    for reduction in REDUCTIONS:
        draw = book.draw("mse_loss")
        book.add("mse_loss", [draw.uniform([2, 3]), draw.uniform([2, 3]), draw.positive([2, 3])], {"reduction": reduction}, note="weights")


SHAPES = [([4, 3], [4]), ([2, 3, 4], [2, 4]), ([2, 3, 2, 2], [2, 2, 2]), ([3], [])]


def options(smoothing=0.0, ignore=-100, reduction="mean"):
    return {"ignore_index": ignore, "label_smoothing": smoothing, "reduction": reduction}


def only_nll(args):
    return {k: v for k, v in args.items() if k != "label_smoothing"}


def class_cases(book):
    """Cases with class indices as targets, and the same cases for nll_loss, without label smoothing."""
    for shape, target in SHAPES:
        classes = shape[1] if len(shape) > 1 else shape[0]
        for reduction in REDUCTIONS:
            for weighted in (False, True):
                for ignore in (-100, 1):
                    if len(shape) == 4 and (weighted != (ignore == 1)):
                        continue
                    if len(shape) == 1 and ignore == 1:
                        continue
                    draw = book.draw("cross_entropy")
                    x = draw.uniform(shape)
                    y = draw.integers(target, 0, classes)
                    if y.numel() > 1:
                        # At least one class that is not ignored, and one that may be ignored.
                        y.view(-1)[0], y.view(-1)[1] = 0, 1
                    inputs = [x, y] + ([draw.positive([classes])] if weighted else [])
                    grad = [True] + [False] * (len(inputs) - 1)
                    note = "weights" if weighted else None
                    smoothing = (0.0, 0.1) if ignore == 1 or len(shape) == 2 else (0.0,)
                    for s in smoothing:
                        book.add("cross_entropy", inputs, options(s, ignore, reduction), grad=grad, note=note)
                    logp = [torch.log_softmax(x, 1 if len(shape) > 1 else 0).round(decimals=4)] + inputs[1:]
                    book.add("nll_loss", logp, only_nll(options(0.0, ignore, reduction)), grad=grad, note=note)
    draw = book.draw("cross_entropy")
    x, y = draw.uniform([4, 3]), tensor([0, -100, 2, -100], "i64")
    ignored = tensor([-100, -100], "i64")
    for reduction in REDUCTIONS:
        for op, smooth, strip in (("cross_entropy", 0.2, dict), ("nll_loss", 0.0, only_nll)):
            book.add(op, [x, y], strip(options(smooth, -100, reduction)), grad=[True, False], note="-100 is ignored by default")
            book.add(op, [x[:2], ignored], strip(options(0.0, -100, reduction)), grad=False, note="all ignored")
    for reduction in REDUCTIONS:
        y = tensor([0, 2], "i64")
        book.add("cross_entropy", [x[:2], y], options(0.0, -1, reduction), grad=[True, False], note="nothing ignored")
        book.add("nll_loss", [x[:2], y], only_nll(options(0.0, -1, reduction)), grad=[True, False], note="nothing ignored")
        empty = [torch.zeros([0, 3], dtype=torch.float64), torch.zeros([0], dtype=torch.int64)]
        book.add("cross_entropy", empty, options(0.0, -100, reduction), grad=False, note="empty batch")
        book.add("nll_loss", empty, only_nll(options(0.0, -100, reduction)), grad=False, note="empty batch")
    for dtype in ("f32", *HALVES):
        for reduction in REDUCTIONS:
            draw = book.draw("cross_entropy")
            inputs = [draw.uniform([4, 5], dtype=dtype), draw.integers([4], 0, 5)]
            book.add("cross_entropy", inputs, options(0.1, -100, reduction))
            book.add("nll_loss", inputs, only_nll(options(0.0, -100, reduction)))
    far = tensor([[1000.0, 0.0, -1000.0], [-1000.0, 1000.0, 999.0], [1e300, -1e300, 0.0]])
    book.add("cross_entropy", [far, tensor([0, 2, 0], "i64")], options(0.0, -100, "none"), grad=[True, False], note="far from zero")
    bad = tensor([[INF, 0.0], [NAN, 0.0], [-INF, 0.0]])
    book.add("cross_entropy", [bad, tensor([1, 1, 1], "i64")], options(0.0, -100, "none"), grad=False, note="extreme")


def probability_cases(book):
    for shape, _ in SHAPES:
        dim = 1 if len(shape) > 1 else 0
        for reduction in REDUCTIONS:
            for weighted in (False, True):
                for smoothing in (0.0, 0.15):
                    if len(shape) != 2 and (smoothing > 0) != weighted:
                        continue
                    draw = book.draw("cross_entropy")
                    p = torch.softmax(draw.uniform(shape), dim).round(decimals=4)
                    inputs = [draw.uniform(shape), p] + ([draw.positive([shape[dim]])] if weighted else [])
                    grad = [True, True] + [False] * weighted
                    note = "probabilities" + (", weights" if weighted else "")
                    book.add("cross_entropy", inputs, options(smoothing, -100, reduction), grad=grad, note=note)
    draw = book.draw("cross_entropy")
    p = torch.softmax(draw.uniform([3, 4]), 1).round(decimals=4)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        inputs = [draw.uniform([3, 4]).to(dtype), p.to(dtype)]
        book.add("cross_entropy", inputs, options(0.0, -100, "mean"), note="probabilities")


def layer_cases(book):
    for biased in (False, True):
        draw = book.draw("linear")
        book.add("linear", [draw.uniform([2, 2, 3]), draw.uniform([3])] + ([draw.uniform([])] if biased else []), note="one output")
    for x, w, b in [([4, 3], [2, 3], [2]), ([3], [2, 3], [2]), ([2, 2, 3], [4, 3], [4]), ([0, 3], [2, 3], [2]), ([2, 1, 2, 3], [1, 3], [1]), ([2, 0], [3, 0], [3])]:
        for biased in (False, True):
            draw = book.draw("linear")
            book.add("linear", [draw.uniform(x), draw.uniform(w)] + ([draw.uniform(b)] if biased else []))
    for dtype in ("f32", *HALVES):
        draw = book.draw("linear")
        book.add("linear", [draw.uniform(s, dtype=dtype) for s in ([3, 4], [2, 4], [2])])
    draw = book.draw("linear")
    book.add("linear", [draw.uniform(s) for s in ([3, 4], [2, 4], [2])], grad=[False, True, True], note="input fixed")

    norms = [([4, 6], [6]), ([2, 3, 4], [4]), ([2, 3, 4], [3, 4]), ([5], [5]), ([2, 2, 2, 3], [2, 2, 3]), ([0, 3], [3])]
    for shape, normalized in norms:
        for weight, bias in (False, False), (True, True), (True, False):
            draw = book.draw("layer_norm")
            inputs = [draw.uniform(shape)] + [draw.uniform(normalized) if used else None for used in (weight, bias)]
            args = {"normalized_shape": normalized, "eps": 1e-5}
            book.add("layer_norm", inputs, args)
    args = {"normalized_shape": [4], "eps": 0.1}
    book.add("layer_norm", [book.draw("layer_norm").uniform([3, 4]), None, None], args, note="large eps")
    args = {"normalized_shape": [4], "eps": 1e-5}
    book.add("layer_norm", [tensor([[2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 3.0, 4.0]]), None, None], args, note="no variance")
    book.add("layer_norm", [tensor([[1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3]]), None, None], args, note="large mean", rtol=1e-8)
    args = {"normalized_shape": [4], "eps": 1e-5}
    for dtype in ("f32", *HALVES):
        draw = book.draw("layer_norm")
        book.add("layer_norm", [draw.uniform(s, dtype=dtype) for s in ([3, 4], [4], [4])], args)

    for p, training in (0.5, False), (0.0, True), (0.0, False), (1.0, True), (1.0, False):
        for shape in ([2, 3], []):
            book.add("dropout", [book.draw("dropout").uniform(shape)], {"p": p, "training": training})
    for dtype in ("f32", *HALVES):
        book.add("dropout", [book.draw("dropout").uniform([4], dtype=dtype)], {"p": 0.3, "training": False})


def attention_cases(book):
    name = "scaled_dot_product_attention"
    plain = {"is_causal": False, "scale": None}
    shapes = [([3, 4], [3, 4], [3, 4]), ([2, 3, 4], [2, 5, 4], [2, 5, 2]), ([2, 2, 5, 3], [2, 2, 5, 3], [2, 2, 5, 3]), ([70, 4], [66, 4], [66, 3])]
    for three in shapes:
        for args in plain, {"is_causal": True, "scale": None}, {"is_causal": False, "scale": 0.3}:
            draw = book.draw(name)
            book.add(name, [draw.uniform(s) for s in three], args)
    for mask in ([3, 5], [2, 1, 5]):
        draw = book.draw(name)
        inputs = [draw.uniform(s) for s in ([2, 3, 4], [2, 5, 4], [2, 5, 2])]
        book.add(name, [*inputs, draw.uniform(mask)], plain, note="a mask of floats")
        seen = draw.uniform(mask) > -0.3
        book.add(name, [*inputs, seen], plain, grad=[True, True, True, False], note="a mask of bools")
    draw = book.draw(name)
    inputs = [draw.uniform(s) for s in ([2, 4], [2, 4], [2, 3])]
    blind = tensor([[True, False], [False, False]])
    book.add(name, [*inputs, blind], plain, grad=[True, True, True, False], note="a query that sees nothing")
    draw = book.draw(name)
    book.add(name, [draw.uniform(s, dtype="f32") for s in ([2, 9, 8], [2, 9, 8], [2, 9, 8])], {"is_causal": True, "scale": None})
    for causal in (False, True):
        draw = book.draw(name)
        inputs = [draw.uniform(s) for s in ([5, 2], [5, 2], [5, 3])]
        book.add(name, inputs, {"is_causal": causal, "window": 1}, note="a window")
        book.add(name, [draw.uniform(s) for s in ([2, 4, 3, 2], [2, 2, 4, 2], [2, 2, 4, 3])], {"is_causal": causal, "enable_gqa": True}, note="groups of heads")
    for mask in ([3, 5], [2, 1, 3, 5], [4, 3, 5]):
        draw = book.draw(name)
        inputs = [draw.uniform(s) for s in ([2, 4, 3, 2], [2, 2, 5, 2], [2, 2, 5, 1])]
        book.add(name, [*inputs, draw.uniform(mask)], {"enable_gqa": True}, note="groups of heads and a mask")
        seen = draw.uniform(mask) > -1.0
        book.add(name, [*inputs, seen], {"enable_gqa": True}, grad=[True, True, True, False], note="groups of heads and a mask of bools")
    draw = book.draw(name)
    inputs = [draw.uniform(s) for s in ([2, 3, 4], [2, 5, 4], [2, 5, 2])]
    book.add(name, [*inputs, draw.uniform([3, 5])], {"window": 1}, note="a window and a mask")
    book.add(name, [*inputs, draw.uniform([3, 5]) > -0.5], {"window": 2}, grad=[True, True, True, False], note="a window and a mask")


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    mse_cases(book)
    class_cases(book)
    probability_cases(book)
    layer_cases(book)
    attention_cases(book)
