"""Writes the type stubs of the package from the list of operations.

    python tools/stubs.py            # writes cotangent/*.pyi
    python tools/stubs.py --check    # says whether the files are what it would write

What is written by hand, the functions of `_core.standard` and the other modules, is read from their signatures.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import cotangent as ct
import stub_modules
from cotangent import _cotangent as core
from cotangent import array_api
from cotangent._core import dtypes as _dtypes, standard as _standard

PACKAGE = Path(ct.__file__).parent
OPS = {name: op for op in core._ops() for name in [op["name"], *op["aliases"]] if not name.startswith("__")}

HEADER = '''# Written by tools/stubs.py from the list of operations: not to be edited.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias
'''
TYPES = '''
Number: TypeAlias = builtins.int | builtins.float | builtins.complex | builtins.bool
DTypeLike: TypeAlias = "dtype | builtins.str | builtins.type[Any]"
DeviceLike: TypeAlias = "device | builtins.str"
'''


def result(op):
    if op["name"] == "allclose":
        return "builtins.bool"
    if op["outputs"] == ["tensors"]:
        return "Any" if any(p["name"] == "return_inverse" for p in op["params"]) else "tuple[Tensor, ...]"
    if len(op["outputs"]) == 1:
        return "Tensor"
    return f"_{op['name']}"


def parameters(op, function, method):
    """The parameters as they are shown by the signature of the function, with their types."""
    parts = []
    for at, (param, shown) in enumerate(zip(op["params"], inspect.signature(function).parameters.values())):
        name = "self" if method and at == 0 else shown.name
        if method and at == 0:
            parts.append("self")
            continue
        # The names of dtypes and methods hide Python's own.
        kind = re.sub(r"(?<![\w.\"])(float|slice|str)(?![\w\"])", r"builtins.\1", param["annotation"])
        if param["spread"] and param["default"] is None:
            # Given one by one, or as a sequence.
            one = "Tensor" if param["kind"] == "tensors" else "SupportsIndex"
            parts.append(f"{name}: {one} | Sequence[{one}]")
            continue
        if at == 0 and param["kind"] == "tensor":
            kind = "Tensor | Number"
        optional = "" if param["default"] is None else " | None = ..."
        parts.append(f"{name}: {kind}{optional}")
    return parts


def definition(name, op, function, method):
    parts = parameters(op, function, method)
    spread = any(p["spread"] for p in op["params"])
    if spread:
        # `reshape(2, 3)` and `reshape((2, 3))`, and the names of parameters that follow.
        first = next(at for at, p in enumerate(op["params"]) if p["spread"])
        parts = parts[:first] + ["*args: Any", "**kwargs: Any"]
    return f"def {name}({', '.join(parts)}) -> {result(op)}: ..."


def annotated(annotation):
    """The type that a function in Python names."""
    # The names of dtypes hide Python's own.
    return re.sub(r"(?<![\w.\"])(bool|float|int|str)(?![\w\"])", r"builtins.\1", annotation) if isinstance(annotation, str) else "Any"


def plain(name, function, own=""):
    """A function that is written in Python: its signature, with the types that it names."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"def {name}({own + ', ' if own else ''}*args: Any, **kwargs: Any) -> Any: ..."
    parts, star, slash = [], False, False
    params = list(signature.parameters.values())
    for at, p in enumerate(params):
        if slash and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
            slash = False
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        star |= p.kind is p.VAR_POSITIONAL
        typed = "" if at == 0 and own and p.name in ("self", own) else f": {annotated(p.annotation)}"
        parts.append(f"{prefix}{p.name}{typed}{'' if p.default is p.empty else ' = ...'}")
        slash = p.kind is p.POSITIONAL_ONLY
    if slash:
        parts.append("/")
    return f"def {name}({', '.join(parts)}) -> {RETURNS.get(name) or annotated(signature.return_annotation)}: ..."


