"""The arguments that the ``repr`` of each layer shows, in PyTorch's format.

In the table, ``name`` shows the value alone, and ``name=`` the name and the value. ``?name`` shows both if the value is not the
default.
"""

from __future__ import annotations

_CONV = "in_channels out_channels kernel_size= stride= ?padding ?dilation ?output_padding ?groups ?bias ?padding_mode"
_RECURRENT = "input_size hidden_size ?proj_size ?num_layers ?bias ?batch_first ?dropout ?bidirectional"
_CELL = "input_size hidden_size ?bias ?nonlinearity"
_NORM = "num_features eps= momentum= affine= bias= track_running_stats="
_DROPOUT = "p= inplace="
_KINDS = {
    "Conv": _CONV, "ConvTranspose": _CONV, "BatchNorm": _NORM, "InstanceNorm": _NORM, "Dropout": _DROPOUT,
    "MaxPool": "kernel_size= stride= padding= dilation= ceil_mode=", "AvgPool": "kernel_size= stride= padding=",
    "LPPool": "norm_type= kernel_size= stride= ceil_mode=",
}
_SHOWN = {f"{kind}{rank}d": shown for kind, shown in _KINDS.items() for rank in (1, 2, 3)} | {
    "Linear": "in_features= out_features= bias=",
    "Bilinear": "in1_features= in2_features= out_features= bias=",
    "Embedding": "num_embeddings embedding_dim ?padding_idx ?max_norm ?norm_type ?scale_grad_by_freq",
    "EmbeddingBag": "num_embeddings embedding_dim mode= ?padding_idx",
    "LSTM": _RECURRENT, "GRU": _RECURRENT, "RNN": _RECURRENT, "LSTMCell": _CELL, "GRUCell": _CELL, "RNNCell": _CELL,
    "LayerNorm": "normalized_shape eps= elementwise_affine= bias=",
    "RMSNorm": "normalized_shape eps= elementwise_affine=",
    "GroupNorm": "num_groups num_channels eps= affine= bias=",
    "LocalResponseNorm": "size alpha= beta= k=",
    "Dropout": _DROPOUT, "AlphaDropout": _DROPOUT, "FeatureAlphaDropout": _DROPOUT,
    "Flatten": "start_dim= end_dim=",
    "Fold": "output_size= kernel_size= dilation= padding= stride=",
    "Unfold": "kernel_size= dilation= padding= stride=",
    "ELU": "alpha= ?inplace", "CELU": "alpha= ?inplace",
    "LeakyReLU": "negative_slope= ?inplace",
    "RReLU": "lower= upper= ?inplace",
    "GELU": "approximate=", "GLU": "dim=",
    "Hardshrink": "lambd", "Softshrink": "lambd",
    "Hardtanh": "min_val= max_val= ?inplace",
    "PReLU": "num_parameters=",
    "Softplus": "beta= threshold=",
}


def _same(value, default):
    """Whether a value equals the default. One number stands for all dimensions."""
    if isinstance(value, tuple) and isinstance(default, (tuple, int)):
        return set(value) == (set(default) if isinstance(default, tuple) else {default})
    return value == default


def _value(module, name):
    if name == "bias":
        return module._parameters.get("bias") is not None if "bias" in module._parameters else module.__dict__.get("bias", False)
    return getattr(module, name)


def _default(module, name):
    return next((p["default"] for p in getattr(module, "_params", ()) if p["name"] == name), True if name == "bias" else None)


def _as_shown(layer, name, value, default):
    """Returns a value in the form in which PyTorch's layer stores it."""
    if layer == "AvgPool1d" and isinstance(value, int):
        return (value,)
    if name == "stride" and value == ():
        return None
    stands_for_all = isinstance(value, tuple) and len(value) == 1 and value == default
    return value[0] if stands_for_all and not layer.startswith("Conv") and layer != "AvgPool1d" else value


def text(module, name):
    """Returns the arguments of a layer as text, or None if the table has no entry for its name."""
    if name not in _SHOWN:
        return _upsample(module) if name.startswith("Upsampl") else None
    parts = []
    for word in _SHOWN[name].split():
        own = word.strip("?=")
        if not hasattr(module, own) or (word.startswith("?") and _same(_value(module, own), _default(module, own))):
            continue
        value = _as_shown(name, own, _value(module, own), _default(module, own))
        # Convolutions show strings without quotes.
        shown = str(value) if name.startswith("Conv") else repr(value)
        parts.append(shown if word == own else f"{own}={shown}")
    return ", ".join(parts)


def _upsample(module):
    if module.scale_factor is None:
        return f"size={module.size}, mode={module.mode!r}"
    factor = module.scale_factor
    factor = tuple(map(float, factor)) if isinstance(factor, (tuple, list)) else float(factor)
    return f"scale_factor={factor}, mode={module.mode!r}"
