#!/usr/bin/env python3
"""Runs the test programs of `make_mutants.py` for each mutant, and reports the mutants that no test detects.

    run_mutants.py BIN_DIR [--repo DIR] [--jobs N] [--limit SECONDS] [--out results.jsonl] [--only 17,23]

It requires only Python and the repository. First it runs every test without a mutant, and records which sites each test reaches
(`coverage.jsonl` next to the results). Then it runs, for each mutant, the tests that reach it, the fastest first, until one
fails. Both parts resume when the program is started again with the same files. `--limit` stops it after a time.

The outcomes are `killed`, `timeout` (a test took far longer than usual), `survived` and `unreached`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time

# Tests that read a list of operations from COTANGENT_TEST_OPS: these run for one operation at a time.
SLICED = ("harness::", "torch_fixtures::")
# Tests that are not about single operations, or not about values.
SKIPPED = ("a_gpu_gives", "the_table_in_the_documentation", "names_and_aliases", "ports::", "thread_pool", "no_such_op")
MEMORY = 24 << 30


class Runner:
    def __init__(self, given):
        self.given = given
        self.bin = given.bin_dir.resolve()
        described = json.loads((self.bin / "sites.json").read_text())
        self.sites = {site["number"]: site for site in described["sites"]}
        self.tree = pathlib.Path(described["tree"])
        self.end = time.monotonic() + given.limit
        self.lock = threading.Lock()
        self.coverage_path = given.out.with_name("coverage.jsonl")

    def place(self):
        """Links the repository to the folder where the programs look for their fixtures."""
        if not (self.tree / "tests/fixtures").exists():
            if self.given.repo is None:
                sys.exit(f"--repo is needed: the programs read {self.tree}/tests/fixtures")
            self.tree.parent.mkdir(parents=True, exist_ok=True)
            self.tree.symlink_to(self.given.repo.resolve())

    def run(self, program, arguments, extra, timeout):
        """The exit status, the seconds and the output. The status is None after a timeout."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("COTANGENT_")}
        env |= {"COTANGENT_NUM_THREADS": "2", "COTANGENT_SEED": "1", "RUST_BACKTRACE": "0"} | extra
        start = time.monotonic()
        with tempfile.TemporaryFile() as text:
            child = subprocess.Popen(
                [str(self.bin / program), *arguments], env=env, cwd=self.tree / "tests", stdout=text, stderr=subprocess.STDOUT,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)), start_new_session=True,
            )
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                code = None
            text.seek(0)
            return code, time.monotonic() - start, text.read().decode(errors="replace")

    def names(self, program):
        listed = self.run(program, ["--list"], {}, 60)[2]
        return [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]

    def tasks(self):
        """Every test, and the sliced tests for every operation, as (key, program, arguments, environment)."""
        found = []
        for program in ("ops", "internals", "core", "nn", "train"):
            if not (self.bin / program).exists():
                continue
            for name in self.names(program):
                if any(part in name for part in SKIPPED):
                    continue
                if program == "ops" and name.startswith(SLICED):
                    continue
                found.append((f"{program} {name}", program, ["--exact", name, "--test-threads", "1"], {}))
        skips = [part for name in SKIPPED for part in ("--skip", name)]
        if not (self.bin / "ops").exists():
            return found
        for op in sorted(path.stem for path in (self.tree / "tests/fixtures/ops").glob("*.json")):
            arguments = ["harness::", "torch_fixtures::", "--test-threads", "1", *skips]
            found.append((f"ops of {op}", "ops", arguments, {"COTANGENT_TEST_OPS": op}))
        return found

    def left(self):
        return self.end - time.monotonic()

    def cover(self):
        known = {}
        if self.coverage_path.exists():
            known = {one["key"]: one for one in map(json.loads, self.coverage_path.read_text().splitlines())}
        todo = [task for task in self.tasks() if task[0] not in known]
        print(f"coverage: {len(known)} known, {len(todo)} to run", flush=True)

        def one(task):
            key, program, arguments, extra = task
            if self.left() < 5:
                return
            with tempfile.TemporaryDirectory() as folder:
                seen = pathlib.Path(folder) / "seen"
                code, seconds, text = self.run(program, arguments, extra | {"COTANGENT_MUTANT_SEEN": str(seen)}, min(300, self.left()))
                if code is None and self.left() < 5:
                    return
                numbers = [int(line) for line in seen.read_text().split()] if seen.exists() else []
            entry = {"key": key, "code": code, "seconds": round(seconds, 3), "seen": numbers}
            if code != 0:
                entry["text"] = text[-600:]
            with self.lock, self.coverage_path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

        with concurrent.futures.ThreadPoolExecutor(self.given.jobs) as pool:
            list(pool.map(one, todo))
        if self.left() < 5:
            return None
        entries = map(json.loads, self.coverage_path.read_text().splitlines())
        return {one["key"]: one for one in entries if one["code"] == 0}

    def plan(self, number, covered, tasks):
        """The tasks that reach a site, the fastest first: all tests, and a sample of the operations."""
        reach = sorted((one["seconds"], key) for key, one in covered.items() if number in one["sees"])
        ops = [item for item in reach if item[1].startswith("ops of ")]
        tests = [item for item in reach if not item[1].startswith("ops of ")]
        own = f"ops of {self.sites[number]['op']}"
        first = [item for item in ops if item[1] == own]
        rest = [item for item in ops if item[1] != own]
        if len(rest) > self.given.ops:
            kept = rest[: self.given.ops // 2]
            kept += random.Random(number).sample(rest[self.given.ops // 2 :], self.given.ops - len(kept))
            rest = sorted(kept)
        budget, plan = self.given.budget, []
        for seconds, key in first + sorted(rest + tests):
            if budget > 0:
                plan.append((seconds, tasks[key]))
            budget -= seconds
        return plan, len(reach)

    def mutants(self, covered):
        done = set()
        if self.given.out.exists():
            done = {json.loads(line)["number"] for line in self.given.out.read_text().splitlines()}
        tasks = {task[0]: task for task in self.tasks()}
        for one in covered.values():
            one["sees"] = set(one["seen"])
        covered = {key: one for key, one in covered.items() if key in tasks}
        todo = [number for number in self.sites if number not in done]
        if self.given.only:
            todo = [int(number) for number in self.given.only.split(",")]

        def one(number):
            if self.left() < 5:
                return
            plan, reaching = self.plan(number, covered, tasks)
            result = {"number": number, "outcome": "survived" if plan else "unreached", "runs": 0, "reaching": reaching}
            start = time.monotonic()
            for usual, (key, program, arguments, extra) in plan:
                limit = max(15.0, 10 * usual)
                code, _, text = self.run(program, arguments, extra | {"COTANGENT_MUTANT": str(number)}, min(limit, max(1, self.left())))
                if self.left() < 2:
                    return
                result["runs"] += 1
                if code != 0:
                    result |= {"outcome": "timeout" if code is None else "killed", "by": key, "code": code}
                    break
            site = self.sites[number]
            result |= {"seconds": round(time.monotonic() - start, 2), "file": site["file"], "line": site["line"], "kind": site["kind"]}
            with self.lock:
                with self.given.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                if result["outcome"] in ("survived", "unreached"):
                    print(f"{result['outcome']} {number}: {site['file']}:{site['line']} {site['function']}: "
                          f"{' '.join(site['original'].split())[:90]} -> {' '.join(site['mutated'].split())[:90]}", flush=True)

        print(f"{len(done)} mutants are done, {len(todo)} are to run", flush=True)
        with concurrent.futures.ThreadPoolExecutor(self.given.jobs) as pool:
            list(pool.map(one, todo))

    def report(self):
        results = [json.loads(line) for line in self.given.out.read_text().splitlines()] if self.given.out.exists() else []
        for folder in ["all"] + sorted({"/".join(self.sites[r["number"]]["file"].split("/")[:2]) for r in results}):
            here = [r for r in results if folder == "all" or self.sites[r["number"]]["file"].startswith(folder + "/")]
            counts = {outcome: sum(r["outcome"] == outcome for r in here) for outcome in ("killed", "timeout", "survived", "unreached")}
            print(f"{folder}: {len(here)} mutants, " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--repo", type=pathlib.Path, help="the repository, if the folder of the build does not exist")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=lambda text: float(text.removesuffix("s")), default=1e9, help="seconds in total")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results.jsonl"))
    parser.add_argument("--ops", type=int, default=24, help="the maximum number of operations per mutant")
    parser.add_argument("--budget", type=float, default=240.0, help="the maximum seconds of tests per mutant, by their usual times")
    parser.add_argument("--only", help="run only these mutants, as numbers separated by commas")
    given = parser.parse_args()
    runner = Runner(given)
    runner.place()
    covered = runner.cover()
    if covered is None:
        return print("the time limit is reached: start again to resume")
    runner.mutants(covered)
    runner.report()


if __name__ == "__main__":
    main()
