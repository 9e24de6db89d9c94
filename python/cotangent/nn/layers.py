"""The layers of the Rust crate: one class for each, with its arguments, defaults, documentation and initial values.

The classes are created from the crate's list of layers when this module is imported. The crate computes a layer's output. The
parameters and buffers are Python variables, which every call passes to the crate.
"""

from __future__ import annotations

import inspect
import threading

from .. import _cotangent as _c
from .._cotangent import Tensor
from . import _shown
from .module import Module
from .parameter import Parameter

_ops = _c._functions
_LIST = {entry["name"]: entry for entry in _c._layers()}

# Parameters and buffers that are None if the argument is false.
_OPTIONAL = {
    "bias": ("bias",),
    "affine": ("weight", "bias"),
    "elementwise_affine": ("weight",),
    "track_running_stats": ("running_mean", "running_var", "num_batches_tracked"),
}
# Layers with PyTorch's argument `inplace`.
_IN_PLACE = ("ReLU ReLU6 ELU SELU CELU Hardtanh Hardsigmoid Hardswish LeakyReLU SiLU Mish RReLU Threshold Dropout Dropout1d "
             "Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout").split()
# The number of positional arguments, where PyTorch orders the later ones differently.
_POSITIONAL = {"EmbeddingBag": 2}


def _arguments(name, params, args, kwargs, positional=None):
    """Returns the arguments of a call by name, with defaults for missing ones."""
    order = [p["name"] for p in params]
    allowed = len(order) if positional is None else positional
    if len(args) > allowed:
        raise TypeError(f"{name}() takes at most {allowed} positional arguments, got {len(args)}")
    given = dict(zip(order, args))
    for key, value in kwargs.items():
        if key not in order:
            raise TypeError(f"{name}() has no parameter {key}" + (f", only {', '.join(order)}" if order else ""))
        if key in given:
            raise TypeError(f"{name}() got multiple values for argument {key}")
        given[key] = value
    for p in params:
        if p["name"] not in given:
            if p["required"]:
                raise TypeError(f"{name}() is missing the argument {p['name']}")
            given[p["name"]] = p["default"]
    return {key: given[key] for key in order}


def _aside(function):
    """Calls a function in a new thread, and returns its result."""
    found = []

    def call():
        try:
            found.append((function(), None))
        except Exception as error:
            found.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    value, error = found[0]
    if error is not None:
        raise error
    return value


def _first_dtype():
    """The dtype to which new parameters are cast by default. None means no cast: the crate creates float32."""
    default = _c.get_default_dtype()
    return None if default is _c.float32 else default


