"""Losses beyond those of nn.py."""

import torch
import torch.nn.functional as F

from .core import HALVES, INF, NAN, tensor
from .nn import REDUCTIONS, widened


def ctc(x, targets, input_lengths, target_lengths, reduction="mean", **args):
    """PyTorch's gradient assumes inputs from a log_softmax. For other inputs it has an extra exp(x), which is removed here."""
    loss = F.ctc_loss(x, targets, input_lengths, target_lengths, reduction="none", **args)
    inside = torch.arange(x.shape[0])[:, None] < input_lengths.reshape(1, -1)
    extra = (x.exp() * inside.reshape([x.shape[0]] + [-1] * (x.dim() == 3) + [1])).sum((0, -1))
    extra = torch.where(loss.isfinite() & (loss != 0), extra, 0.0)
    loss = loss - (extra - extra.detach())
    if reduction == "mean":
        return (loss / target_lengths.clamp(min=1)).mean()
    return loss.sum() if reduction == "sum" else loss


def focal(x, t, alpha=0.25, gamma=2.0, reduction="none"):
    """torchvision's focal loss."""
    p = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    p_t = p * t + (1 - p) * (1 - t)
    loss = loss * (1 - p_t) ** gamma
    if alpha >= 0:
        loss = (alpha * t + (1 - alpha) * (1 - t)) * loss
    return {"none": lambda y: y, "mean": torch.mean, "sum": torch.sum}[reduction](loss)


def linear_cross_entropy(x, w, t, b=None, weight=None, **args):
    y = F.linear(x, w, b)
    rows = y.reshape(-1, y.shape[-1])
    target = t.reshape(rows.shape) if t.is_floating_point() else t.reshape(-1)
    loss = F.cross_entropy(rows, target, weight, **args)
    return loss.reshape(x.shape[:-1]) if args.get("reduction") == "none" else loss


FUNCTIONS = {
    "l1_loss": lambda x, t, w=None, **args: F.l1_loss(x, t, weight=w, **args),
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": lambda x, t, w=None, **args: F.huber_loss(x, t, weight=w, **args),
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": lambda x, t, w=None, p=None, **args: F.binary_cross_entropy_with_logits(x, t, w, pos_weight=p, **args),
    "kl_div": F.kl_div,
    "gaussian_nll_loss": F.gaussian_nll_loss,
    "poisson_nll_loss": F.poisson_nll_loss,
    "hinge_embedding_loss": F.hinge_embedding_loss,
    "cosine_embedding_loss": F.cosine_embedding_loss,
    "margin_ranking_loss": F.margin_ranking_loss,
    "triplet_margin_loss": F.triplet_margin_loss,
    "multi_margin_loss": lambda x, t, w=None, **args: F.multi_margin_loss(x, t, weight=w, **args),
    "multilabel_margin_loss": F.multilabel_margin_loss,
    "multilabel_soft_margin_loss": lambda x, t, w=None, **args: F.multilabel_soft_margin_loss(x, t, w, **args),
    "soft_margin_loss": F.soft_margin_loss,
    "sigmoid_focal_loss": focal,
    "ctc_loss": ctc,
    "linear_cross_entropy": linear_cross_entropy,
}
FUNCTIONS = {name: widened(function) for name, function in FUNCTIONS.items()}
PAIR = ["self", "target", "weight"]
NAMES = {
    **{name: PAIR for name in FUNCTIONS},
    "binary_cross_entropy_with_logits": ["self", "target", "weight", "pos_weight"],
    "gaussian_nll_loss": ["self", "target", "var"],
    "cosine_embedding_loss": ["self", "input2", "target"],
    "margin_ranking_loss": ["self", "input2", "target"],
    "triplet_margin_loss": ["self", "positive", "negative"],
    "ctc_loss": ["self", "targets", "input_lengths", "target_lengths"],
    "linear_cross_entropy": ["self", "linear_weight", "target", "linear_bias", "weight"],
}


