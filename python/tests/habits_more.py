"""More programs of people who come from PyTorch: networks, optimisers, losses, gradients, changes by index.

The names are those of habits.py.
"""

PROGRAMS = r"""
str(ct.tensor(True))
str(ct.tensor([True, False]))
str(ct.tensor([1e5, 2e5]))
str(ct.tensor([float("nan"), float("nan")]))
str(ct.tensor([1, -200, 30]))
str((w * 2).grad_fn is not None)
str(w)
repr(ct.tensor([[[1.0]]]))
str(x.size())
repr(ct.zeros(3, 3) > 0)
repr(ct.arange(12.0).reshape(1, 1, 3, 4))
repr(ct.tensor(16777216))
repr(ct.eye(4))
repr(ct.ones(1001)[:3])
f"{ct.tensor(2.5):>8.2f}"
f"{ct.tensor([1, 2])}"
"{}".format(ct.tensor([1.0]))
"%s" % ct.tensor(2)
f"{ct.tensor(3):d}"
y = (w ** 3).sum(); g, = ct.autograd.grad(y, w, create_graph=True); (g ** 2).sum().backward(); w.grad
g = ct.autograd.grad((w ** 3).sum(), w, create_graph=True)[0]; h = ct.autograd.grad(g.sum(), w)[0]; h
ct.autograd.grad((w ** 2).sum(), [w], retain_graph=True)[0]
ct.autograd.grad(w[0] * 2, [w, v.requires_grad_()], allow_unused=True)[1]
w.data = ct.ones(3); w
w.data.fill_(2); w
w.data[0] = 9; w
w.data.shape
x.mT
b.mT.shape
x.H
b.mH.shape
x.T.T
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU(), ct.nn.Linear(3, 1)); len(net)
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()); type(net[0]).__name__
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()); type(net[-1]).__name__
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()); type(net[:1]).__name__, len(net[:1])
net = ct.nn.Sequential(ct.nn.Linear(2, 3)); net[0] = ct.nn.ReLU(); str(net)
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()); del net[1]; len(net)
net = ct.nn.Sequential(ct.nn.Linear(2, 3)); net.add_module("act", ct.nn.ReLU()); [name for name, _ in net.named_children()]
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()) + ct.nn.Sequential(ct.nn.Tanh()); len(net)
net = ct.nn.Sequential(ct.nn.ReLU(), ct.nn.Tanh()); type(net.pop(0)).__name__, len(net)
net = ct.nn.Sequential(ct.nn.ReLU(), ct.nn.Tanh()); net.extend([ct.nn.GELU()]); len(net)
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU(), ct.nn.Linear(3, 1)); [(name, tuple(p.shape)) for name, p in net.named_parameters()]
net = ct.nn.Linear(2, 3); list(net.state_dict().keys())
net = ct.nn.BatchNorm1d(3); list(net.state_dict().keys())
net = ct.nn.BatchNorm2d(3); [name for name, _ in net.named_buffers()]
net = ct.nn.Sequential(ct.nn.Linear(2, 3), ct.nn.ReLU()); [name for name, _ in net.named_modules()]
net = ct.nn.Linear(2, 3); sum(p.numel() for p in net.parameters() if p.requires_grad)
a = ct.nn.Linear(2, 3); r = a.load_state_dict({"weight": ct.ones(3, 2), "more": v}, strict=False); r.missing_keys, r.unexpected_keys
a = ct.nn.Linear(2, 3, bias=False); a.bias is None, list(a.state_dict())
str(ct.nn.AdaptiveAvgPool2d((1, 1)))
str(ct.nn.LeakyReLU(0.2))
str(ct.nn.Softmax(dim=1))
str(ct.nn.ReLU(inplace=True))
str(ct.nn.Identity())
str(ct.nn.CrossEntropyLoss())
str(ct.nn.MSELoss())
str(ct.nn.ModuleDict({"a": ct.nn.ReLU()}))
str(ct.nn.Hardtanh(-2, 2))
str(ct.nn.Unflatten(1, (2, 3)))
str(ct.nn.PixelShuffle(2))
str(ct.nn.ZeroPad2d(1))
str(ct.nn.CosineSimilarity())
repr(ct.nn.Parameter(ct.ones(2)))
net = ct.nn.Linear(2, 1); net.eval().training, net.train().training
net = ct.nn.Linear(2, 1); net.requires_grad_(False); [p.requires_grad for p in net.parameters()]
net = ct.nn.Linear(2, 1).double(); net.weight.dtype
net = ct.nn.Linear(2, 1).to(ct.float16); net.weight.dtype
net = ct.nn.Linear(2, 1).to("cpu"); str(net.weight.device)
net = ct.nn.Linear(2, 1); next(net.parameters()).device.type
net = ct.nn.Linear(2, 1); net.apply(lambda m: None) is net
net = ct.nn.Linear(2, 1); ct.nn.init.constant_(net.weight, 0.5); ct.nn.init.zeros_(net.bias); net(ct.ones(1, 2)).detach()
net = ct.nn.Linear(2, 1); net.weight.data.fill_(1.0); net.bias.data.zero_(); net(ct.ones(3, 2)).detach()
net = ct.nn.Linear(2, 1); net.zero_grad(); net.weight.grad is None
net = ct.nn.Linear(2, 1); net(ct.ones(1, 2)).sum().backward(); net.zero_grad(set_to_none=False); net.weight.grad
net = ct.nn.Linear(2, 1); net.weight = ct.nn.Parameter(ct.ones(1, 2)); net.bias = None; net(ct.ones(1, 2)).detach()
net = ct.nn.Linear(2, 1); isinstance(net.weight, ct.nn.Parameter), isinstance(net.weight, ct.Tensor), net.weight.is_leaf
net = ct.nn.Module(); net.register_buffer("k", ct.ones(2)); net.k, list(net.state_dict())
net = ct.nn.Module(); net.register_buffer("k", ct.ones(2), persistent=False); list(net.state_dict())
net = ct.nn.Module(); net.register_parameter("k", ct.nn.Parameter(ct.ones(2))); list(dict(net.named_parameters()))
net = ct.nn.Sequential(ct.nn.Linear(2, 2), ct.nn.Linear(2, 2)); type(net.get_submodule("1")).__name__, tuple(net.get_parameter("0.weight").shape)
import copy; p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1, momentum=0.9); p.sum().backward(); o.step(); d = copy.deepcopy(o.state_dict()); sorted(d), d["param_groups"][0]["lr"], d["state"][0]["momentum_buffer"]
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); p.sum().backward(); o.step(); p.data
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.Adam([p], lr=0.1); p.sum().backward(); o.step(); p.data
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.AdamW([{"params": [p], "weight_decay": 0.5}], lr=0.1); p.sum().backward(); o.step(); p.data
p, q = ct.nn.Parameter(ct.ones(2)), ct.nn.Parameter(ct.ones(1)); o = ct.optim.SGD([{"params": [p]}, {"params": q, "lr": 1.0}], lr=0.1); [g["lr"] for g in o.param_groups]
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); o.add_param_group({"params": ct.nn.Parameter(v.clone())}); len(o.param_groups)
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); o.zero_grad(); p.grad is None
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); p.sum().backward(); o.zero_grad(set_to_none=False); p.grad
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); [g.update(lr=0.5) for g in o.param_groups]; p.sum().backward(); o.step(); p.data
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); o.param_groups[0]["params"][0] is p
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=1.0); s = ct.optim.lr_scheduler.StepLR(o, 1, 0.1); o.step(); s.step(); s.get_last_lr(), o.param_groups[0]["lr"]
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=1.0); s = ct.optim.lr_scheduler.LambdaLR(o, lambda e: 0.5 ** e); o.step(); s.step(); s.get_last_lr()
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=1.0); s = ct.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10); o.step(); s.step(); s.get_last_lr()
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=1.0); s = ct.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0); s.step(1.0); s.step(1.0); o.param_groups[0]["lr"]
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.Adam([p], lr=0.1, betas=(0.9, 0.99)); str(o).splitlines()[0], o.defaults["betas"]
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.LBFGS([p], lr=0.1); f = lambda: (o.zero_grad(), (l := (p ** 2).sum()), l.backward())[1]; bool(o.step(f) > 0)
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.SGD([p], lr=0.1); f = lambda: (l := (p ** 2).sum(), l.backward())[0]; o.step(f).item()
p = ct.nn.Parameter(ct.ones(2)); o = ct.optim.Adam([p]); p.sum().backward(); o.step(); sorted(o.state[p])
p = ct.nn.Parameter(ct.ones(2)); a = ct.optim.Adam([p], lr=0.1); p.sum().backward(); a.step(); c = ct.optim.Adam([p], lr=0.3); c.load_state_dict(a.state_dict()); c.param_groups[0]["lr"]
p = ct.nn.Parameter(ct.ones(3)); p.grad = ct.ones(3) * 10; ct.nn.utils.clip_grad_norm_([p], 1.0), p.grad
p = ct.nn.Parameter(ct.ones(3)); p.grad = ct.ones(3) * 10; ct.nn.utils.clip_grad_value_([p], 1.0); p.grad
p = [ct.nn.Parameter(ct.ones(2)), ct.nn.Parameter(ct.zeros(1))]; ct.nn.utils.parameters_to_vector(p).detach()
f = ct.no_grad()(lambda a: a * 2); f(w).requires_grad
net = ct.nn.Linear(2, 1); seen = []; h = net.register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape))); net(ct.ones(3, 2)); h.remove(); net(ct.ones(3, 2)); seen
net = ct.nn.Linear(2, 1); h = net.register_forward_pre_hook(lambda m, i: (i[0] * 0,)); ct.nn.init.zeros_(net.bias); net(ct.ones(1, 2)).detach()
w.register_hook(lambda g: None); w.sum().backward(); w.grad
out = ct.zeros(2, 3); out[m] = 1.5; out
out = ct.zeros(2, 3); out[m] = x[m]; out
out = ct.zeros(2, 3); out[:, 0] = ct.tensor([1.0, 2.0]); out
out = ct.zeros(2, 3); out[0] = v; out
out = ct.zeros(2, 3); out[[0, 1], [1, 2]] = 7; out
out = ct.zeros(2, 3); out[..., -1] += 1; out
out = ct.zeros(4); out[::2] = 1; out
out = ct.zeros(3); out[i[:2]] = ct.tensor([5.0, 6.0]); out
out = ct.zeros(2, 3); out[1, :] -= 2; out
out = x.clone(); out[out.isnan()] = 0; out
out = x.clone(); out[out > 2] *= -1; out
out = x.clone(); out[0], out[1] = out[1].clone(), out[0].clone(); out
out = ct.zeros(3, dtype=ct.bool); out[i == 1] = True; out
batch, dim = x.shape; batch * dim
B, C, H, W = b.shape; B, C, H, W
*rest, last = b.shape; rest, last
rows, cols = x.size(); rows
x.shape[0] * x.shape[-1]
x.size(dim=1)
math = __import__("math"); math.prod(b.shape)
x.view(x.size(0), -1).shape
x.view(-1).shape[0]
x.view(1, *x.shape).shape
x.reshape(3, -1)
x.reshape((3, 2)).shape
ct.cat([x[:1], x[1:]])
ct.cat((v, v, v)).view(3, 3)
ct.cat([ct.tensor([]), v])
ct.cat([v, ct.tensor([1, 2])]).dtype
ct.stack([r for r in x])
ct.stack([ct.tensor(1), ct.tensor(2)])
ct.stack(list(x.unbind(1)), dim=0)
ct.column_stack((v, v)).shape
ct.dstack((v, v)).shape
ct.block_diag(x, v).shape
F = ct.nn.functional; F.relu(x)
F = ct.nn.functional; F.softmax(x, dim=-1)
F = ct.nn.functional; F.log_softmax(x, dim=1)
F = ct.nn.functional; F.cross_entropy(x, ct.tensor([0, 2]))
F = ct.nn.functional; F.cross_entropy(x, ct.tensor([0, 2]), reduction="none")
F = ct.nn.functional; F.cross_entropy(x, ct.tensor([0, 2]), weight=v.abs(), label_smoothing=0.1)
F = ct.nn.functional; F.cross_entropy(x, ct.tensor([0, -100]), ignore_index=-100)
F = ct.nn.functional; F.cross_entropy(x, x.softmax(1))
F = ct.nn.functional; F.nll_loss(x.log_softmax(1), ct.tensor([0, 2]), reduction="sum")
F = ct.nn.functional; F.mse_loss(x, ct.zeros(2, 3))
F = ct.nn.functional; F.l1_loss(x, ct.zeros(2, 3), reduction="sum")
F = ct.nn.functional; F.smooth_l1_loss(x, ct.zeros(2, 3), beta=0.5)
F = ct.nn.functional; F.huber_loss(x, ct.zeros(2, 3), delta=2.0)
F = ct.nn.functional; F.binary_cross_entropy(x.sigmoid(), ct.ones(2, 3))
F = ct.nn.functional; F.binary_cross_entropy_with_logits(x, ct.ones(2, 3), pos_weight=v)
F = ct.nn.functional; F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean")
F = ct.nn.functional; F.one_hot(i)
F = ct.nn.functional; F.one_hot(i, num_classes=4)
F = ct.nn.functional; F.pad(x, (1, 1))
F = ct.nn.functional; F.pad(x, (1, 0, 0, 1), value=9.0)
F = ct.nn.functional; F.pad(b, (1, 1, 1, 1), mode="reflect").shape
F = ct.nn.functional; F.pad(x, [0, 1], "constant", 5)
F = ct.nn.functional; F.interpolate(b, scale_factor=2).shape
F = ct.nn.functional; F.interpolate(b, size=(3, 3), mode="bilinear", align_corners=False)
F = ct.nn.functional; F.interpolate(b, size=3, mode="nearest").shape
F = ct.nn.functional; F.max_pool2d(b, 2)
F = ct.nn.functional; F.avg_pool2d(b, kernel_size=2, stride=1, padding=1).shape
F = ct.nn.functional; F.adaptive_avg_pool2d(b, 1).shape
F = ct.nn.functional; F.conv2d(b, ct.ones(4, 3, 1, 1)).shape
F = ct.nn.functional; F.conv2d(b, ct.ones(4, 3, 3, 3), padding="same").shape
F = ct.nn.functional; F.conv1d(b[0], ct.ones(4, 2, 1), bias=ct.ones(4)).shape
F = ct.nn.functional; F.linear(x, ct.ones(4, 3), ct.ones(4))
F = ct.nn.functional; F.dropout(x, 0.5, training=False)
F = ct.nn.functional; F.dropout(x, p=1.0)
F = ct.nn.functional; F.gelu(x), F.gelu(x, approximate="tanh")
F = ct.nn.functional; F.leaky_relu(x, 0.1), F.elu(x), F.silu(x), F.mish(x)
F = ct.nn.functional; F.softplus(x), F.hardswish(x), F.relu6(x), F.logsigmoid(x)
F = ct.nn.functional; F.sigmoid(x), F.tanh(x)
F = ct.nn.functional; F.normalize(x, dim=1)
F = ct.nn.functional; F.normalize(x, p=1, dim=0)
F = ct.nn.functional; F.layer_norm(x, (3,))
F = ct.nn.functional; F.layer_norm(x, x.shape[1:], weight=v, bias=v)
F = ct.nn.functional; F.batch_norm(x, ct.zeros(3), ct.ones(3))
F = ct.nn.functional; F.group_norm(b, 3).shape
F = ct.nn.functional; F.embedding(i, ct.eye(3))
F = ct.nn.functional; F.cosine_similarity(x, -x)
F = ct.nn.functional; F.cosine_similarity(x, x, dim=0)
F = ct.nn.functional; F.pairwise_distance(x, -x)
F = ct.nn.functional; F.triplet_margin_loss(x, -x, x * 2)
F = ct.nn.functional; F.margin_ranking_loss(v, -v, ct.ones(3))
F = ct.nn.functional; F.unfold(b, 2).shape
F = ct.nn.functional; F.pixel_shuffle(ct.ones(1, 4, 2, 2), 2).shape
F = ct.nn.functional; F.scaled_dot_product_attention(b, b, b, is_causal=True)
F = ct.nn.functional; F.glu(ct.ones(2, 4))
F = ct.nn.functional; F.gumbel_softmax(x, hard=True).sum(-1)
F = ct.nn.functional; F.affine_grid(ct.eye(2, 3)[None], (1, 1, 2, 2), align_corners=False)
F = ct.nn.functional; F.grid_sample(b, ct.zeros(2, 1, 1, 2), align_corners=True)
x.sum().item().__class__.__name__
n.sum().item().__class__.__name__
m.any().item().__class__.__name__
x.max().item(), x.min().item()
ct.tensor([3]).item()
x.numpy()[0, 0].dtype.name
(x > 0).int()
(x > 0).float().sum()
x.add(1).mul(2).sub(3)
x[x > 0].mean()
x - x.mean(0, keepdim=True)
(x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)
ct.exp(-x ** 2 / 2)
x.abs().max()
x.abs().sum(1).argmax()
ct.zeros(3).uniform_().shape
ct.rand(2, 2).mul_(2).sub_(1).abs().max().item() <= 1
x.square().sum().sqrt()
x.pow(2).sum(1).sqrt()
x.t() @ x
(x[:, None] - x[None]).pow(2).sum(-1)
x.unsqueeze(1).expand(-1, 2, -1).shape
x.repeat(1, 1, 2).shape
x.contiguous().view(-1)
x.transpose(0, 1).reshape(-1)
v.softmax(0).multinomial(1).shape
x.new_zeros(x.shape).shape
x.new_zeros((2, 2), dtype=ct.int64)
ct.zeros_like(x, dtype=ct.bool)
ct.zeros(2, device=x.device, dtype=x.dtype)
ct.ones(2, 2, dtype=ct.float64).dtype
ct.tensor([[1, 2], [3, 4]]).float().mean()
ct.tensor(v)
ct.tensor([v[0], v[1]])
ct.tensor([[1.0, 2], [3, 4]]).dtype
ct.tensor((1, 2))
ct.tensor(range(3))
import numpy as np; ct.tensor(np.arange(6).reshape(2, 3)).dtype
import numpy as np; ct.tensor([np.float32(1), np.float32(2)]).dtype
import numpy as np; (ct.ones(2) + np.ones(2, "float32")).dtype
import numpy as np; x.numpy().sum().item()
import numpy as np; np.allclose(x, x.numpy())
import numpy as np; np.stack([v, v]).shape
x.long().tolist()
n.max().item() + 1
int(n[0, 0]), float(x[0, 0])
n[0, 0] + 1
[a.item() for a in n.flatten()]
list(map(int, n[0]))
max(v), min(v)
sum(v)
sorted(v.tolist())
for a, c in zip(v, i): out = a * c
for k, row in enumerate(x): out = (k, row)
x.split(1)[0].shape
a, c = x.chunk(2); a
a, c, d = v; a
x.unbind(0)[1]
[t.shape for t in ct.split(ct.arange(5), 2)]
ct.einsum("bchw,bchw->b", b, b)
ct.einsum("bij,bjk->bik", b[:, 0], b[:, 1]).shape
ct.einsum("ii->i", x[:, :2])
ct.bmm(b[:, 0], b[:, 1])
ct.baddbmm(ct.zeros(2, 2, 2), b[:, 0], b[:, 1])
ct.where(x > 0, x, ct.zeros_like(x))
ct.where(x > 0, x, ct.tensor(0.0))
ct.where(m, 1.0, 2.0).dtype
ct.isclose(x, x + 1e-9).all()
ct.arange(3).expand(2, 3)
ct.arange(10)[3:7]
ct.arange(10)[-3:]
ct.arange(10).view(2, 5)[:, -1]
ct.arange(9).view(3, 3).diagonal()
ct.arange(9).view(3, 3).flip(0, 1)
ct.arange(4).repeat(2, 2).shape
ct.ones(2, 3).triu(1)
ct.triu_indices(3, 3, 1)
ct.tril_indices(3, 3)
ct.nn.functional.one_hot(ct.tensor([0, 2]), 3).float() @ ct.eye(3)
ct.argsort(v, descending=True)
ct.topk(x, k=2, dim=1)
ct.sort(v).values if hasattr(ct.sort(v), "values") else ct.sort(v)
v.sort()[1]
v.kthvalue(1)
x.mean().item() > 0
not x.requires_grad
x.requires_grad = True; (x * 2).sum().backward(); x.grad
w.requires_grad = False; w.requires_grad
w.detach_().requires_grad
y = w.clone(); y.retain_grad(); (y * 2).sum().backward(); y.grad, w.grad
y = w * 2; y.register_hook(lambda g: g * 10); y.sum().backward(); w.grad
w.sum().backward(); w.sum().backward(); w.grad
loss = (w ** 2).mean(); loss.backward(); loss.item(), w.grad
w.grad = ct.ones(3); w.grad += 1; w.grad
(w * ct.tensor(2.0)).sum().backward(); w.grad
(w.detach() * w).sum().backward(); w.grad
w[0].backward(); w.grad
(w[m[0]]).sum().backward(); w.grad
w.max().backward(); w.grad
w.norm().backward(); w.grad
ct.stack([w, w * 2]).sum().backward(); w.grad
ct.cat([w, w]).prod().backward(); w.grad
w.view(3, 1).expand(3, 2).sum().backward(); w.grad
w.clamp(max=2).sum().backward(); w.grad
ct.where(w > 1, w, w * 0).sum().backward(); w.grad
y = w.clone(); y[0] = 5; (y ** 2).sum().backward(); w.grad
y = ct.zeros(3); y[1] = w[2]; y.sum().backward(); w.grad
y = w * 1; y += 1; y *= w; y.sum().backward(); w.grad
ct.func.grad(lambda a: (a ** 2).sum())(v)
ct.func.vmap(lambda a: a.sum())(x)
ct.vmap(lambda a: a * 2)(x)
ct.func.jacrev(lambda a: a ** 2)(v)
ct.func.jacfwd(lambda a: a ** 2)(v)
ct.func.functional_call(ct.nn.Linear(2, 1), {"weight": ct.ones(1, 2), "bias": ct.zeros(1)}, (ct.ones(1, 2),))
ct.autograd.gradcheck(lambda a: a ** 2, ct.ones(2, dtype=ct.float64, requires_grad=True))
with ct.autograd.detect_anomaly(): w.sum().backward(); out = w.grad
with ct.autocast("cpu", dtype=ct.bfloat16): out = (x @ x.T).dtype
with ct.amp.autocast("cpu", dtype=ct.bfloat16): out = ct.nn.Linear(3, 2)(x).dtype
s = ct.amp.GradScaler(enabled=False); s.scale(w.sum()).backward(); w.grad
ct.set_num_threads(2); ct.get_num_threads()
ct.float32.itemsize, ct.bool.itemsize, ct.int64.is_floating_point, ct.complex64.is_complex, ct.int8.is_signed
ct.float32 == ct.float, ct.int64 == ct.long, ct.int32 == ct.int, ct.float64 == ct.double, ct.float16 == ct.half
{ct.float32: 1}[ct.float32]
ct.pi, ct.inf, ct.e
ct.tensor(float("inf")).isinf()
ct.cuda.synchronize() if ct.cuda.is_available() else None
ct.optim.SGD.__name__, ct.nn.Linear.__name__
x.is_nonzero() if x.numel() == 1 else None
x.nansum(), x.nanmean()
x.lerp(x * 2, 0.25)
x.addcmul(x, x, value=0.5)
x.addcdiv_(x, ct.ones(2, 3), value=-0.1)
x.logical_and(x > 1)
n.bitwise_and(3), n & 3, n | 8, n ^ 1, n << 1, n >> 1
x.sigmoid_(), x.tanh_(), x.exp_()
x.sqrt_().isnan()
x.squeeze(0).shape, x.squeeze(-1).shape, x[None, :, None].squeeze((0, 2)).shape
x.index_fill(1, ct.tensor([0]), -1)
x.index_copy(0, ct.tensor([1]), ct.zeros(1, 3))
x.index_put_((ct.tensor([0]), ct.tensor([1])), ct.tensor(5.0))
x.masked_scatter(m, ct.arange(6.0))
x.scatter_reduce(1, n % 3, x, reduce="amax")
x.take_along_dim(x.argsort(1), 1)
x.fill_diagonal_(7)
x.count_nonzero(), x.count_nonzero(dim=1)
x.cumsum(1), x.cumprod(0), x.logcumsumexp(1)
x.heaviside(ct.tensor(0.5)), x.frac(), x.trunc(), x.ceil()
x.isin(v) if hasattr(x, "isin") else ct.isin(x, v)
ct.isin(n, ct.tensor([1, 5]))
ct.unique_consecutive(ct.tensor([1, 1, 2, 1]))
ct.cov(x), ct.corrcoef(x)
ct.trapz(v), ct.trapezoid(v, dx=0.5), ct.cumulative_trapezoid(v)
ct.clamp(x, min=v), ct.clamp(x, max=ct.tensor(1.0))
ct.linspace(0, 1, 3, dtype=ct.float64), ct.logspace(0, 1, 3, base=2)
ct.empty(0).shape, ct.tensor([]).dtype, ct.tensor([[]]).shape
ct.tensor([]).sum(), ct.tensor([]).prod(), ct.zeros(0, 3).sum(0)
ct.zeros(2, 0).mean(1)
ct.tensor(5).shape, ct.tensor(5).dim(), ct.tensor(5)[None].shape
ct.from_numpy(__import__("numpy").ones((2, 2), "float32")).dtype
o, (h, c) = ct.nn.LSTM(3, 4, batch_first=True)(x[None]); o.shape, h.shape, c.shape
o, h = ct.nn.GRU(3, 4, num_layers=2, bidirectional=True)(x[:, None]); o.shape, h.shape
a, wts = ct.nn.MultiheadAttention(4, 2, batch_first=True)(*[ct.ones(1, 3, 4)] * 3); a.shape, wts.shape
ct.nn.TransformerEncoder(ct.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)(ct.ones(1, 3, 4)).shape
ct.nn.Transformer(4, 2, 1, 1, 8).generate_square_subsequent_mask(3)
ct.nn.Sequential(ct.nn.Flatten(), ct.nn.Linear(12, 2))(b).shape
ct.nn.CrossEntropyLoss()(x, ct.tensor([0, 2]))
ct.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)(x, ct.tensor([0, 2]))
ct.nn.BCEWithLogitsLoss(pos_weight=v)(x, ct.ones(2, 3))
ct.nn.MSELoss(reduction="sum")(x, ct.zeros(2, 3))
ct.nn.NLLLoss()(x.log_softmax(1), ct.tensor([0, 2])), ct.nn.L1Loss()(x, -x), ct.nn.SmoothL1Loss()(x, -x)
ct.nn.KLDivLoss(reduction="batchmean")(x.log_softmax(1), x.softmax(1))
ct.nn.CTCLoss()(ct.zeros(4, 1, 3).log_softmax(2), ct.tensor([[1, 2]]), ct.tensor([4]), ct.tensor([2]))
ct.nn.Embedding(5, 2).weight.shape, ct.nn.Embedding.from_pretrained(ct.eye(3))(i)
e = ct.nn.Embedding(3, 2, padding_idx=0); e.weight[0].detach()
bn = ct.nn.BatchNorm1d(3); bn(x); bn.running_mean, bn.num_batches_tracked
bn = ct.nn.BatchNorm1d(3).eval(); bn(x).detach()
d = ct.nn.Dropout(0.5).eval(); d(x)
ct.nn.Conv2d(3, 4, 3, padding=1).weight.shape
ct.nn.Conv2d(3, 4, 3).in_channels, ct.nn.Conv2d(3, 4, 3).kernel_size, ct.nn.Linear(2, 3).out_features
ct.nn.ModuleList([ct.nn.Linear(2, 2) for _ in range(3)])[1].weight.shape
ml = ct.nn.ModuleList(); ml.append(ct.nn.Linear(2, 2)); len(ml), len(list(ml.parameters()))
md = ct.nn.ModuleDict({"a": ct.nn.ReLU()}); md["b"] = ct.nn.Tanh(); list(md.keys()), "a" in md
ct.nn.init.xavier_uniform_(ct.empty(2, 3)).shape, ct.nn.init.kaiming_normal_(ct.empty(2, 3), nonlinearity="relu").shape
ct.nn.init.normal_(ct.empty(2, 3), mean=0, std=0.02).shape, ct.nn.init.calculate_gain("relu")
ct.nn.init.trunc_normal_(ct.empty(100), std=0.1).abs().max().item() < 2.1, ct.nn.init.eye_(ct.empty(2, 2)), ct.nn.init.orthogonal_(ct.empty(2, 2)).shape
"""
