"""What people who come from PyTorch write: short programs, each with one value at the end.

`ct` is the library; PyTorch's answers are kept in habits.json, which `against_torch.py --habits` writes.
"""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import habits_more

ANSWERS = Path(__file__).parent / "habits.json"

# `x` is a matrix of floats, `v` a vector, `i` indices, `m` a mask, `b` a batch of images, `w` a leaf.
SETUP = """
x = ct.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]])
v = ct.tensor([3.0, 1.0, 2.0])
i = ct.tensor([2, 0, 1])
n = ct.tensor([[1, 2, 3], [4, 5, 6]])
m = x > 0
b = ct.arange(24.0).reshape(2, 3, 2, 2)
w = ct.tensor([1.0, 2.0, 3.0], requires_grad=True)
"""

PROGRAMS = """
x.view(-1)
x.view(3, 2)
x.view(-1, 2).shape
x.view_as(n)
x.reshape(-1)
x.flatten()
b.flatten(1).shape
b.flatten(start_dim=1, end_dim=2).shape
b.view(b.size(0), -1).shape
x.size(0)
x.size(-1)
x.size()
x.shape[1]
len(x)
x.dim()
x.ndim
x.ndimension()
x.numel()
x.nelement()
ct.numel(x)
x.element_size()
x.stride()
x.is_contiguous()
x.t().is_contiguous()
x.t().contiguous().stride()
x.to("cpu")
x.to(ct.float64)
x.to(ct.device("cpu"), ct.float64)
x.to(device="cpu", dtype=ct.float16)
x.to(n)
x.float()
n.float()
n.double()
x.half()
x.int()
x.long()
x.bool()
x.byte().dtype
x.type(ct.float64)
x.type_as(n)
x.dtype
x.device
str(x.device)
x.device.type
x.is_cuda
ct.device("cpu").type
ct.device("cuda:1").index
x.cpu()
x.numpy().shape
x.detach().cpu().numpy().tolist()
x.tolist()
x[0, 1].item()
float(x.sum())
int(n.sum())
bool(m.all())
f"{x.mean().item():.4f}"
f"{x.mean():.4f}"
"%.3f" % x.mean()
x.sum()
x.sum(0)
x.sum(dim=1)
x.sum(dim=(0, 1))
x.sum(1, keepdim=True)
x.sum(-1, True)
x.sum(dtype=ct.float64)
x.mean()
x.mean(0)
x.mean(dim=[0, 1])
x.mean((0, 1), keepdim=True)
n.float().mean(1)
x.std()
x.std(0)
x.std(unbiased=False)
x.std(0, unbiased=False)
x.std(0, False)
x.std(dim=0, unbiased=False, keepdim=True)
x.std(0, False, True)
x.std(False)
x.std(True)
x.std(dim=1, correction=0)
x.std(1, correction=0, keepdim=True)
x.var()
x.var(0)
x.var(False)
x.var(0, unbiased=False)
x.var(1, False, True)
x.var(dim=(0, 1), unbiased=True)
ct.std(x, 0)
ct.std(x, 0, False)
ct.std(x, dim=0, unbiased=False)
ct.std(x, unbiased=False)
ct.std(x, False)
ct.var(x, False)
ct.var(x, 1, unbiased=False, keepdim=True)
ct.var(x, dim=1, correction=2)
tuple(ct.std_mean(x))
tuple(ct.std_mean(x, False))
tuple(ct.std_mean(x, 1, unbiased=False))
tuple(ct.std_mean(x, 1, False, True))
tuple(ct.var_mean(x, dim=0))
tuple(ct.var_mean(x, 0, unbiased=False, keepdim=True))
tuple(ct.var_mean(x, unbiased=False))
tuple(ct.var_mean(x, dim=[0, 1], correction=0))
x.max()
x.min()
x.max(1)[1]
x.max(1).values
x.max(dim=1, keepdim=True).indices
x.max(1, keepdim=True)[1]
x.min(-1)[0]
values, indices = x.max(1); indices
ct.max(x)
ct.maximum(x, -x)
ct.max(x, -x)
ct.min(x, -x)
x.argmax()
x.argmax(1)
x.argmax(dim=1, keepdim=True)
x.argmin(-1)
x.amax(dim=1)
x.amax((0, 1))
x.aminmax(dim=1).min
x.median()
x.median(1).values
x.mode(1).values
x.topk(2).values
x.topk(2, dim=1, largest=False).indices
x.topk(1, 1, True, True)[1].t()
x.kthvalue(2, 1).values
v.sort().indices
v.sort(descending=True)[0]
x.sort(1, True).values
v.argsort()
v.argsort(dim=-1, descending=True)
v.cumsum(0)
x.cumprod(dim=1)
x.cummax(1).values
x.logsumexp(1)
x.softmax(1)
x.softmax(dim=-1)
x.log_softmax(dim=1)
ct.softmax(x, dim=1)
ct.sigmoid(x)
ct.relu(x)
ct.tanh(x)
x.norm()
x.norm(2)
x.norm(p=1)
x.norm(p=2, dim=1)
x.norm(dim=1, keepdim=True)
ct.norm(x, dim=1)
ct.norm(x, p="fro")
ct.linalg.norm(x)
x.prod()
x.prod(1)
n.sum().dtype
x.all()
m.any(1)
m.all(dim=0)
x.nonzero()
x.nonzero(as_tuple=True)
m.nonzero().shape
m.sum().item()
pred = x.argmax(dim=1, keepdim=True); t = ct.tensor([2, 0]); pred.eq(t.view_as(pred)).sum().item()
(x.argmax(1) == ct.tensor([2, 1])).float().mean().item()
(x.max(1)[1] == ct.tensor([2, 1])).sum().item() / len(x)
ct.cat([x, x], dim=1)
ct.cat((x, x), 0)
ct.cat([x, x], -1).shape
ct.cat(tensors=[x, x]).shape
ct.concat([x, x], dim=1).shape
ct.stack([x, x]).shape
ct.stack([x, x], dim=-1).shape
ct.stack((v, v), 1)
ct.hstack((v, v))
ct.vstack([v, v])
x.split(2, dim=1)
x.split([1, 2], dim=1)
ct.split(x, 1)
x.chunk(2, dim=0)
ct.chunk(x, 3, 1)
x.unbind()
x.unbind(dim=1)
x.squeeze().shape
x[None].squeeze(0).shape
x.unsqueeze(0).shape
x.unsqueeze(-1).shape
x.unsqueeze_(0); x.shape
y = x[None]; y.squeeze_(0); y.shape
y = x[None]; y.squeeze_(); y.shape
x.t_(); x
y = x.clone(); y.transpose_(0, 1); y.shape
x.t()
x.T
x.transpose(0, 1)
x.permute(1, 0)
b.permute(0, 2, 3, 1).shape
b.permute((0, 2, 3, 1)).contiguous().view(2, -1).shape
b.movedim(1, -1).shape
b.transpose(-1, -2).shape
x.expand(4, 2, 3).shape
v.expand(2, -1)
x.repeat(2, 1)
x.repeat(1, 2).shape
v.repeat(2)
v.repeat_interleave(2)
x.repeat_interleave(2, dim=1)
ct.tile(v, (2,))
x.roll(1, 0)
x.roll(shifts=1, dims=1)
x.flip(0)
x.flip([1])
x.flip(dims=(0, 1))
x.fliplr()
x.rot90().shape
x.diag()
ct.diag(v)
x[:, :2].trace()
x.tril()
ct.triu(ct.ones(3, 3), diagonal=1)
ct.tril(ct.ones(3, 3)).bool()
ct.eye(3)
ct.eye(2, 3)
ct.eye(n=2, m=3)
ct.zeros(2, 3)
ct.zeros((2, 3))
ct.zeros([2, 3], dtype=ct.int64)
ct.zeros(2, 3, dtype=ct.long)
ct.zeros(size=(2,))
ct.zeros(x.shape)
ct.zeros(x.size(0), 1)
ct.zeros(*x.shape)
ct.ones(3, requires_grad=True).requires_grad
ct.full((2, 2), 7)
ct.full((2,), 3.14)
ct.full((2,), True).dtype
ct.full(size=(2,), fill_value=1.5)
ct.empty(2, 3).shape
ct.zeros_like(x)
ct.ones_like(n)
ct.ones_like(x, dtype=ct.int64)
ct.full_like(x, 2)
ct.empty_like(x).shape
ct.rand_like(x).shape
ct.randn_like(x).shape
ct.randint_like(x, 5).shape
x.new_zeros(2).dtype
x.new_ones((2, 2)).shape
x.new_full((2,), 5.0)
x.new_tensor([1, 2])
x.new_empty(3, 2).shape
ct.arange(5)
ct.arange(1, 4)
ct.arange(0, 1, .1)
ct.arange(0, 1, 0.25).dtype
ct.arange(5.0)
ct.arange(10, 0, -2)
ct.arange(start=1, end=3)
ct.arange(3, dtype=ct.float32)
ct.linspace(0, 1, 5)
ct.linspace(0, 1, steps=5)
ct.logspace(0, 2, 3)
ct.manual_seed(0); a = ct.randn(2); ct.manual_seed(0); bool((a == ct.randn(2)).all())
ct.randn(2, 3).shape
ct.randn((2, 3)).shape
ct.randn(2, 3, requires_grad=True).requires_grad
ct.rand(2).dtype
ct.rand(2, 3, device="cpu").shape
ct.randint(10, (3,)).shape
ct.randint(0, 10, (3, 2)).dtype
ct.randint(low=0, high=2, size=(4,)).max().item() < 2
ct.randperm(5).sort()[0]
ct.normal(0.0, 1.0, (2, 2)).shape
ct.normal(mean=0.0, std=1.0, size=(3,)).shape
ct.normal(v, 1.0).shape
ct.bernoulli(ct.ones(3))
ct.multinomial(v, 2).shape
ct.multinomial(v, num_samples=5, replacement=True).shape
ct.Generator().manual_seed(3).initial_seed()
g = ct.Generator().manual_seed(1); a = ct.rand(3, generator=g); g.manual_seed(1); bool((ct.rand(3, generator=g) == a).all())
ct.randn(2, generator=ct.Generator()).shape
x.uniform_(0, 1).max().item() <= 1
x.normal_().shape
x.normal_(mean=0, std=0.01).shape
x.random_(0, 5).max().item() < 5
x.bernoulli_(1.0)
x.exponential_().shape
ct.tensor(3)
ct.tensor(3.0).dtype
ct.tensor([True, False])
ct.tensor([[1, 2], [3, 4]], dtype=ct.float32)
ct.tensor([1, 2], device="cpu")
ct.tensor([1., 2.], requires_grad=True).requires_grad
ct.Tensor([1, 2, 3]).dtype
ct.Tensor(2, 3).shape
ct.FloatTensor([1, 2]).dtype
ct.LongTensor([1, 2]).dtype
ct.as_tensor([1, 2])
ct.as_tensor(x) is x
import numpy as np; ct.from_numpy(np.arange(3.0))
import numpy as np; ct.tensor(np.float32(2.5))
import numpy as np; ct.as_tensor(np.arange(3, dtype="int32"))
import numpy as np; np.array(x).tolist()
import numpy as np; np.asarray(x).dtype.name
import numpy as np; (x * np.float32(2)).dtype
import numpy as np; float(np.mean(x.numpy()))
x + 1
1 - x
x * x
x / 2
n / 2
n // 2
n % 2
-x
x ** 2
2 ** n
x @ v
x @ x.t()
x.mm(x.t())
x.matmul(v)
x.mv(v)
v.dot(v)
ct.matmul(x, v)
ct.mm(x, x.T)
ct.bmm(b[:, 0], b[:, 1]).shape
ct.einsum("ij,kj->ik", x, x)
ct.einsum("ij,j", x, v)
ct.outer(v, v)
ct.addmm(ct.zeros(2, 2), x, x.T)
ct.dist(x, -x)
ct.cdist(x, x).shape
ct.cross(v, v, dim=0)
x.abs()
x.pow(2)
x.sqrt().isnan()
x.exp().log()
x.clamp(-1, 1)
x.clamp(min=0)
x.clamp(max=2.0)
x.clamp_(min=0); x
ct.clamp(x, 0, 1)
x.clip(0, 1)
x.relu_(); x
x.round()
x.floor().int()
x.sign()
x.neg()
x.reciprocal()
x.add(1)
x.add(x, alpha=2)
ct.add(x, x, alpha=-1)
x.sub(x, alpha=0.5)
x.add_(1); x
x.add_(x, alpha=-0.5); x
x.mul_(2).add_(1)
x.div_(2); x
x.fill_(3)
x.zero_()
x.copy_(ct.ones(2, 3))
x += 1; x
x *= 2; x
x -= x; x
x /= 2; x
x[0] = 0; x
x[:, 1] = 5; x
x[x < 0] = 0; x
x[m] = 0; x
x[0, 0] += 10; x
x[i[:2] % 2]
x[[0, 1, 0]]
x[:, [0, 2]]
x[[0, 1], [2, 0]]
x[m]
x[..., 0]
x[:, None].shape
x[-1]
x[:, ::2]
x[1:, 1:]
x[0][1]
x[n > 3]
x[ct.arange(2), i[:2]]
x[range(2)]
v[i]
v[i.tolist()]
v[ct.tensor(1)]
v[i[0]]
[t.item() for t in v]
for row in x: out = row.sum()
x.index_select(1, i)
x.index_select(dim=0, index=ct.tensor([1]))
x.gather(1, n[:, :2] % 3)
x.gather(1, ct.tensor([[0], [1]])).squeeze(1)
ct.zeros(2, 3).scatter_(1, ct.tensor([[1], [2]]), 1)
ct.zeros(2, 3).scatter_(1, ct.tensor([[1], [2]]), 1.0)
ct.zeros(2, 3).scatter(1, ct.tensor([[1], [2]]), ct.ones(2, 1))
ct.zeros(3).scatter_add_(0, i, v)
ct.zeros(3).index_add_(0, i, v)
x.masked_fill(m, 0)
x.masked_fill(m, float("-inf"))
x.masked_fill_(m == 0, 9.0)
x.masked_select(m)
ct.where(m, x, -x)
ct.where(m, x, 0.0)
ct.where(x > 0, 1, 0)
ct.where(m)
x.where(m, -x)
ct.take(x, i)
ct.bincount(i)
ct.unique(ct.tensor([1, 2, 1]))
ct.unique(ct.tensor([1, 2, 1]), return_counts=True)
ct.unique(ct.tensor([3, 1, 3]), sorted=True, return_inverse=True)
i.unique()
ct.isnan(x).any()
ct.isinf(x).any().item()
ct.isfinite(x).all()
ct.allclose(x, x)
x.equal(x)
x.eq(x).all()
x.ne(0)
x.gt(0)
x.lt(1).sum()
x.ge(1)
ct.eq(x, x)
ct.logical_and(m, ~m)
m & ~m
m | (x < -1)
~m
m.logical_not()
x.clone()
x.detach()
x.detach().requires_grad
x.requires_grad
x.requires_grad_().requires_grad
x.requires_grad_(True).is_leaf
(w * 2).is_leaf
w.grad
w.sum().backward(); w.grad
(w ** 2).sum().backward(); w.grad
y = (w ** 2).sum(); y.backward(retain_graph=True); y.backward(); w.grad
(w * 2).backward(ct.ones(3)); w.grad
(w * 2).backward(gradient=ct.tensor([1.0, 0.0, 2.0])); w.grad
(w * v).sum().backward(inputs=[w]); w.grad
(w * v).sum().backward(inputs=w); w.grad
u = ct.ones(3, requires_grad=True); (w * u).sum().backward(inputs=[w]); (w.grad, u.grad)
(w ** 3).sum().backward(inputs=[w], create_graph=True); w.grad.requires_grad
(w ** 3).sum().backward(inputs=[w], create_graph=True); g = w.grad; w.grad = None; g.sum().backward(); w.grad
w.sum().backward(inputs=[w]); (w * v).sum().backward(inputs=[w]); w.grad
ct.autograd.backward([w.sum(), (w * v).sum()]); w.grad
ct.autograd.backward((w * 2,), (ct.ones(3),)); w.grad
ct.autograd.backward([w.sum(), w * v], [None, ct.ones(3)]); w.grad
ct.autograd.backward(w.sum(), inputs=[w]); w.grad
ct.autograd.backward([w * 2], grad_tensors=[v], retain_graph=True); w.grad
ct.autograd.grad((w ** 2).sum(), w)
ct.autograd.grad((w ** 2).sum(), w)[0]
ct.autograd.grad(outputs=(w ** 2).sum(), inputs=[w], create_graph=True)[0].requires_grad
ct.autograd.grad([w.sum(), w * v], w, grad_outputs=[None, ct.ones(3)])[0]
w.sum().backward(); w.grad.zero_(); w.grad
w.sum().backward(); w.grad = None; w.grad
w.sum().backward(); w.grad.data.zero_(); w.grad
w.data
w.data.add_(1); w
w.data -= 0.1; w
with ct.no_grad(): y = w * 2; out = y.requires_grad
with ct.no_grad(): w -= 0.1; out = w
with ct.no_grad(): w.copy_(v); out = w
with ct.inference_mode(): out = (w * 2).requires_grad
with ct.set_grad_enabled(False): out = (w * 2).requires_grad
with ct.enable_grad(): out = (w * 2).requires_grad
ct.is_grad_enabled()
f = ct.no_grad()(lambda: w * 2); f().requires_grad
y = w * 2; y.retain_grad(); y.sum().backward(); y.grad
seen = []; h = w.register_hook(lambda g: seen.append(g)); w.sum().backward(); h.remove(); seen[0]
w.register_hook(lambda g: g * 2); w.sum().backward(); w.grad
w.detach().numpy().tolist()
w.grad_fn is None
(w * 2).grad_fn is None
ct.is_tensor(x)
isinstance(x, ct.Tensor)
ct.is_floating_point(x)
x.is_floating_point()
x.is_complex()
x.dtype.is_floating_point
x.dtype == ct.float32
x.dtype is ct.float
ct.finfo(ct.float32).eps
ct.finfo(x.dtype).min
ct.iinfo(ct.int64).max
ct.get_default_dtype()
ct.result_type(x, n)
ct.promote_types(ct.int32, ct.float32)
ct.can_cast(ct.int32, ct.int64)
ct.cuda.is_available()
ct.cuda.device_count()
ct.device("cuda" if ct.cuda.is_available() else "cpu")
ct.cuda.manual_seed_all(0)
ct.get_num_threads() > 0
ct.seed() is not None
ct.initial_seed() is not None
ct.get_rng_state() is not None
x.apply_(lambda a: a + 1)
x.map_(x, lambda a, b: a + b)
x.share_memory_() is x
x.is_pinned()
x.is_sparse
x.storage_offset()
x.data_ptr() == x.view(-1).data_ptr()
x.is_same_size(n)
x.unfold(1, 2, 1).shape
x.as_strided((2, 2), (3, 1))
x.narrow(1, 0, 2)
x.select(0, 1)
x.select(dim=1, index=-1)
x.swapaxes(0, 1).shape
x.moveaxis(0, 1).shape
x.ravel()
x.cov().shape
x.corrcoef().shape
x.quantile(0.5)
x.quantile(0.5, dim=1)
x.histc(4, -6, 6)
ct.histc(x, bins=3, min=-6, max=6)
ct.meshgrid(v, v, indexing="ij")
ct.cartesian_prod(i, i).shape
ct.combinations(i)
ct.broadcast_tensors(x, v)[1].shape
ct.broadcast_to(v, (2, 3)).shape
ct.complex(v, v)
ct.complex(v, v).real
ct.view_as_real(ct.complex(v, v)).shape
ct.polar(v, v).dtype
ct.fft.fft(v).shape
ct.linalg.inv(x[:, :2])
ct.linalg.solve(x[:, :2], x[:, 2])
ct.linalg.svd(x).S
ct.linalg.qr(x).R.shape
ct.linalg.det(x[:, :2])
ct.linalg.eigh(x @ x.T).eigenvalues
ct.svd(x)[1]
ct.inverse(x[:, :2])
ct.det(x[:, :2])
ct.trace(x[:, :2])
ct.pinverse(x).shape
ct.lerp(x, x * 2, 0.5)
ct.lerp(x, x * 2, x)
ct.bucketize(v, ct.tensor([1.5, 2.5]))
ct.searchsorted(ct.tensor([1.0, 2.0, 3.0]), v)
ct.nan_to_num(x / 0)
ct.log1p(x.abs())
ct.erf(x)
ct.atan2(x, x)
ct.square(x)
ct.rsqrt(x.abs())
ct.floor_divide(n, 2)
ct.div(n, 2, rounding_mode="floor")
ct.div(x, 2, rounding_mode="trunc")
ct.true_divide(n, 2)
ct.fmod(x, 2)
ct.remainder(x, 2)
ct.sum(x, 1)
ct.sum(x, dim=1, keepdim=True)
ct.mean(x, dim=0)
ct.mean(x, 1, True)
ct.prod(x, 0)
ct.cumsum(x, dim=0)
ct.argmax(x, dim=1)
ct.max(x, 1)[1]
ct.max(x, dim=1).indices
ct.min(x, 1)[0]
ct.sort(x, dim=1)[0]
ct.topk(v, 2)[1]
ct.median(x, 1)[0]
ct.squeeze(x[None], 0).shape
ct.unsqueeze(x, 0).shape
ct.transpose(x, 0, 1)
ct.permute(x, (1, 0))
ct.reshape(x, (-1,))
ct.flatten(x)
ct.flip(x, [0])
ct.flip(x, dims=(1,))
ct.roll(x, 1, 0)
ct.swapaxes(x, 0, 1).shape
ct.round(x, decimals=1)
ct.clone(x)
ct.detach(w).requires_grad
ct.index_select(x, 1, i)
ct.gather(x, 1, n[:, :2] % 3)
ct.masked_select(x, m)
ct.repeat_interleave(v, 2)
ct.vander(v).shape
ct.tensordot(x, x, dims=2)
ct.tensordot(x, x, dims=([0], [0])).shape
ct.kron(v, v).shape
ct.logical_not(m)
ct.any(m, dim=1)
ct.all(m)
ct.count_nonzero(x)
ct.diff(v)
ct.nansum(x)
ct.std(x, axis=0)
x.sum(axis=1)
x.mean(axis=0, keepdims=True)
hash(x) == hash(x)
import copy; copy.deepcopy(x)
import copy; copy.deepcopy(w).requires_grad
import pickle; pickle.loads(pickle.dumps(x))
x in [x]
bool(ct.tensor(1))
bool(ct.tensor([0.0]))
list(v.shape)
tuple(x.size())
x.shape == (2, 3)
x.size() == n.size()
x.size().numel()
ct.Size([2, 3]).numel()
ct.Size((2, 3)) == x.shape
x.shape[:-1] + (5,)
repr(ct.tensor([1.0, 2.0]))
repr(ct.tensor([[1, 2], [3, 4]]))
repr(w)
repr(x.dtype)
repr(x.device)
repr(ct.tensor(float("nan")))
repr(ct.tensor([1 + 2j]))
import io; f = io.BytesIO(); ct.save({"w": x, "epoch": 3}, f); f.seek(0); ct.load(f)
import io; f = io.BytesIO(); ct.save(x, f); f.seek(0); ct.load(f)
import io; f = io.BytesIO(); ct.save([x, (1, "a", None, True)], f); f.seek(0); ct.load(f, map_location="cpu", weights_only=True)
import tempfile, os; p = os.path.join(tempfile.mkdtemp(), "m.pt"); ct.save({"a": {"b": n}}, p); ct.load(p)["a"]["b"]
"""


