"""Saving and loading of tensors. No code in a file is run.

=============================  ================================================  ===============================
format                         read                                              written
=============================  ================================================  ===============================
nested containers              ``load``                                          ``save``
safetensors, also in shards    ``load_safetensors``, with ``metadata``           ``save_safetensors``, ``save_sharded``
NumPy's ``.npy``, ``.npz``     ``load_npy``, ``load_npz``                        ``save_npy``, ``save_npz``
PyTorch's ``.pt``, ``.pth``    ``load_pytorch``, without PyTorch                 ``save_pytorch``
GGUF                           ``load_gguf``, quantised tensors as float32       no
checkpoints                    ``Checkpoint.load``, ``Checkpoints``              ``Checkpoint.save``, ``Checkpoints``
=============================  ================================================  ===============================
"""

from __future__ import annotations

import base64
import collections.abc
import json
import math
import os

from . import _cotangent as _c
from ._cotangent import Tensor

# The metadata entry with the containers of a file.
_TREE = "cotangent.tree"


def _wanted(dtype=None, device=None, names=None):
    return {"dtype": dtype, "device": device, "names": None if names is None else list(names)}


def save_safetensors(path, tensors, metadata=None):
    """Saves named tensors and metadata as a safetensors file."""
    _c._save_safetensors(path, dict(tensors), metadata)


def load_safetensors(path, *, dtype=None, device=None, names=None):
    """The tensors of a safetensors file, of an index of shards, or of a folder with either."""
    return _c._load_safetensors(path, _wanted(dtype, device, names))[0]


def load_metadata(path):
    """The metadata of a safetensors file."""
    return _c._load_safetensors(path, _wanted(names=()))[1]


def save_sharded(folder, tensors, max_shard_bytes=5 * 2**30):
    """Saves named tensors as safetensors shards with an index, the format of large published models."""
    _c._save_sharded(folder, dict(tensors), max_shard_bytes)


def save_npy(path, tensor):
    """Saves a tensor as a NumPy ``.npy`` file."""
    _c._save_npy(path, tensor)


def load_npy(path):
    """The tensor of a NumPy ``.npy`` file."""
    return _c._load_npy(path)


def save_npz(path, tensors, compressed=False):
    """Saves named tensors as a NumPy ``.npz`` file."""
    _c._save_npz(path, dict(tensors), compressed)


def load_npz(path, *, dtype=None, device=None, names=None):
    """The tensors of a NumPy ``.npz`` file."""
    return _c._load_npz(path, _wanted(dtype, device, names))


def save_pytorch(path, tensors):
    """Saves named tensors so that ``torch.load`` returns a state dict."""
    _c._save_pytorch(path, dict(tensors))


def load_pytorch(path, *, dtype=None, device=None, names=None):
    """The tensors of a PyTorch file by name. The names of nested containers are joined by dots."""
    return _c._load_pytorch(path, _wanted(dtype, device, names))[0]


def load_pytorch_values(path):
    """The numbers, strings and lists of a PyTorch file, for example the epoch or the settings of an optimiser."""
    return _c._load_pytorch(path, _wanted(names=()))[1] or {}


def load_gguf(path, *, dtype=None, device=None, names=None):
    """The tensors of a GGUF file; quantised ones become float32."""
    return _c._load_gguf(path, _wanted(dtype, device, names))[0]


def load_gguf_metadata(path):
    """The metadata of a GGUF file."""
    return _c._load_gguf(path, _wanted(names=()))[1]


# Containers of tensors: a tree of plain values, with names in place of tensors.


