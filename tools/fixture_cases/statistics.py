"""Statistics, scans, sorting, sets and histograms."""

import torch

from .core import DTYPES, HALVES, INF, NAN, tensor

FULL = {"dim": None, "keepdim": False}


def dims_of(x, dim):
    return list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)


def nansum(x, dim=None, keepdim=False):
    return torch.nansum(x, dims_of(x, dim), keepdim) if x.dim() else torch.nansum(x)


def nanmean(x, dim=None, keepdim=False):
    return torch.nanmean(x, dims_of(x, dim), keepdim) if x.dim() else torch.nanmean(x)


def std(x, dim=None, keepdim=False, correction=1):
    return torch.std(x, dim, correction=correction, keepdim=keepdim)


def truth(total):
    """A reduction with a bool result: PyTorch keeps uint8."""

    def call(x, dim=None, keepdim=False):
        return (total(x) if dim is None and not keepdim else total(x, dim, keepdim)).to(torch.bool)

    return call


def aminmax(x, dim=None, keepdim=False):
    if dim is None:
        return tuple(torch.aminmax(x))
    return tuple(torch.aminmax(x, dim=dim, keepdim=keepdim))


def norm(x, dim=None, keepdim=False, p=2.0, dtype=None):
    return torch.norm(x, p=p, dim=dim, keepdim=keepdim, dtype=DTYPES[dtype] if dtype else None)


def median(total, along):
    def call(x, dim=None, keepdim=False):
        return total(x) if dim is None else along(x, dim, keepdim).values

    return call


def quantile(by):
    def call(x, q, dim=None, keepdim=False, interpolation="linear"):
        return by(x, q, dim, keepdim, interpolation=interpolation)

    return call


def initial(scan, number):
    def call(x, dim, include_initial=False):
        y = scan(x, dim)
        if not include_initial:
            return y
        y = y.reshape(1) if y.dim() == 0 else y
        shape = list(y.shape)
        shape[dim] = 1
        return torch.cat([torch.full(shape, number, dtype=y.dtype), y], dim)

    return call


def trapezoid(by):
    def call(y, x=None, dx=1.0, dim=-1):
        return by(y, x, dim=dim) if x is not None else by(y, dx=dx, dim=dim)

    return call


def gradient(x, spacing=1.0, dim=None, edge_order=1):
    more = {} if dim is None else {"dim": dim}
    return tuple(torch.gradient(x, spacing=spacing, edge_order=edge_order, **more))


def gradient_at(x, *places, dim=None, edge_order=1):
    more = {} if dim is None else {"dim": dim}
    return tuple(torch.gradient(x, spacing=tuple(places), edge_order=edge_order, **more))


def unique(x, dim=None):
    return torch.unique(x, dim=dim)


def unique_all(x, dim=None):
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=dim)
    flat = inverse.reshape(-1)
    first = torch.tensor([int((flat == i).nonzero()[0]) for i in range(len(counts))], dtype=torch.int64)
    return values, first, inverse, counts


def histogram(x, bins_tensor=None, weight=None, bins=None, range=None, density=False):
    more = {} if range is None else {"range": tuple(range)}
    given = bins if bins_tensor is None else bins_tensor
    return tuple(torch.histogram(x, given, weight=weight, density=density, **more))


def histogramdd(x, weight=None, bins=None, range=None, density=False):
    more = {} if range is None else {"range": range}
    bins = bins * x.shape[-1] if len(bins) == 1 else bins
    hist, edges = torch.histogramdd(x, bins, weight=weight, density=density, **more)
    return (hist, *edges)


