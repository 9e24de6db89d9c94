"""Names for annotations, as in PyTorch's ``torch.types``."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Union

from . import _cotangent as _c
from ._cotangent import Tensor, device, dtype

_bool, _complex, _float, _int = builtins.bool, builtins.complex, builtins.float, builtins.int
_dtype, _device = dtype, device
_size = Union[Sequence[builtins.int], tuple[builtins.int, ...]]
_symsize = _size
_dispatchkey = Union[str, Any]

Device = Union[_c.device, str, builtins.int, None]
Number = Union[builtins.int, builtins.float, builtins.bool]
_Number = (builtins.int, builtins.float, builtins.bool)
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
FileLike = Any
