"""Linear algebra: products, contractions, linear systems, decompositions and norms."""

import torch

from .core import DTYPES, HALVES, INF, NAN, tensor


def tensordot(a, b, dims=2):
    """torch.tensordot with a flat list of dimensions: those of the first tensor, then those of the second."""
    if isinstance(dims, list):
        half = len(dims) // 2
        dims = (dims[:half], dims[half:])
    return torch.tensordot(a, b, dims)


def turned(first, *others):
    """Multiplies columns by 1 or -1, so that the largest element of each column of the first matrix is positive."""
    at = first.detach().abs().argmax(-2, keepdim=True)
    sign = torch.where(first.detach().gather(-2, at) < 0, -1.0, 1.0).to(first.dtype)
    return [x * sign for x in (first, *others)]


def eigh(x, uplo="L"):
    values, vectors = torch.linalg.eigh(x, UPLO=uplo)
    return values, turned(vectors)[0] if vectors.numel() else vectors


def svd(x, full_matrices=True):
    u, s, vh = torch.linalg.svd(x, full_matrices=full_matrices)
    if not s.numel():
        return u, s, vh
    if x.shape[-2] >= x.shape[-1]:
        v, u = turned(vh.mT, u)
    else:
        u, v = turned(u, vh.mT)
    return u, s, v.mT


def reduced_svd(x, some=True, compute_uv=True):
    if not compute_uv:
        return torch.svd(x, some, False)
    u, s, vh = svd(x, not some)
    return u, s, vh.mT


def order(word):
    return word if word in (None, "fro", "nuc") else float(word) if isinstance(word, str) else word


def lstsq(a, b, rcond=None, driver="gelsy"):
    return tuple(torch.linalg.lstsq(a, b, rcond=rcond, driver=driver))


def triangle(x, upper):
    return x.triu() if upper else x.tril()