class Layer(Module):
    """The base class of the crate's layers."""

    _name: str
    _params: list
    _optional = _OPTIONAL

    def __init__(self, *args, device=None, dtype=None, **kwargs):
        super().__init__()
        own = _arguments(self._name, self._params, args, kwargs, _POSITIONAL.get(self._name))
        self.__dict__.update(self._normal(own))
        self._build(first=True)
        device = _c._default_device() if device is None else device
        dtype = _first_dtype() if dtype is None else dtype
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def _normal(self, own):
        """Returns the arguments in the form of the attributes."""
        if self._name.startswith("Conv"):
            rank = int(self._name[-2])
            for name in ("kernel_size", "stride", "padding", "dilation", "output_padding"):
                value = own.get(name)
                if isinstance(value, int):
                    own[name] = (value,) * rank
                elif value is not None and not isinstance(value, str):
                    own[name] = tuple(value) * (rank if len(value) == 1 else 1)
        if isinstance(own.get("normalized_shape"), int):
            own["normalized_shape"] = (own["normalized_shape"],)
        elif "normalized_shape" in own:
            own["normalized_shape"] = tuple(own["normalized_shape"])
        if own.get("stride") == () and "kernel_size" in own:
            own["stride"] = own["kernel_size"]
        if "bias" in own:
            # The attribute `bias` is the parameter.
            own["_has_bias"] = own.pop("bias")
        return own

    def _given(self):
        """Returns the current arguments of the crate's layer."""
        own = {}
        for name in (p["name"] for p in _LIST[self._name]["params"]):
            if name == "bias":
                own[name] = self._parameters.get("bias") is not None if "bias" in self._parameters else self._has_bias
            else:
                own[name] = self.__dict__[name]
        return own

    def _build(self, first=False):
        """Builds the crate's layer, and at the first call also the parameters and buffers."""
        if first:
            layer, params, buffers = _c._build_layer(self._name, self._given())
            for name, value in params.items():
                self.register_parameter(name, Parameter(value))
            for name, value in buffers.items():
                self.register_buffer(name, value)
            for argument, names in self._optional.items():
                for name in names if argument in {p["name"] for p in self._params} else ():
                    if argument == "track_running_stats":
                        self._buffers.setdefault(name, None)
                    else:
                        self._parameters.setdefault(name, None)
        else:
            # The new initial values are discarded, so the state of the random number generator is restored.
            state = _c.get_rng_state()
            build = lambda: _c._build_layer(self._name, self._given())
            try:
                layer, params, buffers = build()
            except ValueError as error:
                if "random numbers inside vmap" not in str(error):
                    raise
                # A new thread is outside of the vmap, which allows no random numbers.
                layer, params, buffers = _aside(build)
            finally:
                _c.set_rng_state(state)
        self.__dict__["_program"] = layer, list(params), list(buffers)
        return self._program

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        own = self.__dict__
        if "_program" in own and (name == "bias" or name in own):
            # An argument or the bias has changed: the crate's layer is rebuilt when it is needed.
            if name != "training":
                own["_program"] = None

    def __getstate__(self):
        return self.__dict__ | {"_program": None}

    def _run(self, input):
        layer, params, buffers = self.__dict__["_program"] or self._build()
        own, state = self._parameters, self._buffers
        try:
            return layer(input, [own[name] for name in params], [state[name] for name in buffers], self.training)
        except KeyError:
            # Some parameters are computed: see nn.utils.parametrize.
            return layer(input, [getattr(self, name) for name in params], [getattr(self, name) for name in buffers], self.training)
        except TypeError:
            for name, value in [*((name, own.get(name)) for name in params), *((name, state.get(name)) for name in buffers)]:
                if not isinstance(value, Tensor):
                    raise TypeError(f"{self._name}: {name} must be a Tensor, got {value}") from None
            raise

    def forward(self, input):
        return self._run(input)

    def extra_repr(self):
        known = _shown.text(self, self._name)
        if known is not None:
            return known
        parts = []
        for p in self._params:
            name = p["name"]
            value = self.__dict__[name]
            if p["required"]:
                parts.append(f"{name}={value}")
            elif value != p["default"]:
                parts.append(f"{name}={value!r}")
        return ", ".join(parts)


def _reset_parameters(self):
    """Draws new initial values for the parameters, and resets the buffers."""
    _, params, buffers = _c._build_layer(self._name, self._given())
    for name, value in params.items():
        self._parameters[name].data.copy_(value)
    for name, value in buffers.items():
        self._buffers[name].copy_(value)


def _reset_running_stats(self):
    """Resets the running statistics."""
    if self.track_running_stats:
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()


# A layer with one of these arguments has parameters.
_WITH_PARAMETERS = {"bias", "affine", "elementwise_affine", "embedding_dim", "num_parameters"}


def _in_place(self, input):
    result = self._run(input)
    return input.copy_(result) if self.inplace else result


def _signature(params, positional=None):
    kinds = inspect.Parameter
    own = [kinds("self", kinds.POSITIONAL_OR_KEYWORD)]
    for at, p in enumerate(params):
        kind = kinds.POSITIONAL_OR_KEYWORD if positional is None or at < positional else kinds.KEYWORD_ONLY
        own.append(kinds(p["name"], kind, default=kinds.empty if p["required"] else p["default"]))
    return own


def _class(entry):
    name, params = entry["name"], list(entry["params"])
    body = {"_name": name, "__doc__": entry["docs"], "__module__": "cotangent.nn"}
    if _WITH_PARAMETERS & {p["name"] for p in params}:
        body["reset_parameters"] = _reset_parameters
    if "track_running_stats" in {p["name"] for p in params}:
        body["reset_running_stats"] = _reset_running_stats
    if name.startswith("Conv"):
        body["transposed"] = "Transpose" in name
    if name in _IN_PLACE:
        params.append({"name": "inplace", "annotation": "builtins.bool", "required": False, "default": False})
        body["forward"] = _in_place
    if name in ("Softmax", "LogSoftmax", "Softmin"):
        params = [{**params[0], "required": False, "default": None}]
    if name == "Embedding":
        more = [("max_norm", "float | None", None), ("norm_type", "float", 2.0), ("sparse", "builtins.bool", False), ("_weight", "Tensor | None", None),
                ("_freeze", "builtins.bool", False)]
        more = [{"name": own, "annotation": kind, "required": False, "default": value} for own, kind, value in more]
        params = params[:3] + more[:2] + params[3:] + more[2:]
    if "MaxPool" in name:
        # At PyTorch's position, before `ceil_mode`.
        at = len(params) - (0 if name.startswith("Adaptive") else 1)
        params.insert(at, {"name": "return_indices", "annotation": "builtins.bool", "required": False, "default": False})
    body["_params"] = params

    def __init__(self, *args, **kwargs):
        Layer.__init__(self, *args, **kwargs)

    own = _signature(params, _POSITIONAL.get(name))
    own += [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in ("device", "dtype")]
    __init__.__signature__ = inspect.Signature(own)
    body["__init__"] = __init__
    return type(name, (Layer,), body)


