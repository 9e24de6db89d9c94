import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

classes = ("plane", "car", "bird", "cat")
images = torch.sin(torch.arange(12 * 3 * 16 * 16, dtype=torch.float32)).reshape(12, 3, 16, 16)
labels = torch.arange(12) % 4
trainloader = DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=False, num_workers=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(6 * 7 * 7, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        return self.fc1(torch.flatten(x, 1))


def fill(model):
    for k, p in enumerate(model.parameters()):
        nn.init.constant_(p, 0.0)
        p.data += torch.cos(torch.arange(p.numel()).float() * 0.3 + k).reshape(p.shape) * 0.1


net = Net()
fill(net)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
printed = []
for epoch in range(2):
    running_loss = 0.0
    for i, data in enumerate(trainloader, 0):
        inputs, targets = data
        optimizer.zero_grad()
        loss = criterion(net(inputs), targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    printed.append(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 3:.3f}")
path = os.path.join(tempfile.mkdtemp(), "net.pth")
torch.save(net.state_dict(), path)
other = Net()
other.load_state_dict(torch.load(path, weights_only=True))
correct = total = 0
correct_pred, total_pred = {c: 0 for c in classes}, {c: 0 for c in classes}
with torch.no_grad():
    for inputs, targets in trainloader:
        outputs = other(inputs)
        _, predicted = torch.max(outputs, 1)
        total += targets.size(0)
        correct += (predicted == targets).sum().item()
        for label, prediction in zip(targets, predicted):
            if label == prediction:
                correct_pred[classes[label]] += 1
            total_pred[classes[label]] += 1
words = " ".join(f"{classes[predicted[j]]:5s}" for j in range(4))
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
other.to(device)
out = [printed, correct, total, correct_pred, total_pred, words, len(trainloader), other(images[:1].to(device))]
