#!/usr/bin/env python3
"""Draw the values of every layer against its range into ./Histograms, as the SDK's histogram.py does.

histogram.py DUMP TENSOR_MIN_MAX      a binary or text dump; ranges as text, JSON or pickle
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import main as sgsdump

    return sgsdump(["histogram", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    from door import enter

    enter(main)
