import torch
from torch import autograd, nn, optim
from torch.autograd import Variable

D = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
G = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))
for net in (D, G):
    for k, p in enumerate(net.parameters()):
        nn.init.zeros_(p)
        p.data += torch.sin(torch.arange(p.numel()) * 0.8 + k).view_as(p) * 0.5
real = Variable(torch.cos(torch.arange(20.0)).view(5, 4))
z = torch.sin(torch.arange(10.0)).view(5, 2)
opt_d, opt_g = optim.RMSprop(D.parameters(), lr=5e-3), optim.Adam(G.parameters(), lr=1e-2, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    alpha = torch.linspace(0.1, 0.9, 5).view(-1, 1).expand_as(real)
    inter = (alpha * real + (1 - alpha) * fake).detach().requires_grad_(True)
    score = D(inter)
    grads = autograd.grad(outputs=score, inputs=inter, grad_outputs=torch.ones(score.size()), create_graph=True, retain_graph=True,
                          only_inputs=True)[0]
    return ((grads.view(grads.size(0), -1).norm(2, dim=1) - 1) ** 2).mean() * 10


log = []
for i in range(3):
    for p in D.parameters():
        p.requires_grad = True
    opt_d.zero_grad()
    fake = G(z).detach()
    gp = gradient_penalty(real, fake)
    loss_d = D(fake).mean() - D(real).mean() + gp
    loss_d.backward()
    opt_d.step()
    for p in D.parameters():
        p.requires_grad_(False)
    G.zero_grad()
    loss_g = -torch.mean(D(G(z)))
    loss_g.backward()
    opt_g.step()
    for p in D.parameters():
        p.data.clamp_(-0.6, 0.6)
    log.append((loss_d.item(), loss_g.item(), gp.item()))
out = [log, [p.grad is not None for p in D.parameters()], G[0].weight.data]
