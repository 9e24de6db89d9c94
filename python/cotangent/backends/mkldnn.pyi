# Written by tools/stubs.py from the list of operations: not to be edited.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from .. import Tensor, Number, DTypeLike, DeviceLike, dtype, device

def is_available() -> Any: ...