def programs():
    return [line for line in (PROGRAMS + habits_more.PROGRAMS).splitlines() if line]


def evaluate(lib, program):
    """The value of the last expression of a program, or of `out`."""
    space = {"ct": lib}
    exec(SETUP, space)
    tree = ast.parse(program)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(tree.body[:-1], []), program, "exec"), space)
        value = eval(compile(ast.Expression(last.value), program, "eval"), space)
    else:
        exec(compile(tree, program, "exec"), space)
        value = space["out"]
    return plain(lib, value)


def plain(lib, value):
    """The value as JSON has it: tensors with their dtype and shape, dtypes and devices by name."""
    if isinstance(value, lib.Tensor):
        shown = value.detach()
        shown = lib.view_as_real(shown) if shown.is_complex() else shown
        numbers = shown.to(lib.float64).reshape(-1).tolist()
        return {"dtype": str(value.dtype).split(".")[-1], "shape": list(value.shape), "values": [str(a) if not math.isfinite(a) else a for a in numbers]}
    if isinstance(value, (lib.dtype, lib.device)):
        return str(value).split(".")[-1]
    if isinstance(value, dict):
        return {key: plain(lib, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(lib, one) for one in value]
    if isinstance(value, str):
        return value.replace("torch", "cotangent")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int)) else type(value).__name__


def same(a, b):
    """Whether two plain values agree, numbers to the rounding of 32 bits."""
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def answers():
    return json.loads(ANSWERS.read_text())
