"""Runs the array API tests of SciPy and of scikit-learn with cotangent as the array library, and counts what fails.

    pip install scipy scikit-learn array-api-strict pytest pytest-timeout hypothesis
    python tools/array_api_clients.py                             # both clients
    python tools/array_api_clients.py scipy --list failed.txt     # one client, and a file with the ids of what fails
    python tools/array_api_clients.py scipy -- -k trapezoid -x    # what follows the two dashes is pytest's
    python tools/array_api_clients.py sklearn --with torch        # the same tests with another library, to compare

The tests are those inside of the installed packages, which are not changed. Before pytest reads them, cotangent takes the
place of the array libraries that the client knows:

- SciPy: the fixture ``xp`` of ``scipy.conftest`` has ``cotangent.array_api`` as its one parameter. Every test that asks for the
  fixture runs. Tests that SciPy's own marks keep for NumPy alone are skipped, and so are those with ``output=`` that it skips for
  JAX and Dask, because NumPy does not write to their memory. The default dtype is ``float64``, which SciPy
  sets for PyTorch, too.
- scikit-learn: the generators of namespaces in ``sklearn.utils._array_api`` give ``cotangent.array_api``, with ``float64`` and
  ``float32`` on the CPU. Every test with a parameter from them runs.

Tests that the clients mark as slow do not run. A test that takes more than ``--timeout`` seconds is a failure.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

OURS = "cotangent.array_api"
CLIENTS = ("scipy", "sklearn")
# SciPy's reason why a test does not run with JAX and Dask. NumPy gets copies of our memory, too.
VIEWS = "output=array requires buffer view"


class Counter:
    """A plugin of pytest that keeps the tests of one array library and counts how they end."""

    def __init__(self, name):
        self.name = name
        self.ends = collections.Counter()
        self.failures: dict = {}

    def pytest_collection_modifyitems(self, config, items):
        import pytest

        kept = [item for item in items if self.uses_library(item)]
        items[:] = kept
        for item in kept if self.name == OURS else ():
            marks = item.iter_markers("skip_xp_backends")
            if any("jax.numpy" in mark.args and VIEWS in mark.kwargs.get("reason", "") for mark in marks):
                item.add_marker(pytest.mark.skip(reason=VIEWS))

    def uses_library(self, item):
        call = getattr(item, "callspec", None)
        return call is not None and any(self.names_library(value) for value in call.params.values())

    def names_library(self, value):
        if isinstance(value, (tuple, dict)):
            return any(map(self.names_library, value.values() if isinstance(value, dict) else value))
        if isinstance(value, functools.partial):
            # A check of an estimator with the library among its arguments.
            return self.names_library(value.keywords) or self.names_library(value.args)
        return isinstance(value, str) and value == self.name or getattr(value, "__name__", None) == self.name

    def pytest_collectreport(self, report):
        if report.failed:
            self.failures[report.nodeid] = "not collected: " + str(report.longrepr).strip().rpartition("\n")[2]

    def pytest_runtest_logreport(self, report):
        # A failure of a fixture counts as one of the test.
        if report.failed and report.nodeid not in self.failures:
            self.ends["failed"] += 1
            self.failures[report.nodeid] = message(report)
        elif report.skipped:
            self.ends["xfailed" if hasattr(report, "wasxfail") else "skipped"] += 1
        elif report.passed and report.when == "call":
            self.ends["passed"] += 1


def message(report):
    """Where and how a test failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr).strip().rpartition("\n")[2]
    lines = [line.strip() for line in crash.message.splitlines() if line.strip()]
    # The first line of an assertion of NumPy's says nothing: what differs is in those after it.
    text = " ".join(lines[:4] if lines and lines[0].endswith("AssertionError:") else lines[:1])
    return f"{text} ({Path(crash.path).name}:{crash.lineno})"


