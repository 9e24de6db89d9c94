"""Recurrent networks and their cells."""

import torch

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def network(name):
    """PyTorch's function. Sequences of different lengths run one at a time, and are padded with zeros."""
    function, states = getattr(torch, name), 2 if name == "lstm" else 1

    def call(x, *rest, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False):
        *tensors, lengths = rest
        hx, params = tensors[:states], list(tensors[states:])

        def run(x, hx):
            hx = hx if name == "lstm" else hx[0]
            return function(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

        if lengths is None and x.dim() == 2:
            outputs, *last = run(x.unsqueeze(1), [h.unsqueeze(1) for h in hx])
            return (outputs.squeeze(1), *(h.squeeze(1) for h in last))
        if lengths is None:
            return run(x, hx)
        batch, steps = (0, 1) if batch_first else (1, 0)
        outputs, last = [], []
        for n, length in enumerate(lengths.tolist()):
            own = x.narrow(batch, n, 1).narrow(steps, 0, length)
            output, *states_n = run(own, [h.narrow(1, n, 1).contiguous() for h in hx])
            missing = list(output.shape)
            missing[steps] = x.shape[steps] - length
            outputs.append(torch.cat([output, output.new_zeros(missing)], steps))
            last.append(states_n)
        return (torch.cat(outputs, batch), *(torch.cat(states, 1) for states in zip(*last)))

    return call


def cell(name):
    states = 2 if name == "lstm" else 1

    def call(x, *rest):
        hx, weights = rest[:states], rest[states:]
        if x.dim() == 1:
            result = call(x.unsqueeze(0), *(h.unsqueeze(0) for h in hx), *weights)
            return result.squeeze(0) if states == 1 else tuple(h.squeeze(0) for h in result)
        return getattr(torch, f"{name}_cell")(x, hx if states == 2 else hx[0], *weights)

    return call


FUNCTIONS = {name: network(name) for name in GATES} | {f"{name}_cell": cell(name) for name in GATES}
STATES = {name: "hx[2]" if name == "lstm" else "hx" for name in GATES}
NAMES = {name: ["self", STATES[name], "params[]", "lengths"] for name in GATES}
NAMES |= {f"{name}_cell": ["self", STATES[name], "w_ih", "w_hh", "b_ih", "b_hh"] for name in GATES}


def weights(draw, name, inputs, size, layers, directions, biases, projected, dtype):
    """The weights of all layers, in PyTorch's order."""
    rows, out, handed_on = GATES[name] * size, [], projected or size
    for layer in range(layers):
        width = inputs if layer == 0 else handed_on * directions
        for _ in range(directions):
            shapes = [[rows, width], [rows, handed_on]] + ([[rows], [rows]] if biases else []) + ([[projected, size]] if projected else [])
            out += [draw.uniform(shape, -0.8, 0.8, dtype) for shape in shapes]
    return out


def add_network(book, name, steps=3, batch=2, inputs=2, size=2, lengths=None, projected=0, dtype="f64", unbatched=False, **args):
    draw = book.draw(name)
    layers, directions = args.get("num_layers", 1), 2 if args.get("bidirectional") else 1
    shape = [steps, inputs] if unbatched else [batch, steps, inputs] if args.get("batch_first") else [steps, batch, inputs]
    sizes = [projected or size] + [size] * (name == "lstm")
    state = [[layers * directions, n] if unbatched else [layers * directions, batch, n] for n in sizes]
    all_weights = weights(draw, name, inputs, size, layers, directions, args.get("has_biases", True), projected, dtype)
    tensors = [draw.uniform(shape, dtype=dtype)] + [draw.uniform(s, -1.0, 1.0, dtype) for s in state] + all_weights
    book.add(name, [*tensors, None if lengths is None else torch.tensor(lengths)], args)


def add_cell(book, name, lead, biases, dtype="f64"):
    op = f"{name}_cell"
    draw, rows = book.draw(op), GATES[name] * 3
    states = [draw.uniform([*lead, 3], -1.0, 1.0, dtype) for _ in range(2 if name == "lstm" else 1)]
    tensors = [draw.uniform([*lead, 2], dtype=dtype), *states, draw.uniform([rows, 2], dtype=dtype), draw.uniform([rows, 3], dtype=dtype)]
    book.add(op, tensors + ([draw.uniform([rows], dtype=dtype) for _ in range(2)] if biases else [None, None]))


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    for name in GATES:
        add_network(book, name)
        add_network(book, name, dtype="f32", size=3, inputs=1)
        add_network(book, name, has_biases=False, num_layers=2)
        add_network(book, name, bidirectional=True, batch_first=True)
        add_network(book, name, bidirectional=True, num_layers=2, batch=1)
        add_network(book, name, unbatched=True)
        add_network(book, name, steps=1)
        add_network(book, name, batch=0)
        add_network(book, name, lengths=[2, 3], bidirectional=True)
        add_network(book, name, lengths=[1, 3, 2], batch=3, batch_first=True, num_layers=2)
        for lead in ([2], [], [0]):
            add_cell(book, name, lead, True)
            add_cell(book, name, lead, False)
        add_cell(book, name, [2], True, "f32")
    add_network(book, "lstm", size=3, projected=2)
    add_network(book, "lstm", size=3, projected=1, num_layers=2, bidirectional=True)
