"""Datasets, samplers and ``DataLoader``: PyTorch's ``torch.utils.data``. Tokenizers and chat templates.

    >>> import cotangent as ct
    >>> dataset = ct.data.TensorDataset(ct.arange(6.0).reshape(3, 2), ct.tensor([0, 1, 0]))
    >>> for x, y in ct.data.DataLoader(dataset, batch_size=2):
    ...     print(x.shape, y.tolist())
    cotangent.Size([2, 2]) [0, 1]
    cotangent.Size([1, 2]) [0]

Workers are threads. Batches of ``TensorDataset``, ``Windows`` and their subsets are loaded without the interpreter; other
datasets and functions need it.
"""

from __future__ import annotations

import atexit
import bisect
import collections.abc
import itertools
import json
import math
import os
import threading
import weakref

from . import _cotangent as _c
from ._cotangent import Tensor, Vocabulary  # noqa: F401
from ._core.samplers import (  # noqa: F401
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    _permutation,
)
from ._core.tokenizers import ChatTemplate, Tokenizer  # noqa: F401

_ops = _c._functions


class Dataset:
    """A map-style dataset: subclasses define ``__getitem__`` and ``__len__``."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other):
        """Concatenates two datasets."""
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """An iterable-style dataset: subclasses define ``__iter__``."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class TensorDataset(Dataset):
    """A dataset of the rows of tensors: a sample is a tuple with a row of each."""

    def __init__(self, *tensors):
        self._source = _c._Source.tensors(tensors)
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a dataset at some indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, [int(index) for index in indices]

    def __getitem__(self, index):
        if isinstance(index, (list, tuple)):
            return [self.dataset[self.indices[one]] for one in index]
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