FUNCTIONS = {
    "all": truth(torch.all),
    "any": truth(torch.any),
    "count_nonzero": lambda x, dim=None: torch.count_nonzero(x, dim),
    "nansum": nansum,
    "nanmean": nanmean,
    "std": std,
    "std_mean": lambda x, **args: (std(x, **args), torch.mean(x, args.get("dim"), args.get("keepdim", False))),
    "aminmax": aminmax,
    "norm": norm,
    "dist": lambda x, y, p=2.0: torch.dist(x, y, p),
    "renorm": lambda x, p, dim, maxnorm: torch.renorm(x, p, dim, maxnorm),
    "median": median(torch.median, torch.median),
    "nanmedian": median(torch.nanmedian, torch.nanmedian),
    "median_with_indices": lambda x, dim, keepdim=False: tuple(torch.median(x, dim, keepdim)),
    "nanmedian_with_indices": lambda x, dim, keepdim=False: tuple(torch.nanmedian(x, dim, keepdim)),
    "mode": lambda x, dim=-1, keepdim=False: tuple(torch.mode(x, dim, keepdim)),
    "kthvalue": lambda x, k, dim=-1, keepdim=False: tuple(torch.kthvalue(x, k, dim, keepdim)),
    "quantile": quantile(torch.quantile),
    "nanquantile": quantile(torch.nanquantile),
    "cumprod": lambda x, dim: torch.cumprod(x, dim),
    "logcumsumexp": lambda x, dim: torch.logcumsumexp(x, dim),
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
    "cumulative_sum": initial(torch.cumsum, 0),
    "cumulative_prod": initial(torch.cumprod, 1),
    "diff": lambda x, prepend=None, append=None, n=1, dim=-1: torch.diff(x, n, dim, prepend, append),
    "trapezoid": trapezoid(torch.trapezoid),
    "cumulative_trapezoid": trapezoid(torch.cumulative_trapezoid),
    "gradient": gradient,
    "cov": lambda x, fweights=None, aweights=None, correction=1: torch.cov(
        x, correction=correction, fweights=fweights, aweights=aweights
    ),
    "corrcoef": torch.corrcoef,
    "argsort": lambda x, dim=-1, descending=False: torch.argsort(x, dim=dim, descending=descending, stable=True),
    "msort": torch.msort,
    "topk": lambda x, k, dim=-1, largest=True: tuple(torch.topk(x, k, dim, largest)),
    "searchsorted": lambda x, y, sorter=None, right=False, side=None, out_int32=False: torch.searchsorted(
        x, y, right=right, side=side, out_int32=out_int32, sorter=sorter
    ),
    "bucketize": lambda x, y, right=False, out_int32=False: torch.bucketize(x, y, right=right, out_int32=out_int32),
    "unique_values": unique,
    "unique_all": unique_all,
    "unique_counts": lambda x, dim=None: torch.unique(x, return_counts=True, dim=dim),
    "unique_inverse": lambda x, dim=None: torch.unique(x, return_inverse=True, dim=dim),
    "unique_consecutive_all": lambda x, dim=None: torch.unique_consecutive(
        x, return_inverse=True, return_counts=True, dim=dim
    ),
    "isin": lambda x, y, invert=False: torch.isin(x, y, invert=invert),
    "bincount": lambda x, weights=None, minlength=0: torch.bincount(x, weights, minlength),
    "histc": lambda x, bins=100, min=0.0, max=0.0: torch.histc(x, bins, min, max),
    "histogram": histogram,
    "histogramdd": histogramdd,
}
NAMES = {
    "diff": ["self", "prepend", "append"],
    "trapezoid": ["self", "x"],
    "cumulative_trapezoid": ["self", "x"],
    "cov": ["self", "fweights", "aweights"],
    "quantile": ["self", "q"],
    "nanquantile": ["self", "q"],
    "searchsorted": ["self", "input", "sorter"],
    "bucketize": ["self", "boundaries"],
    "isin": ["self", "test_elements"],
    "bincount": ["self", "weights"],
    "histogram": ["self", "bins", "weight"],
    "histogramdd": ["self", "weight"],
}
DIMS = [0, 1, -1, [0, 2], [-1, 0]]


