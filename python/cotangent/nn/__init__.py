"""Layers, losses and containers: PyTorch's ``torch.nn``.

    >>> import cotangent as ct
    >>> model = ct.nn.Sequential(ct.nn.Linear(4, 8), ct.nn.ReLU(), ct.nn.Linear(8, 3))
    >>> loss = ct.nn.CrossEntropyLoss()(model(ct.randn(5, 4)), ct.tensor([0, 1, 2, 1, 0]))
    >>> loss.backward()
    >>> model[0].weight.grad.shape
    cotangent.Size([8, 4])
"""

from __future__ import annotations

from . import functional, init, layers, parameter, utils  # noqa: F401
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from .losses import Bilinear, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d, TripletMarginWithDistanceLoss, Unfold, UpsamplingBilinear2d, UpsamplingNearest2d  # noqa: F401
from .module import Module  # noqa: F401
from .parallel import DataParallel  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401

globals().update(layers.CLASSES)

from . import lazy  # noqa: E402

globals().update(lazy.LAZY)
from .lazy import UninitializedParameter  # noqa: E402, F401

from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell  # noqa: E402, F401
from .transformer import (  # noqa: E402, F401
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)


def __getattr__(name: str):
    if name in ("modules", "common_types"):
        import importlib

        return importlib.import_module("cotangent.nn." + name)
    raise AttributeError(f"module 'cotangent.nn' has no attribute {name!r}")