RETURNS = {
    name: "Tensor"
    for name in ("tensor asarray as_tensor from_dlpack from_numpy arange linspace eye astype concat expand_dims flip "
                 "matrix_transpose reshape repeat squeeze take take_along_axis bitwise_invert clip sign pow round roll sort "
                 "searchsorted sum prod cumulative_sum cumulative_prod diff cdist tensordot vecdot __add__ __radd__ __sub__ "
                 "__rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ "
                 "__rpow__ __matmul__ __rmatmul__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ "
                 "__rlshift__ __rshift__ __rrshift__ __neg__ __pos__ __abs__ __invert__ __getitem__ __iadd__ __isub__ "
                 "__imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __imatmul__ __iand__ __ior__ __ixor__ "
                 "__ilshift__ __irshift__ requires_grad_ detach detach_ copy_ zero_ to cpu cuda float double half "
                 "bfloat16 byte char short int long bool cfloat cdouble to_device astype type_as new_tensor new_zeros "
                 "new_ones new_full new_empty fill_diagonal_ normal_ random_ apply_ map_ share_memory_ unsqueeze_ squeeze_ transpose_ "
                 "t_ swapaxes_ swapdims_ where std var randint detach").split()
} | {
    "__len__": "builtins.int", "__bool__": "builtins.bool", "__float__": "builtins.float", "__int__": "builtins.int",
    "__index__": "builtins.int", "__complex__": "builtins.complex", "__iter__": "Iterator[Tensor]",
    "__repr__": "builtins.str", "__hash__": "builtins.int", "__contains__": "builtins.bool", "__setitem__": "None",
    "__format__": "builtins.str", "__init__": "None", "__exit__": "None", "backward": "None", "numel": "builtins.int", "dim": "builtins.int",
    "is_contiguous": "builtins.bool", "is_floating_point": "builtins.bool", "is_complex": "builtins.bool",
    "data_ptr": "builtins.int", "can_cast": "builtins.bool", "isdtype": "builtins.bool", "equal": "builtins.bool",
    "set_num_threads": "None", "is_nonzero": "builtins.bool", "is_same_size": "builtins.bool", "is_signed": "builtins.bool",
    "frombuffer": "Tensor", "view": "Tensor", "pin_memory": "Tensor", "new": "Tensor", "get_device": "builtins.int", "get_num_threads": "builtins.int", "is_tensor": "builtins.bool",
    "is_grad_enabled": "builtins.bool", "broadcast_shapes": "tuple[builtins.int, ...]", "nonzero": "tuple[Tensor, ...]",
    "unstack": "tuple[Tensor, ...]", "split": "tuple[Tensor, ...]", "meshgrid": "list[Tensor]",
    "broadcast_arrays": "list[Tensor]", "result_type": "dtype", "promote_types": "dtype", "__eq__": "Tensor",
    "__ne__": "Tensor", "__lt__": "Tensor", "__le__": "Tensor", "__gt__": "Tensor", "__ge__": "Tensor",
}
PROPERTIES = {
    "shape": "Size", "layout": "Any", "dtype": "dtype", "device": "device", "ndim": "builtins.int", "T": "Tensor",
    "mT": "Tensor", "mH": "Tensor", "H": "Tensor", "real": "Tensor", "imag": "Tensor", "is_leaf": "builtins.bool",
    "grad_fn": "Any", "itemsize": "builtins.int", "nbytes": "builtins.int", "is_cuda": "builtins.bool",
    "size": "Any", "is_cpu": "builtins.bool", "is_sparse": "builtins.bool", "is_mps": "builtins.bool", "is_meta": "builtins.bool",
    "is_quantized": "builtins.bool", "is_nested": "builtins.bool", "_base": "Tensor | None", "__array_priority__": "builtins.int",
}
WRITABLE = {"requires_grad": "builtins.bool", "grad": "Tensor | None", "data": "Tensor"}
OPERATORS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__".split()


def tensor_class():
    lines = ["class Tensor:",
             "    def __new__(cls, data: Any = ..., *, dtype: DTypeLike | None = ..., device: DeviceLike | None = ...) -> Tensor: ..."]
    for name, value in sorted(vars(ct.Tensor).items()):
        if name in ("__new__", "__doc__", "__module__", "__weakref__", "__dict__", "__getattribute__"):
            continue
        if name in WRITABLE:
            kind = WRITABLE[name]
            lines += [f"    @property\n    def {name}(self) -> {kind}: ...",
                      f"    @{name}.setter\n    def {name}(self, value: {kind}) -> None: ..."]
        elif name in PROPERTIES:
            lines.append(f"    @property\n    def {name}(self) -> {PROPERTIES[name]}: ..." if not name.startswith("__")
                         else f"    {name}: {PROPERTIES[name]}")
        elif name in OPERATORS:
            override = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
            lines.append(f"    def {name}(self, other: Any, /) -> Tensor: ...{override}")
        elif name in ("__pow__", "__ipow__", "__rpow__"):
            lines.append(f"    def {name}(self, other: Any, modulo: Any = ..., /) -> Tensor: ...")
        elif name in OPS and name != "to" and hasattr(value, "__text_signature__") and not hasattr(value, "__code__"):
            lines.append("    " + definition(name, OPS[name], value, True))
        elif name.endswith("_") and not name.startswith("_") and name[:-1] in OPS and not hasattr(value, "__code__"):
            lines.append("    " + definition(name, OPS[name[:-1]] | {"outputs": ["result"]}, value, True))
        elif name == "__class_getitem__":
            lines.append("    @classmethod\n    def __class_getitem__(cls, item: Any, /) -> Any: ...")
        elif callable(value):
            lines.append("    " + plain(name, value, "self"))
    return lines


