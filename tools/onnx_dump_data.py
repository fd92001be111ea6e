#!/usr/bin/env python3
"""Dump every layer of an ONNX model into ./dumpData, as the SDK's onnx_dump_data.py does.

--dump_bin True   dumpData/onnx_NHWC_outtensor_dump.bin
--dump_bin False  dumpData/onnx_NHWC_outtensor_dump.txt, and a text file per layer in dumpData/NHWC and dumpData/NCHW
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status
    from sgsdump.commands.sdk.options import dump_parser

    args = dump_parser(__doc__, "ONNX model").parse_args(argv)
    return exit_status("onnx_dump_data.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.dump import Form, dump_all
    from sgsdump.models.model import open_model
    from sgsdump.models.network import Source

    text = args.dump_bin == "False"
    output = Path("dumpData/onnx_NHWC_outtensor_dump").with_suffix(".txt" if text else ".bin")
    form = Form(text, own_outputs_first=True)
    dump_all(open_model(args.model_file), Source(args.image, args.preprocess), output, form)
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
