#!/usr/bin/env python3
"""Builds the test programs from a copy of the sources with a few hundred mutants, each behind a switch.

    tools/mutants/make_mutants.py BIN_DIR [--tree DIR] [--count 300] [--seed 1] [--programs ops,internals,core,nn,train]

Each site becomes `if crate::mutant::on(17) { mutated } else { original }`. `COTANGENT_MUTANT=17` enables one, so that
one build has all mutants. Mutants that do not compile are dropped. BIN_DIR gets the programs, `sites.json` and `run_mutants.py`.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import sites

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The share of each folder in the sample.
SHARES = {"src/ops": 0.42, "src/backend/cpu": 0.26, "src/autograd": 0.09, "src/layout": 0.07, "src/nn": 0.07, "src/optim": 0.09}
# Code that tests on common machines do not reach, or that belongs to tests.
LEFT_OUT = re.compile(r"/amx/|tests?\.rs$|_tests\.rs$|/on_gpus?\.rs$|/gradcheck\.rs$")
TESTS = re.compile(r"samples|errors|^fmt$|_cases$")

SWITCH = """//! The switch of the mutants: `COTANGENT_MUTANT` is the number of the enabled one. With `COTANGENT_MUTANT_SEEN`, the
//! numbers of the mutants that were reached are written to that file when the program ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const COUNT: usize = @COUNT@;
const UNREAD: u32 = u32::MAX;
const WATCHED: u32 = u32::MAX - 1;
static WHICH: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

#[inline]
pub(crate) fn on(number: u32) -> bool {
    let which = WHICH.load(Relaxed);
    if which >= WATCHED { slow(number) } else { which == number }
}

