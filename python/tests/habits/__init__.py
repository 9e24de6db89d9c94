"""What people who come from PyTorch write: short programs, each with one value at the end.

The files of text have a program in each line, by subject; those of `tutorials` are programs of their own, in PyTorch's words.
`ct` is the library. PyTorch's answers are kept in answers.json, which `against_torch.py --habits` writes.
"""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"
SUBJECTS = "shapes reductions creation arithmetic indexing gradients functions printing files networks functional sequences data settings distributions idioms training defaults transforms sparse paths dims_none".split()

# `x` is a matrix of floats, `v` a vector, `i` indices, `m` a mask, `b` a batch of images, `w` a leaf.
SETUP = """
x = ct.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]])
v = ct.tensor([3.0, 1.0, 2.0])
i = ct.tensor([2, 0, 1])
n = ct.tensor([[1, 2, 3], [4, 5, 6]])
m = x > 0
b = ct.arange(24.0).reshape(2, 3, 2, 2)
w = ct.tensor([1.0, 2.0, 3.0], requires_grad=True)
"""


def lines():
    """The programs of one line."""
    return [line for subject in SUBJECTS for line in (HERE / f"{subject}.txt").read_text().splitlines() if line]


def tutorials():
    """The names of the longer ones."""
    return sorted(path.name for path in (HERE / "tutorials").glob("*.py"))


def programs():
    """All of them: lines, and names of files."""
    return lines() + tutorials()


def evaluate(lib, program):
    """The value of the last expression of a program, or of `out`."""
    space = {"ct": lib}
    path = HERE / "tutorials" / program
    if program.endswith(".py"):
        # The same program with the import changed.
        text = path.read_text().replace("torch", lib.__name__)
        exec(compile(text, str(path), "exec"), space)
        return plain(lib, space["out"])
    exec(SETUP, space)
    tree = ast.parse(program.replace("\\n", "\n"))
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(tree.body[:-1], []), program, "exec"), space)
        value = eval(compile(ast.Expression(last.value), program, "eval"), space)
    else:
        exec(compile(tree, program, "exec"), space)
        value = space["out"]
    return plain(lib, value)


def plain(lib, value):
    """The value as JSON has it: tensors with their dtype and shape, dtypes and devices by name."""
    if isinstance(value, lib.Tensor):
        shown = value.detach()
        shown = lib.view_as_real(shown) if shown.is_complex() else shown
        numbers = shown.to(lib.float64).reshape(-1).tolist()
        return {"dtype": str(value.dtype).split(".")[-1], "shape": list(value.shape), "values": [str(a) if not math.isfinite(a) else a for a in numbers]}
    if isinstance(value, (lib.dtype, lib.device)):
        return str(value).split(".")[-1]
    if isinstance(value, dict):
        return {key: plain(lib, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(lib, one) for one in value]
    if isinstance(value, str):
        return value.replace("torch", "cotangent")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int)) else type(value).__name__


def same(a, b):
    """Whether two plain values agree, numbers to the rounding of 32 bits."""
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def answers():
    return json.loads(ANSWERS.read_text())
