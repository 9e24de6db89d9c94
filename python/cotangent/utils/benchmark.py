"""Timing of Python statements: PyTorch's ``torch.utils.benchmark``.

    >>> from cotangent.utils import benchmark
    >>> import cotangent as ct
    >>> timer = benchmark.Timer("x @ x", globals={"x": ct.ones(8, 8)})
    >>> timer.timeit(10).number_per_run
    10

GPUs are synchronized before and after each measurement. Instruction counts are not supported.
"""

from __future__ import annotations

import math
import statistics
import timeit as _timeit

from .. import _cotangent as _c


class Measurement:
    """Times of a statement: ``raw_times`` has the seconds of each run of ``number_per_run`` calls."""

    def __init__(self, number_per_run, raw_times, task_spec=None, metadata=None):
        if number_per_run < 1 or not raw_times:
            raise ValueError(f"Measurement: raw_times must not be empty and number_per_run must be positive, "
                             f"got {len(raw_times)} times and {number_per_run}")
        self.number_per_run, self.raw_times, self.task_spec, self.metadata = number_per_run, list(raw_times), task_spec, metadata

    @property
    def times(self):
        """The time of a call in each run, in seconds."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self):
        """The mean time of a call, in seconds."""
        return statistics.fmean(self.times)

    @property
    def median(self):
        """The median time of a call, in seconds."""
        return statistics.median(self.times)

    def _quartile(self, part):
        times = sorted(self.times)
        at = part * (len(times) - 1)
        low = math.floor(at)
        high = min(low + 1, len(times) - 1)
        return times[low] + (at - low) * (times[high] - times[low])

    @property
    def iqr(self):
        """The interquartile range of the times, in seconds."""
        return self._quartile(0.75) - self._quartile(0.25)

    @property
    def title(self):
        """The label of the measurement, or the statement."""
        spec = self.task_spec or {}
        if spec.get("label"):
            return spec["label"] + (f": {spec['sub_label']}" if spec.get("sub_label") else "")
        return spec.get("stmt") or ""

    @property
    def has_warnings(self):
        """Whether the interquartile range is more than 10 % of the median."""
        return len(self.times) > 1 and self.iqr / self.median > 0.1

    def __repr__(self):
        spec = self.task_spec or {}
        lines = [object.__repr__(self), self.title]
        if spec.get("description"):
            lines.append(spec["description"])
        if spec.get("setup", "pass") != "pass":
            lines.append(f"setup: {spec['setup']}" if "\n" not in spec["setup"] else "setup:\n" + _indented(spec["setup"]))
        unit, scale = select_unit(self.median)
        if len(self.times) > 1:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
            if len(self.times) > 3:
                low, high = self._quartile(0.25) / scale, self._quartile(0.75) / scale
                lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
            lines.append(f"  {len(self.times)} measurements, {self.number_per_run} runs per measurement, "
                         f"{_threads(spec.get('num_threads', 1))}")
            if self.has_warnings:
                lines.append(f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.\n"
                             "           This suggests significant environmental influence.")
        else:
            lines.append(f"  {self.median / scale:.2f} {unit}")
            lines.append(f"  1 measurement, {self.number_per_run} runs , {_threads(spec.get('num_threads', 1))}")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements):
        """Merges measurements with the same statement, settings and number of calls."""
        groups: dict = {}
        for one in measurements:
            key = one.number_per_run, tuple(sorted((k, str(v)) for k, v in (one.task_spec or {}).items()))
            groups.setdefault(key, []).append(one)
        return [Measurement(own[0].number_per_run, [t for one in own for t in one.raw_times], own[0].task_spec, own[0].metadata)
                for own in groups.values()]


def _indented(text):
    return "\n".join("  " + line for line in text.splitlines())


def _threads(count):
    return f"{count} thread{'' if count == 1 else 's'}"


def select_unit(t):
    """The unit to print a time in, and its length in seconds."""
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if t < 1000 * scale:
            return unit, scale
    return "s", 1.0


def _waited():
    if _c._device_count():
        for at in range(_c._device_count()):
            _c._synchronize(_c.device("cuda", at))
    return _timeit.default_timer()


class Timer:
    """Times a Python statement with ``num_threads`` threads, after ``setup``."""

    def __init__(self, stmt="pass", setup="pass", global_setup="", timer=_waited, globals=None, label=None, sub_label=None,  # noqa: A002
                 description=None, env=None, num_threads=1, language="python"):
        if str(language).lower() not in ("python", "py", "language.python", "0"):
            raise NotImplementedError(f"Timer: language must be Python, got {language}")
        if global_setup:
            raise ValueError(f"Timer: global_setup must be empty for Python, got {global_setup!r}")
        stmt, setup = _dedented(stmt), _dedented(setup)
        # Statements can use the library under PyTorch's name.
        self._timer = _timeit.Timer(stmt, setup, timer, globals={**_names(), **(globals or {})})
        self._spec = {"stmt": stmt, "setup": setup, "label": label, "sub_label": sub_label, "description": description, "env": env,
                      "num_threads": num_threads}

    def _run(self, number):
        before = _c.get_num_threads()
        _c.set_num_threads(self._spec["num_threads"])
        try:
            return self._timer.timeit(number)
        finally:
            _c.set_num_threads(before)

    def timeit(self, number=1000000):
        """Times one run of ``number`` calls, after warm-up calls."""
        self._run(max(number // 100, 2))
        return Measurement(number, [self._run(number)], self._spec)

    def repeat(self, repeat=-1, number=-1):
        raise NotImplementedError("repeat: use blocked_autorange")

    def autorange(self, callback=None):
        raise NotImplementedError("autorange: use blocked_autorange")

    def _block(self, min_run_time):
        """The number of calls per run for which the overhead of the clock is negligible."""
        self._run(2)
        overhead = min(self._clock() for _ in range(5))
        number = 1
        while True:
            taken = self._run(number)
            if overhead <= taken * 1e-4 and taken >= min_run_time / 1000:
                return number
            if taken > min_run_time:
                return number
            number *= 10

    @staticmethod
    def _clock():
        return _timeit.Timer("pass", timer=_waited).timeit(0)

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Times runs for ``min_run_time`` seconds in total; the number of calls per run is chosen automatically."""
        number = self._block(min_run_time)
        times: list = []
        while not times or sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._spec)

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """Times runs until the interquartile range is below ``threshold`` times the median, or for ``max_run_time`` seconds."""
        number = self._block(min_run_time)
        times: list = []
        while True:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
            found = Measurement(number, times, self._spec)
            close = len(times) > 3 and found.iqr / found.median < threshold
            if sum(times) >= max_run_time or (sum(times) >= min_run_time and close):
                return found

    def collect_callgrind(self, *args, **kwargs):
        raise NotImplementedError("collect_callgrind: instruction counts are not supported: use timeit or blocked_autorange")


