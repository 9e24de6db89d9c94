"""Data parallelism, under PyTorch's names."""

from __future__ import annotations

from ..module import Module


class DataParallel(Module):
    """Calls a module with the whole batch, on the module's device. Names in its state dict begin with ``module.``."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(f"DataParallel: device_ids must have at most one GPU, got {list(device_ids)}")
        self.module = module
        if device_ids:
            self.module.cuda(device_ids[0])

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def __getattr__(name: str):
    if name == "DistributedDataParallel":
        raise AttributeError("module 'cotangent.nn.parallel' has no attribute 'DistributedDataParallel': only one process is supported")
    raise AttributeError(f"module 'cotangent.nn.parallel' has no attribute {name!r}")
