"""Linear algebra of complex matrices, and eigenvalues of general matrices."""

import torch

from .core import DTYPES, tensor
from .linalg import SINGLE, positive, regular, turned


def phase(first):
    """A differentiable factor that makes the first of the largest elements of each column positive."""
    size = first.detach().abs()
    at = (size >= 0.999 * size.amax(-2, keepdim=True)).long().argmax(-2, keepdim=True)
    return torch.sgn(first.gather(-2, at)).conj()


def eig(x):
    values, vectors = torch.linalg.eig(x)
    if not values.numel():
        return values, vectors
    first = torch.argsort(values.detach().imag, dim=-1, descending=True, stable=True)
    order = first.gather(-1, torch.argsort(values.detach().real.gather(-1, first), dim=-1, stable=True))
    vectors = vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))
    return values.gather(-1, order), vectors * phase(vectors)


def eigh(x, uplo="L"):
    values, vectors = torch.linalg.eigh(x, UPLO=uplo)
    if not vectors.numel():
        return values, vectors
    return values, vectors * phase(vectors) if x.is_complex() else turned(vectors)[0]


def svd(x, full_matrices=True):
    u, s, vh = torch.linalg.svd(x, full_matrices=full_matrices)
    if not s.numel():
        return u, s, vh
    wide = x.shape[-2] < x.shape[-1]
    if not x.is_complex():
        u, v = turned(u, vh.mT) if wide else reversed(turned(vh.mT, u))
        return u, s, v.mT
    k, v = s.shape[-1], vh.mH
    by = phase(u[..., :k] if wide else v[..., :k])
    turn = lambda x: torch.cat([x[..., :k] * by, x[..., k:]], -1)
    return turn(u), s, turn(v).mH


def reduced_svd(x):
    u, s, vh = svd(x, False)
    return u, s, vh.mH


def hermitian_part(x):
    """The Hermitian part, so that the gradient is Hermitian, too: PyTorch's Cholesky gradient is not for complex numbers."""
    return (x + x.mH) / 2 if x.is_complex() else x


def factors(x, pivot=True):
    """The LU factors; without pivoting, which PyTorch does not support on the CPU, they are computed step by step."""
    if pivot:
        return tuple(torch.linalg.lu(x))
    m, n = x.shape[-2:]
    rest, columns, rows = x, [], []
    for j in range(min(m, n)):
        row = rest[..., j : j + 1, :]
        column = rest[..., :, j : j + 1] / row[..., :, j : j + 1]
        columns.append(column)
        rows.append(row)
        rest = rest - column @ row
    l, u = torch.cat(columns, -1), torch.cat(rows, -2)
    own = torch.eye(m, min(m, n), dtype=x.dtype)
    return torch.zeros(0, dtype=x.dtype), l.tril(-1) + own, u.triu()


def lu_factor_ex(x, pivot=True):
    if pivot:
        return tuple(torch.linalg.lu_factor_ex(x))
    _, l, u = factors(x, False)
    m, n = x.shape[-2:]
    k = min(m, n)
    lu = torch.cat([l.tril(-1), torch.zeros([*x.shape[:-1], n - k], dtype=x.dtype)], -1)
    lu = lu + torch.cat([u, torch.zeros([*x.shape[:-2], m - k, n], dtype=x.dtype)], -2)
    pivots = torch.arange(1, k + 1, dtype=torch.int32).expand([*x.shape[:-2], k])
    return lu, pivots, torch.zeros(x.shape[:-2], dtype=torch.int32)


