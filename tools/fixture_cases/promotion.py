"""The dtype of a result from the dtypes of the operands."""

import json

import torch

from .core import DTYPES, NAMES, header

NUMBERS = {"float": 1.5, "int": 1, "bool": True}


def promoted(f):
    """The name of the promoted dtype, or None if PyTorch raises an error (u16, u32, u64 with integers)."""
    try:
        return NAMES[f()]
    except RuntimeError:
        return None


def tables():
    ones = {name: torch.ones(2, dtype=dtype) for name, dtype in DTYPES.items()}
    types, number = [], []
    for a in DTYPES:
        for b in DTYPES:
            types.append([a, b, promoted(lambda: torch.promote_types(DTYPES[a], DTYPES[b]))])
        for kind, value in NUMBERS.items():
            number.append([a, kind, promoted(lambda: torch.result_type(ones[a], value))])
    keep = lambda rows: [row for row in rows if row[2] is not None]
    return {"types": keep(types), "number": keep(number)}


def write(folder):
    path = folder / "promotion.json"
    parts = [f'"header":{json.dumps(header())}']
    for name, rows in tables().items():
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        parts.append(f'"{name}":[\n{lines}\n]')
    path.write_text("{" + ",\n".join(parts) + "}\n")
    return path
