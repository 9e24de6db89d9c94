"""Losses, distances, padding and other functions as modules."""

from __future__ import annotations

import inspect
import math

from .. import _cotangent as _c
from .._core import forms as _forms
from . import _shown
from .layers import CLASSES, _arguments, _signature
from .module import Module
from .parameter import Parameter

_ops = _c._functions

# PyTorch's classes, their operations, and the constructor's arguments in PyTorch's order. The defaults are the operations'.
_LOSSES = {
    "L1Loss": ("l1_loss", "reduction"),
    "MSELoss": ("mse_loss", "reduction"),
    "SmoothL1Loss": ("smooth_l1_loss", "reduction beta"),
    "HuberLoss": ("huber_loss", "reduction delta"),
    "CrossEntropyLoss": ("cross_entropy", "weight ignore_index reduction label_smoothing"),
    "NLLLoss": ("nll_loss", "weight ignore_index reduction"),
    "BCELoss": ("binary_cross_entropy", "weight reduction"),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", "weight reduction pos_weight"),
    "KLDivLoss": ("kl_div", "reduction log_target"),
    "PoissonNLLLoss": ("poisson_nll_loss", "log_input full eps reduction"),
    "GaussianNLLLoss": ("gaussian_nll_loss", "full eps reduction"),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", "margin reduction"),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", "margin reduction"),
    "MarginRankingLoss": ("margin_ranking_loss", "margin reduction"),
    "TripletMarginLoss": ("triplet_margin_loss", "margin p eps swap reduction"),
    "MultiMarginLoss": ("multi_margin_loss", "p margin weight reduction"),
    "MultiLabelMarginLoss": ("multilabel_margin_loss", "reduction"),
    "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss", "weight reduction"),
    "SoftMarginLoss": ("soft_margin_loss", "reduction"),
    "CTCLoss": ("ctc_loss", "blank reduction zero_infinity"),
    "PairwiseDistance": ("pairwise_distance", "p eps keepdim"),
    "CosineSimilarity": ("cosine_similarity", "dim eps"),
    "Fold": ("fold", "output_size kernel_size dilation padding stride"),
    "LPPool1d": ("lp_pool1d", "norm_type kernel_size stride ceil_mode"),
    "LPPool2d": ("lp_pool2d", "norm_type kernel_size stride ceil_mode"),
    "LPPool3d": ("lp_pool3d", "norm_type kernel_size stride ceil_mode"),
}
_OPS = {op["name"]: op for op in _c._ops() if op["name"] in {function for function, _ in _LOSSES.values()}}


def _defaults(function):
    """Returns the defaults of an operation's arguments, from its signature."""
    return {p.name: p.default for p in inspect.signature(_ops[function]).parameters.values()}


class _Function(Module):
    """A module that calls an operation with the arguments of the constructor."""

    _function: str
    _params: list

    def __init__(self, *args, **kwargs):
        super().__init__()
        own = _arguments(type(self).__name__, self._params, args, kwargs)
        for name, value in own.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *input):
        own = {p["name"]: getattr(self, p["name"]) for p in self._params}
        return getattr(_forms, self._function, _ops[self._function])(*input, **own)

    def extra_repr(self):
        known = _shown.text(self, type(self).__name__)
        if known is not None:
            return known
        shown = [p["name"] for p in self._params if p["required"]]
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)


def _class(name, function, names):
    defaults, op = _defaults(function), _OPS[function]
    types = {p["name"]: p["annotation"] for p in op["params"]}
    empty = inspect.Parameter.empty
    params = [{"name": own, "required": defaults[own] is empty, "annotation": types[own],
               "default": None if defaults[own] is empty else defaults[own]} for own in names.split()]

    def __init__(self, *args, **kwargs):
        _Function.__init__(self, *args, **kwargs)

    __init__.__signature__ = inspect.Signature(_signature(params))
    return type(name, (_Function,), {"_function": function, "_params": params, "__init__": __init__,
                                     "__doc__": op["docs"], "__module__": "cotangent.nn"})


CLASSES.update((name, _class(name, *own)) for name, own in _LOSSES.items())


class _Pad(Module):
    _mode, _rank = "constant", 1

    def __init__(self, padding):
        super().__init__()
        self.padding = (padding,) * (2 * self._rank) if isinstance(padding, int) else tuple(padding)

    def forward(self, input):
        return _ops["pad"](input, self.padding, self._mode, getattr(self, "value", 0.0))

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}" if hasattr(self, "value") else str(self.padding)


def _constant(self, padding, value):
    _Pad.__init__(self, padding)
    self.value = value


for _rank in (1, 2, 3):
    for _kind, _mode in ("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "replicate"), ("Circular", "circular"):
        _name = f"{_kind}Pad{_rank}d"
        CLASSES[_name] = type(_name, (_Pad,), {"_mode": _mode, "_rank": _rank, "__module__": "cotangent.nn", "__doc__":
                                               f"{_kind} padding of {_rank}-dimensional signals, at both ends of each dimension."})
    _name = f"ConstantPad{_rank}d"
    CLASSES[_name] = type(_name, (_Pad,), {"_rank": _rank, "__init__": _constant, "__module__": "cotangent.nn", "__doc__":
                                           f"Pads {_rank}-dimensional signals at both ends of each dimension with a constant."})


class Bilinear(Module):
    """A bilinear transformation of two inputs, ``x1 A x2 + b`` over their last dimensions."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        drawn = lambda *shape: Parameter(_ops["zeros"](shape, dtype=dtype, device=device))
        self.weight = drawn(out_features, in1_features, in2_features)
        self.register_parameter("bias", drawn(out_features) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new initial values for the parameters."""
        bound = 1 / math.sqrt(max(self.in1_features, 1))
        for parameter in self.parameters():
            parameter.data.uniform_(-bound, bound)

    def forward(self, input1, input2):
        return _ops["bilinear"](input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return _shown.text(self, "Bilinear")


class Unfold(Module):
    """Extracts the patches of images as columns."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        from .functional import unfold

        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return _shown.text(self, "Unfold")


class UpsamplingNearest2d(CLASSES["Upsample"]):
    """Resizes images by nearest-neighbour interpolation."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(CLASSES["Upsample"]):
    """Resizes images by bilinear interpolation with aligned corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)


class TripletMarginWithDistanceLoss(Module):
    """Triplet margin loss with a custom distance function."""

    def __init__(self, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        super().__init__()
        self.distance_function, self.margin, self.swap, self.reduction = distance_function, margin, swap, reduction

    def forward(self, anchor, positive, negative):
        from .functional import triplet_margin_with_distance_loss

        return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function,
                                                 margin=self.margin, swap=self.swap, reduction=self.reduction)


class _Unpool(Module):
    _rank = 1

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        spread = lambda value: (value,) * self._rank if isinstance(value, int) else tuple(value)
        self.kernel_size, self.padding = spread(kernel_size), spread(padding)
        self.stride = self.kernel_size if stride is None else spread(stride)

    def forward(self, input, indices, output_size=None):
        function = _ops[f"max_unpool{self._rank}d"]
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _unpool(rank):
    return type(f"MaxUnpool{rank}d", (_Unpool,), {"_rank": rank, "__module__": "cotangent.nn", "__doc__":
                                                 f"Partial inverse of ``MaxPool{rank}d``: puts the maxima back, and 0 elsewhere."})


MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = map(_unpool, (1, 2, 3))
