"""One training step of a small network, to measure startup time."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = nn.functional.cross_entropy(model(torch.randn(32, 784)), torch.arange(32) % 10)
loss.backward()
optimizer.step()
print("loss", loss.item(), flush=True)