FUNCTIONS = {
    "linalg_lu": factors,
    "linalg_lu_factor": lambda x, pivot=True: lu_factor_ex(x, pivot)[:2],
    "linalg_lu_factor_ex": lu_factor_ex,
    "lu_unpack": lambda lu, pivots, **args: tuple(torch.lu_unpack(lu, pivots, **args)),
    "lu_solve": torch.lu_solve,
    "linalg_ldl_factor": lambda x, hermitian=False: tuple(torch.linalg.ldl_factor(x, hermitian=hermitian)),
    "linalg_ldl_factor_ex": lambda x, hermitian=False: tuple(torch.linalg.ldl_factor_ex(x, hermitian=hermitian)),
    "linalg_ldl_solve": torch.linalg.ldl_solve,
    "linalg_polar": lambda x: tuple(torch.linalg.polar(x)),
    "geqrf": lambda x: tuple(torch.geqrf(x)),
    "ormqr": torch.ormqr,
    "linalg_matrix_sqrth": lambda x: torch.linalg.matrix_sqrth(hermitian_part(x)),
    "linalg_cholesky": lambda x, upper=False: torch.linalg.cholesky(hermitian_part(x), upper=upper),
    "linalg_cholesky_ex": lambda x, upper=False: tuple(torch.linalg.cholesky_ex(hermitian_part(x), upper=upper)),
    "linalg_eig": eig,
    "linalg_eigvals": lambda x: eig(x)[0],
    "linalg_eigh": eigh,
    "linalg_svd": svd,
    "svd": reduced_svd,
}


NAMES = {"linalg_ldl_solve": ["self", "pivots", "B"], "lu_unpack": ["self", "pivots"], "lu_solve": ["self", "LU_data", "LU_pivots"], "ormqr": ["self", "tau", "other"]}


def complex_regular(draw, shape, dtype="c128"):
    return torch.complex(regular(draw, shape), draw.uniform(shape, -0.6, 0.6)).to(DTYPES[dtype])


