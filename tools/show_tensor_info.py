#!/usr/bin/env python3
"""Show where the tensors of a fixed model lie in working memory, as the SDK's show_tensor_info.py does.

show_tensor_info.py -m net_fixed.sim
show_tensor_info.py -m net_fixed.sim -u tensor

-u op writes TensorID_op.txt and TensorID_op.png: the tensors in memory, by operator. -u tensor writes
TensorID_tensor.txt and TensorID_tensor.png: a line and a column per tensor. Without -u, all four files are written
into the current folder. IDs are positions in the file, as in the text of parse_net. Operators are those of a fixed
dump. The SDK's form of these files is unknown; ours are tables with tabs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

UNITS = ("op", "tensor")


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("show_tensor_info.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.files.atomic_write import replace_text, replacing
    from sgsdump.fixedpoint.reports.memory import by_operator, by_tensor, memory_png
    from sgsdump.fixedpoint.sim.file import read
    from sgsdump.fixedpoint.sim.memory import memory_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="fixed.sim")
    parser.add_argument("-u", "--unit", choices=UNITS, help="unit of a line of the text (default: both)")
    args = parser.parse_args(argv)
    memory = memory_of(read(Path(args.model)))
    for unit in [args.unit] if args.unit else UNITS:
        text, picture = Path(f"TensorID_{unit}.txt"), Path(f"TensorID_{unit}.png")
        replace_text(text, by_operator(memory) if unit == "op" else by_tensor(memory))
        with replacing(picture) as file:
            file.write(memory_png(memory, unit))
        print(f"{text}, {picture}: {len(memory.allocations)} tensors in {memory.bytes:,} bytes of working memory")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
