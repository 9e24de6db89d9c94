"""Optimisers and schedules against PyTorch's in tests/fixtures, and their states."""

import copy
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import cotangent as ct
from cotangent import nn, optim
from cotangent.optim import lr_scheduler

OPTIM = Path(__file__).parents[2] / "tests" / "fixtures" / "optim"


def number(value):
    return float(value) if isinstance(value, str) else value


def load(name):
    return json.loads((OPTIM / f"{name}.json").read_text())


def named(cases):
    return [pytest.param(case, id=f"{at}-{case.get('kind', '')}") for at, case in enumerate(cases)]


def start(case):
    params = {name: nn.Parameter(ct.tensor(values, dtype=ct.float64).reshape(tuple(case["shapes"][name])))
              for name, values in case["initial"].items()}
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in case["options"].items()}
    if case["group"]:
        groups = [{"params": [p for name, p in params.items() if not name.startswith("b.")]},
                  {"params": [p for name, p in params.items() if name.startswith("b.")], **case["group"]}]
    else:
        groups = params.values()
    return params, getattr(optim, case["kind"])(groups, **options)


def step(case, params, optimizer, at):
    for name, grad in case["steps"][at]["grads"].items():
        p = params[name]
        p.grad = None if grad is None else ct.tensor(grad, dtype=ct.float64).reshape(p.shape)
    optimizer.step()
    for name, wanted in case["steps"][at]["params"].items():
        # PyTorch's NAdam keeps a product of all its momenta in single precision.
        rtol, atol = (1e-7, 1e-8) if case["kind"] == "NAdam" else (1e-9, 1e-11)
        np.testing.assert_allclose(np.asarray(params[name].detach()).ravel(), [number(x) for x in wanted], rtol=rtol, atol=atol,
                                   err_msg=f"{name}, step {at}")


@pytest.mark.parametrize("case", named(load("steps")))
def test_an_optimiser_takes_pytorchs_steps(case):
    params, optimizer = start(case)
    for at in range(len(case["steps"])):
        if at == 3:
            # Half way it is saved, and another one goes on.
            saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
            params2, optimizer = start(case)
            with ct.no_grad():
                for name, p in params.items():
                    params2[name].copy_(p)
            params = params2
            optimizer.load_state_dict(saved)
        step(case, params, optimizer, at)


@pytest.mark.parametrize("case", named(load("lbfgs")))
def test_lbfgs_takes_pytorchs_steps(case):
    x = nn.Parameter(ct.tensor(case["initial"], dtype=ct.float64))
    optimizer = optim.LBFGS([x], **case["options"])
    for at, wanted in enumerate(case["steps"]):
        if at == 2:
            saved = optimizer.state_dict()
            optimizer = optim.LBFGS([x], **case["options"])
            optimizer.load_state_dict(saved)

        def closure():
            optimizer.zero_grad()
            loss = case["sign"] * (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        np.testing.assert_allclose(loss.item(), wanted["loss"], rtol=1e-6)
        np.testing.assert_allclose(x.detach().numpy(), wanted["x"], rtol=1e-6)


def two_groups():
    a, b = nn.Parameter(ct.zeros(1)), nn.Parameter(ct.zeros(1))
    return optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.3}], lr=0.1, momentum=0.9)


SCHEDULES = {"SwaLR": "SWALR"}


@pytest.mark.parametrize("case", named([case for case in load("schedules")]))
def test_a_schedule_gives_pytorchs_rates(case):
    kind = SCHEDULES.get(case["kind"], case["kind"])
    schedule = getattr(lr_scheduler, kind, None)
    options = case["options"]
    if schedule is None or not isinstance(options, dict) or kind in ("SequentialLR", "ChainedScheduler", "LambdaLR", "MultiplicativeLR"):
        pytest.skip("made of functions or of others: see below")
    if "scale_fn" in options or "scale_mode" in options:
        pytest.skip("a function of one's own")
    optimizer = two_groups()
    scheduler = schedule(optimizer, **options)
    for at, (lrs, momenta) in enumerate(case["steps"]):
        np.testing.assert_allclose(scheduler.get_last_lr(), lrs, rtol=1e-9, atol=1e-15, err_msg=f"step {at}")
        assert [group["lr"] for group in optimizer.param_groups] == scheduler.get_last_lr()
        np.testing.assert_allclose([group["momentum"] for group in optimizer.param_groups], momenta, rtol=1e-9)
        if at + 1 < len(case["steps"]):
            scheduler.step()


