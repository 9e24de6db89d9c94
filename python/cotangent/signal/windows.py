"""Windows for the frames of a signal: PyTorch's ``signal.windows``."""

from .. import _cotangent as _c

_PREFIX = "signal_windows_"
globals().update({name.removeprefix(_PREFIX): value for name, value in _c._functions.items() if name.startswith(_PREFIX)})
