import math

import torch

dtype, device = torch.float, torch.device("cpu")
x = torch.linspace(-math.pi, math.pi, 200, device=device, dtype=dtype)
y = torch.sin(x)
a, b = torch.full((), 0.1, device=device, dtype=dtype), torch.full((), 0.2, device=device, dtype=dtype)
for t in range(20):
    y_pred = a + b * x
    loss = (y_pred - y).pow(2).sum().item()
    grad = 2.0 * (y_pred - y)
    a -= 1e-4 * grad.sum()
    b -= 1e-4 * (grad * x).sum()
first = a.item(), b.item(), f"{loss:.4f}"

c = torch.tensor(0.3, device=device, dtype=dtype, requires_grad=True)
d = torch.tensor(-0.1, device=device, dtype=dtype, requires_grad=True)


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


P3 = LegendrePolynomial3.apply
for t in range(10):
    loss = (c + d * P3(x * 0.3) - y).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        c -= 1e-4 * c.grad
        d -= 1e-4 * d.grad
        c.grad = None
        d.grad = None
p = torch.tensor([1, 2, 3])
xx = x.unsqueeze(-1).pow(p)
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
model[0].weight.data.fill_(0.01)
model[0].bias.data.zero_()
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for t in range(30):
    loss = loss_fn(model(xx), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
linear_layer = model[0]
text = f"y = {linear_layer.bias.item():.4f} + {linear_layer.weight[:, 0].item():.4f} x + {linear_layer.weight[:, 1].item():.4f} x^2"


class Poly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.5))
        self.b = torch.nn.Parameter(torch.tensor(-0.5))

    def forward(self, x):
        y = self.a
        for exp in range(1, 3):
            y = y + self.b * x**exp
        return y

    def string(self):
        return f"{self.a.item()} + {self.b.item()} x"


poly = Poly()
loss_fn(poly(x), y).backward()
out = [first, c, d, text, xx.shape, poly.string(), poly.a.grad, poly.b.grad, str(poly.a)]
