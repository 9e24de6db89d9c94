import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = nn.Conv2d(3, 4, 3, padding=1)
for k, p in enumerate(cnn.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) * 0.5 + k).view_as(p) * 0.3)
cnn.requires_grad_(False)
style = torch.sin(torch.arange(3 * 36).float()).view(1, 3, 6, 6)
model = nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), cnn)
style_loss = StyleLoss(model(style))
model.add_module("style_loss_1", style_loss)
image = torch.full((1, 3, 6, 6), 0.5).requires_grad_()
optimizer, run, scores = optim.LBFGS([image]), [0], []
while run[0] <= 5:
    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        model(image)
        score = style_loss.loss * 1000
        score.backward()
        run[0] += 1
        scores.append(score.item())
        return score

    optimizer.step(closure)
with torch.no_grad():
    image.clamp_(0, 1)


class SuperResolution(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, (5, 5), (1, 1), (2, 2)), nn.Conv2d(4, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight)

    def forward(self, x):
        return self.pixel_shuffle(self.conv2(self.relu(self.conv1(x))))


net = SuperResolution(3)
rows = net.conv1.weight.detach().view(4, -1)
ortho = torch.allclose(rows @ rows.t(), 2 * torch.eye(4), atol=1e-4)
big = net(torch.ones(1, 1, 5, 5))
psnr = 10 * torch.log10(1 / F.mse_loss(torch.full((2, 2), 0.5), torch.zeros(2, 2)))
out = [scores[:2], ortho, big.shape, psnr, str(model), image.min().item() >= 0, image.shape]