def test_schedules_of_others():
    optimizer = two_groups()
    first, second = lr_scheduler.ConstantLR(optimizer, 0.1, 20), lr_scheduler.ExponentialLR(optimizer, 0.9)
    scheduler = lr_scheduler.SequentialLR(optimizer, [first, second], milestones=[2])
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(4):
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.01, 0.01, 0.1, 0.09, 0.081])
    saved = scheduler.state_dict()
    optimizer = two_groups()
    again = lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer, 0.1, 20), lr_scheduler.ExponentialLR(optimizer, 0.9)], [2])
    again.load_state_dict(saved)
    again.step()
    np.testing.assert_allclose(optimizer.param_groups[0]["lr"], 0.1 * 0.9 ** 3)
    optimizer = two_groups()
    chained = lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)])
    chained.step()
    np.testing.assert_allclose(chained.get_last_lr(), [0.009, 0.027])
    optimizer = two_groups()
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    scheduler.step()
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.05, 0.15])
    with pytest.raises(ValueError, match="step_size"):
        lr_scheduler.StepLR(two_groups(), 0)
    with pytest.raises(TypeError):
        lr_scheduler.StepLR(two_groups())


@pytest.mark.parametrize("case", named(load("plateau")))
def test_a_plateau_makes_the_rate_smaller(case):
    optimizer = two_groups()
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **case["options"])
    for metric, wanted in zip(case["metrics"], case["steps"], strict=True):
        scheduler.step(number(metric))
        np.testing.assert_allclose([group["lr"] for group in optimizer.param_groups], wanted, rtol=1e-12)