FUNCTIONS = {
    "linalg_solve": torch.linalg.solve,
    "linalg_solve_ex": lambda a, b: tuple(torch.linalg.solve_ex(a, b)),
    "linalg_solve_triangular": lambda a, b, upper, left=True, unitriangular=False: torch.linalg.solve_triangular(
        triangle(a, upper), b, upper=upper, left=left, unitriangular=unitriangular
    ),
    "inverse": torch.inverse,
    "linalg_inv_ex": lambda x: tuple(torch.linalg.inv_ex(x)),
    "det": torch.det,
    "slogdet": lambda x: tuple(torch.slogdet(x)),
    "logdet": torch.logdet,
    "linalg_lu": lambda x: tuple(torch.linalg.lu(x)),
    "linalg_lu_factor": lambda x: tuple(torch.linalg.lu_factor(x)),
    "linalg_lu_solve": torch.linalg.lu_solve,
    "linalg_cholesky": torch.linalg.cholesky,
    "linalg_cholesky_ex": lambda x, upper=False: tuple(torch.linalg.cholesky_ex(x, upper=upper)),
    "cholesky_solve": lambda b, l, upper=False: torch.cholesky_solve(b, triangle(l, upper), upper),
    "cholesky_inverse": lambda l, upper=False: torch.cholesky_inverse(triangle(l, upper), upper),
    "linalg_qr": lambda x, mode="reduced": tuple(torch.linalg.qr(x, mode)),
    "linalg_householder_product": torch.linalg.householder_product,
    "linalg_lstsq": lstsq,
    "linalg_eigh": eigh,
    "linalg_eigvalsh": lambda x, uplo="L": torch.linalg.eigvalsh(x, UPLO=uplo),
    "linalg_svd": svd,
    "svd": reduced_svd,
    "linalg_svdvals": torch.linalg.svdvals,
    "linalg_pinv": torch.linalg.pinv,
    "linalg_matrix_rank": torch.linalg.matrix_rank,
    "matrix_power": torch.matrix_power,
    "matrix_exp": torch.matrix_exp,
    "linalg_tensorinv": torch.linalg.tensorinv,
    "linalg_tensorsolve": torch.linalg.tensorsolve,
    "linalg_vector_norm": lambda x, ord=2.0, dim=None, keepdim=False, dtype=None: torch.linalg.vector_norm(
        x, float(ord), dim, keepdim, dtype=DTYPES.get(dtype)
    ),
    "linalg_matrix_norm": lambda x, ord="fro", dim=(-2, -1), keepdim=False: torch.linalg.matrix_norm(x, order(ord), dim, keepdim),
    "linalg_norm": lambda x, ord=None, dim=None, keepdim=False: torch.linalg.norm(x, order(ord), dim, keepdim),
    "linalg_cond": lambda x, p=None: torch.linalg.cond(x, order(p)),
    "dot": torch.dot,
    "vdot": torch.vdot,
    "inner": torch.inner,
    "outer": torch.outer,
    "mv": torch.mv,
    "mm": torch.mm,
    "bmm": torch.bmm,
    "addmm": torch.addmm,
    "addmv": torch.addmv,
    "addr": torch.addr,
    "addbmm": torch.addbmm,
    "baddbmm": torch.baddbmm,
    "einsum": lambda *operands, equation: torch.einsum(equation, *operands),
    "tensordot": tensordot,
    "linalg_multi_dot": lambda *tensors: torch.linalg.multi_dot(tensors),
    "linalg_cross": torch.linalg.cross,
    "linalg_vecdot": torch.linalg.vecdot,
    "kron": torch.kron,
    "trace": torch.trace,
    "linalg_diagonal": torch.linalg.diagonal,
    "linalg_vander": torch.linalg.vander,
}
NAMES = {
    "linalg_solve": ["self", "B"],
    "linalg_solve_ex": ["self", "B"],
    "linalg_solve_triangular": ["self", "B"],
    "linalg_lu_solve": ["self", "pivots", "B"],
    "cholesky_solve": ["self", "L"],
    "linalg_householder_product": ["self", "tau"],
    "linalg_lstsq": ["self", "B"],
    "linalg_tensorsolve": ["self", "B"],
    "outer": ["self", "vec2"],
    "mv": ["self", "vec"],
    "mm": ["self", "mat2"],
    "bmm": ["self", "mat2"],
    "addmm": ["self", "mat1", "mat2"],
    "addmv": ["self", "mat", "vec"],
    "addr": ["self", "vec1", "vec2"],
    "addbmm": ["self", "batch1", "batch2"],
    "baddbmm": ["self", "batch1", "batch2"],
    "einsum": ["operands"],
    "linalg_multi_dot": ["tensors"],
    "linalg_vecdot": ["self", "y"],
}

PRODUCTS = {
    "dot": [[[4], [4]], [[0], [0]]],
    "vdot": [[[4], [4]], [[0], [0]]],
    "inner": [[[3], [3]], [[2, 3], [3]], [[2, 3], [2, 2, 3]], [[], [2, 3]], [[2, 0], [3, 0]]],
    "outer": [[[3], [2]], [[0], [2]]],
    "mv": [[[2, 3], [3]], [[0, 3], [3]], [[3, 0], [0]]],
    "mm": [[[2, 3], [3, 4]], [[2, 0], [0, 3]]],
    "bmm": [[[2, 2, 3], [2, 3, 2]], [[0, 2, 3], [0, 3, 2]]],
    "kron": [[[2, 3], [2, 2]], [[2], [2, 2]], [[2, 2, 1], [2, 3]], [[], [3]], [[0, 2], [2, 2]]],
}
SUMS = {
    "addmm": [[[2, 4], [2, 3], [3, 4]], [[4], [2, 3], [3, 4]], [[2, 1], [2, 3], [3, 4]], [[2, 3], [2, 0], [0, 3]]],
    "addmv": [[[2], [2, 3], [3]], [[], [2, 3], [3]]],
    "addr": [[[2, 3], [2], [3]], [[3], [2], [3]]],
    "addbmm": [[[2, 2], [3, 2, 3], [3, 3, 2]], [[2], [2, 2, 3], [2, 3, 2]]],
    "baddbmm": [[[2, 2, 2], [2, 2, 3], [2, 3, 2]], [[2, 1], [2, 2, 3], [2, 3, 2]]],
}


