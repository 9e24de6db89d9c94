"""Optimisers and learning rate schedulers, as in ``torch.optim``.

    >>> import cotangent as ct
    >>> model = ct.nn.Linear(3, 1)
    >>> optimizer = ct.optim.AdamW(model.parameters(), lr=0.1)
    >>> x = ct.randn(16, 3)
    >>> for _ in range(100):
    ...     loss = ct.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    >>> loss.item() < 0.1
    True
"""

from __future__ import annotations

import sys as _sys

from .._core import aliases as _aliases
from . import lr_scheduler, optimizer, swa_utils  # noqa: F401
from .optimizer import Optimizer  # noqa: F401

globals().update(optimizer.CLASSES)

# The names of PyTorch's files, one for each optimiser.
_FILES = "adadelta adagrad adam adamax adamw asgd lbfgs nadam radam rmsprop rprop sgd sparse_adam"
_aliases.alias(__name__, _FILES)


def __getattr__(name: str):
    if name in _FILES.split():
        return _sys.modules[__name__]
    raise AttributeError(f"module 'cotangent.optim' has no attribute {name!r}")
