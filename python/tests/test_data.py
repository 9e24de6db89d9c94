"""Datasets, samplers and the loader: with threads and without, of tensors and of Python's objects."""

import collections
import gzip
import json
import struct
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import cotangent as ct
from cotangent import data


class Squares(data.Dataset):
    def __init__(self, count=10):
        self.count = count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        return index, float(index) ** 2

    def __len__(self):
        return self.count


def rows(count=10):
    return data.TensorDataset(ct.arange(float(count)).reshape(count, 1), ct.arange(count))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("dataset", [Squares(), rows()], ids=["python", "tensors"])
def test_batches_in_order(dataset, workers):
    loader = data.DataLoader(dataset, batch_size=4, num_workers=workers)
    assert len(loader) == 3
    for _ in range(2):
        batches = list(loader)
        assert [len(batch[0]) for batch in batches] == [4, 4, 2] and all(type(batch) is list for batch in batches)
        assert [int(x) for batch in batches for x in batch[0].reshape(-1)] == list(range(10))
    loader = data.DataLoader(dataset, batch_size=4, drop_last=True, num_workers=workers)
    assert len(loader) == 2 and len(list(loader)) == 2


@pytest.mark.parametrize("dataset", [Squares(50), rows(50)], ids=["python", "tensors"])
def test_the_order_follows_from_the_seed(dataset):
    def order(**options):
        loader = data.DataLoader(dataset, batch_size=7, shuffle=True, **options)
        return [[int(x) for batch in loader for x in batch[0].reshape(-1)] for _ in range(2)]

    first = order(seed=3)
    assert first[0] != first[1] and sorted(first[0]) == sorted(first[1]) == list(range(50))
    assert order(seed=3, num_workers=3) == first and order(seed=4) != first
    assert order(generator=ct.Generator().manual_seed(3)) == first
    ct.manual_seed(0)
    again = order()
    ct.manual_seed(0)
    assert order(num_workers=2) == again


@pytest.mark.parametrize("dataset", [Squares(20), rows(20)], ids=["python", "tensors"])
def test_going_on_where_it_was(dataset):
    def make():
        return data.DataLoader(dataset, batch_size=3, shuffle=True, seed=1, num_workers=2)

    wanted = [batch[0].tolist() for batch in make()]
    loader = make()
    iterator = iter(loader)
    head = [next(iterator)[0].tolist() for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["position"]) == (0, 3)
    other = make()
    other.load_state_dict(state)
    assert head + [batch[0].tolist() for batch in other] == wanted
    with pytest.raises(ValueError):
        data.DataLoader(dataset, batch_size=4).load_state_dict(state)


def test_samplers():
    dataset = rows()
    order = [3, 1, 4, 1, 5]
    for sampler in (order, iter_of(order)):
        loader = data.DataLoader(dataset, batch_size=2, sampler=sampler)
        assert [batch[1].tolist() for batch in loader] == [[3, 1], [4, 1], [5]]
    loader = data.DataLoader(dataset, batch_sampler=[[0, 1, 2], [9]])
    assert [batch[1].tolist() for batch in loader] == [[0, 1, 2], [9]] and len(loader) == 2
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert len(data.BatchSampler(range(5), 2, True)) == len(list(data.BatchSampler(range(5), 2, True))) == 2
    assert sorted(data.RandomSampler(range(6))) == list(range(6))
    assert len(list(data.RandomSampler(range(3), num_samples=8))) == 8
    assert set(data.RandomSampler(range(3), replacement=True, num_samples=99)) == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([5, 7])) == [5, 7]
    assert set(data.WeightedRandomSampler([0.0, 1.0, 1.0], 50)) == {1, 2}
    parts = [list(data.DistributedSampler(range(10), 3, rank)) for rank in range(3)]
    assert [len(part) for part in parts] == [4, 4, 4] and set(sum(parts, [])) == set(range(10))
    with pytest.raises(IndexError):
        list(data.DataLoader(dataset, sampler=[11]))


class iter_of:
    def __init__(self, order):
        self.order = order

    def __iter__(self):
        return iter(self.order)


