import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


class Dots(Dataset):
    def __init__(self, transform=None, target_transform=None):
        self.images = torch.linspace(0, 1, 20 * 16).reshape(20, 1, 4, 4)
        self.labels = [i % 3 for i in range(20)]
        self.transform, self.target_transform = transform, target_transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        image, label = self.images[idx], self.labels[idx]
        if self.transform:
            image = self.transform(image)
        if self.target_transform:
            label = self.target_transform(label)
        return image, label


train_dataloader = DataLoader(Dots(transform=lambda a: a * 2 - 1), batch_size=8)
for X, y in train_dataloader:
    first = X.shape, y.shape, y.dtype
    break


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


model = Stack().to(device)
for k, p in enumerate(model.parameters()):
    p.data = torch.sin(torch.arange(p.numel()) * 0.5 + k).reshape(p.shape) * 0.2
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)


def train(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    seen = []
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        loss = loss_fn(model(X), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss, current = loss.item(), (batch + 1) * len(X)
        seen.append(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")
    return seen


def test(dataloader, model, loss_fn):
    size, num_batches = len(dataloader.dataset), len(dataloader)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            pred = model(X.to(device))
            test_loss += loss_fn(pred, y.to(device)).item()
            correct += (pred.argmax(1) == y.to(device)).type(torch.float).sum().item()
    return f"Accuracy: {(100 * correct / size):>0.1f}%, Avg loss: {test_loss / num_batches:>8f}"


lines = [train(train_dataloader, model, loss_fn, optimizer) for _ in range(2)]
layers = [f"{name} {tuple(param.size())} {param[:1].numel()}" for name, param in model.named_parameters()]
pred_probab = nn.Softmax(dim=1)(model(Dots()[0][0]))
out = [first, str(model), test(train_dataloader, model, loss_fn), layers, pred_probab.argmax(1), len(lines[0])]