def product_cases(book):
    for op, all_shapes in PRODUCTS.items():
        for shapes in all_shapes:
            draw = book.draw(op)
            book.add(op, [draw.uniform(shape) for shape in shapes])
        for dtype in ("f32", *HALVES):
            draw = book.draw(op)
            book.add(op, [draw.uniform(shape, dtype=dtype) for shape in all_shapes[0]])
        for dtype in ("i64", "i32", "u8"):
            draw = book.draw(op)
            book.add_if_defined(op, [draw.integers(shape, 0, 5, dtype) for shape in all_shapes[0]])
        special = [torch.ones(shape, dtype=torch.float64) for shape in all_shapes[0]]
        special[0].view(-1)[0], special[1].view(-1)[-1] = INF, NAN
        book.add(op, special, grad=False, note="inf and NaN")
    for op, all_shapes in SUMS.items():
        for shapes in all_shapes:
            for args in ({}, {"beta": 0.5, "alpha": -2.0}, {"beta": 0, "alpha": 3}):
                draw = book.draw(op)
                inputs = [draw.uniform(shape) for shape in shapes]
                if args.get("beta") == 0 and inputs[0].numel():
                    inputs[0].view(-1)[0] = NAN
                book.add(op, inputs, args)
        for dtype in ("f32", *HALVES):
            draw = book.draw(op)
            book.add(op, [draw.uniform(shape, dtype=dtype) for shape in all_shapes[0]])
        draw = book.draw(op)
        book.add(op, [draw.integers(shape, -3, 5) for shape in all_shapes[0]], {"beta": 2, "alpha": 3})


EQUATIONS = [
    ("ij,jk->ik", [[2, 3], [3, 4]]),
    ("bij,bjk->bik", [[2, 2, 3], [2, 3, 2]]),
    ("bqhd,bkhd->bhqk", [[1, 2, 2, 3], [1, 3, 2, 3]]),
    ("ij->ji", [[2, 3]]),
    ("ij->", [[2, 3]]),
    ("ba", [[2, 3]]),
    ("ii->i", [[3, 3]]),
    ("ii", [[3, 3]]),
    ("iji->ij", [[2, 3, 2]]),
    ("iij,j->i", [[2, 2, 3], [3]]),
    ("i,j", [[2], [3]]),
    ("i,i", [[3], [3]]),
    ("Ab,bA", [[2, 3], [3, 2]]),
    ("...ij,...jk->...ik", [[2, 1, 2, 3], [2, 3, 2]]),
    ("...ij,...jk", [[2, 2, 3], [3, 2]]),
    ("i...->...", [[2, 3]]),
    ("...i,i...->...", [[2, 3], [3, 2]]),
    ("ij,jk,kl->il", [[2, 3], [3, 4], [4, 2]]),
    ("ijk,jl,kl,i->l", [[2, 3, 2], [3, 2], [2, 2], [2]]),
    ("a,b,c->abc", [[2], [3], [2]]),
    ("ij,jk", [[2, 1], [3, 2]]),
    ("ij,jk->ik", [[0, 3], [3, 2]]),
    ("ij,jk->ik", [[2, 0], [0, 3]]),
    (" i j , j -> i ", [[2, 3], [3]]),
    (",i", [[], [3]]),
]


