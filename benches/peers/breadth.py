"""The rows of `benches/workloads/breadth.rs` in PyTorch, on any device.

`torch.py` and `gpu/torch_gpu.py` run them. The work of a row is the GB that it must move, or its GFLOP.
"""

import torch

M = 2**20


def rows(device):
    """A dict of functions by name, which create the inputs and return the step to time and its work."""

    def normal(*shape):
        return torch.randn(*shape, device=device)

    def integers(below, *shape):
        return torch.randint(below, shape, device=device)

    def complex_(*shape):
        return torch.view_as_complex(normal(*shape, 2))

    def regular(batch, n):
        return normal(batch, n, n) + n * torch.eye(n, device=device)

    def symmetric(batch, n):
        x = normal(batch, n, n)
        return x + x.mT

    def positive(batch, n):
        return symmetric(batch, n) + 4 * n * torch.eye(n, device=device)

    def of(f, *inputs, **work):
        return lambda: f(*inputs), work

    def masked():
        x = normal(16 * M)
        return x, x > 0

    def same_bits(x, at, y):
        torch.use_deterministic_algorithms(True)
        sums = x.scatter_add(0, at, y)
        torch.use_deterministic_algorithms(False)
        return sums

    def index_put(x, at, y):
        return x.index_put((at,), y)

    linalg, cubes = torch.linalg, {256: 16 * 256**3 / 1e9, 1024: 1024**3 / 1e9, 16: 1000 * 16**3 / 1e9}
    mb = M / 1e9
    table = {
        "sort_1M": lambda: of(lambda x: x.sort(0), normal(M), gb=16 * mb),
        "sort_4096x1024": lambda: of(lambda x: x.sort(1), normal(4096, 1024), gb=64 * mb),
        "argsort_1M": lambda: of(lambda x: x.argsort(0), normal(M), gb=12 * mb),
        "argsort_4096x1024": lambda: of(lambda x: x.argsort(1), normal(4096, 1024), gb=48 * mb),
        "topk_32_of_4096x50257": lambda: of(lambda x: x.topk(32, 1), normal(4096, 50257), gb=4 * 4096 * 50257 / 1e9),
        "cumsum_16M": lambda: of(lambda x: x.cumsum(0), normal(16 * M), gb=128 * mb),
        "cumsum_4096x4096_rows": lambda: of(lambda x: x.cumsum(1), normal(4096, 4096), gb=128 * mb),
        "cumsum_4096x4096_columns": lambda: of(lambda x: x.cumsum(0), normal(4096, 4096), gb=128 * mb),
        "gather_1M": lambda: of(lambda x, at: x.gather(0, at), normal(M), integers(M, M), gb=16 * mb),
        "scatter_add_1M": lambda: of(lambda x, at, y: x.scatter_add(0, at, y), normal(M), integers(M, M), normal(M), gb=20 * mb),
        "scatter_add_1M_any_order": lambda: of(
            lambda x, at, y: x.scatter_add(0, at, y), normal(M), integers(M, M), normal(M), gb=20 * mb
        ),
        "scatter_add_1M_deterministic": lambda: of(same_bits, normal(M), integers(M, M), normal(M), gb=20 * mb),
        "scatter_add_1M_cubes": lambda: of(
            lambda x, at, y: x.scatter_add(0, at, y), normal(M), integers(M, M), normal(M) ** 3, gb=20 * mb
        ),
        "index_put_1M": lambda: of(index_put, normal(M), integers(M, M), normal(M), gb=20 * mb),
        "unique_1M": lambda: of(torch.unique, integers(M, M), gb=16 * mb),
        "einsum_bqhd_bkhd_bhqk": lambda: of(
            lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k),
            normal(8, 256, 12, 64),
            normal(8, 256, 12, 64),
            gflop=2 * 96 * 256 * 256 * 64 / 1e9,
        ),
    }  # fmt: skip
    for batch, n in (16, 256), (1, 1024), (1000, 16):
        cube = cubes[n]
        table |= {
            f"solve_{batch}x{n}": lambda batch=batch, n=n, cube=cube: of(
                linalg.solve, regular(batch, n), normal(batch, n, 32), gflop=2 / 3 * cube + 2 * batch * n * n * 32 / 1e9
            ),
            f"cholesky_{batch}x{n}": lambda batch=batch, n=n, cube=cube: of(linalg.cholesky, positive(batch, n), gflop=cube / 3),
            f"svd_{batch}x{n}": lambda batch=batch, n=n, cube=cube: of(linalg.svd, normal(batch, n, n), gflop=20 / 3 * cube),
            f"eigh_{batch}x{n}": lambda batch=batch, n=n, cube=cube: of(linalg.eigh, symmetric(batch, n), gflop=10 / 3 * cube),
        }
    table |= {
        "fft_1M": lambda: of(torch.fft.fft, complex_(M), gflop=5 * mb * 20),
        "fft_1024x1024": lambda: of(torch.fft.fft, complex_(1024, 1024), gflop=5 * mb * 10),
        "fft2_1024x1024": lambda: of(torch.fft.fft2, complex_(1024, 1024), gflop=5 * mb * 20),
        "rfft_1M": lambda: of(torch.fft.rfft, normal(M), gflop=2.5 * mb * 20),
        "median_1M": lambda: of(torch.median, normal(M), gb=4 * mb),
        "quantile_1M": lambda: of(lambda x: x.quantile(0.3), normal(M), gb=4 * mb),
        "nonzero_16M": lambda: of(torch.nonzero, normal(16 * M) > 0, gb=80 * mb),
        "masked_select_16M": lambda: of(torch.masked_select, *masked(), gb=112 * mb),
    }
    return table
