"""What type checkers are to understand: run by mypy, not by pytest."""

from typing import assert_type

import cotangent as ct

x = ct.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
assert_type(x, ct.Tensor)
assert_type(x + 1, ct.Tensor)
assert_type(2.0 * x @ x.T, ct.Tensor)
assert_type(x[0, None, ..., 1:], ct.Tensor)
assert_type(x == 1, ct.Tensor)
assert_type(x.softmax(dim=-1).sum(0, keepdim=True), ct.Tensor)
assert_type(x.sort(descending=True).indices, ct.Tensor)
assert_type(x.shape, ct.Size)
assert_type(x.grad, ct.Tensor | None)
assert_type(ct.cross_entropy(x, ct.tensor([0, 1]), reduction="sum"), ct.Tensor)
assert_type(ct.linalg.eigh(x).eigenvectors, ct.Tensor)
assert_type(x.reshape(4, -1).add_(1), ct.Tensor)
assert_type(float(x.sum()), float)
assert_type(ct.float32, ct.dtype)
for row in x:
    assert_type(row, ct.Tensor)
x.softmax("0")  # type: ignore[arg-type]
x.no_such_method()  # type: ignore[attr-defined]
ct.cross_entropy(x, x, reduction="max")  # type: ignore[arg-type]


class Net(ct.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = ct.nn.Linear(3, 2, bias=False)
        self.scale = ct.nn.Parameter(ct.ones(2))

    def forward(self, x: ct.Tensor) -> ct.Tensor:
        return ct.nn.functional.relu(self.fc(x)) * self.scale


net = Net().to(ct.float32)
assert_type(net, Net)
assert_type(net.fc(x), ct.Tensor)
assert_type([p for p in net.parameters()], list[ct.nn.Parameter])
assert_type(ct.nn.CrossEntropyLoss(label_smoothing=0.1)(x, x), ct.Tensor)
optimizer = ct.optim.AdamW(net.parameters(), lr=0.1, betas=(0.9, 0.99))
scheduler = ct.optim.lr_scheduler.StepLR(optimizer, step_size=3)
assert_type(scheduler.get_last_lr(), list[float])
with ct.autocast("cpu"):
    optimizer.step()
ct.nn.Linear("3", 2)  # type: ignore[arg-type]
ct.nn.Linear(3, 2, size=1)  # type: ignore[call-arg]


def talk(model: ct.models.CausalLm, cache: ct.models.KeyValueCache) -> list[int]:
    ct.generate(model, "Hello", max_new_tokens=5, temperature=0.8, stop=["\n"], eos_token_id=[2, 7], cache=cache)
    ct.generate(model, [{"role": "user", "content": "Hello"}], stream=True)
    ct.generate(model, "Hello", temperature="hot")  # type: ignore[arg-type]
    ct.generate(model, "Hello", heat=1.0)  # type: ignore[call-arg]
    assert_type(model(ct.tensor([[1]]), cache), ct.Tensor)
    assert_type(ct.models.load("folder", ct.bfloat16, "cpu"), ct.models.CausalLm)
    assert_type(ct.models.KeyValueCache(capacity=32), ct.models.KeyValueCache)
    assert_type(ct.data.Tokenizer("folder").decode([1, 2]), str)
    return ct.data.Tokenizer("folder").encode("Hello")
