"""Datasets and loaders: ``cotangent.data`` by PyTorch's name."""

from ... import data as _data
from . import dataloader, dataset, distributed, sampler  # noqa: F401

globals().update({name: value for name, value in vars(_data).items() if not name.startswith("_")})
