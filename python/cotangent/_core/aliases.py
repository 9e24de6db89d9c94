"""Aliases of modules: PyTorch has more submodules, and programs import from them."""

from __future__ import annotations

import sys


def alias(package, names):
    """Makes a package importable under ``names``, submodules of PyTorch with the same contents.

    Only ``sys.modules`` is changed, so that attributes of the package with these names stay.
    """
    for name in names.split():
        sys.modules.setdefault(f"{package}.{name}", sys.modules[package])
