#!/usr/bin/env python3
"""Run programs of public model libraries under ``sgsdump exec``, and check what comes out by other means.

public_programs.py                         all of them, ten in one process
public_programs.py bert mixtral --size 1   these, each in a process of its own
public_programs.py --draw 4 --seed 7       four of those whose library is installed

Of each: exit status and output are those of the program alone, in tensor and in statistics mode; two captures, in
memory that holds other rubbish, are equal; every module's outputs are those of hooks of its own; and of a capture with
one weight times 1.01 the module of that weight is named first. Networks are small, with random weights; nothing is
downloaded. The status is 1 where something is not so. Libraries that are not installed are skipped, with a line.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # a checkout that is not installed
sys.path.append(str(Path(__file__).parent))

import numpy as np  # noqa: E402
from programs.table import PROGRAMS  # noqa: E402

from sgsdump import Comparison, compare, open_dump  # noqa: E402
from sgsdump.capture.programs.process_index import lines_of, processes_of  # noqa: E402
from sgsdump.comparison.dataflow import first_difference  # noqa: E402

RUN = Path(__file__).parent / "programs" / "run.py"
FACTOR = "1.01"
MODES = {"tensor": ["model", "tensor"], "stats": ["model", "tensor", "stats"]}
# What the C library fills memory with that it gives.
RUBBISH = ("85", "170")


@dataclass
class Capture:
    """status and text of a program; its dump, where there is one, and of each program the steps in it."""

    status: int
    text: str
    errors: str
    root: Path | None = None

    @cached_property
    def steps(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for line in self.lines:
            if line.get("event") == "step" and "inputs" in line:
                found.setdefault(str(line["model"]), []).append(line["step"])
        return found

    @cached_property
    def lines(self) -> list[Any]:
        """Those of steps, modules, and what modules gave."""
        wanted = (line for process in processes_of(self.root) if self.root for line in lines_of(process.folder))
        return [line for line in wanted if line.get("event") == "step" or _is_of_module(line)]

    def dump(self, step: int) -> Any:
        assert self.root is not None
        return open_dump(self.root, step=step)


def _is_of_module(line: Any) -> bool:
    return "." not in str(line.get("type", ".")) and (line.get("side") == "out" or line.get("event") == "operator")


def run(
    names: Sequence[str], folder: Path, mode: str = "", rubbish: str = RUBBISH[0], more: Sequence[str] = ()
) -> Capture:
    """The programs of these names, in one process: alone, or dumped into a folder."""
    program = [sys.executable, str(RUN), *names, *more]
    folder.mkdir(parents=True)
    if mode:
        words = ["exec", "--tree", "-er", "all", "--type", *MODES[mode], "-o", str(folder), "--", *program]
        program = [sys.executable, "-m", "sgsdump", *words]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "MALLOC_PERTURB_": rubbish, "PYTHONPATH": python_path}
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    roots = sorted(folder.glob("msit_dump_*"))
    return Capture(done.returncode, done.stdout, done.stderr, roots[0] if roots else None)


def check(names: Sequence[str], folder: Path, jobs: int) -> Iterator[tuple[str, str]]:
    """A finding: the program, and what is wrong."""
    watched = folder / "watched.pickle"
    with ThreadPoolExecutor(jobs) as pool:
        plain = pool.submit(run, names, folder / "plain")
        captures = {
            (mode, rubbish): pool.submit(run, names, folder / mode / rubbish, mode, rubbish)
            for mode in MODES
            for rubbish in RUBBISH
        }
        planted = pool.submit(run, names, folder / "planted", "tensor", RUBBISH[0], ["--plant", FACTOR])
        seen_by_hooks = pool.submit(run, names, folder / "hooks", "", RUBBISH[0], ["--watch", str(watched)])
    alone = plain.result()
    if alone.status:
        yield "all", f"the program alone ends with {alone.status}: {alone.errors[-500:]}"
        return
    for (mode, _), capture in captures.items():
        yield from same_program(alone, capture.result(), mode)
    for mode in MODES:
        a, b = (captures[mode, rubbish].result() for rubbish in RUBBISH)
        yield from two_captures(a, b, names, mode)
    capture = captures["tensor", RUBBISH[0]].result()
    if seen_by_hooks.result().text != alone.text:
        yield "all", "the test's own hooks change the results of the program"
    seen = pickle.loads(watched.read_bytes())  # of this script's own making
    for name in names:
        yield from same_outputs(capture, name, frozenset(seen[name]["modules"]), seen[name]["outputs"])
        yield from named_first(capture, planted.result(), name, seen[name]["target"])


def same_program(alone: Capture, capture: Capture, mode: str) -> Iterator[tuple[str, str]]:
    if capture.status != alone.status:
        yield "all", f"{mode}: status {capture.status}, alone {alone.status}: {capture.errors[-800:]}"
    for before, after in zip(alone.text.splitlines(), [*capture.text.splitlines(), *[""] * 999]):
        if before != after:
            yield before.partition(" ")[0], f"{mode}: prints {after[:100]!r}, alone {before[:100]!r}"


def two_captures(a: Capture, b: Capture, names: Sequence[str], mode: str) -> Iterator[tuple[str, str]]:
    first, second = a.steps, b.steps
    for name in names:
        if first.get(name) != second.get(name) or not first.get(name):
            yield name, f"{mode}: steps {first.get(name)} and {second.get(name)}"
            continue
        for step in first[name]:
            comparison = compare(a.dump(step), b.dump(step), inputs=True)
            why = different(comparison)
            if why:
                yield name, f"{mode}, step {step}: two captures differ: {why}"


def different(comparison: Comparison) -> str:
    apart = [one.record.name for one in (*comparison.only_in_sample, *comparison.only_in_benchmark)]
    apart += [f"{one.pair.benchmark.name} ({one.reason})" for one in comparison.failed]
    first = first_difference(comparison)
    return f"{first.output.op_index}.{first.where}: {first}" if first else ", ".join(apart[:5])


def same_outputs(
    capture: Capture, name: str, modules: frozenset[str], outputs: Sequence[tuple[str, list[Any]]]
) -> Iterator[tuple[str, str]]:
    """Whether the modules of the program gave what its own hooks saw; none were on modules made while it runs."""
    steps = capture.steps.get(name, [])
    told = [(path, lines) for path, lines in module_outputs(capture, steps) if path in modules]
    if [(path, len(values)) for path, values in told] != [(path, len(values)) for path, values in outputs]:
        paths = [[path for path, _ in some] for some in (told, outputs)]
        apart = next((pair for pair in zip(*paths) if pair[0] != pair[1]), [len(some) for some in paths])
        yield name, f"other modules than its hooks saw: {apart}"
        return
    for (path, lines), (_, values) in zip(told, outputs):
        for line, value in zip(lines, values):
            if line["file"] is None:
                if value.size and value.dtype.kind in "fiu" and value.dtype.itemsize > 1:
                    yield name, f"{path} has no values: {line.get('why')}"
                continue
            assert capture.root is not None
            (record,) = open_dump(capture.root / line["file"]).records
            stored = np.asarray(record.tensor.stored())
            if list(stored.shape) != list(value.shape) or not np.array_equal(
                stored.astype(value.dtype), value, equal_nan=value.dtype.kind == "f"
            ):
                yield name, f"{path} gives other values than its hook saw"


def module_outputs(capture: Capture, steps: Sequence[int]) -> list[tuple[str, list[Any]]]:
    """The lines of each call's outputs in the order in which the calls ended."""
    found: list[tuple[str, list[Any]]] = []
    last: Any = None
    for line in capture.lines:
        if line.get("step") not in steps or not _is_of_module(line):
            continue
        if line.get("event") == "operator":
            if last != (line["step"], line["id"]):
                found.append((line["module"].partition(".")[2], []))
        elif line.get("side") == "out":
            if last != (line["step"], line["id"]):
                last = line["step"], line["id"]
                found.append((line["module"].partition(".")[2], []))
            found[-1][1].append(line)
    return found


