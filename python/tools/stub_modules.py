"""The type stubs of `nn`, `optim` and `amp`: their classes from the crate's lists and from signatures."""

from __future__ import annotations

import importlib
import inspect
import re

import cotangent as ct
from cotangent import nn, optim

HEADER = '''# Written by tools/stubs.py: not to be edited.
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, SupportsIndex, TypeVar
'''
# What is worth more than `Any`: the types that methods give.
MODULE = {
    "parameters": "Iterator[Parameter]", "named_parameters": "Iterator[tuple[builtins.str, Parameter]]",
    "buffers": "Iterator[Tensor]", "named_buffers": "Iterator[tuple[builtins.str, Tensor]]", "modules": "Iterator[Module]",
    "named_modules": "Iterator[tuple[builtins.str, Module]]", "children": "Iterator[Module]",
    "named_children": "Iterator[tuple[builtins.str, Module]]", "state_dict": "dict[builtins.str, Any]",
    "train": "Self", "eval": "Self", "to": "Self", "float": "Self", "double": "Self", "half": "Self", "bfloat16": "Self",
    "cpu": "Self", "cuda": "Self", "apply": "Self", "requires_grad_": "Self", "zero_grad": "None", "get_submodule": "Module",
    "get_parameter": "Parameter", "get_buffer": "Tensor", "register_buffer": "None", "register_parameter": "None",
    "register_module": "None", "add_module": "None", "extra_repr": "builtins.str", "__len__": "builtins.int", "__init__": "None",
    "get_last_lr": "list[builtins.float]", "get_lr": "list[builtins.float]", "get_scale": "builtins.float",
    "is_enabled": "builtins.bool", "add_param_group": "None", "load_state_dict": "Any",
}
SHOWN = ("__init__", "__call__", "__len__", "__iter__", "__getitem__", "__setitem__", "__delitem__", "__contains__",
         "__enter__", "__exit__", "__iadd__", "__add__", "__getattr__", "__setattr__", "__delattr__")


def annotation(text):
    """The type of a parameter, where names of dtypes do not hide Python's own."""
    return re.sub(r"(?<![\w.\"])(float|slice|str)(?![\w\"])", r"builtins.\1", text)


def signature(name, function, result, types=None):
    """A function by its signature, with the types that are known."""
    types = types or {}
    parts, star = [], False
    for at, p in enumerate(inspect.signature(function).parameters.values()):
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        star |= p.kind is p.VAR_POSITIONAL
        if at == 0 and p.name in ("self", "cls"):
            parts.append(p.name)
            continue
        parts.append(f"{prefix}{p.name}: {types.get(p.name, 'Any')}{'' if p.default is p.empty else ' = ...'}")
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


def types_of(cls):
    """The types of the arguments of a class that is made from a list."""
    own = {}
    for p in getattr(cls, "_params", None) or (getattr(cls, "_entry", None) or {}).get("params", []):
        optional = "" if p["required"] else " | None"
        own[p["name"]] = annotation(p["annotation"]) + optional
    if issubclass(cls, optim.Optimizer):
        # Pairs and words of PyTorch's have other names and values.
        own = {name: own.get(name, "Any") for name in getattr(cls, "_defaults", {})} | {
            "params": "Iterable[Any]", "lr": "builtins.float | Tensor", "eps": "Any", "line_search_fn": "builtins.str | None"}
    return own | {"device": "DeviceLike | None", "dtype": "DTypeLike | None"}