#[cold]
#[inline(never)]
fn slow(number: u32) -> bool {
    if WHICH.load(Relaxed) == UNREAD {
        let which = if std::env::var_os("COTANGENT_MUTANT_SEEN").is_some() {
            // SAFETY: the function has no arguments and does not unwind.
            unsafe { libc::atexit(write) };
            WATCHED
        } else {
            std::env::var("COTANGENT_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(COUNT as u32)
        };
        WHICH.store(which, Relaxed);
    }
    if WHICH.load(Relaxed) != WATCHED {
        return WHICH.load(Relaxed) == number;
    }
    SEEN[number as usize].store(true, Relaxed);
    false
}

extern "C" fn write() {
    let seen: Vec<String> = (0..COUNT).filter(|&at| SEEN[at].load(Relaxed)).map(|at| at.to_string()).collect();
    if let Some(path) = std::env::var_os("COTANGENT_MUTANT_SEEN") {
        let _ = std::fs::write(path, seen.join("\\n"));
    }
}
"""


def candidates():
    for folder in SHARES:
        for path in sorted((ROOT / folder).rglob("*.rs")):
            name = str(path.relative_to(ROOT))
            if not LEFT_OUT.search(name):
                yield from ((folder, site) for site in sites.File(name, path.read_text()).sites())


def chosen(count, seed):
    """A sample with the shares of the folders, without overlapping sites, and with a balance of the kinds of changes."""
    by_folder = collections.defaultdict(lambda: collections.defaultdict(list))
    for folder, site in candidates():
        if not TESTS.search(site.function):
            by_folder[folder][site.kind].append(site)
    dice, taken = random.Random(seed), []
    for folder, share in SHARES.items():
        kinds = by_folder[folder]
        for kind in kinds.values():
            dice.shuffle(kind)
        here = []
        while len(here) < round(count * share) and any(kinds.values()):
            kind = dice.choice(sorted(kind for kind in kinds if kinds[kind]))
            site = kinds[kind].pop()
            alone = all(o.file != site.file or o.end <= site.start or site.end <= o.start for o in here)
            # At most one site per function.
            if alone and all((o.file, o.function) != (site.file, site.function) for o in here):
                here.append(site)
        taken += here
    return taken


def copy_tree(tree):
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        source, target = ROOT / name, tree / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    # Mutants need not satisfy the lints.
    for path in [tree / "Cargo.toml"]:
        path.write_text(path.read_text().replace('"deny"', '"allow"'))


def write(tree, numbered):
    """Writes the files with sites, and returns the lines of each site."""
    lines = {}
    by_file = collections.defaultdict(list)
    for number, site in numbered.items():
        by_file[site.file].append((site.start, number, site))
    for file, here in by_file.items():
        source, out, at = (ROOT / file).read_text(), "", 0
        for start, number, site in sorted(here, key=lambda one: one[0]):
            out += source[at:start]
            first = out.count("\n") + 1
            if site.kind == "sign" and re.search(r"[^<>=!][-+*/]= ", site.original):
                out += f"if crate::mutant::on({number}) {{ {site.mutated}; }} else {{ {site.original}; }}"
            else:
                out += f"(if crate::mutant::on({number}) {{ {site.mutated} }} else {{ {site.original} }})"
            lines[number] = (file, first, out.count("\n") + 1)
            at = site.end
        put(tree / file, out + source[at:])
    # Files whose sites were all dropped are unchanged.
    for path in sorted((ROOT / "src").rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        if name not in by_file and name != "src/lib.rs":
            put(tree / name, path.read_text())
    put(tree / "src/mutant.rs", SWITCH.replace("@COUNT@", str(max(numbered) + 1)))
    lib = (ROOT / "src/lib.rs").read_text()
    first = re.search(r"^(pub )?(mod|use) ", lib, re.M).start()
    # It may have attributes or comments before it.
    at = re.search(r"(?:^(?:#\[|///).*\n)*\Z", lib[:first], re.M).start()
    put(tree / "src/lib.rs", lib[:at] + "mod mutant;\n" + lib[at:])
    return lines


def put(path, text):
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def cargo(tree, command, *more):
    # It is built once: see .ci/run.
    once = {"CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_CODEGEN_UNITS": "16", "CARGO_PROFILE_DEV_DEBUG": "0"}
    env = os.environ | once | {"RUSTC_WRAPPER": os.environ.get("RUSTC_WRAPPER", "")}
    done = subprocess.run(
        ["cargo", *command, "--message-format=json", *more], cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def spans(message):
    yield from message["spans"]
    for child in message["children"]:
        yield from spans(child)


def bad_sites(messages, lines):
    """The sites with compiler errors on their lines."""
    bad, unknown = set(), []
    for message in (m["message"] for m in messages if m.get("reason") == "compiler-message"):
        if message["level"] != "error" or not message["spans"]:
            continue
        hits = set()
        for span in message["spans"]:
            while span is not None:
                for number, (file, first, last) in lines.items():
                    if span["file_name"] == file and span["line_start"] <= last and first <= span["line_end"]:
                        hits.add(number)
                span = (span.get("expansion") or {}).get("span")
        if not hits:
            unknown.append(message["rendered"])
        bad |= hits
    return bad, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--tree", type=pathlib.Path, default=pathlib.Path("/tmp/cotangent-mutants"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", default="ops,internals,core,nn,train")
    parser.add_argument("--check-only", action="store_true")
    given = parser.parse_args()
    # 15 % more than requested, because some do not compile.
    numbered = dict(enumerate(chosen(round(given.count * 1.15), given.seed)))
    print(f"{len(numbered)} sites", flush=True)
    given.tree.mkdir(parents=True, exist_ok=True)
    copy_tree(given.tree)
    while True:
        lines = write(given.tree, numbered)
        code, messages, errors = cargo(given.tree, ["check", "-p", "cotangent", "--features", "samples", "--lib"])
        if code == 0:
            break
        bad, unknown = bad_sites(messages, lines)
        if not bad:
            sys.exit("".join(unknown) or errors)
        for number in bad:
            site = numbered.pop(number)
            print(f"dropped {number}: {site.file}:{site.line} {' '.join(site.mutated.split())[:80]}", flush=True)
    print(f"{len(numbered)} sites compile", flush=True)
    given.bin_dir.mkdir(parents=True, exist_ok=True)
    table = [{"number": number, **vars(site)} for number, site in numbered.items()]
    (given.bin_dir / "sites.json").write_text(json.dumps({"tree": str(given.tree), "sites": table}, indent=1))
    shutil.copyfile(pathlib.Path(__file__).with_name("run_mutants.py"), given.bin_dir / "run_mutants.py")
    if given.check_only:
        return
    programs = given.programs.split(",")
    tests = [part for program in programs for part in ("--test", program)]
    code, messages, errors = cargo(given.tree, ["test", "-p", "cotangent-tests", "--no-run", *tests])
    if code != 0:
        sys.exit(errors)
    for message in messages:
        if message.get("executable") and message["target"]["name"] in programs:
            target = given.bin_dir / message["target"]["name"]
            shutil.copyfile(message["executable"], target)
            subprocess.run(["strip", str(target)], check=True)
            target.chmod(0o755)
            print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
