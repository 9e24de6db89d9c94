import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
for k, p in enumerate(model.parameters()):
    p.data = torch.cos(torch.arange(p.numel()) * 0.6 + k).view(p.shape)
params = {k: v.detach() for k, v in model.named_parameters()}
buffers = {k: v.detach() for k, v in model.named_buffers()}
x, y = torch.linspace(-1, 1, 15).reshape(5, 3), torch.tensor([0, 1, 1, 0, 1])


def compute_loss(params, buffers, sample, target):
    prediction = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
    return F.cross_entropy(prediction, target.unsqueeze(0))


per_sample = [grad(compute_loss)(params, buffers, x[i], y[i]) for i in range(2)] if False else None
total = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
f = lambda a: (a ** 3).sum()
_, pull = vjp(lambda a: a ** 2, x[0])
value, tangent = jvp(lambda a: a.sin(), (x[0],), (torch.ones(3),))
inner = copy.deepcopy(params)
loss = F.cross_entropy(functional_call(model, params, x), y)
weights = {k: v.clone().requires_grad_() for k, v in params.items()}
loss = F.cross_entropy(functional_call(model, weights, (x,)), y)
grads = torch.autograd.grad(loss, weights.values(), create_graph=True)
fast = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads)}
outer = F.cross_entropy(functional_call(model, fast, (x,)), y)
outer.backward()
out = [total[0], grad(f)(x[0]), jacrev(lambda a: a ** 2)(x[0]), hessian(f)(x[0]), pull(torch.ones(3))[0], value, tangent,
       vmap(lambda a, b: (a * b).sum())(x, x), vmap(lambda a: a.sum(), in_dims=1)(x), loss.item(), outer.item(), weights["0.weight"].grad,
       len(inner)]