def klass(name, cls, bases):
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    if cls is nn.Module:
        lines.append("    training: builtins.bool")
    if issubclass(cls, (ct.Tensor, tuple)):
        lines.append("    " + signature("__new__", cls.__new__, name))
        lines += [f"    @property\n    def {field}(self) -> Any: ..." for field in getattr(cls, "_fields", ())]
    if cls is optim.Optimizer:
        lines += ["    param_groups: list[dict[builtins.str, Any]]", "    defaults: dict[builtins.str, Any]"]
    for own, value in vars(cls).items():
        if own.startswith("_") and own not in SHOWN or own in ("training", "dump_patches"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            kind = "staticmethod" if isinstance(value, staticmethod) else "classmethod"
            lines.append(f"    @{kind}\n    " + signature(own, value.__func__, "Any"))
        elif isinstance(value, property):
            lines.append(f"    @property\n    def {own}(self) -> Any: ...")
        elif inspect.isfunction(value):
            result = "None" if own in ("__setattr__", "__delattr__", "__exit__") else MODULE.get(own, "Any")
            types = types_of(cls) if own == "__init__" else {"name": "str"} if own.endswith("attr__") else {}
            ignore = "  # type: ignore[override]" if (name, own) == ("LBFGS", "step") else ""
            lines.append("    " + signature(own, value, result, types) + ignore)
    if issubclass(cls, nn.layers.Layer) and "return_indices" not in types_of(cls) and cls.forward.__code__.co_argcount == 2:
        lines.append("    def __call__(self, input: Tensor) -> Tensor: ...")
    elif issubclass(cls, nn.Module) and getattr(cls, "_function", None):
        lines.append("    def __call__(self, *input: Tensor) -> Tensor: ...")
    return lines + (["    ..."] if len(lines) == 1 else []) + [""]


def module(name, stubs):
    """The stub of a module: its classes in the order of their bases, and its functions."""
    module = importlib.import_module(f"cotangent.{name}")
    up = "." * (name.count(".") + 1 + hasattr(module, "__path__"))
    lines = [HEADER, f"from {up} import DeviceLike, DTypeLike, Number, Tensor, dtype, device"]
    classes, functions, others = {}, [], []
    for own, value in sorted(vars(module).items()):
        if own.startswith("_") or own in ("annotations", "no_grad", "Tensor"):
            continue
        if inspect.isclass(value) and value.__module__.startswith("cotangent"):
            classes[own] = value
        elif inspect.ismodule(value) and value.__name__.startswith("cotangent."):
            if name in ("nn", "optim") and value.__name__ == f"cotangent.{name}.{own}":
                others.append(f"from . import {own} as {own}")
        elif inspect.isfunction(value) and (value.__module__ or "").startswith("cotangent"):
            functions.append(own)
        elif own in stubs.OPS and inspect.isbuiltin(value):
            functions.append(own)
    lines += others + [""]
    if name == "optim.swa_utils":
        lines += ["from ..nn import Module", "from .lr_scheduler import SWALR as SWALR", ""]
        classes = {own: value for own, value in classes.items() if value.__module__ == module.__name__}
    if name == "optim.lr_scheduler":
        lines.append("from . import Optimizer")
    for own, value in sorted(classes.items(), key=lambda item: (len(item[1].__mro__), item[0])):
        # Bases that are not shown, such as the one of all layers, stand for theirs.
        bases = [next(key for key, cls in classes.items() if cls is base) if base in classes.values() else "Module"
                 for base in value.__mro__[1:] if base in classes.values() or base is nn.Module][:1]
        if issubclass(value, ct.Tensor):
            bases = ["Tensor"]
        lines += klass(own, value, bases)
    for own in functions:
        value = getattr(module, own)
        if inspect.isbuiltin(value):
            lines.append(stubs.definition(own, stubs.OPS[own], value, False))
        else:
            result = "Tensor" if name in ("nn.functional", "nn.init") and "pool" not in own and own != "calculate_gain" else "Any"
            result = "Any" if own.startswith("_") else result
            lines.append(signature(own, value, result if own != "clip_grad_norm_" else "Tensor"))
    text = "\n".join(lines) + "\n"
    used = [f"_{op}" for op in sorted({f[1:] for f in re.findall(r"-> (_\w+):", text)})]
    if used:
        text = text.replace(HEADER, HEADER + f"from {up} import {', '.join(f'{own} as {own}' for own in used)}\n", 1)
    return text


PUBLIC = ("nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "optim", "optim.lr_scheduler", "optim.swa_utils", "amp", "distributions")
INNER = ("nn.module", "nn.hooks", "nn.lazy", "nn._shown", "nn.containers", "nn.layers", "nn.losses", "nn.parameter", "nn.recurrent", "nn.transformer", "optim.optimizer", "distributions.distribution",
         "distributions.continuous", "distributions.discrete", "distributions.kl")


def path(name):
    folder = hasattr(importlib.import_module(f"cotangent.{name}"), "__path__")
    return name.replace(".", "/") + ("/__init__.pyi" if folder else ".pyi")


def files(stubs):
    return {path(name): module(name, stubs) for name in PUBLIC} | {path(name): stubs.HIDDEN for name in INNER}
