"""Plant faults with known culprits, run the commands as a user would, and score what they name.

    python tools/culprits.py --group dumps --plants 60 --seed 1
    python tools/culprits.py --group quantisation --kind outlier_channel --plants 10 --seed 7 --verbose
    python tools/culprits.py --group dumps --healthy --plants 300 --seed 11    # false alarms only

A group is a module of tools/plants with ``PLANTS``: kind -> function(rng, folder) -> Outcome, and perhaps
``together(kind, rngs, folder)``, which runs several at once. Kinds whose name begins with ``healthy`` plant nothing;
those in ``FURTHER`` are drawn only when they are asked for.
docs/how_well_it_finds.md has the table.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from plants.outcome import Outcome, drawn

GROUPS = ("quantisation", "executors", "dumps", "backends", "programs", "precision", "causes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=GROUPS, action="append", help="default: all")
    parser.add_argument("--kind", help="run only planted faults of this kind")
    parser.add_argument("--healthy", action="store_true", help="run only kinds without a planted fault")
    parser.add_argument(
        "--plants", type=int, default=60, help="number of planted faults per group (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print each planted fault that was not named first")
    args = parser.parse_args()
    print("| group | kind | plants | first | among three |\n|---|---|---|---|---|")
    for group in args.group or GROUPS:
        outcomes = run_group(group, args.plants, args.seed, args.kind, args.verbose, args.healthy)
        for kind, those in sorted(outcomes.items()):
            _print_line(group, kind, those)
        for title, healthy in (("all plants", False), ("all healthy", True)):
            those = [o for kind, some in outcomes.items() if kind.startswith("healthy") == healthy for o in some]
            if those:
                _print_line(group, title, those)
    return 0


def run_group(
    group: str, count: int, seed: int, kind: str | None = None, verbose: bool = False, healthy: bool = False
) -> dict[str, list[Outcome]]:
    """The outcomes of ``count`` plants by kind, each plant with a generator and a folder of its own."""
    module = importlib.import_module(f"plants.{group}")
    plants = {**module.PLANTS, **getattr(module, "FURTHER", {})}
    kinds = [kind] if kind else [name for name in module.PLANTS if not healthy or name.startswith("healthy")]
    outcomes = defaultdict(list)
    names = drawn(kinds, np.random.default_rng(seed), count)
    for name in dict.fromkeys(names):
        numbers = [number for number, other in enumerate(names) if other == name]
        rngs = [np.random.default_rng((seed, number)) for number in numbers]
        with tempfile.TemporaryDirectory() as folder:
            if hasattr(module, "together"):
                found = module.together(name, rngs, Path(folder))
            else:
                found = [plants[name](rng, _own(folder, number)) for rng, number in zip(rngs, numbers)]
        outcomes[name] += found
        for number, outcome in zip(numbers, found):
            if verbose and not (outcome.first and outcome.restored is not False):
                culprits, named = sorted(outcome.culprits), outcome.named[:3]
                print(f"{name} {seed}:{number} planted {culprits}, named {named}: {outcome.line}", flush=True)
                print(f"   restored: {outcome.restored}" if outcome.restored is not None else "", flush=True)
    return outcomes


def _own(folder: str, number: int) -> Path:
    path = Path(folder, str(number))
    path.mkdir()
    return path


def _print_line(group: str, kind: str, outcomes: list[Outcome]) -> None:
    first, three = sum(o.first for o in outcomes), sum(o.among_three for o in outcomes)
    restored = [o.restored for o in outcomes if o.restored is not None]
    enough = f" {sum(restored)} of {len(restored)} restored |" if restored else ""
    print(f"| {group} | {kind} | {len(outcomes)} | {first} | {three} |{enough}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