def pairs(book, op, own=(-2.0, 2.0), target=(-2.0, 2.0), args=({},), weights=()):
    """Adds cases with all reductions and options, several shapes and dtypes, and weights of the given shapes."""
    for reduction in REDUCTIONS:
        for more in args:
            options = {"reduction": reduction, **more}
            for shape in ([2, 3], [], [4]):
                draw = book.draw(op)
                book.add(op, [draw.uniform(shape, *own), draw.uniform(shape, *target)], options)
            for weight in weights:
                draw = book.draw(op)
                inputs = [draw.uniform([2, 3], *own), draw.uniform([2, 3], *target), draw.positive(weight)]
                # PyTorch does not support this gradient.
                grad = [True, True, not op.startswith("binary_cross_entropy")]
                book.add(op, inputs, options, grad=grad, note="weights")
    for dtype in ("f32", *HALVES):
        draw = book.draw(op)
        inputs = [draw.uniform([2, 3], *own, dtype=dtype), draw.uniform([2, 3], *target, dtype=dtype)]
        book.add(op, inputs, {"reduction": "mean"})
    for reduction in ("sum", "none"):
        book.add(op, [tensor([]), tensor([])], {"reduction": reduction}, note="empty")
    draw = book.draw(op)
    book.add(op, [draw.uniform([3], *own), draw.uniform([3], *target)], {"reduction": "mean"}, grad=[True, False], note="target fixed")


def elementwise_cases(book):
    pairs(book, "l1_loss", weights=([2, 3],))
    pairs(book, "smooth_l1_loss", args=({}, {"beta": 0.7}, {"beta": 0.0}))
    pairs(book, "huber_loss", args=({}, {"delta": 0.7}), weights=([2, 3],))
    equal = tensor([1.0, 2.0, 3.0, INF]), tensor([1.0, 1.0, 4.0, 1.0])
    for op in ("smooth_l1_loss", "huber_loss"):
        book.add(op, [tensor([NAN, 1.0, INF]), tensor([1.0, NAN, 1.0])], {"reduction": "none"}, note="gradients at NaN")
    for op in ("l1_loss", "smooth_l1_loss", "huber_loss"):
        book.add(op, list(equal), {"reduction": "none"}, note="at the kinks")
    pairs(book, "binary_cross_entropy", (0.05, 0.95), (0.0, 1.0), weights=([2, 3], [3], [2, 1]))
    edges = [tensor([0.0, 1.0, 0.0, 1.0, 1e-30]), tensor([0.0, 1.0, 1.0, 0.0, 1.0])]
    book.add("binary_cross_entropy", edges, {"reduction": "none"}, grad=[True, False], note="certain", rtol=1e-7)
    op = "binary_cross_entropy_with_logits"
    pairs(book, op, (-3.0, 3.0), (0.0, 1.0), weights=([2, 3], [3]))
    for reduction in REDUCTIONS:
        for w, p in (None, [3]), ([2, 1], [2, 3]), (None, [1]):
            draw = book.draw(op)
            inputs = [draw.uniform([2, 3], -3.0, 3.0), draw.uniform([2, 3], 0.0, 1.0)]
            grad = [True, True] + [False] * (1 + (w is not None))
            book.add(op, inputs + [draw.positive(w) if w else None, draw.positive(p)], {"reduction": reduction}, grad=grad, note="positive weights")
    far = [tensor([0.0, 1000.0, -1000.0, INF, 50.0]), tensor([0.5, 1.0, 1.0, 1.0, 0.0])]
    book.add(op, far, {"reduction": "none"}, grad=False, note="far")
    book.add(op, [tensor([0.0, 800.0, -800.0]), tensor([0.5, 0.0, 1.0])], {"reduction": "none"}, note="far")
    for log in (False, True):
        pairs_of_kl(book, log)
    pairs(book, "poisson_nll_loss", (0.1, 2.0), (0.0, 4.0), args=({}, {"full": True}, {"log_input": False}, {"log_input": False, "eps": 0.1, "full": True}))
    op = "gaussian_nll_loss"
    for reduction in REDUCTIONS:
        for var in ([2, 3], [2], [2, 1]):
            for more in {}, {"full": True, "eps": 0.5}:
                draw = book.draw(op)
                inputs = [draw.uniform([2, 3]), draw.uniform([2, 3]), draw.positive(var)]
                book.add(op, inputs, {"reduction": reduction, **more})
    book.add(op, [tensor([1.0, 2.0]), tensor([0.0, 2.0]), tensor([0.0, 0.0])], {"reduction": "none"}, note="no variance")
    for dtype in ("f32", *HALVES):
        draw = book.draw(op)
        book.add(op, [draw.uniform([3], dtype=dtype), draw.uniform([3], dtype=dtype), draw.positive([3], dtype=dtype)])


