"""Modules on several GPUs, by PyTorch's name."""

from __future__ import annotations

from ..module import Module


class DataParallel(Module):
    """A module, which is called as it is: the whole batch is computed where the module is. Its names begin with ``module.``."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(f"DataParallel: a batch is not shared by several GPUs: leave device_ids {list(device_ids)} out")
        self.module = module
        if device_ids:
            self.module.cuda(device_ids[0])

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def __getattr__(name: str):
    if name == "DistributedDataParallel":
        raise AttributeError("module 'cotangent.nn.parallel' has no attribute 'DistributedDataParallel': there is one process")
    raise AttributeError(f"module 'cotangent.nn.parallel' has no attribute {name!r}")