class _Packer:
    def __init__(self, function):
        self.function, self.tensors, self.names = function, {}, {}

    def pack(self, value, path, depth=0):
        if depth > 64:
            raise ValueError(f"{self.function}: containers must be nested at most 64 deep")
        if isinstance(value, Tensor):
            return self.tensor(value, path)
        if value is None or isinstance(value, (bool, int, str)):
            return {"value": value if value is None or isinstance(value, (bool, str)) else int(value)}
        if isinstance(value, float):
            return {"value": float(value)} if math.isfinite(value) else {"float": str(float(value))}
        if isinstance(value, complex):
            return {"complex": [str(value.real), str(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, _c.dtype):
            return {"dtype": value.name}
        if isinstance(value, _c.device):
            return {"device": str(value)}
        if isinstance(value, collections.abc.Mapping):
            pairs = [[self.pack(key, path, depth + 1), self.pack(one, f"{path}.{key}" if path else str(key), depth + 1)]
                     for key, one in value.items()]
            return {"dict": pairs}
        if isinstance(value, (list, tuple)):
            items = [self.pack(one, f"{path}.{at}" if path else str(at), depth + 1) for at, one in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": items}
        raise TypeError(f"{self.function}: {path or 'the object'} must be a tensor, number, string or container of them, got a "
                        f"value of type {type(value).__name__}: loading runs no code")

    def tensor(self, tensor, path):
        if id(tensor) not in self.names:
            name = path or "tensor"
            while name in self.tensors:
                name += "_"
            self.names[id(tensor)], self.tensors[name] = name, tensor
        found = {"tensor": self.names[id(tensor)]}
        return found | {"requires_grad": True} if tensor.requires_grad and tensor.is_leaf else found


def _pack(function, obj):
    packer = _Packer(function)
    tree = packer.pack(obj, "")
    return packer.tensors, json.dumps(tree)


def _unpack(function, tensors, text):
    def build(node, depth=0):
        if depth > 128 or not isinstance(node, dict) or not node:
            raise ValueError(f"{function}: malformed containers in the file")
        kind, value = next(iter(node.items()))
        if kind == "tensor":
            return tensors[value].requires_grad_() if node.get("requires_grad") else tensors[value]
        if kind == "dict":
            return {build(key, depth + 1): build(one, depth + 1) for key, one in value}
        if kind in ("list", "tuple"):
            return (tuple if kind == "tuple" else list)(build(one, depth + 1) for one in value)
        plain = {"value": lambda: value, "float": lambda: float(value), "complex": lambda: complex(*map(float, value)),
                 "bytes": lambda: base64.b64decode(value), "dtype": lambda: _c._dtype(value), "device": lambda: _c.device(value)}
        return plain[kind]()

    try:
        return build(json.loads(text))
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError(f"{function}: malformed containers in the file: {error}") from None


def save(obj, f):
    """Saves tensors, numbers, text and containers of them to a path or an open binary file; see ``load``.

    The file is a safetensors file. For a flat dictionary of tensors, any reader of the format can load it, or ``torch.load``
    if the path ends with ``.pt`` or ``.pth``.

        >>> import cotangent as ct, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "run.ct")
        >>> ct.save({"model": {"w": ct.ones(2)}, "epoch": 3}, path)
        >>> ct.load(path)["epoch"]
        3
    """
    if hasattr(f, "write"):
        return _through_a_file(lambda path: _save(obj, path), f)
    _save(obj, f)


def _save(obj, path):
    tensors, tree = _pack("save", obj)
    flat = (isinstance(obj, collections.abc.Mapping) and list(obj) == list(tensors)
            and all(isinstance(one, Tensor) and not (one.requires_grad and one.is_leaf) for one in obj.values()))
    if flat and os.fspath(path).endswith((".pt", ".pth")):
        _c._save_pytorch(path, tensors)
    else:
        # Also for a flat dictionary, to keep its order.
        _c._save_safetensors(path, tensors, {} if flat and len(tensors) < 2 else {_TREE: tree})


def _through_a_file(write, f):
    # Imported here, because it takes milliseconds and is rarely needed.
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        write(path)
        with open(path, "rb") as made:
            shutil.copyfileobj(made, f)


def load(f, map_location=None, *, weights_only=True, dtype=None):
    """Loads a file written by ``save``, or the tensors of a file in another format, detected by its first bytes.

    For a PyTorch file it returns the saved containers, with tensors, numbers and strings. No code in a file is run, for any
    ``weights_only``: if objects require code, it returns the tensors under names joined by dots, with a warning.
    ``map_location`` is a device, or another form that PyTorch accepts: a dictionary, or a function of a storage and its
    location.
    """
    if hasattr(f, "read"):
        import shutil
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as copy:
                shutil.copyfileobj(f, copy)
            return load(path, map_location, dtype=dtype)
    map_location = _place(map_location)
    wanted = _wanted(dtype, map_location)
    if os.path.isdir(f):
        return _c._load_safetensors(f, wanted)[0]
    with open(f, "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return load_npy(f).to(dtype=dtype, device=map_location)
    if start[:4] == b"GGUF":
        return _c._load_gguf(f, wanted)[0]
    if start[:4] == b"PK\x03\x04":
        if os.fspath(f).endswith(".npz"):
            return _c._load_npz(f, wanted)
        return _load_pytorch(f, wanted)
    tensors, metadata = _c._load_safetensors(f, wanted)
    return _unpack("load", tensors, metadata[_TREE]) if _TREE in metadata else tensors


def _load_pytorch(f, wanted):
    """The containers of a PyTorch file, with tensors in them."""
    import pickle

    from ._core import pickled as _pickled

    tensors, values = _c._load_pytorch(f, wanted)
    try:
        return _pickled.filled(_pickled.structure(f), tensors)
    except (pickle.UnpicklingError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError) as error:
        import warnings

        warnings.warn(f"load: the containers of {os.fspath(f)} cannot be rebuilt ({error}): its tensors have names joined "
                      "by dots", stacklevel=3)
        return {**(values if isinstance(values, dict) else {}), **tensors}


def _place(map_location):
    """The device of a ``map_location`` in any of PyTorch's forms; None is the CPU."""
    if isinstance(map_location, collections.abc.Mapping):
        return map_location.get("cpu")
    if not callable(map_location):
        return map_location
    found = map_location(_Storage("cpu"), "cpu")
    if found is None or isinstance(found, _Storage):
        return found.device if found else None
    raise TypeError(f"load: map_location must return a storage or None, got an object of type {type(found).__name__}")


class _Storage:
    """The storage passed to a function as ``map_location``, which chooses its device."""

    def __init__(self, device):
        self.device = device

    def cpu(self):
        return _Storage("cpu")

    def cuda(self, device=0):
        return _Storage(f"cuda:{device}" if isinstance(device, int) else str(device))


# Checkpoints


class Checkpoint:
    """The state of a training run in one file: the state dicts of its parts, and plain values.

        >>> import cotangent as ct, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "run.ckpt")
        >>> run = ct.io.Checkpoint(epoch=3)
        >>> run.add("model", {"w": ct.ones(2)})
        >>> run.save(path)
        >>> ct.io.Checkpoint.load(path).values["epoch"]
        3
    """

    def __init__(self, **values):
        self.values = values
        self.parts: dict = {}

    def add(self, name, part):
        """Adds a part: an object with ``state_dict()``, or a state dict."""
        self.parts[name] = part.state_dict() if hasattr(part, "state_dict") else part

    def restore(self, **parts):
        """Restores each part by ``load_state_dict``. If one fails, all get their old states back."""
        missing = [name for name in parts if name not in self.parts]
        if missing:
            raise ValueError(f"Checkpoint: no part named {missing[0]}, the parts are {', '.join(self.parts)}")
        done: list = []
        try:
            for name, part in parts.items():
                done.append((part, _copied(part.state_dict())))
                part.load_state_dict(self.parts[name])
        except BaseException:
            for part, before in done:
                part.load_state_dict(before)
            raise

    def _packed(self):
        return {name: _pack("Checkpoint", part) for name, part in self.parts.items()}

    def save(self, path):
        """Writes the file atomically."""
        _c._save_checkpoint(path, self._packed(), self.values)

    @classmethod
    def load(cls, path):
        """Loads a checkpoint, also one written by the crate in Rust."""
        parts, values = _c._load_checkpoint(path)
        made = cls(**(values or {}))
        for name, (tensors, own) in parts.items():
            tree = (own or {}).get("tree")
            made.parts[name] = {**(own or {}), **tensors} if tree is None else _unpack("Checkpoint", tensors, tree)
        return made


def _copied(state):
    """A copy of a state."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, collections.abc.Mapping):
        return {key: _copied(one) for key, one in state.items()}
    return type(state)(_copied(one) for one in state) if type(state) in (list, tuple) else state


class Checkpoints:
    """A folder that keeps the last checkpoints of a run, and the best by one of their values."""

    def __init__(self, folder, keep_last=3, keep_best=1, metric=None, mode="min"):
        self._folder = _c._Folder(folder, keep_last, keep_best, metric, mode)

    def save(self, step, checkpoint):
        """Saves a checkpoint of a step, removes old ones, and returns the path."""
        return self._folder.save(step, checkpoint._packed(), checkpoint.values)

    def steps(self):
        """The steps of the saved checkpoints."""
        return self._folder.steps()

    def last(self):
        """The step and the path of the last checkpoint, or None."""
        return self._folder.last()

    def best(self):
        """The step and the path of the best checkpoint, or None."""
        return self._folder.best()
