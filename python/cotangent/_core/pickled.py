"""The containers of PyTorch's files.

Python's unpickler reads the pickle of a file, restricted to containers, dtypes, sizes and placeholders for tensors: other
names become placeholders as well. The crate reads the tensors.
"""

from __future__ import annotations

import io
import itertools
import pickle
import zipfile
from collections import OrderedDict

from .. import _cotangent as _c
from .size import Size


class _Mark:
    """The placeholder of a tensor, or of an unsupported object."""

    tensor = False

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass


class _TensorMark(_Mark):
    tensor = True


_TENSORS = {"_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter", "_rebuild_parameter_with_state"}


# The Python implementation of the unpickler: the one in C allocates memory by sizes in the file.
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
    """The containers of a file, with placeholders for tensors."""
    with zipfile.ZipFile(path) as archive:
        entry = next(entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl"))
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError("data.pkl must be stored without compression")
        return _Reader(io.BytesIO(archive.read(entry))).load()


# The maximum number of items: a few containers that contain each other many times could exhaust the memory.
_MOST = 1_000_000


def filled(node, tensors, path="", counter=None):
    """Fills the containers with the tensors that the crate has read, by their paths."""
    counter = counter if counter is not None else itertools.count(1)
    if next(counter) > _MOST:
        raise ValueError(f"containers must have at most {_MOST} items")
    if isinstance(node, _Mark):
        if not node.tensor:
            raise ValueError(f"{path or 'the object'} must be a tensor, a container or a plain value")
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
    """A key as the crate writes it in a path."""
    return str(key).lower() if isinstance(key, bool) else str(key)