def tuples():
    lines = []
    for op in core._ops():
        if len(op["outputs"]) > 1:
            lines += [f"class _{op['name']}(NamedTuple):", *(f"    {name}: Tensor" for name in op["outputs"]), ""]
    return lines


def functions(module, names):
    lines = []
    for name in names:
        value = getattr(module, name)
        if name in OPS and inspect.isbuiltin(value):
            lines.append(definition(name, OPS[name], value, False))
        elif inspect.isfunction(value) or inspect.isbuiltin(value):
            lines.append(plain(name, value))
    return lines


def package():
    lines = [HEADER, "from . import accelerator as accelerator, amp as amp, array_api as array_api, autograd as autograd, "
             "backends as backends, cuda as cuda, data as data, distributions as distributions, fft as fft, func as func, io as io, linalg as linalg, "
             "models as models, multiprocessing as multiprocessing, nn as nn, optim as optim, random as random, signal as signal, sparse as sparse, "
             "special as special, testing as testing, train as train, types as types, utils as utils",
             "from .sparse import sparse_coo_tensor as sparse_coo_tensor, sparse_csr_tensor as sparse_csr_tensor, spmm as spmm",
             "from .amp import GradScaler as GradScaler, autocast as autocast",
             "from .models import generate as generate", TYPES]
    lines.append("class dtype:\n"
                 + "".join(f"    @property\n    def {name}(self) -> {kind}: ...\n" for name, kind in (
                     ("name", "builtins.str"), ("itemsize", "builtins.int"), ("is_floating_point", "builtins.bool"),
                     ("is_complex", "builtins.bool"), ("is_signed", "builtins.bool"))))
    lines.append("class device:\n    def __new__(cls, type: DeviceLike, index: builtins.int | None = ...) -> device: ...\n"
                 "    @property\n    def type(self) -> builtins.str: ...\n    @property\n    def index(self) -> builtins.int | None: ...\n"
                 "    def __enter__(self) -> device: ...\n    def __exit__(self, *exception: Any) -> None: ...\n")
    lines += tuples()
    lines += tensor_class() + [""]
    # Those that are imported when they are asked for are there, too.
    later = [name for name, module in ct._ELSEWHERE.items() if module.startswith("_")]
    lines += [f"{name}: Any" for name in later if not callable(getattr(ct, name)) or isinstance(getattr(ct, name), type)]
    names = sorted({*(name for name in vars(ct) if not name.startswith("_")), *later})
    for name in names:
        value = getattr(ct, name)
        if isinstance(value, ct.dtype):
            lines.append(f"{name}: dtype")
        elif isinstance(value, float):
            lines.append(f"{name}: builtins.float")
    lines += ["newaxis: None", "__version__: builtins.str", "__array_api_version__: builtins.str", ""]
    for name in ("finfo", "iinfo"):
        fields = {"finfo": "bits eps max min smallest_normal tiny", "iinfo": "bits max min"}[name].split()
        lines += [f"class {name}:", "    def __init__(self, type: Any) -> None: ...", "    dtype: Any",
                  *(f"    {field}: builtins.{'int' if name == 'iinfo' or field == 'bits' else 'float'}" for field in fields), ""]
    for name in ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled"):
        lines.append(f"{name}: Any")
    lines += ["class Size(tuple[builtins.int, ...]):", "    def numel(self) -> builtins.int: ...", ""]
    lines += [f"{name}: Any" for name in names if isinstance(getattr(ct, name), _dtypes._Kind)]
    lines += ["from .random import Generator as Generator", "default_generator: Generator", ""]
    lines += functions(ct, names)
    lines.append("def __array_namespace_info__() -> Any: ...")
    return "\n".join(lines) + "\n"


