#!/usr/bin/env python3
"""Dump every layer of a TFLite model into ./dumpData, as the SDK's tflite_dump_data.py does.

The file is dumpData/tflite_outtensor_dump.bin, also for --dump_bin False, which prints the values.
Needs LiteRT: pip install 'sgsdump[tflite]'
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status
    from sgsdump.commands.sdk.options import dump_parser

    args = dump_parser(__doc__, "TFLite model").parse_args(argv)
    return exit_status("tflite_dump_data.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.sdk.tflite_run import TfliteRun
    from sgsdump.dumps.formats.sigmastar import binary, text_dump
    from sgsdump.dumps.formats.sigmastar.text_dump import TFLITE
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.files.names import output_paths
    from sgsdump.models.feeds.feeds import expand, feeds

    model = TfliteRun(Path(args.model_file))
    runs = feeds(args.image, args.preprocess, model.inputs)
    files = [names[0] for names in expand(args.image, len(model.inputs))]
    folder = make_folder(Path("dumpData"))
    for target, (_, feed) in zip(output_paths(folder / "tflite_outtensor_dump.bin", files), runs):
        if args.dump_bin == "True":
            binary.write(model.records(feed), target, binary.TFLITE)
        else:
            text_dump.write(model.records(feed), target, TFLITE)
        print(f"{target}: {target.stat().st_size:,} bytes")
    for name, reason in model.skipped.items():
        print(f"not dumped: {name}: {reason}")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
