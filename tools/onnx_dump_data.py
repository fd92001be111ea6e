#!/usr/bin/env python3
"""Dump every layer of an ONNX model into ./dumpData, as the SDK's onnx_dump_data.py does.

--dump_bin True   dumpData/onnx_NHWC_outtensor_dump.bin
--dump_bin False  dumpData/onnx_NHWC_outtensor_dump.txt, and a text file per layer in dumpData/NHWC and dumpData/NCHW
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model_file", required=True, help="ONNX model")
    parser.add_argument("-i", "--image", required=True, help="picture, folder or list file")
    parser.add_argument("--dump_bin", choices=["True", "False"], default="True", help="binary or text (%(default)s)")
    parser.add_argument("-n", "--preprocess", help="preprocess file(s) with get_image, one per input, by commas")
    args = parser.parse_args(argv)
    return exit_status("onnx_dump_data.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.dump import dump_all
    from sgsdump.models.model import open_model

    text = args.dump_bin == "False"
    output = Path("dumpData/onnx_NHWC_outtensor_dump").with_suffix(".txt" if text else ".bin")
    dump_all(open_model(args.model_file), args.image, args.preprocess, None, output, text=text, own_outputs_first=True)
    return 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
