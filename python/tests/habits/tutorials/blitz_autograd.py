import torch

x = torch.ones(2, 2, requires_grad=True)
y = x + 2
z = y * y * 3
mean = z.mean()
shown = str(mean), str(y.grad_fn is not None), x.grad_fn
mean.backward()
grad = x.grad.clone()
a = torch.tensor([2.0, 3.0], requires_grad=True)
b = torch.tensor([6.0, 4.0], requires_grad=True)
Q = 3 * a**3 - b**2
Q.backward(gradient=torch.tensor([1.0, 1.0]))
check = (9 * a**2 == a.grad).tolist(), (-2 * b == b.grad).tolist()
v = torch.tensor([0.1, 1.0, 0.0001], dtype=torch.float)
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
u = w * 2
while u.data.norm() < 1000:
    u = u * 2
u.backward(v)
flags = [(w**2).requires_grad]
with torch.no_grad():
    flags.append((w**2).requires_grad)
d = w.detach()
flags += [d.requires_grad, d.eq(w).all().item()]
e = torch.randn(2, 2)
flags.append(e.requires_grad)
e.requires_grad_(True)
flags.append(e.requires_grad)
out = [shown, mean.item(), grad, a.grad, b.grad, check, w.grad, flags, str(z), str(Q)]
