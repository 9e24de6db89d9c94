#!/usr/bin/env python3
"""Compares our loader with PyTorch's on the same files, in alternating runs: samples per second and their ratio.

    cargo bench --features image --bench data --no-run     # prints the path of the binary
    python3 benches/data/compare.py BINARY [--python PYTHON] [--rounds 2] [--only NAME ..]

PYTHON must have PyTorch and torchvision. Nothing else should run at the same time.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def lines(*command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", default=str(HERE.parent.parent / "target" / "data-bench"))
    parser.add_argument("--only", nargs="*", default=["mnist_tensors", "mnist_items", "jpegs_224", "jpegs_augmented"])
    args = parser.parse_args()
    lines(args.binary, args.folder, "files")
    rates = {}
    for _ in range(args.rounds):
        for name in args.only:
            for command in [(args.binary,), (args.python, str(HERE / "torch_data.py"))]:
                for line in lines(*command, args.folder, name):
                    rates.setdefault((line["workload"], line["peer"]), []).append(line["samples_per_s"])
    print("| workload | Cotangent, samples/s | PyTorch, samples/s | ours / PyTorch |")
    print("| --- | --- | --- | --- |")
    for name in args.only:
        ours, theirs = (statistics.median(rates[name, peer]) for peer in ("cotangent", "torch"))
        print(f"| `{name}` | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    main()
