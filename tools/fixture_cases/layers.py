"""Layers: outputs, gradients and buffers for given weights. One file for each layer."""

import json

import torch

from .core import Draw, encode, encode_input, header

# For each layer: its arguments by name, and the shape of its input.
LAYERS = {
    "Dropout": [({"p": 0.5}, [2, 3], {"training": False})],
    "ELU": [({}, [2, 3]), ({"alpha": 0.5}, [4])],
    "Embedding": [
        ({"num_embeddings": 5, "embedding_dim": 3}, [2, 2], {"integers": 5}),
        ({"num_embeddings": 3, "embedding_dim": 3, "padding_idx": 1, "scale_grad_by_freq": True}, [2, 4], {"integers": 3}),
    ],
    "Flatten": [({}, [2, 3, 2]), ({"start_dim": 0, "end_dim": 1}, [2, 3, 2])],
    "GELU": [({}, [2, 3]), ({"approximate": "tanh"}, [2, 3])],
    "Identity": [({}, [2, 3])],
    "LayerNorm": [
        ({"normalized_shape": [3]}, [2, 3]),
        ({"normalized_shape": [2, 3], "eps": 1e-3}, [4, 2, 3]),
        ({"normalized_shape": [3], "elementwise_affine": False}, [2, 3]),
        ({"normalized_shape": [3], "bias": False}, [2, 3]),
    ],
    "LeakyReLU": [({}, [2, 3]), ({"negative_slope": 0.2}, [3])],
    "Linear": [({"in_features": 3, "out_features": 2}, [4, 3]), ({"in_features": 3, "out_features": 2, "bias": False}, [3])],
    "LogSoftmax": [({"dim": 1}, [2, 3]), ({"dim": -2}, [2, 3])],
    "ReLU": [({}, [2, 3])],
    "SiLU": [({}, [2, 3])],
    "Sigmoid": [({}, [2, 3])],
    "Softmax": [({"dim": 1}, [2, 3]), ({"dim": -2}, [2, 3])],
    "Softplus": [({}, [2, 3]), ({"beta": 2.0, "threshold": 1.0}, [2, 3])],
    "Tanh": [({}, [2, 3])],
}
SEQUENCES = [
    ({"input_size": 3, "hidden_size": 2}, [4, 2, 3]),
    ({"input_size": 3, "hidden_size": 2, "num_layers": 2, "bidirectional": True, "batch_first": True}, [2, 4, 3]),
    ({"input_size": 3, "hidden_size": 2, "bias": False}, [4, 3]),
    ({"input_size": 3, "hidden_size": 2, "num_layers": 2, "dropout": 0.5}, [4, 2, 3], {"training": False}),
]
LAYERS |= {"RNN": SEQUENCES + [({"input_size": 3, "hidden_size": 2, "nonlinearity": "relu"}, [4, 2, 3])], "GRU": SEQUENCES}
LAYERS["LSTM"] = SEQUENCES + [({"input_size": 3, "hidden_size": 3, "proj_size": 2, "num_layers": 2}, [4, 2, 3])]

CELLS = [({"input_size": 3, "hidden_size": 2}, [4, 3]), ({"input_size": 3, "hidden_size": 2, "bias": False}, [3])]
LAYERS |= {"GRUCell": CELLS, "LSTMCell": CELLS, "RNNCell": CELLS + [({"input_size": 3, "hidden_size": 2, "nonlinearity": "relu"}, [4, 3])]}
LAYERS["MultiheadAttention"] = [
    ({"embed_dim": 4, "num_heads": 2}, [3, 2, 4]),
    ({"embed_dim": 4, "num_heads": 1, "bias": False, "batch_first": True}, [2, 3, 4]),
    ({"embed_dim": 4, "num_heads": 2, "add_bias_kv": True, "add_zero_attn": True}, [3, 2, 4]),
    ({"embed_dim": 4, "num_heads": 4, "dropout": 0.5}, [3, 4], {"training": False}),
]
LAYERS["TransformerEncoderLayer"] = [
    ({"d_model": 4, "nhead": 2, "dim_feedforward": 3, "dropout": 0.0}, [3, 2, 4]),
    ({"d_model": 4, "nhead": 2, "dim_feedforward": 3, "dropout": 0.0, "activation": "gelu", "norm_first": True, "batch_first": True}, [2, 3, 4]),
    ({"d_model": 4, "nhead": 1, "dim_feedforward": 3, "bias": False, "layer_norm_eps": 1e-3}, [3, 2, 4], {"training": False}),
]
STATES = [{"training": True}, {"training": False}]
for name, shape in ("BatchNorm1d", [4, 3]), ("BatchNorm1d", [2, 3, 2]), ("BatchNorm2d", [2, 3, 2, 2]), ("BatchNorm3d", [2, 3, 1, 2, 2]):
    options = {}, {"eps": 0.1, "momentum": 0.3}, {"affine": False}, {"track_running_stats": False}
    LAYERS.setdefault(name, []).extend(({"num_features": 3, **more}, shape, mode) for more in options for mode in STATES)
