# Written by tools/stubs.py from the list of operations: not to be edited.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from .. import Tensor, Number, DTypeLike, DeviceLike, dtype, device

def checkpoint(function: Any, *args: Any, use_reentrant: Any = ...) -> Any: ...
def checkpoint_sequential(functions: Any, segments: Any, input: Any, use_reentrant: Any = ..., **kwargs: Any) -> Any: ...
