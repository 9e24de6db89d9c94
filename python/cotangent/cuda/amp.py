"""Mixed precision on GPUs: PyTorch's old name of ``cotangent.amp``, which supports all devices."""

from __future__ import annotations

from .. import amp as _amp
from .._cotangent import float16
from ..amp import custom_bwd, custom_fwd  # noqa: F401


class autocast(_amp.autocast):
    """``cotangent.amp.autocast("cuda")``."""

    def __init__(self, enabled=True, dtype=float16, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """``cotangent.amp.GradScaler("cuda")``."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
