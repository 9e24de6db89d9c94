#!/usr/bin/env python3
"""The workloads of `text.rs` in PyTorch on the first GPU, with a line of JSON for each: torch_text.py [--eager].

The model has a static cache, and torch.compile(mode="max-autotune") replays its steps as CUDA graphs; --eager runs it as it is.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, SIZE = 128256, 2048, 8192, 16, 32, 8, 64
EAGER = "--eager" in sys.argv


def report(workload, **figures):
    print(json.dumps({"workload": workload, **figures}), flush=True)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, 1e-5) for _ in range(2))

    def forward(self, x, cache, positions, mask, cos, sin):
        batch, steps, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).split([HEADS * SIZE, GROUPS * SIZE, GROUPS * SIZE], -1)
        q, k, v = (t.view(batch, steps, -1, SIZE).transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys, values = cache
        keys[:, :, positions], values[:, :, positions] = k, v
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, steps, -1))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, 1e-5)
        self.register_buffer("rates", 500000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE))

    def make_cache(self, batch, capacity):
        shape = (batch, GROUPS, capacity, SIZE)
        self.cache = [tuple(torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)) for _ in range(LAYERS)]

    def forward(self, tokens, positions):
        angles = positions[:, None].float() * self.rates
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        mask = None
        if tokens.shape[1] == 1:
            mask = torch.arange(self.cache[0][0].shape[2], device="cuda")[None, :] <= positions[:, None]
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, self.cache):
            x = block(x, cache, positions, mask, cos, sin)
        return F.linear(self.norm(x[:, -1]), self.embedding.weight)


@torch.no_grad()
def main():
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Llama().bfloat16().eval()
    kind = "eager" if EAGER else "compiled"
    report("env", torch=torch.__version__, gpu=torch.cuda.get_device_name(), kind=kind)

    def step(tokens, positions):
        return model(tokens, positions).argmax(-1, keepdim=True), positions + 1

    for batch, length in [(1, 128), (1, 4096), (32, 128)] if not EAGER else [(1, 128)]:
        torch._dynamo.reset()
        model.make_cache(batch, length + 252)
        run = step if EAGER else torch.compile(step, mode="max-autotune", fullgraph=True)
        token = torch.randint(VOCABULARY, (batch, 1), device="cuda")
        position = torch.tensor([length], device="cuda")
        for count in (20, 200):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                token, position = (t.clone() for t in run(token, position))
            torch.cuda.synchronize()
        ms = (time.perf_counter() - start) * 1e3 / count
        report(f"llama_1b_bf16_decode_{batch}x{length}", kind=kind, ms=ms, tokens_per_s=batch / ms * 1e3)
    for length in (512, 4096):
        torch._dynamo.reset()
        model.make_cache(1, length)
        run = model if EAGER else torch.compile(model, fullgraph=True)
        tokens, positions = torch.randint(VOCABULARY, (1, length), device="cuda"), torch.arange(length, device="cuda")
        taken = []
        for _ in range(15):
            start = time.perf_counter()
            run(tokens, positions)
            torch.cuda.synchronize()
            taken.append((time.perf_counter() - start) * 1e3)
        ms = statistics.median(taken[5:])
        report(f"llama_1b_bf16_prefill_{length}", kind=kind, ms=ms, tokens_per_s=length / ms * 1e3)


main()
