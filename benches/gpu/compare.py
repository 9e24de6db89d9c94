#!/usr/bin/env python3
"""Compares the GPU workloads of this library with PyTorch's, in one run on one machine.

    cargo bench --features cuda --bench gpu --no-run    # prints the path of the binary
    python3 benches/gpu/compare.py BINARY [--out RESULTS.jsonl] [--no-compile] [--only NAME ..]

Ours run before and after PyTorch's, to detect changes in the machine's speed. Prints a table; requires PyTorch.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# name, unit, whether more is better
ROWS = [
    ("copy_bw", "TBps", True),
    ("matmul_8192_bf16", "TFLOPs", True),
    ("matmul_8192_f16", "TFLOPs", True),
    ("matmul_8192_f32", "TFLOPs", True),
    ("matmul_8192_tf32", "TFLOPs", True),
    ("overhead", "ns_per_op", False),
    ("mlp_small", "us_per_step", False),
    ("mlp_small_recorded", "us_per_step", False),
    ("elementwise_64M_f32", "ms", False),
    ("xent_8192x50257_bf16", "ms", False),
    ("layernorm_32768x768_bf16", "ms", False),
    ("attention_8x12x1024x64_bf16_causal", "fwd_ms", False),
    ("attention_8x12x1024x64_bf16_causal", "both_ms", False),
    ("attention_4x16x4096x64_bf16_causal", "fwd_ms", False),
    ("attention_4x16x4096x64_bf16_causal", "both_ms", False),
    ("attention_4x16x4096x128_bf16_causal", "fwd_ms", False),
    ("attention_4x16x4096x128_bf16_causal", "both_ms", False),
    ("attention_4x16x2048x64_f32_causal", "fwd_ms", False),
    ("attention_4x16x2048x64_f32_causal", "both_ms", False),
    ("gpt2_124M_bf16", "tokens_per_s", True),
    ("gpt2_124M_bf16", "peak_GiB", False),
    ("gpt2_124M_bf16_params", "tokens_per_s", True),
    ("gpt2_124M_bf16_params", "peak_GiB", False),
    ("resnet50_bf16", "images_per_s", True),
    ("resnet50_bf16", "peak_GiB", False),
    ("resnet50_bf16_params", "images_per_s", True),
    ("resnet50_bf16_params", "peak_GiB", False),
    ("resnet18_64px_tf32", "ms", False),
    ("lstm_256_64x128", "ms", False),
    ("batch_norm_f32", "ms", False),
    ("batch_norm_bf16", "ms", False),
    ("max_pool_bf16", "ms", False),
    ("conv_bf16", "ms", False),
    ("conv_1x1_bf16", "ms", False),
    ("conv_depthwise_bf16", "ms", False),
]
# Single operations: the rows of the table in `workloads/breadth.rs`.
ROWS += [(name, "ms", False) for name in re.findall(r'\brow\(\s*"(\w+)"', (HERE.parent / "workloads" / "breadth.rs").read_text())]
ROWS += [(name, "ms", False) for name in re.findall(r'name: "(\w+)"', (HERE.parent / "workloads" / "networks.rs").read_text())]


def lines_of(command, who, out):
    """Runs a program and yields the JSON lines it prints."""
    found = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("{"):
            found.append({"who": who, **json.loads(line)})
            print(json.dumps(found[-1]), file=out, flush=True)
            print(f"{who}: {line.strip()}", file=sys.stderr, flush=True)
    if process.wait() != 0:
        print(f"{who} ended with {process.returncode}", file=sys.stderr)
    return found


def figure(lines, who, name, unit):
    """The median of the measurements, or None."""
    # Our recorded step is compared with PyTorch's step; when compiled, that also uses a CUDA graph.
    if who != "cotangent" and name == "mlp_small_recorded":
        name = "mlp_small"
    # Ours has bf16 parameters with f32 residuals: it is between PyTorch's two settings, and is compared with both.
    if who == "cotangent" and name.endswith("_bf16_params"):
        name = name.removesuffix("_params")
    values = [line[unit] for line in lines if line["who"] == who and line["workload"] == name and unit in line]
    return statistics.median(values) if values else None


def show(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(lines):
    rows = [("workload", "unit", "Cotangent", "PyTorch", "compiled", "PyTorch / ours", "compiled / ours")]
    ratios = []
    for name, unit, more_is_better in ROWS:
        ours, eager, compiled = (figure(lines, who, name, unit) for who in ("cotangent", "torch", "torch_compiled"))

        def ratio(theirs):
            if ours is None or theirs is None:
                return None
            return ours / theirs if more_is_better else theirs / ours

        eager_ratio = ratio(eager)
        # The mean excludes the limit, memory, and further rows of the same workload.
        if eager_ratio is not None and name not in ("copy_bw", "mlp_small_recorded") and not name.endswith("_params") and unit != "peak_GiB":
            ratios.append(eager_ratio)
        if (ours, eager, compiled) == (None, None, None):
            continue
        ratio_text = [f"{r:.2f}" if r is not None else "" for r in (eager_ratio, ratio(compiled))]
        rows.append((name, unit, show(ours), show(eager), show(compiled) if compiled else "", *ratio_text))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    text = []
    for at, row in enumerate(rows):
        text.append("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if at == 0:
            text.append("| " + " | ".join("-" * width for width in widths) + " |")
    if ratios:
        text.append(f"\nGeometric mean of PyTorch / ours over {len(ratios)} rows: {statistics.geometric_mean(ratios):.2f}; lowest: {min(ratios):.2f}.")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", help="the benchmark that Cargo built")
    parser.add_argument("--out", help="a file for the JSON lines")
    parser.add_argument("--read", help="print the table of earlier results without running anything")
    parser.add_argument("--no-compile", action="store_true", help="do not run torch.compile, which takes a minute")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run only these; `breadth` and `networks` are groups")
    args = parser.parse_args()
    if args.read:
        print(table([json.loads(line) for line in Path(args.read).read_text().splitlines()]))
        return
    if not args.binary:
        parser.error("the binary is required")
    with open(args.out or "/dev/null", "w", encoding="utf-8") as out:
        torch_gpu = [sys.executable, str(HERE / "torch_gpu.py")]
        lines = lines_of([args.binary, *args.only], "cotangent", out)
        lines += lines_of([*torch_gpu, *args.only], "torch", out)
        if not args.no_compile:
            lines += lines_of([*torch_gpu, "--compile", *args.only], "torch_compiled", out)
        lines += lines_of([args.binary, *args.only], "cotangent", out)
    print(table(lines))


if __name__ == "__main__":
    main()
