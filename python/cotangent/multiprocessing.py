"""Python's ``multiprocessing``, as PyTorch's ``torch.multiprocessing`` wraps it.

    import cotangent.multiprocessing as mp

    def work(rank, queue):
        queue.put(ct.full((2,), float(rank)))

    if __name__ == "__main__":
        queue = mp.Queue()
        processes = [mp.Process(target=work, args=(rank, queue)) for rank in range(2)]

Tensors and modules are copied through queues, pipes and arguments: a change in one process is not seen in others. Sending a
tensor marked by ``share_memory_()`` is therefore an error.

Processes are started by "spawn" or "forkserver". "fork" is not supported: a forked process has no compute threads.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import signal as _signal
from multiprocessing.reduction import ForkingPickler as _ForkingPickler

from ._cotangent import Tensor
from ._core.methods import _shared
from .nn.parameter import Parameter

_contexts = {name: _multiprocessing.get_context(name)
             for name in ("spawn", "forkserver") if name in _multiprocessing.get_all_start_methods()}
_chosen = ["spawn"]


def _plain(name):
    def call(*args, **kwargs):
        return getattr(get_context(), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Python's ``multiprocessing.{name}``."
    return call


for _name in ("Array Barrier BoundedSemaphore Condition Event JoinableQueue Lock Manager Pipe Pool Process Queue RLock RawArray "
              "RawValue Semaphore SimpleQueue Value").split():
    globals()[_name] = _plain(_name)

active_children, cpu_count, current_process = (
    _multiprocessing.active_children, _multiprocessing.cpu_count, _multiprocessing.current_process)
parent_process, freeze_support = _multiprocessing.parent_process, _multiprocessing.freeze_support
TimeoutError, ProcessError = _multiprocessing.TimeoutError, _multiprocessing.ProcessError  # noqa: A001


def _known(method):
    if method not in _contexts:
        raise ValueError(f"multiprocessing: the start method must be {' or '.join(_contexts)}, got {method!r}: a forked "
                         "process has no compute threads")
    return method


def get_context(method=None):
    """The context of a start method, with its queues, processes and locks."""
    return _contexts[_chosen[0] if method is None else _known(method)]


def get_start_method(allow_none=False):
    """The start method of processes."""
    return _chosen[0]


def get_all_start_methods():
    """The supported start methods."""
    return list(_contexts)


def set_start_method(method, force=False):
    """Sets the start method of processes: "spawn" or "forkserver"."""
    _chosen[0] = _chosen[0] if method is None else _known(method)


def get_all_sharing_strategies():
    """The sharing strategy of tensors: "copy"."""
    return {"copy"}


def get_sharing_strategy():
    """The sharing strategy of tensors: "copy"."""
    return "copy"


def set_sharing_strategy(new_strategy):
    """No effect: tensors are always copied."""
    if new_strategy not in ("copy", "file_system", "file_descriptor"):
        raise ValueError(f"set_sharing_strategy: new_strategy must be 'copy', got {new_strategy!r}")


class ProcessRaisedException(Exception):
    """A process has ended with an exception."""

    def __init__(self, msg, error_index=0, error_pid=None):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, error_pid


class ProcessExitedException(Exception):
    """A process has exited with an error code or by a signal."""

    def __init__(self, msg, error_index=0, error_pid=None, exit_code=None, signal_name=None):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name


def _child(fn, rank, args, failures):
    import sys
    import traceback

    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        failures.put(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes started by ``spawn``."""

    def __init__(self, processes, failures):
        self.processes, self._failures = processes, failures

    def pids(self):
        """The ids of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout=None):
        """Waits for a process to end, and returns whether all have ended. If one has failed, terminates the others and raises."""
        from multiprocessing.connection import wait

        ready = wait([p.sentinel for p in self.processes if p.exitcode is None], timeout)
        failed = next((at for at, p in enumerate(self.processes) if p.exitcode not in (None, 0)), None)
        if failed is None:
            return bool(not ready and timeout is None) or all(p.exitcode is not None for p in self.processes)
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        for p in self.processes:
            p.join()
        code, pid = self.processes[failed].exitcode, self.processes[failed].pid
        if not self._failures[failed].empty():
            text = self._failures[failed].get()
            raise ProcessRaisedException(f"\n\n-- Process {failed} terminated with the following error:\n{text}", failed, pid)
        name = _signal.Signals(-code).name if code < 0 else None
        how = f"signal {name}" if name else f"exit code {code}"
        raise ProcessExitedException(f"process {failed} terminated with {how}", failed, pid, code, name)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Starts ``nprocs`` processes that call ``fn(rank, *args)``."""
    own = get_context(start_method)
    processes, failures = [], []
    for rank in range(nprocs):
        failures.append(own.SimpleQueue())
        processes.append(own.Process(target=_child, args=(fn, rank, args, failures[-1]), daemon=daemon))
        processes[-1].start()
    found = ProcessContext(processes, failures)
    if not join:
        return found
    while not found.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Starts ``nprocs`` processes that call ``fn(rank, *args)``, and waits for them. If one fails, it raises."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def _reduced(x):
    if id(x) in _shared:
        raise RuntimeError("multiprocessing: sent tensors must not be marked by share_memory_(): each process gets a copy, "
                           "and changes in one are not seen in others. Send changes through a queue")
    if x.requires_grad and not x.is_leaf:
        raise RuntimeError("multiprocessing: sent tensors must be leaves or not require gradients, got the result of a recorded "
                           "operation: detach() it")
    return x.__reduce_ex__(2)


_ForkingPickler.register(Tensor, _reduced)
_ForkingPickler.register(Parameter, _reduced)
