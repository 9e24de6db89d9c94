import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(self.fc1(x.flatten(1)).relu())


def train(folder, epochs):
    torch.manual_seed(0)
    images = datasets.MNIST(folder, train=True, transform=transforms.ToTensor())
    train = DataLoader(images, batch_size=64, shuffle=True)
    test = DataLoader(datasets.MNIST(folder, train=False, transform=transforms.ToTensor()), batch_size=1000)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test:
            correct += (model(x).argmax(1) == y).sum().item()
    return correct / len(test.dataset)
