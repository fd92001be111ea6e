"""A long run of a fuzzer: damaged files in processes of their own, what fails told and saved."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import multiprocessing.connection
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing.damage import Result, save, try_numbers
from fuzzing.seeds import Seed
from fuzzing.trial import BLOCKED_SECONDS, Finding

CHUNK, FOLDER_SHARE = 2000, 4
STUCK_SECONDS = 20.0
HEADROOM = 512 * 2**20
MOST_DEATHS = 50


@dataclass(frozen=True)
class Task:
    """Files ``start`` to ``end`` of a format."""

    format: str
    start: int
    end: int


def main(description: str | None, seeds: Callable[[], dict[str, list[Seed]]], argv: Sequence[str] | None) -> int:
    """The command of a fuzzer of these seeds, given by format; returns its exit status."""
    args = _arguments(description).parse_args(argv)
    all_seeds = seeds()
    unknown = set(args.format or ()) - set(all_seeds)
    if unknown:
        names, known = ", ".join(sorted(unknown)), ", ".join(all_seeds)
        print(f"{Path(sys.argv[0]).name}: no seeds for {names} (known: {known})", file=sys.stderr)
        return 2
    chosen = {name: all_seeds[name] for name in args.format or all_seeds}
    if args.only is not None:
        return _only(chosen, args)
    started = time.monotonic()
    results = {name: Result() for name in chosen}
    for task, result in _run(chosen, _tasks(chosen, args.files), args):
        for number, finding in result.findings:
            if results[task.format].kinds[finding.what] < 3:
                _tell(chosen[task.format], args, task.format, number, finding)
        results[task.format].add(result)
    _summary(results, chosen, time.monotonic() - started)
    return 1 if any(result.kinds for result in results.values()) else 0


def _arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--files", type=int, default=1_000_000, help="number of files for all formats together (default: 1000000)"
    )
    parser.add_argument("--format", action="append", help="only files of this format; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="seed of the files (default: 0)")
    parser.add_argument("--seconds", type=float, help="stop after this number of seconds")
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="create and read only the file with this number, of --format"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--findings", type=Path, default=Path("fuzz_findings"), help="folder for the files that fail")
    return parser


def _tasks(seeds: dict[str, list[Seed]], files: int) -> list[Task]:
    """A share for each format, smaller where a file costs more; in turns, so that all get on alike."""
    weights = {
        name: (1 if all(seed.is_folder for seed in of) else FOLDER_SHARE) / of[0].slower for name, of in seeds.items()
    }
    tasks = []
    for name, weight in weights.items():
        share, chunk = math.ceil(files * weight / sum(weights.values())), CHUNK // seeds[name][0].slower
        tasks += [Task(name, start, min(start + chunk, share)) for start in range(0, share, chunk)]
    return sorted(tasks, key=lambda task: task.start / weights[task.format])


def _run(seeds: dict[str, list[Seed]], tasks: list[Task], args: argparse.Namespace) -> Iterator[tuple[Task, Result]]:
    """The results of the tasks as they come, each from a process of its own that may crash or hang."""
    from tqdm import tqdm

    fast = "/dev/shm"
    folder = Path(tempfile.mkdtemp(prefix="fuzz_", dir=fast if os.access(fast, os.W_OK) else None))
    end = None if args.seconds is None else time.monotonic() + args.seconds
    waiting, running, died = list(reversed(tasks)), list[_Process](), 0
    bar = tqdm(total=sum(task.end - task.start for task in tasks), unit=" files", disable=None)
    try:
        with bar:
            while waiting or running:
                if end is not None and time.monotonic() > end:
                    waiting.clear()
                while waiting and len(running) < args.processes:
                    task = waiting.pop()
                    running.append(_Process(task, seeds[task.format], args.seed, folder))
                multiprocessing.connection.wait([process.end_of_pipe for process in running], timeout=0.5)
                for process in list(running):
                    outcome = process.outcome()
                    if outcome is None:
                        continue
                    running.remove(process)
                    result, rest = outcome
                    died += rest is not None
                    if rest is not None and died < MOST_DEATHS:
                        waiting.append(rest)
                    bar.update(result.tried)
                    yield process.task, result
    finally:
        for process in running:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


class _Process:
    """A task in a process; its progress is the number of the file it is at."""

    def __init__(self, task: Task, seeds: list[Seed], run: int, folder: Path):
        context = multiprocessing.get_context("fork")
        self._stuck_after = max(STUCK_SECONDS, 3 * BLOCKED_SECONDS * seeds[0].slower)
        self.task, self._at = task, context.Value("q", task.start, lock=False)
        self.end_of_pipe, other = context.Pipe(duplex=False)
        self._folder = folder / f"{task.format}{task.start}"
        work = (task, seeds, run, self._folder, self._at, other)
        self._process = context.Process(target=_work, args=work, daemon=True)
        self._process.start()
        other.close()
        self._seen, self._since = task.start, time.monotonic()

    def outcome(self) -> tuple[Result, Task | None] | None:
        """The result once there is one, and what is left to do when the process crashed or was stuck."""
        now, at, stuck = time.monotonic(), int(self._at.value), False
        if at != self._seen:
            self._seen, self._since = at, now
        if not self.end_of_pipe.poll():
            stuck = now - self._since > self._stuck_after
            if not stuck:
                return None
            self.kill()
        try:
            result, rest = self.end_of_pipe.recv(), None
        except EOFError:
            self._process.join()
            what = "stuck" if stuck else f"the process died (exit code {self._process.exitcode})"
            result = Result(at - self.task.start + 1)
            result.kinds[what] += 1
            result.findings.append((at, Finding(what, "")))
            rest = Task(self.task.format, at + 1, self.task.end) if at + 1 < self.task.end else None
        self._process.join()
        self.end_of_pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return result, rest

    def kill(self) -> None:
        self._process.kill()


def _work(task: Task, seeds: list[Seed], run: int, folder: Path, at: Any, pipe: Any) -> None:
    try_numbers(seeds, run, [0], folder)  # what is imported and cached is no file's
    _limit_memory(HEADROOM * min(seeds[0].slower, 4))

    def starting(number: int) -> None:
        at.value = number

    pipe.send(try_numbers(seeds, run, range(task.start, task.end), folder, starting))


def _limit_memory(headroom: int) -> None:
    """Room for so many bytes more than now; asking for more at once is a MemoryError, and so a finding."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + headroom, now + headroom))


