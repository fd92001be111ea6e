"""The options of ``sgsdump pipeline``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.options import add_data_loader, add_model

KINDS = {
    "full": "every tensor, or every STEP-th",
    "once": "one tensor",
    "range": "the tensors between two, both included",
    "list": "the tensors named",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="kind", metavar="full|once|range|list", required=True)
    for kind, what in KINDS.items():
        sub = commands.add_parser(kind, help=what, description=f"Dump {what}. See also: sgsdump pipeline --help")
        _add_what(sub, kind)
        _add_run(sub)
        _add_inputs(sub)
        _add_comparison(sub)


def _add_what(sub: argparse.ArgumentParser, kind: str) -> None:
    add_model(sub)
    if kind == "once":
        sub.add_argument("--name", dest="names", nargs=1, required=True, help="the tensor to dump")
        sub.add_argument("--print-ir", action="store_true", help="print the graph that leads to it")
        sub.add_argument(
            "--save-test-case",
            dest="test_case",
            type=Path,
            metavar="DIR",
            help="its sub-model, inputs, expected output",
        )
        sub.add_argument("--depth", type=int, metavar="N", help="of both: only the last N nodes")
        return
    if kind == "list":
        sub.add_argument("--name", dest="names", nargs="+", required=True, help="the tensors to dump")
        return
    if kind == "range":
        for what, short in (("begin", "-b"), ("end", "-e")):
            sub.add_argument(short, f"--{what}", metavar="I|NAME", help=f"topological index or name to {what} with")
            sub.add_argument(f"{short}s", f"--{what}-string", metavar="NAME", help="the same, always a name")
    sub.add_argument("-s", "--step", type=int, default=1, help="every STEP-th tensor (%(default)s)")
    sub.add_argument("--name-pattern", metavar="PATTERN", help="tensors of such names: * any text, ? a character")
    sub.add_argument("--op-type", nargs="+", default=(), metavar="OP", help="tensors that these operators make")
    if kind == "full":
        sub.add_argument(
            "--bisect", metavar="EXECUTOR", help="no dump: find the first tensor that differs with EXECUTOR"
        )
        sub.add_argument(
            "--threshold",
            type=float,
            default=1e-3,
            metavar="X",
            help="of --bisect: a tensor differs when max|difference| / max|value| is above it (%(default)s)",
        )


def _add_run(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "-f", "--executor", default="ort", help="ort (default), reference, openvino, tvm, sdaa, or a plug-in's name"
    )
    sub.add_argument(
        "--mode",
        choices=["fast", "isolated"],
        default="fast",
        help="one pass in segments, or each tensor from a sub-model of its own (%(default)s)",
    )
    sub.add_argument("-mt", "--model-type", metavar="TYPE", help="float16 (fp16) runs a float16 copy of the model")
    sub.add_argument("-p", "--passed-path", type=Path, metavar="FILE.py", help="tvm, sdaa: file of passes to run")
    sub.add_argument("--provider", metavar="NAME", help="ort: execution provider, such as CUDAExecutionProvider (CPU)")
    sub.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the executor")
    sub.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write (default: ./EXECUTOR_dump)")


def _add_inputs(sub: argparse.ArgumentParser) -> None:
    inputs = sub.add_argument_group("inputs (default: random, seed 42)")
    inputs.add_argument("-i", "--input-file", metavar="NAME:FILE.npy", help="arrays; several with commas between")
    inputs.add_argument(
        "--input-dir", type=Path, metavar="DIR", help="folder with NAME.npy for every input, or such folders"
    )
    add_data_loader(inputs)
    inputs.add_argument("--inputs-from", type=Path, metavar="JSON", help="the random inputs of a dump_info.json")
    inputs.add_argument("--seed", type=int, metavar="N", help="seed of the random inputs (42)")
    inputs.add_argument(
        "--range",
        nargs="+",
        action="append",
        default=[],
        metavar="V",
        help="LOW HIGH of the random inputs, or NAME LOW HIGH of one (floats 0 1, integers 0 100)",
    )
    inputs.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1x3x8x8", help="shape of an input that has open sizes"
    )


def _add_comparison(sub: argparse.ArgumentParser) -> None:
    comparison = sub.add_argument_group("comparison")
    comparison.add_argument("-cd", "--compare-dir", type=Path, metavar="DIR", help="dump to hold the outputs against")
    comparison.add_argument("-g", "--golden-dir", type=Path, metavar="DIR", help="golden dump, makes it three-way")
    comparison.add_argument(
        "-t", "--input-tag", type=float, metavar="X", help="pass within X times the error of -cd against golden (10)"
    )
    comparison.add_argument("-t1", "--th1", type=float, metavar="X", help="threshold of diff3 and all_close (1e-6)")
    comparison.add_argument("-t2", "--th2", type=float, metavar="X", help="diff2 above it is listed (1e-3)")
