# Written by tools/stubs.py from the list of operations: not to be edited.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from . import Tensor, Number, DTypeLike, DeviceLike, dtype, device

def assert_close(actual: Any, expected: Any, *, allow_subclasses: Any = ..., rtol: Any = ..., atol: Any = ..., equal_nan: Any = ..., check_device: Any = ..., check_dtype: Any = ..., check_layout: Any = ..., check_stride: Any = ..., msg: Any = ...) -> Any: ...
