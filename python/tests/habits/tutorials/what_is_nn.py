import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(0)
x_train, y_train = map(torch.tensor, (rng.standard_normal((40, 9)).astype("float32"), rng.integers(0, 3, 40)))
x_valid, y_valid = x_train[:10], y_train[:10]
bs = 16
weights = (torch.arange(27.0).reshape(9, 3) - 13) / math.sqrt(9 * 100)
weights.requires_grad_()
bias = torch.zeros(3, requires_grad=True)


def log_softmax(x):
    return x - x.exp().sum(-1).log().unsqueeze(-1)


def nll(input, target):
    return -input[range(target.shape[0]), target].mean()


def accuracy(out, yb):
    return (torch.argmax(out, dim=1) == yb).float().mean()


before = nll(log_softmax(x_train[:bs] @ weights + bias), y_train[:bs])
for epoch in range(2):
    for i in range((40 - 1) // bs + 1):
        xb, yb = x_train[i * bs:i * bs + bs], y_train[i * bs:i * bs + bs]
        loss = nll(log_softmax(xb @ weights + bias), yb)
        loss.backward()
        with torch.no_grad():
            weights -= weights.grad * 0.5
            bias -= bias.grad * 0.5
            weights.grad.zero_()
            bias.grad.zero_()


class Logistic(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.ones(9, 3) / math.sqrt(9))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, xb):
        return xb @ self.weights + self.bias


model = Logistic()
with torch.no_grad():
    for p in model.parameters():
        p -= p * 0.1
    model.zero_grad()


class Lambda(nn.Module):
    def __init__(self, func):
        super().__init__()
        self.func = func

    def forward(self, x):
        return self.func(x)


class WrappedDataLoader:
    def __init__(self, dl, func):
        self.dl, self.func = dl, func

    def __len__(self):
        return len(self.dl)

    def __iter__(self):
        for b in self.dl:
            yield self.func(*b)


train_dl = WrappedDataLoader(DataLoader(TensorDataset(x_train, y_train), batch_size=bs), lambda a, b: (a.view(-1, 1, 3, 3), b))
valid_dl = WrappedDataLoader(DataLoader(TensorDataset(x_valid, y_valid), batch_size=bs * 2), lambda a, b: (a.view(-1, 1, 3, 3), b))
cnn = nn.Sequential(nn.Conv2d(1, 4, kernel_size=3, stride=1, padding=1), nn.ReLU(), nn.Conv2d(4, 3, kernel_size=3, padding=1), nn.ReLU(),
                    nn.AdaptiveAvgPool2d(1), Lambda(lambda x: x.view(x.size(0), -1)))
for k, p in enumerate(cnn.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) + k).reshape(p.shape) * 0.4)
opt = optim.SGD(cnn.parameters(), lr=0.1, momentum=0.9)


def loss_batch(model, loss_func, xb, yb, opt=None):
    loss = loss_func(model(xb), yb)
    if opt is not None:
        loss.backward()
        opt.step()
        opt.zero_grad()
    return loss.item(), len(xb)


history = []
for epoch in range(3):
    cnn.train()
    for xb, yb in train_dl:
        loss_batch(cnn, F.cross_entropy, xb, yb, opt)
    cnn.eval()
    with torch.no_grad():
        losses, nums = zip(*[loss_batch(cnn, F.cross_entropy, xb, yb) for xb, yb in valid_dl])
    history.append(np.sum(np.multiply(losses, nums)).item() / np.sum(nums).item())
out = [before.item(), loss.item(), accuracy(x_train @ weights + bias, y_train).item(), model(x_valid).detach(), history, str(cnn)]
