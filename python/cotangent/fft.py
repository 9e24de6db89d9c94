"""Discrete Fourier transforms: PyTorch's ``fft``, and the extension of the array API standard."""

from . import _cotangent as _c

globals().update({name[4:]: value for name, value in _c._functions.items() if name.startswith("fft_")})
