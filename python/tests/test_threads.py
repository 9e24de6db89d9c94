"""Arrays that another thread writes to, and operations that Ctrl-C ends.

What crashes an interpreter, or ends it with a signal, runs in one of its own.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytest.importorskip("numpy")


def interpreter(code, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )


def finish(process):
    """What it prints. One that does not end is killed."""
    try:
        return process.communicate(timeout=60)
    finally:
        process.kill()


WRITER = """
    import threading, time
    import numpy as np
    import cotangent as ct
    N = 1 << 14
    far, near = np.full(N, 1 << 40), np.zeros(N, np.int64)
    a, mask = np.zeros(N, np.int64), np.zeros(N, np.uint8)
    done = time.monotonic() + 3
    def write():
        while time.monotonic() < done:
            a[:] = far
            mask[:] = 1
            a[:] = near
            mask[:] = 0
    def read(f):
        while time.monotonic() < done:
            try:
                f()
            except (IndexError, ValueError):
                pass
    index = ct.from_numpy(a)
    x, w = ct.ones(64, 2), ct.ones(N, 2)
"""


@pytest.mark.parametrize(
    "reads",
    [
        ["x[index].sum()", "x[index].sum()"],
        ["x.index_select(0, index).sum()", "ct.gather(x, 0, index.unsqueeze(1)).sum()"],
        ["ct.from_dlpack(a).take(index)", "x.index_add(0, index, w).sum()"],
        ["x.clone().__setitem__(index, 1.0)", "ct.nn.functional.embedding(index, x).sum()"],
        ["ct.nn.functional.cross_entropy(w, index)", "ct.nn.functional.one_hot(index.clamp(0, 9)).sum()"],
        ["index.sort()", "index.unique()"],
        ["index.nonzero().sum()", "w[index != 0].sum()"],
    ],
)
def test_an_array_that_another_thread_writes_to_is_read_once(reads):
    lines = [f"lambda: {read}" for read in reads]
    run = f"""
    threads = [threading.Thread(target=write)] + [threading.Thread(target=read, args=(f,)) for f in [{", ".join(lines)}]]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print("whole", ct.ones(3).sum().item())
    """
    process = interpreter(WRITER + run)
    out, err = finish(process)
    assert (process.returncode, out.split()) == (0, ["whole", "3.0"]), err
    assert "Traceback" not in err and "panicked" not in err


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "endless",
    [
        "ct.ones(1).expand(1 << 40).sum()",
        "ct.ones(1).expand(1 << 20, 1 << 20).sum(0)",
        "ct.nn.functional.avg_pool2d(ct.ones(1).expand(1, 1, 1 << 18, 1 << 18), 1 << 18)",
        "ct.zeros(9).scatter_add(0, ct.zeros(1, dtype=ct.int64).expand(1 << 36), ct.ones(1).expand(1 << 36))",
    ],
)
def test_ctrl_c_ends_a_long_operation(endless):
    code = f"""
    import signal
    import cotangent as ct
    # A shell starts what runs in the background with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("ready", flush=True)
    try:
        {endless}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    x = ct.ones(1000, 1000, requires_grad=True)
    (x * 2).sum().backward()
    print(x.grad.sum().item(), flush=True)
    """
    process = interpreter(code)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    time.sleep(0.5)
    assert process.poll() is None
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = finish(process)
    assert (process.returncode, out) == (0, "interrupted\n2000000.0\n"), err
    # It takes a second on a machine with nothing else to do.
    assert time.monotonic() - start < 20


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_handler_that_raises_ends_it_with_its_own_exception():
    code = """
    import signal
    import cotangent as ct
    def late(*_):
        raise TimeoutError("too late")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        ct.ones(1).expand(1 << 40).sum()
    except TimeoutError as error:
        print(error)
    # A handler that returns ends nothing.
    calls = []
    signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    x = ct.ones(1).expand(1 << 24)
    while len(calls) < 3:
        assert x.sum().item() == 1 << 24
    # While the interpreter ends it has no handlers.
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("done")
    """
    process = interpreter(code)
    out, err = finish(process)
    assert (process.returncode, out) == (0, "too late\ndone\n"), err
