"""The example `mnist --model cnn` in PyTorch, with the same network, batches, rate and loss.

Usage: mnist.py FOLDER [EPOCHS] [THREADS]. Images are indexed in memory, without a DataLoader, and AdamW is fused, for speed.
"""

import gzip
import sys
import time
from pathlib import Path

# torch.py in this folder would shadow PyTorch.
sys.path.remove(str(Path(__file__).resolve().parent))
import torch
from torch import nn

BATCH, RATE = 64, 2e-3


def read(folder, name, head):
    path = next(path for path in (folder / name, folder / f"{name}.gz") if path.exists())
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    return torch.frombuffer(bytearray(data[head:]), dtype=torch.uint8)


def part(folder, name):
    return read(folder, f"{name}-images-idx3-ubyte", 16).view(-1, 1, 28, 28), read(folder, f"{name}-labels-idx1-ubyte", 8).long()


def normalized(images):
    return (images.float() / 255 - 0.1307) / 0.3081


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(normalized(x)).argmax(1) == y).sum() for x, y in zip(images.split(1000), labels.split(1000)))
    model.train()
    return 100 * right.item() / len(labels)


def main():
    folder, epochs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    torch.manual_seed(42)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    (images, labels), test = part(folder, "train"), part(folder, "t10k")
    steps = len(labels) // BATCH + (len(labels) % BATCH > 0)
    for epoch in range(epochs):
        start, losses = time.perf_counter(), 0.0
        for step, at in enumerate(torch.randperm(len(labels)).split(BATCH)):
            done = (epoch * steps + step) / (epochs * steps)
            optimizer.param_groups[0]["lr"] = RATE * min(10 * done + 0.01, (1 - done) / 0.9)
            loss = nn.functional.cross_entropy(model(normalized(images[at])), labels[at], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item()
        seconds = time.perf_counter() - start
        speed = len(labels) / seconds
        print(f"epoch {epoch + 1}/{epochs}  loss {losses / steps:.4f}  {speed:.0f} images/s  {seconds:.1f} s  test {accuracy(model, *test):.2f} %")


if __name__ == "__main__":
    main()