for name, shape in ("InstanceNorm1d", [2, 3, 4]), ("InstanceNorm1d", [3, 4]), ("InstanceNorm2d", [2, 3, 2, 2]), ("InstanceNorm3d", [2, 3, 1, 2, 2]):
    options = {}, {"eps": 0.1, "affine": True}, {"track_running_stats": True, "momentum": 0.3}
    LAYERS.setdefault(name, []).extend(({"num_features": 3, **more}, shape, mode) for more in options for mode in STATES)
LAYERS |= {
    "GroupNorm": [({"num_groups": 2, "num_channels": 4}, [2, 4, 3]), ({"num_groups": 1, "num_channels": 2, "affine": False, "eps": 0.1}, [2, 2, 2, 2])],
    "RMSNorm": [({"normalized_shape": [3]}, [4, 3]), ({"normalized_shape": [2, 3], "eps": 0.1, "elementwise_affine": False}, [2, 2, 3])],
    "LocalResponseNorm": [({"size": 3, "alpha": 0.5}, [2, 4, 3])],
    "Upsample": [({"scale_factor": [2.0, 1.5], "mode": "bilinear"}, [1, 1, 2, 3]), ({"size": [5]}, [1, 2, 3])],
    "PixelShuffle": [({"upscale_factor": 2}, [1, 4, 2, 1])],
    "PixelUnshuffle": [({"downscale_factor": 2}, [1, 1, 2, 4])],
    "ChannelShuffle": [({"groups": 2}, [1, 4, 2])],
    "Unflatten": [({"dim": 1, "unflattened_size": [2, 3]}, [2, 6])],
    "EmbeddingBag": [
        ({"num_embeddings": 5, "embedding_dim": 3}, [2, 2], {"integers": 5}),
        ({"num_embeddings": 5, "embedding_dim": 3, "mode": "sum", "padding_idx": 1}, [2, 4], {"integers": 5}),
        ({"num_embeddings": 5, "embedding_dim": 3, "mode": "max"}, [2, 2], {"integers": 5}),
    ],
    "PReLU": [({}, [2, 3]), ({"num_parameters": 3, "init": 0.1}, [2, 3])],
    "RReLU": [({}, [2, 3], {"training": False}), ({"lower": 0.2, "upper": 0.4}, [2, 3], {"training": False})],
    "GLU": [({}, [2, 4]), ({"dim": 0}, [2, 3])],
    "Threshold": [({"threshold": 0.1, "value": 3.0}, [2, 3])],
    "Softmin": [({"dim": 1}, [2, 3])],
    "Softmax2d": [({}, [1, 2, 2, 2]), ({}, [2, 2, 1])],
    "CELU": [({}, [2, 3]), ({"alpha": 0.5}, [2, 3])],
    "Hardtanh": [({}, [2, 3]), ({"min_val": -0.5, "max_val": 0.7}, [2, 3])],
    "Hardshrink": [({}, [2, 3]), ({"lambd": 0.3}, [2, 3])],
    "Softshrink": [({}, [2, 3]), ({"lambd": 0.3}, [2, 3])],
    "Dropout1d": [({}, [2, 3, 2], {"training": False})],
    "Dropout2d": [({"p": 0.3}, [2, 3, 2, 1], {"training": False})],
    "Dropout3d": [({}, [2, 3, 2, 1, 1], {"training": False})],
    "AlphaDropout": [({}, [2, 3], {"training": False})],
    "FeatureAlphaDropout": [({}, [2, 3, 2], {"training": False})],
    **{name: [({}, [2, 3])] for name in ("ReLU6", "SELU", "Mish", "Softsign", "Hardsigmoid", "Hardswish", "LogSigmoid", "Tanhshrink")},
}
CHANNELS = {"in_channels": 2, "out_channels": 4}
for n in (1, 2, 3):
    size = [2, 2, *[5, 4, 4][:n]]
    LAYERS[f"Conv{n}d"] = [
        ({**CHANNELS, "kernel_size": 3}, size),
        ({**CHANNELS, "kernel_size": [2, 3, 2][:n], "stride": 2, "padding": 1, "groups": 2, "bias": False}, size),
        ({**CHANNELS, "kernel_size": 3, "padding": "same", "dilation": 2}, size),
        ({**CHANNELS, "kernel_size": 3, "padding": 1, "padding_mode": "circular"}, size),
        ({**CHANNELS, "kernel_size": 2, "padding": [1, 2, 1][:n], "padding_mode": "replicate"}, size),
        ({**CHANNELS, "kernel_size": 2, "padding": "same", "padding_mode": "reflect"}, size),
    ]
    LAYERS[f"ConvTranspose{n}d"] = [
        ({**CHANNELS, "kernel_size": 3}, size),
        ({**CHANNELS, "kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "bias": False, "dilation": 2}, size),
    ]
    LAYERS[f"MaxPool{n}d"] = [({"kernel_size": 2}, size), ({"kernel_size": 3, "stride": 1, "padding": 1, "ceil_mode": True}, size)]
    LAYERS[f"AvgPool{n}d"] = [({"kernel_size": 2}, size), ({"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, size)]
    for kind in ("Avg", "Max"):
        LAYERS[f"Adaptive{kind}Pool{n}d"] = [({"output_size": 1}, size), ({"output_size": [3, 2, 2][:n]}, size)]
# Layers that are called with the same tensor several times.
INPUTS = {"MultiheadAttention": 3}


def first(result):
    """The output of a layer, without the last state of recurrent layers."""
    return result[0] if isinstance(result, tuple) else result


def run(name, key, args, shape, training=True, integers=0, around=None):
    draw = Draw(key)
    tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in args.items()}
    layer = getattr(torch.nn, name)(**tuples).to(torch.float64)
    if around:
        parametrization, options = around
        layer = getattr(torch.nn.utils.parametrizations, parametrization)(layer, **options)
    layer.train(training)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw.uniform(parameter.shape, -1.0, 1.0))
        if around and parametrization == "spectral_norm":
            # The initial values of these vectors do not depend on our generator.
            for vector in layer.buffers():
                vector.copy_(draw.uniform(vector.shape, 0.1, 1.0))
    state = {k: encode_input(v.clone()) for k, v in layer.state_dict().items()}
    x = draw.integers(shape, 0, integers) if integers else draw.uniform(shape).requires_grad_()
    y = first(layer(*[x] * INPUTS.get(name, 1)))
    case = {"args": args, "training": training, "state": state, "input": encode_input(x), "output": encode(y)}
    if y.requires_grad:
        g = draw.uniform(y.shape, decimals=2)
        y.backward(g)
        case["cotangent"] = encode_input(g)
        if x.requires_grad:
            case["input_grad"] = encode(x.grad)
        case["grads"] = {k: encode(p.grad) for k, p in layer.named_parameters()}
    if around:
        case |= {"layer": name, "parametrization": parametrization, "options": options}
    if name == "Hardsigmoid":
        # PyTorch rounds 1/6 to f32.
        case["rtol"] = 1e-6
    # The buffers after the call.
    buffers = dict(layer.named_buffers())
    if buffers:
        case["buffers"] = {k: encode(v) for k, v in buffers.items()}
    return case


# Layers with a parametrized weight.
AROUND = [
    (name, args, shape, {"training": training, "around": around})
    for name, args, shape in (
        ("Linear", {"in_features": 3, "out_features": 2}, [4, 3]),
        ("Conv2d", {**CHANNELS, "kernel_size": 2, "bias": False}, [2, 2, 3, 3]),
        ("ConvTranspose1d", {**CHANNELS, "kernel_size": 2}, [2, 2, 3]),
    )
    for around in (
        ("weight_norm", {}),
        ("weight_norm", {"dim": None}),
        ("weight_norm", {"dim": 1}),
        ("spectral_norm", {}),
        ("spectral_norm", {"n_power_iterations": 3, "eps": 0.1}),
    )
    for training in (True, False)
]


def write_cases(path, cases):
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
    return path


def write(folder):
    (folder / "layers").mkdir(exist_ok=True)
    paths = []
    for name, cases in LAYERS.items():
        done = [run(name, f"layers/{name}/{k}", args, shape, **(more[0] if more else {})) for k, (args, shape, *more) in enumerate(cases)]
        paths.append(write_cases(folder / "layers" / f"{name}.json", done))
    around = [run(name, f"parametrizations/{k}", args, shape, **more) for k, (name, args, shape, more) in enumerate(AROUND)]
    return [*paths, write_cases(folder / "parametrizations.json", around)]