CLASSES = {name: _class(entry) for name, entry in _LIST.items()}


def _snake(name):
    """Returns the name of a layer's function: ``max_pool2d`` for ``MaxPool2d``."""
    return "".join(("_" if at and letter.isupper() else "") + letter.lower() for at, letter in enumerate(name))


class _Called:
    """A layer without parameters, which calls its function in ``nn.functional``."""

    def _build(self, first=False):
        return None

    def forward(self, input):
        from . import functional

        own = {p["name"]: self.__dict__[p["name"]] for p in self._params}
        if own.get("stride") == ():
            own["stride"] = None
        return getattr(functional, _snake(self._name))(input, **own)


def _call_instead(name):
    CLASSES[name] = type(name, (_Called, CLASSES[name]), {"__doc__": CLASSES[name].__doc__, "__module__": "cotangent.nn",
                                                         "__init__": CLASSES[name].__init__})


for _name in [name for name in CLASSES if "MaxPool" in name or name.startswith("Adaptive") or name in ("Softmax", "LogSoftmax", "Softmin")]:
    _call_instead(_name)


def _batch_norm(self, input):
    """Normalises each channel. With ``momentum=None`` the running statistics are averages over all batches."""
    if self.momentum is not None or not (self.training and self.track_running_stats):
        return self._run(input)
    own = self.__dict__
    own["momentum"], own["_program"] = 1.0 / (self.num_batches_tracked.item() + 1), None
    try:
        return self._run(input)
    finally:
        own["momentum"], own["_program"] = None, None


def _unchanged(self, input):
    """Returns the input unchanged."""
    return input


CLASSES["Identity"].forward = _unchanged


def _conv_forward(self, input, weight, bias):
    """Computes the convolution with the given weight and bias. Subclasses that are written for PyTorch call it."""
    from . import functional

    padding, convolve = self.padding, getattr(functional, _snake(self._name))
    if self.padding_mode != "zeros":
        raise NotImplementedError(f"{self._name}._conv_forward: padding_mode must be 'zeros', got {self.padding_mode!r}")
    return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


for _name in ("Conv1d", "Conv2d", "Conv3d"):
    CLASSES[_name]._conv_forward = _conv_forward

for _name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"):
    CLASSES[_name].forward = _batch_norm


def _embedding(self, input):
    from . import functional

    return functional.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)


def _new_embedding(self, *args, **kwargs):
    Layer.__init__(self, *args, **kwargs)
    if self.sparse:
        raise NotImplementedError("Embedding: sparse must be False: gradients are dense")
    given = self.__dict__.pop("_weight")
    if given is not None:
        if tuple(given.shape) != (self.num_embeddings, self.embedding_dim):
            raise ValueError(f"Embedding: _weight must be of shape {[self.num_embeddings, self.embedding_dim]}, "
                             f"got {list(given.shape)}")
        self.weight = Parameter(given)
    if self.__dict__.pop("_freeze"):
        self.weight.requires_grad_(False)


_new_embedding.__signature__ = CLASSES["Embedding"].__init__.__signature__
CLASSES["Embedding"].__init__, CLASSES["Embedding"].forward = _new_embedding, _embedding


def _embedding_bag(self, input, offsets=None, per_sample_weights=None):
    return _ops["embedding_bag"](input, self.weight, offsets, self.mode, per_sample_weights, self.include_last_offset,
                                 self.padding_idx)


CLASSES["EmbeddingBag"].forward = _embedding_bag


def _from_pretrained(cls, embeddings, freeze=True, padding_idx=None, **kwargs):
    """Creates a layer with the rows of a matrix as embeddings."""
    rows, columns = embeddings.shape
    layer = cls(rows, columns, padding_idx=padding_idx, **kwargs)
    layer.weight = Parameter(embeddings, requires_grad=not freeze)
    return layer


CLASSES["Embedding"].from_pretrained = classmethod(_from_pretrained)
CLASSES["EmbeddingBag"].from_pretrained = classmethod(_from_pretrained)
CLASSES["Identity"].__init__ = lambda self, *args, **kwargs: Layer.__init__(self)
