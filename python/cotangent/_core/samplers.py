"""Samplers: iterables of the indices of an epoch."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .._cotangent import Tensor

_ops = _c._functions


def _permutation(count, generator=None):
    return _ops["randperm"](count, generator=generator).tolist() if count else []


class Sampler:
    """The base class of samplers: subclasses define ``__iter__``, and ``__len__`` if the length is known."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler):
    """All indices in order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """All indices in random order, or ``num_samples`` of them, drawn with or without replacement."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples
        if self.num_samples < 1:
            raise ValueError(f"RandomSampler: num_samples must be positive, got {self.num_samples}")

    def __iter__(self):
        count = len(self.data_source)
        if self.replacement:
            yield from _ops["randint"](0, count, (self.num_samples,), generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = _permutation(count, self.generator)[:left]
            yield from order
            left -= len(order)

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = list(indices), generator

    def __iter__(self):
        return (self.indices[at] for at in _permutation(len(self.indices), self.generator))

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """``num_samples`` indices, drawn with probabilities proportional to ``weights``."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights = weights if isinstance(weights, Tensor) else _c._tensor(list(weights), dtype=_c.float64)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        drawn = _ops["multinomial"](self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Batches of the indices of another sampler."""

    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"BatchSampler: batch_size must be a positive int, got {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        batch: list = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class DistributedSampler(Sampler):
    """The part of an epoch for one of several processes: every ``num_replicas``-th index."""

    def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: rank must be in [0, {num_replicas}), got {rank}")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    def set_epoch(self, epoch):
        """Sets the epoch, which determines the order. The loader calls it."""
        self.epoch = epoch

    def __iter__(self):
        from .. import Generator

        count = len(self.dataset)
        order = _permutation(count, Generator().manual_seed(self.seed + self.epoch)) if self.shuffle else list(range(count))
        total = len(self) * self.num_replicas
        while order and len(order) < total:
            order += order[: total - len(order)]
        return iter(order[self.rank : total : self.num_replicas])

    def __len__(self):
        count = len(self.dataset)
        return count // self.num_replicas if self.drop_last else math.ceil(count / self.num_replicas)
