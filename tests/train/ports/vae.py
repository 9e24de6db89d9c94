import torch
from torch import nn
from torch.utils.data import DataLoader


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.mean = nn.Linear(64, 4)
        self.logvar = nn.Linear(64, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))

    def loss(self, x):
        hidden = self.encoder(x)
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        z = mean + torch.randn_like(mean) * (logvar / 2).exp()
        reconstruction = nn.functional.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mean.square() - logvar.exp())
        return (reconstruction + divergence) / len(x)


def train(images, epochs):
    torch.manual_seed(0)
    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(images, batch_size=64, shuffle=True)
    for _ in range(epochs):
        losses = []
        for x in loader:
            loss = model.loss(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        samples = model.decoder(torch.randn(16, 4)).sigmoid()
    return sum(losses) / len(losses), samples
