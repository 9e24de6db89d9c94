import math

import torch
from torch import nn


def gradient(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def at(model, t, x):
    return model(torch.cat([t, x], 1))


def train(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    zero, one = torch.zeros(128, 1), torch.ones(128, 1)
    for _ in range(steps):
        t = torch.rand(128, 1, requires_grad=True)
        x = torch.rand(128, 1, requires_grad=True)
        u = at(model, t, x)
        residual = gradient(u, t) - 0.1 * gradient(gradient(u, x), x)
        start = at(model, zero, x) - torch.sin(math.pi * x)
        left, right = at(model, t, zero), at(model, t, one)
        loss = sum(part.square().mean() for part in [residual, start, left, right])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    t, x = torch.rand(1000, 1), torch.rand(1000, 1)
    exact = torch.exp(-0.1 * math.pi**2 * t) * torch.sin(math.pi * x)
    with torch.no_grad():
        error = at(model, t, x) - exact
    return (error.norm() / exact.norm()).item()