@pytest.mark.parametrize("case", named(load("scaler")))
def test_a_scaler_leaves_out_infinite_steps(case):
    w = nn.Parameter(ct.tensor([1.0]))
    optimizer, scaler = optim.SGD([w], lr=0.1), ct.GradScaler("cpu", **case["options"])
    for grad, scale, value in case["steps"]:
        optimizer.zero_grad()
        scaler.scale((w * number(grad)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        np.testing.assert_allclose(w.item(), value, atol=1e-6)
    other = ct.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == scaler.get_scale()
    with pytest.raises(ValueError, match="unscaled"):
        scaler.scale((w * 1).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)


def test_settings_that_are_changed_take_effect():
    for change in ({"lr": 1.0}, {"momentum": 0.0}, {"weight_decay": 1.0}):
        w = nn.Parameter(ct.zeros(1))
        optimizer = optim.SGD([w], lr=0.5, momentum=0.5)
        for at in range(2):
            w.grad = ct.ones(1)
            if at == 1:
                optimizer.param_groups[0].update(change)
            optimizer.step()
        # The first step is to -0.5; what is kept of it stays, whichever setting is changed.
        wanted = {"lr": -0.5 - 1.5, "momentum": -0.5 - 0.5, "weight_decay": -0.5 - 0.5 * (0.5 + 1.0 - 0.5)}[next(iter(change))]
        assert w.item() == wanted, change


def test_wrong_arguments_are_refused():
    w = nn.Parameter(ct.zeros(1))
    for wrong, error in (
        (lambda: optim.SGD([]), ValueError), (lambda: optim.SGD(w), TypeError), (lambda: optim.SGD([w, w]), ValueError),
        (lambda: optim.SGD([w * 1]), ValueError), (lambda: optim.SGD([w], rate=1), TypeError), (lambda: optim.SGD([3]), TypeError),
        (lambda: optim.SGD([{"params": [w], "rate": 1}]), TypeError), (lambda: optim.Adam([w], betas=(0.9, "x")), TypeError),
    ):
        with pytest.raises(error):
            wrong()
    w.grad = ct.ones(1)
    with pytest.raises(ValueError, match="beta"):
        optim.Adam([w], betas=(2.0, 0.9)).step()
    optimizer = optim.Adam([w])
    optimizer.step()
    with pytest.raises(ValueError, match="groups"):
        optim.Adam([{"params": [w]}, {"params": [nn.Parameter(ct.zeros(1))]}]).load_state_dict(optimizer.state_dict())
    bad = copy.deepcopy(optimizer.state_dict())
    bad["state"][0]["exp_avg"] = ct.zeros(7)
    other = optim.Adam([w])
    other.load_state_dict(bad)
    before = w.item()
    with pytest.raises(ValueError, match="state of 0"):
        other.step()
    assert w.item() == before


def test_state_has_pytorchs_form():
    model = nn.Linear(2, 1)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    model(ct.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert list(state) == ["state", "param_groups"] and list(state["state"]) == [0, 1]
    assert list(state["state"][0]) == ["step", "exp_avg", "exp_avg_sq"] and state["state"][0]["step"].item() == 1.0
    assert state["param_groups"][0]["betas"] == (0.9, 0.999) and state["param_groups"][0]["params"] == [0, 1]
    assert optimizer.state[model.weight]["exp_avg"].shape == (1, 2)
    both = copy.deepcopy((model, optimizer))
    assert both[1].param_groups[0]["params"][0] is both[0].weight
    for own, other in ((model, optimizer), both):
        other.zero_grad()
        own(ct.ones(1, 2)).sum().backward()
        other.step()
    assert both[0].weight.equal(model.weight) and both[0].weight is not model.weight


def test_a_step_changes_the_bytes_where_they_lie():
    model = nn.Linear(64, 64)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model(ct.ones(1, 64)).sum().backward()
    place = model.weight.data_ptr()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert model.weight.data_ptr() == place


def test_autocast_and_averages():
    model = nn.Linear(4, 4)
    with ct.autocast("cpu"):
        y = model(ct.ones(2, 4))
        assert y.dtype == ct.bfloat16 and ct.amp.is_autocast_enabled()
        with ct.autocast("cpu", enabled=False):
            assert model(ct.ones(2, 4)).dtype == ct.float32
    assert model(ct.ones(2, 4)).dtype == ct.float32
    y.float().sum().backward()
    assert model.weight.grad.dtype == ct.float32
    average = optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    with ct.no_grad():
        model.weight.add_(1.0)
    average.update_parameters(model)
    np.testing.assert_allclose(np.asarray(average.module.weight.detach()), np.asarray(model.weight.detach()) - 0.5, rtol=1e-5)
    assert math.isclose(average.n_averaged.item(), 2)


def test_a_network_learns():
    ct.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 60)
    x = ct.randn(256, 2)
    y = ((x[:, 0] * x[:, 1]) > 0).long()
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    assert (model(x).argmax(1) == y).float().mean().item() > 0.95


def test_an_optimiser_of_ones_own_says_what_a_step_is():
    class Nothing(ct.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

    w = ct.nn.Parameter(ct.ones(2))
    optimizer = Nothing([w])
    with pytest.raises(NotImplementedError, match="Nothing must define step"):
        optimizer.step()
    optimizer.state[w]["seen"] = ct.ones(1)
    again = Nothing([w])
    again.load_state_dict(optimizer.state_dict())
    again.state[w]["seen"].zero_()
    assert optimizer.state[w]["seen"].item() == 1 and again.param_groups[0]["lr"] == 0.1
    assert ct.optim.lr_scheduler.StepLR(again, 1).get_last_lr() == [0.1]


def test_an_optimizer_keeps_what_belongs_to_no_parameter():
    class Counting(ct.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def step(self, closure=None):
            count = self.state.setdefault("k", ct.tensor([0]))
            count += 1
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["seen"] = count.clone()

    w = ct.nn.Parameter(ct.ones(2))
    first, second = Counting([w]), Counting([w])
    first.step()
    first.step()
    saved = first.state_dict()
    assert saved["state"]["k"].item() == 2 and saved["state"][0]["seen"].item() == 2
    second.load_state_dict(saved)
    second.step()
    assert second.state["k"].item() == 3 and first.state["k"].item() == 2
    with pytest.raises(ValueError, match="parameter 7, which is in no group"):
        second.load_state_dict({**saved, "state": {"7": {}}})
