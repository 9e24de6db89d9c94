"""PyTorch's example of MNIST: a network of convolutions, a training loop, a schedule of the rate, and a saved state.

    python mnist.py FOLDER              # with the files of MNIST, such as train-images-idx3-ubyte.gz, in it
    python mnist.py                     # without data: digits that are drawn here
    python mnist.py --library torch     # the same script with PyTorch

Nothing but the imports differs between the two libraries.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import pickle
import random
import struct
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser(description="MNIST")
parser.add_argument("folder", nargs="?", help="where the files are")
parser.add_argument("--library", default="cotangent", choices=["cotangent", "torch"])
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--test-batch-size", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1.0, help="learning rate")
parser.add_argument("--gamma", type=float, default=0.7, help="what the rate is multiplied by after an epoch")
parser.add_argument("--dry-run", action="store_true", help="one batch of each")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10)
parser.add_argument("--save-model", help="a file for the state")
args = parser.parse_args()

# `import torch`, or `import cotangent as torch`, and so on.
torch = importlib.import_module(args.library)
nn = importlib.import_module(args.library + ".nn")
F = importlib.import_module(args.library + ".nn.functional")
optim = importlib.import_module(args.library + ".optim")
StepLR = importlib.import_module(args.library + ".optim.lr_scheduler").StepLR


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, batches, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(batches):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train epoch: {epoch} [{batch_idx}/{len(batches)}]\tloss: {loss.item():.6f}")
        if args.dry_run:
            break


def test(model, device, batches):
    model.eval()
    test_loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for data, target in batches:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
            count += len(data)
            if args.dry_run:
                break
    print(f"Test set: average loss: {test_loss / count:.4f}, accuracy: {correct}/{count} ({100.0 * correct / count:.1f} %)")
    return correct / count


def read(name):
    """A file of MNIST as an array."""
    path = Path(args.folder) / name
    data = gzip.decompress(path.with_name(name + ".gz").read_bytes()) if not path.exists() else path.read_bytes()
    rank = data[3]
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def drawn(count, rng):
    """A bar for each digit, with noise."""
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 50, (count, 28, 28))
    for image, label in zip(images, labels):
        image[:, 2 * label : 2 * label + 3] = 200
    return images.astype(np.uint8), labels


def batches_of(images, labels, size, shuffle):
    images = torch.tensor(((images / 255.0 - 0.1307) / 0.3081).astype("float32")).reshape(-1, 1, 28, 28)
    labels = torch.tensor(labels.astype("int64"))
    order = list(range(len(labels)))
    if shuffle:
        random.shuffle(order)
    picks = [torch.tensor(order[at : at + size]) for at in range(0, len(order), size)]
    return [(images[pick], labels[pick]) for pick in picks]


def main():
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.folder:
        train_set = read("train-images-idx3-ubyte"), read("train-labels-idx1-ubyte")
        test_set = read("t10k-images-idx3-ubyte"), read("t10k-labels-idx1-ubyte")
    else:
        rng = np.random.default_rng(args.seed)
        train_set, test_set = drawn(512, rng), drawn(128, rng)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        train(model, device, batches_of(*train_set, args.batch_size, True), optimizer, epoch)
        accuracy = test(model, device, batches_of(*test_set, args.test_batch_size, False))
        scheduler.step()

    if args.save_model:
        state = {name: value.cpu().numpy() for name, value in model.state_dict().items()}
        Path(args.save_model).write_bytes(pickle.dumps(state))
    return accuracy


if __name__ == "__main__":
    main()
