#!/usr/bin/env python3
"""Write the integer types of a model's convolutions to ./Tensor_qtype.txt, as the SDK's show_conv_qtype_info.py does.

show_conv_qtype_info.py -m net_cmodel_float.sim --input_config input_config.ini --quant_level ALL

The file has a block for each number of bits, as in the manual. The SDK's name of the 8-bit block is unknown; ours is
qtype_INT8. float.sim and fixed.sim also contain the types.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

OUTPUT = Path("Tensor_qtype.txt")


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("show_conv_qtype_info.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.commands.sdk.options import NoEffect, accept, no_effect_notes
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.fixedpoint.sim.file import read
    from sgsdump.fixedpoint.sim.qtypes import LEVELS, qtype_text

    no_effect = [NoEffect(("--input_config",), "the model contains the types of all convolutions")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="cmodel_float.sim, float.sim or fixed.sim")
    parser.add_argument(
        "--quant_level", choices=list(LEVELS), default="ALL", help="numbers of bits to write (default: %(default)s)"
    )
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    for note in no_effect_notes(args, no_effect):
        print(f"show_conv_qtype_info.py: {note}", file=sys.stderr)
    text = qtype_text(read(Path(args.model)), args.quant_level)
    replace_text(OUTPUT, text)
    print(f"{text}{OUTPUT}")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
