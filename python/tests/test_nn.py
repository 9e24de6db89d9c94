"""Modules: layers against PyTorch's values in tests/fixtures, and what a module is."""

import copy
import doctest
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import cotangent as ct
from cases import assert_close, tensor
from cotangent import nn
from cotangent.nn import functional as F

LAYERS = Path(__file__).parents[2] / "tests" / "fixtures" / "layers"


def layer_cases():
    for path in sorted(LAYERS.glob("*.json")):
        for at, case in enumerate(json.loads(path.read_text())["cases"]):
            yield pytest.param(path.stem, case, id=f"{path.stem}-{at}")


@pytest.mark.parametrize("name, case", list(layer_cases()))
def test_a_layer_gives_pytorchs_values_gradients_and_buffers(name, case):
    layer = getattr(nn, name)(**case["args"]).double()
    state = {key: tensor(value) for key, value in case["state"].items()}
    assert layer.load_state_dict(state) == ([], [])
    layer.train(case.get("training", True))
    x = tensor(case["input"])
    if x.is_floating_point():
        x.requires_grad_()
    if name == "MultiheadAttention":
        y = layer(x, x, x)[0]
    else:
        y = layer(x)
    if isinstance(y, tuple):
        y = y[0]
    assert_close(y, case["output"], case, f"{name} output")
    y.backward(tensor(case["cotangent"]))
    if x.is_floating_point() and case.get("input_grad") is not None:
        assert_close(x.grad, case["input_grad"], case, f"{name} gradient of the input")
    for key, wanted in case.get("grads", {}).items():
        found = layer.get_parameter(key).grad
        assert_close(ct.zeros_like(layer.get_parameter(key)) if found is None else found, wanted, case, f"{name} gradient of {key}")
    for key, wanted in case.get("buffers", {}).items():
        assert_close(layer.get_buffer(key), wanted, case, f"{name} buffer {key}")


def test_every_layer_of_the_list_is_a_class():
    from cotangent import _cotangent as core

    names = {entry["name"] for entry in core._layers()}
    assert names <= set(dir(nn)) and {path.stem for path in LAYERS.glob("*.json")} <= names
    assert nn.Conv2d.__doc__ and "kernel_size" in str(__import__("inspect").signature(nn.Conv2d))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(ct.ones(10))
        self.register_buffer("shift", ct.zeros(10))
        self.register_buffer("cache", ct.zeros(1), persistent=False)
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x):
        x = self.norm(self.embedding(x))
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x) * self.scale + self.shift