def _names():
    import cotangent

    return {"cotangent": cotangent, "torch": cotangent}


def _dedented(text):
    import textwrap

    return textwrap.dedent(text).strip("\n") if isinstance(text, str) else text


class Compare:
    """A table of measurements, with a row for each ``sub_label`` and a column for each ``description``."""

    def __init__(self, results):
        self._results = Measurement.merge(list(results))
        self._trim = False

    def extend_results(self, results):
        """Adds measurements."""
        self._results = Measurement.merge([*self._results, *results])

    def trim_significant_figures(self):
        """Prints fewer digits."""
        self._trim = True

    def colorize(self, rowwise=False):
        """No effect: tables have no colours."""

    def highlight_warnings(self):
        """No effect: tables have no colours."""

    def print(self):
        """Prints the table."""
        print(str(self))

    def __str__(self):
        labels: dict = {}
        for one in self._results:
            labels.setdefault((one.task_spec or {}).get("label") or "", []).append(one)
        return "\n".join(self._table(label, own) for label, own in labels.items())

    def _table(self, label, results):
        column = lambda one: (one.task_spec or {}).get("description") or ""
        row = lambda one: ((one.task_spec or {}).get("num_threads", 1), one.task_spec.get("sub_label") or one.task_spec.get("stmt") or "")
        columns, rows = list(dict.fromkeys(map(column, results))), list(dict.fromkeys(map(row, results)))
        unit, scale = select_unit(min(one.median for one in results))
        cells = {(row(one), column(one)): f"{one.median / scale:.{0 if self._trim else 1}f}" for one in results}
        first = max(len(text) for _, text in rows) + 6
        widths = [max(len(name), *(len(cells.get((own, name), "")) for own in rows)) for name in columns]
        lines = [" | ".join([" " * first, *(name.center(width) for name, width in zip(columns, widths))])]
        whole = len(lines[0])
        threads = None
        for own in rows:
            if own[0] != threads:
                threads = own[0]
                lines.append(f"{_threads(threads)}: ".ljust(whole, "-"))
            lines.append(" | ".join([f"      {own[1]}".ljust(first),
                                     *(cells.get((own, name), "").rjust(width) for name, width in zip(columns, widths))]))
        title = f"[{label}]".center(whole, "-")
        names = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
        return "\n".join([title, *lines, "", f"Times are in {names[unit]} ({unit})."]) + "\n"
