#!/usr/bin/env python3
"""Print the header of an offline image, as the SDK's show_img_info.py does.

show_img_info.py -m net.img
show_img_info.py -m net.img --version

The lines are those of parse_img of SDK 1.1.5, without SGS_FASRRUN_MODEL_SIZE. --version prints only the version; the
form of the SDK's line is unknown. `sgsdump show net.img` lists names and scales.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("show_img_info.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.fixedpoint.sim.image import header_text, read

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="offline image (.img)")
    parser.add_argument(
        "--version", action="store_true", help="print only the version of the SDK that compiled the image"
    )
    args = parser.parse_args(argv)
    image = read(args.model)
    print(f"{image.version}\n" if args.version else header_text(image), end="")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
