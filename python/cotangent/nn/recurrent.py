"""Recurrent layers: they accept and return states, which the crate's list of layers does not describe."""

from __future__ import annotations

import itertools

from .. import _cotangent as _c
from .layers import CLASSES
from .utils.rnn import PackedSequence

_ops = _c._functions


class _Recurrent:
    _states = 1
    # The biases have other names than `bias`.
    _optional: dict = {}

    def _normal(self, own):
        own = super()._normal(own)
        own["bias"] = own.pop("_has_bias")
        return own

    def _given(self):
        return {p["name"]: self.__dict__[p["name"]] for p in type(self)._params}

    def flatten_parameters(self):
        """Does nothing: the weights need no other memory layout."""

    @property
    def _flat_weights(self):
        return list(self._parameters.values())

    @property
    def all_weights(self):
        """The weights and biases, in a list for each layer and direction."""
        weights = self._flat_weights
        each = len(weights) // (self.num_layers * (2 if self.bidirectional else 1))
        return [weights[at:at + each] for at in range(0, len(weights), each)]

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if hx is None:
            hx = self._first(input)
        result = _ops[self._operation()](input, list(hx) if self._states == 2 else hx, list(self._parameters.values()), self.bias,
                            self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)
        return (result[0], (result[1], result[2])) if self._states == 2 else (result[0], result[1])

    def _operation(self):
        return self._name.lower() if self._name != "RNN" else f"rnn_{self.nonlinearity}"

    def _packed(self, packed, hx):
        """Computes packed data by layer and direction, each in runs of steps with the same batch size."""
        data, sizes = packed.data, packed.batch_sizes.tolist()
        hx = self._zeros(data, (sizes[0],)) if hx is None else hx
        states = list(hx) if self._states == 2 else [hx]
        if packed.sorted_indices is not None:
            states = [state.index_select(1, packed.sorted_indices) for state in states]
        runs = [(size, len(list(run))) for size, run in itertools.groupby(sizes)]
        directions = 2 if self.bidirectional else 1
        weights = list(self._parameters.values())
        each = len(weights) // (self.num_layers * directions)
        last: list = [[] for _ in states]
        for layer in range(self.num_layers):
            outputs = []
            for backwards in range(directions):
                at = layer * directions + backwards
                output, ends = self._one_way(data, runs, [state[at] for state in states],
                                             weights[at * each:(at + 1) * each], bool(backwards))
                outputs.append(output)
                for own, end in zip(last, ends):
                    own.append(end)
            data = outputs[0] if directions == 1 else _ops["cat"](outputs, -1)
            if self.dropout and layer + 1 < self.num_layers:
                data = _ops["dropout"](data, self.dropout, self.training)
        last = [_ops["stack"](own, 0) for own in last]
        if packed.unsorted_indices is not None:
            last = [state.index_select(1, packed.unsorted_indices) for state in last]
        return packed._replace(data=data), tuple(last) if self._states == 2 else last[0]

    def _one_way(self, data, runs, states, weights, backwards):
        """Returns the outputs of one layer and direction for packed data, and each sequence's last states."""
        first, given, parts = [state[:0] if backwards else state for state in states], states, []
        now, done = first, []
        pieces = list(zip(runs, _ops["split_with_sizes"](data, [size * steps for size, steps in runs], 0)))
        for (size, steps), piece in reversed(pieces) if backwards else pieces:
            have = now[0].shape[0]
            if size > have:
                # In the backward direction, shorter sequences begin at this step.
                now = [_ops["cat"]([state, begin[have:size]], 0) for state, begin in zip(now, given)]
            elif size < have:
                done.insert(0, [state[size:] for state in now])
                now = [state[:size] for state in now]
            x = piece.reshape(steps, size, data.shape[-1])
            x = x.flip(0) if backwards else x
            begin = [state.unsqueeze(0) for state in now]
            result = _ops[self._operation()](x, begin if self._states == 2 else begin[0], weights, self.bias, 1, 0.0, self.training,
                                             False, False)
            output, now = result[0], [state.squeeze(0) for state in result[1:1 + self._states]]
            output = output.flip(0) if backwards else output
            parts.append(output.reshape(size * steps, output.shape[-1]))
        ends = [_ops["cat"]([own, *(one[k] for one in done)], 0) for k, own in enumerate(now)]
        return _ops["cat"](parts[::-1] if backwards else parts, 0), ends

    def _first(self, input):
        """Returns initial states of zeros for an input."""
        return self._zeros(input, () if input.ndim == 2 else (input.shape[0 if self.batch_first else 1],))

    def _zeros(self, input, batch):
        runs = self.num_layers * (2 if self.bidirectional else 1)
        zeros = lambda size: _ops["zeros"]((runs, *batch, size), dtype=input.dtype, device=input.device)
        if self._states == 1:
            return zeros(self.hidden_size)
        return zeros(self.proj_size or self.hidden_size), zeros(self.hidden_size)


class _Cell:
    _states = 1
    # The biases have other names than `bias`.
    _optional: dict = {}

    def _normal(self, own):
        own = super()._normal(own)
        own["bias"] = own.pop("_has_bias")
        return own

    def _given(self):
        return {p["name"]: self.__dict__[p["name"]] for p in type(self)._params}

    def forward(self, input, hx=None):
        if hx is None:
            shape = (*input.shape[:-1], self.hidden_size)
            zero = _ops["zeros"](shape, dtype=input.dtype, device=input.device)
            hx = (zero, zero) if self._states == 2 else zero
        name = {"LSTMCell": "lstm_cell", "GRUCell": "gru_cell"}.get(self._name) or f"rnn_{self.nonlinearity}_cell"
        own = self._parameters
        result = _ops[name](input, list(hx) if self._states == 2 else hx, own["weight_ih"], own["weight_hh"],
                            own.get("bias_ih"), own.get("bias_hh"))
        return tuple(result) if self._states == 2 else result


def _class(name, kind, states):
    base = CLASSES[name]
    return type(name, (kind, base), {"__doc__": base.__doc__, "__module__": "cotangent.nn", "_states": states,
                                     "__init__": base.__init__})


LSTM, GRU, RNN = _class("LSTM", _Recurrent, 2), _class("GRU", _Recurrent, 1), _class("RNN", _Recurrent, 1)
LSTMCell, GRUCell, RNNCell = _class("LSTMCell", _Cell, 2), _class("GRUCell", _Cell, 1), _class("RNNCell", _Cell, 1)
