import io
import os
import tempfile
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(OrderedDict([("fc1", nn.Linear(3, 4)), ("bn", nn.BatchNorm1d(4)), ("act", nn.ReLU())]))
        self.head = nn.Linear(4, 2)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        self.steps += 1
        return self.head(self.body(x))


model = Net()
for k, p in enumerate(model.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) + k).reshape(p.shape))
optimizer = optim.Adam(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
x, y = torch.linspace(-1, 1, 12).view(4, 3), torch.tensor([0, 1, 1, 0])


def step():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()


first = [step() for _ in range(2)]
folder = tempfile.mkdtemp()
path = os.path.join(folder, "checkpoint.tar")
torch.save({"epoch": 2, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(), "loss": first[-1], "rng": torch.get_rng_state()}, path)
then = [step() for _ in range(2)]
checkpoint = torch.load(path, map_location=torch.device("cpu"), weights_only=True)
model.load_state_dict(checkpoint["model_state_dict"])
optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
scheduler.load_state_dict(checkpoint["scheduler"])
again = [step() for _ in range(2)]
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)
state = torch.load(buffer, weights_only=True)
other = Net()
missing = other.load_state_dict({k: v for k, v in state.items() if not k.startswith("head")}, strict=False)
renamed = OrderedDict((f"module.{k}", v) for k, v in state.items())
stripped = {k[7:] if k.startswith("module.") else k: v for k, v in renamed.items()}
other.load_state_dict(stripped)
try:
    nn.Linear(3, 5).load_state_dict({"weight": torch.ones(4, 3), "bias": torch.ones(5)})
    failed = False
except RuntimeError as e:
    failed = "size mismatch for weight" in str(e)
ema = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
swa_scheduler = SWALR(optimizer, swa_lr=0.05)
swa_rates = []
for epoch in range(5):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if epoch > 1:
        ema.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    swa_rates.append(optimizer.param_groups[0]["lr"])
update_bn([x, x], ema)
out = [first, then, again, checkpoint["epoch"], list(state), missing.missing_keys, other.steps, failed, list(ema.state_dict())[:3],
       ema(x).detach(), swa_rates, optimizer.param_groups[0]["lr"], str(optimizer).split("\n")[0]]
