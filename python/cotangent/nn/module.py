"""The base class of all modules."""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import no_grad
from .hooks import Hooked, RemovableHandle  # noqa: F401
from .parameter import Buffer, Parameter

class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The keys that only the module has, and those that only the state dict has, as ``load_state_dict`` returns them."""

    __slots__ = ()

    def __repr__(self):
        return "<All keys matched successfully>" if not any(self) else super().__repr__()


class Module(Hooked):
    """Base class for all neural network modules. Assigning a parameter, buffer or module to an attribute registers it.

        >>> import cotangent as ct
        >>> class Net(ct.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = ct.nn.Linear(3, 2)
        ...     def forward(self, x):
        ...         return self.fc(x).relu()
        >>> net = Net()
        >>> net(ct.ones(4, 3)).shape
        cotangent.Size([4, 2])
        >>> list(net.state_dict())
        ['fc.weight', 'fc.bias']
    """

    training: bool
    dump_patches = False

    def __init__(self, *args, **kwargs):
        if args or kwargs:
            raise TypeError(f"{type(self).__name__}: Module.__init__ takes no arguments")
        own = self.__dict__
        own["training"] = True
        own["_parameters"], own["_buffers"], own["_modules"] = {}, {}, {}
        own["_non_persistent"] = set()
        self._no_hooks()

    def forward(self, *input):
        """Computes the output of the module. Subclasses override it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # Attributes.

    def __setattr__(self, name, value):
        own = self.__dict__
        if "_parameters" not in own:
            if isinstance(value, (Parameter, Module, Buffer)):
                raise AttributeError(f"{type(self).__name__}: call Module.__init__() before assigning {name}")
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter):
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name, "_modules")
            self._modules[name] = value
        elif isinstance(value, Buffer):
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in self._parameters:
            if value is not None:
                raise TypeError(f"the parameter {name} must be a Parameter or None, got {type(value).__name__}")
            self._parameters[name] = None
        elif name in self._modules:
            if value is not None:
                raise TypeError(f"the module {name} must be a Module or None, got {type(value).__name__}")
            self._modules[name] = None
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"the buffer {name} must be a Tensor or None, got {type(value).__name__}")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name, but):
        """Removes a name from all roles except ``but``."""
        self.__dict__.pop(name, None)
        for role in ("_parameters", "_buffers", "_modules"):
            if role != but:
                self.__dict__[role].pop(name, None)
        self._non_persistent.discard(name)

    def __getattr__(self, name):
        own = self.__dict__
        for role in ("_parameters", "_modules", "_buffers"):
            if role in own and name in own[role]:
                return own[role][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def __delattr__(self, name):
        for role in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[role]:
                del self.__dict__[role][name]
                self._non_persistent.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _free(self, name, role, own):
        if not isinstance(name, str):
            raise TypeError(f"the name of a {role} must be a str, got {type(name).__name__}")
        if "." in name or name == "":
            raise KeyError(f"the name of a {role} must not be empty or contain a dot, got {name!r}")
        if hasattr(self, name) and name not in own:
            raise KeyError(f"attribute {name!r} already exists")

    def register_parameter(self, name, param):
        """Adds a parameter under a name. ``None`` reserves the name."""
        self._free(name, "parameter", self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"the parameter {name} must be a Parameter or None, got {type(param).__name__}")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a buffer: a tensor of the module's state that is not trained. ``state_dict`` has it only if it is persistent."""
        self._free(name, "buffer", self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"the buffer {name} must be a Tensor or None, got {type(tensor).__name__}")
        self._buffers[name] = tensor
        (self._non_persistent.discard if persistent else self._non_persistent.add)(name)

    def register_module(self, name, module):
        """Same as ``add_module``."""
        self.add_module(name, module)

    def add_module(self, name, module):
        """Adds a child module under a name."""
        self._free(name, "module", self._modules)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"the module {name} must be a Module or None, got {type(module).__name__}")
        self._modules[name] = module

    # Traversal.

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Iterates over this module and all its submodules with their names, each module once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self):
        """Iterates over this module and all its submodules, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self):
        """Iterates over the direct child modules with their names, each module once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """Iterates over the direct child modules, each once."""
        return (module for _, module in self.named_children())

    def _named(self, role, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in module.__dict__[role].items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Iterates over the parameters with their names. A shared parameter appears once, under its first name."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Iterates over the parameters, each once."""
        return (value for _, value in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Iterates over the buffers with their names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Iterates over the buffers, each once."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    def get_submodule(self, target):
        """Returns the submodule with a dotted name, such as ``layers.0``."""
        return functools.reduce(_child, filter(None, target.split(".")), self)

    def get_parameter(self, target):
        """Returns the parameter with a dotted name, such as ``layers.0.weight``."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}")
        return found

    def get_buffer(self, target):
        """Returns the buffer with a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no buffer {target!r}")
        return found

    def set_submodule(self, target, module):
        """Replaces the submodule with a dotted name."""
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        _child(parent, name)
        setattr(parent, name, module)

    # State.

    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        """Returns the parameters and persistent buffers by name, detached from the graph. They share memory with the module."""
        dict_ = OrderedDict() if destination is None else destination
        for path, module in self.named_modules(remove_duplicate=False):
            saved = {name: x for name, x in module._buffers.items() if name not in module._non_persistent}
            for name, value in (module._parameters | saved).items():
                if value is not None:
                    dict_[prefix + (f"{path}.{name}" if path else name)] = value if keep_vars else value.detach()
        return dict_

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies parameters and buffers from a state dict. Shapes must match; values are cast to the module's dtypes.

        Missing and unexpected keys are an error if ``strict`` is true. Otherwise they are returned. After an error, the module
        is unchanged. With ``assign``, the tensors of the state dict replace the module's.
        """
        own, given = self.state_dict(keep_vars=True), dict(state_dict)
        missing = [name for name in own if name not in given]
        unexpected = [name for name in given if name not in own]
        faults, values = [], {}
        for name in own.keys() & given.keys():
            value = given[name]
            if not isinstance(value, Tensor):
                try:
                    value = _tensor_of(value)
                except (TypeError, ValueError, RuntimeError) as error:
                    faults.append(f"{name} must be a tensor, got {type(value).__name__}: {error}")
                    continue
            if tuple(value.shape) != tuple(own[name].shape):
                faults.append(f"size mismatch for {name}: the shape must be {tuple(own[name].shape)}, "
                              f"got {tuple(value.shape)}")
            values[name] = value
        if strict:
            faults = ([f"Unexpected key(s) in state_dict: {', '.join(map(repr, unexpected))}"] if unexpected else []) + (
                [f"Missing key(s) in state_dict: {', '.join(map(repr, missing))}"] if missing else []) + sorted(faults)
        if faults:
            text = "\n\t".join(faults)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}: nothing was loaded\n\t{text}")
        # Everything that can fail comes before the first change.
        ready = {name: value if assign else value.detach().to(own[name].dtype, own[name].device) for name, value in values.items()}
        with no_grad():
            for name, value in ready.items():
                if assign:
                    self._assign(name, value, own[name])
                else:
                    own[name].copy_(value)
        return _IncompatibleKeys(missing, unexpected)

    def _assign(self, name, value, old):
        path, _, last = name.rpartition(".")
        if isinstance(old, Parameter) and not isinstance(value, Parameter):
            value = Parameter(value, old.requires_grad)
        setattr(self.get_submodule(path), last, value)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    # Changes of the whole module.

    def apply(self, fn):
        """Applies ``fn`` to every submodule and then to the module. Returns the module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode=True):
        """Sets the module and all its submodules to training mode, or to evaluation mode if ``mode`` is false."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Sets the module and all its submodules to evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Sets ``requires_grad`` of all parameters. False freezes the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Sets the gradients of all parameters to None, or to zero if ``set_to_none`` is false."""
        _zero_grad(self.parameters(), set_to_none)

    def _apply(self, fn):
        """Applies ``fn`` to the values of all parameters and buffers. The tensor objects stay the same."""
        found = [*self.parameters(), *self.buffers()]
        with no_grad():
            new = [(x, fn(x.detach()), None if x.grad is None else fn(x.grad.detach())) for x in found]
            for x, value, grad in new:
                if value.dtype != x.dtype or value.device != x.device:
                    x.data = value
                    x.grad = grad
                elif value is not x:
                    x.copy_(value)
        return self

    def to(self, *args, **kwargs):
        """Casts floating-point parameters and buffers, moves all of them to a device, or both: ``to(dtype)``, ``to(device)``."""
        dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
        kwargs.pop("non_blocking", None)
        # memory_format has no effect: elements are stored in row-major order.
        kwargs.pop("memory_format", None)
        if kwargs:
            raise TypeError(f"to() got an unexpected argument {next(iter(kwargs))}")
        for arg in args:
            if isinstance(arg, Tensor):
                dtype, device = arg.dtype, arg.device
            elif isinstance(arg, _c.dtype):
                dtype = arg
            elif arg is not None:
                device = arg
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"to: dtype must be floating-point or complex, got {dtype.name}")

        def convert(x):
            to = dtype if dtype is not None and (x.is_floating_point() or x.is_complex()) else x.dtype
            return x.to(to, x.device if device is None else device)

        return self._apply(convert)

    def type(self, dst_type):
        """Casts all parameters and buffers to ``dst_type``: a dtype, a tensor type, or its name."""
        from .._core.dtypes import _dtype_of

        return self._apply(lambda x: x.to(_dtype_of(dst_type)))

    def to_empty(self, *, device, recurse=True):
        """Moves parameters and buffers to a device. Unlike in PyTorch, it keeps their values."""
        return self.to(device)

    def share_memory(self):
        """Calls ``share_memory_`` on all parameters and buffers. Threads share their memory, processes do not."""
        for x in (*self.parameters(), *self.buffers()):
            x.share_memory_()
        return self

    def compile(self, *args, **kwargs):
        """Does nothing: chains of elementwise operations are fused as they are called."""

    def float(self):
        """Casts floating-point parameters and buffers to float32."""
        return self.to(_c.float32)

    def double(self):
        """Casts floating-point parameters and buffers to float64."""
        return self.to(_c.float64)

    def half(self):
        """Casts floating-point parameters and buffers to float16."""
        return self.to(_c.float16)

    def bfloat16(self):
        """Casts floating-point parameters and buffers to bfloat16."""
        return self.to(_c.bfloat16)

    def cpu(self):
        """Moves parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Moves parameters and buffers to a GPU."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    # Representation.

    def extra_repr(self):
        """Returns the text that ``repr`` shows for the module itself."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        lines = [line for line in self.extra_repr().split("\n") if line]
        children = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        if not children:
            return f"{self._get_name()}({', '.join(lines)})" if len(lines) < 2 else (
                f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)")
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _child(module, name):
    found = module._modules.get(name) if isinstance(module, Module) else None
    if found is None:
        raise AttributeError(f"{type(module).__name__} has no module {name!r}")
    return found


def _zero_grad(parameters, set_to_none):
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad.zero_()


def _tensor_of(value):
    """Converts a tensor of another library, such as PyTorch or NumPy."""
    import cotangent

    if hasattr(value, "detach"):
        value = value.detach()
    return cotangent.from_dlpack(value) if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__") else (
        cotangent.asarray(value))