class ConcatDataset(Dataset):
    """Concatenates datasets."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: datasets must not be empty")
        self.cumulative_sizes: list = []
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise TypeError("ConcatDataset: datasets must have indices, got an IterableDataset: use ChainDataset")
            self.cumulative_sizes.append(len(dataset) + (self.cumulative_sizes[-1] if self.cumulative_sizes else 0))

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"ConcatDataset: index {index} is out of range for {len(self)} samples")
        index %= len(self)
        at = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[at][index - (self.cumulative_sizes[at - 1] if at else 0)]

    def __len__(self):
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """Concatenates iterable datasets."""

    def __init__(self, datasets):
        self.datasets = list(datasets)

    def __iter__(self):
        for dataset in self.datasets:
            yield from dataset


class StackDataset(Dataset):
    """Zips datasets: a sample is a tuple, or with names a dictionary, of one sample from each."""

    def __init__(self, *args, **kwargs):
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: datasets must be given by position or by name, not both")
        self.datasets = kwargs or args
        sizes = {len(dataset) for dataset in (kwargs.values() if kwargs else args)}
        if len(sizes) != 1:
            raise ValueError(f"StackDataset: datasets must have the same length, got {sorted(sizes)}")

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self):
        return len(next(iter(self.datasets.values())) if isinstance(self.datasets, dict) else self.datasets[0])


def random_split(dataset, lengths, generator=None):
    """Splits a dataset at random into parts of the given lengths or fractions."""
    lengths = list(lengths)
    if lengths and all(isinstance(x, float) for x in lengths) and math.isclose(sum(lengths), 1):
        sizes = [math.floor(len(dataset) * fraction) for fraction in lengths]
        for at in range(len(dataset) - sum(sizes)):
            sizes[at % len(sizes)] += 1
        lengths = sizes
    if any(not isinstance(x, int) or x < 0 for x in lengths) or sum(lengths) != len(dataset):
        raise ValueError(f"random_split: lengths must be ints that add up to {len(dataset)}, or fractions that add up to 1, got {lengths}")
    order = _permutation(len(dataset), generator)
    ends = [sum(lengths[: at + 1]) for at in range(len(lengths))]
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, lengths)]


# Batches


def default_collate(batch):
    """Collates samples: tensors are stacked, numbers become tensors, strings lists; containers keep their structure."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _ops["stack"](batch)
    if type(first).__module__ == "numpy" and hasattr(first, "dtype"):
        return _ops["stack"]([_c._tensor(one) for one in batch])
    if isinstance(first, (bool, int)):
        return _c._tensor(batch)
    if isinstance(first, float):
        # As in PyTorch, Python floats become float64.
        return _c._tensor(batch, dtype=_c.float64)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, collections.abc.Mapping):
        return {key: default_collate([one[key] for one in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(one) != len(first) for one in batch):
            raise ValueError(f"default_collate: samples must have the same number of parts, got "
                             f"{sorted({len(one) for one in batch})}")
        parts = [default_collate(list(one)) for one in zip(*batch)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    raise TypeError("default_collate: samples must be tensors, numbers, strings, or tuples or dictionaries of them, "
                    f"got a value of type {type(first).__name__}: pass a collate_fn")


def default_convert(data):
    """Converts the NumPy arrays of a sample to tensors, for loaders without batching."""
    if type(data).__module__ == "numpy" and hasattr(data, "dtype"):
        return _c._tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return {key: default_convert(one) for key, one in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    # A tuple becomes a list, as in PyTorch.
    return list(map(default_convert, data)) if isinstance(data, (list, tuple)) else data


# Workers must end before the interpreter.
_running: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _end():
    for batches in list(_running):
        batches.close()


_worker = threading.local()


class WorkerInfo:
    """Information about a worker thread."""

    def __init__(self, id, num_workers, seed, dataset):
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset


def get_worker_info():
    """The ``WorkerInfo`` of this thread, or None."""
    return getattr(_worker, "info", None)


class _Begun(Dataset):
    """A dataset that numbers its worker threads, and calls ``worker_init_fn`` before the first sample of each."""

    def __init__(self, dataset, num_workers, worker_init_fn):
        self.dataset, self._workers, self._init = dataset, num_workers, worker_init_fn
        self._numbers, self._seed = itertools.count(), _c.get_rng_state()[0]

    def __getitem__(self, index):
        info = getattr(_worker, "info", None)
        if info is None or info.dataset is not self.dataset:
            number = next(self._numbers) % self._workers
            _worker.info = WorkerInfo(number, self._workers, self._seed + number, self.dataset)
            if self._init is not None:
                self._init(number)
        return self.dataset[index]

    def __len__(self):
        return len(self.dataset)


def _own(dataset):
    """The crate's implementation of a dataset, or None."""
    if isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__:
        return dataset._source
    if type(dataset) is Windows:
        return dataset._source
    if type(dataset) is Subset:
        inner = _own(dataset.dataset)
        count = len(dataset.dataset) if inner is not None else 0
        return None if inner is None else inner.subset([at + count if at < 0 else at for at in dataset.indices])
    return None


class DataLoader:
    """Loads batches of a dataset. Each iteration is one epoch.

    ``num_workers`` threads load batches ahead. The order of an epoch depends on its number and on the seed (that of
    ``generator``, or a random one), but not on the number of workers. ``state_dict`` returns the position within an epoch.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
                 generator=None, *, seed=None, prefetch_factor=None, persistent_workers=False, pin_memory_device="",
                 in_order=True):
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler cannot be combined with batch_size, shuffle, sampler or drop_last")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: shuffle cannot be combined with sampler")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: drop_last requires a batch_size, got None")
        self.dataset, self.batch_size, self.num_workers, self.drop_last = dataset, batch_size, num_workers, drop_last
        self.batch_sampler, self.generator, self.pin_memory, self.timeout = batch_sampler, generator, pin_memory, timeout
        self.worker_init_fn, self.prefetch_factor, self.persistent_workers = worker_init_fn, prefetch_factor, persistent_workers
        self.collate_fn = collate_fn or (default_collate if batch_size is not None else default_convert)
        iterable = isinstance(dataset, IterableDataset)
        self.sampler = sampler
        if sampler is None and not iterable:
            # Only for PyTorch's attribute: the crate determines the order.
            self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        source = None if collate_fn is not None or iterable or batch_size is None else _own(dataset)
        collate = self.collate_fn
        if batch_size is None:
            collate = _only(collate)
        if seed is None and generator is not None:
            seed = generator.initial_seed()
        if source is None and not iterable and num_workers > 0:
            dataset = _Begun(dataset, num_workers, worker_init_fn)
        self._loader = _c._Loader(dataset if source is None else source, iterable, collate, 1 if batch_size is None else batch_size,
                                  bool(shuffle), sampler, batch_sampler, num_workers, drop_last, prefetch_factor, seed)
        self._is_own = source is not None

    def __iter__(self):
        batches = self._loader.iter()
        _running.add(batches)
        # PyTorch's batches of tuples are lists.
        return map(list, batches) if self._is_own else batches

    def __len__(self):
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count = self._loader.len()
        if count is None:
            raise TypeError("DataLoader: the number of batches is not known in advance")
        return count

    @property
    def epoch(self):
        """The number of the next epoch."""
        return self._loader.epoch()

    def set_epoch(self, epoch):
        """Sets the number of the next epoch."""
        self._loader.set_epoch(epoch)

    def state_dict(self):
        """The position of the loader: its seed, the epoch, and the number of batches returned."""
        return json.loads(self._loader.state())

    def load_state_dict(self, state):
        """Restores a position: the next iteration continues from it."""
        self._loader.restore(json.dumps(state))


def _only(convert):
    return lambda items: convert(items[0])


# Sources


class MNIST(TensorDataset):
    """MNIST images, ``[n, 1, 28, 28]`` of uint8, and labels, from a folder with MNIST or a dataset in the same format."""

    def __init__(self, root, train=True):
        self.data, self.targets = _c._mnist(root, train)
        super().__init__(self.data, self.targets)


def digits():
    """A built-in dataset of 1797 images of digits, 8 by 8 pixels from 0 to 1, and their labels."""
    return TensorDataset(*_c._digits())


def load_idx(path):
    """The tensor of an IDX file, the format of MNIST, gzipped or not."""
    return _c._load_idx(path)


class ImageFolder(Dataset):
    """Files in one folder per class: a sample is the result of ``loader`` for a file, and the index of its class.

    By default Pillow reads images as RGB. ``transform`` converts one to a tensor.
    """

    extensions = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

    def __init__(self, root, transform=None, target_transform=None, loader=None, is_valid_file=None, allow_empty=False):
        self.root, self.transform, self.target_transform = root, transform, target_transform
        self.loader = loader or _image
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"ImageFolder: {root} must have a folder for each class, got none")
        self.class_to_idx = {name: at for at, name in enumerate(self.classes)}
        valid = is_valid_file or (lambda path: path.lower().endswith(self.extensions))
        self.samples = []
        for name, number in self.class_to_idx.items():
            found = [os.path.join(folder, file) for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True))
                     for file in sorted(files)]
            found = [path for path in found if valid(path)]
            if not found and not allow_empty:
                raise FileNotFoundError(f"ImageFolder: no file of class {name} in {root}")
            self.samples += [(path, number) for path in found]
        self.imgs, self.targets = self.samples, [number for _, number in self.samples]

    def __getitem__(self, index):
        path, target = self.samples[index]
        sample = self.loader(path)
        sample = sample if self.transform is None else self.transform(sample)
        return sample, target if self.target_transform is None else self.target_transform(target)

    def __len__(self):
        return len(self.samples)


def _image(path):
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("ImageFolder: reading images requires Pillow: install it, or pass a loader") from None
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


class Csv:
    """A table from a CSV file. Columns, by name or index, convert to tensors. ``missing`` lists the strings for missing values."""

    def __init__(self, path, delimiter=",", header=True, comment=None, missing=None):
        self._csv = _c._Csv(path, delimiter, header, comment, missing)

    @property
    def names(self):
        """The names of the columns."""
        return self._csv.names()

    def __len__(self):
        return len(self._csv)

    def numbers(self, columns=None):
        """Columns as a float32 tensor ``[rows, columns]``; missing values are NaN."""
        return self._csv.numbers(self.names if columns is None else columns)

    def integers(self, column):
        """A column as a tensor of int64."""
        return self._csv.integers(column)

    def categories(self, column):
        """A column of strings as indices, and the list of strings."""
        return self._csv.categories(column)

    def column(self, column):
        """A column as a list of strings."""
        return self._csv.column(column)


class Jsonl(Dataset):
    """The lines of a JSON Lines file: a sample is the value of a line, read on access."""

    def __init__(self, path):
        self.path, self._starts = path, []
        with open(path, "rb") as file:
            at = 0
            for line in file:
                if line.strip():
                    self._starts.append(at)
                at += len(line)

    def __getitem__(self, index):
        start = self._starts[index]
        with open(self.path, "rb") as file:
            file.seek(start)
            line = file.readline()
        try:
            return json.loads(line)
        except ValueError as error:
            raise ValueError(f"Jsonl: {self.path}, non-empty line {index}: {error}") from None

    def __len__(self):
        return len(self._starts)


class Windows(Dataset):
    """Windows of tokens: a sample is ``length`` tokens and the same window shifted by one.

    The tokens of a text are its bytes; ``Vocabulary`` converts characters to tokens.
    """

    def __init__(self, tokens, length, stride=1):
        if isinstance(tokens, str):
            tokens = tokens.encode()
        if isinstance(tokens, (bytes, bytearray)):
            tokens = _c._bytes_as_tokens(bytes(tokens))
        self._source = _c._Source.windows(tokens, length, stride)

    def __getitem__(self, index):
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"Windows: index {index} is out of range for {count} windows")
        return self._source.item(index % count)

    def __len__(self):
        return len(self._source)
