"""Modules by more than one name: PyTorch's files are more than ours, and programs import from them."""

from __future__ import annotations

import sys


def alias(package, names):
    """Lets ``names``, submodules of PyTorch's, be imported from a package that has what is in them.

    They are entries in the list of modules, so that a name of the package that is the same as one of them stays what it is.
    """
    for name in names.split():
        sys.modules.setdefault(f"{package}.{name}", sys.modules[package])
