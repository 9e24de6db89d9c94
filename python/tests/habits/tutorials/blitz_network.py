import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class LeNet(nn.Module):
    def __init__(self):
        super(LeNet, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, self.num_flat_features(x))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)

    def num_flat_features(self, x):
        size = x.size()[1:]
        count = 1
        for s in size:
            count *= s
        return count


net = LeNet()
with torch.no_grad():
    for k, p in enumerate(net.parameters()):
        p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32) + k).view_as(p) * 0.05)
params = list(net.parameters())
x = torch.linspace(-1, 1, 32 * 32).reshape(1, 1, 32, 32)
output = net(x)
net.zero_grad()
output.backward(torch.ones(1, 10))
bias = net.conv1.bias.grad.clone()
target = torch.arange(10.0).view(1, -1)
criterion = nn.MSELoss()
optimizer = optim.SGD(net.parameters(), lr=0.01)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = criterion(net(x), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for f in net.parameters():
    f.data.sub_(f.grad.data * 0.01)
out = [str(net), len(params), params[0].size(), output, bias, losses, net.fc3.bias.data]