def truth_cases(book):
    for op in ("all", "any", "count_nonzero"):
        keep = {} if op == "count_nonzero" else {"keepdim": True}
        for dtype in ("f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool"):
            x = book.draw(op).integers([2, 3, 4], 0, 2, dtype)
            book.add(op, [x], {}, grad=False)
            book.add(op, [x], {"dim": 1, **keep}, grad=False)
        x = book.draw(op).integers([2, 3, 4], 0, 3)
        for dim in ([0, 2], -1, [-1, 0]):
            book.add(op, [x], {"dim": dim}, grad=False)
        book.add(op, [tensor([])], {}, grad=False, note="empty")
        book.add(op, [torch.zeros([2, 0, 3])], {"dim": 1}, grad=False, note="empty")
        book.add(op, [tensor(3.0)], {}, grad=False, note="0-d")
        book.add(op, [tensor([NAN, 0.0, -0.0, INF])], {}, grad=False, note="extreme")


def nan_cases(book):
    for op in ("nansum", "nanmean"):
        for dim in [None, *DIMS]:
            x = book.draw(op).uniform([2, 3, 4])
            x[0, 1, 2] = x[1, 0, 0] = NAN
            book.add(op, [x], {"dim": dim, "keepdim": dim == 1})
        book.add(op, [tensor([[NAN, NAN], [1.0, INF]])], {"dim": 1, "keepdim": False}, grad=False, note="all NaN")
        book.add(op, [torch.zeros([2, 0])], {"dim": 1, "keepdim": False}, grad=False, note="empty")
        book.add(op, [tensor(2.0)], FULL, note="0-d")
        for dtype in HALVES:
            book.add(op, [book.draw(op).uniform([3, 5], dtype=dtype)], {"dim": 0, "keepdim": False}, grad=False)
    book.add("nansum", [book.draw("nansum").integers([2, 3], 0, 9)], {"dim": 1, "keepdim": False}, grad=False)


def std_cases(book):
    for op in ("std", "std_mean"):
        for dim in [None, *DIMS]:
            for correction in (1, 0):
                x = book.draw(op).uniform([2, 3, 4])
                book.add(op, [x], {"dim": dim, "keepdim": dim == 1, "correction": correction})
        book.add(op, [tensor([[2.0, 2.0], [1.0, 3.0]])], {"dim": 1, "correction": 0}, note="no deviation")
        book.add(op, [book.draw(op).uniform([3, 4])], {"dim": 1, "correction": 0.5}, note="no whole number")
        book.add(op, [tensor([[1.0], [2.0]])], {"dim": 1, "correction": 1}, grad=False, note="one element")
        for dtype in HALVES:
            x = book.draw(op).uniform([4, 9], 100.0, 1000.0, dtype)
            book.add(op, [x], {"dim": 1}, grad=False, note="the variance has no room")
    for dim in (None, 0, -1):
        book.add("aminmax", [book.draw("aminmax").distinct([3, 4])], {"dim": dim, "keepdim": dim == 0})
    book.add("aminmax", [tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])], {"dim": 1}, note="ties share the gradient")
    book.add("aminmax", [tensor([[1.0, 3.0, 3.0], [2.0, 2.0, NAN]])], {"dim": 1}, grad=False, note="NaN")
    book.add("aminmax", [book.draw("aminmax").integers([2, 3], -9, 9, "i32")], {"dim": 1}, grad=False)


def norm_cases(book):
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, -2.5, INF, -INF):
        given = "inf" if p == INF else "-inf" if p == -INF else p
        for dim in (None, 1, [0, -1]):
            x = book.draw("norm").away_from_zero([2, 3, 4])
            add_norm(book, x, dim, p, given, grad="auto" if p else False)
        zeros = tensor([[3.0, 0.0, -4.0], [0.0, 0.0, 0.0]])
        add_norm(book, zeros, 1, p, given, grad="auto" if p else False, note="zeros")
        if 0 <= p < INF:
            add_norm(book, torch.zeros([2, 0], dtype=torch.float64), 1, p, given, grad=False, note="empty")
    for dtype in HALVES:
        x = book.draw("norm").uniform([3, 5], 100.0, 300.0, dtype)
        book.add("norm", [x], {"dim": 1, "keepdim": True}, grad=False, note="squares have no room")
    book.add("norm", [book.draw("norm").uniform([2, 3], dtype="f32")], {"dim": 1, "dtype": "f64"})
    book.add("norm", [tensor([1.0, NAN, INF])], {}, grad=False, note="extreme")
    for p in (1.0, 2.0, 3.0):
        book.add("dist", [book.draw("dist").uniform([2, 3]), book.draw("dist").uniform([3])], {"p": p})
        book.add("dist", [tensor([1.0, 2.0]), tensor([1.0, 2.0])], {"p": p}, note="no distance")
    for p, dim, most in ((2.0, 0, 1.0), (1.0, 1, 2.0), (3.0, -1, 0.5), (2.0, 0, 50.0), (2.0, 0, 0.0)):
        book.add("renorm", [book.draw("renorm").uniform([3, 2, 4])], {"p": p, "dim": dim, "maxnorm": most})
    book.add("renorm", [book.draw("renorm").uniform([3, 4], dtype="f32")], {"p": 2.0, "dim": 0, "maxnorm": 1.0})