def klass(cls):
    """A class that is written by hand, or in Rust: its names, with the types that they have."""
    lines = [f"class {cls.__name__}({'_Module' if issubclass(cls, ct.nn.Module) else ''}):".replace("()", "")]
    if "__new__" in vars(cls) and "__init__" not in vars(cls) and getattr(cls, "__text_signature__", None):
        # In Rust.
        made = plain("__new__", cls, "cls").replace("(", "(cls, ", 1).replace("(cls, )", "(cls)", 1)
        lines.append(f"    {made.replace('-> Any', f'-> {cls.__name__}')}")
    shown = ("__init__", "__enter__", "__exit__", "__getitem__", "__len__", "__call__")
    # The properties of a class in Rust have no order.
    for name, value in sorted(vars(cls).items(), key=lambda item: item[0] if inspect.isgetsetdescriptor(item[1]) else ""):
        if name.startswith("_") and name not in shown:
            continue
        if isinstance(value, classmethod) and name != "apply":
            lines.append("    @classmethod\n    " + plain(name, value.__func__, "cls"))
        elif isinstance(value, (staticmethod, classmethod)):
            kind, own = ("staticmethod", "") if isinstance(value, staticmethod) else ("classmethod", "cls, ")
            lines.append(f"    @{kind}\n    def {name}({own}*args: Any, **kwargs: Any) -> Any: ...")
        elif isinstance(value, property) or inspect.isgetsetdescriptor(value):
            kind = annotated(inspect.signature(value.fget).return_annotation) if isinstance(value, property) else "Any"
            lines.append(f"    @property\n    def {name}(self) -> {kind}: ...")
        elif name == "__init__" or callable(value):
            lines.append("    " + plain(name, value, "self"))
    # What a function of the user's leaves for its rule has any name.
    return lines + ["    def __getattr__(self, name: str) -> Any: ...", "    def __setattr__(self, name: str, value: Any) -> None: ...", ""]


def submodule(name):
    module = importlib.import_module(f"cotangent.{name}")
    up = "." * (name.count(".") + 1 + hasattr(module, "__path__"))
    lines = []
    prefix = {"linalg": "linalg_", "fft": "fft_", "special": "special_", "signal.windows": "signal_windows_"}.get(name, "")
    for own in sorted(vars(module)):
        value = getattr(module, own)
        if own.startswith("_") or own in ("Tensor", "annotations", "device", "dtype"):
            continue
        full = prefix + own if prefix + own in OPS else own
        if full in OPS and inspect.isbuiltin(value):
            lines.append(definition(own, OPS[full], value, False))
        elif inspect.isclass(value):
            # Of the module, or of one of those that it is made of.
            own_class = value.__module__ in (module.__name__, "cotangent._core.samplers", "cotangent._core.tokenizers")
            plain_class = type(value) is type and own_class
            lines += klass(value) if plain_class else [f"{own}: Any"]
        elif isinstance(value, (ct.dtype, float)) or value is None:
            lines.append(f"{own}: Any")
        elif inspect.ismodule(value):
            if value.__name__ in (f"cotangent.{own}", f"{module.__name__}.{own}"):
                lines.append(f"from {up if value.__name__ == f'cotangent.{own}' else '.'} import {own} as {own}")
        elif callable(value):
            lines.append(plain(own, value))
    body = "\n".join(lines)
    # The results with names, of the functions that are here.
    tuples = [f"_{op['name']}" for op in core._ops() if len(op["outputs"]) > 1 and f"-> _{op['name']}:" in body]
    # A module may have names of its own for these.
    types = [own for own in ("Tensor", "Number", "DTypeLike", "DeviceLike", "dtype", "device") if f"class {own}:" not in body]
    head = [HEADER, f"from {up} import {', '.join(types)}"]
    head += [f"from {up} import " + ", ".join(f"{name} as {name}" for name in tuples)] if tuples else []
    head += [f"from {up}nn import Module as _Module"] if "(_Module):" in body else []
    return "\n".join([*head, "", body]) + "\n"


