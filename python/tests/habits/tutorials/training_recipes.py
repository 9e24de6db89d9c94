import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler
from torch.optim.lr_scheduler import LambdaLR, LinearLR, OneCycleLR, ReduceLROnPlateau, SequentialLR
from torch.utils.checkpoint import checkpoint

torch.autograd.set_detect_anomaly(False)


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Residual(4) for _ in range(3)])
        self.scale = nn.Parameter(torch.ones(1) * 0.5)
        self.activations = {}

    def forward(self, x, use_checkpoint=False):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if use_checkpoint else layer(x)
        return x * self.scale


net = Net()
for k, p in enumerate(net.parameters()):
    p.data.copy_(torch.sin(torch.arange(p.numel()) * 0.9 + k + 1).view(p.shape) * 0.5)
activation = {}


def get_activation(name):
    def hook(model, input, output):
        activation[name] = output.detach()
    return hook


handles = [layer.register_forward_hook(get_activation(f"layer{i}")) for i, layer in enumerate(net.layers)]
x = torch.linspace(-1, 1, 8).view(2, 4)
a = net(x).sum()
a.backward()
plain = [p.grad.clone() for p in net.parameters()]
net.zero_grad()
net(x, use_checkpoint=True).sum().backward()
same = all(torch.allclose(p, q.grad) for p, q in zip(plain, net.parameters()))
for handle in handles:
    handle.remove()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.01)
warm = SequentialLR(optimizer, [LinearLR(optimizer, start_factor=0.1, total_iters=2), LambdaLR(optimizer, lambda e: 0.9 ** e)], milestones=[2])
rates, scaler, accumulation = [], GradScaler(enabled=False), 2
for i in range(4):
    with torch.autocast(device_type="cpu", enabled=False):
        loss = net(x).pow(2).mean() / accumulation
    scaler.scale(loss).backward()
    if (i + 1) % accumulation == 0:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    warm.step()
    rates.append(optimizer.param_groups[0]["lr"])
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
cycle = OneCycleLR(sgd, max_lr=1.0, steps_per_epoch=2, epochs=3)
curve = []
for _ in range(6):
    sgd.step()
    curve.append(cycle.get_last_lr()[0])
    if len(curve) < 6:
        cycle.step()
plateau = ReduceLROnPlateau(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0), mode="min", factor=0.5, patience=1)
for metric in (3.0, 3.0, 3.0, 3.0):
    plateau.step(metric)
best, patience, stopped = float("inf"), 0, None
for epoch, value in enumerate([1.0, 0.8, 0.9, 0.95, 0.7]):
    if value < best:
        best, patience = value, 0
    else:
        patience += 1
        if patience >= 2:
            stopped = epoch
            break
grads = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]) if any(p.grad is not None for p in net.parameters()) else None
total = torch.norm(torch.stack([torch.norm(p.detach(), 2.0) for p in net.parameters()]), 2.0)
out = [a.item(), same, {k: v for k, v in activation.items()}, rates, curve, plateau.optimizer.param_groups[0]["lr"], stopped, total]
