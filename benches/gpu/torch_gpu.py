#!/usr/bin/env python3
"""The workloads of `main.rs` in PyTorch on the first GPU, with a line of JSON for each: torch_gpu.py [--compile] [names].

With --compile, runs only those that torch.compile speeds up. `breadth` and `networks` are groups of single operations.
"""
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

# The folder of `peers/breadth.py` comes last, because its `torch.py` would shadow PyTorch.
sys.path.append(str(Path(__file__).resolve().parent.parent / "peers"))
import breadth
import networks

GPU = "cuda"
NAMES = [name for name in sys.argv[1:] if not name.startswith("-")]
COMPILE = "--compile" in sys.argv


def report(workload, **figures):
    print(json.dumps({"workload": workload, **figures}), flush=True)


def milliseconds(times, call):
    """The median time of a call, including the GPU's work, after a second of warm-up."""
    begin, calls = time.perf_counter(), 0
    while calls < 5 or time.perf_counter() - begin < 1.0:
        call()
        torch.cuda.synchronize()
        calls += 1
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def normal(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, device=GPU, dtype=dtype, requires_grad=grad)


def forget(*tensors):
    for tensor in tensors:
        tensor.grad = None


def copy_bandwidth():
    x, y = torch.zeros(2**30, device=GPU), torch.zeros(2**30, device=GPU)
    report("copy_bw", TBps=8 * 2**30 / milliseconds(20, lambda: y.copy_(x)) / 1e9)


def matmul():
    n = 8192
    kinds = (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32), ("tf32", torch.float32))
    for name, dtype in kinds:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
        report(f"matmul_8192_{name}", TFLOPs=2 * n**3 / milliseconds(10, lambda: a @ b) / 1e9)
    torch.backends.cuda.matmul.allow_tf32 = False


def overhead():
    c, b = torch.full((1,), 0.999, device=GPU), torch.full((1,), 1e-3, device=GPU)

    def chain():
        z = torch.ones(1, device=GPU, requires_grad=True)
        for _ in range(500):
            z = z * c + b
        z.sum().backward()

    report("overhead", ns_per_op=milliseconds(20, chain) * 1e6 / 1000)


def mlp_small():
    sizes = ((784, 128), (128, 64), (64, 10))
    layers = [nn.Linear(*sizes[0]), nn.ReLU(), nn.Linear(*sizes[1]), nn.ReLU(), nn.Linear(*sizes[2])]
    model = nn.Sequential(*layers).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    x, y = normal(32, 784), torch.randint(0, 10, (32,), device=GPU)

    def loss(x, y):
        return F.cross_entropy(model(x), y)

    if COMPILE:
        loss = torch.compile(loss, mode="reduce-overhead")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(x, y).backward()
        optimizer.step()

    report("mlp_small", us_per_step=milliseconds(50, step) * 1e3)


def elementwise():
    a, b, c = (normal(8192, 8192, grad=True) for _ in range(3))

    def formula(a, b, c):
        return (torch.tanh(a * b + c) * a).sum()

    if COMPILE:
        formula = torch.compile(formula)

    def both():
        forget(a, b, c)
        formula(a, b, c).backward()

    report("elementwise_64M_f32", ms=milliseconds(20, both))


def cross_entropy():
    logits = normal(8192, 50257, dtype=torch.bfloat16, grad=True)
    target = torch.randint(0, 50257, (8192,), device=GPU)
    loss = torch.compile(F.cross_entropy) if COMPILE else F.cross_entropy

    def both():
        forget(logits)
        loss(logits, target).backward()

    report("xent_8192x50257_bf16", ms=milliseconds(20, both))


def layer_norm():
    norm = nn.LayerNorm(768).to(GPU).bfloat16()
    x, g = normal(32768, 768, dtype=torch.bfloat16, grad=True), normal(32768, 768, dtype=torch.bfloat16)
    forward = torch.compile(norm) if COMPILE else norm

    def both():
        forget(x, norm.weight, norm.bias)
        forward(x).backward(g)

    report("layernorm_32768x768_bf16", ms=milliseconds(20, both))


def attention():
    half = torch.bfloat16
    sizes = ((8, 12, 1024, 64, half), (4, 16, 4096, 64, half), (4, 16, 4096, 128, half), (4, 16, 2048, 64, torch.float32))
    for b, h, t, d, dtype in sizes:
        q, k, v = (normal(b, h, t, d, dtype=dtype, grad=True) for _ in range(3))
        g = normal(b, h, t, d, dtype=dtype)

        def both():
            forget(q, k, v)
            F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(g)

        def forward():
            with torch.no_grad():
                F.scaled_dot_product_attention(q, k, v, is_causal=True)

        name = "bf16" if dtype == half else "f32"
        report(f"attention_{b}x{h}x{t}x{d}_{name}_causal", both_ms=milliseconds(20, both), fwd_ms=milliseconds(20, forward))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """124 million parameters; the output shares its weight with the embedding."""

    def __init__(self, vocabulary=50304, length=1024, width=768, heads=12, layers=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text, target):
        x = self.wte(text) + self.wpe(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), target.view(-1))