NAMES = ["scale", "shift", "embedding.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
         "norm.num_batches_tracked", "head.weight", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"]


def test_a_module_knows_its_parts():
    net = Net()
    assert list(net.state_dict()) == NAMES
    assert [name for name, _ in net.named_parameters()] == [
        "scale", "embedding.weight", "norm.weight", "norm.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"]
    assert [name for name, _ in net.named_buffers()] == ["shift", "cache", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert [name for name, _ in net.named_children()] == ["embedding", "norm", "head", "blocks"]
    assert "blocks.1" in dict(net.named_modules()) and net.get_submodule("blocks.1") is net.blocks[1]
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in net.parameters())
    net.eval()
    assert not any(module.training for module in net.modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    net.apply(lambda module: seen.append(type(module).__name__))
    assert seen[-1] == "Net" and "BatchNorm1d" in seen


def test_one_variable_for_both_sides():
    """Whatever changes a parameter is seen by the layer's next call."""
    layer = nn.Linear(2, 1, bias=False)
    x = ct.ones(1, 2)
    for change in (
        lambda w: w.data.fill_(3.0),
        lambda w: setattr(w, "data", ct.full((1, 2), 3.0)),
        lambda w: layer.load_state_dict({"weight": ct.full((1, 2), 3.0)}),
        lambda w: setattr(layer, "weight", nn.Parameter(ct.full((1, 2), 3.0))),
        lambda w: nn.init.constant_(w, 3.0),
    ):
        nn.init.zeros_(layer.weight)
        assert layer(x).item() == 0.0
        change(layer.weight)
        assert layer(x).item() == 6.0
    layer(x).backward()
    layer.weight.grad.mul_(2)
    ct.optim.SGD(layer.parameters(), lr=0.5).step()
    assert layer(x).item() == 4.0


def test_tied_parameters_are_one():
    net = Net()
    net(ct.tensor([1, 2, 3])).sum().backward()
    assert net.head.weight is net.embedding.weight
    before = net.embedding.weight.detach().clone()
    ct.optim.SGD(net.parameters(), lr=0.1).step()
    assert not np.allclose(np.asarray(before), np.asarray(net.head.weight.detach()))
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.head.weight is other.embedding.weight and other.head.weight is not net.head.weight
        assert isinstance(other.scale, nn.Parameter)
        net.eval(), other.eval()
        x = ct.tensor([4, 5])
        assert ct.allclose(other(x), net(x))
        with ct.no_grad():
            other.scale.zero_()
        assert net.scale.sum().item() > 5.0


def test_settings_take_effect_after_the_layer_was_made():
    x = ct.ones(1000)
    layer = nn.Dropout(0.0)
    assert (layer(x) == 1).all()
    layer.p = 1.0
    assert (layer(x) == 0).all()
    linear = nn.Linear(2, 2)
    linear.bias = None
    assert linear(ct.zeros(2)).abs().sum().item() == 0.0 and list(linear.state_dict()) == ["weight"]
    linear.bias = nn.Parameter(ct.ones(2))
    assert linear(ct.zeros(2)).sum().item() == 2.0
    assert nn.BatchNorm1d(3, affine=False).weight is None
    # Making a layer again draws no random numbers that others would miss.
    ct.manual_seed(1)
    layer.p = 0.5
    layer.eval()(x)
    after = ct.rand(3).tolist()
    ct.manual_seed(1)
    assert after == ct.rand(3).tolist()
    with pytest.raises(TypeError, match="Linear: weight must be a Tensor, got None"):
        linear.weight = None
        linear(ct.zeros(2))


def test_loading_checks_everything_before_it_changes_anything():
    net = Net()
    before = {name: np.asarray(x).copy() for name, x in net.state_dict().items()}
    state = {name: x + 1 for name, x in net.state_dict().items()}
    del state["norm.bias"]
    state["other"] = ct.zeros(1)
    state["scale"] = ct.zeros(3)
    with pytest.raises(RuntimeError, match=r"(?s)Unexpected.*'other'.*Missing.*'norm.bias'.*size mismatch for scale"):
        net.load_state_dict(state)
    assert all((np.asarray(x) == before[name]).all() for name, x in net.state_dict().items())
    del state["scale"]
    found = net.load_state_dict(state, strict=False)
    assert found.missing_keys == ["scale", "norm.bias"] and found.unexpected_keys == ["other"]
    assert net.shift.sum().item() == 10.0
    net.load_state_dict({name: np.asarray(x) for name, x in net.state_dict().items()})
    with pytest.raises(RuntimeError, match="must be a tensor"):
        net.load_state_dict({**net.state_dict(), "scale": "text"})


def test_to_keeps_the_variables():
    net = Net()
    weight = net.blocks[0].weight
    net(ct.tensor([1, 2])).sum().backward()
    assert net.double() is net and net.blocks[0].weight is weight
    assert weight.dtype == ct.float64 and weight.requires_grad and weight.grad.dtype == ct.float64
    assert net.norm.num_batches_tracked.dtype == ct.int64
    assert net(ct.tensor([1, 2])).dtype == ct.float64
    with pytest.raises(TypeError):
        net.to(ct.int64)
    net.zero_grad()
    assert weight.grad is None


def test_hooks_see_and_change_calls():
    layer, seen = nn.Linear(2, 2), []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    after = layer.register_forward_hook(lambda module, args, result: seen.append(args[0].sum().item()) or result * 2)
    assert ct.allclose(layer(ct.ones(2)), layer.bias * 2) and seen == [0.0]
    before.remove(), after.remove()
    assert not ct.allclose(layer(ct.ones(2)), layer.bias * 2)


def test_what_is_no_part_of_a_module_is_refused():
    net = Net()
    with pytest.raises(TypeError, match="scale"):
        net.scale = ct.ones(10)
    with pytest.raises(KeyError):
        net.register_buffer("a.b", ct.zeros(1))
    with pytest.raises(AttributeError, match="nothing_here"):
        net.nothing_here
    with pytest.raises(NotImplementedError):
        nn.Module()(1)
    with pytest.raises(TypeError, match="Linear.*is missing.*out_features"):
        nn.Linear(3)
    with pytest.raises(TypeError, match="no parameter size"):
        nn.Linear(3, size=2)
    with pytest.raises(TypeError, match="in_features must be an int"):
        nn.Linear("3", 2)
    with pytest.raises(ValueError, match="3"):
        nn.Linear(3, 2)(ct.ones(4))
    with pytest.raises(TypeError, match="Tensor"):
        nn.ReLU()(1.0)

    class Early(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(ct.ones(1))

    with pytest.raises(AttributeError, match="__init__"):
        Early()


def test_containers():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    model.append(nn.Linear(3, 1))
    assert len(model) == 3 and model[-1].out_features == 1 and list(model[:2].state_dict()) == ["0.weight", "0.bias"]
    model[1] = nn.Tanh()
    assert "Tanh" in repr(model)
    heads = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    assert "a" in heads and list(heads.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    params = nn.ParameterList([ct.ones(2), nn.Parameter(ct.zeros(3))])
    assert len(list(params.parameters())) == 2 and isinstance(params[0], nn.Parameter)
    assert nn.Sequential()(3) == 3


def test_gradients_of_a_network_agree_with_differences():
    ct.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.GELU(), nn.Flatten(), nn.Linear(8, 3)).double()
    names = [name for name, _ in net.named_parameters()]
    x = ct.randn(2, 1, 3, 3, dtype=ct.float64).requires_grad_()

    def run(x, *values):
        return ct.func.functional_call(net, dict(zip(names, values)), (x,))

    assert ct.autograd.gradcheck(run, [x, *(p.detach().clone().requires_grad_() for p in net.parameters())])


def test_functions():
    x = ct.randn(2, 3, 4, 4)
    assert ct.allclose(F.unfold(x, 2, stride=2)[:, 0, 0], x[:, 0, 0, 0])
    assert F.max_pool2d(x, 2, return_indices=True)[1].shape == (2, 3, 2, 2)
    assert nn.MaxPool2d(2, return_indices=True)(x)[1].dtype == ct.int64
    y = x.clone()
    assert F.relu(y, inplace=True) is y and (y >= 0).all()
    mean, var = ct.zeros(3), ct.ones(3)
    layer = nn.BatchNorm2d(3)
    assert ct.allclose(F.batch_norm(x, mean, var, training=True), layer(x), atol=1e-5)
    assert ct.allclose(mean, layer.running_mean) and ct.allclose(var, layer.running_var)
    assert not F.dropout(x, training=False).equal(F.dropout(x))
    loss = nn.CrossEntropyLoss(weight=ct.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1)
    target = ct.tensor([0, 2])
    assert ct.allclose(loss(x[:, :, 0, 0], target), F.cross_entropy(x[:, :, 0, 0], target, loss.weight, label_smoothing=0.1))
    assert list(loss.state_dict()) == ["weight"]


def test_batch_norm_without_momentum_takes_the_mean_of_all_batches():
    layer, batches = nn.BatchNorm1d(2, momentum=None), [ct.randn(8, 2) for _ in range(3)]
    for batch in batches:
        layer(batch)
    means = np.mean([np.asarray(batch).mean(0) for batch in batches], 0)
    np.testing.assert_allclose(np.asarray(layer.running_mean), means, rtol=1e-4, atol=1e-6)


def test_initial_values():
    ct.manual_seed(0)
    w = ct.empty(200, 300)
    bound = np.sqrt(6 / 500)
    nn.init.xavier_uniform_(w)
    assert w.abs().max().item() <= bound and abs(w.std().item() - bound / np.sqrt(3)) < 1e-3
    nn.init.kaiming_normal_(w, nonlinearity="relu")
    assert abs(w.std().item() - np.sqrt(2 / 300)) < 1e-3
    nn.init.trunc_normal_(w, std=2.0, a=-1.0, b=1.0)
    assert w.abs().max().item() <= 1.0 and 0.5 < w.std().item() < 0.6
    nn.init.orthogonal_(w)
    np.testing.assert_allclose(np.asarray(w @ w.T), np.eye(200), atol=1e-4)
    p = nn.init.eye_(nn.Parameter(ct.zeros(3, 3)))
    assert p.requires_grad and p.is_leaf and p.sum().item() == 3.0


def test_clipping():
    a, b = nn.Parameter(ct.zeros(2)), nn.Parameter(ct.zeros(2))
    a.grad, b.grad = ct.tensor([3.0, 0.0]), ct.tensor([0.0, 4.0])
    norm = nn.utils.clip_grad_norm_([a, b], 1.0)
    assert abs(norm.item() - 5.0) < 1e-6
    np.testing.assert_allclose(a.grad.tolist() + b.grad.tolist(), [0.6, 0.0, 0.0, 0.8], rtol=1e-5)
    nn.utils.clip_grad_value_([a, b], 0.5)
    assert a.grad.tolist() == [0.5, 0.0]
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0.0


def test_threads_can_share_a_module():
    layer, x = nn.Linear(64, 64), ct.randn(128, 64)
    wanted, wrong = layer(x).detach(), []

    def work():
        for _ in range(20):
            if not layer(x).equal(wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_examples_of_the_documentation_run():
    modules = (ct, nn, nn.module, nn.utils.rnn, ct.optim, ct.data, ct.random, ct.train, ct.autograd.functional, ct.distributions)
    for module in modules:
        found = doctest.testmod(module)
        assert found.failed == 0 and found.attempted > 0, module.__name__


def test_pytorchs_mnist_script_runs(tmp_path):
    script, saved = Path(__file__).parents[1] / "examples" / "mnist.py", tmp_path / "state.pkl"
    options = ["--dry-run", "--epochs", "1", "--batch-size", "4", "--test-batch-size", "4", "--save-model", str(saved)]
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(Path(ct.__file__).parents[1])})
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout and pickle.loads(saved.read_bytes())["fc1.weight"].shape == (128, 9216)


def test_lazy_layers_keep_their_parameters_and_refuse_wrong_arguments():
    net = nn.Sequential(nn.LazyConv1d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    before = list(net.parameters())
    assert all(isinstance(p, nn.UninitializedParameter) and p.numel() == 0 for p in before)
    assert net(ct.ones(2, 3, 5)).shape == (2, 2) and all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert type(net[0]) is nn.Conv1d and net[0].in_channels == 3 and type(net[3]) is nn.Linear and net[3].in_features == 12
    with pytest.raises(TypeError, match="no parameter colour"):
        nn.LazyLinear(2, colour=1)


def test_computed_parameters_name_what_is_wrong():
    parametrize = nn.utils.parametrize
    with pytest.raises(ValueError, match="no parameter or buffer 'wait'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "wait", nn.Identity())
    with pytest.raises(ValueError, match=r"shape \[2, 2\] .*got \[4\]"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0))
    with pytest.raises(ValueError, match="no parametrized tensor 'weight'"):
        parametrize.remove_parametrizations(nn.Linear(2, 2), "weight")


def test_fractional_pools_are_functions():
    x, at = ct.arange(2 * 81.0).reshape(1, 2, 9, 9), ct.full((1, 2, 2), 0.5)
    y, indices = F.fractional_max_pool2d(x, 2, output_size=(4, 5), return_indices=True, _random_samples=at)
    assert y.shape == indices.shape == (1, 2, 4, 5)
    assert y.tolist() == F.fractional_max_pool2d(x, 2, (4, 5), _random_samples=at).tolist()
    assert y.tolist() == x.flatten(2).gather(2, indices.flatten(2)).reshape(y.shape).tolist()
    assert F.fractional_max_pool2d(x, 2, output_ratio=0.5).shape == (1, 2, 4, 4)
    assert F.fractional_max_pool3d(ct.ones(1, 1, 6, 6, 6), 2, 3).shape == (1, 1, 3, 3, 3)


@pytest.mark.parametrize("fill", [
    lambda x, g: nn.init.uniform_(x, generator=g), lambda x, g: nn.init.normal_(x, generator=g),
    lambda x, g: nn.init.xavier_uniform_(x, generator=g), lambda x, g: nn.init.xavier_normal_(x, generator=g),
    lambda x, g: nn.init.kaiming_uniform_(x, generator=g), lambda x, g: nn.init.kaiming_normal_(x, generator=g),
    lambda x, g: nn.init.trunc_normal_(x, generator=g), lambda x, g: nn.init.orthogonal_(x, generator=g),
    lambda x, g: nn.init.sparse_(x, 0.5, generator=g),
])
def test_initial_values_come_from_the_given_generator(fill):
    one, two, other = (fill(ct.zeros(6, 4), ct.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert one.equal(two) and not one.equal(other)


def test_a_name_has_one_role():
    model = nn.Linear(2, 2)
    for register in (lambda: model.register_buffer("weight", ct.zeros(1)), lambda: model.add_module("weight", nn.ReLU())):
        with pytest.raises(KeyError, match="'weight' already exists"):
            register()
    model.register_parameter("weight", nn.Parameter(ct.zeros(2, 2)))
    model.register_buffer("mean", ct.zeros(1))
    with pytest.raises(KeyError, match="'mean' already exists"):
        model.register_parameter("mean", None)
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"] and list(model._buffers) == ["mean"]


def test_causal_attention_without_a_mask_is_refused_in_every_module():
    x = ct.rand(3, 2, 4, generator=ct.Generator().manual_seed(1))
    encoder, decoder = nn.TransformerEncoderLayer(4, 2, 8), nn.TransformerDecoderLayer(4, 2, 8)
    whole = nn.Transformer(4, 2, 1, 1, 8)
    for call in (lambda: encoder(x, is_causal=True), lambda: nn.TransformerEncoder(encoder, 1)(x, is_causal=True),
                 lambda: decoder(x, x, tgt_is_causal=True), lambda: decoder(x, x, memory_is_causal=True),
                 lambda: nn.TransformerDecoder(decoder, 1)(x, x, tgt_is_causal=True),
                 lambda: whole(x, x, src_is_causal=True), lambda: whole(x, x, tgt_is_causal=True)):
        with pytest.raises(RuntimeError, match="attn_mask must be given"):
            call()
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert encoder.eval()(x, mask, is_causal=True).equal(encoder(x, mask))
