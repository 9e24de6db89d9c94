"""Times the workloads of `benches/README.md` in PyTorch, with a line of JSON for each: torch.py [--threads N] [names]."""

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

# This file would shadow PyTorch, so its folder is removed from the path.
HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(HERE))
import breadth
import networks

THREADS = 1
COMPILE = False


def memory_mib(key):
    """The current (VmRSS) or peak (VmHWM) memory in MiB on Linux, or None."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    return None


def run(step, runs, seconds, limit):
    """Runs a step repeatedly, and returns the seconds of each run: the rule of `workloads/timing.rs`."""
    times, start = [], time.perf_counter()
    while True:
        one = time.perf_counter()
        step()
        now = time.perf_counter()
        times.append(now - one)
        spent = now - start
        if (len(times) >= runs and spent >= seconds) or (spent >= limit and 2 * len(times) >= runs):
            return times


def report(workload, step, *, gflop=None, gb=None, ops=None, tokens=None, before_mib=None):
    run(step, 3, 0.3, 3.0)
    times = run(step, 10, 1.5, 12.0)
    median = statistics.median(times)
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    row = {"peer": "torch_compile" if COMPILE else "torch", "workload": workload, "threads": THREADS, "reps": len(times)}
    named = {"median": median, "p10": deciles[0], "p90": deciles[-1], "min": min(times)}
    row |= {f"{name}_ms": seconds * 1e3 for name, seconds in named.items()}
    if gflop:
        row["gflops"] = gflop / median
    if gb:
        row["gb_per_s"] = gb / median
    if ops:
        row["ns_per_op"] = median / ops * 1e9
    if tokens:
        row["tokens_per_s"] = tokens / median
    if before_mib:
        row |= {"peak_rss_mib": memory_mib("VmHWM"), "rss_before_model_mib": before_mib}
    print(json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def gigabytes(arrays, like):
    return arrays * like.nbytes / 1e9


def compiled(loss):
    """The function, compiled with torch.compile if --compile was given."""
    return torch.compile(loss) if COMPILE else loss


def forward_backward(loss, *leaves):
    loss = compiled(loss)

    def step():
        for tensor in leaves:
            tensor.grad = None
        loss(*leaves).backward()

    return step


def training(loss, optimizer):
    loss = compiled(loss)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def chain(x, c, b):
    for _ in range(500):
        x = x * c + b
    return x


def overhead():
    c, b = torch.full((1,), 0.999), torch.full((1,), 0.001)
    report("overhead", forward_backward(lambda x: chain(x, c, b), leaf(1)), ops=1000)


def overhead_fwd_nograd():
    x, c, b = leaf(1), torch.full((1,), 0.999), torch.full((1,), 0.001)

    def step():
        with torch.no_grad():
            chain(x, c, b)

    report("overhead_fwd_nograd", step, ops=1000)


def mlp(*sizes):
    layers = [nn.Linear(sizes[0], sizes[1])]
    for inputs, outputs in zip(sizes[1:], sizes[2:]):
        layers += [nn.ReLU(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def mlp_small():
    model = mlp(784, 128, 64, 10)
    x, y = torch.randn(32, 784), torch.randint(10, (32,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    report("mlp_small", training(lambda: F.cross_entropy(model(x), y), optimizer))


def autocast(enabled):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def mlp_large(bf16=False):
    model = mlp(1024, 4096, 4096, 1024)
    x, y = torch.randn(256, 1024), torch.randn(256, 1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def loss():
        with autocast(bf16):
            return F.mse_loss(model(x).float(), y)

    report("mlp_large_bf16" if bf16 else "mlp_large", training(loss, optimizer))


def matmul(n, products=1):
    a, b = torch.randn(n, n), torch.randn(n, n)

    def step():
        for _ in range(products):
            torch.matmul(a, b)

    report(f"matmul_{n}", step, gflop=2 * n**3 * products / 1e9)


def matmul_1024_fb():
    step = forward_backward(lambda a, b: (a @ b).sum(), leaf(1024, 1024), leaf(1024, 1024))
    report("matmul_1024_fb", step, gflop=6 * 1024**3 / 1e9)


def elementwise():
    a, b, c = (leaf(2048, 2048) for _ in range(3))
    step = forward_backward(lambda a, b, c: (torch.tanh(a * b + c) * a).sum(), a, b, c)
    report("elementwise", step, gb=gigabytes(9, a))


def bias_add():
    x, b = leaf(4096, 1024), leaf(1024)
    report("bias_add", forward_backward(lambda x, b: F.relu(x + b).sum(), x, b), gb=gigabytes(3, x))


def xent():
    x, y = leaf(512, 50257), torch.randint(50257, (512,))
    report("xent", forward_backward(lambda x: F.cross_entropy(x, y), x), gb=gigabytes(3, x))


def layernorm():
    x, factors = leaf(4096, 768), torch.randn(4096, 768)
    weight, bias = torch.ones(768, requires_grad=True), torch.zeros(768, requires_grad=True)
    step = forward_backward(lambda x, w, b: (F.layer_norm(x, (768,), w, b) * factors).sum(), x, weight, bias)
    report("layernorm", step, gb=gigabytes(5, x))


def causal_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention():
    q, k, v = (leaf(4, 8, 512, 64) for _ in range(3))
    report("attention", forward_backward(lambda q, k, v: causal_attention(q, k, v).sum(), q, k, v))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, time, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions.weight)))


def gpt_tiny(bf16=False):
    before, batch, steps = memory_mib("VmRSS"), 8, 256
    model = Gpt(vocabulary=65, time=steps, width=384, heads=6, layers=6)
    x, y = torch.randint(65, (batch, steps)), torch.randint(65, (batch * steps,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def loss():
        with autocast(bf16):
            return F.cross_entropy(model(x).flatten(0, 1).float(), y)

    report("gpt_tiny_bf16" if bf16 else "gpt_tiny", training(loss, optimizer), tokens=batch * steps, before_mib=before)


def cnn_step():
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    report("cnn_step", training(lambda: F.cross_entropy(model(x), y), optimizer))


def resnet18_step():
    from torchvision.models import resnet18

    before, model = memory_mib("VmRSS"), resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    x, y = torch.randn(32, 3, 64, 64), torch.randint(1000, (32,))
    report("resnet18_step", training(lambda: F.cross_entropy(model(x), y), optimizer), before_mib=before)


def adamw():
    tensors = [leaf(100_000) for _ in range(100)]
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    optimizer = torch.optim.AdamW(tensors, lr=1e-4, fused=True)
    report("adamw", optimizer.step, gb=sum(gigabytes(7, tensor) for tensor in tensors))


def limits():
    """The limits of the CPU and the memory, as PyTorch reaches them."""
    n = 4096
    for name, dtype in ("f32", torch.float32), ("bf16", torch.bfloat16):
        a, b, out = (torch.randn(n, n).to(dtype) for _ in range(3))
        report(f"limit_matmul_{name}", lambda: torch.matmul(a, b, out=out), gflop=2 * n**3 / 1e9)
    source, target = torch.ones(2**28), torch.zeros(2**28)
    report("limit_copy", lambda: target.copy_(source), gb=gigabytes(2, source))


WORKLOADS = {f.__name__: f for f in (overhead, overhead_fwd_nograd, mlp_small, mlp_large)}
WORKLOADS["mlp_large_bf16"] = lambda: mlp_large(bf16=True)
WORKLOADS["matmul_64"] = lambda: matmul(64, 200)
WORKLOADS["matmul_256"] = lambda: matmul(256, 10)
WORKLOADS["matmul_1024"] = lambda: matmul(1024)
WORKLOADS["matmul_2048"] = lambda: matmul(2048)
WORKLOADS |= {f.__name__: f for f in (matmul_1024_fb, elementwise, bias_add, xent, layernorm, attention, gpt_tiny)}
WORKLOADS["gpt_tiny_bf16"] = lambda: gpt_tiny(bf16=True)
WORKLOADS |= {f.__name__: f for f in (cnn_step, resnet18_step, adamw, limits)}


def one_operation(name, make):
    step, work = make()
    report(name, step, **work)


WORKLOADS |= {name: lambda row=(name, make): one_operation(*row) for name, make in (breadth.rows("cpu") | networks.rows("cpu")).items()}


def main():
    global THREADS, COMPILE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compile", action="store_true", help="compile forward and backward with torch.compile")
    parser.add_argument("names", nargs="*", metavar="name")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in WORKLOADS]:
        parser.error(f"no such workload: {', '.join(unknown)}")
    THREADS, COMPILE = arguments.threads, arguments.compile
    torch.set_num_threads(THREADS)
    for name in arguments.names or WORKLOADS:
        WORKLOADS[name]()


if __name__ == "__main__":
    main()
