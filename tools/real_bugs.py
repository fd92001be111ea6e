"""Run the real bugs of tools/bugs, each beside the program without it, and score whether the culprit is named first.

    python tools/real_bugs.py
    python tools/real_bugs.py --bug gelu --bug sliding_window --keep folder
    python tools/real_bugs.py --list

Both programs run under ``sgsdump exec``, ``sgsdump compare`` compares the trees, and its JSON says what is named.
Prints the table of docs/how_well_it_finds.md. Needs torch; the bugs of exporters need onnxruntime, nothing else does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bugs.table import BUGS, REWRITTEN, Bug
from plants.outcome import Outcome, sgsdump

PROGRAMS = Path(__file__).resolve().parent / "bugs"
BLAMED = ("argument", "another tensor", "not finite", "cause", "magnified", "channel")
SIDES = ("sample", "benchmark")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bug", choices=[bug.name for bug in BUGS], action="append", help="default: all")
    parser.add_argument(
        "--healthy", action="store_true", help="run models and programs without a bug; no cause may be named"
    )
    parser.add_argument(
        "--golden", action="store_true", help="run the 16-bit bugs against a side without the bug in float32"
    )
    parser.add_argument("--list", action="store_true", help="print the bugs and run nothing")
    parser.add_argument("--keep", type=Path, help="keep the dumps in this folder, and reuse dumps from there")
    parser.add_argument("--jobs", type=int, default=1, help="number of bugs run in parallel (default: %(default)s)")
    args = parser.parse_args()
    bugs = [bug for bug in BUGS if not args.bug or bug.name in args.bug]
    if args.healthy:
        bugs = [*(bug.healed() for bug in bugs if bug.program == "exported"), *REWRITTEN]
    if args.golden:
        bugs = [bug for bug in bugs if bug.is_low]
    if args.list:
        for bug in bugs:
            print(f"{bug.name}: {bug.wrong} ({bug.source}, {bug.precision})")
        return 0
    print("| bug | source | precision | first | named |\n|---|---|---|---|---|")
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(lambda bug: _printed(bug, args.keep, args.golden), bugs))
    print(f"named first: {sum(o.first for o in outcomes)} of {len(outcomes)}")
    return 0 if all(o.first for o in outcomes) else 1


def _printed(bug: Bug, keep: Path | None, golden: bool) -> Outcome:
    if keep is not None:
        kept = keep / f"{bug.name}_golden" if golden else keep / bug.name
        kept.mkdir(parents=True, exist_ok=True)
        outcome = outcome_of(bug, kept, golden)
    else:
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(bug, Path(folder), golden)
    first = "yes" if outcome.first else "no"
    print(f"| {bug.wrong} | {bug.source} | {bug.precision} | {first} | {outcome.line} |", flush=True)
    return outcome


def outcome_of(bug: Bug, folder: Path, golden: bool = False) -> Outcome:
    """Raises RuntimeError where a program or a command ends in trouble."""
    started = [
        _started(folder, side, [PROGRAMS / f"{bug.program}.py", *arguments])
        for side, arguments in zip(SIDES, bug.golden() if golden else bug.arguments)
    ]
    for process in filter(None, started):
        _, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{bug.name}: {errors.decode()[-500:]}")
    trees = [next((folder / side).glob("msit_dump_*")) for side in SIDES]
    done = sgsdump("compare", *trees, "--json", folder / "comparison.json", folder=folder)
    if not any(folder.glob("comparison*.json")):
        raise RuntimeError(f"{bug.name}: {done.stderr.strip()[-500:]}")
    findings, modules = _first_findings(folder)
    named = ["culprit" if _is_culprit(bug, finding, modules) else finding["layer"] for finding in findings]
    culprits = frozenset({"culprit"} if bug.words else ())
    return Outcome(culprits, tuple(named), _text(findings[0], modules) if findings else "nothing")


def _started(folder: Path, side: str, program: list[Any]) -> subprocess.Popen[bytes] | None:
    if (folder / side).exists():
        return None
    command = [sys.executable, "-m", "sgsdump", "exec", "-o", side, "-er", "all", "--", sys.executable, *program]
    return subprocess.Popen(list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _first_findings(folder: Path) -> tuple[list[Mapping[str, Any]], Mapping[str, str]]:
    """What is named in the first round in which anything is, and the module of each layer."""
    for path in sorted(folder.glob("comparison*.json")):
        document = json.loads(path.read_text())
        findings = [finding for finding in document["findings"] if finding["kind"] in BLAMED]
        if findings:
            return findings, {row["name"]: row["module"] for row in document["rows"]}
    return [], {}


def _is_culprit(bug: Bug, finding: Mapping[str, Any], modules: Mapping[str, str]) -> bool:
    """It is in the culprit's module, and names one of its operators, arguments or weights."""
    said = (finding["op_type"], *(finding["facts"].get(name, "") for name in ("argument", "what", "rounded_type")))
    return _module(finding, modules) == bug.module and any(word in text for word in bug.words for text in said)


def _module(finding: Mapping[str, Any], modules: Mapping[str, str]) -> str:
    return finding["facts"].get("module") or modules.get(finding["layer"], "")


def _text(finding: Mapping[str, Any], modules: Mapping[str, str]) -> str:
    facts = finding["facts"]
    what = f"{facts['what']} {facts['argument']} of " if "argument" in facts else ""
    if facts.get("what") == "type":
        what = f"{facts['sample']} against {facts['benchmark']} in "
    operator = finding["op_type"].rpartition(".")[2]
    only = f", only in the {facts['only_in']}" if "only_in" in facts else ""
    return f"{what}{operator or finding['layer']} in {_module(finding, modules) or 'the net'}{only}"


if __name__ == "__main__":
    sys.exit(main())