def pairs_of_kl(book, log):
    target = (-2.0, -0.1) if log else (0.01, 1.0)
    for reduction in (*REDUCTIONS, "batchmean"):
        for shape in ([2, 3], [4], [2, 2, 2]):
            draw = book.draw("kl_div")
            book.add("kl_div", [draw.uniform(shape, -3.0, -0.1), draw.uniform(shape, *target)], {"reduction": reduction, "log_target": log})
    for dtype in ("f32", *HALVES):
        draw = book.draw("kl_div")
        book.add("kl_div", [draw.uniform([3], -3.0, -0.1, dtype=dtype), draw.uniform([3], *target, dtype=dtype)], {"log_target": log})
    if not log:
        book.add("kl_div", [tensor([-1.0, -2.0, -INF]), tensor([0.0, 1.0, 0.0])], {"reduction": "none"}, grad=False, note="zeros")
        book.add("kl_div", [tensor([-1.0, -2.0]), tensor([0.0, 1.0])], {"reduction": "none"}, grad=[True, False], note="zeros")


def signs(draw, shape):
    return draw.integers(shape, 0, 2) * 2 - 1


def margin_cases(book):
    for reduction in REDUCTIONS:
        options = {"reduction": reduction}
        for more in {}, {"margin": 0.5}:
            for shape in ([2, 3], []):
                draw = book.draw("hinge_embedding_loss")
                book.add("hinge_embedding_loss", [draw.uniform(shape), signs(draw, shape)], {**options, **more}, grad=[True, False])
                draw = book.draw("margin_ranking_loss")
                inputs = [draw.uniform(shape), draw.uniform(shape), signs(draw, shape)]
                book.add("margin_ranking_loss", inputs, {**options, **more}, grad=[True, True, False])
            for shape in ([3, 4], [4]):
                draw = book.draw("cosine_embedding_loss")
                inputs = [draw.uniform(shape), draw.uniform(shape), signs(draw, shape[:-1])]
                book.add("cosine_embedding_loss", inputs, {**options, **more}, grad=[True, True, False])
        for more in {}, {"margin": 0.3, "p": 1.0}, {"swap": True, "p": 3.0, "margin": 4.0}, {"eps": 0.1, "margin": 5.0}:
            for shape in ([3, 4], [4], [2, 2, 3]):
                draw = book.draw("triplet_margin_loss")
                book.add("triplet_margin_loss", [draw.uniform(shape) for _ in range(3)], {**options, **more})
        for more in {}, {"p": 2, "margin": 0.5}:
            for shape in ([3, 4], [4]):
                for weighted in (False, True):
                    draw = book.draw("multi_margin_loss")
                    inputs = [draw.uniform(shape), draw.integers(shape[:-1], 0, 4)] + ([draw.positive([4])] if weighted else [])
                    book.add("multi_margin_loss", inputs, {**options, **more}, grad=[True] + [False] * (len(inputs) - 1))
        for shape, target in ([4], [3, 0, -1, 1]), ([2, 4], [[1, -1, 0, 0], [2, 0, 3, 1]]), ([2, 3], [[-1, 0, 0], [0, 0, -1]]):
            draw = book.draw("multilabel_margin_loss")
            book.add("multilabel_margin_loss", [draw.uniform(shape), tensor(target, "i64")], options, grad=[True, False])
        for shape in ([2, 3], [3], [2, 2, 3]):
            for weighted in (False, True):
                op = "multilabel_soft_margin_loss"
                draw = book.draw(op)
                inputs = [draw.uniform(shape), draw.uniform(shape, 0.0, 1.0)] + ([draw.positive([3])] if weighted else [])
                book.add(op, inputs, options)
        draw = book.draw("soft_margin_loss")
        book.add("soft_margin_loss", [draw.uniform([2, 3]), signs(draw, [2, 3])], options, grad=[True, False])
        draw = book.draw("soft_margin_loss")
        book.add("soft_margin_loss", [draw.uniform([3]), draw.uniform([3])], options, grad=[True, False])
        for more in {}, {"alpha": -1.0, "gamma": 1.5}, {"alpha": 0.7, "gamma": 0.0}:
            draw = book.draw("sigmoid_focal_loss")
            book.add("sigmoid_focal_loss", [draw.uniform([2, 3], -3, 3), draw.uniform([2, 3], 0.0, 1.0)], {**options, **more})
    zeros = tensor([[0.0, 0.0], [1.0, 2.0]])
    book.add("cosine_embedding_loss", [zeros, tensor([[1.0, 1.0], [-2.0, 1.0]]), tensor([1, 1], "i64")], {"reduction": "none"}, grad=False, note="a vector of zeros")
    for dtype in ("f32", *HALVES):
        for op in ("hinge_embedding_loss", "soft_margin_loss"):
            draw = book.draw(op)
            book.add(op, [draw.uniform([4], dtype=dtype), signs(draw, [4])], grad=False)
        for op in ("multilabel_soft_margin_loss", "sigmoid_focal_loss"):
            draw = book.draw(op)
            book.add(op, [draw.uniform([2, 3], dtype=dtype), draw.uniform([2, 3], 0, 1, dtype=dtype)], grad=False)
        draw = book.draw("triplet_margin_loss")
        book.add("triplet_margin_loss", [draw.uniform([2, 3], dtype=dtype) for _ in range(3)], grad=False)
        draw = book.draw("multi_margin_loss")
        book.add("multi_margin_loss", [draw.uniform([2, 3], dtype=dtype), draw.integers([2], 0, 3)], grad=False)


