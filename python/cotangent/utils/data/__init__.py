"""Datasets and loaders: ``cotangent.data`` by PyTorch's name."""

from ... import data as _data
from . import dataloader, dataset, distributed, sampler  # noqa: F401

globals().update({name: value for name, value in vars(_data).items() if not name.startswith("_")})

from ..._core import aliases as _aliases  # noqa: E402

# PyTorch has submodules of these names.
_aliases.alias(__name__, "_utils _utils.collate _utils.worker")
