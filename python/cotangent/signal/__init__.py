"""Signal processing: PyTorch's ``signal``."""

from . import windows  # noqa: F401