def contraction_cases(book):
    for equation, shapes in EQUATIONS:
        draw = book.draw("einsum")
        book.add("einsum", [draw.uniform(shape) for shape in shapes], {"equation": equation})
    for dtype in ("f32", *HALVES):
        draw = book.draw("einsum")
        book.add("einsum", [draw.uniform([2, 3], dtype=dtype), draw.uniform([3, 2], dtype=dtype)], {"equation": "ij,jk->ki"})
    draw = book.draw("einsum")
    book.add("einsum", [draw.integers([2, 3], -3, 5), draw.integers([3], -3, 5)], {"equation": "ij,j->i"})
    for shapes, dims in (
        ([[2, 3, 4], [3, 4, 2]], 2),
        ([[2, 3, 4], [3, 4, 2]], [1, 0]),
        ([[2, 3, 4], [4, 3]], [1, -1, 1, 0]),
        ([[2], [3]], 0),
        ([[2, 1], [3, 2]], 1),
        ([[2, 0], [0, 3]], 1),
    ):
        draw = book.draw("tensordot")
        book.add("tensordot", [draw.uniform(shape) for shape in shapes], {"dims": dims})
    for dtype in ("f32", *HALVES):
        draw = book.draw("tensordot")
        book.add("tensordot", [draw.uniform([2, 3], dtype=dtype), draw.uniform([3, 2], dtype=dtype)], {"dims": 1})
    draw = book.draw("tensordot")
    book.add("tensordot", [draw.integers([2, 3], -3, 5), draw.integers([3], -3, 5)], {"dims": 1})
    for shapes in ([[2, 3], [3, 4]], [[2, 5], [5, 1], [1, 3]], [[3], [3, 2], [2, 4], [4]], [[3], [3]], [[2, 3], [3, 0], [0, 2]]):
        draw = book.draw("linalg_multi_dot")
        book.add("linalg_multi_dot", [draw.uniform(shape) for shape in shapes])
    for dtype in ("f32", *HALVES):
        draw = book.draw("linalg_multi_dot")
        book.add("linalg_multi_dot", [draw.uniform(shape, dtype=dtype) for shape in ([2, 3], [3, 2], [2])])


def vector_cases(book):
    for shapes, dim in (([[3], [3]], -1), ([[2, 3], [1, 3]], -1), ([[3, 2], [3, 2]], 0), ([[2, 3, 0], [2, 3, 0]], 1)):
        draw = book.draw("linalg_cross")
        book.add("linalg_cross", [draw.uniform(shape) for shape in shapes], {"dim": dim})
    for shapes, dim in (([[3], [3]], -1), ([[2, 3], [3]], -1), ([[2, 3], [2, 1]], 0), ([[2, 0], [2, 0]], -1)):
        draw = book.draw("linalg_vecdot")
        book.add("linalg_vecdot", [draw.uniform(shape) for shape in shapes], {"dim": dim})
    for op in ("linalg_cross", "linalg_vecdot"):
        for dtype in ("f32", *HALVES):
            draw = book.draw(op)
            book.add(op, [draw.uniform([2, 3], dtype=dtype), draw.uniform([2, 3], dtype=dtype)])
        for dtype in ("i64", "i32"):
            draw = book.draw(op)
            book.add_if_defined(op, [draw.integers([2, 3], -3, 5, dtype), draw.integers([2, 3], -3, 5, dtype)])
    for shape in ([3, 3], [2, 4], [4, 1], [0, 3]):
        book.add("trace", [book.draw("trace").uniform(shape)])
    for dtype in ("f32", *HALVES):
        book.add_if_defined("trace", [book.draw("trace").uniform([3, 3], dtype=dtype)])
    for dtype in ("i64", "i32", "u8"):
        book.add("trace", [book.draw("trace").integers([3, 3], 0, 9, dtype)])
    for args in ({}, {"offset": 1}, {"offset": -2}, {"offset": 9}, {"offset": 1, "dim1": 2, "dim2": 0}, {"dim1": 0, "dim2": 1}):
        book.add("linalg_diagonal", [book.draw("linalg_diagonal").uniform([2, 3, 4])], args, layout=True)
    book.add("linalg_diagonal", [book.draw("linalg_diagonal").integers([2, 3], 0, 9, "i32")], layout=True)
    for shape, n in (([3], None), ([2, 2], 5), ([1], 7), ([2, 0], 3)):
        book.add("linalg_vander", [book.draw("linalg_vander").uniform(shape)], {"N": n})
    book.add("linalg_vander", [tensor([0.0, -1.0, 2.0])], {"N": 4}, note="powers of zero")
    book.add("linalg_vander", [tensor([INF, NAN, -INF])], {"N": 3}, grad=False)
    for dtype in ("f32", *HALVES):
        book.add_if_defined("linalg_vander", [book.draw("linalg_vander").uniform([3], dtype=dtype)], {"N": 4})
    book.add("linalg_vander", [tensor([1, 2, -3], "i64")], {"N": 4})
    book.add("linalg_vander", [tensor([1, 2, 30], "u8")], {"N": 4}, note="beyond its dtype")
    book.add("linalg_vander", [tensor(1.5)], {"N": 3}, note="a number")


