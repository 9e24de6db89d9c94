import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data

manualSeed = 999
torch.manual_seed(manualSeed)
torch.use_deterministic_algorithms(True)
nz, ngf, ndf, nc, ngpu = 4, 4, 4, 1, 0


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self, ngpu):
        super(Generator, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ngpu):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, input):
        return self.main(input)


def fill(net):
    for k, p in enumerate(net.parameters()):
        p.data.copy_(torch.sin(torch.arange(p.numel()) * 2.3 + k).reshape(p.shape) * 0.2 + (1.0 if p.dim() == 1 else 0.0))


device = torch.device("cuda:0" if (torch.cuda.is_available() and ngpu > 0) else "cpu")
netG, netD = Generator(ngpu).to(device), Discriminator(ngpu).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
drawn = netG.main[0].weight.std().item() < 0.1
fill(netG), fill(netD)
criterion = nn.BCELoss()
real_label, fake_label = 1.0, 0.0
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
lines = []
for i in range(2):
    netD.zero_grad()
    real = torch.cos(torch.arange(2 * 16 * 16).float() + i).reshape(2, 1, 16, 16)
    b_size = real.size(0)
    label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
    output = netD(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()
    noise = torch.sin(torch.arange(b_size * nz).float()).view(b_size, nz, 1, 1)
    fake = netG(noise)
    label.fill_(fake_label)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()
    netG.zero_grad()
    label.fill_(real_label)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    lines.append("Loss_D: %.4f\tLoss_G: %.4f\tD(x): %.4f" % (errD.item(), errG.item(), D_x))
torch.use_deterministic_algorithms(False)
out = [drawn, lines, fake.shape, fake.detach().cpu().mean(), str(netG), netG.main[1].running_mean]
