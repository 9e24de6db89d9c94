#!/usr/bin/env python3
"""Runs the benchmarks in this library and in others, and prints a comparison.

Requires Rust, Python 3.10 and, for the first run, a network: PyTorch is installed into an environment under `target/`. Other
programs that run at the same time distort the times. `benches/README.md` describes the workloads and the table.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = ROOT / "target"
OURS = "cotangent"
PEERS = ["torch", "torch_compile", "candle", "burn"]
NAMES = {OURS: "Cotangent", "torch": "PyTorch", "torch_compile": "compiled PyTorch", "candle": "candle", "burn": "Burn"}
WORKLOADS = [
    "overhead", "overhead_fwd_nograd", "mlp_small", "mlp_large", "mlp_large_bf16",
    "matmul_64", "matmul_256", "matmul_1024", "matmul_2048", "matmul_1024_fb",
    "elementwise", "bias_add", "xent", "layernorm", "attention", "gpt_tiny", "gpt_tiny_bf16", "adamw",
]  # fmt: skip
# Single operations: the rows of the table in `workloads/breadth.rs`.
OPERATIONS = re.findall(r'\brow\(\s*"(\w+)"', (HERE / "workloads" / "breadth.rs").read_text())
# Convolutions, pooling, normalization and an LSTM, forward and backward: the rows of `workloads/networks.rs`.
OPERATIONS += re.findall(r'name: "(\w+)"', (HERE / "workloads" / "networks.rs").read_text())
WORKLOADS += ["cnn_step", "resnet18_step", *OPERATIONS]
# candle and Burn do not train in mixed precision. Two libraries are enough to measure the limits of the machine.
MISSING = {peer: {"cnn_step", "resnet18_step", "mlp_large_bf16", "gpt_tiny_bf16", "limits", *OPERATIONS} for peer in ("candle", "burn")}
# Compilation does not change a single product or an optimiser step, and takes minutes for a thousand unrolled operations.
MISSING["torch_compile"] = {
    "overhead", "overhead_fwd_nograd", "matmul_64", "matmul_256", "matmul_1024", "matmul_2048", "adamw", "limits",
    *OPERATIONS,
}  # fmt: skip
TIMEOUT_S = 600


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def output(*command, **options):
    """The standard output of a command, or an empty string if it fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def torch_python():
    """The interpreter of an environment with PyTorch, which is created once."""
    folder = TARGET / "bench-venv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not output(str(python), "-c", "import torch, torchvision, numpy; print(torch.__version__)"):
        say("installing PyTorch into", folder)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "torchvision", "numpy"], check=True)
    return str(python)


def build_ours():
    """Builds the benchmark with Cargo's default settings: it detects the CPU's features at run time."""
    command = ["cargo", "bench", "--no-run", "--bench", "workloads", "--message-format", "json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout.splitlines()
    built = [json.loads(line) for line in lines if line.startswith("{")]
    return next(m["executable"] for m in built if m.get("executable") and m["target"]["name"] == "workloads")


def build_peer(peer):
    """Builds a peer for the CPU of this machine: the peers select much of their code at compile time."""
    folder = TARGET / "peers" / peer
    environment = os.environ | {"RUSTFLAGS": "-C target-cpu=native"}
    command = ["cargo", "build", "--release", "--locked", "--bin", "workloads", "--target-dir", folder]
    subprocess.run(command, check=True, cwd=HERE / "peers" / peer, env=environment)
    return str(folder / "release" / "workloads")


def programs(peers, python):
    """The commands that run the workloads of each peer."""
    commands = {}
    for peer in peers:
        say("building", NAMES[peer])
        if peer == OURS:
            commands[peer] = [build_ours()]
        elif peer == "torch":
            commands[peer] = [python, str(HERE / "peers" / "torch.py")]
        elif peer == "torch_compile":
            commands[peer] = [python, str(HERE / "peers" / "torch.py"), "--compile"]
        else:
            commands[peer] = [build_peer(peer)]
    return commands


def locked_version(peer, package):
    lock = (HERE / "peers" / peer / "Cargo.lock").read_text()
    found = re.search(rf'name = "{package}"\nversion = "([^"]+)"', lock)
    return found.group(1) if found else ""


def versions(peers, python):
    read = {
        OURS: lambda: re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1),
        "torch": lambda: output(python, "-c", "import torch; print(torch.__version__)"),
        "torch_compile": lambda: output(python, "-c", "import torch; print(torch.__version__)"),
        "candle": lambda: locked_version("candle", "candle-core"),
        "burn": lambda: locked_version("burn", "burn"),
    }
    return {peer: read[peer]() for peer in peers} | {"rustc": output("rustc", "--version")}


