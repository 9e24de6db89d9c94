"""Recurrent layers: they take and give states beside their inputs, which the list of layers cannot say."""

from __future__ import annotations

from .. import _cotangent as _c
from .layers import CLASSES

_ops = _c._functions


class _Recurrent:
    _states = 1
    # The biases have other names.
    _optional: dict = {}

    def _normal(self, own):
        own = super()._normal(own)
        own["bias"] = own.pop("_has_bias")
        return own

    def _given(self):
        return {p["name"]: self.__dict__[p["name"]] for p in type(self)._params}

    def flatten_parameters(self):
        """Nothing: the weights need no other form."""

    @property
    def _flat_weights(self):
        return list(self._parameters.values())

    def forward(self, input, hx=None):
        if hx is None:
            hx = self._first(input)
        name = self._name.lower() if self._name != "RNN" else f"rnn_{self.nonlinearity}"
        result = _ops[name](input, list(hx) if self._states == 2 else hx, list(self._parameters.values()), self.bias,
                            self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)
        return (result[0], (result[1], result[2])) if self._states == 2 else (result[0], result[1])

    def _first(self, input):
        """States of zeros that fit the input."""
        runs = self.num_layers * (2 if self.bidirectional else 1)
        batch = () if input.ndim == 2 else (input.shape[0 if self.batch_first else 1],)
        zeros = lambda size: _ops["zeros"]((runs, *batch, size), dtype=input.dtype, device=input.device)
        if self._states == 1:
            return zeros(self.hidden_size)
        return zeros(self.proj_size or self.hidden_size), zeros(self.hidden_size)


class _Cell:
    _states = 1
    # The biases have other names.
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