def test_parts_of_datasets():
    dataset = Squares()
    part = data.Subset(dataset, [4, 2])
    assert part[0] == (4, 16.0) and len(part) == 2
    both = dataset + part
    assert len(both) == 12 and both[-1] == (2, 4.0) and both[9] == (9, 81.0)
    with pytest.raises(IndexError):
        both[12]
    train, test = data.random_split(dataset, [0.75, 0.25], generator=ct.Generator().manual_seed(0))
    assert (len(train), len(test)) == (8, 2) and sorted(train.indices + test.indices) == list(range(10))
    with pytest.raises(ValueError, match="add up to 10"):
        data.random_split(dataset, [3, 3])
    # Parts of tensors stay the crate's.
    batches = [batch[1].tolist() for batch in data.DataLoader(data.Subset(data.Subset(rows(), [8, 6, 4]), [2, -3]), batch_size=2)]
    assert batches == [[4, 8]]
    with pytest.raises(IndexError):
        data.DataLoader(data.Subset(rows(), [10]))


def test_collation():
    Point = collections.namedtuple("Point", "x y")
    batch = data.default_collate([{"a": (1, 2.5), "t": "x", "p": Point(ct.ones(2), True)}, {"a": (3, 4.5), "t": "y", "p": Point(ct.zeros(2), False)}])
    assert batch["a"][0].dtype is ct.int64 and batch["a"][1].dtype is ct.float64 and batch["t"] == ["x", "y"]
    assert isinstance(batch["p"], Point) and batch["p"].x.shape == (2, 2) and batch["p"].y.dtype is ct.bool
    assert data.default_collate([np.ones(3, "float32"), np.zeros(3, "float32")]).shape == (2, 3)
    assert data.default_collate([np.float32(1), np.float32(2)]).dtype is ct.float32
    with pytest.raises(TypeError, match="object"):
        data.default_collate([object()])
    with pytest.raises(ValueError, match="parts"):
        data.default_collate([(1, 2), (1,)])
    loader = data.DataLoader(Squares(), batch_size=3, collate_fn=lambda items: [x for x, _ in items], num_workers=2)
    assert list(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert [x for x, _ in data.DataLoader(Squares(), batch_size=None)] == list(range(10))
    with pytest.raises(ValueError):
        data.DataLoader(Squares(), batch_size=0)
    with pytest.raises(ValueError, match="batch_sampler"):
        data.DataLoader(Squares(), batch_size=2, batch_sampler=[[1]])


class Failing(Squares):
    def __getitem__(self, index):
        if index == 5:
            return self.fail()
        return index

    def fail(self):
        raise KeyError("item five")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_arrives_as_it_was_raised(workers):
    seen = []
    with pytest.raises(KeyError, match="item five") as raised:
        for batch in data.DataLoader(Failing(), batch_size=2, num_workers=workers):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]]
    assert "in fail" in "".join(traceback.format_exception(raised.value))
    with pytest.raises(ZeroDivisionError):
        list(data.DataLoader(Squares(), collate_fn=lambda items: 1 / 0, num_workers=workers))


class Lines(data.IterableDataset):
    def __iter__(self):
        yield from range(7)


class Broken(data.IterableDataset):
    def __iter__(self):
        yield 1
        raise OSError("the line is dead")


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets(workers):
    loader = data.DataLoader(Lines(), batch_size=3, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]] == [batch.tolist() for batch in loader]
    with pytest.raises(TypeError, match="not known"):
        len(loader)
    with pytest.raises(OSError, match="dead"):
        list(data.DataLoader(Broken(), num_workers=workers))
    with pytest.raises(ValueError, match="iterable dataset"):
        data.DataLoader(Lines(), shuffle=True)
    chain = data.ChainDataset([Lines(), Lines()])
    assert len(list(data.DataLoader(chain, batch_size=None))) == 14


def test_workers_are_threads_that_end():
    names = set()

    class Where(Squares):
        def __getitem__(self, index):
            names.add(threading.get_ident())
            return index

    before = threading.active_count()
    for _ in data.DataLoader(Where(100), batch_size=2, num_workers=3):
        break
    assert threading.get_ident() not in names and threading.active_count() <= before + 3
    iterator = iter(data.DataLoader(Where(1000), num_workers=2))
    next(iterator)
    iterator.close()
    assert list(iterator) == []


