"""Hessian-vector products of composite functions; tests/core/second_order.rs has the same functions."""

import json

import torch
import torch.nn.functional as F

from .core import Draw, encode, header

GATHER = [[0, 2, 2], [1, 1, 0]]
CLASSES = [2, 0, 1, 2]


def attention(q, k, v):
    return (torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1) @ v).square().sum()


def views(x):
    a = x.t()[1:3].flip([1]).reshape(2, 3)
    b = x.permute(1, 0).select(0, 3).unsqueeze(0).expand(2, 3)
    return ((a * b) ** 3).sum() + (a @ b.t()).sum()


def scatter(x, y):
    index = torch.tensor(GATHER)
    g = x.gather(1, index)
    s = torch.zeros(2, 3, dtype=x.dtype).scatter_add(1, index, g * y)
    return (s**3).sum() + torch.cat([g, s], 1).exp().mean()


def mlp(w1, b1, w2):
    x = torch.tensor([[0.5, -1.0, 0.25], [1.5, 0.75, -0.5]], dtype=w1.dtype)
    target = torch.tensor([[0.2, -0.4], [1.0, 0.1]], dtype=w1.dtype)
    return F.mse_loss(torch.tanh(F.linear(x, w1, b1)) @ w2, target)


# name: (shapes of the inputs, range of the inputs, function)
FUNCTIONS = {
    # (x^3).sum()
    "cubic": ([[2, 3]], -2, 2, lambda x: (x**3).sum()),
    # ((x * y)^2 + x / y).sum(), y broadcast over x
    "broadcast_quotient": ([[2, 3], [3]], 0.5, 2, lambda x, y: ((x * y) ** 2 + x / y).sum()),
    # x.pow(y).sum()
    "power": ([[2, 3], [2, 3]], 0.5, 2, lambda x, y: torch.pow(x, y).sum()),
    "mlp": ([[4, 3], [4], [4, 2]], -1, 1, mlp),
    # logsumexp of the rows, squared
    "logsumexp": ([[3, 4]], -2, 2, lambda x: x.logsumexp(1).square().sum()),
    # minus the entropy of the rows
    "entropy": ([[3, 4]], -2, 2, lambda x: (torch.softmax(x, 1) * torch.log_softmax(x, 1)).sum()),
    "cross_entropy": ([[4, 5], [3, 5]], -1, 1, lambda x, w: F.cross_entropy(F.linear(x, w), torch.tensor(CLASSES), label_smoothing=0.1)),
    # layer_norm with weight and bias, cubed
    "layer_norm": ([[3, 4], [4], [4]], -2, 2, lambda x, w, b: (F.layer_norm(x, [4], w, b, 1e-5) ** 3).mean()),
    # gelu(x) * silu(x) + softplus(x) * sigmoid(x) + gelu_tanh(x)
    "activations": ([[2, 5]], -3, 3, lambda x: (F.gelu(x) * F.silu(x) + F.softplus(x) * torch.sigmoid(x) + F.gelu(x, approximate="tanh")).sum()),
    # elu(x)^2 + leaky_relu(x, 0.1)^3 + relu(x)^2 + |x| * x
    "kinked": ([[2, 5]], -3, 3, lambda x: (F.elu(x) ** 2 + F.leaky_relu(x, 0.1) ** 3 + torch.relu(x) ** 2 + x.abs() * x).sum()),
    # var(x) * mean(exp(x)) + the sum of the columns' variances, squared
    "variance": ([[3, 4]], -1, 1, lambda x: x.var(correction=1) * x.exp().mean() + x.var(0, correction=0).square().sum()),
    # prod(x) + the rows' products, squared
    "product": ([[2, 3]], 0.5, 1.5, lambda x: x.prod() + x.prod(1).square().sum()),
    # sqrt(sum of squares) + sum of 1 / x + sum of log(x)^2
    "norms": ([[5]], 0.5, 2, lambda x: x.square().sum().sqrt() + x.reciprocal().sum() + x.log().square().sum()),
    "views": ([[3, 4]], -1, 1, views),
    "scatter": ([[2, 3], [2, 3]], -1, 1, scatter),
    "attention": ([[2, 3, 2], [2, 3, 2], [2, 3, 2]], -1, 1, attention),
    # where(x > 0, x^3, exp(x)) + clamp(x, -0.5, 1)^2 + amax of the rows, cubed
    "branches": ([[3, 4]], -2, 2, lambda x: (torch.where(x > 0, x**3, x.exp()) + x.clamp(-0.5, 1.0) ** 2).sum() + (x.amax(1) ** 3).sum()),
    # tril(x @ x) times tanh of its transpose
    "triangle": ([[3, 3]], -1, 1, lambda x: (torch.tril(x @ x) * torch.tanh(x.t())).sum()),
}


def run(name):
    shapes, low, high, f = FUNCTIONS[name]
    draw = Draw(f"second_order/{name}")
    inputs = [draw.uniform(s, low, high, decimals=3) for s in shapes]
    vectors = [draw.uniform(s, -1, 1, decimals=2) for s in shapes]
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = f(*leaves)
    grads = torch.autograd.grad(value, leaves, create_graph=True)
    dot = sum((g * v).sum() for g, v in zip(grads, vectors))
    products = torch.autograd.grad(dot, leaves)
    return {
        "function": name,
        "inputs": [encode(x) for x in inputs],
        "vectors": [encode(v) for v in vectors],
        "value": encode(value),
        "grads": [encode(g) for g in grads],
        "products": [encode(p) for p in products],
    }


def write(folder):
    path = folder / "second_order.json"
    cases = ",\n".join(json.dumps(run(name), separators=(",", ":")) for name in FUNCTIONS)
    path.write_text(f'{{"header":{json.dumps(header())},\n"cases":[\n{cases}\n]}}\n')
    return path
