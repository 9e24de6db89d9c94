"""Layers, optimisers and state dictionaries compared with those of a real PyTorch: a part of against_torch.py."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import torch

import cotangent as ct
from cotangent import _cotangent as core

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
# Their outputs are drawn at random in training.
RANDOM = ("Dropout", "RReLU", "AlphaDropout")


def array(x):
    return x.detach().numpy()


def close(found, wanted, what, rtol=1e-7, atol=1e-9):
    np.testing.assert_allclose(array(found), array(wanted), rtol=rtol, atol=atol, err_msg=what)


def first(y):
    return y[0] if isinstance(y, tuple) else y


def exchange_state(ours, theirs):
    """PyTorch's weights into ours, and ours back into PyTorch's."""
    ours.load_state_dict(theirs.state_dict())
    state = {name: torch.from_numpy(array(x).copy()) for name, x in ours.state_dict().items()}
    assert list(state) == list(theirs.state_dict()), f"{list(state)}, not {list(theirs.state_dict())}"
    theirs.load_state_dict(state)


def one_layer(name, args, shape, integers, training):
    args = {key: tuple(value) if isinstance(value, list) else value for key, value in args.items()}
    ours, theirs = getattr(ct.nn, name)(**args).double(), getattr(torch.nn, name)(**args).double()
    exchange_state(ours, theirs)
    ours.train(training), theirs.train(training)
    rng = np.random.default_rng(0)
    start = rng.integers(0, integers, shape) if integers else rng.standard_normal(shape)
    a, b = ct.tensor(start), torch.tensor(start)
    if not integers:
        a.requires_grad_(), b.requires_grad_()
    x, y = ((ours(a, a, a), theirs(b, b, b)) if name == "MultiheadAttention" else (ours(a), theirs(b)))
    x, y = first(x), first(y)
    close(x, y, f"{name} output")
    weights = rng.standard_normal(y.shape)
    (x * ct.tensor(weights)).sum().backward()
    (y * torch.tensor(weights)).sum().backward()
    if not integers:
        close(a.grad, b.grad, f"{name} gradient of the input")
    for (key, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        if q.grad is not None:
            close(p.grad, q.grad, f"{name} gradient of {key}")
    for (key, p), (_, q) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        close(p, q, f"{name} buffer {key}")


def layers():
    failed = count = 0
    for entry in core._layers():
        name = entry["name"]
        for at, case in enumerate(json.loads((FIXTURES / "layers" / f"{name}.json").read_text())["cases"]):
            count += 1
            integers = 3 if case["input"]["dtype"] == "i64" else 0
            training = case.get("training", True) and not any(word in name for word in RANDOM)
            try:
                one_layer(name, case["args"], case["input"]["shape"], integers, training)
            except Exception as error:
                failed += 1
                print(f"  {name}, case {at}: {type(error).__name__}: {str(error)[:300]}")
    print(f"layers: {count} cases of {len(core._layers())} layers, {failed} failed")
    return failed


class Networks:
    """A network in each of the libraries, with the same weights."""

    def __init__(self, make):
        self.pair = [make(ct.nn).double(), make(torch.nn).double()]
        exchange_state(*self.pair)


def several_inputs():
    """Networks whose layers take more than one tensor, with masks."""
    failed, rng = 0, np.random.default_rng(1)
    src, tgt = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 4, 8))
    padding = np.array([[False, False, False, True, True], [False] * 5])

    def transformer(lib, nn, model):
        mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=lib.float64)
        pad = lib.tensor(padding)
        return model(lib.tensor(src), lib.tensor(tgt), tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad)

    def attention(lib, nn, model):
        result, weights = model(lib.tensor(tgt), lib.tensor(src), lib.tensor(src), key_padding_mask=lib.tensor(padding))
        return lib.cat([result.flatten(), weights.flatten()])

    def lstm(lib, nn, model):
        result, (h, c) = model(lib.tensor(src))
        again, _ = model(lib.tensor(tgt), (h, c))
        return lib.cat([result.flatten(), again.flatten(), c.flatten()])

    def cell(lib, nn, model):
        h, c = model(lib.tensor(src[:, 0]))
        return model(lib.tensor(src[:, 1]), (h, c))[1]

    def bilinear(lib, nn, model):
        return model(lib.tensor(src[:, :4]), lib.tensor(tgt))

    for what, make, run in (
        ("Transformer", lambda nn: nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True), transformer),
        ("MultiheadAttention", lambda nn: nn.MultiheadAttention(8, 2, batch_first=True), attention),
        ("LSTM", lambda nn: nn.LSTM(8, 3, 2, bidirectional=True, batch_first=True), lstm),
        ("LSTMCell", lambda nn: nn.LSTMCell(8, 3), cell),
        ("Bilinear", lambda nn: nn.Bilinear(8, 8, 3), bilinear),
    ):
        try:
            ours, theirs = Networks(make).pair
            x, y = run(ct, ct.nn, ours), run(torch, torch.nn, theirs)
            close(x, y, what)
            x.sin().sum().backward(), y.sin().sum().backward()
            for (key, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
                close(p.grad, q.grad, f"{what} gradient of {key}")
        except Exception as error:
            failed += 1
            print(f"  {what}: {type(error).__name__}: {str(error)[:300]}")
    print(f"layers of several inputs: {failed} failed")
    return failed


def optimizers():
    """The same trajectory, with the state handed over in the middle, from each library to the other."""
    failed, names = 0, [name for name in sorted(ct.optim.optimizer.CLASSES) if hasattr(torch.optim, name) and name != "LBFGS"]
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((16, 4)), rng.standard_normal((16, 2))
    for name in names:
        try:
            make = lambda nn: nn.Sequential(nn.Linear(4, 8, bias=name != "Muon"), nn.Tanh(), nn.Linear(8, 2, bias=name != "Muon"))
            models = Networks(make).pair
            create = lambda: [getattr(lib.optim, name)(model.parameters(), lr=0.01) for lib, model in zip((ct, torch), models)]
            opts = create()
            for step in range(10):
                if step == 5:
                    saved = copy.deepcopy(opts[1].state_dict())
                    back = {"state": {at: {key: torch.from_numpy(array(value).copy()) for key, value in own.items()}
                                      for at, own in opts[0].state_dict()["state"].items()},
                            "param_groups": opts[0].state_dict()["param_groups"]}
                    opts = create()
                    opts[0].load_state_dict(saved)
                    opts[1].load_state_dict(back)
                for lib, model, opt in zip((ct, torch), models, opts):
                    opt.zero_grad()
                    lib.nn.functional.mse_loss(model(lib.tensor(x)), lib.tensor(y)).backward()
                    opt.step()
            for (key, p), (_, q) in zip(models[0].named_parameters(), models[1].named_parameters(), strict=True):
                # PyTorch's Muon makes matrices orthogonal in bfloat16.
                rtol, atol = (0.02, 0.005) if name == "Muon" else (1e-6, 1e-7)
                close(p, q, f"{name} {key}", rtol, atol)
        except Exception as error:
            failed += 1
            print(f"  {name}: {type(error).__name__}: {str(error)[:400]}")
    print(f"optimisers: {', '.join(names)}: {failed} failed")
    return failed


def run():
    return layers() + several_inputs() + optimizers()
