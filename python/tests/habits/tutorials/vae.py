import argparse

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--no-cuda", action="store_true", default=False)
args = parser.parse_args([])
args.cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)
device = torch.device("cuda" if args.cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if args.cuda else {}


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(36, 10)
        self.fc21 = nn.Linear(10, 2)
        self.fc22 = nn.Linear(10, 2)
        self.fc3 = nn.Linear(2, 10)
        self.fc4 = nn.Linear(10, 36)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.zeros_like(torch.randn_like(std)) + 0.3
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 36), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


data = (torch.sin(torch.arange(8 * 36).float()).reshape(8, 1, 6, 6) + 1) / 2
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, torch.zeros(8)), batch_size=args.batch_size, **kwargs)
model = VAE().to(device)
for k, p in enumerate(model.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) * 0.4 + k).view(*p.shape) * 0.1)
optimizer, lines = optim.Adam(model.parameters(), lr=1e-2), []
for epoch in range(2):
    model.train()
    train_loss = 0
    for batch_idx, (x, _) in enumerate(loader):
        x = x.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(x)
        loss = loss_function(recon_batch, x, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    lines.append("{} [{}/{} ({:.0f}%)] {:.4f}".format(epoch, batch_idx * len(x), len(loader.dataset), 100.0 * batch_idx / len(loader), train_loss / 8))
model.eval()
with torch.no_grad():
    sample = model.decode(torch.zeros(2, 2)).cpu()
    n = min(x.size(0), 8)
    comparison = torch.cat([x[:n], recon_batch.view(args.batch_size, 1, 6, 6)[:n]])
out = [lines, sample, comparison.shape, mu]
