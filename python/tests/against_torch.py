"""Everything that is compared with a real PyTorch, by one command:

    python python/tests/against_torch.py            # values, gradients, views, exchange, other libraries
    python python/tests/against_torch.py --habits   # writes PyTorch's answers to the programs of habits/
    python python/tests/against_torch.py --speed    # the overhead of calls, and PyTorch's (a release build)

Needs PyTorch and the package; einops, SciPy and scikit-learn are tried where they are installed.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "tools")]

import cotangent as ct  # noqa: E402

import cases  # noqa: E402
import networks  # noqa: E402


def values_and_gradients():
    """Every operation that has cases, on inputs drawn now, with gradients, against PyTorch's of now."""
    import fixtures
    from fixture_cases.core import Book

    book, failed, count = Book(), 0, 0
    modules = ("creation elementwise functions reductions statistics indexing linalg nn views complex fft shape scatter "
               "sequences options spectral bessel variants linalg_complex recurrent losses networks conv pool")
    for name in modules.split():
        getattr(fixtures, name).add_cases(book)
    start, every = time.monotonic(), max(1, len(book.cases) // 10)
    for number, (op, all_cases) in enumerate(book.cases.items()):
        if number % every == 0:
            print(f"  {number} of {len(book.cases)} operations, {time.monotonic() - start:.0f} s", flush=True)
        for at, case in enumerate(all_cases):
            count += 1
            try:
                cases.run(op, case)
            except Exception as error:
                failed += 1
                print(f"  {op}, case {at}: {type(error).__name__}: {str(error)[:300]}")
    without = sorted(set(cases.OPS) - set(book.cases))
    print(f"{count} cases of {len(book.cases)} operations, {failed} failed; without cases (random, or of memory): {', '.join(without)}")
    return failed


def names_in_place():
    """In-place forms are those that PyTorch has, and all of them that keep shape and dtype."""
    left_out = {"squeeze", "unsqueeze", "transpose", "swapaxes", "swapdims", "t", "as_strided", "index_put_impl", "normal"}
    compare = {"eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal", "not_equal"}
    ours = {op["name"] for op in cases.OPS.values() if op["in_place"]}
    extra = [name for name in ours if not hasattr(torch.Tensor, name + "_") and name != "conj"]
    missing = [name for name in cases.OPS
               if hasattr(torch.Tensor, name + "_") and name not in ours | left_out | compare]
    print(f"in place: {len(ours)} operations; not in PyTorch: {extra}; missing: {missing}")
    return len(extra) + len(missing)


VIEWS = [
    lambda x, d: x[d(x.shape[0])] if x.ndim else x, lambda x, d: x[::2] if x.ndim else x, lambda x, d: x[..., None],
    lambda x, d: x.transpose(0, -1) if x.ndim else x, lambda x, d: x.reshape(-1), lambda x, d: x[None],
    lambda x, d: x[d(3):] if x.ndim else x, lambda x, d: x.unsqueeze(0), lambda x, d: x.squeeze(),
    lambda x, d: x.diagonal() if x.ndim == 2 else x, lambda x, d: x.T if x.ndim == 2 else x, lambda x, d: x.detach(),
    lambda x, d: x.chunk(2)[0] if x.ndim else x, lambda x, d: x.flatten(), lambda x, d: x.contiguous(),
]
CHANGES = [
    lambda x, k: x.add_(k), lambda x, k: x.mul_(0.5), lambda x, k: x.fill_(k), lambda x, k: x.zero_(), lambda x, k: x.sin_(),
    lambda x, k: x.__setitem__(..., k), lambda x, k: x.copy_(x * 2), lambda x, k: x.clamp_(-1, 1),
]


def views_and_changes(programs=400):
    """Random programs of views and changes give the same in both, in every variable."""
    failed = 0
    for seed in range(programs):
        rng = random.Random(seed)
        start = np.random.default_rng(seed).standard_normal((3, 4))
        variables = [(ct.tensor(start), torch.tensor(start))]
        for _ in range(12):
            a, b = rng.choice(variables)
            if rng.random() < 0.5:
                view, number = rng.choice(VIEWS), rng.randrange(100)
                pick = lambda n: number % n if n else 0
                try:
                    pair = view(a, pick), view(b, pick)
                except IndexError:
                    continue
                variables.append(pair)
            else:
                change, k = rng.choice(CHANGES), rng.random()
                change(a, k), change(b, k)
        for at, (a, b) in enumerate(variables):
            if tuple(a.shape) != tuple(b.shape) or not np.allclose(np.asarray(a.detach()), b.detach().numpy()):
                failed += 1
                print(f"  program {seed}: variable {at} differs:\n{a}\n{b}")
                break
    print(f"views: {programs} programs, {failed} failed")
    return failed


def exchange():
    """DLPack in both directions, and what may not change."""
    failed = 0
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8,
                  torch.bool, torch.complex64, torch.uint16):
        t = torch.arange(6).to(dtype).reshape(2, 3).T
        x = ct.from_dlpack(t)
        back = torch.from_dlpack(x)
        same_memory = dtype is torch.bool or x.data_ptr() == t.data_ptr()
        if not (same_memory and back.dtype == dtype and torch.equal(back, t)):
            failed += 1
            print(f"  DLPack of {dtype}")
    x = ct.zeros(4)
    t = torch.from_dlpack(x)
    x += 1
    t += 5
    if x.tolist() != [1, 1, 1, 1]:
        failed += 1
        print("  a change by PyTorch reached our memory")
    print(f"exchange: {failed} failed")
    return failed


