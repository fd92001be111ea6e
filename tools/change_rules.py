#!/usr/bin/env python3
"""Change one rule of the source at a time, as a person would, and see whether the tests notice.

mutate.py changes operators and numbers wherever they stand; these are other formulas, orders and limits, thought of by
a person and listed in ``mutation/by_hand.txt``. An entry has a line each:

    the file's path
    ``- `` and a line that goes; several stand in the file one after the other, in the same indentation to each other
    ``+ `` and a line that comes in their place, if any does
    ``tests `` and the files or folders of the tests that should notice, few enough to run in seconds
    the rule in words

A blank line ends it, and ``#`` begins a comment. Nothing but a copy of the checkout in --scratch is changed. Tests that
fail without the change too notice nothing: that is an error. Prints a line for each rule, then how many of how many
were noticed; the status is 1 when one was not.

change_rules.py
change_rules.py --only sgsdump/comparison --only pooling
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.trial import copied

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutation" / "by_hand.txt"
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "--import-mode=importlib",
    "-o",
    "addopts=",
    "-p",
    "no:cacheprovider",
)
SECONDS = 900
PASSED, FAILED = 0, 1  # of pytest's statuses; the others mean that no test was run, or not to its end


@dataclass(frozen=True)
class RuleChange:
    """An entry of the list: ``removed`` lines of the file ``path``, the ``added`` ones, and who should notice."""

    path: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    tests: tuple[str, ...]
    rule: str


def rule_changes(text: str) -> Iterator[RuleChange]:
    """The entries of the list. Raises ValueError for one that lacks lines that go, tests, or the rule in words."""
    for block in text.split("\n\n"):
        path, *rows = [row for row in block.splitlines() if row.strip() and not row.startswith("#")] or [""]
        if not path:
            continue
        removed, added = (tuple(row[2:].rstrip() for row in rows if row.startswith(sign)) for sign in ("- ", "+ "))
        tests = tuple(word for row in rows if row.startswith("tests ") for word in row.split()[1:])
        rule = " ".join(row.strip() for row in rows if not row.startswith(("- ", "+ ", "tests ")))
        if not (removed and tests and rule):
            raise ValueError(f"{LIST.name}: {path} needs lines with -, tests, and the rule in words")
        yield RuleChange(path.strip(), removed, added, tests, rule)


def changed(source: str, change: RuleChange) -> str:
    """``source`` with the rule changed.

    Raises ValueError unless its lines stand there exactly once, and SyntaxError when what comes is not Python there:
    every test would notice that, of any rule.
    """
    lines, count = source.splitlines(), len(change.removed)
    starts = [
        start
        for start in range(len(lines) - count + 1)
        if textwrap.dedent("\n".join(lines[start : start + count])).splitlines() == list(change.removed)
    ]
    if len(starts) != 1:
        raise ValueError(
            f"{LIST.name}: {change.removed[0]!r} occurs {len(starts)} times in {change.path}; it must occur once"
        )
    start = starts[0]
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    lines[start : start + count] = [indent + line for line in change.added]
    text = "\n".join(lines) + "\n"
    compile(text, change.path, "exec")
    return text


def is_noticed(tree: Path, change: RuleChange) -> bool:
    """Whether a test fails in the copy ``tree`` because the rule is changed; the file is put back.

    Raises RuntimeError when no test ran, and when one fails without the change too.
    """
    file = tree / change.path
    original = file.read_text(encoding="utf-8")
    try:
        file.write_text(changed(original, change), encoding="utf-8")
        noticed = _failure(tree, change)
    finally:
        file.write_text(original, encoding="utf-8")
    alike = noticed and _failure(tree, change)
    if alike:
        raise RuntimeError(f"{' '.join(change.tests)}: also fails without the change: {alike}")
    return bool(noticed)


def _failure(tree: Path, change: RuleChange) -> str:
    """The end of what pytest says where a test of the entry fails, or does not end; "" where all pass."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    with subprocess.Popen(
        [*PYTEST, *change.tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            output, _ = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # with the programs that the tests started
            return f"did not finish within {SECONDS} seconds"
        except BaseException:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    if run.returncode not in (PASSED, FAILED):  # such as: all are skipped, for want of torch
        raise RuntimeError(f"{' '.join(change.tests)}: no test finished:  {output[-500:]}")
    return "" if run.returncode == PASSED else output[-500:]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="check only entries with this word in the path or the rule"
    )
    scratch = Path(tempfile.gettempdir()) / "sgsdump-rules"
    parser.add_argument("--scratch", type=Path, default=scratch, help=f"folder for the copy ({scratch})")
    args = parser.parse_args(argv)
    entries = rule_changes(LIST.read_text(encoding="utf-8"))
    chosen = [e for e in entries if not args.only or any(word in f"{e.path} {e.rule}" for word in args.only)]
    if not chosen:
        parser.error(f"no entry of {LIST.name} has {' or '.join(args.only or ['a rule'])} in its path or its rule")
    tree = copied(ROOT, args.scratch.resolve())
    outcomes: list[str] = []
    for number, change in enumerate(chosen, 1):
        try:
            outcomes.append("noticed" if is_noticed(tree, change) else "NOT NOTICED")
        except (RuntimeError, SyntaxError, ValueError) as error:
            outcomes.append(f"NO ANSWER ({error})")
        print(f"{number}/{len(chosen)} {outcomes[-1]}: {change.path}: {change.rule}", flush=True)
    noticed = outcomes.count("noticed")
    print(f"{noticed} of {len(chosen)} rules changed by hand were noticed")
    return 0 if noticed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
