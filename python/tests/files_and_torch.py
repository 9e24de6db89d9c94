"""Files exchanged with a real PyTorch, and its DataLoader and ours, by one command:

    python python/tests/files_and_torch.py

Needs PyTorch and the package; the package safetensors is tried where it is installed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import cotangent as ct

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


def same(a, b):
    """Whether our tensor and PyTorch's have the same shape, dtype and bits."""
    if tuple(a.shape) != tuple(b.shape) or a.dtype.name != str(b.dtype).removeprefix("torch."):
        return False
    if a.dtype is ct.bfloat16:
        a, b = a.float(), b.float()
    return np.array_equal(np.asarray(a), b.detach().resolve_conj().numpy())


def state_dicts(folder):
    """State dicts by torch.save and ours, each read by the other."""
    theirs = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)).T for name in DTYPES}
    theirs |= {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5), "shared": theirs["float32"]}
    torch.save(theirs, folder / "theirs.pt")
    ours = ct.load(folder / "theirs.pt")
    wrong = [name for name in theirs if not same(ours[name], theirs[name])]
    ct.save({name: x.clone() for name, x in ours.items()}, folder / "ours.pt")
    back = torch.load(folder / "ours.pt", weights_only=True)
    wrong += [name for name in theirs if not same(ours[name], back[name])]
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(model.state_dict(), folder / "model.pt")
    ct.save(ct.load(folder / "model.pt"), folder / "again.pt")
    model.load_state_dict(torch.load(folder / "again.pt", weights_only=True))
    return wrong


def training_run(folder):
    """A nested checkpoint of PyTorch's comes as it was saved, and ours takes its states."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, folder / "run.pt")
    found = ct.load(folder / "run.pt")
    good = same(found["model"]["weight"], model.weight) and found["epoch"] == 3
    good &= found["optimizer"]["param_groups"][0]["lr"] == 0.01
    ours = ct.nn.Linear(2, 2)
    ours.load_state_dict(found["model"])
    restored = ct.optim.Adam(ours.parameters())
    restored.load_state_dict(found["optimizer"])
    good &= same(restored.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    return [] if good else ["run.pt"]


def safetensors_files(folder):
    try:
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file
    except ImportError:
        print("  skipped: there is no package safetensors")
        return []
    theirs = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in DTYPES if "complex" not in name}
    save_file(theirs, folder / "theirs.safetensors", {"format": "pt"})
    ours = ct.load(folder / "theirs.safetensors")
    wrong = [name for name in theirs if not same(ours[name], theirs[name])]
    ct.io.save_safetensors(folder / "ours.safetensors", ours, {"a": "b"})
    back = load_file(folder / "ours.safetensors")
    wrong += [name for name in theirs if not same(ours[name], back[name])]
    with safe_open(folder / "ours.safetensors", "pt") as file:
        wrong += [] if file.metadata() == {"a": "b"} else ["metadata"]
    return wrong


def loaders(_folder):
    """Batches of the same samples in the same order: shapes, dtypes and values."""
    from torch.utils import data

    arrays = np.arange(22, dtype="float32").reshape(11, 2), np.arange(11)

    class Ours(ct.data.Dataset):
        lib = ct

        def __len__(self):
            return 11

        def __getitem__(self, index):
            return {"x": self.lib.tensor(arrays[0][index]), "n": index, "f": index / 2, "s": str(index), "t": (index, True)}

    class Theirs(Ours, data.Dataset):
        lib = torch

    wrong = []
    pairs = [(ct.data.TensorDataset(*map(ct.tensor, arrays)), data.TensorDataset(*map(torch.tensor, arrays))), (Ours(), Theirs())]
    choices = [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": 3, "sampler": [5, 3, 9, 1]},
               {"batch_sampler": [[1, 2], [10]]}, {}, {"batch_size": None}]
    for ours, theirs in pairs:
        for options in choices:
            a = ct.data.DataLoader(ours, num_workers=2, **options)
            b = data.DataLoader(theirs, **options)
            found, wanted = list(a), list(b)
            if len(a) != len(b) or len(found) != len(wanted) or not all(map(alike, found, wanted)):
                wrong.append(f"{type(ours).__name__} {options}: {found[:1]} {wanted[:1]}")
    return wrong


def alike(a, b):
    if isinstance(b, torch.Tensor):
        return same(a, b)
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return a == b


def main():
    failed = 0
    for part in (state_dicts, training_run, safetensors_files, loaders):
        with tempfile.TemporaryDirectory() as folder:
            wrong = part(Path(folder))
        failed += len(wrong)
        print(f"{part.__name__}: {'agree' if not wrong else wrong}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