def other_libraries():
    failed = 0

    def attempt(name, test):
        nonlocal failed
        try:
            print(f"{name}: {test()}")
        except ImportError as error:
            print(f"{name}: skipped, {error}")
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED: {type(error).__name__}: {error}")

    def einops():
        from einops.array_api import rearrange, reduce, repeat

        x = ct.arange(24.0).reshape(2, 3, 4).clone().requires_grad_()
        y = rearrange(x, "a b c -> c (a b)")
        assert y.shape == (4, 6) and reduce(x, "a b c -> b", "mean").shape == (3,)
        assert repeat(x, "a b c -> a k b c", k=2).shape == (2, 2, 3, 4)
        y.sum().backward()
        return x.grad.sum().item() == 24

    def scipy():
        import os

        os.environ["SCIPY_ARRAY_API"] = "1"
        from scipy import special, stats, integrate

        x = ct.linspace(0.1, 2, 50, dtype=ct.float64)
        done = []
        for name, call, wanted in [
            ("special.logsumexp", lambda a: special.logsumexp(a), None),
            ("stats.zscore", lambda a: stats.zscore(a), None),
            ("stats.skew", lambda a: stats.skew(a), None),
            ("stats.ttest_1samp", lambda a: stats.ttest_1samp(a, 1.0).statistic, None),
            ("integrate.trapezoid", lambda a: integrate.trapezoid(a, dx=0.1), None),
        ]:
            found, reference = call(x), call(np.asarray(x))
            assert isinstance(found, ct.Tensor), f"{name} gave a {type(found).__name__}"
            np.testing.assert_allclose(np.asarray(found), reference, rtol=1e-9, atol=1e-12, err_msg=name)
            done.append(name)
        return ", ".join(done)

    def sklearn():
        import os

        os.environ["SCIPY_ARRAY_API"] = "1"
        import sklearn
        from sklearn.decomposition import PCA
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.preprocessing import MinMaxScaler

        rng = np.random.default_rng(0)
        a = rng.standard_normal((60, 5))
        y = (a[:, 0] > 0).astype("int64")
        done = []
        with sklearn.config_context(array_api_dispatch=True):
            x = ct.asarray(a)
            for name, call in [
                ("MinMaxScaler", lambda a, y: MinMaxScaler().fit_transform(a)),
                ("PCA", lambda a, y: PCA(n_components=2, svd_solver="full").fit(a).explained_variance_),
                ("LinearDiscriminantAnalysis", lambda a, y: LinearDiscriminantAnalysis().fit(a, y).predict(a)),
            ]:
                found, reference = call(x, ct.asarray(y)), call(a, y)
                assert isinstance(found, ct.Tensor), f"{name} gave a {type(found).__name__}"
                np.testing.assert_allclose(np.asarray(found), reference, rtol=1e-6, err_msg=name)
                done.append(name)
        return ", ".join(done)

    attempt("einops", einops)
    attempt("SciPy", scipy)
    attempt("scikit-learn", sklearn)
    return failed


