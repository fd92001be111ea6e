#!/usr/bin/env python3
"""Compare the layers and inputs of two dumps, as the SDK's dump_debug.py does.

dump_debug.py fixed.bin float.bin            MSE, COS and RMSE of every tensor in both dumps
dump_debug.py fixed.bin float.bin TENSOR     the same for one tensor; its values are in ./fixed.txt and ./float.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixed", type=Path, metavar="fixed.bin", help="dump under test")
    parser.add_argument("float", type=Path, metavar="float.bin", help="reference dump")
    parser.add_argument("tensor", nargs="?", help="name of a tensor")
    args = parser.parse_args(argv)
    return exit_status("dump_debug.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.sdk.files import write_pair
    from sgsdump.comparison.compare import compare
    from sgsdump.dumps.io import open_dump
    from sgsdump.errors import ValuesError
    from sgsdump.reports.comparison.sdk import dump_debug_lines

    fixed, floats = open_dump(args.fixed), open_dump(args.float)
    if args.tensor is not None:
        fixed, floats = write_pair(args.tensor, (fixed, Path("fixed.txt")), (floats, Path("float.txt")))
    comparison = compare(fixed, floats, inputs=True)
    for line in dump_debug_lines(comparison, fixed):
        print(line)
    for left in comparison.failed:
        print(f"dump_debug.py: not compared: {left.pair.sample.name}: {left.reason}", file=sys.stderr)
    for alone in (*comparison.only_in_sample, *comparison.only_in_benchmark):
        print(f"dump_debug.py: not compared: {alone.record.name}: {alone.reason}", file=sys.stderr)
    if not comparison.rows:
        raise ValuesError("no tensor could be compared; the reasons are listed above")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
