"""The models of `src/models` without a published implementation, in plain PyTorch with the same names."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions with norms and activations, and the time embedding between them."""

    def __init__(self, c_in, c_out, groups, time_size):
        super().__init__()
        norm = (lambda: nn.GroupNorm(groups, c_out)) if groups else (lambda: nn.BatchNorm2d(c_out))
        self.conv1, self.norm1 = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), norm()
        self.time = nn.Linear(time_size, c_out) if time_size else None
        self.conv2, self.norm2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False), norm()
        self.activation = F.silu if groups else F.relu

    def forward(self, x, time):
        x = self.activation(self.norm1(self.conv1(x)))
        if self.time:
            x = x + self.time(time)[:, :, None, None]
        return self.activation(self.norm2(self.conv2(x)))


class Up(nn.Module):
    def __init__(self, low, high, groups, time_size):
        super().__init__()
        self.conv = nn.ConvTranspose2d(low, high, 2, stride=2)
        self.block = Block(2 * high, high, groups, time_size)

    def forward(self, x, seen, time):
        return self.block(torch.cat([seen, self.conv(x)], 1), time)


class Time(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear_1, self.linear_2, self.half = nn.Linear(size, size), nn.Linear(size, size), size // 2

    def forward(self, t):
        rates = torch.exp(-math.log(10_000.0) * torch.arange(self.half, dtype=torch.float64) / self.half)
        angles = t.to(torch.float64)[:, None] * rates
        return F.silu(self.linear_2(F.silu(self.linear_1(torch.cat([angles.sin(), angles.cos()], -1)))))


class UNet(nn.Module):
    def __init__(self, in_channels, out_channels, channels, groups=0, time_size=0):
        super().__init__()
        self.time = Time(time_size) if time_size else None
        self.down = nn.ModuleList(Block(a, b, groups, time_size) for a, b in zip([in_channels, *channels], channels))
        self.up = nn.ModuleList(Up(low, high, groups, time_size) for high, low in reversed(list(zip(channels, channels[1:]))))
        self.head = nn.Conv2d(channels[0], out_channels, 1)

    def forward(self, x, t=None):
        time = self.time(t) if self.time else None
        x, seen = self.down[0](x, time), []
        for block in self.down[1:]:
            seen.append(x)
            x = block(F.max_pool2d(x, 2), time)
        for up in self.up:
            x = up(x, seen.pop(), time)
        return self.head(x)


class Ddpm(nn.Module):
    """The equations of Ho et al., 2020, and the cosine schedule of Nichol and Dhariwal, 2021."""

    def __init__(self, unet, steps, schedule):
        super().__init__()
        self.unet = UNet(**unet)
        if schedule == "linear":
            self.betas = torch.linspace(1e-4, 0.02, steps, dtype=torch.float64)
        else:
            left = torch.cos((torch.arange(steps + 1, dtype=torch.float64) / steps + 0.008) / 1.008 * math.pi / 2) ** 2
            self.betas = (1 - left[1:] / left[:-1]).clamp(max=0.999)
        self.left = torch.cumprod(1 - self.betas, 0)

    def loss(self, images, t, noise):
        left = self.left[t][:, None, None, None]
        return F.mse_loss(self.unet(left.sqrt() * images + (1 - left).sqrt() * noise, t), noise)

    @torch.no_grad()
    def step(self, x, t, noise, clip):
        found = self.unet(x, torch.full([x.shape[0]], t))
        beta, left, before = self.betas[t], self.left[t], self.left[t - 1] if t else torch.tensor(1.0, dtype=torch.float64)
        if clip:
            image = ((x - (1 - left).sqrt() * found) / left.sqrt()).clamp(-1, 1)
            mean = before.sqrt() * beta / (1 - left) * image + (1 - beta).sqrt() * (1 - before) / (1 - left) * x
        else:
            # Algorithm 2 of the paper.
            mean = (x - beta / (1 - left).sqrt() * found) / (1 - beta).sqrt()
        return mean + (beta * (1 - before) / (1 - left)).sqrt() * noise


class Vae(nn.Module):
    def __init__(self, input_size, hidden_size, latent_size):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, latent_size), nn.Linear(hidden_size, latent_size)
        self.fc3, self.fc4 = nn.Linear(latent_size, hidden_size), nn.Linear(hidden_size, input_size)

    def forward(self, x, noise):
        hidden = F.relu(self.fc1(x))
        mean, log_variance = self.fc21(hidden), self.fc22(hidden)
        code = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
        logits = self.fc4(F.relu(self.fc3(mean + code.stddev * noise)))
        divergence = torch.distributions.kl_divergence(code, torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean)))
        error = F.binary_cross_entropy(torch.sigmoid(logits), x, reduction="none")
        return logits, error.sum(1).mean() + divergence.sum(1).mean()


class LstmLm(nn.Module):
    def __init__(self, vocab_size, embedding_size, hidden_size, num_layers, tie_weights):
        super().__init__()
        self.encoder = nn.Embedding(vocab_size, embedding_size)
        self.rnn = nn.LSTM(embedding_size, hidden_size, num_layers, batch_first=True)
        self.decoder = nn.Linear(hidden_size, vocab_size)
        if tie_weights:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens, h, c):
        out, (h, c) = self.rnn(self.encoder(tokens), (h, c))
        return self.decoder(out), h, c
