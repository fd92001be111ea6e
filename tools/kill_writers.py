#!/usr/bin/env python3
"""Kill every writing command while it writes, and look at what it leaves.

    python tools/kill_writers.py                    1,000 kills over all commands
    python tools/kill_writers.py --kills 60 --seed 2
    python tools/kill_writers.py --only convert

An older result stands in its place; the command is to put a newer one there and is killed (SIGKILL): before the n-th
system call that makes, renames or removes a file, or at a random instant. Then each result must be the older or the
newer one, whole; and once the same command has run to its end, the newer one, with nothing else left behind. What is
not so is printed as a finding, and the exit status is 1. Linux only: each trial is a fork of this process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# Dates and times of the run stand in some results.
DATED = re.compile(rb"\d{4}-\d\d-\d\d[ T_]\d\d[:-]\d\d[:-]\d\d(\.\d+)?|\d{8}-\d{6}|[\d.]+ s\b|\"runs\": \d+|\d+ runs")


@dataclass(frozen=True)
class Job:
    """A command in the prepared folder: the words that make the older and the newer result, and where these lie.

    together  the results are swapped as one: all the older ones, or all the newer ones.
    kept      a file in a result that is for going on after a kill, and changes while the command works.
    """

    name: str
    older: str
    newer: str
    results: tuple[str, ...]
    together: bool = True
    kept: str = ""


MODEL = "-m digits.onnx --input_config input_config.ini"
JOBS = (
    Job("dump", "dump -m digits.onnx -i 00.npy -o o.bin", "dump -m digits.onnx -i 01.npy -o o.bin", ("o.bin",)),
    Job(
        "compare",
        "compare a.bin b.bin --csv c.csv --json c.json",
        "compare a.bin a.bin --csv c.csv --json c.json",
        ("c.csv", "c.json"),
        together=False,
    ),
    Job(
        "show",
        "show a.bin --csv s.csv --json s.json",
        "show b.bin --csv s.csv --json s.json",
        ("s.csv", "s.json"),
        together=False,
    ),
    *(
        Job(f"convert to {end}", f"convert a.bin v{end}", f"convert b.bin v{end}", (f"v{end}",))
        for end in (".npz", ".safetensors", "/", ".txt", ".bin")
    ),
    Job("split", "split a.bin parts", "split b.bin parts", ("parts",)),
    Job("merge", "merge a.bin whole.bin", "merge b.bin whole.bin", ("whole.bin",)),
    Job("histogram", "histogram a.bin -o h", "histogram b.bin -o h", ("h",)),
    Job(
        "calibrate",
        f"calibrate {MODEL} -i few -o f.onnx --quant_level L1",
        f"calibrate {MODEL} -i pictures -o f.onnx --quant_level L1",
        ("f.onnx",),
    ),
    Job("pipeline", "pipeline full -m digits.onnx -o p", "pipeline full -m digits.onnx -o p --seed 7", ("p",)),
    Job("pipeline range", "pipeline range -m digits.onnx -b 3 -o p", "pipeline range -m digits.onnx -b 9 -o p", ("p",)),
    Job("tune --first", f"tune --first {MODEL} -i few -o r", f"tune --first {MODEL} -i pictures -o r", ("r",)),
    Job(
        "tune",
        f"tune {MODEL} -i few -o t --rates 0.6",
        f"tune {MODEL} -i few -o t --rates 0.8",
        ("t",),
        kept="progress.json",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="total number of kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="only commands whose name contains WORD")
    args = parser.parse_args(argv)
    jobs = [job for job in JOBS if args.only in job.name]
    draw = random.Random(args.seed)
    outcomes: Counter[str] = Counter()
    findings = 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "start")
        for job in jobs:
            for line in trials(job, Path(folder), -(-args.kills // len(jobs)), draw, outcomes):
                findings += 1
                print(f"{job.name}: {line}", flush=True)
            print(f"{job.name}: {sum(outcomes.values())} kills so far", flush=True)
    ages = ", ".join(f"{number} {what}" for what, number in outcomes.items())
    print(f"{sum(outcomes.values())} kills: {ages}; {findings} findings")
    return int(findings > 0)


def prepare(start: Path) -> None:
    """The demo's files, and two dumps to work on; what is slow to import is imported before the forks."""
    import onnx
    import onnxruntime  # noqa: F401

    from sgsdump import Tensor, save_dump
    from sgsdump.commands import COMMANDS
    from sgsdump.fixedpoint.commands import demo

    assert onnx and all(COMMANDS.values())
    start.mkdir()
    before = Path.cwd()
    os.chdir(start)
    try:
        demo._lay_out(demo._digits())
        Path("few").mkdir()
        for picture in sorted(Path("pictures").iterdir())[:4]:
            shutil.copy(picture, "few")
        draw = np.random.default_rng(0)
        for name in ("00.npy", "01.npy"):
            np.save(name, draw.normal(size=(1, 1, 8, 8)).astype(np.float32))
        for name, count in (("a.bin", 5), ("b.bin", 6)):
            tensors = (Tensor.of(f"t{i}", draw.normal(size=(1, 4, 4, 3)).astype(np.float32)) for i in range(count))
            save_dump(tensors, name, on_loss="ignore")
    finally:
        os.chdir(before)


