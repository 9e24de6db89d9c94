import copy
import os
import time
from tempfile import TemporaryDirectory

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler

cudnn.benchmark = True


class Block(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        y = self.bn1(self.conv1(x))
        y += identity
        return self.relu(y)


class TinyResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.layer1 = nn.Sequential(Block(3, 4), Block(4, 8, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = torch.flatten(self.avgpool(self.layer1(x)), 1)
        return self.fc(x)


model_ft = TinyResNet()
with torch.no_grad():
    for k, p in enumerate(model_ft.parameters()):
        p.copy_(torch.sin(torch.arange(p.numel()) * 1.7 + k).view(p.size()) * 0.3)
for param in model_ft.parameters():
    param.requires_grad = False
num_ftrs = model_ft.fc.in_features
model_ft.fc = nn.Linear(num_ftrs, 2)
model_ft.fc.weight.data.fill_(0.1)
model_ft.fc.bias.data.zero_()
inputs = torch.cos(torch.arange(6 * 3 * 8 * 8).float()).reshape(6, 3, 8, 8)
labels = torch.tensor([0, 1, 0, 1, 1, 0])
dataloaders = {phase: [(inputs[:3], labels[:3]), (inputs[3:], labels[3:])] for phase in ("train", "val")}
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model_ft.fc.parameters(), lr=0.1, momentum=0.9)
scheduler = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
since, history = time.time(), []
with TemporaryDirectory() as tempdir:
    best_path, best_acc = os.path.join(tempdir, "best.pt"), -1.0
    best_wts = copy.deepcopy(model_ft.state_dict())
    for epoch in range(3):
        for phase in ["train", "val"]:
            model_ft.train() if phase == "train" else model_ft.eval()
            running_loss, running_corrects = 0.0, 0
            for x, y in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model_ft(x)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, y)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * x.size(0)
                running_corrects += torch.sum(preds == y.data)
            if phase == "train":
                scheduler.step()
            epoch_acc = running_corrects.double() / 6
            history.append((running_loss / 6, epoch_acc.item()))
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                torch.save(model_ft.state_dict(), best_path)
                best_wts = copy.deepcopy(model_ft.state_dict())
    model_ft.load_state_dict(torch.load(best_path, weights_only=True))
trained = [name for name, p in model_ft.named_parameters() if p.requires_grad]
out = [history, scheduler.get_last_lr(), trained, list(best_wts), str(model_ft), sum(p.numel() for p in model_ft.parameters())]
