"""How the containers of PyTorch's files are put together.

The pickle of a file is read by Python's own reader, which may make nothing but containers, dtypes, sizes and marks for tensors:
whatever else a file names becomes a mark, too. The tensors are the crate's.
"""

from __future__ import annotations

import io
import itertools
import pickle
import zipfile
from collections import OrderedDict

from . import _cotangent as _c
from ._size import Size


class _Mark:
    """What stands for a tensor, or for something that is not read."""

    tensor = False

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass


class _TensorMark(_Mark):
    tensor = True


_TENSORS = {"_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter", "_rebuild_parameter_with_state"}


# The reader that is written in Python: the other one takes memory by the numbers that a file names.
class _Reader(pickle._Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in _TENSORS:
            return _TensorMark
        if (module, name) == ("torch", "Size"):
            return Size
        if module == "torch" and isinstance(getattr(_c, name, None), _c.dtype):
            return getattr(_c, name)
        return _Mark

    def persistent_load(self, pid):
        return None


def structure(path):
    """The containers of a file, with marks in the place of tensors."""
    with zipfile.ZipFile(path) as archive:
        entry = next(entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl"))
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError("PyTorch does not compress what it pickles")
        return _Reader(io.BytesIO(archive.read(entry))).load()


# Parts beyond which a file is not put together: a few containers that hold each other many times over stand for more than any
# memory has.
_MOST = 1_000_000


def filled(node, tensors, path="", counter=None):
    """The same containers with the tensors that the crate has read, which it names by their places."""
    counter = counter if counter is not None else itertools.count(1)
    if next(counter) > _MOST:
        raise ValueError(f"more than {_MOST} parts")
    if isinstance(node, _Mark):
        if not node.tensor:
            raise ValueError(f"{path or 'the object'} is something that is no value")
        return tensors[path or "tensor"]
    below = lambda key: f"{path}.{key}" if path else str(key)
    if isinstance(node, dict):
        return type(node)((key, filled(one, tensors, below(_key(key)), counter)) for key, one in node.items())
    if isinstance(node, Size):
        return node
    if isinstance(node, (list, tuple)):
        return type(node)(filled(one, tensors, below(at), counter) for at, one in enumerate(node))
    return node


def _key(key):
    """A key as the crate writes it into a name."""
    return str(key).lower() if isinstance(key, bool) else str(key)
