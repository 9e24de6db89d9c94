"""PyTorch's loader on the files that `main.rs` creates: samples per second, a line of JSON for each workload."""

import json
import sys
import time
from pathlib import Path

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

WORKERS = 2
SECONDS = 3.0
NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def load_idx(path):
    """Reads an IDX file as torchvision does for MNIST."""
    return torchvision.datasets.mnist.read_sn3_pascalvincent_tensor(str(path))


class Digits(Dataset):
    """MNIST with single samples as tensors: less work than torchvision's MNIST, which uses PIL."""

    def __init__(self, folder):
        self.images = load_idx(folder / "train-images-idx3-ubyte")
        self.labels = load_idx(folder / "train-labels-idx1-ubyte").long()
        self.normalize = T.Normalize([0.1307], [0.3081])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.normalize(self.images[index].unsqueeze(0).float().div(255)), self.labels[index]


def run(name, dataset):
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(
        dataset, batch_size=64, shuffle=True, num_workers=WORKERS, persistent_workers=True, generator=generator
    )
    epoch = lambda: sum(len(labels) for _, labels in loader)
    epoch()
    start, samples, epochs = time.perf_counter(), 0, 0
    while epochs < 2 or time.perf_counter() - start < SECONDS:
        samples += epoch()
        epochs += 1
    rate = samples / (time.perf_counter() - start)
    print(json.dumps({"peer": "torch", "workload": name, "samples_per_s": round(rate, 1), "epochs": epochs}), flush=True)


def main():
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    augment = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE])
    workloads = {
        "mnist_tensors": lambda: tensors(folder / "mnist"),
        "mnist_items": lambda: Digits(folder / "mnist"),
        "jpegs_224": lambda: ImageFolder(folder / "jpegs_224", T.Compose([T.ToTensor(), NORMALIZE])),
        "jpegs_augmented": lambda: ImageFolder(folder / "jpegs_large", augment),
    }
    for name, dataset in workloads.items():
        if not wanted or name in wanted:
            run(name, dataset())


def tensors(folder):
    digits = Digits(folder)
    return TensorDataset(digits.images.unsqueeze(1).float().div(255), digits.labels)


if __name__ == "__main__":
    main()