def add_norm(book, x, dim, p, given, **more):
    """Adds a case of norm with the order `given` in the file, because JSON has no infinities."""
    before = len(book.cases.get("norm", []))
    book.add("norm", [x], {"dim": dim, "keepdim": dim == 1, "p": p}, **more)
    book.cases["norm"][before]["args"]["p"] = given


def median_cases(book):
    for op in ("median", "nanmedian"):
        for shape in ([7], [2, 3], [2, 3, 4], []):
            book.add(op, [book.draw(op).distinct(shape)], {})
        book.add(op, [tensor([[1.0, 3.0, 3.0, 3.0]])], {}, note="ties share the gradient")
        book.add(op, [tensor([1.0, NAN, 3.0])], {}, note="NaN")
        book.add(op, [tensor([NAN, NAN])], {}, grad=False, note="NaN alone")
        for dim in (0, 1, -1):
            book.add(op, [book.draw(op).distinct([2, 3, 4])], {"dim": dim, "keepdim": dim == 1})
        for dtype in ("i64", "u8", "f16", "bf16", "f32"):
            book.add(op, [book.draw(op).integers([3, 4], 0, 100, dtype)], {"dim": 1}, grad=False)
    for op in ("median_with_indices", "nanmedian_with_indices"):
        for dim in (0, 1, -1):
            for keepdim in (False, True):
                book.add(op, [book.draw(op).distinct([2, 3, 4])], {"dim": dim, "keepdim": keepdim})
        x = tensor([[1.0, NAN, 3.0, 2.0], [4.0, 1.0, 2.0, 3.0], [INF, -INF, 0.0, NAN]])
        book.add(op, [x], {"dim": 1}, note="NaN")
        book.add(op, [book.draw(op).uniform([])], {"dim": 0}, note="0-d")
        book.add(op, [book.draw(op).integers([3, 5], 0, 100, "i32")], {"dim": 1}, grad=False)


