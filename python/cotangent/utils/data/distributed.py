"""The sampler for distributed training, by PyTorch's name."""

from ...data import DistributedSampler  # noqa: F401
