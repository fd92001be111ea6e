#!/usr/bin/env python3
"""Damage what is not a dump and give it to readers and commands: models, fixed models' metadata, pictures, arrays, side
files; and give the commands odd words.

Each command must end with 0 or 1, or with 2 and one line of error, within seconds, with nothing half-written left; a
reader as in fuzz_readers.py. What fails is saved below --findings and ends the run with status 1. A file is made from
--seed, its kind and its number alone:

fuzz_inputs.py --files 100000 --seed 7
fuzz_inputs.py --format arguments --seed 7 --only 4711
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed

from fuzzing import campaign
from fuzzing.inputs import SLOWER, input_seeds
from fuzzing.seeds import Seed


def all_seeds() -> dict[str, list[Seed]]:
    found: defaultdict[str, list[Seed]] = defaultdict(list)
    for name, (file, files, edit) in input_seeds():
        found[name].append(Seed(name, file, files, edit, SLOWER.get(name, 1)))
    return dict(found)


def main(argv: Sequence[str] | None = None) -> int:
    import onnxruntime  # noqa: F401  # before the processes, which are forks

    from sgsdump.commands import COMMANDS

    assert all(COMMANDS.values())
    return campaign.main(__doc__, all_seeds, argv)


if __name__ == "__main__":
    sys.exit(main())
