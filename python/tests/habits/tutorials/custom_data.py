import csv
import os
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler, random_split
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import SubsetRandomSampler

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "points.csv"), "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["name", "x", "y", "label"])
    for i in range(10):
        writer.writerow([f"p{i}", i * 0.5, i * i, i % 3])


class Points(Dataset):
    def __init__(self, path, transform=None):
        with open(path) as file:
            self.rows = list(csv.DictReader(file))
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        if torch.is_tensor(idx):
            idx = idx.tolist()
        row = self.rows[idx]
        sample = {"name": row["name"], "point": torch.tensor([float(row["x"]), float(row["y"])]), "label": int(row["label"])}
        return self.transform(sample) if self.transform else sample


class Scale:
    def __init__(self, factor):
        assert isinstance(factor, (int, float))
        self.factor = factor

    def __call__(self, sample):
        return {**sample, "point": sample["point"] * self.factor}


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for t in self.transforms:
            x = t(x)
        return x


dataset = Points(os.path.join(folder, "points.csv"), Compose([Scale(2), Scale(0.5)]))
loader = DataLoader(dataset, batch_size=4, shuffle=False, num_workers=2)
seen = [(i, b["point"].size(), b["label"].tolist(), b["name"]) for i, b in enumerate(loader)]
train, valid = random_split(dataset, [8, 2], generator=torch.Generator().manual_seed(42))
labels = torch.tensor([dataset[i]["label"] for i in range(len(dataset))])
counts = torch.bincount(labels)
weights = (1.0 / counts.float())[labels]
sampler = WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)
balanced = sum(len(b["label"]) for b in DataLoader(dataset, batch_size=3, sampler=sampler))
part = sorted(int(l) for b in DataLoader(dataset, batch_size=2, sampler=SubsetRandomSampler([0, 4, 8])) for l in b["label"])


def collate(batch):
    return torch.stack([s["point"] for s in batch]), torch.tensor([s["label"] for s in batch])


points, ys = next(iter(DataLoader(Subset(dataset, range(3)), batch_size=3, collate_fn=collate)))
collated = default_collate([dataset[0], dataset[torch.tensor(1)]])
out = [seen, len(train), len(valid), counts, weights, balanced, part, points, ys, collated]