def _only(seeds: dict[str, list[Seed]], args: argparse.Namespace) -> int:
    if len(seeds) != 1:
        print(f"{Path(sys.argv[0]).name}: --only needs one --format", file=sys.stderr)
        return 2
    ((name, of),) = seeds.items()
    with tempfile.TemporaryDirectory() as folder:
        try_numbers(of, args.seed, [args.only], Path(folder) / "warm")
        result = try_numbers(of, args.seed, [args.only], Path(folder) / "again")
    for number, finding in result.findings:
        _tell(of, args, name, number, finding)
    print(f"{name} {args.only}: {'finding' if result.kinds else 'opened' if result.opened else 'refused'}")
    return 1 if result.kinds else 0


def _tell(seeds: list[Seed], args: argparse.Namespace, name: str, number: int, finding: Finding) -> None:
    path = save(seeds, args.seed, number, args.findings / f"{name}_{args.seed}_{number}")
    again = f"{Path(sys.argv[0]).name} --format {name} --seed {args.seed} --only {number}"
    print(f"\n{name}: {finding.what}\n  saved as {path}; again: {again}\n{finding.details}", flush=True)


def _summary(results: dict[str, Result], seeds: dict[str, list[Seed]], seconds: float) -> None:
    row = "{:<16} {:>6} {:>9} {:>9} {:>9} {:>9}".format
    print(row("format", "seeds", "files", "opened", "refused", "findings"))
    for name, result in results.items():
        found = result.kinds.total()
        refused = result.tried - result.opened - found
        print(row(name, len(seeds[name]), result.tried, result.opened, refused, found))
    total = Result()
    for result in results.values():
        total.add(result)
    found = total.kinds.total()
    seeds_in_all = sum(map(len, seeds.values()))
    print(row("all", seeds_in_all, total.tried, total.opened, total.tried - total.opened - found, found))
    print(f"{seconds:.0f} s, {total.tried / max(seconds, 1e-9):.0f} files/s")
