"""Several processes, and times of statements."""

import time

import pytest

import cotangent as ct
import cotangent.multiprocessing as mp
from cotangent.utils import benchmark


def twice(rank, given, results):
    results.put((rank, given["x"] * 2 + rank, given["net"](ct.ones(1, 2)).detach()))


def fails(rank):
    if rank == 1:
        raise ValueError("as it should")


def finish(function, args=(), nprocs=2):
    """Runs processes, and ends them if they take minutes."""
    context = mp.spawn(function, args, nprocs, join=False)
    end = time.monotonic() + 240
    try:
        while not context.join(timeout=5):
            assert time.monotonic() < end, "the processes do not end"
    finally:
        for process in context.processes:
            process.kill()


def test_tensors_and_modules_go_to_processes_and_back():
    net = ct.nn.Linear(2, 1)
    ct.nn.init.ones_(net.weight)
    ct.nn.init.zeros_(net.bias)
    results = mp.SimpleQueue()
    given = {"x": ct.arange(3), "net": net}
    finish(twice, (given, results))
    found = sorted((results.get() for _ in range(2)), key=lambda one: one[0])
    assert [one[1].tolist() for one in found] == [[0, 2, 4], [1, 3, 5]] and [one[2].item() for one in found] == [2, 2]
    assert given["x"].tolist() == [0, 1, 2]


def test_a_failure_in_a_process_is_raised():
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: as it should"):
        finish(fails)


def test_what_cannot_go_to_a_process_is_refused():
    pickled = mp._ForkingPickler.dumps
    with pytest.raises(RuntimeError, match="must be leaves or not require gradients"):
        pickled(ct.ones(2, requires_grad=True) * 2)
    shared = ct.ones(2)
    assert shared.share_memory_() is shared
    with pytest.raises(RuntimeError, match="must not be marked by share_memory_"):
        pickled(shared)
    net = ct.nn.Linear(2, 1).share_memory()
    with pytest.raises(RuntimeError, match="must not be marked by share_memory_"):
        pickled(net.weight)
    del shared, net
    assert len(pickled(ct.ones(2))) > 0


def test_processes_are_spawned():
    assert mp.get_start_method() == "spawn" and "fork" not in mp.get_all_start_methods()
    mp.set_start_method("spawn", force=True)
    with pytest.raises(ValueError, match="must be spawn or forkserver, got 'fork'"):
        mp.set_start_method("fork")
    with pytest.raises(ValueError, match="got 'fork'"):
        mp.get_context("fork")


def test_times_of_a_statement():
    calls = []
    threads = ct.get_num_threads()
    timer = benchmark.Timer("calls.append(n())", setup="n = threads", globals={"calls": calls, "threads": ct.get_num_threads},
                            num_threads=1, label="calls", sub_label="appended", description="list")
    found = timer.timeit(7)
    assert len(calls) == 9 and set(calls) == {1} and ct.get_num_threads() == threads
    assert found.number_per_run == 7 and found.times == [found.raw_times[0] / 7] and found.mean == found.median == found.times[0]
    assert "calls: appended" in repr(found) and repr(found).endswith("1 measurement, 7 runs , 1 thread")
    many = timer.blocked_autorange(min_run_time=0.01)
    assert sum(many.raw_times) >= 0.01 and many.iqr >= 0
    table = str(benchmark.Compare([found, many]))
    assert "[calls]" in table.replace("-", "") and "appended" in table and "list" in table
    assert timer.adaptive_autorange(min_run_time=0.001, max_run_time=0.05).number_per_run >= 1


def test_figures_of_a_measurement():
    found = benchmark.Measurement(10, [4e-5, 1e-5, 2e-5, 3e-5, 5e-5], {"stmt": "f()", "num_threads": 2})
    assert found.mean == pytest.approx(3e-6) and found.median == pytest.approx(3e-6) and found.iqr == pytest.approx(2e-6)
    text = repr(found)
    assert "Median: 3.00 us" in text and "IQR:    2.00 us (2.00 to 4.00)" in text and "5 measurements, 10 runs per measurement, 2 threads" in text
    with pytest.raises(ValueError, match="must not be empty"):
        benchmark.Measurement(1, [])
    with pytest.raises(NotImplementedError, match="language must be Python"):
        benchmark.Timer("1;", language="c++")
