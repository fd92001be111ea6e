#!/usr/bin/env python3
"""Run torch programs of every kind with and without ``sgsdump exec``: output and exit status must be the same.

    python tools/program_kinds.py
    python tools/program_kinds.py --python /opt/venv313/bin/python --kind frozen --kind compiled_aot

The programs are the functions of tools/programs/kinds.py; all of them run in one process, those that end a process each
in one of its own. ``--python`` is the interpreter that runs the programs, with its own torch; sgsdump runs in this one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

KINDS = Path(__file__).parent / "programs" / "kinds.py"
NAMES = re.compile(r"@(kind|ending)\ndef (\w+)")


def main() -> int:
    names = NAMES.findall(KINDS.read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the programs (default: this one)")
    parser.add_argument("--kind", choices=[name for _, name in names], action="append", help="default: all")
    args = parser.parse_args()
    chosen = [(how, name) for how, name in names if not args.kind or name in args.kind]
    together = [name for how, name in chosen if how == "kind"]
    others = [[name] for how, name in chosen if how == "ending"]
    wrong = [name for group in [together, *others] if group for name in differing(args.python, group)]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} programs have the same output and status")
    return 1 if wrong else 0


def differing(python: str, names: Sequence[str]) -> list[str]:
    """Those that differ with ``exec``, each printed."""
    program = [python, str(KINDS), *names]
    with tempfile.TemporaryDirectory() as folder:
        alone = subprocess.run(program, cwd=folder, capture_output=True, text=True)
        dump = [sys.executable, "-m", "sgsdump", "exec", "-er", "all", "-o", "dump", "--", *program]
        hooked = subprocess.run(dump, cwd=folder, capture_output=True, text=True)
    texts = [_by_name(done.stdout, names) for done in (alone, hooked)]
    found = [name for name in names if texts[0].get(name) != texts[1].get(name)]
    for name in found:
        print(f"{name}: {texts[0].get(name)!r}\n  with exec: {texts[1].get(name)!r}")
    if found or len(texts[0]) < len(names):
        print(f"alone: {alone.stderr[-600:]}\nwith exec: {hooked.stderr[-600:]}")
    statuses = [done.returncode if done.returncode >= 0 else 128 - done.returncode for done in (alone, hooked)]
    if statuses[0] != statuses[1]:
        print(f"{', '.join(names)}: status {statuses[0]}, with exec {statuses[1]}")
        return found or [names[-1]]
    return found


def _by_name(text: str, names: Sequence[str]) -> dict[str, str]:
    """What each program printed; of one that ends its process, all."""
    lines = dict(line.partition(": ")[::2] for line in text.splitlines() if line.partition(": ")[0] in names)
    return lines or ({names[0]: text} if len(names) == 1 else {})


if __name__ == "__main__":
    sys.exit(main())
