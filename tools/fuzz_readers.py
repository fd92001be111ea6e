#!/usr/bin/env python3
"""Damage small files of every format a million times and read them: dumps, dump folders and side files.

Each must open or be refused with an error of ours in one line, within two seconds, in memory of the file's size and
4 MiB more (``fuzzing/trial.py`` says how that is measured). What fails is saved below --findings and ends the run with
status 1. A file is made from --seed, its format and its number alone:

fuzz_readers.py --files 1000000 --seed 7
fuzz_readers.py --format npz --seed 7 --only 4711
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fuzzing import campaign
from fuzzing.seeds import all_seeds

GENUINE = Path(__file__).resolve().parents[2] / "shared" / "data"


def main(argv: Sequence[str] | None = None) -> int:
    return campaign.main(__doc__, lambda: all_seeds(GENUINE), argv)


if __name__ == "__main__":
    sys.exit(main())
