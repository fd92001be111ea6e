#!/usr/bin/env python3
"""Dump the tensors of an ONNX model one by one and compare them, as the SDAA dump_tools.py does.

dump_tools.py dump_full  -f ort|sdaa -d MODEL.onnx [-s STEP]
dump_tools.py dump_once  -f ort|sdaa -d MODEL.onnx -n NAME
dump_tools.py dump_range -f ort|sdaa -d MODEL.onnx [-b I | -bs NAME] [-e I | -es NAME] [-s STEP]
dump_tools.py dump_list  -f ort|sdaa -d MODEL.onnx -n NAME [NAME ...]

The dump goes to ./ort_dump (./sdaa_dump ...), the comparison to ./compare_result.log, .csv and .json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    args = arguments().parse_args(argv)
    return exit_status("dump_tools.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.pipeline.command import dump
    from sgsdump.pipeline.job import job_of

    # The back-ends with a language of their own show it for a single tensor.
    shown = args.kind == "once" and args.executor != "ort"
    return dump(job_of({**vars(args), "print_ir": shown, "log": Path("compare_result.log"), "judge": False}))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="kind", metavar="dump_full|dump_once|dump_range|dump_list", required=True)
    for kind in ("full", "once", "range", "list"):
        sub = commands.add_parser(f"dump_{kind}")
        sub.set_defaults(kind=kind)
        _common(sub)
        if kind in ("full", "range"):
            sub.add_argument(
                "-s", "--step", type=int, default=1, help="dump every STEP-th tensor (default: %(default)s)"
            )
        if kind in ("once", "list"):
            several = {"nargs": "+"} if kind == "list" else {"nargs": 1}
            sub.add_argument(
                "-n", "--output_name", dest="names", required=True, metavar="NAME", help="tensor to dump", **several
            )
        if kind == "range":
            sub.add_argument("-b", "--begin", metavar="I", help="topological index of the first tensor")
            sub.add_argument("-e", "--end", metavar="I", help="topological index of the last tensor")
            sub.add_argument("-bs", "--begin_string", metavar="NAME", help="name of the first tensor")
            sub.add_argument("-es", "--end_string", metavar="NAME", help="name of the last tensor")
    return parser


def _common(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "-f",
        "--frame_type",
        dest="executor",
        required=True,
        metavar="EXECUTOR",
        help="executor: ort, sdaa, or another executor of sgsdump pipeline",
    )
    sub.add_argument("-d", "--onnx_dir", dest="model", type=Path, required=True, metavar="MODEL", help="ONNX model")
    sub.add_argument("-mt", "--model_type", metavar="TYPE", help="float16 or fp16 runs a float16 copy of the model")
    sub.add_argument("-i", "--input_file", metavar="NAME:FILE.npy", help="input arrays, separated by commas")
    sub.add_argument(
        "-p", "--passed_path", type=Path, metavar="FILE.py", help="sdaa: Python file with the compiler passes to run"
    )
    sub.add_argument("-cd", "--compare_dir", type=Path, metavar="DIR", help="dump to compare the outputs with")
    sub.add_argument("-g", "--golden_dir", type=Path, metavar="DIR", help="golden dump, for the three-way comparison")
    sub.add_argument(
        "-t",
        "--input_tag",
        type=float,
        metavar="X",
        help="highest allowed error as a multiple of the error of -cd, both against -g (default: 10)",
    )
    sub.add_argument("-t1", "--th1", type=float, metavar="X", help="limit of diff3 and all_close (default: 1e-6)")
    sub.add_argument(
        "-t2", "--th2", type=float, metavar="X", help="list tensors whose diff2 is above X (default: 1e-3)"
    )


if __name__ == "__main__":
    from door import enter

    enter(main)