def group(text):
    """The message without the numbers that tell tests of one group apart."""
    text = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", text.rpartition(" (")[0] or text)
    return re.sub(r"N(, N)+", "N, ..", text)[:180]


def scipy(name):
    """Gives SciPy's fixture another library; returns the files of tests that ask for it."""
    import pytest

    conftest = importlib.import_module("scipy.conftest")
    library = importlib.import_module(name)
    conftest.xp_known_backends.add(name)
    one = pytest.param(library, id=name, marks=pytest.mark.array_api_backends)
    conftest.xp = pytest.fixture(params=[one])(conftest.xp.__wrapped__)
    if name == OURS:
        # SciPy does so for PyTorch.
        library.set_default_dtype(library.float64)
    return files("scipy", r"\bxp\b")


def sklearn(name):
    """Gives the generators of scikit-learn's parameters another library; returns the files of tests that use them."""
    # scikit-learn skips what it cannot import.
    importlib.import_module(name)
    ours = importlib.import_module("sklearn.utils._array_api")

    def namespaces(include_numpy_namespaces=True):
        yield name

    def combinations(include_numpy_namespaces=True):
        for dtype in ("float64", "float32"):
            yield name, "cpu" if name in (OURS, "torch") else None, dtype

    def mixed():
        library, numpy = ours.NamespaceAndDevice(name, "cpu"), ours.NamespaceAndDevice("numpy", None)
        yield library, numpy, f"{name} to numpy"
        yield numpy, library, f"numpy to {name}"

    ours.yield_namespaces, ours.yield_namespace_device_dtype_combinations = namespaces, combinations
    if hasattr(ours, "yield_mixed_namespace_input_permutations"):
        ours.yield_mixed_namespace_input_permutations = mixed
    return files("sklearn", r"yield_namespace|yield_mixed_namespace|parametrize_with_checks")


def files(package, pattern):
    """The files of tests of an installed package with a pattern in their text."""
    folder = Path(importlib.import_module(package).__file__).parent
    found = [path for path in sorted(folder.rglob("test_*.py")) if re.search(pattern, path.read_text(encoding="utf-8"))]
    if not found:
        sys.exit(f"{package} at {folder} has no tests: install a wheel that has them, or the source distribution")
    return [str(path) for path in found]


def run(client, name, args):
    """Runs the tests of one client; says what happened."""
    # Both read it when they are imported.
    os.environ["SCIPY_ARRAY_API"] = "1"
    import pytest

    counter = Counter(name)
    found = {"scipy": scipy, "sklearn": sklearn}[client](name)
    root = Path(importlib.import_module(client).__file__).parent
    options = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-W", "ignore", "-c", os.devnull, f"--rootdir={root}",
               f"--timeout={args.timeout}", "-m", "not slow and not xslow", *args.pytest]
    ended = pytest.main(options + found, plugins=[counter])
    version = importlib.import_module(client).__version__
    counts, failures = counter.ends, counter.failures
    print(f"\n{client} {version} with {name}: {sum(counts.values())} tests: {counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['skipped']} skipped, {counts['xfailed']} failed as the client expects")
    groups = collections.defaultdict(list)
    for test, text in failures.items():
        groups[group(text)].append((test, text))
    for text, tests in sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        print(f"{len(tests):5}  {text}")
        print(f"       {short(tests[0][0])}: {tests[0][1].rpartition(' ')[2]}")
    if args.list:
        with open(args.list, "a", encoding="utf-8") as file:
            file.writelines(f"{client}\t{test}\t{text}\n" for test, text in failures.items())
    return ended not in (0, 1) or bool(failures)


def short(test):
    return test if len(test) < 150 else test[:150] + ".."


def main():
    own, dashes, rest = sys.argv[1:], "--", []
    if dashes in own:
        own, rest = own[:own.index(dashes)], own[own.index(dashes) + 1:]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", help=f"which clients: {' and '.join(CLIENTS)}, if none is named")
    parser.add_argument("--with", dest="library", default=OURS, help="the array library")
    parser.add_argument("--list", metavar="FILE", help="a file for the ids of the tests that fail, with their messages")
    parser.add_argument("--timeout", type=int, default=120, help="how many seconds a test may take")
    args = parser.parse_args(own)
    args.pytest = rest
    clients = args.clients or list(CLIENTS)
    for client in clients:
        if client not in CLIENTS:
            parser.error(f"the client must be one of {', '.join(CLIENTS)}, got {client!r}")
    if len(clients) == 1:
        return int(run(clients[0], args.library, args))
    # Each has a process of its own: what is set for one does not hold for the other.
    options = [f"--with={args.library}", f"--timeout={args.timeout}"] + ([f"--list={args.list}"] if args.list else [])
    return max([subprocess.call([sys.executable, __file__, client, *options, dashes, *rest]) for client in clients])


if __name__ == "__main__":
    if sys.path[0] == str(Path(__file__).parent):
        # Nothing of this folder is to be imported in place of a client's module.
        del sys.path[0]
    sys.exit(main())