def best(call, number, rounds=7):
    """The least time of one call, in nanoseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(number):
            call()
        times.append((time.perf_counter() - start) / number)
    return min(times) * 1e9


def speed():
    torch.set_num_threads(2)
    ct.set_num_threads(2)
    start = np.random.default_rng(0).standard_normal((2, 2)).astype("float32")
    rows = []
    for name, code, number in [
        ("a + b", "a + b", 20000), ("a * 2.0", "a * 2.0", 20000), ("a[0]", "a[0]", 20000), ("a[:, 1:]", "a[:, 1:]", 20000),
        ("a.sum()", "a.sum()", 20000), ("a.sum(dim=1)", "a.sum(dim=1)", 20000), ("a @ b", "a @ b", 20000), ("a.exp()", "a.exp()", 20000),
        ("a.reshape(4)", "a.reshape(4)", 20000), ("a.shape", "a.shape", 50000), ("a.add_(1.0)", "a.add_(1.0)", 20000),
    ]:
        times = []
        for lib, make in ((ct, ct.tensor), (torch, torch.tensor)):
            space = {"a": make(start), "b": make(start)}
            call = eval(f"lambda: {code}", space)
            times.append(best(call, number))
        rows.append((name, *times))

    def mlp(lib, make):
        rng = np.random.default_rng(0)
        x = make(rng.standard_normal((64, 64)).astype("float32"))
        y = make(rng.integers(0, 10, 64))
        sizes = [(64, 128), (128, 128), (128, 10)]
        weights = [make((rng.standard_normal(s) * 0.1).astype("float32")).requires_grad_() for s in sizes]
        biases = [make(np.zeros(s[1], "float32")).requires_grad_() for s in sizes]
        loss_of = lib.nn.functional.cross_entropy if lib is torch else lib.cross_entropy

        def step():
            h = x
            for at, (w, b) in enumerate(zip(weights, biases)):
                h = h @ w + b
                if at < 2:
                    h = h.relu()
            loss_of(h, y).backward()
            for p in weights + biases:
                p.grad = None

        return step

    rows.append(("mlp_small, both passes", *(best(mlp(lib, make), 200) for lib, make in ((ct, ct.tensor), (torch, torch.tensor)))))
    print(f"| call | Cotangent | PyTorch {torch.__version__} | PyTorch / ours |\n| --- | --- | --- | --- |")
    for name, ours, theirs in rows:
        print(f"| `{name}` | {ours:,.0f} ns | {theirs:,.0f} ns | {theirs / ours:.2f} |")
    return 0


def habits():
    """Writes PyTorch's answers to the programs that people who come from it write: test_habits.py compares with them."""
    import json

    import habits

    found = {program: habits.evaluate(torch, program) for program in habits.programs()}
    lines = (f"{json.dumps(program)}: {json.dumps(answer)}" for program, answer in found.items())
    habits.ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} answers")
    return 0


def main():
    warnings.simplefilter("ignore")
    if "--habits" in sys.argv:
        return habits()
    if "--speed" in sys.argv:
        return speed()
    parts = (views_and_changes, exchange, names_in_place, other_libraries, networks.run, values_and_gradients)
    failed = 0
    for part in parts:
        start = time.monotonic()
        failed += part()
        print(f"  ({part.__module__}.{part.__name__}: {time.monotonic() - start:.0f} s)", flush=True)
    print("all agree with PyTorch" if not failed else f"{failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
