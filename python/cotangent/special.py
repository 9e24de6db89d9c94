"""Special functions: PyTorch's ``special``."""

from . import _cotangent as _c

globals().update({name[8:]: value for name, value in _c._functions.items() if name.startswith("special_")})
globals().update({name: _c._functions[name] for name in ("logit", "log_softmax", "logsumexp", "gammaln", "log1p", "i0")
                  if name in _c._functions})

# The order is the first argument, as in PyTorch; the method has the tensor first.
from ._core.standard import polygamma  # noqa: E402, F401