def allowed():
    """What stubtest is not to compare: arguments that may be given one by one, and what only the stubs have."""
    spread = sorted({name for name, op in OPS.items() if any(p["spread"] for p in op["params"])})
    prefixes = ("linalg_", "fft_", "special_")
    short = {name.removeprefix(prefix) for name in spread for prefix in prefixes if name.startswith(prefix)}
    return "\n".join([
        "# Written by tools/stubs.py: not to be edited.",
        r"cotangent\.(DTypeLike|DeviceLike|Number|Tensor|device|dtype)",
        r"cotangent\.Tensor\.(__class_getitem__|__ipow__)",
        r"cotangent(\.\w+)+\.(__getattr__|__setattr__)",
        r"cotangent\.autograd\.(Tape|Gradients|RemovableHandle)",
        r"cotangent\.autograd\.Function\.(forward|backward|apply)",
        r"cotangent\.(data\.Vocabulary|models\.KeyValueCache|train\.ConfusionMatrix|train\.Examples)(\.\w+)?",
        r"cotangent\.nn\.\w+\.__call__",
        r"cotangent\.(nn|optim)\.\w+\.(training|param_groups|defaults)",
        *(rf"cotangent(\.\w+)*\.{name}_?" for name in sorted({*spread, *short})),
    ]) + "\n"


SUBMODULES = ("linalg fft special autograd autograd.functional func cuda cuda.amp data io models train array_api random testing accelerator "
              "backends.cudnn backends.cuda backends.mps backends.mkl backends.mkldnn backends.openmp signal.windows utils.checkpoint")
ALIASES = "# Written by tools/stubs.py: not to be edited.\n"
# Modules that are others by PyTorch's names.
OTHER_NAMES = {
    "backends": "from . import cuda as cuda, cudnn as cudnn, mkl as mkl, mkldnn as mkldnn, mps as mps, openmp as openmp\n",
    "signal": "from . import windows as windows\n",
    "utils": "from . import benchmark as benchmark, checkpoint as checkpoint, data as data, hooks as hooks, model_zoo as model_zoo, tensorboard as tensorboard\n",
    "utils.hooks": "from ..nn.hooks import RemovableHandle as RemovableHandle\n",
    "utils.data": "from ...data import *\nfrom . import dataloader as dataloader, dataset as dataset, distributed as distributed, "
                  "sampler as sampler\n",
    "nn.utils.parametrizations": "from .parametrize import spectral_norm as spectral_norm, weight_norm as weight_norm\n",
    "nn.modules": "from typing import Any\nfrom .. import *\n\ndef __getattr__(name: str) -> Any: ...\n",
    "nn.parallel": "from .. import DataParallel as DataParallel\n",
    "utils.tensorboard": "from ..train import SummaryWriter as SummaryWriter\n",
} | {f"distributions.{name}": f"from . import {kind} as {kind}\n" for name, kind in (
    ("normal", "Normal"), ("categorical", "Categorical"), ("bernoulli", "Bernoulli"), ("uniform", "Uniform"), ("beta", "Beta"),
    ("multivariate_normal", "MultivariateNormal"), ("independent", "Independent"))} | {f"utils.data.{name}": "from ...data import *\n" for name in ("dataloader", "dataset", "distributed", "sampler")}
HIDDEN = "# Written by tools/stubs.py: not to be edited.\nfrom typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def main():
    files = {"__init__.pyi": package()} | {stub_modules.path(name): submodule(name) for name in SUBMODULES.split()}
    files |= {f"{name}.pyi": HIDDEN for name in
              "_cotangent _core/aliases _core/creation _core/devices _core/dtypes _core/forms _core/hints _core/hooks _core/methods _core/modes "
              "_core/pickled _core/pytree _core/samplers _core/size _core/standard _core/text _core/tokenizers utils/_pytree "
              "autograd/forward_ad compiler distributed jit multiprocessing nn/common_types sparse types utils/benchmark utils/model_zoo".split()}
    files |= {stub_modules.path(name): ALIASES + text for name, text in OTHER_NAMES.items()}
    files |= stub_modules.files(sys.modules[__name__])
    files["../tests/stubtest.txt"] = allowed()
    stale = [name for name, text in files.items() if not (PACKAGE / name).exists() or (PACKAGE / name).read_text() != text]
    if "--check" in sys.argv:
        print("stale: " + ", ".join(stale) if stale else "all stubs are up to date")
        return 1 if stale else 0
    for name in stale:
        (PACKAGE / name).write_text(files[name])
        print(name)
    return 0


if __name__ == "__main__":
    assert _standard and array_api
    sys.exit(main())
