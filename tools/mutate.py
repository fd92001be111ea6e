#!/usr/bin/env python3
"""Change the source a little, hundreds of times, and see whether the tests notice.

Needs ``pip install cosmic-ray coverage`` (for people who run it: neither is a dependency or an extra) and a Unix
system. A copy of the checkout in --scratch is changed, never the checkout. First every test file of a room is run once
under coverage.py, so that a mutant meets only the tests that run its line, the quickest first; that is kept in
--scratch for the next run, as are the kills, since more tests kill no less. Prints for each room how many mutants were
killed, survived, timed out (a kind of killed) or lie where no test goes, and the survivors. ``mutation/equivalent.txt``
lists mutants that change nothing anyone could see, and why; they are not counted. The same --seed draws the same
mutants from the same source.

mutate.py --sample 120 --seed 1
mutate.py --room tensors --seed 2
mutate.py --module sgsdump/comparison/thresholds.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

try:
    from mutation.mutants import Mutant, drawn, mutants_of
    from mutation.trace import Trace, traced
    from mutation.trial import KILLED, PYTEST, SURVIVED, TIMED_OUT, copied, in_child, outcome, prepare
except ImportError as error:
    sys.exit(f"mutate.py: {error}; pip install cosmic-ray coverage")

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).parent / "mutation" / "equivalent.txt"
UNCOVERED, NO_CHANGE = "no test", "equivalent"
TRACE_SECONDS = 900


@dataclass(frozen=True)
class Room:
    """A folder of the package and the tests that concern it (folders, or the beginnings of file names)."""

    source: str
    tests: tuple[str, ...]


ROOMS = {
    "tensors": Room(
        "sgsdump/tensors",
        (
            "tests/test_frozen_records.py",
            "tests/tensors",
            "tests/dumps/test_dump",
            "tests/dumps/test_losses",
            "tests/comparison/test_",
            "tests/reports/charts",
            "tests/commands/test_show",
            "tests/sidecars/test_input_text",
        ),
    ),
    "sidecars": Room(
        "sgsdump/sidecars",
        (
            "tests/test_frozen_records.py",
            "tests/sidecars",
            "tests/models/feeds",
            "tests/fixedpoint/commands/test_calibrate_sim",
            "tests/commands/test_histogram",
            "tests/fixedpoint/quantisation/test_quant",
            "tests/dumps/formats/sigmastar",
        ),
    ),
    "sigmastar": Room(
        "sgsdump/dumps/formats/sigmastar",
        (
            "tests/test_frozen_records.py",
            "tests/dumps/test_dump",
            "tests/dumps/test_losses",
            "tests/dumps/formats/sigmastar",
            "tests/commands/test_convert",
            "tests/commands/test_split",
            "tests/commands/test_show",
        ),
    ),
    "comparison": Room(
        "sgsdump/comparison",
        ("tests/test_frozen_records.py", "tests/comparison", "tests/commands/test_compare", "tests/reports/test_comp"),
    ),
    "quantisation": Room(
        "sgsdump/fixedpoint/quantisation",
        (
            "tests/test_frozen_records.py",
            "tests/fixedpoint/quantisation",
            "tests/fixedpoint/tuning",
            "tests/fixedpoint/commands/test_calibrate",
        ),
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    prepare()
    scratch = args.scratch.resolve()
    tree = copied(ROOT, scratch)
    known = equivalent(EQUIVALENT.read_text(encoding="utf-8"))
    survivors: list[Mutant] = []
    for name in [room_of(args.module)] if args.module else args.room or ROOMS:
        room = ROOMS[name]
        trace = room_trace(room, tree, scratch, args.verbose)
        paths = (
            [args.module]
            if args.module
            else [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / room.source).rglob("*.py"))]
        )
        mutants = drawn([mutant for path in paths for mutant in mutants_of(tree, path)], args.sample, args.seed)
        counts: Counter[str] = Counter()
        log = scratch / f"kills.{digest(package_files(tree))}.json"
        kills = {} if args.fresh or not log.exists() else json.loads(log.read_text(encoding="utf-8"))
        started = time.monotonic()
        for mutant in mutants:
            key = hashlib.sha256(f"{mutant.path}\0{mutant.text}".encode()).hexdigest()
            result = NO_CHANGE if (mutant.path, *mutant.change) in known else kills.get(key)
            result = result or judged(mutant, trace, tree, scratch, args.budget)
            counts[result] += 1
            if result in (KILLED, TIMED_OUT):
                kills[key] = result
                log.write_text(json.dumps(kills), encoding="utf-8")
            if result in (SURVIVED, UNCOVERED):
                survivors.append(mutant)
                print(f"\n{result}: {mutant.diff()}", flush=True)
            elif args.verbose:
                print(f"{result}: {mutant.path}:{mutant.start[0]} {mutant.operator}", flush=True)
        print(f"\n{summary(name, counts)}; {time.monotonic() - started:.0f} s, seed {args.seed}", flush=True)
    return 1 if survivors else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this part of the package; may be repeated")
    parser.add_argument("--module", metavar="FILE", help="only this file, such as sgsdump/tensors/types.py")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="number of random sites per part of the package (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of sites and changes (default: 0)")
    parser.add_argument(
        "--budget", type=float, default=60, metavar="SECONDS", help="seconds of tests per mutant (default: 60)"
    )
    place = Path(tempfile.gettempdir()) / "sgsdump-mutation"
    parser.add_argument("--scratch", type=Path, default=place, help=f"folder for the copy and the traces ({place})")
    parser.add_argument(
        "--fresh", action="store_true", help="also run mutants of unchanged source that were killed before"
    )
    parser.add_argument("--verbose", action="store_true", help="print the outcome of every mutant")
    return parser


def room_of(module: str) -> str:
    found = [name for name, room in ROOMS.items() if module.startswith(room.source + "/")]
    if not found or not (ROOT / module).is_file():
        sys.exit(f"mutate.py: {module} is not a file of {', '.join(room.source for room in ROOMS.values())}")
    return found[0]


def room_trace(room: Room, tree: Path, scratch: Path, verbose: bool) -> Trace:
    """The lines each test file of the room runs, measured where it or the package has changed since the last time."""
    package = digest(package_files(tree))
    kept = scratch / "traces"
    kept.mkdir(exist_ok=True)
    whole = Trace()
    shared_by_tests = sorted(set((tree / "tests").glob("*.py")) - set((tree / "tests").glob("test_*.py")))
    for file in sorted((tree / "tests").rglob("test_*.py")):
        name = file.relative_to(tree).as_posix()
        if not name.startswith(room.tests):
            continue
        place = kept / f"{name.replace('/', '.')}.{package}.{digest([file, *shared_by_tests])}.json"
        if not place.exists():

            def work(name: str = name, place: Path = place) -> int:
                data = scratch / "coverage.data"
                data.unlink(missing_ok=True)
                traced(tree, [name], [*PYTEST, f"--basetemp={scratch / 'tmp'}"], data).save(place)
                return 0

            status = in_child(tree, work, TRACE_SECONDS, scratch / "trace.log")
            if status != 0:
                sys.exit(f"mutate.py: {name} could not be traced; see {scratch / 'trace.log'}")
        trace = Trace.load(place)
        for test in sorted(trace.failed):
            print(f"skipped, because it fails without a mutant:  {test}")
        if verbose:
            print(f"{name}: {len(trace.seconds)} tests, {sum(trace.seconds.values()):.1f} s", flush=True)
        whole.add(trace)
    return whole


def judged(mutant: Mutant, trace: Trace, tree: Path, scratch: Path, budget: float) -> str:
    """The fate of a mutant: the tests in the folder of its own room go first, then the others. Before them go, for
    what a record is made with, the tests at the top, where what holds for every record is tested."""
    mirror = str(Path(mutant.path).parent).replace("sgsdump", "tests", 1)
    of_a_record = any(row.startswith("@dataclass") for row in mutant.change[0])
    turns: dict[int, list[str]] = {0: [], 1: [], 2: []}
    seconds = 0.0
    for test in trace.tests_of(mutant.path, mutant.source, mutant.start[0]):
        at_the_top = test.startswith("tests/test_")
        turns[0 if of_a_record and at_the_top else 1 if test.startswith(mirror) else 2].append(test)
    result = UNCOVERED
    for known in turns.values():
        tests = []
        for test in known:
            if seconds + trace.seconds[test] <= budget:
                seconds += trace.seconds[test]
                tests.append(test)
        if tests and result in (UNCOVERED, SURVIVED):
            result = outcome(tree, mutant.path, mutant.text, tests, 30 + 5 * min(seconds, budget), scratch)
    return result


def package_files(tree: Path) -> list[Path]:
    return sorted((tree / "sgsdump").rglob("*.py"))


def digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def equivalent(text: str) -> dict[tuple[str, tuple[str, ...], tuple[str, ...]], str]:
    """The reasons of the list, by file, removed lines and added lines.

    An entry is a file's path, the lines that go with ``- `` before them, those that come, if any, with ``+ ``, and the
    reason; a blank line ends it. ``#`` begins a comment.
    """
    entries = {}
    for block in text.split("\n\n"):
        rows = [row for row in block.splitlines() if row.strip() and not row.startswith("#")]
        if not rows:
            continue
        removed = tuple(row[2:].strip() for row in rows[1:] if row.startswith("- "))
        added = tuple(row[2:].strip() for row in rows[1:] if row.startswith("+ "))
        reason = " ".join(row for row in rows[1:] if not row.startswith(("- ", "+ ")))
        if not removed or not reason:
            sys.exit(f"mutate.py: {EQUIVALENT.name}: {rows[0]} needs lines with - and a reason")
        entries[rows[0].strip(), removed, added] = reason
    return entries


def summary(name: str, counts: Counter[str]) -> str:
    judged = sum(counts.values()) - counts[NO_CHANGE]
    killed = counts[KILLED] + counts[TIMED_OUT]
    words = ", ".join(f"{counts[key]} {key}" for key in (KILLED, TIMED_OUT, SURVIVED, UNCOVERED, NO_CHANGE))
    return (
        f"{name}: {sum(counts.values())} mutants: {words}; {killed} of {judged} noticed, {killed / max(judged, 1):.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
