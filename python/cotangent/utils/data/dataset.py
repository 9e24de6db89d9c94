"""Datasets, by PyTorch's name."""

from ...data import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split  # noqa: F401
