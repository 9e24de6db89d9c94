"""Aliases of modules, for programs that import from PyTorch's submodules."""

from __future__ import annotations

import sys


def alias(package, names):
    """Makes a package importable under ``names``, which are submodules in PyTorch.

    This changes only ``sys.modules``: attributes of the package with these names are kept.
    """
    for name in names.split():
        sys.modules.setdefault(f"{package}.{name}", sys.modules[package])