def named_first(capture: Capture, planted: Capture, name: str, target: str) -> Iterator[tuple[str, str]]:
    """Whether the first operator that differs is in the module whose weight was changed, or reads that weight."""
    if not target:
        return
    steps, others = capture.steps.get(name, []), planted.steps.get(name, [])
    if not steps or len(steps) != len(others):
        yield name, f"steps {steps}, with the weight changed {others}"
        return
    comparison = compare(planted.dump(others[0]), capture.dump(steps[0]), inputs=True)
    first = first_difference(comparison)
    found = first.output.module if first else "none"
    weight = f"the weight {target}.weight"
    if found != target and not (first and any(row.origin == weight for row in first.inputs)):
        yield name, f"the weight of {target} was changed, but {found} is named first: {first}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to run (default: all)")
    parser.add_argument(
        "--size", type=int, default=10, metavar="N", help="number of programs per process (default: 10)"
    )
    parser.add_argument("--draw", type=int, metavar="N", help="run only N random programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel processes (default: 2)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    names = args.names or list(PROGRAMS)
    absent = sorted({PROGRAMS[name].library for name in names if find_spec(PROGRAMS[name].library) is None})
    for library in absent:
        print(f"skipped: the programs of {library}, which is not installed")
    names = [name for name in names if PROGRAMS[name].library not in absent]
    if args.draw:
        names = sorted(random.Random(args.seed).sample(names, min(args.draw, len(names))))
    wrong: list[tuple[str, str]] = []
    for first in range(0, len(names), args.size):
        batch = names[first : first + args.size]
        with tempfile.TemporaryDirectory() as folder:
            found = list(check(batch, Path(folder), args.jobs))
        for name, what in found:
            print(f"{name}: {what}", flush=True)
        print(
            f"{len(batch)} programs, {len({name for name, _ in found})} with something wrong: {' '.join(batch)}",
            flush=True,
        )
        wrong += found
    bad = {name for name, _ in wrong}
    print(
        f"{len(names)} programs: {len(names) - len(bad)} correct"
        + (f"; wrong: {', '.join(sorted(bad))}" if bad else "")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
