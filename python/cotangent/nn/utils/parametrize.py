"""Parameters that are computed from stored tensors at each use, as in ``torch.nn.utils.parametrize``.

    >>> import cotangent as ct
    >>> from cotangent.nn.utils import parametrize
    >>> class Symmetric(ct.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = ct.nn.Linear(3, 3)
    >>> _ = parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> ct.allclose(layer.weight, layer.weight.T)
    True
"""

from __future__ import annotations

from ..._cotangent import Tensor
from ..._core.modes import no_grad
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter


class ParametrizationList(ModuleList):
    """The modules that compute a parameter, one after the other, from ``original``, or from ``original0`` and so on."""

    def __init__(self, modules, original, unsafe=False):
        super().__init__(modules)
        values = original
        with no_grad():
            # From the last module to the first: the tensors to store so that the parameter keeps its value.
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    values = module.right_inverse(values)
        self.is_tensor = isinstance(values, Tensor)
        for at, value in enumerate([values] if self.is_tensor else values):
            name = "original" if self.is_tensor else f"original{at}"
            kept = original if value is original else Parameter(value.detach(), original.requires_grad)
            if isinstance(kept, Parameter):
                self.register_parameter(name, kept)
            else:
                self.register_buffer(name, kept)
        self.ntensors = 1 if self.is_tensor else len(values)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{at}") for at in range(self.ntensors)]

    def forward(self):
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value

    def right_inverse(self, value):
        """Changes the stored tensors so that the parameter becomes ``value``."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise NotImplementedError(f"to assign the parameter, {type(module).__name__} must define right_inverse")
                value = module.right_inverse(value)
            for own, new in zip(self._originals(), [value] if self.is_tensor else value):
                own.copy_(new)


def _property(name):
    def read(self):
        return self.parametrizations[name]()

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Computes a parameter or buffer by ``parametrization`` from a stored tensor. Returns ``module``."""
    if is_parametrized(module, tensor_name):
        # It follows the existing parametrizations.
        module.parametrizations[tensor_name].append(parametrization)
        return module
    role = next((role for role in (module._parameters, module._buffers) if role.get(tensor_name) is not None), None)
    if role is None:
        raise ValueError(f"register_parametrization: {type(module).__name__} has no parameter or buffer {tensor_name!r}")
    original = role[tensor_name]
    made = ParametrizationList([parametrization], original, unsafe)
    with no_grad():
        found = made()
    if not unsafe and (found.shape != original.shape or found.dtype != original.dtype):
        raise ValueError(f"register_parametrization: {tensor_name} must keep shape {list(original.shape)} and {original.dtype}, "
                         f"got {list(found.shape)} and {found.dtype}")
    del role[tensor_name]
    if not is_parametrized(module):
        module.add_module("parametrizations", ModuleDict())
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {"_parametrized": kind, "__module__": kind.__module__})
    module.parametrizations[tensor_name] = made
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def is_parametrized(module, tensor_name=None):
    """Whether a module has a parametrization, or whether one of its tensors has one."""
    own = module._modules.get("parametrizations")
    return isinstance(own, ModuleDict) and (tensor_name is None or tensor_name in own)


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Removes the parametrizations of a tensor. It keeps its value, or gets the stored one if not ``leave_parametrized``."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {type(module).__name__} has no parametrized tensor {tensor_name!r}")
    own = module.parametrizations[tensor_name]
    first = own._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = own().detach()
    elif own.is_tensor:
        value = first
    else:
        raise ValueError("remove_parametrizations: leave_parametrized must be True where several tensors are stored, got False")
    if own.is_tensor and isinstance(first, Parameter):
        first.data = value.detach()
        value = first
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if len(module.parametrizations) == 0:
        del module._modules["parametrizations"]
        module.__class__ = type(module)._parametrized
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, value if isinstance(value, Parameter) else Parameter(value, first.requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    return module


def type_before_parametrizations(module):
    """Returns the class of a module without parametrizations."""
    return type(module)._parametrized if is_parametrized(module) else type(module)


class cached:
    """A context that does nothing. PyTorch computes parameters once inside of it; here they are computed at each use."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def _length(v, dim):
    """Returns the norms of the slices along ``dim``, with all dimensions kept, or the norm of the tensor if ``dim`` is None."""
    if dim is None:
        return v.norm()
    dims = [at for at in range(v.ndim) if at != dim % v.ndim]
    return v.norm(2, dims, True) if dims else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / _length(weight_v, self.dim))

    def right_inverse(self, weight):
        return _length(weight, self.dim), weight


class _SpectralNorm(Module):
    """Divides a weight by its largest singular value, which the power method estimates during training."""

    def __init__(self, weight, n_power_iterations, dim, eps):
        super().__init__()
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim % weight.ndim, eps
        matrix = self._matrix(weight.detach())
        if weight.ndim > 1:
            for name, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                self.register_buffer(name, self._unit(matrix.new_zeros(size).normal_()))
            self._follow(matrix, 15)

    def _unit(self, x):
        return x / x.norm().clamp(min=self.eps)

    def _matrix(self, weight):
        if self.dim != 0:
            weight = weight.permute(self.dim, *(at for at in range(weight.ndim) if at != self.dim))
        return weight.flatten(1) if weight.ndim > 1 else weight

    def _follow(self, matrix, count):
        with no_grad():
            for _ in range(count):
                self._u.copy_(self._unit(matrix @ self._v))
                self._v.copy_(self._unit(matrix.t() @ self._u))

    def forward(self, weight):
        if weight.ndim == 1:
            return weight / weight.norm().clamp(min=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._follow(matrix.detach(), self.n_power_iterations)
        return weight / (self._u.clone() @ (matrix @ self._v.clone()))

    def right_inverse(self, value):
        return value


def weight_norm(module, name="weight", dim=0):
    """Weight normalisation: the weight is the direction of ``original1`` times the norms ``original0``."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Spectral normalisation: divides the weight by its largest singular value."""
    weight = getattr(module, name)
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
