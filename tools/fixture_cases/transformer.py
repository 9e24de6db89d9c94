"""Layers with several inputs: attention with masks, decoders and a whole transformer."""

import json

import torch

from .core import Draw, encode, encode_input, header

NEVER = [[False, True, False], [False, False, True]]


def attention(args, shapes, masks):
    return "MultiheadAttention", args, shapes, masks


SMALL = {"dim_feedforward": 3, "dropout": 0.0}
CASES = [
    attention({"embed_dim": 4, "num_heads": 2}, [[2, 2, 4], [3, 2, 4], [3, 2, 4]], {}),
    attention({"embed_dim": 4, "num_heads": 2, "kdim": 3, "vdim": 5}, [[2, 2, 4], [3, 2, 3], [3, 2, 5]], {"average_attn_weights": False}),
    attention({"embed_dim": 4, "num_heads": 2}, [[2, 2, 4], [3, 2, 4], [3, 2, 4]], {"attn_mask": NEVER}),
    attention({"embed_dim": 4, "num_heads": 2, "add_bias_kv": True, "add_zero_attn": True}, [[2, 2, 4], [3, 2, 4], [3, 2, 4]], {"key_padding_mask": NEVER}),
    attention({"embed_dim": 4, "num_heads": 2, "batch_first": True}, [[2, 2, 4], [2, 3, 4], [2, 3, 4]], {"key_padding_mask": NEVER, "attn_mask": [NEVER] * 4}),
    attention({"embed_dim": 4, "num_heads": 2}, [[2, 4], [3, 4], [3, 4]], {"key_padding_mask": NEVER[0], "attn_mask": NEVER}),
    attention({"embed_dim": 4, "num_heads": 2}, [[2, 2, 4], [3, 2, 4], [3, 2, 4]], {"attn_mask": [[0.5, -1.0, 0.0], [0.25, 0.0, 2.0]]}),
    ("TransformerDecoderLayer", {"d_model": 4, "nhead": 2, **SMALL}, [[2, 2, 4], [3, 2, 4]], {}),
    ("TransformerDecoderLayer", {"d_model": 4, "nhead": 2, "norm_first": True, "activation": "gelu", "batch_first": True, **SMALL}, [[2, 2, 4], [2, 3, 4]], {}),
    ("TransformerDecoderLayer", {"d_model": 4, "nhead": 1, **SMALL}, [[2, 2, 4], [3, 2, 4]], {"tgt_mask": [[False, True], [False, False]], "memory_mask": NEVER}),
    ("Transformer", {"d_model": 4, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 1, **SMALL}, [[3, 2, 4], [2, 2, 4]], {}),
]  # fmt: skip


def as_mask(value):
    """A mask as a tensor; other values are unchanged."""
    return torch.tensor(value, dtype=None if "True" in str(value) else torch.float64) if isinstance(value, list) else value


def run(key, name, args, shapes, masks):
    draw = Draw(key)
    layer = getattr(torch.nn, name)(**args).to(torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw.uniform(parameter.shape, -1.0, 1.0))
    inputs = [draw.uniform(shape).requires_grad_() for shape in shapes]
    result = layer(*inputs, **{k: as_mask(v) for k, v in masks.items()})
    output, weights = result if name == "MultiheadAttention" else (result, None)
    g = draw.uniform(output.shape, decimals=2)
    output.backward(g)
    case = {"layer": name, "args": args, "state": {k: encode_input(v) for k, v in layer.state_dict().items()}}
    case["inputs"] = [encode_input(x) for x in inputs]
    case["masks"] = {k: encode_input(as_mask(v)) if isinstance(v, list) else v for k, v in masks.items()}
    case |= {"output": encode(output), "cotangent": encode_input(g), "input_grads": [encode(x.grad) for x in inputs]}
    case["grads"] = {k: encode(p.grad) for k, p in layer.named_parameters()}
    if weights is not None:
        case["weights"] = encode(weights)
    return case


def write(folder):
    lines = ",\n".join(json.dumps(run(f"transformer/{k}", *case), separators=(",", ":")) for k, case in enumerate(CASES))
    path = folder / "transformer.json"
    path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{lines}\n]}}\n')
    return path
