#!/usr/bin/env python3
"""Writes tests/fixtures/optim/: the steps of PyTorch's optimisers and the rates of its schedules.

Requires PyTorch: `python3 tools/optim_fixtures.py`. Lion and LAMB are not in PyTorch: they are implemented here as in
their papers.
"""

import json
import math
import random
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "optim"
STEPS = 7
# Names as in the test's model; those that begin with "b." are in the second group.
SHAPES = {"a.weight": [2, 3], "a.bias": [2], "b.weight": [3, 2], "b.bias": [], "c.weight": [2, 1, 2]}


def number(x):
    return float(f"{x:.12g}") if math.isfinite(x) else str(x)


def values(tensor):
    return [number(float(x)) for x in tensor.detach().double().flatten()]


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023, algorithm 2."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * g)
                p.copy_(p - group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(beta2 * m + (1 - beta2) * g)


class LAMB(torch.optim.Optimizer):
    """You et al., 2020, algorithm 2, with the identity as phi."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, bias_correction=True, trust_clip=False, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction, trust_clip=trust_clip, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                m, v = state["m"], state["v"]
                m.copy_(beta1 * m + (1 - beta1) * g)
                v.copy_(beta2 * v + (1 - beta2) * g * g)
                c1, c2 = (1 - beta1 ** state["t"], 1 - beta2 ** state["t"]) if group["bias_correction"] else (1, 1)
                update = (m / c1) / (torch.sqrt(v / c2) + group["eps"]) + group["weight_decay"] * p
                size, length = p.norm(), update.norm()
                trust = float(size / length) if size > 0 and length > 0 else 1.0
                if group["trust_clip"]:
                    trust = min(trust, 1.0)
                p.copy_(p - group["lr"] * trust * update)


OPTIMIZERS = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True, "maximize": True, "weight_decay": 0.05}, {"maximize": True}],
    "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-3}, {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}, {"amsgrad": True, "weight_decay": 0.1, "betas": [0.5, 0.6]}],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.2, "betas": [0.5, 0.6]}, {"maximize": True, "eps": 1e-2}],
    "Adamax": [{}, {"weight_decay": 0.1, "betas": [0.7, 0.8]}, {"maximize": True, "eps": 1e-2}],
    "NAdam": [{}, {"weight_decay": 0.1, "momentum_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": [0.7, 0.9]}, {"maximize": True}],
    "RAdam": [{}, {"betas": [0.9, 0.6]}, {"weight_decay": 0.1, "betas": [0.8, 0.9]}, {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True, "betas": [0.8, 0.7]}],
    "RMSprop": [{}, {"momentum": 0.9}, {"centered": True, "alpha": 0.9}, {"centered": True, "momentum": 0.7, "weight_decay": 0.1, "eps": 1e-4}, {"maximize": True, "alpha": 0.5}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"initial_accumulator_value": 0.5, "eps": 1e-3}, {"maximize": True}],
    "Adadelta": [{}, {"rho": 0.5, "weight_decay": 0.1}, {"eps": 1e-3, "maximize": True}],
    "Adafactor": [{}, {"d": 2.0, "weight_decay": 0.1}, {"eps": [1e-3, 0.1], "beta2_decay": -0.5}, {"maximize": True, "eps": [None, 1e-2]}],
    "Rprop": [{}, {"etas": [0.4, 1.5], "step_sizes": [1e-3, 0.02]}, {"maximize": True}],
    "Lion": [{}, {"weight_decay": 0.3}, {"betas": [0.5, 0.7], "maximize": True}],
    "LAMB": [{}, {"weight_decay": 0.1}, {"bias_correction": False, "trust_clip": True}, {"maximize": True, "betas": [0.5, 0.7], "eps": 1e-3}],
    "Muon": [{}, {"nesterov": False, "momentum": 0.7}, {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "weight_decay": 0.0}, {"adjust_lr_fn": "spectral_unclamped", "ns_coefficients": [2.0, -1.5, 0.5], "eps": 1e-3}],
}
OURS = {"Lion": Lion, "LAMB": LAMB}


def optimizer_case(kind, options, groups=False):
    draw = random.Random(f"{kind}/{options}/{groups}")
    tensor = lambda shape: torch.tensor([round(draw.uniform(-2, 2), 3) for _ in range(math.prod(shape))], dtype=torch.float64).reshape(shape)
    shapes = {name: shape for name, shape in SHAPES.items() if kind != "Muon" or len(shape) == 2}
    params = {name: tensor(shape).requires_grad_() for name, shape in shapes.items()}
    settings = {"lr": 0.05} | {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    own = {}
    if groups:
        own = {"lr": 0.2} if kind == "Rprop" else {"lr": 0.2, "weight_decay": 0.3}
        in_group = [p for name, p in params.items() if name.startswith("b.")]
        others = [p for name, p in params.items() if not name.startswith("b.")]
        given = [{"params": others}, {"params": in_group, **own}]
    else:
        given = list(params.values())
    make = OURS.get(kind) or getattr(torch.optim, kind)
    optimizer = make(given, **settings)
    case = {"kind": kind, "options": {"lr": 0.05} | options, "group": own, "initial": {n: values(p) for n, p in params.items()}, "shapes": shapes, "steps": []}
    for step in range(STEPS):
        grads = {name: tensor(shape) for name, shape in shapes.items()}
        # Some gradients are zero, partly zero, or None.
        if step == 2:
            grads["a.weight"].zero_()
        if step in (1, 4):
            grads["b.weight"][0] = 0.0
        if step in (0, 3) and "a.bias" in grads:
            grads["a.bias"] = None
        if step == 5:
            grads["b.weight"] = None
        for name, p in params.items():
            p.grad = None if grads[name] is None else grads[name].clone()
        optimizer.step()
        case["steps"].append({"grads": {n: None if g is None else values(g) for n, g in grads.items()}, "params": {n: values(p) for n, p in params.items()}})
    return case


def lbfgs_cases():
    cases = []
    for options in ({}, {"line_search_fn": "strong_wolfe"}, {"lr": 0.3, "history_size": 2}, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 5, "lr": 0.5}, {"max_iter": 4, "max_eval": 3}, {"line_search_fn": "strong_wolfe", "maximize": True, "max_iter": 3}):
        options = {"lr": 0.1 if not options else 1.0} | options
        x = torch.tensor([-1.2, 1.0, -0.5, 0.8], dtype=torch.float64, requires_grad=True)
        sign = -1.0 if options.get("maximize") else 1.0
        optimizer = torch.optim.LBFGS([x], **options)

        def closure():
            optimizer.zero_grad()
            # Rosenbrock's valley, in four dimensions.
            loss = sign * (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss

        steps = []
        for _ in range(4):
            loss = optimizer.step(closure)
            steps.append({"loss": number(loss.item()), "x": values(x)})
        cases.append({"options": options, "sign": sign, "initial": [-1.2, 1.0, -0.5, 0.8], "steps": steps})
    return cases


L = torch.optim.lr_scheduler
SCHEDULES = {
    "ConstantLR": [{}, {"factor": 0.5, "total_iters": 4}],
    "LinearLR": [{}, {"start_factor": 0.1, "end_factor": 0.6, "total_iters": 9}],
    "StepLR": [{"step_size": 3}, {"step_size": 4, "gamma": 0.5}],
    "MultiStepLR": [{"milestones": [2, 5, 5, 11]}, {"milestones": [4], "gamma": 0.3}],
    "ExponentialLR": [{"gamma": 0.9}],
    "PolynomialLR": [{}, {"total_iters": 12, "power": 2.5}],
    "CosineAnnealingLR": [{"T_max": 10}, {"T_max": 7, "eta_min": 0.01}],
    "CosineAnnealingWarmRestarts": [{"T_0": 5}, {"T_0": 3, "T_mult": 2, "eta_min": 0.02}],
    "OneCycleLR": [{"max_lr": 0.5, "total_steps": 40}, {"max_lr": [0.5, 0.1], "total_steps": 33, "pct_start": 0.4, "anneal_strategy": "linear", "div_factor": 10.0, "final_div_factor": 100.0}, {"max_lr": 0.5, "total_steps": 36, "three_phase": True, "base_momentum": 0.7, "max_momentum": 0.9}, {"max_lr": 0.5, "total_steps": 32, "cycle_momentum": False}],
    "CyclicLR": [{"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5}, {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "step_size_down": 6, "mode": "triangular2"}, {"base_lr": [0.01, 0.02], "max_lr": [0.1, 0.3], "step_size_up": 4, "mode": "exp_range", "gamma": 0.95, "base_momentum": 0.5, "max_momentum": 0.95}, {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, "cycle_momentum": False}],
    "SWALR": [{"swa_lr": 0.01}, {"swa_lr": [0.01, 0.5], "anneal_epochs": 5, "anneal_strategy": "linear"}],
}


def trajectory(make, momentum=False, steps=30):
    params = [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]
    optimizer = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.3}], lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    rows = []
    for _ in range(steps):
        rows.append([[g["lr"] for g in optimizer.param_groups], [g["momentum"] for g in optimizer.param_groups]])
        optimizer.step()
        scheduler.step()
    return rows


def schedule_cases():
    cases = []
    for kind, all_options in SCHEDULES.items():
        for options in all_options:
            make = torch.optim.swa_utils.SWALR if kind == "SWALR" else getattr(L, kind)
            cases.append({"kind": kind, "options": options, "steps": trajectory(lambda o: make(o, **options))})
    fixed = {
        "LambdaLR": lambda o: L.LambdaLR(o, lambda step: 1 / (1 + step)),
        "MultiplicativeLR": lambda o: L.MultiplicativeLR(o, lambda step: 1 - 0.01 * step),
        "warmup_cosine": lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.25, 1.0, 3), L.CosineAnnealingLR(o, 20)], [4]),
        "three_in_a_row": lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 5), L.ExponentialLR(o, 0.8), L.StepLR(o, 2, 0.5)], [3, 10]),
        "chained": lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 5), L.ExponentialLR(o, 0.9)], optimizer=o),
        "chained_cosine": lambda o: L.ChainedScheduler([L.LinearLR(o, 0.5, 1.0, 6), L.CosineAnnealingLR(o, 40)], optimizer=o),
    }
    for kind, make in fixed.items():
        cases.append({"kind": kind, "options": {}, "steps": trajectory(make)})
    return cases


def plateau_cases():
    cases = []
    metrics = [1.0, 0.9, 0.9, 0.91, 0.905, 0.89995, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, float("nan"), 0.4, 0.41, 0.42, 0.4, 0.4, 0.4, 0.4]
    for options in ({"patience": 2}, {"patience": 1, "factor": 0.5, "cooldown": 2, "min_lr": 0.02}, {"mode": "max", "patience": 0, "threshold": 0.05}, {"patience": 1, "threshold": 0.01, "threshold_mode": "abs", "min_lr": [0.001, 0.05]}, {"mode": "max", "threshold_mode": "abs", "patience": 3, "eps": 0.05}):
        params = [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]
        optimizer = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.3}], lr=0.1)
        scheduler = L.ReduceLROnPlateau(optimizer, **options)
        rows = []
        for metric in metrics:
            scheduler.step(metric)
            rows.append([g["lr"] for g in optimizer.param_groups])
        cases.append({"options": options, "metrics": [number(m) for m in metrics], "steps": rows})
    return cases


def averaged_cases():
    cases = []
    for kind, use_buffers in (("swa", False), ("swa", True), ("ema", False), ("ema", True)):
        torch.manual_seed(3)
        model = torch.nn.BatchNorm1d(2).double()
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9) if kind == "ema" else None
        averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)
        steps = []
        for step in range(4):
            with torch.no_grad():
                model.weight.copy_(torch.tensor([step + 1.0, step * step - 2.0]))
                model.bias.copy_(torch.tensor([0.5 * step, -step]))
                model.running_mean.copy_(torch.tensor([step * 3.0, 1.0 / (step + 1)]))
            averaged.update_parameters(model)
            steps.append({name: values(getattr(averaged.module, name)) for name in ("weight", "bias", "running_mean")})
        cases.append({"kind": kind, "use_buffers": use_buffers, "steps": steps})
    return cases


def scaler_case():
    """The scale over steps, some of which have infinite gradients."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    x = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1)
    rows = []
    for factor in (1.0, 2.0, math.inf, 1.0, 3.0, math.nan, math.inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0):
        optimizer.zero_grad()
        scaler.scale((x * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        rows.append([number(factor), scaler.get_scale(), x.item()])
    return {"options": {"init_scale": 8.0, "growth_interval": 3}, "steps": rows}


def write(name, content):
    path = FOLDER / f"{name}.json"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in content)
    path.write_text(f"[\n{lines}\n]\n")
    print(path, path.stat().st_size)


def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    # PyTorch's Muon iterates in bf16; in full precision it can be compared exactly.
    to = torch.Tensor.to
    torch.Tensor.to = lambda self, *a, **k: self.clone() if k.get("dtype") is torch.bfloat16 else to(self, *a, **k)
    cases = []
    for kind, all_options in OPTIMIZERS.items():
        for at, options in enumerate(all_options):
            cases.append(optimizer_case(kind, options))
            if at in (0, 1):
                cases.append(optimizer_case(kind, options, groups=True))
    torch.Tensor.to = to
    write("steps", cases)
    write("lbfgs", lbfgs_cases())
    write("schedules", schedule_cases())
    write("plateau", plateau_cases())
    write("averaged", averaged_cases())
    write("scaler", [scaler_case()])


if __name__ == "__main__":
    main()
