"""Mixed precision: ``autocast`` and ``GradScaler``."""

from __future__ import annotations

import functools
import warnings

from ._core import aliases as _aliases
from . import _cotangent as _c

_aliases.alias(__name__, "autocast_mode grad_scaler")


class autocast:
    """Computes operations in half precision where that is safe: a context manager and a decorator.

    The default dtype is ``bfloat16`` for the CPU and ``float16`` for GPUs. It applies to this thread, and to tensors on all
    devices.
    """

    def __init__(self, device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
        device_type = device_type.split(":")[0]
        if device_type not in ("cpu", "cuda"):
            raise RuntimeError(f"autocast: device_type must be 'cpu' or 'cuda', got {device_type!r}")
        if device_type == "cuda" and enabled:
            from . import cuda

            if not cuda.is_available():
                warnings.warn("autocast: there is no GPU, autocast is disabled")
                enabled = False
        self.device = device_type
        self.fast_dtype = (_c.float16 if device_type == "cuda" else _c.bfloat16) if dtype is None else dtype
        self._enabled, self._cache = enabled, True if cache_enabled is None else cache_enabled

    def __enter__(self):
        _c._autocast_enter(self.fast_dtype, self._enabled, self._cache)
        return self

    def __exit__(self, *exception):
        _c._autocast_exit()

    def __call__(self, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return wrapper


def is_autocast_enabled():
    """Whether this thread is inside ``autocast``."""
    return _c._autocast_dtype() is not None


def custom_fwd(fwd=None, *, device_type="cuda", cast_inputs=None):
    """Decorates ``forward`` of an ``autograd.Function``: with ``cast_inputs`` it casts float inputs and runs without autocast."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx, *args, **kwargs):
        ctx._autocast_dtype = _c._autocast_dtype()
        if cast_inputs is None or ctx._autocast_dtype is None:
            return fwd(ctx, *args, **kwargs)
        ctx._autocast_dtype = None
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return forward


def _cast(value, dtype):
    if isinstance(value, _c.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != _c.float64 else value
    if isinstance(value, dict):
        return {name: _cast(one, dtype) for name, one in value.items()}
    return type(value)(_cast(one, dtype) for one in value) if isinstance(value, (list, tuple)) else value


def custom_bwd(bwd=None, *, device_type="cuda"):
    """Decorates ``backward`` of an ``autograd.Function``: it runs with the autocast state of the forward pass."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx, *args, **kwargs):
        with autocast(device_type, ctx._autocast_dtype, ctx._autocast_dtype is not None):
            return bwd(ctx, *args, **kwargs)

    return backward


class GradScaler:
    """Scales losses, so that small gradients of ``float16`` do not vanish, and skips steps with infinite gradients."""

    def __init__(self, device="cuda", init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        self._own = _c._GradScaler(init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._enabled = enabled

    def scale(self, outputs):
        """The loss times the scale; for a list or tuple, each loss."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(x) for x in outputs)
        return self._own.scale(outputs)

    def unscale_(self, optimizer):
        """Divides the gradients by the scale, for example to clip them before the step."""
        self._own.unscale(optimizer._parameters())

    def step(self, optimizer, *args, **kwargs):
        """Calls ``optimizer.step``, unless a gradient is infinite or NaN."""
        if not self._enabled or self._own.may_step(optimizer._parameters()):
            return optimizer.step(*args, **kwargs)
        return None

    def update(self):
        """Reduces the scale after an infinite gradient, and increases it after many steps without one."""
        self._own.update()

    def get_scale(self):
        """The current scale."""
        return self._own.get_scale()

    def is_enabled(self):
        """Whether scaling is enabled."""
        return self._enabled

    def state_dict(self):
        """The scale, the settings, and the number of steps without infinities since the scale last changed."""
        if not self._enabled:
            return {}
        own = {name: value.item() for name, value in self._own.state_dict().items()}
        return {("_growth_tracker" if name == "growth_tracker" else name): value for name, value in own.items()}

    def load_state_dict(self, state_dict):
        """Loads a state returned by ``state_dict``."""
        if not self._enabled:
            return
        own = {name.lstrip("_"): value for name, value in state_dict.items()}
        whole = ("growth_interval", "growth_tracker")
        self._own.load_state_dict({name: _c._tensor(value, dtype=_c.int64 if name in whole else _c.float64, device=None,
                                                    requires_grad=False) for name, value in own.items()})