def machine():
    def first(path, pattern):
        text = Path(path).read_text() if Path(path).exists() else ""
        found = re.search(pattern, text, re.M)
        return found.group(1) if found else ""

    kib = first("/proc/meminfo", r"^MemTotal:\s*(\d+)")
    return {
        "cpu": first("/proc/cpuinfo", r"^model name\s*:\s*(.+)$") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(kib) / 2**20, 1) if kib else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def header(peers, python):
    commit = output("git", "rev-parse", "HEAD")
    changed = "+" if output("git", "status", "--porcelain", "--untracked-files=no") else ""
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"date": now, "commit": commit + changed} | machine() | {"versions": versions(peers, python)}


def measure(command, peer, workload, threads):
    """Runs one workload in a new process and returns its rows."""
    count = str(threads)
    environment = os.environ | {"COTANGENT_NUM_THREADS": count, "RAYON_NUM_THREADS": count, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    command = [*command, *(["--threads", count] if peer.startswith("torch") else []), workload]
    failed = {"peer": peer, "workload": workload, "threads": threads}
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [failed | {"error": f"more than {TIMEOUT_S} s"}]
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or not rows:
        rows.append(failed | {"error": run.stderr.strip()[-500:] or f"exit {run.returncode}"})
    return rows


def run_all(arguments, commands, keep):
    for number in range(1, arguments.rounds + 1):
        for threads in arguments.threads:
            for workload in [*arguments.workloads, "limits"]:
                for peer, command in commands.items():
                    if workload in MISSING.get(peer, ()):
                        continue
                    for row in measure(arguments.under + command, peer, workload, threads):
                        keep({"round": number} | row)
                        told = row.get("error") or f"{row['median_ms']:.3f} ms"
                        say(f"round {number}, {threads} threads, {row['workload']}, {peer}: {told}")


def seconds_to_first_line(command):
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        process.stdout.read()
    if process.returncode or not line:
        raise RuntimeError(f"{command[0]}: exit {process.returncode}")
    return seconds


def startup(peer, python, under):
    """The build time, size and startup time of a minimal training program."""
    row = {"peer": peer, "workload": "minimal"}
    if peer == "torch":
        packages = Path(output(python, "-c", "import torch; print(torch.__path__[0])")).parent
        files = (path for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
        row["size_mib"] = sum(path.stat().st_size for path in files) / 2**20
        command = [python, str(HERE / "minimal" / "minimal_mlp.py")]
    else:
        project = HERE / "minimal" if peer == OURS else HERE / "peers" / peer
        folder = TARGET / "minimal" / peer
        subprocess.run(["cargo", "fetch", "--locked"], check=True, cwd=project)
        shutil.rmtree(folder, ignore_errors=True)
        start = time.perf_counter()
        build = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "minimal_mlp", "--target-dir", folder]
        subprocess.run(build, check=True, cwd=project)
        row["build_s"] = time.perf_counter() - start
        binary = folder / "release" / "minimal_mlp"
        row["size_mib"] = binary.stat().st_size / 2**20
        command = [str(binary)]
    starts = sorted(seconds_to_first_line([*under, *command]) for _ in range(3 if peer == "torch" else 11))
    return row | {"first_step_ms": statistics.median(starts) * 1e3}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


class Results:
    def __init__(self, rows):
        self.rows = [row for row in rows if "median_ms" in row]
        self.minimal = {row["peer"]: row for row in rows if row.get("workload") == "minimal"}
        self.threads = sorted({row["threads"] for row in self.rows}, reverse=True)

    def values(self, peer, workload, threads, key):
        wanted = (peer, workload, threads)
        rows = [row for row in self.rows if (row["peer"], row["workload"], row["threads"]) == wanted]
        return [row[key] for row in rows if key in row]

    def median(self, *what):
        values = self.values(*what)
        return statistics.median(values) if values else None

    def peers(self):
        seen = {row["peer"] for row in self.rows} | set(self.minimal)
        return [peer for peer in [OURS, *PEERS] if peer in seen]

    def workloads(self):
        seen = {row["workload"] for row in self.rows}
        return [workload for workload in WORKLOADS if workload in seen]

    def cell(self, peer, workload, threads):
        for key, unit in ("ns_per_op", "ns/op"), ("gflops", "GFLOP/s"), ("median_ms", "ms"):
            if (value := self.median(peer, workload, threads, key)) is not None:
                return f"{number(value)} {unit}"
        return "–"

    def ratio(self, workload, threads):
        """PyTorch's time divided by ours."""
        ours, theirs = (self.median(peer, workload, threads, "median_ms") for peer in (OURS, "torch"))
        return theirs / ours if ours and theirs else None

    def of_limit(self, workload, threads):
        if (flops := self.median(OURS, workload, threads, "gflops")) is not None:
            reached = [value for peer in PEERS for value in self.values(peer, workload, threads, "gflops")]
            return f"{flops / max(reached):.0%} of {number(max(reached))} GFLOP/s" if reached else ""
        if (moved := self.median(OURS, workload, threads, "gb_per_s")) is not None:
            copies = [self.median(peer, "limit_copy", threads, "gb_per_s") for peer in self.peers()]
            copies = [value for value in copies if value]
            return f"{moved / max(copies):.0%} of {number(max(copies))} GB/s" if copies else ""
        return ""

    def table(self, threads):
        peers = [peer for peer in self.peers() if any(r["peer"] == peer and r["threads"] == threads for r in self.rows)]
        lines = [["workload", *(NAMES[peer] for peer in peers), "PyTorch / ours", "of the limit"]]
        ratios = {}
        for workload in self.workloads():
            ratio = self.ratio(workload, threads)
            if ratio:
                ratios[workload] = ratio
            cells = [self.cell(peer, workload, threads) for peer in peers]
            lines.append([workload, *cells, f"{ratio:.2f}" if ratio else "–", self.of_limit(workload, threads)])
        text = f"### {threads} thread{'s' * (threads > 1)}\n\n" + markdown(lines)
        if ratios:
            mean, worst = math.exp(statistics.fmean(map(math.log, ratios.values()))), min(ratios, key=ratios.get)
            text += f"\nGeometric mean of PyTorch / ours over {len(ratios)} workloads: **{mean:.2f}**; "
            text += f"lowest: {ratios[worst]:.2f} ({worst}).\n"
        return text

    def limits(self):
        lines = [["limit", "threads", *(NAMES[peer] for peer in (OURS, "torch"))]]
        for limit, key, unit in (
            ("limit_copy", "gb_per_s", "GB/s"),
            ("limit_matmul_f32", "gflops", "GFLOP/s"),
            ("limit_matmul_bf16", "gflops", "GFLOP/s"),
        ):
            for threads in self.threads:
                values = [self.median(peer, limit, threads, key) for peer in (OURS, "torch")]
                if any(values):
                    lines.append([limit, str(threads), *(f"{number(v)} {unit}" if v else "–" for v in values)])
        return "### Limits\n\n" + markdown(lines) if len(lines) > 1 else ""

    def memory(self):
        lines = [["most memory held, MiB (before the model)", *(NAMES[peer] for peer in self.peers())]]
        for workload in "gpt_tiny", "gpt_tiny_bf16":
            cells = []
            for peer in self.peers():
                keys = "peak_rss_mib", "rss_before_model_mib"
                most, before = (self.median(peer, workload, self.threads[0], key) for key in keys)
                cells.append(f"{number(most)} ({number(before)})" if most and before else "–")
            if set(cells) != {"–"}:
                lines.append([workload, *cells])
        return "### Memory\n\n" + markdown(lines) if len(lines) > 1 else ""

    def start(self):
        if not self.minimal:
            return ""
        lines = [["smallest program that trains", *(NAMES[peer] for peer in self.peers())]]
        for key, title, unit in (
            ("build_s", "build from nothing", "s"),
            ("size_mib", "size on disk", "MiB"),
            ("first_step_ms", "start to first step", "ms"),
        ):
            values = [self.minimal.get(peer, {}).get(key) for peer in self.peers()]
            lines.append([title, *(f"{number(v)} {unit}" if v else "–" for v in values)])
        return "### Starting\n\n" + markdown(lines)


def markdown(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |\n" for line in lines]
    rows.insert(1, "| " + " | ".join("-" * width for width in widths) + " |\n")
    return "".join(rows)


def describe(head):
    commit = head["commit"][:10] + (", changed" if head["commit"].endswith("+") else "")
    memory = f", {head['memory_gib']} GiB" if head.get("memory_gib") else ""
    names = ((NAMES.get(name, name), version.removeprefix("rustc ")) for name, version in head["versions"].items())
    libraries = ", ".join(f"{name} {version}" for name, version in names)
    machine = f"{head['cpu']}, {head['cores']} cores{memory}, {head['system']}"
    return f"{head['date']}, commit {commit}; {machine}; {libraries}.\n"


def render(rows):
    head, results = rows[0], Results(rows[1:])
    parts = [describe(head)]
    if results.rows:
        parts += [results.table(threads) for threads in results.threads] + [results.limits(), results.memory()]
    return "\n".join(part for part in [*parts, results.start()] if part)


def results_file():
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    names = [today, *(f"{today}-{i}" for i in range(2, 1000))]
    return next(path for name in names if not (path := folder / f"{name}.jsonl").exists())


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peers", nargs="*", choices=PEERS, default=PEERS, help="libraries to compare with (default: all)")
    add("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS, metavar="NAME", help="default: all")
    add("--threads", nargs="+", type=int, default=[1, 2], help="thread counts (default: 1 2)")
    add("--rounds", type=int, default=3, help="number of runs of each workload (default: 3)")
    add("--startup", action="store_true", help="also measure build time, size and startup time of a minimal training program")
    add("--python", help="a Python interpreter with PyTorch (default: an environment created under target/)")
    add("--under", type=shlex.split, default=[], metavar="COMMAND", help="prefix for each program, e.g. 'taskset -c 0,1'")
    add("--markdown", type=Path, metavar="FILE", help="also write the tables to a file")
    add("--read", type=Path, metavar="FILE", help="print the tables of earlier results without running anything")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.read:
        rows = [json.loads(line) for line in arguments.read.read_text().splitlines()]
    else:
        rows, path = [], results_file()
        peers = [OURS, *arguments.peers]
        python = (arguments.python or torch_python()) if {"torch", "torch_compile"} & set(peers) else sys.executable
        commands = programs(peers, python) if arguments.workloads else {}
        with path.open("w") as file:

            def keep(row):
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()

            keep(header(peers, python))
            if arguments.startup:
                for peer in (peer for peer in peers if peer != "torch_compile"):
                    say("building and starting the minimal program of", NAMES[peer])
                    keep(startup(peer, python, arguments.under))
            if commands:
                run_all(arguments, commands, keep)
        say("results:", path)
    text = render(rows)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    print(text)
    return any("error" in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
