"""Optimisers, gradient clipping and the training of a small network, step by step."""

import json

import torch
import torch.nn.functional as F

from .core import Draw, encode, header, number

STEPS = 5
SHAPES = [[2, 3], [3], []]

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd_dampening": ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd_weight_decay": ("SGD", {"lr": 0.1, "weight_decay": 0.05}),
    "sgd_everything": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam_betas": ("Adam", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3}),
    "adam_weight_decay": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 0.01}),
    "adamw_weight_decay": ("AdamW", {"lr": 0.02, "weight_decay": 0.3, "betas": [0.85, 0.99]}),
}
# All options are written, so that readers of the JSON do not need PyTorch's defaults.
DEFAULTS = {
    "SGD": {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    "Adam": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False},
    "AdamW": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False},
}


def build(kind, options, params):
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return getattr(torch.optim, kind)(params, **options)


def snapshot(params):
    return [encode(p) for p in params]


def optimizer_case(name, missing=False, schedule=None):
    kind, options = OPTIMIZERS[name]
    draw = Draw(f"train/{name}")
    params = [draw.uniform(s).requires_grad_() for s in SHAPES]
    options = {**DEFAULTS[kind], **options}
    case = {"name": name, "kind": kind, "options": options, "initial": snapshot(params)}
    if schedule:
        case["name"] += "_changing_lr"
        case["lr"] = schedule
    if missing:
        case["name"] += "_missing_gradient"
    optimizer = build(kind, options, params)
    steps = []
    for step in range(STEPS):
        if schedule:
            optimizer.param_groups[0]["lr"] = schedule[step]
        grads = [draw.uniform(s, -1, 1, decimals=3) for s in SHAPES]
        if missing and step in (0, 3):
            grads[1] = None
        for p, g in zip(params, grads):
            p.grad = None if g is None else g.clone()
        optimizer.step()
        steps.append({"grads": [None if g is None else encode(g) for g in grads], "params": snapshot(params)})
    case["steps"] = steps
    return case


def clip_cases():
    cases = []
    for max_norm, norm_type, missing in (1.0, 2.0, False), (100.0, 2.0, False), (0.5, 1.0, False), (0.5, float("inf"), False), (2.0, 3.0, False), (1.0, 2.0, True), (0.0, 2.0, False):
        draw = Draw(f"clip_norm/{max_norm}/{norm_type}")
        params = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
        grads = [draw.uniform(s) for s in SHAPES]
        if missing:
            grads[2] = None
        for p, g in zip(params, grads):
            p.grad = None if g is None else g.clone()
        total = torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
        cases.append(
            {
                "kind": "norm",
                "max_norm": max_norm,
                "norm_type": number(norm_type),
                "grads": [None if g is None else encode(g) for g in grads],
                "total_norm": encode(total),
                "clipped": [None if p.grad is None else encode(p.grad) for p in params],
            }
        )
    for clip in (0.5, 10.0):
        draw = Draw(f"clip_value/{clip}")
        params = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
        grads = [draw.uniform(s) for s in SHAPES]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        torch.nn.utils.clip_grad_value_(params, clip)
        cases.append({"kind": "value", "clip_value": clip, "grads": snapshot(grads), "clipped": [encode(p.grad) for p in params]})
    return cases


ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "gelu": F.gelu}
SIZES = [4, 8, 6, 3]
BATCH = 7


def mlp_case(name, activation, loss, kind, options):
    draw = Draw(f"mlp/{name}")
    x = draw.uniform([BATCH, SIZES[0]])
    target = draw.integers([BATCH], 0, SIZES[-1]) if loss == "cross_entropy" else draw.uniform([BATCH, SIZES[-1]])
    params = []
    for fan_in, fan_out in zip(SIZES, SIZES[1:]):
        params.append(draw.uniform([fan_out, fan_in], -0.8, 0.8).requires_grad_())
        params.append(draw.uniform([fan_out], -0.3, 0.3).requires_grad_())
    options = {**DEFAULTS[kind], **options}
    case = {"name": name, "activation": activation, "loss": loss, "kind": kind, "options": options}
    case |= {"x": encode(x), "target": encode(target), "initial": snapshot(params)}
    optimizer = build(kind, options, params)
    steps = []
    for _ in range(STEPS):
        h = x
        for i in range(0, len(params), 2):
            h = F.linear(h, params[i], params[i + 1])
            if i + 2 < len(params):
                h = ACTIVATIONS[activation](h)
        value = F.cross_entropy(h, target) if loss == "cross_entropy" else F.mse_loss(h, target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        steps.append({"loss": value.item(), "params": snapshot(params)})
    case["steps"] = steps
    return case


def write(folder):
    optimizers = [optimizer_case(name) for name in OPTIMIZERS]
    for name in ("sgd_everything", "adam_weight_decay", "adamw"):
        optimizers.append(optimizer_case(name, missing=True))
    for name in ("sgd_momentum", "adamw"):
        optimizers.append(optimizer_case(name, schedule=[0.1, 0.05, 0.2, 0.01, 0.1]))
    mlps = [
        mlp_case("relu_sgd", "relu", "cross_entropy", "SGD", {"lr": 0.3, "momentum": 0.9}),
        mlp_case("tanh_adamw", "tanh", "mse_loss", "AdamW", {"lr": 0.02, "weight_decay": 0.1}),
        mlp_case("gelu_adam", "gelu", "cross_entropy", "Adam", {"lr": 0.02}),
    ]
    parts = [f'"header":{json.dumps(header())}']
    for key, cases in (("optimizers", optimizers), ("clip", clip_cases()), ("mlp", mlps)):
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        parts.append(f'"{key}":[\n{lines}\n]')
    path = folder / "train.json"
    path.write_text("{" + ",\n".join(parts) + "}\n")
    return path