def regular(draw, shape, dtype="f64"):
    """Well-conditioned square matrices."""
    return (draw.uniform(shape, -0.5, 0.5) + torch.diag_embed(draw.uniform(shape[:-1], 1.2, 3.0))).round(decimals=4).to(DTYPES[dtype])


def positive(draw, shape, dtype="f64"):
    """Symmetric, positive definite matrices."""
    x = regular(draw, shape)
    return (x @ x.mT).round(decimals=4).to(DTYPES[dtype])


# Tolerances of f32: rounding errors grow with the condition number.
SINGLE = {"rtol": 1e-3, "atol": 1e-4}


def square_cases(book):
    swapped = tensor([[0.0, 2.0, 1.0], [3.0, 0.5, 0.0], [1.0, 1.0, 4.0]])
    for op in ("inverse", "linalg_inv_ex", "det", "slogdet", "logdet", "linalg_lu", "linalg_lu_factor", "matrix_exp", "linalg_cond"):
        for shape in ([3, 3], [1, 1], [2, 2, 2], [0, 2, 2]):
            book.add(op, [regular(book.draw(op), shape)], grad=False if op == "linalg_cond" and 0 in shape else "auto")
        book.add(op, [swapped], note="rows exchanged", grad=False if op == "logdet" else "auto")
        book.add(op, [regular(book.draw(op), [3, 3], "f32")], **SINGLE)
        if op != "linalg_cond":
            book.add(op, [torch.zeros([0, 0], dtype=torch.float64)], note="empty")
    for op in ("linalg_lu", "linalg_lu_factor"):
        for shape in ([2, 4], [4, 2], [2, 3, 2]):
            book.add(op, [book.draw(op).uniform(shape)])
    # PyTorch's derivative is zero here, which is wrong.
    book.add("det", [tensor([[1.0, 2.0], [2.0, 4.0]])], grad=False, note="singular")
    book.add("det", [torch.zeros([2, 2], dtype=torch.float64)], note="rank 0")
    book.add("slogdet", [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="singular")
    book.add("logdet", [torch.diag(tensor([1.0, -1.0]))], grad=False, note="negative")
    book.add("logdet", [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="singular")
    book.add("linalg_lu", [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="singular")
    book.add("matrix_exp", [tensor([[0.0, 30.0], [-30.0, 0.0]])], note="large", rtol=1e-7, atol=1e-7)
    book.add("matrix_exp", [torch.zeros([2, 2], dtype=torch.float64)])
    both = torch.stack([tensor([[0.0, 12.0], [-5.0, 0.1]]), tensor([[1e-3, 2e-3], [0.0, 1e-3]])])
    book.add("matrix_exp", [both], note="large and small")
    for n in (0, 1, 2, 3, 6, -1, -3):
        book.add("matrix_power", [regular(book.draw("matrix_power"), [2, 2, 2])], {"n": n}, grad="auto" if n else False)
    book.add("matrix_power", [book.draw("matrix_power").integers([2, 2], -3, 4)], {"n": 4})
    for p in ("fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"):
        # PyTorch cannot differentiate the orders that use the inverse, because it modifies the inverse in place.
        grad = "auto" if p in ("2", "-2") else False
        book.add("linalg_cond", [regular(book.draw("linalg_cond"), [2, 2])], {"p": p}, grad=grad)
    book.add("linalg_cond", [book.draw("linalg_cond").uniform([3, 2])])
    for shape, p in ([0, 3], None), ([2, 3, 0], None), ([2, 0, 0], "fro"):
        book.add("linalg_cond", [torch.zeros(shape, dtype=torch.float64)], {"p": p}, grad=False, note="no elements")
    book.add("linalg_cond", [torch.zeros([2, 2], dtype=torch.float64)], {"p": "1"}, grad=False, note="singular")


def solve_cases(book):
    for op in ("linalg_solve", "linalg_solve_ex"):
        for a, b in (([3, 3], [3]), ([3, 3], [3, 2]), ([2, 2, 2], [2, 2]), ([2, 2, 2], [2, 1]), ([2, 2], [2, 2, 1]), ([0, 0], [0, 2])):
            draw = book.draw(op)
            book.add(op, [regular(draw, a), draw.uniform(b)])
        draw = book.draw(op)
        book.add(op, [regular(draw, [3, 3], "f32"), draw.uniform([3, 2], dtype="f32")], **SINGLE)
    draw = book.draw("linalg_solve")
    book.add("linalg_solve", [regular(draw, [3, 3]), draw.uniform([2, 3])], {"left": False})
    for upper in (False, True):
        for a, b, more in (
            ([3, 3], [3, 2], {}),
            ([2, 2, 2], [2, 1], {}),
            ([3, 3], [2, 3], {"left": False}),
            ([3, 3], [3, 2], {"unitriangular": True}),
            ([2, 2], [2, 3, 2], {"left": False, "unitriangular": True}),
        ):
            draw = book.draw("linalg_solve_triangular")
            book.add("linalg_solve_triangular", [regular(draw, a), draw.uniform(b)], {"upper": upper, **more})
    draw = book.draw("linalg_solve_triangular")
    book.add("linalg_solve_triangular", [regular(draw, [3, 3], "f32"), draw.uniform([3, 2], dtype="f32")], {"upper": True}, **SINGLE)
    for left in (True, False):
        for adjoint in (True, False):
            draw = book.draw("linalg_lu_solve")
            lu, pivots = torch.linalg.lu_factor(draw.uniform([3, 3]))
            b = draw.uniform([3, 2] if left else [2, 3])
            book.add("linalg_lu_solve", [lu.round(decimals=4), pivots, b], {"left": left, "adjoint": adjoint})
    for shape, b in (([6, 2, 3], [6]), ([2, 3, 6], [2, 3])):
        draw = book.draw("linalg_tensorsolve")
        book.add("linalg_tensorsolve", [regular(draw, [6, 6]).reshape(shape), draw.uniform(b)])
    draw = book.draw("linalg_tensorsolve")
    a = regular(draw, [6, 6]).reshape([6, 2, 3]).permute(1, 0, 2)
    book.add("linalg_tensorsolve", [a, draw.uniform([6])], {"dims": [0, 2]})
    for shape, ind in (([2, 3, 6], 2), ([6, 3, 2], 1), ([2, 2, 4], 2)):
        n = 6 if 3 in shape else 4
        book.add("linalg_tensorinv", [regular(book.draw("linalg_tensorinv"), [n, n]).reshape(shape)], {"ind": ind})


def cholesky_cases(book):
    for op in ("linalg_cholesky", "linalg_cholesky_ex"):
        for shape in ([3, 3], [1, 1], [2, 2, 2], [0, 2, 2], [0, 0]):
            book.add(op, [positive(book.draw(op), shape)])
        book.add(op, [positive(book.draw(op), [3, 3])], {"upper": True})
        book.add(op, [positive(book.draw(op), [3, 3], "f32")], **SINGLE)
    for b, l, upper in (([3, 2], [3, 3], False), ([3, 2], [3, 3], True), ([2, 1], [2, 2, 2], False)):
        draw = book.draw("cholesky_solve")
        book.add("cholesky_solve", [draw.uniform(b), regular(draw, l)], {"upper": upper})
    for shape, upper in (([3, 3], False), ([3, 3], True), ([2, 2, 2], False)):
        book.add("cholesky_inverse", [regular(book.draw("cholesky_inverse"), shape)], {"upper": upper})


def orthogonal_cases(book):
    for shape in ([3, 3], [4, 2], [2, 4], [2, 3, 2], [1, 1], [0, 2, 2]):
        book.add("linalg_qr", [book.draw("linalg_qr").uniform(shape)])
    book.add("linalg_qr", [book.draw("linalg_qr").uniform([2, 4])], {"mode": "complete"})
    book.add("linalg_qr", [book.draw("linalg_qr").uniform([4, 2])], {"mode": "complete"}, grad=False)
    book.add("linalg_qr", [book.draw("linalg_qr").uniform([4, 2])], {"mode": "r"}, grad=False)
    book.add("linalg_qr", [book.draw("linalg_qr").uniform([4, 3], dtype="f32")], **SINGLE)
    book.add("linalg_qr", [tensor([[0.0, 0.0], [0.0, 1.0]])], grad=False, note="a zero column")
    for a, t in (([3, 3], [3]), ([4, 2], [2]), ([2, 3, 2], [2, 1])):
        draw = book.draw("linalg_householder_product")
        book.add("linalg_householder_product", [draw.uniform(a), draw.uniform(t)])
    for a, b, driver in (
        ([4, 2], [4, 2], "gelsy"),
        ([4, 2], [4, 2], "gels"),
        ([4, 2], [4, 2], "gelsd"),
        ([2, 3, 2], [2, 3, 1], "gelsy"),
        ([2, 4], [2, 1], "gelsy"),
        ([2, 4], [2, 1], "gels"),
        ([2, 3, 2], [2, 3], "gelsy"),
    ):
        draw = book.draw("linalg_lstsq")
        book.add("linalg_lstsq", [draw.uniform(a), draw.uniform(b)], {"driver": driver}, grad=False)
    low = tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    book.add("linalg_lstsq", [low, tensor([[1.0], [0.0], [2.0]])], grad=False, note="rank 1")


def spectral_cases(book):
    for op in ("linalg_eigh", "linalg_eigvalsh"):
        for shape in ([3, 3], [1, 1], [2, 2, 2], [5, 5], [0, 2, 2], [0, 0]):
            book.add(op, [positive(book.draw(op), shape)])
        lower = book.draw(op).uniform([3, 3])
        book.add(op, [lower], {"uplo": "L"}, note="one triangle is read")
        book.add(op, [lower], {"uplo": "U"}, note="one triangle is read")
        book.add(op, [positive(book.draw(op), [3, 3], "f32")], **SINGLE)
    book.add("linalg_eigvalsh", [torch.diag(tensor([2.0, 2.0, 1.0]))], grad=False, note="two alike")
    book.add("linalg_eigvalsh", [torch.zeros([2, 2], dtype=torch.float64)], grad=False)
    for shape in ([3, 3], [4, 2], [2, 4], [2, 3, 2], [1, 1], [0, 3, 2]):
        x = book.draw("svd").uniform(shape)
        book.add("svd", [x])
        book.add("linalg_svd", [x], {"full_matrices": False})
        book.add("linalg_svdvals", [x])
        book.add("linalg_pinv", [x])
        book.add("linalg_matrix_rank", [x], grad=False)
    book.add("svd", [book.draw("svd").uniform([3, 3])], {"some": False})
    book.add("svd", [book.draw("svd").uniform([2, 4, 3])], {"compute_uv": False})
    for op in ("svd", "linalg_svd", "linalg_svdvals", "linalg_pinv"):
        book.add(op, [book.draw(op).uniform([3, 3], dtype="f32")], **SINGLE)
    book.add("linalg_svd", [book.draw("linalg_svd").uniform([2, 3, 3])])
    book.add("linalg_svdvals", [torch.diag(tensor([2.0, -2.0, 1.0]))], grad=False, note="two alike")
    book.add("linalg_svdvals", [tensor([[1.0, 2.0], [2.0, 4.0]])], grad=False, note="singular", atol=1e-9)
    low = tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    for op in ("linalg_pinv", "linalg_matrix_rank"):
        book.add(op, [low], grad=False, note="rank 1")
        book.add(op, [torch.diag(tensor([3.0, 1.0, 0.01]))], {"atol": 0.1}, grad=False)
        book.add(op, [torch.diag(tensor([3.0, 1.0, 0.01]))], {"rtol": 0.5}, grad=False)
        book.add(op, [positive(book.draw(op), [3, 3])], {"hermitian": True}, grad=False)
        book.add(op, [torch.zeros([2, 0, 3], dtype=torch.float64)], grad=False, note="empty")
        book.add(op, [torch.zeros([2, 2], dtype=torch.float64)], grad=False, note="zeros")


def norm_cases(book):
    special = tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 2.0], [0.0, 3.0, -4.0]])
    for ord in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, "inf", "-inf"):
        for args in ({}, {"dim": 1}, {"dim": [0, 1], "keepdim": True}):
            grad = "auto" if ord else False
            book.add("linalg_vector_norm", [book.draw("linalg_vector_norm").uniform([3, 2])], {"ord": ord, **args}, grad=grad)
        if ord not in (-1.0, 0.5, 0.0):
            book.add("linalg_vector_norm", [special], {"ord": ord, "dim": 1}, note="zeros and ties")
    book.add("linalg_vector_norm", [special], {"ord": -1.0, "dim": 1}, grad=False, note="zeros")
    book.add("linalg_vector_norm", [torch.zeros([2, 0], dtype=torch.float64)], {"dim": 1}, note="empty")
    book.add("linalg_vector_norm", [tensor([INF, 1.0]), ], {"ord": 2.0}, grad=False)
    book.add("linalg_vector_norm", [tensor([NAN, 1.0]), ], {"ord": "inf"}, grad=False)
    book.add("linalg_vector_norm", [tensor(-3.0)])
    for dtype in ("f32", *HALVES):
        book.add("linalg_vector_norm", [book.draw("linalg_vector_norm").uniform([3, 4], dtype=dtype)], {"dim": 1})
    book.add("linalg_vector_norm", [book.draw("linalg_vector_norm").uniform([3], dtype="f32")], {"dtype": "f64"})
    for ord in ("fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"):
        for args in ({}, {"dim": [0, 2]}, {"dim": [2, 1], "keepdim": True}):
            book.add("linalg_matrix_norm", [book.draw("linalg_matrix_norm").uniform([2, 3, 2])], {"ord": ord, **args})
    for shape in ([5, 0], [0, 5], [2, 0, 0]):
        for ord in ("fro", "nuc", "1", "2", "inf"):
            book.add("linalg_matrix_norm", [torch.zeros(shape, dtype=torch.float64)], {"ord": ord}, grad=False, note="no elements")
    book.add("linalg_matrix_norm", [torch.zeros([0, 5], dtype=torch.float64)], {"ord": "-1"}, grad=False, note="no elements")
    for args in (
        {},
        {"dim": 1},
        {"dim": [0, 1]},
        {"ord": "1"},
        {"ord": "nuc", "keepdim": True},
        {"ord": "3", "dim": 0},
        {"ord": "inf", "dim": [1, 0]},
        {"keepdim": True},
    ):
        book.add("linalg_norm", [book.draw("linalg_norm").uniform([2, 3])], args)
    book.add("linalg_norm", [book.draw("linalg_norm").uniform([3])], {"ord": "1"})
    book.add("linalg_norm", [book.draw("linalg_norm").uniform([2, 2, 2])])


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    square_cases(book)
    solve_cases(book)
    cholesky_cases(book)
    orthogonal_cases(book)
    spectral_cases(book)
    norm_cases(book)
    product_cases(book)
    contraction_cases(book)
    vector_cases(book)