def choice_cases(book):
    x = tensor([[3.0, 1.0, 3.0, 1.0, 2.0], [5.0, 5.0, 4.0, 0.0, 4.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
    for dim in (0, 1):
        book.add("mode", [x], {"dim": dim, "keepdim": dim == 0}, note="ties")
    book.add("mode", [book.draw("mode").integers([2, 9], 0, 4)], {}, grad=False)
    book.add("mode", [tensor(3.0)], {"dim": 0}, note="0-d")
    for k, dim in ((1, 0), (3, 1), (4, -1)):
        book.add("kthvalue", [book.draw("kthvalue").distinct([3, 3, 4])], {"k": min(k, 3), "dim": dim, "keepdim": k == 3})
    book.add("kthvalue", [tensor([1.0, NAN, -1.0, INF])], {"k": 4}, grad=False, note="NaN is the greatest")
    book.add("kthvalue", [tensor([1.0, NAN, -1.0, INF])], {"k": 3}, grad=False)
    book.add("kthvalue", [book.draw("kthvalue").distinct([9], "f32")], {"k": 5})
    book.add("kthvalue", [tensor(3.0)], {"k": 1}, note="0-d")
    for largest in (True, False):
        for shape, dim, k in (([7], 0, 3), ([3, 4], 0, 2), ([3, 4], -1, 4), ([2, 5, 3], 1, 2), ([1, 300], 1, 5), ([4], 0, 0)):
            args = {"k": k, "dim": dim, "largest": largest}
            book.add("topk", [book.draw("topk").distinct(shape)], args, grad="auto" if k else False)
        for dtype in (*HALVES, "f32", "i64", "i32", "u8"):
            x = torch.arange(12).reshape(2, 6)[:, torch.tensor([3, 0, 5, 1, 4, 2])].to(DTYPES[dtype])
            book.add("topk", [x], {"k": 3, "largest": largest}, grad=False)
        book.add("topk", [tensor([1.0, NAN, INF, -INF, 0.0])], {"k": 3, "largest": largest}, grad=False, note="extreme")
    book.add("topk", [tensor(3.0)], {"k": 1}, note="0-d")


def quantile_cases(book):
    for op in ("quantile", "nanquantile"):
        for how in ("linear", "lower", "higher", "midpoint", "nearest"):
            for q in (0.0, 0.25, 0.5, 0.7, 1.0):
                book.add(op, [book.draw(op).distinct([5])], {"q": q, "interpolation": how})
            q = tensor([0.1, 0.5, 0.9])
            for dim in (None, 0, -1):
                x = book.draw(op).distinct([3, 4])
                args = {"dim": dim, "keepdim": dim == 0, "interpolation": how}
                book.add(op, [x, q], args, grad=[True, False])
        book.add(op, [book.draw(op).distinct([6]), tensor([0.3, 0.55])], {"dim": 0}, note="the gradient of q")
        x = tensor([[1.0, NAN, 3.0, 2.0], [4.0, 1.0, 2.0, 3.0], [NAN, NAN, NAN, NAN]])
        book.add(op, [x, tensor([0.2, 0.5])], {"dim": 1}, grad=False, note="NaN")
        book.add(op, [tensor([1.0, INF, -INF, 2.0])], {"q": 0.5}, grad=False, note="extreme")
        book.add(op, [book.draw(op).distinct([7], "f32")], {"q": 0.4})
        book.add(op, [tensor(3.0)], {"q": 0.4}, note="0-d")


def scan_cases(book):
    shapes = [([7], 0), ([3, 4], 0), ([3, 4], 1), ([2, 3, 4], -2), ([], 0), ([2, 0], 1), ([0, 3], 1), ([30, 2], 0)]
    for op in ("cumprod", "logcumsumexp", "cummax", "cummin"):
        for shape, dim in shapes:
            x = book.draw(op).uniform(shape, 0.9, 1.1) if op == "cumprod" else book.draw(op).uniform(shape)
            book.add(op, [x], {"dim": dim})
        book.add(op, [book.draw(op).uniform([3, 5], dtype="f32")], {"dim": 1})
        for dtype in HALVES:
            book.add_if_defined(op, [book.draw(op).uniform([3, 5], dtype=dtype)], {"dim": 0}, grad=False)
        if op != "logcumsumexp":
            for dtype in ("i64", "i32", "u8", "bool"):
                x = book.draw(op).integers([2, 5], 0, 2 if dtype == "bool" else 9, dtype)
                book.add(op, [x], {"dim": 1}, grad=False)
        book.add(op, [tensor([1.0, INF, 2.0, -INF, 1.0, NAN, 3.0])], {"dim": 0}, grad=False, note="extreme")
    book.add("cumprod", [book.draw("cumprod").uniform([520], 0.9, 1.1, decimals=2)], {"dim": 0}, grad=False, note="long")
    for zeros in ([2.0, 0.0, 3.0, 4.0], [0.0, 2.0, 0.0, 5.0], [0.0, 0.0, 0.0]):
        book.add("cumprod", [tensor(zeros)], {"dim": 0}, note="zeros")
    book.add("logcumsumexp", [tensor([-INF, -INF, 1.0, 2.0, INF, 3.0])], {"dim": 0}, grad=False, note="infinite")
    book.add("logcumsumexp", [tensor([1000.0, 1001.0, -1000.0, 999.0])], {"dim": 0}, note="far from zero")
    for op in ("cummax", "cummin"):
        book.add(op, [tensor([[1.0, 3.0, 3.0, 2.0], [2.0, 1.0, 1.0, 2.0]])], {"dim": 1}, note="ties: the last")
    for op in ("cumulative_sum", "cumulative_prod"):
        for include in (False, True):
            for shape, dim in (([5], 0), ([2, 3], 0), ([2, 3], -1)):
                args = {"dim": dim, "include_initial": include}
                book.add(op, [book.draw(op).positive(shape)], args)
            book.add(op, [book.draw(op).integers([4], 0, 9)], {"dim": 0, "include_initial": include}, grad=False)


def calculus_cases(book):
    for shape, args in (([5], {}), ([3, 4], {"dim": 0}), ([3, 4], {"n": 2}), ([2, 3, 4], {"dim": 1, "n": 2}), ([3], {"n": 0})):
        book.add("diff", [book.draw("diff").uniform(shape)], args)
    x, y, z = (book.draw("diff").uniform(shape) for shape in ([2, 3], [2, 1], [2, 2]))
    book.add("diff", [x, y, z], {})
    book.add("diff", [x, None, z], {"n": 2})
    book.add("diff", [tensor([1.0, 2.0])], {"n": 4}, grad=False, note="nothing is left")
    for dtype in ("i64", "u8", "bool"):
        x = book.draw("diff").integers([2, 5], 0, 2 if dtype == "bool" else 9, dtype)
        book.add("diff", [x], {}, grad=False)
    for op in ("trapezoid", "cumulative_trapezoid"):
        for shape, args in (([5], {}), ([3, 4], {"dim": 0}), ([3, 4], {"dx": 0.3}), ([2, 3, 4], {"dx": 2.0, "dim": -2})):
            book.add(op, [book.draw(op).uniform(shape)], args)
        book.add(op, [book.draw(op).uniform([3, 4]), book.draw(op).uniform([4])], {})
        book.add(op, [book.draw(op).uniform([3, 4]), book.draw(op).uniform([3])], {"dim": 0})
        book.add(op, [book.draw(op).uniform([3, 4]), book.draw(op).uniform([3, 4])], {"dim": 0})
        book.add(op, [book.draw(op).uniform([2, 3, 4]), book.draw(op).uniform([3, 4])], {"dim": 2})
        book.add(op, [book.draw(op).integers([2, 5], 0, 9)], {}, grad=False)
        book.add(op, [book.draw(op).uniform([5], dtype="f32")], {"dx": 0.5})
    book.add("trapezoid", [tensor([[3.0], [4.0]])], {}, grad=False, note="one sample")
    for shape, args in (
        ([5], {}),
        ([2], {}),
        ([3, 4], {}),
        ([3, 4], {"spacing": 0.5, "edge_order": 2}),
        ([3, 4], {"spacing": [0.5, 2.0]}),
        ([3, 4, 3], {"dim": [1, 2], "edge_order": 2}),
        ([3, 4], {"dim": 1, "spacing": 2.0}),
    ):
        book.add("gradient", [book.draw("gradient").uniform(shape)], args)
    book.add("gradient", [book.draw("gradient").uniform([5], dtype="f32")], {"spacing": 0.25})
    for order in (1, 2):
        x = book.draw("gradient").uniform([4, 5])
        places = [tensor([0.0, 1.0, 3.0, 3.5]), tensor([-1.0, 0.5, 1.0, 4.0, 4.25])]
        add_gradient(book, x, places, order)
    for args in ({}, {"correction": 0}):
        for shape in ([3, 5], [6], [1, 4]):
            book.add("cov", [book.draw("cov").uniform(shape)], args)
        often, much = tensor([1, 2, 0, 3, 1], "i64"), tensor([0.5, 1.0, 0.25, 2.0, 1.5])
        x = book.draw("cov").uniform([3, 5])
        book.add("cov", [x, often], args)
        book.add("cov", [x, None, much], args)
        book.add("cov", [x, often, much], args)
    book.add("cov", [book.draw("cov").integers([2, 4], 0, 9)], {}, grad=False)
    book.add("cov", [tensor([[1.0], [2.0]])], {}, grad=False, note="one observation")
    for shape in ([3, 5], [2, 4]):
        book.add("corrcoef", [book.draw("corrcoef").uniform(shape)], {})
    book.add("corrcoef", [book.draw("corrcoef").uniform([6])], {}, grad=False, note="one variable")
    book.add("corrcoef", [book.draw("corrcoef").uniform([3, 5], dtype="f32")], {})
    book.add("corrcoef", [tensor([[1.0, 1.0], [1.0, 2.0]])], {}, grad=False, note="no deviation")


def add_gradient(book, x, places, order):
    """Adds a case of gradient with a list of tensors for one parameter."""
    book.functions["gradient"], before = gradient_at, book.functions["gradient"]
    book.names["gradient"] = ["self", "a", "b"]
    book.add("gradient", [x, *places], {"edge_order": order})
    args = book.cases["gradient"][-1]["args"]
    args["spacing"] = [args.pop("a"), args.pop("b")]
    book.functions["gradient"] = before
    del book.names["gradient"]


def order_cases(book):
    for descending in (False, True):
        for shape, dim in (([7], 0), ([3, 4], 0), ([3, 4], -1), ([2, 5, 3], 1), ([], 0), ([2, 0], 1)):
            x = book.draw("argsort").distinct(shape)
            book.add("argsort", [x], {"dim": dim, "descending": descending}, grad=False)
        x = tensor([[1.0, NAN, -0.0, INF, 0.0, -INF, NAN, 1.0]])
        book.add("argsort", [x], {"dim": 1, "descending": descending}, grad=False, note="extreme")
        book.add("argsort", [tensor([3, 1, 3, 2, 1], "i32")], {"descending": descending}, grad=False, note="ties")
    for shape in ([5], [4, 3], []):
        book.add("msort", [book.draw("msort").distinct(shape)], {})
    sequence = tensor([1.0, 3.0, 3.0, 5.0, 7.0])
    values = tensor([[0.0, 3.0, 4.0], [7.0, 9.0, NAN]])
    rows = torch.stack([sequence, sequence * 2])
    for right in (False, True):
        book.add("searchsorted", [sequence, values], {"right": right}, grad=False)
        book.add("searchsorted", [rows, values], {"right": right, "out_int32": True}, grad=False)
        mixed, order = sequence[torch.tensor([2, 0, 4, 1, 3])], torch.tensor([1, 0, 3, 4, 2])
        book.add("searchsorted", [mixed, values, order], {"right": right}, grad=False)
        whole = tensor([1, 3, 3, 5], "i64"), tensor([0, 3, 6], "i64")
        book.add("searchsorted", [*whole], {"right": right}, grad=False)
        book.add("searchsorted", [tensor([1.0, 2.0]), tensor([NAN, 2.0])], {"right": right}, grad=False, note="NaN")
        book.add("bucketize", [values, sequence], {"right": right}, grad=False)
        book.add("bucketize", [tensor(3.0), sequence], {"right": right, "out_int32": True}, grad=False, note="0-d")
    book.add("searchsorted", [sequence, values], {"side": "right"}, grad=False)
    book.add("searchsorted", [tensor([]), values], {}, grad=False, note="empty")


def set_cases(book):
    rows = tensor([[1, 2, 1], [0, 1, 0], [1, 2, 1], [0, 1, 5]], "i64")
    for op in ("unique_values", "unique_all", "unique_counts", "unique_inverse", "unique_consecutive_all"):
        for dtype in ("i64", "u8", "f32", "f64", "bool", "f16"):
            x = book.draw(op).integers([3, 4], 0, 2 if dtype == "bool" else 4, dtype)
            book.add(op, [x], {}, grad=False)
        for dim in (0, 1, -1):
            book.add(op, [rows], {"dim": dim}, grad=False)
        book.add(op, [book.draw(op).integers([2, 3, 2], 0, 2)], {"dim": 1}, grad=False)
        book.add(op, [tensor([], "i64")], {}, grad=False, note="empty")
        book.add(op, [tensor(3, "i64")], {}, grad=False, note="0-d")
        book.add(op, [tensor([1.0, 1.0, -0.0, 0.0, INF, -INF])], {}, grad=False, note="extreme")
    book.add("unique_values", [tensor([NAN, 1.0, NAN])], {}, grad=False, note="NaN")
    x = tensor([[3, -1, 2], [5, 0, 3]], "i64")
    for invert in (False, True):
        book.add("isin", [x, tensor([3, 0, 7], "i64")], {"invert": invert}, grad=False)
        book.add("isin", [x, tensor([], "i64")], {"invert": invert}, grad=False, note="empty")
        book.add("isin", [tensor([1.0, NAN, INF]), tensor([[NAN, INF]])], {"invert": invert}, grad=False, note="NaN")
        book.add("isin", [tensor(3, "i64"), x], {"invert": invert}, grad=False, note="0-d")


def histogram_cases(book):
    x = tensor([1, 3, 1, 0, 5], "i64")
    for args in ({}, {"minlength": 8}):
        book.add("bincount", [x], args, grad=False)
        book.add("bincount", [x, tensor([0.5, 1.0, 2.0, 0.25, 3.0])], args, grad=False)
        book.add("bincount", [x, tensor([0.5, 1.0, 2.0, 0.25, 3.0], "f32")], args, grad=False)
        book.add("bincount", [x, tensor([1, 2, 3, 4, 5], "i64")], args, grad=False)
        book.add("bincount", [tensor([], "i64")], args, grad=False, note="empty")
    book.add("bincount", [tensor([1, 3, 1], "u8")], {}, grad=False)
    numbers = tensor([0.0, 1.0, 1.5, 4.0, 2.0, -1.0, 3.0, 3.0])
    for args in ({"bins": 4}, {"bins": 4, "min": 0.0, "max": 4.0}, {"bins": 3, "min": -0.5, "max": 3.0}, {}):
        book.add("histc", [numbers], args, grad=False)
        book.add("histc", [numbers.to(torch.float32)], args, grad=False)
    book.add("histc", [tensor([2.0, 2.0])], {"bins": 4}, grad=False, note="one value")
    book.add("histc", [tensor([2.0, NAN, 9.0])], {"bins": 4, "min": 0.0, "max": 4.0}, grad=False, note="NaN")
    book.add("histc", [tensor([])], {"bins": 4}, grad=False, note="empty")
    edges = tensor([-1.0, 0.0, 1.5, 3.0])
    weight = tensor([0.5, 1.0, 2.0, 0.25, 3.0, 1.0, 1.5, 2.5])
    for density in (False, True):
        more = {"density": density}
        book.add("histogram", [numbers], {"bins": 5, **more}, grad=False)
        book.add("histogram", [numbers], {"bins": 3, "range": [0.0, 3.0], **more}, grad=False)
        book.add("histogram", [numbers, edges], more, grad=False)
        book.add("histogram", [numbers, edges, weight], more, grad=False)
        book.add("histogram", [numbers.to(torch.float32).reshape(2, 4)], {"bins": 4, **more}, grad=False)
        points = book.draw("histogramdd").uniform([9, 2])
        book.add("histogramdd", [points], {"bins": [3, 2], **more}, grad=False)
        book.add("histogramdd", [points], {"bins": [2, 2], "range": [-1.0, 1.0, -0.5, 2.0], **more}, grad=False)
        weights = book.draw("histogramdd").positive([9])
        book.add("histogramdd", [points, weights], {"bins": [2, 3], **more}, grad=False)
    book.add("histogram", [tensor([2.0, 2.0])], {"bins": 4}, grad=False, note="one value")
    book.add("histogram", [torch.zeros([2, 0], dtype=torch.float64)], {"bins": 4}, grad=False, note="no value")
    book.add("histogram", [tensor([2.0, NAN, 9.0])], {"bins": 4, "range": [0.0, 4.0]}, grad=False, note="NaN")


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    truth_cases(book)
    nan_cases(book)
    std_cases(book)
    norm_cases(book)
    median_cases(book)
    choice_cases(book)
    quantile_cases(book)
    scan_cases(book)
    calculus_cases(book)
    order_cases(book)
    set_cases(book)
    histogram_cases(book)
