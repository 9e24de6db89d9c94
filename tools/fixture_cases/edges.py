"""Special values, such as infinities, NaN and ends of domains, where an op has differed from PyTorch."""

import torch
import torch.nn.functional as F

from .core import DTYPES, INF, NAN, Book, tensor


def complexes(pairs):
    return torch.view_as_complex(tensor([list(pair) for pair in pairs]))


def write(folder):
    book = Book()
    book.define(
        {
            "margin_ranking_loss": F.margin_ranking_loss,
            "hinge_embedding_loss": F.hinge_embedding_loss,
            "multi_margin_loss": F.multi_margin_loss,
            "clamp": torch.clamp,
            "interpolate": F.interpolate,
            "spherical_bessel_j0": torch.special.spherical_bessel_j0,
            "zeta": torch.special.zeta,
            "pow": torch.pow,
            "tanh": torch.tanh,
            "nansum": lambda x, dtype: torch.nansum(x, dtype=DTYPES[dtype]),
            "cumulative_sum": lambda x, dim, dtype: torch.cumsum(x, dim, dtype=DTYPES[dtype]),
            "cumulative_prod": lambda x, dim, dtype: torch.cumprod(x, dim, dtype=DTYPES[dtype]),
            "where": torch.where,
            "sqrt": torch.sqrt,
        },
        {
            "margin_ranking_loss": ["self", "input2", "target"],
            "hinge_embedding_loss": ["self", "target"],
            "multi_margin_loss": ["self", "target"],
            "where": ["self", "input", "other"],
        },
    )
    each = {"reduction": "none"}
    book.add("margin_ranking_loss", [tensor([NAN, 1, 2, 3]), tensor([1, NAN, 1, 1]), tensor([1, -1, 1, 1])], {"margin": 0.5, **each}, grad=[True, True, False])
    book.add("hinge_embedding_loss", [tensor([NAN, NAN, 1, 0.25]), tensor([1, -1, -1, -1])], each, grad=[True, False])
    book.add("multi_margin_loss", [tensor([[NAN, 1, 0.5], [2, 0.5, 1.5]]), torch.tensor([0, 1])], {"p": 2, **each}, grad=[True, False])
    for bounds in ({"max": NAN}, {"min": NAN}, {"min": 0.0, "max": NAN}, {"min": NAN, "max": 2.0}):
        book.add("clamp", [tensor([1, NAN, INF, -3])], bounds)
    line = tensor([[[1, 2, INF, 4, 5]]])
    book.add("interpolate", [tensor([[[1.0, 2, 3, 4, 5]]])], {"mode": "linear", "scale_factor": 1.1}, note="the same size")
    book.add("interpolate", [line[..., :2]], {"mode": "linear", "size": [2]})
    image = torch.ones(1, 1, 4, 4, dtype=torch.float64)
    image[0, 0, 1, 1] = INF
    book.add("interpolate", [image], {"mode": "bilinear", "size": [3, 3], "antialias": True})
    book.add("interpolate", [image], {"mode": "area", "size": [2, 2]})
    book.add("spherical_bessel_j0", [tensor([INF, -INF, NAN, 1e300])], grad=False)
    s = tensor([1e20, 1e20, 3, INF, 2.5, 1e20])
    book.add("zeta", [s, tensor([-1001.2, -1001, -2.5, 0.5, -1.5, 0.5])], grad=False)
    z = complexes([(INF, INF), (INF, 0), (-INF, 0), (1e155, 1), (0.3, -0.7), (-2, 0.5), (1e-3, 1e100)])
    for exponent in (0, 1, 2, 0.5):
        book.add("pow", [z], {"exponent": exponent}, grad=False)
    book.add("pow", [z[3:6]], {"exponent": -1}, grad=False)
    for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5):
        book.add("pow", [z[4:6]], {"exponent": exponent})
    tall = complexes([(1e155, 1), (1e155, 1e3), (1e200, 1e155), (-400, 2), (0.5, 1e160), (1, 1e154), (-1, 2), (0.999, 1.5707), (20, 1), (8, 1)])
    book.add("tanh", [tall])
    for dtype in ("i64", "f32", "u8"):
        book.add("nansum", [tensor([1.5, 2.75, NAN, -0.5])], {"dtype": dtype}, grad=False)
    for dtype in ("u8", "i32", "i64", "f32"):
        bytes_ = torch.tensor([1, 25, 100, 200], dtype=torch.uint8)
        book.add("cumulative_sum", [bytes_], {"dim": 0, "dtype": dtype}, grad=False)
        book.add("cumulative_prod", [bytes_], {"dim": 0, "dtype": dtype}, grad=False)
    return book.write_together(folder / "special_values.json")
