"""How the containers of PyTorch's files are put together.

The pickle of a file is read by Python's own reader, which may make nothing but containers, dtypes, sizes and marks for tensors:
whatever else a file names becomes a mark, too. The tensors are the crate's.
"""

from __future__ import annotations

import io
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


class _Reader(pickle.Unpickler):
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
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        return _Reader(io.BytesIO(archive.read(name))).load()


def filled(node, tensors, path=""):
    """The same containers with the tensors that the crate has read, which it names by their places."""
    if isinstance(node, _Mark):
        if not node.tensor:
            raise ValueError(f"{path or 'the object'} is something that is no value")
        return tensors[path or "tensor"]
    below = lambda key: f"{path}.{key}" if path else str(key)
    if isinstance(node, dict):
        return type(node)((key, filled(one, tensors, below(_key(key)))) for key, one in node.items())
    if isinstance(node, Size):
        return node
    if isinstance(node, (list, tuple)):
        return type(node)(filled(one, tensors, below(at)) for at, one in enumerate(node))
    return node


def _key(key):
    """A key as the crate writes it into a name."""
    return str(key).lower() if isinstance(key, bool) else str(key)