def ctc_cases(book):
    op = "ctc_loss"
    grad = [True, False, False, False]
    i64 = lambda data: tensor(data, "i64")
    for reduction in REDUCTIONS:
        options = {"reduction": reduction}
        draw = book.draw(op)
        x = torch.log_softmax(draw.uniform([6, 3, 4]), -1)
        labels = i64([[1, 2, 2], [3, 1, 0], [2, 0, 0]])
        book.add(op, [x, labels, i64([6, 6, 4]), i64([3, 2, 1])], options, grad=grad, note="repeated labels")
        book.add(op, [x, i64([1, 1, 2, 3, 2]), i64([6, 5, 4]), i64([2, 2, 1])], options, grad=grad, note="labels in a row")
        book.add(op, [x, i64([[0, 1, 0], [2, 2, 0], [1, 0, 0]]), i64([6, 6, 6]), i64([3, 3, 0])], {**options, "blank": 3}, grad=grad, note="another blank, and no labels")
        book.add(op, [x, i64([[1, 1, 1], [3, 1, 1], [2, 1, 1]]), i64([4, 2, 6]), i64([3, 2, 1])], {**options, "zero_infinity": True}, grad=grad, note="too short for its labels")
        book.add(op, [x, i64([[1, 1, 1], [3, 1, 1], [2, 1, 1]]), i64([4, 2, 6]), i64([3, 2, 1])], options, grad=False, note="too short for its labels")
        draw = book.draw(op)
        x = torch.log_softmax(draw.uniform([5, 3]), -1)
        book.add(op, [x, i64([1, 2]), i64(5), i64(2)], options, grad=grad, note="one sequence")
    draw = book.draw(op)
    x = torch.log_softmax(draw.uniform([30, 2, 5]) * 10, -1)
    book.add(op, [x, i64([[1, 2, 3, 4, 1, 1], [4, 4, 4, 1, 2, 3]]), i64([30, 25]), i64([6, 5])], {"reduction": "none"}, grad=grad, note="longer")
    for dtype in ("f32",):
        x = torch.log_softmax(draw.uniform([4, 1, 3]), -1).to(torch.float32)
        book.add(op, [x, i64([[1, 2]]), i64([4]), i64([2])], grad=grad)


def linear_cases(book):
    op = "linear_cross_entropy"
    for reduction in REDUCTIONS:
        for shape in ([4, 3], [2, 2, 3], [3]):
            for biased in (False, True):
                for more in {}, {"ignore_index": 1, "label_smoothing": 0.2}:
                    draw = book.draw(op)
                    y = draw.integers(shape[:-1], 0, 5)
                    if y.numel() > 1:
                        y.view(-1)[0], y.view(-1)[1] = 0, 1
                    elif more:
                        y.fill_(2)
                    inputs = [draw.uniform(shape), draw.uniform([5, 3]), y, draw.uniform([5]) if biased else None]
                    given = [t for t in inputs if t is not None]
                    if more:
                        inputs = inputs + [draw.positive([5])]
                        given = given + inputs[-1:]
                    grad = [t.is_floating_point() for t in given]
                    if more:
                        grad[-1] = False
                    book.add(op, inputs, {"reduction": reduction, **more}, grad=grad)
        draw = book.draw(op)
        p = torch.softmax(draw.uniform([2, 2, 4]), -1).round(decimals=4)
        book.add(op, [draw.uniform([2, 2, 3]), draw.uniform([4, 3]), p], {"reduction": reduction, "label_smoothing": 0.1}, note="probabilities")
    for dtype in ("f32",):
        draw = book.draw(op)
        book.add(op, [draw.uniform([4, 3], dtype=dtype), draw.uniform([5, 3], dtype=dtype), draw.integers([4], 0, 5)])


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    elementwise_cases(book)
    margin_cases(book)
    ctc_cases(book)
    linear_cases(book)
