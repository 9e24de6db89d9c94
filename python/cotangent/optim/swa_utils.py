"""Averages of model weights."""

from __future__ import annotations

import copy

from .. import _cotangent as _c
from .._core.modes import no_grad
from ..nn.module import Module
from .lr_scheduler import SWALR  # noqa: F401


def get_swa_multi_avg_fn():
    """Returns the update function of an average with equal weights."""
    return lambda averaged, new, count: averaged + (new - averaged) / (count + 1)


def get_ema_multi_avg_fn(decay=0.999):
    """Returns the update function of an exponential moving average with the factor ``decay``."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must be in [0, 1], got {decay}")
    return lambda averaged, new, count: averaged * decay + new * (1 - decay)


get_swa_avg_fn, get_ema_avg_fn = get_swa_multi_avg_fn, get_ema_multi_avg_fn


class AveragedModel(Module):
    """A copy of a model whose parameters are running averages of the model's."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", _c._tensor(0, dtype=_c.int64, device=device, requires_grad=False))
        self.avg_fn = avg_fn or multi_avg_fn or get_swa_multi_avg_fn()
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model):
        """Updates the averages with the model's parameters. Buffers are copied, or averaged if ``use_buffers`` is true."""
        count = self.n_averaged.item()
        for own, new in zip(self.module.parameters(), model.parameters()):
            new = new.detach().to(own.device)
            own.copy_(new if count == 0 else self.avg_fn(own.detach(), new, count))
        for own, new in zip(self.module.buffers(), model.buffers()):
            new = new.detach().to(own.device)
            mean = self.use_buffers and count and own.is_floating_point()
            own.copy_(self.avg_fn(own.detach(), new, count) if mean else new)
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader, model, device=None):
    """Recomputes the running statistics of batch norms over all batches of ``loader``."""
    norms = [module for module in model.modules() if type(module).__name__.startswith("BatchNorm") and module.track_running_stats]
    if not norms:
        return
    momenta, training = [module.momentum for module in norms], model.training
    model.train()
    for module in norms:
        module.running_mean.zero_()
        module.running_var.fill_(1.0)
        module.num_batches_tracked.zero_()
        module.momentum = None
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for module, momentum in zip(norms, momenta):
        module.momentum = momentum
    model.train(training)
