#!/usr/bin/env python3
"""Dump every blob of a Caffe model into ./dumpData, as the SDK's caffe_dump_data.py does; Caffe is not needed.

--dump_bin True   dumpData/caffe_NHWC_outtensor_dump.bin
--dump_bin False  dumpData/caffe_NHWC_outtensor_dump.txt, and a text file per blob in dumpData/NHWC and dumpData/NCHW
Both write dumpData/shape.txt. The dump has no first input; its values are in NHWC and NCHW.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status
    from sgsdump.commands.sdk.options import dump_parser

    parser = dump_parser(__doc__, "Caffe model (.prototxt)")
    parser.add_argument("--weight_file", required=True, help="weights of the model (.caffemodel)")
    args = parser.parse_args(argv)
    return exit_status("caffe_dump_data.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.dump import Form, dump_all
    from sgsdump.models.model import open_model
    from sgsdump.models.network import Source

    text = args.dump_bin == "False"
    output = Path("dumpData/caffe_NHWC_outtensor_dump").with_suffix(".txt" if text else ".bin")
    model = open_model(args.model_file, args.weight_file)
    dump_all(model, Source(args.image, args.preprocess), output, Form(text, caffe=True))
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
