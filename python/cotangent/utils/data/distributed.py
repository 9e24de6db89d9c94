"""The sampler of one of several processes, by PyTorch's name."""

from ...data import DistributedSampler  # noqa: F401