def test_the_interpreter_ends_with_workers_at_work():
    program = """
import time, cotangent as ct
class Slow(ct.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return index
iterator = iter(ct.data.DataLoader(Slow(), num_workers=3))
next(iterator)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_sources(tmp_path):
    images, labels = data.digits().tensors
    assert images.shape == (1797, 64) and labels.dtype is ct.int64
    pixels = bytes(range(256)) * 8
    for part, count in (("train", 2), ("t10k", 1)):
        with gzip.open(tmp_path / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">HBBIII", 0, 8, 3, count, 28, 28) + pixels[: count * 784])
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, count) + bytes(range(3, 3 + count)))
    train, test = data.MNIST(tmp_path), data.MNIST(tmp_path, train=False)
    assert len(train) == 2 and len(test) == 1 and train.targets.tolist() == [3, 4]
    assert data.load_idx(tmp_path / "train-labels-idx1-ubyte").tolist() == [3, 4]
    (batch, target), = data.DataLoader(train, batch_size=2)
    assert batch.shape == (2, 1, 28, 28) and batch.dtype is ct.uint8 and target.tolist() == [3, 4]

    (tmp_path / "t.csv").write_text("a,b,kind\n1,2.5,x\n3,,y\n5,6.5,x\n")
    table = data.Csv(tmp_path / "t.csv", missing=[""])
    assert table.names == ["a", "b", "kind"] and len(table) == 3
    assert table.numbers(["a", "b"]).nan_to_num(-1.0).tolist() == [[1, 2.5], [3, -1], [5, 6.5]]
    assert table.numbers([0, "b"]).shape == (3, 2) and table.integers("a").tolist() == [1, 3, 5]
    codes, names = table.categories("kind")
    assert [names[code] for code in codes.tolist()] == table.column(2) == ["x", "y", "x"]
    with pytest.raises(ValueError, match="nothere"):
        table.integers("nothere")

    (tmp_path / "t.jsonl").write_text('{"x": 1, "s": "é"}\n\n{"x": 2, "s": "b"}\nbad\n')
    lines = data.Jsonl(tmp_path / "t.jsonl")
    assert len(lines) == 3 and lines[0] == {"x": 1, "s": "é"} and lines[1]["x"] == 2
    with pytest.raises(ValueError, match="line 2"):
        lines[2]

    windows = data.Windows("hello world", 4, stride=2)
    inputs, targets = windows[0]
    assert bytes(inputs.tolist()) == b"hell" and bytes(targets.tolist()) == b"ello"
    assert [x.shape for x, _ in data.DataLoader(windows, batch_size=3)][0] == (3, 4)
    vocabulary = data.Vocabulary("hello")
    assert vocabulary.decode(vocabulary.encode("hole")) == "hole" and vocabulary.characters == "ehlo"
    assert data.Windows(vocabulary.encode("hello"), 2)[-1][1].tolist() == vocabulary.encode("lo").tolist()


def test_files_in_folders_of_classes(tmp_path):
    for name, files in {"dog": ["b.png", "a.png", "notes.txt"], "cat": ["c.PNG", "deeper/d.png"]}.items():
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(file.encode())
    read = lambda path: ct.tensor([float(len(open(path, "rb").read()))])
    dataset = ct.data.ImageFolder(tmp_path, loader=read, transform=lambda x: x * 2, target_transform=lambda y: y + 10)
    assert dataset.classes == ["cat", "dog"] and dataset.class_to_idx == {"cat": 0, "dog": 1}
    assert [path.rsplit("/", 1)[1] for path, _ in dataset.samples] == ["c.PNG", "d.png", "a.png", "b.png"] and dataset.targets == [0, 0, 1, 1]
    x, y = next(iter(ct.data.DataLoader(dataset, batch_size=4)))
    assert x.tolist() == [[10.0], [24.0], [10.0], [10.0]] and y.tolist() == [10, 10, 11, 11] and len(dataset) == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no file of class empty"):
        ct.data.ImageFolder(tmp_path, loader=read)
    with pytest.raises(FileNotFoundError, match="must have a folder for each class"):
        ct.data.ImageFolder(tmp_path / "empty")