def hermitian(draw, shape, dtype="c128"):
    """Hermitian, positive definite matrices."""
    x = complex_regular(draw, shape)
    parts = torch.view_as_real((x @ x.mH).resolve_conj()).round(decimals=4)
    return torch.view_as_complex(parts).to(DTYPES[dtype])


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    note = "complex"
    for op in ("linalg_eig", "linalg_eigvals"):
        for shape in ([3, 3], [1, 1], [2, 2, 2], [5, 5], [0, 2, 2], [0, 0]):
            book.add(op, [book.draw(op).uniform(shape)])
            book.add(op, [book.draw(op).complex(shape)], note=note)
        book.add(op, [book.draw(op).uniform([3, 3], dtype="f32")], **SINGLE)
        book.add(op, [book.draw(op).complex([3, 3], dtype="c64")], note=note, **SINGLE)
        book.add(op, [positive(book.draw(op), [3, 3])], note="symmetric")
        book.add(op, [tensor([[0.0, -2.0], [1.0, 0.5]])], note="a pair")
    book.add("linalg_eigvals", [torch.diag(tensor([2.0, 2.0, 1.0]))], grad=False, note="two alike")
    book.add("linalg_eigvals", [tensor([[1.0, 1.0], [0.0, 1.0]])], grad=False, note="too few vectors", atol=1e-7)
    book.add("linalg_eigvals", [torch.zeros([3, 3], dtype=torch.float64)], grad=False)
    book.add("linalg_eigvals", [tensor([[1.0, 1e6], [1e-6, 1.0]])], grad=False, note="badly scaled", rtol=1e-9)
    for op in ("inverse", "linalg_inv_ex", "det", "slogdet", "logdet", "linalg_lu", "linalg_lu_factor", "matrix_exp", "linalg_cond"):
        for shape in ([3, 3], [2, 2, 2], [1, 1]):
            book.add(op, [complex_regular(book.draw(op), shape)], note=note)
        book.add(op, [complex_regular(book.draw(op), [3, 3], "c64")], note=note, **SINGLE)
    for op in ("linalg_lu", "linalg_lu_factor"):
        for shape in ([2, 4], [4, 2]):
            book.add(op, [book.draw(op).complex(shape)], note=note)
    for n in (0, 3, -2):
        book.add("matrix_power", [complex_regular(book.draw("matrix_power"), [2, 2])], {"n": n}, grad="auto" if n else False, note=note)
    for p in ("fro", "nuc", "1", "-inf", "2", "-2"):
        grad = "auto" if p in ("2", "-2") else False
        book.add("linalg_cond", [complex_regular(book.draw("linalg_cond"), [2, 2])], {"p": p}, grad=grad, note=note)
    for op in ("linalg_solve", "linalg_solve_ex"):
        for a, b in (([3, 3], [3]), ([2, 2, 2], [2, 1])):
            draw = book.draw(op)
            book.add(op, [complex_regular(draw, a), draw.complex(b)], note=note)
    draw = book.draw("linalg_solve")
    book.add("linalg_solve", [complex_regular(draw, [3, 3]), draw.complex([2, 3])], {"left": False}, note=note)
    for upper in (False, True):
        for b, more in (([3, 2], {}), ([2, 3], {"left": False}), ([3, 2], {"unitriangular": True})):
            draw = book.draw("linalg_solve_triangular")
            book.add("linalg_solve_triangular", [complex_regular(draw, [3, 3]), draw.complex(b)], {"upper": upper, **more}, note=note)
    for left in (True, False):
        for adjoint in (True, False):
            draw = book.draw("linalg_lu_solve")
            lu, pivots = torch.linalg.lu_factor(draw.complex([3, 3]))
            lu = torch.view_as_complex(torch.view_as_real(lu).contiguous().round(decimals=4))
            b = draw.complex([3, 2] if left else [2, 3])
            book.add("linalg_lu_solve", [lu, pivots, b], {"left": left, "adjoint": adjoint}, note=note)
    draw = book.draw("linalg_tensorsolve")
    book.add("linalg_tensorsolve", [complex_regular(draw, [4, 4]).reshape([2, 2, 4]), draw.complex([2, 2])], note=note)
    book.add("linalg_tensorinv", [complex_regular(book.draw("linalg_tensorinv"), [4, 4]).reshape([2, 2, 4])], {"ind": 2}, note=note)
    for op in ("linalg_cholesky", "linalg_cholesky_ex"):
        for shape, args in (([3, 3], {}), ([2, 2, 2], {}), ([3, 3], {"upper": True})):
            book.add(op, [hermitian(book.draw(op), shape)], args, note=note)
        book.add(op, [hermitian(book.draw(op), [3, 3], "c64")], note=note, **SINGLE)
    for upper in (False, True):
        draw = book.draw("cholesky_solve")
        book.add("cholesky_solve", [draw.complex([3, 2]), complex_regular(draw, [3, 3])], {"upper": upper}, note=note)
        # The diagonal of a Cholesky factor is real.
        factor = complex_regular(book.draw("cholesky_inverse"), [3, 3])
        factor = factor - 1j * torch.diag_embed(factor.diagonal().imag)
        book.add("cholesky_inverse", [factor], {"upper": upper}, note=note)
    for shape in ([3, 3], [4, 2], [2, 4], [2, 3, 2], [1, 1]):
        book.add("linalg_qr", [book.draw("linalg_qr").complex(shape)], note=note)
    book.add("linalg_qr", [book.draw("linalg_qr").complex([2, 4])], {"mode": "complete"}, note=note)
    low = torch.complex(tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]]), tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 6.0]]))
    for a, t in (([3, 3], [3]), ([2, 3, 2], [2, 1])):
        draw = book.draw("linalg_householder_product")
        book.add("linalg_householder_product", [draw.complex(a), draw.complex(t)], note=note)
    for a, b, driver in (([4, 2], [4, 2], "gelsy"), ([4, 2], [4, 1], "gels"), ([4, 2], [4, 2], "gelsd"), ([2, 4], [2, 1], "gelsy")):
        draw = book.draw("linalg_lstsq")
        book.add("linalg_lstsq", [draw.complex(a), draw.complex(b)], {"driver": driver}, grad=False, note=note)
    for op in ("linalg_eigh", "linalg_eigvalsh"):
        for shape in ([3, 3], [2, 2, 2], [5, 5], [1, 1]):
            book.add(op, [hermitian(book.draw(op), shape)], note=note)
        one = book.draw(op).complex([3, 3])
        for uplo in ("L", "U"):
            book.add(op, [one], {"uplo": uplo}, note="one triangle is read")
        book.add(op, [hermitian(book.draw(op), [3, 3], "c64")], note=note, **SINGLE)
    book.add("linalg_eigvalsh", [torch.eye(3, dtype=torch.complex128)], grad=False, note="three alike")
    for shape in ([3, 3], [4, 2], [2, 4], [2, 3, 2], [1, 1]):
        x = book.draw("svd").complex(shape)
        book.add("svd", [x], note=note)
        book.add("linalg_svd", [x], {"full_matrices": False}, note=note)
        book.add("linalg_svdvals", [x], note=note)
        book.add("linalg_pinv", [x], note=note)
        book.add("linalg_matrix_rank", [x], grad=False, note=note)
    book.add("linalg_svd", [book.draw("linalg_svd").complex([3, 3], dtype="c64")], note=note, **SINGLE)
    book.add("linalg_svdvals", [low], grad=False, note="rank 1", atol=1e-9)
    book.add("linalg_pinv", [low], grad=False, note="rank 1")
    book.add("linalg_matrix_rank", [low], grad=False, note="rank 1")
    for op in ("linalg_pinv", "linalg_matrix_rank"):
        book.add(op, [hermitian(book.draw(op), [3, 3])], {"hermitian": True}, grad=False, note=note)
    zeros = torch.complex(tensor([[0.0, 3.0], [0.0, 0.0]]), tensor([[0.0, 4.0], [0.0, 2.0]]))
    for ord in (0.0, 1.0, 2.0, 3.0, "inf", "-inf"):
        for args in ({}, {"dim": 1, "keepdim": True}):
            x = book.draw("linalg_vector_norm").complex([3, 2])
            book.add("linalg_vector_norm", [x], {"ord": ord, **args}, grad="auto" if ord else False, note=note)
    book.add("linalg_vector_norm", [zeros], {"ord": 2.0, "dim": 1}, note="complex zeros")
    for ord in ("fro", "nuc", "inf", "-1", "2", "-2"):
        book.add("linalg_matrix_norm", [book.draw("linalg_matrix_norm").complex([2, 3, 2])], {"ord": ord}, note=note)
    for args in ({}, {"ord": "1"}, {"ord": "nuc"}, {"ord": "3", "dim": 0}):
        book.add("linalg_norm", [book.draw("linalg_norm").complex([2, 3])], args, note=note)
    for shape in ([4], [2, 3]):
        book.add("prod", [book.draw("prod").complex(shape)], note=note)
    book.add("prod", [book.draw("prod").complex([3, 2])], {"dim": 0}, note=note)
    for op, shapes in (("linalg_cross", [[2, 3], [2, 3]]), ("linalg_vecdot", [[2, 3], [3]])):
        draw = book.draw(op)
        book.add(op, [draw.complex(shape) for shape in shapes], note=note)
    book.add("linalg_vander", [book.draw("linalg_vander").complex([3])], {"N": 4}, note=note)
    for op, shapes in (("addmm", [[2, 4], [2, 3], [3, 4]]), ("baddbmm", [[2, 2, 2], [2, 2, 3], [2, 3, 2]]), ("addr", [[2, 3], [2], [3]])):
        draw = book.draw(op)
        book.add(op, [draw.complex(shape) for shape in shapes], {"beta": 0.5, "alpha": -2.0}, note=note)
    for op in ("linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex"):
        for shape in ([3, 3], [2, 2, 2]):
            book.add(op, [regular(book.draw(op), shape)], {"pivot": False}, note="without exchanges")
        book.add(op, [regular(book.draw(op), [4, 4])[:, :2]], {"pivot": False}, note="without exchanges")
        book.add(op, [regular(book.draw(op), [4, 4])[:2]], {"pivot": False}, note="without exchanges")
        book.add(op, [complex_regular(book.draw(op), [3, 3])], {"pivot": False}, note="without exchanges")
    for shape in ([3, 3], [2, 4], [4, 2], [2, 2, 2], [0, 2, 2]):
        book.add("linalg_lu_factor_ex", [book.draw("linalg_lu_factor_ex").uniform(shape)])
        draw = book.draw("lu_unpack")
        lu, pivots = torch.linalg.lu_factor(draw.uniform(shape))
        book.add("lu_unpack", [lu.round(decimals=4), pivots])
    book.add("linalg_lu_factor_ex", [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="singular")
    for args in ({"unpack_data": False}, {"unpack_pivots": False}):
        lu, pivots = torch.linalg.lu_factor(book.draw("lu_unpack").uniform([3, 3]))
        book.add("lu_unpack", [lu.round(decimals=4), pivots], args, grad=False)
    for b in ([3, 2], [2, 3, 1]):
        draw = book.draw("lu_solve")
        lu, pivots = torch.linalg.lu_factor(draw.uniform([3, 3]))
        book.add("lu_solve", [draw.uniform(b), lu.round(decimals=4), pivots])
    for shape in ([3, 3], [4, 2], [2, 4], [2, 3, 2], [0, 2]):
        book.add("geqrf", [book.draw("geqrf").uniform(shape)], grad=False)
        book.add("geqrf", [book.draw("geqrf").complex(shape)], grad=False, note=note)
    for transpose in (False, True):
        for left in (True, False):
            for kind in ("uniform", "complex"):
                draw = book.draw("ormqr")
                x = [getattr(draw, kind)(shape) for shape in ([4, 2], [2], [4, 3] if left else [3, 4])]
                book.add("ormqr", x, {"left": left, "transpose": transpose}, grad=False)
    draw = book.draw("ormqr")
    book.add("ormqr", [draw.uniform([2, 3, 2]), draw.uniform([2, 2]), draw.uniform([2, 3, 1])])
    for shape in ([3, 3], [2, 2, 2], [1, 1]):
        book.add("linalg_matrix_sqrth", [positive(book.draw("linalg_matrix_sqrth"), shape)])
        book.add("linalg_matrix_sqrth", [hermitian(book.draw("linalg_matrix_sqrth"), shape)], note=note)
    book.add("linalg_matrix_sqrth", [2.0 * torch.eye(3, dtype=torch.float64)], note="three alike")
    book.add("linalg_matrix_sqrth", [positive(book.draw("linalg_matrix_sqrth"), [3, 3], "f32")], **SINGLE)
    kinds = [("uniform", False), ("uniform", True), ("complex", False), ("complex", True)]
    for op in ("linalg_ldl_factor", "linalg_ldl_factor_ex"):
        for shape in ([3, 3], [1, 1], [2, 4, 4], [0, 2, 2]):
            for kind, conjugate in kinds:
                x = getattr(book.draw(op), kind)(shape)
                book.add(op, [x + (x.mH if conjugate else x.mT)], {"hermitian": conjugate}, grad=False)
        book.add(op, [tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 0.0]])], grad=False, note="zeros on the diagonal")
    book.add("linalg_ldl_factor_ex", [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="zeros")
    for shape, b in (([3, 3], [3, 2]), ([5, 5], [5, 1]), ([2, 3, 3], [2, 3, 1])):
        for kind, conjugate in kinds:
            draw = book.draw("linalg_ldl_solve")
            x = getattr(draw, kind)(shape)
            ld, pivots = torch.linalg.ldl_factor(x + (x.mH if conjugate else x.mT), hermitian=conjugate)
            right = getattr(draw, kind)(b)
            book.add("linalg_ldl_solve", [ld, pivots, right], {"hermitian": conjugate}, grad=False)
    for shape in ([3, 3], [4, 2], [2, 3, 2], [1, 1]):
        for kind in ("uniform", "complex"):
            book.add("linalg_polar", [getattr(book.draw("linalg_polar"), kind)(shape)])
    book.add("linalg_polar", [torch.eye(3, dtype=torch.float64) * 2], note="three alike")
    book.add("linalg_polar", [book.draw("linalg_polar").uniform([3, 3], dtype="f32")], **SINGLE)
