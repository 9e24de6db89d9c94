import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        mid_channels = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(mid_channels), nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY, diffX = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(1, 4), nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 4))
        self.up, self.outc = Up(8, 4), nn.Conv2d(4, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        return self.outc(self.up(self.down(x1), x1))


class PatchEmbed(nn.Module):
    def __init__(self, patch, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, dim))

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        return x + self.pos_embed


class ViT(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embed = PatchEmbed(4, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, dim * 2, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 3)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x)))[:, 0])


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        emb = torch.exp(torch.arange(half, device=time.device) * -(math.log(10000) / (half - 1)))
        emb = time[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


def extract(a, t, x_shape):
    return a.gather(-1, t.cpu()).reshape(t.shape[0], *((1,) * (len(x_shape) - 1))).to(t.device)


def fill(model):
    for k, p in enumerate(model.parameters()):
        p.data.copy_(torch.sin(torch.arange(p.numel()) * 0.37 + k).reshape(p.shape) * 0.3 + (0.7 if p.dim() == 1 else 0.0))


unet = UNet()
fill(unet)
image = torch.linspace(-1, 1, 2 * 49).view(2, 1, 7, 7)
mask = (image > 0).float()
logits = unet(image)
probs = torch.sigmoid(logits)
dice = 1 - (2 * (probs * mask).sum() + 1) / (probs.sum() + mask.sum() + 1)
loss = nn.BCEWithLogitsLoss()(logits, mask) + dice
loss.backward()
iou = ((probs > 0.5) & (mask > 0.5)).sum().float() / ((probs > 0.5) | (mask > 0.5)).sum().clamp(min=1)

vit = ViT()
fill(vit)
x = torch.cos(torch.arange(2 * 3 * 64).float() * 0.1).view(2, 3, 8, 8)
scores = vit(x)
target = torch.tensor([0, 2])
soft = F.one_hot(target, 3).float() * 0.9 + 0.1 / 3
ce = torch.sum(-soft * F.log_softmax(scores, dim=-1), dim=-1).mean()
ce.backward()
maxk = scores.topk(2, 1, True, True)[1].t()
correct = maxk.eq(target.view(1, -1).expand_as(maxk))
acc = [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 2).item() for k in (1, 2)]

betas = torch.linspace(0.0001, 0.02, 10)
alphas_cumprod = torch.cumprod(1.0 - betas, axis=0)
prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
t = torch.tensor([2, 7])
noisy = extract(torch.sqrt(alphas_cumprod), t, x.shape) * x + extract(torch.sqrt(1.0 - alphas_cumprod), t, x.shape) * torch.ones_like(x)
variance = betas * (1.0 - prev) / (1.0 - alphas_cumprod)
anchor, positive = F.normalize(scores.detach(), dim=1), F.normalize(scores.detach() + 0.1, dim=1)
sim = anchor @ positive.T / 0.07
info_nce = F.cross_entropy(sim, torch.arange(2))
out = [loss.item(), iou.item(), unet.outc.weight.grad, scores, ce.item(), vit.embed.cls_token.grad, acc, SinusoidalEmbedding(4)(t), noisy[:, 0, 0, 0],
       variance, info_nce.item(), sum(p.numel() for p in unet.parameters())]