def trials(job: Job, folder: Path, kills: int, draw: random.Random, outcomes: Counter[str]) -> list[str]:
    """Kill one command ``kills`` times; returns the findings."""
    older, newer, work = (folder / name for name in ("older", "newer", "work"))
    for place in (older, newer, work):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "start", older)
    run(job.older, older)
    shutil.copytree(older, newer)
    began = time.monotonic()
    run(job.newer, newer)
    seconds = time.monotonic() - began
    asides = strays(newer, job) - strays(older, job)
    calls = count_changes(job, older, work)
    findings = []
    for number in range(kills):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(older, work)
        at = (number % max(calls, 1)) + 1 if number % 2 == 0 else None
        how = f"before change {at} of {calls}" if at else f"at {draw.random():.3f} of {seconds:.2f} s"
        run(job.newer, work, at=at, after=None if at else float(how.split()[1]) * seconds)
        ages = [age(work / result, older / result, newer / result, job.kept) for result in job.results]
        outcomes[ages[0] if len(set(ages)) == 1 else "mixed"] += 1
        if "neither" in ages or (job.together and len(set(ages)) > 1):
            findings.append(f"killed {how}: {dict(zip(job.results, ages))}")
        run(job.newer, work)
        if any(digest(work / r, job.kept) != digest(newer / r, job.kept) for r in job.results):
            findings.append(f"killed {how}: the next run does not write the newer result")
        left = {n for n in strays(work, job) - strays(newer, job) if n.endswith(".partial") or not asides}
        if left:
            findings.append(f"killed {how}: left behind {sorted(left)[:3]}")
    return findings


def age(result: Path, older: Path, newer: Path, kept: str) -> str:
    found = digest(result, kept)
    return {digest(older, kept): "older", digest(newer, kept): "newer"}.get(found, "neither")


def digest(path: Path, kept: str = "") -> str:
    """Of a file, or of a folder's names and files but ``kept`` and its partials; dates do not count."""
    if path.is_dir():
        parts = sorted(p for p in path.rglob("*") if p.is_file() and not (kept and kept in p.name))
        return hashlib.sha256("".join(f"{p.relative_to(path)}:{digest(p)}\n" for p in parts).encode()).hexdigest()
    return hashlib.sha256(DATED.sub(b"", path.read_bytes())).hexdigest() if path.exists() else "absent"


def strays(folder: Path, job: Job) -> set[str]:
    """The entries of the folder beside the results."""
    results = tuple(result.rstrip("/") for result in job.results)
    return {path.name for path in folder.iterdir()} - set(results)


def count_changes(job: Job, older: Path, work: Path) -> int:
    """How many calls that change the folder the command makes."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(older, work)
    counter = work.parent / "count"
    run(job.newer, work, counter=counter)
    return int(counter.read_text())


def run(
    words: str, folder: Path, *, at: int | None = None, after: float | None = None, counter: Path | None = None
) -> None:
    """The command in a fork of this process; killed before the change numbered ``at``, or ``after`` so many seconds."""
    child = os.fork()
    if child == 0:
        _child(words.split(), folder, at, counter)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _child(words: list[str], folder: Path, at: int | None, counter: Path | None) -> None:
    from sgsdump.cli import main as sgsdump

    status = 2
    try:
        os.chdir(folder)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        changes = _watch(folder, at)
        status = sgsdump(words)
        if counter:
            number = changes()
            counter.write_text(str(number))
    finally:
        os._exit(status)


def _watch(folder: Path, at: int | None) -> Callable[[], int]:
    """Count the calls that change files of the folder; the process is killed before the one numbered ``at``."""
    from sgsdump.files import atomic_write
    from sgsdump.files.atomic_write import exchange

    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & WRITES or not _inside(path, folder):
                return
        elif event not in CHANGES or not _inside(args[0], folder):
            return
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(one: Path, other: Path) -> bool:
        hook("os.rename", (other,))
        return exchange(one, other)

    # The swap of two folders is a call of the C library that Python does not audit.
    atomic_write.exchange = counted
    sys.addaudithook(hook)
    return lambda: count


def _inside(path: Any, folder: Path) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    return Path(os.path.abspath(os.fsdecode(path))).is_relative_to(folder)  # noqa: PTH100


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