def gpt2(params="f32"):
    """Mixed precision as PyTorch recommends: f32 parameters, autocast to bf16, fused optimiser; or everything in bf16."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.set_float32_matmul_precision("high")
    batch, length = 32, 1024
    model = Gpt2().to(GPU)
    if params == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    loss = torch.compile(model) if COMPILE else model
    text, target = (torch.randint(0, 50257, (batch, length), device=GPU) for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(GPU, dtype=torch.bfloat16, enabled=params == "f32"):
            value = loss(text, target)
        value.backward()
        optimizer.step()

    ms = milliseconds(20, step)
    peak = torch.cuda.max_memory_allocated() / 2**30
    name = "gpt2_124M_bf16" if params == "f32" else "gpt2_124M_bf16_params"
    report(name, ms=ms, tokens_per_s=batch * length / ms * 1e3, peak_GiB=peak)


def resnet(name, model, dtype, batch, size, params="f32"):
    """Half precision, channels last, and cuDNN's fastest algorithms, as PyTorch recommends."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    half = dtype == torch.bfloat16
    order = torch.channels_last if half else torch.contiguous_format
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = model.to(GPU, memory_format=order)
    if half and params == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    forward = torch.compile(model) if COMPILE else model
    x = normal(batch, 3, size, size, dtype=dtype if params == "bf16" or not half else torch.float32).to(memory_format=order)
    y = torch.randint(0, 1000, (batch,), device=GPU)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(GPU, dtype=torch.bfloat16, enabled=half and params == "f32"):
            logits = forward(x)
        F.cross_entropy(logits.float(), y).backward()
        optimizer.step()

    ms = milliseconds(20, step)
    report(name, ms=ms, images_per_s=batch / ms * 1e3, peak_GiB=torch.cuda.max_memory_allocated() / 2**30)


def resnet50():
    import torchvision

    for params, name in (("f32", "resnet50_bf16"), ("bf16", "resnet50_bf16_params")):
        resnet(name, torchvision.models.resnet50(), torch.bfloat16, 256, 224, params)


def resnet18():
    import torchvision

    resnet("resnet18_64px_tf32", torchvision.models.resnet18(), torch.float32, 32, 64)


def lstm():
    layer = nn.LSTM(256, 256).to(GPU)
    x = normal(128, 64, 256, grad=True)

    def both():
        forget(x, *layer.parameters())
        layer(x)[0].sum().backward()

    report("lstm_256_64x128", ms=milliseconds(20, both))


def vision():
    def images(*shape, dtype=torch.bfloat16):
        x = normal(*shape, dtype=dtype)
        return x.to(memory_format=torch.channels_last) if dtype == torch.bfloat16 else x

    def both_ways(name, f, leaves, g):
        call = torch.compile(f) if COMPILE else f

        def both():
            forget(*leaves)
            call(*leaves).backward(g)

        report(name, ms=milliseconds(20, both))

    for dtype, name in ((torch.float32, "batch_norm_f32"), (torch.bfloat16, "batch_norm_bf16")):
        norm = nn.BatchNorm2d(256).to(GPU).to(dtype)
        x, g = images(64, 256, 56, 56, dtype=dtype).requires_grad_(), images(64, 256, 56, 56, dtype=dtype)
        both_ways(name, lambda x: norm(x), [x], g)
    x, g = images(64, 64, 112, 112).requires_grad_(), images(64, 64, 56, 56)
    both_ways("max_pool_bf16", lambda x: F.max_pool2d(x, 3, 2, 1), [x], g)
    if COMPILE:
        return
    for name, w, padding, groups in (
        ("conv_bf16", (256, 256, 3, 3), 1, 1),
        ("conv_1x1_bf16", (512, 256, 1, 1), 0, 1),
        ("conv_depthwise_bf16", (256, 1, 3, 3), 1, 256),
    ):
        x, w = images(64, 256, 56, 56).requires_grad_(), images(*w).requires_grad_()
        g = images(64, w.shape[0], 56, 56)
        both_ways(name, lambda x, w: F.conv2d(x, w, padding=padding, groups=groups), [x, w], g)


def one_operation(name, make):
    step, work = make()
    ms = milliseconds(20, step)
    rates = {"GBps": work["gb"] / ms * 1e3} if "gb" in work else {"GFLOPs": work["gflop"] / ms * 1e3}
    report(name, ms=ms, **rates)
    torch.cuda.empty_cache()


def main():
    torch.manual_seed(0)
    report("env", torch=torch.__version__, gpu=torch.cuda.get_device_name(), cuda=torch.version.cuda)
    eager = {
        "copy_bw": copy_bandwidth, "matmul": matmul, "overhead": overhead, "mlp_small": mlp_small, "elementwise": elementwise,
        "xent": cross_entropy, "layernorm": layer_norm, "attention": attention, "gpt2": gpt2,
        "resnet50": resnet50, "resnet18": resnet18, "lstm": lstm, "vision": vision,
    }  # fmt: skip
    compiled = ("mlp_small", "elementwise", "xent", "layernorm", "gpt2", "resnet50", "resnet18", "vision")
    for name, workload in eager.items():
        if (not NAMES or name in NAMES) and (not COMPILE or name in compiled):
            workload()
    if not NAMES or "gpt2" in NAMES:
        gpt2("bf16")
    # PyTorch's default, which the networks above have changed.
    torch.set_float32_matmul_precision("highest")
    for group, rows in {} if COMPILE else {"breadth": breadth.rows(GPU), "networks": networks.rows(GPU)}.items():
        for name, make in rows.items():
            if not NAMES or name in NAMES or group in NAMES:
                one_operation(name, make)


main()
